//! A hash map whose lookups take no lock: entries are found by hash and predicate, under an
//! [RCU guard](crate::rcu).
//!
//! The highest bits of a hash choose a bucket, which is a chain of entries. A reader walks one
//! chain and writes nothing, except for the time of the last use, if that is out of date. The
//! buckets are divided into stripes, each with a lock for its writers ([`RcuHashMap::lock`]). The
//! map doubles its buckets when a stripe has more entries than buckets, so an empty map is small
//! and chains stay short.
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
//! 5. The last link of a chain is the mark of its bucket. A reader that finds nothing and ends at
//!    the mark of another bucket looks once more, with the stripe's lock.
//! 6. The map grows in steps. It publishes new buckets, whose heads are null (G). A stripe moves
//!    its chains when it is locked next. A reader that loads a null head takes the lock, too. The
//!    head is stored after each link of its chain. When the last stripe has moved, the old buckets
//!    are retired. The map does not grow again before that.
//! 7. [`Found::is_live`] turns false before the entry is unlinked. A reader that copies something
//!    and then finds the entry live knows that the entry was in the map when it copied. The
//!    `Release` store of `live` (V), or a release operation after it, pairs with the `Acquire` of
//!    what the reader copied.
//! 8. RCU frees the memory of entries and of replaced buckets.
//!
//! # No wrong miss
//! A reader that misses without a lock has followed links from a head to the mark of that same
//! bucket. It has met each entry that was in the bucket all the time:
//! - Without moves, insertions change only the head, and removals only lead past the entry that
//!   they remove. So all entries that stay are behind each link that the reader follows.
//! - The moves of a growing map lead from an old chain to new chains, and never back: each new link
//!   is an entry of a new chain or its mark. A reader that has followed one new link therefore ends
//!   at a mark of the new buckets. If it ends at the mark of an old bucket, it has followed old
//!   links only, and a move changes no old head. So it has met all that was in the old chain.
//! - Such a reader misses entries that were inserted after the move. It loaded the pointer to the
//!   old buckets, so no such insertion ended before its search began: the new pointer is published
//!   (G) before the move, and the move ends before the insertion.
//! - A reader with the new buckets loads a head that is stored after all links of its chain, so P
//!   and L let it see no old link.
//!
//! Marks name buckets for certain. They are addresses, and RCU keeps the buckets of a reader while
//! it is pinned, so no other buckets have the same address.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | pointer to buckets | the holder of `growing` | all threads | `Release` / `Acquire` (G) |
//! | head, `next` | holders of the stripe's lock | all threads | `Release` / `Acquire` (P, L) |
//! | `live` | holders of the stripe's lock | all threads | `Release` / `Acquire` (V) |
//! | `entries` | holders of the stripe's lock | all threads | `Relaxed`: a hint without it |
//! | `unmoved` | holders of a stripe's lock | the same | `Relaxed`: G and the locks order it |
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
use buckets::{Buckets, Head, STRIPE_BITS, Unit, end_of, is_end};

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

struct Stripe<T> {
    lock: Latch<Chains<T>>,
    entries: AtomicUsize,
}

/// The state of a stripe, under its lock.
struct Chains<T> {
    /// The buckets of the map, or the ones before while the chains have not been moved.
    buckets: Buckets<T>,
    /// The bucket where the next window begins.
    hand: usize,
}

/// A hash map whose lookups take no lock.
pub struct RcuHashMap<T> {
    buckets: AtomicPtr<Unit<T>>,
    /// Stripes whose chains are not in `buckets` yet.
    unmoved: AtomicUsize,
    /// The lock of a thread that replaces `buckets`.
    growing: Latch<()>,
    stripes: Box<[Padded<Stripe<T>>]>,
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
    map: &'g RcuHashMap<T>,
    stripe: usize,
    chains: LatchGuard<'g, Chains<T>>,
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
        let chains = || Latch::new(Chains { buckets: Buckets::none(), hand: 0 });
        let stripe = |_| Padded(Stripe { lock: chains(), entries: AtomicUsize::new(0) });
        Self {
            buckets: AtomicPtr::new(Buckets::none().larger().pointer()),
            unmoved: AtomicUsize::new(STRIPES),
            growing: Latch::new(()),
            stripes: (0..STRIPES).map(stripe).collect(),
            clock: Clock::new(),
            hand: Padded(AtomicUsize::new(0)),
            owns: PhantomData,
        }
    }

    /// Returns the first entry of this hash that `matches`. It waits only if nothing was found and
    /// the chain was moved or not filled yet. Hashes must be spread over all their bits, and an
    /// attacker must not be able to predict them.
    #[inline]
    pub fn find<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        matches: impl Fn(&T) -> bool,
    ) -> Option<Found<'g, T>> {
        // SAFETY: RCU frees buckets after they were replaced, and the guard was pinned before the
        // load that found them.
        let head = unsafe { self.buckets().head(hash) };
        match self.search(head, hash, guard, &matches) {
            Ok(found) => Some(found),
            Err(end) if end == end_of(head) => None,
            Err(_) => self.find_settled(hash, guard, &matches),
        }
    }

    /// Looks once more, after the stripe has moved its chains.
    #[cold]
    fn find_settled<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        matches: &impl Fn(&T) -> bool,
    ) -> Option<Found<'g, T>> {
        self.bucket(stripe(hash), guard).find(hash, matches)
    }

    /// Returns the first entry of the chain that matches, or the mark where the walk ended: null if
    /// the bucket is not filled yet.
    #[inline]
    fn search<'g>(
        &'g self,
        head: &'g Head<T>,
        hash: u64,
        _guard: &'g Guard,
        matches: &impl Fn(&T) -> bool,
    ) -> Result<Found<'g, T>, *mut Node<T>> {
        let mut at = head.load(Ordering::Acquire); // L, which pairs with P.
        if at.is_null() {
            return Err(at);
        }
        while !is_end(at) {
            // SAFETY: RCU frees entries after they were unlinked, and the guard was pinned before
            // the load that found this one.
            let node = unsafe { &*at };
            if node.hash == hash && matches(&node.value) {
                node.uses.note(self.clock.now());
                return Ok(Found { node: NonNull::from(node), guard: PhantomData });
            }
            // Acquire: L, which pairs with P.
            at = node.next.load(Ordering::Acquire);
        }
        Err(at)
    }

    /// Locks the bucket of `hash`. A thread may hold one bucket at a time. A map whose stripe is
    /// full grows first.
    pub fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Bucket<'g, T> {
        let (stripe, buckets) = (stripe(hash), self.buckets());
        if self.entries(stripe).load(Ordering::Relaxed) >= buckets.of_stripe(stripe).len() {
            self.grow(buckets, guard);
        }
        self.bucket(stripe, guard)
    }

    /// Replaces the buckets by twice as many, unless another thread does or has done so. Each
    /// stripe moves its chains when it is locked next.
    #[cold]
    fn grow(&self, full: Buckets<T>, guard: &Guard) {
        let Ok(_growing) = self.growing.try_lock() else { return };
        if self.buckets() != full {
            return;
        }
        // All chains are in `full` after this.
        (0..STRIPES).for_each(|stripe| drop(self.bucket(stripe, guard)));
        // Relaxed: G orders it.
        self.unmoved.store(STRIPES, Ordering::Relaxed);
        // Release: G, which pairs with the Acquire in `buckets`.
        self.buckets.store(full.larger().pointer(), Ordering::Release);
    }

    /// Locks a stripe, whose chains it moves if they are in the buckets before.
    fn bucket<'g>(&'g self, stripe: usize, guard: &'g Guard) -> Bucket<'g, T> {
        // Ignores poison: a chain is whole after each single change, whatever panicked under the
        // lock.
        let chains = self.stripes[stripe].lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bucket = Bucket { map: self, stripe, chains, guard };
        let buckets = self.buckets();
        if bucket.chains.buckets != buckets {
            bucket.move_to(buckets);
        }
        bucket
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
    fn buckets(&self) -> Buckets<T> {
        // Acquire: G, which pairs with the Release in `grow`.
        Buckets::at_pointer(self.buckets.load(Ordering::Acquire))
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
        self.map.search(self.head(hash), hash, self.guard, &matches).ok()
    }

    /// Adds an entry.
    pub fn insert(&mut self, new: Unlinked<T>) -> Found<'g, T> {
        let node = ManuallyDrop::new(new).0;
        // SAFETY: `new` owned the entry, and it is freed only after it has been in the map.
        let entry = unsafe { node.as_ref() };
        entry.uses.begin(self.map.clock.now());
        let head = self.head(entry.hash);
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
        let head = self.head(found.node().hash);
        self.unlink_first(head, |node| ptr::eq(node, found.node.as_ptr())).is_some()
    }

    /// Puts the next entries of the stripe into the places of `room`, with their ranks.
    fn look<'w>(&mut self, room: &mut impl Iterator<Item = &'w mut Option<(Rank, Found<'g, T>)>>)
    where
        'g: 'w,
        T: 'w,
    {
        let buckets = self.chains.buckets.of_stripe(self.stripe);
        let now = self.map.clock.now();
        for _ in 0..WINDOW_BUCKETS.min(buckets.len()) {
            self.chains.hand = (self.chains.hand + 1) & (buckets.len() - 1);
            for found in self.chain(buckets.start + self.chains.hand) {
                let Some(place) = room.next() else { return };
                *place = Some((found.node().uses.rank(now), found));
            }
        }
    }

    /// Removes every entry of the stripe for which `may_go` returns true.
    fn remove_if(&mut self, may_go: &mut impl FnMut(&T) -> bool) {
        for index in self.chains.buckets.of_stripe(self.stripe) {
            for found in self.chain(index) {
                if may_go(found.value()) {
                    self.remove(found);
                }
            }
        }
    }

    /// Returns the entries of bucket `index` of the stripe. One that is moved or removed meanwhile
    /// does not hide the rest.
    fn chain(&self, index: usize) -> impl Iterator<Item = Found<'g, T>> + use<'g, T> {
        // SAFETY: the lock keeps the buckets, and the caller passes an index below their number.
        let head = unsafe { self.chains.buckets.at(index) };
        let mut at = head.load(Ordering::Relaxed);
        std::iter::from_fn(move || {
            let node = NonNull::new(at).filter(|_| !is_end(at))?;
            let found = Found { node, guard: PhantomData };
            // Under the lock, a chain holds only entries that are not retired, and the guard keeps
            // entries that this thread removes meanwhile.
            at = found.node().next.load(Ordering::Relaxed);
            Some(found)
        })
    }

    /// Unlinks the first entry `is` of a chain of this stripe, from `link` on, and retires it.
    fn unlink_first(
        &mut self,
        mut link: &AtomicPtr<Node<T>>,
        is: impl Fn(&Node<T>) -> bool,
    ) -> Option<Found<'g, T>> {
        loop {
            let at = link.load(Ordering::Relaxed);
            if is_end(at) {
                return None;
            }
            // SAFETY: under the lock, a chain holds only entries that are not retired.
            let node = unsafe { &*at };
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

    /// Moves the chains of the stripe to `new`, which has twice as many buckets (rule 6). The
    /// thread that moves the last stripe retires the old buckets.
    #[cold]
    fn move_to(&mut self, new: Buckets<T>) {
        let old = self.chains.buckets;
        let mut from = old.of_stripe(self.stripe);
        let mut to = new.of_stripe(self.stripe);
        while let (Some(low), Some(high)) = (to.next(), to.next()) {
            // SAFETY: the buckets have not been replaced, and these are their own.
            let heads = [low, high].map(|index| unsafe { new.at(index) });
            let mut chains = heads.map(end_of);
            for found in from.next().into_iter().flat_map(|index| self.chain(index)) {
                let chain = &mut chains[new.index(found.node().hash) & 1];
                // Release: P. A reader on the old chain comes by this link to entries of the new
                // one.
                found.node().next.store(*chain, Ordering::Release);
                *chain = found.node.as_ptr();
            }
            for (head, chain) in heads.into_iter().zip(chains) {
                // Release: P, which pairs with L.
                head.store(chain, Ordering::Release);
            }
        }
        self.chains.buckets = new;
        // Relaxed: RCU frees the old buckets after all threads that have moved a stripe unpinned.
        if self.map.unmoved.fetch_sub(1, Ordering::Relaxed) == 1 {
            // SAFETY: new readers cannot find them, and all stripes have left them.
            unsafe { self.guard.defer(move || old.free()) };
        }
    }

    #[inline]
    fn head(&self, hash: u64) -> &'g Head<T> {
        // SAFETY: the guard, borrowed for `'g`, keeps them, and a locked stripe has buckets.
        unsafe { self.chains.buckets.head(hash) }
    }

    #[inline]
    fn entries(&self) -> usize {
        self.map.entries(self.stripe).load(Ordering::Relaxed)
    }

    fn set_entries(&self, entries: usize) {
        self.map.entries(self.stripe).store(entries, Ordering::Relaxed);
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
        // SAFETY: the guard, borrowed for `'g`, keeps the entry (rule 8).
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
        // Relaxed: the owner of `&mut self` has synchronised with every user.
        let current = Buckets::<T>::at_pointer(self.buckets.load(Ordering::Relaxed));
        let mut old = Buckets::none();
        for (stripe, state) in self.stripes.iter().enumerate() {
            let buckets = state.lock.lock().unwrap_or_else(PoisonError::into_inner).buckets;
            for index in buckets.of_stripe(stripe) {
                // SAFETY: lookups borrow the map, so the buckets have no other user.
                let mut at = unsafe { buckets.at(index) }.load(Ordering::Relaxed);
                while let Some(node) = NonNull::new(at).filter(|_| !is_end(at)) {
                    // SAFETY: entries in a chain came from `slab::alloc` and are not retired.
                    unsafe {
                        at = node.as_ref().next.load(Ordering::Relaxed);
                        slab::free(node);
                    }
                }
            }
            if buckets != current {
                old = buckets;
            }
        }
        // SAFETY: as above. All stripes that the map has not moved are in the same buckets.
        unsafe {
            old.free();
            current.free();
        }
        // The values may have retired as much memory as the whole map held.
        pin().flush();
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
