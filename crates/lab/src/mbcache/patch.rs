//! Patch: chains by hash, one list, counts of users.
//!
//! An entry is in its chain and on the list, which is one of its users, or in neither. Who adds or
//! removes one has the lock of the chain, and within it that of the list. Who gives entries up has
//! the lock of the list first, and keeps the entry in use while he goes to its chain.

use extern4_sync::primitive::{AtomicBool, AtomicU64, Latch, Ordering};

use super::slab::{Chains, Ends, Slab, lock};
use super::{Blocks, Cache, MOST};

const BUCKETS: usize = 1024;
/// Entries beyond which some are given up.
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
/// Another file may join the block.
const REUSABLE: u64 = 2;
/// It is on the list. Under the lock of that.
const LISTED: u64 = 4;
/// It is in its chain. Under the lock of that.
const CHAINED: u64 = 8;

/// The cache.
pub struct Patch {
    slab: Slab<WORDS>,
    chains: Chains,
    /// From the oldest to the newest.
    list: Latch<Ends>,
    entries: AtomicU64,
    /// Somebody gives entries up.
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
        // Relaxed: those that are not under locks are hints.
        match set {
            true => flags.fetch_or(flag, Ordering::Relaxed),
            false => flags.fetch_and(!flag, Ordering::Relaxed),
        };
    }

    /// Takes an entry into use. Locks: that of its chain, or that of the list, where it is.
    fn hold(&self, entry: u32) {
        // Relaxed: it is in use already.
        self.slab.word(entry, KEY).fetch_add(ONE_USER, Ordering::Relaxed);
    }

    /// Lets go of it. The last frees it.
    fn put(&self, entry: u32) {
        // AcqRel: the last has seen what all others did.
        if self.slab.word(entry, KEY).fetch_sub(ONE_USER, Ordering::AcqRel) >> 32 == 1 {
            self.slab.give(entry);
        }
    }

    /// The next entry of a block that may be joined, behind `after` or from the beginning, in use.
    fn find(&self, hash: u32, after: Option<u32>) -> Option<u32> {
        let chain = self.chains.lock(hash.into());
        let from = match after {
            // It has been removed meanwhile, and leads nowhere.
            Some(after) if !self.has(after, CHAINED) => 0,
            Some(after) => self.slab.next(after, CHAIN),
            None => chain.first,
        };
        let wanted = |entry| self.key(entry) == hash && self.has(entry, REUSABLE);
        let found = self.slab.find(from, CHAIN, wanted);
        found.inspect(|entry| self.hold(*entry))
    }

    /// The entry of a block. Locks: that of the chain.
    fn find_block(&self, chain: &Ends, hash: u32, block: u32) -> Option<u32> {
        let wanted = |entry| self.key(entry) == hash && self.block(entry) == block;
        self.slab.find(chain.first, CHAIN, wanted)
    }

    /// Has the blocks of a hash joined by `join`, each while its entry is in use, until one is:
    /// that one. `join` tells how many have the block then, and is told how to find out whether the
    /// entry is in its chain still.
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

    /// A block can be found from now on.
    pub(super) fn insert(&self, hash: u32, block: u32) {
        self.shrink_if_large();
        let Some(entry) = self.slab.take() else { return };
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

    /// A block cannot be found any more.
    pub(super) fn remove(&self, hash: u32, block: u32) {
        let mut chain = self.chains.lock(hash.into());
        let Some(entry) = self.find_block(&chain, hash, block) else { return };
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

    /// Gives up to so many entries up: from the oldest on, but not those in use, and those that
    /// were of use get a second chance.
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
            // Unless somebody has removed it meanwhile.
            if self.has(oldest, CHAINED) {
                self.unchain(&mut chain, oldest);
                self.put(oldest);
            }
            drop(chain);
            self.put(oldest);
        }
    }

    /// Gives entries up if there are too many, unless somebody does already.
    fn shrink_if_large(&self) {
        // Relaxed: a hint.
        let entries = self.entries.load(Ordering::Relaxed);
        if entries >= 2 * MAX {
            self.shrink(64);
        }
        if entries >= MAX && !self.shrinking.swap(true, Ordering::Acquire) {
            self.shrink(MAX / 16);
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
