//! Path walk inside one RCU read section: no lock, no reference count, no allocation, no store to shared memory.
//!
//! It goes the way that [`crate::namei`] describes, over what is cached, and gives up ([`Stop::Fallback`]) where it would
//! have to wait or to take something into use: a name that is not in the cache or that somebody is changing, an ACL or a
//! link target that has not been read, a mount point, a case-folding directory, `..` in a scoped walk. The caller then
//! walks again with references. What it decides itself, errors included, is final.
//!
//! The way to the directory of the last name may be known ([`crate::prefix_cache`]); the rest it goes name by name.
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
use crate::name::{Scanned, scan_name};
use crate::namei::{How, MAX_LINKS, PATH_MAX, Ref, Resolve, Spot, Subject};
use crate::permission::{Passed, Search, Verdict, compare_fast_search};
use crate::prefix_cache::{Way, split};
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
        let name = scan_name(cache.seed(), dir, self.path, self.rest.start);
        // A file system may compare names in a way of its own.
        if matches!(name.bytes, b"." | b"..") || self.dir.inode.perm().casefold() {
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
    let end = walk.walk_path(path, if how.follow { Last::Follow } else { Last::Take });
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
    /// The directory of the last component, once that is reached, and the search checks on the way there.
    parent: Option<(Seen<'g, Dentry>, [u64; 2])>,
    /// Nothing but names so far.
    plain: bool,
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
            parent: None,
            plain: true,
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
        self.walk_path(path, Last::Leave)
    }

    /// Walks a path, by a prefix of it that is known, where the permission word decides and no rights are changing.
    fn walk_path(&mut self, path: &'g [u8], last: Last) -> Result<Rest, Stop> {
        match self.sb.prefixes.changes() {
            Some(changes) => {
                self.walk_by_prefix(last, Way { base: self.at.id, path, cred: self.cred, changes })
            }
            None => self.walk(path, last),
        }
    }

    /// Takes the way to the last component from the cache of prefixes, or walks it.
    fn walk_by_prefix(&mut self, last: Last, way: Way<'g>) -> Result<Rest, Stop> {
        let path = way.path;
        let Some(slash) = split(path) else { return self.walk(path, last) };
        let way = Way { path: &path[..slash], ..way };
        let Some((dir, searches)) = self.sb.prefixes.see(&way, self.guard) else {
            return self.walk_and_remember_dir(path, last, way);
        };
        self.at = Place::on(dir)?;
        self.searches = searches;
        self.walk_last(path, slash + 1, last)
    }

    /// Walks a path, and remembers the way to the directory of its last component the second time.
    #[inline(never)]
    fn walk_and_remember_dir(&mut self, path: &'g [u8], last: Last, way: Way<'g>) -> Result<Rest, Stop> {
        let rest = self.walk(path, last);
        // Also if the last name stands for nothing: the way to it is as good.
        let arrived = matches!(rest, Ok(_) | Err(Stop::Absent));
        if let Some((dir, searches)) = self.parent.filter(|_| self.plain && arrived)
            && dir.get().note_walk()
            && !self.sb.prefixes.renew(&way, searches, dir, self.guard)
            && let Some(dir) = dir.hold()
        {
            self.sb.prefixes.remember(&way, searches, &dir);
        }
        rest
    }

    /// Walks along `text`.
    #[inline(never)]
    fn walk(&mut self, text: &'g [u8], last: Last) -> Result<Rest, Stop> {
        let mut start = skip_slashes(text, 0);
        while start < text.len() {
            let before = self.searches;
            self.search()?;
            let name = scan_name(self.sb.dcache.seed(), self.at.id, text, start);
            let end = start + name.bytes.len();
            let next = skip_slashes(text, end);
            let (is_last, slash) = (next == text.len(), next > end);
            if name.bytes.is_empty() || !is_last && !slash {
                // A zero byte, which no path may have.
                return Err(Stop::Fallback);
            }
            if is_last {
                self.parent = Some((self.at.dentry, before));
                if last == Last::Leave {
                    return Ok(Rest { start, end });
                }
            }
            self.step(&name, !is_last || slash || last == Last::Follow)?;
            if is_last && slash && !self.at.inode.is_dir() {
                return Err(Errno::ENOTDIR.into());
            }
            start = next;
        }
        Ok(Rest { start, end: start })
    }

    /// Goes from the directory of the last component to its end, without slashes behind it. The same as
    /// [`walk`](Self::walk) does then, but for the loop.
    #[inline(always)]
    fn walk_last(&mut self, text: &'g [u8], start: usize, last: Last) -> Result<Rest, Stop> {
        self.search()?;
        let name = scan_name(self.sb.dcache.seed(), self.at.id, text, start);
        let end = start + name.bytes.len();
        if end != text.len() {
            return Err(Stop::Fallback);
        }
        if last != Last::Leave {
            self.step(&name, last == Last::Follow)?;
        }
        Ok(Rest { start, end })
    }

    /// May the walk look a name up where it stands?
    #[inline(always)]
    fn search(&mut self) -> Result<(), Stop> {
        let dir = self.at.inode;
        if self.word_decides && dir.perm().exec_all_plain() {
            compare_fast_search(self.cred, dir, self.guard);
            self.searches[0] += 1;
            return Ok(());
        }
        #[cfg(feature = "lab")]
        if self.sb.checker.lets_all(dir) {
            self.searches[0] += 1;
            return Ok(());
        }
        self.search_general(dir)
    }

    /// Goes to what a name stands for, and on where that is a symbolic link and `follow` says so.
    #[inline(always)]
    fn step(&mut self, name: &Scanned<'_>, follow: bool) -> Result<(), Stop> {
        if name.bytes.first() == Some(&b'.') && matches!(name.bytes, b"." | b"..") {
            return self.step_dots(name.bytes);
        }
        let (hit, dentry) = self.sb.dcache.see(self.at.id, name, self.guard).ok_or(Stop::Fallback)?;
        self.arrive(hit, dentry, follow)
    }

    /// Goes to what has been found, and on where that is a symbolic link and `follow` says so.
    #[inline(always)]
    fn arrive(&mut self, hit: Hit<'g>, dentry: Seen<'g, Dentry>, follow: bool) -> Result<(), Stop> {
        let Some(inode) = dentry.get().inode() else {
            return Err(Stop::Absent);
        };
        if dentry.get().is_mountpoint() {
            return Err(Stop::Fallback);
        }
        if follow && inode.kind() == FileType::Symlink {
            return self.follow(inode);
        }
        self.at = Place { id: hit.id(), dentry, inode, hit: Some(hit) };
        Ok(())
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
    fn step_dots(&mut self, name: &[u8]) -> Result<(), Stop> {
        self.plain = false;
        if name == b".." {
            self.at = self.up()?;
        }
        Ok(())
    }

    /// One directory up, but not out of the mount.
    fn up(&self) -> Result<Place<'g>, Stop> {
        if self.resolve.is_scoped() {
            return Err(Stop::Fallback);
        }
        if self.at.dentry.ptr_eq(self.root.dentry.seen()) && self.mount.ptr_eq(&self.root.mount) {
            return Ok(self.at);
        }
        if self.at.dentry.ptr_eq(self.mount.root().seen()) {
            return Err(Stop::Fallback);
        }
        let dentry = self.at.dentry.get().see_parent(self.guard).ok_or(Stop::Fallback)?;
        if dentry.get().is_mountpoint() {
            return Err(Stop::Fallback);
        }
        Place::on(dentry)
    }

    /// Walks the target of a symbolic link to its end, from where the link stands.
    #[cold]
    fn follow(&mut self, link: &'g Inode) -> Result<(), Stop> {
        self.plain = false;
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
            Some(_) => {}
        }
        self.walk(target, Last::Follow).map(|_| ())
    }
}

#[inline]
fn skip_slashes(text: &[u8], from: usize) -> usize {
    match text.get(from..) {
        Some([b'/', b'/', ..]) => skip_many_slashes(text, from),
        Some([b'/', ..]) => from + 1,
        _ => from,
    }
}

#[cold]
fn skip_many_slashes(text: &[u8], from: usize) -> usize {
    from + text[from..].iter().take_while(|&&byte| byte == b'/').count()
}
