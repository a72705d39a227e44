//! Checkpoints: writing committed blocks in place.
//!
//! The checkpoint keeps the newest committed snapshot of each block until the block is written in
//! place. It writes blocks in ascending order, in slices, so that a commit need not wait for all of
//! them. The oldest transactions leave the log once all blocks that they were the last to change
//! are written and flushed.
//!
//! The list drops a block that a committed transaction has revoked. The block may belong to a file
//! by now, and a write would destroy that file's data. Until the revoking transaction is committed,
//! the older snapshot still has to be written. After a crash the block would be metadata again.
//!
//! Only the committer (`commit`) calls it. A block leaves the log only after its newest committed
//! snapshot, or a later one, is durable in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use extern4_block::{BlockDevice, BlockWriter, Pin, Snapshot};
use extern4_disk::journal::Tid;

use crate::Error;
use crate::counters::Counters;
use crate::log::Log;

/// Blocks written between two checks for a wanted commit.
const SLICE: usize = 1024;
/// Bytes of snapshots that may wait. A large log would let them fill the memory long before it is
/// half full.
const MAX_BYTES: usize = 64 << 20;

/// The newest committed snapshot of a block.
struct CommittedBlock {
    /// The transaction that changed it last.
    tid: Tid,
    snapshot: Snapshot,
    /// Until the snapshot is on the device, the cache must not read the block from there.
    _pin: Pin,
}

/// A walk over the blocks that transactions up to `last` were the last to change.
struct Walk {
    last: Tid,
    /// The next block to look at.
    at: u64,
}

/// The committed blocks that are not yet written in place, each with its newest snapshot.
pub(crate) struct CheckpointList {
    volume: Arc<dyn BlockDevice>,
    block_size: u32,
    blocks: BTreeMap<u64, CommittedBlock>,
    walk: Option<Walk>,
    counters: Arc<Counters>,
}

impl CheckpointList {
    pub(crate) fn new(
        volume: Arc<dyn BlockDevice>,
        block_size: u32,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            volume,
            block_size,
            blocks: BTreeMap::new(),
            walk: None,
            counters,
        }
    }

    /// Notes the changed and revoked blocks of transaction `tid`, which is committed.
    pub(crate) fn note(&mut self, tid: Tid, changed: Vec<(Pin, Snapshot)>, revoked: &[u64]) {
        for block in revoked {
            self.blocks.remove(block);
        }
        for (pin, snapshot) in changed {
            self.blocks.insert(
                pin.number(),
                CommittedBlock {
                    tid,
                    snapshot,
                    _pin: pin,
                },
            );
        }
    }

    /// Returns whether a walk has begun and not ended.
    pub(crate) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Returns whether the waiting snapshots take so much memory that they cannot wait until the
    /// log fills.
    pub(crate) fn is_large(&self) -> bool {
        self.blocks.len() >= MAX_BYTES / usize::try_from(self.block_size).unwrap_or(MAX_BYTES)
    }

    /// Begins to write the blocks for which the log still needs the transactions up to `last`.
    pub(crate) fn begin(&mut self, last: Tid) {
        self.walk = Some(Walk { last, at: 0 });
    }

    /// Writes the next slice. After the last one, the transactions leave the log.
    pub(crate) fn step(&mut self, log: &mut Log) -> Result<(), Error> {
        let Some(Walk { last, at }) = self.walk else {
            return Ok(());
        };
        let slice: Vec<u64> = self
            .blocks
            .range(at..)
            .filter(|(_, block)| !block.tid.is_after(last))
            .map(|(block, _)| *block)
            .take(SLICE)
            .collect();
        if let Some(block) = slice.last() {
            self.write(&slice)?;
            self.walk = Some(Walk {
                last,
                at: block.saturating_add(1),
            });
            return Ok(());
        }
        log.flush_volume()?;
        log.release(last)?;
        self.walk = None;
        Counters::add(&self.counters.checkpoints, 1);
        Ok(())
    }

    /// Writes blocks in place. Their snapshots are then dropped: the device has them, though
    /// perhaps not durably yet. Their transactions stay in the log until a flush makes them
    /// durable.
    fn write(&mut self, blocks: &[u64]) -> Result<(), Error> {
        let mut writer = BlockWriter::new(&self.volume, self.block_size);
        for block in blocks {
            if let Some(committed) = self.blocks.get(block) {
                writer.push(*block, &committed.snapshot)?;
            }
        }
        writer.finish()?;
        blocks
            .iter()
            .for_each(|block| drop(self.blocks.remove(block)));
        Counters::add(
            &self.counters.blocks_checkpointed,
            u64::try_from(blocks.len()).unwrap_or(u64::MAX),
        );
        Ok(())
    }
}
