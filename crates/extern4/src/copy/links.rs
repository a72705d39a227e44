//! Tracks files with several names, so that their copies get as many.
//!
//! `into` and `out_of` look each such file up before they copy it, and link to the first copy
//! instead. A file that was replaced meanwhile is not linked to.

use std::collections::HashMap;
use std::hash::Hash;

/// A map from each such file to its `Copy` and the `Place` of the copy's first name. Sources may
/// hold the same names, and the last source gets the name. So a first name may come to belong to
/// another file.
pub(super) struct Links<File, Copy, ImagePath> {
    copies: HashMap<File, (Copy, ImagePath)>,
    files: HashMap<Copy, File>,
}

impl<File: Clone + Eq + Hash, Copy: Clone + Eq + Hash, ImagePath> Links<File, Copy, ImagePath> {
    pub(super) fn new() -> Self {
        Self {
            copies: HashMap::new(),
            files: HashMap::new(),
        }
    }

    /// Returns whether there is nothing to link to.
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Returns the first name of the copy of `file`.
    pub(super) fn first(&self, file: &File) -> Option<&ImagePath> {
        self.copies.get(file).map(|(_, first)| first)
    }

    /// Records the first name of the copy of `file`.
    pub(super) fn add(&mut self, file: File, copy: Copy, first: ImagePath) {
        self.files.insert(copy.clone(), file.clone());
        self.copies.insert(file, (copy, first));
    }

    /// Notes that `file` is about to get a name that `there` has. Returns whether `there` is its
    /// copy already. If `there` is another file's copy, that file gets no more links: the name may
    /// have been its first.
    pub(super) fn has_name(&mut self, file: &File, there: &Copy) -> bool {
        let Some(other) = self.files.get(there) else {
            return false;
        };
        if other == file {
            return true;
        }
        self.copies.remove(other);
        self.files.remove(there);
        false
    }
}
