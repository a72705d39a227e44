//! A hash map whose lookups take no lock: entries are found by hash and predicate, under an
//! [RCU guard](crate::rcu).
//!
//! The map is divided into stripes, and each stripe into buckets, which are chains of entries. A
//! reader walks one chain and writes nothing, except for the time of the last use, if that is out
//! of date. A writer holds the lock of the stripe ([`RcuHashMap::lock`]). A stripe doubles its
//! buckets when it has more entries than buckets, so an empty map is small and chains stay short.
//!
//! The caches of names and of inodes are this map, and [`rcu_arc_map`](crate::rcu_arc_map) is this
//! map with counted values. The owner says by what an entry is found, and which entries may be
//! evicted. The map chooses between these by the rules of [eviction](#eviction).
//!
//! # Rules
//! 1. An entry is complete before it is linked. The `Release` store of a head or of `next` (P)
//!    pairs with the `Acquire` loads of readers (L).
//! 2. A value never changes its key. A reader that was led to an entry found it by its contents.
//! 3. A replaced entry stays in the chain until its replacement is linked in front of it. A reader
//!    finds one or the other.
//! 4. An unlinked entry keeps its link, so a reader that stands on it comes back to the chain.
//!    A walk meets every entry that is in the chain all the time, unless the stripe grows. Each
//!    entry that it meets was in the chain at some moment of the walk.
//! 5. A growing stripe moves each entry to its new chain while readers walk the old one. It first
//!    marks its pointer to the buckets as moving, and in the end replaces it (G). A reader that
//!    finds nothing loads this pointer again. If it is marked or another one, the reader looks once
//!    more, with the lock. If not, the reader has met no moved link: by P and L it would have
//!    seen the mark, too.
//! 6. [`Found::is_live`] turns false before the entry is unlinked. A reader that copies something
//!    and then finds the entry live knows that the entry was in the map when it copied. The
//!    `Release` store of `live` (V), or a release operation after it, pairs with the `Acquire` of
//!    what the reader copied.
//! 7. RCU frees the memory of entries and of replaced buckets.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | pointer to buckets | holders of the stripe's lock | all threads | `Release` / `Acquire` (G) |
//! | head, `next` | holders of the stripe's lock | all threads | `Release` / `Acquire` (P, L) |
//! | `live` | holders of the stripe's lock | all threads | `Release` / `Acquire` (V) |
//! | `entries` | holders of the stripe's lock | all threads | `Relaxed`: a hint without it |
//! | `uses`, `now`, `left` | all threads | all threads | `Relaxed`: hints |
//! | `hand` of the map | evicting threads | evicting threads | `Relaxed`: it spreads the work |
//!
//! # Eviction
//! A thread that makes room looks at the next sixteen entries, of as many stripes as they take, and
//! evicts one of them. This costs the same however full the map is, and lookups keep no order.
//!
//! Time is counted in evictions: the map's clock ticks 64 times while it evicts as many entries as
//! it has. Each entry has the time when it was inserted and that of its last use. It is *proven* if
//! the two differ, so uses at once after the insertion do not count. Of the entries that a thread
//! looks at, it prefers, in this order:
//! 1. an entry without use for two turnovers of the map, the oldest first;
//! 2. an entry that is not proven, the youngest first;
//! 3. the entry whose last use is the longest ago.
//!
//! So a scan that is larger than the cache, again and again, evicts its own new entries, and each
//! pass finds most of the entries that fit, where LRU and CLOCK would find none. Entries that
//! nothing uses any more leave after two turnovers at most.

#![expect(unsafe_code, reason = "RCU chains")]

mod age;
mod buckets;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::PoisonError;

use crate::percpu::Padded;
use crate::primitive::{AtomicBool, AtomicPtr, AtomicUsize, Latch, LatchGuard, Ordering, capacity};
use crate::rcu::{Guard, pin};
use crate::slab;

use age::{Clock, Rank, Uses};
use buckets::{Buckets, OwnedBuckets, STRIPE_BITS, Unit};

/// Stripes of a map, each with a lock: enough of them that threads that use different names seldom
/// write the same line.
const STRIPES: usize = 1 << STRIPE_BITS;
/// Entries of which one is evicted. In the worst case each one costs a miss of the processor's
/// caches, and these misses overlap.
const WINDOW: usize = capacity(16, 2);
/// Buckets in which a window is looked for, at most: an emptied stripe has few entries in many.
const WINDOW_BUCKETS: usize = 2 * WINDOW;

struct Node<T> {
    next: AtomicPtr<Node<T>>,
    hash: u64,
    live: AtomicBool,
    uses: Uses,
    value: T,
}

struct Stripe {
    /// The lock of the chains, with the bucket where the next window begins.
    lock: Latch<usize>,
    entries: AtomicUsize,
}

/// A hash map whose lookups take no lock.
pub struct RcuHashMap<T> {
    /// Of each stripe; apart from the locks, so that lookups share few lines with them.
    buckets: Box<[AtomicPtr<Unit<T>>]>,
    stripes: Box<[Padded<Stripe>]>,
    clock: Clock,
    /// The stripe where the next [`evict`](Self::evict) begins.
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
    stripe: usize,
    /// The bucket where the next window begins.
    hand: LatchGuard<'g, usize>,
    guard: &'g Guard,
}

impl<T> Unlinked<T> {
    /// Creates an entry.
    pub fn new(hash: u64, value: T) -> Self {
        let next = AtomicPtr::new(ptr::null_mut());
        let live = AtomicBool::new(true);
        Self(slab::alloc(Node { next, hash, live, uses: Uses::none(), value }), PhantomData)
    }
}

impl<T> Drop for Unlinked<T> {
    fn drop(&mut self) {
        // SAFETY: it came from `slab::alloc`, and has not been in a map.
        unsafe { slab::free(self.0) };
    }
}

impl<T: Send + Sync + 'static> Default for RcuHashMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> RcuHashMap<T> {
    /// Creates an empty map.
    pub fn new() -> Self {
        let stripe = || Padded(Stripe { lock: Latch::new(0), entries: AtomicUsize::new(0) });
        Self {
            buckets: (0..STRIPES).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            stripes: (0..STRIPES).map(|_| stripe()).collect(),
            clock: Clock::new(),
            hand: Padded(AtomicUsize::new(0)),
            owns: PhantomData,
        }
    }

    /// Returns the first entry of this hash that `matches`. It waits only if the stripe grows
    /// during the search and nothing was found. Hashes must be spread over all their bits, and an
    /// attacker must not be able to predict them.
    #[inline]
    pub fn find<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        matches: impl Fn(&T) -> bool,
    ) -> Option<Found<'g, T>> {
        let buckets = self.buckets(stripe(hash));
        let found = self.search(buckets, hash, guard, &matches);
        // The Acquire loads of the chain precede the second load (rule 5).
        if found.is_none() && (buckets.is_moving() || self.buckets(stripe(hash)) != buckets) {
            return self.find_settled(hash, guard, &matches);
        }
        found
    }

    /// Looks once more when the stripe does not grow.
    #[cold]
    fn find_settled<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        matches: &impl Fn(&T) -> bool,
    ) -> Option<Found<'g, T>> {
        let _settled = self.lock_stripe(stripe(hash));
        self.search(self.buckets(stripe(hash)), hash, guard, matches)
    }

    #[inline]
    fn search<'g>(
        &'g self,
        buckets: Buckets<T>,
        hash: u64,
        _guard: &'g Guard,
        matches: &impl Fn(&T) -> bool,
    ) -> Option<Found<'g, T>> {
        // SAFETY: RCU frees buckets and entries after they were unlinked, and the guard was pinned
        // before the load that found them.
        let mut at = unsafe { buckets.head(hash) }?.load(Ordering::Acquire); // L, which pairs with P.
        // SAFETY: as above.
        while let Some(node) = unsafe { at.as_ref() } {
            if node.hash == hash && matches(&node.value) {
                node.uses.note(self.clock.now());
                return Some(Found { node: NonNull::from(node), guard: PhantomData });
            }
            // Acquire: L, which pairs with P.
            at = node.next.load(Ordering::Acquire);
        }
        None
    }

    /// Locks the bucket of `hash`. A thread may hold one bucket at a time. A stripe that is full
    /// grows first.
    pub fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Bucket<'g, T> {
        let stripe = stripe(hash);
        // Allocated before the lock is taken. If another thread fills the stripe after this look,
        // the next thread to lock it lets it grow.
        let is_full = self.entries(stripe).load(Ordering::Relaxed) >= self.buckets(stripe).len();
        let larger = is_full.then(|| OwnedBuckets::larger_than(self.buckets(stripe)));
        let mut bucket = self.bucket(stripe, guard);
        // Another thread may have let it grow.
        if let Some(larger) = larger.filter(|larger| larger.len() > bucket.buckets().len()) {
            bucket.grow(larger);
        }
        bucket
    }

    fn bucket<'g>(&'g self, stripe: usize, guard: &'g Guard) -> Bucket<'g, T> {
        Bucket { table: self, stripe, hand: self.lock_stripe(stripe), guard }
    }

    fn lock_stripe(&self, stripe: usize) -> LatchGuard<'_, usize> {
        // Ignores poison: a chain is whole after each single change, whatever panicked under the
        // lock.
        self.stripes[stripe].lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes every entry for which `may_go` returns true.
    pub fn remove_if(&self, mut may_go: impl FnMut(&T) -> bool) {
        for stripe in 0..STRIPES {
            // The test saves a short-lived map the walk over its buckets.
            if self.entries(stripe).load(Ordering::Relaxed) > 0 {
                let guard = pin();
                self.bucket(stripe, &guard).remove_if(&mut may_go);
            }
        }
    }

    /// Evicts up to `want` entries for which `may_go` returns true, by the rules of
    /// [eviction](#eviction). Returns how many it evicted, which is fewer where it meets many that
    /// may not go. It goes on where the last call stopped.
    ///
    /// Locks: a stripe at a time, within.
    pub fn evict(&self, want: usize, mut may_go: impl FnMut(&T) -> bool) -> usize {
        let guard = pin();
        let mut gone = 0;
        for _ in 0..2 * want {
            if gone == want {
                break;
            }
            gone += usize::from(self.evict_one(&guard, &mut may_go));
        }
        self.clock.count(gone, || self.len());
        guard.flush();
        gone
    }

    /// Evicts the entry of the highest rank that may go among the next few.
    fn evict_one<'g>(&'g self, guard: &'g Guard, may_go: &mut impl FnMut(&T) -> bool) -> bool {
        let mut window = [const { None::<(Rank, Found<'g, T>)> }; WINDOW];
        let mut room = window.iter_mut();
        for _ in 0..STRIPES {
            // Relaxed: it spreads the work, and any stripe will do.
            let stripe = self.hand.fetch_add(1, Ordering::Relaxed) & (STRIPES - 1);
            if self.entries(stripe).load(Ordering::Relaxed) > 0 {
                self.bucket(stripe, guard).look(&mut room);
            }
            if room.len() == 0 {
                break;
            }
        }
        window.sort_unstable_by_key(|place| place.map(|(rank, _)| rank));
        window.into_iter().rev().flatten().any(|(_, found)| {
            let mut bucket = self.bucket(stripe(found.node().hash), guard);
            found.is_live() && may_go(found.value()) && bucket.remove(found)
        })
    }

    /// Returns the number of entries: out of date at once.
    pub fn len(&self) -> usize {
        (0..STRIPES).map(|stripe| self.entries(stripe).load(Ordering::Relaxed)).sum()
    }

    /// Returns whether the map is empty: out of date at once.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries in a stripe.
    #[inline]
    fn entries(&self, stripe: usize) -> &AtomicUsize {
        &self.stripes[stripe].entries
    }

    #[inline]
    fn buckets(&self, stripe: usize) -> Buckets<T> {
        // Acquire: G, which pairs with the Release in `grow`.
        Buckets::at_pointer(self.buckets[stripe].load(Ordering::Acquire))
    }
}

/// Returns the stripe of a hash: its highest bits.
#[inline]
fn stripe(hash: u64) -> usize {
    // Two shifts, since one by 64 bits is none.
    ((hash >> 1) >> (63 - STRIPE_BITS)) as usize
}

impl<'g, T: Send + Sync + 'static> Bucket<'g, T> {
    /// Returns the first entry of this hash that `matches`.
    pub fn find(&self, hash: u64, matches: impl Fn(&T) -> bool) -> Option<Found<'g, T>> {
        self.table.search(self.buckets(), hash, self.guard, &matches)
    }

    /// Adds an entry.
    pub fn insert(&mut self, new: Unlinked<T>) -> Found<'g, T> {
        let node = ManuallyDrop::new(new).0;
        // SAFETY: `new` owned the entry, and it is freed only after it has been in the map.
        let entry = unsafe { node.as_ref() };
        entry.uses.begin(self.table.clock.now());
        let head = self.head(entry.hash).expect("a stripe that is locked by a hash has buckets");
        entry.next.store(head.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: P, which pairs with L.
        head.store(node.as_ptr(), Ordering::Release);
        self.set_entries(self.entries() + 1);
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
        let old = self.unlink_first(&new.node().next, |node| node.hash == hash && matches(&node.value));
        (new, old)
    }

    /// Removes an entry of this bucket. Returns false if it had been removed already.
    pub fn remove(&mut self, found: Found<'g, T>) -> bool {
        let Some(head) = self.head(found.node().hash) else { return false };
        self.unlink_first(head, |node| ptr::eq(node, found.node.as_ptr())).is_some()
    }

    /// Puts the next entries of the stripe into the places of `room`, with their ranks.
    fn look<'w>(&mut self, room: &mut impl Iterator<Item = &'w mut Option<(Rank, Found<'g, T>)>>)
    where
        'g: 'w,
        T: 'w,
    {
        let buckets = self.buckets().len();
        let now = self.table.clock.now();
        for _ in 0..WINDOW_BUCKETS.min(buckets) {
            *self.hand = (*self.hand + 1) & (buckets - 1);
            for found in self.chain(*self.hand) {
                let Some(place) = room.next() else { return };
                *place = Some((found.node().uses.rank(now), found));
            }
        }
    }

    /// Removes every entry of the stripe for which `may_go` returns true.
    fn remove_if(&mut self, may_go: &mut impl FnMut(&T) -> bool) {
        for index in 0..self.buckets().len() {
            for found in self.chain(index) {
                if may_go(found.value()) {
                    self.remove(found);
                }
            }
        }
    }

    /// Returns the entries of bucket `index`. One that is removed meanwhile still leads to the
    /// rest.
    fn chain(&self, index: usize) -> impl Iterator<Item = Found<'g, T>> + use<'g, T> {
        // SAFETY: the lock keeps the buckets, and the caller passes an index below their number.
        let head = unsafe { self.buckets().at(index) };
        // SAFETY: under the lock, a chain holds only entries that are not retired, and the guard
        // keeps entries that this thread removes meanwhile.
        let found = |at: *mut Node<T>| NonNull::new(at).map(|node| Found { node, guard: PhantomData });
        let first = head.and_then(|head| found(head.load(Ordering::Relaxed)));
        std::iter::successors(first, move |at: &Found<'g, T>| found(at.node().next.load(Ordering::Relaxed)))
    }

    /// Unlinks the first entry `is` of a chain of this stripe, from `link` on, and retires it.
    fn unlink_first(
        &mut self,
        mut link: &AtomicPtr<Node<T>>,
        is: impl Fn(&Node<T>) -> bool,
    ) -> Option<Found<'g, T>> {
        loop {
            // SAFETY: under the lock, a chain holds only entries that are not retired.
            let node = unsafe { link.load(Ordering::Relaxed).as_ref() }?;
            if is(node) {
                // Release: V, which pairs with the Acquire in `is_live`.
                node.live.store(false, Ordering::Release);
                // Release: P for the entries behind, which a reader may first meet through this
                // link.
                link.store(node.next.load(Ordering::Relaxed), Ordering::Release);
                self.set_entries(self.entries() - 1);
                let node = NonNull::from(node);
                // SAFETY: `T: Send + 'static`, so any thread may drop it at any later time. New
                // readers cannot find it, and the lock lets one thread unlink it. It came from
                // `slab::alloc`.
                unsafe { self.guard.defer(move || slab::free(node)) };
                return Some(Found { node, guard: PhantomData });
            }
            link = &node.next;
        }
    }

    /// Moves the entries of the stripe to more buckets (rule 5).
    fn grow(&mut self, larger: OwnedBuckets<T>) {
        let pointer = &self.table.buckets[self.stripe];
        let old = self.buckets();
        if old.len() > 0 {
            // Release: G, since readers also come to the old buckets by this value.
            pointer.store(old.moving().pointer(), Ordering::Release);
        }
        let new = larger.into_shared();
        for index in 0..old.len() {
            // SAFETY: as in `chain`.
            let mut at =
                unsafe { old.at(index) }.map_or(ptr::null_mut(), |head| head.load(Ordering::Relaxed));
            // SAFETY: as in `chain`.
            while let Some(node) = unsafe { at.as_ref() } {
                // SAFETY: no other thread can free them.
                let head = unsafe { new.head(node.hash) }.expect("larger buckets are some");
                let next = node.next.load(Ordering::Relaxed);
                // Release: P. A reader on the old chain comes by this link to entries of the new
                // one.
                node.next.store(head.load(Ordering::Relaxed), Ordering::Release);
                head.store(at, Ordering::Release);
                at = next;
            }
        }
        // Release: G, which pairs with the Acquire in `buckets`.
        pointer.store(new.pointer(), Ordering::Release);
        // SAFETY: new readers cannot find them, and no other thread replaces them.
        unsafe { self.guard.defer(move || old.free()) };
    }

    #[inline]
    fn buckets(&self) -> Buckets<T> {
        self.table.buckets(self.stripe)
    }

    #[inline]
    fn head(&self, hash: u64) -> Option<&'g AtomicPtr<Node<T>>> {
        // SAFETY: the guard, borrowed for `'g`, keeps them.
        unsafe { self.buckets().head(hash) }
    }

    #[inline]
    fn entries(&self) -> usize {
        self.table.entries(self.stripe).load(Ordering::Relaxed)
    }

    fn set_entries(&self, entries: usize) {
        self.table.entries(self.stripe).store(entries, Ordering::Relaxed);
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
        // SAFETY: the guard, borrowed for `'g`, keeps the entry (rule 7).
        unsafe { self.node.as_ref() }
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
        for buckets in &self.buckets {
            // Relaxed: the owner of `&mut self` has synchronised with every user.
            let buckets = Buckets::<T>::at_pointer(buckets.load(Ordering::Relaxed));
            for index in 0..buckets.len() {
                // SAFETY: lookups borrow the map, so it has no other user.
                let head = unsafe { buckets.at(index) };
                let mut at = head.map_or(ptr::null_mut(), |head| head.load(Ordering::Relaxed));
                while let Some(node) = NonNull::new(at) {
                    // SAFETY: entries in a chain came from `slab::alloc` and are not retired.
                    unsafe {
                        at = node.as_ref().next.load(Ordering::Relaxed);
                        slab::free(node);
                    }
                }
            }
            // SAFETY: as above.
            unsafe { buckets.free() };
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
        let table = RcuHashMap::new();
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

    /// A cache of numbers that counts how many it finds.
    struct Numbers {
        table: RcuHashMap<u64>,
        hasher: RandomState,
        limit: usize,
        entries: usize,
    }

    impl Numbers {
        fn new(limit: usize) -> Self {
            Self { table: RcuHashMap::new(), hasher: RandomState::new(), limit, entries: 0 }
        }

        /// Asks for each number and inserts it where it is not found. Returns the part found.
        fn pass(&mut self, numbers: std::ops::Range<u64>) -> f64 {
            let total = numbers.end - numbers.start;
            let found = numbers.filter(|&number| self.get(number)).count();
            found as f64 / total as f64
        }

        fn get(&mut self, number: u64) -> bool {
            let hash = self.hasher.hash_one(number);
            let guard = pin();
            if self.table.find(hash, &guard, |&entry| entry == number).is_some() {
                return true;
            }
            let mut bucket = self.table.lock(hash, &guard);
            bucket.insert(Unlinked::new(hash, number));
            drop(bucket);
            self.entries += 1;
            if self.entries > self.limit {
                self.entries -= self.table.evict(2.min(self.entries - self.limit), |_| true);
            }
            false
        }
    }

    /// Scans larger than the cache find most of what fits, in the second pass already.
    #[test]
    fn a_cyclic_scan_finds_what_fits() {
        const LIMIT: u64 = 10_000;
        for size in [LIMIT * 5 / 4, LIMIT * 3 / 2, LIMIT * 2, LIMIT * 5 / 2] {
            let mut numbers = Numbers::new(LIMIT as usize);
            assert_eq!(numbers.pass(0..size), 0.0);
            let best = LIMIT as f64 / size as f64;
            for pass in 2..6 {
                let found = numbers.pass(0..size);
                assert!(found > 0.7 * best, "{size}: pass {pass}: {found} of {best}");
            }
            assert!(numbers.table.len() <= LIMIT as usize * 21 / 20);
        }
    }

    /// After a change of use, the cache forgets what is not used any more.
    #[test]
    fn a_new_use_takes_the_cache_over() {
        const LIMIT: u64 = 10_000;
        let mut numbers = Numbers::new(LIMIT as usize);
        (0..5).for_each(|_| _ = numbers.pass(0..LIMIT * 3 / 2));
        let new = 1 << 40..(1 << 40) + LIMIT * 3 / 4;
        let passes = (1..20).find(|_| numbers.pass(new.clone()) > 0.99);
        assert!(passes.is_some_and(|passes| passes <= 6), "{passes:?}");
    }

    /// Entries in frequent use stay, while a scan goes through the cache.
    #[test]
    fn a_scan_leaves_what_is_in_use() {
        const LIMIT: u64 = 10_000;
        let mut numbers = Numbers::new(LIMIT as usize);
        let used = 1 << 40..(1 << 40) + LIMIT / 2;
        (0..3).for_each(|_| _ = numbers.pass(used.clone()));
        for part in 0..40 {
            numbers.pass(part * LIMIT / 4..(part + 1) * LIMIT / 4);
            let found = numbers.pass(used.clone());
            assert!(found > 0.9, "{part}: {found}");
        }
    }

    #[test]
    fn an_eviction_looks_at_few_entries_where_none_may_go() {
        let mut numbers = Numbers::new(usize::MAX);
        numbers.pass(0..50_000);
        let mut looked_at = 0;
        let gone = numbers.table.evict(2, |_| {
            looked_at += 1;
            false
        });
        assert!(gone == 0 && looked_at <= 4 * WINDOW, "{looked_at}");
        numbers.table.remove_if(|&key| key >= 10);
        assert_eq!(numbers.table.len(), 10);
        // The few that are left are found in many empty buckets.
        assert_eq!((0..1000).map(|_| numbers.table.evict(1, |_| true)).sum::<usize>(), 10);
    }

    /// Readers find an entry that is there, also while its stripe grows.
    #[test]
    fn entries_are_found_while_stripes_grow() {
        for _ in 0..10 {
            let table = &RcuHashMap::new();
            let hasher = &RandomState::new();
            let insert = |key: u64| {
                let hash = hasher.hash_one(key);
                table.lock(hash, &pin()).insert(Unlinked::new(hash, key));
            };
            (0..1000).for_each(insert);
            let done = &AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    (1000..200_000).for_each(insert);
                    done.store(true, Ordering::Release);
                });
                scope.spawn(move || {
                    while !done.load(Ordering::Acquire) {
                        for key in 0..1000 {
                            let guard = pin();
                            let found = table.find(hasher.hash_one(key), &guard, |&entry| entry == key);
                            assert!(found.is_some(), "{key}");
                        }
                    }
                });
            });
            assert_eq!(table.len(), 200_000);
        }
    }

    #[test]
    fn a_key_that_is_replaced_is_always_found() {
        let table = &RcuHashMap::new();
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
