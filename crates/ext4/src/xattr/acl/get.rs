//! ACLs: extended attributes in a form of their own.

use extern4_disk::acl as disk;
use extern4_disk::xattr::NameIndex;
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_vfs::{Acl, AclEntry, AclKind, AclTag};

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
        let decoded = disk::Acl::decode(&bytes, place)?;
        let entries: Vec<_> = decoded.entries().iter().map(entry).collect();
        match Acl::new(entries) {
            Ok(acl) => Ok(Some(acl)),
            // Both check the rules of POSIX.1e, each for its own sake.
            Err(_) => Err(place.corrupt(CorruptKind::Mismatch { what: "the entries are no ACL" }).into()),
        }
    }
}

fn entry(entry: &disk::AclEntry) -> AclEntry {
    let tag = match entry.tag {
        disk::Tag::UserObj => AclTag::UserObj,
        disk::Tag::User(id) => AclTag::User(id),
        disk::Tag::GroupObj => AclTag::GroupObj,
        disk::Tag::Group(id) => AclTag::Group(id),
        disk::Tag::Mask => AclTag::Mask,
        disk::Tag::Other => AclTag::Other,
    };
    AclEntry { tag, perm: entry.perm }
}
