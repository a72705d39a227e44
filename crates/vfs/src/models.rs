//! Models: the hot paths under loom, two threads at a time.
//!
//! What runs is the code that sessions run, on a file system in memory with tables of a few buckets. Locks and atomics
//! are loom's; `Arc` and `OnceLock` are the standard library's, so loom does not switch threads inside them. Freed memory
//! is spoilt. Presence is asked for by `access`, since thirteen words of attributes that may each be read old or new make
//! models too long; [`stat_torn_attrs`] looks at them alone.
//!
//! The names are those of the races that the design of the hot paths lists.

use std::sync::Arc;

use extern4_sync::model::{Spoiling, race, race_for};
use extern4_sync::primitive::{AtomicU64, Mutex, Ordering};
use extern4_sync::rcu::pin;

use crate::acl::{Acl, AclEntry, AclKind, AclTag};
use crate::cred::Cred;
use crate::errno::Errno;
use crate::file::OpenFlags;
use crate::fs::{NewKind, RenameFlags};
use crate::memfs::{MemFs, MemLimits};
use crate::mount::{Location, Namespace};
use crate::name::{hash_name, new_seed};
use crate::namei::How;
use crate::open_files::{Registry, Slabs, Ticket};
use crate::permission::Access;
use crate::session::Session;
use crate::superblock::{Shutdown, SuperBlock, SuperOptions};

#[global_allocator]
static ALLOCATOR: Spoiling = Spoiling;

/// A small file system, the superuser, and user 5 of group 5.
struct World {
    sb: Arc<SuperBlock>,
    root: Session,
    user: Session,
}

impl World {
    /// A world in which `make` has made files.
    fn new(make: impl FnOnce(&Session)) -> Self {
        let options = SuperOptions {
            max_dentries: 8,
            max_inodes: 8,
            max_negatives_per_dir: 8,
            ..SuperOptions::default()
        };
        let sb = SuperBlock::new(MemFs::new(MemLimits::default()), options).unwrap();
        let root = Session::new(&Namespace::new(Arc::clone(&sb)), Cred::root());
        make(&root);
        let user = root.with_cred(Cred::new(5, 5, &[]));
        Self { sb, root, user }
    }

    fn has(&self, path: &str) -> bool {
        is_there(&self.root, path)
    }

    fn ino(&self, path: &str) -> u64 {
        self.root.locate(path, How::NOFOLLOW).unwrap().ino()
    }

    /// Inodes that the file system keeps.
    fn inodes(&self) -> u64 {
        let statfs = self.sb.statfs().unwrap();
        statfs.files - statfs.files_free
    }
}

fn is_there(session: &Session, path: &str) -> bool {
    match session.access(path, Access::empty(), How::FOLLOW) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.errno(), Errno::ENOENT);
            false
        }
    }
}

/// What came of a call.
fn errno<T>(result: crate::errno::Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

fn make_file(session: &Session, path: &str) -> Option<Errno> {
    errno(session.mknod(path, NewKind::Regular, 0o644))
}

fn rename(world: &World, from: &str, to: &str) {
    world.root.rename(from, to, RenameFlags::empty()).unwrap();
}

/// The file a is there, b is not, and both are known to the cache.
fn a_and_no_b() -> World {
    let world = World::new(|root| assert_eq!(make_file(root, "/a"), None));
    assert!(world.has("/a") && !world.has("/b"));
    world
}

#[test]
fn rename_vs_lookup_neither_name() {
    race(
        a_and_no_b,
        |world| {
            rename(world, "/a", "/b");
            assert!(world.has("/b") && !world.has("/a"));
        },
        |world| {
            let (a, b) = (world.has("/a"), world.has("/b"));
            assert!(a || b, "neither");
        },
        |world| assert!(world.has("/b") && !world.has("/a")),
    );
}

#[test]
fn rename_vs_lookup_both_names() {
    race(
        a_and_no_b,
        |world| rename(world, "/a", "/b"),
        |world| {
            let (b, a) = (world.has("/b"), world.has("/a"));
            assert!(!(a && b), "both");
        },
        |world| assert!(world.has("/b") && !world.has("/a")),
    );
}

/// `N` names for the root directory that fall into one bucket.
fn names_of_one_bucket<const N: usize>() -> [String; N] {
    // Sixteen buckets, told apart by the upper bits.
    let bucket = |name: &str| hash_name(new_seed(), 1, &name.as_bytes()[1..]) >> 60;
    let mut names = (0..).map(|number| format!("/{number}"));
    let first = names.next().unwrap();
    let here = bucket(&first);
    let mut others = names.filter(|name| bucket(name) == here);
    std::array::from_fn(|index| if index == 0 { first.clone() } else { others.next().unwrap() })
}

#[test]
fn rename_chain_hop() {
    race(
        || {
            let names = names_of_one_bucket::<3>();
            let [stays, from, to] = &names;
            let world = World::new(|root| {
                assert_eq!((make_file(root, stays), make_file(root, from)), (None, None));
            });
            assert!(world.has(stays) && world.has(from) && !world.has(to));
            (world, names)
        },
        |(world, [_, from, to])| rename(world, from, to),
        |(world, [stays, from, to])| {
            let before = world.has(from);
            assert!(world.has(stays), "it was there all the time");
            assert!(before || world.has(to), "neither");
        },
        |(world, [stays, from, to])| assert!(world.has(stays) && !world.has(from) && world.has(to)),
    );
}

#[test]
fn parent_moved_dotdot() {
    type Shared = (World, Session, [u64; 2]);
    let up = |(_, below, parents): &Shared| {
        let ino = below.locate("..", How::FOLLOW).unwrap().ino();
        assert!(parents.contains(&ino));
        ino == parents[1]
    };
    race(
        || {
            let world = World::new(|root| {
                for path in ["/a", "/b", "/a/d"] {
                    root.mkdir(path, 0o755).unwrap();
                }
            });
            let below = world.root.at(&world.root.locate("/a/d", How::FOLLOW).unwrap());
            assert!(!world.has("/b/d"));
            let parents = [world.ino("/a"), world.ino("/b")];
            (world, below, parents)
        },
        |(world, ..)| rename(world, "/a/d", "/b/d"),
        move |shared| {
            let moved = up(shared);
            assert!(up(shared) || !moved, "and back");
        },
        move |shared| assert!(up(shared)),
    );
}

#[test]
fn parent_moved_and_removed_dotdot() {
    // What it hung in goes away altogether while the reader looks there.
    race(
        || {
            let world = World::new(|root| {
                root.mkdir("/a", 0o755).unwrap();
                root.mkdir("/a/d", 0o755).unwrap();
            });
            let below = world.root.locate("/a/d", How::FOLLOW).unwrap();
            assert!(!world.has("/d"));
            (world, below)
        },
        |(world, _)| {
            rename(world, "/a/d", "/d");
            world.root.rmdir("/a").unwrap();
        },
        |(world, below)| {
            let guard = pin();
            let parent = below.dentry.see_parent(&guard).unwrap();
            let id = parent.get().id();
            let inode = parent.get().inode().unwrap();
            assert!(inode.is_dir() && parent.get().id() == id);
            assert!(parent.ptr_eq(world.sb.root().seen()) || inode.ino() != world.root.root().ino());
        },
        |(world, below)| {
            assert!(below.dentry.parent().unwrap().ptr_eq(world.sb.root()));
            assert_eq!(world.inodes(), 2);
        },
    );
}

#[test]
fn negative_then_create() {
    race(
        || {
            let world = World::new(|_| ());
            assert!(!world.has("/a"));
            world
        },
        |world| {
            assert_eq!(make_file(&world.root, "/a"), None);
            assert!(world.has("/a"), "its maker knows of it");
        },
        |world| {
            let (first, second) = (world.has("/a"), world.has("/a"));
            assert!(second || !first, "there, and gone again");
        },
        |world| assert!(world.has("/a")),
    );
}

#[test]
fn create_vs_create_same_name() {
    let make = |world: &World| {
        let made = world.root.mknod("/a", NewKind::Regular, 0o644);
        assert!(world.has("/a"));
        made.map(|location| location.ino()).map_err(|error| error.errno())
    };
    race_for(
        || World::new(|_| ()),
        make,
        make,
        |world, a, b| {
            let ino = world.ino("/a");
            assert!([(Ok(ino), Err(Errno::EEXIST)), (Err(Errno::EEXIST), Ok(ino))].contains(&(a, b)));
            assert_eq!(world.inodes(), 2);
        },
    );
}

/// Two renames in one directory, each to the other's name: one after the other, and neither waits for ever.
#[test]
fn rename_vs_rename_crossed() {
    race_for(
        || {
            World::new(|root| {
                assert_eq!(make_file(root, "/a"), None);
                assert_eq!(make_file(root, "/b"), None);
            })
        },
        |world| errno(world.root.rename("/a", "/b", RenameFlags::empty())),
        |world| errno(world.root.rename("/b", "/a", RenameFlags::empty())),
        |world, forth, back| {
            let there = (world.has("/a"), world.has("/b"));
            // The second moves what the first has moved back to where it was.
            assert_eq!((forth, back), (None, None));
            assert!(there == (true, false) || there == (false, true), "{there:?}");
            assert_eq!(world.inodes(), 2);
        },
    );
}

/// One makes the name that the other renames to.
#[test]
fn rename_vs_create_same_name() {
    race_for(
        || World::new(|root| assert_eq!(make_file(root, "/a"), None)),
        |world| errno(world.root.rename("/a", "/b", RenameFlags::NOREPLACE)),
        |world| make_file(&world.root, "/b"),
        |world, renamed, made| match (renamed, made) {
            (None, Some(Errno::EEXIST)) => assert_eq!((world.has("/a"), world.inodes()), (false, 2)),
            (Some(Errno::EEXIST), None) => assert_eq!((world.has("/a"), world.inodes()), (true, 3)),
            other => panic!("{other:?}"),
        },
    );
}

#[test]
fn rmdir_vs_create() {
    race_for(
        || World::new(|root| _ = root.mkdir("/d", 0o755).unwrap()),
        |world| errno(world.root.rmdir("/d")),
        |world| make_file(&world.root, "/d/f"),
        |world, removed, made| match (removed, made) {
            (None, Some(Errno::ENOENT)) => assert_eq!((world.has("/d"), world.inodes()), (false, 1)),
            (Some(Errno::ENOTEMPTY), None) => assert!(world.has("/d/f")),
            other => panic!("{other:?}"),
        },
    );
}

#[test]
fn symlink_replace_vs_follow() {
    type Shared = (World, [u64; 2]);
    let follow = |(world, targets): &Shared| {
        let ino = world.root.locate("/s", How::FOLLOW).unwrap().ino();
        assert!(targets.contains(&ino));
        ino == targets[1]
    };
    race(
        move || {
            let world = World::new(|root| {
                assert_eq!((make_file(root, "/x"), make_file(root, "/y")), (None, None));
                root.symlink("x", "/s").unwrap();
                root.symlink("y", "/t").unwrap();
            });
            let targets = [world.ino("/x"), world.ino("/y")];
            let shared = (world, targets);
            assert!(!follow(&shared) && shared.0.has("/t"));
            shared
        },
        |(world, _)| rename(world, "/t", "/s"),
        move |shared| {
            let replaced = follow(shared);
            assert!(follow(shared) || !replaced, "and back");
        },
        move |shared| assert!(follow(shared)),
    );
}

#[test]
fn stat_torn_attrs() {
    // Two of the thirteen words are read, and the permission word: all are read the same way.
    type Shared = (World, Location);
    let read = |(_, a): &Shared| {
        let (uid, gid, mode) = a.inode().owner();
        assert!(uid == gid && gid == u32::from(mode & 0o7777), "torn: {uid} {gid} {mode:o}");
        let (uid, _, bits, _) = a.inode().standing(&pin());
        assert_eq!(uid, u32::from(bits.mode() & 0o7777), "torn");
        uid
    };
    race(
        || {
            let world = a_and_no_b();
            let a = world.root.locate("/a", How::FOLLOW).unwrap();
            a.inode().update(|attr| (attr.uid, attr.gid, attr.mode) = (0, 0, 0));
            (world, a)
        },
        |(_, a)| {
            for number in 1..3 {
                a.inode().update(|attr| {
                    (attr.uid, attr.gid, attr.mode) = (number, number, u16::try_from(number).unwrap());
                });
            }
        },
        move |shared| {
            let before = read(shared);
            assert!(read(shared) >= before, "and back");
        },
        move |shared| assert_eq!(read(shared), 2),
    );
}

#[test]
fn inode_reuse_vs_walk() {
    race_for(
        || {
            let world = a_and_no_b();
            assert!(is_there(&world.user, "/a"));
            world
        },
        |world| {
            world.sb.drop_caches();
            world.root.chmod("/a", 0o600, How::FOLLOW).unwrap();
            assert_eq!(errno(world.user.access("/a", Access::READ, How::FOLLOW)), Some(Errno::EACCES));
        },
        |world| {
            let may = |world: &World| errno(world.user.access("/a", Access::READ, How::FOLLOW)).is_none();
            let (first, held, second) =
                (may(world), world.root.locate("/a", How::FOLLOW).unwrap(), may(world));
            assert!(first || !second, "refused, and granted again");
            held
        },
        |world, (), held| {
            let now = world.root.locate("/a", How::FOLLOW).unwrap();
            assert!(std::ptr::eq(held.inode(), now.inode()), "two inodes of one number in use");
        },
    );
}

/// Who has opened a file reads what was in it, though its only name goes at the same time and the file with it.
#[test]
fn unlink_last_vs_open() {
    race_for(
        || {
            World::new(|root| {
                assert_eq!(make_file(root, "/a"), None);
                let file = root.open("/a", OpenFlags::WRITE).unwrap();
                assert_eq!(file.write_at(b"a", 0).unwrap(), 1);
            })
        },
        |world| world.root.unlink("/a").unwrap(),
        |world| {
            let file = match world.root.open("/a", OpenFlags::READ | OpenFlags::NOATIME) {
                Ok(file) => file,
                Err(error) => return assert_eq!(error.errno(), Errno::ENOENT),
            };
            let mut byte = [0];
            assert_eq!((file.read_at(&mut byte, 0).unwrap(), byte), (1, *b"a"));
        },
        |world, (), ()| {
            assert!(!world.has("/a"));
            assert_eq!(world.inodes(), 1);
        },
    );
}

/// A file of two names, neither of which is in the cache, and of which one does not wait for who asks for the other.
fn two_names_of_a_file() -> (World, [String; 2]) {
    // Models have two stripes.
    let stripe = |name: &String| hash_name(new_seed(), 1, &name.as_bytes()[1..]) % 2;
    let first = "/0".to_owned();
    let other = (1..).map(|number| format!("/{number}")).find(|name| stripe(name) != stripe(&first)).unwrap();
    let world = World::new(|root| {
        assert_eq!(make_file(root, &first), None);
        root.link(&first, How::NOFOLLOW, &other).unwrap();
    });
    (world, [first, other])
}

#[test]
fn inode_read_vs_read() {
    race_for(
        || {
            let shared = two_names_of_a_file();
            shared.0.sb.drop_caches();
            shared
        },
        |(world, [a, _])| world.root.locate(a, How::FOLLOW).unwrap(),
        |(world, [_, b])| world.root.locate(b, How::FOLLOW).unwrap(),
        |_, a, b| assert!(std::ptr::eq(a.inode(), b.inode()), "two inodes of one number in use"),
    );
}

#[test]
fn inode_evict_vs_read() {
    race(
        || {
            let shared = two_names_of_a_file();
            // So that the cache alone has the inode.
            shared.0.sb.dcache.shrink();
            shared
        },
        |(world, _)| world.sb.icache.shrink(),
        |(world, names)| {
            let [a, b] = names.each_ref().map(|name| world.root.locate(name, How::FOLLOW).unwrap());
            assert!(std::ptr::eq(a.inode(), b.inode()), "two inodes of one number in use");
        },
        |(world, [a, _])| assert!(world.has(a)),
    );
}

/// An ACL that gives user 5 `user`, the group `mask` at most, and others `other`.
fn acl(user: u8, mask: u8, other: u8) -> Acl {
    let entry = |tag, perm| AclEntry { tag, perm };
    Acl::new(vec![
        entry(AclTag::UserObj, 6),
        entry(AclTag::User(5), user),
        entry(AclTag::GroupObj, 0),
        entry(AclTag::Mask, mask),
        entry(AclTag::Other, other),
    ])
    .unwrap()
}

/// A file with an ACL, or a mode alone.
#[derive(Clone, Copy)]
enum Rights {
    Mode(u16),
    /// For [`acl`].
    Acl(u8, u8, u8),
}

impl Rights {
    /// Sets them, as `chmod` and `setfacl` do.
    fn set(self, session: &Session, path: &str) {
        let acl = match self {
            // An ACL that is no more than a mode sets the mode and leaves none.
            Self::Mode(mode) => Acl::from_mode(mode),
            Self::Acl(user, mask, other) => acl(user, mask, other),
        };
        session.set_acl(path, AclKind::Access, Some(acl), How::FOLLOW).unwrap();
    }
}

/// User 5 gets `answer` under rights `old` and `new`, and so at any moment of the change.
fn check_change<const OLD: usize, const NEW: usize, const ANSWER: bool>() {
    let may = |world: &World| errno(world.user.access("/a", Access::READ, How::FOLLOW)).is_none();
    race(
        move || {
            let world = a_and_no_b();
            RIGHTS[OLD].set(&world.root, "/a");
            assert_eq!(may(&world), ANSWER);
            world
        },
        move |world| {
            RIGHTS[NEW].set(&world.root, "/a");
            assert_eq!(may(world), ANSWER);
        },
        move |world| assert_eq!(may(world), ANSWER, "a mixture of old and new"),
        move |world| assert_eq!(may(world), ANSWER),
    );
}

const RIGHTS: [Rights; 6] = [
    // User 5 is refused by the class of others.
    Rights::Mode(0o640),
    // User 5 is refused by name, others are not.
    Rights::Acl(0, 4, 4),
    // User 5 is granted as one of the others.
    Rights::Mode(0o604),
    // User 5 is granted by name, others are not.
    Rights::Acl(4, 4, 0),
    // User 5 is granted as one of the others, since Linux does not ask an ACL whose mask is empty.
    Rights::Acl(4, 0, 4),
    Rights::Acl(4, 4, 4),
];

#[test]
fn perm_chmod_vs_setfacl_vs_check() {
    check_change::<0, 1, false>();
    check_change::<1, 0, false>();
    check_change::<2, 3, true>();
    check_change::<3, 2, true>();
    check_change::<4, 5, true>();
    check_change::<5, 4, true>();
}

/// The same where the old ACL has not been read yet, so that the check asks the file system for it.
#[test]
fn perm_fill_vs_setfacl_vs_check() {
    let may = |world: &World| errno(world.user.access("/a", Access::READ, How::FOLLOW)).is_none();
    race(
        || {
            let world = a_and_no_b();
            RIGHTS[1].set(&world.root, "/a");
            world.sb.drop_caches();
            let a = world.root.locate("/a", How::FOLLOW).unwrap();
            (world, a)
        },
        |(world, _)| RIGHTS[0].set(&world.root, "/a"),
        move |(world, _)| assert!(!may(world), "a mixture of old and new"),
        move |(world, _)| assert!(!may(world)),
    );
}

/// A file whose ACL has not been read.
fn unread_acl() -> (World, Location) {
    let world = a_and_no_b();
    Rights::Acl(4, 4, 0).set(&world.root, "/a");
    world.sb.drop_caches();
    let a = world.root.locate("/a", How::FOLLOW).unwrap();
    assert!(a.inode().cached_acl(AclKind::Access, a.inode().perm(), &pin()).is_none());
    (world, a)
}

#[test]
fn acl_fill_vs_set() {
    race(
        unread_acl,
        |(world, _)| Rights::Acl(0, 4, 4).set(&world.root, "/a"),
        |(world, a)| {
            let is_new = || {
                let seen = world.sb.acl(a.inode(), AclKind::Access).unwrap().unwrap();
                assert!([acl(4, 4, 0), acl(0, 4, 4)].contains(&seen));
                *seen == acl(0, 4, 4)
            };
            let before = is_new();
            assert!(is_new() || !before, "and back");
        },
        |(world, a)| {
            let inode = a.inode();
            let guard = pin();
            let cached = inode.cached_acl(AclKind::Access, inode.perm(), &guard).unwrap().unwrap();
            assert_eq!(**cached, acl(0, 4, 4), "an old answer stays for ever");
            assert_eq!(errno(world.user.access("/a", Access::READ, How::FOLLOW)), Some(Errno::EACCES));
        },
    );
}

/// A directory of which is not known that it has no ACL for itself, since it has one for its children.
#[test]
fn acl_fill_of_none_vs_set() {
    race(
        || {
            let world = World::new(|root| _ = root.mkdir("/a", 0o755).unwrap());
            world.root.set_acl("/a", AclKind::Default, Some(acl(0, 4, 4)), How::FOLLOW).unwrap();
            world.sb.drop_caches();
            let a = world.root.locate("/a", How::FOLLOW).unwrap();
            assert!(a.inode().cached_acl(AclKind::Access, a.inode().perm(), &pin()).is_none());
            (world, a)
        },
        |(world, _)| Rights::Acl(0, 5, 5).set(&world.root, "/a"),
        |(world, a)| {
            let seen = world.sb.acl(a.inode(), AclKind::Access).unwrap();
            assert!(seen.is_none_or(|seen| *seen == acl(0, 5, 5)));
        },
        |(world, a)| {
            assert_eq!(*world.sb.acl(a.inode(), AclKind::Access).unwrap().unwrap(), acl(0, 5, 5));
            assert_eq!(errno(world.user.access("/a", Access::EXEC, How::FOLLOW)), Some(Errno::EACCES));
        },
    );
}

#[test]
fn acl_fill_vs_removal() {
    race(
        unread_acl,
        |(world, _)| Rights::Mode(0o640).set(&world.root, "/a"),
        |(world, a)| {
            let seen = world.sb.acl(a.inode(), AclKind::Access).unwrap();
            assert!(seen.is_none_or(|seen| *seen == acl(4, 4, 0)));
        },
        |(world, a)| {
            assert_eq!(world.sb.acl(a.inode(), AclKind::Access).unwrap(), None);
            assert_eq!(errno(world.user.access("/a", Access::READ, How::FOLLOW)), Some(Errno::EACCES));
        },
    );
}

#[test]
fn acl_free_vs_read() {
    race(
        || {
            let (world, a) = unread_acl();
            world.sb.acl(a.inode(), AclKind::Access).unwrap();
            (world, a)
        },
        |(world, _)| {
            Rights::Acl(0, 4, 4).set(&world.root, "/a");
            Rights::Acl(2, 4, 4).set(&world.root, "/a");
        },
        |(_, a)| {
            let guard = pin();
            let seen = a.inode().cached_acl(AclKind::Access, a.inode().perm(), &guard).unwrap().unwrap();
            for _ in 0..2 {
                assert!([acl(4, 4, 0), acl(0, 4, 4), acl(2, 4, 4)].contains(seen));
                drop(pin());
            }
        },
        |(world, a)| assert_eq!(*world.sb.acl(a.inode(), AclKind::Access).unwrap().unwrap(), acl(2, 4, 4)),
    );
}

/// A file in a directory of a directory, to which user 5 has gone before.
fn remembered() -> World {
    let world = World::new(|root| {
        root.mkdir("/a", 0o755).unwrap();
        root.mkdir("/a/d", 0o755).unwrap();
        assert_eq!(make_file(root, "/a/d/f"), None);
    });
    // A directory is remembered the second time that it is come by.
    assert!((0..2).all(|_| is_there(&world.user, "/a/d/f")));
    world
}

#[test]
fn path_vs_unlink_and_create() {
    race(
        remembered,
        |world| {
            world.root.unlink("/a/d/f").unwrap();
            assert!(!is_there(&world.user, "/a/d/f"), "removed, and remembered to be there");
            assert_eq!(make_file(&world.root, "/a/d/f"), None);
            assert!(is_there(&world.user, "/a/d/f"), "made, and remembered not to be there");
        },
        |world| {
            let seen: Vec<_> = (0..3).map(|_| is_there(&world.user, "/a/d/f")).collect();
            assert_ne!(seen, [false, true, false], "it came once");
        },
        |world| assert!(is_there(&world.user, "/a/d/f")),
    );
}

#[test]
fn prefix_vs_rename() {
    race(
        || {
            let world = remembered();
            assert!(!world.has("/b"));
            world
        },
        |world| {
            rename(world, "/a", "/b");
            assert!(!is_there(&world.user, "/a/d/f"));
        },
        |world| {
            let (first, second) = (is_there(&world.user, "/a/d/f"), is_there(&world.user, "/a/d/f"));
            assert!(first || !second, "gone, and back");
        },
        |world| assert!(!is_there(&world.user, "/a/d/f") && is_there(&world.user, "/b/d/f")),
    );
}

#[test]
fn prefix_vs_chmod() {
    let may = |world: &World| errno(world.user.access("/a/d/f", Access::empty(), How::FOLLOW)).is_none();
    race(
        remembered,
        move |world| {
            world.root.chmod("/a", 0o700, How::FOLLOW).unwrap();
            assert!(!may(world));
        },
        move |world| {
            let (first, second) = (may(world), may(world));
            assert!(first || !second, "refused, and granted again");
        },
        move |world| assert!(!may(world)),
    );
}

#[test]
fn prefix_vs_chmod_that_was_noticed() {
    let may = |world: &World, path| errno(world.user.access(path, Access::empty(), How::FOLLOW)).is_none();
    race(
        remembered,
        |world| world.root.chmod("/a", 0o700, How::FOLLOW).unwrap(),
        move |world| {
            // A way that is not remembered, then one that is.
            let (first, second) = (may(world, "/./a/d"), may(world, "/a/d/f"));
            assert!(first || !second, "refused, and granted again");
        },
        move |world| assert!(!may(world, "/a/d/f")),
    );
}

#[test]
fn prefix_remember_vs_rmdir() {
    let come_by = |world: &World| assert_eq!(errno(world.root.unlink("/a/d/x")), Some(Errno::ENOENT));
    race(
        move || {
            let world = World::new(|root| {
                root.mkdir("/a", 0o755).unwrap();
                root.mkdir("/a/d", 0o755).unwrap();
            });
            come_by(&world);
            world
        },
        |world| world.root.rmdir("/a/d").unwrap(),
        come_by,
        |world| assert_eq!(world.inodes(), 2, "who removed it has let go of it, and so has the cache"),
    );
}

/// A file system that is made read-only while somebody opens a file for writing: either the remount finds the file open, or the
/// file cannot be opened, and what is open when it is read-only is not open for writing. Mutation that this catches: the state
/// looked at before the count is raised.
#[test]
fn remount_ro_vs_open_write() {
    race_for(
        || World::new(|root| assert_eq!(make_file(root, "/a"), None)),
        |world| world.root.open("/a", OpenFlags::WRITE).map_err(|error| error.errno()),
        |world| errno(world.sb.remount(true)),
        |world, opened, remounted| {
            assert!(opened.is_ok() != remounted.is_none(), "both or neither");
            assert_eq!(world.sb.is_read_only(), remounted.is_none());
            match opened {
                Ok(file) => {
                    assert_eq!(remounted, Some(Errno::EBUSY));
                    assert_eq!(errno(world.sb.remount(true)), Some(Errno::EBUSY));
                    drop(file);
                    assert_eq!(errno(world.sb.remount(true)), None);
                }
                Err(error) => assert_eq!(error, Errno::EROFS),
            }
        },
    );
}

/// The same with the file closed by another thread than the one that opened it, which the remount waits for or not.
#[test]
fn remount_ro_vs_close_write() {
    race_for(
        || {
            let world = World::new(|root| assert_eq!(make_file(root, "/a"), None));
            let file = world.root.open("/a", OpenFlags::WRITE).unwrap();
            (world, Mutex::new(Some(file)))
        },
        |(_, file)| drop(file.lock().unwrap().take()),
        |(world, file)| (errno(world.sb.remount(true)), file.lock().unwrap().is_some()),
        |(world, _), (), (remounted, still_open)| {
            assert!(!(still_open && remounted.is_none()), "read-only with a writer");
            if remounted.is_some() {
                assert_eq!(errno(world.sb.remount(true)), None);
            }
        },
    );
}

/// A shutdown that waits for changes under way: what a change did is there whole, or it was refused; none is in progress afterwards.
#[test]
fn shutdown_vs_change() {
    race_for(
        || World::new(|_| ()),
        |world| make_file(&world.root, "/a"),
        |world| {
            world.sb.shut_down(Shutdown::Flush).unwrap();
            world.inodes()
        },
        |world, made, inodes| {
            assert!(made.is_none() || made == Some(Errno::EIO));
            assert_eq!((world.inodes(), made.is_none()), (inodes, inodes == 2));
        },
    );
}

type Records = Slabs<Twice>;

/// A record that says the same twice.
#[derive(Default)]
struct Twice(AtomicU64, AtomicU64);

impl Twice {
    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
        self.1.store(value, Ordering::Relaxed);
    }

    fn load(&self) -> (u64, u64) {
        (self.0.load(Ordering::Relaxed), self.1.load(Ordering::Relaxed))
    }
}

fn enter(records: &Records, value: u64) -> Ticket {
    records.add(|record| record.store(value)).unwrap()
}

fn values(records: &Records) -> Vec<u64> {
    let pairs = records.list(|record| Some(record.load()));
    assert!(
        pairs.iter().all(|(one, other)| one == other),
        "half of one record and half of another: {pairs:?}"
    );
    pairs.into_iter().map(|(value, _)| value).collect()
}

/// A thread closes what another has opened, and that one opens the next file in its place, while the list is made: a file that stays
/// is in it once, each other one at most once, and nothing that never was. Mutation that
/// this catches: no fences in `add` and `list`.
#[test]
fn open_close_remote_vs_scan() {
    race(
        || {
            let records = Records::default();
            let _stays = enter(&records, 1);
            let goes = enter(&records, 2);
            (records, goes)
        },
        |(records, goes)| {
            assert!(records.remove(goes, |_| ()));
            assert!(!records.remove(goes, |_| ()), "closed twice");
            let comes = enter(records, 3);
            assert!(records.remove(&comes, |_| ()));
            enter(records, 4);
        },
        |(records, _)| {
            let mut list = values(records);
            list.sort_unstable();
            assert!(list.starts_with(&[1]) && list.iter().all(|value| (1..5).contains(value)), "{list:?}");
            assert!(list.windows(2).all(|pair| pair[0] != pair[1]), "{list:?}");
        },
        |(records, _)| {
            let mut list = values(records);
            list.sort_unstable();
            assert_eq!(list, [1, 4]);
        },
    );
}

/// The opener takes places anew that another thread clears: each is given out once.
#[test]
fn open_vs_close_remote() {
    race_for(
        || {
            let records = Records::default();
            let tickets = [enter(&records, 1), enter(&records, 2)];
            (records, Mutex::new(Some(tickets)))
        },
        |(records, tickets)| {
            let tickets = tickets.lock().unwrap().take().unwrap();
            tickets.iter().for_each(|ticket| {
                assert!(records.remove(ticket, |record| assert!(record.load().0 < 3)));
            });
        },
        |(records, _)| [3, 4, 5].map(|value| (value, enter(records, value))),
        |(records, _), (), entered| {
            for (value, ticket) in entered {
                assert_eq!(records.with(&ticket, Twice::load), Some((value, value)));
            }
            let mut list = values(records);
            list.sort_unstable();
            assert_eq!(list, [3, 4, 5]);
        },
    );
}
