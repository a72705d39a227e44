//! Symbolic links: where their target is kept.
//!
//! A short target stands in the inode in place of the block map (a fast link), a longer one in a block of its own, and
//! on volumes with `inline_data` one in between lives in the inode like a small file.

use extern4_disk::inode::MAP_SIZE;
use extern4_disk::{CorruptKind, Place, Structure};

use crate::error::Result;
use crate::group::to_usize;
use crate::inode::InodeInfo;
use crate::mount::Ext4;

impl Ext4 {
    /// The target of a symbolic link.
    pub(crate) fn link_target(&self, link: &InodeInfo) -> Result<Box<[u8]>> {
        if link.is_encrypted() {
            return Err(self.no_key(link, "its target"));
        }
        let max = u64::from(self.superblock().block_size());
        let len = match usize::try_from(link.size()) {
            Ok(len) if len > 0 && link.size() <= max => len,
            _ => return Err(link.corrupt_field("i_size", link.size())),
        };
        let target = if link.is_inline() {
            self.with_inline_data(link, |data| Ok(data.to_vec()))?
        } else if self.is_fast(link) {
            link.i_block()[..len].to_vec()
        } else {
            self.target_in_block(link, len)?
        };
        if target.contains(&0) {
            let place = Place::new(Structure::Symlink).ino(link.ino());
            return Err(place.corrupt(CorruptKind::Mismatch { what: "a target holds a NUL" }).into());
        }
        Ok(target.into())
    }

    /// Whether the target stands in place of the map: it is short, and no block but that of extended attributes counts
    /// for the link.
    fn is_fast(&self, link: &InodeInfo) -> bool {
        let attributes = link.fields().xattr_block().map_or(0, |_| self.superblock().cluster_size() / 512);
        link.size() < MAP_SIZE as u64 && link.fields().sectors() <= attributes
    }

    fn target_in_block(&self, link: &InodeInfo, len: usize) -> Result<Vec<u8>> {
        let place = Place::new(Structure::Symlink).ino(link.ino());
        let Some(mapped) = self.map(link, 0)?.mapped() else {
            return Err(place.corrupt(CorruptKind::Mismatch { what: "a target is a hole" }).into());
        };
        // OK: no longer than a block, which the caller has checked.
        Ok(self.cache.read(mapped.start)?[..len.min(to_usize(self.superblock().block_size()))].to_vec())
    }
}
