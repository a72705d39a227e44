//! One operation that changes the volume.
//!
//! A [`Handle`] is open from an operation's first look at what it is going to change until all is
//! done. Everything that the operation does is part of one transaction. The handle sets aside the
//! blocks that the operation may need before it begins, so that it does not find the volume full
//! half way. A failure in the middle of a change is damage or a device, and then nothing more is
//! made durable ([`Ext4::with_handle`]).

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

use crate::alloc::block_allocator::{BlockReservation, Demand, ReserveUse};
use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::mount::writer::{Writer, note, store};
use crate::quota::accounts::{Counted, QUOTA_CREDITS, QuotaReservations};
use crate::time::timespec;
use crate::volume::deferred_checksum;

/// An operation under way.
pub(crate) struct Handle<'f> {
    pub(crate) fs: &'f Ext4,
    pub(crate) writer: &'f Writer,
    handle: JournalHandle<'f>,
    /// Blocks that were free and that no other operation may take.
    pub(crate) reserved: BlockReservation<'f>,
    /// The room that quotas have left for it.
    pub(crate) quota_reservations: QuotaReservations<'f>,
    /// Something has been changed.
    has_begun: Cell<bool>,
    /// An inode has been changed whose flags say that its changes are made durable at once.
    asks_sync: Cell<bool>,
    _ranked: Ranked,
}

impl Ext4 {
    /// Runs an operation that changes at most `credits` blocks of metadata and allocates at most
    /// the blocks of `demand`. `ENOSPC`, and it is not run, if there may be fewer.
    ///
    /// An answer such as `ENOENT` is for the caller: `operate` gives it before it has changed
    /// anything. Any other error, and an answer that comes too late, leaves a change half done, so
    /// the volume is given up. Nothing since the last commit becomes durable then, and nothing can
    /// be changed any more. Damage that was found before anything was changed is noted, and the
    /// volume is given up unless its [`ErrorPolicy`] is to go on.
    ///
    /// A change of an inode whose flags ask for that (`chattr +S`) is durable when this returns,
    /// and file data written before.
    pub(crate) fn with_handle<R>(
        &self,
        credits: u32,
        demand: impl Into<Demand>,
        operate: impl FnOnce(&Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        let demand = demand.into();
        self.with_exact_demand(credits, demand, || Ok(((), demand.blocks)), |handle, _| operate(handle))
    }

    /// Runs an operation that seldom needs all of `demand`, and has work to find out its exact
    /// needs. When there are fewer blocks than that, `exactly` gives the exact demand, and locks
    /// what it depends on; `operate` is handed that lock. Both run with the handle open.
    pub(crate) fn with_exact_demand<R, L>(
        &self,
        credits: u32,
        demand: Demand,
        exactly: impl Fn() -> Result<(L, u32)>,
        operate: impl FnOnce(&Handle<'_>, Option<L>) -> Result<R>,
    ) -> Result<R> {
        let writer = self.writer()?;
        // In a block of its own, at whose end the change ends in place: moving it takes longer than
        // beginning it.
        let (result, asks_sync) = {
            let (handle, locked) = match writer.allocator.reserve(demand) {
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
        let handle = writer.transactions.start(credits + quotas.map_or(0, |_| QUOTA_CREDITS))?;
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

    /// Opens a handle and sets aside the blocks that are really needed, after a commit if that
    /// makes room.
    fn begin_exactly<'f, L>(
        &'f self,
        writer: &'f Writer,
        credits: u32,
        reserve: ReserveUse,
        exactly: impl Fn() -> Result<(L, u32)>,
    ) -> Result<(Handle<'f>, Option<L>)> {
        let mut has_waited = false;
        loop {
            let mut handle = self.begin(writer, credits, writer.allocator.reserve(0.into())?)?;
            let (locked, blocks) = exactly()?;
            let demand = Demand { blocks, reserve };
            match writer.allocator.reserve(demand) {
                Ok(reserved) => {
                    handle.reserved = reserved;
                    return Ok((handle, Some(locked)));
                }
                Err(_) if !has_waited && writer.allocator.commit_helps(demand) => has_waited = true,
                Err(error) => return Err(error),
            }
            drop(locked);
            drop(handle);
            writer.transactions.sync()?;
        }
    }
}

impl<'f> Handle<'f> {
    /// Looks at how the operation has ended, before the change does. Returns the transaction to be
    /// made durable now, if any.
    fn conclude(&self, error: Option<&Error>) -> Option<Tid> {
        if let Some(error) = error {
            let (answers, has_begun) = (matches!(error, Error::Answer(_)), self.has_begun.get());
            debug_assert!(!answers || !has_begun, "answered half way: {error:?}");
            if !answers || has_begun {
                self.fail(error);
            }
        }
        self.asks_sync.get().then(|| self.tid())
    }

    /// Reacts to an error that is more than an answer.
    fn fail(&self, error: &Error) {
        // As Linux does with a policy that it does not know. A library stops no machine: "panic"
        // turns the volume read-only.
        let policy = self.fs.error_policy;
        let goes_on = matches!(policy, ErrorPolicy::Continue | ErrorPolicy::Unknown(_));
        if let Error::Corrupt(corrupt) = error
            && goes_on
            && !self.has_begun.get()
            && self.edit_superblock(|raw| note(raw, corrupt)).is_ok()
        {
            return;
        }
        // While the handle is open, so that no commit takes the half-done change.
        match error {
            Error::Corrupt(corrupt) => {
                self.writer.transactions.give_up(&corrupt.to_string());
                // After a shutdown nothing is written, nor where another host has taken the volume.
                if !matches!(self.writer.transactions.error(), Some(extern4_jbd2::Error::Aborted(_))) {
                    self.writer.note_error(self.fs, corrupt);
                }
            }
            _ => self.writer.transactions.abort(&error.to_string()),
        }
    }

    /// Changes a block of metadata.
    pub(crate) fn edit<R>(&self, buffer: &mut Buffer, edit: impl FnOnce(&mut [u8]) -> R) -> R {
        self.edit_unsealed(buffer, |bytes, _| edit(bytes))
    }

    /// Changes a block of metadata, and what is put off until it is written.
    pub(crate) fn edit_unsealed<R>(
        &self,
        buffer: &mut Buffer,
        edit: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> R {
        self.has_begun.set(true);
        self.handle.change(buffer, edit)
    }

    /// Changes a block by its number, and what is put off until it is written, without a buffer of
    /// it.
    pub(crate) fn edit_at<R>(
        &self,
        block: u64,
        edit: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> Result<R> {
        self.has_begun.set(true);
        Ok(self.handle.edit(block, edit)?)
    }

    /// Changes a block that is part of the transaction already. `edit` finds out the change, and
    /// returns nothing if there is none. `None` for any other block, too.
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

    /// Notes that something has been changed that is put off until the transaction is closed.
    pub(crate) fn note_begun(&self) {
        self.has_begun.set(true);
    }

    /// Whether the block with this tag is part of the transaction.
    #[inline]
    pub(crate) fn has(&self, tag: &AtomicU64) -> bool {
        self.handle.has(tag)
    }

    /// Returns the transaction that this is part of.
    pub(crate) fn tid(&self) -> Tid {
        self.handle.tid()
    }

    /// Notes that `blocks` are free once the transaction has become durable. If they held
    /// `metadata`, older copies of them in the journal count no more.
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

    /// Stores a new inode, of whose record nothing is left.
    pub(crate) fn store_whole(&self, info: &InodeInfo) -> Result<()> {
        self.encode(info, true, |record, fields| {
            record.fill(0);
            fields.encode_fields(record);
        })
    }

    /// Stores an inode after `edit` has changed the part of the record that is for extended
    /// attributes, which may be empty.
    pub(crate) fn store_with<R>(&self, info: &InodeInfo, edit: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.encode(info, false, |record, fields| {
            let from = record.len() - fields.xattr_area(record).len();
            let result = edit(&mut record[from..]);
            fields.encode_fields(record);
            result
        })
    }

    /// Changes an inode in use in place. `edit` changes no more than permission bits, number of
    /// links, the time of change, and the part of its record that is for extended attributes. The
    /// inode is stored, and shown to its users. That takes less than to copy all of it, change,
    /// [`store`](Self::store) and [`publish`](publish) the copy.
    pub(crate) fn touch(&self, inode: &vfs::Inode, edit: impl FnOnce(&mut Inode, &mut [u8])) -> Result<()> {
        let cached = inode.private::<CachedInode>();
        let at = cached.position().ok_or(Errno::EROFS)?;
        // OK: from such a number.
        let ino = inode.ino() as u32;
        let (mode, links, ctime) = self.edit_record(ino, at, |record, _| {
            if let Some(lazy) = self.fs.lazy_times.get() {
                // The fields have them.
                lazy.take(ino);
            }
            cached.touch(self.tid(), |info| {
                let next = self.writer.orphans.next_of(info);
                let fields = info.fields_mut();
                let from = record.len() - fields.xattr_area(record).len();
                edit(fields, &mut record[from..]);
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

    /// Notes whether changes of an inode, and of the names in a directory, are to be durable when
    /// the operation returns.
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
            // Asked for under the record's lock: see `orphan`.
            let next = self.writer.orphans.next_of(info);
            let orphan = next.map(|next| as_orphan(info.fields(), next));
            if counts && !is_new {
                before = Counted::in_record(record, info.ino(), self.fs.superblock(), has_checksum);
            }
            if let Some(lazy) = self.fs.lazy_times.get() {
                // The fields have them.
                lazy.take(info.ino());
            }
            encode(record, orphan.as_ref().unwrap_or(info.fields()))
        })?;
        if counts {
            self.settle(info, before?)?;
        }
        Ok(result)
    }

    /// Changes the record of inode `ino`, which is `at`; `edit` is told whether it has a checksum,
    /// and need not give it one.
    pub(crate) fn edit_record<R>(
        &self,
        ino: u32,
        at: Position,
        edit: impl FnOnce(&mut [u8], bool) -> R,
    ) -> Result<R> {
        let sb = self.fs.superblock();
        let index = deferred_checksum::index_of(at.offset, sb);
        self.has_begun.set(true);
        Ok(self.handle.edit_part(at.block, self.fs.record_range(at), |record, unsealed| {
            let result = edit(record, !deferred_checksum::lacks_checksum(*unsealed, index));
            if !deferred_checksum::defer_record(unsealed, ino, index) {
                inode::store_checksum(record, ino, sb);
            }
            result
        })?)
    }
}

/// Returns the fields that the record of an orphan holds: the next orphan in the place of the time
/// of deletion.
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

    /// Returns the superblock as it stands now.
    pub(crate) fn current_superblock(&self) -> Superblock {
        self.writer.superblock().clone()
    }
}
