//! Paths that a thread has looked up before: it remembers where they led, and has to notice when
//! they no longer do.

use extern4_vfs::*;

fn volume() -> Session {
    let sb = SuperBlock::new(MemFs::new(MemLimits::default()), SuperOptions::default()).unwrap();
    let root = Session::new(&Namespace::new(sb), Cred::root());
    root.mkdir("/d", 0o755).unwrap();
    root.mkdir("/d/e", 0o755).unwrap();
    root.mknod("/d/e/file", NewKind::Regular, 0o644).unwrap();
    root.symlink("file", "/d/e/link").unwrap();
    root
}

/// Looks it up three times, with the same result each time: the second time the thread remembers
/// it, the third time it knows.
fn look(session: &Session, path: &str, how: LookupFlags) -> Result<FileType, Errno> {
    let [first, second, third] = [(); 3].map(|()| {
        session
            .stat(path, how)
            .map(|attr| (attr.ino, attr.kind))
            .map_err(|error| error.errno())
    });
    assert!(first == second && second == third, "{path}");
    first.map(|(_, kind)| kind)
}

fn follow(session: &Session, path: &str) -> Result<FileType, Errno> {
    look(session, path, LookupFlags::FOLLOW)
}

#[test]
fn a_file_that_comes_and_goes() {
    let root = volume();
    let path = "/d/e/name";
    for _ in 0..3 {
        assert_eq!(follow(&root, path), Err(Errno::ENOENT));
        root.mknod(path, NewKind::Regular, 0o644).unwrap();
        assert_eq!(follow(&root, path), Ok(FileType::Regular));
        root.unlink(path).unwrap();
        assert_eq!(follow(&root, path), Err(Errno::ENOENT));
        root.mkdir(path, 0o755).unwrap();
        assert_eq!(follow(&root, path), Ok(FileType::Directory));
        assert_eq!(follow(&root, "/d/e/name/"), Ok(FileType::Directory));
        root.rmdir(path).unwrap();
        assert_eq!(follow(&root, "/d/e/name/"), Err(Errno::ENOENT));
    }
}

#[test]
fn a_missing_directory_that_comes() {
    let root = volume();
    assert_eq!(follow(&root, "/d/none/file"), Err(Errno::ENOENT));
    root.mkdir("/d/none", 0o755).unwrap();
    assert_eq!(follow(&root, "/d/none/file"), Err(Errno::ENOENT));
    root.mknod("/d/none/file", NewKind::Regular, 0o644).unwrap();
    assert_eq!(follow(&root, "/d/none/file"), Ok(FileType::Regular));
}

#[test]
fn a_directory_on_the_way_that_moves() {
    let root = volume();
    assert_eq!(follow(&root, "/d/e/file"), Ok(FileType::Regular));
    root.rename("/d", "/moved", RenameFlags::empty()).unwrap();
    assert_eq!(follow(&root, "/d/e/file"), Err(Errno::ENOENT));
    assert_eq!(follow(&root, "/moved/e/file"), Ok(FileType::Regular));
    root.rename("/moved/e/file", "/moved/e/other", RenameFlags::empty())
        .unwrap();
    assert_eq!(follow(&root, "/moved/e/file"), Err(Errno::ENOENT));
    assert_eq!(follow(&root, "/moved/e/other"), Ok(FileType::Regular));
}

#[test]
fn a_link_is_remembered_as_itself_and_followed_all_the_same() {
    let root = volume();
    for _ in 0..2 {
        assert_eq!(
            look(&root, "/d/e/link", LookupFlags::NOFOLLOW),
            Ok(FileType::Symlink)
        );
        assert_eq!(follow(&root, "/d/e/link"), Ok(FileType::Regular));
        assert_eq!(follow(&root, "/d/e/link/"), Err(Errno::ENOTDIR));
        assert_eq!(follow(&root, "/d/e/file/"), Err(Errno::ENOTDIR));
        let no_links = LookupFlags::NO_SYMLINKS | LookupFlags::FOLLOW;
        assert_eq!(look(&root, "/d/e/link", no_links), Err(Errno::ELOOP));
        let below = LookupFlags::BENEATH | LookupFlags::FOLLOW;
        assert_eq!(look(&root, "d/e/file", below), Ok(FileType::Regular));
        assert_eq!(look(&root, "/d/e/file", below), Err(Errno::EXDEV));
    }
}

#[test]
fn a_result_is_not_shared_between_callers() {
    let root = volume();
    let users = [5, 6].map(|id| root.with_cred(Cred::new(id, id, &[])));
    root.chown("/d", Some(5), Some(5), LookupFlags::FOLLOW)
        .unwrap();
    for _ in 0..3 {
        root.chmod("/d", 0o700, LookupFlags::FOLLOW).unwrap();
        assert_eq!(follow(&root, "/d/e/file"), Ok(FileType::Regular));
        assert_eq!(follow(&users[0], "/d/e/file"), Ok(FileType::Regular));
        assert_eq!(follow(&users[1], "/d/e/file"), Err(Errno::EACCES));
        root.chmod("/d", 0o755, LookupFlags::FOLLOW).unwrap();
        assert_eq!(follow(&users[1], "/d/e/file"), Ok(FileType::Regular));
    }
    // Other credentials may come to stand where dropped ones stood.
    root.chmod("/d", 0o700, LookupFlags::FOLLOW).unwrap();
    for id in 5..50 {
        let user = root.with_cred(Cred::new(id, id, &[]));
        assert_eq!(follow(&user, "/d/e/file").is_ok(), id == 5);
    }
}

#[test]
fn the_same_text_from_elsewhere_leads_elsewhere() {
    let root = volume();
    root.mkdir("/d/e/d", 0o755).unwrap();
    root.mkdir("/d/e/d/e", 0o755).unwrap();
    let below = root.at(&root.locate("/d/e", LookupFlags::FOLLOW).unwrap());
    for _ in 0..2 {
        assert_eq!(follow(&root, "d/e/file"), Ok(FileType::Regular));
        assert_eq!(follow(&below, "d/e/file"), Err(Errno::ENOENT));
    }
    // Enough that some of them share one place of the memory, one after the other.
    for n in 0..600 {
        let dir = format!("/d/e/{n}");
        root.mkdir(&dir, 0o755).unwrap();
        let there = root.at(&root.locate(&dir, LookupFlags::FOLLOW).unwrap());
        if n % 2 == 0 {
            there.mknod("same-name", NewKind::Regular, 0o644).unwrap();
        }
        assert_eq!(follow(&there, "same-name").is_ok(), n % 2 == 0);
    }
    let mut jail = root.clone();
    jail.chroot("/d/e").unwrap();
    assert_eq!(follow(&root, "/d/e/file"), Ok(FileType::Regular));
    assert_eq!(follow(&jail, "/d/e/file"), Err(Errno::ENOENT));
}

#[test]
fn a_mount_over_a_cached_name() {
    let root = volume();
    assert_eq!(follow(&root, "/d/e/file"), Ok(FileType::Regular));
    assert_eq!(follow(&root, "/d/e"), Ok(FileType::Directory));
    let other = SuperBlock::new(MemFs::new(MemLimits::default()), SuperOptions::default()).unwrap();
    let at = root.locate("/d/e", LookupFlags::FOLLOW).unwrap();
    let of = |path: &str| {
        root.mount_of(path, LookupFlags::FOLLOW)
            .unwrap()
            .superblock()
            .id()
    };
    let below = of("/d/e");
    root.namespace().mount(&at, other, false).unwrap();
    assert_eq!(follow(&root, "/d/e/file"), Err(Errno::ENOENT));
    root.mkdir("/d/e/new", 0o755).unwrap();
    assert_eq!(follow(&root, "/d/e/new"), Ok(FileType::Directory));
    assert_ne!(of("/d/e"), below);
}

#[test]
fn paths_of_every_length() {
    let root = volume();
    for len in 1..200 {
        let path = format!("/d/{}", "n".repeat(len));
        assert_eq!(follow(&root, &path), Err(Errno::ENOENT));
        root.mknod(&path, NewKind::Regular, 0o644).unwrap();
        assert_eq!(follow(&root, &path), Ok(FileType::Regular));
    }
    for len in 1..200 {
        assert_eq!(
            follow(&root, &format!("/d/{}", "n".repeat(len))),
            Ok(FileType::Regular)
        );
        assert_eq!(
            follow(&root, &format!("/d/{}m", "n".repeat(len - 1))),
            Err(Errno::ENOENT)
        );
    }
    root.root().superblock().drop_caches();
    assert_eq!(follow(&root, "/d/n"), Ok(FileType::Regular));
}

#[test]
fn a_warm_question_is_one_walk_whatever_the_answer() {
    let root = volume();
    let user = root.with_cred(Cred::new(5, 5, &[]));
    root.mkdir("/d/shut", 0o700).unwrap();
    root.mknod("/d/shut/file", NewKind::Regular, 0o644).unwrap();
    let sb = root.root().superblock();
    for (path, answer) in [
        ("/d/e/file", None),
        ("/d/e/none", Some(Errno::ENOENT)),
        ("/d/e/none/below", Some(Errno::ENOENT)),
        ("/d/shut/file", Some(Errno::EACCES)),
        ("/d/e/file/", Some(Errno::ENOTDIR)),
        ("/d/./e/file", None),
    ] {
        assert_eq!(follow(&user, path).err(), answer, "{path}");
        let before = sb.stats();
        for _ in 0..10 {
            assert_eq!(
                user.stat(path, LookupFlags::FOLLOW)
                    .map_err(|error| error.errno())
                    .err(),
                answer
            );
        }
        let after = sb.stats();
        assert_eq!(after.rcu_walks - before.rcu_walks, 10, "{path}");
        assert_eq!(
            after.walk_fallbacks + after.walk_restarts,
            before.walk_fallbacks + before.walk_restarts
        );
    }
}
