//! Revoked blocks: freed blocks of metadata that recovery must not write older copies of.
//!
//! A freed block may become part of a file, whose contents do not go through the log. If recovery
//! then replayed a copy that the log still has, it would destroy those contents.
//!
//! 1. A handle revokes the blocks of metadata that it frees. The running transaction drops its own
//!    change of such a block.
//! 2. The commit records each revoked block that the log has a copy of, as [`CopyCounts`] knows, in
//!    blocks that [`encode`] makes. Other blocks need no record.
//! 3. The checkpoint list drops a block once its revocation is committed.
//! 4. Recovery drops the copies that it has found so far of a block that a transaction revokes.
//!
//! The log (`log`) counts copies and encodes records with it.

use std::collections::HashMap;

use extern4_disk::journal::{Format, Revoke, Tid};

/// Bytes of a revoke block before its numbers.
const HEADER: usize = 16;

/// For each block of the volume, how many transactions in the log have a copy of it.
#[derive(Default)]
pub(crate) struct CopyCounts(HashMap<u64, u32>);

impl CopyCounts {
    /// Counts the blocks of a transaction that the log now has.
    pub(crate) fn add(&mut self, blocks: &[u64]) {
        for block in blocks {
            *self.0.entry(*block).or_default() += 1;
        }
    }

    /// Takes out the blocks of a transaction that has left the log.
    pub(crate) fn remove(&mut self, blocks: &[u64]) {
        for block in blocks {
            if let Some(count) = self.0.get_mut(block) {
                *count -= 1;
                if *count == 0 {
                    self.0.remove(block);
                }
            }
        }
    }

    /// Returns whether the log has a copy of the block.
    pub(crate) fn has(&self, block: u64) -> bool {
        self.0.contains_key(&block)
    }
}

/// Returns how many revoked blocks one revoke block records.
pub(crate) fn per_block(format: &Format) -> usize {
    ((format.usable() - HEADER) / format.revoke_size()).max(1)
}

/// Returns the revoke blocks of transaction `tid`. An item is `None` if a number is too large for
/// the journal's format.
pub(crate) fn encode(
    tid: Tid,
    revokes: &[u64],
    format: &Format,
) -> impl Iterator<Item = Option<Vec<u8>>> {
    let blocks = revokes.chunks(per_block(format));
    blocks.map(move |part| {
        Revoke {
            tid,
            blocks: part.to_vec(),
        }
        .encode(format)
    })
}
