//! A lock for readers and writers that readers take without writing what other readers use, as long as nobody writes.
//!
//! Readers of an ordinary lock count themselves in the lock, so that two who read the same file pull one cache line to and fro. Here a
//! lock that is read again and again becomes *biased*: from then on a reader notes the lock at a [desk](VisibleReaders) of its own thread, by
//! a plain store, and is done. Who wants to write takes the ordinary lock, ends the bias, and waits until no desk has the lock.
//! (D. Dice and A. Kogan, "BRAVO - Biased Locking for Reader-Writer Locks", USENIX ATC 2019; there the desks are places of one
//! table that readers choose by hash and take by compare-and-swap.)
//!
//! To end a bias costs a barrier that all threads execute, microseconds. So a lock becomes biased only when 16 readers have come
//! in a row, without a writer between; and once a bias has been ended, not before the next millisecond. What is read and written in turns
//! has an ordinary lock.
//!
//! # Why a writer is alone
//! 1. Only who has `lock` shared sets `bias`, and only who has it exclusive clears it. So nobody sets it while somebody writes.
//! 2. A reader notes the lock at its desk, executes `light_fence`, and looks at `bias` again ([`membarrier`](crate::membarrier)). A writer clears
//!    `bias`, executes `heavy_fence`, and looks at all desks. So either the reader sees that the bias is over, and takes its note back, or
//!    the writer sees the note, and waits.
//! 3. A reader that goes takes its note back, executes `light_fence`, and looks at `bias`; if that is cleared, a writer may sleep, and is woken.
//!    The same handshake: the writer sees the desk empty, or the reader sees that it has to wake.
//!
//! | store | load | orderings |
//! | --- | --- | --- |
//! | `bias` set, by a reader after the last writer | by readers | Release, Acquire: who relies on the bias sees what that writer did |
//! | desk cleared, by a reader | by a writer | Release, Acquire: the writer comes after all that the reader did |
//! | `bias` cleared, by a writer | by readers | ordered by the barriers; who sees it too late is waited for |
//!
//! `streak` only decides when to be biased: a count that is lost is a bias that comes later.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError, TryLockResult};
#[cfg(not(feature = "loom"))]
use std::{sync::LazyLock, time::Instant};

use crate::membarrier::{heavy_fence, publish, read_published};
use crate::percpu::Padded;
use crate::primitive::{
    AtomicBool, AtomicU32, AtomicU64, Condvar, Mutex, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard,
    capacity,
};
use crate::thread_slots::ThreadSlots;

/// Lines of a desk, as a power of two. The address of a lock says which it is noted on: who ends its bias looks at that line of each desk, and most
/// other locks are noted on others.
const LINE_BITS: u32 = capacity(3, 0);
/// Locks that a thread may have noted at the same time on one of them.
const SLOTS_PER_LINE: usize = capacity(4, 1);
/// So many readers in a row make a lock biased; few in models.
const STREAK: u32 = capacity(16, 2);

/// A lock for readers and writers. It protects a value; or, without one, what its owner says.
pub struct BiasedRwLock<T = ()> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns the value.
unsafe impl<T: Send> Send for BiasedRwLock<T> {}
// SAFETY: who has the lock shared has `&T` at the same time as others; who has it exclusive has `&mut T`, on any thread.
unsafe impl<T: Send + Sync> Sync for BiasedRwLock<T> {}

/// The lock beside the value.
#[derive(Debug)]
struct RawLock {
    lock: RwLock<()>,
    /// Readers are at their desks.
    bias: AtomicBool,
    /// A [`Streak`].
    streak: AtomicU32,
}

/// Who reads without a writer between: 27 bits for the moment when a bias was ended last, 5 for how many have read.
#[derive(Clone, Copy)]
struct Streak(u32);

impl Streak {
    const COUNT: u32 = 0x1f;

    /// With one more reader.
    #[inline]
    fn count_reader(self) -> Self {
        Self(self.0 & !Self::COUNT | ((self.0 & Self::COUNT) + 1).min(STREAK))
    }

    /// Nobody has read since now.
    fn ended_now() -> Self {
        Self(now() << 5)
    }

    /// Nobody has read.
    #[inline]
    fn reset(self) -> Self {
        Self(self.0 & !Self::COUNT)
    }

    /// It is worth a bias.
    #[inline]
    fn is_long_enough(self) -> bool {
        self.0 & Self::COUNT >= STREAK && Self::ended_now().0 != self.reset().0
    }
}

/// The lock held shared.
#[must_use = "the lock is held as long as this lives"]
pub struct BiasedReadGuard<'a, T = ()> {
    _held: ReadHold<'a>,
    lock: &'a BiasedRwLock<T>,
}

/// The lock held exclusive.
#[must_use = "the lock is held as long as this lives"]
pub struct BiasedWriteGuard<'a, T = ()> {
    _held: RwLockWriteGuard<'a, ()>,
    lock: &'a BiasedRwLock<T>,
}

/// A note at a desk.
#[derive(Debug)]
struct Published<'a> {
    raw: &'a RawLock,
    slot: &'a AtomicU64,
    readers: &'a VisibleReaders,
}

/// How a reader has it. Neither goes to another thread.
#[derive(Debug)]
enum ReadHold<'a> {
    Published(#[expect(dead_code, reason = "held until it is dropped")] Published<'a>),
    Locked(#[expect(dead_code, reason = "as the other")] RwLockReadGuard<'a, ()>),
}

/// Where the threads of the process, or of a model, note which locks they read under. Threads without a slot of their own have no
/// desk: they take the ordinary lock.
#[derive(Debug, Default)]
pub struct VisibleReaders {
    /// The shared one stays empty.
    readers: ThreadSlots<ReaderSlots>,
    /// Taken by who looks at desks before he sleeps, and by who wakes him.
    sleepers: Mutex<()>,
    slot_cleared: Condvar,
}

/// Addresses of locks that a thread reads under. Only the thread stores here.
#[derive(Debug)]
struct ReaderSlots([Padded<Line>; 1 << LINE_BITS]);

type Line = [AtomicU64; SLOTS_PER_LINE];

/// Finds the reader's desk, if it has one.
trait FindSlots<'a>: FnOnce(&'a VisibleReaders) -> Option<&'a ReaderSlots> {}
impl<'a, F: FnOnce(&'a VisibleReaders) -> Option<&'a ReaderSlots>> FindSlots<'a> for F {}

impl Default for ReaderSlots {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Padded(std::array::from_fn(|_| AtomicU64::new(0)))))
    }
}

impl ReaderSlots {
    /// Returns the line that `lock` is noted on.
    #[inline]
    fn line(&self, lock: u64) -> &Line {
        &self.0[line_of(lock)]
    }

    /// Returns an unused place for `lock`.
    #[inline]
    fn slot(&self, lock: u64) -> Option<&AtomicU64> {
        // Relaxed: no other thread stores here.
        self.line(lock).iter().find(|slot| slot.load(Ordering::Relaxed) == 0)
    }
}

impl VisibleReaders {
    /// Creates empty desks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns this thread's desk.
    #[cfg(not(feature = "loom"))]
    #[inline]
    fn own(&self) -> Option<&ReaderSlots> {
        self.readers.own()
    }

    /// Waits until no desk has `lock`, whose bias is over.
    #[cold]
    fn wait_for_readers(&self, lock: u64) {
        while !heavy_fence() {
            // Want of memory, which passes.
            std::thread::yield_now();
        }
        let has = |slot: &AtomicU64| read_published(slot) == lock;
        // A reader that has noted the lock has found its desk before, so the desk is among these.
        let is_read = || self.readers.iter().any(|slots| slots.line(lock).iter().any(has));
        // Whom it does not see reading will see that the bias is over.
        if !is_read() {
            return;
        }
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        while is_read() {
            sleepers = self.slot_cleared.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
        }
    }

    #[cold]
    fn wake(&self) {
        drop(self.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
        self.slot_cleared.notify_all();
    }
}

/// The line of a desk that `lock` is noted on.
#[inline]
fn line_of(lock: u64) -> usize {
    // By the upper bits of a product, since locks stand at like places of what is as large. OK: a few bits.
    (lock.wrapping_mul(0x9e37_79b9_7f4a_7c15).unbounded_shr(u64::BITS - LINE_BITS)) as usize
}

/// The desks of this process.
#[cfg(not(feature = "loom"))]
static PROCESS: LazyLock<VisibleReaders> = LazyLock::new(VisibleReaders::new);

impl<T> BiasedRwLock<T> {
    /// A lock of `value` that nobody holds.
    pub fn new(value: T) -> Self {
        let raw = RawLock { lock: RwLock::new(()), bias: AtomicBool::new(false), streak: AtomicU32::new(0) };
        Self { raw, value: UnsafeCell::new(value) }
    }

    /// The value, of which there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes the lock exclusive, if nobody has it, and readers are not at their desks. He who does so when he need not be alone does not
    /// count as a writer: where others read again and again, the lock becomes biased as if he had not been.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn try_write_unless_read(&self) -> Option<BiasedWriteGuard<'_, T>> {
        Some(BiasedWriteGuard { _held: self.raw.try_write_unless_read()?, lock: self })
    }

    /// Takes the lock shared. Not to be taken twice by one thread.
    #[cfg(not(feature = "loom"))]
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn read(&self) -> BiasedReadGuard<'_, T> {
        BiasedReadGuard { _held: self.raw.read(&PROCESS, VisibleReaders::own), lock: self }
    }

    /// Takes the lock shared, unless somebody has to be waited for. Not to be taken twice by one thread.
    #[cfg(not(feature = "loom"))]
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn try_read(&self) -> Option<BiasedReadGuard<'_, T>> {
        Some(BiasedReadGuard { _held: self.raw.try_read(&PROCESS, VisibleReaders::own)?, lock: self })
    }

    /// Takes the lock exclusive.
    #[cfg(not(feature = "loom"))]
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn write(&self) -> BiasedWriteGuard<'_, T> {
        self.write_with(&PROCESS)
    }

    /// Takes the lock shared: in models of what uses it, without what has a model of its own.
    #[cfg(feature = "loom")]
    pub fn read(&self) -> BiasedReadGuard<'_, T> {
        let held = self.raw.lock.read().unwrap_or_else(PoisonError::into_inner);
        BiasedReadGuard { _held: ReadHold::Locked(held), lock: self }
    }

    /// Takes the lock shared, unless somebody has to be waited for: as `read`.
    #[cfg(feature = "loom")]
    pub fn try_read(&self) -> Option<BiasedReadGuard<'_, T>> {
        let held = unless_it_blocks(self.raw.lock.try_read())?;
        Some(BiasedReadGuard { _held: ReadHold::Locked(held), lock: self })
    }

    /// Takes the lock exclusive: as `read`.
    #[cfg(feature = "loom")]
    pub fn write(&self) -> BiasedWriteGuard<'_, T> {
        let held = self.raw.lock.write().unwrap_or_else(PoisonError::into_inner);
        BiasedWriteGuard { _held: held, lock: self }
    }

    /// Takes the lock shared for thread `number`, which has its desk there.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn read_at<'a>(&'a self, readers: &'a VisibleReaders, number: usize) -> BiasedReadGuard<'a, T> {
        BiasedReadGuard { _held: self.raw.read(readers, |readers| readers.readers.of(number)), lock: self }
    }

    /// The same, unless somebody has to be waited for.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn try_read_at<'a>(
        &'a self,
        readers: &'a VisibleReaders,
        number: usize,
    ) -> Option<BiasedReadGuard<'a, T>> {
        let held = self.raw.try_read(readers, |readers| readers.readers.of(number))?;
        Some(BiasedReadGuard { _held: held, lock: self })
    }

    /// Takes the lock exclusive, from readers at `readers` too.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    pub fn write_with(&self, readers: &VisibleReaders) -> BiasedWriteGuard<'_, T> {
        BiasedWriteGuard { _held: self.raw.write(readers), lock: self }
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

    /// Takes the lock by a note, if it is biased, there is room for one, and it is still biased then.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn publish_read<'a>(
        &'a self,
        readers: &'a VisibleReaders,
        slots: impl FindSlots<'a>,
    ) -> Option<Published<'a>> {
        // Acquire: pairs with the Release of who set it.
        if !self.bias.load(Ordering::Acquire) {
            return None;
        }
        let slot = slots(readers)?.slot(self.address())?;
        publish(slot, self.address());
        // From here on, whatever happens, it is taken back.
        let publish_read = Published { raw: self, slot, readers };
        // Acquire: as before. After `light_fence`.
        self.bias.load(Ordering::Acquire).then_some(publish_read)
    }

    /// Counts a reader, and makes the lock biased if that seems worth it. Locks: `lock` shared.
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn count(&self) {
        // Relaxed, both: it decides when to be biased, and guards nothing.
        let streak = Streak(self.streak.load(Ordering::Relaxed)).count_reader();
        self.streak.store(streak.0, Ordering::Relaxed);
        if streak.is_long_enough() {
            // Release: who sees it sees what the last writer did, whom the lock has let this one see.
            self.bias.store(true, Ordering::Release);
        }
    }

    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn write(&self, readers: &VisibleReaders) -> RwLockWriteGuard<'_, ()> {
        let held = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        // Relaxed, all: stored by who had the lock.
        let streak = Streak(self.streak.load(Ordering::Relaxed));
        if self.bias.load(Ordering::Relaxed) {
            // Relaxed: ordered by `heavy_fence`.
            self.bias.store(false, Ordering::Relaxed);
            readers.wait_for_readers(self.address());
            self.streak.store(Streak::ended_now().0, Ordering::Relaxed);
        } else if streak.0 != streak.reset().0 {
            self.streak.store(streak.reset().0, Ordering::Relaxed);
        }
        held
    }

    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn try_write_unless_read(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        // Relaxed: he who sees it too late goes the other way, as if he had come later.
        if self.bias.load(Ordering::Relaxed) {
            return None;
        }
        let held = unless_it_blocks(self.lock.try_write())?;
        // Relaxed: stored by who had the lock. While it is not set, nobody reads but by the lock: who has seen it set before takes his note
        // back, as whoever ended that bias has made sure of.
        (!self.bias.load(Ordering::Relaxed)).then_some(held)
    }

    /// What stands for the lock at a desk: nothing else has this address while somebody has the lock.
    fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }
}

impl<T: Default> Default for BiasedRwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for BiasedRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedRwLock").field("raw", &self.raw).finish_non_exhaustive()
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
        // SAFETY: as above, and nobody has the value by this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl Drop for Published<'_> {
    #[inline]
    fn drop(&mut self) {
        publish(self.slot, 0);
        // Relaxed: after `light_fence`.
        if !self.raw.bias.load(Ordering::Relaxed) {
            self.readers.wake();
        }
    }
}

/// The guard, unless somebody else has the lock.
fn unless_it_blocks<G>(tried: TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Milliseconds since some moment.
#[cfg(not(feature = "loom"))]
fn now() -> u32 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // OK: its low bits are used. Where they are the same by chance, a bias begins a millisecond later. A new lock has zeroes.
    START.elapsed().as_millis() as u32 + 1
}

/// In models each moment is another.
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

    fn is_biased(lock: &BiasedRwLock) -> bool {
        lock.raw.bias.load(Ordering::Relaxed)
    }

    #[test]
    fn a_streak_of_readers_makes_it_biased_and_a_writer_ends_that_for_a_while() {
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

    #[test]
    fn it_is_small() {
        assert!(size_of::<BiasedRwLock>() <= size_of::<RwLock<()>>() + 8);
    }

    #[test]
    fn who_reads_and_writes_in_turns_has_an_ordinary_lock() {
        let lock = BiasedRwLock::new(());
        for _ in 0..10 * STREAK {
            drop(lock.read());
            drop(lock.write());
            assert!(!is_biased(&lock));
        }
    }

    #[test]
    fn who_has_it_only_if_he_is_alone_is_no_writer_among_readers() {
        let lock = &BiasedRwLock::new(());
        let alone =
            || thread::scope(|scope| scope.spawn(|| lock.try_write_unless_read().is_some()).join().unwrap());
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
        let read = || thread::scope(|scope| scope.spawn(|| lock.try_read().is_some()).join().unwrap());
        assert!(!read() && !alone());
        drop(writing);
        assert!(read() && alone());
    }

    #[test]
    fn a_thread_with_a_full_desk_takes_the_lock_itself() {
        let locks: Vec<_> = (0..SLOTS_PER_LINE << (LINE_BITS + 1)).map(|_| BiasedRwLock::new(())).collect();
        locks.iter().for_each(|lock| (0..STREAK).for_each(|_| drop(lock.read())));
        let held: Vec<_> = locks.iter().map(|lock| lock.read()).collect();
        let noted = held.iter().filter(|guard| matches!(guard._held, ReadHold::Published(..))).count();
        let on = |line| locks.iter().filter(|lock| line_of(lock.raw.address()) == line).count();
        assert_eq!(noted, (0..1 << LINE_BITS).map(|line| on(line).min(SLOTS_PER_LINE)).sum::<usize>());
        assert!(noted < locks.len());
        drop(held);
        locks.iter().for_each(|lock| drop(lock.write()));
    }

    #[test]
    fn who_only_tries_has_it_beside_readers_and_not_beside_a_writer() {
        let lock = &BiasedRwLock::new(());
        let tries = || thread::scope(|scope| scope.spawn(|| lock.try_read().is_some()).join().unwrap());
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
    fn a_writer_waits_for_who_reads_by_a_note() {
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
    fn readers_see_what_writers_leave_whole() {
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
