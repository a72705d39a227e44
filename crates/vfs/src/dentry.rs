//! Directory entries in memory.
//!
//! `dcache` makes and binds dentries, the walks step along them, and a `Location` holds one in use.
//!
//! A dentry binds a name in a directory to an inode, or to nothing: a negative dentry remembers
//! that the name is not there. The cache finds it by its key: the directory and the name. The
//! dentry holds the name, and its link in the cache's table the hash of both. Two keys of one name
//! and one hash are of one directory ([`in_directory`]), so the dentry does not keep the
//! directory's number. Both binding and key may change, but only while the name is hidden
//! ([`DentryState`], `dcache`):
//!
//! - A negative dentry becomes positive when its name is made. A positive one becomes negative when
//!   its name is removed and it has no other user. One that is in use, or stands for a directory,
//!   keeps its inode, and another dentry takes its place in the cache. So a dentry in use never
//!   loses its inode, and stands for one directory at most.
//! - A rename gives a dentry another parent and another name.
//!
//! A positive dentry in use keeps its parent in use. So the path up to the root exists as long as
//! one dentry of it is used. When its last reference goes, it releases parent and inode at once;
//! RCU readers may go on reading all three. A negative dentry does not keep its directory, so that
//! a removed directory goes with its last user. No walk finds the negative dentries of such a
//! directory again, because no other dentry ever has its number.
//!
//! [`in_directory`]: crate::name::in_directory

#![expect(
    unsafe_code,
    reason = "reads the inode of a dentry in use without a guard"
)]

use std::fmt;

use extern4_sync::primitive::thread;
use extern4_sync::rcu::{Guard, pin};
use extern4_sync::rcu_arc::{AtomicRcuArc, FirstPacked, RcuArc, RcuRef, Release};

use crate::dentry_state::DentryState;
use crate::inode::Inode;
use crate::name::{DentryName, Scanned};

/// A directory entry, in two cache lines. The first, which begins with the link in the cache's
/// table, holds what walks read of names of fewer than 16 bytes. The second ends with the count.
/// So holders of a dentry, which write the count, disturb walks by its name only if that is longer,
/// and walks from it through `..`.
#[repr(C)]
pub(crate) struct Dentry {
    pub(crate) state: DentryState,
    id: u64,
    inode: AtomicRcuArc<Inode>,
    name: DentryName,
    /// The directory's dentry; none in the root and in a negative dentry.
    parent: AtomicRcuArc<Dentry>,
}

const _: () = assert!(
    RcuArc::<Dentry>::BYTES == 128
        // Words of models are larger.
        || cfg!(any(feature = "loom", feature = "audit", not(target_pointer_width = "64")))
);

impl Dentry {
    pub(crate) fn root(id: u64, inode: RcuArc<Inode>) -> Self {
        Self {
            state: DentryState::uncached(),
            id,
            inode: AtomicRcuArc::new(Some(inode)),
            name: DentryName::new(b"", b""),
            parent: AtomicRcuArc::new(None),
        }
    }

    /// Returns the dentry of a name in `parent`, whose spelling is `spelling`.
    pub(crate) fn new(
        state: DentryState,
        id: u64,
        parent: &RcuArc<Dentry>,
        (key, spelling): (&[u8], &[u8]),
        inode: Option<RcuArc<Inode>>,
    ) -> Self {
        Self {
            state,
            id,
            name: DentryName::new(key, spelling),
            parent: AtomicRcuArc::new(inode.is_some().then(|| parent.clone())),
            inode: AtomicRcuArc::new(inode),
        }
    }

    /// Returns a dentry that no name leads to. Its path ends in the number of the inode.
    pub(crate) fn nameless(id: u64, parent: &RcuArc<Dentry>, inode: RcuArc<Inode>) -> Self {
        let name = format!("#{}", inode.ino()).into_bytes();
        let dentry = Self::new(
            DentryState::uncached(),
            id,
            parent,
            (&name, &name),
            Some(inode),
        );
        dentry.state.mark_gone();
        dentry
    }

    /// Returns the number of the dentry, which no other dentry of its file system ever has.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the inode; `None` in a negative dentry.
    #[inline]
    pub(crate) fn inode(&self) -> Option<&Inode> {
        self.see_inode().map(RcuRef::get)
    }

    #[inline]
    fn see_inode(&self) -> Option<RcuRef<'_, Inode>> {
        // SAFETY: an RCU reader is pinned. A user with a reference has found the name visible after
        // it took that, or keeps it from changing, so the dentry keeps its inode (`unbind`).
        unsafe { self.inode.load_kept() }
    }

    /// Returns a reference to the inode, unless the dentry is no longer in use.
    pub(crate) fn hold_inode(&self) -> Option<RcuArc<Inode>> {
        self.see_inode()?.try_upgrade()
    }

    /// Takes the inode out of a dentry that is no longer in use.
    pub(crate) fn take_inode(&self) -> Option<RcuArc<Inode>> {
        self.inode
            .take()
            .inspect(|inode| inode.forget_alias(self.id))
    }

    /// Returns the directories of dentries, each once if its dentries follow one another.
    pub(crate) fn parents<'d>(dentries: impl Iterator<Item = &'d Self>) -> Vec<RcuArc<Self>> {
        let guard = pin();
        let mut parents: Vec<RcuArc<Self>> = Vec::new();
        for parent in dentries.filter_map(|dentry| dentry.parent.load(&guard)) {
            if parents
                .last()
                .is_none_or(|last| !last.as_rcu_ref().ptr_eq(parent))
            {
                parents.extend(parent.try_upgrade());
            }
        }
        parents
    }

    /// Returns whether its key has this name. The caller compares the hash, too, and then asks the
    /// state whether the key has changed.
    #[inline]
    pub(crate) fn has_name(&self, name: &Scanned<'_>, guard: &Guard) -> bool {
        self.name.is(name, guard)
    }

    /// Returns the directory that it is in, with its inode, for an RCU reader.
    pub(crate) fn see_parent<'g>(
        &'g self,
        guard: &'g Guard,
    ) -> Option<(RcuRef<'g, Dentry>, &'g Inode)> {
        loop {
            let parent = self.parent.load(guard)?;
            // A parent without an inode is no longer in use, so the dentry has just been moved.
            if let Some(inode) = parent.get().inode() {
                return Some((parent, inode));
            }
        }
    }

    /// Returns the directory that it is in. The caller keeps the dentry in use.
    pub(crate) fn parent(&self) -> Option<RcuArc<Dentry>> {
        let guard = pin();
        loop {
            // As in `see_parent`.
            if let Some(parent) = self.parent.load(&guard)?.try_upgrade() {
                return Some(parent);
            }
        }
    }

    /// Returns parent and spelling, of one moment. The caller keeps the dentry in use.
    pub(crate) fn place(&self) -> (Option<RcuArc<Dentry>>, Box<[u8]>) {
        loop {
            let guard = pin();
            let seen = self.state.load();
            let parent = self.parent.load(&guard);
            let held = parent.and_then(RcuRef::try_upgrade);
            let spelling = self.name.spelling(&guard);
            // A parent that is no longer in use has just been left.
            let is_held = held.is_some() == parent.is_some();
            if is_held && !seen.is_moving() && self.state.is_unmoved(seen) {
                return (held, spelling);
            }
            drop(guard);
            thread::yield_now();
        }
    }

    /// Gives the dentry another name. Returns whether threads wait for the old one. Locks: both
    /// names, hidden; the cache does not lead to the dentry.
    pub(crate) fn move_to(&self, parent: &RcuArc<Dentry>, key: &[u8], spelling: &[u8]) -> bool {
        let guard = pin();
        let is_awaited = self.state.begin_move();
        self.name.set(key, spelling, &guard);
        let stays = self
            .parent
            .load(&guard)
            .is_some_and(|from| from.ptr_eq(parent.as_rcu_ref()));
        if !stays {
            // The directory that it leaves does not end here: the caller works in it.
            drop(self.parent.set(Some(parent.clone())));
        }
        self.state.end_move();
        if let Some(inode) = self.inode().filter(|inode| inode.is_dir()) {
            inode.move_alias(self.id, parent.id, spelling);
        }
        is_awaited
    }

    /// Binds the name of a negative dentry to an inode. Locks: the name, hidden.
    pub(crate) fn bind(
        &self,
        parent: &RcuArc<Dentry>,
        (key, spelling): (&[u8], &[u8]),
        inode: RcuArc<Inode>,
    ) {
        self.name.respell(key, spelling, &pin());
        self.parent.set(Some(parent.clone()));
        self.inode.set(Some(inode));
    }

    /// Binds the name to nothing. Returns false, and does nothing, if the dentry is in use by other
    /// threads or stands for a directory. Locks: the name, hidden. The caller keeps the inode and
    /// the parent in use.
    pub(crate) fn unbind(this: &RcuArc<Self>) -> bool {
        // A thread that takes a reference after this sees that the name is hidden
        // (`has_references`), and drops the reference.
        let is_free = this.inode().is_some_and(|inode| !inode.is_dir()) && Self::is_unshared(this);
        if is_free {
            drop(this.inode.take());
            drop(this.parent.take());
        }
        is_free
    }

    /// Returns whether only the cache and the caller use it.
    pub(crate) fn is_unshared(this: &RcuArc<Self>) -> bool {
        this.has_references(2)
    }

    /// Returns whether the name has been removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.state.load().is_gone()
    }

    pub(crate) fn mark_gone(&self) {
        self.state.mark_gone();
        if let Some(inode) = self.inode() {
            inode.forget_alias(self.id);
        }
    }

    /// Returns whether something is mounted on it, in any namespace.
    #[inline]
    pub(crate) fn is_mountpoint(&self) -> bool {
        self.state.load().is_mountpoint()
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

impl Release for Dentry {
    type Link = FirstPacked;

    fn release(&self) {
        drop(self.take_inode());
        drop(self.parent.take());
    }
}

impl fmt::Debug for Dentry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dentry")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
