//! ACLs: extended attributes in a form of their own.

use extern4_disk::acl as disk;
use extern4_disk::xattr::NameIndex;
use extern4_disk::{Place, Structure};
use extern4_vfs::{Acl, AclKind};

use crate::error::Result;
use crate::inode::InodeInfo;
use crate::mount::Ext4;

impl Ext4 {
    /// An ACL of the inode, as the VFS keeps it; `None` if it has none.
    pub(crate) fn acl(&self, inode: &InodeInfo, kind: AclKind) -> Result<Option<Acl>> {
        let index = match kind {
            AclKind::Access => NameIndex::POSIX_ACL_ACCESS,
            AclKind::Default => NameIndex::POSIX_ACL_DEFAULT,
        };
        let Some(bytes) = self.attribute(inode, index, b"")? else { return Ok(None) };
        let place = Place::new(Structure::Acl).ino(inode.ino());
        Ok(Some(disk::decode(&bytes, place)?))
    }
}
