//! Quotas: usage and limits of space and inodes for users, groups and projects.
//!
//! An inode counts as one inode and the space in its `i_blocks`. Each value of an attribute that is
//! in an EA inode counts as one inode more. So usage is counted in one place: storing an inode
//! counts the difference between its new and its old record (`Handle::count_change`). Internal
//! files of the volume and EA inodes count for no id.
//!
//! The accounts of ids that have been needed are in memory. Changed accounts are stored in the
//! quota files when the transaction closes (`fs::writer`). An id without an entry in a file gets
//! one in a separate transaction, before the change that first counts something for it
//! (`Ext4::open_accounts`). So counting allocates no blocks.
//!
//! An operation checks limits before it changes anything (`Handle::admit`, `EDQUOT`). The admitted
//! amount is reserved until it has been counted, so that other operations do not use it. As in
//! Linux, names and contents are checked, but not the blocks of their map, and `CAP_SYS_RESOURCE`
//! is not limited.
//!
//! Operations in `ops`, `file`, `dir` and `xattr` call these functions; [`Ext4::quota`] and
//! [`Ext4::set_quota`] are for the library and the command.
//!
//! # Locks
//! All accounts have one lock, which is taken with or without an open handle. Blocks are read and
//! allocated under it; no handle is opened under it.

pub(crate) mod file;

pub use extern4_disk::quota::{Entry, Kind, Resource};

use std::collections::HashMap;

use extern4_disk::inode::InodeFlags;
use extern4_disk::quota::{Info, SPACE_UNIT};
use extern4_sync::primitive::Mutex;
use extern4_vfs::{Attr, Errno, FileFlags, SpaceRights, StatFs};

use crate::alloc::reserve::{Demand, ReserveUse};
use crate::error::Result;
use crate::fs::Ext4;
use crate::fs::quota_accounts::{
    Account, Amount, Counted, KindQuota, Owners, QuotaFile, QuotaReservation, Quotas, count, room,
};
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::quota::file::{PUT_CREDITS, put_entry, store_header};
use crate::time::now_seconds;
use crate::xattr::ea_inode::is_old_ea_inode;
use crate::xattr::list::Plan;

impl Quotas {
    /// Opens the quotas of `fs`; `None` if it has none.
    pub(crate) fn open(fs: &Ext4) -> Result<Option<Self>> {
        let files = Kind::ALL
            .into_iter()
            .filter_map(|kind| QuotaFile::open(fs, kind).transpose());
        let quota = |file: Result<_>| {
            file.map(|file| KindQuota {
                file,
                accounts: HashMap::new(),
                dirty: Vec::new(),
            })
        };
        let kinds = files.map(quota).collect::<Result<Vec<_>>>()?;
        Ok((!kinds.is_empty()).then(|| Self(Mutex::new(kinds))))
    }
}

impl KindQuota {
    /// Returns the account of an id. Reads it from the file when it is first needed.
    fn account(&mut self, fs: &Ext4, id: u32) -> Result<&mut Account> {
        if !self.accounts.contains_key(&id) {
            let (position, entry) = match self.file.find(fs, id)? {
                Some((position, entry)) => (Some(position), entry),
                None => (
                    None,
                    Entry {
                        id,
                        ..Entry::default()
                    },
                ),
            };
            let account = Account {
                entry,
                position,
                reserved: Amount::default(),
                dirty: None,
            };
            self.accounts.insert(id, account);
        }
        // OK: it has been inserted above.
        self.accounts.get_mut(&id).ok_or_else(|| Errno::EIO.into())
    }

    /// Adds an entry for an id to the file, if there is none.
    fn open_account(&mut self, handle: &Handle<'_>, id: u32) -> Result<()> {
        let account = self.account(handle.fs, id)?;
        if account.position.is_none() {
            let entry = account.entry;
            let position = put_entry(handle, &mut self.file, &entry)?;
            self.account(handle.fs, id)?.position = Some(position);
        }
        Ok(())
    }

    fn count(&mut self, handle: &Handle<'_>, id: u32, amount: Amount, now: u64) -> Result<()> {
        let space_grace = self.file.header.space_grace;
        let inode_grace = self.file.header.inode_grace;
        let account = self.account(handle.fs, id)?;
        count(&mut account.entry.space, amount.bytes, space_grace, now);
        count(&mut account.entry.inodes, amount.inodes, inode_grace, now);
        self.note_changed(handle, id)
    }

    /// Makes sure that an account is stored when the transaction closes. On a volume whose quotas
    /// were wrong before, an account may have no entry in the file. It is then stored when it gets
    /// one.
    fn note_changed(&mut self, handle: &Handle<'_>, id: u32) -> Result<()> {
        let account = self.account(handle.fs, id)?;
        if let (None, Some(position)) = (&account.dirty, account.position) {
            let mut buffer = handle.fs.cache.read(position.block)?;
            // Adds the block to the transaction now, so that this handle's credits pay for it and
            // it stays in memory until the transaction closes.
            handle.edit(&mut buffer, |_| ());
            account.dirty = Some(buffer.pin());
            self.dirty.push(id);
        }
        Ok(())
    }
}

impl Ext4 {
    /// Checks, before usage of `owners` shrinks, that their accounts can be read.
    ///
    /// # Errors
    /// A corrupt quota file.
    pub(crate) fn check_accounts(&self, owners: Owners) -> Result<()> {
        let Some(quotas) = &self.writer()?.quotas else {
            return Ok(());
        };
        quotas.lock().iter_mut().try_for_each(|quota| {
            let id = owners.id(quota.file.kind);
            quota.account(self, id).map(drop)
        })
    }

    /// Makes sure that the quota files have entries for `owners`, before a change counts something
    /// for them.
    ///
    /// # Errors
    /// `ENOSPC`; a corrupt quota file.
    pub(crate) fn open_accounts(&self, owners: Owners) -> Result<()> {
        let Some(quotas) = self
            .writer
            .get()
            .and_then(|writer| writer.quotas.as_deref())
        else {
            return Ok(());
        };
        for kind in Kind::ALL {
            let id = owners.id(kind);
            let blocks = {
                let mut kinds = quotas.lock();
                let Some(quota) = kinds.iter_mut().find(|quota| quota.file.kind == kind) else {
                    continue;
                };
                if quota.account(self, id)?.position.is_some() {
                    continue;
                }
                quota.file.blocks_to_put(self)?
            };
            // The blocks are internal metadata, so that an owner can change on a full volume.
            self.with_handle(
                PUT_CREDITS,
                Demand::new(blocks, ReserveUse::All),
                |handle| {
                    let mut kinds = quotas.lock();
                    let quota = kinds.iter_mut().find(|quota| quota.file.kind == kind);
                    match quota {
                        Some(quota) => quota.open_account(handle, id),
                        None => Ok(()),
                    }
                },
            )?;
        }
        Ok(())
    }
}

impl Handle<'_> {
    /// Checks that limits allow `more` for `owners`, and reserves it. It is called before anything
    /// is changed, and calls `more` only if there are limits.
    ///
    /// # Errors
    /// `EDQUOT`; a corrupt quota file.
    pub(crate) fn admit(
        &self,
        owners: Owners,
        rights: SpaceRights,
        more: impl FnOnce() -> Result<Amount>,
    ) -> Result<()> {
        self.admit_some(rights, more, |kind| Some(owners.id(kind)))
    }

    /// Checks limits for more blocks of an existing inode.
    pub(crate) fn admit_blocks(
        &self,
        info: &InodeInfo,
        rights: SpaceRights,
        blocks: impl FnOnce() -> Result<u32>,
    ) -> Result<()> {
        self.admit(Owners::of(info.fields()), rights, || {
            Ok(self.amount(blocks()?, 0))
        })
    }

    /// Checks limits for attributes of an inode.
    pub(crate) fn admit_plan(
        &self,
        info: &InodeInfo,
        rights: SpaceRights,
        plan: &Plan,
    ) -> Result<()> {
        let (blocks, inodes) = plan.counts(self.fs, info);
        self.admit(Owners::of(info.fields()), rights, || {
            Ok(self.amount(blocks, inodes))
        })
    }

    /// Checks limits for an inode that gets other owners.
    pub(crate) fn admit_transfer(
        &self,
        info: &InodeInfo,
        to: Owners,
        rights: SpaceRights,
    ) -> Result<()> {
        let from = Owners::of(info.fields());
        let all = || Ok(Amount::of(info.fields(), inodes_of(self.fs, info)?));
        self.admit_some(rights, all, |kind| {
            Some(to.id(kind)).filter(|&id| id != from.id(kind))
        })
    }

    /// Returns the amount of `blocks` blocks and `inodes` inodes.
    pub(crate) fn amount(&self, blocks: u32, inodes: i64) -> Amount {
        Amount {
            bytes: i64::from(blocks) * i64::from(self.fs.superblock().block_size()),
            inodes,
        }
    }

    fn admit_some(
        &self,
        rights: SpaceRights,
        more: impl FnOnce() -> Result<Amount>,
        id_of: impl Fn(Kind) -> Option<u32>,
    ) -> Result<()> {
        let Some(quotas) = &self.writer.quotas else {
            return Ok(());
        };
        let enforces = self.fs.enforces_limits && !rights.sys_resource;
        let mut limited = Vec::new();
        for quota in &mut *quotas.lock() {
            let kind = quota.file.kind;
            // The account is also read where no limit counts: if it cannot be, this is the time to
            // find out.
            if let Some(id) = id_of(kind)
                && quota.account(self.fs, id)?.is_limited()
                && enforces
            {
                limited.push((kind, id));
            }
        }
        if limited.is_empty() {
            return Ok(());
        }
        let more = more()?;
        let now = u64::from(now_seconds());
        let mut kinds = quotas.lock();
        let mut kinds = kinds.iter_mut();
        for (kind, id) in limited {
            let Some(quota) = kinds.find(|quota| quota.file.kind == kind) else {
                continue;
            };
            let account = quota.account(self.fs, id)?;
            if !account.admits(more, now) {
                return Err(Errno::EDQUOT.into());
            }
            account.reserve(more);
            self.quota_reservations
                .list
                .borrow_mut()
                .push(QuotaReservation {
                    kind,
                    id,
                    left: more,
                });
        }
        Ok(())
    }

    /// Adds an amount to the usage of owners.
    pub(crate) fn count_for(&self, owners: Owners, amount: Amount) -> Result<()> {
        self.count_each(|kind| [(owners.id(kind), amount), (0, Amount::default())])
    }

    /// Adds up to two amounts to the usage of ids of each kind.
    fn count_each(&self, amounts: impl Fn(Kind) -> [(u32, Amount); 2]) -> Result<()> {
        let Some(quotas) = &self.writer.quotas else {
            return Ok(());
        };
        let now = u64::from(now_seconds());
        for quota in &mut *quotas.lock() {
            let kind = quota.file.kind;
            for (id, amount) in amounts(kind)
                .into_iter()
                .filter(|(_, amount)| *amount != Amount::default())
            {
                quota.count(self, id, amount, now)?;
                self.quota_reservations
                    .consume(kind, id, quota.account(self.fs, id)?, amount);
            }
        }
        Ok(())
    }

    /// Counts the difference between an inode and its former record `before`, which is `None` for a
    /// new inode.
    pub(crate) fn count_change(&self, info: &InodeInfo, before: Option<Counted>) -> Result<()> {
        let fields = info.fields();
        if self.fs.superblock().is_hidden(info.ino())
            || fields.flags().contains(InodeFlags::EA_INODE)
        {
            return Ok(());
        }
        let owners = Owners::of(fields);
        let Some(before) = before else {
            return self.count_for(owners, Amount::of(fields, 1));
        };
        let handle = Amount::of(fields, 0).minus(Amount::of(&before.fields, 0));
        if before.owners == owners {
            return if handle == Amount::default() {
                Ok(())
            } else {
                self.count_for(owners, handle)
            };
        }
        let inodes = inodes_of(self.fs, info)?;
        let goes = Amount::of(&before.fields, inodes);
        let comes = Amount::of(fields, inodes);
        self.count_each(|kind| match (before.owners.id(kind), owners.id(kind)) {
            (old, new) if old == new => [(new, handle), (0, Amount::default())],
            (old, new) => [(old, Amount::default().minus(goes)), (new, comes)],
        })
    }

    /// Stops counting an inode that is freed.
    pub(crate) fn count_freed(&self, info: &InodeInfo) -> Result<()> {
        let all = Amount::of(info.fields(), 1);
        self.count_for(Owners::of(info.fields()), Amount::default().minus(all))
    }
}

/// Returns how many inodes count for an inode: itself, and the inodes of its attributes' values.
pub(crate) fn inodes_of(fs: &Ext4, info: &InodeInfo) -> Result<i64> {
    let attributes = info.attributes(fs)?;
    let values = attributes
        .ea_inodes()
        .filter(|(ino, ..)| !is_old_ea_inode(fs, *ino, info))
        .count();
    // OK: an inode has room for fewer than 2^16.
    Ok(1 + values as i64)
}

/// The limits of an id; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, which are rounded up to whole KiB: the soft limit and the hard one.
    pub space: (u64, u64),
    /// Inodes: the soft limit and the hard one.
    pub inodes: (u64, u64),
}

/// For how long ids may exceed their soft limits, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// The soft limit of space.
    pub space: u32,
    /// The soft limit of inodes.
    pub inodes: u32,
}

impl Ext4 {
    /// Returns the usage and the limits of an id. `None` if the id has never owned anything, or if
    /// the volume has no quota of that kind.
    ///
    /// # Errors
    /// A corrupt quota file, or a device that fails.
    pub fn quota(&self, kind: Kind, id: u32) -> Result<Option<Entry>> {
        if let Some(quotas) = self
            .writer
            .get()
            .and_then(|writer| writer.quotas.as_deref())
        {
            let mut kinds = quotas.lock();
            let Some(quota) = kinds.iter_mut().find(|quota| quota.file.kind == kind) else {
                return Ok(None);
            };
            let account = quota.account(self, id)?;
            return Ok(account.position.map(|_| account.entry));
        }
        let Some(file) = QuotaFile::open(self, kind)? else {
            return Ok(None);
        };
        Ok(file.find(self, id)?.map(|(_, entry)| entry))
    }

    /// Returns totals and free space for an inode with these attributes. For a directory whose
    /// project is inherited they are not more than the project's limits allow.
    pub(crate) fn stat_for(&self, attr: &Attr) -> Result<StatFs> {
        let mut stat = self.stat()?;
        if self.enforces_limits
            && attr.flags.contains(FileFlags::PROJINHERIT)
            && let Some(entry) = self.quota(Kind::Project, attr.project)?
        {
            if let Some((all, left)) = room(&entry.space, stat.block_size.into(), stat.blocks) {
                stat.blocks = all;
                stat.blocks_free = stat.blocks_free.min(left);
                stat.blocks_available = stat.blocks_available.min(left);
            }
            if let Some((all, left)) = room(&entry.inodes, 1, stat.files) {
                stat.files = all;
                stat.files_free = stat.files_free.min(left);
            }
        }
        Ok(stat)
    }

    /// Returns the entry with the lowest id from `from` on; `None` if there is none, or the volume
    /// has no quota of that kind. `Q_GETNEXTQUOTA` does this on Linux.
    ///
    /// # Errors
    /// A corrupt quota file, or a device that fails.
    pub fn next_quota(&self, kind: Kind, from: u32) -> Result<Option<Entry>> {
        if let Some(quotas) = self
            .writer
            .get()
            .and_then(|writer| writer.quotas.as_deref())
        {
            let mut kinds = quotas.lock();
            let Some(quota) = kinds.iter_mut().find(|quota| quota.file.kind == kind) else {
                return Ok(None);
            };
            let Some((_, entry)) = quota.file.next(self, from)? else {
                return Ok(None);
            };
            // The account in memory is newer.
            return Ok(Some(
                quota
                    .accounts
                    .get(&entry.id)
                    .map_or(entry, |account| account.entry),
            ));
        }
        let Some(file) = QuotaFile::open(self, kind)? else {
            return Ok(None);
        };
        Ok(file.next(self, from)?.map(|(_, entry)| entry))
    }

    /// Returns the grace times; `None` if the volume has no quota of that kind.
    ///
    /// # Errors
    /// A corrupt quota file, or a device that fails.
    pub fn quota_grace(&self, kind: Kind) -> Result<Option<Grace>> {
        let grace = |header: &Info| Grace {
            space: header.space_grace,
            inodes: header.inode_grace,
        };
        if let Some(quotas) = self
            .writer
            .get()
            .and_then(|writer| writer.quotas.as_deref())
        {
            let kinds = quotas.lock();
            return Ok(kinds
                .iter()
                .find(|quota| quota.file.kind == kind)
                .map(|it| grace(&it.file.header)));
        }
        Ok(QuotaFile::open(self, kind)?.map(|file| grace(&file.header)))
    }

    /// Sets the grace times. An id that exceeds a soft limit already keeps its time.
    ///
    /// # Errors
    /// `EROFS` if the volume was opened for reading, `ENODEV` if it has no quota of that kind, or a
    /// device that fails.
    pub fn set_quota_grace(&self, kind: Kind, grace: Grace) -> Result<()> {
        let quotas = self.writer()?.quotas.as_deref().ok_or(Errno::ENODEV)?;
        self.with_handle(1, 0, |handle| {
            let mut kinds = quotas.lock();
            let quota = kinds
                .iter_mut()
                .find(|quota| quota.file.kind == kind)
                .ok_or(Errno::ENODEV)?;
            let header = &mut quota.file.header;
            (header.space_grace, header.inode_grace) = (grace.space, grace.inodes);
            store_header(handle, &quota.file)
        })
    }

    /// Sets the limits of an id.
    ///
    /// # Errors
    /// `EROFS` if the volume was opened for reading, `ENODEV` if it has no quota of that kind,
    /// `ERANGE` for a limit that the kernel would refuse, `ENOSPC`, a corrupt quota file, or a
    /// device that fails.
    pub fn set_quota(&self, kind: Kind, id: u32, limits: &Limits) -> Result<()> {
        let all = [
            limits.space.0,
            limits.space.1,
            limits.inodes.0,
            limits.inodes.1,
        ];
        if all.into_iter().any(|limit| limit > i64::MAX.unsigned_abs()) {
            return Err(Errno::ERANGE.into());
        }
        self.change_account(kind, id, |entry| {
            let whole = |bytes: u64| bytes.div_ceil(SPACE_UNIT).saturating_mul(SPACE_UNIT);
            (entry.space.soft, entry.space.hard) = (whole(limits.space.0), whole(limits.space.1));
            (entry.inodes.soft, entry.inodes.hard) = limits.inodes;
            // The grace time of an id that exceeds a new soft limit starts now.
            (entry.space.until, entry.inodes.until) = (0, 0);
        })
    }

    /// Corrects the usage of an id to what has been counted. The volume is not to be in use
    /// otherwise.
    ///
    /// # Errors
    /// As [`set_quota`](Self::set_quota).
    pub fn correct_usage(&self, kind: Kind, id: u32, bytes: u64, inodes: u64) -> Result<()> {
        self.change_account(kind, id, |entry| {
            (entry.space.used, entry.inodes.used) = (bytes, inodes)
        })
    }

    /// Changes the entry of an id, which gets one if it has none.
    fn change_account(&self, kind: Kind, id: u32, change: impl FnOnce(&mut Entry)) -> Result<()> {
        let quotas = self.writer()?.quotas.as_deref().ok_or(Errno::ENODEV)?;
        let missing = || crate::Error::from(Errno::ENODEV);
        let blocks = {
            let mut kinds = quotas.lock();
            let quota = kinds.iter_mut().find(|quota| quota.file.kind == kind);
            quota.ok_or_else(missing)?.file.blocks_to_put(self)?
        };
        self.with_handle(PUT_CREDITS, blocks, |handle| {
            let mut kinds = quotas.lock();
            let quota = kinds
                .iter_mut()
                .find(|quota| quota.file.kind == kind)
                .ok_or_else(missing)?;
            quota.open_account(handle, id)?;
            change(&mut quota.account(self, id)?.entry);
            quota.count(handle, id, Amount::default(), u64::from(now_seconds()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extern4_block::{FileDevice, FileOptions};
    use extern4_testkit::image::ImageSpec;

    use super::*;
    use crate::fs::options::OpenOptions;

    const SPEC: ImageSpec = ImageSpec::new(
        "quota",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "quota"],
    );

    #[test]
    fn counting_uses_up_the_reservation() {
        if !SPEC.can_run() {
            return;
        }
        let image = SPEC.build();
        let device = FileDevice::open_with(
            &image.path,
            &FileOptions {
                write: true,
                ..FileOptions::default()
            },
        );
        let fs =
            Ext4::open_for_writing(Arc::new(device.unwrap()), &OpenOptions::default()).unwrap();
        fs.set_quota(
            Kind::User,
            7,
            &Limits {
                space: (0, 10 << 10),
                inodes: (0, 0),
            },
        )
        .unwrap();
        let owners = Owners([7, 0, 0]);
        let rights = SpaceRights::default();
        fs.with_handle(8, 0, |handle| {
            let may = |blocks| {
                handle
                    .admit(owners, rights, || Ok(handle.amount(blocks, 0)))
                    .is_ok()
            };
            assert!(may(6) && !may(5));
            handle.count_for(owners, handle.amount(6, 0))?;
            assert!(may(4) && !may(1));
            handle.count_for(owners, Amount::default().minus(handle.amount(6, 0)))
        })
        .unwrap();
        let entry = fs.quota(Kind::User, 7).unwrap().unwrap();
        assert_eq!((entry.space.used, entry.space.hard), (0, 10 << 10));
        // The rest of a reservation that was not counted is free again.
        fs.with_handle(8, 0, |handle| {
            handle.admit(owners, rights, || Ok(handle.amount(10, 0)))
        })
        .unwrap();
        fs.close().unwrap();
    }
}
