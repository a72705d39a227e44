//! Path walk that takes a reference to each file it passes.
//!
//! `lookup` calls it.
//!
//! It serves where the walk of [`rcu_walk`](super::rcu_walk) gives up. It may wait: it reads
//! directories, link targets and ACLs, crosses mount points, and checks scoped walks. It stops
//! before the last component, since each operation takes that in its own way. Over cached names it
//! takes no lock for longer than a probe of the dentry table, and allocates nothing unless it meets
//! a symbolic link.

use std::ops::Range;
use std::sync::Arc;

use extern4_sync::rcu_arc::RcuArc;

use super::Lookup;
use super::flags::{LookupFlags, MAX_LINKS, PATH_MAX};
use super::path::{Component, LastComponent, PathRef, PathText, Ref, ResumePoint};
use crate::attr::FileType;
use crate::cred::Cred;
use crate::dentry::Dentry;
use crate::errno::{Errno, Result};
use crate::inode::Inode;
use crate::mount::{Location, Namespace};
use crate::permission::Search;

/// The components of a text that the walk has not taken yet.
struct Components<'a> {
    text: PathText<'a>,
    pos: usize,
}

impl Components<'_> {
    fn skip_slashes(&mut self) {
        let rest = &self.text.bytes()[self.pos..];
        self.pos += rest.iter().take_while(|&&byte| byte == b'/').count();
    }

    fn is_done(&self) -> bool {
        self.pos == self.text.bytes().len()
    }

    /// Takes a name and the slashes after it. Returns the name, and whether there were slashes.
    fn take_name(&mut self) -> (Range<usize>, bool) {
        let bytes = self.text.bytes();
        let start = self.pos;
        let len = bytes[start..]
            .iter()
            .take_while(|&&byte| byte != b'/')
            .count();
        self.pos = start + len;
        let slash = !self.is_done();
        self.skip_slashes();
        (start..start + len, slash)
    }
}

/// A walk under way.
pub(crate) struct RefWalk<'a> {
    namespace: &'a Namespace,
    cred: &'a Arc<Cred>,
    root: &'a Location,
    resolve: LookupFlags,
    /// The place where it stands.
    pub(crate) at: PathRef<'a>,
    /// The rests of texts in which the walk met a symbolic link. Each has a name left.
    rests: Vec<Components<'a>>,
    links: u32,
    /// Whether the cache has just been found to lack the next name.
    is_unknown: bool,
    /// The file system on which it started, and the `dir_renames` of that moment.
    renames: (u64, u64),
    /// The number of search checks so far: fast, full.
    searches: [u64; 2],
}

impl<'a> RefWalk<'a> {
    /// Starts a walk along `path` and goes to the directory of the last component.
    pub(super) fn start(
        lookup: Lookup<'a>,
        path: &'a [u8],
        resolve: LookupFlags,
    ) -> Result<(Self, LastComponent<'a>)> {
        if resolve.contains(LookupFlags::BENEATH | LookupFlags::IN_ROOT) {
            return Err(Errno::EINVAL.into());
        }
        check_text(path)?;
        let absolute = path.first() == Some(&b'/');
        if absolute && resolve.contains(LookupFlags::BENEATH) {
            return Err(Errno::EXDEV.into());
        }
        let scoped = resolve.is_scoped();
        let from = if absolute && !scoped {
            lookup.root
        } else {
            lookup.base
        };
        let mut walk = Self::at(lookup, resolve, PathRef::borrow(from), 0);
        if scoped {
            let sb = from.superblock();
            walk.root = lookup.base;
            walk.renames = (sb.id(), sb.dir_renames());
        }
        let last = walk.walk_to_last(Components {
            text: PathText::Path(path),
            pos: 0,
        })?;
        Ok((walk, last))
    }

    /// Goes on along `path` from `from` to the directory of the last component. The walk is not
    /// scoped.
    pub(super) fn resume(
        lookup: Lookup<'a>,
        path: &'a [u8],
        resolve: LookupFlags,
        from: ResumePoint<'a>,
    ) -> Result<(Self, LastComponent<'a>)> {
        let mut walk = Self::at(lookup, resolve, from.dir, from.links);
        let mut text = Components {
            text: PathText::Path(path),
            pos: from.offset,
        };
        // The walk up to here has read the name.
        let (name, _) = text.take_name();
        walk.is_unknown = from.is_unknown;
        if text.is_done() {
            return Ok((walk, LastComponent::new(path, name)));
        }
        check_no_zero_byte(&path[text.pos..])?;
        text.pos = from.offset;
        let last = walk.walk_to_last(text)?;
        Ok((walk, last))
    }

    /// Returns a walk that stands on `at` and has followed `links`.
    fn at(lookup: Lookup<'a>, resolve: LookupFlags, at: PathRef<'a>, links: u32) -> Self {
        let Lookup {
            namespace,
            cred,
            root,
            ..
        } = lookup;
        Self {
            namespace,
            cred,
            root,
            resolve,
            at,
            rests: Vec::new(),
            links,
            is_unknown: false,
            renames: (0, 0),
            searches: [0; 2],
        }
    }

    /// Goes along `text`, and then along the rests of earlier texts, to the directory of the last
    /// component.
    fn walk_to_last(&mut self, mut text: Components<'a>) -> Result<LastComponent<'a>> {
        loop {
            text.skip_slashes();
            if text.is_done() {
                match self.rests.pop() {
                    Some(rest) => {
                        text = rest;
                        continue;
                    }
                    None => {
                        return Ok(LastComponent {
                            text: text.text,
                            name: 0..0,
                            slash: false,
                        });
                    }
                }
            }
            self.search()?;
            let (name, slash) = text.take_name();
            let done = text.is_done();
            if done && self.rests.is_empty() {
                return Ok(LastComponent {
                    text: text.text,
                    name,
                    slash,
                });
            }
            match Component::of(&text.text.bytes()[name]) {
                Component::None | Component::Dot => {}
                Component::DotDot => self.up()?,
                Component::Name(name) => {
                    let dentry = self.child(name)?;
                    let inode = dentry.inode().ok_or(Errno::ENOENT)?;
                    if inode.kind() == FileType::Symlink {
                        let target = self.enter_link(inode)?;
                        if !done {
                            self.rests.push(text);
                        }
                        text = target;
                    } else {
                        self.step(dentry)?;
                    }
                }
            }
        }
    }

    /// Ends on the directory of the last component.
    pub(crate) fn into_parent(mut self) -> PathRef<'a> {
        self.leave()
    }

    /// Steps onto the last component. Follows a symbolic link if `follow` is set or slashes come
    /// after it.
    pub(crate) fn finish(
        mut self,
        mut last: LastComponent<'a>,
        mut follow: bool,
    ) -> Result<PathRef<'a>> {
        let mut must_be_dir = false;
        loop {
            // For the rest of the walk: the target of a followed link is followed, too.
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

    /// Follows a symbolic link that was the last component to the directory of its target's last
    /// component.
    pub(crate) fn follow(&mut self, link: &Inode) -> Result<LastComponent<'a>> {
        let target = self.enter_link(link)?;
        self.walk_to_last(target)
    }

    /// Looks `name` up in the directory where the walk stands.
    pub(crate) fn child(&mut self, name: &[u8]) -> Result<RcuArc<Dentry>> {
        let sb = self.at.sb();
        if std::mem::take(&mut self.is_unknown) {
            sb.lookup_unknown(&self.at.dentry, name)
        } else {
            sb.lookup(&self.at.dentry, name)
        }
    }

    /// Steps onto a positive dentry below, or onto the root of the file system that is mounted
    /// there.
    pub(crate) fn step(&mut self, dentry: RcuArc<Dentry>) -> Result<()> {
        self.at.dentry = Ref::Owned(dentry);
        self.enter_mounts()
    }

    fn enter_mounts(&mut self) -> Result<()> {
        while let Some(mount) = self.namespace.mounted_on(&self.at.mount, &self.at.dentry) {
            if self.resolve.contains(LookupFlags::NO_XDEV) {
                return Err(Errno::EXDEV.into());
            }
            self.at.dentry = Ref::Owned(mount.root().clone());
            self.at.mount = Ref::Owned(mount);
        }
        Ok(())
    }

    /// Goes up one directory, out of a mount if it stands on its root, but never past the root of
    /// the walk.
    pub(crate) fn up(&mut self) -> Result<()> {
        while !self.at.is(self.root) {
            if !self.at.dentry.ptr_eq(self.at.mount.root()) {
                let parent = self
                    .at
                    .dentry
                    .parent()
                    .expect("only the root has no parent");
                self.at.dentry = Ref::Owned(parent);
                self.check_renames()?;
                return self.enter_mounts();
            }
            let Some(on) = self.at.mount.at().cloned() else {
                return Ok(());
            };
            if self.resolve.contains(LookupFlags::NO_XDEV) {
                return Err(Errno::EXDEV.into());
            }
            self.at = PathRef {
                mount: Ref::Owned(on.mount),
                dentry: Ref::Owned(on.dentry),
            };
        }
        if self.resolve.contains(LookupFlags::BENEATH) {
            return Err(Errno::EXDEV.into());
        }
        Ok(())
    }

    /// Fails with `EAGAIN` if a directory has moved since a scoped walk started, as `openat2` does:
    /// `..` could lead out of the scope.
    fn check_renames(&self) -> Result<()> {
        let sb = self.at.sb();
        let scoped = self.resolve.is_scoped();
        if scoped && self.renames.0 == sb.id() && self.renames.1 != sb.dir_renames() {
            return Err(Errno::EAGAIN.into());
        }
        Ok(())
    }

    /// Checks whether the walk may look a name up where it stands.
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

    /// Returns the target of a link as the next text to walk, from where the walk stands or from
    /// the root.
    fn enter_link(&mut self, link: &Inode) -> Result<Components<'a>> {
        self.links += 1;
        if self.links > MAX_LINKS || self.resolve.contains(LookupFlags::NO_SYMLINKS) {
            return Err(Errno::ELOOP.into());
        }
        let target = link.link_target(&**self.at.sb().fs())?;
        match target.first() {
            None => return Err(Errno::ENOENT.into()),
            Some(b'/') => self.jump_to_root()?,
            Some(_) => {}
        }
        Ok(Components {
            text: PathText::Link(target),
            pos: 0,
        })
    }

    fn jump_to_root(&mut self) -> Result<()> {
        if self.resolve.contains(LookupFlags::BENEATH) {
            return Err(Errno::EXDEV.into());
        }
        if self.resolve.contains(LookupFlags::NO_XDEV) && !self.at.mount.ptr_eq(&self.root.mount) {
            return Err(Errno::EXDEV.into());
        }
        self.at = PathRef::borrow(self.root);
        Ok(())
    }

    /// Returns the place where it stands. The walk ends with this.
    fn leave(&mut self) -> PathRef<'a> {
        std::mem::replace(&mut self.at, PathRef::borrow(self.root))
    }
}

impl Drop for RefWalk<'_> {
    fn drop(&mut self) {
        let [fast, full] = self.searches;
        if fast + full > 0 {
            self.root.superblock().count_searches([fast, full]);
        }
    }
}

/// Fails for a path that is empty or too long, or that contains a zero byte.
fn check_text(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    if path.len() > PATH_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    check_no_zero_byte(path)
}

fn check_no_zero_byte(text: &[u8]) -> Result<()> {
    if text.contains(&0) {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}
