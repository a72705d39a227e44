//! Inode cache of one file system: at most one inode in memory for each number, read once however many ask.
//!
//! Two locks: a shard's table lock, held for a look or a change only, and the stripe of a number, held over reading that
//! inode from the file system. Order: stripe, then shard. Inodes are dropped, and the file system told, with neither.
//!
//! An inode is evicted only if the cache alone refers to it. One without links is not in the cache: those who use it
//! hold it, and the file system frees it as soon as the last of them goes. Nobody can come to it by its number any more.

use std::sync::{Arc, RwLock};

use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicBool, AtomicU64, Ordering};

use crate::cache_table::{CacheTable, Verdict};
use crate::errno::{Errno, Result};
use crate::fs::FileSystem;
use crate::inode::{Inode, NewInode};
use crate::lock::{self, Stripes};

const SHARDS: usize = 64;

pub(crate) struct InodeCache {
    shards: Box<[Padded<RwLock<CacheTable<Entry>>>]>,
    stripes: Stripes,
    limit_per_shard: usize,
    /// Inodes read from the file system.
    reads: AtomicU64,
}

struct Entry {
    inode: Arc<Inode>,
    /// Found since the hand last came by. Relaxed: a hint, and a lost one costs a reread.
    referenced: AtomicBool,
}

impl Entry {
    fn judge(&self) -> Verdict {
        let pinned = Arc::strong_count(&self.inode) > 1;
        if pinned || self.referenced.swap(false, Ordering::Relaxed) { Verdict::Keep } else { Verdict::Evict }
    }
}

/// Spreads inode numbers, which come in runs, over shards and buckets.
fn hash(ino: u64) -> u64 {
    let product =
        u128::from(ino ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93_a076_1d64_78bd_642f);
    u64::try_from(product >> 64).expect("the upper half")
}

impl InodeCache {
    /// A cache that keeps about `limit` inodes beside those in use.
    pub(crate) fn new(limit: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Padded(RwLock::new(CacheTable::new()))).collect();
        let limit_per_shard = (limit / SHARDS).max(1);
        Self { shards, stripes: Stripes::new(), limit_per_shard, reads: AtomicU64::new(0) }
    }

    fn shard(&self, hash: u64) -> &RwLock<CacheTable<Entry>> {
        let index = usize::try_from(hash >> 32).unwrap_or(0) % SHARDS;
        &self.shards[index].0
    }

    fn find(&self, hash: u64, ino: u64) -> Option<Arc<Inode>> {
        let shard = lock::read(self.shard(hash));
        let entry = shard.find(hash, |entry| entry.inode.ino() == ino)?;
        if !entry.referenced.load(Ordering::Relaxed) {
            entry.referenced.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(&entry.inode))
    }

    /// The inode `ino`, read from `fs` if it is not in memory.
    pub(crate) fn get(&self, fs: &Arc<dyn FileSystem>, ino: u64) -> Result<Arc<Inode>> {
        let hash = hash(ino);
        if let Some(inode) = self.find(hash, ino) {
            return Ok(inode);
        }
        let _single_flight = self.stripes.lock(hash);
        if let Some(inode) = self.find(hash, ino) {
            return Ok(inode);
        }
        // Relaxed: a statistic.
        self.reads.fetch_add(1, Ordering::Relaxed);
        let new = fs.read_inode(ino)?;
        // Removed, and perhaps still open: what is left of it is not to be found by number.
        if new.attr.nlink == 0 {
            return Err(Errno::ESTALE.into());
        }
        Ok(self.insert(fs, new))
    }

    /// Takes in an inode that the file system has just made or read.
    pub(crate) fn insert(&self, fs: &Arc<dyn FileSystem>, new: NewInode) -> Arc<Inode> {
        let inode = Arc::new(Inode::of(fs, new));
        self.links_changed(&inode);
        inode
    }

    /// Keeps an inode that has links, and lets go of one that has none.
    pub(crate) fn links_changed(&self, inode: &Arc<Inode>) {
        let (ino, linked) = (inode.ino(), inode.attr().nlink > 0);
        let hash = hash(ino);
        let mut dropped = Vec::new();
        let mut shard = lock::write(self.shard(hash));
        dropped.extend(shard.remove(hash, |entry| entry.inode.ino() == ino));
        if linked {
            let entry = Entry { inode: Arc::clone(inode), referenced: AtomicBool::new(true) };
            shard.insert(hash, entry);
            shard.reclaim(self.limit_per_shard, &mut dropped, Entry::judge);
        }
        drop(shard);
        // Evicted inodes tell their file system, which must not happen under the table lock.
        drop(dropped);
    }

    /// Lets go of every inode that nobody uses.
    pub(crate) fn shrink(&self) {
        for shard in &self.shards {
            let mut dropped = Vec::new();
            let mut table = lock::write(&shard.0);
            // The first round takes the second chances away.
            for _ in 0..2 {
                let slots = table.slots();
                table.sweep(slots, slots, &mut dropped, Entry::judge);
            }
            drop(table);
            drop(dropped);
        }
    }

    /// Inodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock::read(&shard.0).len()).sum()
    }

    /// Inodes read from the file system so far.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}
