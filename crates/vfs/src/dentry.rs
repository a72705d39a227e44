//! Directory entries in memory.
//!
//! `dcache` makes and binds dentries, the walks step along them, and a `Location` holds one in use.
//!
//! A dentry binds a name in a directory to an inode, or to nothing: a negative dentry remembers
//! that the name is not there. This inode never changes; another dentry takes its place in the
//! cache instead. A rename changes parent and name together: the place of a dentry is one RCU
//! pointer.
//!
//! A positive dentry in use keeps its parent in use. So the path up to the root exists as long as
//! one dentry of it is used. When its last reference goes, it releases parent and inode at once.
//! RCU readers may go on reading all three.

#![expect(unsafe_code, reason = "gives up leases, which readers may still look through")]

use std::fmt;

use extern4_sync::primitive::{AtomicBool, AtomicU32, Ordering};
use extern4_sync::rcu::{Guard, Rcu, pin};
use extern4_sync::rcu_arc::{RcuArc, RcuRef, ReleasableArc, Release};

use crate::inode::Inode;
use crate::name::Name;

/// A directory entry. The fields that path walks read come first.
#[repr(C)]
pub(crate) struct Dentry {
    id: u64,
    inode: Option<ReleasableArc<Inode>>,
    /// Mounts on this dentry, in whatever namespace: a hint whether to look into the mount table.
    pub(crate) mounts: AtomicU32,
    /// Whether the name was removed.
    gone: AtomicBool,
    place: Rcu<Place>,
}

/// The position of a dentry in the tree. The root and negative dentries have no parent.
struct Place {
    parent: Option<ReleasableArc<Dentry>>,
    name: Name,
}

impl Dentry {
    /// Memory of a dentry with its place.
    pub(crate) const BYTES: usize = size_of::<Self>() + size_of::<Place>();

    pub(crate) fn root(id: u64, inode: RcuArc<Inode>) -> Self {
        Self::build(id, Some(inode), Place { parent: None, name: Name::new(b"") })
    }

    pub(crate) fn new(id: u64, parent: &RcuArc<Dentry>, name: &[u8], inode: RcuArc<Inode>) -> Self {
        Self::build(id, Some(inode), Place::new(parent, name))
    }

    /// Returns a negative dentry. Only the cache knows its directory and its name.
    pub(crate) fn negative(id: u64) -> Self {
        Self::build(id, None, Place { parent: None, name: Name::new(b"") })
    }

    /// Returns a dentry that no name leads to. Its path ends in the number of the inode.
    pub(crate) fn nameless(id: u64, parent: &RcuArc<Dentry>, inode: RcuArc<Inode>) -> Self {
        let name = format!("#{}", inode.ino());
        let dentry = Self::new(id, parent, name.as_bytes(), inode);
        dentry.mark_gone();
        dentry
    }

    fn build(id: u64, inode: Option<RcuArc<Inode>>, place: Place) -> Self {
        Self {
            id,
            inode: inode.map(ReleasableArc::new),
            mounts: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            place: Rcu::new(place),
        }
    }

    /// Returns the number of the dentry, which no other dentry of its file system ever has.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the inode; `None` in a negative dentry.
    #[inline]
    pub(crate) fn inode(&self) -> Option<&Inode> {
        self.inode.as_ref().map(|lease| lease.get().get())
    }

    /// Returns a reference to the inode, unless the dentry is no longer in use.
    pub(crate) fn hold_inode(&self) -> Option<RcuArc<Inode>> {
        self.inode.as_ref()?.get().try_upgrade()
    }

    /// Returns the directory that it is in, for an RCU reader.
    #[inline]
    pub(crate) fn see_parent<'g>(&'g self, guard: &'g Guard) -> Option<RcuRef<'g, Dentry>> {
        self.place.load(guard).parent.as_ref().map(ReleasableArc::get)
    }

    pub(crate) fn parent(&self) -> Option<RcuArc<Dentry>> {
        self.place().0
    }

    /// Returns parent and name, of one moment. The caller keeps the dentry in use.
    pub(crate) fn place(&self) -> (Option<RcuArc<Dentry>>, Name) {
        loop {
            let guard = pin();
            let place = self.place.load(&guard);
            match &place.parent {
                None => return (None, place.name.clone()),
                // If the parent is no longer in use, the dentry has just been moved, and the loop
                // finds its new place.
                Some(lease) => {
                    if let Some(parent) = lease.get().try_upgrade() {
                        return (Some(parent), place.name.clone());
                    }
                }
            }
        }
    }

    /// Moves the dentry to another place. Locks: its name, and the new one.
    pub(crate) fn move_to(&self, parent: &RcuArc<Dentry>, name: &[u8]) {
        let guard = pin();
        let lease =
            self.place.load(&guard).parent.as_ref().filter(|lease| lease.get().ptr_eq(parent.as_rcu_ref()));
        let place = match lease {
            None => Place::new(parent, name),
            // SAFETY: the caller has the name of the dentry locked, so no other thread moves it,
            // and it is in use.
            Some(lease) => Place { parent: unsafe { lease.transfer() }, name: Name::new(name) },
        };
        let old = self.place.swap(place, &guard);
        if let Some(inode) = self.inode().filter(|inode| inode.is_dir()) {
            inode.move_alias(self.id, parent.id(), name);
        }
        if let Some(lease) = &old.parent {
            // SAFETY: the place it stands in has just been replaced, so only readers pinned before
            // can reach it.
            unsafe { lease.release() };
        }
    }

    /// Returns whether something is mounted on it, in any namespace.
    #[inline]
    pub(crate) fn is_mountpoint(&self) -> bool {
        // Relaxed: a thread that mounts on a directory holds its `rwsem`, and so does one that asks
        // this before it removes the directory.
        self.mounts.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the name has been removed.
    pub(crate) fn is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `mark_gone`.
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn mark_gone(&self) {
        // Release: a thread that sees the mark sees the removal that came before it.
        self.gone.store(true, Ordering::Release);
        if let Some(inode) = self.inode() {
            inode.forget_alias(self.id);
        }
    }
}

/// Returns whether `above` is `below`, or lies above it.
pub(crate) fn is_ancestor(above: &RcuArc<Dentry>, below: &RcuArc<Dentry>) -> bool {
    let mut at = Some(below.clone());
    while let Some(dentry) = at {
        if dentry.ptr_eq(above) {
            return true;
        }
        at = dentry.parent();
    }
    false
}

impl Place {
    fn new(parent: &RcuArc<Dentry>, name: &[u8]) -> Self {
        Self { parent: Some(ReleasableArc::new(parent.clone())), name: Name::new(name) }
    }
}

impl Release for Dentry {
    fn release(&self) {
        if let Some(lease) = &self.inode {
            lease.get().forget_alias(self.id);
            // SAFETY: this dentry has no references any more, and the cache's links to it are
            // empty.
            unsafe { lease.release() };
        }
        if let Some(lease) = &self.place.load(&pin()).parent {
            // SAFETY: as above; a dentry without references is not moved.
            unsafe { lease.release() };
        }
    }
}

impl fmt::Debug for Dentry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dentry").field("id", &self.id).finish_non_exhaustive()
    }
}
