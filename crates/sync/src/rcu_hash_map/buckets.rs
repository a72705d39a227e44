//! The buckets of one stripe of a hash map: heads of chains, in one allocation.
//!
//! The map holds a [`Buckets`] a stripe and replaces it by a larger one when the stripe grows.

#![expect(unsafe_code, reason = "an array whose length lies in the pointer to it")]

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use crate::percpu::Padded;
use crate::primitive::{AtomicPtr, capacity};

use super::Node;

/// Heads in one unit of allocation: a line of them, whose alignment leaves the lower bits of its
/// address free.
const UNIT: usize = capacity(16, 2);

/// A unit of heads.
pub(super) type Unit<T> = Padded<[AtomicPtr<Node<T>>; UNIT]>;

/// The bits of the pointer by which a hash is shifted to the index of its bucket: 63 less the
/// logarithm of the number of buckets.
const SHIFT: usize = 63;
/// The bit that says that the stripe is moving its entries to other buckets.
const MOVING: usize = 64;

/// Bits of a hash that choose the stripe.
pub(super) const STRIPE_BITS: u32 = capacity(8, 0);

/// A pointer to the buckets of a stripe, with their number. An empty stripe has none.
pub(super) struct Buckets<T>(*mut Unit<T>);

/// Buckets that no other thread has seen.
pub(super) struct OwnedBuckets<T>(Buckets<T>);

impl<T> Clone for Buckets<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Buckets<T> {}

impl<T> PartialEq for Buckets<T> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl<T> Buckets<T> {
    /// Returns the buckets at a pointer that [`pointer`](Self::pointer) returned, or none.
    #[inline]
    pub(super) fn at_pointer(pointer: *mut Unit<T>) -> Self {
        Self(pointer)
    }

    /// Returns the pointer to the buckets, with their number and the mark.
    pub(super) fn pointer(self) -> *mut Unit<T> {
        self.0
    }

    /// Returns this pointer with the mark that entries are being moved.
    pub(super) fn moving(self) -> Self {
        Self(self.0.map_addr(|addr| addr | MOVING))
    }

    pub(super) fn is_moving(self) -> bool {
        self.0.addr() & MOVING != 0
    }

    /// Returns the number of buckets.
    #[inline]
    pub(super) fn len(self) -> usize {
        if self.0.is_null() { 0 } else { 1 << (63 - self.shift()) }
    }

    #[inline]
    fn shift(self) -> usize {
        self.0.addr() & SHIFT
    }

    #[inline]
    fn first(self) -> *mut Unit<T> {
        self.0.map_addr(|addr| addr & !(SHIFT | MOVING))
    }

    /// Returns the head of the chain of `hash`; `None` in an empty stripe.
    ///
    /// # Safety
    /// The buckets are not freed during `'g`.
    #[inline]
    pub(super) unsafe fn head<'g>(self, hash: u64) -> Option<&'g AtomicPtr<Node<T>>> {
        // The bits below the bits of the stripe. Two shifts, since one by 64 bits is none.
        let index = (hash << STRIPE_BITS >> 1) >> self.shift();
        // SAFETY: the index is less than the number of buckets, and the caller keeps them.
        unsafe { self.at(index as usize) }
    }

    /// Returns head number `index`; `None` in an empty stripe.
    ///
    /// # Safety
    /// As [`head`](Self::head), and there are more than `index` buckets or none.
    #[inline]
    pub(super) unsafe fn at<'g>(self, index: usize) -> Option<&'g AtomicPtr<Node<T>>> {
        if self.0.is_null() {
            return None;
        }
        if size_of::<Unit<T>>() == UNIT * size_of::<AtomicPtr<Node<T>>>() {
            // SAFETY: the caller's promise, and units have no padding between their heads.
            return Some(unsafe { &*self.first().cast::<AtomicPtr<Node<T>>>().add(index) });
        }
        // In models, heads are larger.
        // SAFETY: the caller's promise.
        let unit = unsafe { &*self.first().add(index / UNIT) };
        Some(&unit[index % UNIT])
    }

    /// Frees the buckets, and no entry.
    ///
    /// # Safety
    /// No other thread uses them any more.
    pub(super) unsafe fn free(self) {
        let Some(first) = NonNull::new(self.first()) else { return };
        let units = NonNull::slice_from_raw_parts(first, self.len() / UNIT);
        // SAFETY: they came from `larger_than`, and have no other user.
        drop(unsafe { Box::from_raw(units.as_ptr()) });
    }
}

impl<T> OwnedBuckets<T> {
    /// Allocates empty buckets: twice as many as there are, or the first ones.
    pub(super) fn larger_than(buckets: Buckets<T>) -> Self {
        let len = (2 * buckets.len()).max(UNIT);
        let units: *mut Unit<T> = Box::into_raw(empty::<T>(len / UNIT)).cast();
        Self(Buckets(units.map_addr(|addr| addr | (63 - len.trailing_zeros() as usize))))
    }

    /// Returns the number of buckets.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns them for all threads: the map frees them.
    pub(super) fn into_shared(self) -> Buckets<T> {
        ManuallyDrop::new(self).0
    }
}

impl<T> Drop for OwnedBuckets<T> {
    fn drop(&mut self) {
        // SAFETY: no other thread has seen them.
        unsafe { self.0.free() };
    }
}

/// Returns empty units. The system provides zeroed memory on first access.
#[cfg(not(feature = "loom"))]
fn empty<T>(units: usize) -> Box<[Unit<T>]> {
    // SAFETY: an `AtomicPtr` has the layout of a pointer, and zeroes are the null pointer.
    unsafe { Box::new_zeroed_slice(units).assume_init() }
}

#[cfg(feature = "loom")]
fn empty<T>(units: usize) -> Box<[Unit<T>]> {
    let unit = || Padded(std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())));
    (0..units).map(|_| unit()).collect()
}
