//! Whole paths, for each thread: what `/usr/include/linux/fs.h` led this thread to last time.
//!
//! Programs look the same paths up again and again. Each thread remembers some that it walked, so that the next walk compares
//! a text and three numbers, and is there: no name is looked up. A path is remembered when it comes to its place twice with
//! no other in between, so that who goes through more paths than there are places is not kept busy remembering.
//!
//! As with [`crate::prefix_cache`], these are paths of names and search permissions only, good for one number of changes to
//! directories. Nothing is kept in use: what is remembered of the last name is a
//! [`Kept`](extern4_sync::hash_table::Kept) entry of the dentry cache, which is had again only if nothing near it was removed
//! since.
//!
//! # Why it is right
//! 1. Only the thread itself reads and writes what it remembers ([`PerThread`]).
//! 2. The way to the last name is as it was, or was so at a moment of this call: the number of changes is that of the
//!    walk, and `prefix_cache` says why that is enough. That the directory of the last name may be searched is part of the way.
//! 3. The last name's entry was in the dentry cache at a moment of this call, later than that of 2 (`hash_table`, rule 7):
//!    what `rcu_walk` says of an entry that was found holds of it.

use std::cell::RefCell;
use std::sync::Arc;

use extern4_sync::per_thread::PerThread;
use extern4_sync::rcu::Guard;

use crate::cred::Cred;
use crate::dcache::{DentryCache, Hit, KeptHit};
use crate::name::rest_of;
use crate::prefix_cache::Way;

/// Paths that a thread remembers. Each has one place where it can be, and drives out what is there.
#[cfg(not(feature = "loom"))]
const PLACES: usize = 256;
#[cfg(feature = "loom")]
const PLACES: usize = 2;

/// Words of a path that is remembered.
const WORDS: usize = 15;

/// Longest path that is remembered.
const LONGEST: usize = 8 * WORDS - 1;

/// What the threads remember.
#[derive(Default)]
pub(crate) struct PathCache(PerThread<RefCell<Paths>>);

/// What one of them does.
struct Paths {
    places: [Option<Path>; PLACES],
    /// Hashes of the paths that were last walked and not remembered.
    passed: [u64; PLACES],
}

impl Default for Paths {
    fn default() -> Self {
        Self { places: [const { None }; PLACES], passed: [0; PLACES] }
    }
}

/// A path and what it led to: three cache lines, of which long paths use the third.
#[repr(C, align(64))]
struct Path {
    len: usize,
    /// The dentry it starts from.
    base: u64,
    /// Who may go this way; everybody if `None`.
    cred: Option<Arc<Cred>>,
    /// Changes of directories when it was walked.
    changes: u64,
    /// Search checks on the way, as [`PathCache::find`] gives them.
    searches: u64,
    hit: KeptHit,
    /// The bytes, with zeroes behind.
    words: [u64; WORDS],
}

impl PathCache {
    /// What the path led to, if that is certain to be in the dentry cache at some moment of this call, and the search checks
    /// that this saves: fast ones in the low half, full ones in the high one.
    // Not inlined, since it is needed in many places; what it returns fits into registers.
    #[inline(never)]
    pub(crate) fn find<'g>(
        &self,
        way: &Way<'_>,
        dcache: &'g DentryCache,
        guard: &'g Guard,
    ) -> Option<(Hit<'g>, u64)> {
        if way.path.len() > LONGEST {
            return None;
        }
        let find = |paths: &RefCell<Paths>| {
            // Taken if a security hook calls back, though it must not.
            let paths = paths.try_borrow().ok()?;
            let path = paths.places[place(hash(way))].as_ref().filter(|path| path.is(way))?;
            Some((dcache.recall(&path.hit, guard)?, path.searches))
        };
        self.0.with(find)?
    }

    /// Notes that the path has been walked; true if it is worth remembering.
    pub(crate) fn pass(&self, way: &Way<'_>) -> bool {
        let pass = |paths: &RefCell<Paths>| {
            let hash = hash(way);
            paths.try_borrow_mut().is_ok_and(|mut paths| {
                let before = std::mem::replace(&mut paths.passed[place(hash)], hash);
                before == hash
            })
        };
        way.path.len() <= LONGEST && self.0.with(pass) == Some(true)
    }

    /// Remembers what the path led to, after [`pass`](Self::pass).
    pub(crate) fn remember(&self, way: &Way<'_>, searches: [u64; 2], hit: KeptHit) {
        let [Ok(fast), Ok(full)] = searches.map(u32::try_from) else { return };
        let searches = u64::from(fast) | u64::from(full) << 32;
        let mut words = [0; WORDS];
        let (whole, rest) = way.path.as_chunks::<8>();
        for (word, bytes) in words.iter_mut().zip(whole) {
            *word = u64::from_le_bytes(*bytes);
        }
        words[whole.len()] = rest_of(way.path, rest);
        let path = Path {
            words,
            len: way.path.len(),
            base: way.base,
            cred: (full > 0).then(|| Arc::clone(way.cred)),
            changes: way.changes,
            searches,
            hit,
        };
        let remember = |paths: &RefCell<Paths>| {
            let old = paths
                .try_borrow_mut()
                .ok()
                .and_then(|mut paths| paths.places[place(hash(way))].replace(path));
            drop(old);
        };
        self.0.with(remember);
    }
}

impl Path {
    #[inline]
    fn is(&self, way: &Way<'_>) -> bool {
        let (whole, rest) = way.path.as_chunks::<8>();
        self.len == way.path.len()
            && self.base == way.base
            && self.changes == way.changes
            && self.cred.as_ref().is_none_or(|cred| Arc::ptr_eq(cred, way.cred))
            && whole.iter().zip(&self.words).all(|(bytes, word)| u64::from_le_bytes(*bytes) == *word)
            && self.words[whole.len()] == rest_of(way.path, rest)
    }
}

/// Where a path with this hash is remembered.
#[inline]
fn place(hash: u64) -> usize {
    (hash >> (64 - PLACES.trailing_zeros())) as usize
}

/// Paths with one hash only cost time, so it need not be unforeseeable.
#[inline]
fn hash(way: &Way<'_>) -> u64 {
    let (whole, rest) = way.path.as_chunks::<8>();
    let mix = |sum: u64, word: u64| sum.rotate_left(5) ^ word;
    let sum = whole.iter().fold(way.base, |sum, bytes| mix(sum, u64::from_le_bytes(*bytes)));
    mix(sum, rest_of(way.path, rest)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
