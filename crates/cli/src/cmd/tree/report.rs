//! The numbers of directories and files at the end of a tree.
//!
//! `tree` counts each item. As in tree(1), a link to a directory is a directory, and so is the one
//! that is shown, unless nothing is in it.

use super::args::{Args, Sizes};
use super::entry::Item;
use super::lines::human;
use crate::text::counted;

/// The numbers.
#[derive(Default)]
pub(super) struct Report {
    /// Directories below the one that is shown.
    pub(super) directories: u64,
    /// The directories below the directories that are shown.
    pub(super) below: u64,
    pub(super) files: u64,
    /// The bytes in the directories that are shown.
    pub(super) bytes: u64,
}

impl Report {
    pub(super) fn count(&mut self, item: &Item) {
        match (item.depth, item.entry.is_directory()) {
            (0, _) => {
                self.directories += u64::from(item.has_children || item.note.is_some());
                self.bytes = self.bytes.saturating_add(item.size);
            }
            (_, true) => {
                self.directories += 1;
                self.below += 1;
            }
            (_, false) => self.files += 1,
        }
    }

    /// Returns the last lines of a tree.
    pub(super) fn text(&self, args: &Args) -> String {
        let used = match args.sizes().filter(|_| args.du) {
            Some(Sizes::Bytes) => format!(" {:>11} bytes used in ", self.bytes),
            Some(Sizes::Units(base)) => format!(" {:>4} used in ", human(self.bytes, base)),
            None => String::new(),
        };
        let directories = counted(self.directories, "directory", "directories");
        if args.directories {
            format!("\n{used}{directories}\n")
        } else {
            format!(
                "\n{used}{directories}, {}\n",
                counted(self.files, "file", "files")
            )
        }
    }
}
