//! The hashes of extended attributes.
//!
//! An entry's hash covers its name and value; a block's covers its entries' hashes, and finds blocks with equal contents
//! to share. Both rotate and exclusive-or, words of a value in little-endian order.
//!
//! The bytes of a name were once taken as C's `char`, which is signed on some machines: names beyond ASCII hash
//! differently there, and volumes hold both. So [`verify_entry`] accepts either, and [`entry`] computes the unsigned
//! form, as Linux does today. An entry whose value is in an EA inode hashes that inode's hash in place of the value.

use super::{Attr, Attrs, Value};
use crate::checksum::{self, ChecksumSeed};
use crate::{Corrupt, Place};

const NAME_ROTATION: u32 = 5;
const VALUE_ROTATION: u32 = 16;
const BLOCK_ROTATION: u32 = 16;

/// What stands for the value in an entry's hash.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// The value itself.
    Value(&'a [u8]),
    /// The hash of the EA inode that holds the value.
    EaInode {
        /// What [`ea_value`] says of the value, as the inode stores it.
        hash: u32,
    },
}

/// The hash of an entry.
pub fn entry(name: &[u8], contents: Contents<'_>) -> u32 {
    of(name, u32::from, contents)
}

/// The hash of an entry as machines with a signed `char` computed it.
pub fn entry_signed(name: &[u8], contents: Contents<'_>) -> u32 {
    of(name, |byte| i32::from(byte.cast_signed()).cast_unsigned(), contents)
}

/// Checks an entry's stored hash; `ea_inode_hash` is the hash of its EA inode, if it has one that is known.
///
/// A stored 0 says that the writer did not compute one, and without the EA inode's hash there is nothing to compare
/// with: both pass.
///
/// # Errors
/// [`CorruptKind::Checksum`](crate::CorruptKind::Checksum).
pub fn verify_entry(attr: &Attr<'_>, ea_inode_hash: Option<u32>, place: Place) -> Result<(), Corrupt> {
    let contents = match (attr.value, ea_inode_hash) {
        (Value::Here(value), _) => Contents::Value(value),
        (Value::EaInode { .. }, Some(hash)) => Contents::EaInode { hash },
        (Value::EaInode { .. }, None) => return Ok(()),
    };
    if attr.hash == 0 || attr.hash == entry_signed(attr.name, contents) {
        return Ok(());
    }
    checksum::verify(attr.hash, entry(attr.name, contents), place)
}

/// The hash of a block's entries; 0, which forbids to share the block, if any entry has none.
pub fn block(attrs: &Attrs<'_>) -> u32 {
    entries(attrs.iter().map(|attr| attr.hash))
}

/// The same of entries with these hashes, in their order.
pub fn entries(mut hashes: impl Iterator<Item = u32>) -> u32 {
    hashes
        .try_fold(0u32, |all, hash| (hash != 0).then(|| all.rotate_left(BLOCK_ROTATION) ^ hash))
        .unwrap_or(0)
}

/// The hash that an EA inode stores of the value it holds; see [`Inode::ea_hash`](crate::inode::Inode::ea_hash).
pub fn ea_value(value: &[u8], volume_seed: ChecksumSeed) -> u32 {
    volume_seed.checksum(value)
}

fn of(name: &[u8], widen: fn(u8) -> u32, contents: Contents<'_>) -> u32 {
    let hash = name.iter().fold(0u32, |hash, &byte| hash.rotate_left(NAME_ROTATION) ^ widen(byte));
    match contents {
        Contents::Value(value) => value.chunks(4).fold(hash, |hash, chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            hash.rotate_left(VALUE_ROTATION) ^ u32::from_le_bytes(word)
        }),
        Contents::EaInode { hash: value } => hash.rotate_left(VALUE_ROTATION) ^ value,
    }
}
