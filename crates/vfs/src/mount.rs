//! Mounts: the file systems that are attached to a tree, and their places in it.
//!
//! Hosts mount file systems here, walks cross mount points, and each call that changes files takes
//! a `WriteGuard` first. While that lives, neither the mount nor its file system becomes read-only.
//!
//! A [`Namespace`] is a tree of mounts that sessions share. A [`Location`] is a place in it: a
//! dentry, and the mount it was reached through. A dentry that something is mounted on says so
//! itself, so that a path walk looks into the mount table only there.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use extern4_sync::primitive::{AtomicU64, Ordering};
use extern4_sync::rcu_arc::RcuArc;
use extern4_sync::thread_arc::{ThreadArc, ThreadArcOwner};

use crate::attr::{Attr, FileType};
use crate::dentry::Dentry;
use crate::errno::{Errno, Result};
use crate::inode::Inode;
use crate::lock::{self, RwLock};
use crate::open_files::write_gate::Changing;
use crate::superblock::{SuperBlock, directory};

/// A file system that is attached at one place.
pub struct Mount {
    id: u64,
    sb: Arc<SuperBlock>,
    /// The directory on which it is mounted; `None` for the first mount of a namespace.
    at: Option<Location>,
    read_only: bool,
}

/// A counted reference to a mount, which threads take and give up without writing what others use.
pub type MountRef = ThreadArc<Mount>;

impl Mount {
    /// Returns the file system.
    pub fn superblock(&self) -> &Arc<SuperBlock> {
        &self.sb
    }

    /// Returns whether this mount forbids changes at present.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.sb.is_read_only()
    }

    /// Fails with `EROFS` if this mount itself is read-only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            Err(Errno::EROFS.into())
        } else {
            Ok(())
        }
    }

    pub(crate) fn root(&self) -> &RcuArc<Dentry> {
        self.sb.root()
    }

    /// Returns the directory on which it is mounted.
    pub(crate) fn at(&self) -> Option<&Location> {
        self.at.as_ref()
    }
}

/// A change under way. While this lives, the file system stays writable.
pub(crate) struct WriteGuard<'a> {
    _changing: Changing<'a>,
}

impl<'a> WriteGuard<'a> {
    /// Begins a change. Fails with `EROFS` if nothing may be changed through this mount, and with
    /// `EIO` after a shutdown.
    pub(crate) fn take(mount: &'a Mount) -> Result<Self> {
        mount.check_writable()?;
        Ok(Self {
            _changing: mount.superblock().write_gate.change()?,
        })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(at) = &self.at {
            at.dentry.state.remove_mount();
        }
    }
}

/// A place: something that exists, reached through a mount. Holding it keeps both in memory, also
/// past removal.
#[derive(Clone)]
pub struct Location {
    // The dentry is dropped first, so that no inode is in use when the last reference to a mount is
    // dropped.
    pub(crate) dentry: RcuArc<Dentry>,
    pub(crate) mount: MountRef,
}

impl Location {
    /// Returns the mount it was reached through.
    pub fn mount(&self) -> &MountRef {
        &self.mount
    }

    /// Returns the file system it is in.
    pub fn superblock(&self) -> &Arc<SuperBlock> {
        &self.mount.sb
    }

    /// Returns the inode.
    pub fn inode(&self) -> &Inode {
        directory(&self.dentry)
    }

    /// Returns the inode number.
    pub fn ino(&self) -> u64 {
        self.inode().ino()
    }

    /// Returns the type of the file.
    pub fn kind(&self) -> FileType {
        self.inode().kind()
    }

    /// Returns the attributes.
    pub fn attr(&self) -> Attr {
        self.inode().attr()
    }

    /// Returns whether both are one dentry, reached through one mount.
    pub fn is(&self, other: &Location) -> bool {
        self.dentry.ptr_eq(&other.dentry) && self.mount.ptr_eq(&other.mount)
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location")
            .field("mount", &self.mount.id)
            .field("ino", &self.ino())
            .finish()
    }
}

/// A tree of mounts.
pub struct Namespace {
    root: ThreadArcOwner<Mount>,
    /// The mounts, by the mount and the dentry that they are on.
    mounts: RwLock<HashMap<(u64, u64), ThreadArcOwner<Mount>>>,
    next_id: AtomicU64,
    next_session: AtomicU64,
}

impl Namespace {
    /// Returns a namespace of one file system.
    pub fn new(sb: Arc<SuperBlock>) -> Arc<Self> {
        let root = ThreadArcOwner::new(Mount {
            id: 0,
            sb,
            at: None,
            read_only: false,
        });
        Arc::new(Self {
            root,
            mounts: RwLock::default(),
            next_id: AtomicU64::new(1),
            next_session: AtomicU64::new(1),
        })
    }

    /// Returns a number for a new session.
    pub(crate) fn next_session(&self) -> u64 {
        // Relaxed: only uniqueness counts.
        self.next_session.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the file system at its root.
    pub fn superblock(&self) -> &Arc<SuperBlock> {
        &self.root.sb
    }

    /// Its root.
    pub fn root(&self) -> Location {
        Location {
            mount: self.root.thread_ref(),
            dentry: self.root.root().clone(),
        }
    }

    /// Mounts a file system on a directory: from now on walks find its root there. `ENOTDIR` on
    /// anything else, `EBUSY` where something is mounted already, `ENOENT` on a directory that was
    /// removed, `ENOSPC` for half a million mounts on one directory.
    ///
    /// # Errors
    /// As above.
    pub fn mount(&self, at: &Location, sb: Arc<SuperBlock>, read_only: bool) -> Result<MountRef> {
        let inode = at.inode();
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        // Exclusive: `rmdir` holds this, and first checks for mounts on the directory.
        let _names = inode.lock_exclusive();
        if inode.perm().dead() {
            return Err(Errno::ENOENT.into());
        }
        let mut mounts = lock::write(&self.mounts);
        let key = (at.mount.id, at.dentry.id());
        if mounts.contains_key(&key) {
            return Err(Errno::EBUSY.into());
        }
        if !at.dentry.state.add_mount() {
            return Err(Errno::ENOSPC.into());
        }
        // Relaxed: only uniqueness counts.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let owner = ThreadArcOwner::new(Mount {
            id,
            sb,
            at: Some(at.clone()),
            read_only,
        });
        let mount = owner.thread_ref();
        mounts.insert(key, owner);
        Ok(mount)
    }

    /// Removes the mount whose root is `at`. `EINVAL` if `at` is no root of a mount or that of the
    /// namespace, `EBUSY` if another user has a reference to the mount.
    ///
    /// # Errors
    /// As above.
    pub fn unmount(&self, at: Location) -> Result<()> {
        let Location { mount, dentry } = at;
        let is_root = mount.root().ptr_eq(&dentry);
        drop(dentry);
        let Some(on) = mount.at.as_ref().filter(|_| is_root) else {
            return Err(Errno::EINVAL.into());
        };
        let key = (on.mount.id, on.dentry.id());
        let mut mounts = lock::write(&self.mounts);
        // The table's and the caller's; a mount below, an open file or a session would have more.
        if mount.count().ok_or(Errno::ENOMEM)? > 2 {
            return Err(Errno::EBUSY.into());
        }
        let removed = mounts.remove(&key);
        drop(mounts);
        drop(removed);
        Ok(())
    }

    /// Returns every mount but the first.
    pub fn mounts(&self) -> Vec<MountRef> {
        lock::read(&self.mounts)
            .values()
            .map(ThreadArcOwner::thread_ref)
            .collect()
    }

    /// Returns the mount on `dentry` of `mount`.
    pub(crate) fn mounted_on(&self, mount: &Mount, dentry: &Dentry) -> Option<MountRef> {
        // A thread that mounts and then tells another thread synchronises by that.
        if !dentry.is_mountpoint() {
            return None;
        }
        lock::read(&self.mounts)
            .get(&(mount.id, dentry.id()))
            .map(ThreadArcOwner::thread_ref)
    }

    /// Returns the path of a location as seen from `root`: from the mount tree's root if it does
    /// not lie below that. A removed file gets the suffix ` (deleted)`.
    pub fn path_of(&self, location: &Location, root: &Location) -> Vec<u8> {
        let mut names = Vec::new();
        let deleted = location.dentry.is_gone();
        let mut at = location.clone();
        while !at.is(root) {
            if at.dentry.ptr_eq(at.mount.root()) {
                match at.mount.at.clone() {
                    Some(on) => at = on,
                    None => break,
                }
                continue;
            }
            let (parent, name) = at.dentry.place();
            names.push(name);
            match parent {
                Some(parent) => at.dentry = parent,
                None => break,
            }
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        if deleted {
            path.extend_from_slice(b" (deleted)");
        }
        path
    }
}
