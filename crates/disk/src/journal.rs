//! The journal (jbd2): its superblock and the blocks of its log.
//!
//! A journal is a ring of blocks. Block 0 (of an external journal: the block after the device's own superblock) is the
//! [`JournalSuperblock`]; the rest is a log of transactions, each made of blocks that begin with the same twelve bytes
//! ([`BlockHeader`]) and of verbatim copies of file system blocks:
//!
//! ```text
//! | descriptor | copy | copy | ... | descriptor | copy | ... | revoke | commit |
//! ```
//!
//! A [`Descriptor`] says where the copies that follow it belong, a [`Revoke`] block says which blocks must not be
//! replayed from this or an earlier transaction, and a [`Commit`] block makes the transaction valid. What these blocks
//! look like depends on the features of the journal; [`Format`] is the digest of them that decoding needs.
//!
//! All numbers are big-endian. Source: "Journal (jbd2)" in the kernel's ext4 documentation; where it is silent or
//! wrong (sizes of checksum v2 tags, what the v1 checksum covers, where the fast commit area begins), the journals that
//! mke2fs, debugfs and the kernel write.

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
    Compat, Incompat, JournalSuperblock, MAX_USERS, MIN_LOG_BLOCKS, RawJournalSuperblock, RoCompat, Version,
};
