//! Files with several names, whose copies get as many.

use std::collections::HashMap;
use std::hash::Hash;

/// Where the first name of every such file went: `Place` of `Copy`. Sources may hold names in common, and the last of them has
/// the name, so a first name may come to be another file's.
pub(super) struct Links<File, Copy, Place> {
    copies: HashMap<File, (Copy, Place)>,
    files: HashMap<Copy, File>,
}

impl<File: Clone + Eq + Hash, Copy: Clone + Eq + Hash, Place> Links<File, Copy, Place> {
    pub(super) fn new() -> Self {
        Self { copies: HashMap::new(), files: HashMap::new() }
    }

    /// Whether there is nothing to link to.
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// The first name of `file`'s copy.
    pub(super) fn first(&self, file: &File) -> Option<&Place> {
        self.copies.get(file).map(|(_, first)| first)
    }

    /// `file` has got its first name.
    pub(super) fn add(&mut self, file: File, copy: Copy, first: Place) {
        self.files.insert(copy.clone(), file.clone());
        self.copies.insert(file, (copy, first));
    }

    /// `file` is going to get a name that `there` has. Tells whether that is its copy already. If it is another's, no more
    /// links to it are made: that may have been its first name.
    pub(super) fn has_name(&mut self, file: &File, there: &Copy) -> bool {
        let Some(other) = self.files.get(there) else { return false };
        if other == file {
            return true;
        }
        self.copies.remove(other);
        self.files.remove(there);
        false
    }
}
