//! Patch of the mbcache: chains by hash, one list, and a count of users in each entry.
//!
//! It is the cache of Linux since 4.6, and a `Cache` of the chapter. An entry is in its chain and
//! on the list, or in neither, except during its eviction. Both together count as one user. A
//! thread that adds or removes an entry takes the lock of its chain, and within it that of the
//! list. A thread that evicts takes the entry off the list first, under the list's lock. It
//! releases that lock, and keeps the entry in use until it has the lock of its chain.

use extern4_sync::primitive::{AtomicBool, AtomicU64, Latch, Ordering};

use super::slab::{Chains, Ends, Slab, lock};
use super::{Blocks, Cache, MOST};

const BUCKETS: usize = 1024;
/// The number of entries from which on some are evicted.
const MAX: u64 = 16 * BUCKETS as u64;

// The words of an entry.
const LIST: usize = 0;
const CHAIN: usize = 2;
/// The hash, and in the upper half the number of users.
const KEY: usize = 4;
const FLAGS: usize = 5;
const BLOCK: usize = 6;
const WORDS: usize = 7;

const ONE_USER: u64 = 1 << 32;

const REFERENCED: u64 = 1;
/// Another file may join the block of the entry.
const REUSABLE: u64 = 2;
/// The entry is on the list. Protected by the lock of the list.
const LISTED: u64 = 4;
/// The entry is in its chain. Protected by the lock of the chain.
const CHAINED: u64 = 8;

/// The mbcache of the patch.
pub struct Patch {
    slab: Slab<WORDS>,
    chains: Chains,
    /// The entries, the oldest first.
    list: Latch<Ends>,
    entries: AtomicU64,
    /// A thread is evicting entries.
    shrinking: AtomicBool,
}

impl Patch {
    fn key(&self, entry: u32) -> u32 {
        self.slab.get(entry, KEY) as u32
    }

    fn block(&self, entry: u32) -> u32 {
        self.slab.get(entry, BLOCK) as u32
    }

    fn has(&self, entry: u32, flag: u64) -> bool {
        self.slab.get(entry, FLAGS) & flag != 0
    }

    fn mark(&self, entry: u32, flag: u64, set: bool) {
        let flags = self.slab.word(entry, FLAGS);
        // Relaxed: flags that no lock protects are hints.
        if set {
            flags.fetch_or(flag, Ordering::Relaxed)
        } else {
            flags.fetch_and(!flag, Ordering::Relaxed)
        };
    }

    /// Adds a user to an entry. Locks: the caller has that of its chain, or of the list if it is on
    /// it.
    fn hold(&self, entry: u32) {
        // Relaxed: the entry has a user already.
        self.slab
            .word(entry, KEY)
            .fetch_add(ONE_USER, Ordering::Relaxed);
    }

    /// Removes a user from an entry. The last one frees it.
    fn put(&self, entry: u32) {
        // AcqRel: the last one sees all accesses of the others.
        if self
            .slab
            .word(entry, KEY)
            .fetch_sub(ONE_USER, Ordering::AcqRel)
            >> 32
            == 1
        {
            self.slab.give(entry);
        }
    }

    /// Finds the next entry of a hash whose block may be joined, after `after` or from the
    /// beginning, and adds a user to it.
    fn find(&self, hash: u32, after: Option<u32>) -> Option<u32> {
        let chain = self.chains.lock(hash.into());
        let from = match after {
            // Another thread has removed the entry, so its link is not valid any more.
            Some(after) if !self.has(after, CHAINED) => 0,
            Some(after) => self.slab.next(after, CHAIN),
            None => chain.first,
        };
        let wanted = |entry| self.key(entry) == hash && self.has(entry, REUSABLE);
        let found = self.slab.find(from, CHAIN, wanted);
        found.inspect(|entry| self.hold(*entry))
    }

    /// Finds the entry of a block. Locks: the caller has that of the chain.
    fn find_block(&self, chain: &Ends, hash: u32, block: u32) -> Option<u32> {
        let wanted = |entry| self.key(entry) == hash && self.block(entry) == block;
        self.slab.find(chain.first, CHAIN, wanted)
    }

    /// Calls `join` with the blocks of a hash until one is joined, and returns that block. During
    /// each call the entry is in use. `join` returns the new count of the block. Its second
    /// argument tells whether the entry is still in its chain.
    pub(super) fn join_by(
        &self,
        hash: u32,
        mut join: impl FnMut(u32, &dyn Fn() -> bool) -> Option<u32>,
    ) -> Option<u32> {
        let mut found = self.find(hash, None);
        while let Some(entry) = found {
            let block = self.block(entry);
            if let Some(count) = join(block, &|| self.has(entry, CHAINED)) {
                if count == MOST {
                    self.mark(entry, REUSABLE, false);
                }
                if !self.has(entry, REFERENCED) {
                    self.mark(entry, REFERENCED, true);
                }
                self.put(entry);
                return Some(block);
            }
            found = self.find(hash, Some(entry));
            self.put(entry);
        }
        None
    }

    /// Adds a block, which can be found from now on.
    pub(super) fn insert(&self, hash: u32, block: u32) {
        self.shrink_if_large();
        let Some(entry) = self.slab.take() else {
            return;
        };
        self.slab.set(entry, KEY, u64::from(hash) | ONE_USER);
        self.slab.set(entry, BLOCK, block.into());
        self.slab.set(entry, FLAGS, REUSABLE | LISTED | CHAINED);
        let mut chain = self.chains.lock(hash.into());
        if self.find_block(&chain, hash, block).is_some() {
            drop(chain);
            return self.slab.give(entry);
        }
        self.slab.push_back(&mut chain, entry, CHAIN);
        let mut list = lock(&self.list);
        self.slab.push_back(&mut list, entry, LIST);
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a block, which cannot be found any more.
    pub(super) fn remove(&self, hash: u32, block: u32) {
        let mut chain = self.chains.lock(hash.into());
        let Some(entry) = self.find_block(&chain, hash, block) else {
            return;
        };
        self.unchain(&mut chain, entry);
        let mut list = lock(&self.list);
        if self.has(entry, LISTED) {
            self.unlist(&mut list, entry);
        }
        drop((list, chain));
        self.put(entry);
    }

    fn unchain(&self, chain: &mut Ends, entry: u32) {
        self.slab.unlink(chain, entry, CHAIN);
        self.mark(entry, CHAINED, false);
    }

    fn unlist(&self, list: &mut Ends, entry: u32) {
        self.slab.unlink(list, entry, LIST);
        self.mark(entry, LISTED, false);
        self.entries.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn set_reusable(&self, hash: u32, block: u32, reusable: bool) {
        let chain = self.chains.lock(hash.into());
        if let Some(entry) = self.find_block(&chain, hash, block) {
            self.mark(entry, REUSABLE, reusable);
        }
    }

    /// Looks at up to `most` entries, the oldest first, and evicts them. Entries in use stay, and
    /// referenced ones get a second chance.
    fn shrink(&self, most: u64) {
        for _ in 0..most {
            let mut list = lock(&self.list);
            let oldest = list.first;
            if oldest == 0 {
                return;
            }
            let in_use = self.slab.get(oldest, KEY) >> 32 > 1;
            if in_use || self.has(oldest, REFERENCED) {
                self.mark(oldest, REFERENCED, false);
                self.slab.unlink(&mut list, oldest, LIST);
                self.slab.push_back(&mut list, oldest, LIST);
                continue;
            }
            self.hold(oldest);
            self.unlist(&mut list, oldest);
            drop(list);
            let mut chain = self.chains.lock(self.key(oldest).into());
            // Another thread may have removed it meanwhile.
            if self.has(oldest, CHAINED) {
                self.unchain(&mut chain, oldest);
                self.put(oldest);
            }
            drop(chain);
            self.put(oldest);
        }
    }

    /// Evicts entries if there are too many. From `MAX` entries on, one thread at a time evicts a
    /// sixteenth of `MAX`. From twice `MAX` on, each caller also evicts up to 64.
    fn shrink_if_large(&self) {
        // Relaxed: a hint.
        let entries = self.entries.load(Ordering::Relaxed);
        if entries >= 2 * MAX {
            self.shrink(64);
        }
        // Acquire and Release pair with each other, as in a lock.
        if entries >= MAX && !self.shrinking.swap(true, Ordering::Acquire) {
            self.shrink(MAX / 16);
            // Release: pairs with the Acquire above.
            self.shrinking.store(false, Ordering::Release);
        }
    }
}

impl Cache for Patch {
    fn new() -> Self {
        Self {
            slab: Slab::new(3 * MAX as usize),
            chains: Chains::new(BUCKETS),
            list: Latch::new(Ends::default()),
            entries: AtomicU64::new(0),
            shrinking: AtomicBool::new(false),
        }
    }

    fn join(&self, blocks: &Blocks, hash: u32, value: u32) -> Option<u32> {
        self.join_by(hash, |block, _| blocks.join_locked(block, value).ok())
    }

    fn add(&self, blocks: &Blocks, hash: u32, block: u32) {
        blocks.locked(block, |count| *count = 1);
        self.insert(hash, block);
    }

    fn leave(&self, blocks: &Blocks, hash: u32, block: u32) -> bool {
        blocks.locked(block, |count| {
            if *count == 1 {
                self.remove(hash, block);
            }
            if *count == MOST {
                self.set_reusable(hash, block, true);
            }
            *count -= 1;
            *count == 0
        })
    }

    fn count(&self, blocks: &Blocks, block: u32) -> u32 {
        blocks.locked(block, |count| *count)
    }

    fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        let entry = WORDS * size_of::<u64>();
        self.chains.bytes() + self.entries() * entry as u64
    }
}
