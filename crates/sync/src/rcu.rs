//! Read-copy-update: pointers that readers follow without a lock, a reference count or a shared
//! store.
//!
//! The hash maps, reference counts and snapshots of this crate are built on it, and the VFS,
//! `block` and `ext4` pin around their lookups.
//!
//! A reader pins ([`pin`]) and follows pointers. The values that it sees stay allocated until it
//! drops its [`Guard`]. A writer publishes a new value, and the old one is freed when every reader
//! that was pinned at that time has unpinned.
//!
//! Rules:
//! 1. A pinned thread never waits: no device read, no blocking lock. One pinned sleeper stops all
//!    freeing.
//! 2. A value is complete before it is published. The `Release` store or exchange of the pointer
//!    (P) pairs with the readers' `Acquire` load (L). So a reader sees the value as it was
//!    published, and later changes only through the value's own atomics.
//! 3. A value is unlinked first and retired after. A reader that pins after the unlinking cannot
//!    find it. A reader that could find it was pinned before, and the epoch waits for that one.
//! 4. A destructor runs on any thread that retires, flushes or ends, within that call and under the
//!    locks that the thread holds. It never runs while a thread pins or unpins. So it takes no lock
//!    under which another thread retires. It may pin, retire and flush.
//!
//! Pinning nests cheaply. A caller with many lookups pins once around them.
//!
//! The module `epoch` implements the waiting. Under loom a small model takes its place. It runs the
//! destructor of a retired value at the earliest moment that rule 3 allows: when the last guard
//! goes.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::primitive::{AtomicPtr, Ordering};
use crate::slab;

#[cfg(not(feature = "loom"))]
use crate::epoch::local as epoch;
#[cfg(feature = "loom")]
use model as epoch;

/// A read section: values seen through it stay allocated while it lives. It is not `Send`.
pub struct Guard(epoch::Guard);

/// Enters a read section, which lasts until the returned guard is dropped.
#[inline]
pub fn pin() -> Guard {
    Guard(epoch::pin())
}

impl Guard {
    /// Submits the values that this thread has retired for freeing, even if its bag is not full.
    /// Frees a bounded number of values that no reader can see. This guard is a reader: values that
    /// were retired since it pinned are freed by a later flush.
    pub fn flush(&self) {
        self.0.flush();
    }

    /// Frees all values that this thread and ended threads have retired and that no reader can see.
    /// Guards of this thread are readers too.
    pub fn flush_all(&self) {
        self.0.flush_all();
    }

    /// Runs `retire` once every read section that exists now has ended, on any thread.
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

/// A shared pointer to an immutable value or to nothing. Writers replace the value as a whole.
pub struct RcuOption<T> {
    ptr: AtomicPtr<T>,
    owns: PhantomData<Box<T>>,
}

// The bounds hold for the constructor, so for every value: `Send` because any thread may drop it,
// `Sync` because readers share it, `'static` because it is dropped later than its last use.
impl<T: Send + Sync + 'static> RcuOption<T> {
    /// Creates a pointer to `value`.
    pub fn new(value: Option<T>) -> Self {
        Self {
            ptr: AtomicPtr::new(into_raw(value)),
            owns: PhantomData,
        }
    }

    /// Returns the value.
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> Option<&'g T> {
        // Acquire: L, pairs with the Release in `swap` and `fill` that published the value (P).
        let ptr = self.ptr.load(Ordering::Acquire);
        // SAFETY: `ptr` is null or came from `into_raw`, and was not retired before the guard
        // pinned.
        // SAFETY: retirement waits for the guard, and dropping `self` waits for this borrow of it.
        unsafe { ptr.as_ref() }
    }

    /// Returns whether there is no value. Needs no guard, since it follows no pointer.
    #[inline]
    pub fn is_none(&self) -> bool {
        // Acquire: pairs with the Release in `swap`. A thread that finds the pointer cleared sees
        // what the clearing thread did before.
        self.ptr.load(Ordering::Acquire).is_null()
    }

    /// Replaces the value. The old one stays readable while `guard` lives.
    pub fn swap<'g>(&'g self, value: Option<T>, guard: &'g Guard) -> Option<&'g T> {
        // AcqRel: P for the new value; L for the old one, which the caller may read.
        let old = self.ptr.swap(into_raw(value), Ordering::AcqRel);
        // SAFETY: the swap unlinked `old`, and only this thread unlinked it.
        unsafe { retire(old, guard) };
        // SAFETY: as in `load`; `guard` was pinned before `old` was retired.
        unsafe { old.as_ref() }
    }

    /// Stores a value if there is none. Returns whether it did.
    pub fn fill(&self, value: T) -> bool {
        let new = into_raw(Some(value));
        // Release: P, which pairs with L. Relaxed on failure: the pointer is not followed.
        let stored =
            self.ptr
                .compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed);
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
        // Relaxed: the owner of `&mut self` has synchronised with every user.
        let ptr = self.ptr.load(Ordering::Relaxed);
        // SAFETY: loads borrow `self`, so no reader has the value.
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
        f.debug_tuple("RcuOption")
            .field(&self.load(&pin()))
            .finish()
    }
}

/// A shared pointer to an immutable value. Writers replace the value as a whole.
#[derive(Debug)]
pub struct Rcu<T: Send + Sync + 'static>(RcuOption<T>);

impl<T: Send + Sync + 'static> Rcu<T> {
    /// Creates a pointer to `value`.
    pub fn new(value: T) -> Self {
        Self(RcuOption::new(Some(value)))
    }

    /// Returns the value.
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

/// Returns the value of a pointer and frees its memory.
///
/// # Safety
/// `ptr` is null or came from [`into_raw`], and it has no other user, now or later.
unsafe fn from_raw<T>(ptr: *mut T) -> Option<T> {
    // SAFETY: the caller promises that the value has no other user.
    NonNull::new(ptr).map(|at| unsafe { slab::take_value(at) })
}

/// Frees `ptr` once every read section that exists now has ended.
///
/// # Safety
/// `ptr` is null or came from [`into_raw`], new readers cannot find it, and it is retired once.
unsafe fn retire<T: Send + 'static>(ptr: *mut T, guard: &Guard) {
    if !ptr.is_null() {
        // SAFETY: `T: Send + 'static`, so its destructor may run on any thread at any later time.
        // By then no reader is left that could have found the value.
        unsafe { guard.defer(move || drop(from_raw(ptr))) };
    }
}

/// A model of epochs: a count of guards, and destructors that run when it reaches zero.
///
/// Its lock orders pins against each other, which real epochs do not promise to readers that are
/// pinned at the same time. Within overlapping read sections, where publication is tested, it adds
/// no order.
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
            let ready = if epoch.guards == 0 {
                std::mem::take(&mut epoch.retired)
            } else {
                Vec::new()
            };
            drop(epoch);
            ready.into_iter().for_each(|retire| retire());
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
pub(crate) mod tests {
    use super::*;
    use std::sync::Arc;

    /// Flushes until the caller has the only reference to `value`. Read sections of other tests
    /// delay the epochs, and may last on a busy machine.
    pub(crate) fn freed<T>(value: &Arc<T>) -> bool {
        (0..30_000).any(|_| {
            pin().flush();
            std::thread::sleep(std::time::Duration::from_millis(1));
            Arc::strong_count(value) == 1
        })
    }

    #[test]
    fn a_replaced_value_lives_until_its_reader_unpins() {
        let old = Arc::new(());
        let new = Arc::new(());
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
        let one = Arc::new(1);
        let two = Arc::new(2);
        let cell = RcuOption::default();
        assert!(cell.fill(one.clone()) && !cell.fill(two.clone()));
        assert_eq!(
            (
                cell.load(&pin()).map(|value| **value),
                Arc::strong_count(&two)
            ),
            (Some(1), 1)
        );
        cell.store(Some(two.clone()));
        assert!(!cell.fill(one.clone()));
        assert_eq!(cell.load(&pin()).map(|value| **value), Some(2));
        assert!(freed(&one));
    }

    #[test]
    fn readers_and_writers_see_whole_values() {
        let cell = Rcu::new([0u64; 8]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 1..=20_000 {
                        let guard = pin();
                        let seen = [cell.swap([round; 8], &guard), cell.load(&guard)];
                        assert!(
                            seen.iter()
                                .all(|seen| seen.iter().all(|&word| word == seen[0]))
                        );
                    }
                });
            }
        });
        assert_eq!(cell.load(&pin())[0], 20_000);
    }
}
