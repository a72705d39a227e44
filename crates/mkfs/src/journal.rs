//! [`JournalBlocks`]: the size of an internal journal, chosen as `mke2fs` chooses it.
//!
//! `Draft` calls [`JournalBlocks::choose`] for a new volume, and the command `tune` for a volume
//! that gets a journal later. A volume that is too small for a journal gets none, and a size that a
//! journal cannot have is an error.

use crate::error::{Error, Result};
use crate::options::JournalSize;

/// The least size of a journal in blocks.
pub(crate) const MIN_JOURNAL: u32 = 1024;
/// How many blocks of a default journal there are for each block for fast commits.
const BLOCKS_PER_FAST_COMMIT_BLOCK: u32 = 64;

/// The blocks of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalBlocks {
    /// Blocks of the journal, with its superblock.
    pub all: u32,
    /// Blocks at the end of the journal that are for fast commits.
    pub fast_commits: u32,
}

impl JournalBlocks {
    /// Returns the size of the journal of a volume with `blocks` blocks of `block_size` bytes;
    /// `None` if the volume is too small for one. `wanted` are the size of the log and the KiB for
    /// fast commits, where they are not the default.
    ///
    /// # Errors
    /// [`Error::Options`](crate::Error::Options) for a size that the journal cannot have.
    pub fn choose(
        blocks: u64,
        block_size: u32,
        has_fast_commits: bool,
        wanted: (Option<JournalSize>, Option<u32>),
    ) -> Result<Option<Self>> {
        let Some(default) = default_journal(blocks) else {
            return Ok(None);
        };
        let log = match wanted.0 {
            Some(JournalSize::Blocks(blocks)) => blocks,
            Some(JournalSize::Mebibytes(size)) => size.saturating_mul((1 << 20) / block_size),
            None => default,
        };
        if log < MIN_JOURNAL || u64::from(log) > blocks / 2 {
            return Err(Error::options(format!(
                "a journal of {log} blocks: {MIN_JOURNAL} to half of the volume's {blocks} are possible"
            )));
        }
        let fast_commits = match wanted.1.filter(|_| has_fast_commits) {
            Some(kib) => kib.saturating_mul(1024) / block_size,
            None if has_fast_commits => default / BLOCKS_PER_FAST_COMMIT_BLOCK,
            None => 0,
        };
        Ok(Some(Self {
            all: log.saturating_add(fast_commits),
            fast_commits,
        }))
    }
}

/// Returns the default size of the journal of a volume of `blocks`, in blocks; `None` if the volume
/// is too small for one.
fn default_journal(blocks: u64) -> Option<u32> {
    Some(match blocks {
        0..2048 => return None,
        2048..32_768 => 1024,
        32_768..262_144 => 4096,
        262_144..524_288 => 8192,
        524_288..4_194_304 => 16_384,
        4_194_304..8_388_608 => 32_768,
        8_388_608..16_777_216 => 65_536,
        16_777_216..33_554_432 => 131_072,
        _ => 262_144,
    })
}
