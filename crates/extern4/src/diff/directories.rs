//! The directories that lead to a changed inode.
//!
//! A directory that is the same in both volumes is of interest only if it names an inode that has
//! changed, or a directory that leads to one. So the names in most directories need not be known:
//! one pass reads the entries of all, for the numbers of their inodes.
//!
//! `compare` calls it after `inodes`.

use std::collections::{HashMap, HashSet};

use extern4_disk::dirent::{self, Entries, Layout};
use extern4_disk::feature::Incompat;
use extern4_disk::inode::{InodeFlags, ROOT_INO};
use extern4_disk::{Place, Structure, htree};
use extern4_ext4::Ext4;

use super::inodes::{Inodes, NoLists, UnchangedDirectory};
use super::threads::each_item;

/// How many directories a thread takes at once.
const BATCH: usize = 64;

/// The numbers of the unchanged directories that have a changed inode below them.
#[derive(Debug)]
pub(super) struct LeadingDirectories(HashSet<u32>);

/// An entry of an unchanged directory.
struct Link {
    directory: u32,
    ino: u32,
}

impl LeadingDirectories {
    /// Finds them. Either volume shows the directories that are the same in both.
    ///
    /// # Errors
    /// A directory that cannot be read, or that has several names.
    pub(super) fn find(volume: &Ext4, inodes: &Inodes, threads: usize) -> Result<Self, NoLists> {
        let batches: Vec<_> = inodes.directories().chunks(BATCH).collect();
        let start = || Scan {
            volume,
            inodes,
            buffer: Vec::new(),
            found: Vec::new(),
        };
        let scans = each_item(threads, batches.len(), start, |scan, batch| {
            batches[batch]
                .iter()
                .try_for_each(|directory| scan.directory(directory))
        })?;
        let mut above = HashMap::from([(ROOT_INO, ROOT_INO)]);
        // A directory in its inode is taken for one that leads to a change.
        let in_inodes = inodes
            .directories()
            .iter()
            .filter(|directory| directory.is_inline());
        let mut next: Vec<_> = in_inodes.map(|directory| directory.ino).collect();
        for Link { directory, ino } in scans.into_iter().flat_map(|scan| scan.found) {
            if inodes.is_changed(ino.into()) {
                next.push(directory);
            } else if above.insert(ino, directory).is_some() {
                return Err(NoLists);
            }
        }
        let mut leading = HashSet::new();
        while let Some(ino) = next.pop() {
            if leading.insert(ino) {
                next.extend(above.get(&ino));
            }
        }
        Ok(Self(leading))
    }

    /// Returns whether an unchanged directory has a changed inode below it.
    pub(super) fn contains(&self, ino: u64) -> bool {
        u32::try_from(ino).is_ok_and(|ino| self.0.contains(&ino))
    }
}

/// The work of one thread.
struct Scan<'v> {
    volume: &'v Ext4,
    inodes: &'v Inodes,
    buffer: Vec<u8>,
    found: Vec<Link>,
}

impl Scan<'_> {
    /// Finds the changed inodes and the unchanged directories that a directory names.
    fn directory(&mut self, directory: &UnchangedDirectory) -> Result<(), NoLists> {
        let superblock = self.volume.superblock();
        let layout = Layout {
            block_size: superblock.block_size(),
            inodes: superblock.inodes_count(),
            filetype: superblock.features().incompat.contains(Incompat::FILETYPE),
            checksum: superblock.features().metadata_csum(),
            encrypted: directory.flags.contains(InodeFlags::ENCRYPT),
            casefold: directory.flags.contains(InodeFlags::CASEFOLD),
        };
        let is_indexed = directory.flags.contains(InodeFlags::INDEX);
        self.buffer.resize(layout.block_size as usize, 0);
        for (index, block) in directory.blocks.iter().cloned().flatten().enumerate() {
            self.volume.read_from_device(block, &mut self.buffer)?;
            // The nodes of a hash tree have no entries but `.` and `..`.
            if is_indexed && (index == 0 || htree::is_interior(&self.buffer)) {
                continue;
            }
            let place = Place::new(Structure::DirectoryBlock)
                .ino(directory.ino)
                .block(block);
            if let Some(seed) = directory.seed {
                dirent::verify_checksum(&self.buffer, seed, place)?;
            }
            for entry in Entries::new(&self.buffer, &layout, place) {
                let entry = entry?;
                let is_wanted = self.inodes.is_changed(entry.ino.into())
                    || self.inodes.is_unchanged_directory(entry.ino);
                if is_wanted && !entry.is_dot_or_dotdot() {
                    self.found.push(Link {
                        directory: directory.ino,
                        ino: entry.ino,
                    });
                }
            }
        }
        Ok(())
    }
}
