//! Counted references to values that RCU readers look at too.
//!
//! A [`RcuArc`] is what [`std::sync::Arc`] is, but for readers without a count. When the last counted reference goes,
//! two things happen at two times: the value hears of it at once ([`Release::release`]), so that whatever depends on it
//! being in use ends there and then; its memory is freed only when no reader can be looking any more. Readers that
//! came to it under a [guard](crate::rcu) have it as a [`RcuRef`], which becomes a `RcuArc` again by [`RcuRef::try_upgrade`] as long
//! as there is another.
//!
//! Two kinds of field hold a counted reference inside a value that readers come by:
//!
//! - [`AtomicRcuArc`] may be emptied and filled at any time; readers follow it under a guard and may find it empty.
//! - [`ReleasableArc`] stays filled for as long as its owner is in use, so that who holds the owner needs no guard; it is given
//!   up in the owner's `release`, or passed on to another owner before that.
//!
//! # The count
//! | transition | change | by |
//! | --- | --- | --- |
//! | clone | `n > 0` to `n + 1` | who has a `RcuArc` |
//! | hold | `n > 0` to `n + 1`, never from 0 | who has a `RcuRef` |
//! | has references | `n` to `n` | who has a `RcuArc` |
//! | drop | `n` to `n - 1` | who has a `RcuArc` |
//! | take last | 1 to 0, only from 1 | who has just emptied the link that counted |
//! | give up last | 2 to 0, only from 2 | who has just emptied the link that counted, and has the other |
//!
//! # Rules
//! 1. Who makes the count zero ends the value: calls `release`, then retires the memory. No transition leads up from
//!    zero, so this happens once.
//! 2. A `RcuRef` is of a value that was counted at some moment after its guard pinned, so it was retired after, and stays
//!    allocated while the guard lives. This holds for what a [`AtomicRcuArc`] is seen to hold, because its count was there when
//!    the pointer was read; and for what the [`ReleasableArc`]s of a seen value hold, because they are given up after the value's own
//!    count has gone, by that value or by whom they were passed on to since.
//! 3. `release` runs unpinned and may wait, as for a device.
//!
//! A value whose `release` drops the last reference to another of its kind, and so on, does not use up the stack: inner
//! ends wait until the outer one is done, and are done before the outermost drop returns.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use crate::percpu::Line;
use crate::primitive::{AtomicPtr, AtomicUsize, Ordering, fence, thread_local};
use crate::rcu::{Guard, pin};
use crate::slab;

/// What a value does when its last counted reference has gone.
pub trait Release: Send + Sync + 'static {
    /// Gives up what the value keeps in use. Runs once, on the thread whose reference was the last. RCU readers may be
    /// looking at the value still.
    fn release(&self) {}
}

/// The lines that readers look at, then one for the count that holders write.
#[repr(C)]
struct Inner<T> {
    value: T,
    count: Line<AtomicUsize>,
}

/// A counted reference, which keeps a value in use.
pub struct RcuArc<T: Release>(NonNull<Inner<T>>, PhantomData<Inner<T>>);

/// A value that is seen without being counted: it stays allocated for `'a`, but may be out of use already.
pub struct RcuRef<'a, T: Release>(NonNull<Inner<T>>, PhantomData<&'a Inner<T>>);

// SAFETY: a reference gives `&T` to any thread, and the last one drops the `T` wherever it is: `Release` asks for both.
unsafe impl<T: Release> Send for RcuArc<T> {}
// SAFETY: as above; through `&Shared` a thread gets `&T`, and references of its own.
unsafe impl<T: Release> Sync for RcuArc<T> {}
// SAFETY: as for `RcuArc`; a `RcuRef` is a `&T` that may turn into one.
unsafe impl<T: Release> Send for RcuRef<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Release> Sync for RcuRef<'_, T> {}

impl<T: Release> Inner<T> {
    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn references(&self) -> &AtomicUsize {
        &self.count.0
    }

    /// There seem to be so many references: a guess.
    fn seems_to_have(&self, references: usize) -> bool {
        // Relaxed: a guess.
        self.references().load(Ordering::Relaxed) == references
    }
}

impl<T: Release> RcuArc<T> {
    /// The first reference to a value.
    pub fn new(value: T) -> Self {
        let counted = Inner { value, count: Line(AtomicUsize::new(1)) };
        Self(slab::alloc(counted), PhantomData)
    }

    /// The same value as readers see it.
    #[inline]
    pub fn as_rcu_ref(&self) -> RcuRef<'_, T> {
        RcuRef(self.0, PhantomData)
    }

    /// Both refer to one value.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// There are so many references; out of date at once, unless the caller knows where all of them are. Who [holds](RcuRef::try_upgrade) one
    /// more after that sees what the caller did before.
    pub fn has_references(&self, count: usize) -> bool {
        // AcqRel on success: what those did who have dropped theirs has happened, and whoever holds one more reads, with Acquire, what
        // is stored here or what has been counted up from it. A load would leave open which of the two came first. Relaxed on failure.
        self.counted()
            .references()
            .compare_exchange(count, count, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    fn counted(&self) -> &Inner<T> {
        // SAFETY: this reference keeps the value.
        unsafe { self.0.as_ref() }
    }

    /// The count becomes the caller's.
    fn into_raw(this: Option<Self>) -> *mut Inner<T> {
        this.map_or(ptr::null_mut(), |this| ManuallyDrop::new(this).0.as_ptr())
    }

    /// # Safety
    /// `raw` is null, or came from [`Self::into_raw`] and its count becomes the caller's.
    unsafe fn from_raw(raw: *mut Inner<T>) -> Option<Self> {
        NonNull::new(raw).map(|at| Self(at, PhantomData))
    }
}

impl<T: Release> Clone for RcuArc<T> {
    fn clone(&self) -> Self {
        // Relaxed: this reference keeps the count from ending, and gives all that the new one gives.
        let before = self.counted().references().fetch_add(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a reference is cloned to what has ended");
        // As `Arc` has it: so many references can only be leaks, and a count that wraps would free what is in use.
        if before > usize::MAX / 2 {
            std::process::abort();
        }
        Self(self.0, PhantomData)
    }
}

impl<T: Release> Drop for RcuArc<T> {
    fn drop(&mut self) {
        // Release: what this holder did comes before the end; pairs with the fence below.
        let before = self.counted().references().fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "a reference is dropped to what has ended");
        if before == 1 {
            // Acquire: pairs with the Release of the other holders.
            fence(Ordering::Acquire);
            // SAFETY: this made the count zero.
            unsafe { end(self.0) };
        }
    }
}

impl<T: Release> Deref for RcuArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T: Release + fmt::Debug> fmt::Debug for RcuArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'a, T: Release> RcuRef<'a, T> {
    /// The value.
    #[inline]
    pub fn get(self) -> &'a T {
        &self.counted().value
    }

    /// A reference, unless the last one has gone.
    #[inline]
    pub fn try_upgrade(self) -> Option<RcuArc<T>> {
        let up = |count: usize| (count > 0).then(|| count + 1);
        // Acquire on success: what the holders whose counts this one joins did before is visible; Relaxed on failure.
        self.counted().references().fetch_update(Ordering::Acquire, Ordering::Relaxed, up).ok()?;
        Some(RcuArc(self.0, PhantomData))
    }

    /// Both are of one value.
    pub fn ptr_eq(self, other: RcuRef<'_, T>) -> bool {
        self.0 == other.0
    }

    fn counted(self) -> &'a Inner<T> {
        // SAFETY: rule 2, or the borrow of a `RcuArc`, keeps the memory for `'a`.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Release> Clone for RcuRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Release> Copy for RcuRef<'_, T> {}

impl<T: Release> Deref for RcuRef<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.get()
    }
}

impl<T: Release + fmt::Debug> fmt::Debug for RcuRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A place for a counted reference that readers follow, and that may be empty.
pub struct AtomicRcuArc<T: Release>(AtomicPtr<Inner<T>>, PhantomData<RcuArc<T>>);

impl<T: Release> AtomicRcuArc<T> {
    /// A link that holds `value`.
    pub fn new(value: Option<RcuArc<T>>) -> Self {
        Self(AtomicPtr::new(RcuArc::into_raw(value)), PhantomData)
    }

    /// What it holds now.
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> Option<RcuRef<'g, T>> {
        // Acquire: pairs with the Release of `set`, which published the value. Its count was the link's at this moment,
        // which is rule 2.
        NonNull::new(self.0.load(Ordering::Acquire)).map(|at| RcuRef(at, PhantomData))
    }

    /// Puts another reference in and gives back the one that was there.
    pub fn set(&self, value: Option<RcuArc<T>>) -> Option<RcuArc<T>> {
        // AcqRel: publishes the new value, and makes the old one's visible to whom it goes.
        let old = self.0.swap(RcuArc::into_raw(value), Ordering::AcqRel);
        // SAFETY: the swap took the count that was the link's, and gave it to nobody else.
        unsafe { RcuArc::from_raw(old) }
    }

    /// Empties it.
    pub fn take(&self) -> Option<RcuArc<T>> {
        self.set(None)
    }

    /// Empties it if there is no other reference to what it holds, so that nobody can get one any more. The value ends
    /// when what this returns is dropped. Readers may find the link empty for a moment though it stays filled.
    pub fn take_if_last(&self) -> Option<FinalRef<T>> {
        let guard = pin();
        // So that links to what is in use are not emptied for nothing.
        if !self.load(&guard)?.counted().seems_to_have(1) {
            return None;
        }
        let taken = self.take()?;
        // The transition "take last". Acquire: pairs with the Release of the references that went before.
        if taken.counted().references().compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Some(FinalRef(ManuallyDrop::new(taken).0, PhantomData));
        }
        self.refill(taken);
        None
    }

    /// The same where the caller has the only other reference, which it gives up with the link's; gets it back if there are
    /// more. `mine` is of what the link holds.
    pub fn take_if_last_but(&self, mine: RcuArc<T>) -> Result<FinalRef<T>, RcuArc<T>> {
        // As above.
        if !mine.counted().seems_to_have(2) {
            return Err(mine);
        }
        let Some(taken) = self.take() else { return Err(mine) };
        // The transition "give up last". Acquire: as above.
        let count = taken.counted().references();
        if taken.ptr_eq(&mine) && count.compare_exchange(2, 0, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // Its count has gone with that of `taken`.
            let _ = ManuallyDrop::new(mine);
            return Ok(FinalRef(ManuallyDrop::new(taken).0, PhantomData));
        }
        self.refill(taken);
        Err(mine)
    }

    /// Puts back what was taken.
    fn refill(&self, taken: RcuArc<T>) {
        // If the link has been filled meanwhile, what was here is no longer wanted.
        let raw = RcuArc::into_raw(Some(taken));
        // Release on success: as in `set`.
        if self.0.compare_exchange(ptr::null_mut(), raw, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: the exchange did not store `raw`, so its count is still this function's.
            drop(unsafe { RcuArc::from_raw(raw) });
        }
    }
}

impl<T: Release> Drop for AtomicRcuArc<T> {
    fn drop(&mut self) {
        // Relaxed: `&mut self` came from a thread that synchronised with every user.
        let raw = self.0.load(Ordering::Relaxed);
        // SAFETY: the count is the link's, which ends here, and nobody follows it any more.
        drop(unsafe { RcuArc::from_raw(raw) });
    }
}

/// A value without references, which ends when this is dropped.
pub struct FinalRef<T: Release>(NonNull<Inner<T>>, PhantomData<Inner<T>>);

// SAFETY: as for `RcuArc`.
unsafe impl<T: Release> Send for FinalRef<T> {}

impl<T: Release> FinalRef<T> {
    /// The value, which has not been released yet.
    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: not retired before this is dropped.
        unsafe { &self.0.as_ref().value }
    }
}

impl<T: Release> Drop for FinalRef<T> {
    fn drop(&mut self) {
        // SAFETY: `take_if_last` made the count zero and left the end to this.
        unsafe { end(self.0) };
    }
}

/// A counted reference that a value keeps for as long as it is itself in use.
pub struct ReleasableArc<T: Release>(AtomicRcuArc<T>, NonNull<Inner<T>>);

// SAFETY: as for `RcuArc`.
unsafe impl<T: Release> Send for ReleasableArc<T> {}
// SAFETY: as for `RcuArc`.
unsafe impl<T: Release> Sync for ReleasableArc<T> {}

impl<T: Release> ReleasableArc<T> {
    /// A lease of `value`.
    pub fn new(value: RcuArc<T>) -> Self {
        let at = value.0;
        Self(AtomicRcuArc::new(Some(value)), at)
    }

    /// The value.
    #[inline]
    pub fn get(&self) -> RcuRef<'_, T> {
        RcuRef(self.1, PhantomData)
    }

    /// Gives the reference up.
    ///
    /// # Safety
    /// From now on the lease is reached only by readers that were pinned before: its owner has no counted reference and
    /// no place in which a reader could find it, or the lease has none. Nobody else releases it at the same time.
    pub unsafe fn release(&self) {
        drop(self.empty());
    }

    /// Another lease of the value, for another owner, to which the reference goes, so that no count is written. `None` if it has been
    /// given up or passed on.
    ///
    /// # Safety
    /// As [`release`](Self::release), but that who has a reference to the owner may come by still: he finds the value by this lease as
    /// long as the other keeps it, and with a guard that was pinned before the other gave it up.
    pub unsafe fn transfer(&self) -> Option<Self> {
        self.empty().map(Self::new)
    }

    fn empty(&self) -> Option<RcuArc<T>> {
        // Relaxed, both: nobody else empties it at the same time, and readers do not follow the link. An exchange would be a
        // locked instruction.
        let raw = self.0.0.load(Ordering::Relaxed);
        self.0.0.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the count was the link's, and it has just been emptied.
        unsafe { RcuArc::from_raw(raw) }
    }
}

/// An end that waits for an outer one: what ends, and how.
type Waiting = (NonNull<()>, unsafe fn(NonNull<()>));

thread_local! {
    static ENDING: Cell<bool> = const { Cell::new(false) };
    static WAITING: RefCell<Vec<Waiting>> = const { RefCell::new(Vec::new()) };
}

/// Ends a value: releases it and retires its memory, now or when the end that this thread is busy with is done.
///
/// # Safety
/// The caller made the value's count zero.
unsafe fn end<T: Release>(at: NonNull<Inner<T>>) {
    /// # Safety
    /// As [`end`].
    unsafe fn now<T: Release>(at: NonNull<()>) {
        let at = at.cast::<Inner<T>>();
        // SAFETY: not retired before the statement below.
        unsafe { at.as_ref() }.value.release();
        // SAFETY: `T` is `Send + 'static`, so it may be dropped on any thread at any later time; it came from
        // `slab::alloc`, and nobody can count it any more.
        unsafe { pin().defer(move || slab::free(at)) };
    }

    /// Says that no end is under way when it goes, also if a `release` panics.
    struct Ending;
    impl Drop for Ending {
        fn drop(&mut self) {
            let _ = ENDING.try_with(|ending| ending.set(false));
        }
    }

    let nested = ENDING.try_with(|ending| ending.replace(true)).unwrap_or(false);
    if nested && WAITING.try_with(|waiting| waiting.borrow_mut().push((at.cast(), now::<T>))).is_ok() {
        return;
    }
    let _ending = Ending;
    // SAFETY: the caller's promise.
    unsafe { now::<T>(at.cast()) };
    while let Ok(Some((at, now))) = WAITING.try_with(|waiting| waiting.borrow_mut().pop()) {
        // SAFETY: whoever pushed it had made that promise.
        unsafe { now(at) };
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
