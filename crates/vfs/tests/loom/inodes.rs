//! Inodes that are read, reused and evicted.

use extern4_sync::model::{race, race_for};
use extern4_sync::rcu::pin;

use crate::errno::Errno;
use crate::lookup::LookupFlags;
use crate::mount::Location;
use crate::name::{hash_name, new_seed};
use crate::open_flags::OpenFlags;
use crate::permission::Access;

use super::{World, a_and_no_b, errno, is_there, make_file};

#[test]
fn stat_torn_attrs() {
    // Two of the thirteen words are read, and the permission cache: all are read the same way.
    type Shared = (World, Location);
    let read = |(_, a): &Shared| {
        let (uid, gid, mode) = a.inode().owner();
        assert!(
            uid == gid && gid == u32::from(mode & 0o7777),
            "torn: {uid} {gid} {mode:o}"
        );
        let (uid, _, bits, _) = a.inode().owner_and_acl(&pin());
        assert_eq!(uid, u32::from(bits.mode() & 0o7777), "torn");
        uid
    };
    race(
        || {
            let world = a_and_no_b();
            let a = world.root.locate("/a", LookupFlags::FOLLOW).unwrap();
            a.inode()
                .update(|attr| (attr.uid, attr.gid, attr.mode) = (0, 0, 0));
            (world, a)
        },
        |(_, a)| {
            for number in 1..3 {
                a.inode().update(|attr| {
                    (attr.uid, attr.gid, attr.mode) =
                        (number, number, u16::try_from(number).unwrap());
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
            world.root.chmod("/a", 0o600, LookupFlags::FOLLOW).unwrap();
            assert_eq!(
                errno(world.user.access("/a", Access::READ, LookupFlags::FOLLOW)),
                Some(Errno::EACCES)
            );
        },
        |world| {
            let may = |world: &World| {
                errno(world.user.access("/a", Access::READ, LookupFlags::FOLLOW)).is_none()
            };
            let first = may(world);
            let held = world.root.locate("/a", LookupFlags::FOLLOW).unwrap();
            let second = may(world);
            assert!(first || !second, "refused, and granted again");
            held
        },
        |world, (), held| {
            let now = world.root.locate("/a", LookupFlags::FOLLOW).unwrap();
            assert!(
                std::ptr::eq(held.inode(), now.inode()),
                "two inodes of one number in use"
            );
        },
    );
}

/// A thread that has opened a file reads its contents, though another thread removes its only name
/// at the same time.
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

/// A thread that changes a file counts its inode and not its name: the file exists until the change
/// ends, though another thread removes its only name at the same time.
#[test]
fn unlink_last_vs_hold_inode() {
    race_for(
        || {
            let world = a_and_no_b();
            assert!(is_there(&world.user, "/a"));
            world
        },
        |world| world.root.unlink("/a").unwrap(),
        |world| match world.root.lookup().inode(b"/a", LookupFlags::FOLLOW) {
            Ok(file) => {
                let _change = file.inode().lock_exclusive();
                assert_eq!(world.inodes(), 2, "freed while it is in use");
            }
            Err(error) => assert_eq!(error.errno(), Errno::ENOENT),
        },
        |world, (), ()| assert_eq!((world.has("/a"), world.inodes()), (false, 1)),
    );
}

/// A file of two names, neither of which is in the cache, and of which one does not wait for who
/// asks for the other.
fn two_names_of_a_file() -> (World, [String; 2]) {
    // Models have two stripes.
    let stripe = |name: &String| hash_name(new_seed(), &name.as_bytes()[1..]) % 2;
    let first = "/0".to_owned();
    let other = (1..)
        .map(|number| format!("/{number}"))
        .find(|name| stripe(name) != stripe(&first))
        .unwrap();
    let world = World::new(|root| {
        assert_eq!(make_file(root, &first), None);
        root.link(&first, LookupFlags::NOFOLLOW, &other).unwrap();
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
        |(world, [a, _])| world.root.locate(a, LookupFlags::FOLLOW).unwrap(),
        |(world, [_, b])| world.root.locate(b, LookupFlags::FOLLOW).unwrap(),
        |_, a, b| {
            assert!(
                std::ptr::eq(a.inode(), b.inode()),
                "two inodes of one number in use"
            )
        },
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
            let [a, b] = names
                .each_ref()
                .map(|name| world.root.locate(name, LookupFlags::FOLLOW).unwrap());
            assert!(
                std::ptr::eq(a.inode(), b.inode()),
                "two inodes of one number in use"
            );
        },
        |(world, [a, _])| assert!(world.has(a)),
    );
}
