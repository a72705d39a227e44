//! Quotas: what users, groups and projects have on the volume, and what they may have.
//!
//! What counts for an inode is one inode and what `i_blocks` says, and one inode more for each value of an attribute that is in an
//! inode of its own. So there is one place where space is counted: whoever stores an inode counts what its record says now
//! against what it said before (`Change::settle`). The volume's own files and the inodes of values count for nobody.
//!
//! What ids have is in memory, as far as it has been needed, and is stored in the quota files when the transaction that
//! changed it closes, as descriptors of groups are (`writer`). An id that has no entry in a file gets one in a change of its own,
//! before the change that first counts something for it (`Ext4::open_accounts`): so counting takes no blocks.
//!
//! Limits are looked at before an operation changes anything (`Change::admit`); what is left for the operation is promised to it
//! until it has been counted, so that others do not take it meanwhile. As Linux does it, names and contents are asked for,
//! but not what maps them, and `CAP_SYS_RESOURCE` is not limited.
//!
//! # Locks
//! All accounts have one lock, which is taken within a handle, or without. Blocks are read and allocated under it; no handle is
//! opened under it.

pub(crate) mod file;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::PoisonError;

use extern4_block::Pin;
use extern4_disk::inode::{FileKind, Inode as Fields, InodeFlags, is_blank};
use extern4_disk::quota::{ENTRY_SIZE, SPACE_UNIT};
pub use extern4_disk::quota::{Entry, Kind, Resource};
use extern4_disk::superblock::Superblock;
use extern4_disk::{Corrupt, Place, Structure};
use extern4_jbd2::Closing;
use extern4_sync::primitive::{Mutex, MutexGuard};
use extern4_vfs::{Attr, Errno, FileFlags, NewNode, SetAttr, SpaceRights, StatFs};

use crate::alloc::balloc::{Demand, ReserveUse};
use crate::error::Result;
use crate::inode::InodeInfo;
use crate::mount::Ext4;
use crate::ops::create::now_seconds;
use crate::quota::file::{PUT_CREDITS, QuotaFile, Spot};
use crate::volume::handle::Change;
use crate::xattr::list::Plan;

/// Entries that one operation changes at most, each in a block of its own: those of four inodes, as a rename has.
pub(crate) const QUOTA_CREDITS: u32 = 4 * Kind::ALL.len() as u32;

/// The bytes of a sector, which `i_blocks` counts.
const SECTOR: u64 = 512;

/// Whom an inode is counted for, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owners([u32; Kind::ALL.len()]);

impl Owners {
    pub(crate) fn of(inode: &Fields) -> Self {
        Self([inode.stored_uid(), inode.stored_gid(), inode.project()])
    }

    /// Those of a new inode in directory `parent`.
    pub(crate) fn of_new(parent: &InodeInfo, new: &NewNode<'_>) -> Self {
        let inherits = parent.fields().flags().contains(InodeFlags::PROJINHERIT);
        Self([new.uid, new.gid, if inherits { parent.fields().project() } else { 0 }])
    }

    /// Those of an inode when its attributes have been set.
    pub(crate) fn after(self, set: &SetAttr) -> Self {
        let [uid, gid, project] = self.0;
        Self([set.uid.unwrap_or(uid), set.gid.unwrap_or(gid), set.project.unwrap_or(project)])
    }

    fn id(self, kind: Kind) -> u32 {
        self.0[kind as usize]
    }
}

/// How much is counted, or not any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) bytes: i64,
    pub(crate) inodes: i64,
}

impl Amount {
    fn of(fields: &Fields, inodes: i64) -> Self {
        // OK: a volume has fewer than 2^63 bytes.
        Self { bytes: (fields.sectors() * SECTOR).cast_signed(), inodes }
    }

    fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes - other.bytes, inodes: self.inodes - other.inodes }
    }

    /// As much of this as there is in `other`, nothing where this is less than nothing.
    fn within(self, other: Self) -> Self {
        Self { bytes: self.bytes.clamp(0, other.bytes), inodes: self.inodes.clamp(0, other.inodes) }
    }
}

/// The quotas of a volume that is open for writing.
pub(crate) struct Quotas(Mutex<Vec<Book>>);

/// One kind of quota.
struct Book {
    file: QuotaFile,
    accounts: HashMap<u32, Account>,
    /// The ids of accounts to be stored when the running transaction closes.
    unstored: Vec<u32>,
}

/// What an id has.
struct Account {
    entry: Entry,
    /// None, if it has no entry in the file yet.
    spot: Option<Spot>,
    /// What operations under way may still count.
    promised: Amount,
    /// The block of the entry, which is part of the running transaction.
    unstored: Option<Pin>,
}

impl Quotas {
    /// The quotas of `fs`; `None` if it has none.
    pub(crate) fn open(fs: &Ext4) -> Result<Option<Self>> {
        let files = Kind::ALL.into_iter().filter_map(|kind| QuotaFile::open(fs, kind).transpose());
        let book =
            |file: Result<_>| file.map(|file| Book { file, accounts: HashMap::new(), unstored: Vec::new() });
        let books = files.map(book).collect::<Result<Vec<_>>>()?;
        Ok((!books.is_empty()).then(|| Self(Mutex::new(books))))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Book>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores what a transaction has changed.
    pub(crate) fn store(&self, closing: &Closing<'_>) {
        for book in &mut *self.lock() {
            for id in std::mem::take(&mut book.unstored) {
                let Some(account) = book.accounts.get_mut(&id) else { continue };
                let (Some(pin), Some(spot)) = (account.unstored.take(), account.spot) else { continue };
                let place = Place::new(Structure::Quota).block(spot.block);
                closing.change(&mut pin.buffer(), |bytes| {
                    // OK: the entry was found or put there.
                    let _ = account.entry.encode(&mut bytes[spot.offset..spot.offset + ENTRY_SIZE], place);
                });
            }
        }
    }
}

impl Book {
    /// The account of an id, read from the file if it is not known.
    fn account(&mut self, fs: &Ext4, id: u32) -> Result<&mut Account> {
        if !self.accounts.contains_key(&id) {
            let (spot, entry) = match self.file.find(fs, id)? {
                Some((spot, entry)) => (Some(spot), entry),
                None => (None, Entry { id, ..Entry::default() }),
            };
            let account = Account { entry, spot, promised: Amount::default(), unstored: None };
            self.accounts.insert(id, account);
        }
        // OK: it has just been put there.
        self.accounts.get_mut(&id).ok_or_else(|| Errno::EIO.into())
    }

    /// Puts an entry for an id into the file, if there is none.
    fn open_account(&mut self, change: &Change<'_>, id: u32) -> Result<()> {
        let account = self.account(change.fs, id)?;
        if account.spot.is_none() {
            let entry = account.entry;
            let spot = change.put_entry(&mut self.file, &entry)?;
            self.account(change.fs, id)?.spot = Some(spot);
        }
        Ok(())
    }

    fn count(&mut self, change: &Change<'_>, id: u32, amount: Amount, now: u64) -> Result<()> {
        let (space_grace, inode_grace) = (self.file.header.space_grace, self.file.header.inode_grace);
        let account = self.account(change.fs, id)?;
        count(&mut account.entry.space, amount.bytes, space_grace, now);
        count(&mut account.entry.inodes, amount.inodes, inode_grace, now);
        self.note_changed(change, id)
    }

    /// Sees to it that an account is stored when the transaction closes. One that has no entry in the file, as it may be on a
    /// volume whose quotas were wrong before, is stored when it gets one.
    fn note_changed(&mut self, change: &Change<'_>, id: u32) -> Result<()> {
        let account = self.account(change.fs, id)?;
        if let (None, Some(spot)) = (&account.unstored, account.spot) {
            let mut buffer = change.fs.cache.read(spot.block)?;
            // Part of the transaction from now on, so that it is counted, and still there when it is changed.
            change.edit(&mut buffer, |_| ());
            account.unstored = Some(buffer.pin());
            self.unstored.push(id);
        }
        Ok(())
    }
}

impl Account {
    fn admits(&self, more: Amount, now: u64) -> bool {
        admits(&self.entry.space, self.promised.bytes, more.bytes, now)
            && admits(&self.entry.inodes, self.promised.inodes, more.inodes, now)
    }

    fn is_limited(&self) -> bool {
        self.entry.space.is_limited() || self.entry.inodes.is_limited()
    }

    fn promise(&mut self, amount: Amount) {
        self.promised.bytes += amount.bytes;
        self.promised.inodes += amount.inodes;
    }
}

/// Whether the limits leave room for `more` beside what has been promised.
fn admits(resource: &Resource, promised: i64, more: i64, now: u64) -> bool {
    if more <= 0 {
        return true;
    }
    let after = resource.used.saturating_add_signed(promised).saturating_add_signed(more);
    let is_late = resource.until != 0 && now >= resource.until;
    let (hard, soft) = (resource.hard, resource.soft);
    !(hard != 0 && after > hard || soft != 0 && after > soft && is_late)
}

/// How many units the nearer limit lets there be, and how many of them are left, if that is less than `most`.
fn room(resource: &Resource, unit: u64, most: u64) -> Option<(u64, u64)> {
    let limit = [resource.soft, resource.hard].into_iter().filter(|limit| *limit != 0).min()? / unit;
    (limit > 0 && limit < most).then(|| (limit, limit.saturating_sub(resource.used / unit)))
}

/// Counts, and lets the time of grace begin or end.
fn count(resource: &mut Resource, by: i64, grace: u32, now: u64) {
    resource.used = resource.used.saturating_add_signed(by);
    if resource.soft == 0 || resource.used <= resource.soft {
        resource.until = 0;
    } else if resource.until == 0 && by >= 0 {
        resource.until = now + u64::from(grace);
    }
}

/// What limits have left for an operation. What it does not count is free for others when this is dropped.
pub(crate) struct Promises<'q> {
    quotas: Option<&'q Quotas>,
    list: RefCell<Vec<Promise>>,
}

struct Promise {
    kind: Kind,
    id: u32,
    left: Amount,
}

impl<'q> Promises<'q> {
    pub(crate) fn none(quotas: Option<&'q Quotas>) -> Self {
        Self { quotas, list: RefCell::default() }
    }

    /// Takes from what has been promised what is counted now.
    fn keep(&self, kind: Kind, id: u32, account: &mut Account, mut counted: Amount) {
        for promise in self.list.borrow_mut().iter_mut().filter(|it| it.kind == kind && it.id == id) {
            let kept = counted.within(promise.left);
            promise.left = promise.left.minus(kept);
            counted = counted.minus(kept);
            account.promise(Amount::default().minus(kept));
        }
    }
}

impl Drop for Promises<'_> {
    fn drop(&mut self) {
        let list = self.list.get_mut();
        let (Some(quotas), false) = (self.quotas, list.is_empty()) else { return };
        let mut books = quotas.lock();
        for promise in list {
            let book = books.iter_mut().find(|book| book.file.kind == promise.kind);
            if let Some(account) = book.and_then(|book| book.accounts.get_mut(&promise.id)) {
                account.promise(Amount::default().minus(promise.left));
            }
        }
    }
}

/// What an inode's record says that counts.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    owners: Owners,
    fields: Fields,
}

impl Counted {
    /// What the record of inode `ino` says, which may have no checksum yet; `None` if nothing is in it.
    pub(crate) fn in_record(
        record: &[u8],
        ino: u32,
        sb: &Superblock,
        has_checksum: bool,
    ) -> Result<Option<Self>, Corrupt> {
        if is_blank(record) {
            return Ok(None);
        }
        let decode = if has_checksum { Fields::decode } else { Fields::decode_fields };
        let fields = decode(record, ino, sb, Place::new(Structure::Inode).ino(ino))?;
        // One that has been cleared may have a checksum again.
        Ok((fields.kind() != FileKind::None).then(|| Self { owners: Owners::of(&fields), fields }))
    }
}

impl Ext4 {
    /// Sees to it that the quota files have entries for `owners`, before a change counts something for them.
    ///
    /// # Errors
    /// `ENOSPC`; a corrupt quota file.
    pub(crate) fn open_accounts(&self, owners: Owners) -> Result<()> {
        let Some(quotas) = self.writer.get().and_then(|writer| writer.quotas.as_deref()) else {
            return Ok(());
        };
        for kind in Kind::ALL {
            let id = owners.id(kind);
            let blocks = {
                let mut books = quotas.lock();
                let Some(book) = books.iter_mut().find(|book| book.file.kind == kind) else { continue };
                if book.account(self, id)?.spot.is_some() {
                    continue;
                }
                book.file.blocks_to_put(self)?
            };
            // The blocks are the volume's own metadata: owners can change on a full volume.
            self.changing(PUT_CREDITS, Demand::new(blocks, ReserveUse::All), |change| {
                let mut books = quotas.lock();
                let book = books.iter_mut().find(|book| book.file.kind == kind);
                book.map_or(Ok(()), |book| book.open_account(change, id))
            })?;
        }
        Ok(())
    }
}

impl Change<'_> {
    /// Sees to it that `owners` may have `more`, which is asked only if there are limits. Before anything is changed.
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

    /// The same for blocks of an inode that is there.
    pub(crate) fn admit_blocks(
        &self,
        info: &InodeInfo,
        rights: SpaceRights,
        blocks: impl FnOnce() -> Result<u32>,
    ) -> Result<()> {
        self.admit(Owners::of(info.fields()), rights, || Ok(self.amount(blocks()?, 0)))
    }

    /// The same for attributes of an inode.
    pub(crate) fn admit_plan(&self, info: &InodeInfo, rights: SpaceRights, plan: &Plan) -> Result<()> {
        let (blocks, inodes) = plan.counts(self.fs, info);
        self.admit(Owners::of(info.fields()), rights, || Ok(self.amount(blocks, inodes)))
    }

    /// The same for an inode that is given to other owners.
    pub(crate) fn admit_transfer(&self, info: &InodeInfo, to: Owners, rights: SpaceRights) -> Result<()> {
        let from = Owners::of(info.fields());
        let all = || Ok(Amount::of(info.fields(), self.inodes_of(info)?));
        self.admit_some(rights, all, |kind| Some(to.id(kind)).filter(|&id| id != from.id(kind)))
    }

    /// So many blocks and inodes.
    pub(crate) fn amount(&self, blocks: u32, inodes: i64) -> Amount {
        Amount { bytes: i64::from(blocks) * i64::from(self.fs.superblock().block_size()), inodes }
    }

    fn admit_some(
        &self,
        rights: SpaceRights,
        more: impl FnOnce() -> Result<Amount>,
        id_of: impl Fn(Kind) -> Option<u32>,
    ) -> Result<()> {
        let Some(quotas) = &self.writer.quotas else { return Ok(()) };
        if rights.sys_resource || !self.fs.heeds_limits {
            return Ok(());
        }
        let mut limited = Vec::new();
        for book in &mut *quotas.lock() {
            let kind = book.file.kind;
            if let Some(id) = id_of(kind)
                && book.account(self.fs, id)?.is_limited()
            {
                limited.push((kind, id));
            }
        }
        if limited.is_empty() {
            return Ok(());
        }
        let (more, now) = (more()?, u64::from(now_seconds()));
        let mut books = quotas.lock();
        let mut books = books.iter_mut();
        for (kind, id) in limited {
            let Some(book) = books.find(|book| book.file.kind == kind) else { continue };
            let account = book.account(self.fs, id)?;
            if !account.admits(more, now) {
                return Err(Errno::EDQUOT.into());
            }
            account.promise(more);
            self.promises.list.borrow_mut().push(Promise { kind, id, left: more });
        }
        Ok(())
    }

    /// Counts an amount for owners.
    pub(crate) fn count_for(&self, owners: Owners, amount: Amount) -> Result<()> {
        self.count_each(|kind| [(owners.id(kind), amount), (0, Amount::default())])
    }

    /// Counts up to two amounts for ids of each kind.
    fn count_each(&self, amounts: impl Fn(Kind) -> [(u32, Amount); 2]) -> Result<()> {
        let Some(quotas) = &self.writer.quotas else { return Ok(()) };
        let now = u64::from(now_seconds());
        for book in &mut *quotas.lock() {
            let kind = book.file.kind;
            for (id, amount) in amounts(kind).into_iter().filter(|(_, amount)| *amount != Amount::default()) {
                book.count(self, id, amount, now)?;
                self.promises.keep(kind, id, book.account(self.fs, id)?, amount);
            }
        }
        Ok(())
    }

    /// Counts what the record of an inode says now against what it said `before`: nothing, if the inode is new.
    pub(crate) fn settle(&self, info: &InodeInfo, before: Option<Counted>) -> Result<()> {
        let fields = info.fields();
        if self.fs.is_hidden(info.ino()) || fields.flags().contains(InodeFlags::EA_INODE) {
            return Ok(());
        }
        let owners = Owners::of(fields);
        let Some(before) = before else { return self.count_for(owners, Amount::of(fields, 1)) };
        let change = Amount::of(fields, 0).minus(Amount::of(&before.fields, 0));
        if before.owners == owners {
            return if change == Amount::default() { Ok(()) } else { self.count_for(owners, change) };
        }
        let inodes = self.inodes_of(info)?;
        let (goes, comes) = (Amount::of(&before.fields, inodes), Amount::of(fields, inodes));
        self.count_each(|kind| match (before.owners.id(kind), owners.id(kind)) {
            (old, new) if old == new => [(new, change), (0, Amount::default())],
            (old, new) => [(old, Amount::default().minus(goes)), (new, comes)],
        })
    }

    /// Counts an inode that is freed not any more.
    pub(crate) fn settle_freed(&self, info: &InodeInfo) -> Result<()> {
        let all = Amount::of(info.fields(), 1);
        self.count_for(Owners::of(info.fields()), Amount::default().minus(all))
    }

    /// How many inodes count for an inode: itself, and those of its attributes' values.
    fn inodes_of(&self, info: &InodeInfo) -> Result<i64> {
        let attributes = self.fs.attributes(info)?;
        let values = attributes.ea_inodes().filter(|(ino, ..)| !self.fs.is_old_ea_inode(*ino, info)).count();
        // OK: an inode has room for fewer than 2^16.
        Ok(1 + values as i64)
    }
}

/// Limits of what an id may have; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, which are rounded up to whole KiB: for a while only, and ever.
    pub space: (u64, u64),
    /// Inodes: for a while only, and ever.
    pub inodes: (u64, u64),
}

impl Ext4 {
    /// What an id has and may have; `None` if it has never had anything, or the volume has no quota of that kind.
    ///
    /// # Errors
    /// A corrupt quota file, or a device that fails.
    pub fn quota(&self, kind: Kind, id: u32) -> Result<Option<Entry>> {
        if let Some(quotas) = self.writer.get().and_then(|writer| writer.quotas.as_deref()) {
            let mut books = quotas.lock();
            let Some(book) = books.iter_mut().find(|book| book.file.kind == kind) else { return Ok(None) };
            let account = book.account(self, id)?;
            return Ok(account.spot.map(|_| account.entry));
        }
        let Some(file) = QuotaFile::open(self, kind)? else { return Ok(None) };
        Ok(file.find(self, id)?.map(|(_, entry)| entry))
    }

    /// Totals and free space for who asks by an inode with these attributes. What is made in a directory that hands its project on has no
    /// more room than the project.
    pub(crate) fn stat_for(&self, attr: &Attr) -> Result<StatFs> {
        let mut stat = self.stat()?;
        if self.heeds_limits
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

    /// Sets the limits of an id.
    ///
    /// # Errors
    /// `EROFS` if the volume was opened for reading, `ENODEV` if it has no quota of that kind, `ENOSPC`, a corrupt quota
    /// file, or a device that fails.
    pub fn set_quota(&self, kind: Kind, id: u32, limits: &Limits) -> Result<()> {
        let quotas = self.writer()?.quotas.as_deref().ok_or(Errno::ENODEV)?;
        let missing = || crate::Error::from(Errno::ENODEV);
        let blocks = {
            let mut books = quotas.lock();
            let book = books.iter_mut().find(|book| book.file.kind == kind);
            book.ok_or_else(missing)?.file.blocks_to_put(self)?
        };
        self.changing(PUT_CREDITS, blocks, |change| {
            let mut books = quotas.lock();
            let book = books.iter_mut().find(|book| book.file.kind == kind).ok_or_else(missing)?;
            book.open_account(change, id)?;
            let entry = &mut book.account(self, id)?.entry;
            let whole = |bytes: u64| bytes.div_ceil(SPACE_UNIT).saturating_mul(SPACE_UNIT);
            (entry.space.soft, entry.space.hard) = (whole(limits.space.0), whole(limits.space.1));
            (entry.inodes.soft, entry.inodes.hard) = limits.inodes;
            // Whoever exceeds a soft limit that is new has the time of grace from now on.
            (entry.space.until, entry.inodes.until) = (0, 0);
            book.count(change, id, Amount::default(), u64::from(now_seconds()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extern4_block::{FileDevice, FileOptions};
    use extern4_testkit::image::ImageSpec;

    use super::*;
    use crate::mount::OpenOptions;

    const GRACE: u32 = 100;
    const SPEC: ImageSpec = ImageSpec::new("quota", 16 << 20, &["-t", "ext4", "-b", "1024", "-O", "quota"]);

    #[test]
    fn what_has_been_counted_is_promised_no_more() {
        if !SPEC.can_run() {
            return;
        }
        let image = SPEC.build();
        let device =
            FileDevice::open_with(&image.path, &FileOptions { write: true, ..FileOptions::default() });
        let fs = Ext4::open_for_writing(Arc::new(device.unwrap()), &OpenOptions::default()).unwrap();
        fs.set_quota(Kind::User, 7, &Limits { space: (0, 10 << 10), inodes: (0, 0) }).unwrap();
        let (owners, rights) = (Owners([7, 0, 0]), SpaceRights::default());
        fs.changing(8, 0, |change| {
            let may = |blocks| change.admit(owners, rights, || Ok(change.amount(blocks, 0))).is_ok();
            assert!(may(6) && !may(5));
            change.count_for(owners, change.amount(6, 0))?;
            assert!(may(4) && !may(1));
            change.count_for(owners, Amount::default().minus(change.amount(6, 0)))
        })
        .unwrap();
        let entry = fs.quota(Kind::User, 7).unwrap().unwrap();
        assert_eq!((entry.space.used, entry.space.hard), (0, 10 << 10));
        // And what was promised and not counted is free again.
        fs.changing(8, 0, |change| change.admit(owners, rights, || Ok(change.amount(10, 0)))).unwrap();
        fs.close().unwrap();
    }

    #[test]
    fn a_hard_limit_is_reached_and_not_exceeded() {
        let space = Resource { used: 90, hard: 100, soft: 0, until: 0 };
        assert!(admits(&space, 0, 10, 1) && !admits(&space, 0, 11, 1));
        // What has been promised is as good as taken.
        assert!(admits(&space, 4, 6, 1) && !admits(&space, 4, 7, 1));
        // Who has too much already is refused more, and nothing is not more.
        let over = Resource { used: 200, ..space };
        assert!(!admits(&over, 0, 1, 1) && admits(&over, 0, 0, 1));
        let none = Resource { hard: 0, ..over };
        assert!(admits(&none, i64::MAX, i64::MAX, 1));
    }

    #[test]
    fn a_soft_limit_is_exceeded_for_a_while() {
        let mut space = Resource { used: 90, hard: 200, soft: 100, until: 0 };
        count(&mut space, 10, GRACE, 1000);
        assert_eq!((space.used, space.until), (100, 0));
        count(&mut space, 1, GRACE, 1001);
        assert_eq!(space.until, 1101);
        // The time does not begin anew.
        count(&mut space, 1, GRACE, 1050);
        assert_eq!(space.until, 1101);
        assert!(admits(&space, 0, 1, 1100) && !admits(&space, 0, 1, 1101));
        assert!(!admits(&space, 0, 99, 1100));
        count(&mut space, -2, GRACE, 2000);
        assert_eq!((space.used, space.until), (100, 0));
        assert!(admits(&space, 0, 1, 2000));
    }
}
