//! The journal (jbd2): its superblock and the blocks of its log.
//!
//! `jbd2` reads and writes these blocks, and `mkfs` makes empty journals.
//!
//! A journal is a ring of blocks. Block 0 is the [`JournalSuperblock`]; in an external journal it
//! is the block after the device's own superblock. The rest is a log of transactions. Each consists
//! of blocks that begin with the same twelve bytes ([`BlockHeader`]), and of verbatim copies of
//! file system blocks:
//!
//! ```text
//! | descriptor | copy | copy | ... | descriptor | copy | ... | revoke | commit |
//! ```
//!
//! A [`Descriptor`] says where the copies that follow it belong. A [`Revoke`] block lists the
//! blocks that recovery must not replay from this or an earlier transaction. A [`Commit`] block
//! makes the transaction valid. The layout of these blocks depends on the features of the journal;
//! [`Format`] is the summary of them that decoding needs.
//!
//! All numbers are big-endian. Source: "Journal (jbd2)" in the kernel's ext4 documentation. Where
//! that text is silent or wrong, the source is the journals that mke2fs, debugfs and the kernel
//! write. These places are the sizes of checksum v2 tags, the coverage of the v1 checksum and the
//! start of the fast commit area.

mod block;
mod commit;
mod descriptor;
mod format;
mod revoke;
mod superblock;

pub use block::{BlockHeader, BlockKind, MAGIC, RawBlockHeader, Tid};
pub use commit::{Commit, RawCommit};
pub use descriptor::{Descriptor, RawTag, RawTag3, Tag, TagFlags, escape, unescape};
pub use format::{ChecksumVersion, Format, TransactionChecksum};
pub use revoke::{RawRevoke, Revoke};
pub use superblock::{
    Compat, Incompat, JournalSuperblock, MAX_USERS, MIN_LOG_BLOCKS, RawJournalSuperblock, RoCompat,
    Version,
};
