//! Metadata blocks through the buffer cache, each verified once a load.
//!
//! A checksum is worth verifying when a block has come from the device, not each time a thread
//! looks at it. The cache keeps a word of bits with each buffer and clears it when it loads the
//! block. A bit here says that the block has passed the check of that kind of structure. Two
//! threads that verify the same block at once waste a little work and agree. A block that has been
//! changed here and waits for its checksum ([`seal`](crate::volume::deferred_checksum)) is what it
//! should be.

use extern4_block::Buffer;
use extern4_disk::Corrupt;
use extern4_sync::primitive::Ordering::Relaxed;

use crate::error::Result;
use crate::volume::{Volume, deferred_checksum};

/// A kind of structure that a loaded block has been verified to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Verified {
    /// A node of an extent tree.
    ExtentNode = 1,
    /// A block of a linear directory, or a leaf of a hashed one.
    DirectoryBlock = 1 << 1,
    /// A root or interior node of a directory's hash tree.
    HtreeNode = 1 << 2,
    /// A block of extended attributes.
    XattrBlock = 1 << 3,
    /// A bitmap of blocks.
    BlockBitmap = 1 << 4,
    /// A bitmap of inodes.
    InodeBitmap = 1 << 5,
}

impl Volume {
    /// Returns the buffer of `block`, after `verify` has passed it since it was loaded.
    pub(crate) fn verified(
        &self,
        block: u64,
        kind: Verified,
        verify: impl FnOnce(&[u8]) -> Result<(), Corrupt>,
    ) -> Result<Buffer> {
        let buffer = self.cache.read(block)?;
        // Relaxed: a buffer's bytes never change, so the bit says nothing about other memory. A
        // thread that misses it verifies again.
        if buffer.flags().load(Relaxed) & kind as u32 == 0 {
            if !deferred_checksum::is_deferred(buffer.unsealed(), kind) {
                verify(&buffer)?;
            }
            buffer.flags().fetch_or(kind as u32, Relaxed);
        }
        Ok(buffer)
    }

    /// Calls `look` with the bytes of `block`, verified in the same way. That is cheaper, for a
    /// caller that does not keep them. `look` must not wait for anything, nor change the block.
    pub(crate) fn with_verified<R>(
        &self,
        block: u64,
        kind: Verified,
        verify: impl FnOnce(&[u8]) -> Result<(), Corrupt>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let seen = self.cache.with_flags(block, |bytes, flags| {
            // Relaxed: see above.
            if flags.load(Relaxed) & kind as u32 != 0 { Ok(look(bytes)) } else { Err(look) }
        })?;
        seen.or_else(|look| self.verify_first(block, kind, verify, look))
    }

    #[cold]
    #[inline(never)]
    fn verify_first<R>(
        &self,
        block: u64,
        kind: Verified,
        verify: impl FnOnce(&[u8]) -> Result<(), Corrupt>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        Ok(look(&self.verified(block, kind, verify)?))
    }

    /// Notes that a block is what it should be, because it has just been made so.
    pub(crate) fn note_verified(&self, buffer: &Buffer, kind: Verified) {
        // Relaxed: see above.
        buffer.flags().fetch_or(kind as u32, Relaxed);
    }
}
