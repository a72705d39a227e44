//! Reading ACLs: from the extended attribute of an inode to the ACL that the VFS caches.
//!
//! `Ext4::get_acl`, which the VFS calls when its cache misses, calls [`InodeInfo::acl`] with the
//! inode's attributes locked for reading. An attribute that is no valid ACL is an error that names
//! the inode.

use extern4_disk::xattr::NameIndex;
use extern4_disk::{Place, Structure, acl as disk};
use extern4_vfs::{Acl, AclKind};

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;

impl InodeInfo {
    /// Returns an ACL of the inode, as the VFS keeps it; `None` if it has none.
    pub(crate) fn acl(&self, fs: &Ext4, kind: AclKind) -> Result<Option<Acl>> {
        let index = match kind {
            AclKind::Access => NameIndex::POSIX_ACL_ACCESS,
            AclKind::Default => NameIndex::POSIX_ACL_DEFAULT,
        };
        let Some(bytes) = self.attribute(fs, index, b"")? else {
            return Ok(None);
        };
        let place = Place::new(Structure::Acl).ino(self.ino());
        Ok(Some(disk::decode(&bytes, place)?))
    }
}
