//! The features of a new volume: chosen from `mke2fs.conf` and options, and checked.
//!
//! `numbers` calls [`choose`], which follows `mke2fs`: base features, the types' features, then
//! `-O` in order. A feature that another replaces is dropped. A combination that no volume can
//! have, and a feature that extern4 cannot write, is an error that names it.

use extern4_disk::feature::{Compat, Feature, FeatureSet, Features, Incompat, RoCompat};
use extern4_disk::quota::Kind;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::options::Options;

/// The features that extern4 can write and `mkfs` can make.
const COMPAT: Compat = Compat::DIR_PREALLOC
    .union(Compat::HAS_JOURNAL)
    .union(Compat::EXT_ATTR)
    .union(Compat::RESIZE_INODE)
    .union(Compat::DIR_INDEX)
    .union(Compat::SPARSE_SUPER2)
    .union(Compat::FAST_COMMIT)
    .union(Compat::STABLE_INODES)
    .union(Compat::ORPHAN_FILE);
const INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGEDIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::CASEFOLD);
const RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::QUOTA)
    .union(RoCompat::PROJECT)
    .union(RoCompat::METADATA_CSUM)
    // For a volume that is filled while it is made, and that extern4 does not change later.
    .union(RoCompat::VERITY)
    .union(RoCompat::READONLY);

/// Returns the features that `mkfs` can make.
pub fn known_features() -> Features {
    Features {
        compat: COMPAT,
        incompat: INCOMPAT,
        ro_compat: RO_COMPAT,
    }
}

/// The number of GNU Hurd among the systems that a volume can be for.
pub(crate) const HURD: u32 = 1;

/// Adds the features of a list to `features`, or removes those with `^` before their names.
fn edit(features: &mut Features, list: &str) -> Result<()> {
    for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
        if word == "none" {
            *features = Features::default();
            continue;
        }
        let (name, is_on) = match word.strip_prefix(['^', '-']) {
            Some(name) => (name, false),
            None => (word.strip_prefix('+').unwrap_or(word), true),
        };
        let feature = Feature::from_name(name)
            .ok_or_else(|| Error::options(format!("there is no feature '{name}'")))?;
        set(features, feature, is_on);
    }
    Ok(())
}

fn set(features: &mut Features, feature: Feature, is_on: bool) {
    let mask = feature.mask();
    match feature.set() {
        FeatureSet::Compat => features.compat.set(Compat::from_bits_retain(mask), is_on),
        FeatureSet::Incompat => features
            .incompat
            .set(Incompat::from_bits_retain(mask), is_on),
        FeatureSet::RoCompat => features
            .ro_compat
            .set(RoCompat::from_bits_retain(mask), is_on),
    }
}

/// Returns whether the list of `-O` asks for a journal, or for a feature that needs one.
pub(crate) fn asks_for_journal(options: &Options) -> Result<bool> {
    let mut asked = Features::default();
    options
        .features
        .iter()
        .try_for_each(|list| edit(&mut asked, list))?;
    Ok(asked
        .compat
        .intersects(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE | Compat::FAST_COMMIT))
}

/// Returns the features that the configuration and the options ask for.
pub(crate) fn choose(options: &Options, config: &Config, types: &[String]) -> Result<Features> {
    let mut features = Features::default();
    if options.revision == 0 {
        let journal =
            options.journal || options.journal_size.is_some() || options.external_journal.is_some();
        if journal || !options.features.is_empty() {
            return Err(Error::options(
                "a volume of revision 0 has no features and no journal",
            ));
        }
        return Ok(features);
    }
    edit(
        &mut features,
        config.value(types, "base_features").unwrap_or(""),
    )?;
    let mut of_types = config.of_types(types, "features").peekable();
    if of_types.peek().is_none() {
        edit(
            &mut features,
            config.default_of("default_features").unwrap_or(""),
        )?;
    }
    for list in of_types {
        edit(&mut features, list)?;
    }
    let mut asked = Features::default();
    for list in &options.features {
        edit(&mut features, list)?;
        edit(&mut asked, list)?;
    }
    if options.journal || options.journal_size.is_some() || options.external_journal.is_some() {
        features.compat |= Compat::HAS_JOURNAL;
    }
    if options.resize_limit.is_some() {
        features.compat |= Compat::RESIZE_INODE;
    }
    if options.creator_os == HURD {
        features.incompat.remove(Incompat::FILETYPE);
        features
            .ro_compat
            .remove(RoCompat::HUGE_FILE | RoCompat::METADATA_CSUM);
    }
    if options
        .quota
        .as_ref()
        .is_some_and(|kinds| kinds.contains(&Kind::Project))
    {
        features.ro_compat |= RoCompat::PROJECT;
    }
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        if asked.compat.contains(Compat::ORPHAN_FILE) {
            return Err(Error::options("orphan_file needs a journal"));
        }
        features.compat.remove(Compat::ORPHAN_FILE);
    }
    resolve(options, &mut features, asked)?;
    Ok(features)
}

/// Drops features that others replace or that are of no use without others, and refuses
/// combinations that cannot be. `asked` are the features of `-O` alone, which are never dropped.
fn resolve(options: &Options, features: &mut Features, asked: Features) -> Result<()> {
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        features.ro_compat.remove(RoCompat::GDT_CSUM);
    } else if features.incompat.contains(Incompat::CSUM_SEED) {
        if asked.incompat.contains(Incompat::CSUM_SEED) {
            return Err(Error::options("metadata_csum_seed needs metadata_csum"));
        }
        features.incompat.remove(Incompat::CSUM_SEED);
    }
    let has_extents = features.incompat.contains(Incompat::EXTENTS);
    if features.incompat.contains(Incompat::BIT64) && !has_extents {
        return Err(Error::options("64bit needs extent"));
    }
    if features.incompat.contains(Incompat::BIT64) && options.creator_os == HURD {
        return Err(Error::options(
            "the Hurd has no 64bit: -t ext2 makes a volume for it",
        ));
    }
    if features.incompat.contains(Incompat::META_BG)
        && features.compat.contains(Compat::RESIZE_INODE)
    {
        return Err(Error::options(
            "resize_inode and meta_bg exclude each other",
        ));
    }
    let sparse = features.ro_compat.contains(RoCompat::SPARSE_SUPER);
    if features.compat.contains(Compat::RESIZE_INODE) && !sparse {
        return Err(Error::options("resize_inode needs sparse_super"));
    }
    let beyond = features
        .compat
        .difference(COMPAT)
        .features()
        .chain(features.incompat.difference(INCOMPAT).features())
        .chain(features.ro_compat.difference(RO_COMPAT).features())
        .next();
    match beyond {
        Some(feature) => Err(Error::Feature(feature.to_string())),
        None => Ok(()),
    }
}
