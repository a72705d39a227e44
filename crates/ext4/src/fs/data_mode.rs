//! The data mode of a mount: which files have their contents journaled (`data=`).
//!
//! A user asks for a [`DataMode`]; the open for writing turns it, or the superblock's default, into
//! a [`Journaling`] that stays for as long as the volume is open. `file::data_journal` reads that.
//! Journaled contents are refused on a volume without a journal.

use extern4_disk::superblock::{DefaultMountOptions, Superblock};

use crate::error::Unsupported;

/// How contents of files become durable, on a volume with a journal (`data=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataMode {
    /// Contents that are new to a file are written before the transaction that adds them commits.
    Ordered,
    /// Contents are written in any order. extern4 does the same as for [`Ordered`](Self::Ordered),
    /// which is stricter.
    Writeback,
    /// Contents go through the journal like metadata, so no block of a file is ever half written.
    /// Each block is written twice.
    Journal,
}

/// The files whose contents go through the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journaling {
    /// No file's: there is no journal.
    None,
    /// Contents of files with the flag.
    Flagged,
    /// Contents of all files.
    All,
}

impl Journaling {
    /// Returns the mode that the caller asks for, or else that of the superblock.
    pub(crate) fn chosen(
        sb: &Superblock,
        has_journal: bool,
        asked: Option<DataMode>,
    ) -> Result<Self, Unsupported> {
        const MODES: DefaultMountOptions =
            DefaultMountOptions::JOURNAL_DATA.union(DefaultMountOptions::JOURNAL_DATA_ORDERED);
        let by_default = sb.default_mount_options() & MODES == DefaultMountOptions::JOURNAL_DATA;
        match (has_journal, asked) {
            (false, Some(DataMode::Journal)) => Err(Unsupported::WritingTo(
                "contents are to be journaled, and it has no journal",
            )),
            (false, _) => Ok(Self::None),
            (true, Some(DataMode::Journal)) => Ok(Self::All),
            (true, None) if by_default => Ok(Self::All),
            (true, _) => Ok(Self::Flagged),
        }
    }
}
