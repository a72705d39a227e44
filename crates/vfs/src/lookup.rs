//! Path lookup: from a path to the file that it names.
//!
//! `Session` makes a `Lookup` for each call that has a path. A result was true at some moment of
//! the call, and so was each step before it; the whole path need not have existed at one moment.
//! Errors are those of Linux, in Linux's order.
//!
//! A lookup goes component by component, as `path_resolution(7)` describes. At each step it stands
//! on a directory that the caller may search, takes the next name, and steps to the file behind it.
//! For `..` it goes up. At a mount point it steps onto the root of the mounted file system. For a
//! symbolic link it takes the components of the target before those that are left.
//!
//! Two walks do this. `rcu_walk` runs inside one RCU read section over cached names. It takes no
//! lock and no reference, and it gives up where it would have to wait. `ref_walk` takes a reference
//! to each file that it passes, and may read directories, links and ACLs. They share the types of
//! `path` and `flags`, and neither knows the other. `Lookup` joins them: it tries the first, takes
//! a reference to its result, and falls back to the second.

pub(crate) mod flags;
pub(crate) mod path;
pub(crate) mod rcu_walk;
pub(crate) mod ref_walk;

use std::sync::Arc;

use extern4_sync::rcu::{Guard, pin};

pub use flags::{LookupFlags, MAX_LINKS, PATH_MAX};

use crate::cred::Cred;
use crate::dcache::Expect;
use crate::errno::Result;
use crate::mount::{Location, Namespace};
use path::{InodeRef, LastComponent, ParentRef, PathRef};
use rcu_walk::{LookupResult, ParentResult, WalkError};
use ref_walk::RefWalk;

/// A lookup for one caller. It starts at `base`, or at `root` where the path is absolute.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) cred: &'a Arc<Cred>,
    pub(crate) root: &'a Location,
    pub(crate) base: &'a Location,
}

impl<'a> Lookup<'a> {
    /// Walks a path to its end inside a read section and takes no reference. A caller that reads
    /// from the result calls [`LookupResult::is_current`] afterwards. If that is true, it has read
    /// from the file that the path named at that moment.
    #[inline(always)]
    pub(crate) fn rcu(
        self,
        path: &'a [u8],
        how: LookupFlags,
        guard: &'a Guard,
    ) -> Result<LookupResult<'a>, WalkError> {
        rcu_walk::walk(self, path, how, guard)
    }

    /// Walks a path to the directory of its last component inside a read section and takes no
    /// reference. Returns `None` where that takes a walk with references.
    #[inline]
    pub(crate) fn rcu_parent(
        self,
        path: &'a [u8],
        guard: &'a Guard,
    ) -> Result<Option<ParentResult<'a>>> {
        rcu_walk::walk_to_parent(self, path, LookupFlags::empty(), guard)
    }

    /// Walks a path to the directory of its last component. Fails before it takes a reference if
    /// the cache knows that the last name is not as expected.
    pub(crate) fn parent(self, path: &'a [u8], expect: Expect) -> Result<ParentRef<'a>> {
        let held = {
            let guard = pin();
            let seen = self.rcu_parent(path, &guard)?;
            if let Some(parent) = &seen {
                parent.check(expect, &guard)?;
            }
            self.hold_parent(path, seen)
        };
        self.parent_or_walk(held, path)
    }

    /// Takes a reference to the directory that [`rcu_parent`](Self::rcu_parent) found. Returns
    /// `None` if it has gone out of use.
    #[inline]
    pub(crate) fn hold_parent(
        self,
        path: &'a [u8],
        seen: Option<ParentResult<'_>>,
    ) -> Option<ParentRef<'a>> {
        let seen = seen?;
        let dir = seen.dir.hold(self.root, self.base)?;
        Some(ParentRef {
            dir,
            last: LastComponent::new(path, seen.last.clone()),
        })
    }

    /// Returns what is held already, or the result of a walk with references.
    #[inline]
    pub(crate) fn parent_or_walk(
        self,
        held: Option<ParentRef<'a>>,
        path: &'a [u8],
    ) -> Result<ParentRef<'a>> {
        match held {
            Some(held) => Ok(held),
            None => self.parent_by_references(path),
        }
    }

    #[cold]
    fn parent_by_references(self, path: &'a [u8]) -> Result<ParentRef<'a>> {
        let (walk, last) = RefWalk::start(self, path, LookupFlags::empty())?;
        Ok(ParentRef {
            dir: walk.into_parent(),
            last,
        })
    }

    /// Starts a walk with references that stands on the directory of the last component.
    pub(crate) fn walk_to_last(
        self,
        path: &'a [u8],
        resolve: LookupFlags,
    ) -> Result<(RefWalk<'a>, LastComponent<'a>)> {
        let held = {
            let guard = pin();
            let seen = rcu_walk::walk_to_parent(self, path, resolve, &guard)?;
            seen.and_then(|seen| {
                let dir = seen.dir.hold(self.root, self.base)?;
                let last = LastComponent::new(path, seen.last.clone());
                Some((RefWalk::resume(self, resolve, dir, seen.links), last))
            })
        };
        held.map_or_else(|| RefWalk::start(self, path, resolve), Ok)
    }

    /// Walks a path to its end and returns a reference to the dentry there.
    pub(crate) fn path(self, path: &'a [u8], how: LookupFlags) -> Result<PathRef<'a>> {
        let held = {
            let guard = pin();
            hold(self.rcu(path, how, &guard), |found| {
                found.hold(self.root, self.base)
            })?
        };
        held.map_or_else(|| self.by_references(path, how), Ok)
    }

    /// Walks a path to its end and returns a reference to the inode there, but not to its name.
    pub(crate) fn inode(self, path: &'a [u8], how: LookupFlags) -> Result<InodeRef<'a>> {
        let held = {
            let guard = pin();
            self.hold_inode(self.rcu(path, how, &guard))?
        };
        self.inode_or_walk(held, path, how)
    }

    /// Takes a reference to the inode that [`rcu`](Self::rcu) found, but not to its name. Returns
    /// `None` if it has gone out of use, or if the walk could not tell.
    #[inline]
    pub(crate) fn hold_inode(
        self,
        seen: Result<LookupResult<'_>, WalkError>,
    ) -> Result<Option<InodeRef<'a>>> {
        hold(seen, |found| found.hold_inode(self.root, self.base))
    }

    /// Returns what is held already, or the result of a walk with references.
    #[inline]
    pub(crate) fn inode_or_walk(
        self,
        held: Option<InodeRef<'a>>,
        path: &'a [u8],
        how: LookupFlags,
    ) -> Result<InodeRef<'a>> {
        held.map_or_else(|| Ok(self.by_references(path, how)?.into()), Ok)
    }

    /// Walks a path to its end with references, where [`rcu`](Self::rcu) could not tell.
    pub(crate) fn by_references(self, path: &'a [u8], how: LookupFlags) -> Result<PathRef<'a>> {
        if path.is_empty() && how.contains(LookupFlags::EMPTY_PATH) {
            return Ok(PathRef::borrow(self.base));
        }
        let (walk, last) = self.walk_to_last(path, how.limits())?;
        walk.finish(last, how.contains(LookupFlags::FOLLOW))
    }
}

/// Takes a reference by `take` to what was found. Returns `None` if that has gone out of use or has
/// lost its name, or if the walk could not tell.
#[inline]
fn hold<T>(
    seen: Result<LookupResult<'_>, WalkError>,
    take: impl FnOnce(&LookupResult<'_>) -> Option<T>,
) -> Result<Option<T>> {
    match seen {
        Ok(found) => Ok(take(&found).filter(|_| found.is_current())),
        Err(error) => error.or_fall_back().map(|()| None),
    }
}
