//! Metadata blocks from the buffer cache, verified once after each load.
//!
//! A checksum needs verifying when a block comes from the device, not at each access. The cache
//! keeps a word of flags with each buffer and clears it when it loads the block. A flag set here
//! says that the block has passed the check for that kind of structure. Two threads that verify a
//! block at once get the same result. A block that this volume has changed, and whose checksum is
//! still [deferred](crate::volume::deferred_checksum), needs no check.
//!
//! Readers of extent trees, directories, attribute blocks and bitmaps call [`Volume::verified`] or
//! [`Volume::with_verified`]. A block that fails the check is an error, and is checked again next
//! time.

use extern4_block::Buffer;
use extern4_disk::Corrupt;
use extern4_sync::primitive::Ordering::Relaxed;

use crate::error::Result;
use crate::volume::{Volume, deferred_checksum};

/// The kinds of structure for which a block can have passed the check.
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
    /// Returns the buffer of `block`. Calls `verify` first, unless the block has passed it since it
    /// was loaded.
    pub(crate) fn verified(
        &self,
        block: u64,
        kind: Verified,
        verify: impl FnOnce(&[u8]) -> Result<(), Corrupt>,
    ) -> Result<Buffer> {
        let buffer = self.cache.read(block)?;
        // Relaxed: the flag guards no other memory, since a buffer's bytes never change. A thread
        // that does not see it yet verifies again.
        if buffer.flags().load(Relaxed) & kind as u32 == 0 {
            if !deferred_checksum::is_deferred(buffer.unsealed(), kind) {
                verify(&buffer)?;
            }
            buffer.flags().fetch_or(kind as u32, Relaxed);
        }
        Ok(buffer)
    }

    /// Calls `look` with the verified bytes of `block`. This is cheaper than
    /// [`verified`](Self::verified), for a caller that does not keep the buffer. `look` must not
    /// block, nor change the block.
    pub(crate) fn with_verified<R>(
        &self,
        block: u64,
        kind: Verified,
        verify: impl FnOnce(&[u8]) -> Result<(), Corrupt>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let seen = self.cache.with_flags(block, |bytes, flags| {
            // Relaxed: see `verified`.
            if flags.load(Relaxed) & kind as u32 != 0 {
                Ok(look(bytes))
            } else {
                Err(look)
            }
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

    /// Notes that a block needs no check, because this thread has just made it.
    pub(crate) fn note_verified(&self, buffer: &Buffer, kind: Verified) {
        // Relaxed: see `verified`.
        buffer.flags().fetch_or(kind as u32, Relaxed);
    }
}
