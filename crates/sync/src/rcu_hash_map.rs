//! A hash table whose lookups take no lock: entries are found by hash and predicate, under an
//! [RCU guard](crate::rcu).
//!
//! Each bucket is a chain. Readers walk it and write nothing, except for a mark that an entry is in use, and that only
//! where it is not yet set. Who changes a chain holds the lock of the bucket's stripe ([`RcuHashMap::lock`]). The caches of
//! names and of inodes are this table, and [`table`](crate::rcu_arc_map) is it with counted values. The owner says which entries
//! may be reclaimed, and what an entry is found by.
//!
//! # Rules
//! 1. An entry is complete before it is linked. Its link (P: `Release` store of a head or of `next`) pairs with the
//!    readers' loads (L: `Acquire`).
//! 2. Entries never change chains or keys. A reader that was led to an entry found it by what it is.
//! 3. An entry that is replaced stays in the chain until its replacement is there, further to the front: a reader finds
//!    one or the other.
//! 4. An unlinked entry keeps its own link, so that readers standing on it come back to the chain. Every entry that
//!    stays in the chain throughout a walk is met by it; every entry that is met was in the chain at some moment of the
//!    walk.
//! 5. [`Found::is_live`] turns false before the entry is unlinked. A reader that copies something and then finds the
//!    entry live knows that the entry was in the table when it copied (V: the `Release` store of `live`, or any
//!    release operation after it, pairs with the Acquire of whatever the reader copied).
//! 6. Memory goes through RCU.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | head, `next` | lock holders | everyone | `Release` / `Acquire` (P, L) |
//! | `live` | lock holders | everyone | `Release` / `Acquire` (V) |
//! | `used` | everyone | everyone | `Relaxed`: a hint |

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

/// Entries too many that [`Bucket::trim`] takes more steps for.
const MOST_AT_ONCE: usize = 8;

/// Locks that the buckets share, at least and at most: of `n` locks, bucket `b` has lock `b % n`. So many that threads with names of
/// their own seldom write the line of a lock in turns.
const STRIPES: RangeInclusive<usize> = capacity(128, 1)..=capacity(1024, 1);
/// Buckets that share a lock at least, where there are more locks than the fewest.
const SHARE: usize = 64;
/// Buckets of a stripe that [`RcuHashMap::reclaim`] looks at while it has the lock.
const RUN: usize = 16;

struct Node<T> {
    next: AtomicPtr<Node<T>>,
    hash: u64,
    live: AtomicBool,
    used: AtomicBool,
    value: T,
}

/// What the lock of a stripe protects beside the chains.
struct Changing {
    entries: usize,
    /// The bucket of the stripe where reclaiming goes on.
    hand: usize,
}

/// A hash table with lookups that take no lock.
pub struct RcuHashMap<T> {
    heads: Box<[AtomicPtr<Node<T>>]>,
    /// How far to shift a hash down to a bucket.
    shift: u32,
    /// As many as a power of two.
    stripes: Box<[Padded<Latch<Changing>>]>,
    /// The stripe where [`reclaim`](Self::reclaim) goes on.
    hand: Padded<AtomicUsize>,
    owns: PhantomData<Box<Node<T>>>,
}

/// An entry that is not in a table yet, in memory of its own, so that nothing is allocated under a lock.
pub struct Unlinked<T>(NonNull<Node<T>>, PhantomData<Box<Node<T>>>);

/// An entry that was found, readable as long as the guard that found it lives.
pub struct Found<'g, T> {
    node: NonNull<Node<T>>,
    guard: PhantomData<&'g T>,
}

/// The right to change the chains of one stripe.
pub struct Bucket<'g, T> {
    table: &'g RcuHashMap<T>,
    head: &'g AtomicPtr<Node<T>>,
    stripe: usize,
    lock: LatchGuard<'g, Changing>,
    guard: &'g Guard,
}

impl<T> Unlinked<T> {
    /// An entry that is reclaimed in the second round at the earliest, so that it can be found before.
    pub fn new(hash: u64, value: T) -> Self {
        Self::marked(hash, value, true)
    }

    /// An entry that goes in the first round, unless it is found before.
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
        // SAFETY: it came from `slab::alloc`, and has not been in a table.
        unsafe { slab::free(self.0) };
    }
}

impl<T: Send + Sync + 'static> RcuHashMap<T> {
    /// An empty table for about `capacity` entries. It takes more, but then its chains grow.
    pub fn with_capacity(capacity: usize) -> Self {
        let least = STRIPES.start().max(&2);
        let buckets = capacity.saturating_mul(2).clamp(*least, 1 << 24).next_power_of_two();
        let stripes = (buckets / SHARE).clamp(*STRIPES.start(), *STRIPES.end());
        Self {
            heads: null_pointers(buckets),
            shift: u64::BITS - buckets.trailing_zeros(),
            stripes: (0..stripes).map(|_| Padded(Latch::new(Changing { entries: 0, hand: 0 }))).collect(),
            hand: Padded(AtomicUsize::new(0)),
            owns: PhantomData,
        }
    }

    /// The first entry of this hash that `matches`. Does not wait for anybody. Hashes must be spread over all their
    /// bits, and not be for others to foresee.
    #[inline]
    pub fn find<'g>(
        &'g self,
        hash: u64,
        _guard: &'g Guard,
        matches: impl Fn(&T) -> bool,
    ) -> Option<Found<'g, T>> {
        // Acquire: L.
        let mut at = self.head(hash).load(Ordering::Acquire);
        // SAFETY: entries are freed through RCU after they were unlinked, and the guard was pinned before the load that
        // found this one, or the entry that points to it.
        while let Some(node) = unsafe { at.as_ref() } {
            if node.hash == hash && matches(&node.value) {
                node.note_use();
                return Some(Found { node: NonNull::from(node), guard: PhantomData });
            }
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
        // A chain is whole whenever the lock is free, whatever panicked under it.
        let lock = self.stripes[stripe].lock().unwrap_or_else(PoisonError::into_inner);
        Bucket { table: self, head, stripe, lock, guard }
    }

    /// Goes round the whole table once; entries go by the rule of [`trim`](Bucket::trim).
    pub fn reclaim_all(&self, mut may_go: impl FnMut(&T) -> bool) -> usize {
        let mut gone = 0;
        for stripe in 0..self.stripes.len() {
            let guard = pin();
            let mut bucket = self.bucket_of(stripe, &self.heads[stripe], &guard);
            // To look through buckets costs more than what a short-lived table has in them.
            if bucket.lock.entries > 0 {
                gone += bucket.reclaim(usize::MAX, self.share(self.heads.len()), &mut may_go);
            }
        }
        gone
    }

    /// Goes on round the table, over about `max_buckets` buckets at most, until `want` entries have gone by the rule of
    /// [`trim`](Bucket::trim). Returns how many did. The rounds are even: no bucket comes again before all others did.
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
            // Relaxed: only spreads the work; any stripe will do.
            let stripe = self.stripe(self.hand.fetch_add(1, Ordering::Relaxed));
            let mut bucket = self.bucket_of(stripe, &self.heads[stripe], &guard);
            gone += bucket.reclaim(want - gone, run, &mut may_go);
        }
        guard.flush();
        gone
    }

    /// Takes out every entry, and calls `each` with it.
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

    /// Entries in the table; out of date at once.
    pub fn len(&self) -> usize {
        let entries =
            |stripe: &Padded<Latch<Changing>>| stripe.lock().unwrap_or_else(PoisonError::into_inner).entries;
        self.stripes.iter().map(entries).sum()
    }

    /// Nothing is in the table.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        // The high bits, as many as number the buckets.
        (hash >> self.shift) as usize
    }

    /// The stripe that a bucket belongs to.
    #[inline]
    fn stripe(&self, bucket: usize) -> usize {
        bucket & (self.stripes.len() - 1)
    }

    /// What each stripe has of so many.
    #[inline]
    fn share(&self, of: usize) -> usize {
        // A division would take long.
        of >> self.stripes.len().trailing_zeros()
    }

    #[inline]
    fn head(&self, hash: u64) -> &AtomicPtr<Node<T>> {
        &self.heads[self.bucket(hash)]
    }
}

impl<'g, T: Send + Sync + 'static> Bucket<'g, T> {
    /// The first entry of this hash that `matches`.
    pub fn find(&self, hash: u64, matches: impl Fn(&T) -> bool) -> Option<Found<'g, T>> {
        self.table.find(hash, self.guard, matches)
    }

    /// Adds an entry.
    pub fn insert(&mut self, new: Unlinked<T>) -> Found<'g, T> {
        let node = ManuallyDrop::new(new).0;
        // SAFETY: the entry was `new`'s alone, and nothing frees it before it has been in the table.
        unsafe { node.as_ref() }.next.store(self.head.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: P.
        self.head.store(node.as_ptr(), Ordering::Release);
        self.lock.entries += 1;
        Found { node, guard: PhantomData }
    }

    /// Adds an entry in place of the one of its hash that `matches`, if there is one, and gives that back, too.
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

    /// Takes an entry of this bucket out. False if it was out already.
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

    /// Brings the stripe back to its part of a limit for the whole table, as far as a few steps round it do: an entry that was
    /// found since the last time round stays; another goes if `may_go` says so, which is then final.
    ///
    /// However many are too many, the steps are few: it may be that none can go, and a caller trims for each entry that he adds.
    pub fn trim(&mut self, limit: usize, may_go: impl FnMut(&T) -> bool) {
        let excess = self.lock.entries.saturating_sub(self.table.share(limit).max(1));
        if excess > 0 {
            self.reclaim(excess, 16 + 4 * excess.min(MOST_AT_ONCE), may_go);
        }
    }

    /// Goes on round the stripe, over at most `max_buckets` buckets, until `want` entries have gone by the rule of
    /// [`trim`](Self::trim); gives back how many did.
    ///
    /// This is the CLOCK algorithm with the buckets as its face: there is no list to keep in order, so a lookup has
    /// nothing to write.
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

    /// Takes the marks off all entries of one bucket of the stripe, and takes those out that `goes`, told whether there was
    /// a mark; gives back how many.
    fn sweep(&mut self, bucket: usize, mut goes: impl FnMut(bool, &T) -> bool) -> usize {
        let mut gone = 0;
        let table = self.table;
        let mut link = &table.heads[bucket];
        loop {
            let at = link.load(Ordering::Relaxed);
            // SAFETY: as in `remove`; the guard keeps what this loop itself retires.
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

    /// # Safety
    /// `link` leads to `at` in a chain of this stripe.
    unsafe fn unlink(&mut self, link: &AtomicPtr<Node<T>>, at: *mut Node<T>) {
        // SAFETY: by the caller's promise the entry is in the chain, so it is not retired.
        let node = unsafe { &*at };
        // Release: V.
        node.live.store(false, Ordering::Release);
        // Release: P for the entries behind, which a reader may meet through this link first.
        link.store(node.next.load(Ordering::Relaxed), Ordering::Release);
        self.lock.entries -= 1;
        // SAFETY: `T: Send + 'static`, so it may be dropped on any thread at any later time; new readers cannot find it,
        // and the lock lets one thread unlink it. It came from `slab::alloc`.
        unsafe { self.guard.defer(move || slab::free(NonNull::from(node))) };
    }
}

impl<'g, T> Found<'g, T> {
    /// The value.
    #[inline]
    pub fn value(self) -> &'g T {
        &self.node().value
    }

    /// It has not been taken out of the table.
    #[inline]
    pub fn is_live(self) -> bool {
        // Acquire: V.
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
        // Relaxed: a hint. Tested first, so that a hot entry's line is not written again and again.
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
            // Relaxed: `&mut self` came from a thread that synchronised with every user of the table.
            let mut at = head.load(Ordering::Relaxed);
            while let Some(node) = NonNull::new(at) {
                // SAFETY: entries in a chain came from `slab::alloc` and are not retired; lookups borrow the table.
                unsafe {
                    at = node.as_ref().next.load(Ordering::Relaxed);
                    slab::free(node);
                }
            }
        }
        // Values may have left memory to RCU, as much as the whole table held.
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
    fn what_was_not_found_again_goes() {
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
    fn a_replaced_entry_is_always_found() {
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
