//! [`Run`]: consecutive blocks of a file that are mapped to consecutive blocks of the volume, or a
//! hole.
//!
//! All readers of a map get runs, and all functions that map blocks take them. A run has at least
//! one block, ends at 2^32 at most, and lies inside the volume.

/// One past the last logical block that a file can have.
pub(crate) const LOGICAL_END: u64 = 1 << 32;

/// How a run is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// Not allocated: it reads as zeroes.
    Hole,
    /// Allocated from this block of the volume on, but never written: reads as zeroes.
    Unwritten {
        /// The first block of the volume.
        physical: u64,
    },
    /// Written, from this block of the volume on.
    Mapped {
        /// The first block of the volume.
        physical: u64,
    },
}

impl RunKind {
    /// Returns the kind of the rest of the run after its first `blocks` blocks.
    pub(crate) fn skip(self, blocks: u64) -> Self {
        match self {
            Self::Hole => Self::Hole,
            // OK: the run lies inside the volume, and so does every part of it.
            Self::Unwritten { physical } => Self::Unwritten {
                physical: physical + blocks,
            },
            Self::Mapped { physical } => Self::Mapped {
                physical: physical + blocks,
            },
        }
    }
}

/// Consecutive blocks of a file of one kind, which are also consecutive on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first block of the file.
    pub logical: u32,
    /// How many blocks: at least one, and `logical + len_blocks` is at most 2^32.
    pub len_blocks: u64,
    /// The kind of their contents.
    pub kind: RunKind,
}

impl Run {
    /// Returns a hole from `logical` up to `end`; one block at least.
    pub(crate) fn hole(logical: u32, end: u64) -> Self {
        let start = u64::from(logical);
        Self {
            logical,
            len_blocks: end.clamp(start + 1, LOGICAL_END) - start,
            kind: RunKind::Hole,
        }
    }

    /// Returns one past the last block of the file.
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + self.len_blocks
    }

    /// Returns the blocks of the volume that the run has, written or not.
    pub(crate) fn allocated(&self) -> Option<std::ops::Range<u64>> {
        match self.kind {
            // OK: as in `mapped`.
            RunKind::Mapped { physical } | RunKind::Unwritten { physical } => {
                Some(physical..physical + self.len_blocks)
            }
            RunKind::Hole => None,
        }
    }

    /// Returns the blocks of the volume that hold written data.
    pub(crate) fn mapped(&self) -> Option<std::ops::Range<u64>> {
        match self.kind {
            // OK: decoding has checked that the run lies inside the volume.
            RunKind::Mapped { physical } => Some(physical..physical + self.len_blocks),
            RunKind::Hole | RunKind::Unwritten { .. } => None,
        }
    }
}
