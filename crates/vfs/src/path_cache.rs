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
    hit: KeptHit,
    /// The bytes, with zeroes behind.
    words: [u64; WORDS],
}

impl PathCache {
    /// What the path led to, if that is certain to be in the dentry cache at some moment of this call.
    #[inline(always)]
    pub(crate) fn find<'g>(
        &self,
        way: &Way<'_>,
        dcache: &'g DentryCache,
        guard: &'g Guard,
    ) -> Option<Hit<'g>> {
        if way.path.len() > LONGEST {
            return None;
        }
        let find = |paths: &RefCell<Paths>| {
            // Taken if a security hook calls back, though it must not.
            let paths = paths.try_borrow().ok()?;
            let text = Text::of(way.path);
            let path = paths.places[text.place(way.base)].as_ref().filter(|path| path.is(way, text))?;
            dcache.recall(&path.hit, guard)
        };
        self.0.with(find)?
    }

    /// Notes that the path has been walked; true if it is worth remembering.
    pub(crate) fn pass(&self, way: &Way<'_>) -> bool {
        let pass = |paths: &RefCell<Paths>| {
            let text = Text::of(way.path);
            let (hash, place) = (text.hash(way.base), text.place(way.base));
            paths
                .try_borrow_mut()
                .is_ok_and(|mut paths| std::mem::replace(&mut paths.passed[place], hash) == hash)
        };
        way.path.len() <= LONGEST && self.0.with(pass) == Some(true)
    }

    /// Remembers what the path led to, after [`pass`](Self::pass); `for_all` callers, or just this one.
    pub(crate) fn remember(&self, way: &Way<'_>, for_all: bool, hit: KeptHit) {
        let text = Text::of(way.path);
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(text.whole) {
            *word = u64::from_le_bytes(*bytes);
        }
        words[text.whole.len()] = text.rest;
        let path = Path {
            words,
            len: way.path.len(),
            base: way.base,
            cred: (!for_all).then(|| Arc::clone(way.cred)),
            changes: way.changes,
            hit,
        };
        let remember = |paths: &RefCell<Paths>| {
            let old = paths
                .try_borrow_mut()
                .ok()
                .and_then(|mut paths| paths.places[text.place(way.base)].replace(path));
            drop(old);
        };
        self.0.with(remember);
    }
}

impl Path {
    #[inline]
    fn is(&self, way: &Way<'_>, text: Text<'_>) -> bool {
        self.len == way.path.len()
            && self.base == way.base
            && self.changes == way.changes
            && self.cred.as_ref().is_none_or(|cred| Arc::ptr_eq(cred, way.cred))
            && text.whole.iter().zip(&self.words).all(|(bytes, word)| u64::from_le_bytes(*bytes) == *word)
            && self.words[text.whole.len()] == text.rest
    }
}

/// A path as words.
#[derive(Clone, Copy)]
struct Text<'a> {
    whole: &'a [[u8; 8]],
    /// What is left, with zeroes behind.
    rest: u64,
}

impl<'a> Text<'a> {
    #[inline]
    fn of(path: &'a [u8]) -> Self {
        let (whole, rest) = path.as_chunks::<8>();
        Self { whole, rest: rest_of(path, rest) }
    }

    /// Paths with one hash only cost time, so it need not be unforeseeable.
    #[inline]
    fn hash(self, base: u64) -> u64 {
        let mix = |sum: u64, word: u64| sum.rotate_left(5) ^ word;
        let sum = self.whole.iter().fold(base, |sum, bytes| mix(sum, u64::from_le_bytes(*bytes)));
        mix(sum, self.rest).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Where the path is remembered.
    #[inline]
    fn place(self, base: u64) -> usize {
        (self.hash(base) >> (64 - PLACES.trailing_zeros())) as usize
    }
}
