//! Path lookup: from a path to the file that it names.
//!
//! `Session` makes a `Lookup` for each call that has a path. A result was true at some moment of
//! the call, and so was each step before it; the whole path need not have existed at one moment.
//! Errors are Linux's, in Linux's order.
//!
//! A lookup goes component by component, as `path_resolution(7)` describes. At each step it stands
//! on a directory that the caller may search, takes the next name, and steps to the file behind it.
//! For `..` it goes up. At a mount point it steps onto the root of the mounted file system. For a
//! symbolic link it takes the components of the target before the components that are left.
//!
//! Two walks do this. `rcu_walk` runs inside one RCU read section over cached names. It takes no
//! lock and no reference, and it gives up where it would have to wait. `ref_walk` takes a reference
//! to each file that it passes, and may read directories, links and ACLs. They share the types of
//! `path` and `flags`, and neither knows the other. `Lookup` joins them: it tries the first, takes
//! a reference to its result, and falls back to the second. If the first walk met a name that the
//! cache lacks, the second goes on from the directory of that name.

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
use path::{InodeRef, LastComponent, ParentRef, PathRef, ResumePoint};
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
    ) -> Result<LookupResult<'a>, WalkError<'a>> {
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
        match rcu_walk::walk_to_parent(self, path, LookupFlags::empty(), guard) {
            Ok(parent) => Ok(Some(parent)),
            Err(error) => error.or_fall_back().map(|_| None),
        }
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
        let from = {
            let guard = pin();
            match rcu_walk::walk_to_parent(self, path, resolve, &guard) {
                Ok(parent) => parent.hold(self.root, self.base),
                Err(error) => self.resume_point(error)?,
            }
        };
        self.walk_to_last_from(from, path, resolve)
    }

    /// Like [`walk_to_last`](Self::walk_to_last), from the place that a walk reached, if any.
    fn walk_to_last_from(
        self,
        from: Option<ResumePoint<'a>>,
        path: &'a [u8],
        resolve: LookupFlags,
    ) -> Result<(RefWalk<'a>, LastComponent<'a>)> {
        match from {
            Some(from) => RefWalk::resume(self, path, resolve, from),
            None => RefWalk::start(self, path, resolve),
        }
    }

    /// Returns the place where a walk with references goes on after [`rcu`](Self::rcu) ended with
    /// `error`; `None` if it has to start again. Fails if the error is final.
    #[inline]
    pub(crate) fn resume_point(self, error: WalkError<'_>) -> Result<Option<ResumePoint<'a>>> {
        let missed = error.or_fall_back()?;
        Ok(missed.and_then(|missed| missed.hold(self.root, self.base)))
    }

    /// Walks a path to its end and returns a reference to the dentry there.
    pub(crate) fn path(self, path: &'a [u8], how: LookupFlags) -> Result<PathRef<'a>> {
        let held = {
            let guard = pin();
            self.hold(self.rcu(path, how, &guard), |found| {
                found.hold(self.root, self.base)
            })?
        };
        match held {
            WalkOutcome::Found(path) => Ok(path),
            WalkOutcome::Unknown(from) => self.by_references(path, how, from),
        }
    }

    /// Walks a path to its end and returns a reference to the inode there, but not to its name.
    pub(crate) fn inode(self, path: &'a [u8], how: LookupFlags) -> Result<InodeRef<'a>> {
        let held = {
            let guard = pin();
            self.hold_inode(self.rcu(path, how, &guard))?
        };
        self.inode_or_walk(held, path, how)
    }

    /// Takes a reference to the inode that [`rcu`](Self::rcu) found, but not to its name.
    #[inline]
    pub(crate) fn hold_inode(
        self,
        seen: Result<LookupResult<'_>, WalkError<'_>>,
    ) -> Result<WalkOutcome<'a, InodeRef<'a>>> {
        self.hold(seen, |found| found.hold_inode(self.root, self.base))
    }

    /// Returns what is held already, or the result of a walk with references.
    #[inline]
    pub(crate) fn inode_or_walk(
        self,
        held: WalkOutcome<'a, InodeRef<'a>>,
        path: &'a [u8],
        how: LookupFlags,
    ) -> Result<InodeRef<'a>> {
        match held {
            WalkOutcome::Found(inode) => Ok(inode),
            WalkOutcome::Unknown(from) => Ok(self.by_references(path, how, from)?.into()),
        }
    }

    /// Walks a path to its end with references, where [`rcu`](Self::rcu) could not tell. Goes on at
    /// `from`, if it could tell as far as that.
    pub(crate) fn by_references(
        self,
        path: &'a [u8],
        how: LookupFlags,
        from: Option<ResumePoint<'a>>,
    ) -> Result<PathRef<'a>> {
        if path.is_empty() && how.contains(LookupFlags::EMPTY_PATH) {
            return Ok(PathRef::borrow(self.base));
        }
        let (walk, last) = if from.is_some() {
            self.walk_to_last_from(from, path, how.limits())?
        } else {
            self.walk_to_last(path, how.limits())?
        };
        walk.finish(last, how.contains(LookupFlags::FOLLOW))
    }

    /// Takes a reference by `take` to what was found.
    #[inline]
    fn hold<T>(
        self,
        seen: Result<LookupResult<'_>, WalkError<'_>>,
        take: impl FnOnce(&LookupResult<'_>) -> Option<T>,
    ) -> Result<WalkOutcome<'a, T>> {
        match seen {
            Ok(found) => Ok(take(&found)
                .filter(|_| found.is_current())
                .map_or(WalkOutcome::Unknown(None), WalkOutcome::Found)),
            Err(error) => self.resume_point(error).map(WalkOutcome::Unknown),
        }
    }
}

/// The outcome of a walk without references.
pub(crate) enum WalkOutcome<'a, T> {
    /// A reference to what it found.
    Found(T),
    /// The walk could not tell, or what it found has gone out of use or lost its name. A walk with
    /// references goes on from here, or else starts again.
    Unknown(Option<ResumePoint<'a>>),
}
