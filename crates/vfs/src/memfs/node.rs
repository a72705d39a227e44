//! A node: an inode of a file system in memory, with its attributes, ACLs and contents.
//!
//! `MemFs` keeps nodes in a table by number. A node stays while it has links or the VFS has its
//! inode in use, and no later node gets its number. Each part of a node has a separate lock,
//! which keeps that part whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use extern4_acl::{Acl, AclKind};
use extern4_sync::biased_rwlock::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard};

use super::BLOCK;
use super::data::Data;
use super::dir::Dir;
use crate::attr::{Attr, FileFlags, Rdev};
use crate::errno::{Errno, Result};
use crate::fs::{NewKind, NewNode};
use crate::inode::NewInode;
use crate::lock::{self, Mutex, RwLock};
use crate::xattr;

pub(super) struct Node {
    pub(super) attr: Mutex<Attr>,
    pub(super) body: Body,
    pub(super) xattrs: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    acls: Mutex<Acls>,
}

#[derive(Default)]
struct Acls {
    access: Option<Acl>,
    default: Option<Acl>,
}

pub(super) enum Body {
    File(BiasedRwLock<Data>),
    Dir(BiasedRwLock<Dir>),
    Link(Box<[u8]>),
    Special,
}

impl Body {
    pub(super) fn of(kind: NewKind<'_>, parent: u64) -> Self {
        match kind {
            NewKind::Regular => Self::File(BiasedRwLock::default()),
            NewKind::Directory => Self::Dir(BiasedRwLock::new(Dir::new(parent))),
            NewKind::Symlink(target) => Self::Link(target.into()),
            NewKind::CharDevice(_) | NewKind::BlockDevice(_) | NewKind::Fifo | NewKind::Socket => {
                Self::Special
            }
        }
    }
}

/// Returns the attributes of a new inode, still without links.
pub(super) fn attr_of(ino: u64, new: &NewNode<'_>) -> Attr {
    let rdev = match new.kind {
        NewKind::CharDevice(rdev) | NewKind::BlockDevice(rdev) => rdev,
        _ => Rdev::default(),
    };
    let size = match new.kind {
        NewKind::Symlink(target) => target.len() as u64,
        _ => 0,
    };
    Attr {
        ino,
        generation: 0,
        kind: new.kind.file_type(),
        mode: new.mode,
        uid: new.uid,
        gid: new.gid,
        nlink: 0,
        rdev,
        size,
        blocks: 0,
        blksize: BLOCK,
        atime: new.now,
        mtime: new.now,
        ctime: new.now,
        btime: Some(new.now),
        flags: FileFlags::empty(),
        project: 0,
    }
}

impl Node {
    pub(super) fn new(attr: Attr, body: Body, new: &NewNode<'_>) -> Self {
        let acls = Acls {
            access: new.acl.cloned(),
            default: new.default_acl.cloned(),
        };
        Self {
            attr: Mutex::new(attr),
            body,
            xattrs: RwLock::default(),
            acls: Mutex::new(acls),
        }
    }

    pub(super) fn to_inode(node: &Arc<Self>) -> NewInode {
        let no_acl = {
            let acls = lock::lock(&node.acls);
            acls.access.is_none() && acls.default.is_none()
        };
        let no_caps = !lock::read(&node.xattrs).contains_key(xattr::CAPABILITY);
        NewInode {
            attr: *lock::lock(&node.attr),
            no_acl,
            no_caps,
            private: Box::new(Arc::clone(node)),
        }
    }

    pub(super) fn dir(&self) -> Result<BiasedReadGuard<'_, Dir>> {
        match &self.body {
            Body::Dir(dir) => Ok(dir.read()),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    pub(super) fn dir_mut(&self) -> Result<BiasedWriteGuard<'_, Dir>> {
        match &self.body {
            Body::Dir(dir) => Ok(dir.write()),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    pub(super) fn data(&self) -> Result<BiasedReadGuard<'_, Data>> {
        match &self.body {
            Body::File(data) => Ok(data.read()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn data_mut(&self) -> Result<BiasedWriteGuard<'_, Data>> {
        match &self.body {
            Body::File(data) => Ok(data.write()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn acl(&self, kind: AclKind) -> Option<Acl> {
        let acls = lock::lock(&self.acls);
        match kind {
            AclKind::Access => acls.access.clone(),
            AclKind::Default => acls.default.clone(),
        }
    }

    pub(super) fn set_acl(&self, kind: AclKind, acl: Option<Acl>) {
        let mut acls = lock::lock(&self.acls);
        match kind {
            AclKind::Access => acls.access = acl,
            AclKind::Default => acls.default = acl,
        }
    }
}
