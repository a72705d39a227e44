//! Permissions and ACLs that change while they are asked for.

use extern4_acl::{Acl, AclEntry, AclKind, AclTag};
use extern4_sync::model::race;
use extern4_sync::rcu::pin;

use crate::errno::Errno;
use crate::lookup::LookupFlags;
use crate::mount::Location;
use crate::permission::Access;
use crate::session::Session;

use super::{World, a_and_no_b, errno};

/// An ACL that gives user 5 `user`, the group `mask` at most, and others `other`.
pub(super) fn acl(user: u8, mask: u8, other: u8) -> Acl {
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
pub(super) enum Rights {
    Mode(u16),
    /// For [`acl`].
    Acl(u8, u8, u8),
}

impl Rights {
    /// Sets them, as `chmod` and `setfacl` do.
    pub(super) fn set(self, session: &Session, path: &str) {
        let acl = match self {
            // An ACL that is no more than a mode sets the mode and leaves none.
            Self::Mode(mode) => Acl::from_mode(mode.into()),
            Self::Acl(user, mask, other) => acl(user, mask, other),
        };
        session
            .set_acl(path, AclKind::Access, Some(acl), LookupFlags::FOLLOW)
            .unwrap();
    }
}

/// User 5 gets `answer` under rights `old` and `new`, and so at any moment of the change.
fn check_change<const OLD: usize, const NEW: usize, const ANSWER: bool>() {
    let may =
        |world: &World| errno(world.user.access("/a", Access::READ, LookupFlags::FOLLOW)).is_none();
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

/// Sets an ACL while a check asks the file system for the old one, which has not been read yet.
#[test]
fn perm_fill_vs_setfacl_vs_check() {
    let may =
        |world: &World| errno(world.user.access("/a", Access::READ, LookupFlags::FOLLOW)).is_none();
    race(
        || {
            let world = a_and_no_b();
            RIGHTS[1].set(&world.root, "/a");
            world.sb.drop_caches();
            let a = world.root.locate("/a", LookupFlags::FOLLOW).unwrap();
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
    let a = world.root.locate("/a", LookupFlags::FOLLOW).unwrap();
    assert!(
        a.inode()
            .cached_acl(AclKind::Access, a.inode().perm(), &pin())
            .is_none()
    );
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
            let cached = inode
                .cached_acl(AclKind::Access, inode.perm(), &guard)
                .unwrap()
                .unwrap();
            assert_eq!(*cached, acl(0, 4, 4), "an old answer stays for ever");
            assert_eq!(
                errno(world.user.access("/a", Access::READ, LookupFlags::FOLLOW)),
                Some(Errno::EACCES)
            );
        },
    );
}

/// A directory of which is not known that it has no ACL for itself, since it has one for its
/// children.
#[test]
fn acl_fill_of_none_vs_set() {
    race(
        || {
            let world = World::new(|root| _ = root.mkdir("/a", 0o755).unwrap());
            world
                .root
                .set_acl(
                    "/a",
                    AclKind::Default,
                    Some(acl(0, 4, 4)),
                    LookupFlags::FOLLOW,
                )
                .unwrap();
            world.sb.drop_caches();
            let a = world.root.locate("/a", LookupFlags::FOLLOW).unwrap();
            assert!(
                a.inode()
                    .cached_acl(AclKind::Access, a.inode().perm(), &pin())
                    .is_none()
            );
            (world, a)
        },
        |(world, _)| Rights::Acl(0, 5, 5).set(&world.root, "/a"),
        |(world, a)| {
            let seen = world.sb.acl(a.inode(), AclKind::Access).unwrap();
            assert!(seen.is_none_or(|seen| *seen == acl(0, 5, 5)));
        },
        |(world, a)| {
            assert_eq!(
                *world.sb.acl(a.inode(), AclKind::Access).unwrap().unwrap(),
                acl(0, 5, 5)
            );
            assert_eq!(
                errno(world.user.access("/a", Access::EXEC, LookupFlags::FOLLOW)),
                Some(Errno::EACCES)
            );
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
            assert_eq!(
                errno(world.user.access("/a", Access::READ, LookupFlags::FOLLOW)),
                Some(Errno::EACCES)
            );
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
            let seen = a
                .inode()
                .cached_acl(AclKind::Access, a.inode().perm(), &guard)
                .unwrap()
                .unwrap();
            for _ in 0..2 {
                assert!([acl(4, 4, 0), acl(0, 4, 4), acl(2, 4, 4)].contains(seen));
                drop(pin());
            }
        },
        |(world, a)| {
            assert_eq!(
                *world.sb.acl(a.inode(), AclKind::Access).unwrap().unwrap(),
                acl(2, 4, 4)
            )
        },
    );
}
