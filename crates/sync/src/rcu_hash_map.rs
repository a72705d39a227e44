//! A hash map whose lookups take no lock: entries are found by hash and predicate, under an
//! [RCU guard](crate::rcu).
//!
//! Each bucket is a chain. A reader walks it and writes nothing, except for the mark that an entry
//! is in use, if that is not set yet. A writer holds the lock of the bucket's stripe
//! ([`RcuHashMap::lock`]). The caches of names and of inodes are this map, and
//! [`rcu_arc_map`](crate::rcu_arc_map) is this map with counted values. The owner says by what an
//! entry is found, and which entries may be reclaimed.
//!
//! # Rules
//! 1. An entry is complete before it is linked. The `Release` store of a head or of `next` (P)
//!    pairs with the `Acquire` loads of readers (L).
//! 2. Entries never change their chain or their value's key. A reader that was led to an entry
//!    found it by its contents.
//! 3. A replaced entry stays in the chain until its replacement is linked in front of it. A reader
//!    finds one or the other.
//! 4. An unlinked entry keeps its own link, so a reader that stands on it comes back to the chain.
//!    A walk meets every entry that is in the chain all the time. Each entry that it meets was in
//!    the chain at some moment of the walk.
//! 5. [`Found::is_live`] turns false before the entry is unlinked. A reader that copies something
//!    and then finds the entry live knows that the entry was in the map when it copied. The
//!    `Release` store of `live` (V), or a release operation after it, pairs with the `Acquire` of
//!    what the reader copied.
//! 6. RCU frees the memory of entries.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | head, `next` | holders of the stripe's lock | all threads | `Release` / `Acquire` (P, L) |
//! | `live` | holders of the stripe's lock | all threads | `Release` / `Acquire` (V) |
//! | `used` | all threads | all threads | `Relaxed`: a hint |
//! | `hand` of the map | reclaiming threads | reclaiming threads | `Relaxed`: it spreads the work |

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::ptr::{self, NonNull};
use std::sync::PoisonError;

use crate::percpu::Padded;
use crate::primitive::{
    AtomicBool, AtomicPtr, AtomicUsize, Latch, LatchGuard, Ordering, capacity, null_pointers,
};
use crate::rcu::{Guard, pin};
use crate::slab;

/// Excess entries for which [`Bucket::trim`] takes further steps, at most.
const MOST_AT_ONCE: usize = 8;

/// Locks of a map, at least and at most. Of `n` locks, bucket `b` has lock `b % n`. There are
/// enough of them that threads that use different names seldom write the same line.
const STRIPES: RangeInclusive<usize> = capacity(128, 1)..=capacity(1024, 1);
/// Buckets of one lock, at least, in a map that has more than the minimum of locks.
const SHARE: usize = 64;
/// Buckets that [`RcuHashMap::reclaim`] looks at under one hold of a stripe's lock.
const RUN: usize = 16;

struct Node<T> {
    next: AtomicPtr<Node<T>>,
    hash: u64,
    live: AtomicBool,
    used: AtomicBool,
    value: T,
}

/// The data of a stripe that its lock protects in addition to the chains.
struct Stripe {
    entries: usize,
    /// The bucket of the stripe where the next reclaim begins.
    hand: usize,
}

/// A hash map whose lookups take no lock.
pub struct RcuHashMap<T> {
    heads: Box<[AtomicPtr<Node<T>>]>,
    /// Shifts a hash down to the index of its bucket.
    shift: u32,
    /// A power of two of them.
    stripes: Box<[Padded<Latch<Stripe>>]>,
    /// The stripe where the next [`reclaim`](Self::reclaim) begins.
    hand: Padded<AtomicUsize>,
    owns: PhantomData<Box<Node<T>>>,
}

/// An allocated entry that is not in a map yet, so that no memory is allocated under a lock.
pub struct Unlinked<T>(NonNull<Node<T>>, PhantomData<Box<Node<T>>>);

/// A found entry, readable while the guard lives.
pub struct Found<'g, T> {
    node: NonNull<Node<T>>,
    guard: PhantomData<&'g T>,
}

/// A locked bucket. Its lock covers the chains of the whole stripe.
pub struct Bucket<'g, T> {
    table: &'g RcuHashMap<T>,
    head: &'g AtomicPtr<Node<T>>,
    stripe: usize,
    lock: LatchGuard<'g, Stripe>,
    guard: &'g Guard,
}

impl<T> Unlinked<T> {
    /// Creates an entry that is marked as used, so that the first round of reclaiming leaves it.
    pub fn new(hash: u64, value: T) -> Self {
        Self::marked(hash, value, true)
    }

    /// Creates an entry that the first round of reclaiming takes, unless it is found before.
    pub fn unused(hash: u64, value: T) -> Self {
        Self::marked(hash, value, false)
    }

    fn marked(hash: u64, value: T, used: bool) -> Self {
        let next = AtomicPtr::new(ptr::null_mut());
        let [live, used] = [true, used].map(AtomicBool::new);
        Self(slab::alloc(Node { next, hash, live, used, value }), PhantomData)
    }
}

impl<T> Drop for Unlinked<T> {
    fn drop(&mut self) {
        // SAFETY: it came from `slab::alloc`, and has not been in a map.
        unsafe { slab::free(self.0) };
    }
}

impl<T: Send + Sync + 'static> RcuHashMap<T> {
    /// Creates an empty map for about `capacity` entries. It takes more, but then its chains grow.
    pub fn with_capacity(capacity: usize) -> Self {
        let least = STRIPES.start().max(&2);
        let buckets = capacity.saturating_mul(2).clamp(*least, 1 << 24).next_power_of_two();
        let stripes = (buckets / SHARE).clamp(*STRIPES.start(), *STRIPES.end());
        Self {
            heads: null_pointers(buckets),
            shift: u64::BITS - buckets.trailing_zeros(),
            stripes: (0..stripes).map(|_| Padded(Latch::new(Stripe { entries: 0, hand: 0 }))).collect(),
            hand: Padded(AtomicUsize::new(0)),
            owns: PhantomData,
        }
    }

    /// Returns the first entry of this hash that `matches`, without waiting. Hashes must be spread
    /// over all their bits, and an attacker must not be able to predict them.
    #[inline]
    pub fn find<'g>(
        &'g self,
        hash: u64,
        _guard: &'g Guard,
        matches: impl Fn(&T) -> bool,
    ) -> Option<Found<'g, T>> {
        // Acquire: L, which pairs with P.
        let mut at = self.head(hash).load(Ordering::Acquire);
        // SAFETY: RCU frees entries after they were unlinked, and the guard was pinned before the
        // load that found this one.
        while let Some(node) = unsafe { at.as_ref() } {
            if node.hash == hash && matches(&node.value) {
                node.note_use();
                return Some(Found { node: NonNull::from(node), guard: PhantomData });
            }
            // Acquire: L, which pairs with P.
            at = node.next.load(Ordering::Acquire);
        }
        None
    }

    /// Locks the bucket of `hash`. A thread may hold one bucket at a time.
    pub fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Bucket<'g, T> {
        self.bucket_of(self.stripe(self.bucket(hash)), self.head(hash), guard)
    }

    fn bucket_of<'g>(
        &'g self,
        stripe: usize,
        head: &'g AtomicPtr<Node<T>>,
        guard: &'g Guard,
    ) -> Bucket<'g, T> {
        // Ignores poison: a chain is whole after each single change, whatever panicked under the
        // lock.
        let lock = self.stripes[stripe].lock().unwrap_or_else(PoisonError::into_inner);
        Bucket { table: self, head, stripe, lock, guard }
    }

    /// Goes round the whole map once and removes entries by the rule of [`trim`](Bucket::trim).
    /// Returns how many it removed.
    pub fn reclaim_all(&self, mut may_go: impl FnMut(&T) -> bool) -> usize {
        let mut gone = 0;
        for stripe in 0..self.stripes.len() {
            let guard = pin();
            let mut bucket = self.bucket_of(stripe, &self.heads[stripe], &guard);
            // The test saves a short-lived map the walk over its buckets.
            if bucket.lock.entries > 0 {
                gone += bucket.reclaim(usize::MAX, self.share(self.heads.len()), &mut may_go);
            }
        }
        gone
    }

    /// Goes on round the map, over about `max_buckets` buckets at most, until it has removed `want`
    /// entries by the rule of [`trim`](Bucket::trim). Returns how many it removed. Rounds are even:
    /// a bucket comes again only after all others.
    ///
    /// Locks: a stripe at a time, within.
    pub fn reclaim(&self, want: usize, max_buckets: usize, mut may_go: impl FnMut(&T) -> bool) -> usize {
        let guard = pin();
        let run = self.share(self.heads.len()).min(RUN);
        let mut gone = 0;
        for _ in 0..max_buckets.div_ceil(run) {
            if gone >= want {
                break;
            }
            // Relaxed: it spreads the work, and any stripe will do.
            let stripe = self.stripe(self.hand.fetch_add(1, Ordering::Relaxed));
            let mut bucket = self.bucket_of(stripe, &self.heads[stripe], &guard);
            gone += bucket.reclaim(want - gone, run, &mut may_go);
        }
        guard.flush();
        gone
    }

    /// Removes every entry and calls `each` with its value.
    pub fn remove_all(&self, mut each: impl FnMut(&T)) {
        for stripe in 0..self.stripes.len() {
            let guard = pin();
            let mut bucket = self.bucket_of(stripe, &self.heads[stripe], &guard);
            for index in (stripe..self.heads.len()).step_by(self.stripes.len()) {
                bucket.sweep(index, |_, value| {
                    each(value);
                    true
                });
            }
        }
    }

    /// Returns the number of entries: out of date at once.
    pub fn len(&self) -> usize {
        let entries =
            |stripe: &Padded<Latch<Stripe>>| stripe.lock().unwrap_or_else(PoisonError::into_inner).entries;
        self.stripes.iter().map(entries).sum()
    }

    /// Returns whether the map is empty: out of date at once.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        // The highest bits.
        (hash >> self.shift) as usize
    }

    /// Returns the stripe of a bucket.
    #[inline]
    fn stripe(&self, bucket: usize) -> usize {
        bucket & (self.stripes.len() - 1)
    }

    /// Divides a number by the number of stripes.
    #[inline]
    fn share(&self, of: usize) -> usize {
        // A division would be slower.
        of >> self.stripes.len().trailing_zeros()
    }

    #[inline]
    fn head(&self, hash: u64) -> &AtomicPtr<Node<T>> {
        &self.heads[self.bucket(hash)]
    }
}

impl<'g, T: Send + Sync + 'static> Bucket<'g, T> {
    /// Returns the first entry of this hash that `matches`.
    pub fn find(&self, hash: u64, matches: impl Fn(&T) -> bool) -> Option<Found<'g, T>> {
        self.table.find(hash, self.guard, matches)
    }

    /// Adds an entry.
    pub fn insert(&mut self, new: Unlinked<T>) -> Found<'g, T> {
        let node = ManuallyDrop::new(new).0;
        // SAFETY: `new` owned the entry, and it is freed only after it has been in the map.
        unsafe { node.as_ref() }.next.store(self.head.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: P, which pairs with L.
        self.head.store(node.as_ptr(), Ordering::Release);
        self.lock.entries += 1;
        Found { node, guard: PhantomData }
    }

    /// Adds an entry, and removes the one of its hash that `matches`. Returns both.
    pub fn replace(
        &mut self,
        new: Unlinked<T>,
        matches: impl Fn(&T) -> bool,
    ) -> (Found<'g, T>, Option<Found<'g, T>>) {
        let new = self.insert(new);
        let hash = new.node().hash;
        let mut link = &new.node().next;
        loop {
            let at = link.load(Ordering::Relaxed);
            // SAFETY: as in `remove`.
            let Some(node) = (unsafe { at.as_ref() }) else { return (new, None) };
            if node.hash == hash && matches(&node.value) {
                // SAFETY: `link` leads to it, and the lock is held.
                unsafe { self.unlink(link, at) };
                return (new, Some(Found { node: NonNull::from(node), guard: PhantomData }));
            }
            link = &node.next;
        }
    }

    /// Removes an entry of this bucket. Returns false if it had been removed already.
    pub fn remove(&mut self, found: Found<'g, T>) -> bool {
        let mut link = self.head;
        loop {
            let at = link.load(Ordering::Relaxed);
            // SAFETY: under the lock, a chain holds only entries that are not retired.
            let Some(node) = (unsafe { at.as_ref() }) else { return false };
            if at == found.node.as_ptr() {
                // SAFETY: `link` leads to it, and the lock is held.
                unsafe { self.unlink(link, at) };
                return true;
            }
            link = &node.next;
        }
    }

    /// Reduces the stripe towards its share of `limit` entries for the whole map, in a few steps.
    /// An entry that was found since the last round stays. Another one is removed if `may_go`
    /// returns true.
    ///
    /// The steps are few however large the excess is: perhaps no entry can go, and callers trim for
    /// each entry that they add.
    pub fn trim(&mut self, limit: usize, may_go: impl FnMut(&T) -> bool) {
        let excess = self.lock.entries.saturating_sub(self.table.share(limit).max(1));
        if excess > 0 {
            self.reclaim(excess, 16 + 4 * excess.min(MOST_AT_ONCE), may_go);
        }
    }

    /// Goes on round the stripe, over at most `max_buckets` buckets, until it has removed `want`
    /// entries by the rule of [`trim`](Self::trim). Returns how many it removed.
    ///
    /// This is the CLOCK algorithm with the buckets as its face. It keeps no list in order, so a
    /// lookup writes nothing.
    fn reclaim(&mut self, want: usize, max_buckets: usize, mut may_go: impl FnMut(&T) -> bool) -> usize {
        let mut gone = 0;
        let (round, stripes) = (self.table.share(self.table.heads.len()), self.table.stripes.len());
        for _ in 0..max_buckets {
            if gone >= want {
                break;
            }
            self.lock.hand = (self.lock.hand + 1) % round;
            let bucket = self.lock.hand * stripes + self.stripe;
            gone += self.sweep(bucket, |used, value| !used && may_go(value));
        }
        gone
    }

    /// Clears the marks in one bucket of the stripe and removes the entries for which `goes`
    /// returns true. It gets the mark and the value. Returns how many were removed.
    fn sweep(&mut self, bucket: usize, mut goes: impl FnMut(bool, &T) -> bool) -> usize {
        let mut gone = 0;
        let table = self.table;
        let mut link = &table.heads[bucket];
        loop {
            let at = link.load(Ordering::Relaxed);
            // SAFETY: as in `remove`; the guard keeps entries that this loop retires.
            let Some(node) = (unsafe { at.as_ref() }) else { return gone };
            // Relaxed: a hint.
            let used = node.used.load(Ordering::Relaxed);
            if used {
                node.used.store(false, Ordering::Relaxed);
            }
            if goes(used, &node.value) {
                // SAFETY: `link` leads to it, and the lock is held.
                unsafe { self.unlink(link, at) };
                gone += 1;
            } else {
                link = &node.next;
            }
        }
    }

    /// Unlinks an entry and retires it.
    ///
    /// # Safety
    /// `link` leads to `at` in a chain of this stripe.
    unsafe fn unlink(&mut self, link: &AtomicPtr<Node<T>>, at: *mut Node<T>) {
        // SAFETY: the caller promises that the entry is in the chain, so it is not retired.
        let node = unsafe { &*at };
        // Release: V, which pairs with the Acquire in `is_live`.
        node.live.store(false, Ordering::Release);
        // Release: P for the entries behind, which a reader may first meet through this link.
        link.store(node.next.load(Ordering::Relaxed), Ordering::Release);
        self.lock.entries -= 1;
        // SAFETY: `T: Send + 'static`, so any thread may drop it at any later time. New readers
        // cannot find it, and the lock lets one thread unlink it. It came from `slab::alloc`.
        unsafe { self.guard.defer(move || slab::free(NonNull::from(node))) };
    }
}

impl<'g, T> Found<'g, T> {
    /// Returns the value.
    #[inline]
    pub fn value(self) -> &'g T {
        &self.node().value
    }

    /// Returns whether the entry is still in the map.
    #[inline]
    pub fn is_live(self) -> bool {
        // Acquire: V, which pairs with the Release before the unlinking.
        self.node().live.load(Ordering::Acquire)
    }

    #[inline]
    fn node(self) -> &'g Node<T> {
        // SAFETY: the guard, borrowed for `'g`, keeps the entry (rule 6).
        unsafe { self.node.as_ref() }
    }
}

impl<T> Node<T> {
    #[inline]
    fn note_use(&self) {
        // Relaxed: a hint. The test keeps lookups from writing the line of a hot entry each time.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

impl<T> Clone for Found<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Found<'_, T> {}

impl<T> Drop for RcuHashMap<T> {
    fn drop(&mut self) {
        for head in &self.heads {
            // Relaxed: the owner of `&mut self` has synchronised with every user.
            let mut at = head.load(Ordering::Relaxed);
            while let Some(node) = NonNull::new(at) {
                // SAFETY: entries in a chain came from `slab::alloc` and are not retired; lookups
                // borrow the map.
                unsafe {
                    at = node.as_ref().next.load(Ordering::Relaxed);
                    slab::free(node);
                }
            }
        }
        // The values may have retired as much memory as the whole map held.
        pin().flush();
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, RandomState};

    #[test]
    fn finds_replaces_and_removes() {
        let table = RcuHashMap::with_capacity(4);
        let hasher = RandomState::new();
        let guard = pin();
        for key in 0..500u32 {
            table.lock(hasher.hash_one(key), &guard).insert(Unlinked::new(hasher.hash_one(key), (key, 0)));
        }
        let find = |key: u32| table.find(hasher.hash_one(key), &guard, |entry| entry.0 == key);
        assert!((0..500).all(|key| find(key).is_some_and(|found| *found.value() == (key, 0))));
        assert!(find(500).is_none() && table.len() == 500);

        let old = find(7).unwrap();
        let mut bucket = table.lock(hasher.hash_one(7u32), &guard);
        bucket.insert(Unlinked::new(hasher.hash_one(7u32), (7, 1)));
        assert!(bucket.remove(old) && !bucket.remove(old));
        drop(bucket);
        assert!(!old.is_live() && *old.value() == (7, 0));
        assert_eq!(*find(7).unwrap().value(), (7, 1));
    }

    #[test]
    fn entries_that_were_not_found_again_are_reclaimed() {
        let table = RcuHashMap::with_capacity(64);
        let hasher = RandomState::new();
        let guard = pin();
        for key in 0..100u32 {
            table.lock(hasher.hash_one(key), &guard).insert(Unlinked::new(hasher.hash_one(key), key));
        }
        assert_eq!(table.reclaim_all(|_| true), 0, "all are new");
        let find = |key: u32| table.find(hasher.hash_one(key), &guard, |&entry| entry == key);
        assert!(find(3).is_some() && find(4).is_some());
        assert_eq!(table.reclaim_all(|&key| key != 5), 97);
        assert!(table.len() == 3 && (3..6).all(|key| find(key).is_some()));
    }

    #[test]
    fn a_key_that_is_replaced_is_always_found() {
        let table = &RcuHashMap::with_capacity(2);
        table.lock(9, &pin()).insert(Unlinked::new(9, 0u32));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for next in 1..50_000 {
                    let guard = pin();
                    let mut bucket = table.lock(9, &guard);
                    let old = bucket.find(9, |_| true).unwrap();
                    bucket.insert(Unlinked::new(9, next));
                    bucket.remove(old);
                }
            });
            scope.spawn(|| {
                let mut last = 0;
                while last < 49_999 {
                    let now = *table.find(9, &pin(), |_| true).expect("there is always one").value();
                    assert!(now >= last);
                    last = now;
                }
            });
        });
        assert_eq!(table.len(), 1);
    }
}
