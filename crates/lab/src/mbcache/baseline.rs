//! Baseline of the mbcache: two tables, a lock in each entry, and a list of the unused entries.
//!
//! It is the cache of Linux up to 4.5, and a `Cache` of the chapter. Threads use an entry shared or
//! exclusively. A thread that has to wait sleeps in one queue with all other waiters. A thread that
//! starts to use an entry takes it off the list of the unused. The last user puts it back. An entry
//! stays in memory while it is in the tables, and while a thread uses it or waits for it.
//!
//! Lock order: an entry's, then that of a block's buffer; the chain of a block, then the chain of a
//! hash, then the list.

use std::sync::{Condvar, Mutex, PoisonError};

use extern4_sync::primitive::{AtomicU64, Latch, Ordering};

use super::slab::{Chains, Ends, Slab, lock};
use super::{Blocks, Cache};

const BUCKETS: usize = 1024;
/// The number of entries from which on each new one evicts another.
const MAX: u64 = 16 * BUCKETS as u64;

// The words of an entry.
const LIST: usize = 0;
const BY_BLOCK: usize = 2;
const BY_KEY: usize = 4;
const KEY: usize = 6;
const BLOCK: usize = 7;
/// The device of the block.
const DEVICE: usize = 8;
/// The number of users, or [`ALONE`].
const USED: usize = 9;
/// The number of waiting threads.
const QUEUED: usize = 10;
/// The number of references that keep it in memory.
const HELD: usize = 11;
const FLAGS: usize = 12;
const WORDS: usize = 13;

const ALONE: u64 = 1 << 16;

/// The entry is in the tables.
const HASHED: u64 = 1;
/// The entry is on the list. Protected by the lock of the list.
const LISTED: u64 = 2;

/// A way to use an entry.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Shared,
    Alone,
}

/// The mbcache of Linux up to 4.5.
pub struct Baseline {
    slab: Slab<WORDS>,
    by_block: Chains,
    by_key: Chains,
    /// Unused entries, the least recently used first.
    unused: Latch<Ends>,
    entries: AtomicU64,
    queue: Mutex<()>,
    released: Condvar,
}

impl Baseline {
    fn is_hashed(&self, entry: u32) -> bool {
        // Acquire: pairs with the AcqRel of `unhash`.
        self.slab.word(entry, FLAGS).load(Ordering::Acquire) & HASHED != 0
    }

    /// Acquires an entry for `how`, once other users allow it. The caller holds a reference to it.
    /// Returns false if it is no longer in the tables. Then the reference is given up as well.
    fn acquire(&self, entry: u32, how: Use) -> bool {
        if !self.try_acquire(entry, how) {
            self.wait(entry, how);
        }
        self.take_off_list(entry);
        let is_hashed = self.is_hashed(entry);
        if !is_hashed {
            self.release(entry, how);
        }
        is_hashed
    }

    fn try_acquire(&self, entry: u32, how: Use) -> bool {
        let used = |used: u64| match how {
            Use::Shared => (used < ALONE).then_some(used + 1),
            Use::Alone => (used == 0).then_some(ALONE),
        };
        // SeqCst: pairs with `wait` and `release`, so that one of the two sees the other.
        self.slab
            .word(entry, USED)
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, used)
            .is_ok()
    }

    #[cold]
    fn wait(&self, entry: u32, how: Use) {
        let queued = self.slab.word(entry, QUEUED);
        // SeqCst: pairs with `release`, which frees the entry first and then loads `QUEUED`.
        queued.fetch_add(1, Ordering::SeqCst);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.try_acquire(entry, how) {
            queue = self
                .released
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        // SeqCst: ordered with the addition above and with the load in `release`.
        queued.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends the use of an entry, and gives up a reference to it.
    fn release(&self, entry: u32, how: Use) {
        let by = if how == Use::Alone { ALONE } else { 1 };
        // SeqCst: pairs with `try_acquire`; with the load of `QUEUED` below, it pairs with `wait`.
        let was = self.slab.word(entry, USED).fetch_sub(by, Ordering::SeqCst);
        if was == by && self.is_hashed(entry) {
            self.put_on_list(entry);
        }
        // SeqCst: pairs with the addition in `wait`.
        if self.slab.word(entry, QUEUED).load(Ordering::SeqCst) > 0 {
            let _queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            self.released.notify_all();
        }
        self.forget(entry);
    }

    /// Adds a reference that keeps an entry in memory. Locks: the caller has that of a chain with
    /// the entry, or that of the list.
    fn hold(&self, entry: u32) {
        // Relaxed: another reference keeps it already.
        self.slab.word(entry, HELD).fetch_add(1, Ordering::Relaxed);
    }

    /// Gives up a reference to an entry. The last one frees it.
    fn forget(&self, entry: u32) {
        // AcqRel: the last one sees all accesses of the others.
        if self.slab.word(entry, HELD).fetch_sub(1, Ordering::AcqRel) == 1 {
            self.slab.give(entry);
        }
    }

    fn take_off_list(&self, entry: u32) {
        let mut unused = lock(&self.unused);
        // AcqRel: pairs with the other changes of `FLAGS`; `unhash` makes one without this lock.
        if self
            .slab
            .word(entry, FLAGS)
            .fetch_and(!LISTED, Ordering::AcqRel)
            & LISTED
            != 0
        {
            self.slab.unlink(&mut unused, entry, LIST);
        }
    }

    fn put_on_list(&self, entry: u32) {
        let mut unused = lock(&self.unused);
        // Another thread may use it again, or have removed it. A thread that does so later finds it
        // on the list. SeqCst pairs with `try_acquire`, AcqRel with `unhash`.
        let is_unused =
            self.slab.word(entry, USED).load(Ordering::SeqCst) == 0 && self.is_hashed(entry);
        if is_unused
            && self
                .slab
                .word(entry, FLAGS)
                .fetch_or(LISTED, Ordering::AcqRel)
                & LISTED
                == 0
        {
            self.slab.push_back(&mut unused, entry, LIST);
        }
    }

    /// Finds the next entry of a hash, after `after` or from the beginning, and acquires it shared.
    /// The use of `after` ends.
    fn find(&self, hash: u32, after: Option<u32>) -> Option<u32> {
        let chain = self.by_key.lock(hash.into());
        // The entry is in use, and so keeps its place.
        let from = after.map_or(chain.first, |after| self.slab.next(after, BY_KEY));
        let found = self.slab.find(from, BY_KEY, |entry| {
            self.slab.get(entry, KEY) == u64::from(hash)
        });
        found.inspect(|entry| self.hold(*entry));
        drop(chain);
        if let Some(after) = after {
            self.release(after, Use::Shared);
        }
        found.filter(|entry| self.acquire(*entry, Use::Shared))
    }

    /// Finds the entry of a block, and acquires it exclusively.
    fn get(&self, block: u32) -> Option<u32> {
        let chain = self.by_block.lock(block.into());
        let found = self.find_block(&chain, block);
        found.inspect(|entry| self.hold(*entry));
        drop(chain);
        found.filter(|entry| self.acquire(*entry, Use::Alone))
    }

    /// Finds the entry of a block. Locks: the caller has that of the chain.
    fn find_block(&self, chain: &Ends, block: u32) -> Option<u32> {
        let is = |entry| {
            self.slab.get(entry, BLOCK) == u64::from(block) && self.slab.get(entry, DEVICE) == 0
        };
        self.slab.find(chain.first, BY_BLOCK, is)
    }

    /// Takes an entry, which the caller uses exclusively, out of the tables.
    fn unhash(&self, entry: u32) {
        let mut by_block = self.by_block.lock(self.slab.get(entry, BLOCK));
        let mut by_key = self.by_key.lock(self.slab.get(entry, KEY));
        self.slab.unlink(&mut by_block, entry, BY_BLOCK);
        self.slab.unlink(&mut by_key, entry, BY_KEY);
        // AcqRel: pairs with the Acquire in `is_hashed`.
        self.slab
            .word(entry, FLAGS)
            .fetch_and(!HASHED, Ordering::AcqRel);
        drop((by_block, by_key));
        self.entries.fetch_sub(1, Ordering::Relaxed);
        self.forget(entry);
    }

    /// Evicts the least recently used of the unused entries.
    fn evict(&self) {
        let mut unused = lock(&self.unused);
        while unused.first != 0 {
            let oldest = unused.first;
            // This also holds if another thread is about to use the entry: that thread puts it
            // back. AcqRel pairs with the other changes of `FLAGS`.
            self.slab.unlink(&mut unused, oldest, LIST);
            self.slab
                .word(oldest, FLAGS)
                .fetch_and(!LISTED, Ordering::AcqRel);
            if self.try_acquire(oldest, Use::Alone) {
                self.hold(oldest);
                drop(unused);
                if self.is_hashed(oldest) {
                    self.unhash(oldest);
                }
                return self.release(oldest, Use::Alone);
            }
        }
    }

    /// Calls `join` with the blocks of a hash until it returns true, and returns that block. During
    /// each call the entry is in use, shared. The second argument of `join` tells whether the entry
    /// is still in the tables.
    pub(super) fn join_by(
        &self,
        hash: u32,
        mut join: impl FnMut(u32, &dyn Fn() -> bool) -> bool,
    ) -> Option<u32> {
        let mut found = self.find(hash, None);
        while let Some(entry) = found {
            let block = self.slab.get(entry, BLOCK) as u32;
            if join(block, &|| self.is_hashed(entry)) {
                self.release(entry, Use::Shared);
                return Some(block);
            }
            found = self.find(hash, Some(entry));
        }
        None
    }

    /// Adds a block, which can be found from now on.
    pub(super) fn insert(&self, hash: u32, block: u32) {
        // Relaxed: a hint.
        if self.entries.load(Ordering::Relaxed) >= MAX {
            self.evict();
        }
        let Some(entry) = self.slab.take() else {
            return;
        };
        for (word, to) in [
            (KEY, hash.into()),
            (BLOCK, block.into()),
            (DEVICE, 0),
            (USED, ALONE),
            (QUEUED, 0),
        ] {
            self.slab.set(entry, word, to);
        }
        // One reference for the tables, and one for this thread.
        self.slab.set(entry, HELD, 2);
        self.slab.set(entry, FLAGS, HASHED);
        let mut by_block = self.by_block.lock(block.into());
        if self.find_block(&by_block, block).is_some() {
            drop(by_block);
            return self.slab.give(entry);
        }
        let mut by_key = self.by_key.lock(hash.into());
        self.slab.push_back(&mut by_block, entry, BY_BLOCK);
        self.slab.push_back(&mut by_key, entry, BY_KEY);
        drop((by_block, by_key));
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.release(entry, Use::Alone);
    }

    /// Calls `leave`, which leaves a block and returns whether that was the last file, while the
    /// entry is used exclusively. Returns the same.
    pub(super) fn leave_by(&self, block: u32, leave: impl FnOnce() -> bool) -> bool {
        let entry = self.get(block);
        let is_last = leave();
        if let Some(entry) = entry {
            if is_last {
                self.unhash(entry);
            }
            self.release(entry, Use::Alone);
        }
        is_last
    }
}

impl Cache for Baseline {
    fn new() -> Self {
        Self {
            slab: Slab::new(2 * MAX as usize),
            by_block: Chains::new(BUCKETS),
            by_key: Chains::new(BUCKETS),
            unused: Latch::new(Ends::default()),
            entries: AtomicU64::new(0),
            queue: Mutex::new(()),
            released: Condvar::new(),
        }
    }

    fn join(&self, blocks: &Blocks, hash: u32, value: u32) -> Option<u32> {
        self.join_by(hash, |block, _| blocks.join_locked(block, value).is_ok())
    }

    fn add(&self, blocks: &Blocks, hash: u32, block: u32) {
        blocks.locked(block, |count| *count = 1);
        self.insert(hash, block);
    }

    fn leave(&self, blocks: &Blocks, _hash: u32, block: u32) -> bool {
        let leave = |count: &mut u32| {
            *count -= 1;
            *count == 0
        };
        self.leave_by(block, || blocks.locked(block, leave))
    }

    fn count(&self, blocks: &Blocks, block: u32) -> u32 {
        blocks.locked(block, |count| *count)
    }

    fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        let entry = WORDS * size_of::<u64>();
        self.by_block.bytes() + self.by_key.bytes() + self.entries() * entry as u64
    }
}
