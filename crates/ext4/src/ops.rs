//! What the VFS calls: each method finds the inode that this crate keeps behind the VFS's and goes to the module that
//! does the work. Errors turn into error numbers here and nowhere else.

use std::borrow::Cow;
use std::ops::ControlFlow;

use extern4_disk::dirent::NAME_MAX;
use extern4_disk::inode::ROOT_INO;
use extern4_vfs::{
    Acl, AclKind, Errno, FileOps, FileSystem, FsTraits, Inode, InodeOps, NewInode, RawDirEntry, Result, Span,
    StatFs,
};

use crate::casefold;
use crate::inode::InodeInfo;
use crate::mount::Ext4;

fn info(inode: &Inode) -> &InodeInfo {
    inode.private::<InodeInfo>()
}

/// The inode of a directory; `ENOTDIR` for another.
fn dir_info(inode: &Inode) -> Result<&InodeInfo> {
    let info = info(inode);
    if info.is_directory() { Ok(info) } else { Err(Errno::ENOTDIR.into()) }
}

impl FileSystem for Ext4 {
    fn traits(&self) -> FsTraits {
        FsTraits { name: "ext4", name_max: NAME_MAX, read_only: true, acl: true, fast_may_exec: true }
    }

    fn root_ino(&self) -> u64 {
        u64::from(ROOT_INO)
    }

    fn read_inode(&self, ino: u64) -> Result<NewInode> {
        Ok(self.new_inode(ino)?)
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(self.stat()?)
    }
}

impl InodeOps for Ext4 {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<u64>> {
        Ok(self.lookup_name(dir_info(dir)?, name)?.map(u64::from))
    }

    fn canonical_name<'a>(&self, dir: &Inode, name: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        if info(dir).is_encrypted() || !info(dir).is_casefolded() {
            return Ok(Cow::Borrowed(name));
        }
        Ok(casefold::fold(name).map_or(Cow::Borrowed(name), Cow::Owned))
    }

    fn read_link(&self, inode: &Inode) -> Result<Box<[u8]>> {
        Ok(self.link_target(info(inode))?)
    }

    fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        Ok(self.xattr_value(info(inode), name)?)
    }

    fn list_xattr(&self, inode: &Inode, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        Ok(self.list_xattrs(info(inode), each)?)
    }

    fn get_acl(&self, inode: &Inode, kind: AclKind) -> Result<Option<Acl>> {
        Ok(self.acl(info(inode), kind)?)
    }
}

impl FileOps for Ext4 {
    fn read_at(&self, inode: &Inode, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.read_file(info(inode), buf, offset)?)
    }

    fn span_at(&self, inode: &Inode, offset: u64) -> Result<Option<Span>> {
        Ok(self.file_span(info(inode), offset)?)
    }

    fn read_dir(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(RawDirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        Ok(self.list_dir(dir_info(dir)?, cookie, each)?)
    }
}
