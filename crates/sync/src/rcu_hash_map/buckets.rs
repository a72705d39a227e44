//! The buckets of a hash map: heads of chains, in one allocation.
//!
//! The map holds one [`Buckets`] and replaces it by one of twice as many buckets when it grows. A
//! head is null until the bucket is filled from the buckets before. A chain ends with the mark of
//! its bucket, which is the odd address after its head.

#![expect(
    unsafe_code,
    reason = "an array whose length lies in the pointer to it"
)]

use std::ops::Range;
use std::ptr::{self, NonNull};

use crate::percpu::Padded;
use crate::primitive::{AtomicPtr, capacity};

/// Heads in one unit of allocation: a line of them, whose alignment leaves the lower bits of its
/// address free.
const UNIT: usize = capacity(16, 2);

/// A unit of heads.
pub(super) type Unit = Padded<[Head; UNIT]>;

/// The first link of a chain.
pub(super) type Head = AtomicPtr<()>;

/// The bits of the pointer by which a hash is shifted to the index of its bucket: 64 less the
/// logarithm of the number of buckets.
const SHIFT: usize = 63;

/// Bits of a hash that choose the stripe. There are always as many buckets at least.
pub(super) const STRIPE_BITS: u32 = capacity(8, 0);

/// A pointer to buckets, with their number.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Buckets(*mut Unit);

// SAFETY: it is a pointer to atomics, and its users say which thread may follow it.
unsafe impl Send for Buckets {}

impl Buckets {
    /// Returns a pointer to no buckets.
    pub(super) fn none() -> Self {
        Self(ptr::null_mut())
    }

    /// Allocates empty buckets: twice as many as there are here, or the first ones.
    pub(super) fn larger(self) -> Self {
        // A unit a stripe at least, so that threads that change different stripes share no line.
        let len = (2 * self.len()).max(UNIT << STRIPE_BITS);
        let units: *mut Unit = Box::into_raw(empty(len / UNIT)).cast();
        Self(units.map_addr(|addr| addr | (64 - len.trailing_zeros() as usize)))
    }

    /// Returns the buckets at a pointer that [`pointer`](Self::pointer) returned.
    #[inline]
    pub(super) fn at_pointer(pointer: *mut Unit) -> Self {
        Self(pointer)
    }

    /// Returns the pointer to the buckets, with their number.
    pub(super) fn pointer(self) -> *mut Unit {
        self.0
    }

    /// Returns the number of buckets.
    #[inline]
    pub(super) fn len(self) -> usize {
        if self.0.is_null() {
            0
        } else {
            1 << (64 - self.shift())
        }
    }

    /// Returns the indices of the buckets of a stripe.
    pub(super) fn of_stripe(self, stripe: usize) -> Range<usize> {
        let each = self.len() >> STRIPE_BITS;
        stripe * each..(stripe + 1) * each
    }

    #[inline]
    fn shift(self) -> usize {
        self.0.addr() & SHIFT
    }

    /// Returns the index of the bucket of `hash`.
    #[inline]
    pub(super) fn index(self, hash: u64) -> usize {
        (hash >> self.shift()) as usize
    }

    #[inline]
    fn first(self) -> *mut Unit {
        self.0.map_addr(|addr| addr & !SHIFT)
    }

    /// Returns the head of the chain of `hash`.
    ///
    /// # Safety
    /// There are buckets, and they are not freed during `'g`.
    #[inline]
    pub(super) unsafe fn head<'g>(self, hash: u64) -> &'g Head {
        // SAFETY: the index is less than the number of buckets, and the caller keeps them.
        unsafe { self.at(self.index(hash)) }
    }

    /// Returns head number `index`.
    ///
    /// # Safety
    /// As [`head`](Self::head), and there are more than `index` buckets.
    #[inline]
    pub(super) unsafe fn at<'g>(self, index: usize) -> &'g Head {
        if size_of::<Unit>() == UNIT * size_of::<Head>() {
            // SAFETY: the caller's promise, and units have no padding between their heads.
            return unsafe { &*self.first().cast::<Head>().add(index) };
        }
        // In models, heads are larger.
        // SAFETY: the caller's promise.
        let unit = unsafe { &*self.first().add(index / UNIT) };
        &unit[index % UNIT]
    }

    /// Frees the buckets, and no entry.
    ///
    /// # Safety
    /// No other thread uses them any more.
    pub(super) unsafe fn free(self) {
        let Some(first) = NonNull::new(self.first()) else {
            return;
        };
        let units = NonNull::slice_from_raw_parts(first, self.len() / UNIT);
        // SAFETY: they came from `larger`, and have no other user.
        drop(unsafe { Box::from_raw(units.as_ptr()) });
    }
}

/// Returns the mark at the end of the chain of `head`.
#[inline]
pub(super) fn end_of(head: &Head) -> *mut () {
    ptr::from_ref(head)
        .cast_mut()
        .cast::<()>()
        .map_addr(|addr| addr | 1)
}

/// Returns whether a link, which is not null, is the end of a chain.
#[inline]
pub(super) fn is_end(link: *mut ()) -> bool {
    link.addr() & 1 == 1
}

/// Returns empty units. The system provides zeroed memory on first access.
#[cfg(not(feature = "loom"))]
fn empty(units: usize) -> Box<[Unit]> {
    // SAFETY: an `AtomicPtr` has the layout of a pointer, and zeroes are the null pointer.
    unsafe { Box::new_zeroed_slice(units).assume_init() }
}

#[cfg(feature = "loom")]
fn empty(units: usize) -> Box<[Unit]> {
    let unit = || Padded(std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())));
    (0..units).map(|_| unit()).collect()
}
