//! A hash map of [counted values](crate::rcu_arc) whose lookups take no lock: values are found by
//! hash and predicate, under an [RCU guard](crate::rcu).
//!
//! The highest bits of a hash choose a bucket, which is a chain of values. The links are part of
//! the values' allocations, and a chain owns a count of each of its values. A reader walks one
//! chain and writes nothing, except for the time of the last use, if that is out of date. The
//! buckets are divided into stripes, each with a lock for its writers ([`RcuHashMap::lock`]). The
//! map doubles its buckets when a stripe has more values than buckets, so an empty map is small
//! and chains stay short.
//!
//! The caches of names, of inodes and of blocks are this map. The owner says by what a value is
//! found, and which values may be evicted. The map chooses between these by the rules of
//! [eviction](#eviction).
//!
//! # Rules
//! 1. A value is complete before it is linked. The `Release` store of a head or of `next` (P)
//!    pairs with the `Acquire` loads of readers (L).
//! 2. A value is in one map at a time, and never in two maps in its life.
//! 3. A replaced value stays in the chain until its replacement is linked in front of it. A reader
//!    that had passed the head before that may find neither. So a miss says only that no one value
//!    of the hash was in the map all the time.
//! 4. An unlinked value keeps its link, so a reader that stands on it comes back to the chain.
//! 5. The last link of a chain is the mark of its bucket. A reader that finds nothing and ends at
//!    the mark of another bucket looks once more, with the stripe's lock.
//! 6. The map grows in steps. It publishes new buckets, whose heads are null (G). A stripe moves
//!    its chains when it is locked next. A reader that loads a null head takes the lock, too. The
//!    head is stored after each link of its chain. When the last stripe has moved, the old buckets
//!    are retired. The map does not grow again before that.
//! 7. A value may leave its chain and get another hash and another key, under which it is inserted
//!    again, while readers stand on it. So may its key change while it is in the chain. The owner
//!    says in the value how readers notice that. It also learns of each eviction, under the lock.
//! 8. A value is evicted if the chain has its only count. The count goes to zero in one step, under
//!    the lock, and the value is unlinked under the same lock. So a locked stripe has no value
//!    whose count is zero. A reader may find such a value, which it cannot refer to any more. It
//!    looks again with the lock.
//! 9. RCU frees the memory of values and of replaced buckets. The memory of the values is the
//!    map's own ([`RcuHashMap::alloc`]), so a map that is dropped visits them page by page.
//!
//! # No wrong miss
//! A reader misses without a lock only if it ends at the mark of the bucket B where it began. Let N
//! be a value that has the hash in the map from before the search until after it. The reader has
//! met N:
//! - N is or was in the chain of B. If it had left B for larger buckets before the search began,
//!   the reader would have loaded the pointer to these (G).
//! - Take the last link by which the reader came into the chain of B: the head, or the link of a
//!   value E that it reached in another chain. N is behind it. For the head that is plain. E was
//!   put at the head of B after the search began, so in front of N. Otherwise E had left the other
//!   chain before the search began, and by P and L the reader had found no link to it there.
//! - From there on, the reader followed links of B only. An insertion changes the head only, and a
//!   removal leads past the removed value only. A move to larger buckets changes neither a head nor
//!   a link of B. It stores links of new chains in the values, and these lead to new marks.
//!
//! A reader that comes to another chain for good ends at another mark. Marks name buckets for
//! certain. They are addresses, and RCU keeps the buckets of a reader while it is pinned, so no
//! other buckets have the same address. A walk ends: each link leads to values that were linked
//! before it was stored, so it needs a new insertion to meet a value again.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | pointer to buckets | the holder of `growing` | all threads | `Release` / `Acquire` (G) |
//! | head, `next` | holders of the stripe's lock | all threads | `Release` / `Acquire` (P, L) |
//! | `hash` | the thread that inserts | all threads | `Relaxed`: keys and marks decide |
//! | `linked` | the same, the one that removes | threads that insert | `Release` / `Acquire` |
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

mod buckets;

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::PoisonError;

use crate::entry_age::{Clock, Rank};
use crate::percpu::Padded;
use crate::primitive::{AtomicPtr, AtomicUsize, Latch, LatchGuard, Ordering, capacity};
use crate::rcu::{Guard, pin};
use crate::rcu_arc::arena::Arena;
use crate::rcu_arc::{FinalRef, RcuArc, RcuRef, Release, end_all};

use buckets::{Buckets, Head, STRIPE_BITS, Unit, end_of, is_end};

/// Stripes of a map, each with a lock: enough of them that threads that use different names seldom
/// write the same line.
const STRIPES: usize = 1 << STRIPE_BITS;
/// Values of which one is evicted. In the worst case each one costs a miss of the processor's
/// caches, and these misses overlap.
const WINDOW: usize = capacity(16, 2);
/// Buckets whose first values a growing map reads together, so that their misses of the processor's
/// caches overlap.
const MOVED: usize = capacity(16, 1);
/// Buckets in which a window is looked for, at most: an emptied stripe has few values in many.
const WINDOW_BUCKETS: usize = 2 * WINDOW;

struct Stripe {
    lock: Latch<Chains>,
    entries: AtomicUsize,
}

/// The state of a stripe, under its lock.
struct Chains {
    /// The buckets of the map, or the ones before while the chains have not been moved.
    buckets: Buckets,
    /// The bucket where the next window begins.
    hand: usize,
}

/// A hash map of counted values, whose lookups take no lock.
pub struct RcuHashMap<T: Release> {
    buckets: AtomicPtr<Unit>,
    /// Stripes whose chains are not in `buckets` yet.
    unmoved: AtomicUsize,
    /// The lock of a thread that replaces `buckets`.
    growing: Latch<()>,
    stripes: Box<[Padded<Stripe>]>,
    clock: Clock,
    /// The stripe where the next [`evict`](Self::evict) begins.
    hand: Padded<AtomicUsize>,
    arena: Arena<T>,
    owns: PhantomData<RcuArc<T>>,
}

/// A locked stripe.
pub struct Bucket<'g, T: Release> {
    map: &'g RcuHashMap<T>,
    stripe: usize,
    chains: LatchGuard<'g, Chains>,
    guard: &'g Guard,
}

impl<T: Release> Default for RcuHashMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Release> RcuHashMap<T> {
    /// Creates an empty map.
    pub fn new() -> Self {
        let chains = || {
            Latch::new(Chains {
                buckets: Buckets::none(),
                hand: 0,
            })
        };
        let stripe = |_| {
            Padded(Stripe {
                lock: chains(),
                entries: AtomicUsize::new(0),
            })
        };
        Self {
            buckets: AtomicPtr::new(Buckets::none().larger().pointer()),
            unmoved: AtomicUsize::new(STRIPES),
            growing: Latch::new(()),
            stripes: (0..STRIPES).map(stripe).collect(),
            clock: Clock::new(),
            hand: Padded(AtomicUsize::new(0)),
            arena: Arena::new(),
            owns: PhantomData,
        }
    }

    /// Creates the first reference to a value that may be inserted into this map. The value is in
    /// the map's own memory.
    pub fn alloc(&self, value: T) -> RcuArc<T> {
        RcuArc::new_in(value, &self.arena)
    }

    /// Returns the first value of this hash that `matches`. It waits only if nothing was found and
    /// a value or a chain was moved, or the bucket is not filled yet. Hashes must be spread over
    /// all their bits, and an attacker must not be able to predict them.
    #[inline]
    pub fn find<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        matches: impl Fn(&T) -> bool,
    ) -> Option<RcuRef<'g, T>> {
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
    ) -> Option<RcuRef<'g, T>> {
        self.bucket(stripe(hash), guard).find(hash, matches)
    }

    /// Returns the first value of the chain that matches, or the mark where the walk ended: null if
    /// the bucket is not filled yet.
    #[inline]
    fn search<'g>(
        &'g self,
        head: &'g Head,
        hash: u64,
        _guard: &'g Guard,
        matches: &impl Fn(&T) -> bool,
    ) -> Result<RcuRef<'g, T>, *mut ()> {
        let mut at = head.load(Ordering::Acquire); // L, which pairs with P.
        if at.is_null() {
            return Err(at);
        }
        while !is_end(at) {
            // SAFETY: the chain owned a count of the value when this link was loaded, and the guard
            // was pinned before.
            let value: RcuRef<'g, T> = unsafe { value_at(at) };
            let link = value.link();
            // Relaxed: `matches` decides.
            if link.hash.load(Ordering::Relaxed) == hash && matches(value.get()) {
                link.uses.note(self.clock.now());
                return Ok(value);
            }
            // Acquire: L, which pairs with P.
            at = link.next.load(Ordering::Acquire);
        }
        Err(at)
    }

    /// Locks the stripe of `hash`. A thread may hold one at a time. A map whose stripe is full
    /// grows first.
    pub fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Bucket<'g, T> {
        let stripe = stripe(hash);
        let buckets = self.buckets();
        if self.entries(stripe).load(Ordering::Relaxed) >= buckets.of_stripe(stripe).len() {
            self.grow(buckets, guard);
        }
        self.bucket(stripe, guard)
    }

    /// Replaces the buckets by twice as many, unless another thread does or has done so. Each
    /// stripe moves its chains when it is locked next.
    #[cold]
    fn grow(&self, full: Buckets, guard: &Guard) {
        let Ok(_growing) = self.growing.try_lock() else {
            return;
        };
        if self.buckets() != full {
            return;
        }
        // All chains are in `full` after this.
        (0..STRIPES).for_each(|stripe| drop(self.bucket(stripe, guard)));
        // Relaxed: G orders it.
        self.unmoved.store(STRIPES, Ordering::Relaxed);
        // Release: G, which pairs with the Acquire in `buckets`.
        self.buckets
            .store(full.larger().pointer(), Ordering::Release);
    }

    /// Locks a stripe, whose chains it moves if they are in the buckets before.
    fn bucket<'g>(&'g self, stripe: usize, guard: &'g Guard) -> Bucket<'g, T> {
        // Ignores poison: a chain is whole after each single change, whatever panicked under the
        // lock.
        let chains = self.stripes[stripe]
            .lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut bucket = Bucket {
            map: self,
            stripe,
            chains,
            guard,
        };
        let buckets = self.buckets();
        if bucket.chains.buckets != buckets {
            bucket.move_to(buckets);
        }
        bucket
    }

    /// Evicts up to `want` values that have no other reference, by the rules of
    /// [eviction](#eviction), and calls `left` with each before another thread can insert one of
    /// its key. It returns fewer where it meets many in use. It goes on where the last call
    /// stopped.
    ///
    /// Locks: a stripe at a time, within. The caller drops the values without a lock.
    pub fn evict(&self, want: usize, mut left: impl FnMut(&T)) -> Vec<FinalRef<T>> {
        let guard = pin();
        let mut gone = Vec::new();
        for _ in 0..2 * want {
            if gone.len() == want {
                break;
            }
            gone.extend(self.evict_one(&guard, &mut left));
        }
        self.clock.count(gone.len(), || self.len());
        guard.flush();
        gone
    }

    /// Evicts the value of the highest rank that is not in use among the next few.
    fn evict_one<'g>(&'g self, guard: &'g Guard, left: &mut impl FnMut(&T)) -> Option<FinalRef<T>> {
        let mut window = [const { None::<(Rank, RcuRef<'g, T>)> }; WINDOW];
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
        window
            .into_iter()
            .rev()
            .flatten()
            .find_map(|(_, value)| self.end_last(value, guard, &mut *left))
    }

    /// Evicts every value that has no other reference, as [`evict`](Self::evict) does.
    pub fn evict_all(&self, mut left: impl FnMut(&T)) -> Vec<FinalRef<T>> {
        let guard = pin();
        let linked = self.arena.linked().into_iter();
        // SAFETY: after the guard was pinned, the map owned a count of each value, or the thread
        // did that inserts it.
        let values = linked.map(|at| unsafe { RcuRef::<T>::at(at) });
        let end = |value: RcuRef<'_, T>| self.end_last(value, &guard, &mut left);
        values.filter_map(end).collect()
    }

    /// Evicts a value if the map and the caller have its only references, and calls `left` with
    /// it as [`evict`](Self::evict) does. Drops the caller's reference in any case.
    ///
    /// Locks: a stripe, within. The caller drops the result without a lock.
    pub fn evict_held(&self, value: RcuArc<T>, left: impl FnOnce(&T)) -> Option<FinalRef<T>> {
        let guard = pin();
        let at = value.as_rcu_ref();
        // Relaxed: as in `end_last`.
        let stripe = stripe(at.link().hash.load(Ordering::Relaxed));
        let mut bucket = self.bucket(stripe, &guard);
        // SAFETY: the chain owns a count, and the caller has passed another one.
        let last = unsafe { bucket.end_referenced(at, 2, left) };
        drop(bucket);
        drop(guard);
        if last.is_some() {
            // The count has been given up.
            RcuArc::into_raw(Some(value));
        }
        last
    }

    /// Evicts a value if it has no other reference.
    fn end_last(
        &self,
        value: RcuRef<'_, T>,
        guard: &Guard,
        left: impl FnOnce(&T),
    ) -> Option<FinalRef<T>> {
        // Relaxed: a value that gets another hash meanwhile is in use.
        let stripe = stripe(value.link().hash.load(Ordering::Relaxed));
        self.bucket(stripe, guard).end_last(value, left)
    }

    /// Returns the number of values: out of date at once.
    pub fn len(&self) -> usize {
        (0..STRIPES)
            .map(|stripe| self.entries(stripe).load(Ordering::Relaxed))
            .sum()
    }

    /// Returns whether the map is empty: out of date at once.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of values in a stripe.
    #[inline]
    fn entries(&self, stripe: usize) -> &AtomicUsize {
        &self.stripes[stripe].entries
    }

    #[inline]
    fn buckets(&self) -> Buckets {
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

/// Returns the value that a link leads to.
///
/// # Safety
/// The link is neither null nor the end of a chain, it is one of a map of `T`, and the value stays
/// allocated for `'g`.
#[inline]
unsafe fn value_at<'g, T: Release>(link: *mut ()) -> RcuRef<'g, T> {
    // SAFETY: the caller's promise.
    unsafe { RcuRef::at(NonNull::new_unchecked(link.cast())) }
}

/// Returns the value that a link leads to, if it is not the end of a chain.
///
/// # Safety
/// As [`value_at`].
unsafe fn value_unless_end<'g, T: Release>(link: *mut ()) -> Option<RcuRef<'g, T>> {
    // SAFETY: the caller's promise.
    (!link.is_null() && !is_end(link)).then(|| unsafe { value_at(link) })
}

impl<'g, T: Release> Bucket<'g, T> {
    /// Returns the first value of this hash that `matches`.
    pub fn find(&self, hash: u64, matches: impl Fn(&T) -> bool) -> Option<RcuRef<'g, T>> {
        self.map
            .search(self.head(hash), hash, self.guard, &matches)
            .ok()
    }

    /// Adds a value.
    ///
    /// # Panics
    /// If the value is in the map, or was not [allocated](RcuHashMap::alloc) by it.
    pub fn insert(&mut self, hash: u64, new: RcuArc<T>) {
        let value = new.as_rcu_ref();
        assert!(value.is_in(&self.map.arena), "a value is in its own map");
        assert!(value.link().claim(), "a value is in one map, and once");
        value.link().hash.store(hash, Ordering::Relaxed);
        value.link().uses.begin(self.map.clock.now());
        self.link(value);
        // The chain owns the count now.
        RcuArc::into_raw(Some(new));
    }

    /// Adds a value, and removes the one of its hash that `matches`.
    pub fn replace(
        &mut self,
        hash: u64,
        new: RcuArc<T>,
        matches: impl Fn(&T) -> bool,
    ) -> Option<RcuArc<T>> {
        let old = self.find(hash, matches);
        self.insert(hash, new);
        self.remove(old?)
    }

    /// Removes a value of this stripe. Returns `None` if it had been removed already.
    pub fn remove(&mut self, value: RcuRef<'_, T>) -> Option<RcuArc<T>> {
        if !self.take(value) {
            return None;
        }
        // SAFETY: the chain owned a count.
        unsafe { RcuArc::from_raw(value.as_ptr()) }
    }

    /// Removes a value of this stripe if it has no other reference, and calls `left` with it. The
    /// caller drops it without the lock.
    pub fn end_last(&mut self, value: RcuRef<'_, T>, left: impl FnOnce(&T)) -> Option<FinalRef<T>> {
        // SAFETY: the chain owns a count.
        unsafe { self.end_referenced(value, 1, left) }
    }

    /// Removes a value of this stripe if `references` are all that it has, and calls `left` with
    /// it.
    ///
    /// # Safety
    /// The chain and the caller own that many counts, which they give up if this returns the value.
    unsafe fn end_referenced(
        &mut self,
        value: RcuRef<'_, T>,
        references: usize,
        left: impl FnOnce(&T),
    ) -> Option<FinalRef<T>> {
        let link = self.link_to(value)?;
        // SAFETY: the caller's promise.
        let last = unsafe { value.end_last(references) }?;
        self.unlink(link, value);
        left(last.get());
        Some(last)
    }

    /// Takes a value out of its chain, and the count of the chain passes to the caller. Returns
    /// false if it is in no chain of this stripe.
    fn take(&mut self, value: RcuRef<'_, T>) -> bool {
        let link = self.link_to(value);
        link.inspect(|link| self.unlink(link, value)).is_some()
    }

    /// Puts the next values of the stripe into the places of `room`, with their ranks.
    fn look<'w>(&mut self, room: &mut impl Iterator<Item = &'w mut Option<(Rank, RcuRef<'g, T>)>>)
    where
        'g: 'w,
    {
        let buckets = self.chains.buckets.of_stripe(self.stripe);
        let now = self.map.clock.now();
        for _ in 0..WINDOW_BUCKETS.min(buckets.len()) {
            self.chains.hand = (self.chains.hand + 1) & (buckets.len() - 1);
            for value in self.chain(buckets.start + self.chains.hand) {
                let Some(place) = room.next() else { return };
                *place = Some((value.link().uses.rank(now), value));
            }
        }
    }

    /// Returns the values of bucket `index` of the stripe. One that is moved or removed meanwhile
    /// does not hide the rest.
    fn chain(&self, index: usize) -> impl Iterator<Item = RcuRef<'g, T>> + use<'g, T> {
        // SAFETY: the lock keeps the buckets, and the caller passes an index below their number.
        let mut at = unsafe { self.chains.buckets.at(index) }.load(Ordering::Relaxed);
        std::iter::from_fn(move || {
            // SAFETY: under the lock, a chain owns a count of each of its values, and the guard
            // keeps values that this thread removes meanwhile.
            let value: RcuRef<'g, T> = unsafe { value_unless_end(at) }?;
            at = value.link().next.load(Ordering::Relaxed);
            Some(value)
        })
    }

    /// Links a value at the head of the chain of its hash.
    fn link(&mut self, value: RcuRef<'_, T>) {
        let link = value.link();
        let head = self.head(link.hash.load(Ordering::Relaxed));
        // Release: P, since a reader may come by this link from the chain where the value was.
        link.next
            .store(head.load(Ordering::Relaxed), Ordering::Release);
        // Release: P, which pairs with L.
        head.store(value.as_ptr().cast(), Ordering::Release);
        self.count(1);
    }

    /// Returns the head or the link that leads to a value; `None` if the value is in no chain of
    /// this stripe. No other thread changes that.
    fn link_to(&self, value: RcuRef<'_, T>) -> Option<&'g AtomicPtr<()>> {
        let hash = value.link().hash.load(Ordering::Relaxed);
        if stripe(hash) != self.stripe {
            return None;
        }
        let mut link: &AtomicPtr<()> = self.head(hash);
        loop {
            // SAFETY: under the lock, a chain owns a count of each of its values, and the guard
            // keeps values that this thread removes meanwhile.
            let at: RcuRef<'g, T> = unsafe { value_unless_end(link.load(Ordering::Relaxed)) }?;
            if at.ptr_eq(value) {
                return Some(link);
            }
            link = &at.link().next;
        }
    }

    /// Takes a value out of its chain, where `link` leads to it. The count of the chain passes to
    /// the caller.
    fn unlink(&self, link: &AtomicPtr<()>, value: RcuRef<'_, T>) {
        // Release: P for the values behind, which a reader may first meet through this link.
        link.store(value.link().next.load(Ordering::Relaxed), Ordering::Release);
        self.count(-1);
        value.link().release();
    }

    /// Moves the chains of the stripe to `new`, which has twice as many buckets (rule 6). The
    /// thread that moves the last stripe retires the old buckets.
    #[cold]
    fn move_to(&mut self, new: Buckets) {
        let old = self.chains.buckets;
        // The bucket before of each two, if there are any buckets yet.
        let from = |low: usize| Some(low / 2).filter(|_| old.len() > 0);
        let to = new.of_stripe(self.stripe);
        for start in to.clone().step_by(2 * MOVED) {
            let lows = (start..to.end.min(start + 2 * MOVED)).step_by(2);
            let mut firsts = [0; MOVED];
            for (first, low) in firsts.iter_mut().zip(lows.clone()) {
                let value = from(low).and_then(|index| self.chain(index).next());
                *first = value.map_or(0, RcuRef::hash);
            }
            for (low, first) in lows.zip(firsts) {
                self.move_chain(from(low), first, new, low);
            }
        }
        self.chains.buckets = new;
        // Relaxed: RCU frees the old buckets after all threads that have moved a stripe unpinned.
        if self.map.unmoved.fetch_sub(1, Ordering::Relaxed) == 1 {
            // SAFETY: new readers cannot find them, and all stripes have left them.
            unsafe { self.guard.defer(move || old.free()) };
        }
    }

    /// Moves the chain of bucket `from` to the buckets `low` and `low + 1` of `new`. The first
    /// value of the chain, if there is one, has the hash `first`.
    #[inline]
    fn move_chain(&self, from: Option<usize>, first: u64, new: Buckets, low: usize) {
        // SAFETY: the buckets have not been replaced, and these are their own.
        let heads = [low, low + 1].map(|index| unsafe { new.at(index) });
        let mut chains = heads.map(end_of);
        let mut hash = Some(first);
        for value in from.into_iter().flat_map(|index| self.chain(index)) {
            let hash = hash.take().unwrap_or_else(|| value.hash());
            let chain = &mut chains[new.index(hash) & 1];
            // Release: P. A reader on the old chain comes by this link to values of the new one.
            value.link().next.store(*chain, Ordering::Release);
            *chain = value.as_ptr().cast();
        }
        for (head, chain) in heads.into_iter().zip(chains) {
            // Release: P, which pairs with L.
            head.store(chain, Ordering::Release);
        }
    }

    #[inline]
    fn head(&self, hash: u64) -> &'g Head {
        assert!(
            stripe(hash) == self.stripe,
            "the stripe of another hash is locked"
        );
        // SAFETY: the guard, borrowed for `'g`, keeps them, and a locked stripe has buckets.
        unsafe { self.chains.buckets.head(hash) }
    }

    /// Adds to the number of values in the stripe.
    fn count(&self, change: isize) {
        let entries = self.map.entries(self.stripe);
        entries.store(
            entries.load(Ordering::Relaxed).wrapping_add_signed(change),
            Ordering::Relaxed,
        );
    }
}

impl<T: Release> fmt::Debug for RcuHashMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuHashMap").finish_non_exhaustive()
    }
}

impl<T: Release> Drop for RcuHashMap<T> {
    fn drop(&mut self) {
        // Relaxed: the owner of `&mut self` has synchronised with every user.
        let current = Buckets::at_pointer(self.buckets.load(Ordering::Relaxed));
        let mut old = Buckets::none();
        for stripe in &self.stripes {
            let chains = stripe.lock.lock();
            let buckets = chains.unwrap_or_else(PoisonError::into_inner).buckets;
            if buckets != current {
                old = buckets;
            }
        }
        let last = self.arena.linked().into_iter().filter_map(|at| {
            // SAFETY: the value is in a chain of this map, whose count of it this takes over.
            let value = unsafe { RcuArc::from_ptr(at) };
            value.as_rcu_ref().link().release();
            value.into_final()
        });
        end_all(last);
        // SAFETY: lookups borrow the map, so the buckets have no other user. All stripes that the
        // map has not moved are in the same buckets.
        unsafe {
            old.free();
            current.free();
        }
        // The values have retired as much memory as the whole map held.
        pin().flush();
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
