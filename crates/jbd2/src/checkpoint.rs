//! What is committed and not yet where it belongs.
//!
//! Of each block, the newest committed image is kept until it is written home. Blocks are written in their order, in
//! slices, so that a commit need not wait for all of them; when those that the oldest transactions were the last to
//! change are all written, and flushed, these transactions leave the log.
//!
//! A block that a committed transaction has revoked is forgotten: it may belong to a file by now, whose data must not
//! be overwritten. Until the transaction is committed, its older image still has to be written, since after a crash
//! the block would be what it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use extern4_block::{BlockDevice, BlockWriter, Image, Pin};
use extern4_disk::journal::Tid;

use crate::Error;
use crate::counters::Counters;
use crate::log::Log;

/// Blocks written between two looks at whether a commit is wanted.
const SLICE: usize = 1024;
/// Bytes of images that may wait. A large log would let them fill the memory long before it is half full.
const MAX_BYTES: usize = 64 << 20;

/// The newest committed image of a block.
struct Homeless {
    /// The transaction that changed it last.
    tid: Tid,
    image: Image,
    /// Until the image stands on the device, the cache must not read the block from there.
    _pin: Pin,
}

/// A walk over the blocks that transactions up to `last` were the last to change.
struct Walk {
    last: Tid,
    /// The next block to look at.
    at: u64,
}

/// The blocks to be written home.
pub(crate) struct Checkpoint {
    volume: Arc<dyn BlockDevice>,
    block_size: u32,
    homeless: BTreeMap<u64, Homeless>,
    walk: Option<Walk>,
    counters: Arc<Counters>,
}

impl Checkpoint {
    pub(crate) fn new(volume: Arc<dyn BlockDevice>, block_size: u32, counters: Arc<Counters>) -> Self {
        Self { volume, block_size, homeless: BTreeMap::new(), walk: None, counters }
    }

    /// Notes what transaction `tid`, now committed, has done.
    pub(crate) fn note(&mut self, tid: Tid, changed: Vec<(Pin, Image)>, revoked: &[u64]) {
        for block in revoked {
            self.homeless.remove(block);
        }
        for (pin, image) in changed {
            self.homeless.insert(pin.number(), Homeless { tid, image, _pin: pin });
        }
    }

    /// Whether a walk has begun and not ended.
    pub(crate) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Whether so much waits to be written that it should not wait for the log to fill.
    pub(crate) fn is_large(&self) -> bool {
        self.homeless.len() >= MAX_BYTES / usize::try_from(self.block_size).unwrap_or(MAX_BYTES)
    }

    /// Begins to write what the log needs the transactions up to `last` for.
    pub(crate) fn begin(&mut self, last: Tid) {
        self.walk = Some(Walk { last, at: 0 });
    }

    /// Writes the next slice. With the last one, the transactions leave the log.
    pub(crate) fn step(&mut self, log: &mut Log) -> Result<(), Error> {
        let Some(Walk { last, at }) = self.walk else { return Ok(()) };
        let slice: Vec<u64> = self
            .homeless
            .range(at..)
            .filter(|(_, homeless)| !homeless.tid.is_after(last))
            .map(|(block, _)| *block)
            .take(SLICE)
            .collect();
        if let Some(block) = slice.last() {
            self.write(&slice)?;
            self.walk = Some(Walk { last, at: block.saturating_add(1) });
            return Ok(());
        }
        log.flush_home()?;
        log.release(last)?;
        self.walk = None;
        Counters::add(&self.counters.checkpoints, 1);
        Ok(())
    }

    /// Writes blocks home. Their images are then given up: the device has them, though it may not be durable yet,
    /// which the log knows.
    fn write(&mut self, blocks: &[u64]) -> Result<(), Error> {
        let mut writer = BlockWriter::new(&self.volume, self.block_size);
        for block in blocks {
            if let Some(homeless) = self.homeless.get(block) {
                writer.push(*block, &homeless.image)?;
            }
        }
        writer.finish()?;
        blocks.iter().for_each(|block| drop(self.homeless.remove(block)));
        Counters::add(&self.counters.blocks_checkpointed, u64::try_from(blocks.len()).unwrap_or(u64::MAX));
        Ok(())
    }
}
