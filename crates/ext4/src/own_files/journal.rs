//! Adds a journal to a volume, and takes the journal from one.
//!
//! The command `tune` calls [`Ext4::add_journal`] and [`remove_journal`].
//!
//! # Order of writes
//! Both change the volume without a journal, so the superblock on the device says meanwhile that
//! the volume is not clean, and `e2fsck -p` looks at it after a crash.
//!
//! To add a journal: the blocks of the journal are written, then made durable together with their
//! bitmaps and the inode. Only then the superblock names the journal. A crash before that leaves a
//! volume without a journal and, at most, blocks in the reserved inode, which belong to no other
//! file. A crash after it leaves a volume with an empty journal.
//!
//! To take the journal away: it is emptied, and in the next write the superblock no longer names
//! it. Only then its blocks are freed. The other order would let recovery read a journal from
//! blocks that another file may have. The superblock cannot change in a transaction of the journal:
//! a recovery of that transaction would have to write to a journal that the volume no longer has.

use std::ops::Range;
use std::sync::Arc;

use extern4_block::BlockDevice;
use extern4_disk::feature::{Compat, RoCompat};
use extern4_disk::inode::JOURNAL_INO;
use extern4_disk::journal::JournalSuperblock;
use extern4_disk::superblock::{JournalBackup, JournalLocation, Superblock};
use extern4_disk::{Place, Structure};
use zerocopy::IntoBytes;

use super::internal_files::{clear_reserved, new_file};
use crate::alloc::reserve::{Demand, ReserveUse};
use crate::error::{Result, Unsupported};
use crate::fs::Ext4;
use crate::fs::options::OpenOptions;
use crate::fs::quota_accounts::{Amount, Owners};
use crate::inode::info::InodeInfo;
use crate::map::change::{ALLOCATE_CREDITS, Placement, claim_blocks, insert_runs};
use crate::ops::create::NAME_CREDITS;
use crate::tune::Tune;

/// The size of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSize {
    /// All blocks: at least 1024.
    pub blocks: u32,
    /// Blocks at its end that are for fast commits.
    pub fast_commit_blocks: u32,
}

impl Ext4 {
    /// Gives the volume a journal, which it uses from the next time on that it is opened.
    ///
    /// # Errors
    /// `EROFS` if the volume was opened for reading, `ENOSPC`, an error for a volume that has a
    /// journal, or a device that fails. After `ENOSPC` the volume is as before.
    pub fn add_journal(&self, size: JournalSize) -> Result<()> {
        let sb = self.superblock();
        if self.current_superblock().journal().is_some() {
            return Err(Unsupported::Tuning("it has a journal already").into());
        }
        let place = Place::new(Structure::JournalSuperblock).ino(JOURNAL_INO);
        let JournalSize {
            blocks,
            fast_commit_blocks,
        } = size;
        let uuid = self.current_superblock().uuid();
        let superblock =
            JournalSuperblock::new(sb.block_size(), blocks, fast_commit_blocks, uuid, place)?;
        clear_reserved(self, JOURNAL_INO, false)?;
        let (info, runs) = self.fill_journal(blocks).inspect_err(|_| {
            // The first error says what is wrong. If this fails too, e2fsck frees the blocks.
            let _ = clear_reserved(self, JOURNAL_INO, false);
        })?;
        self.write_journal(&runs, &superblock)?;
        let transactions = &self.writer()?.transactions;
        transactions.sync()?;
        self.with_handle(1, 0, |handle| {
            handle.edit_superblock(|raw| {
                raw.set_journal(
                    JOURNAL_INO,
                    &JournalBackup {
                        map: *info.i_block(),
                        size: info.size(),
                    },
                );
                let overhead = raw.s_overhead_blocks.get();
                raw.s_overhead_blocks.set(if overhead == 0 {
                    0
                } else {
                    overhead.saturating_add(blocks)
                });
            })
        })?;
        transactions.sync()?;
        self.tune_backups(&Tune::default(), None)
    }

    /// Allocates the blocks of the journal, in the middle of the volume if there is room, and
    /// stores its inode.
    fn fill_journal(&self, blocks: u32) -> Result<(InodeInfo, Vec<Range<u64>>)> {
        let geometry = self.superblock().geometry();
        let middle = geometry
            .group_start(geometry.group_count() / 2)
            .unwrap_or(0);
        let mut info = self.with_handle(1, 0, |handle| {
            let info = new_file(handle, JOURNAL_INO, 0)?;
            handle.store_whole(&info)?;
            Ok(info)
        })?;
        let nodes = info.map_blocks_needed(self, 0, blocks)?;
        // A volume without room for all of it is refused before blocks are allocated.
        drop(
            self.writer()?
                .allocator
                .reserve(self, blocks.saturating_add(nodes).into())?,
        );
        info.fields_mut()
            .set_size(u64::from(blocks) << geometry.block_bits());
        let mut at = 0;
        let mut runs = Vec::new();
        while at < blocks {
            let (part, nodes) = info.part_of_hole(self, at, blocks - at)?;
            let demand = Demand::new(part + nodes, ReserveUse::Root);
            let run = self.with_handle(ALLOCATE_CREDITS + 1, demand, |handle| {
                let placement = if at == 0 {
                    Placement::near(middle)
                } else {
                    Placement::default()
                };
                let run = claim_blocks(handle, &info, at, part, false, placement)?;
                insert_runs(handle, &mut info, &[run])?;
                handle.store(&info)?;
                Ok(run)
            })?;
            // OK: no more than `part` blocks.
            at += run.len_blocks as u32;
            runs.extend(run.mapped());
        }
        Ok((info, runs))
    }

    /// Writes an empty journal to its blocks.
    fn write_journal(&self, runs: &[Range<u64>], superblock: &JournalSuperblock) -> Result<()> {
        let device = self.cache.device();
        let bits = self.superblock().geometry().block_bits();
        for run in runs {
            device.write_zeroes(run.start << bits..run.end << bits)?;
        }
        if let Some(first) = runs.first() {
            self.cache
                .write_bytes(first.start << bits, superblock.encode().as_bytes())?;
        }
        Ok(device.flush()?)
    }

    /// Takes the orphan file from the volume, which is of no use without a journal. The next open
    /// for writing frees it.
    fn disown_orphan_file(&self) -> Result<()> {
        let Some(ino) = self.superblock().orphan_file_inode() else {
            return Ok(());
        };
        let mut info = self.load_inode(ino)?;
        let owners = Owners::of(info.fields());
        self.open_accounts(owners)?;
        self.with_handle(NAME_CREDITS, 0, |handle| {
            // From now on it is a file as any other, which counts for its owner.
            handle.count_for(owners, Amount::of(info.fields(), 1))?;
            info.fields_mut().set_links(0);
            handle.writer.orphans.orphan_add(&mut info);
            handle.store(&info)?;
            handle.edit_superblock(|raw| {
                let features = raw.features();
                raw.s_feature_compat
                    .set((features.compat - Compat::ORPHAN_FILE).bits());
                raw.s_feature_ro_compat
                    .set((features.ro_compat - RoCompat::ORPHAN_PRESENT).bits());
                raw.s_orphan_file_inum.set(0);
            })
        })
    }

    /// Frees the blocks of the former journal.
    fn free_journal(&self) -> Result<()> {
        let blocks =
            self.load_inode(JOURNAL_INO)?.size() >> self.superblock().geometry().block_bits();
        clear_reserved(self, JOURNAL_INO, false)?;
        self.with_handle(1, 0, |handle| {
            handle.edit_superblock(|raw| {
                let overhead = raw.s_overhead_blocks.get();
                let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
                raw.s_overhead_blocks.set(overhead.saturating_sub(blocks));
            })
        })?;
        self.tune_backups(&Tune::default(), None)
    }
}

/// Takes the journal from the volume on `device`, and the orphan file, which needs one. Replays the
/// journal first, if there is anything to replay. Does nothing to a volume without a journal.
///
/// # Errors
/// The errors of [`Ext4::open_for_writing`], or a journal that is not in the inode for it.
pub fn remove_journal(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<()> {
    let fs = Ext4::open_for_writing(Arc::clone(device), options)?;
    if fs.superblock().journal().is_none() {
        return fs.close();
    }
    if let Err(error) = check_removable(fs.superblock()) {
        fs.close()?;
        return Err(error.into());
    }
    if let Err(error) = fs.disown_orphan_file() {
        fs.close()?;
        return Err(error);
    }
    fs.close_without_journal()?;
    drop(fs);
    let fs = Ext4::open_again(Arc::clone(device), options)?;
    fs.free_journal()?;
    fs.close()
}

/// Refuses a volume whose journal this crate does not take away.
///
/// # Errors
/// [`Unsupported::Tuning`] if the journal is not in the inode for it.
pub fn check_removable(sb: &Superblock) -> Result<(), Unsupported> {
    match sb.journal() {
        None | Some(JournalLocation::Inode(JOURNAL_INO)) => Ok(()),
        Some(JournalLocation::Inode(_)) => {
            Err(Unsupported::Tuning("its journal is a file in a directory"))
        }
        Some(JournalLocation::Device { .. }) => {
            Err(Unsupported::Tuning("its journal is on another device"))
        }
    }
}
