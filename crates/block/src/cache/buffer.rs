//! Blocks in memory, and the two ways to keep one there.

use std::fmt;
use std::ops::{Deref, Range};

use extern4_sync::closable_refcount::ClosableRefcount;
use extern4_sync::primitive::{AtomicU32, AtomicU64, OnceLock};
use extern4_sync::rcu::Guard;
use extern4_sync::rcu_arc::{RcuArc, Release};
use extern4_sync::slab::Bytes;

use super::changed::{Changed, Glance, Image, Newest, Unsealed};
use crate::{Error, Result};

/// One block in memory.
#[repr(C)]
pub(super) struct Block {
    pub(super) number: u64,
    pub(super) flags: AtomicU32,
    /// Empty while the block is being read. Nobody but the cache sees it empty or failed.
    pub(super) image: OnceLock<Result<Bytes, Box<Error>>>,
    /// What it has been changed to since.
    pub(super) changed: std::sync::OnceLock<Box<Changed>>,
    pub(super) tag: AtomicU64,
    /// Made when somebody asks for it.
    sharers: std::sync::OnceLock<Box<ClosableRefcount>>,
}

impl Block {
    /// One that is about to be read.
    pub(super) fn empty(number: u64) -> Self {
        Self {
            number,
            flags: AtomicU32::new(0),
            image: OnceLock::new(),
            changed: std::sync::OnceLock::new(),
            tag: AtomicU64::new(0),
            sharers: std::sync::OnceLock::new(),
        }
    }

    #[inline]
    pub(super) fn sharers(&self) -> &ClosableRefcount {
        self.sharers.get_or_init(|| Box::new(ClosableRefcount::new()))
    }

    /// Closes it to those who share it, if anybody may.
    pub(super) fn reset_sharers(&self) {
        if let Some(sharers) = self.sharers.get() {
            sharers.reset();
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.image.get(), Some(Ok(_)))
    }

    /// What was read from the device.
    #[inline]
    fn loaded(&self) -> &[u8] {
        match self.image.get() {
            Some(Ok(image)) => image,
            _ => unreachable!("block {} was handed out without contents", self.number),
        }
    }

    /// Hands its newest contents to `change`.
    #[inline]
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Newest) -> R) -> R {
        self.to_change().change(change)
    }

    /// Hands these bytes of its newest contents to `change`.
    #[inline]
    pub(super) fn change_part<R>(
        &self,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> R {
        self.to_change().change_part(range, change)
    }

    #[inline]
    fn to_change(&self) -> &Changed {
        self.changed.get().unwrap_or_else(|| {
            // Looked at before, since models may switch threads where it is.
            let loaded = self.loaded();
            self.changed.get_or_init(|| Box::new(Changed::new(loaded)))
        })
    }

    /// What it has been changed to, if it has.
    #[inline]
    fn changed(&self) -> Option<Glance> {
        Some(self.changed.get()?.lend())
    }

    /// The newest contents, where nothing is waited for to look at them.
    #[inline]
    pub(super) fn shown<'g>(&'g self, guard: &'g Guard) -> Option<&'g [u8]> {
        match self.changed.get() {
            None => Some(self.loaded()),
            Some(changed) => changed.shown(guard),
        }
    }

    /// Hands these bytes of the newest contents to `look`, which is not to wait for anything.
    #[inline]
    pub(super) fn look_part<R>(
        &self,
        guard: &Guard,
        range: Range<usize>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> R {
        match self.changed.get() {
            None => look(&self.loaded()[range]),
            Some(changed) => changed.look_part(guard, range, look),
        }
    }

    /// Hands the newest contents to `look`, which is not to wait for anything.
    #[inline]
    pub(super) fn look<R>(&self, guard: &Guard, look: impl FnOnce(&[u8]) -> R) -> R {
        match self.changed.get() {
            None => look(self.loaded()),
            Some(changed) => changed.look(guard, look),
        }
    }
}

impl Release for Block {}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("number", &self.number).field("ready", &self.is_ready()).finish()
    }
}

/// A block held in memory for as long as this lives, as it stood when it was read or last changed through this. Derefs to its
/// bytes.
#[derive(Clone, Debug)]
pub struct Buffer {
    held: RcuArc<Block>,
    /// None if the block had not been changed since it was loaded.
    newest: Option<Glance>,
}

impl Buffer {
    pub(super) fn new(held: RcuArc<Block>) -> Self {
        let newest = held.changed();
        Self { held, newest }
    }

    /// The block's number.
    pub fn number(&self) -> u64 {
        self.held.number
    }

    /// Bits that belong to the caller and live as long as the block is in memory: all clear after a load. A user that
    /// verified the block's checksum notes it here, so that it does so once a load.
    pub fn flags(&self) -> &AtomicU32 {
        &self.held.flags
    }

    /// Who shares the block: for the caller, as long as the block is in memory. Not known after a load. When the
    /// block is made anew it is renewed, so that it is closed, if anybody has asked for it before.
    pub fn sharers(&self) -> &ClosableRefcount {
        self.held.sharers()
    }

    pub(super) fn reset_sharers(&self) {
        self.held.reset_sharers();
    }

    /// A number that belongs to who changes the block, and lives as long as the block is in memory: 0 after a load.
    pub fn tag(&self) -> &AtomicU64 {
        &self.held.tag
    }

    /// Changes the newest contents of the block, which are then what this derefs to. The caller sees to it that they reach the
    /// device, and keeps a [`Pin`] until then. Changes of one block exclude each other; what else they may not meet is for the
    /// caller's locks.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut [u8], &mut Unsealed) -> R) -> R {
        // Not to be in one's own way.
        self.newest = None;
        let (result, newest) = self.held.change(|newest| (newest.edit(change), newest.lend()));
        self.newest = Some(newest);
        result
    }

    /// What is put off until the block is written.
    pub fn unsealed(&self) -> Unsealed {
        self.newest.as_ref().map_or_else(Unsealed::default, |newest| newest.unsealed)
    }

    /// Keeps the block in memory.
    pub fn pin(&self) -> Pin {
        Pin(self.held.clone())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.newest {
            Some(newest) => &newest.image,
            None => self.held.loaded(),
        }
    }
}

/// A block that stays in memory as long as this lives, whatever it is changed to.
#[derive(Clone, Debug)]
pub struct Pin(RcuArc<Block>);

impl Pin {
    /// The block's number.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// As [`Buffer::sharers`].
    pub fn sharers(&self) -> &ClosableRefcount {
        self.0.sharers()
    }

    /// As [`Buffer::tag`].
    pub fn tag(&self) -> &AtomicU64 {
        &self.0.tag
    }

    /// The newest contents. Who changes the block later leaves this as it is.
    pub fn snapshot(&self) -> Image {
        self.0.changed().map_or_else(|| Image::new(self.0.loaded().into()), |newest| newest.image)
    }

    /// Calls `seal` to do what has been put off until the block is written, if anything has.
    pub fn seal(&self, seal: impl FnOnce(&mut [u8], Unsealed)) {
        if let Some(changed) = self.0.changed.get() {
            changed.seal(seal);
        }
    }

    /// The block as it stands now.
    pub fn buffer(&self) -> Buffer {
        Buffer::new(self.0.clone())
    }
}

/// A block that is in memory, as [`with_found`](super::BufferCache::with_found) shows it.
#[derive(Clone, Copy, Debug)]
pub struct Found<'g> {
    pub(super) block: &'g Block,
    pub(super) guard: &'g Guard,
}

impl Found<'_> {
    /// As [`Buffer::flags`].
    #[inline]
    pub fn flags(&self) -> &AtomicU32 {
        &self.block.flags
    }

    /// As [`Buffer::sharers`].
    #[inline]
    pub fn sharers(&self) -> &ClosableRefcount {
        self.block.sharers()
    }

    /// As [`Buffer::tag`].
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
