//! The type of file system that a set of features makes.
//!
//! `Info` and programs name a volume by it. It decides nothing.

use extern4_disk::feature::{Compat, Features, Incompat, RoCompat};

/// Returns the oldest file system type that knows all of these features: ext2, ext3 or ext4.
pub fn type_name(features: Features) -> &'static str {
    let ext3_incompat =
        Incompat::FILETYPE | Incompat::RECOVER | Incompat::META_BG | Incompat::JOURNAL_DEV;
    let ext3_ro_compat = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE | RoCompat::BTREE_DIR;
    if !ext3_incompat.contains(features.incompat) || !ext3_ro_compat.contains(features.ro_compat) {
        "ext4"
    } else if features.compat.contains(Compat::HAS_JOURNAL) {
        "ext3"
    } else {
        "ext2"
    }
}
