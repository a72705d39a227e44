//! The features that this crate reads and writes, and the refusal of volumes with others.
//!
//! Opening a volume calls [`check_features`] before it decodes the superblock, and
//! [`check_writable`] if it is opened for writing. Each refusal is an [`Unsupported`] that names
//! the feature or the state. A new feature is added here only when all code that reads or writes it
//! exists.

use extern4_disk::feature::{Compat, Feature, Features, Incompat, RoCompat};
use extern4_disk::superblock::{CreatorOs, RawSuperblock, State, Superblock};

use crate::error::Unsupported;
use crate::fs::options::OpenOptions;
use crate::tune::checksum_rewrite;

/// The features whose presence changes how a volume is read, and that this crate reads.
const READABLE: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGEDIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);

/// The number of the only defined encoding of names, UTF-8 as of Unicode 12.1.
const ENCODING_UTF8_12_1: u16 = 1;

/// The features whose presence changes how a volume is written, and that this crate writes.
const WRITABLE: Features = Features {
    compat: Compat::all(),
    // Each feature by its name, and not `READABLE`: one that is only read must not become writable.
    incompat: Incompat::FILETYPE
        .union(Incompat::RECOVER)
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::BIT64)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGEDIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::BTREE_DIR)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::QUOTA)
        .union(RoCompat::PROJECT)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::ORPHAN_PRESENT),
};

const _: () = assert!(
    READABLE.contains(WRITABLE.incompat),
    "this crate reads what it writes"
);

/// Refuses, by name, features that this crate cannot read.
pub(crate) fn check_features(raw: &RawSuperblock) -> Result<(), Unsupported> {
    let features = raw.features();
    if features.incompat.contains(Incompat::JOURNAL_DEV) {
        return Err(Unsupported::JournalDevice);
    }
    if checksum_rewrite::is_rewriting(raw) {
        return Err(Unsupported::Interrupted);
    }
    let unknown: Vec<Feature> = Features {
        incompat: features.incompat.difference(READABLE),
        ..Features::default()
    }
    .iter()
    .collect();
    if !unknown.is_empty() {
        return Err(Unsupported::Features(unknown));
    }
    let encoding = raw.s_encoding.get();
    if features.incompat.contains(Incompat::CASEFOLD) && encoding != ENCODING_UTF8_12_1 {
        return Err(Unsupported::Encoding(encoding));
    }
    Ok(())
}

/// Returns the features with which this crate only reads a volume.
pub fn unwritable(features: Features) -> Vec<Feature> {
    features.difference(WRITABLE).iter().collect()
}

/// Refuses, by name, to write to a volume that this crate only reads.
pub(crate) fn check_writable(sb: &Superblock, options: &OpenOptions) -> Result<(), Unsupported> {
    let beyond = unwritable(sb.features());
    if !beyond.is_empty() {
        return Err(Unsupported::Writing(beyond));
    }
    if options.superblock.is_some() {
        return Err(Unsupported::WritingTo("a backup superblock was asked for"));
    }
    if sb.creator_os() == CreatorOs::Hurd {
        return Err(Unsupported::WritingTo(
            "it was made for GNU Hurd, where files own translator blocks",
        ));
    }
    // Linux and e2fsck disagree about the checksums of inodes there.
    if sb.creator_os() != CreatorOs::Linux && sb.features().metadata_csum() {
        return Err(Unsupported::WritingTo(
            "it has metadata_csum, but was not made for Linux",
        ));
    }
    let uses_journal = sb.journal().is_some() && !options.ignore_journal;
    if !uses_journal && !sb.state().contains(State::VALID) {
        let why = "it was not cleanly unmounted and uses no journal; e2fsck mends it";
        return Err(Unsupported::WritingTo(why));
    }
    Ok(())
}

/// Refuses to write to a volume whose journal must be replayed first, if the options ignore the
/// journal.
pub(crate) fn check_needs_no_recovery(sb: &Superblock) -> Result<(), Unsupported> {
    if sb.features().incompat.contains(Incompat::RECOVER) {
        let why = "its journal must be replayed first, and noload leaves the journal aside; with ro it can be read";
        return Err(Unsupported::WritingTo(why));
    }
    Ok(())
}
