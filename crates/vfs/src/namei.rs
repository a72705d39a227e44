//! Path walk: from a name to what it stands for.
//!
//! A walk goes component by component, as `path_resolution(7)` has it. At each step it stands on a directory that it may
//! search, takes the next name, and steps to what that stands for: up for `..`, onto the root of whatever is mounted
//! there, or into the target of a symbolic link, whose components go before those that were left. It stops before the
//! last component, since what happens with that depends on the operation.
//!
//! On names that are cached a walk takes no lock for longer than a probe of the dentry table, and allocates nothing
//! unless it meets a symbolic link.

use std::ops::{Deref, Range};
use std::sync::Arc;

use extern4_sync::rcu::pin;
use extern4_sync::shared::Shared;

use crate::attr::FileType;
use crate::cred::Cred;
use crate::dentry::Dentry;
use crate::errno::{Errno, Result};
use crate::inode::Inode;
use crate::mount::{Location, MountRef, Namespace};
use crate::permission::Search;
use crate::rcu_walk::{Parent, Rest, Start, see_parent};
use crate::superblock::{SuperBlock, directory, keep_inode};

/// Longest path in bytes: Linux's `PATH_MAX` less the zero byte that ends it there.
pub const PATH_MAX: usize = 4095;

/// Symbolic links followed in one walk at most.
pub const MAX_LINKS: u32 = 40;

bitflags::bitflags! {
    /// Limits on a path walk: those of `openat2(2)`, with its values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Resolve: u32 {
        /// Stay on one mount: `EXDEV`.
        const NO_XDEV = 0x01;
        /// Follow no magic links. There are none here.
        const NO_MAGICLINKS = 0x02;
        /// Follow no symbolic links: `ELOOP`.
        const NO_SYMLINKS = 0x04;
        /// Do not leave what lies below the starting directory: `EXDEV`.
        const BENEATH = 0x08;
        /// Take the starting directory for the root.
        const IN_ROOT = 0x10;
    }
}

impl Resolve {
    /// Walks stay below where they start.
    pub(crate) fn is_scoped(self) -> bool {
        self.intersects(Self::BENEATH | Self::IN_ROOT)
    }

    /// Makes sense with an absolute path, or with a relative one, and does not change where that starts.
    #[inline]
    pub(crate) fn allows(self, absolute: bool) -> bool {
        !self.is_scoped() || self.allows_scoped(absolute)
    }

    #[cold]
    fn allows_scoped(self, absolute: bool) -> bool {
        !absolute && !self.contains(Self::BENEATH | Self::IN_ROOT)
    }
}

/// How a path is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct How {
    /// Follow a symbolic link that is the last component.
    pub follow: bool,
    /// An empty path means the starting place itself (`AT_EMPTY_PATH`).
    pub empty: bool,
    /// Limits.
    pub resolve: Resolve,
}

impl How {
    /// Follow symbolic links, as `stat` does.
    pub const FOLLOW: Self = Self { follow: true, empty: false, resolve: Resolve::empty() };
    /// Take a symbolic link that comes last for what is meant, as `lstat` does.
    pub const NOFOLLOW: Self = Self { follow: false, empty: false, resolve: Resolve::empty() };
    /// Like `FOLLOW`, and an empty path is the starting place.
    pub const EMPTY: Self = Self { follow: true, empty: true, resolve: Resolve::empty() };
}

/// A reference that costs nothing until the walk has left where it started.
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

/// Where a walk stands: on a positive dentry.
pub(crate) struct Spot<'a> {
    pub(crate) mount: Ref<'a, MountRef>,
    pub(crate) dentry: Ref<'a, Shared<Dentry>>,
}

impl<'a> Spot<'a> {
    pub(crate) fn borrow(location: &'a Location) -> Self {
        Self { mount: Ref::Borrowed(&location.mount), dentry: Ref::Borrowed(&location.dentry) }
    }

    pub(crate) fn inode(&self) -> &Inode {
        directory(&self.dentry)
    }

    pub(crate) fn sb(&self) -> &Arc<SuperBlock> {
        self.mount.superblock()
    }

    pub(crate) fn into_location(self) -> Location {
        Location { mount: self.mount.into_owned(), dentry: self.dentry.into_owned() }
    }

    fn is(&self, other: &Location) -> bool {
        self.dentry.ptr_eq(&other.dentry) && self.mount.ptr_eq(&other.mount)
    }
}

/// What a walk came to, for an operation that is about the file alone: neither the name that led to it nor who else uses that name is of
/// interest, so that the name's dentry is not counted.
pub(crate) struct Subject<'a> {
    pub(crate) mount: Ref<'a, MountRef>,
    inode: Kept<'a>,
}

/// What keeps an inode in use.
enum Kept<'a> {
    Dentry(Ref<'a, Shared<Dentry>>),
    Inode(Shared<Inode>),
}

impl<'a> Subject<'a> {
    pub(crate) fn new(mount: &'a MountRef, inode: Shared<Inode>) -> Self {
        Self { mount: Ref::Borrowed(mount), inode: Kept::Inode(inode) }
    }

    pub(crate) fn inode(&self) -> &Inode {
        match &self.inode {
            Kept::Dentry(dentry) => directory(dentry),
            Kept::Inode(inode) => inode,
        }
    }

    pub(crate) fn sb(&self) -> &Arc<SuperBlock> {
        self.mount.superblock()
    }

    /// Its inode, for who wants to keep it.
    pub(crate) fn keep(&self) -> Shared<Inode> {
        match &self.inode {
            Kept::Dentry(dentry) => keep_inode(dentry),
            Kept::Inode(inode) => inode.clone(),
        }
    }
}

impl<'a> From<Spot<'a>> for Subject<'a> {
    fn from(spot: Spot<'a>) -> Self {
        Self { mount: spot.mount, inode: Kept::Dentry(spot.dentry) }
    }
}

/// The text that components are taken from: the caller's path, or the target of a symbolic link.
#[derive(Clone)]
enum Text<'a> {
    Path(&'a [u8]),
    Link(Arc<[u8]>),
}

impl Text<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Path(bytes) => bytes,
            Self::Link(bytes) => bytes,
        }
    }
}

/// Text, and how far it has been taken.
struct Piece<'a> {
    text: Text<'a>,
    pos: usize,
}

impl Piece<'_> {
    fn skip_slashes(&mut self) {
        let rest = &self.text.bytes()[self.pos..];
        self.pos += rest.iter().take_while(|&&byte| byte == b'/').count();
    }

    fn is_done(&self) -> bool {
        self.pos == self.text.bytes().len()
    }

    /// Takes a name and the slashes behind it; says whether there were any.
    fn take_name(&mut self) -> (Range<usize>, bool) {
        let bytes = self.text.bytes();
        let start = self.pos;
        let len = bytes[start..].iter().take_while(|&&byte| byte != b'/').count();
        self.pos = start + len;
        let slash = !self.is_done();
        self.skip_slashes();
        (start..start + len, slash)
    }
}

/// The last component of a path.
pub(crate) struct Last<'a> {
    text: Text<'a>,
    name: Range<usize>,
    /// Slashes came after it: it has to be a directory.
    pub(crate) slash: bool,
}

impl<'a> Last<'a> {
    /// That of a path that has been walked so far.
    pub(crate) fn of(path: &'a [u8], seen: &Parent<'_>) -> Self {
        let Rest { start, end } = seen.rest;
        Self { text: Text::Path(path), name: start..end, slash: seen.has_slash() }
    }
}

/// The directory of a path's last component, in use, and that.
pub(crate) type Place<'a> = (Spot<'a>, Last<'a>);

/// What the last component says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component<'n> {
    /// There is none: the walk ended where it stands.
    None,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// A name.
    Name(&'n [u8]),
}

impl Last<'_> {
    pub(crate) fn component(&self) -> Component<'_> {
        Component::of(&self.text.bytes()[self.name.clone()])
    }
}

impl<'n> Component<'n> {
    fn of(name: &'n [u8]) -> Self {
        match name {
            b"" => Self::None,
            b"." => Self::Dot,
            b".." => Self::DotDot,
            name => Self::Name(name),
        }
    }
}

/// A walk under way.
pub(crate) struct Walk<'a> {
    namespace: &'a Namespace,
    cred: &'a Arc<Cred>,
    root: &'a Location,
    resolve: Resolve,
    /// Where it stands.
    pub(crate) at: Spot<'a>,
    /// What is left of texts in which a symbolic link was met; each has a name left.
    rests: Vec<Piece<'a>>,
    links: u32,
    /// The file system it stood on when `dir_renames` was read.
    renames: (u64, u64),
    /// Search checks made: fast, full.
    searches: [u64; 2],
}

impl<'a> Walk<'a> {
    /// Starts a walk along `path` and goes to the directory of the last component.
    pub(crate) fn start(
        namespace: &'a Namespace,
        start: Start<'a>,
        path: &'a [u8],
        resolve: Resolve,
    ) -> Result<(Self, Last<'a>)> {
        let there = {
            let guard = pin();
            let seen = see_parent(start, path, resolve, &guard)?;
            seen.and_then(|seen| Self::hold(namespace, start, path, resolve, &seen))
        };
        there.map_or_else(|| Self::start_held(namespace, start, path, resolve), Ok)
    }

    /// The same, taking into use what it passes.
    pub(crate) fn start_held(
        namespace: &'a Namespace,
        Start { cred, root, base }: Start<'a>,
        path: &'a [u8],
        resolve: Resolve,
    ) -> Result<(Self, Last<'a>)> {
        if resolve.contains(Resolve::BENEATH | Resolve::IN_ROOT) {
            return Err(Errno::EINVAL.into());
        }
        check_text(path)?;
        let scoped = resolve.is_scoped();
        let absolute = path.first() == Some(&b'/');
        if absolute && resolve.contains(Resolve::BENEATH) {
            return Err(Errno::EXDEV.into());
        }
        let root = if scoped { base } else { root };
        let from = if absolute { root } else { base };
        let sb = from.superblock();
        let renames = if scoped { (sb.id(), sb.dir_renames()) } else { (0, 0) };
        let at = Spot::borrow(from);
        let mut walk = Self {
            namespace,
            cred,
            root,
            resolve,
            at,
            rests: Vec::new(),
            links: 0,
            renames,
            searches: [0; 2],
        };
        let last = walk.walk_to_last(Piece { text: Text::Path(path), pos: 0 })?;
        Ok((walk, last))
    }

    /// A walk that has been seen to go so far, of which only the directory is taken into use. `None` if that has gone out of use.
    fn hold(
        namespace: &'a Namespace,
        Start { cred, root, base }: Start<'a>,
        path: &'a [u8],
        resolve: Resolve,
        seen: &Parent<'_>,
    ) -> Option<(Self, Last<'a>)> {
        let walk = Self {
            namespace,
            cred,
            root,
            resolve,
            at: seen.dir.hold(root, base)?,
            rests: Vec::new(),
            links: seen.links,
            renames: (0, 0),
            searches: [0; 2],
        };
        Some((walk, Last::of(path, seen)))
    }

    /// Goes along `piece` and then along what was left before, up to the last component.
    fn walk_to_last(&mut self, mut piece: Piece<'a>) -> Result<Last<'a>> {
        loop {
            piece.skip_slashes();
            if piece.is_done() {
                match self.rests.pop() {
                    Some(rest) => {
                        piece = rest;
                        continue;
                    }
                    None => return Ok(Last { text: piece.text, name: 0..0, slash: false }),
                }
            }
            self.search()?;
            let (name, slash) = piece.take_name();
            let done = piece.is_done();
            if done && self.rests.is_empty() {
                return Ok(Last { text: piece.text, name, slash });
            }
            match Component::of(&piece.text.bytes()[name]) {
                Component::None | Component::Dot => {}
                Component::DotDot => self.up()?,
                Component::Name(name) => {
                    let dentry = self.child(name)?;
                    let inode = dentry.inode().ok_or(Errno::ENOENT)?;
                    if inode.kind() == FileType::Symlink {
                        let target = self.enter_link(inode)?;
                        if !done {
                            self.rests.push(piece);
                        }
                        piece = target;
                    } else {
                        self.step(dentry)?;
                    }
                }
            }
        }
    }

    /// Stays where it stands: on the directory of the last component.
    pub(crate) fn into_parent(mut self) -> Spot<'a> {
        self.leave()
    }

    /// Goes to what the last component stands for. A symbolic link is followed if `follow` says so or slashes come after
    /// it.
    pub(crate) fn finish(mut self, mut last: Last<'a>, mut follow: bool) -> Result<Spot<'a>> {
        let mut must_be_dir = false;
        loop {
            // For the rest of the walk: a link that a followed link leads to is followed too.
            must_be_dir |= last.slash;
            follow |= last.slash;
            match last.component() {
                Component::None | Component::Dot => {}
                Component::DotDot => self.up()?,
                Component::Name(name) => {
                    let dentry = self.child(name)?;
                    let inode = dentry.inode().ok_or(Errno::ENOENT)?;
                    if inode.kind() == FileType::Symlink && follow {
                        last = self.follow(inode)?;
                        continue;
                    }
                    self.step(dentry)?;
                }
            }
            if must_be_dir && !self.at.inode().is_dir() {
                return Err(Errno::ENOTDIR.into());
            }
            return Ok(self.leave());
        }
    }

    /// Goes into a symbolic link that was the last component, up to the last component of its target.
    pub(crate) fn follow(&mut self, link: &Inode) -> Result<Last<'a>> {
        let target = self.enter_link(link)?;
        self.walk_to_last(target)
    }

    /// What `name` stands for in the directory the walk stands on.
    pub(crate) fn child(&self, name: &[u8]) -> Result<Shared<Dentry>> {
        self.at.sb().lookup(&self.at.dentry, name)
    }

    /// Steps onto a positive dentry below, and onto whatever is mounted there.
    pub(crate) fn step(&mut self, dentry: Shared<Dentry>) -> Result<()> {
        self.at.dentry = Ref::Owned(dentry);
        self.enter_mounts()
    }

    fn enter_mounts(&mut self) -> Result<()> {
        while let Some(mount) = self.namespace.mounted_on(&self.at.mount, &self.at.dentry) {
            if self.resolve.contains(Resolve::NO_XDEV) {
                return Err(Errno::EXDEV.into());
            }
            self.at.dentry = Ref::Owned(mount.root().clone());
            self.at.mount = Ref::Owned(mount);
        }
        Ok(())
    }

    /// Goes up one directory, out of mounts whose roots it stands on, but never past the root.
    pub(crate) fn up(&mut self) -> Result<()> {
        while !self.at.is(self.root) {
            if !self.at.dentry.ptr_eq(self.at.mount.root()) {
                let parent = self.at.dentry.parent().expect("only the root has no parent");
                self.at.dentry = Ref::Owned(parent);
                self.check_ground()?;
                return self.enter_mounts();
            }
            let Some(on) = self.at.mount.at().cloned() else { return Ok(()) };
            if self.resolve.contains(Resolve::NO_XDEV) {
                return Err(Errno::EXDEV.into());
            }
            self.at = Spot { mount: Ref::Owned(on.mount), dentry: Ref::Owned(on.dentry) };
        }
        if self.resolve.contains(Resolve::BENEATH) {
            return Err(Errno::EXDEV.into());
        }
        Ok(())
    }

    /// A directory that was moved away from under a scoped walk could let `..` out: `EAGAIN`, as `openat2` has it.
    fn check_ground(&self) -> Result<()> {
        let sb = self.at.sb();
        let scoped = self.resolve.is_scoped();
        if scoped && self.renames.0 == sb.id() && self.renames.1 != sb.dir_renames() {
            return Err(Errno::EAGAIN.into());
        }
        Ok(())
    }

    /// May the walk look a name up where it stands?
    fn search(&mut self) -> Result<()> {
        let inode = self.at.inode();
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        match self.at.sb().checker.search(self.cred, inode)? {
            Search::Fast => self.searches[0] += 1,
            Search::Full => self.searches[1] += 1,
        }
        Ok(())
    }

    /// The target of a link as further text to walk, from where the walk stands or from the root.
    fn enter_link(&mut self, link: &Inode) -> Result<Piece<'a>> {
        self.links += 1;
        if self.links > MAX_LINKS || self.resolve.contains(Resolve::NO_SYMLINKS) {
            return Err(Errno::ELOOP.into());
        }
        let target = link.link_target(&**self.at.sb().fs())?;
        match target.first() {
            None => return Err(Errno::ENOENT.into()),
            Some(b'/') => self.jump_to_root()?,
            Some(_) => {}
        }
        Ok(Piece { text: Text::Link(target), pos: 0 })
    }

    fn jump_to_root(&mut self) -> Result<()> {
        if self.resolve.contains(Resolve::BENEATH) {
            return Err(Errno::EXDEV.into());
        }
        if self.resolve.contains(Resolve::NO_XDEV) && !self.at.mount.ptr_eq(&self.root.mount) {
            return Err(Errno::EXDEV.into());
        }
        self.at = Spot::borrow(self.root);
        Ok(())
    }

    /// Hands over where it stands. The walk ends with it.
    fn leave(&mut self) -> Spot<'a> {
        std::mem::replace(&mut self.at, Spot::borrow(self.root))
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        let [fast, full] = self.searches;
        if fast + full > 0 {
            self.root.superblock().count_searches([fast, full]);
        }
    }
}

/// What no path can be: too long, or with a zero byte in it.
fn check_text(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    if path.len() > PATH_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    if path.contains(&0) {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}
