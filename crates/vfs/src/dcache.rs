//! Directory entry cache of one file system.
//!
//! Dentries are found by parent and name. Looking takes one shard's lock shared, for the time of a probe. The name that
//! counts is the directory's canonical form of it, so that a case-folding directory has one dentry for all spellings.
//!
//! Who changes the binding of a name holds the directory's `rwsem` exclusive; who adds what the file system said about
//! a name holds it shared, and the stripe of that name, so that one caller asks and the others wait for the answer. Order:
//! `rwsem`, stripe, shard. Dentries are dropped with none of the cache's locks held.
//!
//! The cache is bounded: a hand goes round each shard and evicts what nobody uses, children before parents, since a
//! child holds its parent. Negative dentries are bounded for each directory too.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, RwLock};

use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU64, Ordering};

use crate::cache_table::{CacheTable, Verdict};
use crate::dentry::Dentry;
use crate::inode::Inode;
use crate::lock::{self, Stripes};
use crate::name::{Name, hash_name};

const SHARDS: usize = 64;

pub(crate) struct DentryCache {
    shards: Box<[Padded<RwLock<CacheTable<Entry>>>]>,
    stripes: Stripes,
    seed: u64,
    limit_per_shard: usize,
    negatives_per_dir: usize,
    next_id: AtomicU64,
}

struct Entry {
    parent: u64,
    key: Name,
    dentry: Arc<Dentry>,
}

impl Entry {
    fn judge(&self) -> Verdict {
        // Whoever else holds it: a user, a child, a mount.
        let pinned = Arc::strong_count(&self.dentry) > 1;
        // Relaxed: a hint; a lost one costs a lookup.
        if pinned || self.dentry.referenced.swap(false, Ordering::Relaxed) {
            Verdict::Keep
        } else {
            Verdict::Evict
        }
    }
}

/// A directory, and a name in it under the form the cache knows.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) parent: &'a Arc<Dentry>,
    pub(crate) name: &'a [u8],
    hash: u64,
}

impl Key<'_> {
    /// Means the same entry.
    pub(crate) fn same(&self, other: Key<'_>) -> bool {
        self.parent.id() == other.parent.id() && self.name == other.name
    }

    fn is(&self, entry: &Entry) -> bool {
        entry.parent == self.parent.id() && entry.key.as_bytes() == self.name
    }
}

impl DentryCache {
    /// A cache that keeps about `limit` dentries beside those in use, and at most `negatives_per_dir` negative ones in
    /// any directory.
    pub(crate) fn new(limit: usize, negatives_per_dir: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded(RwLock::new(CacheTable::new()))).collect(),
            stripes: Stripes::new(),
            seed: RandomState::new().hash_one(0u8),
            limit_per_shard: (limit / SHARDS).max(1),
            negatives_per_dir: negatives_per_dir.max(1),
            next_id: AtomicU64::new(1),
        }
    }

    fn shard(&self, hash: u64) -> &RwLock<CacheTable<Entry>> {
        let index = usize::try_from(hash >> 32).unwrap_or(0) % SHARDS;
        &self.shards[index].0
    }

    /// `name` must be in its canonical form.
    pub(crate) fn key<'a>(&self, parent: &'a Arc<Dentry>, name: &'a [u8]) -> Key<'a> {
        Key { parent, name, hash: hash_name(self.seed, parent.id(), name) }
    }

    /// A number for a new dentry.
    pub(crate) fn new_id(&self) -> u64 {
        // Relaxed: only uniqueness counts.
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// What is known of a name.
    pub(crate) fn find(&self, key: Key<'_>) -> Option<Arc<Dentry>> {
        let shard = lock::read(self.shard(key.hash));
        let dentry = &shard.find(key.hash, |entry| key.is(entry))?.dentry;
        // Relaxed: a hint. Looked at first, so that a hot dentry's line is not written again and again.
        if !dentry.referenced.load(Ordering::Relaxed) {
            dentry.referenced.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(dentry))
    }

    /// Keeps others from asking the file system for the same name.
    pub(crate) fn single_flight(&self, key: Key<'_>) -> impl Drop + '_ {
        self.stripes.lock(key.hash)
    }

    /// A dentry that is not in the cache yet. `name` is the spelling that paths show.
    pub(crate) fn new_dentry(&self, key: Key<'_>, name: &[u8], inode: Option<Arc<Inode>>) -> Arc<Dentry> {
        Arc::new(Dentry::new(self.new_id(), key.parent, name, inode))
    }

    /// Remembers that a name is not there.
    pub(crate) fn bind_nothing(&self, key: Key<'_>, name: &[u8]) -> Arc<Dentry> {
        let dentry = self.new_dentry(key, name, None);
        self.put(key, Arc::clone(&dentry));
        self.count_negative(key);
        dentry
    }

    /// Puts a dentry under a name, in place of what was there.
    pub(crate) fn put(&self, key: Key<'_>, dentry: Arc<Dentry>) {
        let entry = Entry { parent: key.parent.id(), key: Name::new(key.name), dentry };
        let mut dropped = Vec::new();
        let mut shard = lock::write(self.shard(key.hash));
        dropped.extend(shard.remove(key.hash, |entry| key.is(entry)));
        shard.insert(key.hash, entry);
        shard.reclaim(self.limit_per_shard, &mut dropped, Entry::judge);
        drop(shard);
        drop(dropped);
    }

    /// Notes a new negative dentry with its directory and drops the oldest one above the limit.
    fn count_negative(&self, key: Key<'_>) {
        let oldest = {
            let mut negatives = lock::lock(&key.parent.negatives);
            negatives.push_back(key.hash);
            if negatives.len() > self.negatives_per_dir { negatives.pop_front() } else { None }
        };
        if let Some(hash) = oldest {
            let parent = key.parent.id();
            let negative = |entry: &Entry| entry.parent == parent && entry.dentry.inode().is_none();
            let removed = lock::write(self.shard(hash)).remove(hash, negative);
            drop(removed);
        }
    }

    /// Lets go of every dentry that nobody uses.
    pub(crate) fn shrink(&self) {
        // Parents become free when their children have gone, so rounds go on while they find something.
        loop {
            let before = self.len();
            for shard in &self.shards {
                let mut dropped = Vec::new();
                let mut table = lock::write(&shard.0);
                for _ in 0..2 {
                    let slots = table.slots();
                    table.sweep(slots, slots, &mut dropped, Entry::judge);
                }
                drop(table);
                drop(dropped);
            }
            if self.len() >= before {
                return;
            }
        }
    }

    /// Dentries in memory.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock::read(&shard.0).len()).sum()
    }
}
