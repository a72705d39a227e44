//! Files that fs-verity protects: the Merkle tree and the descriptor behind their contents.
//!
//! `holes` and `record` ask where the metadata of a file is, and `write` makes it from the
//! contents. A reader that computes the Merkle tree itself finds the same bytes.
//!
//! Sources: the kernel's `Documentation/filesystems/fsverity.rst` and
//! `Documentation/filesystems/ext4/verity.rst`.

use sha2::{Digest as _, Sha256};

/// Where the metadata begins: at the first multiple of this from the end of the file on.
const ALIGNMENT: u64 = 65_536;
/// The largest block of the tree: a page, which the kernel does not go beyond.
const LARGEST_BLOCK: u32 = 4096;
/// Bytes of a digest, by SHA-256.
const DIGEST: usize = 32;
/// Bytes of the descriptor, and of the number behind it that says so.
const DESCRIPTOR: u64 = 256;
const DESCRIPTOR_SIZE: u64 = 4;
const VERSION: u8 = 1;
const SHA256: u8 = 1;
/// Bytes that are hashed at a time.
const AT_ONCE: u64 = 1 << 20;

/// The metadata of a file, by its places: bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    /// The size of the file.
    size: u64,
    /// The blocks of the tree.
    block: u64,
    /// Where the metadata begins, its descriptor, and where it ends.
    start: u64,
    descriptor: u64,
    end: u64,
}

impl Seal {
    /// The places in a file of `size` bytes, on a volume with blocks of `block_size`.
    pub(crate) fn new(size: u64, block_size: u32) -> Self {
        let block = u64::from(block_size.min(LARGEST_BLOCK));
        let start = size.next_multiple_of(ALIGNMENT);
        let tree = levels(size.div_ceil(block), block).iter().sum::<u64>() * block;
        let descriptor = start + tree.next_multiple_of(block_size.into());
        let end = (descriptor + DESCRIPTOR + DESCRIPTOR_SIZE).next_multiple_of(block_size.into());
        Self {
            size,
            block,
            start,
            descriptor,
            end,
        }
    }

    /// Where the metadata begins.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Bytes of the metadata: whole blocks of the volume.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// The metadata of a file whose contents `read` reads: it fills a buffer from an offset on.
    pub(crate) fn metadata<E>(
        &self,
        mut read: impl FnMut(&mut [u8], u64) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let mut digests = Vec::new();
        let mut buffer = Vec::new();
        let mut at = 0;
        while at < self.size {
            buffer.resize((self.size - at).min(AT_ONCE) as usize, 0);
            read(&mut buffer, at)?;
            at += buffer.len() as u64;
            self.hash(&mut buffer, &mut digests);
        }
        let mut metadata = vec![0; self.len() as usize];
        // The root's level is the first one, so levels are put in their places from behind.
        let mut behind = levels(self.size.div_ceil(self.block), self.block)
            .iter()
            .sum::<u64>()
            * self.block;
        while digests.len() > DIGEST {
            let mut level = std::mem::take(&mut digests);
            self.hash(&mut level, &mut digests);
            behind -= level.len() as u64;
            metadata[behind as usize..][..level.len()].copy_from_slice(&level);
        }
        let descriptor = (self.descriptor - self.start) as usize;
        metadata[descriptor..][..DESCRIPTOR as usize].copy_from_slice(&self.encode(&digests));
        let end = metadata.len() - DESCRIPTOR_SIZE as usize;
        metadata[end..].copy_from_slice(&(DESCRIPTOR as u32).to_le_bytes());
        Ok(metadata)
    }

    /// Pads bytes to whole blocks, and appends the digest of each block.
    fn hash(&self, bytes: &mut Vec<u8>, digests: &mut Vec<u8>) {
        bytes.resize(bytes.len().next_multiple_of(self.block as usize), 0);
        bytes
            .chunks(self.block as usize)
            .for_each(|block| digests.extend_from_slice(&Sha256::digest(block)));
    }

    /// The descriptor with a root hash, which is empty for an empty file.
    fn encode(&self, root_hash: &[u8]) -> [u8; DESCRIPTOR as usize] {
        let mut descriptor = [0; DESCRIPTOR as usize];
        // OK: the logarithm of a number of 64 bits.
        descriptor[..3].copy_from_slice(&[VERSION, SHA256, self.block.ilog2() as u8]);
        descriptor[8..16].copy_from_slice(&self.size.to_le_bytes());
        descriptor[16..16 + root_hash.len()].copy_from_slice(root_hash);
        descriptor
    }
}

/// Blocks of each level of a tree over `blocks` blocks of contents, the lowest first. A file of one
/// block has none.
fn levels(mut blocks: u64, block_size: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    while blocks > 1 {
        blocks = blocks.div_ceil(block_size / DIGEST as u64);
        levels.push(blocks);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::{Seal, levels};

    #[test]
    fn metadata_begins_behind_the_contents_and_fills_whole_blocks() {
        let of = |size, block_size| {
            let seal = Seal::new(size, block_size);
            (seal.start(), seal.len())
        };
        // A descriptor alone.
        assert_eq!(of(0, 4096), (0, 4096));
        assert_eq!(of(1, 1024), (65_536, 1024));
        assert_eq!(of(4096, 4096), (65_536, 4096));
        // One block of digests, and two levels.
        assert_eq!(of(65_536, 4096), (65_536, 8192));
        assert_eq!(of(65_537, 1024), (131_072, 5 * 1024));
        // Blocks of the volume are larger than blocks of the tree.
        assert_eq!(of(65_536, 65_536), (65_536, 131_072));
    }

    #[test]
    fn each_level_has_the_digests_of_the_one_below() {
        assert_eq!(levels(0, 4096), [0; 0]);
        assert_eq!(levels(1, 4096), [0; 0]);
        assert_eq!(levels(128, 4096), [1]);
        assert_eq!(levels(129, 4096), [2, 1]);
        assert_eq!(levels(65, 1024), [3, 1]);
    }
}
