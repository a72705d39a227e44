//! The order of a listing.
//!
//! `ls` sorts with it. Entries that are equal by the chosen order keep the order of their names.

use std::cmp::{Ordering, Reverse};
use std::os::unix::ffi::OsStrExt as _;

use clap::ValueEnum;
use extern4::{Metadata, Timespec};

use super::entry::Entry;

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

/// Sorts entries. Directories come first if that is wanted, also in reverse order.
pub(super) fn sort(
    entries: &mut [Entry],
    order: Order,
    stamp: Stamp,
    directories_first: bool,
    reverse: bool,
) {
    if order == Order::None {
        return;
    }
    entries.sort_by(|a, b| {
        let ordering = compare(a, b, order, stamp);
        let ordering = if reverse { ordering.reverse() } else { ordering };
        let files_last = |entry: &Entry| directories_first && !entry.leads_to_directory;
        files_last(a).cmp(&files_last(b)).then(ordering)
    });
}

fn compare(a: &Entry, b: &Entry, order: Order, stamp: Stamp) -> Ordering {
    let name = |entry: &Entry| entry.name.as_bytes().to_vec();
    let first = match order {
        Order::Time => {
            let time = |entry: &Entry| Reverse(entry.metadata.as_ref().and_then(|found| stamp.of(found)));
            time(a).cmp(&time(b))
        }
        Order::Size => {
            let size = |entry: &Entry| Reverse(entry.metadata.as_ref().map(Metadata::len));
            size(a).cmp(&size(b))
        }
        Order::Extension => extension(&name(a)).cmp(extension(&name(b))),
        Order::Name | Order::None => Ordering::Equal,
    };
    first.then_with(|| a.name.as_bytes().cmp(b.name.as_bytes()))
}

/// Returns the last dot of a name and everything behind it.
fn extension(name: &[u8]) -> &[u8] {
    name.iter().rposition(|byte| *byte == b'.').map_or(b"", |at| &name[at..])
}
