//! extern4's side of the mbcache: the cache of `extern4-ext4`, called as its `xattr` module calls
//! it.
//!
//! It implements the `Cache` of the chapter and adds nothing to the cache in production.

use extern4_ext4::mbcache::{Candidate, MbCache};
use extern4_sync::closable_refcount::{Put, TryGet};

use super::{Blocks, Cache, MOST};

/// The cache of `extern4-ext4`. Blocks are joined and left as in its `attr_block`, without a block
/// to read.
pub type Extern4 = MbCache;

impl Cache for MbCache {
    fn new() -> Self {
        Self::sized(Self::BITS_NEAR, Self::BITS_FAR)
    }

    fn join(&self, blocks: &Blocks, hash: u32, value: u32) -> Option<u32> {
        self.candidates(hash)
            .find_map(|found| join(self, blocks, hash, value, &found))
    }

    fn add(&self, blocks: &Blocks, hash: u32, block: u32) {
        blocks.set_shared(block, false);
        blocks.sharers(block).open();
        self.insert(hash, block.into());
    }

    fn leave(&self, blocks: &Blocks, hash: u32, block: u32) -> bool {
        let sharers = blocks.sharers(block);
        let is_closed = !blocks.is_shared(block) && sharers.try_close();
        let left = if is_closed { Put::Last } else { sharers.put() };
        if left == Put::Last {
            self.remove(hash, block.into());
        }
        note_left(self, hash, block, left);
        left == Put::Last
    }

    fn count(&self, blocks: &Blocks, block: u32) -> u32 {
        blocks.sharers(block).count().unwrap_or(0)
    }

    fn entries(&self) -> u64 {
        self.stats().entries
    }

    fn bytes(&self) -> u64 {
        self.stats().bytes
    }
}

fn join(
    cache: &MbCache,
    blocks: &Blocks,
    hash: u32,
    value: u32,
    found: &Candidate<'_>,
) -> Option<u32> {
    // OK: blocks have numbers of 32 bits.
    let block = found.number() as u32;
    match blocks.sharers(block).try_get(MOST) {
        TryGet::Unknown | TryGet::Closed => return None,
        TryGet::Got if blocks.value(block) == value => {
            blocks.set_shared(block, true);
            found.touch();
            return Some(block);
        }
        TryGet::Got => {}
        TryGet::Full => cache.set_full(hash, block.into(), true),
    }
    leave_unwanted(cache, blocks, hash, block);
    None
}

/// Leaves a block of no use, and frees it if all others have left it meanwhile.
#[cold]
fn leave_unwanted(cache: &MbCache, blocks: &Blocks, hash: u32, block: u32) {
    let left = blocks.sharers(block).put();
    note_left(cache, hash, block, left);
    if left == Put::Last {
        cache.remove(super::hash(blocks.value(block)), block.into());
        blocks.give([block]);
    }
}

/// Marks a block that had [`MOST`] files as joinable again, after one has left.
fn note_left(cache: &MbCache, hash: u32, block: u32, left: Put) {
    if matches!(left, Put::Others(others) if others + 1 == MOST) {
        cache.set_full(hash, block.into(), false);
    }
}
