//! Counters that each thread adds to alone, so that counting costs a load and a store.
//!
//! Every thread has a small number of its own while it lives ([`thread_number`]), and a [`Tally`] has a slot for each of
//! the first numbers; threads with higher ones share the last slot and count there with a locked addition. A slot has
//! one writer at a time: a number is handed on under a lock, so what its last owner stored is there for the next one.
//! No addition is lost. A sum counts each addition that happened before it, and may or may not count concurrent ones.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::percpu::Padded;
use crate::primitive::{AtomicU64, Ordering};

/// Slots of a tally: all but the last are for one thread each.
#[cfg(not(feature = "loom"))]
pub(crate) const SLOTS: usize = 64;
/// In models all threads share one, since there is one thread of the system behind them.
#[cfg(feature = "loom")]
pub(crate) const SLOTS: usize = 1;

const UNKNOWN: usize = usize::MAX;

/// Numbers that no living thread has.
static FREE: Mutex<Numbers> = Mutex::new(Numbers { returned: BTreeSet::new(), next: 0 });

struct Numbers {
    returned: BTreeSet<usize>,
    next: usize,
}

impl Numbers {
    /// The smallest, so that of a process that once had more threads than there are slots, those that are left have some.
    fn take(&mut self) -> usize {
        self.returned.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// Gives the thread's number back when the thread ends.
struct Ticket(usize);

impl Drop for Ticket {
    fn drop(&mut self) {
        // What runs later in this thread's end counts in the shared slot.
        let _ = NUMBER.try_with(|number| number.set(SLOTS));
        FREE.lock().unwrap_or_else(PoisonError::into_inner).returned.insert(self.0);
    }
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    static TICKET: Cell<Option<Ticket>> = const { Cell::new(None) };
}

/// A number that no other living thread has; the smallest ones first.
#[inline]
pub fn thread_number() -> usize {
    match NUMBER.get() {
        UNKNOWN => draw(),
        number => number,
    }
}

#[cold]
fn draw() -> usize {
    let number = FREE.lock().unwrap_or_else(PoisonError::into_inner).take();
    NUMBER.set(number);
    let ticket = Ticket(number);
    // A thread that is ending keeps no ticket: dropping it gives the number back at once and leaves the shared slot.
    let _ = TICKET.try_with(|own| own.set(Some(ticket)));
    NUMBER.get()
}

/// The thread's own of these slots, of which the last is for all threads that have none.
#[inline(always)]
pub(crate) fn own_slot<T>(slots: &[T; SLOTS]) -> Option<&T> {
    let own = |number: usize| slots[..SLOTS - 1].get(number);
    // Nearly always it is one of the first numbers, and so not unknown.
    own(NUMBER.get()).or_else(|| own(thread_number()))
}

/// `N` counters.
#[derive(Debug)]
pub struct Tally<const N: usize> {
    slots: Box<[Padded<[AtomicU64; N]>; SLOTS]>,
}

impl<const N: usize> Tally<N> {
    /// Counters at zero.
    pub fn new() -> Self {
        let slot = |_| Padded(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { slots: Box::new(std::array::from_fn(slot)) }
    }

    /// Adds to each counter, wrapping.
    #[inline(always)]
    pub fn add(&self, counts: [u64; N]) {
        // Relaxed: counts order nothing.
        if let Some(slot) = own_slot(&self.slots) {
            for (sum, count) in slot.iter().zip(counts) {
                if count > 0 {
                    sum.store(sum.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
                }
            }
        } else {
            for (sum, count) in self.slots[SLOTS - 1].iter().zip(counts) {
                if count > 0 {
                    sum.fetch_add(count, Ordering::Relaxed);
                }
            }
        }
    }

    /// Everything added so far, wrapping.
    pub fn sum(&self) -> [u64; N] {
        let sum = |index: usize| {
            let add = |sum: u64, slot: &Padded<[AtomicU64; N]>| {
                sum.wrapping_add(slot[index].load(Ordering::Relaxed))
            };
            self.slots.iter().fold(0, add)
        };
        std::array::from_fn(sum)
    }
}

impl<const N: usize> Default for Tally<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn no_addition_of_any_thread_is_lost() {
        let tally = &Tally::<2>::new();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(move || (0..1000).for_each(|n| tally.add([1, n & 1])));
                }
            });
        }
        assert_eq!(tally.sum(), [200_000, 100_000]);
    }

    #[test]
    fn the_smallest_number_is_used_again_first() {
        let mut numbers = Numbers { returned: BTreeSet::new(), next: 0 };
        assert_eq!([0; 5].map(|_| numbers.take()), [0, 1, 2, 3, 4]);
        numbers.returned.extend([3, 0, 4]);
        assert_eq!([0; 4].map(|_| numbers.take()), [0, 3, 4, 5]);
    }

    #[test]
    fn numbers_are_used_again() {
        for _ in 0..1000 {
            let number = std::thread::spawn(thread_number).join().unwrap();
            assert!(number < 500, "{number}");
        }
    }
}
