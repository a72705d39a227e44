//! The order of a listing.
//!
//! `ls` sorts with it. Entries that are equal by the chosen order keep the order of their names.

use std::cmp::{Ordering, Reverse};
use std::os::unix::ffi::OsStrExt as _;

use clap::ValueEnum;
use extern4::{Metadata, Timespec};

use super::entry::Entry;
use crate::text::{compare_versions, width};

/// The order of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    /// By name
    Name,
    /// By time, newest first
    Time,
    /// By size, largest first
    Size,
    /// By what stands behind the last dot
    Extension,
    /// By the numbers in names
    Version,
    /// By how wide names are
    Width,
    /// As they stand in the directory
    None,
}

/// A time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Stamp {
    /// The last reading
    #[value(alias = "access", alias = "use")]
    Atime,
    /// The last change of attributes
    #[value(alias = "status")]
    Ctime,
    /// The last change of contents
    #[value(alias = "modification")]
    Mtime,
    /// The birth
    #[value(alias = "creation")]
    Birth,
}

impl Stamp {
    /// Returns this time of a file. Only the birth may be unknown.
    pub(super) fn of(self, metadata: &Metadata) -> Option<Timespec> {
        match self {
            Self::Atime => Some(metadata.atime()),
            Self::Ctime => Some(metadata.ctime()),
            Self::Mtime => Some(metadata.mtime()),
            Self::Birth => metadata.btime(),
        }
    }
}

/// How a listing is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sorting {
    pub(super) order: Order,
    /// The time that counts.
    pub(super) stamp: Stamp,
    /// Directories come first, also in reverse order.
    pub(super) directories_first: bool,
    pub(super) reverse: bool,
}

impl Sorting {
    /// Sorts items by their entries.
    pub(super) fn sort<T>(self, items: &mut [T], entry: impl Fn(&T) -> &Entry) {
        if self.order == Order::None {
            return;
        }
        items.sort_by(|a, b| {
            let ordering = self.compare(entry(a), entry(b));
            let ordering = if self.reverse {
                ordering.reverse()
            } else {
                ordering
            };
            let files_last = |item| self.directories_first && !entry(item).leads_to_directory;
            files_last(a).cmp(&files_last(b)).then(ordering)
        });
    }

    fn compare(self, a: &Entry, b: &Entry) -> Ordering {
        let name = |entry: &Entry| entry.name.as_bytes().to_vec();
        let first = match self.order {
            Order::Time => {
                let time = |entry: &Entry| {
                    Reverse(
                        entry
                            .metadata
                            .as_ref()
                            .and_then(|found| self.stamp.of(found)),
                    )
                };
                time(a).cmp(&time(b))
            }
            Order::Size => {
                let size = |entry: &Entry| Reverse(entry.metadata.as_ref().map(Metadata::len));
                size(a).cmp(&size(b))
            }
            Order::Extension => extension(&name(a)).cmp(extension(&name(b))),
            Order::Version => compare_versions(&name(a), &name(b)),
            Order::Width => columns(&name(a)).cmp(&columns(&name(b))),
            Order::Name | Order::None => Ordering::Equal,
        };
        first.then_with(|| a.name.as_bytes().cmp(b.name.as_bytes()))
    }
}

/// Returns how many columns a name takes.
fn columns(name: &[u8]) -> usize {
    name.utf8_chunks()
        .map(|chunk| width(chunk.valid()) + chunk.invalid().len())
        .sum()
}

/// Returns the last dot of a name and everything behind it.
fn extension(name: &[u8]) -> &[u8] {
    name.iter()
        .rposition(|byte| *byte == b'.')
        .map_or(b"", |at| &name[at..])
}
