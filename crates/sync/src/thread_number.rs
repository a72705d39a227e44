//! A small number for each living thread.
//!
//! A new thread takes the smallest number that is free, so all numbers are below the most threads
//! that lived at one time. A lock hands each number on: the next owner sees all that the last one
//! stored.
//!
//! `thread_slots` calls it. Two living threads never have the same number; a thread that is ending
//! has none.

use std::cell::Cell;
use std::collections::BTreeSet;
#[cfg(not(feature = "loom"))]
use std::sync::MutexGuard;
use std::sync::{Mutex, PoisonError};

#[cfg(not(feature = "loom"))]
use crate::fork::{AtFork, HeldAtFork};
use crate::thread_slots::{LIMIT, Position};

/// Numbers that no living thread has.
static FREE: Mutex<Numbers> = Mutex::new(Numbers {
    returned: BTreeSet::new(),
    next: 0,
});

/// Holds [`FREE`] while a thread forks. In the child, the numbers of the threads that it does not
/// have stay taken: their slots may be half changed.
#[cfg(not(feature = "loom"))]
static AT_FORK: AtFork = {
    static HELD: HeldAtFork<MutexGuard<'static, Numbers>> = HeldAtFork::new();
    extern "C" fn before() {
        // SAFETY: this is the handler before the fork.
        unsafe { HELD.keep(FREE.lock().unwrap_or_else(PoisonError::into_inner)) };
    }
    extern "C" fn after() {
        // SAFETY: this is the handler after the fork.
        drop(unsafe { HELD.release() });
    }
    AtFork::new(before, after, after)
};

struct Numbers {
    returned: BTreeSet<usize>,
    next: usize,
}

impl Numbers {
    /// Takes the smallest number, so that slots of high numbers are used only while there are that
    /// many threads.
    fn take(&mut self) -> usize {
        self.returned.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// The number of a thread, and the position of its slots.
#[derive(Clone, Copy)]
struct Own {
    number: usize,
    #[cfg_attr(
        feature = "loom",
        expect(
            dead_code,
            reason = "models have few threads, and search for their slots"
        )
    )]
    position: Position,
}

const UNKNOWN: Own = Own {
    number: usize::MAX,
    position: Position::NONE,
};
const ENDED: Own = Own {
    number: LIMIT,
    position: Position::NONE,
};

/// Gives the thread's number back when the thread ends.
struct Ticket(usize);

impl Drop for Ticket {
    fn drop(&mut self) {
        // Code that runs later in this thread's end uses the shared slots.
        let _ = OWN.try_with(|own| own.set(ENDED));
        FREE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .returned
            .insert(self.0);
    }
}

thread_local! {
    static OWN: Cell<Own> = const { Cell::new(UNKNOWN) };
    static TICKET: Cell<Option<Ticket>> = const { Cell::new(None) };
}

/// Returns a number that no other living thread has. While the thread ends, it is [`LIMIT`], which
/// owns no slot.
#[inline]
pub fn thread_number() -> usize {
    match OWN.get().number {
        usize::MAX => draw(),
        number => number,
    }
}

/// Returns the position of the thread's slots; [`Position::NONE`] before the first call of
/// [`thread_number`].
#[cfg(not(feature = "loom"))]
#[inline(always)]
pub(crate) fn own_position() -> Position {
    OWN.get().position
}

#[cold]
fn draw() -> usize {
    #[cfg(not(feature = "loom"))]
    AT_FORK.register();
    let number = FREE.lock().unwrap_or_else(PoisonError::into_inner).take();
    OWN.set(Own {
        number,
        position: Position::of(number),
    });
    let ticket = Ticket(number);
    // A thread that is ending keeps no ticket: dropping it gives the number back at once and leaves
    // the shared slots.
    let _ = TICKET.try_with(|own| own.set(Some(ticket)));
    OWN.get().number
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_number_is_used_again_first() {
        let mut numbers = Numbers {
            returned: BTreeSet::new(),
            next: 0,
        };
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
