//! [`Handle`]: one operation that changes the volume, inside one transaction.
//!
//! An operation opens its handle before it reads the state that it will change, and keeps it open
//! until all is done. All its changes are part of one transaction: after a crash all of them are on
//! the volume or none is. [`Ext4::with_handle`] reserves the blocks that the operation may need
//! before it runs, so it does not find the volume full half way. If an operation fails half way,
//! because of damage or the device, no further commit is made.
//!
//! # Damage
//! Damage that an operation meets is recorded in the superblock, and the [`ErrorPolicy`] says how
//! the volume reacts. With `continue` all goes on. With `remount-ro`, and with `panic`, which stops
//! no machine here, later changes get `EROFS`. Earlier changes still become durable, and reading
//! goes on. That is so for damage that an operation passes over (`alloc::set_aside`), and for an
//! operation that fails before it has changed anything.
//!
//! An operation that fails half way cannot be undone, whatever the policy: other operations have
//! changed the same blocks meanwhile, and there are no older copies of the rest. So it aborts the
//! journal. Operations look at the blocks that they will change before they change one. These cases
//! remain:
//! - A bitmap, a node of a map, a directory or an attribute block that was sound when it was looked
//!   at is damaged when it is read again.
//! - A part of a file's map that a long truncation or removal reaches after it has freed other
//!   parts.
//! - The last free inodes or blocks are in a group that is set aside meanwhile.
//! - A directory grows, and its `i_blocks` cannot count one more block.
//!
//! Every module that changes metadata gets a `Handle` from its caller in `ops`, `file`, `tune` or
//! `mount`, and changes blocks only through it.
//!
//! `balloc` and `ialloc` allocate and free blocks and inodes with it. `publish` makes a stored
//! inode the current one, and `times` stores times that were changed in memory only.

pub(crate) mod balloc;
pub(crate) mod ialloc;
pub(crate) mod publish;
pub(crate) mod times;

use std::cell::Cell;
use std::ops::Range;

use extern4_block::{Buffer, Unsealed};
use extern4_disk::Corrupt;
use extern4_disk::geometry::Position;
use extern4_disk::inode::{self, FileKind, Inode, InodeFlags};
use extern4_disk::journal::Tid;
use extern4_disk::superblock::{ErrorPolicy, RawSuperblock, Superblock};
use extern4_jbd2::Handle as JournalHandle;
use extern4_sync::lock_order::{Rank, Ranked};
use extern4_sync::primitive::AtomicU64;
use extern4_vfs::{self as vfs, Errno};

use crate::alloc::block_allocator::BlockReservation;
use crate::alloc::reserve::{Demand, ReserveUse};
use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::fs::quota_accounts::{Counted, QUOTA_CREDITS, QuotaReservations};
use crate::fs::writer::{Writer, note, store};
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::time::timespec;
use crate::volume::deferred_checksum;

/// A running operation and its reservations.
pub(crate) struct Handle<'f> {
    pub(crate) fs: &'f Ext4,
    pub(crate) writer: &'f Writer,
    handle: JournalHandle<'f>,
    /// Free blocks that no other operation can allocate.
    pub(crate) reserved: BlockReservation<'f>,
    /// The usage that is reserved for it within quota limits.
    pub(crate) quota_reservations: QuotaReservations<'f>,
    /// The operation has changed something.
    has_begun: Cell<bool>,
    /// The operation has changed an inode with the flag `SYNC` or `DIRSYNC`.
    asks_sync: Cell<bool>,
    _ranked: Ranked,
}

impl Ext4 {
    /// Runs an operation that changes at most `credits` blocks of metadata and allocates at most
    /// the blocks of `demand`. Returns `ENOSPC` without running it if fewer blocks may be free.
    ///
    /// `operate` returns an errno such as `ENOENT` ([`Error::Answer`]) only before it has changed
    /// anything, and the caller gets it. Damage that it finds before it has changed anything is
    /// recorded (see the module's documentation). Any other error, or a later one, may leave a
    /// change half done, so it aborts the journal: nothing since the last commit becomes durable,
    /// and nothing can be changed any more.
    ///
    /// If the operation changed an inode with the flag `SYNC` (`chattr +S`), the change is durable
    /// when this returns, and so is file data written before.
    pub(crate) fn with_handle<R>(
        &self,
        credits: u32,
        demand: impl Into<Demand>,
        operate: impl FnOnce(&Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        let demand = demand.into();
        self.with_exact_demand(
            credits,
            demand,
            || Ok(((), demand.blocks)),
            |handle, _| operate(handle),
        )
    }

    /// Runs an operation that seldom needs all of `demand` and whose exact demand is costly to
    /// compute. If fewer blocks than `demand` are free, `exactly` computes the exact number and
    /// returns it with a lock on the state that it depends on. `operate` gets that lock. Both run
    /// with the handle open.
    pub(crate) fn with_exact_demand<R, L>(
        &self,
        credits: u32,
        demand: Demand,
        exactly: impl Fn() -> Result<(L, u32)>,
        operate: impl FnOnce(&Handle<'_>, Option<L>) -> Result<R>,
    ) -> Result<R> {
        let writer = self.changer()?;
        // The handle lives and ends in this block without being moved: a move would take longer
        // than opening it.
        let (result, asks_sync) = {
            let (handle, locked) = match writer.allocator.reserve(self, demand) {
                Ok(reserved) => (self.begin(writer, credits, reserved)?, None),
                Err(_) => self.begin_exactly(writer, credits, demand.reserve, exactly)?,
            };
            let result = operate(&handle, locked);
            let asks_sync = handle.conclude(result.as_ref().err());
            (result, asks_sync)
        };
        let result = result?;
        if let Some(tid) = asks_sync {
            writer.transactions.commit(tid)?;
        }
        Ok(result)
    }

    /// Notes damage that was found before a handle was opened for the change, as
    /// [`with_handle`](Self::with_handle) notes damage found in one. Returns `checked`.
    pub(crate) fn note_damage<R>(&self, checked: Result<R>) -> Result<R> {
        match checked {
            Err(error) if error.damage().is_some() => self.with_handle(1, 0, |_| Err(error)),
            checked => checked,
        }
    }

    /// Opens a handle. Inlined, so that the handle is built in its final place.
    #[inline(always)]
    fn begin<'f>(
        &'f self,
        writer: &'f Writer,
        credits: u32,
        reserved: BlockReservation<'f>,
    ) -> Result<Handle<'f>> {
        let quotas = writer.quotas.as_deref();
        let ranked = Ranked::take(Rank::Handle);
        let handle = writer
            .transactions
            .start(credits + quotas.map_or(0, |_| QUOTA_CREDITS))?;
        let quota_reservations = QuotaReservations::none(quotas);
        let (has_begun, asks_sync) = Default::default();
        Ok(Handle {
            fs: self,
            writer,
            handle,
            reserved,
            quota_reservations,
            has_begun,
            asks_sync,
            _ranked: ranked,
        })
    }

    /// Opens a handle and reserves the exact number of blocks, after a commit if that releases
    /// enough.
    fn begin_exactly<'f, L>(
        &'f self,
        writer: &'f Writer,
        credits: u32,
        reserve: ReserveUse,
        exactly: impl Fn() -> Result<(L, u32)>,
    ) -> Result<(Handle<'f>, Option<L>)> {
        let mut has_waited = false;
        loop {
            let mut handle = self.begin(writer, credits, writer.allocator.reserved(0))?;
            let (locked, blocks) = exactly()?;
            let demand = Demand { blocks, reserve };
            match writer.allocator.reserve(self, demand) {
                Ok(reserved) => {
                    handle.reserved = reserved;
                    return Ok((handle, Some(locked)));
                }
                Err(_) if !has_waited && writer.allocator.commit_helps(demand) => has_waited = true,
                Err(error) => {
                    handle.conclude(None);
                    return Err(error);
                }
            }
            drop(locked);
            drop(handle);
            writer.transactions.sync()?;
        }
    }
}

impl<'f> Handle<'f> {
    /// Handles the operation's error while the handle is still open. Returns the transaction to
    /// commit now, if any.
    fn conclude(&self, error: Option<&Error>) -> Option<Tid> {
        if let Some(error) = error {
            let answers = matches!(error, Error::Answer(_));
            let has_begun = self.has_begun.get();
            debug_assert!(!answers || !has_begun, "answered half way: {error:?}");
            if !answers || has_begun {
                self.fail(error);
            }
        }
        if self.writer.allocator.has_faults() {
            self.record_faults();
        }
        self.asks_sync.get().then(|| self.tid())
    }

    /// Reacts to damage, a device error, or an errno that came too late.
    fn fail(&self, error: &Error) {
        let damage = error.damage();
        if let Some(corrupt) = &damage
            && !self.has_begun.get()
            && self.record(corrupt).is_ok()
        {
            return;
        }
        // This happens while the handle is open, so that no commit includes the half-done change.
        match damage {
            Some(corrupt) => {
                self.writer.transactions.abort_damaged(&error.to_string());
                // An aborted journal means a shutdown, or that another host has taken the volume.
                // Then nothing may be written.
                if !matches!(
                    self.writer.transactions.error(),
                    Some(extern4_jbd2::Error::Aborted(_))
                ) {
                    self.writer.note_error(self.fs, &corrupt);
                }
            }
            None => self.writer.transactions.abort(&error.to_string()),
        }
    }

    /// Records damage that leaves nothing half done, and ends changes if the policy says so.
    fn record(&self, corrupt: &Corrupt) -> Result<()> {
        self.edit_superblock(|raw| note(raw, corrupt))?;
        // Like Linux, an unknown policy counts as "continue". A library does not stop the machine,
        // so "panic" makes the volume read-only.
        match self.fs.error_policy {
            ErrorPolicy::Continue | ErrorPolicy::Unknown(_) => {}
            ErrorPolicy::RemountReadOnly | ErrorPolicy::Panic => {
                self.fs.warnings.report(format!(
                    "{corrupt}; nothing is changed any more (errors=remount-ro)"
                ));
                self.writer.end_changes();
            }
        }
        Ok(())
    }

    /// Records the faults of groups that have been set aside, and warns of them.
    #[cold]
    fn record_faults(&self) {
        for fault in self.writer.allocator.take_faults() {
            self.fs.warnings.report(format!(
                "{fault}; the group is set aside until e2fsck mends it"
            ));
            // An error means that the device fails, and that ends all changes.
            if let Err(error) = self.record(&fault) {
                self.writer.transactions.abort(&error.to_string());
            }
        }
    }

    /// Changes a block of metadata.
    pub(crate) fn edit<R>(&self, buffer: &mut Buffer, edit: impl FnOnce(&mut [u8]) -> R) -> R {
        self.edit_unsealed(buffer, |bytes, _| edit(bytes))
    }

    /// Changes a block of metadata and its deferred checksums.
    pub(crate) fn edit_unsealed<R>(
        &self,
        buffer: &mut Buffer,
        edit: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> R {
        self.has_begun.set(true);
        self.handle.change(buffer, edit)
    }

    /// Changes a block and its deferred checksums by the block's number, without getting a buffer.
    pub(crate) fn edit_at<R>(
        &self,
        block: u64,
        edit: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> Result<R> {
        self.has_begun.set(true);
        Ok(self.handle.edit(block, edit)?)
    }

    /// Changes a block that is part of the transaction already; returns `None` for any other block.
    /// `edit` returns `None` if it changes nothing.
    pub(crate) fn edit_again<R>(
        &self,
        block: u64,
        edit: impl FnOnce(&mut [u8], &mut Unsealed) -> Result<Option<R>, Corrupt>,
    ) -> Result<Option<R>> {
        let result = self.handle.edit_again(block, edit).transpose()?.flatten();
        if result.is_some() {
            self.has_begun.set(true);
        }
        Ok(result)
    }

    /// Returns a block of metadata that has just been allocated, filled with zeroes.
    pub(crate) fn fresh(&self, block: u64) -> Result<Buffer> {
        self.has_begun.set(true);
        Ok(self.handle.fresh(block)?)
    }

    /// Notes a change that is only stored when the transaction closes.
    pub(crate) fn note_begun(&self) {
        self.has_begun.set(true);
    }

    /// Whether the block with this tag is part of the transaction.
    #[inline]
    pub(crate) fn has(&self, tag: &AtomicU64) -> bool {
        self.handle.has(tag)
    }

    /// Returns the id of the transaction that the operation is part of.
    pub(crate) fn tid(&self) -> Tid {
        self.handle.tid()
    }

    /// Notes that `blocks` are free once the transaction is durable. If they held `metadata`,
    /// revokes older copies of them in the journal.
    pub(crate) fn note_freed(&self, blocks: Range<u64>, metadata: bool) {
        if metadata {
            self.handle.revoke(blocks.clone());
        }
        self.handle.free(blocks);
    }

    /// Writes the fields of an inode to its record.
    pub(crate) fn store(&self, info: &InodeInfo) -> Result<()> {
        self.store_with(info, |_| ())
    }

    /// Stores a new inode, whose whole record is overwritten.
    pub(crate) fn store_whole(&self, info: &InodeInfo) -> Result<()> {
        self.encode(info, true, |record, fields| {
            record.fill(0);
            fields.encode_fields(record);
        })
    }

    /// Stores an inode. Before that, `edit` changes the record's area for extended attributes,
    /// which may be empty.
    pub(crate) fn store_with<R>(
        &self,
        info: &InodeInfo,
        edit: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        self.encode(info, false, |record, fields| {
            fields.make_room(record);
            let result = edit(&mut record[fields.xattr_range()]);
            fields.encode_fields(record);
            result
        })
    }

    /// Changes an inode in use in place, stores it and publishes the new fields. `edit` may change
    /// only the permission bits, the number of links, the time of change and the record's area for
    /// extended attributes. This is cheaper than to copy the inode, change and
    /// [`store`](Self::store) the copy, and [`publish`](publish) it.
    pub(crate) fn touch(
        &self,
        inode: &vfs::Inode,
        edit: impl FnOnce(&mut Inode, &mut [u8]),
    ) -> Result<()> {
        let cached = inode.private::<CachedInode>();
        let at = cached.position().ok_or(Errno::EROFS)?;
        // OK: inode numbers of this file system have 32 bits.
        let ino = inode.ino() as u32;
        let (mode, links, ctime) = self.edit_record(ino, at, |record, _| {
            if let Some(lazy) = self.fs.lazy_times.get() {
                // The fields have the new times.
                lazy.take(ino);
            }
            cached.touch(self.tid(), |info| {
                let next = self.writer.orphans.next_of(info);
                let fields = info.fields_mut();
                fields.make_room(record);
                let range = fields.xattr_range();
                edit(fields, &mut record[range]);
                self.note_sync(fields);
                match next {
                    Some(next) => as_orphan(fields, next).encode_fields(record),
                    None => fields.encode_fields(record),
                }
                (fields.permissions(), fields.links(), fields.ctime())
            })
        })?;
        inode.touch(mode, u32::from(links), timespec(ctime));
        Ok(())
    }

    /// Notes if the flags of an inode demand that its changes, or changes of a directory's names,
    /// are durable when the operation returns.
    pub(crate) fn note_sync(&self, inode: &Inode) {
        let flags = match inode.kind() {
            FileKind::Directory => InodeFlags::SYNC.union(InodeFlags::DIRSYNC),
            _ => InodeFlags::SYNC,
        };
        if inode.flags().intersects(flags) {
            self.asks_sync.set(true);
        }
    }

    fn encode<R>(
        &self,
        info: &InodeInfo,
        is_new: bool,
        encode: impl FnOnce(&mut [u8], &Inode) -> R,
    ) -> Result<R> {
        let at = info.position().ok_or(Errno::EROFS)?;
        self.note_sync(info.fields());
        let counts = self.writer.quotas.is_some();
        let mut before = Ok(None);
        let result = self.edit_record(info.ino(), at, |record, has_checksum| {
            // Read under the record's lock: see rule 3 of `alloc::orphan_list`.
            let next = self.writer.orphans.next_of(info);
            let orphan = next.map(|next| as_orphan(info.fields(), next));
            if counts && !is_new {
                before = Counted::in_record(record, info.ino(), self.fs.superblock(), has_checksum);
            }
            if let Some(lazy) = self.fs.lazy_times.get() {
                // The fields have the new times.
                lazy.take(info.ino());
            }
            encode(record, orphan.as_ref().unwrap_or(info.fields()))
        })?;
        if counts {
            self.count_change(info, before?)?;
        }
        Ok(result)
    }

    /// Changes the record of inode `ino`, which is at `at`. The second argument of `edit` says
    /// whether the record's checksum is valid. `edit` need not compute it.
    pub(crate) fn edit_record<R>(
        &self,
        ino: u32,
        at: Position,
        edit: impl FnOnce(&mut [u8], bool) -> R,
    ) -> Result<R> {
        let sb = self.fs.superblock();
        let index = deferred_checksum::index_of(at.offset, sb);
        self.has_begun.set(true);
        Ok(self
            .handle
            .edit_part(at.block, self.fs.record_range(at), |record, unsealed| {
                let result = edit(record, !deferred_checksum::lacks_checksum(*unsealed, index));
                if !deferred_checksum::defer_record(unsealed, ino, index) {
                    inode::store_checksum(record, ino, sb);
                }
                result
            })?)
    }
}

/// Returns the fields that the record of an orphan holds: the next orphan replaces the time of
/// deletion.
fn as_orphan(fields: &Inode, next: u32) -> Inode {
    let mut fields = *fields;
    fields.set_dtime(next);
    fields
}

impl Handle<'_> {
    /// Changes the superblock.
    pub(crate) fn edit_superblock(&self, edit: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
        let mut sb = self.writer.superblock();
        edit(sb.raw_mut());
        let block = sb.geometry().superblock_block();
        self.edit_at(block, |block, _| store(&sb, block))
    }

    /// Returns the current superblock.
    pub(crate) fn current_superblock(&self) -> Superblock {
        self.writer.superblock().clone()
    }
}
