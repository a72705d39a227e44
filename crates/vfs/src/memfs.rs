//! A file system in memory, with everything the VFS knows.
//!
//! Tests of the VFS and of the FUSE server use it, and so does the lab.
//!
//! It is the test double for the VFS, the worked example of its traits, and a scratch volume.
//! Inodes are `Node`s in a table; a node keeps the attributes, so that the VFS may forget an inode
//! and read it again. The VFS's `rwsem` orders changes of one inode; the locks here only keep each
//! structure whole.
//!
//! Times: a change of contents or names sets `mtime` and `ctime`, a change of attributes, links or
//! a rename `ctime`. A directory's size is the number of its names.

mod data;
mod dir;
mod node;
mod space;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use extern4_acl::{Acl, AclKind};
use extern4_sync::biased_rwlock::BiasedRwLock;
use extern4_sync::primitive::{AtomicU64, Ordering};

pub use self::space::MemLimits;

use self::dir::Dir;
use self::node::{Body, Node, attr_of};
use self::space::Space;
use crate::attr::{Attr, FileFlags, FileType, StatFs, Timespec};
use crate::errno::{Errno, Result};
use crate::fs::{
    ChangeContext, FallocateMode, FileOps, FileSystem, FsTraits, InodeOps, NameRef, NewKind,
    NewNode, RawDirEntry, Rename, RenameFlags, SetAttr, SpaceRights, Span, XattrFlags,
};
use crate::inode::{Inode, NewInode};
use crate::lock::{self, RwLock};

/// Bytes a block: the unit of allocation.
const BLOCK: u32 = 4096;
/// `RAMFS_MAGIC` of `linux/magic.h`.
const MAGIC: u32 = 0x8584_58f6;
const ROOT_INO: u64 = 1;
const NAME_MAX: usize = 255;

/// A file system in memory.
pub struct MemFs {
    nodes: RwLock<HashMap<u64, Arc<Node>>>,
    next_ino: AtomicU64,
    space: Space,
}

impl MemFs {
    /// Creates an empty file system. Its root directory belongs to the superuser, with mode 0755.
    pub fn new(limits: MemLimits) -> Arc<Self> {
        let new = NewNode {
            kind: NewKind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            acl: None,
            default_acl: None,
            now: Timespec::default(),
            rights: SpaceRights::ALL,
        };
        let attr = Attr {
            nlink: 2,
            ..attr_of(ROOT_INO, &new)
        };
        let root = Node::new(attr, Body::Dir(BiasedRwLock::new(Dir::new(ROOT_INO))), &new);
        Arc::new(Self {
            nodes: RwLock::new(HashMap::from([(ROOT_INO, Arc::new(root))])),
            next_ino: AtomicU64::new(ROOT_INO + 1),
            space: Space::new(limits),
        })
    }

    fn node(&self, ino: u64) -> Result<Arc<Node>> {
        lock::read(&self.nodes)
            .get(&ino)
            .cloned()
            .ok_or(Errno::ESTALE.into())
    }

    /// Frees an inode, unless that has been done.
    fn free(&self, inode: &Inode) {
        let node = lock::write(&self.nodes).remove(&inode.ino());
        if let Some(node) = node {
            // No user of the inode is left that could find it empty.
            if let Ok(mut data) = node.data_mut() {
                self.space.give_blocks(std::mem::take(&mut *data).blocks());
            }
            self.space.give_inode();
        }
    }

    /// Counts one more link; `EMLINK` if there cannot be one.
    fn add_link(&self, inode: &Inode) -> Result<()> {
        change(inode, |attr| {
            if attr.nlink >= self.space.limits().max_links {
                return Err(Errno::EMLINK.into());
            }
            attr.nlink += 1;
            Ok(())
        })
    }

    /// Fails with `EMLINK` if an inode cannot have one more link.
    fn room_for_link(&self, inode: &Inode) -> Result<()> {
        if inode.attr().nlink >= self.space.limits().max_links {
            Err(Errno::EMLINK.into())
        } else {
            Ok(())
        }
    }

    fn new_node(&self, dir: &Inode, nlink: u32, new: &NewNode<'_>) -> Result<Arc<Node>> {
        self.space.take_inode()?;
        // Relaxed: only uniqueness counts.
        let ino = self.next_ino.fetch_add(1, Ordering::Relaxed);
        let attr = Attr {
            nlink,
            ..attr_of(ino, new)
        };
        let node = Arc::new(Node::new(attr, Body::of(new.kind, dir.ino()), new));
        lock::write(&self.nodes).insert(ino, Arc::clone(&node));
        Ok(node)
    }

    /// Notes that the names in a directory have changed.
    fn names_changed(&self, dir: &Inode, links: i32, now: Timespec) -> Result<()> {
        change(dir, |attr| {
            // Others change names at the same time; the last to come here sees what all have done.
            attr.size = node_of(dir).dir()?.len() as u64;
            attr.nlink = attr.nlink.saturating_add_signed(links);
            (attr.mtime, attr.ctime) = (now, now);
            Ok(())
        })
    }
}

/// Returns the node of an inode of this file system.
fn node_of(inode: &Inode) -> &Arc<Node> {
    inode.private::<Arc<Node>>()
}

/// Changes attributes in the inode and in the node.
fn change<R>(inode: &Inode, edit: impl FnOnce(&mut Attr) -> R) -> R {
    let node = node_of(inode);
    inode.update(|attr| {
        let result = edit(attr);
        *lock::lock(&node.attr) = *attr;
        result
    })
}

/// Changes an ACL and attributes in the inode and in the node.
fn change_acl(inode: &Inode, kind: AclKind, acl: Option<Arc<Acl>>, edit: impl FnOnce(&mut Attr)) {
    let node = node_of(inode);
    node.set_acl(kind, acl.as_deref().cloned());
    inode.update_acl(kind, acl, |attr| {
        edit(attr);
        *lock::lock(&node.attr) = *attr;
    });
}

impl FileSystem for MemFs {
    fn traits(&self) -> FsTraits {
        FsTraits {
            name: "memfs",
            name_max: NAME_MAX,
            read_only: false,
            acl: true,
            fast_may_exec: true,
            casefold: false,
            bsd_groups: false,
            inode_bytes: size_of::<node::Node>(),
        }
    }

    fn root_ino(&self) -> u64 {
        ROOT_INO
    }

    fn read_inode(&self, ino: u64) -> Result<NewInode> {
        Ok(Node::to_inode(&self.node(ino)?))
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(self.space.statfs())
    }

    fn evict_inode(&self, inode: &Inode) {
        if inode.nlink() == 0 {
            self.free(inode);
        }
    }
}

impl InodeOps for MemFs {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<u64>> {
        Ok(node_of(dir).dir()?.get(name))
    }

    fn read_link(&self, inode: &Inode) -> Result<Box<[u8]>> {
        match &node_of(inode).body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        lock::read(&node_of(inode).xattrs)
            .get(name)
            .cloned()
            .ok_or(Errno::ENODATA.into())
    }

    fn list_xattr(&self, inode: &Inode, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        lock::read(&node_of(inode).xattrs)
            .keys()
            .for_each(|name| each(name));
        Ok(())
    }

    fn get_acl(&self, inode: &Inode, kind: AclKind) -> Result<Option<Acl>> {
        Ok(node_of(inode).acl(kind))
    }

    fn create(&self, dir: &Inode, name: Option<&[u8]>, new: &NewNode<'_>) -> Result<NewInode> {
        let is_dir = new.kind == NewKind::Directory;
        if is_dir {
            self.add_link(dir)?;
        }
        let nlink = match name {
            None => 0,
            Some(_) if is_dir => 2,
            Some(_) => 1,
        };
        let node = self.new_node(dir, nlink, new).inspect_err(|_| {
            if is_dir {
                change(dir, |attr| attr.nlink -= 1);
            }
        })?;
        if let Some(name) = name {
            let attr = *lock::lock(&node.attr);
            node_of(dir).dir_mut()?.insert(name, attr.kind, attr.ino);
            self.names_changed(dir, 0, new.now)?;
        }
        Ok(Node::to_inode(&node))
    }

    fn link(&self, inode: &Inode, to: NameRef<'_>, context: ChangeContext) -> Result<()> {
        let now = context.now;
        self.add_link(inode)?;
        node_of(to.dir)
            .dir_mut()?
            .insert(to.name, inode.kind(), inode.ino());
        self.names_changed(to.dir, 0, now)?;
        change(inode, |attr| attr.ctime = now);
        Ok(())
    }

    fn unlink(&self, from: NameRef<'_>, inode: &Inode, now: Timespec, is_last: bool) -> Result<()> {
        node_of(from.dir).dir_mut()?.remove(from.name);
        self.names_changed(from.dir, 0, now)?;
        lose_link(inode, now);
        if is_last {
            self.free(inode);
        }
        Ok(())
    }

    fn rmdir(&self, from: NameRef<'_>, inode: &Inode, now: Timespec) -> Result<()> {
        if !node_of(inode).dir()?.is_empty() {
            return Err(Errno::ENOTEMPTY.into());
        }
        node_of(from.dir).dir_mut()?.remove(from.name);
        self.names_changed(from.dir, -1, now)?;
        lose_link(inode, now);
        Ok(())
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        let Rename {
            from,
            inode,
            to,
            target,
            flags,
            ref whiteout,
            now,
            touches,
            ..
        } = *rename;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let same_dir = from.dir.ino() == to.dir.ino();
        let target_is_dir = target.is_some_and(Inode::is_dir);
        if let Some(target) = target.filter(|target| target.is_dir() && !exchange)
            && !node_of(target).dir()?.is_empty()
        {
            return Err(Errno::ENOTEMPTY.into());
        }
        // Subdirectories that each directory gains.
        let comes = i32::from(inode.is_dir()) - i32::from(target_is_dir);
        let goes = if exchange {
            -comes
        } else {
            -i32::from(inode.is_dir())
        };
        if !same_dir {
            for (dir, links) in [(to.dir, comes), (from.dir, goes)] {
                if links > 0 {
                    self.room_for_link(dir)?;
                }
            }
        }
        let whiteout = whiteout
            .as_ref()
            .map(|new| self.new_node(from.dir, 1, new))
            .transpose()?;
        let left = match whiteout {
            Some(node) => {
                let attr = *lock::lock(&node.attr);
                Some((attr.kind, attr.ino))
            }
            None => target
                .filter(|_| exchange)
                .map(|target| (target.kind(), target.ino())),
        };
        let moved = Some((inode.kind(), inode.ino()));
        let mut names = node_of(from.dir).dir_mut()?;
        names.set(from.name, left);
        if same_dir {
            // Both at once: a concurrent listing finds one of the two names.
            names.set(to.name, moved);
        }
        drop(names);
        if !same_dir {
            node_of(to.dir).dir_mut()?.set(to.name, moved);
        }
        set_parent(inode, to.dir)?;
        match target {
            Some(target) if exchange => {
                set_parent(target, from.dir)?;
                change(target, |attr| attr.ctime = now);
            }
            Some(target) => lose_link(target, now),
            None => {}
        }
        let both = if exchange {
            0
        } else {
            -i32::from(target_is_dir)
        };
        self.names_changed(from.dir, if same_dir { both } else { goes }, now)?;
        if !same_dir {
            self.names_changed(to.dir, comes, now)?;
        }
        if touches {
            change(inode, |attr| attr.ctime = now);
        }
        Ok(())
    }

    fn set_attr(&self, inode: &Inode, set: &SetAttr) -> Result<()> {
        if set.project.is_some_and(|project| project != 0) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let edit = |attr: &mut Attr| {
            attr.mode = set.mode.unwrap_or(attr.mode);
            attr.uid = set.uid.unwrap_or(attr.uid);
            attr.gid = set.gid.unwrap_or(attr.gid);
            attr.atime = set.atime.unwrap_or(attr.atime);
            attr.mtime = set.mtime.unwrap_or(attr.mtime);
            attr.ctime = set.ctime.unwrap_or(attr.ctime);
            if let Some(flags) = set.flags {
                let kept =
                    FileFlags::IMMUTABLE | FileFlags::APPEND | FileFlags::NOATIME | FileFlags::SYNC;
                attr.flags = flags & kept;
            }
        };
        match &set.acl {
            Some(acl) => change_acl(inode, AclKind::Access, Some(Arc::clone(acl)), edit),
            None => change(inode, edit),
        }
        Ok(())
    }

    fn set_xattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        context: ChangeContext,
    ) -> Result<()> {
        let now = context.now;
        let mut xattrs = lock::write(&node_of(inode).xattrs);
        match (value, xattrs.contains_key(name)) {
            (Some(_), true) if flags.contains(XattrFlags::CREATE) => {
                return Err(Errno::EEXIST.into());
            }
            (Some(_), false) if flags.contains(XattrFlags::REPLACE) => {
                return Err(Errno::ENODATA.into());
            }
            (None, false) => return Err(Errno::ENODATA.into()),
            (Some(value), _) => drop(xattrs.insert(name.to_vec(), value.to_vec())),
            (None, true) => drop(xattrs.remove(name)),
        }
        drop(xattrs);
        change(inode, |attr| attr.ctime = now);
        Ok(())
    }

    fn set_acl(
        &self,
        inode: &Inode,
        kind: AclKind,
        acl: Option<Arc<Acl>>,
        mode: Option<u16>,
        context: ChangeContext,
    ) -> Result<()> {
        let now = context.now;
        change_acl(inode, kind, acl, |attr| {
            attr.mode = mode.unwrap_or(attr.mode);
            attr.ctime = now;
        });
        Ok(())
    }
}

/// Removes a link; a directory, which has two, loses both.
fn lose_link(inode: &Inode, now: Timespec) {
    change(inode, |attr| {
        attr.nlink = if attr.kind == FileType::Directory {
            0
        } else {
            attr.nlink.saturating_sub(1)
        };
        attr.ctime = now;
    });
}

/// Makes `..` of a directory lead to `parent`.
fn set_parent(inode: &Inode, parent: &Inode) -> Result<()> {
    if inode.is_dir() {
        node_of(inode).dir_mut()?.set_parent(parent.ino());
    }
    Ok(())
}

impl FileOps for MemFs {
    fn read_at(&self, inode: &Inode, buf: &mut [u8], offset: u64) -> Result<usize> {
        // Under the data lock, so that the size fits the data.
        let data = node_of(inode).data()?;
        Ok(data.read_at(buf, offset))
    }

    fn span_at(&self, inode: &Inode, offset: u64) -> Result<Option<Span>> {
        Ok(node_of(inode).data()?.span_at(offset))
    }

    fn read_dir(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(RawDirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        node_of(dir).dir()?.list(dir.ino(), cookie, each);
        Ok(())
    }

    fn write_at(
        &self,
        inode: &Inode,
        bytes: &[u8],
        offset: u64,
        context: ChangeContext,
    ) -> Result<usize> {
        let now = context.now;
        let mut data = node_of(inode).data_mut()?;
        let written = data.write_at(bytes, offset, &self.space)?;
        finish(inode, &data, now);
        Ok(written)
    }

    fn overwrite(
        &self,
        inode: &Inode,
        bytes: &[u8],
        offset: u64,
        apart: &mut dyn FnMut(),
    ) -> Result<bool> {
        Ok(node_of(inode).data()?.overwrite(bytes, offset, apart))
    }

    fn truncate(&self, inode: &Inode, size: u64, context: ChangeContext) -> Result<()> {
        let now = context.now;
        let mut data = node_of(inode).data_mut()?;
        data.set_len(size, &self.space);
        finish(inode, &data, now);
        Ok(())
    }

    fn fallocate(
        &self,
        inode: &Inode,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        context: ChangeContext,
    ) -> Result<()> {
        let now = context.now;
        let mut data = node_of(inode).data_mut()?;
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        let keep = mode.contains(FallocateMode::KEEP_SIZE);
        match mode - FallocateMode::KEEP_SIZE {
            shape if shape.is_empty() => data.allocate(offset, end, &self.space)?,
            FallocateMode::PUNCH_HOLE => data.punch(offset, end, &self.space),
            FallocateMode::ZERO_RANGE => {
                data.punch(offset, end, &self.space);
                data.allocate(offset, end, &self.space)?;
            }
            _ => return Err(Errno::EOPNOTSUPP.into()),
        }
        if !keep && end > data.len() {
            data.set_len(end, &self.space);
        }
        finish(inode, &data, now);
        Ok(())
    }
}

/// Updates size, blocks and times in the attributes after a change of the data.
fn finish(inode: &Inode, data: &data::Data, now: Timespec) {
    change(inode, |attr| {
        attr.size = data.len();
        attr.blocks = data.blocks() * u64::from(BLOCK / 512);
        (attr.mtime, attr.ctime) = (now, now);
    });
}
