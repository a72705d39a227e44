//! Reads the targets of symbolic links.
//!
//! A short target is in the inode in place of the block map (a fast link), a longer one in a block.
//! On a volume with `inline_data`, one in between is in the inode like a small file. The target of
//! an encrypted link is a 16-bit length and as many bytes of ciphertext. It is shown like a name in
//! an encrypted directory, with a hash of zero.
//!
//! `InodeOps::readlink` calls [`link_target`]. A target that is empty, too long or contains a NUL
//! is damage. `ops::create` stores new targets.

use extern4_disk::feature::Incompat;
use extern4_disk::htree::Hash;
use extern4_disk::inode::MAP_SIZE;
use extern4_disk::{CorruptKind, Place, Structure};

use crate::error::Result;
use crate::fs::Ext4;
use crate::fscrypt::ReadableLink;
use crate::fscrypt_name::{self, TARGET_HEADER};
use crate::inode::info::InodeInfo;
use crate::volume::group::to_usize;

/// Returns the target of a symbolic link.
pub(crate) fn link_target(fs: &Ext4, link: &ReadableLink) -> Result<Box<[u8]>> {
    let max = u64::from(fs.superblock().block_size());
    let len = match usize::try_from(link.size()) {
        Ok(len) if len > 0 && link.size() <= max => len,
        _ => return Err(link.corrupt_field("i_size", link.size())),
    };
    let target = if link.is_inline() {
        link.with_inline_data(fs, |data| Ok(data.to_vec()))?
    } else if is_fast(fs, link) {
        link.i_block()[..len].to_vec()
    } else {
        target_in_block(fs, link, len)?
    };
    let place = Place::new(Structure::Symlink).ino(link.ino());
    if link.is_encrypted() {
        return shown_target(&target, place);
    }
    if target.contains(&0) {
        return Err(place
            .corrupt(CorruptKind::Mismatch {
                what: "a target holds a NUL",
            })
            .into());
    }
    Ok(target.into())
}

/// Whether the target is in place of the map: it is short, and the link has no block except one for
/// extended attributes. With `ea_inode` the count of blocks includes values in other inodes, so
/// there every short target is in place of the map.
pub(crate) fn is_fast(fs: &Ext4, link: &InodeInfo) -> bool {
    let attributes = link
        .fields()
        .xattr_block()
        .map_or(0, |_| fs.superblock().cluster_size() / 512);
    let counts = !fs
        .superblock()
        .features()
        .incompat
        .contains(Incompat::EA_INODE);
    link.size() < MAP_SIZE as u64 && (!counts || link.fields().sectors() <= attributes)
}

fn target_in_block(fs: &Ext4, link: &InodeInfo, len: usize) -> Result<Vec<u8>> {
    let place = Place::new(Structure::Symlink).ino(link.ino());
    let Some(mapped) = link.map(fs, 0)?.mapped() else {
        return Err(place
            .corrupt(CorruptKind::Mismatch {
                what: "a target is a hole",
            })
            .into());
    };
    // OK: no longer than a block, which the caller has checked.
    Ok(fs.cache.read(mapped.start)?[..len.min(to_usize(fs.superblock().block_size()))].to_vec())
}

/// Returns an encrypted target in the form that is shown without a key.
fn shown_target(stored: &[u8], place: Place) -> Result<Box<[u8]>> {
    let ciphertext = stored
        .split_first_chunk::<TARGET_HEADER>()
        .and_then(|(len, rest)| {
            let len = usize::from(u16::from_le_bytes(*len));
            rest.get(..len).filter(|ciphertext| !ciphertext.is_empty())
        });
    let Some(ciphertext) = ciphertext else {
        let what = "the length of an encrypted target does not fit its link";
        return Err(place.corrupt(CorruptKind::Mismatch { what }).into());
    };
    let mut shown = [0; fscrypt_name::MAX_SHOWN];
    Ok(fscrypt_name::show(ciphertext, NO_HASH, &mut shown).into())
}

const NO_HASH: Hash = Hash { major: 0, minor: 0 };
