//! The inodes in which two copies of one volume differ.
//!
//! An inode is the same in both volumes if its record and every block that it uses have the
//! same bytes. The time of the last access does not count, since `diff` compares none. Its
//! blocks hold contents, the nodes of its map, and extended attributes. Then the file and its
//! attributes are the same, and so are the names in a directory.
//!
//! `compare` calls it after `blocks`. Threads read the inode tables from start to end, past the
//! cache of metadata blocks, since no other step needs all inodes.

use std::ops::Range;

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::feature::{Incompat, RoCompat};
use extern4_disk::group::GroupFlags;
use extern4_disk::inode::{FileKind, Inode, InodeFlags, is_blank, is_same_but_for_atime};
use extern4_disk::{Corrupt, Place, Structure};
use extern4_ext4::inode_blocks::{Use, pieces};
use extern4_ext4::{Error, Ext4};

use super::Both;
use super::blocks::ChangedBlocks;
use super::threads::each_item;

/// Bytes of an inode table that are read at a time: whole blocks, of any size.
const CHUNK_BYTES: u32 = 256 << 10;

/// The error where inodes do not tell how two volumes differ: something cannot be read, or the
/// volumes are not two copies of one. The lists of the whole trees then show the reason.
#[derive(Debug)]
pub(super) struct NoLists;

impl From<Error> for NoLists {
    fn from(_: Error) -> Self {
        Self
    }
}

impl From<Corrupt> for NoLists {
    fn from(_: Corrupt) -> Self {
        Self
    }
}

impl From<crate::Error> for NoLists {
    fn from(_: crate::Error) -> Self {
        Self
    }
}

/// The inodes of two copies of one volume.
#[derive(Debug, Default)]
pub(super) struct Inodes {
    /// The numbers of the inodes that may differ, sorted. All others are equal in both volumes.
    changed: Vec<u32>,
    /// The directories that are the same in both, sorted by their numbers.
    directories: Vec<UnchangedDirectory>,
}

/// A directory that is the same in both volumes.
#[derive(Debug)]
pub(super) struct UnchangedDirectory {
    pub(super) ino: u32,
    pub(super) flags: InodeFlags,
    /// The seed of the checksums of its blocks.
    pub(super) seed: Option<ChecksumSeed>,
    /// Its blocks in their order. A directory in its inode has none.
    pub(super) blocks: Box<[Range<u64>]>,
}

impl Inodes {
    /// Compares the inodes of two volumes, which differ in `blocks`.
    ///
    /// # Errors
    /// The volumes do not have all their inodes in the same places, or one cannot be read.
    pub(super) fn compare(
        volumes: Both<&Ext4>,
        blocks: &ChangedBlocks,
        threads: usize,
    ) -> Result<Self, NoLists> {
        let superblocks = volumes.map(|ext4| ext4.superblock());
        let features = superblocks.map(|superblock| superblock.features());
        if features.old != features.new
            || superblocks.old.geometry() != superblocks.new.geometry()
            || superblocks.old.encoding() != superblocks.new.encoding()
            // A record does not tell whether an inode that holds one of its attribute values has
            // changed.
            || features.old.incompat.contains(Incompat::EA_INODE)
        {
            return Err(NoLists);
        }
        let start = || Scan::new(volumes, blocks);
        let groups = superblocks.old.geometry().group_count();
        // OK: the number of groups has 32 bits.
        let scans = each_item(threads, groups as usize, start, |scan, group| {
            scan.group(group as u32)
        })?;
        let mut inodes = Self::default();
        for Scan { found, .. } in scans {
            inodes.changed.extend(found.changed);
            inodes.directories.extend(found.directories);
        }
        inodes.changed.sort_unstable();
        inodes
            .directories
            .sort_unstable_by_key(|directory| directory.ino);
        Ok(inodes)
    }

    /// Returns whether an inode may differ.
    pub(super) fn is_changed(&self, ino: u64) -> bool {
        u32::try_from(ino).is_ok_and(|ino| self.changed.binary_search(&ino).is_ok())
    }

    /// Returns the directories that are the same in both volumes.
    pub(super) fn directories(&self) -> &[UnchangedDirectory] {
        &self.directories
    }

    /// Returns whether an inode is such a directory.
    pub(super) fn is_unchanged_directory(&self, ino: u32) -> bool {
        self.directories
            .binary_search_by_key(&ino, |directory| directory.ino)
            .is_ok()
    }
}

impl UnchangedDirectory {
    /// Returns whether the entries are in the inode.
    pub(super) fn is_inline(&self) -> bool {
        self.flags.contains(InodeFlags::INLINE_DATA)
    }
}

/// The work of one thread.
struct Scan<'v> {
    volumes: Both<&'v Ext4>,
    blocks: &'v ChangedBlocks,
    buffers: Both<Vec<u8>>,
    /// The blocks of the contents of an inode.
    contents: Vec<Range<u64>>,
    found: Inodes,
}

impl<'v> Scan<'v> {
    fn new(volumes: Both<&'v Ext4>, blocks: &'v ChangedBlocks) -> Self {
        let (buffers, contents, found) = Default::default();
        Self {
            volumes,
            blocks,
            buffers,
            contents,
            found,
        }
    }

    /// Compares the inodes of a group.
    fn group(&mut self, group: u32) -> Result<(), NoLists> {
        let descriptors = Both {
            old: self.volumes.old.group(group)?,
            new: self.volumes.new.group(group)?,
        };
        let table = descriptors.old.inode_table();
        if descriptors.new.inode_table() != table {
            return Err(NoLists);
        }
        let geometry = self.volumes.old.superblock().geometry();
        let features = self.volumes.old.superblock().features();
        // Without checksums of descriptors, Linux ignores their flags and counts of unused inodes.
        let is_counted = features
            .ro_compat
            .intersects(RoCompat::GDT_CSUM | RoCompat::METADATA_CSUM);
        let used = descriptors.map(|descriptor| match descriptor.flags() {
            _ if !is_counted => geometry.inodes_per_group(),
            flags if flags.contains(GroupFlags::INODE_UNINIT) => 0,
            _ => geometry
                .inodes_per_group()
                .saturating_sub(descriptor.unused_inodes()),
        });
        let used = used.old.max(used.new);
        let per_block = geometry.block_size() / u32::from(geometry.inode_size());
        let per_chunk = CHUNK_BYTES / u32::from(geometry.inode_size());
        for at in (0..used).step_by(per_chunk as usize) {
            let first = group * geometry.inodes_per_group() + 1 + at;
            let block = table + u64::from(at / per_block);
            self.records(block, first, per_chunk.min(used - at))?;
        }
        Ok(())
    }

    /// Compares `count` inodes from `first` on, whose records are in the blocks from `block` on.
    fn records(&mut self, block: u64, first: u32, count: u32) -> Result<(), NoLists> {
        let geometry = self.volumes.old.superblock().geometry();
        let size = usize::from(geometry.inode_size());
        let len = (count as usize * size).next_multiple_of(geometry.block_size() as usize);
        let is_touched = self
            .blocks
            .touch(block * u64::from(geometry.block_size()), len as u64);
        let Both { mut old, mut new } = std::mem::take(&mut self.buffers);
        read(self.volumes.old, block, len, &mut old)?;
        if is_touched {
            read(self.volumes.new, block, len, &mut new)?;
        }
        for (index, ino) in (first..first + count).enumerate() {
            let range = index * size..(index + 1) * size;
            let record = &old[range.clone()];
            let other = if is_touched { &new[range] } else { record };
            if record != other {
                if !is_same_but_for_atime(record, other) {
                    self.found.changed.push(ino);
                    continue;
                }
                self.decode(other, ino)?;
            }
            if !is_blank(record) {
                self.same_record(&self.decode(record, ino)?)?;
            }
        }
        self.buffers = Both { old, new };
        Ok(())
    }

    fn decode(&self, record: &[u8], ino: u32) -> Result<Inode, Corrupt> {
        let place = Place::new(Structure::Inode).ino(ino);
        Inode::decode(record, ino, self.volumes.old.superblock(), place)
    }

    /// Compares the blocks of an inode whose record is the same in both volumes.
    fn same_record(&mut self, inode: &Inode) -> Result<(), NoLists> {
        let volume = self.volumes.old;
        let superblock = volume.superblock();
        let block_size = u64::from(superblock.block_size());
        let mut is_changed = false;
        let mut next = 0;
        self.contents.clear();
        pieces(volume, inode, &mut |piece| {
            let len = piece.len_blocks.saturating_mul(block_size);
            is_changed |= self
                .blocks
                .touch(piece.physical.saturating_mul(block_size), len);
            match piece.used {
                Use::Data {
                    logical,
                    unwritten: false,
                } if logical == next => {
                    next += piece.len_blocks;
                    self.contents
                        .push(piece.physical..piece.physical + piece.len_blocks);
                }
                _ => {}
            }
        })?;
        if is_changed {
            self.found.changed.push(inode.ino());
        } else if inode.kind() == FileKind::Directory && inode.links() > 0 {
            let seed = superblock
                .metadata_seed()
                .map(|seed| inode.checksum_seed(seed));
            let blocks = self.contents.as_slice().into();
            let directory = UnchangedDirectory {
                ino: inode.ino(),
                flags: inode.flags(),
                seed,
                blocks,
            };
            // Directories have no holes.
            if !directory.is_inline() && next != inode.size() / block_size {
                return Err(NoLists);
            }
            self.found.directories.push(directory);
        }
        Ok(())
    }
}

/// Fills a buffer with `len` bytes of a volume.
fn read(volume: &Ext4, block: u64, len: usize, buffer: &mut Vec<u8>) -> Result<(), Error> {
    buffer.resize(len, 0);
    volume.read_from_device(block, buffer)
}
