//! One slot for each thread, however many threads there are.
//!
//! A slot is found by the thread's [number](thread_number). Slots lie in segments, each twice as
//! long as the one before. A thread that finds its segment missing allocates it; the segment then
//! stays as long as the object. So the memory is bounded by the most threads that lived at one
//! time: fewer than twice as many slots as threads, and 64. Threads numbered [`LIMIT`] or higher,
//! and threads that are ending, share one further slot.
//!
//! # A thread that adds up all slots misses none
//! A reader of all slots loads each segment's pointer (`Acquire`) and passes over segments that are
//! missing.
//! 1. Before a thread stores to its slot, it has stored the segment's pointer (`Release`) or loaded
//!    it. The pointer is stored once and never changes.
//! 2. If the store to the slot happens before the reading, then so does that access of the pointer.
//!    By coherence the reader loads the pointer, too.
//! 3. If only barriers order the two ([`membarrier`](crate::membarrier)), take a reader whose
//!    `heavy_fence` comes after the owner's `light_fence`. The owner's access of the pointer
//!    precedes its `light_fence`. A reader that loaded null after `heavy_fence` would be ordered
//!    before that access. So `heavy_fence` would precede `light_fence`. So this reader finds the
//!    segment, as it finds the slot's value.
//!
//! A slot has one owner at a time, and numbers are handed on under a lock, so an owner may use
//! plain loads and stores.
//!
//! Counters, reference counts and locks of this crate keep a value for each thread in these slots.
//! The VFS keeps a slab of open files in each.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use crate::percpu::Padded;
use crate::primitive::{AtomicPtr, Ordering, capacity};
#[cfg(not(feature = "loom"))]
use crate::thread_number::own_position;
pub use crate::thread_number::thread_number;

/// Slots of the first segment, and segments. Models have one segment, since each scan costs a step
/// a segment.
const FIRST: usize = capacity(64, 4);
const SEGMENTS: usize = capacity(8, 1);

/// Threads that have a slot: 16,320. Threads with this number or a higher one share a
/// slot.
pub const LIMIT: usize = FIRST * ((1 << SEGMENTS) - 1);

/// The position of a slot: its segment, and its index there. The segment is `SEGMENTS` at most.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    segment: u32,
    index: u32,
}

impl Position {
    /// The position of no slot.
    pub(crate) const NONE: Self = Self {
        segment: SEGMENTS as u32,
        index: 0,
    };

    /// Returns the position for a thread with this number.
    #[inline]
    pub(crate) fn of(number: usize) -> Self {
        if number >= LIMIT {
            return Self::NONE;
        }
        let segment = (number / FIRST + 1).ilog2();
        // OK: below `LIMIT`.
        let index = (number - FIRST * ((1 << segment) - 1)) as u32;
        Self { segment, index }
    }
}

/// One `T` for each thread.
pub struct ThreadSlots<T> {
    /// The first slot of each segment, or null. One more pointer, for [`Position::NONE`], stays
    /// null.
    segments: [AtomicPtr<Padded<T>>; SEGMENTS + 1],
    shared: Padded<T>,
    owns: PhantomData<Box<[Padded<T>]>>,
}

impl<T: Default> ThreadSlots<T> {
    /// Creates slots that hold the default value.
    pub fn new() -> Self {
        let segments = std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Self {
            segments,
            shared: Padded::default(),
            owns: PhantomData,
        }
    }

    /// Returns this thread's slot; `None` if it must use the shared one.
    #[cfg(not(feature = "loom"))]
    #[inline(always)]
    pub fn own(&self) -> Option<&T> {
        self.at(own_position()).or_else(|| self.first_use())
    }

    /// Returns this thread's slot if the thread has a number and the slot exists. Takes no lock.
    #[cfg(not(feature = "loom"))]
    pub(crate) fn own_if_numbered(&self) -> Option<&T> {
        self.at(own_position())
    }

    /// Returns `None`: all threads of a model run on one thread of the system. Models pass a
    /// thread's number to [`of`](Self::of).
    #[cfg(feature = "loom")]
    pub fn own(&self) -> Option<&T> {
        None
    }

    #[cfg(not(feature = "loom"))]
    #[cold]
    fn first_use(&self) -> Option<&T> {
        self.of(thread_number())
    }

    /// Returns the slot of the thread with this number; `None` if that uses the shared one.
    pub fn of(&self, number: usize) -> Option<&T> {
        let position = Position::of(number);
        if self.at(position).is_none() && number < LIMIT {
            allocate(&self.segments[position.segment as usize], position.segment);
        }
        self.at(position)
    }
}

/// Allocates a segment that is missing, outside of any lock. The thread that loses a race frees its
/// own.
#[cold]
fn allocate<T: Default>(segment: &AtomicPtr<Padded<T>>, number: u32) {
    let slots: Box<[Padded<T>]> = (0..FIRST << number).map(|_| Padded::default()).collect();
    let slots = Box::into_raw(slots);
    // Release on success: pairs with the Acquire in `at` and `segment`. Relaxed on failure: the
    // caller loads the pointer by `at`.
    let stored = segment.compare_exchange(
        ptr::null_mut(),
        slots.cast(),
        Ordering::Release,
        Ordering::Relaxed,
    );
    if stored.is_err() {
        // SAFETY: it came from a box above, and no other thread has seen it.
        drop(unsafe { Box::from_raw(slots) });
    }
}

impl<T> ThreadSlots<T> {
    /// Returns the slot that all threads without a slot share.
    #[inline]
    pub fn shared(&self) -> &T {
        &self.shared
    }

    /// Returns the slot of the thread with this number, if there is one already.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&T> {
        self.at(Position::of(number))
    }

    /// Returns all slots that there are, the shared one included.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..SEGMENTS)
            .flat_map(|segment| self.segment(segment))
            .map(|slot| &slot.0)
            .chain([self.shared()])
    }

    fn segment(&self, number: usize) -> &[Padded<T>] {
        // Acquire: pairs with the Release in `allocate`.
        let first = self.segments[number].load(Ordering::Acquire);
        if first.is_null() {
            return &[];
        }
        // SAFETY: `allocate` made it of this length, and it stays as long as `self`.
        unsafe { std::slice::from_raw_parts(first, FIRST << number) }
    }

    #[inline(always)]
    fn at(&self, position: Position) -> Option<&T> {
        // SAFETY: the segment of a position is `SEGMENTS` at most.
        let segment = unsafe { self.segments.get_unchecked(position.segment as usize) };
        // Acquire: pairs with the Release in `allocate`.
        let segment = segment.load(Ordering::Acquire);
        // SAFETY: the index is below the number of slots of its segment, which stays as long as
        // `self`.
        (!segment.is_null()).then(|| unsafe { &(*segment.add(position.index as usize)).0 })
    }
}

impl<T: Default> Default for ThreadSlots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for ThreadSlots<T> {
    fn drop(&mut self) {
        for (number, segment) in self.segments.iter().enumerate() {
            // Relaxed: the owner of `&mut self` has synchronised with every user.
            let first = segment.load(Ordering::Relaxed);
            if !first.is_null() {
                let slots = ptr::slice_from_raw_parts_mut(first, FIRST << number);
                // SAFETY: `allocate` made it from a box of this length.
                drop(unsafe { Box::from_raw(slots) });
            }
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ThreadSlots<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    #[test]
    fn each_number_has_a_slot_of_its_own() {
        let slots = ThreadSlots::<AtomicU64>::new();
        assert_eq!((slots.iter().count(), slots.get(0).is_none()), (1, true));
        let own: BTreeSet<_> = (0..LIMIT)
            .map(|number| ptr::from_ref(slots.of(number).unwrap()))
            .collect();
        assert_eq!((own.len(), slots.iter().count()), (LIMIT, LIMIT + 1));
        assert!(slots.of(LIMIT).is_none() && slots.get(usize::MAX).is_none());
        assert!(
            slots
                .iter()
                .take(LIMIT)
                .enumerate()
                .all(|(n, slot)| ptr::eq(slot, slots.get(n).unwrap()))
        );
    }

    #[test]
    fn memory_follows_the_highest_number() {
        let slots = ThreadSlots::<AtomicU64>::new();
        for number in [0, 63, 64, 191, 192, 1000, 5000] {
            slots.of(number);
            assert!(slots.of(0).is_some());
        }
        // Segments in between that no thread needed are missing.
        assert_eq!(slots.iter().count(), 1 + 64 + 128 + 256 + 1024 + 4096);
    }

    #[test]
    fn slots_are_dropped_with_the_object() {
        struct Counting<'a>(&'a AtomicU64);
        impl Drop for Counting<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let dropped = &AtomicU64::new(0);
        let slots = ThreadSlots::<std::sync::Mutex<Option<Counting<'_>>>>::new();
        for number in [3, 70, 300] {
            *slots.of(number).unwrap().lock().unwrap() = Some(Counting(dropped));
        }
        drop(slots);
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn threads_that_race_for_a_segment_find_one() {
        for _ in 0..if cfg!(miri) { 5 } else { 200 } {
            let slots = &ThreadSlots::<AtomicU64>::new();
            thread::scope(|scope| {
                for number in 64..72 {
                    scope.spawn(move || slots.of(number).unwrap().fetch_add(1, Ordering::Relaxed));
                }
            });
            assert!((64..72).all(|number| slots.get(number).unwrap().load(Ordering::Relaxed) == 1));
        }
    }
}
