//! Checksums, and counts, that are put off until a block is written.
//!
//! Blocks of names, of attributes and of inodes' records change many times in a transaction and are
//! written once. So their checksums are computed once: when the transaction has come to its end,
//! before it is written ([`seal`]). Until then the buffer says which are missing, and readers do
//! without them. A reader trusts a block of names or attributes by [`is_deferred`], and a record by
//! [`lacks_checksum`].
//!
//! How many inodes share a block of attributes is put off with its checksum. A word next to the
//! buffer counts them ([`extern4_sync::closable_refcount`]), so that inodes that join or leave
//! change nothing of the block.
//!
//! The numbers of an [`Unsealed`] begin with the kind of block. Then follow, for names, the seed of
//! their checksum, and for attributes, the number of the block. For records it is the number of the
//! first inode in the block and a bit for each record.

use extern4_block::{Pin, Unsealed};
use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::superblock::Superblock;
use extern4_disk::{dirent, inode, xattr};

use crate::volume::buffer::Verified;

const NAMES: u32 = 1;
const RECORDS: u32 = 2;
const ATTRIBUTES: u32 = 3;
/// Records in a block that have a bit each.
const MOST_RECORDS: u32 = 64;

/// Puts off the checksum of a block of names.
pub(crate) fn defer_names(unsealed: &mut Unsealed, seed: ChecksumSeed) {
    *unsealed = [NAMES, seed.get(), 0, 0];
}

/// Puts off the checksum of attribute block `block`, and how many inodes share it.
pub(crate) fn defer_attributes(unsealed: &mut Unsealed, block: u64) {
    let [low, high] = words(block);
    *unsealed = [ATTRIBUTES, low, high, 0];
}

/// Puts off the checksum of record `index` of a block, that of inode `ino`. False if the index is
/// too high to be noted, so that the checksum has to be computed at once.
pub(crate) fn defer_record(unsealed: &mut Unsealed, ino: u32, index: u32) -> bool {
    if index >= MOST_RECORDS {
        return false;
    }
    let [low, high] = words(bits(*unsealed) | 1 << index);
    *unsealed = [RECORDS, ino - index, low, high];
    true
}

/// Whether the checksum of record `index` of a block has been put off.
pub(crate) fn lacks_checksum(unsealed: Unsealed, index: u32) -> bool {
    index < MOST_RECORDS && bits(unsealed) & 1 << index != 0
}

/// Whether the checksum over a whole block of this kind has been put off.
pub(crate) fn is_deferred(unsealed: Unsealed, kind: Verified) -> bool {
    match kind {
        Verified::DirectoryBlock => unsealed[0] == NAMES,
        Verified::XattrBlock => unsealed[0] == ATTRIBUTES,
        _ => false,
    }
}

/// Computes what has been put off of a block that is pinned, and stores it there.
pub(crate) fn seal(pin: &Pin, bytes: &mut [u8], unsealed: Unsealed, sb: &Superblock) {
    match unsealed {
        [NAMES, seed, ..] => dirent::store_checksum(bytes, ChecksumSeed::new(seed)),
        [RECORDS, first, ..] => {
            let records = bytes.chunks_exact_mut(usize::from(sb.inode_size()));
            for (index, record) in (0..MOST_RECORDS).zip(records) {
                if lacks_checksum(unsealed, index) {
                    inode::store_checksum(record, first + index, sb);
                }
            }
        }
        [ATTRIBUTES, low, high, _] => {
            store_count(pin, bytes);
            if let Some(seed) = sb.metadata_seed() {
                xattr::store_checksum(bytes, u64::from(high) << 32 | u64::from(low), seed);
            }
        }
        _ => {}
    }
}

/// Stores in the header of an attribute block how many inodes share it. No handle is open, so no
/// inode joins or leaves.
fn store_count(pin: &Pin, bytes: &mut [u8]) {
    let sharers = pin.sharers();
    // The count is closed while the inode that alone has the block is being deleted.
    let alone = sharers.snapshot().is_closed().then_some(1);
    if let Some(count) = sharers.count().or(alone) {
        xattr::store_refcount(bytes, count);
    }
}

/// Returns which records of a block have no checksum yet, a bit each.
fn bits(unsealed: Unsealed) -> u64 {
    match unsealed {
        [RECORDS, _, low, high] => u64::from(high) << 32 | u64::from(low),
        _ => 0,
    }
}

/// Splits a number of 64 bits, the lower half first.
fn words(bits: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// Returns the index in its block of the record at byte `offset`.
pub(crate) fn index_of(offset: u32, sb: &Superblock) -> u32 {
    // Records are a power of two long, and dividing takes as long as a lock.
    offset >> sb.inode_size().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use extern4_block::{BufferCache, CacheOptions, MemoryDevice};
    use extern4_sync::closable_refcount::Put;

    use super::*;

    #[test]
    fn the_word_of_a_block_counts_its_sharers() {
        let device = std::sync::Arc::new(MemoryDevice::zeroed(1 << 16));
        let options = CacheOptions { block_size: 1024, block_count: 64, memory_bytes: 1 << 16 };
        let mut buffer = BufferCache::new(device, options).unwrap().read(1).unwrap();
        let pin = buffer.pin();
        let mut sealed = || {
            buffer.change(|bytes, _| {
                store_count(&pin, bytes);
                u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])
            })
        };
        assert_eq!(sealed(), 0, "not known");
        let sharers = pin.sharers();
        sharers.set(sharers.snapshot(), 7);
        assert_eq!(sealed(), 7);
        (0..6).for_each(|_| assert!(matches!(sharers.put(), Put::Others(_))));
        assert_eq!((sharers.try_close(), sealed()), (true, 1), "of an inode that is being deleted");
    }

    #[test]
    fn each_record_of_a_block_is_put_off_for_itself() {
        let mut unsealed = Unsealed::default();
        assert!(defer_record(&mut unsealed, 100, 3) && defer_record(&mut unsealed, 160, 63));
        assert!(!defer_record(&mut unsealed, 161, 64));
        assert_eq!(unsealed, [RECORDS, 97, 1 << 3, 1 << 31]);
        let lacking: Vec<_> = (0..200).filter(|&index| lacks_checksum(unsealed, index)).collect();
        assert_eq!(lacking, [3, 63]);
        defer_names(&mut unsealed, ChecksumSeed::new(9));
        assert_eq!((unsealed, lacks_checksum(unsealed, 3)), ([NAMES, 9, 0, 0], false));
        assert!(
            is_deferred(unsealed, Verified::DirectoryBlock) && !is_deferred(unsealed, Verified::XattrBlock)
        );
    }
}
