//! For those who want to see the structures themselves: maps and hash trees, as they are read.

use crate::dir::htree::read::Tree;
use crate::error::Result;
use crate::map::Run;
use crate::mount::Ext4;

/// One entry of a node of a directory's hash tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HtreeEntry {
    /// How far below the root its node is: 0 is the root.
    pub depth: usize,
    /// The lowest hash below it; its lowest bit marks that it goes on with the last hash of the entry before.
    pub hash: u32,
    /// The block of the directory it names.
    pub block: u32,
    /// Whether that is a leaf, which holds names.
    pub leaf: bool,
}

impl Ext4 {
    /// What stands at block `logical` of inode `ino`, and for how many blocks from there on. The inode must have a map:
    /// its contents or its target must not stand in its place.
    ///
    /// # Errors
    /// An inode or a map that is corrupt, or a device that fails.
    pub fn map_block(&self, ino: u32, logical: u32) -> Result<Run> {
        self.map(&self.load_inode(ino)?, logical)
    }

    /// Calls `each` with the entries of the hash tree of directory `ino`, each node's before those of the nodes it
    /// names; not at all if the directory has no tree.
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
