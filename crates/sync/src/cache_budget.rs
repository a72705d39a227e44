//! A bound on the memory of several caches together, in bytes.
//!
//! The caches of names and of blocks of all volumes of a process share one budget. Each cache
//! counts its bytes in a [`CacheAccount`]. After it has added an entry it asks how much it has to
//! evict ([`CacheAccount::excess`]), and evicts that from its own entries.
//!
//! A thread that inserts an entry evicts only entries of that cache, because it holds locks of its
//! volume, and another volume's eviction takes locks of that one. A cache always keeps a small
//! share, half of an equal one. So all caches together exceed the budget by half at most.
//!
//! A thread that holds no lock of a volume may have all [registered](CacheBudget::register) caches
//! evict. The opening of a volume does so for [room](CacheBudget::make_room) for its caches, and a
//! watch of the system's memory does so under pressure.
//!
//! Counting costs a store to a line of the CPU. A CPU hands its sum on when that exceeds a part of
//! the budget, so the count is exact within a 64th of the budget.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | `used`, `pending`, `caches` | all threads | all threads | `Relaxed`: sums |
//!
//! The lock of the registry is outside of all locks of volumes. It is held while registered caches
//! evict, so a cache whose registration has ended is used by no other thread.
//!
//! In a child of `fork(2)`, locks of the parent's caches may be held by threads that the child does
//! not have, and so may the lock of the registry. A child therefore lets no cache of its parent
//! evict. It does without the registry of a parent's budget while that is locked: a cache that is
//! not registered then evicts only for itself.

#[cfg(not(feature = "loom"))]
mod memory;

use std::fmt;
// Not a lock of models: no model evicts from a registered cache.
use std::sync::{self, Arc, PoisonError, TryLockError};

use crate::opener::Opener;
use crate::percpu::{Padded, PerCpu, possible_cpus};
use crate::primitive::{AtomicU64, Ordering::Relaxed, capacity};

/// The part of the budget by which the counts of all CPUs together may be wrong.
const SLACK: u64 = 64;
/// Bytes that one CPU keeps for itself, at most.
const MAX_PENDING: u64 = 64 << 10;

/// A bound on the memory of several caches.
pub struct CacheBudget {
    limit: u64,
    opener: Opener,
    caches: AtomicU64,
    used: Padded<AtomicU64>,
    registered: sync::Mutex<Vec<Registered>>,
}

/// A registered cache, and the process that uses it.
struct Registered {
    cache: Arc<dyn Reclaim>,
    opener: Opener,
}

/// A cache that evicts entries at the request of a thread that holds none of its locks.
pub trait Reclaim: Send + Sync {
    /// Returns the account that the cache counts its memory in.
    fn account(&self) -> &CacheAccount;

    /// Evicts unused entries of about `bytes` bytes, or all of them if they are fewer. Returns the
    /// bytes that it evicted.
    fn reclaim(&self, bytes: u64) -> u64;
}

/// The registration of a cache with its budget, which ends when this is dropped.
pub struct Registration {
    budget: Arc<CacheBudget>,
    cache: Arc<dyn Reclaim>,
}

/// The memory of one cache, as a part of a [`CacheBudget`].
pub struct CacheAccount {
    budget: Arc<CacheBudget>,
    /// Bytes that a CPU keeps for itself, at most.
    max_pending: u64,
    used: Padded<AtomicU64>,
    /// Bytes that are not in `used` yet: a negative number in two's complement, if more were
    /// evicted than added.
    pending: PerCpu<AtomicU64>,
}

impl CacheBudget {
    /// Returns a budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            opener: Opener::here(),
            caches: AtomicU64::new(0),
            used: Padded::default(),
            registered: sync::Mutex::default(),
        })
    }

    /// Returns the budget that all caches of the process share unless they are given another: an
    /// eighth of the memory of the machine, or of the control group that the process is in.
    #[cfg(not(feature = "loom"))]
    pub fn of_process() -> Arc<Self> {
        static BUDGET: std::sync::OnceLock<Arc<CacheBudget>> = std::sync::OnceLock::new();
        Arc::clone(BUDGET.get_or_init(|| Self::new(memory::limit() / 8)))
    }

    /// Returns a budget that no model exceeds.
    #[cfg(feature = "loom")]
    pub fn of_process() -> Arc<Self> {
        Self::new(1 << 40)
    }

    /// Returns the most bytes that the caches keep.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes in use, within the exactness of the budget.
    pub fn used(&self) -> u64 {
        not_negative(self.used.load(Relaxed))
    }

    /// Registers a cache, so that it evicts at the requests of others as long as the registration
    /// lasts.
    pub fn register(self: &Arc<Self>, cache: Arc<dyn Reclaim>) -> Registration {
        if let Some(mut registered) = self.registered() {
            registered.push(Registered {
                cache: Arc::clone(&cache),
                opener: Opener::here(),
            });
        }
        Registration {
            budget: Arc::clone(self),
            cache,
        }
    }

    /// Makes registered caches evict about `bytes` bytes, from each in proportion to its memory.
    /// Returns the bytes evicted. The caller holds no lock of a volume.
    pub fn reclaim(&self, bytes: u64) -> u64 {
        let used = u128::from(self.used()).max(1);
        let part =
            |of: u64| u64::try_from(u128::from(of) * u128::from(bytes) / used).unwrap_or(u64::MAX);
        let Some(registered) = self.registered() else {
            return 0;
        };
        caches_here(&registered)
            .map(|cache| cache.reclaim(part(cache.account().used())))
            .sum()
    }

    /// Makes room for the caches of a volume that is being opened: if others have taken the budget,
    /// each of them evicts what it has beyond an equal share. The caller holds no lock of a volume.
    pub fn make_room(&self) {
        let share = self.limit() / self.caches.load(Relaxed).max(1);
        if self.used().saturating_add(share) <= self.limit() {
            return;
        }
        let Some(registered) = self.registered() else {
            return;
        };
        for cache in caches_here(&registered) {
            let excess = cache.account().used().saturating_sub(share);
            if excess > 0 {
                cache.reclaim(excess);
            }
        }
    }

    /// Locks the registry; `None` in a child of the process that made the budget, if it is locked.
    fn registered(&self) -> Option<sync::MutexGuard<'_, Vec<Registered>>> {
        // Ignores poison: each change of the list is one step.
        if self.opener.is_here() {
            let locked = self.registered.lock();
            return Some(locked.unwrap_or_else(PoisonError::into_inner));
        }
        match self.registered.try_lock() {
            Ok(registered) => Some(registered),
            Err(TryLockError::Poisoned(registered)) => Some(registered.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Returns the caches that this process has registered itself.
fn caches_here(registered: &[Registered]) -> impl Iterator<Item = &Arc<dyn Reclaim>> {
    let own = registered.iter().filter(|entry| entry.opener.is_here());
    own.map(|entry| &entry.cache)
}

impl Drop for Registration {
    fn drop(&mut self) {
        let ended = self.budget.registered().and_then(|mut registered| {
            let mut entries = registered.iter();
            let index = entries.position(|entry| Arc::ptr_eq(&entry.cache, &self.cache))?;
            Some(registered.swap_remove(index))
        });
        drop(ended);
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").finish_non_exhaustive()
    }
}

impl CacheAccount {
    /// Returns the account of a further cache.
    pub fn new(budget: &Arc<CacheBudget>) -> Self {
        budget.caches.fetch_add(1, Relaxed);
        let part = budget.limit() / SLACK / possible_cpus() as u64;
        let max_pending = capacity(part.min(MAX_PENDING), 0);
        Self {
            budget: Arc::clone(budget),
            max_pending,
            used: Padded::default(),
            pending: PerCpu::new(),
        }
    }

    /// Returns the budget.
    pub fn budget(&self) -> &Arc<CacheBudget> {
        &self.budget
    }

    /// Returns the bytes in use, within the exactness of the budget.
    pub fn used(&self) -> u64 {
        not_negative(self.used.load(Relaxed))
    }

    /// Counts `bytes` bytes more.
    pub fn add(&self, bytes: u64) {
        self.count(bytes);
    }

    /// Counts `bytes` bytes less.
    pub fn sub(&self, bytes: u64) {
        self.count(bytes.wrapping_neg());
    }

    /// Returns the bytes that the cache has to evict, 0 within the budget.
    #[inline]
    pub fn excess(&self) -> u64 {
        let excess = self.budget.used().saturating_sub(self.budget.limit());
        if excess == 0 {
            0
        } else {
            self.share_of(excess)
        }
    }

    #[cold]
    fn share_of(&self, excess: u64) -> u64 {
        let kept = self.budget.limit() / self.budget.caches.load(Relaxed).max(1) / 2;
        self.used().saturating_sub(kept).min(excess)
    }

    fn count(&self, bytes: u64) {
        let pending = self.pending.local();
        let sum = pending.fetch_add(bytes, Relaxed).wrapping_add(bytes);
        if (sum as i64).unsigned_abs() > self.max_pending {
            let sum = pending.swap(0, Relaxed);
            self.used.fetch_add(sum, Relaxed);
            self.budget.used.fetch_add(sum, Relaxed);
        }
    }
}

impl Drop for CacheAccount {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.used.load(Relaxed), Relaxed);
        self.budget.caches.fetch_sub(1, Relaxed);
    }
}

/// Returns a sum to which a CPU may have added what it evicted before another CPU added the rest.
fn not_negative(sum: u64) -> u64 {
    u64::try_from(sum as i64).unwrap_or(0)
}

impl fmt::Debug for CacheBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheBudget")
            .field("limit", &self.limit())
            .field("used", &self.used())
            .finish()
    }
}

impl fmt::Debug for CacheAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheAccount")
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn caches_share_a_budget_and_keep_a_part() {
        let budget = CacheBudget::new(1000);
        let [first, second] = [(); 2].map(|()| CacheAccount::new(&budget));
        first.add(1500);
        assert_eq!(
            (budget.used(), first.excess(), second.excess()),
            (1500, 500, 0)
        );
        second.add(300);
        assert_eq!((first.excess(), second.excess()), (800, 50));
        first.sub(800);
        assert_eq!(
            (first.excess(), second.excess(), budget.used()),
            (0, 0, 1000)
        );
        drop(first);
        assert_eq!(budget.used(), 300);
    }

    /// A cache of entries of one byte.
    struct Bytes(CacheAccount);

    impl Reclaim for Bytes {
        fn account(&self) -> &CacheAccount {
            &self.0
        }

        fn reclaim(&self, bytes: u64) -> u64 {
            let evicted = bytes.min(self.0.used());
            self.0.sub(evicted);
            evicted
        }
    }

    #[test]
    fn registered_caches_evict_for_others() {
        let budget = CacheBudget::new(1000);
        let [first, second] = [600, 300].map(|bytes| {
            let cache = Arc::new(Bytes(CacheAccount::new(&budget)));
            cache.0.add(bytes);
            let registered: Arc<dyn Reclaim> = Arc::clone(&cache) as _;
            (cache, budget.register(registered))
        });
        budget.make_room();
        assert_eq!((first.0.0.used(), second.0.0.used()), (500, 300));
        // There is room for a third.
        let third = CacheAccount::new(&budget);
        budget.make_room();
        assert_eq!((first.0.0.used(), second.0.0.used()), (333, 300));
        third.add(167);
        assert_eq!(budget.reclaim(400), 166 + 150);
        let (second, registration) = second;
        drop(registration);
        assert_eq!(budget.reclaim(u64::MAX), 167);
        assert_eq!((second.0.used(), Arc::strong_count(&second)), (150, 1));
    }

    #[test]
    fn threads_count_exactly_enough() {
        const LIMIT: u64 = 1 << 30;
        const ROUNDS: u64 = if cfg!(miri) { 100 } else { 100_000 };
        let budget = CacheBudget::new(LIMIT);
        let account = CacheAccount::new(&budget);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        account.add(1000);
                        account.sub(300);
                    }
                });
            }
        });
        let exact = 4 * ROUNDS * 700;
        assert!(
            account.used().abs_diff(exact) <= LIMIT / SLACK,
            "{}",
            account.used()
        );
    }
}
