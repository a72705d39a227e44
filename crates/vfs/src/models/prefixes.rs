//! Paths that are remembered.

use extern4_sync::model::race;

use crate::errno::Errno;
use crate::namei::How;
use crate::permission::Access;

use super::{World, errno, is_there, make_file, rename};

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
