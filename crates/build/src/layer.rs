//! A source of a volume.

use extern4_tree::{Contents, Opened, Result, Source};

/// A source and the directory of the volume that its root becomes.
pub(crate) struct Layer {
    source: Box<dyn Source>,
    prefix: Box<[u8]>,
}

impl Layer {
    pub(crate) fn new(source: Box<dyn Source>, prefix: &[u8]) -> Self {
        Self {
            source,
            prefix: prefix.into(),
        }
    }

    /// Opens the contents of a file, given by the path in the volume at which the source put it.
    pub(crate) fn open(&self, path: &[u8], contents: &Contents) -> Result<Opened> {
        self.source.open(self.path_in_source(path), contents)
    }

    /// The path that a path in the volume has in the source.
    pub(crate) fn path_in_source<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        let rest = path.strip_prefix(&*self.prefix).unwrap_or(path);
        rest.strip_prefix(b"/").unwrap_or(rest)
    }
}
