//! The contents of a changed block, under their own lock.
//!
//! `Block` (`buffer`) makes one at the first change after the block was read, and it stays until
//! the block is evicted. Buffers and pins hold snapshots of it, which later changes leave as they
//! are. Threads that read it often find a published snapshot, and need no lock. Work that changes
//! put off, such as a checksum, is done before a snapshot of the block is written.

use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock, PoisonError};

use extern4_sync::primitive::{AtomicBool, Latch, LatchGuard, Ordering, capacity};
use extern4_sync::rcu::Guard;
use extern4_sync::rcu_snapshot::RcuSnapshot;
use extern4_sync::slab::Bytes;
use extern4_sync::thread_slots::thread_number;

use super::split_buffer::{BufferPart, SplitBuffer};

/// The contents of a block at one moment, which never change.
pub type Snapshot = Arc<Bytes>;

/// Work that changes of a block put off until it is written, such as a checksum over all of it. All
/// zeroes if there is none. The caller that changes the block and the one that writes it define the
/// numbers. The writer [seals](super::Pin::seal) the block first.
pub type Unsealed = [u32; 4];

/// The number of times that threads must alternate in changing parts of a block before its parts
/// are taken out; few in models.
const TURNS: u32 = capacity(4, 1);

/// The contents of a block that has been changed since it was loaded.
#[derive(Debug)]
pub(super) struct DirtyBuffer {
    newest: Latch<DirtyContents>,
    /// Whether threads change parts of it in alternation, and some parts may be out. A thread
    /// changes it under the lock. Without the lock it is only a hint where to look first, so
    /// Relaxed is enough.
    is_split: AtomicBool,
    parts: OnceLock<Box<SplitBuffer>>,
    /// A published copy of `newest`, or none.
    published: RcuSnapshot<Snapshot>,
}

/// The newest contents of a changed block.
#[derive(Debug)]
pub(super) struct DirtyContents {
    bytes: CowBytes,
    unsealed: Unsealed,
    /// The thread that last changed a part.
    last: usize,
    /// Changes of parts by another thread than the one before, since the block was last sealed or
    /// its parts put back.
    turns: u32,
}

/// The bytes of a block that has been changed: a change copies them if a snapshot of them exists.
#[derive(Debug)]
enum CowBytes {
    /// Bytes that no other thread has seen since the last change. No reference count is needed to
    /// know this.
    Owned(Bytes),
    /// Bytes that other threads may be looking at.
    Shared(Snapshot),
}

/// A snapshot of [`DirtyContents`], with the work put off by then.
#[derive(Clone, Debug)]
pub(super) struct SnapshotState {
    pub(super) snapshot: Snapshot,
    pub(super) unsealed: Unsealed,
}

impl DirtyBuffer {
    pub(super) fn new(loaded: &[u8]) -> Self {
        let newest = DirtyContents {
            bytes: CowBytes::Owned(loaded.into()),
            unsealed: Unsealed::default(),
            last: 0,
            turns: 0,
        };
        Self {
            newest: Latch::new(newest),
            is_split: AtomicBool::new(false),
            parts: OnceLock::new(),
            published: RcuSnapshot::empty(),
        }
    }

    #[inline]
    fn lock_unjoined(&self) -> LatchGuard<'_, DirtyContents> {
        // A poisoned lock is used as it is. Only a thread that changes the contents looks at them
        // under the lock. After a panic, the caller's structures have to deal with a half-done
        // change.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the whole block, after it has put back the parts that were out.
    #[inline]
    fn lock(&self) -> LatchGuard<'_, DirtyContents> {
        let mut newest = self.lock_unjoined();
        if self.is_split() {
            self.join(&mut newest);
        }
        newest
    }

    #[inline]
    fn is_split(&self) -> bool {
        self.is_split.load(Ordering::Relaxed)
    }

    #[cold]
    fn join(&self, newest: &mut DirtyContents) {
        newest.turns = 0;
        self.is_split.store(false, Ordering::Relaxed);
        if let Some(parts) = self.parts.get() {
            parts.put_back(newest);
        }
    }

    /// Returns the part that is bytes `range`, locked, if parts may be out.
    #[inline]
    fn part(&self, range: &Range<usize>) -> Option<LatchGuard<'_, BufferPart>> {
        if self.is_split() {
            self.parts.get()?.lock(range)
        } else {
            None
        }
    }

    /// Calls `change` with bytes `range` of a block whose parts, of that length, are independent of
    /// each other.
    #[inline]
    pub(super) fn change_part<R>(
        &self,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> R {
        if let Some(mut part) = self.part(&range)
            && let Some((bytes, unsealed)) = part.out(range.len())
        {
            return change(bytes, unsealed);
        }
        self.change_part_first(range, change)
    }

    /// Changes the part in its block, or takes it out first. The caller has seen that the part is
    /// not out.
    fn change_part_first<R>(
        &self,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> R {
        let mut newest = self.lock_unjoined();
        self.published.invalidate();
        if !self.is_split() && newest.is_another_turn() {
            self.parts
                .get_or_init(|| Box::new(SplitBuffer::new(newest.bytes.len(), range.len())));
            self.is_split.store(true, Ordering::Relaxed);
        }
        if self.is_split() {
            if let Some(mut part) = self.part(&range) {
                if part.out(range.len()).is_none() {
                    part.take_out(&newest.bytes[range.clone()], newest.unsealed);
                }
                drop(newest);
                let (bytes, unsealed) = part.out(range.len()).expect("it is out by now");
                return change(bytes, unsealed);
            }
            // The range has another length than the parts.
            self.join(&mut newest);
        }
        newest.edit(|bytes, unsealed| change(&mut bytes[range], unsealed))
    }

    /// Calls `look` with bytes `range` of the newest contents.
    #[inline]
    pub(super) fn look_part<R>(
        &self,
        guard: &Guard,
        range: Range<usize>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> R {
        if let Some(mut part) = self.part(&range)
            && let Some((bytes, _)) = part.out(range.len())
        {
            return look(bytes);
        }
        let newest = self.lock_unjoined();
        if let Some(mut part) = self.part(&range) {
            // Another thread may have taken the part out meanwhile.
            return look(
                part.out(range.len())
                    .map_or(&newest.bytes[range], |(bytes, _)| bytes),
            );
        }
        drop(newest);
        self.look(guard, |bytes| look(&bytes[range]))
    }

    /// Calls `change` with the newest contents, after it has withdrawn their published copy.
    #[inline]
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut DirtyContents) -> R) -> R {
        let mut newest = self.lock();
        self.published.invalidate();
        change(&mut newest)
    }

    /// Returns a snapshot of the newest contents.
    #[inline]
    pub(super) fn lend(&self) -> SnapshotState {
        self.lock().lend()
    }

    /// Returns the published copy of the contents, if there is one.
    #[inline]
    pub(super) fn published<'g>(&'g self, guard: &'g Guard) -> Option<&'g [u8]> {
        Some(self.published.get(guard)?)
    }

    /// Calls `seal` with the newest contents and the work put off, if there is any.
    pub(super) fn seal(&self, seal: impl FnOnce(&mut [u8], Unsealed)) {
        let mut newest = self.lock();
        newest.turns = 0;
        if newest.unsealed != Unsealed::default() {
            self.published.invalidate();
            newest.edit(|bytes, unsealed| seal(bytes, std::mem::take(unsealed)));
        }
    }

    /// Calls `look` with the newest contents: without the lock if a copy is published.
    #[inline]
    pub(super) fn look<R>(&self, guard: &Guard, look: impl FnOnce(&[u8]) -> R) -> R {
        if let Some(snapshot) = self.published.get(guard) {
            return look(snapshot);
        }
        let mut newest = self.lock();
        self.published.count_read(|| newest.bytes.lend());
        look(&newest.bytes)
    }
}

impl DirtyContents {
    /// Notes that this thread changes a part. Returns whether threads have alternated in that often
    /// enough.
    fn is_another_turn(&mut self) -> bool {
        let thread = thread_number();
        self.turns += u32::from(std::mem::replace(&mut self.last, thread) != thread);
        self.turns >= TURNS
    }

    /// Calls `change` with the bytes if no other thread looks at them, and with a copy of them
    /// otherwise. The copy then replaces them.
    #[inline]
    pub(super) fn edit<R>(&mut self, change: impl FnOnce(&mut [u8], &mut Unsealed) -> R) -> R {
        let bytes = match &mut self.bytes {
            CowBytes::Owned(bytes) => bytes,
            shared @ CowBytes::Shared(_) => shared.take_back(),
        };
        change(bytes, &mut self.unsealed)
    }

    /// Returns a snapshot of the contents now.
    pub(super) fn lend(&mut self) -> SnapshotState {
        SnapshotState {
            snapshot: self.bytes.lend(),
            unsealed: self.unsealed,
        }
    }
}

impl CowBytes {
    fn lend(&mut self) -> Snapshot {
        let snapshot = match self {
            Self::Shared(snapshot) => return Snapshot::clone(snapshot),
            Self::Owned(bytes) => Snapshot::new(std::mem::take(bytes)),
        };
        *self = Self::Shared(Snapshot::clone(&snapshot));
        snapshot
    }

    /// Returns the bytes themselves if no other thread holds a snapshot any more, and otherwise a
    /// copy.
    #[cold]
    fn take_back(&mut self) -> &mut Bytes {
        let bytes = match std::mem::replace(self, Self::Owned(Bytes::default())) {
            Self::Owned(bytes) => bytes,
            Self::Shared(snapshot) => {
                Snapshot::try_unwrap(snapshot).unwrap_or_else(|others| Bytes::clone(&others))
            }
        };
        *self = Self::Owned(bytes);
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(_) => unreachable!("they have just been taken back"),
        }
    }
}

impl Deref for CowBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(snapshot) => snapshot,
        }
    }
}
