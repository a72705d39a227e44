//! Extended attributes and ACLs through the calls.

use extern4_vfs::*;

use crate::fixture::{errno, put, user, volume};

const ANY: XattrFlags = XattrFlags::empty();

#[test]
fn attributes_are_set_read_listed_and_removed() {
    let root = volume();
    put(&root, "/f", b"");
    let set = |name: &str, value: &[u8], flags| {
        errno(root.set_xattr("/f", name, value, flags, LookupFlags::FOLLOW))
    };
    let get = |name: &str| {
        root.get_xattr("/f", name, LookupFlags::FOLLOW)
            .map_err(|error| error.errno())
    };
    assert_eq!(get("user.a"), Err(Errno::ENODATA));
    assert_eq!(
        set("user.a", b"1", XattrFlags::REPLACE),
        Err(Errno::ENODATA)
    );
    assert_eq!(
        set("user.a", b"1", XattrFlags::CREATE | XattrFlags::REPLACE),
        Err(Errno::ENODATA)
    );
    assert_eq!(set("user.a", b"1", XattrFlags::CREATE), Ok(()));
    assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EEXIST));
    assert_eq!(
        set("user.a", b"2", XattrFlags::CREATE | XattrFlags::REPLACE),
        Err(Errno::EEXIST)
    );
    assert_eq!(set("user.a", b"2", XattrFlags::REPLACE), Ok(()));
    assert_eq!(get("user.a"), Ok(b"2".to_vec()));
    assert_eq!(set("user.empty", b"", ANY), Ok(()));
    assert_eq!(set("trusted.t", b"t", ANY), Ok(()));
    assert_eq!(
        root.list_xattr("/f", LookupFlags::FOLLOW).unwrap(),
        [&b"trusted.t"[..], b"user.a", b"user.empty"]
    );
    let user = user(&root, 9);
    assert_eq!(
        user.list_xattr("/f", LookupFlags::FOLLOW).unwrap(),
        [&b"user.a"[..], b"user.empty"]
    );
    root.remove_xattr("/f", "user.a", LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(
        errno(root.remove_xattr("/f", "user.a", LookupFlags::FOLLOW)),
        Err(Errno::ENODATA)
    );
    for (name, want) in [
        ("", Errno::ERANGE),
        ("user.", Errno::EINVAL),
        ("nothing", Errno::EOPNOTSUPP),
        ("system.x", Errno::EOPNOTSUPP),
        ("os2.x", Errno::EOPNOTSUPP),
        (&format!("user.{}", "x".repeat(251)), Errno::ERANGE),
    ] {
        assert_eq!(set(name, b"", ANY), Err(want), "{name}");
        assert_eq!(get(name), Err(want), "{name}");
    }
    assert_eq!(set("user.big", &vec![0; 65_537], ANY), Err(Errno::E2BIG));
    assert_eq!(set("user.big", &vec![0; 65_536], ANY), Ok(()));
}

#[test]
fn name_spaces_have_their_own_rules() {
    let root = volume();
    put(&root, "/f", b"");
    root.symlink("f", "/s").unwrap();
    root.mkdir("/tmp/sticky", 0o1777).unwrap();
    root.chmod("/tmp/sticky", 0o1777, LookupFlags::FOLLOW)
        .unwrap();
    root.chmod("/f", 0o600, LookupFlags::FOLLOW).unwrap();
    let user = user(&root, 9);
    let set = |session: &Session, path: &str, name: &str| {
        errno(session.set_xattr(path, name, b"x", ANY, LookupFlags::NOFOLLOW))
    };
    let get = |session: &Session, path: &str, name: &str| {
        errno(session.get_xattr(path, name, LookupFlags::NOFOLLOW))
    };
    for (session, path, name, set_want, get_want) in [
        (
            &root,
            "/s",
            "user.a",
            Err(Errno::EPERM),
            Err(Errno::ENODATA),
        ),
        (&root, "/s", "trusted.a", Ok(()), Ok(())),
        (
            &user,
            "/f",
            "user.a",
            Err(Errno::EACCES),
            Err(Errno::EACCES),
        ),
        (
            &user,
            "/f",
            "trusted.a",
            Err(Errno::EPERM),
            Err(Errno::ENODATA),
        ),
        (
            &user,
            "/tmp/sticky",
            "user.a",
            Err(Errno::EPERM),
            Err(Errno::ENODATA),
        ),
        (&user, "/tmp", "user.a", Ok(()), Ok(())),
        (&root, "/f", "security.x", Ok(()), Ok(())),
        (&user, "/f", "security.x", Err(Errno::EPERM), Ok(())),
    ] {
        assert_eq!(set(session, path, name), set_want, "set {path} {name}");
        assert_eq!(get(session, path, name), get_want, "get {path} {name}");
    }
}

#[test]
fn file_capabilities_have_the_form_that_their_revision_says() {
    let root = volume();
    put(&root, "/f", b"");
    let user = user(&root, 9);
    let value = |magic: u32, len| [&magic.to_le_bytes()[..], &[0; 20]].concat()[..len].to_vec();
    let set = |session: &Session, value: &[u8]| {
        errno(session.set_xattr("/f", "security.capability", value, ANY, LookupFlags::FOLLOW))
    };
    for (magic, len, want) in [
        (0x0200_0000, 20, Ok(())),
        (0x0200_0001, 20, Ok(())),
        (0x0300_0000, 24, Ok(())),
        (0x0300_0001, 24, Ok(())),
        (0x0200_0000, 0, Ok(())),
        (0x0100_0000, 12, Err(Errno::EINVAL)),
        (0x0200_0000, 3, Err(Errno::EINVAL)),
        (0x0200_0000, 12, Err(Errno::EINVAL)),
        (0x0200_0000, 24, Err(Errno::EINVAL)),
        (0x0200_0002, 20, Err(Errno::EINVAL)),
        (0x0300_0000, 20, Err(Errno::EINVAL)),
        (0x0400_0000, 24, Err(Errno::EINVAL)),
    ] {
        let value = value(magic, len);
        assert_eq!(set(&root, &value), want, "{magic:#x} {len}");
        assert_eq!(
            set(&user, &value),
            want.and(Err(Errno::EPERM)),
            "{magic:#x} {len}"
        );
    }
}

#[test]
fn an_acl_and_the_mode_are_two_views_of_the_same() {
    let root = volume();
    let owner = user(&root, 1);
    put(&owner, "/tmp/f", b"");
    let mode = || root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode;
    let acl = || {
        root.acl("/tmp/f", AclKind::Access, LookupFlags::FOLLOW)
            .unwrap()
            .map(|acl| acl.to_string())
    };
    let set = |session: &Session, text: &str| {
        errno(session.set_acl(
            "/tmp/f",
            AclKind::Access,
            Some(text.parse().unwrap()),
            LookupFlags::FOLLOW,
        ))
    };
    assert_eq!(
        set(&user(&root, 2), "u::rwx,g::rwx,o::rwx"),
        Err(Errno::EPERM)
    );
    assert_eq!(set(&owner, "u::rw-,u:2:rwx,g::r--,m::rw-,o::---"), Ok(()));
    assert_eq!(mode(), 0o660);
    root.chmod("/tmp/f", 0o640, LookupFlags::FOLLOW).unwrap();
    assert_eq!(
        acl().unwrap(),
        "user::rw-\nuser:2:rwx\ngroup::r--\nmask::r--\nother::---"
    );
    let raw = root
        .get_xattr("/tmp/f", "system.posix_acl_access", LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(raw.len(), 4 + 5 * 8);
    assert_eq!(
        root.list_xattr("/tmp/f", LookupFlags::FOLLOW).unwrap(),
        [b"system.posix_acl_access"]
    );
    // An ACL of three entries is nothing but the mode.
    assert_eq!(set(&owner, "u::r--,g::r-x,o::--x"), Ok(()));
    assert_eq!((acl(), mode()), (None, 0o451));
    assert_eq!(
        errno(root.get_xattr("/tmp/f", "system.posix_acl_access", LookupFlags::FOLLOW)),
        Err(Errno::ENODATA)
    );
    root.set_xattr(
        "/tmp/f",
        "system.posix_acl_access",
        &raw,
        ANY,
        LookupFlags::FOLLOW,
    )
    .unwrap();
    assert_eq!(mode(), 0o640);
    root.remove_xattr("/tmp/f", "system.posix_acl_access", LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!((acl(), mode()), (None, 0o640));
    for (bad, want) in [
        (&b"\x02\0\0\0x"[..], Errno::EINVAL),
        (b"\x03\0\0", Errno::EINVAL),
        (b"\x03\0\0\0", Errno::EOPNOTSUPP),
        (b"\x03\0\0\0x", Errno::EOPNOTSUPP),
    ] {
        let set = root.set_xattr(
            "/tmp/f",
            "system.posix_acl_access",
            bad,
            ANY,
            LookupFlags::FOLLOW,
        );
        assert_eq!(errno(set), Err(want), "{bad:?}");
    }
    let default = Some(Acl::from_mode(0o755));
    assert_eq!(
        errno(root.set_acl("/tmp/f", AclKind::Default, default, LookupFlags::FOLLOW)),
        Err(Errno::EACCES)
    );
    root.symlink("f", "/tmp/s").unwrap();
    assert_eq!(
        errno(root.acl("/tmp/s", AclKind::Access, LookupFlags::NOFOLLOW)),
        Err(Errno::EOPNOTSUPP)
    );
}

#[test]
fn a_default_acl_is_inherited_in_place_of_the_umask() {
    let root = volume();
    let default: Acl = "u::rwx,u:7:rwx,g::r-x,m::rwx,o::---".parse().unwrap();
    root.set_acl(
        "/tmp",
        AclKind::Default,
        Some(default.clone()),
        LookupFlags::FOLLOW,
    )
    .unwrap();
    let masked = root.with_umask(0o077);
    drop(
        masked
            .open("/tmp/f", OpenFlags::WRITE | OpenFlags::CREATE)
            .unwrap(),
    );
    masked.mkdir("/tmp/d", 0o777).unwrap();
    masked.symlink("x", "/tmp/s").unwrap();
    let acl = |path: &str, kind| {
        root.acl(path, kind, LookupFlags::FOLLOW)
            .unwrap()
            .map(|acl| (*acl).clone())
    };
    assert_eq!(
        root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode,
        0o660
    );
    let want = "user::rw-\nuser:7:rwx\ngroup::r-x\nmask::rw-\nother::---";
    assert_eq!(acl("/tmp/f", AclKind::Access).unwrap().to_string(), want);
    assert_eq!(acl("/tmp/f", AclKind::Default), None);
    assert_eq!(acl("/tmp/d", AclKind::Access), Some(default.clone()));
    assert_eq!(acl("/tmp/d", AclKind::Default), Some(default));
    assert_eq!(
        root.stat("/tmp/s", LookupFlags::NOFOLLOW).unwrap().mode,
        0o777
    );
    assert!(
        user(&root, 7)
            .open("/tmp/f", OpenFlags::READ | OpenFlags::WRITE)
            .is_ok()
    );
    assert_eq!(
        errno(user(&root, 8).open("/tmp/f", OpenFlags::READ)),
        Err(Errno::EACCES)
    );
}

#[test]
fn a_whiteout_inherits_a_default_acl_with_no_rights_left() {
    let root = volume();
    let default: Acl = "u::rwx,u:7:rwx,g::r-x,m::rwx,o::r-x".parse().unwrap();
    root.set_acl("/tmp", AclKind::Default, Some(default), LookupFlags::FOLLOW)
        .unwrap();
    put(&root, "/tmp/f", b"");
    root.rename("/tmp/f", "/tmp/g", RenameFlags::WHITEOUT)
        .unwrap();
    let left = root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap();
    assert_eq!((left.kind, left.mode), (FileType::CharDevice, 0));
    let acl = root
        .acl("/tmp/f", AclKind::Access, LookupFlags::FOLLOW)
        .unwrap()
        .unwrap();
    assert_eq!(
        acl.to_string(),
        "user::---\nuser:7:rwx\ngroup::r-x\nmask::---\nother::---"
    );
}
