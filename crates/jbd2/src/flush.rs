//! Flushes of a volume that make file contents durable and close no transaction.
//!
//! `Transactions` calls it for `fdatasync` of contents written over existing blocks; the committer
//! notes its own flushes here.
//!
//! Contents written over blocks that a file already had are durable once the device has been
//! flushed. A caller that needs this asks for the first [flush](Flush) that covers its writes. A
//! caller that finds no flush under way makes one, for all waiting callers. Commits flush the
//! device as well, and count as flushes.
//!
//! # Why a flush covers the writes made before `next` named it
//! A writer writes to the device, executes a fence, and loads `begun`. A flusher adds to `begun`,
//! executes a fence, and flushes the device. If the writer's load does not see a flush as begun,
//! that flush covers the written bytes. If the load does see it, `next` returns a later flush.

use std::sync::PoisonError;

use extern4_sync::primitive::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, fence};

/// A flush of the volume, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flush(u64);

/// The latest flush that any caller has noted here.
///
/// # Why waiting for it is enough
/// The number only grows. `note` raises it to the given flush or finds a higher one. A caller that
/// reads it after its writes completed therefore waits for a flush that covers them.
///
/// All accesses are relaxed: the number guards no other memory, and the order between `note` and
/// `get` comes from the caller.
#[derive(Debug, Default)]
pub struct LastFlush(AtomicU64);

impl LastFlush {
    /// Notes a flush. Noting a flush again stores nothing.
    #[inline]
    pub fn note(&self, flush: Flush) {
        if self.0.load(Ordering::Relaxed) < flush.0 {
            self.0.fetch_max(flush.0, Ordering::Relaxed);
        }
    }

    /// Returns the latest noted flush; before the first note, a flush that has already been made.
    pub fn get(&self) -> Flush {
        Flush(self.0.load(Ordering::Relaxed))
    }
}

/// The flushes of a volume: how many have begun, and the latest that succeeded.
///
/// | field | written by | read by | orderings |
/// |---|---|---|---|
/// | `begun` | `begin` | `next` | Relaxed, between `SeqCst` fences on both sides |
#[derive(Default)]
pub(crate) struct Flushes {
    begun: AtomicU64,
    state: Mutex<FlushState>,
    ended: Condvar,
}

#[derive(Default)]
struct FlushState {
    /// The latest flush that has succeeded.
    done: Flush,
    /// Whether a thread is flushing for all waiting threads.
    is_under_way: bool,
}

impl Flushes {
    fn state(&self) -> MutexGuard<'_, FlushState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first flush that covers everything this thread has written so far.
    pub(crate) fn next(&self) -> Flush {
        // SeqCst: pairs with the fence in `begin`.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        Flush(self.begun.load(Ordering::Relaxed) + 1)
    }

    /// Begins a flush. A thread that flushes the device calls this before, and [`end`](Self::end)
    /// after.
    pub(crate) fn begin(&self) -> Flush {
        // Relaxed: ordered by the fence.
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        // SeqCst: pairs with the fence in `next`.
        fence(Ordering::SeqCst);
        Flush(number)
    }

    /// Notes that `flush` has succeeded, whether or not flushes that began before it have.
    pub(crate) fn end(&self, flush: Flush) {
        let mut state = self.state();
        state.done = state.done.max(flush);
    }

    /// Returns when `wanted` or a later flush has succeeded; calls `flush` if no other thread is
    /// flushing. Locks: none is held while `flush` runs.
    pub(crate) fn wait<E>(
        &self,
        wanted: Flush,
        flush: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.state();
        while state.is_under_way && state.done < wanted {
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.done >= wanted {
            return Ok(());
        }
        state.is_under_way = true;
        drop(state);
        // Runs however this ends, by an error or a panic too.
        let _under_way = UnderWay(self);
        let begun = self.begin();
        flush()?;
        self.end(begun);
        Ok(())
    }
}

/// Wakes the waiting threads when the flush made for them ends.
struct UnderWay<'f>(&'f Flushes);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state().is_under_way = false;
        self.0.ended.notify_all();
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn one_flush_covers_all_earlier_writers() {
        const WRITERS: usize = 8;
        let flushes = Flushes::default();
        let made = AtomicU64::new(0);
        let barrier = Barrier::new(WRITERS);
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    let wanted = flushes.next();
                    let count = || {
                        made.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, ()>(())
                    };
                    barrier.wait();
                    flushes.wait(wanted, count).expect("a flush");
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }

    #[test]
    fn of_flushes_that_are_noted_in_any_order_the_last_counts() {
        let last = LastFlush::default();
        assert_eq!(last.get(), Flush::default());
        for (noted, left) in [(3, 3), (2, 3), (3, 3), (7, 7), (5, 7)] {
            last.note(Flush(noted));
            assert_eq!(last.get(), Flush(left));
        }
    }

    #[test]
    fn a_flush_is_repeated_only_after_a_failure() {
        let flushes = Flushes::default();
        let mut made = 0;
        let mut wait = |wanted, result: Result<(), u8>| {
            let result = flushes.wait(wanted, || {
                made += 1;
                result
            });
            (result, made)
        };
        let first = flushes.next();
        assert_eq!(wait(first, Err(5)), (Err(5), 1));
        assert_eq!(wait(first, Ok(())), (Ok(()), 2));
        assert_eq!(wait(first, Ok(())), (Ok(()), 2));
        assert!(flushes.next() > first);
        assert_eq!(wait(flushes.next(), Ok(())), (Ok(()), 3));
    }
}
