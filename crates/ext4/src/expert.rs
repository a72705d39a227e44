//! Block maps and hash trees as they are on the volume, for tools that show them.
//!
//! [`Ext4::map_block`] and [`Ext4::htree`] only read, verify checksums and bounds as every other
//! reader does, and take no locks of inodes. On a volume that other threads change, an answer can
//! be out of date or an error. The library `extern4` shows them to the expert commands, and tests
//! compare them with `debugfs`.

use crate::dir::htree::read::{HtreeEntry, Tree};
use crate::error::Result;
use crate::fs::Ext4;
use crate::run::Run;

impl Ext4 {
    /// Returns the run that maps block `logical` of inode `ino`, from that block on. The inode must
    /// have a map: an inode with inline data or a fast symbolic link has none.
    ///
    /// # Errors
    /// An inode or a map that is corrupt, or a device that fails.
    pub fn map_block(&self, ino: u32, logical: u32) -> Result<Run> {
        self.load_inode(ino)?.map(self, logical)
    }

    /// Calls `each` with the entries of the hash tree of directory `ino`, parents before children.
    /// Makes no call if the directory has no tree.
    ///
    /// # Errors
    /// A tree that is corrupt, or a device that fails.
    pub fn htree(&self, ino: u32, each: &mut dyn FnMut(HtreeEntry)) -> Result<()> {
        let dir = self.load_inode(ino)?;
        if !dir.is_directory() || !dir.is_indexed() || dir.is_inline() {
            return Ok(());
        }
        Tree::open(self, &dir)?.visit(each)
    }
}
