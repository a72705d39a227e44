//! The table of the buffer cache: blocks by their numbers, in an
//! [RCU hash map](extern4_sync::rcu_hash_map).
//!
//! A number has at most one block. A thread inserts, evicts or removes one only under its bucket's
//! lock. A reference keeps its block in the table, unless [`BlockTable::remove`] takes that out.

use extern4_sync::rcu::{Guard, pin};
use extern4_sync::rcu_arc::{RcuArc, RcuRef};
use extern4_sync::rcu_hash_map::RcuHashMap;

use super::buffer::Block;

pub(super) struct BlockTable {
    map: RcuHashMap<Block>,
    /// Random and odd, so that an attacker cannot choose numbers that fall into one bucket.
    multiplier: u64,
}

impl BlockTable {
    pub(super) fn new() -> Self {
        Self {
            map: RcuHashMap::new(),
            multiplier: random() | 1,
        }
    }

    /// Returns block `number`. It may have been evicted already.
    #[inline]
    pub(super) fn get<'g>(&'g self, number: u64, guard: &'g Guard) -> Option<RcuRef<'g, Block>> {
        // The hash is a bijection, so only one number has it.
        self.map.find(self.hash(number), guard, |_| true)
    }

    /// Returns a reference to block `number`, and whether this call inserted it. Memory is
    /// allocated before the bucket is locked: callers try [`get`](Self::get) first and expect to
    /// miss.
    ///
    /// Locks: the bucket's, within.
    pub(super) fn find_or_insert(&self, number: u64) -> (RcuArc<Block>, bool) {
        let hash = self.hash(number);
        let new = self.map.alloc(Block::empty(number));
        let guard = pin();
        let mut bucket = self.map.lock(hash, &guard);
        match bucket.find(hash, |_| true).and_then(RcuRef::try_upgrade) {
            Some(found) => (found, false),
            None => {
                bucket.insert(hash, new.clone());
                (new, true)
            }
        }
    }

    /// Removes a block, even if it is in use. Lookups do not find it any more, and another one can
    /// take its place. Returns false if it had been removed already.
    ///
    /// Locks: the bucket's, within.
    pub(super) fn remove(&self, block: &RcuArc<Block>) -> bool {
        self.map
            .lock(self.hash(block.number), &pin())
            .remove(block.as_rcu_ref())
            .is_some()
    }

    /// Evicts up to `want` blocks that have no other reference, by the rules of
    /// [eviction](extern4_sync::rcu_hash_map#eviction). Returns how many it evicted.
    ///
    /// Locks: a stripe of buckets at a time, within.
    pub(super) fn evict(&self, want: usize) -> usize {
        self.map.evict(want, |_| ()).len()
    }

    /// Returns the number of blocks: out of date at once.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    #[inline]
    fn hash(&self, number: u64) -> u64 {
        // Multiply-shift hashing: universal for random odd multipliers, and a bijection.
        number.wrapping_mul(self.multiplier)
    }
}

#[cfg(not(feature = "loom"))]
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// Returns a constant: a model must take the same steps in each run.
#[cfg(feature = "loom")]
fn random() -> u64 {
    0x9e37_79b9_7f4a_7c15
}
