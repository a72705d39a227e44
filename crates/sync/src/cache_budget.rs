//! A bound on the memory of several caches together, in bytes.
//!
//! The caches of names and of blocks of all volumes of a process share one budget. Each cache
//! counts its bytes in a [`CacheAccount`]. After it has added an entry it asks how much it has to
//! evict ([`CacheAccount::excess`]), and evicts that from its own entries.
//!
//! A cache evicts only its own entries, because it is called under locks of its volume, and another
//! volume's eviction takes locks of that one. A cache always keeps a small share, half of an equal
//! one. So a volume that comes when others have taken the whole budget has room, too, and all
//! caches together exceed the budget by half at most.
//!
//! Counting costs a store to a line of the CPU. A CPU hands its sum on when that exceeds a part of
//! the budget, so the count is exact within a 64th of the budget.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | `used`, `pending`, `caches` | all threads | all threads | `Relaxed`: sums |

#[cfg(not(feature = "loom"))]
mod memory;

use std::fmt;
use std::sync::Arc;

use crate::percpu::{Padded, PerCpu, possible_cpus};
use crate::primitive::{AtomicU64, Ordering::Relaxed, capacity};

/// The part of the budget by which the counts of all CPUs together may be wrong.
const SLACK: u64 = 64;
/// Bytes that one CPU keeps for itself, at most.
const MAX_PENDING: u64 = 64 << 10;

/// A bound on the memory of several caches.
pub struct CacheBudget {
    limit: u64,
    caches: AtomicU64,
    used: Padded<AtomicU64>,
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
        Arc::new(Self { limit, caches: AtomicU64::new(0), used: Padded::default() })
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
}

impl CacheAccount {
    /// Returns the account of a further cache.
    pub fn new(budget: &Arc<CacheBudget>) -> Self {
        budget.caches.fetch_add(1, Relaxed);
        let part = budget.limit() / SLACK / possible_cpus() as u64;
        let max_pending = capacity(part.min(MAX_PENDING), 0);
        Self { budget: Arc::clone(budget), max_pending, used: Padded::default(), pending: PerCpu::new() }
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
        if excess == 0 { 0 } else { self.share_of(excess) }
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
        f.debug_struct("CacheBudget").field("limit", &self.limit()).field("used", &self.used()).finish()
    }
}

impl fmt::Debug for CacheAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheAccount").field("used", &self.used()).finish_non_exhaustive()
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
        assert_eq!((budget.used(), first.excess(), second.excess()), (1500, 500, 0));
        second.add(300);
        assert_eq!((first.excess(), second.excess()), (800, 50));
        first.sub(800);
        assert_eq!((first.excess(), second.excess(), budget.used()), (0, 0, 1000));
        drop(first);
        assert_eq!(budget.used(), 300);
    }

    #[test]
    fn threads_count_exactly_enough() {
        const LIMIT: u64 = 1 << 30;
        let budget = CacheBudget::new(LIMIT);
        let account = CacheAccount::new(&budget);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100_000 {
                        account.add(1000);
                        account.sub(300);
                    }
                });
            }
        });
        let exact = 4 * 100_000 * 700;
        assert!(account.used().abs_diff(exact) <= LIMIT / SLACK, "{}", account.used());
    }
}
