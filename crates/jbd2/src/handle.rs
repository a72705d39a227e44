//! A handle: the right to change metadata as part of the running transaction.
//!
//! `Transactions::start` opens it, the operations of `ext4` change blocks through it, and dropping
//! it ends its part. All changes through one handle become durable together or not at all. The
//! caller changes no more blocks than it has credits for. If it does, the transaction may outgrow
//! the log, and its commit fails.

use std::cell::Cell;
use std::mem;
use std::ops::Range;

use extern4_block::{Buffer, Unsealed};
use extern4_disk::journal::Tid;
use extern4_sync::primitive::{AtomicU64, Ordering::Relaxed};

use crate::Error;
use crate::journal_state::JournalState;

/// The right to change metadata, as part of the running transaction.
///
/// While it is open, the transaction cannot be committed, so the thread that has it must not wait
/// for a commit. Another thread may drop it.
pub struct Handle<'t> {
    shared: &'t JournalState,
    /// The number of the running transaction.
    number: u64,
    /// Blocks that it may change.
    credits: Cell<u32>,
    /// Blocks that it was the first to change, less the blocks that it has taken out.
    entered: Cell<i64>,
    /// Whether the handle has added a block to the transaction, or revoked one.
    has_grown: Cell<bool>,
    freed: Cell<Vec<Range<u64>>>,
}

impl<'t> Handle<'t> {
    pub(crate) fn new(shared: &'t JournalState, number: u64, credits: u32) -> Self {
        let (entered, has_grown, freed) = Default::default();
        Self {
            shared,
            number,
            credits: Cell::new(credits),
            entered,
            has_grown,
            freed,
        }
    }

    /// Returns the transaction that this is part of.
    pub fn tid(&self) -> Tid {
        self.shared.running.tid()
    }

    /// Changes a block of metadata, and the work that is [put off](crate::Observer::seal) until the
    /// block is written.
    pub fn change<R>(
        &self,
        buffer: &mut Buffer,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> R {
        self.enter(buffer);
        buffer.change(change)
    }

    /// Changes a block of metadata by number, and reads it from the device if need be. This is
    /// cheaper than a [read](extern4_block::BufferCache::read) followed by
    /// [`change`](Self::change).
    ///
    /// # Errors
    /// [`Error::Device`] for a block that cannot be read.
    #[inline]
    pub fn edit<R>(
        &self,
        block: u64,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> Result<R, Error> {
        let cache = &self.shared.cache;
        // The transaction pins its blocks, and it cannot end while this handle is open.
        match cache.change_tagged(block, self.number, change) {
            Ok(result) => Ok(result),
            Err(change) => Ok(self.change(&mut cache.read(block)?, change)),
        }
    }

    /// Changes a block that is part of the transaction already; returns `None` for any other.
    #[inline]
    pub fn edit_again<R>(
        &self,
        block: u64,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> Option<R> {
        self.shared
            .cache
            .change_tagged(block, self.number, change)
            .ok()
    }

    /// Changes bytes `range` of a block, as [`edit`](Self::edit) does. The parts of the block, each
    /// of that length, are independent: a thread that changes another part need not wait. See
    /// [`change_part_tagged`](extern4_block::BufferCache::change_part_tagged).
    ///
    /// # Errors
    /// [`Error::Device`] for a block that cannot be read.
    #[inline]
    pub fn edit_part<R>(
        &self,
        block: u64,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> Result<R, Error> {
        let cache = &self.shared.cache;
        match cache.change_part_tagged(block, self.number, range.clone(), change) {
            Ok(result) => Ok(result),
            Err(change) => Ok(self.change(&mut cache.read(block)?, |bytes, unsealed| {
                change(&mut bytes[range], unsealed)
            })),
        }
    }

    /// Returns a block of metadata that this operation has just allocated, filled with zeroes.
    ///
    /// # Errors
    /// [`Error::Device`] for a block outside the volume.
    pub fn fresh(&self, block: u64) -> Result<Buffer, Error> {
        let buffer = self.shared.cache.fresh(block)?;
        self.enter(&buffer);
        Ok(buffer)
    }

    /// Returns whether the block with this [tag](Buffer::tag) is part of the transaction.
    #[inline]
    pub fn has(&self, tag: &AtomicU64) -> bool {
        // Relaxed: as in `RunningTransaction::change`.
        tag.load(Relaxed) == self.number
    }

    #[inline]
    fn enter(&self, buffer: &Buffer) {
        self.note_growth(self.shared.running.change(buffer));
    }

    /// Revokes blocks of metadata that have been freed: recovery never replays older copies of them
    /// in the log. The caller also passes them to [`free`](Self::free).
    pub fn revoke(&self, blocks: Range<u64>) {
        blocks.for_each(|block| self.note_growth(self.shared.running.revoke(block)));
    }

    /// Notes by how many changed blocks the transaction has grown, if it has changed at all.
    #[inline]
    fn note_growth(&self, growth: Option<i64>) {
        if let Some(growth) = growth {
            self.entered.set(self.entered.get() + growth);
            self.has_grown.set(true);
        }
    }

    /// Notes blocks that have been freed. The observer learns of them when the transaction is
    /// durable. Until then no operation may use them, since after a crash they would still belong
    /// to their former owner.
    pub fn free(&self, blocks: Range<u64>) {
        let mut freed = self.freed.take();
        freed.push(blocks);
        self.freed.set(freed);
    }

    /// Asks for credits to change `credits` blocks more. Never waits. If this returns false, the
    /// operation has to go on with another handle, or in an order that needs no more.
    pub fn extend(&self, credits: u32) -> bool {
        let extended = self.shared.extend(self.number, credits);
        if extended {
            self.credits.set(self.credits.get() + credits);
        }
        extended
    }
}

impl Drop for Handle<'_> {
    #[inline]
    fn drop(&mut self) {
        let rest = i64::from(self.credits.get()) - self.entered.get();
        let freed = mem::take(self.freed.get_mut());
        self.shared
            .stop(self.number, rest, self.has_grown.get(), freed);
    }
}
