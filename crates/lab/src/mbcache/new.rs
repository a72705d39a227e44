//! New: the cache in production.

use extern4_sync::mbcache::{Candidate, MbCache};
use extern4_sync::shares::{Joined, Left};

use super::{Blocks, Cache, MOST};

/// `extern4-sync`'s cache. Joining and leaving are those of `extern4-ext4`'s `attr_block`, with no block to read.
pub type New = MbCache;

impl Cache for MbCache {
    fn new() -> Self {
        Self::sized(Self::BITS_NEAR, Self::BITS_FAR)
    }

    fn join(&self, blocks: &Blocks, hash: u32, value: u32) -> Option<u32> {
        self.candidates(hash).find_map(|found| join(self, blocks, hash, value, &found))
    }

    fn add(&self, blocks: &Blocks, hash: u32, block: u32) {
        blocks.shares(block).open();
        self.insert(hash, block.into());
    }

    fn leave(&self, blocks: &Blocks, hash: u32, block: u32) -> bool {
        let shares = blocks.shares(block);
        let left = if shares.close() { Left::Last } else { shares.leave() };
        match left {
            Left::Last => drop(self.remove(hash, block.into())),
            // One may join them again.
            Left::Others(others) if others + 1 == MOST => {
                self.insert(hash, block.into());
                self.set_full(hash, block.into(), false);
            }
            Left::Others(_) => {}
        }
        left == Left::Last
    }

    fn count(&self, blocks: &Blocks, block: u32) -> u32 {
        blocks.shares(block).count().unwrap_or(0)
    }

    fn entries(&self) -> u64 {
        self.stats().entries
    }
}

fn join(cache: &MbCache, blocks: &Blocks, hash: u32, value: u32, found: &Candidate<'_>) -> Option<u32> {
    // OK: blocks have numbers of 32 bits.
    let block = found.number() as u32;
    let shares = blocks.shares(block);
    let seen = shares.look();
    if seen.is_closed() || !found.is_in() || blocks.value(block) != value {
        return None;
    }
    match shares.join(seen, MOST) {
        Joined::Gone => return None,
        Joined::Full => {
            cache.set_full(hash, block.into(), true);
            // One may have left before that was said.
            let is_full = shares.count().is_none_or(|count| count >= MOST);
            cache.set_full(hash, block.into(), is_full);
            return None;
        }
        Joined::Yes => {}
    }
    found.touch();
    Some(block)
}
