//! Directory entries in memory.
//!
//! A dentry binds a name in a directory to an inode, or to nothing: a negative dentry remembers that the name is not
//! there. What it binds never changes; another dentry takes its place in the cache instead. Only where it hangs changes,
//! when it is renamed.
//!
//! A dentry holds its parent, so the way up to the root exists as long as anybody uses one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use extern4_sync::primitive::{AtomicBool, AtomicU32, Ordering};

use crate::inode::Inode;
use crate::lock;
use crate::name::Name;

pub(crate) struct Dentry {
    id: u64,
    inode: Option<Arc<Inode>>,
    /// Mounts on this dentry, in whatever namespace: a hint whether to look into the mount table.
    pub(crate) mounts: AtomicU32,
    /// Found since the reclaiming hand last came by.
    pub(crate) referenced: AtomicBool,
    /// The name was removed.
    gone: AtomicBool,
    place: Mutex<Place>,
    /// Hashes of the negative dentries below, oldest first.
    pub(crate) negatives: Mutex<VecDeque<u64>>,
}

/// Where a dentry hangs. The root has no parent.
#[derive(Clone)]
struct Place {
    parent: Option<Arc<Dentry>>,
    name: Name,
}

impl Dentry {
    pub(crate) fn root(id: u64, inode: Arc<Inode>) -> Self {
        Self::build(id, Some(inode), Place { parent: None, name: Name::new(b"") })
    }

    pub(crate) fn new(id: u64, parent: &Arc<Dentry>, name: &[u8], inode: Option<Arc<Inode>>) -> Self {
        Self::build(id, inode, Place { parent: Some(Arc::clone(parent)), name: Name::new(name) })
    }

    fn build(id: u64, inode: Option<Arc<Inode>>, place: Place) -> Self {
        Self {
            id,
            inode,
            mounts: AtomicU32::new(0),
            referenced: AtomicBool::new(true),
            gone: AtomicBool::new(false),
            place: Mutex::new(place),
            negatives: Mutex::default(),
        }
    }

    /// Tells dentries of one file system apart; never used twice.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// What the name stands for; `None` in a negative dentry.
    pub(crate) fn inode(&self) -> Option<&Arc<Inode>> {
        self.inode.as_ref()
    }

    pub(crate) fn parent(&self) -> Option<Arc<Dentry>> {
        lock::lock(&self.place).parent.clone()
    }

    /// Parent and name, of one moment.
    pub(crate) fn place(&self) -> (Option<Arc<Dentry>>, Name) {
        let place = lock::lock(&self.place).clone();
        (place.parent, place.name)
    }

    /// Hangs the dentry elsewhere. Locks: both directories exclusive.
    pub(crate) fn move_to(&self, parent: &Arc<Dentry>, name: &[u8]) {
        let new = Place { parent: Some(Arc::clone(parent)), name: Name::new(name) };
        let old = std::mem::replace(&mut *lock::lock(&self.place), new);
        // Outside of the lock: this may be the last reference to the old parent.
        drop(old);
    }

    /// Something is mounted here, in some namespace.
    pub(crate) fn is_mountpoint(&self) -> bool {
        // Relaxed: who mounts on a directory holds its `rwsem`, and so does who asks this before removing it.
        self.mounts.load(Ordering::Relaxed) > 0
    }

    /// The name has been removed.
    pub(crate) fn is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `mark_gone`.
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn mark_gone(&self) {
        // Release: who sees the mark sees the removal that came before it.
        self.gone.store(true, Ordering::Release);
    }

    /// Is `other`, or lies above it.
    pub(crate) fn is_ancestor_of(self: &Arc<Self>, other: &Arc<Dentry>) -> bool {
        let mut at = Some(Arc::clone(other));
        while let Some(dentry) = at {
            if Arc::ptr_eq(self, &dentry) {
                return true;
            }
            at = dentry.parent();
        }
        false
    }
}

impl Drop for Dentry {
    fn drop(&mut self) {
        // A chain of last references, as deep as a path may be, goes in a loop: recursion could exhaust the stack.
        let take = |dentry: &mut Dentry| {
            let place = dentry.place.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            place.parent.take()
        };
        let mut next = take(self);
        while let Some(parent) = next {
            next = Arc::into_inner(parent).and_then(|mut dentry| take(&mut dentry));
        }
    }
}

impl fmt::Debug for Dentry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ino = self.inode.as_ref().map(|inode| inode.ino());
        f.debug_struct("Dentry").field("id", &self.id).field("ino", &ino).finish_non_exhaustive()
    }
}
