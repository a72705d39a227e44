//! Walks all inodes, and finds the features that files of the volume use, so that
//! [`tune`](crate::Ext4::tune) takes away only others.
//!
//! Only features that an inode's fields show are looked for. An inode counts if it has a link, so
//! orphans have to be freed before, as opening for writing does.

use extern4_disk::feature::{Compat, Features, Incompat, RoCompat};
use extern4_disk::group::GroupFlags;
use extern4_disk::inode::{FileKind, Inode, InodeFlags};

use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;

/// Returns the features that an inode uses.
fn used_by(inode: &Inode) -> Features {
    let flags = inode.flags();
    let kind = inode.kind();
    let mut used = Features::default();
    used.compat
        .set(Compat::DIR_INDEX, flags.contains(InodeFlags::INDEX));
    used.compat
        .set(Compat::STABLE_INODES, flags.contains(InodeFlags::ENCRYPT));
    used.incompat
        .set(Incompat::EA_INODE, flags.contains(InodeFlags::EA_INODE));
    used.incompat
        .set(Incompat::ENCRYPT, flags.contains(InodeFlags::ENCRYPT));
    let is_large = kind == FileKind::Regular && inode.size() > i32::MAX.unsigned_abs().into();
    used.ro_compat.set(RoCompat::LARGE_FILE, is_large);
    let is_huge = flags.contains(InodeFlags::HUGE_FILE) || inode.sectors() > u32::MAX.into();
    used.ro_compat.set(RoCompat::HUGE_FILE, is_huge);
    used.ro_compat.set(
        RoCompat::DIR_NLINK,
        kind == FileKind::Directory && inode.links() == 1,
    );
    used
}

impl Ext4 {
    /// Returns the `features` that inodes use. Reads all inode tables if there are any.
    pub(crate) fn features_in_use(&self, features: Features) -> Result<Features> {
        let mut used = Features::default();
        if features == used {
            return Ok(used);
        }
        self.each_inode(|info| {
            let more = used_by(info.fields());
            used.compat |= more.compat & features.compat;
            used.incompat |= more.incompat & features.incompat;
            used.ro_compat |= more.ro_compat & features.ro_compat;
            Ok(())
        })?;
        Ok(used)
    }

    /// Calls `each` with every inode that has a link, the volume's own among them. Reads all inode
    /// tables.
    pub(crate) fn each_inode(&self, mut each: impl FnMut(&InodeInfo) -> Result<()>) -> Result<()> {
        let geometry = self.superblock().geometry();
        let all = geometry.inodes_per_group();
        for group in 0..geometry.group_count() {
            let first = group * all + 1;
            for ino in first..first + self.records_in_use(group)? {
                match self.load_inode(ino) {
                    Ok(info) if info.fields().links() > 0 => each(&info)?,
                    Ok(_) | Err(Error::Stale { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Returns how many records of a group's inode table have ever been written.
    fn records_in_use(&self, group: u32) -> Result<u32> {
        let sb = self.superblock();
        let all = self.superblock().geometry().inodes_per_group();
        let counts_unused = RoCompat::GDT_CSUM | RoCompat::METADATA_CSUM;
        if !sb.features().ro_compat.intersects(counts_unused) {
            return Ok(all);
        }
        let group = self.writer()?.allocator.lock(self, group)?;
        let descriptor = &group.descriptor;
        Ok(if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            0
        } else {
            all.saturating_sub(descriptor.unused_inodes())
        })
    }
}
