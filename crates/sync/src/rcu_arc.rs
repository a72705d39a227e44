//! Reference counts for values that RCU readers also see.
//!
//! The VFS counts inodes, dentries and mounts so, and `block` its buffers.
//!
//! An [`RcuArc`] is counted like a [`std::sync::Arc`]. When the last one is dropped, two things
//! happen. The value is *released* at once ([`Release::release`]): it gives up what it keeps in
//! use. Its memory is freed later, when no RCU reader is left. A reader that finds the value under
//! a [guard](crate::rcu) has an [`RcuRef`] to it. While an `RcuArc` exists, [`RcuRef::try_upgrade`]
//! returns another one.
//!
//! An [`AtomicRcuArc`] is a field that holds a counted reference inside a value that readers find.
//! It may be emptied and filled at any time. Readers load it under a guard and may find it empty.
//! Threads that keep it filled need no guard.
//!
//! # The count
//! | transition | change | by |
//! | --- | --- | --- |
//! | clone | `n > 0` to `n + 1` | a holder of an `RcuArc` |
//! | upgrade | `n > 0` to `n + 1`, never from 0 | a reader with an `RcuRef` |
//! | has references | `n` to `n` | a holder of an `RcuArc` |
//! | drop | `n` to `n - 1` | a holder of an `RcuArc` |
//! | end last | 1 to 0, only from 1 | the hash map that has the last reference |
//! | end last | 2 to 0, only from 2 | the hash map and a caller that have the last references |
//!
//! # Rules
//! 1. The thread that makes the count zero ends the value: it calls `release`, then retires the
//!    memory. No transition leads up from zero, so this happens once.
//! 2. The value of an `RcuRef` was counted at some moment after its guard was pinned. So it was
//!    retired after that moment, and stays allocated while the guard lives. The count of an
//!    [`AtomicRcuArc`] itself, or of the chain of a hash map, existed when the pointer was loaded.
//! 3. `release` runs unpinned and may wait, for example for a device.
//!
//! If a `release` drops the last reference to another value, and so on, the stack does not grow.
//! The inner ends are queued until the outer one is done. They run before the outermost drop
//! returns.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | `count` | the transitions | the transitions | see below |
//! | `AtomicRcuArc` | any thread | readers | `AcqRel` swap, `Acquire` load |
//!
//! The `Release` of each drop pairs with the `Acquire` of the fence after the last drop, of an
//! upgrade and of "end last". A clone is `Relaxed`. "Has references" is `AcqRel`.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use crate::primitive::{AtomicPtr, AtomicUsize, Ordering, fence, thread_local};
use crate::rcu::{Guard, pin};
use crate::rcu_arc::arena::{Arena, Page};
use crate::slab;

pub(crate) mod arena;
mod link;

pub use link::{First, FirstPacked, Last, Link, Place};

/// A value that is counted, and its end when it has no counted reference any more.
pub trait Release: Send + Sync + 'static {
    /// The place of its link in a [hash map](crate::rcu_hash_map).
    type Link: Place;

    /// Gives up what the value keeps in use. Runs once, on the thread that dropped the last
    /// reference. RCU readers may still access the value.
    fn release(&self) {}
}

/// The value on the lines that readers load, then the count, which holders write. The link is
/// before the value or next to the count. The first of these fields begins a line.
#[repr(C, align(64))]
pub(crate) struct Inner<T: Release> {
    before: <T::Link as Place>::Before,
    value: T,
    apart: <T::Link as Place>::Apart,
    count: AtomicUsize,
    behind: <T::Link as Place>::Behind,
}

/// A counted reference that keeps a value in use.
pub struct RcuArc<T: Release>(NonNull<Inner<T>>, PhantomData<Inner<T>>);

/// An uncounted reference: the value stays allocated for `'a`, but may have been released already.
pub struct RcuRef<'a, T: Release>(NonNull<Inner<T>>, PhantomData<&'a Inner<T>>);

// SAFETY: a reference gives `&T` to any thread, and the last one drops the `T` on its thread;
// `Release` requires `Send` and `Sync`.
unsafe impl<T: Release> Send for RcuArc<T> {}
// SAFETY: as above; through `&RcuArc` a thread gets `&T` and clones.
unsafe impl<T: Release> Sync for RcuArc<T> {}
// SAFETY: as for `RcuArc`; an `RcuRef` is a `&T` that may become an `RcuArc`.
unsafe impl<T: Release> Send for RcuRef<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Release> Sync for RcuRef<'_, T> {}

impl<T: Release> Inner<T> {
    /// Returns a value with one reference.
    fn new(value: T) -> Self {
        let (before, apart, behind) = Default::default();
        Self {
            before,
            value,
            apart,
            count: AtomicUsize::new(1),
            behind,
        }
    }

    #[inline]
    fn link(&self) -> &Link {
        T::Link::link(&self.before, &self.behind)
    }

    pub(crate) fn link_mut(&mut self) -> &mut Link {
        T::Link::link_mut(&mut self.before, &mut self.behind)
    }

    /// Returns the link of a value, which may have been dropped.
    ///
    /// # Safety
    /// The memory of the value is not freed during `'a`.
    pub(crate) unsafe fn link_at<'a>(at: NonNull<Self>) -> &'a Link {
        // SAFETY: these fields have no destructor that changes them.
        unsafe { T::Link::link(&(*at.as_ptr()).before, &(*at.as_ptr()).behind) }
    }

    #[inline]
    #[cfg_attr(feature = "audit", track_caller)]
    fn references(&self) -> &AtomicUsize {
        &self.count
    }

    /// Returns whether the count seems to be `references`: a hint, out of date at once.
    fn seems_to_have(&self, references: usize) -> bool {
        // Relaxed: a hint.
        self.references().load(Ordering::Relaxed) == references
    }
}

impl<T: Release> RcuArc<T> {
    /// Bytes of a value with its count and its link.
    pub const BYTES: usize = size_of::<Inner<T>>();

    /// Creates the first reference to a value.
    pub fn new(value: T) -> Self {
        Self(slab::alloc(Inner::new(value)), PhantomData)
    }

    /// Creates the first reference to a value, whose memory is in `arena`.
    pub(crate) fn new_in(value: T, arena: &Arena<T>) -> Self {
        Self(arena.alloc(Inner::new(value)), PhantomData)
    }

    /// Returns an uncounted reference to the value.
    #[inline]
    pub fn as_rcu_ref(&self) -> RcuRef<'_, T> {
        RcuRef(self.0, PhantomData)
    }

    /// Returns whether both refer to the same value.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns whether there are `count` references: out of date at once, unless the caller knows
    /// where all of them are. A later [upgrade](RcuRef::try_upgrade) on another thread sees all
    /// that the caller did before.
    pub fn has_references(&self, count: usize) -> bool {
        // AcqRel on success. Acquire pairs with the Release in `drop`: this thread sees what the
        // dropped references did. Release pairs with the Acquire in `try_upgrade`, which reads this
        // store or one of its release sequence. A plain load would not order the two. Relaxed on
        // failure.
        self.counted()
            .references()
            .compare_exchange(count, count, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    fn counted(&self) -> &Inner<T> {
        // SAFETY: this reference keeps the value alive.
        unsafe { self.0.as_ref() }
    }

    /// Drops the reference. Returns the value if this was the last one.
    pub(crate) fn into_final(self) -> Option<FinalRef<T>> {
        let this = ManuallyDrop::new(self);
        if this.counted().drop_reference() {
            Some(FinalRef(this.0, PhantomData))
        } else {
            None
        }
    }

    /// Turns the reference into a pointer, and passes its count to the caller.
    pub(crate) fn into_raw(this: Option<Self>) -> *mut Inner<T> {
        this.map_or(ptr::null_mut(), |this| ManuallyDrop::new(this).0.as_ptr())
    }

    /// Turns a pointer back into the reference.
    ///
    /// # Safety
    /// `raw` is null, or came from [`Self::into_raw`] and the caller owns its count.
    pub(crate) unsafe fn from_raw(raw: *mut Inner<T>) -> Option<Self> {
        NonNull::new(raw).map(|at| Self(at, PhantomData))
    }

    /// Turns a pointer back into the reference.
    ///
    /// # Safety
    /// As [`from_raw`](Self::from_raw).
    pub(crate) unsafe fn from_ptr(at: NonNull<Inner<T>>) -> Self {
        Self(at, PhantomData)
    }
}

/// Ends the process as `Arc` does: that many references are leaks, and a count that wraps would
/// free a value in use.
#[inline]
fn abort_if_too_many(references: usize) {
    if references > usize::MAX / 2 {
        std::process::abort();
    }
}

impl<T: Release> Clone for RcuArc<T> {
    fn clone(&self) -> Self {
        // Relaxed: this reference keeps the count above zero, and the clone sees what this thread
        // sees.
        let before = self.counted().references().fetch_add(1, Ordering::Relaxed);
        debug_assert!(
            before > 0,
            "a reference to a value that has ended is cloned"
        );
        abort_if_too_many(before);
        Self(self.0, PhantomData)
    }
}

impl<T: Release> Inner<T> {
    /// Takes one reference off. Returns whether it was the last: then the caller ends the value.
    fn drop_reference(&self) -> bool {
        // Release: pairs with the Acquire fence below on the thread that drops the last reference.
        let before = self.references().fetch_sub(1, Ordering::Release);
        debug_assert!(
            before > 0,
            "a reference to a value that has ended is dropped"
        );
        if before == 1 {
            // Acquire: pairs with the Release above of all other holders.
            fence(Ordering::Acquire);
        }
        before == 1
    }
}

impl<T: Release> Drop for RcuArc<T> {
    fn drop(&mut self) {
        if self.counted().drop_reference() {
            // SAFETY: the count is zero now.
            unsafe { end(self.0) };
        }
    }
}

/// Values that one destructor frees, at most: it may run on a thread that has other work to do.
const BATCH: usize = 256;

/// Ends values as the drop of each [`FinalRef`] does, and retires them in batches: for less per
/// value, above all if values that are neighbours in memory come one after the other.
pub fn end_all<T: Release>(values: impl IntoIterator<Item = FinalRef<T>>) {
    let mut values = values.into_iter();
    while let Some(first) = values.next() {
        let left = values.size_hint().1.unwrap_or(BATCH);
        let mut batch = Vec::with_capacity(BATCH.min(1 + left));
        for value in std::iter::once(first).chain(values.by_ref().take(BATCH - 1)) {
            let at = ManuallyDrop::new(value).0;
            // SAFETY: the memory is retired only below.
            unsafe { at.as_ref() }.value.release();
            batch.push(at);
        }
        // SAFETY: the count of each is zero, and each is released.
        unsafe { retire(batch) };
    }
}

/// Frees values when no reader is left.
///
/// # Safety
/// Their counts are zero, they have been released, and they are retired once.
unsafe fn retire<T: Release>(values: Vec<NonNull<Inner<T>>>) {
    // SAFETY: `T` is `Send + 'static`, so any thread may drop it at any later time, and no
    // transition leads up from zero.
    unsafe { pin().defer(move || free(&values)) };
}

/// Drops values and frees their memory.
///
/// # Safety
/// The values have no user any more.
unsafe fn free<T: Release>(values: &[NonNull<Inner<T>>]) {
    // SAFETY: the values exist until they are dropped below, one page after the other.
    let lines = |at: &NonNull<Inner<T>>| unsafe { at.as_ref() }.link().lines;
    // SAFETY: as above; a value that has a page came from its arena.
    let page = |at: &NonNull<Inner<T>>| unsafe {
        match lines(at) {
            0 => None,
            lines => Some(Page::of(*at, lines)),
        }
    };
    for values in values.chunk_by(|one, next| page(one) == page(next)) {
        match page(&values[0]) {
            // SAFETY: the caller's promise.
            Some(page) => unsafe {
                values.iter().for_each(|at| at.drop_in_place());
                Page::free(page, values);
            },
            // SAFETY: as above, and they came from `slab::alloc`.
            None => values.iter().for_each(|&at| unsafe { slab::free(at) }),
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
    /// Returns the value.
    #[inline]
    pub fn get(self) -> &'a T {
        &self.counted().value
    }

    /// Returns a counted reference; `None` if the count is zero.
    #[inline]
    pub fn try_upgrade(self) -> Option<RcuArc<T>> {
        let up = |count: usize| (count > 0).then(|| count + 1);
        // Acquire on success: pairs with the Release in `has_references` and in `drop`. Relaxed on
        // failure.
        let before = self
            .counted()
            .references()
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, up)
            .ok()?;
        abort_if_too_many(before);
        Some(RcuArc(self.0, PhantomData))
    }

    /// Returns whether both refer to the same value.
    pub fn ptr_eq(self, other: RcuRef<'_, T>) -> bool {
        self.0 == other.0
    }

    /// Returns the hash under which the value was last inserted into a hash map. It is `Relaxed`:
    /// the owner knows whether the value stays under that hash.
    #[inline]
    pub fn hash(self) -> u64 {
        self.link().hash.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn link(self) -> &'a Link {
        self.counted().link()
    }

    /// Returns whether the value is in the memory of `arena`.
    pub(crate) fn is_in(self, arena: &Arena<T>) -> bool {
        arena.has(self.link(), self.0)
    }

    /// Returns the value at a pointer.
    ///
    /// # Safety
    /// The pointer came from [`RcuArc::into_raw`], and rule 2 holds for `'a`.
    #[inline]
    pub(crate) unsafe fn at(at: NonNull<Inner<T>>) -> Self {
        Self(at, PhantomData)
    }

    /// Returns the pointer to the value.
    #[inline]
    pub(crate) fn as_ptr(self) -> *mut Inner<T> {
        self.0.as_ptr()
    }

    /// Ends the value if the caller has all of its references, which are `references`. No thread
    /// can get a reference after that.
    ///
    /// # Safety
    /// The caller owns that many counts, which it gives up if this returns the value.
    pub(crate) unsafe fn end_last(self, references: usize) -> Option<FinalRef<T>> {
        let count = self.counted().references();
        // The test keeps the lines of values in use. The transition "end last". Acquire: pairs with
        // the Release in `drop` of earlier references.
        (self.counted().seems_to_have(references)
            && count
                .compare_exchange(references, 0, Ordering::Acquire, Ordering::Relaxed)
                .is_ok())
        .then(|| FinalRef(self.0, PhantomData))
    }

    #[inline]
    fn counted(self) -> &'a Inner<T> {
        // SAFETY: rule 2, or the borrow of an `RcuArc`, keeps the memory for `'a`.
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

/// A field that holds a counted reference or nothing, and that readers load under a guard.
pub struct AtomicRcuArc<T: Release>(AtomicPtr<Inner<T>>, PhantomData<RcuArc<T>>);

impl<T: Release> AtomicRcuArc<T> {
    /// Creates a field that holds `value`.
    pub fn new(value: Option<RcuArc<T>>) -> Self {
        Self(AtomicPtr::new(RcuArc::into_raw(value)), PhantomData)
    }

    /// Returns the value that the field holds.
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> Option<RcuRef<'g, T>> {
        // Acquire: pairs with the Release in `set`, which published the value. The
        // field counted the value at this moment (rule 2).
        NonNull::new(self.0.load(Ordering::Acquire)).map(|at| RcuRef(at, PhantomData))
    }

    /// Returns the value that the field holds, without a guard.
    ///
    /// # Safety
    /// Until the borrow ends, the field keeps the value, or the caller is pinned.
    #[inline]
    pub unsafe fn load_kept(&self) -> Option<RcuRef<'_, T>> {
        // Acquire: as in `load`.
        NonNull::new(self.0.load(Ordering::Acquire)).map(|at| RcuRef(at, PhantomData))
    }

    /// Stores another reference and returns the old one.
    pub fn set(&self, value: Option<RcuArc<T>>) -> Option<RcuArc<T>> {
        // AcqRel: Release publishes the new value, and pairs with the Acquire in `load`. Acquire
        // pairs with the Release of the store that published the old value.
        let old = self.0.swap(RcuArc::into_raw(value), Ordering::AcqRel);
        // SAFETY: the swap took the field's count, and only this thread got it.
        unsafe { RcuArc::from_raw(old) }
    }

    /// Empties the field and returns its reference.
    pub fn take(&self) -> Option<RcuArc<T>> {
        self.set(None)
    }
}

impl<T: Release> Drop for AtomicRcuArc<T> {
    fn drop(&mut self) {
        // Relaxed: the owner of `&mut self` has synchronised with every user.
        let raw = self.0.load(Ordering::Relaxed);
        // SAFETY: the field owns the count, and no reader loads it any more.
        drop(unsafe { RcuArc::from_raw(raw) });
    }
}

/// A value whose count is zero and that ends when this is dropped.
pub struct FinalRef<T: Release>(NonNull<Inner<T>>, PhantomData<Inner<T>>);

// SAFETY: as for `RcuArc`.
unsafe impl<T: Release> Send for FinalRef<T> {}

impl<T: Release> FinalRef<T> {
    /// Returns the value, which has not been released yet.
    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: the value is retired only when this is dropped.
        unsafe { &self.0.as_ref().value }
    }
}

impl<T: Release> Drop for FinalRef<T> {
    fn drop(&mut self) {
        // SAFETY: `end_last` made the count zero and left the end to this
        // drop.
        unsafe { end(self.0) };
    }
}

/// An end that is queued behind an outer one: the value, and the function that ends it.
type Queued = (NonNull<()>, unsafe fn(NonNull<()>));

thread_local! {
    static ENDING: Cell<bool> = const { Cell::new(false) };
    static QUEUED: RefCell<Vec<Queued>> = const { RefCell::new(Vec::new()) };
}

/// Ends a value: releases it and retires its memory. If this thread is inside another end, queues
/// it.
///
/// # Safety
/// The caller made the value's count zero.
unsafe fn end<T: Release>(at: NonNull<Inner<T>>) {
    /// # Safety
    /// As [`end`].
    unsafe fn now<T: Release>(at: NonNull<()>) {
        let at = at.cast::<Inner<T>>();
        // SAFETY: the memory is retired only below.
        unsafe { at.as_ref() }.value.release();
        // SAFETY: `T` is `Send + 'static`, so any thread may drop it at any later time, and no
        // transition leads up from zero.
        unsafe { pin().defer(move || free(&[at])) };
    }

    /// Clears `ENDING` when it is dropped, also if a `release` panics.
    struct Ending;
    impl Drop for Ending {
        fn drop(&mut self) {
            let _ = ENDING.try_with(|ending| ending.set(false));
        }
    }

    let nested = ENDING
        .try_with(|ending| ending.replace(true))
        .unwrap_or(false);
    if nested
        && QUEUED
            .try_with(|queued| queued.borrow_mut().push((at.cast(), now::<T>)))
            .is_ok()
    {
        return;
    }
    let _ending = Ending;
    // SAFETY: the caller's promise.
    unsafe { now::<T>(at.cast()) };
    while let Ok(Some((at, now))) = QUEUED.try_with(|queued| queued.borrow_mut().pop()) {
        // SAFETY: the caller that queued it made the same promise.
        unsafe { now(at) };
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
