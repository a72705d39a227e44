//! The hashes of extended attributes.
//!
//! `ext4` and the builder store them with new attributes, and verify them where an EA inode is
//! read.
//!
//! An entry's hash covers its name and value. A block's hash covers its entries' hashes and finds
//! blocks with equal contents to share. Both rotate and exclusive-or; they take words of a value in
//! little-endian order.
//!
//! Some machines took the bytes of a name as C's `char`, which is signed there. They hash names
//! beyond ASCII differently, and volumes hold both hashes. So [`verify_entry`] accepts either, and
//! [`entry`] computes the unsigned form, as Linux does today. An entry whose value is in an EA
//! inode hashes that inode's hash in place of the value.

use super::{Attr, Attrs, Value};
use crate::checksum::{self, ChecksumSeed};
use crate::{Corrupt, Place};

const NAME_ROTATION: u32 = 5;
const VALUE_ROTATION: u32 = 16;
const BLOCK_ROTATION: u32 = 16;

/// The input that represents the value in an entry's hash.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// The value itself.
    Value(&'a [u8]),
    /// The hash of the EA inode that holds the value.
    EaInode {
        /// The result of [`ea_value`] for the value, as the inode stores it.
        hash: u32,
    },
}

/// Returns the hash of an entry.
pub fn entry(name: &[u8], contents: Contents<'_>) -> u32 {
    of(name, u32::from, contents)
}

/// Returns the hash of an entry as machines with a signed `char` computed it.
pub fn entry_signed(name: &[u8], contents: Contents<'_>) -> u32 {
    of(
        name,
        |byte| i32::from(byte.cast_signed()).cast_unsigned(),
        contents,
    )
}

/// Checks an entry's stored hash. `ea_inode_hash` is the hash of its EA inode, if there is one and
/// its hash is known.
///
/// A stored 0 means that the writer did not compute a hash. Without the EA inode's hash there is
/// nothing to compare with. Both pass.
///
/// # Errors
/// [`CorruptKind::Checksum`](crate::CorruptKind::Checksum).
pub fn verify_entry(
    attr: &Attr<'_>,
    ea_inode_hash: Option<u32>,
    place: Place,
) -> Result<(), Corrupt> {
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

/// Returns the hash of a block's entries. It is 0, which forbids sharing the block, if any entry
/// has no hash.
pub fn block(attrs: &Attrs<'_>) -> u32 {
    entries(attrs.iter().map(|attr| attr.hash))
}

/// Returns the hash of a block whose entries have these hashes, in their order.
pub fn entries(mut hashes: impl Iterator<Item = u32>) -> u32 {
    hashes
        .try_fold(0u32, |all, hash| {
            (hash != 0).then(|| all.rotate_left(BLOCK_ROTATION) ^ hash)
        })
        .unwrap_or(0)
}

/// Returns the hash that an EA inode stores for its value; see
/// [`Inode::ea_hash`](crate::inode::Inode::ea_hash).
pub fn ea_value(value: &[u8], volume_seed: ChecksumSeed) -> u32 {
    volume_seed.checksum(value)
}

fn of(name: &[u8], widen: fn(u8) -> u32, contents: Contents<'_>) -> u32 {
    let hash = name.iter().fold(0u32, |hash, &byte| {
        hash.rotate_left(NAME_ROTATION) ^ widen(byte)
    });
    match contents {
        Contents::Value(value) => value.chunks(4).fold(hash, |hash, chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            hash.rotate_left(VALUE_ROTATION) ^ u32::from_le_bytes(word)
        }),
        Contents::EaInode { hash: value } => hash.rotate_left(VALUE_ROTATION) ^ value,
    }
}
