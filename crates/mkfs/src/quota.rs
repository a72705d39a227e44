//! The quota files of a new volume: the usage of each user, group and project.
//!
//! `Draft` makes them for the owners that it is told, gives each its blocks, adds inodes to the
//! usage, and encodes the files when all inodes are known. The length of a file depends only on its
//! ids, so its blocks can be allocated before the usage is known.

use std::collections::BTreeMap;

use extern4_disk::feature::{Features, RoCompat};
use extern4_disk::quota::{self, BLOCK_SIZE, DEPTH, Entry, Info, Kind, ROOT, Resource};
use extern4_disk::{Place, Structure};

use crate::error::Result;
use crate::options::Options;

/// The user, the group and the project to which a file is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The user to whom the inode is charged.
    pub uid: u32,
    /// The group to which the inode is charged.
    pub gid: u32,
    /// The project: 0 for a file without one.
    pub project: u32,
}

impl Owner {
    /// Returns a user and a group, without a project.
    pub(crate) const fn of((uid, gid): (u32, u32)) -> Self {
        Self {
            uid,
            gid,
            project: 0,
        }
    }
}

/// One quota file.
#[derive(Debug)]
pub(crate) struct QuotaFile {
    pub(crate) kind: Kind,
    /// The usage of each id.
    usage: BTreeMap<u32, Usage>,
    /// The runs of blocks that the file has: their starts and lengths.
    pub(crate) runs: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    bytes: u64,
    inodes: u64,
}

impl QuotaFile {
    /// Returns the quota files of a volume with these features. They have an entry for each user,
    /// group and project.
    pub(crate) fn all(options: &Options, features: Features, owners: &[Owner]) -> Vec<Self> {
        if !features.ro_compat.contains(RoCompat::QUOTA) {
            return Vec::new();
        }
        let asked = options
            .quota
            .as_deref()
            .unwrap_or(&[Kind::User, Kind::Group]);
        let has_projects = features.ro_compat.contains(RoCompat::PROJECT);
        let is_on = |kind: &Kind| asked.contains(kind) || (*kind == Kind::Project && has_projects);
        let of = |kind| {
            let ids = owners
                .iter()
                .map(|owner| (id(kind, *owner), Usage::default()));
            Self {
                kind,
                usage: ids.collect(),
                runs: Vec::new(),
            }
        };
        Kind::ALL.into_iter().filter(is_on).map(of).collect()
    }

    /// Adds an inode and its bytes to the usage of its owner.
    pub(crate) fn charge(&mut self, owner: Owner, bytes: u64) {
        let usage = self.usage.entry(id(self.kind, owner)).or_default();
        usage.bytes += bytes;
        usage.inodes += 1;
    }

    /// Returns the contents of the file, whose length depends only on the ids.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let at = Place::new(Structure::Quota);
        let mut blocks = vec![[0; BLOCK_SIZE]; ROOT as usize + 1];
        // The last leaf, which is the only one that can have room.
        let mut leaf = 0;
        for (&id, usage) in &self.usage {
            let mut tree = ROOT;
            for level in 0..DEPTH {
                // The length of the file is not known yet, so any block number is valid.
                let info = Info::new(u32::MAX, 0);
                let next = match quota::reference(&blocks[tree as usize], level, id, &info, at)? {
                    Some(next) => next,
                    None if level + 1 == DEPTH && leaf != 0 => leaf,
                    None => append(&mut blocks),
                };
                quota::set_reference(&mut blocks[tree as usize], level, id, next, at)?;
                tree = next;
            }
            leaf = tree;
            let info = Info::new(u32::MAX, 0);
            let entry = Entry {
                id,
                space: Resource {
                    used: usage.bytes,
                    ..Resource::default()
                },
                inodes: Resource {
                    used: usage.inodes,
                    ..Resource::default()
                },
            };
            if quota::leaf::put(&mut blocks[leaf as usize], &entry, &info, at)?
                .full
                .is_some()
            {
                leaf = 0;
            }
        }
        let info = Info::new(blocks.len() as u32, leaf);
        info.encode(self.kind, &mut blocks[0], at)?;
        Ok(blocks.concat())
    }
}

/// Adds a block of zeroes, and returns its number.
fn append(blocks: &mut Vec<[u8; BLOCK_SIZE]>) -> u32 {
    blocks.push([0; BLOCK_SIZE]);
    blocks.len() as u32 - 1
}

/// Returns the id of an owner for a kind of quota.
fn id(kind: Kind, owner: Owner) -> u32 {
    match kind {
        Kind::User => owner.uid,
        Kind::Group => owner.gid,
        Kind::Project => owner.project,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks an id up as the kernel does: from the root to the leaf, and there by the id.
    fn look_up(bytes: &[u8], kind: Kind, id: u32) -> Option<Entry> {
        let at = Place::new(Structure::Quota);
        let block = |number: u32| &bytes[number as usize * BLOCK_SIZE..][..BLOCK_SIZE];
        let info = Info::decode(block(0), kind, at).expect("a header");
        let mut number = ROOT;
        for level in 0..DEPTH {
            number = quota::reference(block(number), level, id, &info, at).expect("a reference")?;
        }
        let offset = quota::leaf::find(block(number), id, at).expect("a leaf")?;
        Some(Entry::decode(block(number), offset, at).expect("an entry"))
    }

    #[test]
    fn each_owner_is_found_with_its_usage() {
        let features = Features {
            ro_compat: RoCompat::QUOTA | RoCompat::PROJECT,
            ..Features::default()
        };
        // Ids that share all levels of the tree, some, or none; more than a leaf has room for.
        let owner = |id| Owner {
            uid: id,
            gid: u32::MAX - id,
            project: id ^ 5,
        };
        let owners: Vec<Owner> = (0..40)
            .chain((1..40).map(|id| id << 16))
            .map(owner)
            .collect();
        let mut files = QuotaFile::all(&Options::default(), features, &owners);
        assert_eq!(
            files.iter().map(|file| file.kind).collect::<Vec<_>>(),
            Kind::ALL
        );
        let reserved: Vec<usize> = files
            .iter()
            .map(|file| file.encode().expect("a file").len())
            .collect();
        for file in &mut files {
            for (times, &owner) in owners.iter().enumerate() {
                (0..times).for_each(|_| file.charge(owner, 1024));
            }
        }
        for (file, reserved) in files.iter().zip(reserved) {
            let bytes = file.encode().expect("a file");
            assert_eq!(
                bytes.len(),
                reserved,
                "the usage does not change the length"
            );
            for (times, &owner) in owners.iter().enumerate() {
                let entry = look_up(&bytes, file.kind, id(file.kind, owner)).expect("an entry");
                let found = (entry.space.used, entry.inodes.used);
                assert_eq!(found, (times as u64 * 1024, times as u64));
            }
            assert_eq!(look_up(&bytes, file.kind, 77), None);
        }
    }
}
