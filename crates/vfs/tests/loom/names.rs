//! Names that change while they are looked up.

use extern4_sync::model::{race, race_for};
use extern4_sync::rcu::pin;

use crate::dcache::CachedName;
use crate::errno::Errno;
use crate::fs::{NewKind, RenameFlags};
use crate::lookup::LookupFlags;
use crate::name::{hash_name, new_seed};
use crate::session::Session;

use super::{World, a_and_no_b, errno, make_file, rename};

#[test]
fn rename_vs_lookup_neither_name() {
    race(
        a_and_no_b,
        |world| {
            rename(world, "/a", "/b");
            assert!(world.has("/b") && !world.has("/a"));
        },
        |world| {
            let a = world.has("/a");
            let b = world.has("/b");
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
            let b = world.has("/b");
            let a = world.has("/a");
            assert!(!(a && b), "both");
        },
        |world| assert!(world.has("/b") && !world.has("/a")),
    );
}

/// `N` names for the root directory that fall into one bucket.
fn names_of_one_bucket<const N: usize>() -> [String; N] {
    // Sixteen buckets, told apart by the upper bits.
    let bucket = |name: &str| hash_name(new_seed(), &name.as_bytes()[1..]) >> 60;
    let mut names = (0..).map(|number| format!("/{number}"));
    let first = names.next().unwrap();
    let here = bucket(&first);
    let mut others = names.filter(|name| bucket(name) == here);
    std::array::from_fn(|index| {
        if index == 0 {
            first.clone()
        } else {
            others.next().unwrap()
        }
    })
}

#[test]
fn rename_chain_hop() {
    race(
        || {
            let names = names_of_one_bucket::<3>();
            let [stays, from, to] = &names;
            let world = World::new(|root| {
                assert_eq!(
                    (make_file(root, stays), make_file(root, from)),
                    (None, None)
                );
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
        let ino = below.locate("..", LookupFlags::FOLLOW).unwrap().ino();
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
            let below = world
                .root
                .at(&world.root.locate("/a/d", LookupFlags::FOLLOW).unwrap());
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

/// A walk that may not leave /a goes down into a directory and up again, while the directory moves
/// to /b or changes places with a file from there.
fn check_scope<const EXCHANGED: bool>() {
    type Shared = (World, Session, u64);
    race(
        || {
            let world = World::new(|root| {
                for path in ["/a", "/b", "/a/d"] {
                    root.mkdir(path, 0o755).unwrap();
                }
                assert!(!EXCHANGED || make_file(root, "/b/d").is_none());
            });
            let jail = world
                .root
                .at(&world.root.locate("/a", LookupFlags::FOLLOW).unwrap());
            assert_eq!(world.has("/b/d"), EXCHANGED);
            let ground = world.ino("/a");
            (world, jail, ground)
        },
        |(world, ..)| {
            if EXCHANGED {
                world
                    .root
                    .rename("/b/d", "/a/d", RenameFlags::EXCHANGE)
                    .unwrap()
            } else {
                rename(world, "/a/d", "/b/d")
            }
        },
        |(_, jail, ground): &Shared| {
            let how = LookupFlags::BENEATH | LookupFlags::FOLLOW;
            match jail.locate("d/..", how) {
                Ok(up) => assert_eq!(up.ino(), *ground, "out"),
                Err(error) => {
                    let gone = if EXCHANGED {
                        Errno::ENOTDIR
                    } else {
                        Errno::ENOENT
                    };
                    assert!([Errno::EAGAIN, gone].contains(&error.errno()), "{error}");
                }
            }
        },
        |(_, jail, _)| {
            let gone = if EXCHANGED {
                Errno::ENOTDIR
            } else {
                Errno::ENOENT
            };
            assert_eq!(errno(jail.locate("d/..", LookupFlags::FOLLOW)), Some(gone));
        },
    );
}

#[test]
fn parent_moved_scoped_dotdot() {
    check_scope::<false>();
    check_scope::<true>();
}

#[test]
fn parent_moved_and_removed_dotdot() {
    // Its old parent is removed while the reader looks there.
    race(
        || {
            let world = World::new(|root| {
                root.mkdir("/a", 0o755).unwrap();
                root.mkdir("/a/d", 0o755).unwrap();
            });
            let below = world.root.locate("/a/d", LookupFlags::FOLLOW).unwrap();
            assert!(!world.has("/d"));
            (world, below)
        },
        |(world, _)| {
            rename(world, "/a/d", "/d");
            world.root.rmdir("/a").unwrap();
        },
        |(world, below)| {
            let guard = pin();
            let (parent, inode) = below.dentry.see_parent(&guard).unwrap();
            let id = parent.get().id();
            assert!(inode.is_dir() && parent.get().id() == id);
            assert!(
                parent.ptr_eq(world.sb.root().as_rcu_ref())
                    || inode.ino() != world.root.root().ino()
            );
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
            let first = world.has("/a");
            let second = world.has("/a");
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
        made.map(|location| location.ino())
            .map_err(|error| error.errno())
    };
    race_for(
        || World::new(|_| ()),
        make,
        make,
        |world, a, b| {
            let ino = world.ino("/a");
            assert!(
                [(Ok(ino), Err(Errno::EEXIST)), (Err(Errno::EEXIST), Ok(ino))].contains(&(a, b))
            );
            assert_eq!(world.inodes(), 2);
        },
    );
}

/// A thread that asks the file system for a name has made sure that the cache does not know it.
/// Otherwise its late answer could replace a newer binding of the name.
#[test]
fn unlink_vs_lookup_that_asks() {
    race(
        || {
            let world = World::new(|root| assert_eq!(make_file(root, "/a"), None));
            assert!(world.has("/a"));
            world
        },
        |world| world.root.unlink("/a").unwrap(),
        |world| {
            let key = world.sb.dcache.key(world.sb.root(), b"a");
            let settled = world.sb.dcache.find_locked(key);
            assert!(
                !matches!(settled, CachedName::Unknown),
                "the name is in the cache all the time"
            );
        },
        |world| assert!(!world.has("/a")),
    );
}

/// Two renames in one directory, each to the other's name: one after the other, and neither waits
/// for ever.
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
            assert!(
                there == (true, false) || there == (false, true),
                "{there:?}"
            );
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
            (None, Some(Errno::EEXIST)) => {
                assert_eq!((world.has("/a"), world.inodes()), (false, 2))
            }
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
            (None, Some(Errno::ENOENT)) => {
                assert_eq!((world.has("/d"), world.inodes()), (false, 1))
            }
            (Some(Errno::ENOTEMPTY), None) => assert!(world.has("/d/f")),
            other => panic!("{other:?}"),
        },
    );
}

#[test]
fn symlink_replace_vs_follow() {
    type Shared = (World, [u64; 2]);
    let follow = |(world, targets): &Shared| {
        let ino = world.root.locate("/s", LookupFlags::FOLLOW).unwrap().ino();
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
