//! Blocks in memory, and the handles that keep one there: [`Buffer`] and [`Pin`].
//!
//! The cache hands them out, and `ext4` and `jbd2` hold them. While one lives, its block is not
//! evicted. The bytes of a [`Buffer`] never change; a [`Pin`] reaches the newest contents. Both
//! have bits and a tag for their user, which live as long as the block is in memory.

use std::fmt;
use std::ops::{Deref, Range};

use extern4_sync::closable_refcount::ClosableRefcount;
use extern4_sync::primitive::{AtomicU32, AtomicU64, OnceLock};
use extern4_sync::rcu::Guard;
use extern4_sync::rcu_arc::{First, RcuArc, Release};
use extern4_sync::slab::Bytes;

use super::dirty_buffer::{DirtyBuffer, DirtyContents, Snapshot, SnapshotState, Unsealed};
use crate::{Error, Result};

/// One block in memory. Its link in the table and the first two fields fill a line: a hit reads no
/// other, unless it asks for the flags.
#[repr(C)]
pub(super) struct Block {
    /// The newest contents, once the block has been changed.
    pub(super) dirty: std::sync::OnceLock<Box<DirtyBuffer>>,
    /// The bytes read from the device, or the error. Empty while the block is being read. Only the
    /// cache sees it empty or failed.
    pub(super) loaded: OnceLock<Result<Bytes, Box<Error>>>,
    pub(super) flags: AtomicU32,
    pub(super) number: u64,
    pub(super) tag: AtomicU64,
    /// Made at the first use.
    sharers: std::sync::OnceLock<Box<ClosableRefcount>>,
}

impl Block {
    /// Returns a block that is about to be read.
    pub(super) fn empty(number: u64) -> Self {
        Self {
            number,
            flags: AtomicU32::new(0),
            loaded: OnceLock::new(),
            dirty: std::sync::OnceLock::new(),
            tag: AtomicU64::new(0),
            sharers: std::sync::OnceLock::new(),
        }
    }

    #[inline]
    pub(super) fn sharers(&self) -> &ClosableRefcount {
        self.sharers
            .get_or_init(|| Box::new(ClosableRefcount::new()))
    }

    /// Closes the count of sharers, if it has been used.
    pub(super) fn reset_sharers(&self) {
        if let Some(sharers) = self.sharers.get() {
            sharers.reset();
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.loaded.get(), Some(Ok(_)))
    }

    /// Returns the bytes that were read from the device.
    #[inline]
    fn loaded(&self) -> &[u8] {
        match self.loaded.get() {
            Some(Ok(loaded)) => loaded,
            _ => unreachable!("block {} was handed out without contents", self.number),
        }
    }

    /// Calls `change` with the newest contents.
    #[inline]
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut DirtyContents) -> R) -> R {
        self.dirty().change(change)
    }

    /// Calls `change` with bytes `range` of the newest contents.
    #[inline]
    pub(super) fn change_part<R>(
        &self,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> R {
        self.dirty().change_part(range, change)
    }

    #[inline]
    fn dirty(&self) -> &DirtyBuffer {
        self.dirty.get().unwrap_or_else(|| {
            // Computed before `get_or_init`, since models may switch threads in `loaded`.
            let loaded = self.loaded();
            self.dirty
                .get_or_init(|| Box::new(DirtyBuffer::new(loaded)))
        })
    }

    /// Returns a snapshot, if the block has been changed.
    #[inline]
    fn snapshot(&self) -> Option<SnapshotState> {
        Some(self.dirty.get()?.lend())
    }

    /// Returns the newest contents, if they can be read without the block's lock.
    #[inline]
    pub(super) fn published<'g>(&'g self, guard: &'g Guard) -> Option<&'g [u8]> {
        match self.dirty.get() {
            None => Some(self.loaded()),
            Some(dirty) => dirty.published(guard),
        }
    }

    /// Calls `look` with bytes `range` of the newest contents. `look` must not wait for anything.
    #[inline]
    pub(super) fn look_part<R>(
        &self,
        guard: &Guard,
        range: Range<usize>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> R {
        match self.dirty.get() {
            None => look(&self.loaded()[range]),
            Some(dirty) => dirty.look_part(guard, range, look),
        }
    }

    /// Calls `look` with the newest contents. `look` must not wait for anything.
    #[inline]
    pub(super) fn look<R>(&self, guard: &Guard, look: impl FnOnce(&[u8]) -> R) -> R {
        match self.dirty.get() {
            None => look(self.loaded()),
            Some(dirty) => dirty.look(guard, look),
        }
    }
}

impl Release for Block {
    type Link = First;
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("number", &self.number)
            .field("ready", &self.is_ready())
            .finish()
    }
}

/// A reference to a block in memory. It derefs to the contents that the block had when the
/// reference was made, or after the last change through it.
#[derive(Clone, Debug)]
pub struct Buffer {
    held: RcuArc<Block>,
    /// `None` if the block had not been changed since it was loaded.
    newest: Option<SnapshotState>,
}

impl Buffer {
    pub(super) fn new(held: RcuArc<Block>) -> Self {
        let newest = held.snapshot();
        Self { held, newest }
    }

    /// Returns the block's number.
    pub fn number(&self) -> u64 {
        self.held.number
    }

    /// Returns bits for the caller's use, which live as long as the block is in memory and are
    /// clear after a load. A caller that verified the block's checksum sets a bit here, and so
    /// verifies it once for each load.
    pub fn flags(&self) -> &AtomicU32 {
        &self.held.flags
    }

    /// Returns a count of the block's sharers for the caller's use, which lives as long as the
    /// block is in memory. The count is unknown after a load.
    /// [`BufferCache::fresh`](super::BufferCache::fresh) resets it to closed if it has been used
    /// before.
    pub fn sharers(&self) -> &ClosableRefcount {
        self.held.sharers()
    }

    pub(super) fn reset_sharers(&self) {
        self.held.reset_sharers();
    }

    /// Returns a number for the use of the caller that changes the block. It lives as long as the
    /// block is in memory, and is 0 after a load.
    pub fn tag(&self) -> &AtomicU64 {
        &self.held.tag
    }

    /// Changes the newest contents of the block; this then derefs to them. The caller has to write
    /// them to the device, and keeps a [`Pin`] until then. Changes of one block exclude each other.
    /// The caller's locks exclude anything else that must not run at the same time.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut [u8], &mut Unsealed) -> R) -> R {
        // Drops this buffer's own reference to the snapshot, which would force a copy.
        self.newest = None;
        let (result, newest) = self
            .held
            .change(|newest| (newest.edit(change), newest.lend()));
        self.newest = Some(newest);
        result
    }

    /// Returns what a change has put off until the block is written.
    pub fn unsealed(&self) -> Unsealed {
        self.newest
            .as_ref()
            .map_or_else(Unsealed::default, |newest| newest.unsealed)
    }

    /// Returns a pin, which keeps the block in memory.
    pub fn pin(&self) -> Pin {
        Pin(self.held.clone())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.newest {
            Some(newest) => &newest.snapshot,
            None => self.held.loaded(),
        }
    }
}

/// A reference that keeps a block in memory, without a snapshot of its contents.
#[derive(Clone, Debug)]
pub struct Pin(RcuArc<Block>);

impl Pin {
    /// Returns the block's number.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Returns the block's count of sharers, as [`Buffer::sharers`] does.
    pub fn sharers(&self) -> &ClosableRefcount {
        self.0.sharers()
    }

    /// Returns the block's tag, as [`Buffer::tag`] does.
    pub fn tag(&self) -> &AtomicU64 {
        &self.0.tag
    }

    /// Returns the newest contents. Later changes of the block do not affect the snapshot.
    pub fn snapshot(&self) -> Snapshot {
        self.0.snapshot().map_or_else(
            || Snapshot::new(self.0.loaded().into()),
            |newest| newest.snapshot,
        )
    }

    /// Calls `seal` to complete what has been put off until the block is written, if anything has.
    pub fn seal(&self, seal: impl FnOnce(&mut [u8], Unsealed)) {
        if let Some(dirty) = self.0.dirty.get() {
            dirty.seal(seal);
        }
    }

    /// Returns a buffer with the contents of the block now.
    pub fn buffer(&self) -> Buffer {
        Buffer::new(self.0.clone())
    }
}

/// A block that is in memory, as [`with_found`](super::BufferCache::with_found) passes it to its
/// callback.
#[derive(Clone, Copy, Debug)]
pub struct Found<'g> {
    pub(super) block: &'g Block,
    pub(super) guard: &'g Guard,
}

impl Found<'_> {
    /// Returns the block's flags, as [`Buffer::flags`] does.
    #[inline]
    pub fn flags(&self) -> &AtomicU32 {
        &self.block.flags
    }

    /// Returns the block's count of sharers, as [`Buffer::sharers`] does.
    #[inline]
    pub fn sharers(&self) -> &ClosableRefcount {
        self.block.sharers()
    }

    /// Returns the block's tag, as [`Buffer::tag`] does.
    #[inline]
    pub fn tag(&self) -> &AtomicU64 {
        &self.block.tag
    }

    /// Calls `look` with the newest contents. It must not wait for anything, nor change the block.
    #[inline]
    pub fn look<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        self.block.look(self.guard, look)
    }
}
