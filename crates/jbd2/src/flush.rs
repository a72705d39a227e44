//! Flushes of a volume that make file contents durable and close no transaction.
//!
//! Contents that were written over blocks which a file had already are durable when the device has been flushed. Who asks for that names
//! the first [flush](Flush) that covers what he has written; whoever finds none under way makes one, for all who wait. Commits flush the
//! device as well, and are counted as flushes.
//!
//! # Why a flush covers what was written before it was named
//! Who writes has the device take the bytes, executes a fence, and loads `begun`. Who flushes adds to `begun`, executes a fence, and has the
//! device flushed. So if the load does not see a flush as begun, that flush sees the bytes; and a flush that it does see is not the one
//! that is named.

use std::sync::PoisonError;

use extern4_sync::primitive::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, fence};

/// One of the flushes, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flush(u64);

/// The last of the flushes that were noted here, whoever noted it first.
///
/// # Why who waits for it waits long enough
/// The number only rises. Who notes a flush either raises it to that, or has found one that is no less; who asks and comes after him, as
/// who asks for contents to be durable comes after those who have written them, finds what he left or found, or what came later.
///
/// Relaxed, all: it guards nothing, and between who notes and who asks is what makes the one come after the other.
#[derive(Debug, Default)]
pub struct LastFlush(AtomicU64);

impl LastFlush {
    /// Notes a flush. Who notes the same again stores nothing.
    #[inline]
    pub fn note(&self, flush: Flush) {
        if self.0.load(Ordering::Relaxed) < flush.0 {
            self.0.fetch_max(flush.0, Ordering::Relaxed);
        }
    }

    /// The last that was noted; if none was, then one that has been made.
    pub fn get(&self) -> Flush {
        Flush(self.0.load(Ordering::Relaxed))
    }
}

/// | field | written by | read by | orderings |
/// |---|---|---|---|
/// | `begun` | `begin` | `next` | Relaxed, between `SeqCst` fences on both sides |
#[derive(Default)]
pub(crate) struct Flushes {
    begun: AtomicU64,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// The last that has succeeded.
    done: Flush,
    /// Somebody flushes for all who wait.
    is_under_way: bool,
}

impl Flushes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first flush that covers what this thread has written so far.
    pub(crate) fn next(&self) -> Flush {
        // SeqCst: pairs with the fence in `begin`.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        Flush(self.begun.load(Ordering::Relaxed) + 1)
    }

    /// Who flushes says so before, and [after](Self::end) that.
    pub(crate) fn begin(&self) -> Flush {
        // Relaxed: ordered by the fence.
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        // SeqCst: pairs with the fence in `next`.
        fence(Ordering::SeqCst);
        Flush(number)
    }

    /// That flush has succeeded, whatever those have that began before.
    pub(crate) fn end(&self, flush: Flush) {
        let mut state = self.state();
        state.done = state.done.max(flush);
    }

    /// Returns when that flush is through, or a later one; makes one by `flush` if nobody does. Locks: none is held while `flush` runs.
    pub(crate) fn wait<E>(&self, wanted: Flush, flush: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state();
        while state.is_under_way && state.done < wanted {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.done >= wanted {
            return Ok(());
        }
        state.is_under_way = true;
        drop(state);
        // However this ends.
        let _under_way = UnderWay(self);
        let begun = self.begin();
        flush()?;
        self.end(begun);
        Ok(())
    }
}

/// Tells those who wait when the flush is over that is made for them.
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
    fn one_flush_is_enough_for_all_who_wrote_before_it() {
        const WRITERS: usize = 8;
        let (flushes, made, barrier) = (Flushes::default(), AtomicU64::new(0), Barrier::new(WRITERS));
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
    fn what_was_flushed_is_not_flushed_again_and_what_failed_is() {
        let (flushes, mut made) = (Flushes::default(), 0);
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
