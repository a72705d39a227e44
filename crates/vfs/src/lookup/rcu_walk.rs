//! Path walk inside one RCU read section: no lock, no reference count, no allocation, no store to
//! shared memory.
//!
//! `lookup` calls it first for every path.
//!
//! The walk goes over cached names, as [`lookup`](super) describes. It gives up
//! ([`WalkError::Fallback`]) where it would have to wait or to take a reference. Such places are a
//! name that is not cached or is being changed, and an ACL or a link target that has not been read.
//! Others are a mount point, a case-folding directory, and `..` in a scoped walk. The caller then
//! walks again with references. An answer that this walk does give is final, errors included.
//!
//! A walk that meets a name that is not cached returns its directory ([`WalkError::Missed`]). The
//! caller takes a reference to that before the read section ends, and a walk with references goes
//! on from there. The steps before it were true by the rules below, and its own come later.
//!
//! # Why it is right
//! The dentry that the walk finds holds its key and its inode in itself, and both may change while
//! the walk reads them. So the walk loads the dentry's state first and compares it afterwards
//! (`dentry_state`). Memory that it has seen stays allocated while the guard lives. Each answer
//! must have been true at some moment of the call, and these moments must be in order:
//!
//! 1. If the state has not changed, the key and the inode that the walk has read belonged together
//!    all the while, the name was visible, and the dentry was in the cache. So the dentry was in
//!    use, and so was its inode, which was thus the one live inode of its number.
//! 2. The dentry may then be hidden, removed, renamed or evicted, and its inode may go out of use.
//!    The walk goes on with the inode that it has read, and with the number of the dentry, which
//!    never changes. It reads the last state of the inode, which was true at a moment no earlier
//!    than that of rule 1. No other directory ever has the number.
//! 3. So each step (search permission here, name found there) was true at a moment not before that
//!    of the previous step. A walk with references promises no more: neither promises that the
//!    whole path existed at one moment.
//! 4. At the end the caller reads its data and then asks [`LookupResult::is_current`]. If the state
//!    is the one of rule 1, name and attributes belonged together at the moment of reading; if it
//!    is not, the caller walks again. A name that was hidden and is visible again without a change
//!    of its binding has the old state, which is as good.
//! 5. A name is hidden while it is changed (`dcache`), so no step sees half a rename. A negative
//!    dentry says that the name was absent at the moment of rule 1. A name that is not in the cache
//!    says nothing: the walk then asks the file system ([`SuperBlock::is_absent`]), which may know
//!    without a lock that the name is absent. So it does not matter that a dentry leaves one chain
//!    of the table for another under the walk's feet.
//! 6. `..` reads the pointer to the parent, which is one word: the parent it gives was the parent
//!    at that moment. An evicted dentry has none, and the walk gives up.

use std::ops::Range;
use std::sync::Arc;

use extern4_sync::rcu::Guard;
use extern4_sync::rcu_arc::RcuRef;

use super::Lookup;
use super::flags::{LookupFlags, MAX_LINKS, PATH_MAX};
use super::path::{InodeRef, PathRef, Ref, ResumePoint};
use crate::attr::FileType;
use crate::cred::Cred;
use crate::dcache::{DcacheEntry, Expect};
use crate::dentry::Dentry;
use crate::dentry_state::SeenState;
use crate::errno::{Errno, Error};
use crate::inode::Inode;
use crate::mount::{Location, MountRef};
use crate::name::{Scanned, scan_name};
use crate::permission::{Passed, Search, Verdict, compare_fast_search};
use crate::superblock::SuperBlock;

/// The reason why a walk ended early.
pub(crate) enum WalkError<'g> {
    /// Only a walk with references can tell.
    Fallback,
    /// The cache lacks a name. A walk with references can go on from its directory.
    Missed(PathPosition<'g>),
    /// The name is known not to exist: `ENOENT`, by far the commonest error.
    Absent,
    /// The lookup fails with this error.
    Failed(Errno),
}

impl<'g> WalkError<'g> {
    /// Returns the error of the lookup, or `Ok` if the caller has to walk with references, with the
    /// place where it can go on.
    #[inline]
    pub(crate) fn or_fall_back(self) -> Result<Option<PathPosition<'g>>, Error> {
        match self {
            Self::Fallback => Ok(None),
            Self::Missed(missed) => Ok(Some(missed)),
            Self::Absent => Err(Errno::ENOENT.into()),
            Self::Failed(errno) => Err(errno.into()),
        }
    }
}

impl From<Errno> for WalkError<'_> {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// How a walk takes the last component of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtLast {
    /// It stays in the directory.
    Stop,
    /// It steps onto it, also if that is a symbolic link.
    Step,
    /// It steps onto it, and follows a symbolic link.
    Follow,
}

/// The dentry on which a walk stands.
#[derive(Clone, Copy)]
struct RcuPath<'g> {
    dentry: RcuRef<'g, Dentry>,
    inode: &'g Inode,
    /// The state of the dentry when the cache led here; the default where the walk started or went
    /// up.
    seen: SeenState,
}

impl<'g> RcuPath<'g> {
    /// Returns a walk's position on a dentry. A walk cannot stand on a negative one: it falls back.
    fn on(dentry: RcuRef<'g, Dentry>) -> Result<Self, WalkError<'g>> {
        let inode = dentry.get().inode().ok_or(WalkError::Fallback)?;
        Ok(Self {
            dentry,
            inode,
            seen: SeenState::default(),
        })
    }
}

/// The file to which a walk has led. It holds no reference.
#[derive(Clone, Copy)]
pub(crate) struct LookupResult<'g> {
    pub(crate) mount: &'g MountRef,
    pub(crate) sb: &'g SuperBlock,
    pub(crate) inode: &'g Inode,
    dentry: RcuRef<'g, Dentry>,
    seen: SeenState,
}

/// A directory on a path whose next component has not been looked up. The caller may search it. It
/// holds no reference.
#[derive(Clone, Copy)]
pub(crate) struct PathPosition<'g> {
    dir: LookupResult<'g>,
    /// The offset of the component in the path.
    offset: usize,
    /// The number of symbolic links that the walk followed.
    links: u32,
    /// Whether the cache lacks the component.
    is_unknown: bool,
}

impl PathPosition<'_> {
    /// Takes a reference to the directory. Returns `None` if it has gone out of use. The walk
    /// started with this `root` and `base`.
    #[inline]
    pub(super) fn hold<'a>(
        &self,
        root: &'a Location,
        base: &'a Location,
    ) -> Option<ResumePoint<'a>> {
        Some(ResumePoint {
            dir: self.dir.hold(root, base)?,
            offset: self.offset,
            links: self.links,
            is_unknown: self.is_unknown,
        })
    }
}

/// The directory of a path's last component, and that component. It holds no reference.
pub(crate) struct ParentResult<'g> {
    pub(crate) dir: LookupResult<'g>,
    /// The last component in the path. Only slashes come after it.
    pub(crate) last: Range<usize>,
    /// The number of symbolic links that the walk followed.
    pub(crate) links: u32,
    path: &'g [u8],
}

impl<'g> ParentResult<'g> {
    /// Takes a reference to the directory, as [`PathPosition::hold`] does.
    pub(super) fn hold<'a>(
        &self,
        root: &'a Location,
        base: &'a Location,
    ) -> Option<ResumePoint<'a>> {
        PathPosition {
            dir: self.dir,
            offset: self.last.start,
            links: self.links,
            is_unknown: false,
        }
        .hold(root, base)
    }

    /// Fails if the cache knows that the last component is not as expected. Slashes may come after
    /// it. On a read-only mount the check is left for later.
    #[inline]
    pub(crate) fn check(&self, expect: Expect, guard: &'g Guard) -> Result<(), Error> {
        match self.see_last(guard) {
            Some(entry) => expect.check(entry.inode),
            None => Ok(()),
        }
    }

    /// Returns whether this last component and that of `other` were names of one file at some
    /// moment of this call. `ours` is what the cache had for this one. Returns false if a slash
    /// comes after either, or if the cache cannot tell.
    pub(crate) fn is_of_one_file(
        &self,
        ours: DcacheEntry<'g>,
        other: &Self,
        guard: &'g Guard,
    ) -> bool {
        let Some(ours_is) = ours.inode.filter(|inode| inode.perm().several_names()) else {
            return false;
        };
        let Some(theirs_is) = other.see_last(guard).and_then(|theirs| theirs.inode) else {
            return false;
        };
        // The first name was bound to the file all the while.
        std::ptr::eq(ours_is, theirs_is)
            && !self.has_slash()
            && !other.has_slash()
            && ours.is_current()
    }

    /// Returns the binding of the last component if the cache has it. `None` on a read-only mount,
    /// where another error comes first.
    pub(crate) fn see_last(&self, guard: &'g Guard) -> Option<DcacheEntry<'g>> {
        let cache = &self.dir.sb.dcache;
        let dir = self.dir.dentry.get().id();
        let name = scan_name(cache.seed(), &self.path[self.last.start..]);
        // A file system may have its rule for equal names.
        if name.is_dots() || self.dir.inode.perm().casefold() {
            return None;
        }
        let entry = cache.see(dir, &name, guard)?;
        (!self.dir.mount.is_read_only()).then_some(entry)
    }

    /// Returns whether both are on one mount, and this last component is a name.
    pub(crate) fn is_name_on_mount_of(&self, other: &Self) -> bool {
        let name = &self.path[self.last.start..self.last.end];
        !matches!(name, b"" | b"." | b"..") && self.dir.mount.ptr_eq(other.dir.mount)
    }

    /// Returns whether slashes come after the last component.
    pub(crate) fn has_slash(&self) -> bool {
        self.last.end < self.path.len()
    }
}

/// Walks a path to the directory of its last component.
#[inline]
pub(super) fn walk_to_parent<'g>(
    lookup: Lookup<'g>,
    path: &'g [u8],
    resolve: LookupFlags,
    guard: &'g Guard,
) -> Result<ParentResult<'g>, WalkError<'g>> {
    // `..` in the last component depends on the directories that the walk passed, too.
    if resolve.is_scoped() {
        return Err(WalkError::Fallback);
    }
    let Ok(mut walk) = RcuWalk::start(lookup, path, resolve, guard) else {
        return Err(WalkError::Fallback);
    };
    let last = walk.walk(path, AtLast::Stop);
    walk.sb.count_walk(walk.searches, last.is_err());
    Ok(ParentResult {
        last: last?,
        dir: walk.result(),
        links: walk.links,
        path,
    })
}

impl LookupResult<'_> {
    /// Takes a reference to the dentry. Returns `None` if it has gone out of use. The walk started
    /// with this `root` and `base`.
    pub(super) fn hold<'a>(&self, root: &'a Location, base: &'a Location) -> Option<PathRef<'a>> {
        // The caller of a walk keeps its base in use.
        let dentry = if base.dentry.as_rcu_ref().ptr_eq(self.dentry) {
            Ref::Borrowed(&base.dentry)
        } else {
            Ref::Owned(self.dentry.try_upgrade()?)
        };
        Some(PathRef {
            mount: Ref::Borrowed(self.mount_of(root, base)),
            dentry,
        })
    }

    /// Takes a reference to the inode alone. Returns `None` if the dentry has gone out of use.
    pub(super) fn hold_inode<'a>(
        &self,
        root: &'a Location,
        base: &'a Location,
    ) -> Option<InodeRef<'a>> {
        Some(InodeRef::new(
            self.mount_of(root, base),
            self.dentry.get().hold_inode()?,
        ))
    }

    fn mount_of<'a>(&self, root: &'a Location, base: &'a Location) -> &'a MountRef {
        if self.mount.ptr_eq(&root.mount) {
            &root.mount
        } else {
            &base.mount
        }
    }

    /// Returns whether the name that led here is still bound to this dentry. If not, the caller
    /// walks again, with references.
    #[inline(always)]
    pub(crate) fn is_current(&self) -> bool {
        let current = !self.seen.is_cached() || self.dentry.get().state.is_still(self.seen);
        if !current {
            self.sb.count_restart();
        }
        current
    }
}

/// Walks a path to its end.
#[inline(never)]
pub(super) fn walk<'g>(
    lookup: Lookup<'g>,
    path: &'g [u8],
    how: LookupFlags,
    guard: &'g Guard,
) -> Result<LookupResult<'g>, WalkError<'g>> {
    let mut walk = RcuWalk::start(lookup, path, how.limits(), guard)?;
    let last = walk.walk(
        path,
        if how.contains(LookupFlags::FOLLOW) {
            AtLast::Follow
        } else {
            AtLast::Step
        },
    );
    let gave_up = matches!(last, Err(WalkError::Fallback | WalkError::Missed(_)));
    walk.sb.count_walk(walk.searches, gave_up);
    last.map(|_| walk.result())
}

/// A walk under way, on one mount.
struct RcuWalk<'g> {
    cred: &'g Arc<Cred>,
    root: &'g Location,
    resolve: LookupFlags,
    guard: &'g Guard,
    mount: &'g MountRef,
    sb: &'g SuperBlock,
    /// Whether the permission cache alone may answer search checks.
    cache_decides: bool,
    at: RcuPath<'g>,
    links: u32,
    /// The number of search checks so far: fast, full.
    searches: [u64; 2],
    passed: Passed<'g>,
}

impl<'g> RcuWalk<'g> {
    /// Begins a walk of `path`.
    #[inline(always)]
    fn start(
        lookup: Lookup<'g>,
        path: &[u8],
        resolve: LookupFlags,
        guard: &'g Guard,
    ) -> Result<Self, WalkError<'g>> {
        // Unusual, or an error, which the other walk names.
        if path.is_empty() || path.len() > PATH_MAX {
            return Err(WalkError::Fallback);
        }
        let Lookup {
            cred, root, base, ..
        } = lookup;
        let absolute = path.first() == Some(&b'/');
        if !resolve.allows(absolute) {
            return Err(WalkError::Fallback);
        }
        let from = if absolute { root } else { base };
        let at = RcuPath::on(from.dentry.as_rcu_ref())?;
        let root = if resolve.is_scoped() { base } else { root };
        let mount = &from.mount;
        let sb = &**from.mount.superblock();
        let cache_decides = sb.checker.cache_decides();
        Ok(Self {
            cred,
            root,
            resolve,
            guard,
            mount,
            sb,
            cache_decides,
            at,
            links: 0,
            searches: [0; 2],
            passed: Passed::default(),
        })
    }

    /// Returns the place where it stands.
    fn result(&self) -> LookupResult<'g> {
        self.result_at(self.at)
    }

    fn result_at(&self, at: RcuPath<'g>) -> LookupResult<'g> {
        let RcuPath {
            dentry,
            inode,
            seen,
        } = at;
        LookupResult {
            mount: self.mount,
            sb: self.sb,
            inode,
            dentry,
            seen,
        }
    }

    /// Walks along `text`. Returns the range of the last component where it stops before that.
    #[inline(never)]
    fn walk(&mut self, text: &'g [u8], last: AtLast) -> Result<Range<usize>, WalkError<'g>> {
        // Kept in registers: the next step waits for the result of this one.
        let mut at = self.at;
        let mut fast = 0;
        let rest = self.walk_names(text, last, &mut at, &mut fast);
        self.at = at;
        self.searches[0] += fast;
        rest
    }

    /// Walks along `text` from `at`. `fast` counts the search checks that the permission caches
    /// answer.
    #[inline(always)]
    fn walk_names(
        &mut self,
        text: &'g [u8],
        last: AtLast,
        at: &mut RcuPath<'g>,
        fast: &mut u64,
    ) -> Result<Range<usize>, WalkError<'g>> {
        let sb = self.sb;
        let guard = self.guard;
        let cache_decides = self.cache_decides;
        let offset = |rest: &[u8]| text.len() - rest.len();
        let mut rest = skip_slashes(text);
        if rest.is_empty() {
            return Ok(text.len()..text.len());
        }
        loop {
            let lets_all = cache_decides && at.inode.perm().exec_all_plain();
            if lets_all {
                compare_fast_search(self.cred, at.inode, guard);
            }
            if lets_all || sb.checker.lets_all(at.inode) {
                *fast += 1;
            } else {
                self.search_general(at.inode)?;
            }
            let name = scan_name(sb.dcache.seed(), rest);
            let behind = &rest[name.bytes.len()..];
            // Anything but a slash is a zero byte, which no path may contain.
            if behind.first().is_some_and(|&byte| byte != b'/') {
                return Err(WalkError::Fallback);
            }
            let next = skip_slashes(behind);
            let is_last = next.is_empty();
            let slash = !behind.is_empty();
            if is_last && last == AtLast::Stop {
                return Ok(offset(rest)..offset(behind));
            }
            if name.is_dots() {
                *at = self.step_dots(name.bytes, *at)?;
            } else {
                let parent = at.dentry.get().id();
                let Some(entry) = sb.dcache.see(parent, &name, guard) else {
                    return Err(self.missed(*at, &name, offset(rest)));
                };
                let inode = entry.inode.ok_or(WalkError::Absent)?;
                if entry.seen.is_mountpoint() {
                    return Err(WalkError::Fallback);
                }
                if inode.kind() == FileType::Symlink
                    && (!is_last || slash || last == AtLast::Follow)
                {
                    *at = self.follow(inode, *at)?;
                } else {
                    *at = RcuPath {
                        dentry: entry.dentry,
                        inode,
                        seen: entry.seen,
                    };
                }
            }
            if is_last {
                let fits = !slash || at.inode.is_dir();
                return if fits {
                    Ok(text.len()..text.len())
                } else {
                    Err(Errno::ENOTDIR.into())
                };
            }
            rest = next;
        }
    }

    /// Returns how the walk ends in the directory `at` at a name that the cache lacks. The name
    /// begins at `offset` of the text.
    #[inline(never)]
    fn missed(&self, at: RcuPath<'g>, name: &Scanned<'_>, offset: usize) -> WalkError<'g> {
        let id = at.dentry.get().id();
        if self.sb.is_absent(at.inode, id, name, self.guard) {
            WalkError::Absent
        } else if self.resolve.is_scoped() {
            // A scoped walk with references has to start where the path does.
            WalkError::Fallback
        } else {
            WalkError::Missed(PathPosition {
                dir: self.result_at(at),
                offset,
                links: self.links,
                is_unknown: true,
            })
        }
    }

    /// Makes the search check where the permission cache is not enough.
    #[inline(never)]
    fn search_general(&mut self, dir: &'g Inode) -> Result<(), WalkError<'g>> {
        if !dir.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if dir.perm().casefold() {
            return Err(WalkError::Fallback);
        }
        match self
            .sb
            .checker
            .search_seen(self.cred, dir, self.guard, &mut self.passed)
        {
            (Verdict::Granted, Search::Fast) => self.searches[0] += 1,
            (Verdict::Granted, Search::Full) => self.searches[1] += 1,
            (Verdict::Refused, _) => return Err(Errno::EACCES.into()),
            (Verdict::Unknown, _) => return Err(WalkError::Fallback),
        }
        Ok(())
    }

    /// Steps to `.` or `..`.
    #[cold]
    fn step_dots(&self, name: &[u8], at: RcuPath<'g>) -> Result<RcuPath<'g>, WalkError<'g>> {
        if name == b".." { self.up(at) } else { Ok(at) }
    }

    /// Goes one directory up, but not out of the mount.
    fn up(&self, at: RcuPath<'g>) -> Result<RcuPath<'g>, WalkError<'g>> {
        if self.resolve.is_scoped() {
            return Err(WalkError::Fallback);
        }
        if at.dentry.ptr_eq(self.root.dentry.as_rcu_ref()) && self.mount.ptr_eq(&self.root.mount) {
            return Ok(at);
        }
        if at.dentry.ptr_eq(self.mount.root().as_rcu_ref()) {
            return Err(WalkError::Fallback);
        }
        let (dentry, inode) = at
            .dentry
            .get()
            .see_parent(self.guard)
            .ok_or(WalkError::Fallback)?;
        if dentry.get().is_mountpoint() {
            return Err(WalkError::Fallback);
        }
        Ok(RcuPath {
            dentry,
            inode,
            seen: SeenState::default(),
        })
    }

    /// Walks the target of a symbolic link to its end, from the directory of the link.
    #[cold]
    #[inline(never)]
    fn follow(&mut self, link: &'g Inode, dir: RcuPath<'g>) -> Result<RcuPath<'g>, WalkError<'g>> {
        self.links += 1;
        if self.links > MAX_LINKS || self.resolve.contains(LookupFlags::NO_SYMLINKS) {
            return Err(Errno::ELOOP.into());
        }
        let target = link.cached_link_target().ok_or(WalkError::Fallback)?;
        match target.first() {
            None => return Err(Errno::ENOENT.into()),
            // Out of the scope, or onto another mount: rare.
            Some(b'/') if !self.resolve.is_empty() || !self.mount.ptr_eq(&self.root.mount) => {
                return Err(WalkError::Fallback);
            }
            Some(b'/') => self.at = RcuPath::on(self.root.dentry.as_rcu_ref())?,
            Some(_) => self.at = dir,
        }
        match self.walk(target, AtLast::Follow) {
            Ok(_) => Ok(self.at),
            // The walk with references finds its place by an offset in the path.
            Err(WalkError::Missed(_)) => Err(WalkError::Fallback),
            Err(error) => Err(error),
        }
    }
}

/// Strips slashes from the beginning of `text`.
#[inline]
fn skip_slashes(text: &[u8]) -> &[u8] {
    match text {
        [b'/', b'/', ..] => skip_many_slashes(text),
        [b'/', rest @ ..] => rest,
        _ => text,
    }
}

#[cold]
fn skip_many_slashes(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|&&byte| byte == b'/').count()..]
}
