//! Where the blocks of a file stand on the volume.
//!
//! An inode maps its blocks by an extent tree or by indirect blocks. Both answer with a [`Run`]
//! which blocks of the volume stand at a logical block, and for how many blocks from there on.
//! Every reader of contents asks here.

pub(crate) mod change;
pub(crate) mod extents;
pub(crate) mod indirect;
pub(crate) mod map_blocks;
pub(crate) mod run;
pub(crate) mod walk;

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::map::run::Run;

impl InodeInfo {
    /// Returns the run at block `logical` of the file, and for how many blocks it goes on from
    /// there.
    pub(crate) fn map(&self, fs: &Ext4, logical: u32) -> Result<Run> {
        let run = match self.has_extents() {
            true => extents::read::map(fs, self, logical)?,
            false => indirect::read::map(fs, self, logical)?,
        };
        if let (Some(writer), Some(blocks)) = (fs.writer.get(), run.allocated()) {
            writer.zones.check(&blocks)?;
        }
        Ok(match fs.fast_commits.changes(self.ino()).filter(|changes| changes.has_map()) {
            Some(changes) => changes.patch(run),
            None => run,
        })
    }
}
