//! The age of entries of a hash map, and which of them leaves first: see
//! [Eviction](crate::rcu_hash_map#eviction).

use std::cmp::Reverse;

use crate::primitive::{AtomicU32, AtomicUsize, Ordering};

/// Ticks of the clock in one turnover: while the map evicts as many entries as it has.
const TURNOVER: u16 = 64;

/// The clock of a map.
#[derive(Debug)]
pub(crate) struct Clock {
    now: AtomicU32,
    /// Evictions until the next tick.
    left: AtomicUsize,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            now: AtomicU32::new(0),
            left: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> u16 {
        // Relaxed: a hint.
        self.now.load(Ordering::Relaxed) as u16
    }

    /// Counts evictions from a map of `entries` entries.
    pub(crate) fn count(&self, evictions: usize, entries: impl FnOnce() -> usize) {
        // Relaxed: hints. If two threads reach the end of a tick, a tick may be lost or be short.
        let left = self.left.load(Ordering::Relaxed);
        if evictions <= left {
            self.left.store(left - evictions, Ordering::Relaxed);
        } else {
            self.left
                .store(entries() / usize::from(TURNOVER), Ordering::Relaxed);
            self.now.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// When an entry was inserted and when a lookup last found it, in ticks of the map's clock.
#[derive(Debug)]
pub(crate) struct Uses(AtomicU32);

impl Uses {
    /// Returns the uses of an entry that is not in the map yet.
    pub(crate) fn none() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Begins with the insertion of the entry.
    pub(crate) fn begin(&self, now: u16) {
        self.set(now, now);
    }

    fn set(&self, begin: u16, last: u16) {
        self.0
            .store(u32::from(begin) << 16 | u32::from(last), Ordering::Relaxed);
    }

    fn get(&self) -> (u16, u16) {
        let both = self.0.load(Ordering::Relaxed);
        ((both >> 16) as u16, both as u16)
    }

    /// Notes that a lookup has found the entry.
    #[inline]
    pub(crate) fn note(&self, now: u16) {
        let (begin, last) = self.get();
        // The test keeps lookups from writing the line of a hot entry each time.
        if last != now {
            self.set(begin, now);
        }
    }

    /// Returns the rank of the entry: the one of the highest rank leaves first.
    pub(crate) fn rank(&self, now: u16) -> Rank {
        let (begin, last) = self.get();
        let age = now.wrapping_sub(last);
        let is_proven = begin != last;
        match (age > 2 * TURNOVER, is_proven) {
            (true, _) => Rank::Expired(age),
            (false, false) => Rank::Unproven(Reverse(age)),
            (false, true) => Rank::Proven(age),
        }
    }
}

/// The rank of an entry. Of the entries that a thread looks at, the highest leaves first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Found again since it was inserted; with its age.
    Proven(u16),
    /// Not found again; with its age.
    Unproven(Reverse<u16>),
    /// Unused for turnovers; with its age.
    Expired(u16),
}
