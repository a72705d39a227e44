//! Structures as they are read, for experts: maps and hash trees.

use crate::dir::htree::read::{HtreeEntry, Tree};
use crate::error::Result;
use crate::fs::Ext4;
use crate::map::run::Run;

impl Ext4 {
    /// Returns the run at block `logical` of inode `ino`, and for how many blocks it goes on from
    /// there. The inode must have a map: its contents or its target must not stand in the map's
    /// place.
    ///
    /// # Errors
    /// An inode or a map that is corrupt, or a device that fails.
    pub fn map_block(&self, ino: u32, logical: u32) -> Result<Run> {
        self.load_inode(ino)?.map(self, logical)
    }

    /// Calls `each` with the entries of the hash tree of directory `ino`, each node's before those
    /// of the nodes it names. Makes no call if the directory has no tree.
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
