//! A hash table from numbers to shared values, whose lookups take no lock.
//!
//! Each bucket is a chain of entries. Readers walk it under an [RCU guard](crate::rcu) and write nothing, except for
//! a mark that the entry is in use, and that only where it is not yet set. Whoever adds or removes an entry holds the
//! bucket's lock. The buffer cache is this table plus I/O.
//!
//! # The word `refs`
//! Bit 0, `LISTED`, says that the entry is in the table; the rest counts [`Held`] handles in steps of two. Who makes
//! the word zero retires the entry, and nobody else does.
//!
//! | transition | change | by | under the lock |
//! | --- | --- | --- | --- |
//! | insert | made as `LISTED` plus one handle | [`Table::find_or_insert`] | yes |
//! | hold | one handle more, only if `LISTED` | [`Seen::hold`], [`Table::find_or_insert`] | no |
//! | clone | one handle more | [`Held::clone`] | no |
//! | release | one handle less | drop of [`Held`] | no |
//! | evict | `LISTED` alone to zero | [`Table::evict`] | yes |
//! | remove | clear `LISTED` | [`Table::remove`], drop of [`Table`] | yes |
//!
//! # Rules
//! 1. An entry is in a chain exactly while it is `LISTED`, seen from under the lock: evict and remove unlink it before
//!    they unlock. So under the lock there are no dead entries to trip over, a key has at most one, and one found
//!    there can be held.
//! 2. A handle is only ever made of a `LISTED` entry or of another handle. So an entry that somebody holds cannot be
//!    evicted, and it is the one that lookups find, until it is removed by name.
//! 3. An entry is complete before it is linked. Its link (P: `Release` store of the bucket's head) pairs with the
//!    readers' loads (L: `Acquire`).
//! 4. An unlinked entry keeps its own link, so that readers standing on it come back to the chain. Entries never
//!    move, so every entry that stays in the chain throughout a walk is met by it.
//! 5. Memory goes through RCU: readers under a guard may still look at an entry that was retired.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | bucket head, `next` | lock holders | everyone | `Release` / `Acquire` (P, L) |
//! | `refs` | everyone | everyone | see the table above; release is `Release`, the last one `Acquire` |
//! | `used` | readers, the evicting thread | the evicting thread | `Relaxed`: a hint |

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::PoisonError;

use crate::percpu::{Line, Padded};
use crate::primitive::{
    AtomicBool, AtomicPtr, AtomicUsize, Mutex, MutexGuard, Ordering, capacity, fence, null_pointers,
};
use crate::rcu::{Guard, pin};

const LISTED: usize = 1;
const HANDLE: usize = 2;

/// Locks that the buckets share.
const LOCKS: usize = capacity(64, 2);

/// The lines that lookups read, then one for the count that handles write.
#[repr(C)]
struct Entry<T> {
    key: u64,
    next: AtomicPtr<Entry<T>>,
    used: AtomicBool,
    value: T,
    refs: Line<AtomicUsize>,
}

impl<T> Entry<T> {
    /// The transition "hold".
    fn hold(&self) -> bool {
        let mut refs = self.refs.0.load(Ordering::Relaxed);
        while refs & LISTED != 0 {
            // Relaxed: the caller already sees the entry's contents through the load that found it (L), and counting
            // up gives no access that the guard or the lock does not give.
            let more = refs + HANDLE;
            match self.refs.0.compare_exchange_weak(refs, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => refs = now,
            }
        }
        false
    }
}

/// A hash table from `u64` to `T` with lookups that take no lock.
pub struct Table<T> {
    heads: Box<[AtomicPtr<Entry<T>>]>,
    locks: [Padded<Mutex<()>>; LOCKS],
    /// Random and odd, so that no one can choose keys that fall into one bucket.
    multiplier: u64,
    /// The bucket where the next eviction starts.
    hand: Padded<AtomicUsize>,
    owns: PhantomData<Box<Entry<T>>>,
}

/// An entry found in a table, readable as long as the guard that found it lives, even if it is removed meanwhile.
pub struct Seen<'g, T> {
    entry: NonNull<Entry<T>>,
    guard: PhantomData<&'g T>,
}

/// An entry held: it stays in the table until the last handle is dropped, unless it is removed by name, and stays
/// readable in any case. May outlive the table.
pub struct Held<T: Send + Sync + 'static> {
    entry: NonNull<Entry<T>>,
    owns: PhantomData<T>,
}

impl<T: Send + Sync + 'static> Table<T> {
    /// An empty table for about `capacity` entries. It takes more, but then its chains grow.
    pub fn with_capacity(capacity: usize) -> Self {
        // Half full at most, so that most chains are one entry long. Two buckets are the least that the hash can take.
        let buckets = capacity.saturating_mul(2).clamp(2, 1 << 24).next_power_of_two();
        Self {
            heads: null_pointers(buckets),
            locks: std::array::from_fn(|_| Padded(Mutex::new(()))),
            multiplier: random() | 1,
            hand: Padded(AtomicUsize::new(0)),
            owns: PhantomData,
        }
    }

    /// The entry of `key`. Does not wait for anybody.
    #[inline]
    pub fn get<'g>(&'g self, key: u64, _guard: &'g Guard) -> Option<Seen<'g, T>> {
        // Acquire: L, pairs with the Release of `link`.
        let mut at = self.heads[self.bucket(key)].load(Ordering::Acquire);
        // SAFETY: entries are freed through RCU after they were unlinked, and the guard was pinned before the load
        // that found this one (rule 5), or the entry that points to it.
        while let Some(entry) = unsafe { at.as_ref() } {
            if entry.key == key {
                // Relaxed: a hint. Tested first, so that a hot entry's line is not written again and again.
                if !entry.used.load(Ordering::Relaxed) {
                    entry.used.store(true, Ordering::Relaxed);
                }
                return NonNull::new(at).map(|entry| Seen { entry, guard: PhantomData });
            }
            at = entry.next.load(Ordering::Acquire);
        }
        None
    }

    /// The entry of `key`, held, and whether it was made by this call. `value` becomes the entry's value if there is
    /// none yet. Memory is allocated before the bucket is locked; callers expect to miss, having tried
    /// [`get`](Self::get).
    ///
    /// Locks: the bucket's, within.
    pub fn find_or_insert(&self, key: u64, value: T) -> (Held<T>, bool) {
        let new = Box::new(Entry {
            key,
            next: AtomicPtr::new(ptr::null_mut()),
            used: AtomicBool::new(false),
            value,
            refs: Line(AtomicUsize::new(LISTED + HANDLE)),
        });
        let bucket = self.bucket(key);
        let lock = self.lock(bucket);
        let mut at = self.heads[bucket].load(Ordering::Relaxed);
        // SAFETY: under the lock, a chain holds only listed entries, and those are not freed (rule 1).
        while let Some(entry) = unsafe { at.as_ref() } {
            if entry.key == key && entry.hold() {
                drop(lock);
                // SAFETY: `at` is not null, and its count is ours since `hold`.
                return (unsafe { Held::from_counted(at) }, false);
            }
            at = entry.next.load(Ordering::Relaxed);
        }
        new.next.store(self.heads[bucket].load(Ordering::Relaxed), Ordering::Relaxed);
        let new = Box::into_raw(new);
        // Release: P, publishes the complete entry; pairs with the Acquire loads of `get`.
        self.heads[bucket].store(new, Ordering::Release);
        drop(lock);
        // SAFETY: `new` is not null, and was made with one handle counted.
        (unsafe { Held::from_counted(new) }, true)
    }

    /// Takes the entry out of the table, whoever holds it: lookups do not find it any more, and a new one of its key
    /// can be made. False if it was out already.
    ///
    /// Locks: the bucket's, within.
    pub fn remove(&self, held: &Held<T>) -> bool {
        let target = held.entry.as_ptr();
        let bucket = self.bucket(held.key());
        let _lock = self.lock(bucket);
        let mut link = &self.heads[bucket];
        loop {
            let at = link.load(Ordering::Relaxed);
            // SAFETY: as in `find_or_insert`.
            let Some(entry) = (unsafe { at.as_ref() }) else { return false };
            if at == target {
                unlink(link, entry);
                // Relaxed: `held` keeps the count above zero, so this is not the end of the entry.
                entry.refs.0.fetch_and(!LISTED, Ordering::Relaxed);
                return true;
            }
            link = &entry.next;
        }
    }

    /// Evicts up to `want` entries that nobody holds and nobody has looked up since the last time round, looking at
    /// no more than `max_buckets` buckets. Gives back how many it evicted.
    ///
    /// This is the CLOCK algorithm with the buckets as its face: an entry in use loses its mark, an entry without a
    /// mark goes. There is no list to keep in order, so a lookup has nothing to write.
    ///
    /// Locks: one bucket's at a time, within.
    pub fn evict(&self, want: usize, max_buckets: usize) -> usize {
        let guard = pin();
        let mut evicted = 0;
        for _ in 0..max_buckets {
            if evicted >= want {
                break;
            }
            // Relaxed: only spreads the work; any bucket will do.
            let bucket = self.hand.fetch_add(1, Ordering::Relaxed) & (self.heads.len() - 1);
            // Relaxed: an entry that is being added to an empty bucket is too young to go.
            if !self.heads[bucket].load(Ordering::Relaxed).is_null() {
                evicted += self.evict_in(bucket, &guard);
            }
        }
        guard.flush();
        evicted
    }

    fn evict_in(&self, bucket: usize, guard: &Guard) -> usize {
        let mut evicted = 0;
        let _lock = self.lock(bucket);
        let mut link = &self.heads[bucket];
        loop {
            let at = link.load(Ordering::Relaxed);
            // SAFETY: under the lock, as in `find_or_insert`; `guard` keeps what this loop itself retires.
            let Some(entry) = (unsafe { at.as_ref() }) else { return evicted };
            // Relaxed: a hint.
            let used = entry.used.load(Ordering::Relaxed);
            if used {
                entry.used.store(false, Ordering::Relaxed);
            }
            // The transition "evict". Acquire: sees all that former holders did with the entry; pairs with the
            // Release of their releases.
            if !used && entry.refs.0.compare_exchange(LISTED, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                unlink(link, entry);
                // SAFETY: this thread made `refs` zero, and the entry is unlinked.
                unsafe { retire(at, guard) };
                evicted += 1;
            } else {
                link = &entry.next;
            }
        }
    }

    fn bucket(&self, key: u64) -> usize {
        // Multiply-shift hashing: universal for random odd multipliers. The high bits, as many as number the buckets.
        let bits = self.heads.len().trailing_zeros();
        (key.wrapping_mul(self.multiplier) >> (u64::BITS - bits)) as usize
    }

    fn lock(&self, bucket: usize) -> MutexGuard<'_, ()> {
        // A chain is whole whenever the lock is free, whatever panicked under it.
        self.locks[bucket % LOCKS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes `entry` out of the chain in which `link` leads to it. The bucket's lock is held.
fn unlink<T>(link: &AtomicPtr<Entry<T>>, entry: &Entry<T>) {
    // Release: P for the entries behind, which a reader may meet through this link first.
    link.store(entry.next.load(Ordering::Relaxed), Ordering::Release);
}

/// Frees an entry once every read section that exists now has ended.
///
/// # Safety
/// The caller made the entry's `refs` zero, and the entry is unlinked.
unsafe fn retire<T: Send + Sync + 'static>(entry: *mut Entry<T>, guard: &Guard) {
    // SAFETY: `T: Send + 'static`, so that it may be dropped on any thread at any later time.
    // SAFETY: the entry came from a box, no handle is left, and by then no reader either.
    unsafe { guard.defer(move || drop(Box::from_raw(entry))) };
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        for head in &self.heads {
            // Relaxed here and below: `&mut self` came from a thread that synchronised with every user of the table.
            let mut at = head.load(Ordering::Relaxed);
            // SAFETY: the entries of a chain are listed, and those are not freed (rule 1).
            while let Some(entry) = unsafe { at.as_ref() } {
                let next = entry.next.load(Ordering::Relaxed);
                // The transition "remove". AcqRel: Acquire pairs with the holders' releases if this is the end,
                // Release with the Acquire of the holder whose release is the end.
                if entry.refs.0.fetch_and(!LISTED, Ordering::AcqRel) == LISTED {
                    // SAFETY: this made `refs` zero. Lookups borrow the table, so no reader is left.
                    drop(unsafe { Box::from_raw(at) });
                }
                at = next;
            }
        }
    }
}

impl<'g, T: Send + Sync + 'static> Seen<'g, T> {
    /// The value.
    #[inline]
    pub fn value(self) -> &'g T {
        // SAFETY: the guard, borrowed for `'g`, keeps the entry (rule 5), and a value is not changed but by itself.
        unsafe { &self.entry.as_ref().value }
    }

    /// Holds the entry beyond the guard. `None` if it has left the table meanwhile.
    pub fn hold(self) -> Option<Held<T>> {
        // SAFETY: as in `value`.
        let held = unsafe { self.entry.as_ref() }.hold();
        // SAFETY: the count is ours since `hold`.
        held.then(|| unsafe { Held::from_counted(self.entry.as_ptr()) })
    }
}

impl<T> Clone for Seen<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Seen<'_, T> {}

// SAFETY: a handle gives `&T` to any thread, and the last one drops the `T` wherever it is: `T` is both.
unsafe impl<T: Send + Sync + 'static> Send for Held<T> {}
// SAFETY: as above; through `&Held` a thread gets `&T`, and handles of its own.
unsafe impl<T: Send + Sync + 'static> Sync for Held<T> {}

impl<T: Send + Sync + 'static> Held<T> {
    /// # Safety
    /// `entry` is not null, and one of the handles that its `refs` counts becomes this one.
    unsafe fn from_counted(entry: *mut Entry<T>) -> Self {
        // SAFETY: by the caller's promise.
        Self { entry: unsafe { NonNull::new_unchecked(entry) }, owns: PhantomData }
    }

    fn entry(&self) -> &Entry<T> {
        // SAFETY: the entry lives as long as a handle is counted.
        unsafe { self.entry.as_ref() }
    }

    /// The entry's key.
    pub fn key(&self) -> u64 {
        self.entry().key
    }

    /// Whether both are handles of one entry.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.entry == other.entry
    }
}

impl<T: Send + Sync + 'static> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.entry().value
    }
}

impl<T: Send + Sync + 'static> Clone for Held<T> {
    fn clone(&self) -> Self {
        // Relaxed: this handle keeps the count from ending, and gives all that the new one gives.
        self.entry().refs.0.fetch_add(HANDLE, Ordering::Relaxed);
        Self { entry: self.entry, owns: PhantomData }
    }
}

impl<T: Send + Sync + 'static> Drop for Held<T> {
    fn drop(&mut self) {
        // Release: what this holder did comes before the end of the entry; pairs with the Acquire of who ends it.
        if self.entry().refs.0.fetch_sub(HANDLE, Ordering::Release) == HANDLE {
            // Acquire: pairs with the Release of the other holders, and with that of the table's drop.
            fence(Ordering::Acquire);
            // SAFETY: this made `refs` zero, and only `remove` and the table's drop clear LISTED with handles
            // counted, after they unlinked the entry or made it unreachable.
            unsafe { retire(self.entry.as_ptr(), &pin()) };
        }
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("buckets", &self.heads.len()).finish_non_exhaustive()
    }
}

#[cfg(not(feature = "loom"))]
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// Always the same: a model has to take the same steps in each run.
#[cfg(feature = "loom")]
fn random() -> u64 {
    0x9e37_79b9_7f4a_7c15
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_entry_line_holds_what_lookups_read() {
        assert_eq!(std::mem::offset_of!(Entry<[u64; 5]>, refs), 64);
    }

    #[test]
    fn finds_what_was_inserted() {
        let table = Table::with_capacity(4);
        for key in 0..100 {
            let (held, new) = table.find_or_insert(key, key * 10);
            assert!(new && *held == key * 10 && held.key() == key);
        }
        let (held, new) = table.find_or_insert(7, 0);
        assert!(!new && *held == 70);
        let guard = pin();
        assert!((0..100).all(|key| *table.get(key, &guard).unwrap().value() == key * 10));
        assert!(table.get(100, &guard).is_none());
    }

    #[test]
    fn what_is_held_or_used_stays_and_the_rest_goes() {
        let table = Table::with_capacity(64);
        let held = table.find_or_insert(1, ()).0;
        for key in 2..=10 {
            table.find_or_insert(key, ());
        }
        let guard = pin();
        table.get(2, &guard).unwrap();
        assert_eq!(table.evict(100, 128), 8);
        assert!(table.get(1, &guard).unwrap().hold().unwrap().ptr_eq(&held));
        // Key 1 was marked by the lookup, and key 2 lost its mark in the first round.
        assert_eq!(table.evict(100, 128), 1);
        assert!(table.get(2, &guard).is_none());
        drop(held);
        assert_eq!(table.evict(100, 256), 1);
        assert!(table.get(1, &guard).is_none());
    }

    #[test]
    fn a_removed_entry_is_replaced_and_stays_readable() {
        let table = Table::with_capacity(4);
        let old = table.find_or_insert(5, "old").0;
        let guard = pin();
        let seen = table.get(5, &guard).unwrap();
        assert!(table.remove(&old) && !table.remove(&old));
        assert!(seen.hold().is_none());
        let (new, made) = table.find_or_insert(5, "new");
        assert!(made && !table.remove(&old));
        drop(old);
        assert_eq!((*seen.value(), *new), ("old", "new"));
    }

    #[test]
    fn handles_outlive_the_table_and_everything_is_freed() {
        let alive = Arc::new(());
        let table = Table::with_capacity(4);
        let held = table.find_or_insert(1, alive.clone()).0;
        for key in 2..20 {
            table.find_or_insert(key, alive.clone());
        }
        assert!(table.evict(5, 8) >= 5);
        drop(table);
        assert!(Arc::ptr_eq(&held, &alive));
        drop(held);
        // Other tests' read sections hold the epochs up, and on a busy machine those may last.
        let freed = (0..30_000).any(|_| {
            pin().flush();
            std::thread::sleep(std::time::Duration::from_millis(1));
            Arc::strong_count(&alive) == 1
        });
        assert!(freed, "{} values left", Arc::strong_count(&alive));
    }

    #[test]
    fn threads_never_hold_two_entries_of_a_key() {
        let table = &Table::with_capacity(8);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    for i in 0..20_000u64 {
                        let key = (i * 7 + thread * 3) % 16;
                        let first = table.find_or_insert(key, (thread, i)).0;
                        let guard = pin();
                        let again = table.get(key, &guard).expect("held, so in the table");
                        assert_eq!(again.value(), &*first);
                        assert!(again.hold().unwrap().ptr_eq(&first));
                        drop(guard);
                        drop(first);
                        table.evict(2, 4);
                    }
                });
            }
        });
    }
}
