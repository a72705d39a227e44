//! The hash tree of dm-verity behind a volume.
//!
//! Sources: the kernel's `Documentation/admin-guide/device-mapper/verity.rst`, and the description
//! of the on-disk format in the wiki of cryptsetup.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use extern4_block::BlockDevice;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::identity;
use crate::progress::{Progress, Watch};

/// Bytes of a digest.
const DIGEST: usize = 32;
/// Bytes of a block of digests, and how many there are in it.
const HASH_BLOCK: u64 = 4096;
const PER_BLOCK: u64 = HASH_BLOCK / DIGEST as u64;
/// The largest block of data: a page, which not every kernel goes beyond.
const LARGEST_DATA_BLOCK: u64 = 4096;
/// Digests that a thread computes at a time: whole blocks of them.
const AT_ONCE: u64 = 2 * PER_BLOCK;
/// The version of the superblock, and of the format: the salt goes first.
const VERSION: u32 = 1;
const HASH_TYPE: u32 = 1;

/// A hash tree of dm-verity, as `veritysetup format` makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verity {
    /// The digest of the whole, which a verifier has to know.
    pub root_hash: [u8; DIGEST],
    /// Where the tree's superblock begins, counted from the volume's start: what `veritysetup`
    /// calls the hash offset.
    pub hash_offset: u64,
}

/// Digests of one level of the tree, or the volume itself: blocks that the next level has the
/// digests of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    start: u64,
    blocks: u64,
    block_size: u64,
}

/// The places of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    hash_offset: u64,
    /// The volume, and each level of digests, the root's last.
    levels: Vec<Level>,
}

impl Places {
    /// The places behind a volume of `bytes` with blocks of `block_size`. The root's level is the
    /// first on the device.
    pub(crate) fn new(bytes: u64, block_size: u32) -> Self {
        let block_size = u64::from(block_size).min(LARGEST_DATA_BLOCK);
        let hash_offset = bytes.next_multiple_of(HASH_BLOCK);
        let mut levels = vec![Level {
            start: 0,
            blocks: bytes / block_size,
            block_size,
        }];
        let mut blocks = bytes / block_size;
        while blocks > 1 {
            blocks = blocks.div_ceil(PER_BLOCK);
            levels.push(Level {
                start: 0,
                blocks,
                block_size: HASH_BLOCK,
            });
        }
        let mut start = hash_offset + HASH_BLOCK;
        for level in levels.iter_mut().skip(1).rev() {
            level.start = start;
            start += level.blocks * HASH_BLOCK;
        }
        Self {
            hash_offset,
            levels,
        }
    }

    /// Where the tree ends.
    pub(crate) fn end(&self) -> u64 {
        let digests: u64 = self.levels.iter().skip(1).map(|level| level.blocks).sum();
        self.hash_offset + (1 + digests) * HASH_BLOCK
    }
}

/// A tree that is being made on a device.
pub(crate) struct Maker<'a> {
    pub(crate) device: &'a dyn BlockDevice,
    pub(crate) places: &'a Places,
    /// The UUID of the volume, which decides that of the tree and the salt.
    pub(crate) uuid: [u8; 16],
    pub(crate) threads: usize,
    pub(crate) watch: Option<&'a Watch>,
}

impl Maker<'_> {
    /// Hashes the volume, which is complete, and writes the tree. Its superblock is the last.
    pub(crate) fn make(&self) -> Result<Verity> {
        let salt: [u8; DIGEST] = identity::derived(b"verity salt", self.uuid);
        let salted = Sha256::new_with_prefix(salt);
        for pair in self.places.levels.windows(2) {
            self.hash(pair[0], pair[1].start, &salted)?;
        }
        let mut root_hash = [0; DIGEST];
        if let Some(top) = self.places.levels.last() {
            let mut block = vec![0; top.block_size as usize];
            self.device.read_at(&mut block, top.start)?;
            root_hash = salted.chain_update(&block).finalize().into();
        }
        self.device.flush()?;
        self.device
            .write_at(&self.superblock(&salt), self.places.hash_offset)?;
        self.device.flush()?;
        Ok(Verity {
            root_hash,
            hash_offset: self.places.hash_offset,
        })
    }

    /// Writes the digests of a level's blocks to `to`.
    fn hash(&self, level: Level, to: u64, salted: &Sha256) -> Result<()> {
        let next = AtomicU64::new(0);
        let done = AtomicU64::new(0);
        let failed = Mutex::new(None);
        let work = || {
            let mut worker = Worker::new(self.device, level, salted);
            loop {
                // Relaxed: the number guards no other data.
                let first = next.fetch_add(AT_ONCE, Ordering::Relaxed);
                if first >= level.blocks {
                    return;
                }
                let count = AT_ONCE.min(level.blocks - first);
                let hashed = worker.hash(first, count, to).and_then(|()| {
                    let all = done.fetch_add(count, Ordering::Relaxed) + count;
                    self.tell(all * level.block_size, level.blocks * level.block_size)
                });
                if let Err(error) = hashed {
                    // No thread goes on.
                    next.store(level.blocks, Ordering::Relaxed);
                    failed
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .get_or_insert(error);
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.max(1) {
                scope.spawn(work);
            }
            work();
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn tell(&self, bytes: u64, total: u64) -> Result<()> {
        match self.watch {
            Some(watch) if watch(Progress::Hashing { bytes, total }).is_break() => {
                Err(Error::Interrupted)
            }
            _ => Ok(()),
        }
    }

    fn superblock(&self, salt: &[u8; DIGEST]) -> Vec<u8> {
        let volume = self.places.levels[0];
        let mut superblock = vec![0; 512];
        let mut put =
            |at: usize, bytes: &[u8]| superblock[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"verity\0\0");
        put(8, &VERSION.to_le_bytes());
        put(12, &HASH_TYPE.to_le_bytes());
        put(16, &identity::derived_uuid(b"verity", self.uuid));
        put(32, b"sha256");
        put(64, &(volume.block_size as u32).to_le_bytes());
        put(68, &(HASH_BLOCK as u32).to_le_bytes());
        put(72, &volume.blocks.to_le_bytes());
        put(80, &(salt.len() as u16).to_le_bytes());
        put(88, salt);
        superblock
    }
}

/// A thread that hashes blocks.
struct Worker<'a> {
    device: &'a dyn BlockDevice,
    level: Level,
    salted: &'a Sha256,
    blocks: Vec<u8>,
    digests: Vec<u8>,
    zeroes: Vec<u8>,
    /// The digest of a block of zeroes, of which sparse volumes have many.
    of_zeroes: [u8; DIGEST],
}

impl<'a> Worker<'a> {
    fn new(device: &'a dyn BlockDevice, level: Level, salted: &'a Sha256) -> Self {
        let zeroes = vec![0; level.block_size as usize];
        let of_zeroes = salted.clone().chain_update(&zeroes).finalize().into();
        Self {
            device,
            level,
            salted,
            blocks: Vec::new(),
            digests: Vec::new(),
            zeroes,
            of_zeroes,
        }
    }

    /// Hashes `count` blocks from the block `first` on.
    fn hash(&mut self, first: u64, count: u64, to: u64) -> Result<()> {
        let size = self.level.block_size;
        self.blocks.resize((count * size) as usize, 0);
        self.device
            .read_at(&mut self.blocks, self.level.start + first * size)?;
        self.digests.clear();
        for block in self.blocks.chunks_exact(size as usize) {
            let digest: [u8; DIGEST] = if block == self.zeroes {
                self.of_zeroes
            } else {
                self.salted.clone().chain_update(block).finalize().into()
            };
            self.digests.extend_from_slice(&digest);
        }
        self.digests
            .resize(self.digests.len().next_multiple_of(HASH_BLOCK as usize), 0);
        self.device
            .write_at(&self.digests, to + first / PER_BLOCK * HASH_BLOCK)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, Places};

    #[test]
    fn levels_have_their_places() {
        let volume = |blocks, block_size| Level {
            start: 0,
            blocks,
            block_size,
        };
        let level = |start, blocks| Level {
            start,
            blocks,
            block_size: 4096,
        };
        let places = Places::new(128 * 4096, 4096);
        assert_eq!(places.levels, [volume(128, 4096), level(129 * 4096, 1)]);
        assert_eq!((places.hash_offset, places.end()), (128 * 4096, 130 * 4096));
        // One block more needs one level more; the root's is the first.
        let places = Places::new(129 * 1024, 1024);
        assert_eq!(places.hash_offset, 33 * 4096);
        assert_eq!(
            places.levels,
            [volume(129, 1024), level(35 * 4096, 2), level(34 * 4096, 1)]
        );
        assert_eq!(Places::new(1 << 20, 65_536).levels[0], volume(256, 4096));
    }
}
