//! Inode cache of one file system: at most one inode in use for each number, read once however many
//! threads ask for it.
//!
//! `SuperBlock` owns the cache. Lookups get inodes from it, and creation inserts new ones.
//!
//! Inodes are found without a lock. There are two kinds of locks. A thread holds a bucket's lock
//! only for a change of the table. It holds the lock of a number while it reads that inode from the
//! file system. Only threads that want the same inode wait for the read. Order: number, then
//! bucket. A thread drops an inode, which calls the file system, with neither lock held.
//!
//! An inode is evicted only if the cache alone refers to it; in the same step it becomes impossible
//! to refer to it again. An inode without links is not in the cache. Only its users have references
//! to it, and the file system frees it as soon as they drop the last one. No lookup finds it by its
//! number. A lookup that finds an inode without links in the cache removes it. The file system may
//! give the number to another file as soon as it has reported that there are no links.

use std::cell::OnceCell;
use std::sync::Arc;

use extern4_sync::cache_budget::CacheAccount;
use extern4_sync::lock_order::Rank;
use extern4_sync::per_thread::PerThread;
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU64, Ordering};
use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::{RcuArc, end_all};
use extern4_sync::rcu_hash_map::RcuHashMap;
use extern4_sync::thread_counter::ThreadCounter;
use extern4_sync::thread_refcount::ThreadRefcount;

use crate::errno::{Errno, Result};
use crate::fs::FileSystem;
use crate::inode::{FsRef, Inode, NewInode, Served};
use crate::key_locks::KeyLocks;

pub(crate) struct InodeCache {
    table: RcuHashMap<Inode>,
    being_read: KeyLocks,
    /// The memory of inodes and dentries.
    account: CacheAccount,
    /// Bytes of an inode, with what the file system keeps for it.
    inode_bytes: u64,
    /// The counter from which each thread makes its references to the file system.
    fs: PerThread<OnceCell<FsRef>>,
    /// The count of inodes in use that have no links.
    unlinked: Arc<ThreadRefcount>,
    /// Inodes read from the file system.
    reads: ThreadCounter<1>,
    /// Dentries and inodes that left for want of memory.
    evictions: AtomicU64,
}

/// Bytes of an inode in the buckets of the table.
const OVERHEAD_BYTES: u64 = 16;

/// Spreads inode numbers, which come in runs, over the buckets.
fn hash(ino: u64) -> u64 {
    let product = u128::from(ino ^ 0x9e37_79b9_7f4a_7c15)
        .wrapping_mul(0xd6e8_feb8_6659_fd93_a076_1d64_78bd_642f);
    u64::try_from(product >> 64).expect("the upper half")
}

impl InodeCache {
    /// Returns a cache whose inodes, and the dentries that lead to them, are counted in `account`.
    /// The file system keeps `fs_bytes` for each inode.
    pub(crate) fn new(
        account: CacheAccount,
        fs_bytes: usize,
        unlinked: Arc<ThreadRefcount>,
    ) -> Self {
        Self {
            table: RcuHashMap::new(),
            being_read: KeyLocks::new(),
            account,
            inode_bytes: (RcuArc::<Inode>::BYTES + fs_bytes) as u64 + OVERHEAD_BYTES,
            fs: PerThread::new(),
            unlinked,
            reads: ThreadCounter::new(),
            evictions: AtomicU64::new(0),
        }
    }

    fn find(&self, ino: u64) -> Option<RcuArc<Inode>> {
        let guard = pin();
        self.table
            .find(hash(ino), &guard, |inode| inode.ino() == ino)?
            .try_upgrade()
    }

    /// Like [`find`](Self::find), under the lock of the bucket. Without the lock, it could miss an
    /// inode that another thread has just inserted, and the inode would be read a second time.
    fn find_locked(&self, ino: u64) -> Option<RcuArc<Inode>> {
        let guard = pin();
        let bucket = self.table.lock(hash(ino), &guard);
        bucket
            .find(hash(ino), |inode| inode.ino() == ino)?
            .try_upgrade()
    }

    /// Returns inode `ino`, read from `fs` if it is not in memory.
    pub(crate) fn get(&self, fs: &Arc<dyn FileSystem>, ino: u64) -> Result<RcuArc<Inode>> {
        if let Some(inode) = self.linked(self.find(ino)) {
            return Ok(inode);
        }
        let _single_flight = self.being_read.lock(Rank::InodeRead, hash(ino));
        if let Some(inode) = self.linked(self.find_locked(ino)) {
            return Ok(inode);
        }
        self.reads.add([1]);
        let new = fs.read_inode(ino)?;
        // The file was removed, and is perhaps still open. A lookup by number must not find it.
        if new.attr.nlink == 0 {
            return Err(Errno::ESTALE.into());
        }
        let inode = self.insert(fs, new);
        if self.account.excess() > 0 {
            self.evict(2);
        }
        Ok(inode)
    }

    /// Returns the inode unless it has just lost its last name: its number may be another file's
    /// already.
    fn linked(&self, found: Option<RcuArc<Inode>>) -> Option<RcuArc<Inode>> {
        let inode = found?;
        if inode.nlink() > 0 {
            return Some(inode);
        }
        self.links_changed(&inode);
        None
    }

    /// Inserts an inode that the file system has just made or read.
    pub(crate) fn insert(&self, fs: &Arc<dyn FileSystem>, new: NewInode) -> RcuArc<Inode> {
        let inode = self.table.alloc(Inode::of(self.refer_to(fs), new));
        self.links_changed(&inode);
        inode
    }

    fn refer_to(&self, fs: &Arc<dyn FileSystem>) -> FsRef {
        let served = || Served {
            fs: Arc::clone(fs),
            unlinked: Arc::clone(&self.unlinked),
        };
        let first = || FsRef::new(Padded(served()));
        self.fs
            .with(|own| FsRef::clone(own.get_or_init(first)))
            .unwrap_or_else(first)
    }

    /// Inserts an inode that has links, and removes one that has none.
    pub(crate) fn links_changed(&self, inode: &RcuArc<Inode>) {
        let ino = inode.ino();
        let linked = inode.nlink() > 0;
        let hash = hash(ino);
        let guard = pin();
        let mut bucket = self.table.lock(hash, &guard);
        let old = bucket.find(hash, |inode| inode.ino() == ino);
        let is_there = old.is_some_and(|old| old.ptr_eq(inode.as_rcu_ref()));
        let mut replaced = None;
        // Another inode may have the number already, if this one has gone for good.
        if linked != is_there {
            if linked {
                bucket.insert(hash, inode.clone());
                self.account.add(self.inode_bytes);
            }
            replaced = old.and_then(|old| bucket.remove(old));
            if replaced.is_some() {
                self.account.sub(self.inode_bytes);
            }
        }
        drop(bucket);
        drop(guard);
        // An inode calls its file system when it is dropped, which must not happen under the
        // bucket's lock.
        drop(replaced);
    }

    /// Drops inode `ino` unless it is in use.
    pub(crate) fn evict_unused(&self, ino: u64) {
        let hash = hash(ino);
        let guard = pin();
        let mut bucket = self.table.lock(hash, &guard);
        let found = bucket.find(hash, |inode| inode.ino() == ino);
        let last = found.and_then(|found| bucket.end_last(found, |_| ()));
        if last.is_some() {
            self.account.sub(self.inode_bytes);
        }
        drop(bucket);
        drop(guard);
        // An evicted inode calls its file system, which must not happen under the bucket's lock.
        drop(last);
    }

    /// Drops the references, and the inodes that nothing else uses.
    pub(crate) fn evict_held(&self, inodes: Vec<RcuArc<Inode>>) {
        let evict = |inode| self.table.evict_held(inode, |_| ());
        let evicted: Vec<_> = inodes.into_iter().filter_map(evict).collect();
        self.account.sub(evicted.len() as u64 * self.inode_bytes);
        // An evicted inode calls its file system, without a lock of the table.
        end_all(evicted);
    }

    /// Evicts up to `want` unused inodes, after a thread has inserted one by its number alone. The
    /// inodes of dentries leave with these.
    pub(crate) fn evict(&self, want: usize) -> usize {
        let evicted = self.table.evict(want, |_| ());
        self.account.sub(evicted.len() as u64 * self.inode_bytes);
        self.count_evictions(evicted.len());
        evicted.len()
    }

    /// Counts dentries or inodes that left for want of memory.
    pub(crate) fn count_evictions(&self, evicted: usize) {
        self.evictions.fetch_add(evicted as u64, Ordering::Relaxed);
    }

    /// Returns the number of dentries and inodes evicted so far for want of memory.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Returns the bytes of an inode, with the part that the file system keeps.
    pub(crate) fn inode_bytes(&self) -> u64 {
        self.inode_bytes
    }

    /// Returns the account of inodes and dentries.
    pub(crate) fn account(&self) -> &CacheAccount {
        &self.account
    }

    /// Drops every unused inode.
    pub(crate) fn shrink(&self) {
        let evicted = self.table.evict_all(|_| ());
        self.account.sub(evicted.len() as u64 * self.inode_bytes);
        end_all(evicted);
    }

    /// Returns the number of inodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of inodes read from the file system so far.
    pub(crate) fn reads(&self) -> u64 {
        let [reads] = self.reads.sum();
        reads
    }
}
