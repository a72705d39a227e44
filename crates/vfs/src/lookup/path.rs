//! The types that both walks share: references to a place in the tree, and the last component of a
//! path.
//!
//! A [`PathRef`] or [`InodeRef`] keeps its inode in use while it lives. Where a walk ends in its
//! starting directory, it borrows the caller's reference and counts nothing. Creation, links,
//! renames and changes of attributes work on these types; so no such call sees which walk found its
//! file.

use std::ops::{Deref, Range};
use std::sync::Arc;

use extern4_sync::rcu_arc::RcuArc;

use crate::dentry::Dentry;
use crate::inode::Inode;
use crate::mount::{Location, MountRef};
use crate::superblock::{SuperBlock, directory, keep_inode};

/// A counted reference that costs nothing until a walk has left the place where it started.
pub(crate) enum Ref<'a, P> {
    Borrowed(&'a P),
    Owned(P),
}

impl<P: Clone> Ref<'_, P> {
    fn into_owned(self) -> P {
        match self {
            Self::Borrowed(counted) => counted.clone(),
            Self::Owned(counted) => counted,
        }
    }
}

impl<P> Deref for Ref<'_, P> {
    type Target = P;

    fn deref(&self) -> &P {
        match self {
            Self::Borrowed(counted) => counted,
            Self::Owned(counted) => counted,
        }
    }
}

/// A place in the tree: a positive dentry, and the mount through which the walk reached it.
/// [`Location`] is the form that callers keep.
pub(crate) struct PathRef<'a> {
    pub(crate) mount: Ref<'a, MountRef>,
    pub(crate) dentry: Ref<'a, RcuArc<Dentry>>,
}

impl<'a> PathRef<'a> {
    pub(crate) fn borrow(location: &'a Location) -> Self {
        Self {
            mount: Ref::Borrowed(&location.mount),
            dentry: Ref::Borrowed(&location.dentry),
        }
    }

    pub(crate) fn inode(&self) -> &Inode {
        directory(&self.dentry)
    }

    pub(crate) fn sb(&self) -> &Arc<SuperBlock> {
        self.mount.superblock()
    }

    pub(crate) fn into_location(self) -> Location {
        Location {
            mount: self.mount.into_owned(),
            dentry: self.dentry.into_owned(),
        }
    }

    pub(super) fn is(&self, other: &Location) -> bool {
        self.dentry.ptr_eq(&other.dentry) && self.mount.ptr_eq(&other.mount)
    }
}

/// An inode, and the mount through which the walk reached it. For operations on the file alone:
/// they do not depend on its name, so the dentry of the name is not counted.
pub(crate) struct InodeRef<'a> {
    pub(crate) mount: Ref<'a, MountRef>,
    inode: InodeOwner<'a>,
}

/// The reference that keeps an inode in use.
enum InodeOwner<'a> {
    Dentry(Ref<'a, RcuArc<Dentry>>),
    Inode(RcuArc<Inode>),
}

impl<'a> InodeRef<'a> {
    pub(super) fn new(mount: &'a MountRef, inode: RcuArc<Inode>) -> Self {
        Self {
            mount: Ref::Borrowed(mount),
            inode: InodeOwner::Inode(inode),
        }
    }

    pub(crate) fn inode(&self) -> &Inode {
        match &self.inode {
            InodeOwner::Dentry(dentry) => directory(dentry),
            InodeOwner::Inode(inode) => inode,
        }
    }

    pub(crate) fn sb(&self) -> &Arc<SuperBlock> {
        self.mount.superblock()
    }

    /// Returns another reference to the inode.
    pub(crate) fn keep(&self) -> RcuArc<Inode> {
        match &self.inode {
            InodeOwner::Dentry(dentry) => keep_inode(dentry),
            InodeOwner::Inode(inode) => inode.clone(),
        }
    }
}

impl<'a> From<PathRef<'a>> for InodeRef<'a> {
    fn from(path: PathRef<'a>) -> Self {
        Self {
            mount: path.mount,
            inode: InodeOwner::Dentry(path.dentry),
        }
    }
}

/// A directory on a path from which a walk with references goes on. The caller may search it.
pub(crate) struct ResumePoint<'a> {
    pub(super) dir: PathRef<'a>,
    /// The offset in the path of the next component.
    pub(super) offset: usize,
    /// The number of symbolic links that were followed on the way.
    pub(super) links: u32,
    /// Whether the cache has been found to lack the component.
    pub(super) is_unknown: bool,
}

/// A text of components: the caller's path, or the target of a symbolic link.
#[derive(Clone)]
pub(super) enum PathText<'a> {
    Path(&'a [u8]),
    Link(Arc<[u8]>),
}

impl PathText<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Path(bytes) => bytes,
            Self::Link(bytes) => bytes,
        }
    }
}

/// The last component of a path.
pub(crate) struct LastComponent<'a> {
    pub(super) text: PathText<'a>,
    pub(super) name: Range<usize>,
    /// Slashes come after it: it must be a directory.
    pub(crate) slash: bool,
}

impl<'a> LastComponent<'a> {
    /// Returns the component in this range of `path`. Only slashes come after it.
    pub(super) fn new(path: &'a [u8], name: Range<usize>) -> Self {
        Self {
            slash: name.end < path.len(),
            text: PathText::Path(path),
            name,
        }
    }

    pub(crate) fn component(&self) -> Component<'_> {
        Component::of(&self.text.bytes()[self.name.clone()])
    }
}

/// The directory of a path's last component, and that component.
pub(crate) struct ParentRef<'a> {
    pub(crate) dir: PathRef<'a>,
    pub(crate) last: LastComponent<'a>,
}

/// The kind of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component<'n> {
    /// There is none: the walk ends where it stands.
    None,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// A name.
    Name(&'n [u8]),
}

impl<'n> Component<'n> {
    pub(super) fn of(name: &'n [u8]) -> Self {
        match name {
            b"" => Self::None,
            b"." => Self::Dot,
            b".." => Self::DotDot,
            name => Self::Name(name),
        }
    }
}
