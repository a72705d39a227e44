//! The layout of an earlier volume, which a new one keeps as far as it can.
//!
//! A file that the earlier volume has under the same path and with the same type keeps its inode
//! number and each block that it still needs. So do its block of extended attributes and the
//! journal. If a file keeps all of its blocks, it also keeps
//! the blocks of its extent tree.
//!
//! `Builder::keep_layout` takes it, and `inode_numbers` and `layout` ask it first. A number or
//! block that the new volume does not have, or that two files claim, is not kept.

use std::collections::HashMap;

use extern4_disk::blocks::Blocks;
use extern4_disk::extent::{Expect, ExtentNode};
use extern4_disk::feature::{Compat, Feature, Features, Incompat, RoCompat};
use extern4_disk::inode::FileKind;
use extern4_disk::superblock::Superblock;
use extern4_disk::{Place, Structure};
use extern4_mkfs::map::Run;
use extern4_mkfs::{JournalSize, Length, Options};

use crate::error::{Error, Result};
use crate::tree::{Order, Tree};

/// The places of one file of an earlier volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldInode {
    /// The type of the file.
    pub kind: FileKind,
    /// The runs of blocks that its contents have, in the order of the file.
    pub runs: Vec<Run>,
    /// The blocks of its map outside the inode.
    pub map_blocks: Vec<u64>,
    /// The block of its extended attributes.
    pub xattr_block: Option<u64>,
}

/// The layout of an earlier volume: which inode has which name, and which blocks.
#[derive(Clone, Debug)]
pub struct OldLayout {
    sb: Superblock,
    names: HashMap<Box<[u8]>, u32>,
    inodes: HashMap<u32, OldInode>,
}

impl OldLayout {
    /// The layout of a volume with this superblock, without files yet.
    pub fn new(superblock: Superblock) -> Self {
        Self {
            sb: superblock,
            names: HashMap::new(),
            inodes: HashMap::new(),
        }
    }

    /// Adds a name: a path from the root without a slash in front, and the number of its inode.
    pub fn add_name(&mut self, path: &[u8], ino: u32) {
        self.names.insert(path.into(), ino);
    }

    /// Whether the inode with this number has been added.
    pub fn has_inode(&self, ino: u32) -> bool {
        self.inodes.contains_key(&ino)
    }

    /// Adds an inode by its number. Of runs that are not in the order of the file or that overlap,
    /// it keeps the first ones.
    pub fn add_inode(&mut self, ino: u32, mut inode: OldInode) {
        let mut end = 0;
        inode.runs.retain(|run| {
            let is_behind = run.logical >= end;
            if is_behind {
                end = run.logical.saturating_add(run.len);
            }
            is_behind
        });
        // A map takes its blocks in this order.
        inode.map_blocks.sort_unstable();
        self.inodes.insert(ino, inode);
    }

    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.sb.uuid()
    }

    /// Sets the numbers that both volumes need in common, unless they are given.
    pub(crate) fn set_sizes(&self, options: &mut Options) -> Result<()> {
        let geometry = self.sb.geometry();
        let old = geometry.block_size();
        let new = *options.block_size.get_or_insert(geometry.block_size());
        if old != new {
            let reason =
                format!("blocks of {new} bytes: the stable layout is one of blocks of {old}");
            return Err(Error::Make(extern4_mkfs::Error::Options(reason)));
        }
        options.inode_size.get_or_insert(geometry.inode_size());
        options
            .blocks_per_group
            .get_or_insert(geometry.blocks_per_group());
        if self.sb.features().incompat.contains(Incompat::CSUM_SEED) {
            options
                .checksum_seed
                .get_or_insert(self.sb.raw().s_checksum_seed.get());
        }
        Ok(())
    }

    /// The seed of the directories' hashes.
    pub(crate) fn hash_seed(&self) -> [u8; 16] {
        let mut seed = [0; 16];
        for (bytes, word) in seed.chunks_exact_mut(4).zip(self.sb.hash_seed()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        seed
    }

    /// Finds the files of a tree. `features` are the features of the new volume.
    pub(crate) fn for_tree(mut self, tree: &Tree, order: &Order, features: Features) -> Precedent {
        let mut inodes = vec![None; tree.nodes()];
        let mut find = |path: &[u8], inode: u32| {
            let place = &mut inodes[inode as usize];
            let kind = tree.node(inode).body.kind();
            // Of several names, the first that the earlier volume has counts.
            if place.is_none()
                && let Some(&ino) = self.names.get(path)
                && self.inodes.get(&ino).is_some_and(|old| old.kind == kind)
            {
                *place = self.inodes.remove(&ino).map(|old| (ino, old));
            }
        };
        find(b"", 0);
        for &directory in &order.directories {
            let mut path = tree.path(directory);
            if !path.is_empty() {
                path.push(b'/');
            }
            let len = path.len();
            for (_, name) in tree.children(directory) {
                path.truncate(len);
                path.extend_from_slice(&name.text);
                find(&path, name.inode);
            }
        }
        Precedent {
            sb: self.sb,
            features,
            inodes,
        }
    }
}

/// The layout of an earlier volume, as far as it concerns the files of a new tree.
#[derive(Debug)]
pub(crate) struct Precedent {
    sb: Superblock,
    /// The features of the new volume.
    features: Features,
    /// By the inode in the tree: the number and the places that it had.
    inodes: Vec<Option<(u32, OldInode)>>,
}

impl Precedent {
    /// The number and the places that an inode in the tree had. One that was added later had none.
    fn old(&self, inode: u32) -> Option<&(u32, OldInode)> {
        self.inodes.get(inode as usize)?.as_ref()
    }

    /// The number that an inode in the tree had.
    pub(crate) fn number(&self, inode: u32) -> Option<u32> {
        self.old(inode).map(|(number, _)| *number)
    }

    /// The block of extended attributes that an inode in the tree had.
    pub(crate) fn xattr_block(&self, inode: u32) -> Option<u64> {
        self.old(inode).and_then(|(_, old)| old.xattr_block)
    }

    /// The blocks of the map that an inode in the tree had.
    pub(crate) fn map_blocks(&self, inode: u32) -> &[u64] {
        self.old(inode).map_or(&[], |(_, old)| &old.map_blocks)
    }

    /// The parts of an inode's runs between two blocks of the file.
    pub(crate) fn runs_in(&self, inode: u32, start: u64, end: u64) -> impl Iterator<Item = Run> {
        let runs = self.old(inode).map_or(&[][..], |(_, old)| &old.runs);
        let behind = |run: &Run| run.logical.saturating_add(run.len);
        let first = runs.partition_point(|run| behind(run) <= start);
        runs[first..]
            .iter()
            .take_while(move |run| run.logical < end)
            .map(move |run| {
                let from = run.logical.max(start);
                let to = behind(run).min(end);
                Run {
                    logical: from,
                    start: run.start.saturating_add(from - run.logical),
                    len: to - from,
                }
            })
    }

    pub(crate) fn blocks_count(&self) -> u64 {
        self.sb.blocks_count()
    }

    /// Sets the options that keep metadata and the journal of a volume of `bytes` in place, unless
    /// they are given.
    pub(crate) fn set_places(&self, options: &mut Options, bytes: u64) {
        let geometry = self.sb.geometry();
        let both = self.common();
        let blocks = bytes / u64::from(geometry.block_size());
        let groups = blocks.div_ceil(geometry.blocks_per_group().into());
        options
            .inodes
            .get_or_insert(groups * u64::from(geometry.inodes_per_group()));
        if both.compat.contains(Compat::RESIZE_INODE) {
            let table =
                u64::from(geometry.descriptor_blocks()) + u64::from(geometry.reserved_gdt_blocks());
            let groups = table * u64::from(geometry.descriptors_per_block());
            let limit = u64::from(geometry.first_data_block())
                + groups.saturating_mul(geometry.blocks_per_group().into());
            let limit = (limit > blocks).then_some(Length::Blocks(limit));
            options.resize_limit = options.resize_limit.or(limit);
        }
        if both.compat.contains(Compat::HAS_JOURNAL)
            && options.external_journal.is_none()
            && let Some(journal) = self.sb.journal_backup()
        {
            let first = self.first_block(&journal.map).map(Length::Blocks);
            options.journal_location = options.journal_location.or(first);
            let blocks = u32::try_from(journal.size / u64::from(self.sb.block_size())).ok();
            let has_more = self.features.compat.contains(Compat::FAST_COMMIT)
                || self.sb.features().compat.contains(Compat::FAST_COMMIT);
            let size = blocks.filter(|_| !has_more).map(JournalSize::Blocks);
            options.journal_size = options.journal_size.or(size);
        }
    }

    /// The features that both volumes have.
    fn common(&self) -> Features {
        let old = self.sb.features();
        let new = self.features;
        Features {
            compat: old.compat & new.compat,
            incompat: old.incompat & new.incompat,
            ro_compat: old.ro_compat & new.ro_compat,
        }
    }

    /// The first block of a file with this map.
    fn first_block(&self, map: &[u8; 60]) -> Option<u64> {
        let volume = Blocks::from(self.sb.geometry());
        let first = if self.sb.features().incompat.contains(Incompat::EXTENTS) {
            let at = Place::new(Structure::ExtentNode);
            ExtentNode::decode(map, Expect::root(volume), at)
                .ok()?
                .extents()
                .next()?
                .physical
        } else {
            u32::from_le_bytes([map[0], map[1], map[2], map[3]]).into()
        };
        (volume.first..volume.end).contains(&first).then_some(first)
    }

    /// Why parts of the layout cannot be kept in a volume with this superblock.
    pub(crate) fn differences(&self, sb: &Superblock) -> Vec<String> {
        let old = self.sb.geometry();
        let new = sb.geometry();
        let pairs = [
            (
                "blocks of a group",
                old.blocks_per_group().into(),
                new.blocks_per_group().into(),
            ),
            (
                "bytes of an inode",
                old.inode_size().into(),
                new.inode_size().into(),
            ),
        ];
        let mut reasons: Vec<String> = pairs
            .into_iter()
            .filter(|(_, old, new): &(&str, u64, u64)| old != new)
            .map(|(name, old, new)| format!("{name}: {new}, and {old} before"))
            .collect();
        if new.blocks_count() < old.blocks_count() {
            let size = u64::from(new.block_size());
            let new = new.blocks_count() * size;
            let old = old.blocks_count() * size;
            reasons.push(format!(
                "the volume is smaller: {new} bytes, and {old} before"
            ));
        }
        let features = self.changed_features(sb.features());
        if !features.is_empty() {
            reasons.push(format!("other features: {}", features.join(", ")));
        }
        reasons
            .into_iter()
            .map(|reason| format!("the layout is kept only in part: {reason}"))
            .collect()
    }

    /// The names of features that only one volume has, without the features that come and go as a
    /// volume is used. One that the new volume lacks has a `^` in front.
    fn changed_features(&self, new: Features) -> Vec<String> {
        let of = |mut features: Features| -> Vec<Feature> {
            features.incompat.remove(Incompat::RECOVER);
            features
                .ro_compat
                .remove(RoCompat::ORPHAN_PRESENT | RoCompat::LARGE_FILE);
            features.iter().collect()
        };
        let old = of(self.sb.features());
        let new = of(new);
        let lost = old
            .iter()
            .filter(|feature| !new.contains(feature))
            .map(|lost| format!("^{lost}"));
        let gained = new
            .iter()
            .filter(|feature| !old.contains(feature))
            .map(Feature::to_string);
        lost.chain(gained).collect()
    }
}
