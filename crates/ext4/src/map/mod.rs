//! The map of a file: from its logical blocks to blocks of the volume.
//!
//! An inode maps its blocks by an extent tree (`extents`) or by indirect blocks (`indirect`).
//! [`InodeInfo::map`] hides which: it returns a [`Run`] of consecutive blocks, checked to be inside
//! the volume and, on a volume open for writing, outside of the volume's structures. `change` maps
//! and unmaps blocks, after `check` has found nothing wrong. `walk` visits whole maps for the
//! checker, and `inode_blocks` all blocks of a sound inode.
//!
//! `file`, `dir` and the modules that read internal files call `map`, under the inode's map lock if
//! other threads may change it.

pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod extents;
pub(crate) mod indirect;
pub mod inode_blocks;
pub(crate) mod map_blocks;
pub(crate) mod walk;

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::run::Run;

impl InodeInfo {
    /// Returns the run that maps block `logical` of the file, from that block on.
    pub(crate) fn map(&self, fs: &Ext4, logical: u32) -> Result<Run> {
        let run = if self.has_extents() {
            extents::read::map(fs, self, logical)?
        } else {
            indirect::read::map(fs, self, logical)?
        };
        if let (Some(writer), Some(blocks)) = (fs.writer.get(), run.allocated()) {
            writer.zones.check(&blocks)?;
        }
        Ok(
            match fs
                .fast_commits
                .changes(self.ino())
                .filter(|changes| changes.has_map())
            {
                Some(changes) => changes.patch(run),
                None => run,
            },
        )
    }
}
