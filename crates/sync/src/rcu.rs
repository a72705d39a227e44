//! Read-copy-update: pointers that readers follow without a lock, a reference count or a shared store.
//!
//! A reader pins ([`pin`]) and follows pointers; what it saw stays allocated until it drops its [`Guard`]. A writer
//! publishes a new value, and frees the old one once every reader that was pinned at that time has gone.
//!
//! Rules:
//! 1. Never wait while pinned: no device read, no blocking lock. One pinned sleeper stops all freeing.
//! 2. A value is published complete: the `Release` store or exchange of the pointer (P) pairs with the readers'
//!    `Acquire` load (L), so a reader sees the value as it was when it was published, and changes to it only through
//!    its own atomics.
//! 3. A value is unlinked first and retired after: a reader that pins after the unlinking cannot find it, a reader
//!    that could find it was pinned before, and the epoch waits for that one.
//!
//! 4. A destructor may run on any thread that retires or flushes, within that call and under the locks that are held
//!    around it, or that ends; it never runs while pinning or unpinning. So it takes no lock under which somebody
//!    retires. It may pin, retire and flush.
//!
//! Pinning nests cheaply; callers with many lookups pin once around them.
//!
//! The module `epoch` does the waiting. Under loom a small model takes its place, which runs a retired value's
//! destructor at the earliest moment that rule 3 allows, namely when the last guard goes.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::primitive::{AtomicPtr, Ordering};
use crate::slab;

#[cfg(not(feature = "loom"))]
use crate::epoch::local as epoch;
#[cfg(feature = "loom")]
use model as epoch;

/// The read section: values seen through it stay allocated while it lives. Belongs to the thread that made it.
pub struct Guard(epoch::Guard);

/// Enters a read section, which lasts until the returned guard is dropped.
#[inline]
pub fn pin() -> Guard {
    Guard(epoch::pin())
}

impl Guard {
    /// Hands what this thread has retired over to be freed as soon as the readers allow it, instead of when enough
    /// has come together, and frees a bounded part of what they allow now. This guard is one of the readers: what was
    /// retired since it pinned is freed by a later flush, the next one if there is not too much of it.
    pub fn flush(&self) {
        self.0.flush();
    }

    /// Frees all that this thread and ended threads have retired, as far as the readers allow it. Guards of this thread are
    /// readers, too.
    pub fn flush_all(&self) {
        self.0.flush_all();
    }

    /// Runs `retire` once every read section that exists now has ended; on which thread is not said.
    ///
    /// # Safety
    /// `retire` must be sound to run on any thread, at any later time.
    pub(crate) unsafe fn defer<F: FnOnce() + 'static>(&self, retire: F) {
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { self.0.defer(retire) }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Guard")
    }
}

/// A shared pointer to an immutable value, or to nothing, that is replaced as a whole.
pub struct RcuOption<T> {
    ptr: AtomicPtr<T>,
    owns: PhantomData<Box<T>>,
}

// The bounds hold for every constructor, so for every value there is: `Send` because a value is dropped on any
// thread, `Sync` because readers share it, `'static` because it is dropped later than its last use.
impl<T: Send + Sync + 'static> RcuOption<T> {
    /// A pointer to `value`.
    pub fn new(value: Option<T>) -> Self {
        Self { ptr: AtomicPtr::new(into_raw(value)), owns: PhantomData }
    }

    /// The value now.
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> Option<&'g T> {
        // Acquire: L, pairs with the Release of the store that published the value (P).
        let ptr = self.ptr.load(Ordering::Acquire);
        // SAFETY: `ptr` is null or came from `into_raw`, and was not retired before the guard pinned.
        // SAFETY: retirement waits for the guard, and dropping `self` waits for this borrow of it.
        unsafe { ptr.as_ref() }
    }

    /// Whether there is no value now. Needs no guard, since it follows no pointer.
    #[inline]
    pub fn is_none(&self) -> bool {
        // Acquire: what the thread that cleared the pointer did before is visible to who saw it cleared.
        self.ptr.load(Ordering::Acquire).is_null()
    }

    /// Replaces the value. The old one stays readable while `guard` lives.
    pub fn swap<'g>(&'g self, value: Option<T>, guard: &'g Guard) -> Option<&'g T> {
        // AcqRel: P for the new value, and L for the old one, which the caller may read.
        let old = self.ptr.swap(into_raw(value), Ordering::AcqRel);
        // SAFETY: the swap unlinked `old`, and only one thread can have unlinked it.
        unsafe { retire(old, guard) };
        // SAFETY: as in `load`; `guard` was pinned before `old` was retired.
        unsafe { old.as_ref() }
    }

    /// Stores a value if there is none. Returns whether it did.
    pub fn fill(&self, value: T) -> bool {
        let new = into_raw(Some(value));
        // Release: P. Relaxed on failure: nothing is read.
        let stored = self.ptr.compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed);
        if stored.is_err() {
            // SAFETY: it came from `into_raw`, and no other thread has seen it.
            drop(unsafe { from_raw(new) });
        }
        stored.is_ok()
    }

    /// Replaces the value.
    pub fn store(&self, value: Option<T>) {
        self.swap(value, &pin());
    }
}

impl<T> Drop for RcuOption<T> {
    fn drop(&mut self) {
        // Relaxed: `&mut self` came from a thread that synchronised with every user.
        let ptr = self.ptr.load(Ordering::Relaxed);
        // SAFETY: loads borrow `self`, so no reader holds the value now in place.
        drop(unsafe { from_raw(ptr) });
    }
}

impl<T: Send + Sync + 'static> Default for RcuOption<T> {
    fn default() -> Self {
        Self::new(None)
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for RcuOption<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuOption").field(&self.load(&pin())).finish()
    }
}

/// A shared pointer to an immutable value that is replaced as a whole.
#[derive(Debug)]
pub struct Rcu<T: Send + Sync + 'static>(RcuOption<T>);

impl<T: Send + Sync + 'static> Rcu<T> {
    /// A pointer to `value`.
    pub fn new(value: T) -> Self {
        Self(RcuOption::new(Some(value)))
    }

    /// The value now.
    #[inline]
    pub fn load<'g>(&'g self, guard: &'g Guard) -> &'g T {
        present(self.0.load(guard))
    }

    /// Replaces the value. The old one stays readable while `guard` lives.
    pub fn swap<'g>(&'g self, value: T, guard: &'g Guard) -> &'g T {
        present(self.0.swap(Some(value), guard))
    }

    /// Replaces the value.
    pub fn store(&self, value: T) {
        self.0.store(Some(value));
    }
}

#[inline]
fn present<T>(value: Option<&T>) -> &T {
    value.expect("an Rcu always holds a value")
}

fn into_raw<T>(value: Option<T>) -> *mut T {
    value.map_or(ptr::null_mut(), |value| slab::alloc(value).as_ptr())
}

/// # Safety
/// `ptr` is null or came from [`into_raw`], and nobody else uses it now or later.
unsafe fn from_raw<T>(ptr: *mut T) -> Option<T> {
    // SAFETY: by the caller's promise, the value is ours alone.
    NonNull::new(ptr).map(|at| unsafe { slab::take_value(at) })
}

/// Frees `ptr` once every read section that exists now has ended.
///
/// # Safety
/// `ptr` is null or came from [`into_raw`], new readers cannot find it, and nobody else retires it.
unsafe fn retire<T: Send + 'static>(ptr: *mut T, guard: &Guard) {
    if !ptr.is_null() {
        // SAFETY: `T: Send + 'static`, so its destructor may run on any thread at any later time.
        // SAFETY: by then no reader is left that could have found the value.
        unsafe { guard.defer(move || drop(from_raw(ptr))) };
    }
}

/// The model of epochs: a count of guards and the destructors that wait for it to reach zero.
///
/// Its lock orders pins against each other, which real epochs do not promise to readers that are pinned at the same
/// time; within overlapping read sections, where publication is at stake, it adds no order.
#[cfg(feature = "loom")]
mod model {
    use std::marker::PhantomData;

    use crate::primitive::{Mutex, scheduled};

    #[derive(Default)]
    struct Epoch {
        guards: usize,
        retired: Vec<Box<dyn FnOnce()>>,
    }

    // SAFETY: `Guard::defer` demands destructors that any thread may run.
    unsafe impl Send for Epoch {}

    scheduled::lazy_static! {
        static ref EPOCH: Mutex<Epoch> = Mutex::new(Epoch::default());
    }

    pub(super) struct Guard(PhantomData<*const ()>);

    pub(super) fn pin() -> Guard {
        EPOCH.lock().unwrap().guards += 1;
        Guard(PhantomData)
    }

    impl Guard {
        pub(super) fn flush(&self) {}

        pub(super) fn flush_all(&self) {}

        /// # Safety
        /// As [`super::Guard::defer`].
        pub(super) unsafe fn defer<F: FnOnce() + 'static>(&self, retire: F) {
            EPOCH.lock().unwrap().retired.push(Box::new(retire));
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            let mut epoch = EPOCH.lock().unwrap();
            epoch.guards -= 1;
            let ready = if epoch.guards == 0 { std::mem::take(&mut epoch.retired) } else { Vec::new() };
            drop(epoch);
            ready.into_iter().for_each(|retire| retire());
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
pub(crate) mod tests {
    use super::*;
    use std::sync::Arc;

    /// Runs the epochs until `value` is held by the caller alone. Other tests' read sections hold them up, and on a
    /// busy machine those may last.
    pub(crate) fn freed<T>(value: &Arc<T>) -> bool {
        (0..30_000).any(|_| {
            pin().flush();
            std::thread::sleep(std::time::Duration::from_millis(1));
            Arc::strong_count(value) == 1
        })
    }

    #[test]
    fn a_replaced_value_lives_until_its_reader_leaves() {
        let (old, new) = (Arc::new(()), Arc::new(()));
        let cell = Rcu::new(old.clone());
        let guard = pin();
        let seen = cell.load(&guard);
        cell.store(new.clone());
        assert!(Arc::ptr_eq(seen, &old) && Arc::ptr_eq(cell.load(&guard), &new));
        assert_eq!(Arc::strong_count(&old), 2);
        drop(guard);
        assert!(freed(&old));
        drop(cell);
        assert_eq!(Arc::strong_count(&new), 1);
    }

    #[test]
    fn a_fill_replaces_nothing() {
        let (one, two) = (Arc::new(1), Arc::new(2));
        let cell = RcuOption::default();
        assert!(cell.fill(one.clone()) && !cell.fill(two.clone()));
        assert_eq!((cell.load(&pin()).map(|value| **value), Arc::strong_count(&two)), (Some(1), 1));
        cell.store(Some(two.clone()));
        assert!(!cell.fill(one.clone()));
        assert_eq!(cell.load(&pin()).map(|value| **value), Some(2));
        assert!(freed(&one));
    }

    #[test]
    fn readers_and_writers_together_see_whole_values() {
        let cell = Rcu::new([0u64; 8]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 1..=20_000 {
                        let guard = pin();
                        let seen = [cell.swap([round; 8], &guard), cell.load(&guard)];
                        assert!(seen.iter().all(|seen| seen.iter().all(|&word| word == seen[0])));
                    }
                });
            }
        });
        assert_eq!(cell.load(&pin())[0], 20_000);
    }
}
