//! The VFS's view of a volume: `FileSystem`, `InodeOps` and `FileOps` for [`Ext4`].
//!
//! Each method gets this crate's inode from the VFS's, takes the lock that a reader needs, and
//! calls the module that does the work. Errors of this crate become errors of the VFS here and
//! nowhere else. The submodules have the operations that involve several folders: creating,
//! linking, deleting, freeing orphans, attributes, statfs and trim. Only the VFS calls these
//! methods, with the locks that it documents.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod link;
pub(crate) mod orphan;
pub(crate) mod set_attr;
pub(crate) mod statfs;
pub(crate) mod trim;

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use extern4_disk::casefold;
use extern4_disk::dirent::NAME_MAX;
use extern4_disk::feature::Incompat;
use extern4_disk::inode::ROOT_INO;
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_vfs::{
    Acl, AclKind, Caps, ChangeContext, Cred, Errno, FallocateMode, FileOps, FileSystem, FsTraits,
    Inode, InodeOps, NameRef, NewInode, NewNode, RawDirEntry, Rename, Result, SetAttr, Span,
    StatFs, Take, Timespec, XattrFlags,
};

use crate::dir::list::list_dir;
use crate::dir::namei::lookup_name;
use crate::file::fallocate::fallocate_file;
use crate::file::read::{file_position, file_span, lend_file, read_file};
use crate::file::symlink::link_target;
use crate::file::write::{end_window, overwrite_file, sync_file_data, truncate_file, write_file};
use crate::fs::Ext4;
use crate::fscrypt::{check_key, check_policy, readable_dir, readable_file, readable_link};
use crate::handle::times::{store_all_times, store_last_times};
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::ops::create::create_node;
use crate::ops::delete::evict;
use crate::ops::link::{link_name, remove_directory, rename_name, unlink_name};
use crate::ops::set_attr::change_attr;
use crate::ops::trim::trim_range;
use crate::tune::Tune;
use crate::xattr::acl::set::change_acl;
use crate::xattr::block::note_block;
use crate::xattr::expand::expand;
use crate::xattr::set::change_xattr;

fn cached(inode: &Inode) -> &CachedInode {
    inode.private::<CachedInode>()
}

/// Returns a copy of the inode for reading.
fn info(inode: &Inode) -> InodeInfo {
    cached(inode).snapshot()
}

impl FileSystem for Ext4 {
    fn traits(&self) -> FsTraits {
        FsTraits {
            name: "ext4",
            name_max: NAME_MAX,
            read_only: self.writer.get().is_none(),
            acl: self.has_acls,
            fast_may_exec: true,
            casefold: self
                .superblock()
                .features()
                .incompat
                .contains(Incompat::CASEFOLD),
            bsd_groups: self.bsd_groups,
            inode_bytes: size_of::<CachedInode>(),
        }
    }

    fn root_ino(&self) -> u64 {
        u64::from(ROOT_INO)
    }

    fn read_inode(&self, ino: u64) -> Result<NewInode> {
        if ino == u64::from(ROOT_INO) {
            self.check_root()?;
        }
        Ok(self.new_inode(ino)?)
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(self.stat()?)
    }

    fn statfs_by(&self, inode: &Inode) -> Result<StatFs> {
        Ok(self.stat_for(&inode.attr())?)
    }

    fn may_use_root_reserve(&self, cred: &Cred) -> bool {
        let (uid, gid) = self.reserved_for;
        // Group 0 means that no group is set.
        let in_group = || gid != 0 && cred.in_group(gid);
        cred.has(Caps::SYS_RESOURCE) || cred.uid() == uid || in_group()
    }

    fn label(&self) -> Result<Vec<u8>> {
        Ok(self.current_label())
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.tune(&Tune {
            label: Some(label.to_vec()),
            ..Tune::default()
        })?;
        // Programs such as blkid read the superblock from the device, so it is written in place at
        // once.
        Ok(self
            .writer()?
            .transactions
            .checkpoint_all()
            .map_err(crate::Error::from)?)
    }

    fn trim(&self, bytes: Range<u64>, min_bytes: u64) -> Result<u64> {
        Ok(trim_range(self, bytes, min_bytes)?)
    }

    fn sync(&self) -> Result<()> {
        store_all_times(self)?;
        match self.writer.get() {
            Some(writer) => Ok(writer.transactions.sync().map_err(crate::Error::from)?),
            None => Ok(()),
        }
    }

    fn abort(&self, why: &str) {
        // Relaxed: callers of `is_aborted` ask after this call, by their own order.
        self.is_aborted.store(true, Relaxed);
        if let Some(writer) = self.writer.get() {
            writer.transactions.abort_and_wait(why);
        }
    }

    fn evict_inode(&self, inode: &Inode) {
        let Some(writer) = self.writer.get() else {
            return;
        };
        if inode.nlink() == 0 {
            if !cached(inode).is_freed() && self.opener.is_here() {
                evict(self, writer, cached(inode).info());
            }
        } else if self.lazy_times.get().is_some() && self.opener.is_here() {
            store_last_times(self, cached(inode).info().ino());
        }
    }

    fn end(&self) {
        self.close_unused();
    }
}

impl InodeOps for Ext4 {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<u64>> {
        let names = &cached(dir).names;
        let dir = readable_dir(self, cached(dir))?;
        Ok(lookup_name(self, &dir, names, name)?.map(u64::from))
    }

    fn is_absent(&self, dir: &Inode, name: &[u8]) -> bool {
        cached(dir).names.lacks(|| self.name_maps.hash(name))
    }

    fn check_found(&self, dir: &Inode, found: &Inode) -> Result<()> {
        Ok(check_policy(self, cached(dir), found)?)
    }

    fn canonical_name<'a>(&self, dir: &Inode, name: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        if info(dir).is_encrypted() || !info(dir).is_casefolded() {
            return Ok(Cow::Borrowed(name));
        }
        Ok(casefold::fold(name).map_or(Cow::Borrowed(name), Cow::Owned))
    }

    fn read_link(&self, inode: &Inode) -> Result<Box<[u8]>> {
        Ok(link_target(self, &readable_link(self, cached(inode))?)?)
    }

    fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let cached = cached(inode);
        let _attributes = cached.read_attributes();
        let info = cached.snapshot();
        let value = info.xattr_value(self, name)?;
        note_block(self, &info);
        Ok(value)
    }

    fn list_xattr(&self, inode: &Inode, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        let cached = cached(inode);
        let _attributes = cached.read_attributes();
        let info = cached.snapshot();
        info.list_xattrs(self, each)?;
        note_block(self, &info);
        Ok(())
    }

    fn get_acl(&self, inode: &Inode, kind: AclKind) -> Result<Option<Acl>> {
        let cached = cached(inode);
        let _attributes = cached.read_attributes();
        let info = cached.snapshot();
        let acl = info.acl(self, kind)?;
        note_block(self, &info);
        Ok(acl)
    }

    fn set_attr(&self, inode: &Inode, set: &SetAttr) -> Result<()> {
        // A read that notes its time moves nothing.
        if set.ctime.is_some() {
            expand(self, inode, set.rights)?;
        }
        Ok(change_attr(self, inode, set)?)
    }

    fn set_xattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        context: ChangeContext,
    ) -> Result<()> {
        expand(self, inode, context.rights)?;
        Ok(change_xattr(self, inode, name, value, flags, context)?)
    }

    fn set_acl(
        &self,
        inode: &Inode,
        kind: AclKind,
        acl: Option<Arc<Acl>>,
        mode: Option<u16>,
        context: ChangeContext,
    ) -> Result<()> {
        expand(self, inode, context.rights)?;
        Ok(change_acl(self, inode, kind, acl, mode, context)?)
    }

    fn create(&self, dir: &Inode, name: Option<&[u8]>, new: &NewNode<'_>) -> Result<NewInode> {
        Ok(create_node(self, dir, name, new)?)
    }

    fn link(&self, inode: &Inode, to: NameRef<'_>, context: ChangeContext) -> Result<()> {
        Ok(link_name(self, inode, to, context)?)
    }

    fn unlink(&self, from: NameRef<'_>, inode: &Inode, now: Timespec, is_last: bool) -> Result<()> {
        Ok(unlink_name(self, from, inode, now, is_last)?)
    }

    fn rmdir(&self, from: NameRef<'_>, inode: &Inode, now: Timespec) -> Result<()> {
        Ok(remove_directory(self, from, inode, now)?)
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        Ok(rename_name(self, rename)?)
    }
}

impl FileOps for Ext4 {
    fn check_open(&self, inode: &Inode, in_encrypted: bool) -> Result<()> {
        check_key(self, cached(inode))?;
        if in_encrypted && !info(inode).is_encrypted() {
            Err(Errno::EPERM.into())
        } else {
            Ok(())
        }
    }

    fn read_at(&self, inode: &Inode, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(read_file(
            self,
            &readable_file(self, cached(inode))?,
            buf,
            offset,
        )?)
    }

    fn lend(&self, inode: &Inode, offset: u64, len: usize, take: &mut Take<'_>) -> Result<bool> {
        Ok(lend_file(
            self,
            &readable_file(self, cached(inode))?,
            offset,
            len,
            take,
        )?)
    }

    fn span_at(&self, inode: &Inode, offset: u64) -> Result<Option<Span>> {
        Ok(file_span(
            self,
            &readable_file(self, cached(inode))?,
            offset,
        )?)
    }

    fn bmap(&self, inode: &Inode, offset: u64) -> Result<Option<u64>> {
        Ok(file_position(
            self,
            &readable_file(self, cached(inode))?,
            offset,
        )?)
    }

    fn read_dir(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(RawDirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let dir = readable_dir(self, cached(dir))?;
        Ok(list_dir(self, &dir, cookie, each)?)
    }

    fn write_at(
        &self,
        inode: &Inode,
        data: &[u8],
        offset: u64,
        context: ChangeContext,
    ) -> Result<usize> {
        Ok(write_file(self, inode, data, offset, context)?)
    }

    fn overwrite(
        &self,
        inode: &Inode,
        data: &[u8],
        offset: u64,
        apart: &mut dyn FnMut(),
    ) -> Result<bool> {
        Ok(overwrite_file(self, inode, data, offset, apart)?)
    }

    fn truncate(&self, inode: &Inode, size: u64, context: ChangeContext) -> Result<()> {
        Ok(truncate_file(self, inode, size, context)?)
    }

    fn fallocate(
        &self,
        inode: &Inode,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        context: ChangeContext,
    ) -> Result<()> {
        Ok(fallocate_file(self, inode, mode, offset, len, context)?)
    }

    fn release(&self, inode: &Inode) {
        // In a forked child, a thread that it does not have may hold the lock of a group.
        if self.opener.is_here() {
            end_window(self, inode);
        }
    }

    fn sync_file(&self, inode: &Inode, data_only: bool) -> Result<()> {
        Ok(sync_file_data(self, inode, data_only)?)
    }
}
