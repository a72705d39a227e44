//! A file system that knows names to be absent, asked by walks whose cache lacks the names.

use std::ops::ControlFlow;
use std::sync::Arc;

use extern4_acl::{Acl, AclKind};
use extern4_sync::model::race;
use extern4_sync::primitive::{AtomicBool, Ordering};

use crate::attr::{StatFs, Timespec};
use crate::cred::Cred;
use crate::errno::Result;
use crate::fs::{
    ChangeContext, FileOps, FileSystem, FsTraits, InodeOps, NameRef, NewNode, RawDirEntry, Rename,
    Span,
};
use crate::inode::{Inode, NewInode};
use crate::lookup::LookupFlags;
use crate::memfs::{MemFs, MemLimits};
use crate::mount::Namespace;
use crate::session::Session;
use crate::superblock::{SuperBlock, SuperOptions};

use super::{World, make_file, rename};

/// A [`MemFs`] that knows of the names `a` and `b` in its root whether they are there.
struct KnowingFs {
    fs: Arc<MemFs>,
    there: [AtomicBool; 2],
}

impl KnowingFs {
    fn set(&self, name: &[u8], there: bool) {
        // Release: pairs with the Acquire in `is_absent`.
        self.there[usize::from(name == b"b")].store(there, Ordering::Release);
    }
}

impl FileSystem for KnowingFs {
    fn traits(&self) -> FsTraits {
        self.fs.traits()
    }

    fn root_ino(&self) -> u64 {
        self.fs.root_ino()
    }

    fn read_inode(&self, ino: u64) -> Result<NewInode> {
        self.fs.read_inode(ino)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs()
    }

    fn evict_inode(&self, inode: &Inode) {
        self.fs.evict_inode(inode);
    }
}

impl InodeOps for KnowingFs {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<u64>> {
        self.fs.lookup(dir, name)
    }

    fn is_absent(&self, _dir: &Inode, name: &[u8]) -> bool {
        !self.there[usize::from(name == b"b")].load(Ordering::Acquire)
    }

    fn read_link(&self, inode: &Inode) -> Result<Box<[u8]>> {
        self.fs.read_link(inode)
    }

    fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.get_xattr(inode, name)
    }

    fn list_xattr(&self, inode: &Inode, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.fs.list_xattr(inode, each)
    }

    fn get_acl(&self, inode: &Inode, kind: AclKind) -> Result<Option<Acl>> {
        self.fs.get_acl(inode, kind)
    }

    fn create(&self, dir: &Inode, name: Option<&[u8]>, new: &NewNode<'_>) -> Result<NewInode> {
        let made = self.fs.create(dir, name, new)?;
        name.into_iter().for_each(|name| self.set(name, true));
        Ok(made)
    }

    fn link(&self, inode: &Inode, to: NameRef<'_>, context: ChangeContext) -> Result<()> {
        self.fs.link(inode, to, context)?;
        self.set(to.name, true);
        Ok(())
    }

    fn unlink(&self, from: NameRef<'_>, inode: &Inode, now: Timespec, is_last: bool) -> Result<()> {
        // First, as in `ext4`: the number of links changes later.
        self.set(from.name, false);
        self.fs.unlink(from, inode, now, is_last)
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        self.fs.rename(rename)?;
        self.set(rename.to.name, true);
        self.set(rename.from.name, false);
        Ok(())
    }
}

impl FileOps for KnowingFs {
    fn read_at(&self, inode: &Inode, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.fs.read_at(inode, buf, offset)
    }

    fn span_at(&self, inode: &Inode, offset: u64) -> Result<Option<Span>> {
        self.fs.span_at(inode, offset)
    }

    fn read_dir(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(RawDirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.fs.read_dir(dir, cookie, each)
    }
}

/// A world in which `make` has made files, and whose cache has no name.
fn unknown(make: impl FnOnce(&World)) -> World {
    let fs = KnowingFs {
        fs: MemFs::new(MemLimits::default()),
        there: Default::default(),
    };
    let sb = SuperBlock::new(Arc::new(fs), SuperOptions::default()).unwrap();
    let root = Session::new(&Namespace::new(Arc::clone(&sb)), Cred::root());
    let user = root.with_cred(Cred::new(5, 5, &[]));
    let world = World { sb, root, user };
    make(&world);
    world.sb.drop_caches();
    world
}

#[test]
fn a_name_is_known_under_the_old_or_the_new_name() {
    race(
        || unknown(|world| assert_eq!(make_file(&world.root, "/a"), None)),
        |world| rename(world, "/a", "/b"),
        |world| {
            let a = world.has("/a");
            let b = world.has("/b");
            assert!(a || b, "neither");
        },
        |world| assert!(world.has("/b") && !world.has("/a")),
    );
}

#[test]
fn a_name_is_absent_only_once_its_link_is_not_counted() {
    race(
        || {
            unknown(|world| {
                assert_eq!(make_file(&world.root, "/a"), None);
                world.root.link("/a", LookupFlags::NOFOLLOW, "/b").unwrap();
            })
        },
        |world| world.root.unlink("/a").unwrap(),
        |world| {
            let is_there = world.has("/a");
            let links = world
                .root
                .locate("/b", LookupFlags::NOFOLLOW)
                .unwrap()
                .inode()
                .nlink();
            assert!(
                is_there || links == 1,
                "the name is gone, and the link is not"
            );
        },
        |world| assert!(!world.has("/a") && world.has("/b")),
    );
}

#[test]
fn a_name_that_is_made_stays() {
    race(
        || unknown(|_| {}),
        |world| {
            assert_eq!(make_file(&world.root, "/a"), None);
            assert!(world.has("/a"));
        },
        |world| {
            let before = world.has("/a");
            assert!(world.has("/a") || !before);
        },
        |world| assert!(world.has("/a")),
    );
}
