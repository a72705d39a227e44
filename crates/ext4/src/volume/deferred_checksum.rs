//! Checksums, and reference counts, that are computed when a block is written.
//!
//! Blocks of directories, attributes and inode records change many times in a transaction and are
//! written once. So their checksums are computed once, when the transaction has closed and before
//! it is written ([`seal`]). Until then the buffer's [`Unsealed`] word says which checksums are
//! missing. A reader asks [`is_deferred`] for a directory or attribute block, and
//! [`lacks_checksum`] for a record, and then does not verify.
//!
//! The reference count of an attribute block is deferred, too. A word next to the buffer counts the
//! inodes that share the block ([`extern4_sync::closable_refcount`]), so an inode that starts or
//! stops sharing it does not change the block.
//!
//! Operations defer through [`Handle`](crate::handle); `fs::writer` seals.
//!
//! # Format of `Unsealed`
//! | kind | then |
//! |---|---|
//! | directory block | the seed of its checksum |
//! | attribute block | the block number in two halves |
//! | inode records | the number of the first inode, and a bit for each record in two halves |

use extern4_block::{Pin, Unsealed};
use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::superblock::Superblock;
use extern4_disk::{dirent, inode, xattr};

use crate::volume::buffer::Verified;

const NAMES: u32 = 1;
const RECORDS: u32 = 2;
const ATTRIBUTES: u32 = 3;
/// How many records of a block have a bit each.
const MAX_RECORDS: u32 = 64;

/// Defers the checksum of a directory block.
pub(crate) fn defer_names(unsealed: &mut Unsealed, seed: ChecksumSeed) {
    *unsealed = [NAMES, seed.get(), 0, 0];
}

/// Defers the checksum and the reference count of attribute block `block`.
pub(crate) fn defer_attributes(unsealed: &mut Unsealed, block: u64) {
    let [low, high] = words(block);
    *unsealed = [ATTRIBUTES, low, high, 0];
}

/// Defers the checksum of inode `ino`, which is record `index` of its block. Returns false if the
/// index has no bit, so the caller has to compute the checksum.
pub(crate) fn defer_record(unsealed: &mut Unsealed, ino: u32, index: u32) -> bool {
    if index >= MAX_RECORDS {
        return false;
    }
    let [low, high] = words(bits(*unsealed) | 1 << index);
    *unsealed = [RECORDS, ino - index, low, high];
    true
}

/// Whether the checksum of record `index` of a block is deferred.
pub(crate) fn lacks_checksum(unsealed: Unsealed, index: u32) -> bool {
    index < MAX_RECORDS && bits(unsealed) & 1 << index != 0
}

/// Whether the checksum over a whole block of this kind is deferred.
pub(crate) fn is_deferred(unsealed: Unsealed, kind: Verified) -> bool {
    match kind {
        Verified::DirectoryBlock => unsealed[0] == NAMES,
        Verified::XattrBlock => unsealed[0] == ATTRIBUTES,
        _ => false,
    }
}

/// Computes the deferred checksums and count of a pinned block, and stores them in `bytes`.
pub(crate) fn seal(pin: &Pin, bytes: &mut [u8], unsealed: Unsealed, sb: &Superblock) {
    match unsealed {
        [NAMES, seed, ..] => dirent::store_checksum(bytes, ChecksumSeed::new(seed)),
        [RECORDS, first, ..] => {
            let records = bytes.chunks_exact_mut(usize::from(sb.inode_size()));
            for (index, record) in (0..MAX_RECORDS).zip(records) {
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

/// Stores the reference count in the header of an attribute block. No handle is open, so the count
/// does not change meanwhile.
fn store_count(pin: &Pin, bytes: &mut [u8]) {
    let sharers = pin.sharers();
    // The count is closed while the last inode that has the block is being deleted.
    let alone = sharers.snapshot().is_closed().then_some(1);
    if let Some(count) = sharers.count().or(alone) {
        xattr::store_refcount(bytes, count);
    }
}

/// Returns a bit for each record of a block whose checksum is deferred.
fn bits(unsealed: Unsealed) -> u64 {
    match unsealed {
        [RECORDS, _, low, high] => u64::from(high) << 32 | u64::from(low),
        _ => 0,
    }
}

/// Splits a number of 64 bits, the lower half first.
fn words(bits: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    ]
}

/// Returns the index in its block of the record at byte `offset`.
pub(crate) fn index_of(offset: u32, sb: &Superblock) -> u32 {
    // The size of a record is a power of two, and a division takes as long as a lock.
    offset >> sb.inode_size().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use extern4_block::{BufferCache, CacheBudget, CacheOptions, MemoryDevice};
    use extern4_sync::closable_refcount::Put;

    use super::*;

    #[test]
    fn the_word_of_a_block_counts_its_sharers() {
        let device = std::sync::Arc::new(MemoryDevice::zeroed(1 << 16));
        let options = CacheOptions {
            block_size: 1024,
            block_count: 64,
            budget: CacheBudget::new(1 << 16),
        };
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
        assert_eq!(
            (sharers.try_close(), sealed()),
            (true, 1),
            "of an inode that is being deleted"
        );
    }

    #[test]
    fn each_record_of_a_block_is_put_off_for_itself() {
        let mut unsealed = Unsealed::default();
        assert!(defer_record(&mut unsealed, 100, 3) && defer_record(&mut unsealed, 160, 63));
        assert!(!defer_record(&mut unsealed, 161, 64));
        assert_eq!(unsealed, [RECORDS, 97, 1 << 3, 1 << 31]);
        let lacking: Vec<_> = (0..200)
            .filter(|&index| lacks_checksum(unsealed, index))
            .collect();
        assert_eq!(lacking, [3, 63]);
        defer_names(&mut unsealed, ChecksumSeed::new(9));
        assert_eq!(
            (unsealed, lacks_checksum(unsealed, 3)),
            ([NAMES, 9, 0, 0], false)
        );
        assert!(
            is_deferred(unsealed, Verified::DirectoryBlock)
                && !is_deferred(unsealed, Verified::XattrBlock)
        );
    }
}
