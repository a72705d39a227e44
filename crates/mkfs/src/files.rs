//! The internal files of a new volume: the root directory, lost+found, the resize inode, the
//! journal, the MMP block, the quota files and the orphan file.
//!
//! `Draft` calls [`make_files`](Draft::make_files) once, before a caller adds files, and
//! `fill_quotas` when all inodes are known. Each file gets blocks of the draft's free space, an
//! inode and contents, as `mke2fs` makes them. A volume without room for one is an error.

use extern4_disk::dirent::{DirEntry, FileType, Layout, store_checksum};
use extern4_disk::feature::{Compat, Incompat, RoCompat};
use extern4_disk::inode::{BAD_BLOCKS_INO, Inode, InodeFlags, JOURNAL_INO, RESIZE_INO, ROOT_INO};
use extern4_disk::journal::JournalSuperblock;
use extern4_disk::mmp::Mmp;
use extern4_disk::orphan::OrphanBlock;
use extern4_disk::superblock::{JournalBackup, Superblock};
use extern4_disk::time::Timestamp;
use extern4_disk::{Place, Structure};
use zerocopy::IntoBytes;

use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::journal::JournalBlocks;
use crate::map::{self, Map};
use crate::options::{Length, Options};
use crate::quota::Owner;

/// The inode of lost+found on a new volume.
pub const LOST_FOUND_INO: u32 = 11;
/// The mode of lost+found, which keeps private files private that e2fsck puts there.
pub const LOST_FOUND_MODE: u16 = 0o700;
/// The user and the group of lost+found.
pub(crate) const LOST_FOUND_OWNER: Owner = Owner::of((0, 0));
/// The least size of lost+found in bytes and in blocks. e2fsck then needs no free block to put
/// files there.
const LOST_FOUND_BYTES: u64 = 16 << 10;
const LOST_FOUND_BLOCKS: u64 = 2;
/// Blocks that an inode maps without a block for the map.
const DIRECT: u64 = 12;
/// How many blocks of the volume there are for each block of the orphan file, within limits.
const BLOCKS_PER_ORPHAN_BLOCK: u64 = 4096;
const ORPHAN_BLOCKS: std::ops::RangeInclusive<u64> = 32..=512;

const DIRECTORY: u16 = 0o040_000;
const REGULAR: u16 = 0o100_000;

/// Returns the blocks that lost+found has at least on a volume with this superblock, as `mke2fs`
/// makes it.
pub fn lost_found_blocks(sb: &Superblock) -> u64 {
    let blocks = LOST_FOUND_BYTES
        .div_ceil(sb.block_size().into())
        .clamp(LOST_FOUND_BLOCKS, DIRECT);
    // With `inline_data` it is one block shorter, because its first entries can be in the inode.
    blocks - u64::from(sb.features().incompat.contains(Incompat::INLINE_DATA))
}

impl Draft {
    /// Makes all internal files except the root directory and lost+found.
    pub(crate) fn make_files(
        &mut self,
        journal: Option<JournalBlocks>,
        options: &Options,
    ) -> Result<()> {
        let features = self.sb.features();
        if features.compat.contains(Compat::RESIZE_INODE) {
            self.make_resize_inode()?;
        }
        if let Some(journal) = journal {
            let location = options
                .journal_location
                .map(|place| place.blocks(self.sb.block_size()));
            self.make_journal(journal, location.or(options.packed_metadata.then_some(0)))?;
        }
        if features.incompat.contains(Incompat::MMP) {
            self.make_mmp()?;
        }
        self.make_quotas()?;
        if features.compat.contains(Compat::ORPHAN_FILE) {
            self.make_orphan_file(options.orphan_file_size)?;
        }
        Ok(())
    }

    pub(crate) fn make_root(&mut self, options: &Options) -> Result<()> {
        let runs = self.allocate(1, 0)?;
        let entries = [
            (ROOT_INO, ".".as_bytes()),
            (ROOT_INO, "..".as_bytes()),
            (LOST_FOUND_INO, "lost+found".as_bytes()),
        ];
        let block = self.directory_block(ROOT_INO, &entries);
        self.put(runs[0].0, block);
        let mut inode = self.file(
            ROOT_INO,
            DIRECTORY | options.root_perms.unwrap_or(0o755),
            &runs,
        )?;
        inode.set_links(3);
        inode.set_uid(options.root_owner.0);
        inode.set_gid(options.root_owner.1);
        self.set_inode(&inode);
        self.charge(Owner::of(options.root_owner), self.block_size() as u64);
        Ok(())
    }

    pub(crate) fn make_lost_found(&mut self) -> Result<()> {
        let runs = self.allocate(lost_found_blocks(&self.sb), 0)?;
        let first = [
            (LOST_FOUND_INO, ".".as_bytes()),
            (ROOT_INO, "..".as_bytes()),
        ];
        let mut contents = self.directory_block(LOST_FOUND_INO, &first);
        for number in runs.iter().flat_map(|(start, len)| *start..start + len) {
            self.put(number, contents);
            contents = self.directory_block(LOST_FOUND_INO, &[(0, "".as_bytes())]);
        }
        let mut inode = self.file(LOST_FOUND_INO, DIRECTORY | LOST_FOUND_MODE, &runs)?;
        inode.set_links(2);
        self.charge(LOST_FOUND_OWNER, inode.size());
        self.set_inode(&inode);
        Ok(())
    }

    /// Returns a directory block with these entries. The last record gets the rest of the block.
    fn directory_block(&self, ino: u32, entries: &[(u32, &[u8])]) -> Vec<u8> {
        let checksum = self.sb.metadata_seed().is_some();
        let filetype = self.sb.features().incompat.contains(Incompat::FILETYPE);
        let layout = Layout {
            block_size: self.sb.block_size(),
            inodes: self.sb.inodes_count(),
            filetype,
            checksum,
            encrypted: false,
            casefold: false,
        };
        const TAIL: usize = 12;
        let mut block = vec![0; self.block_size()];
        let end = block.len() - if checksum { TAIL } else { 0 };
        let mut at = 0;
        for (index, &(ino, name)) in entries.iter().enumerate() {
            let len = if index + 1 == entries.len() {
                end - at
            } else {
                layout.rec_len(name)
            };
            let kind = if ino == 0 {
                FileType::Unknown
            } else {
                FileType::Directory
            };
            let entry = DirEntry {
                ino,
                kind,
                name,
                offset: 0,
                hash: None,
            };
            entry.encode(&mut block[at..at + len], &layout);
            at += len;
        }
        if let Some(seed) = self.inode_seed(ino) {
            store_checksum(&mut block, seed);
        }
        block
    }

    /// Makes the file that has the bad blocks, if there are any, so that no other file gets them.
    /// It has no extents on any volume.
    pub(crate) fn make_bad_blocks(&mut self, bad: &[u64]) -> Result<()> {
        if bad.is_empty() {
            return Ok(());
        }
        let size = self.block_size();
        let runs: Vec<_> = bad.iter().map(|block| (*block, 1)).collect();
        let mut take = || Ok(self.allocate(1, 0)?[0].0);
        let Map { root, blocks } = map::block_list(&map::without_holes(&runs), size, &mut take)?;
        let mut inode = self.inode(BAD_BLOCKS_INO, 0);
        inode.set_map(&root);
        inode.set_size((bad.len() * size) as u64);
        if !inode.set_sectors((bad.len() + blocks.len()) as u64 * (size as u64 / 512)) {
            return Err(Error::Size(format!(
                "{} bad blocks are too many",
                bad.len()
            )));
        }
        blocks
            .into_iter()
            .for_each(|(number, block)| self.put(number, block));
        self.set_inode(&inode);
        Ok(())
    }

    /// Makes the resize inode, which owns the reserved blocks after the descriptors. Each of these
    /// blocks lists its copies in the backups.
    fn make_resize_inode(&mut self) -> Result<()> {
        let size = self.block_size();
        let geometry = *self.sb.geometry();
        let entries = size as u64 / 4;
        let backups: Vec<u64> = (1..geometry.group_count())
            .filter_map(|group| geometry.superblock_in(group))
            .collect();
        let top = self.allocate(1, 0)?[0].0;
        let mut double = vec![0; size];
        let reserved = u64::from(geometry.reserved_gdt_blocks());
        for index in u64::from(geometry.descriptor_blocks())
            ..u64::from(geometry.descriptor_blocks()) + reserved
        {
            let block = geometry.superblock_block() + 1 + index;
            let slot = usize::try_from(index % entries * 4).unwrap_or(0);
            double[slot..slot + 4].copy_from_slice(&low_word(block));
            let copies = backups
                .iter()
                .flat_map(|backup| low_word(backup + 1 + index))
                .collect();
            self.put(block, copies);
        }
        self.put(top, double);
        let mut root = [0; 60];
        let double_slot = 13 * 4;
        root[double_slot..double_slot + 4].copy_from_slice(&low_word(top));
        let mut inode = self.inode(RESIZE_INO, REGULAR | 0o600);
        inode.set_map(&root);
        inode.set_links(1);
        inode.set_size((DIRECT + entries + entries * entries) * size as u64);
        if inode.size() > i32::MAX.unsigned_abs().into() {
            let features = self.sb.features().ro_compat | RoCompat::LARGE_FILE;
            self.sb.raw_mut().s_feature_ro_compat.set(features.bits());
        }
        let blocks = 1 + reserved * (1 + backups.len() as u64);
        let _ = inode.set_sectors(blocks * (size as u64 / 512));
        self.set_inode(&inode);
        Ok(())
    }

    /// Makes the journal, in the first room for it from block `location` on, by default from the
    /// middle of the volume on.
    fn make_journal(&mut self, journal: JournalBlocks, location: Option<u64>) -> Result<()> {
        let geometry = *self.sb.geometry();
        let middle = geometry
            .group_start(geometry.group_count() / 2)
            .unwrap_or(0);
        let goal = location
            .filter(|goal| geometry.contains_block(*goal))
            .unwrap_or(middle);
        let runs = self.allocate(journal.all.into(), goal)?;
        let inode = self.file(JOURNAL_INO, REGULAR | 0o600, &runs)?;
        self.set_inode(&inode);
        let at = Place::new(Structure::JournalSuperblock);
        let uuid = self.sb.uuid();
        let superblock = JournalSuperblock::new(
            self.sb.block_size(),
            journal.all,
            journal.fast_commits,
            uuid,
            at,
        )?;
        let mut block = vec![0; self.block_size()];
        block[..JournalSuperblock::SIZE].copy_from_slice(superblock.encode().as_bytes());
        self.put(runs[0].0, block);
        self.zeroes.extend(&runs);
        self.journal_blocks = journal.all.into();
        self.journal_superblock = Some(runs[0].0);
        let backup = JournalBackup {
            map: *inode.map(),
            size: inode.size(),
        };
        self.sb.raw_mut().set_journal(JOURNAL_INO, &backup);
        if self.superblocks_only {
            // The journal of the earlier volume may be elsewhere.
            self.sb.raw_mut().s_jnl_backup_type = 0;
        }
        Ok(())
    }

    fn make_mmp(&mut self) -> Result<()> {
        let at = self.allocate(1, 0)?[0].0;
        self.sb.raw_mut().s_mmp_block.set(at);
        let mut block = vec![0; self.block_size()];
        let mmp = Mmp::new(self.sb.mmp_interval(), self.time).encode(&self.sb);
        block[..mmp.len()].copy_from_slice(&mmp);
        self.put(at, block);
        Ok(())
    }

    /// Makes the quota files, whose contents follow when all files are known.
    fn make_quotas(&mut self) -> Result<()> {
        for index in 0..self.quotas.len() {
            let kind = self.quotas[index].kind;
            let len = self.quotas[index].encode()?.len() as u64;
            let runs = self.allocate(len.div_ceil(self.block_size() as u64), 0)?;
            let project_ino = self.first_free_inode();
            let ino = kind.reserved_inode().unwrap_or(project_ino);
            self.sb.raw_mut().quota_inode_mut(kind).set(ino);
            let mut inode = self.file(ino, REGULAR | 0o600, &runs)?;
            inode.set_size(len);
            inode.set_flags(inode.flags() | InodeFlags::IMMUTABLE);
            self.set_inode(&inode);
            self.quotas[index].runs = runs;
        }
        Ok(())
    }

    /// Writes the usage to the quota files.
    pub(crate) fn fill_quotas(&mut self) -> Result<()> {
        for file in std::mem::take(&mut self.quotas) {
            let contents = file.encode()?;
            let mut numbers = file
                .runs
                .iter()
                .flat_map(|(start, len)| *start..start + len);
            for block in contents.chunks(self.block_size()) {
                let number = numbers.next().ok_or_else(|| {
                    Error::Size("a quota file has no room for one of the owners".to_owned())
                })?;
                self.put(number, block.to_vec());
            }
        }
        Ok(())
    }

    fn make_orphan_file(&mut self, size: Option<Length>) -> Result<()> {
        let by_size = self.sb.blocks_count() / BLOCKS_PER_ORPHAN_BLOCK;
        let by_size = by_size.clamp(*ORPHAN_BLOCKS.start(), *ORPHAN_BLOCKS.end());
        let blocks = size.map_or(by_size, |size| size.blocks(self.sb.block_size()));
        if blocks == 0 {
            return Err(Error::options("the orphan file needs a block or more"));
        }
        let runs = self.allocate(blocks, 0)?;
        let ino = self.first_free_inode();
        let inode = self.file(ino, REGULAR | 0o600, &runs)?;
        self.set_inode(&inode);
        let empty = OrphanBlock::empty(&self.sb);
        for number in runs.iter().flat_map(|(start, len)| *start..start + len) {
            let block = match self.inode_seed(ino) {
                Some(seed) => empty.encode(number, seed, &self.sb),
                None => empty.encode(
                    number,
                    extern4_disk::checksum::ChecksumSeed::of_uuid(&[0; 16]),
                    &self.sb,
                ),
            };
            self.put(number, block);
        }
        self.sb.raw_mut().s_orphan_file_inum.set(ino);
        Ok(())
    }

    /// Returns the inode of a file with these blocks, mapped according to the volume's features.
    fn file(&mut self, ino: u32, mode: u16, runs: &[(u64, u64)]) -> Result<Inode> {
        let size = self.block_size();
        let seed = self.inode_seed(ino);
        let has_extents = self.sb.features().incompat.contains(Incompat::EXTENTS);
        let mut take = || Ok(self.allocate(1, 0)?[0].0);
        let Map { root, blocks } = if has_extents {
            map::extents(&map::without_holes(runs), size, seed, &mut take)?
        } else {
            map::block_list(&map::without_holes(runs), size, &mut take)?
        };
        let len: u64 = runs.iter().map(|(_, len)| len).sum();
        let mut inode = self.inode(ino, mode);
        inode.set_map(&root);
        inode.set_links(1);
        inode.set_flags(if has_extents {
            InodeFlags::EXTENTS
        } else {
            InodeFlags::empty()
        });
        inode.set_size(len * size as u64);
        if !inode.set_sectors((len + blocks.len() as u64) * (size as u64 / 512)) {
            return Err(Error::Size(format!(
                "inode {ino} has more blocks than it can count"
            )));
        }
        for (number, block) in blocks {
            self.put(number, block);
        }
        Ok(inode)
    }

    fn inode(&self, ino: u32, mode: u16) -> Inode {
        let mut inode = Inode::new(ino, mode, 0, &self.sb);
        let now = Timestamp {
            seconds: self.time.cast_signed(),
            nanos: 0,
        };
        inode.set_atime(now);
        inode.set_ctime(now);
        inode.set_mtime(now);
        inode.set_crtime(now);
        inode
    }
}

/// Returns the low 32 bits of a block number. Blocks of a resize inode have no higher numbers.
fn low_word(block: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = block.to_le_bytes();
    [a, b, c, d]
}
