//! A reader-writer lock whose readers write no shared line while no thread writes.
//!
//! The VFS has one in each inode (`rwsem`), and `ext4` two in each of its inodes. It excludes as
//! any reader-writer lock does; the bias changes only the cost.
//!
//! Readers of an ordinary lock count themselves in it, so two readers of one file move one cache
//! line between their CPUs. Here a lock that is read often becomes *biased*. From then on a reader
//! only stores the number of the bias in its thread's [slot](VisibleReaders). A writer takes
//! the ordinary lock, ends the bias, and waits until no slot holds the number. (D. Dice and A.
//! Kogan, "BRAVO - Biased Locking for Reader-Writer Locks", USENIX ATC 2019. There the slots are
//! one table, in which a reader chooses a slot by hash and takes it by compare-and-swap.)
//!
//! Ending a bias costs a barrier on all threads, which takes microseconds. So a lock becomes biased
//! only after 16 readers in a row without a writer. After the end of a bias, the next one begins a
//! millisecond later at the earliest. A lock that is read and written in alternation stays an
//! ordinary lock.
//!
//! In a child of `fork(2)`, the published reads of threads that it does not have are over. Slots
//! that hold `lock` are not: the child cannot know them.
//!
//! Each bias of the process has a different number. So a guard that is forgotten, whose slot keeps
//! the number for ever, keeps no writer of a later lock at the same address waiting.
//!
//! # Why a writer is alone
//! 1. Only a thread that holds `lock` shared sets `bias`, from 0 and in one step. Only one that
//!    holds it exclusive clears it. So no thread sets it while another one writes, and all readers
//!    under one bias publish the same number.
//! 2. A reader stores the number in its slot, executes `light_fence`, and loads `bias` again. A
//!    writer clears `bias`, executes `heavy_fence`, and loads all slots
//!    ([`membarrier`](crate::membarrier)). So either the reader sees that the bias is over and
//!    clears its slot, or the writer sees the slot and waits.
//! 3. A reader that unlocks clears its slot, executes `light_fence`, and loads `bias`. If that is
//!    clear, a writer may sleep, and the reader wakes it. By the same handshake either the writer
//!    sees the slot empty, or the reader sees that it has to wake the writer.
//!
//! | store | load | orderings |
//! | --- | --- | --- |
//! | a reader sets `bias` | readers | `Release`, `Acquire` (1) |
//! | a reader clears its slot | a writer | `Release`, `Acquire` (2) |
//! | a writer clears `bias` | readers | `Relaxed`, ordered by the fences (3) |
//!
//! 1. A reader under the bias sees what the last writer did before the bias was set.
//! 2. In `publish` and `read_published`: the writer comes after the whole read section.
//! 3. The writer waits for each reader that misses it.
//!
//! `streak` only decides when to set the bias: a lost count delays it.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError, TryLockResult};
#[cfg(not(feature = "loom"))]
use std::{ptr, sync::LazyLock, time::Instant};

#[cfg(not(feature = "loom"))]
use crate::fork::{AtFork, HeldAtFork};
use crate::percpu::Padded;
#[cfg(not(feature = "loom"))]
use crate::primitive::MutexGuard;
use crate::primitive::membarrier::{heavy_fence, publish, read_published};
use crate::primitive::{
    AtomicU32, AtomicU64, Condvar, Mutex, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard,
    capacity,
};
use crate::thread_slots::ThreadSlots;

/// Lines of slots that a thread has, as a power of two. The number of a bias selects the line. A
/// writer loads that line of each thread only, and most other locks use other lines.
const LINE_BITS: u32 = capacity(3, 0);
/// Locks that a thread may read under at the same time on one line.
const SLOTS_PER_LINE: usize = capacity(4, 1);
/// Readers in a row that make a lock biased; few in models.
const STREAK: u32 = capacity(16, 2);

/// A reader-writer lock with a reader bias. It protects a value or, with `()`, what its owner
/// documents.
pub struct BiasedRwLock<T = ()> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns the value.
unsafe impl<T: Send> Send for BiasedRwLock<T> {}
// SAFETY: holders of the shared lock have `&T` at the same time; the holder of the exclusive lock
// has `&mut T`, on any thread.
unsafe impl<T: Send + Sync> Sync for BiasedRwLock<T> {}

/// The lock without the value.
#[derive(Debug)]
struct RawLock {
    lock: RwLock<()>,
    /// The number by which readers publish themselves in slots; 0 without a bias.
    bias: AtomicU32,
    /// A [`Streak`].
    streak: AtomicU32,
}

/// The readers since the last writer: 27 bits for the time when a bias was ended last, 5 for the
/// count.
#[derive(Clone, Copy)]
struct Streak(u32);

impl Streak {
    const COUNT: u32 = 0x1f;

    /// Adds one reader.
    #[inline]
    fn count_reader(self) -> Self {
        Self(self.0 & !Self::COUNT | ((self.0 & Self::COUNT) + 1).min(STREAK))
    }

    /// Returns a streak of no readers, from now on.
    fn ended_now() -> Self {
        Self(now() << 5)
    }

    /// Sets the count to zero.
    #[inline]
    fn reset(self) -> Self {
        Self(self.0 & !Self::COUNT)
    }

    /// Returns whether the lock should become biased.
    #[inline]
    fn is_long_enough(self) -> bool {
        self.0 & Self::COUNT >= STREAK && Self::ended_now().0 != self.reset().0
    }
}

/// Shared access to the value, until the guard is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct BiasedReadGuard<'a, T = ()> {
    _held: ReadHold<'a>,
    lock: &'a BiasedRwLock<T>,
}

/// Exclusive access to the value, until the guard is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct BiasedWriteGuard<'a, T = ()> {
    _held: RwLockWriteGuard<'a, ()>,
    lock: &'a BiasedRwLock<T>,
}

/// A published read: a slot that holds the number of the bias.
#[derive(Debug)]
struct Published<'a> {
    raw: &'a RawLock,
    slot: &'a AtomicU64,
    readers: &'a VisibleReaders,
}

/// How a reader holds the lock. Neither form is `Send`.
#[derive(Debug)]
enum ReadHold<'a> {
    Published(#[expect(dead_code, reason = "held until it is dropped")] Published<'a>),
    Locked(#[expect(dead_code, reason = "as the other")] RwLockReadGuard<'a, ()>),
}

/// The visible readers: the slots in which the threads of the process, or of a model, publish the
/// locks that they read under. Threads without a [thread slot](crate::thread_slots) take the
/// ordinary lock.
#[derive(Debug, Default)]
pub struct VisibleReaders {
    /// The shared thread slot stays empty.
    readers: ThreadSlots<ReaderSlots>,
    /// Held by a writer that loads the slots before it sleeps, and by a reader that wakes it.
    sleepers: Mutex<()>,
    slot_cleared: Condvar,
}

/// Numbers of the biases that one thread reads under. Only that thread stores here.
#[derive(Debug)]
struct ReaderSlots([Padded<Line>; 1 << LINE_BITS]);

type Line = [AtomicU64; SLOTS_PER_LINE];

/// Finds the slots of the reading thread, if it has any.
trait FindSlots<'a>: FnOnce(&'a VisibleReaders) -> Option<&'a ReaderSlots> {}
impl<'a, F: FnOnce(&'a VisibleReaders) -> Option<&'a ReaderSlots>> FindSlots<'a> for F {}

impl Default for ReaderSlots {
    fn default() -> Self {
        Self(std::array::from_fn(|_| {
            Padded(std::array::from_fn(|_| AtomicU64::new(0)))
        }))
    }
}

impl ReaderSlots {
    /// Returns the line for `bias`.
    #[inline]
    fn line(&self, bias: u64) -> &Line {
        &self.0[line_of(bias)]
    }

    /// Returns a free slot for `bias`.
    #[inline]
    fn slot(&self, bias: u64) -> Option<&AtomicU64> {
        // Relaxed: no other thread stores here.
        self.line(bias)
            .iter()
            .find(|slot| slot.load(Ordering::Relaxed) == 0)
    }
}

impl VisibleReaders {
    /// Creates empty slots.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns this thread's slots.
    #[cfg(not(feature = "loom"))]
    #[inline]
    fn own(&self) -> Option<&ReaderSlots> {
        self.readers.own()
    }

    /// Waits until no slot holds `bias`, which has been cleared.
    #[cold]
    fn wait_for_readers(&self, bias: u64) {
        while !heavy_fence() {
            // The kernel has no memory now: try again.
            std::thread::yield_now();
        }
        let has = |slot: &AtomicU64| read_published(slot) == bias;
        // A reader finds its slots before it publishes, so these include them.
        let is_read = || {
            self.readers
                .iter()
                .any(|slots| slots.line(bias).iter().any(has))
        };
        // A reader that this misses sees that the bias is over.
        if !is_read() {
            return;
        }
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        while is_read() {
            sleepers = self
                .slot_cleared
                .wait(sleepers)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Clears the slots of all threads but this one, in a child of `fork(2)`: the other threads do
    /// not exist.
    #[cfg(not(feature = "loom"))]
    fn end_other_reads(&self) {
        // A thread without a number reads under no bias, and one that has given its number back
        // has no guard left: no thread local holds one.
        let own = self.readers.own_if_numbered().map(ptr::from_ref);
        for slots in self.readers.iter() {
            if own == Some(ptr::from_ref(slots)) {
                continue;
            }
            // Relaxed, both: the process has one thread. A store copies a page, so there is none
            // without need.
            let others = slots.0.iter().flat_map(|line| &line.0);
            others
                .filter(|slot| slot.load(Ordering::Relaxed) != 0)
                .for_each(|slot| slot.store(0, Ordering::Relaxed));
        }
    }

    #[cold]
    fn wake(&self) {
        drop(self.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
        self.slot_cleared.notify_all();
    }
}

/// Returns the index of the line for `bias`.
#[inline]
fn line_of(bias: u64) -> usize {
    // The upper bits of a product: biases that begin one after another have different lines. OK: a
    // few bits.
    (bias
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .unbounded_shr(u64::BITS - LINE_BITS)) as usize
}

/// Returns a number for a new bias.
#[cold]
fn new_bias() -> u32 {
    // Not the type of `primitive`, which no static of a model holds.
    static LAST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    // Relaxed: the numbers only have to differ. One comes again after 4,000 million others.
    LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
}

/// The visible readers of this process.
#[cfg(not(feature = "loom"))]
static PROCESS: LazyLock<VisibleReaders> = LazyLock::new(|| {
    AT_FORK.register();
    VisibleReaders::new()
});

/// Holds `sleepers` of [`PROCESS`] while a thread forks, and ends the published reads of threads
/// that the child does not have.
#[cfg(not(feature = "loom"))]
static AT_FORK: AtFork = {
    static HELD: HeldAtFork<MutexGuard<'static, ()>> = HeldAtFork::new();
    extern "C" fn before() {
        let sleepers = &PROCESS.sleepers;
        // SAFETY: this is the handler before the fork.
        unsafe { HELD.keep(sleepers.lock().unwrap_or_else(PoisonError::into_inner)) };
    }
    extern "C" fn parent() {
        // SAFETY: this is the handler after the fork.
        drop(unsafe { HELD.release() });
    }
    extern "C" fn child() {
        PROCESS.end_other_reads();
        parent();
    }
    AtFork::new(before, parent, child)
};

impl<T> BiasedRwLock<T> {
    /// Creates a free lock.
    pub fn new(value: T) -> Self {
        let raw = RawLock {
            lock: RwLock::new(()),
            bias: AtomicU32::new(0),
            streak: AtomicU32::new(0),
        };
        Self {
            raw,
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value. The exclusive borrow proves that there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes the lock exclusive if it is free and not biased, for a caller that can also go on
    /// without the lock. The call does not count as a writer. So a lock that other threads read
    /// often still becomes biased.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn try_write_unless_read(&self) -> Option<BiasedWriteGuard<'_, T>> {
        Some(BiasedWriteGuard {
            _held: self.raw.try_write_unless_read()?,
            lock: self,
        })
    }

    /// Takes the lock shared. A thread must not take it twice.
    #[cfg(not(feature = "loom"))]
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn read(&self) -> BiasedReadGuard<'_, T> {
        BiasedReadGuard {
            _held: self.raw.read(&PROCESS, VisibleReaders::own),
            lock: self,
        }
    }

    /// Takes the lock shared if that is possible without waiting. A thread must not take it twice.
    #[cfg(not(feature = "loom"))]
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn try_read(&self) -> Option<BiasedReadGuard<'_, T>> {
        Some(BiasedReadGuard {
            _held: self.raw.try_read(&PROCESS, VisibleReaders::own)?,
            lock: self,
        })
    }

    /// Takes the lock exclusive.
    #[cfg(not(feature = "loom"))]
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn write(&self) -> BiasedWriteGuard<'_, T> {
        self.write_with(&PROCESS)
    }

    /// Takes the lock shared. Models of its users take the ordinary lock: the bias has a separate
    /// model.
    #[cfg(feature = "loom")]
    pub fn read(&self) -> BiasedReadGuard<'_, T> {
        let held = self.raw.lock.read().unwrap_or_else(PoisonError::into_inner);
        BiasedReadGuard {
            _held: ReadHold::Locked(held),
            lock: self,
        }
    }

    /// Takes the lock shared if that is possible without waiting; as `read`, the ordinary lock.
    #[cfg(feature = "loom")]
    pub fn try_read(&self) -> Option<BiasedReadGuard<'_, T>> {
        let held = unless_it_blocks(self.raw.lock.try_read())?;
        Some(BiasedReadGuard {
            _held: ReadHold::Locked(held),
            lock: self,
        })
    }

    /// Takes the lock exclusive; as `read`, the ordinary lock.
    #[cfg(feature = "loom")]
    pub fn write(&self) -> BiasedWriteGuard<'_, T> {
        let held = self
            .raw
            .lock
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        BiasedWriteGuard {
            _held: held,
            lock: self,
        }
    }

    /// Takes the lock shared for thread `number` of `readers`.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn read_at<'a>(
        &'a self,
        readers: &'a VisibleReaders,
        number: usize,
    ) -> BiasedReadGuard<'a, T> {
        BiasedReadGuard {
            _held: self.raw.read(readers, |readers| readers.readers.of(number)),
            lock: self,
        }
    }

    /// Takes the lock shared for thread `number` of `readers` if that is possible without waiting.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn try_read_at<'a>(
        &'a self,
        readers: &'a VisibleReaders,
        number: usize,
    ) -> Option<BiasedReadGuard<'a, T>> {
        let held = self
            .raw
            .try_read(readers, |readers| readers.readers.of(number))?;
        Some(BiasedReadGuard {
            _held: held,
            lock: self,
        })
    }

    /// Takes the lock exclusive; waits for the visible readers in `readers` too.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn write_with(&self, readers: &VisibleReaders) -> BiasedWriteGuard<'_, T> {
        BiasedWriteGuard {
            _held: self.raw.write(readers),
            lock: self,
        }
    }
}

impl RawLock {
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn read<'a>(&'a self, readers: &'a VisibleReaders, slots: impl FindSlots<'a>) -> ReadHold<'a> {
        if let Some(publish_read) = self.publish_read(readers, slots) {
            return ReadHold::Published(publish_read);
        }
        let held = self.lock.read().unwrap_or_else(PoisonError::into_inner);
        self.count();
        ReadHold::Locked(held)
    }

    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn try_read<'a>(
        &'a self,
        readers: &'a VisibleReaders,
        slots: impl FindSlots<'a>,
    ) -> Option<ReadHold<'a>> {
        if let Some(publish_read) = self.publish_read(readers, slots) {
            return Some(ReadHold::Published(publish_read));
        }
        let held = unless_it_blocks(self.lock.try_read())?;
        self.count();
        Some(ReadHold::Locked(held))
    }

    /// Takes the lock by a published read, if it is biased, a slot is free, and it is still biased
    /// after that.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn publish_read<'a>(
        &'a self,
        readers: &'a VisibleReaders,
        slots: impl FindSlots<'a>,
    ) -> Option<Published<'a>> {
        // Acquire: pairs with the Release in `count`.
        let bias = self.bias.load(Ordering::Acquire);
        if bias == 0 {
            return None;
        }
        let slot = slots(readers)?.slot(bias.into())?;
        publish(slot, bias.into());
        // From here on a return clears the slot.
        let publish_read = Published {
            raw: self,
            slot,
            readers,
        };
        // Acquire: pairs with the Release in `count`. `light_fence` in `publish` precedes it, and
        // pairs with `heavy_fence` in `wait_for_readers`.
        (self.bias.load(Ordering::Acquire) == bias).then_some(publish_read)
    }

    /// Counts a reader, and makes the lock biased after enough of them. Locks: `lock` shared.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn count(&self) {
        // Relaxed, both: the streak only decides when to set the bias.
        let streak = Streak(self.streak.load(Ordering::Relaxed)).count_reader();
        self.streak.store(streak.0, Ordering::Relaxed);
        if streak.is_long_enough() && self.bias.load(Ordering::Relaxed) == 0 {
            // Release: pairs with the Acquire in `publish_read`. A reader under the bias sees what
            // the last writer did, because the lock made this thread see it. On failure another
            // reader has set it.
            let _ = self
                .bias
                .compare_exchange(0, new_bias(), Ordering::Release, Ordering::Relaxed);
        }
    }

    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn write(&self, readers: &VisibleReaders) -> RwLockWriteGuard<'_, ()> {
        let held = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        // Relaxed, all: the lock orders these words, except for `bias` = 0.
        let streak = Streak(self.streak.load(Ordering::Relaxed));
        let bias = self.bias.load(Ordering::Relaxed);
        if bias != 0 {
            // Relaxed: `heavy_fence` in `wait_for_readers` orders it before the loads of the slots.
            self.bias.store(0, Ordering::Relaxed);
            readers.wait_for_readers(bias.into());
            self.streak.store(Streak::ended_now().0, Ordering::Relaxed);
        } else if streak.0 != streak.reset().0 {
            self.streak.store(streak.reset().0, Ordering::Relaxed);
        }
        held
    }

    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn try_write_unless_read(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        // Relaxed: a stale value has the effect of an earlier or a later call.
        if self.bias.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let held = unless_it_blocks(self.lock.try_write())?;
        // Relaxed: the lock orders it. While `bias` is clear, readers hold the lock itself: the
        // writer that ended the bias waited for the others.
        (self.bias.load(Ordering::Relaxed) == 0).then_some(held)
    }
}

impl<T: Default> Default for BiasedRwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for BiasedRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedRwLock")
            .field("raw", &self.raw)
            .finish_non_exhaustive()
    }
}

impl<T> Deref for BiasedReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held shared.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Deref for BiasedWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held exclusive.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held exclusive, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl Drop for Published<'_> {
    #[inline]
    fn drop(&mut self) {
        publish(self.slot, 0);
        // Relaxed: `light_fence` in `publish` orders it, and pairs with `heavy_fence` in
        // `wait_for_readers`.
        if self.raw.bias.load(Ordering::Relaxed) == 0 {
            self.readers.wake();
        }
    }
}

/// Returns the guard; `None` if the lock is taken. Ignores poison.
fn unless_it_blocks<G>(tried: TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Returns milliseconds since the first call.
#[cfg(not(feature = "loom"))]
fn now() -> u32 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // OK: only low bits are used. If they are equal by chance, a bias begins a millisecond later.
    // Never 0, the value of a new lock.
    START.elapsed().as_millis() as u32 + 1
}

/// Returns another time at each call, in models.
#[cfg(feature = "loom")]
fn now() -> u32 {
    static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    CALLS.fetch_add(1, Ordering::Relaxed)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::primitive::AtomicBool;

    fn is_biased(lock: &BiasedRwLock) -> bool {
        lock.raw.bias.load(Ordering::Relaxed) != 0
    }

    #[test]
    fn a_streak_of_readers_sets_the_bias_and_a_writer_ends_it_for_a_while() {
        let lock = BiasedRwLock::new(());
        for _ in 0..STREAK {
            assert!(!is_biased(&lock));
            drop(lock.read());
        }
        assert!(is_biased(&lock));
        assert!(matches!(lock.read()._held, ReadHold::Published(..)));
        let began = now();
        drop(lock.write());
        assert!(!is_biased(&lock));
        (0..3 * STREAK).for_each(|_| drop(lock.read()));
        assert!(!is_biased(&lock) || now() != began);
        thread::sleep(Duration::from_millis(4));
        (0..STREAK).for_each(|_| drop(lock.read()));
        assert!(is_biased(&lock));
    }

    fn bias(lock: &BiasedRwLock) {
        (0..STREAK).for_each(|_| drop(lock.read()));
        assert!(is_biased(lock));
    }

    /// A guard that is never dropped keeps its own lock only.
    #[test]
    fn a_writer_does_not_wait_for_a_forgotten_reader_of_an_earlier_lock() {
        let mut lock = BiasedRwLock::new(());
        for _ in 0..10 {
            bias(&lock);
            std::mem::forget(lock.read());
            lock = BiasedRwLock::new(());
            bias(&lock);
            drop(lock.write());
            lock = BiasedRwLock::new(());
        }
    }

    #[test]
    fn the_lock_is_small() {
        assert!(size_of::<BiasedRwLock>() <= size_of::<RwLock<()>>() + 8);
    }

    #[test]
    fn alternating_reads_and_writes_leave_the_lock_unbiased() {
        let lock = BiasedRwLock::new(());
        for _ in 0..10 * STREAK {
            drop(lock.read());
            drop(lock.write());
            assert!(!is_biased(&lock));
        }
    }

    #[test]
    fn try_write_unless_read_does_not_count_as_a_writer() {
        let lock = &BiasedRwLock::new(());
        let alone = || {
            thread::scope(|scope| {
                scope
                    .spawn(|| lock.try_write_unless_read().is_some())
                    .join()
                    .unwrap()
            })
        };
        for _ in 0..STREAK {
            assert!(alone());
            let reading = lock.read();
            assert!(!alone());
            drop(reading);
        }
        assert!(is_biased(lock) && !alone());
        let writing = lock.write();
        assert!(!alone());
        drop(writing);
        let writing = lock.try_write_unless_read().unwrap();
        let read =
            || thread::scope(|scope| scope.spawn(|| lock.try_read().is_some()).join().unwrap());
        assert!(!read() && !alone());
        drop(writing);
        assert!(read() && alone());
    }

    #[test]
    fn a_thread_without_a_free_slot_takes_the_ordinary_lock() {
        let locks: Vec<_> = (0..SLOTS_PER_LINE << (LINE_BITS + 1))
            .map(|_| BiasedRwLock::new(()))
            .collect();
        locks
            .iter()
            .for_each(|lock| (0..STREAK).for_each(|_| drop(lock.read())));
        let held: Vec<_> = locks.iter().map(|lock| lock.read()).collect();
        let noted = held
            .iter()
            .filter(|guard| matches!(guard._held, ReadHold::Published(..)))
            .count();
        let line = |lock: &BiasedRwLock| line_of(lock.raw.bias.load(Ordering::Relaxed).into());
        let on = |at| locks.iter().filter(|&lock| line(lock) == at).count();
        assert_eq!(
            noted,
            (0..1 << LINE_BITS)
                .map(|line| on(line).min(SLOTS_PER_LINE))
                .sum::<usize>()
        );
        assert!(noted < locks.len());
        drop(held);
        locks.iter().for_each(|lock| drop(lock.write()));
    }

    #[test]
    fn try_read_succeeds_next_to_readers_and_fails_next_to_a_writer() {
        let lock = &BiasedRwLock::new(());
        let tries =
            || thread::scope(|scope| scope.spawn(|| lock.try_read().is_some()).join().unwrap());
        for biased in [false, true] {
            assert_eq!(is_biased(lock), biased);
            let reading = lock.try_read().unwrap();
            assert_eq!(matches!(reading._held, ReadHold::Published(..)), biased);
            assert!(tries());
            drop(reading);
            (0..STREAK).for_each(|_| drop(lock.read()));
        }
        let writing = lock.write();
        assert!(!tries());
        drop(writing);
        assert!(tries());
    }

    #[test]
    fn a_writer_waits_for_a_published_read() {
        let lock = &BiasedRwLock::new(());
        (0..STREAK).for_each(|_| drop(lock.read()));
        let reading = lock.read();
        let has_written = &AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _writing = lock.write();
                has_written.store(true, Ordering::Release);
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!has_written.load(Ordering::Acquire));
            drop(reading);
        });
        assert!(has_written.load(Ordering::Acquire));
    }

    #[test]
    fn readers_see_whole_values() {
        let lock = &BiasedRwLock::new((0_u64, 0_u64));
        let end = Instant::now() + Duration::from_millis(if cfg!(miri) { 20 } else { 300 });
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    while Instant::now() < end {
                        let (a, b) = *lock.read();
                        assert_eq!(a, b);
                    }
                });
            }
            scope.spawn(move || {
                while Instant::now() < end {
                    {
                        let mut halves = lock.write();
                        halves.0 += 1;
                        std::hint::black_box(&mut *halves);
                        halves.1 += 1;
                    }
                    thread::sleep(Duration::from_micros(500));
                }
            });
        });
    }
}
