//! Path walk inside one RCU read section: no lock, no reference count, no allocation, no store to shared memory.
//!
//! It goes the way that [`crate::namei`] describes, over what is cached, and gives up ([`Stop::Fallback`]) where it would
//! have to wait or to take something into use: a name that is not in the cache or that somebody is changing, an ACL or a
//! link target that has not been read, a mount point, a case-folding directory, `..` in a scoped walk. The caller then
//! walks again with references. What it decides itself, errors included, is final.
//!
//! # Why it is right
//! Unlike Linux's dentries, ours never change what they bind, and entries of the cache never change what they are found by.
//! A seen dentry and its inode stay allocated while the guard lives. So there is nothing to re-read and compare on the
//! way; what has to be shown is that each answer was true at some moment of the call, in order.
//!
//! 1. An entry that is found stood in the cache at some moment of the search for it (`hash_table`, rule 4). At that
//!    moment its dentry was in use, and so was the dentry's inode, which was thus the one live inode of its number.
//! 2. A dentry may go out of use while the walk stands on it, because the cache evicts it. Its inode then changes no more:
//!    what is read from it is what stood there last, at a moment no earlier than that of 1.
//! 3. So each step (search permission here, name found there) was true at a moment not before that of the step before it.
//!    That is what a walk with references can say too: neither promises that all of the path was there at one moment.
//! 4. At the end the caller reads what it came for and then asks [`RcuWalk::is_current`]. If it is, name and
//!    attributes belonged together at the moment of reading; if it is not, the walk starts again.
//! 5. A name is hidden while it is changed (`dcache`), so no step sees half a rename. A negative entry says that the name
//!    was absent at the moment of 1; a name that is not found says nothing, and is never taken for absent.
//! 6. `..` reads the place of a dentry, which is replaced as a whole: the parent it gives was the parent at that moment.

use std::sync::Arc;

use extern4_sync::rcu::Guard;
use extern4_sync::shared::Seen;

use crate::attr::FileType;
use crate::cred::Cred;
use crate::dcache::{Hit, Wanted};
use crate::dentry::Dentry;
use crate::errno::{Errno, Error};
use crate::inode::Inode;
use crate::mount::{Location, MountRef};
use crate::name::scan_name;
use crate::namei::{How, MAX_LINKS, PATH_MAX, Ref, Resolve, Spot, Subject};
use crate::permission::{Passed, Search, Verdict, compare_fast_search};
use crate::superblock::SuperBlock;

/// Why a walk ended early.
pub(crate) enum Stop {
    /// Only a walk with references can say.
    Fallback,
    /// The name is known to stand for nothing: `ENOENT`, by far the commonest error, and the one to be quick with.
    Absent,
    /// This is the answer.
    Failed(Errno),
}

impl Stop {
    /// The error that it stands for; nothing if a walk with references is to say.
    #[inline]
    pub(crate) fn or_fall_back(self) -> Result<(), Error> {
        match self {
            Self::Fallback => Ok(()),
            Self::Absent => Err(Errno::ENOENT.into()),
            Self::Failed(errno) => Err(errno.into()),
        }
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// What to do with the last component of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Stay in its directory.
    Leave,
    /// Go there; onto a symbolic link itself.
    Take,
    /// Go there, following a symbolic link.
    Follow,
}

/// The last component, left for the caller: where it stands in the path. What comes behind it is slashes.
#[derive(Clone, Copy)]
pub(crate) struct Rest {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Where a walk stands.
#[derive(Clone, Copy)]
struct Place<'g> {
    /// The dentry's number.
    id: u64,
    dentry: Seen<'g, Dentry>,
    inode: &'g Inode,
    /// The entry that led here; none where the walk started or went up.
    hit: Option<Hit<'g>>,
}

impl<'g> Place<'g> {
    /// On a positive dentry.
    fn on(dentry: Seen<'g, Dentry>) -> Result<Self, Stop> {
        let inode = dentry.get().inode().ok_or(Stop::Fallback)?;
        Ok(Self { id: dentry.get().id(), dentry, inode, hit: None })
    }
}

/// What a walk came to.
#[derive(Clone, Copy)]
pub(crate) struct End<'g> {
    pub(crate) mount: &'g MountRef,
    pub(crate) sb: &'g SuperBlock,
    pub(crate) inode: &'g Inode,
    dentry: Seen<'g, Dentry>,
    hit: Option<Hit<'g>>,
}

/// The directory of a path's last component, and that.
pub(crate) struct Parent<'g> {
    pub(crate) dir: End<'g>,
    pub(crate) rest: Rest,
    /// Symbolic links that were followed.
    pub(crate) links: u32,
    path: &'g [u8],
}

impl<'g> Parent<'g> {
    /// An error if the last component is a name that is known to stand for anything but what is wanted. Slashes may come after it. On a
    /// read-only mount that is left to be found out later.
    #[inline]
    pub(crate) fn check(&self, wanted: impl Wanted, guard: &'g Guard) -> Result<(), Error> {
        match self.see_last(guard) {
            Some(dentry) => wanted(dentry.get().inode()),
            None => Ok(()),
        }
    }

    /// At some moment of this call its last component, which stood for `ours`, and that of `other` were names of one file, as is known without
    /// waiting, and no slash comes after either.
    pub(crate) fn is_of_one_file(&self, ours: Seen<'g, Dentry>, other: &Self, guard: &'g Guard) -> bool {
        let Some(ours_is) = ours.get().inode().filter(|inode| inode.perm().several_names()) else {
            return false;
        };
        let Some(theirs_is) = other.see_last(guard).and_then(|theirs| theirs.get().inode()) else {
            return false;
        };
        // A dentry never binds anything else, nor is it found again once it has gone: so the first name was there all the while.
        let still = |seen: Seen<'_, Dentry>| seen.ptr_eq(ours);
        std::ptr::eq(ours_is, theirs_is)
            && !self.has_slash()
            && !other.has_slash()
            && self.see_last(guard).is_some_and(still)
    }

    /// What the last component is known to stand for. Nothing on a read-only mount, where that is not what is to be told first.
    pub(crate) fn see_last(&self, guard: &'g Guard) -> Option<Seen<'g, Dentry>> {
        let (cache, dir) = (&self.dir.sb.dcache, self.dir.dentry.get().id());
        let name = scan_name(cache.seed(), &self.path[self.rest.start..]);
        // A file system may compare names in a way of its own.
        if name.is_dots() || self.dir.inode.perm().casefold() {
            return None;
        }
        let (_, dentry) = cache.see(dir, &name, guard)?;
        (!self.dir.mount.is_read_only()).then_some(dentry)
    }

    /// It is on the same mount as another, and its last component is a name.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let name = &self.path[self.rest.start..self.rest.end];
        !matches!(name, b"" | b"." | b"..") && self.dir.mount.ptr_eq(other.dir.mount)
    }

    /// Slashes come after the last component.
    pub(crate) fn has_slash(&self) -> bool {
        self.rest.end < self.path.len()
    }
}

/// Walks a path up to the directory of its last component. `None` if that has to be done with references.
#[inline]
pub(crate) fn see_parent<'g>(
    start: Start<'g>,
    path: &'g [u8],
    resolve: Resolve,
    guard: &'g Guard,
) -> Result<Option<Parent<'g>>, Error> {
    // What was passed on the way counts for `..` in the last component, too.
    if resolve.is_scoped() {
        return Ok(None);
    }
    let Ok(mut walk) = RcuWalk::start(start, path, resolve, guard) else { return Ok(None) };
    let there = walk.walk_to_parent(path);
    walk.sb.count_walk(walk.searches, there.is_err());
    match there {
        Ok(rest) => Ok(Some(Parent { dir: walk.end(), rest, links: walk.links, path })),
        Err(stop) => stop.or_fall_back().map(|()| None),
    }
}

impl End<'_> {
    /// Takes the place into use, unless that has gone out of use meanwhile. `root` and `base` are what the walk was started
    /// with.
    pub(crate) fn hold<'a>(&self, root: &'a Location, base: &'a Location) -> Option<Spot<'a>> {
        // Whoever starts a walk keeps its base in use.
        let dentry = match base.dentry.seen().ptr_eq(self.dentry) {
            true => Ref::Borrowed(&base.dentry),
            false => Ref::Owned(self.dentry.hold()?),
        };
        Some(Spot { mount: Ref::Borrowed(self.mount_of(root, base)), dentry })
    }

    /// The same for the file alone.
    pub(crate) fn hold_subject<'a>(&self, root: &'a Location, base: &'a Location) -> Option<Subject<'a>> {
        Some(Subject::new(self.mount_of(root, base), self.dentry.get().hold_inode()?))
    }

    fn mount_of<'a>(&self, root: &'a Location, base: &'a Location) -> &'a MountRef {
        if self.mount.ptr_eq(&root.mount) { &root.mount } else { &base.mount }
    }

    /// The name that led here still stands for what it led to.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.hit.is_none_or(Hit::is_current)
    }
}

/// Who walks, and from where: from `base`, or from `root` where a path is absolute.
#[derive(Clone, Copy)]
pub(crate) struct Start<'g> {
    pub(crate) cred: &'g Arc<Cred>,
    pub(crate) root: &'g Location,
    pub(crate) base: &'g Location,
}

impl<'g> Start<'g> {
    /// Where a walk of `path` begins; nowhere, if it may not begin there.
    #[inline(always)]
    fn of(&self, path: &[u8], resolve: Resolve) -> Option<&'g Location> {
        let absolute = path.first() == Some(&b'/');
        let from = if absolute { self.root } else { self.base };
        resolve.allows(absolute).then_some(from)
    }
}

/// What a walk leads to.
#[inline(never)]
pub(crate) fn walk<'g>(
    start: Start<'g>,
    path: &'g [u8],
    how: How,
    guard: &'g Guard,
) -> Result<End<'g>, Stop> {
    let mut walk = RcuWalk::start(start, path, how.resolve, guard)?;
    let end = walk.walk(path, if how.follow { Last::Follow } else { Last::Take });
    walk.sb.count_walk(walk.searches, matches!(end, Err(Stop::Fallback)));
    end.map(|_| walk.end())
}

/// A walk under way, on one mount.
pub(crate) struct RcuWalk<'g> {
    cred: &'g Arc<Cred>,
    root: &'g Location,
    resolve: Resolve,
    guard: &'g Guard,
    mount: &'g MountRef,
    pub(crate) sb: &'g SuperBlock,
    /// Search checks may be answered from the permission word alone.
    word_decides: bool,
    at: Place<'g>,
    pub(crate) links: u32,
    /// Search checks made: fast, full.
    pub(crate) searches: [u64; 2],
    passed: Passed<'g>,
}

impl<'g> RcuWalk<'g> {
    /// A walk of `path`, at its beginning.
    #[inline(always)]
    pub(crate) fn start(
        start: Start<'g>,
        path: &[u8],
        resolve: Resolve,
        guard: &'g Guard,
    ) -> Result<Self, Stop> {
        // Unusual, or wrong, and then the other walk says how.
        if path.is_empty() || path.len() > PATH_MAX {
            return Err(Stop::Fallback);
        }
        let from = start.of(path, resolve).ok_or(Stop::Fallback)?;
        let at = Place::on(from.dentry.seen())?;
        let Start { cred, root, base } = start;
        let root = if resolve.is_scoped() { base } else { root };
        let (mount, sb) = (&from.mount, &**from.mount.superblock());
        let word_decides = sb.checker.word_decides();
        Ok(Self {
            cred,
            root,
            resolve,
            guard,
            mount,
            sb,
            word_decides,
            at,
            links: 0,
            searches: [0; 2],
            passed: Passed::default(),
        })
    }

    /// Where it stands.
    pub(crate) fn end(&self) -> End<'g> {
        let Place { dentry, inode, hit, .. } = self.at;
        End { mount: self.mount, sb: self.sb, inode, dentry, hit }
    }

    /// Walks a path up to the directory of its last component.
    pub(crate) fn walk_to_parent(&mut self, path: &'g [u8]) -> Result<Rest, Stop> {
        self.walk(path, Last::Leave)
    }

    /// Walks along `text`.
    #[inline(never)]
    fn walk(&mut self, text: &'g [u8], last: Last) -> Result<Rest, Stop> {
        // Kept out of memory: the next step waits for where this one has led.
        let (mut at, mut fast) = (self.at, 0);
        let rest = self.walk_names(text, last, &mut at, &mut fast);
        self.at = at;
        self.searches[0] += fast;
        rest
    }

    /// Walks along `text` from `at`, and counts the search checks that the permission words answer in `fast`.
    #[inline(always)]
    fn walk_names(
        &mut self,
        text: &'g [u8],
        last: Last,
        at: &mut Place<'g>,
        fast: &mut u64,
    ) -> Result<Rest, Stop> {
        let (sb, guard, word_decides) = (self.sb, self.guard, self.word_decides);
        let offset = |rest: &[u8]| text.len() - rest.len();
        let mut rest = skip_slashes(text);
        if rest.is_empty() {
            return Ok(Rest { start: text.len(), end: text.len() });
        }
        loop {
            let lets_all = word_decides && at.inode.perm().exec_all_plain();
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
            // Otherwise it is a zero byte, which no path may have.
            if behind.first().is_some_and(|&byte| byte != b'/') {
                return Err(Stop::Fallback);
            }
            let next = skip_slashes(behind);
            let (is_last, slash) = (next.is_empty(), !behind.is_empty());
            if is_last && last == Last::Leave {
                return Ok(Rest { start: offset(rest), end: offset(behind) });
            }
            if name.is_dots() {
                *at = self.step_dots(name.bytes, *at)?;
            } else {
                let (hit, dentry) = sb.dcache.see(at.id, &name, guard).ok_or(Stop::Fallback)?;
                let inode = dentry.get().inode().ok_or(Stop::Absent)?;
                if dentry.get().is_mountpoint() {
                    return Err(Stop::Fallback);
                }
                if inode.kind() == FileType::Symlink && (!is_last || slash || last == Last::Follow) {
                    *at = self.follow(inode, *at)?;
                } else {
                    *at = Place { id: hit.id(), dentry, inode, hit: Some(hit) };
                }
            }
            if is_last {
                let fits = !slash || at.inode.is_dir();
                let whole = Rest { start: text.len(), end: text.len() };
                return if fits { Ok(whole) } else { Err(Errno::ENOTDIR.into()) };
            }
            rest = next;
        }
    }

    /// The search check where the permission word does not say it all.
    #[inline(never)]
    fn search_general(&mut self, dir: &'g Inode) -> Result<(), Stop> {
        if !dir.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if dir.perm().casefold() {
            return Err(Stop::Fallback);
        }
        match self.sb.checker.search_seen(self.cred, dir, self.guard, &mut self.passed) {
            (Verdict::Granted, Search::Fast) => self.searches[0] += 1,
            (Verdict::Granted, Search::Full) => self.searches[1] += 1,
            (Verdict::Refused, _) => return Err(Errno::EACCES.into()),
            (Verdict::Unknown, _) => return Err(Stop::Fallback),
        }
        Ok(())
    }

    /// `.` and `..`
    #[cold]
    fn step_dots(&self, name: &[u8], at: Place<'g>) -> Result<Place<'g>, Stop> {
        if name == b".." { self.up(at) } else { Ok(at) }
    }

    /// One directory up, but not out of the mount.
    fn up(&self, at: Place<'g>) -> Result<Place<'g>, Stop> {
        if self.resolve.is_scoped() {
            return Err(Stop::Fallback);
        }
        if at.dentry.ptr_eq(self.root.dentry.seen()) && self.mount.ptr_eq(&self.root.mount) {
            return Ok(at);
        }
        if at.dentry.ptr_eq(self.mount.root().seen()) {
            return Err(Stop::Fallback);
        }
        let dentry = at.dentry.get().see_parent(self.guard).ok_or(Stop::Fallback)?;
        if dentry.get().is_mountpoint() {
            return Err(Stop::Fallback);
        }
        Place::on(dentry)
    }

    /// Walks the target of a symbolic link to its end, from its directory; gives back where that leads.
    #[cold]
    #[inline(never)]
    fn follow(&mut self, link: &'g Inode, dir: Place<'g>) -> Result<Place<'g>, Stop> {
        self.links += 1;
        if self.links > MAX_LINKS || self.resolve.contains(Resolve::NO_SYMLINKS) {
            return Err(Errno::ELOOP.into());
        }
        let target = link.cached_link_target().ok_or(Stop::Fallback)?;
        match target.first() {
            None => return Err(Errno::ENOENT.into()),
            // Out of the scope, or onto another mount: rare enough.
            Some(b'/') if !self.resolve.is_empty() || !self.mount.ptr_eq(&self.root.mount) => {
                return Err(Stop::Fallback);
            }
            Some(b'/') => self.at = Place::on(self.root.dentry.seen())?,
            Some(_) => self.at = dir,
        }
        self.walk(target, Last::Follow).map(|_| self.at)
    }
}

/// What comes behind the slashes at the beginning of `text`.
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
