//! Bags: deferred destructors, many to one.
//!
//! A thread of [`epoch`](super) pushes a destructor for each value that it retires, and a full bag
//! is sealed and run as a whole. So the cost of a barrier is shared by all destructors of a bag.
//! Each runs once; one that is dropped unrun leaks its value, and never frees it early.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;

use crate::primitive::capacity;

/// Destructors in a bag.
pub(super) const BAG: usize = capacity(64, 2);

/// Captured variables of a closure that fit into the bag: three words.
type Words = [*mut (); 3];

/// A closure that runs once, on any thread. If it is dropped instead, it leaks.
pub(super) struct Deferred {
    run: unsafe fn(*mut Words),
    captured: MaybeUninit<Words>,
}

// SAFETY: `Deferred::new` requires closures that any thread may run.
unsafe impl Send for Deferred {}

impl Deferred {
    /// Stores a closure.
    ///
    /// # Safety
    /// `closure` must be sound to run on any thread, at any later time.
    pub(super) unsafe fn new<F: FnOnce() + 'static>(closure: F) -> Self {
        let mut captured = MaybeUninit::<Words>::uninit();
        if size_of::<F>() <= size_of::<Words>() && align_of::<F>() <= align_of::<Words>() {
            // SAFETY: `captured` is large enough and aligned for an `F`.
            unsafe { captured.as_mut_ptr().cast::<F>().write(closure) };
            Self {
                run: run::<F>,
                captured,
            }
        } else {
            // SAFETY: a box is a word.
            unsafe {
                captured
                    .as_mut_ptr()
                    .cast::<Box<F>>()
                    .write(Box::new(closure))
            };
            Self {
                run: run::<Box<F>>,
                captured,
            }
        }
    }

    pub(super) fn run(self) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `new` stored in `captured` what `run` reads, and it is not used again.
        unsafe { (this.run)(this.captured.as_mut_ptr()) }
    }
}

/// Reads a closure of type `F` and runs it.
///
/// # Safety
/// `captured` holds an `F` that has no other user.
unsafe fn run<F: FnOnce()>(captured: *mut Words) {
    // SAFETY: the caller's promise.
    let closure = unsafe { captured.cast::<F>().read() };
    closure();
}

/// Destructors that one thread retired and that run together.
pub(super) struct Bag {
    /// The epoch in which the bag was sealed.
    pub(super) stamp: u64,
    /// The next bag in a stack of bags.
    pub(super) next: *mut Bag,
    deferred: Vec<Deferred>,
}

// SAFETY: a bag owns its closures. Only the owner of a whole stack follows `next`.
unsafe impl Send for Bag {}

impl Default for Bag {
    fn default() -> Self {
        Self {
            stamp: 0,
            next: ptr::null_mut(),
            deferred: Vec::with_capacity(BAG),
        }
    }
}

impl Bag {
    pub(super) fn push(&mut self, deferred: Deferred) {
        self.deferred.push(deferred);
    }

    pub(super) fn pop(&mut self) -> Option<Deferred> {
        self.deferred.pop()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.deferred.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.deferred.len() >= BAG
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn check<F: FnOnce() + 'static>(count: &Rc<()>, closure: F) {
        assert_eq!(Rc::strong_count(count), 2);
        // SAFETY: it runs here and now.
        unsafe { Deferred::new(closure) }.run();
        assert_eq!(Rc::strong_count(count), 1);
    }

    #[test]
    fn closures_of_all_sizes_run_once() {
        #[repr(align(64))]
        struct Aligned(u8);

        let count = &Rc::new(());
        let mine = count.clone();
        let words = [1u64, 2];
        check(count, move || drop(mine));
        let mine = count.clone();
        check(count, move || {
            assert_eq!((Rc::strong_count(&mine), words), (2, [1, 2]))
        });
        let mine = count.clone();
        let words = [3u64; 100];
        check(count, move || {
            assert_eq!((Rc::strong_count(&mine), words), (2, [3; 100]))
        });
        let mine = count.clone();
        let aligned = Aligned(5);
        check(count, move || {
            let aligned = &aligned;
            assert!(ptr::from_ref(aligned).is_aligned());
            assert_eq!((Rc::strong_count(&mine), aligned.0), (2, 5));
        });
    }
}
