//! The features of a volume: three sets of bits in the superblock, by the names that `mke2fs -O`
//! and `dumpe2fs` use.
//!
//! `ext4` decides by them whether it can read or write a volume; `mkfs`, `tune` and listings name
//! them.
//!
//! The set of a bit decides how an implementation treats the bit if it does not know it. It may
//! ignore a [`Compat`] bit. A [`RoCompat`] bit forbids writing, and an [`Incompat`] bit forbids
//! even reading. Bits that no tool has named are kept as they are, and print as `FEATURE_I17`, as
//! in `dumpe2fs`.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/super.rst`, `ext4(5)`, and the names that
//! `dumpe2fs` 1.47 prints.

use core::fmt;

use bitflags::bitflags;

bitflags! {
    /// Features that an implementation may ignore if it does not know them (`s_feature_compat`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Compat: u32 {
        /// Directories preallocate blocks.
        const DIR_PREALLOC = 0x1;
        /// "Imagic" inodes, of the AFS server.
        const IMAGIC_INODES = 0x2;
        /// There is a journal.
        const HAS_JOURNAL = 0x4;
        /// There may be extended attributes.
        const EXT_ATTR = 0x8;
        /// Blocks are reserved after the descriptor table for the volume to grow.
        const RESIZE_INODE = 0x10;
        /// Directories may have hash trees.
        const DIR_INDEX = 0x20;
        /// Uninitialized block groups, from before `uninit_bg`.
        const LAZY_BG = 0x40;
        /// An inode excludes blocks from snapshots (never released).
        const EXCLUDE_INODE = 0x80;
        /// Groups have bitmaps of the blocks that snapshots exclude (never released).
        const EXCLUDE_BITMAP = 0x100;
        /// At most two backups of the superblock, in the groups that `s_backup_bgs` names.
        const SPARSE_SUPER2 = 0x200;
        /// The journal may have a fast commit area.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and the UUID never change, which encryption relies on.
        const STABLE_INODES = 0x800;
        /// There is an orphan file.
        const ORPHAN_FILE = 0x1000;
        const _ = !0;
    }
}

bitflags! {
    /// Features that an implementation must know to read the volume (`s_feature_incompat`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Incompat: u32 {
        /// Compressed files (never released).
        const COMPRESSION = 0x1;
        /// Directory entries hold the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const RECOVER = 0x4;
        /// This is no file system but the external journal of one.
        const JOURNAL_DEV = 0x8;
        /// Descriptors live in their meta group, not in one table.
        const META_BG = 0x10;
        /// Files may be mapped by extents.
        const EXTENTS = 0x40;
        /// Block numbers have more than 32 bits; descriptors have 64 bytes.
        const BIT64 = 0x80;
        /// Multiple mount protection.
        const MMP = 0x100;
        /// Bitmaps and inode tables may live in other groups.
        const FLEX_BG = 0x200;
        /// Large extended attribute values live in inodes.
        const EA_INODE = 0x400;
        /// Data in directory entries (Lustre).
        const DIRDATA = 0x1000;
        /// The checksum seed is stored, not derived from the UUID.
        const CSUM_SEED = 0x2000;
        /// Directories of more than 2 GiB, or with hash trees of 3 levels.
        const LARGEDIR = 0x4000;
        /// Small files and directories live in the inode.
        const INLINE_DATA = 0x8000;
        /// There may be encrypted files.
        const ENCRYPT = 0x1_0000;
        /// Names have an encoding, and directories may ignore case.
        const CASEFOLD = 0x2_0000;
        const _ = !0;
    }
}

bitflags! {
    /// Features that an implementation must know to write the volume (`s_feature_ro_compat`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RoCompat: u32 {
        /// Only groups 0, 1 and powers of 3, 5 and 7 have backups.
        const SPARSE_SUPER = 0x1;
        /// There is, or was, a file of 2 GiB or more.
        const LARGE_FILE = 0x2;
        /// B-tree directories (never released).
        const BTREE_DIR = 0x4;
        /// Inodes may count blocks in 48 bits, and in file system blocks.
        const HUGE_FILE = 0x8;
        /// Group descriptors have a crc16, and groups may be uninitialized.
        const GDT_CSUM = 0x10;
        /// Directories may have 65,000 subdirectories and more.
        const DIR_NLINK = 0x20;
        /// Inodes have fields past their first 128 bytes.
        const EXTRA_ISIZE = 0x40;
        /// There is a snapshot (never released).
        const HAS_SNAPSHOT = 0x80;
        /// Quota files are hidden inodes.
        const QUOTA = 0x100;
        /// Blocks are allocated in clusters.
        const BIGALLOC = 0x200;
        /// All metadata has a crc32c.
        const METADATA_CSUM = 0x400;
        /// Replicas (never released).
        const REPLICA = 0x800;
        /// No implementation may write this volume.
        const READONLY = 0x1000;
        /// Project quotas.
        const PROJECT = 0x2000;
        /// Files share blocks (Android's deduplicated images).
        const SHARED_BLOCKS = 0x4000;
        /// There may be fs-verity files.
        const VERITY = 0x8000;
        /// The orphan file may have entries.
        const ORPHAN_PRESENT = 0x1_0000;
        const _ = !0;
    }
}

const COMPAT_NAMES: &[(u32, &str)] = &[
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (0x4, "has_journal"),
    (0x8, "ext_attr"),
    (0x10, "resize_inode"),
    (0x20, "dir_index"),
    (0x40, "lazy_bg"),
    (0x100, "snapshot_bitmap"),
    (0x200, "sparse_super2"),
    (0x400, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];

const INCOMPAT_NAMES: &[(u32, &str)] = &[
    (0x1, "compression"),
    (0x2, "filetype"),
    (0x4, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x1_0000, "encrypt"),
    (0x2_0000, "casefold"),
];

const RO_COMPAT_NAMES: &[(u32, &str)] = &[
    (0x1, "sparse_super"),
    (0x2, "large_file"),
    (0x8, "huge_file"),
    (0x10, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (0x1_0000, "orphan_present"),
];

/// Other names that tools and documents use.
const ALIASES: &[(&str, &str)] = &[
    ("extents", "extent"),
    ("uninit_groups", "uninit_bg"),
    ("gdt_csum", "uninit_bg"),
    ("read_only", "read-only"),
    ("fname_encoding", "casefold"),
];

/// Which of the three sets a feature belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeatureSet {
    /// [`Compat`].
    Compat,
    /// [`Incompat`].
    Incompat,
    /// [`RoCompat`].
    RoCompat,
}

impl FeatureSet {
    const fn names(self) -> &'static [(u32, &'static str)] {
        match self {
            Self::Compat => COMPAT_NAMES,
            Self::Incompat => INCOMPAT_NAMES,
            Self::RoCompat => RO_COMPAT_NAMES,
        }
    }

    const fn letter(self) -> char {
        match self {
            Self::Compat => 'C',
            Self::Incompat => 'I',
            Self::RoCompat => 'R',
        }
    }
}

/// One feature: a bit of one of the sets, known or not. Prints as its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Feature {
    set: FeatureSet,
    bit: u32,
}

impl Feature {
    /// Returns the feature that `e2fsprogs` calls `name`. Also accepts its other names, and forms
    /// such as `FEATURE_I17`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = ALIASES
            .iter()
            .find(|(alias, _)| *alias == name)
            .map_or(name, |(_, name)| name);
        for set in [
            FeatureSet::Compat,
            FeatureSet::Incompat,
            FeatureSet::RoCompat,
        ] {
            if let Some((mask, _)) = set.names().iter().find(|(_, known)| *known == name) {
                return Some(Self {
                    set,
                    bit: mask.trailing_zeros(),
                });
            }
            let number = name
                .strip_prefix("FEATURE_")
                .and_then(|rest| rest.strip_prefix(set.letter()));
            if let Some(bit) = number
                .and_then(|digits| digits.parse().ok())
                .filter(|bit| *bit < u32::BITS)
            {
                return Some(Self { set, bit });
            }
        }
        None
    }

    /// Returns the set that the feature belongs to.
    pub const fn set(self) -> FeatureSet {
        self.set
    }

    /// Returns the feature's mask in its set.
    pub const fn mask(self) -> u32 {
        1 << self.bit
    }

    /// Returns the feature's name in `e2fsprogs`; `None` for a bit that has none.
    pub fn name(self) -> Option<&'static str> {
        self.set
            .names()
            .iter()
            .find(|(mask, _)| *mask == self.mask())
            .map(|(_, name)| *name)
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "FEATURE_{}{}", self.set.letter(), self.bit),
        }
    }
}

fn features_of(set: FeatureSet, bits: u32) -> impl Iterator<Item = Feature> {
    (0..u32::BITS)
        .filter(move |bit| bits & (1 << bit) != 0)
        .map(move |bit| Feature { set, bit })
}

impl Compat {
    /// Returns the features of this set, in the order of their bits.
    pub fn features(self) -> impl Iterator<Item = Feature> {
        features_of(FeatureSet::Compat, self.bits())
    }
}

impl Incompat {
    /// Returns the features of this set, in the order of their bits.
    pub fn features(self) -> impl Iterator<Item = Feature> {
        features_of(FeatureSet::Incompat, self.bits())
    }
}

impl RoCompat {
    /// Returns the features of this set, in the order of their bits.
    pub fn features(self) -> impl Iterator<Item = Feature> {
        features_of(FeatureSet::RoCompat, self.bits())
    }
}

/// All features of a volume. Prints as `dumpe2fs` prints them: names separated by spaces, or
/// `(none)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// Features that an implementation may ignore.
    pub compat: Compat,
    /// Features needed to read.
    pub incompat: Incompat,
    /// Features needed to write.
    pub ro_compat: RoCompat,
}

impl Features {
    /// Returns the features in the three words of the superblock, unknown bits included.
    pub const fn from_bits(compat: u32, incompat: u32, ro_compat: u32) -> Self {
        Self {
            compat: Compat::from_bits_retain(compat),
            incompat: Incompat::from_bits_retain(incompat),
            ro_compat: RoCompat::from_bits_retain(ro_compat),
        }
    }

    /// Returns the names of these features.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let features = self.compat.features().chain(self.incompat.features());
        features
            .chain(self.ro_compat.features())
            .filter_map(Feature::name)
    }

    /// Returns whether the volume has `feature`.
    pub const fn contains(self, feature: Feature) -> bool {
        let bits = match feature.set {
            FeatureSet::Compat => self.compat.bits(),
            FeatureSet::Incompat => self.incompat.bits(),
            FeatureSet::RoCompat => self.ro_compat.bits(),
        };
        bits & feature.mask() != 0
    }

    /// Returns the features that both have.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self {
            compat: self.compat.intersection(other.compat),
            incompat: self.incompat.intersection(other.incompat),
            ro_compat: self.ro_compat.intersection(other.ro_compat),
        }
    }

    /// Returns the features that `other` does not have.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self {
            compat: self.compat.difference(other.compat),
            incompat: self.incompat.difference(other.incompat),
            ro_compat: self.ro_compat.difference(other.ro_compat),
        }
    }

    /// Returns whether all metadata has a crc32c (`metadata_csum`).
    pub const fn metadata_csum(self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// Returns every feature, set by set, in the order of the bits.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        self.compat
            .features()
            .chain(self.incompat.features())
            .chain(self.ro_compat.features())
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for feature in self.iter() {
            write!(f, "{separator}{feature}")?;
            separator = " ";
        }
        if separator.is_empty() {
            f.write_str("(none)")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_dumpe2fs_does() {
        let features = Features::from_bits(0x103c, 0x22c2, 0x46b);
        assert_eq!(
            features.to_string(),
            "has_journal ext_attr resize_inode dir_index orphan_file filetype extent 64bit flex_bg \
             metadata_csum_seed sparse_super large_file huge_file dir_nlink extra_isize metadata_csum"
        );
        assert_eq!(
            Features::from_bits(0x80, 0x20_0020, 0x8000_0004).to_string(),
            { "FEATURE_C7 FEATURE_I5 FEATURE_I21 FEATURE_R2 FEATURE_R31" }
        );
        assert_eq!(Features::default().to_string(), "(none)");
    }

    #[test]
    fn every_name_finds_its_bit() {
        for feature in Features::from_bits(!0, !0, !0).iter() {
            assert_eq!(Feature::from_name(&feature.to_string()), Some(feature));
            assert!(Features::from_bits(!0, !0, !0).contains(feature));
            assert!(!Features::default().contains(feature));
        }
        assert_eq!(
            Feature::from_name("fname_encoding"),
            Feature::from_name("casefold")
        );
        assert_eq!(Feature::from_name("FEATURE_I32"), None);
        assert_eq!(Feature::from_name("no_such"), None);
    }

    #[test]
    fn unknown_bits_stay() {
        let features = Features::from_bits(0xdead_beef, 0xcafe_f00d, 0x1234_5678);
        assert_eq!(features.compat.bits(), 0xdead_beef);
        assert_eq!(features.incompat.bits(), 0xcafe_f00d);
        assert_eq!(features.ro_compat.bits(), 0x1234_5678);
    }
}
