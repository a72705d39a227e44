//! The features that can be added to a volume, or taken from one.
//!
//! `tune` checks its changes with it, and programs list the names.

use extern4_disk::feature::{Compat, Feature, Features, Incompat, RoCompat};

use super::Fields;

/// The features that follow from the volume's own files.
pub(super) const OF_FILES: Features = Features {
    compat: Compat::HAS_JOURNAL,
    incompat: Incompat::empty(),
    ro_compat: RoCompat::QUOTA.union(RoCompat::PROJECT),
};

/// The features that are a bit in the superblock and nothing else: a volume without them is whole
/// with them.
const SWITCHED: [&str; 10] = [
    "dir_index",
    "extent",
    "ea_inode",
    "encrypt",
    "large_dir",
    "large_file",
    "huge_file",
    "dir_nlink",
    "stable_inodes",
    "verity",
];

/// The features that a volume is whole without, as long as no file uses them.
const TAKEN_AWAY: [&str; 7] = [
    "dir_index",
    "ea_inode",
    "encrypt",
    "large_file",
    "huge_file",
    "dir_nlink",
    "stable_inodes",
];

/// The features that need files in the volume.
const WITH_FILES: [&str; 3] = ["has_journal", "quota", "project"];

/// Returns the names of the features that can be added to a volume.
pub fn addable_features() -> impl Iterator<Item = &'static str> {
    SWITCHED.iter().chain(&WITH_FILES).copied()
}

/// Returns the names of the features that can be taken from a volume, as long as no file uses
/// them.
pub fn removable_features() -> impl Iterator<Item = &'static str> {
    TAKEN_AWAY.iter().chain(&WITH_FILES).copied()
}

/// Returns a feature that `fields` add or take away though that is not possible.
pub(super) fn unchangeable(fields: &Fields) -> Option<Feature> {
    let beyond = |features: Features, known: Vec<&str>| {
        features
            .iter()
            .find(|feature| !known.contains(&feature.to_string().as_str()))
    };
    beyond(fields.features, addable_features().collect())
        .or_else(|| beyond(fields.without, removable_features().collect()))
}
