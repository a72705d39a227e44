//! Orphans: inodes that were deleted while open, or were being truncated, when the volume was last in use.
//!
//! They are kept in a list through the inodes themselves, from the superblock on, or in the blocks of a hidden file.
//! Whoever mounts the volume for writing frees them; who reads leaves them alone, but may want to know of them.

use extern4_disk::orphan::OrphanBlock;
use extern4_disk::{CorruptKind, Place, Structure};

use crate::error::Result;
use crate::map::RunKind;
use crate::mount::Ext4;

impl Ext4 {
    /// The orphans of the volume: those of the list, then those of the orphan file.
    ///
    /// # Errors
    /// A list that leads back to itself or to an inode that cannot be, a block of the orphan file that is corrupt, or a
    /// device that fails.
    pub fn orphans(&self) -> Result<Vec<u32>> {
        let mut orphans = self.orphan_list()?;
        if let Some(ino) = self.superblock().orphan_file_inode() {
            self.orphan_file(ino, &mut orphans)?;
        }
        Ok(orphans)
    }

    fn orphan_list(&self) -> Result<Vec<u32>> {
        let sb = self.superblock();
        let mut orphans = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut next = sb.last_orphan();
        while let Some(ino) = next {
            let place = Place::new(Structure::Orphan).ino(ino);
            if ino < sb.first_ino() || ino > sb.inodes_count() {
                let kind = CorruptKind::InodeOutOfRange { field: "i_dtime", ino: u64::from(ino) };
                return Err(place.corrupt(kind).into());
            }
            if !seen.insert(ino) {
                return Err(place.corrupt(CorruptKind::Loop { what: "the list of orphans" }).into());
            }
            orphans.push(ino);
            next = self.raw_inode(ino)?.next_orphan();
        }
        Ok(orphans)
    }

    fn orphan_file(&self, ino: u32, orphans: &mut Vec<u32>) -> Result<()> {
        let file = self.load_inode(ino)?;
        let seed = file.fields().checksum_seed(self.superblock().checksum_seed());
        for logical in 0..file.len_blocks(self)? {
            let RunKind::Mapped { physical } = self.map(&file, logical)?.kind else {
                let place = Place::new(Structure::Orphan).ino(ino);
                return Err(place
                    .corrupt(CorruptKind::Mismatch { what: "the orphan file has a hole" })
                    .into());
            };
            let place = Place::new(Structure::Orphan).ino(ino).block(physical);
            let block = self.cache.read(physical)?;
            orphans.extend(OrphanBlock::decode(&block, physical, seed, self.superblock(), place)?.inodes());
        }
        Ok(())
    }
}
