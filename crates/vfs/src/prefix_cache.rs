//! Whole paths to directories: where `/usr/include/linux` leads for those who may search all of it.
//!
//! A path walk spends its time on the directories that all paths in a place share. This cache remembers, for a starting
//! directory and the text of a path to another, what that led to, so that a walk of many components looks up two things:
//! the directory, here, and the last name, in the dentry cache. The last name stays out of it, so nothing here
//! depends on files, and a directory needs one entry however many names are looked up in it.
//!
//! An entry is made of a walk over names and search permissions only: no symbolic link, no `.` or `..`, no mount point. What
//! it says stays true until a directory somewhere changes: is renamed, removed, mounted on, gets another mode, owner or
//! ACL. All of these count up one number for the file system; an entry with another number than the present one is
//! worth nothing. They are rare beside lookups, and a change to files is none of them.
//!
//! An entry that was made where everybody may search serves everybody, another only those with the same credentials.
//!
//! An entry is made the second time that a way is walked. After a change, the next walk that comes the same way again says so
//! in the entry: one store, and no allocation and no lock.
//!
//! # Why it is right
//! | step | ordering |
//! |---|---|
//! | C1: a change of names hides the name | Release |
//! | C2: a change counts up `changes` | AcqRel |
//! | C3: a change of rights changes the permission word, after C2, and then takes itself out of `changes` | Release |
//! | F1: a walk reads `changes`, before anything else | Acquire, pairs with C2 |
//! | F2: it walks, and what it found becomes an entry with the number of F1, or gives its number to the entry | Release |
//! | R: a reader compares an entry's number with `changes` | Acquire, pairs with C2 and F2 |
//!
//! After C2 there is no entry with the present number that was made of anything older. A change of names comes about only
//! then, and whoever reads the new number (F1) finds the name hidden until it has. While a change of rights is
//! under way, `changes` is no number at all, so no entry is used or made; whoever reads a number after it (F1) reads the new
//! word. One who compares before C2 takes the way as it was, and so does every walk until then: nobody goes by the new
//! state first and then by the old one. A late F2 can only give an entry a number that is past.
//!
//! Entries keep their directory in use. So that a removed one goes at once, each dentry lists the hashes of its entries, and
//! who removes the directory takes them out ([`PrefixCache::forget_removed`]). Under the lock of that list an entry is made
//! and listed, unless `changes` has moved since F1. Who removes the directory has counted up before it takes the list: it
//! finds the entry listed, or the maker sees the new number.
//!
//! Order of locks: the list, then a bucket.

use std::sync::Arc;

use extern4_sync::hash_table::HashTable;
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU64, Ordering};
use extern4_sync::rcu::{Guard, pin};
use extern4_sync::shared::{Link, Seen, Shared};

use crate::cred::Cred;
use crate::dentry::Dentry;
use crate::lock;
use crate::name::{hash_name, new_seed, same_bytes};

/// Directories that are remembered, at most.
#[cfg(not(feature = "loom"))]
const LIMIT: usize = 1 << 13;
/// Few in models.
#[cfg(feature = "loom")]
const LIMIT: usize = 2;

pub(crate) struct PrefixCache {
    table: HashTable<Entry>,
    seed: u64,
    /// Changes of directories so far, in units of [`CHANGE`], and how many of rights are under way. On a line of its own:
    /// every reader reads it.
    changes: Padded<AtomicU64>,
}

/// One change in [`PrefixCache::changes`]. What is below are changes under way, each of a thread's.
const CHANGE: u64 = 1 << 20;

/// A change of who may search a directory, under way as long as this lives.
pub(crate) struct Change<'a>(&'a AtomicU64);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // Release: C3.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

struct Entry {
    /// Number of the dentry that the path starts from.
    base: u64,
    path: Box<[u8]>,
    /// Who may go this way; everybody if `None`.
    cred: Option<Arc<Cred>>,
    /// What [`PrefixCache::changes`] was when the way was last walked.
    changes: AtomicU64,
    /// Search checks on the way: fast, full.
    searches: [u64; 2],
    dir: Link<Dentry>,
}

/// Entries of one directory at most: ways to spell a path to it, from wherever.
const ENTRIES_PER_DIR: usize = 8;

/// A path to a directory, and who wants to go it.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) base: u64,
    pub(crate) path: &'a [u8],
    pub(crate) cred: &'a Arc<Cred>,
    /// What [`PrefixCache::changes`] is, read before the way is walked.
    pub(crate) changes: u64,
}

impl Way<'_> {
    #[inline]
    fn is(&self, entry: &Entry) -> bool {
        entry.cred.as_ref().is_none_or(|cred| Arc::ptr_eq(cred, self.cred) || cred == self.cred)
            && entry.base == self.base
            && same_bytes(&entry.path, self.path)
    }
}

impl PrefixCache {
    pub(crate) fn new() -> Self {
        Self { table: HashTable::with_capacity(LIMIT), seed: new_seed(), changes: Padded(AtomicU64::new(0)) }
    }

    /// Which changes of directories have been made; `None` while one of rights is under way.
    #[inline]
    pub(crate) fn changes(&self) -> Option<u64> {
        // Acquire: F1 and R, pairs with C2 and C3.
        let changes = self.changes.load(Ordering::Acquire);
        changes.is_multiple_of(CHANGE).then_some(changes)
    }

    /// Notes that a directory's name is about to change, and is hidden.
    pub(crate) fn note_change(&self) {
        // AcqRel: C2.
        self.changes.fetch_add(CHANGE, Ordering::AcqRel);
    }

    /// Begins a change of who may search a directory.
    pub(crate) fn begin_change(&self) -> Change<'_> {
        // AcqRel: C2.
        self.changes.fetch_add(CHANGE + 1, Ordering::AcqRel);
        Change(&self.changes)
    }

    /// Switches the cache off or on again: off is like a change of rights that lasts. Each call turns the switch the other
    /// way.
    pub(crate) fn set_used(&self, used: bool) {
        if used {
            drop(Change(&self.changes));
        } else {
            std::mem::forget(self.begin_change());
        }
    }

    fn hash(&self, way: &Way<'_>) -> u64 {
        hash_name(self.seed, way.base, way.path)
    }

    /// Where a path leads, and the search checks that this saves.
    #[inline]
    pub(crate) fn see<'g>(&'g self, way: &Way<'_>, guard: &'g Guard) -> Option<(Seen<'g, Dentry>, [u64; 2])> {
        // Acquire: R.
        let is = |entry: &Entry| entry.changes.load(Ordering::Acquire) == way.changes && way.is(entry);
        let entry = self.table.find(self.hash(way), guard, is)?.value();
        Some((entry.dir.see(guard)?, entry.searches))
    }

    /// Says that a path still leads where an entry has it; false if there is none.
    pub(crate) fn renew(
        &self,
        way: &Way<'_>,
        searches: [u64; 2],
        dir: Seen<'_, Dentry>,
        guard: &Guard,
    ) -> bool {
        let is = |entry: &Entry| {
            way.is(entry)
                && entry.searches == searches
                && entry.dir.see(guard).is_some_and(|there| there.ptr_eq(dir))
        };
        let found = self.table.find(self.hash(way), guard, is);
        if let Some(entry) = found {
            // Release: F2.
            entry.value().changes.store(way.changes, Ordering::Release);
        }
        found.is_some()
    }

    /// Remembers where a path leads.
    pub(crate) fn remember(&self, way: &Way<'_>, searches: [u64; 2], dir: &Shared<Dentry>) {
        let hash = self.hash(way);
        let entry = Entry {
            base: way.base,
            path: way.path.into(),
            cred: (searches[1] > 0).then(|| Arc::clone(way.cred)),
            changes: AtomicU64::new(way.changes),
            searches,
            dir: Link::new(Some(dir.clone())),
        };
        let mut dropped = Vec::new();
        let guard = pin();
        let mut listed = lock::lock(&dir.prefixes);
        if self.changes() != Some(way.changes) {
            return;
        }
        if !listed.contains(&hash) {
            if listed.len() == ENTRIES_PER_DIR {
                self.remove(listed.remove(0), dir, &guard, &mut dropped);
            }
            listed.push(hash);
        }
        let mut bucket = self.table.lock(hash, &guard);
        // One that this makes superfluous; others may be for other callers.
        while let Some(old) = bucket.find(hash, |old| way.is(old)) {
            bucket.remove(old);
            dropped.extend(old.value().dir.take());
        }
        bucket.insert(hash, entry);
        bucket.trim(LIMIT, |entry| {
            dropped.extend(entry.dir.take());
            true
        });
        drop(bucket);
        drop((listed, guard));
        drop(dropped);
    }

    /// Lets go of a directory that has been removed, after [`note_change`](Self::note_change).
    pub(crate) fn forget_removed(&self, dir: &Shared<Dentry>) {
        let mut dropped = Vec::new();
        let hashes = std::mem::take(&mut *lock::lock(&dir.prefixes));
        for hash in hashes {
            self.remove(hash, dir, &pin(), &mut dropped);
        }
    }

    /// Takes the entries of a directory with this hash out. Locks: the bucket's, within.
    fn remove(&self, hash: u64, dir: &Shared<Dentry>, guard: &Guard, dropped: &mut Vec<Shared<Dentry>>) {
        let mut bucket = self.table.lock(hash, guard);
        let is = |entry: &Entry| entry.dir.see(guard).is_some_and(|there| there.ptr_eq(dir.seen()));
        while let Some(found) = bucket.find(hash, is) {
            bucket.remove(found);
            dropped.extend(found.value().dir.take());
        }
    }

    /// Lets go of everything.
    pub(crate) fn clear(&self) {
        let mut dropped = Vec::new();
        self.table.remove_all(|entry| dropped.extend(entry.dir.take()));
    }
}

/// Where the last slash of a path stands; `None` if it is the only one at the start, if there is none, or if no name comes
/// after it.
#[inline]
pub(crate) fn split(path: &[u8]) -> Option<usize> {
    let slash = last_slash(path)?;
    (slash > 1 && slash + 1 < path.len()).then_some(slash)
}

#[inline]
fn last_slash(path: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    if let Some(last) = path.last_chunk::<8>() {
        let text = u64::from_le_bytes(*last) ^ u64::from_le_bytes([b'/'; 8]);
        // The high bit of each byte that is zero, and of no other.
        let slashes = !(((text & LOW) + LOW) | text | LOW);
        if slashes != 0 {
            return Some(path.len() - 1 - (slashes.leading_zeros() / 8) as usize);
        }
    }
    last_slash_of_long_name(path)
}

#[inline(never)]
fn last_slash_of_long_name(path: &[u8]) -> Option<usize> {
    path.iter().rposition(|&byte| byte == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_in_front_of_the_last_name() {
        assert_eq!(split(b"/usr/include/fs.h"), Some(12));
        assert_eq!(split(b"/usr/include/a-longer-name"), Some(12));
        assert_eq!(split(b"usr/x"), Some(3));
        for path in
            [&b"/usr"[..], b"usr", b"/usr/", b"/", b"", b"/a/b/", b"/longer-than-eight", b"longer-than-eight"]
        {
            assert_eq!(split(path), None);
        }
    }

    #[test]
    fn the_last_slash_is_found_at_every_place() {
        for len in 0..20 {
            for slash in 0..len {
                // Bytes that differ from a slash in one bit, and such as arithmetic might take for one.
                for other in [0u8, 1, 0x2e, 0x30, 0x80, 0xaf, 0xff] {
                    let mut path = vec![other; len];
                    path[slash] = b'/';
                    path[slash / 2] = b'/';
                    assert_eq!(last_slash(&path), Some(slash));
                }
            }
        }
    }
}
