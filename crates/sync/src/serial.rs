//! Numbers that are each given out once.
//!
//! A thread takes a lot of them at a time, so that giving one out writes nothing that another thread uses. They are not in order.

use std::cell::Cell;

use crate::per_thread::PerThread;
use crate::primitive::{AtomicU64, Ordering};

/// Numbers that a thread takes at a time. What is left of them when it ends goes to the next thread that has its place.
const LOT: u64 = 1024;

/// Gives numbers out.
pub struct Serial {
    next: AtomicU64,
    own: PerThread<Cell<Lot>>,
}

/// What a thread has left.
#[derive(Clone, Copy, Default)]
struct Lot {
    next: u64,
    end: u64,
}

impl Serial {
    /// Numbers from `first` on.
    pub fn new(first: u64) -> Self {
        Self { next: AtomicU64::new(first), own: PerThread::new() }
    }

    /// A number that was not given out before.
    #[inline]
    pub fn take(&self) -> u64 {
        let of_own = |own: &Cell<Lot>| {
            let mut lot = own.get();
            if lot.next == lot.end {
                lot.next = self.reserve(LOT);
                lot.end = lot.next + LOT;
            }
            own.set(Lot { next: lot.next + 1, ..lot });
            lot.next
        };
        // Threads that are too many have no place.
        self.own.with(of_own).unwrap_or_else(|| self.reserve(1))
    }

    fn reserve(&self, count: u64) -> u64 {
        // Relaxed: only uniqueness counts.
        self.next.fetch_add(count, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_number_is_given_out_twice() {
        const EACH: usize = 5000;
        let serial = &Serial::new(7);
        let numbers = std::thread::scope(|scope| {
            let take = || (0..EACH).map(|_| serial.take()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..100).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<BTreeSet<_>>()
        });
        assert_eq!((numbers.len(), numbers.first()), (100 * EACH, Some(&7)));
    }
}
