//! What has been learned of something that may be there or not: nothing yet, that it is not there, or it, which is counted.
//!
//! Readers follow the pointer in a read section ([`crate::rcu`]), with no lock, no count and nothing in between: what is there is
//! pointed to directly, and that nothing is there is an address at which nothing can be.
//!
//! A [`Learned`] is filled once by who has asked, and only if nobody has set it; what is set takes the place of all that there was. So who
//! asks and is slow never puts something old in the place of something new, and what has been learned is never unlearned.
//!
//! # Orderings
//! What is pointed to is published whole: the Release of the exchange that stores the pointer (P) pairs with the Acquire of who loads it (L).
//! It is taken out first and given back when every read section of that moment has ended; until then the pointer's own count keeps
//! it, so that a reader may make itself a count of its own.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use crate::primitive::{AtomicPtr, Ordering};
use crate::rcu::{Guard, pin};

/// A pointer to a counted value, or the answer that there is none, or no answer.
pub struct Learned<T> {
    /// Null: no answer. [`nothing`]: there is none. Otherwise from [`Arc::into_raw`], and one of the value's counts is ours.
    ptr: AtomicPtr<T>,
    owns: PhantomData<Arc<T>>,
}

// The bounds hold for whatever puts a value in, so for every value there is: `Send` because it is dropped on any thread, `Sync`
// because readers share it, `'static` because it is dropped later than its last use.
impl<T: Send + Sync + 'static> Learned<T> {
    /// What is known; `None` if nobody has asked.
    #[inline]
    pub fn get<'g>(&'g self, _guard: &'g Guard) -> Option<Option<&'g T>> {
        // Acquire: L.
        match self.ptr.load(Ordering::Acquire) {
            ptr if ptr.is_null() => None,
            ptr if ptr == nothing() => Some(None),
            // SAFETY: it came from `Arc::into_raw`, and our count was not given back before the guard pinned.
            // SAFETY: it is given back after the guard, and not while `self` is borrowed.
            ptr => Some(Some(unsafe { &*ptr })),
        }
    }

    /// The same, with a count of the caller's.
    pub fn get_counted(&self, guard: &Guard) -> Option<Option<Arc<T>>> {
        let counted = |value: &T| {
            let ptr = ptr::from_ref(value);
            // SAFETY: `get` found it where pointers from `Arc::into_raw` are, and our count keeps it as long as the guard lives.
            unsafe { Arc::increment_strong_count(ptr) };
            // SAFETY: with the count just made.
            unsafe { Arc::from_raw(ptr) }
        };
        self.get(guard).map(|known| known.map(counted))
    }

    /// Notes an answer if there is none yet; says whether it did.
    pub fn fill(&self, value: Option<Arc<T>>) -> bool {
        let new = into_raw(value);
        // Release: P. Relaxed on failure: nothing is read.
        let filled = self.ptr.compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed);
        if filled.is_err() {
            // SAFETY: it came from `into_raw`, and nobody else has seen it.
            drop(unsafe { from_raw(new) });
        }
        filled.is_ok()
    }

    /// Notes what is so from now on. What was known before stays readable for who reads now.
    pub fn set(&self, value: Option<Arc<T>>) {
        // AcqRel: P for the new value, and L for the old one, which is dropped by us.
        let old = self.ptr.swap(into_raw(value), Ordering::AcqRel);
        if !old.is_null() && old != nothing() {
            // SAFETY: `T` is `Send + Sync + 'static`, so its count may be given back on any thread at any later time.
            // SAFETY: the swap took `old` out, only one thread can have, and by then no reader is left that found it.
            unsafe { pin().defer(move || drop(from_raw(old))) };
        }
    }
}

/// Where nothing can be.
fn nothing<T>() -> *mut T {
    ptr::dangling_mut()
}

fn into_raw<T>(value: Option<Arc<T>>) -> *mut T {
    value.map_or(nothing(), |value| Arc::into_raw(value).cast_mut())
}

/// # Safety
/// `ptr` is null or came from [`into_raw`], and nobody takes it back but the caller.
unsafe fn from_raw<T>(ptr: *mut T) -> Option<Arc<T>> {
    let is_some = !ptr.is_null() && ptr != nothing();
    // SAFETY: by the caller's promise, the count that it stands for is ours.
    is_some.then(|| unsafe { Arc::from_raw(ptr) })
}

impl<T> Default for Learned<T> {
    fn default() -> Self {
        Self { ptr: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }
}

impl<T> Drop for Learned<T> {
    fn drop(&mut self) {
        // Relaxed: `&mut self` came from a thread that synchronised with every user.
        let ptr = self.ptr.load(Ordering::Relaxed);
        // SAFETY: readers borrow `self`, so none has found what is in place now.
        drop(unsafe { from_raw(ptr) });
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Learned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Learned").field(&self.get(&pin())).finish()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::rcu::tests::freed;

    #[test]
    fn the_first_answer_stays_until_another_is_set() {
        let (one, two) = (Arc::new(1), Arc::new(2));
        let learned = Learned::default();
        let guard = pin();
        assert_eq!((learned.get(&guard), learned.get_counted(&guard)), (None, None));
        assert!(learned.fill(None) && !learned.fill(Some(one.clone())));
        assert_eq!((learned.get(&guard), Arc::strong_count(&one)), (Some(None), 1));
        learned.set(Some(one.clone()));
        assert!(!learned.fill(None) && !learned.fill(Some(two.clone())));
        assert_eq!((learned.get(&guard), Arc::strong_count(&two)), (Some(Some(&1)), 1));
        learned.set(None);
        assert_eq!(learned.get(&guard), Some(None));
    }

    #[test]
    fn what_is_replaced_lives_until_its_readers_leave() {
        let (old, new) = (Arc::new(1), Arc::new(2));
        let learned = Learned::default();
        assert!(learned.fill(Some(old.clone())));
        let guard = pin();
        let seen = learned.get(&guard);
        let counted = learned.get_counted(&guard).flatten().expect("it is there");
        assert!(Arc::ptr_eq(&counted, &old) && Arc::strong_count(&old) == 3);
        learned.set(Some(new.clone()));
        assert_eq!((seen, learned.get(&guard)), (Some(Some(&1)), Some(Some(&2))));
        drop((guard, counted));
        assert!(freed(&old));
        drop(learned);
        assert_eq!(Arc::strong_count(&new), 1);
    }
}
