//! Makes the quota files of a volume, and removes them.
//!
//! The command `tune` calls [`Ext4::set_quotas`]. A new file gets an entry for each user, group or
//! project that owns something. The superblock names the file in the last transaction, so no volume
//! has quotas with wrong counts. To remove a file, the superblock and the file change in one
//! transaction, unless the file is very large.
//!
//! The file of projects has an ordinary inode, which is an orphan until the superblock names it. On
//! a volume without a journal, a crash may leave it as an inode without a name, which `e2fsck` puts
//! into lost+found.

use std::collections::BTreeMap;
use std::ops::Range;

use extern4_disk::feature::RoCompat;
use extern4_disk::inode::{InodeFlags, ROOT_INO};
use extern4_disk::quota::{BLOCK_SIZE, Entry, Info, Kind, ROOT, Resource};
use extern4_disk::superblock::RawSuperblock;

use super::internal_files::{clear_reserved, new_file, store_blank};
use crate::error::{Result, Unsupported};
use crate::fs::Ext4;
use crate::fs::quota_accounts::{Amount, Owners, QuotaFile};
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::map::change::{ALLOCATE_CREDITS, MAP_BLOCKS, UNMAP_CREDITS, allocate_for, unmap_blocks};
use crate::ops::create::NAME_CREDITS;
use crate::ops::delete::delete_inode;
use crate::quota::file::{PUT_CREDITS, put_entry, store_header};
use crate::quota::inodes_of;
use crate::run::LOGICAL_END;
use crate::time::now_seconds;
use crate::tune::Tune;

/// The least size of an inode with a project.
const INODE_WITH_PROJECT: u16 = 256;
/// Blocks of the smallest quota file: the header and the root of the tree.
const FIRST_BLOCKS: u32 = ROOT + 1;

/// The usage of each owner of a kind.
type Usage = BTreeMap<u32, Amount>;

impl Ext4 {
    /// Makes the volume keep quotas of `kinds` and no others. New quotas have no limits. The volume
    /// counts for them from the next time on that it is opened; until then nothing but this crate's
    /// `tune` may change it. With [`Kind::Project`] it has the feature `project`, and without, a
    /// volume that has it keeps it if `keeps_project`.
    ///
    /// # Errors
    /// `EROFS` if the volume was opened for reading, `ENOSPC`, after which the new quotas are not
    /// there, an error for a volume whose inodes have no room for a project, or a device that
    /// fails.
    pub fn set_quotas(&self, kinds: &[Kind], keeps_project: bool) -> Result<()> {
        let sb = self.current_superblock();
        if kinds.contains(&Kind::Project) && sb.inode_size() < INODE_WITH_PROJECT {
            return Err(Unsupported::Tuning(
                "its inodes are too small for projects: 256 bytes are needed",
            )
            .into());
        }
        let has = |kind: &Kind| sb.quota_inode(*kind).is_some();
        let gone: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|kind| has(kind) && !kinds.contains(kind))
            .collect();
        let new: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|kind| !has(kind) && kinds.contains(kind))
            .collect();
        let had_project = sb.features().ro_compat.contains(RoCompat::PROJECT);
        let has_project = kinds.contains(&Kind::Project) || had_project && keeps_project;
        if !gone.is_empty() || had_project && !has_project {
            self.remove_quotas(&gone, had_project && has_project)?;
        }
        if !new.is_empty() {
            self.add_quotas(&new, has_project)?;
        }
        self.tune_backups(&Tune::default(), None)
    }

    /// Removes quota files, and sets the feature `project`.
    fn remove_quotas(&self, kinds: &[Kind], has_project: bool) -> Result<()> {
        let sb = self.current_superblock();
        let mut files = Vec::new();
        for ino in kinds.iter().filter_map(|kind| sb.quota_inode(*kind)) {
            files.push(self.load_inode(ino)?);
        }
        // OK: at most three kinds.
        let credits = 1 + files.len() as u32 * (UNMAP_CREDITS + NAME_CREDITS);
        let mut left = self.with_handle(credits, 0, |handle| {
            if let Some(quotas) = &handle.writer.quotas {
                quotas.forget(kinds);
            }
            handle.edit_superblock(|raw| {
                kinds
                    .iter()
                    .for_each(|kind| raw.quota_inode_mut(*kind).set(0));
                set_features(raw, has_project);
            })?;
            let mut left = Vec::new();
            for mut info in files {
                let blocks = free_part(handle, &mut info, 0..LOGICAL_END)?;
                if blocks.is_empty() {
                    continue;
                }
                if !self.is_reserved(&info) {
                    info.fields_mut().set_links(0);
                    handle.writer.orphans.orphan_add(&mut info);
                    handle.store(&info)?;
                }
                left.push((info, blocks));
            }
            Ok(left)
        })?;
        for (info, blocks) in &mut left {
            while !blocks.is_empty() {
                *blocks = self.with_handle(UNMAP_CREDITS + NAME_CREDITS, 0, |handle| {
                    free_part(handle, info, blocks.clone())
                })?;
            }
        }
        Ok(())
    }

    fn is_reserved(&self, info: &InodeInfo) -> bool {
        info.ino() < self.superblock().first_ino()
    }

    fn add_quotas(&self, kinds: &[Kind], has_project: bool) -> Result<()> {
        for ino in kinds.iter().filter_map(|kind| kind.reserved_inode()) {
            clear_reserved(self, ino, true)?;
        }
        let usage = self.usage()?;
        let mut files = Vec::new();
        let made = kinds
            .iter()
            .try_for_each(|kind| self.make_quota_file(*kind, &usage[*kind as usize], &mut files));
        if let Err(error) = made {
            // The first error says what is wrong. If this fails too, e2fsck frees the files.
            let _ = files.into_iter().try_for_each(|file| self.unmake(file));
            return Err(error);
        }
        self.with_handle(NAME_CREDITS, 0, |handle| {
            for file in files
                .iter_mut()
                .filter(|file| !self.is_reserved(&file.info))
            {
                let fields = file.info.fields_mut();
                fields.set_links(1);
                let owners = Owners::of(fields);
                let amount = Amount::of(fields, 1);
                handle
                    .writer
                    .orphans
                    .orphan_remove(handle, &mut file.info)?;
                handle.store(&file.info)?;
                // It has counted as a file of its owner so far.
                handle.count_for(owners, Amount::default().minus(amount))?;
            }
            handle.edit_superblock(|raw| {
                files
                    .iter()
                    .for_each(|file| raw.quota_inode_mut(file.kind).set(file.info.ino()));
                set_features(raw, has_project);
            })
        })
    }

    /// Returns what each owner of each kind has. Reads all inode tables.
    fn usage(&self) -> Result<[Usage; Kind::ALL.len()]> {
        let mut usage: [Usage; Kind::ALL.len()] = Default::default();
        self.each_inode(|info| {
            let fields = info.fields();
            if self.superblock().is_hidden(info.ino())
                || fields.flags().contains(InodeFlags::EA_INODE)
            {
                return Ok(());
            }
            let owners = Owners::of(fields);
            let amount = Amount::of(fields, inodes_of(self, info)?);
            for (usage, kind) in usage.iter_mut().zip(Kind::ALL) {
                let sum = usage.entry(owners.id(kind)).or_default();
                *sum = sum.plus(amount);
            }
            Ok(())
        })?;
        Ok(usage)
    }

    /// Makes a quota file that the superblock does not name yet, and adds it to `files`. The file
    /// of projects, which has an ordinary inode, is an orphan.
    fn make_quota_file(&self, kind: Kind, usage: &Usage, files: &mut Vec<QuotaFile>) -> Result<()> {
        self.open_accounts(Owners::ROOT)?;
        let blocks = (FIRST_BLOCKS * BLOCK_SIZE as u32).div_ceil(self.superblock().block_size());
        let file = self.with_handle(
            ALLOCATE_CREDITS * blocks + NAME_CREDITS,
            blocks + MAP_BLOCKS,
            |handle| first_blocks(handle, kind, blocks),
        )?;
        files.push(file);
        // OK: it has been pushed above.
        let Some(file) = files.last_mut() else {
            return Ok(());
        };
        for (&id, amount) in usage {
            let used = |number: i64| Resource {
                used: number.unsigned_abs(),
                ..Resource::default()
            };
            let entry = Entry {
                id,
                space: used(amount.bytes),
                inodes: used(amount.inodes),
            };
            let demand = file.blocks_to_put(self)?;
            self.with_handle(PUT_CREDITS, demand, |handle| {
                put_entry(handle, file, &entry).map(drop)
            })?;
        }
        Ok(())
    }

    /// Frees a quota file that the superblock does not name.
    fn unmake(&self, file: QuotaFile) -> Result<()> {
        match file.kind.reserved_inode() {
            Some(ino) => clear_reserved(self, ino, true),
            None => delete_inode(self, file.info),
        }
    }
}

/// Makes a quota file without entries.
fn first_blocks(handle: &Handle<'_>, kind: Kind, blocks: u32) -> Result<QuotaFile> {
    let reserved = kind.reserved_inode();
    let (ino, generation) = match reserved {
        Some(ino) => (ino, 0),
        None => handle
            .writer
            .allocator
            .allocate_inode(handle, ROOT_INO, false)?,
    };
    let mut info = new_file(handle, ino, generation)?;
    let flags = info.fields().flags() | InodeFlags::IMMUTABLE;
    info.fields_mut().set_flags(flags);
    info.fields_mut()
        .set_size(u64::from(FIRST_BLOCKS) * BLOCK_SIZE as u64);
    for logical in 0..blocks {
        let run = allocate_for(handle, &mut info, logical, 1, false)?;
        for block in run.mapped().into_iter().flatten() {
            handle.fresh(block)?;
        }
    }
    if reserved.is_none() {
        info.fields_mut().set_links(0);
    }
    handle.store_whole(&info)?;
    if reserved.is_none() {
        handle.writer.orphans.orphan_add(&mut info);
        handle.store(&info)?;
    }
    let file = QuotaFile {
        kind,
        header: Info::new(FIRST_BLOCKS, 0),
        info,
    };
    store_header(handle, &file)?;
    Ok(file)
}

/// Frees blocks of a quota file that the superblock does not name any more, as many as one handle
/// should, and with the last of them its inode. Returns the blocks that are left.
fn free_part(handle: &Handle<'_>, info: &mut InodeInfo, blocks: Range<u64>) -> Result<Range<u64>> {
    let left = unmap_blocks(handle, info, blocks, true)?;
    handle.store(info)?;
    if !left.is_empty() {
        return Ok(left);
    }
    if handle.fs.is_reserved(info) {
        store_blank(handle, info.ino())?;
    } else {
        handle.writer.orphans.orphan_remove(handle, info)?;
        info.fields_mut().set_links(0);
        info.fields_mut().set_size(0);
        info.fields_mut().set_dtime(now_seconds());
        handle.store(info)?;
        handle
            .writer
            .allocator
            .free_inode(handle, info.ino(), false)?;
    }
    Ok(left)
}

/// Sets the features of a volume with the quota files that the superblock names.
fn set_features(raw: &mut RawSuperblock, has_project: bool) {
    let has_quotas = Kind::ALL
        .into_iter()
        .any(|kind| raw.quota_inode_mut(kind).get() != 0);
    let mut features = raw.features().ro_compat;
    features.set(RoCompat::QUOTA, has_quotas);
    features.set(RoCompat::PROJECT, has_project);
    raw.s_feature_ro_compat.set(features.bits());
}
