//! The numbers of an update.

/// The numbers of names that an update changes and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdateSummary {
    /// Names that are made.
    pub created: u64,
    /// Names that get a new file.
    pub replaced: u64,
    /// Files that get other attributes only.
    pub changed: u64,
    /// Names that go, those below directories included.
    pub removed: u64,
    /// Names that stay as they are.
    pub kept: u64,
    /// Bytes of contents that are written.
    pub bytes: u64,
}

impl UpdateSummary {
    /// Returns whether nothing changes.
    pub fn is_empty(&self) -> bool {
        (self.created, self.replaced, self.changed, self.removed) == (0, 0, 0, 0)
    }

    /// Returns how many names were compared.
    pub(super) fn entries(&self) -> u64 {
        self.created + self.replaced + self.changed + self.removed + self.kept
    }
}
