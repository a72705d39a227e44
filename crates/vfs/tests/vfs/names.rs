//! mkdir, mknod, symlink, link, unlink, rmdir, rename: what they do, and which error comes first.

use std::any::Any;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use extern4_vfs::*;

use crate::fixture::{errno, get, names, put, sb, user, volume, volume_with};

const NONE: RenameFlags = RenameFlags::empty();

#[test]
fn mkdir_makes_a_directory_with_the_umask_taken_off() {
    let root = volume();
    root.mkdir("/d", 0o7777).unwrap();
    let attr = root.stat("/d", LookupFlags::NOFOLLOW).unwrap();
    assert_eq!(
        (attr.kind, attr.mode, attr.nlink),
        (FileType::Directory, 0o1755, 2)
    );
    assert_eq!(root.stat("/", LookupFlags::FOLLOW).unwrap().nlink, 4);
    root.mkdir("/d/e///", 0o700).unwrap();
    assert_eq!(names(&root, "/d"), ["e"]);
}

#[test]
fn links_are_made_between_two_starting_places() {
    let root = volume();
    root.mkdir("/to", 0o755).unwrap();
    put(&root, "/f", b"text");
    let at = |path: &str| root.at(&root.locate(path, LookupFlags::FOLLOW).unwrap());
    at("/f")
        .link_to("", LookupFlags::EMPTY_PATH, &at("/to"), "name")
        .unwrap();
    assert_eq!(get(&root, "/to/name"), b"text");
    assert_eq!(root.stat("/f", LookupFlags::FOLLOW).unwrap().nlink, 2);
    assert_eq!(
        errno(at("/f").link_to("", LookupFlags::EMPTY_PATH, &at("/to"), "name")),
        Err(Errno::EEXIST)
    );
    assert_eq!(
        errno(at("/f").link_to("", LookupFlags::EMPTY_PATH, &at("/f"), "name")),
        Err(Errno::ENOTDIR)
    );
}

/// Keeps user 7 from changing names until it hears of the end of something, for a while.
struct Held {
    began: Mutex<mpsc::Sender<()>>,
    ended: Mutex<mpsc::Receiver<()>>,
}

impl SecurityHook for Held {
    fn permission(&self, cred: &Cred, _: &Inode, want: Access) -> Result<()> {
        if cred.uid() != 7 || !want.contains(Access::WRITE) {
            return Ok(());
        }
        self.began.lock().unwrap().send(()).unwrap();
        let ended = self
            .ended
            .lock()
            .unwrap()
            .recv_timeout(Duration::from_secs(60));
        ended.map_err(|_| Errno::EBUSY.into())
    }
}

/// A volume with that, what tells that user 7 is kept, and what lets it go on.
fn held_volume() -> (Session, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (began, has_begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let held = Held {
        began: Mutex::new(began),
        ended: Mutex::new(ended),
    };
    let options = SuperOptions {
        security: Some(Arc::new(held)),
        ..SuperOptions::default()
    };
    (volume_with(MemLimits::default(), options), has_begun, end)
}

#[test]
fn files_move_between_directories_where_others_change_names() {
    let (root, has_begun, end) = held_volume();
    for dir in ["/tmp/a", "/tmp/b"] {
        root.mkdir(dir, 0o777).unwrap();
        root.chmod(dir, 0o777, LookupFlags::FOLLOW).unwrap();
        put(&root, &format!("{dir}/theirs"), b"");
    }
    put(&root, "/tmp/a/f", b"first");
    put(&root, "/tmp/b/f", b"second");
    let user = user(&root, 7);
    for theirs in ["/tmp/a/theirs", "/tmp/b/theirs"] {
        thread::scope(|scope| {
            let other = scope.spawn(|| errno(user.unlink(theirs)));
            // The directory and the name are locked.
            has_begun.recv().unwrap();
            root.rename("/tmp/a/f", "/tmp/b/g", NONE).unwrap();
            root.rename("/tmp/b/g", "/tmp/a/f", NONE).unwrap();
            root.rename("/tmp/a/f", "/tmp/b/f", RenameFlags::EXCHANGE)
                .unwrap();
            end.send(()).unwrap();
            assert_eq!(other.join().unwrap(), Ok(()), "they waited for it");
        });
    }
    root.rename("/tmp/b/f", "/tmp/a/f", NONE).unwrap();
    assert_eq!(
        (get(&root, "/tmp/a/f"), names(&root, "/tmp/b")),
        (b"second".into(), Vec::new())
    );
}

#[test]
fn a_rename_waits_for_a_change_of_the_same_name() {
    let (root, has_begun, end) = held_volume();
    root.mkdir("/b", 0o755).unwrap();
    let user = user(&root, 7);
    for (from, to) in [("/tmp/f", "/b/f"), ("/b/f", "/tmp/f")] {
        put(&root, "/tmp/f", b"of user 7");
        put(&root, "/b/f", b"");
        thread::scope(|scope| {
            let unlink = scope.spawn(|| errno(user.unlink("/tmp/f")));
            has_begun.recv().unwrap();
            let rename = scope.spawn(|| errno(root.rename(from, to, NONE)));
            thread::sleep(Duration::from_millis(20));
            assert!(!rename.is_finished());
            end.send(()).unwrap();
            assert_eq!(unlink.join().unwrap(), Ok(()));
            let is_gone = from == "/tmp/f";
            assert_eq!(
                rename.join().unwrap(),
                if is_gone { Err(Errno::ENOENT) } else { Ok(()) }
            );
        });
    }
}

#[test]
fn new_names_meet_linux_s_errors() {
    let root = volume();
    put(&root, "/f", b"");
    root.chmod("/f", 0o666, LookupFlags::FOLLOW).unwrap();
    root.symlink("nowhere", "/s").unwrap();
    root.mkdir("/shut", 0o755).unwrap();
    root.mkdir("/blind", 0o700).unwrap();
    let user = user(&root, 9);
    let long = "n".repeat(256);
    for (path, want) in [
        ("/f", Errno::EEXIST),
        ("/s", Errno::EEXIST),
        ("/", Errno::EEXIST),
        ("/tmp/.", Errno::EEXIST),
        ("/tmp/..", Errno::EEXIST),
        ("/f/x", Errno::ENOTDIR),
        ("/nowhere/x", Errno::ENOENT),
        ("/s/x", Errno::ENOENT),
        ("", Errno::ENOENT),
        (&long, Errno::ENAMETOOLONG),
        ("/shut/x", Errno::EACCES),
        ("/blind/x", Errno::EACCES),
    ] {
        assert_eq!(errno(user.mkdir(path, 0o777)), Err(want), "mkdir {path}");
        assert_eq!(errno(user.symlink("t", path)), Err(want), "symlink {path}");
        assert_eq!(
            errno(user.mknod(path, NewKind::Fifo, 0o644)),
            Err(want),
            "mknod {path}"
        );
        assert_eq!(
            errno(user.link("/f", LookupFlags::NOFOLLOW, path)),
            Err(want),
            "link {path}"
        );
    }
    // Only directories may be made with a slash behind their name.
    assert_eq!(
        errno(root.mknod("/x/", NewKind::Fifo, 0o644)),
        Err(Errno::ENOENT)
    );
    assert_eq!(errno(root.symlink("t", "/x/")), Err(Errno::ENOENT));
    assert_eq!(errno(root.symlink("", "/x")), Err(Errno::ENOENT));
    assert_eq!(
        errno(root.symlink("x".repeat(4096), "/x")),
        Err(Errno::ENAMETOOLONG)
    );
}

#[test]
fn device_nodes_need_a_capability() {
    let root = volume();
    let user = user(&root, 9);
    let null = NewKind::CharDevice(Rdev { major: 1, minor: 3 });
    assert_eq!(
        errno(user.mknod("/tmp/null", null, 0o666)),
        Err(Errno::EPERM)
    );
    user.mknod("/tmp/whiteout", NewKind::CharDevice(Rdev::default()), 0)
        .unwrap();
    root.mknod("/tmp/null", null, 0o666).unwrap();
    let attr = root.stat("/tmp/null", LookupFlags::FOLLOW).unwrap();
    assert_eq!(
        (attr.kind, attr.rdev, attr.mode),
        (FileType::CharDevice, Rdev { major: 1, minor: 3 }, 0o644)
    );
    assert_eq!(
        errno(root.open("/tmp/null", OpenFlags::READ)),
        Err(Errno::ENXIO)
    );
    for kind in [NewKind::Fifo, NewKind::Socket, NewKind::Regular] {
        user.mknod("/tmp/n", kind, 0o600).unwrap();
        assert_eq!(
            user.stat("/tmp/n", LookupFlags::FOLLOW).unwrap().kind,
            kind.file_type()
        );
        user.unlink("/tmp/n").unwrap();
    }
}

#[test]
fn links_share_an_inode() {
    let root = volume();
    put(&root, "/f", b"same");
    root.link("/f", LookupFlags::NOFOLLOW, "/g").unwrap();
    let attr = root.stat("/g", LookupFlags::FOLLOW).unwrap();
    assert_eq!(
        (attr.nlink, attr.ino),
        (2, root.stat("/f", LookupFlags::FOLLOW).unwrap().ino)
    );
    root.unlink("/f").unwrap();
    assert_eq!(
        (
            get(&root, "/g"),
            root.stat("/g", LookupFlags::FOLLOW).unwrap().nlink
        ),
        (b"same".to_vec(), 1)
    );

    root.symlink("g", "/s").unwrap();
    root.link("/s", LookupFlags::NOFOLLOW, "/s2").unwrap();
    assert_eq!(
        root.stat("/s2", LookupFlags::NOFOLLOW).unwrap().kind,
        FileType::Symlink
    );
    root.link("/s", LookupFlags::FOLLOW, "/g2").unwrap();
    assert_eq!(
        root.stat("/g2", LookupFlags::NOFOLLOW).unwrap().kind,
        FileType::Regular
    );

    assert_eq!(
        errno(root.link("/tmp", LookupFlags::NOFOLLOW, "/t2")),
        Err(Errno::EPERM)
    );
    assert_eq!(
        errno(root.link("/nowhere", LookupFlags::NOFOLLOW, "/t2")),
        Err(Errno::ENOENT)
    );
    root.set_flags("/g", FileFlags::IMMUTABLE, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(
        errno(root.link("/g", LookupFlags::NOFOLLOW, "/g3")),
        Err(Errno::EPERM)
    );
}

#[test]
fn links_to_others_files_need_the_right_to_use_them() {
    let root = volume();
    let user = user(&root, 9);
    put(&root, "/tmp/f", b"");
    for (mode, want) in [
        (0o666, Ok(())),
        (0o644, Err(Errno::EPERM)),
        (0o4666, Err(Errno::EPERM)),
        (0o2676, Err(Errno::EPERM)),
        (0o2666, Ok(())),
    ] {
        root.chmod("/tmp/f", mode, LookupFlags::FOLLOW).unwrap();
        assert_eq!(
            errno(user.link("/tmp/f", LookupFlags::FOLLOW, "/tmp/g")),
            want,
            "{mode:o}"
        );
        let _ = root.unlink("/tmp/g");
    }
    let open = volume_with(
        MemLimits::default(),
        SuperOptions {
            protected_hardlinks: false,
            ..Default::default()
        },
    );
    put(&open, "/tmp/f", b"");
    open.with_cred(Cred::new(9, 9, &[]))
        .link("/tmp/f", LookupFlags::FOLLOW, "/tmp/g")
        .unwrap();
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let root = volume();
    put(&root, "/f", b"still here");
    let free = root.statfs("/", LookupFlags::FOLLOW).unwrap();
    let file = root.open("/f", OpenFlags::READ).unwrap();
    root.unlink("/f").unwrap();
    let mut bytes = [0; 10];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 10);
    assert_eq!((&bytes, file.stat().nlink), (b"still here", 0));
    assert_eq!(
        errno(
            root.at(file.location())
                .link("", LookupFlags::EMPTY_PATH, "/g")
        ),
        Err(Errno::ENOENT)
    );
    assert_eq!(
        root.namespace().path_of(file.location(), root.root()),
        b"/f (deleted)"
    );
    let same = root.statfs("/", LookupFlags::FOLLOW).unwrap();
    assert_eq!(
        (same.blocks_free, same.files_free),
        (free.blocks_free, free.files_free)
    );
    drop(file);
    let after = root.statfs("/", LookupFlags::FOLLOW).unwrap();
    assert_eq!(
        (after.blocks_free, after.files_free),
        (free.blocks_free + 1, free.files_free + 1)
    );
}

#[test]
fn unlink_and_rmdir_meet_linux_s_errors() {
    let root = volume();
    put(&root, "/f", b"");
    root.mkdir("/d", 0o755).unwrap();
    root.mkdir("/d/sub", 0o755).unwrap();
    root.symlink("d", "/s").unwrap();
    for (path, unlink, rmdir) in [
        ("/nowhere", Errno::ENOENT, Errno::ENOENT),
        ("/nowhere/", Errno::ENOENT, Errno::ENOENT),
        ("/", Errno::EISDIR, Errno::EBUSY),
        ("/d/.", Errno::EISDIR, Errno::EINVAL),
        ("/d/..", Errno::EISDIR, Errno::ENOTEMPTY),
        ("/f/x", Errno::ENOTDIR, Errno::ENOTDIR),
        ("/f/", Errno::ENOTDIR, Errno::ENOTDIR),
        ("/s/", Errno::ENOTDIR, Errno::ENOTDIR),
        ("/d", Errno::EISDIR, Errno::ENOTEMPTY),
        ("/d/", Errno::EISDIR, Errno::ENOTEMPTY),
    ] {
        assert_eq!(errno(root.unlink(path)), Err(unlink), "unlink {path}");
        assert_eq!(errno(root.rmdir(path)), Err(rmdir), "rmdir {path}");
    }
    assert_eq!(errno(root.rmdir("/f")), Err(Errno::ENOTDIR));
    let user = user(&root, 9);
    assert_eq!(errno(user.unlink("/f")), Err(Errno::EACCES));
    assert_eq!(errno(user.rmdir("/d/sub")), Err(Errno::EACCES));
    root.rmdir("/d/sub/").unwrap();
    root.rmdir("/d").unwrap();
    assert_eq!(
        errno(root.stat("/s", LookupFlags::FOLLOW)),
        Err(Errno::ENOENT)
    );
}

#[test]
fn nothing_can_be_made_in_a_removed_directory() {
    let mut root = volume();
    root.mkdir("/d", 0o755).unwrap();
    root.chdir("/d").unwrap();
    assert_eq!(
        errno(root.stat("x", LookupFlags::FOLLOW)),
        Err(Errno::ENOENT)
    );
    root.rmdir("/d").unwrap();
    assert_eq!(errno(root.mkdir("x", 0o755)), Err(Errno::ENOENT));
    assert_eq!(errno(root.mkdir("new", 0o755)), Err(Errno::ENOENT));
    assert_eq!(
        errno(root.open("y", OpenFlags::WRITE | OpenFlags::CREATE)),
        Err(Errno::ENOENT)
    );
    assert_eq!(
        errno(root.open(".", OpenFlags::WRITE | OpenFlags::TMPFILE)),
        Err(Errno::EPERM)
    );
    put(&root, "/f", b"");
    assert_eq!(errno(root.rename("/f", "z", NONE)), Err(Errno::ENOENT));
    assert_eq!(root.stat(".", LookupFlags::FOLLOW).unwrap().nlink, 0);
    assert_eq!(root.stat("..", LookupFlags::FOLLOW).unwrap().ino, 1);
}

#[test]
fn a_removed_directory_goes_at_once() {
    let root = volume();
    let free = || root.statfs("/", LookupFlags::FOLLOW).unwrap().files_free;
    let before = free();
    // Known not to be there: one name that was removed, and one that was never there.
    for over in [false, true] {
        root.mkdir("/d", 0o755).unwrap();
        put(&root, "/d/f", b"");
        root.unlink("/d/f").unwrap();
        assert_eq!(
            errno(root.stat("/d/x", LookupFlags::FOLLOW)),
            Err(Errno::ENOENT)
        );
        if over {
            root.mkdir("/e", 0o755).unwrap();
            root.rename("/e", "/d", NONE).unwrap();
        }
        root.rmdir("/d").unwrap();
        assert_eq!(free(), before);
    }
}

#[test]
fn sticky_directories_protect_others_names() {
    let root = volume();
    root.chmod("/tmp", 0o1777, LookupFlags::FOLLOW).unwrap();
    let one = user(&root, 1);
    let two = user(&root, 2);
    put(&one, "/tmp/f", b"");
    put(&two, "/tmp/g", b"");
    assert_eq!(errno(two.unlink("/tmp/f")), Err(Errno::EPERM));
    assert_eq!(
        errno(two.rename("/tmp/f", "/tmp/x", NONE)),
        Err(Errno::EPERM)
    );
    assert_eq!(
        errno(two.rename("/tmp/g", "/tmp/f", NONE)),
        Err(Errno::EPERM)
    );
    one.rename("/tmp/f", "/tmp/x", NONE).unwrap();
    root.chown("/tmp", Some(2), None, LookupFlags::FOLLOW)
        .unwrap();
    two.unlink("/tmp/x").unwrap();
}

#[test]
fn append_only_and_immutable_hold_for_the_superuser_too() {
    let root = volume();
    put(&root, "/f", b"1");
    root.mkdir("/d", 0o755).unwrap();
    put(&root, "/d/x", b"");
    root.set_flags("/d", FileFlags::APPEND, LookupFlags::FOLLOW)
        .unwrap();
    put(&root, "/d/new", b"");
    assert_eq!(errno(root.unlink("/d/x")), Err(Errno::EPERM));
    assert_eq!(errno(root.rename("/d/x", "/d/y", NONE)), Err(Errno::EPERM));
    root.set_flags("/d", FileFlags::IMMUTABLE, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(errno(root.mkdir("/d/z", 0o755)), Err(Errno::EPERM));
    root.set_flags("/f", FileFlags::APPEND, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(errno(root.open("/f", OpenFlags::WRITE)), Err(Errno::EPERM));
    assert_eq!(
        errno(root.truncate("/f", 0, LookupFlags::FOLLOW)),
        Err(Errno::EPERM)
    );
    assert_eq!(errno(root.unlink("/f")), Err(Errno::EPERM));
    assert_eq!(
        errno(root.chmod("/f", 0o600, LookupFlags::FOLLOW)),
        Err(Errno::EPERM)
    );
    let file = root
        .open("/f", OpenFlags::WRITE | OpenFlags::APPEND)
        .unwrap();
    file.write_at(b"2", 0).unwrap();
    drop(file);
    assert_eq!(get(&root, "/f"), b"12");
    root.set_flags("/f", FileFlags::IMMUTABLE, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(
        errno(root.open("/f", OpenFlags::WRITE | OpenFlags::APPEND)),
        Err(Errno::EPERM)
    );
    let now = setattr::SetTime::Now;
    assert_eq!(
        errno(root.utimens("/f", now, now, LookupFlags::FOLLOW)),
        Err(Errno::EPERM)
    );
    let user = user(&root, 9);
    put(&user, "/tmp/mine", b"");
    assert_eq!(
        errno(user.set_flags("/tmp/mine", FileFlags::IMMUTABLE, LookupFlags::FOLLOW)),
        Err(Errno::EPERM)
    );
    assert_eq!(
        errno(user.set_flags("/f", FileFlags::NOATIME, LookupFlags::FOLLOW)),
        Err(Errno::EPERM)
    );
}

#[test]
fn a_file_that_turns_immutable_cannot_be_changed_through_open_files() {
    let root = volume();
    put(&root, "/f", b"x");
    let file = root.open("/f", OpenFlags::READ | OpenFlags::WRITE).unwrap();
    let changes = || {
        [
            errno(file.write_at(b"z", 0)),
            errno(file.fallocate(FallocateMode::empty(), 0, 10)),
            errno(root.chown("/f", None, None, LookupFlags::FOLLOW)),
            errno(file.set_len(0)),
        ]
    };
    root.set_flags("/f", FileFlags::IMMUTABLE, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(changes(), [Err(Errno::EPERM); 4]);
    assert_eq!(get(&root, "/f"), b"x");
    // The entry that a kernel has cached, and the time of that.
    file.write_back(b"y", 0).unwrap();
    file.set_written(Timespec::default(), Timespec::default())
        .unwrap();
    assert_eq!(get(&root, "/f"), b"y");
    root.set_flags("/f", FileFlags::APPEND, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(changes(), [Ok(()), Ok(()), Ok(()), Err(Errno::EPERM)]);
}

#[test]
fn rename_moves_and_replaces() {
    let root = volume();
    put(&root, "/a", b"a");
    put(&root, "/b", b"b");
    root.rename("/a", "/b", NONE).unwrap();
    assert_eq!(
        (get(&root, "/b"), names(&root, "/")),
        (b"a".to_vec(), vec!["b".into(), "tmp".into()])
    );
    root.mkdir("/d", 0o755).unwrap();
    root.mkdir("/d/e", 0o755).unwrap();
    put(&root, "/d/e/f", b"f");
    root.mkdir("/empty", 0o755).unwrap();
    root.rename("/d/e", "/empty", NONE).unwrap();
    assert_eq!(get(&root, "/empty/f"), b"f");
    assert_eq!(root.stat("/empty/..", LookupFlags::FOLLOW).unwrap().ino, 1);
    assert_eq!(root.stat("/d", LookupFlags::FOLLOW).unwrap().nlink, 2);
    assert_eq!(
        errno(root.stat("/d/e/f", LookupFlags::FOLLOW)),
        Err(Errno::ENOENT)
    );
    root.rename("/empty/", "/d/e/", NONE).unwrap();
    assert_eq!(get(&root, "/d/e/f"), b"f");
    // Two names of one file: nothing happens.
    root.link("/b", LookupFlags::FOLLOW, "/b2").unwrap();
    let two = [("/b", "/b2"), ("/b", "/b"), ("/b2", "/b")];
    for (from, to) in two {
        root.rename(from, to, NONE).unwrap();
        root.rename(from, to, RenameFlags::EXCHANGE).unwrap();
        assert_eq!(
            errno(root.rename(from, to, RenameFlags::NOREPLACE)),
            Err(Errno::EEXIST)
        );
        assert_eq!(
            errno(root.rename(from, format!("{to}/"), NONE)),
            Err(Errno::ENOTDIR)
        );
    }
    assert_eq!(
        ["/b", "/b2"].map(|path| root.stat(path, LookupFlags::FOLLOW).unwrap().nlink),
        [2, 2]
    );
    sb(&root).remount(true).unwrap();
    for (from, to) in two {
        assert_eq!(errno(root.rename(from, to, NONE)), Err(Errno::EROFS));
    }
}

#[test]
fn rename_meets_linux_s_errors() {
    let root = volume();
    put(&root, "/f", b"");
    put(&root, "/g", b"");
    root.mkdir("/d", 0o755).unwrap();
    root.mkdir("/d/e", 0o755).unwrap();
    root.mkdir("/empty", 0o755).unwrap();
    let no = RenameFlags::NOREPLACE;
    let ex = RenameFlags::EXCHANGE;
    for (from, to, flags, want) in [
        ("/nowhere", "/x", NONE, Errno::ENOENT),
        ("/f", "/nowhere/x", NONE, Errno::ENOENT),
        ("/f", "/g/x", NONE, Errno::ENOTDIR),
        ("/f/", "/x", NONE, Errno::ENOTDIR),
        ("/f", "/x/", NONE, Errno::ENOTDIR),
        ("/f", "/d", NONE, Errno::EISDIR),
        ("/d", "/f", NONE, Errno::ENOTDIR),
        ("/empty", "/d", NONE, Errno::ENOTEMPTY),
        ("/d", "/d/x", NONE, Errno::EINVAL),
        ("/d", "/d/e", NONE, Errno::EINVAL),
        ("/d", "/d/e/x", NONE, Errno::EINVAL),
        ("/d/e", "/d", NONE, Errno::ENOTEMPTY),
        ("/", "/x", NONE, Errno::EBUSY),
        ("/d/.", "/x", NONE, Errno::EBUSY),
        ("/f", "/d/..", NONE, Errno::EBUSY),
        ("/f", "/", no, Errno::EEXIST),
        ("/f", "/g", no, Errno::EEXIST),
        ("/f", "/x", ex, Errno::ENOENT),
        ("/d/e", "/d", ex, Errno::EINVAL),
        ("/d", "/d/e", ex, Errno::EINVAL),
        ("/f", "/x", no | ex, Errno::EINVAL),
    ] {
        assert_eq!(
            errno(root.rename(from, to, flags)),
            Err(want),
            "{from} -> {to} {flags:?}"
        );
    }
    root.rename("/f", "/x", no).unwrap();
    root.rename("/x", "/d", ex).unwrap();
    assert_eq!(
        root.stat("/d", LookupFlags::FOLLOW).unwrap().kind,
        FileType::Regular
    );
    assert!(root.stat("/x/e", LookupFlags::FOLLOW).is_ok());
    root.rename("/x/e", "/g", ex).unwrap();
    assert_eq!(
        root.stat("/x/e", LookupFlags::FOLLOW).unwrap().kind,
        FileType::Regular
    );
    assert_eq!(
        (
            root.stat("/x", LookupFlags::FOLLOW).unwrap().nlink,
            root.stat("/g/..", LookupFlags::FOLLOW).unwrap().ino
        ),
        (2, 1)
    );
}

#[test]
fn a_directory_that_moves_must_be_writable_itself() {
    let root = volume();
    let user = user(&root, 9);
    user.mkdir("/tmp/a", 0o755).unwrap();
    user.mkdir("/tmp/b", 0o755).unwrap();
    user.mkdir("/tmp/a/locked", 0o500).unwrap();
    assert_eq!(
        errno(user.rename("/tmp/a/locked", "/tmp/b/x", NONE)),
        Err(Errno::EACCES)
    );
    user.rename("/tmp/a/locked", "/tmp/a/x", NONE).unwrap();
}

#[test]
fn mounts_cannot_be_crossed_or_removed() {
    let root = volume();
    root.mkdir("/m", 0o755).unwrap();
    put(&root, "/f", b"");
    let at = root.locate("/m", LookupFlags::FOLLOW).unwrap();
    let other = SuperBlock::new(MemFs::new(MemLimits::default()), SuperOptions::default()).unwrap();
    root.namespace().mount(&at, other, false).unwrap();
    drop(at);
    assert_eq!(errno(root.rename("/f", "/m/f", NONE)), Err(Errno::EXDEV));
    assert_eq!(
        errno(root.link("/f", LookupFlags::FOLLOW, "/m/f")),
        Err(Errno::EXDEV)
    );
    assert_eq!(errno(root.rmdir("/m")), Err(Errno::EBUSY));
    assert_eq!(errno(root.rename("/m", "/n", NONE)), Err(Errno::EBUSY));
    put(&root, "/m/f", b"inside");
    root.namespace()
        .unmount(root.locate("/m", LookupFlags::FOLLOW).unwrap())
        .unwrap();
    assert_eq!(
        errno(root.stat("/m/f", LookupFlags::FOLLOW)),
        Err(Errno::ENOENT)
    );
    root.rmdir("/m").unwrap();
}

#[test]
fn limits_are_kept() {
    let limits = MemLimits {
        blocks: 2,
        inodes: 6,
        max_links: 3,
    };
    let root = volume_with(limits, SuperOptions::default());
    put(&root, "/f", b"x");
    root.link("/f", LookupFlags::FOLLOW, "/f2").unwrap();
    root.link("/f", LookupFlags::FOLLOW, "/f3").unwrap();
    assert_eq!(
        errno(root.link("/f", LookupFlags::FOLLOW, "/f4")),
        Err(Errno::EMLINK)
    );
    assert_eq!(
        errno(root.mkdir("/one too many", 0o755)),
        Err(Errno::EMLINK)
    );
    root.mkdir("/tmp/d", 0o755).unwrap();
    assert_eq!(errno(root.mkdir("/tmp/e", 0o755)), Err(Errno::EMLINK));
    let file = root.open("/f", OpenFlags::WRITE).unwrap();
    assert_eq!(file.write_at(&[1; 20_000], 0).unwrap(), 8192);
    assert_eq!(errno(file.write_at(b"x", 8192)), Err(Errno::ENOSPC));
    file.set_len(4096).unwrap();
    assert_eq!(file.write_at(b"x", 1 << 40).unwrap(), 1);
    assert_eq!(errno(file.write_at(b"x", u64::MAX)), Err(Errno::EFBIG));
    put(&root, "/g", b"");
    put(&root, "/h", b"");
    assert_eq!(
        errno(root.mknod("/i", NewKind::Fifo, 0o644)),
        Err(Errno::ENOSPC)
    );
    root.unlink("/g").unwrap();
    root.mknod("/i", NewKind::Fifo, 0o644).unwrap();
}

/// Whether the cache knows the names or not.
#[test]
fn a_wrong_new_path_comes_before_an_old_one_that_is_absent() {
    let root = volume();
    let long = [b'x'; 256];
    for known in [false, true] {
        if known {
            assert_eq!(
                errno(root.stat("/nowhere", LookupFlags::FOLLOW)),
                Err(Errno::ENOENT)
            );
        }
        assert_eq!(
            errno(root.rename("/nowhere", "/.", NONE)),
            Err(Errno::EBUSY)
        );
        assert_eq!(
            errno(root.rename("/nowhere", ".", RenameFlags::NOREPLACE)),
            Err(Errno::EEXIST)
        );
        assert_eq!(
            errno(root.rename("/nowhere", "/none/x", NONE)),
            Err(Errno::ENOENT)
        );
        assert_eq!(
            errno(root.rename("/nowhere", "/x", NONE)),
            Err(Errno::ENOENT)
        );
        assert_eq!(
            errno(root.rename("/none/nowhere", long, NONE)),
            Err(Errno::ENOENT)
        );
        // A name that none can be is a matter of looking it up, which comes later.
        assert_eq!(
            errno(root.rename("/nowhere", long, NONE)),
            Err(Errno::ENOENT)
        );
    }
    root.mknod("/there", NewKind::Regular, 0o644).unwrap();
    assert_eq!(
        errno(root.rename("/there", long, NONE)),
        Err(Errno::ENAMETOOLONG)
    );
}

#[test]
fn read_only_comes_after_existence_and_before_permission() {
    let root = volume();
    put(&root, "/f", b"");
    let user = user(&root, 9);
    let writer = root.open("/f", OpenFlags::WRITE).unwrap();
    assert_eq!(errno(sb(&root).remount(true)), Err(Errno::EBUSY));
    assert_eq!(sb(&root).open_files().len(), 1);
    drop(writer);
    sb(&root).remount(true).unwrap();
    assert_eq!(errno(user.mkdir("/f", 0o755)), Err(Errno::EEXIST));
    assert_eq!(errno(user.mkdir("/x", 0o755)), Err(Errno::EROFS));
    // Also where the cache knows by now that there is nothing.
    for _ in 0..2 {
        assert_eq!(errno(user.unlink("/nowhere")), Err(Errno::EROFS));
        assert_eq!(errno(user.rmdir("/nowhere")), Err(Errno::EROFS));
        assert_eq!(
            errno(user.rename("/nowhere", "/g", NONE)),
            Err(Errno::EROFS)
        );
        assert_eq!(
            errno(user.stat("/nowhere", LookupFlags::FOLLOW)),
            Err(Errno::ENOENT)
        );
    }
    assert_eq!(errno(user.rename("/f", "/g", NONE)), Err(Errno::EROFS));
    assert_eq!(
        errno(user.chmod("/f", 0o600, LookupFlags::FOLLOW)),
        Err(Errno::EROFS)
    );
    assert_eq!(errno(user.open("/f", OpenFlags::WRITE)), Err(Errno::EROFS));
    assert_eq!(
        errno(user.access("/f", Access::WRITE, LookupFlags::FOLLOW)),
        Err(Errno::EROFS)
    );
    assert_eq!(
        errno(root.open("/new", OpenFlags::WRITE | OpenFlags::CREATE)),
        Err(Errno::EROFS)
    );
    assert!(root.open("/f", OpenFlags::READ | OpenFlags::CREATE).is_ok());
    sb(&root).remount(false).unwrap();
    assert!(root.open("/f", OpenFlags::WRITE).is_ok());
}

/// A name, and how to have something in use that has no name.
type Removal<'a> = (&'a str, &'a dyn Fn() -> Box<dyn Any>);

#[test]
fn nothing_turns_read_only_that_has_a_removed_file_to_free() {
    let root = volume();
    let sb = sb(&root);
    let open = |flags| root.open("/f", flags).unwrap();
    let free = || sb.statfs().unwrap().files_free;
    let at_first = free();
    let ways: [Removal<'_>; 4] = [
        ("unlink", &|| {
            put(&root, "/f", b"x");
            let file = open(OpenFlags::READ);
            root.unlink("/f").unwrap();
            Box::new(file)
        }),
        ("rename", &|| {
            put(&root, "/f", b"x");
            put(&root, "/g", b"y");
            let file = open(OpenFlags::PATH);
            root.rename("/g", "/f", RenameFlags::empty()).unwrap();
            root.unlink("/f").unwrap();
            Box::new(file)
        }),
        ("rmdir", &|| {
            let dir = root.mkdir("/d", 0o755).unwrap();
            root.rmdir("/d").unwrap();
            Box::new(dir)
        }),
        ("O_TMPFILE", &|| {
            let file = root
                .open("/tmp", OpenFlags::TMPFILE | OpenFlags::WRITE)
                .unwrap();
            // Only its place is kept.
            Box::new(file.location().clone())
        }),
    ];
    for (way, remove) in ways {
        let kept = remove();
        assert_eq!(errno(sb.remount(true)), Err(Errno::EBUSY), "{way}");
        assert!(!sb.is_read_only(), "{way}");
        drop(kept);
        assert_eq!(free(), at_first, "{way}");
        assert_eq!(errno(sb.remount(true)), Ok(()), "{way}");
        sb.remount(false).unwrap();
    }
    // One that gets a name is like any other; and so is one that was removed by the last who used
    // it.
    let file = root
        .open("/tmp", OpenFlags::TMPFILE | OpenFlags::WRITE)
        .unwrap();
    let place = file.location().clone();
    root.at(&place)
        .link("", LookupFlags::EMPTY_PATH, "/f")
        .unwrap();
    drop(file);
    assert_eq!(errno(sb.remount(true)), Ok(()));
    sb.remount(false).unwrap();
    drop(place);
    root.unlink("/f").unwrap();
    root.mkdir("/d", 0o755).unwrap();
    root.rmdir("/d").unwrap();
    assert_eq!(errno(sb.remount(true)), Ok(()));
}

#[test]
fn setgid_directories_hand_down_their_group() {
    let root = volume();
    root.chown("/tmp", None, Some(77), LookupFlags::FOLLOW)
        .unwrap();
    root.chmod("/tmp", 0o2777, LookupFlags::FOLLOW).unwrap();
    let user = user(&root, 9);
    let stat = |path: &str| {
        let attr = user.stat(path, LookupFlags::NOFOLLOW).unwrap();
        (attr.gid, attr.mode)
    };
    user.mkdir("/tmp/d", 0o755).unwrap();
    assert_eq!(stat("/tmp/d"), (77, 0o2755));
    user.mknod("/tmp/f", NewKind::Regular, 0o2755).unwrap();
    assert_eq!(
        stat("/tmp/f"),
        (77, 0o755),
        "not a member of the group: no set-group-id program"
    );
    user.mknod("/tmp/g", NewKind::Regular, 0o2644).unwrap();
    assert_eq!(stat("/tmp/g"), (77, 0o2644));
}

#[test]
fn listing_is_stable_while_names_change() {
    let root = volume();
    for n in 0..20 {
        put(&root, &format!("/tmp/f{n:02}"), b"");
    }
    let dir = root.open("/tmp", OpenFlags::READ).unwrap();
    let mut batch = DirBatch::new();
    let mut seen = Vec::new();
    let mut cookie = 0;
    for round in 0.. {
        dir.read_dir(cookie, 4, &mut batch).unwrap();
        let Some(next) = batch.next_cookie() else {
            break;
        };
        cookie = next;
        seen.extend(
            batch
                .iter()
                .map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()),
        );
        if round < 4 {
            root.unlink(format!("/tmp/f{round:02}")).unwrap();
            put(&root, &format!("/tmp/new{round}"), b"");
        }
    }
    for n in 4..20 {
        assert_eq!(
            seen.iter()
                .filter(|name| **name == format!("f{n:02}"))
                .count(),
            1,
            "f{n:02}"
        );
    }
    assert!(seen.iter().collect::<std::collections::HashSet<_>>().len() == seen.len());
}

#[test]
fn a_whiteout_is_left_where_one_is_asked_for() {
    let root = volume();
    root.mknod("/f", NewKind::Regular, 0o644).unwrap();
    assert_eq!(
        root.stat("/g", LookupFlags::FOLLOW).unwrap_err(),
        Errno::ENOENT
    );
    root.rename("/f", "/g", RenameFlags::WHITEOUT).unwrap();
    let left = root.stat("/f", LookupFlags::FOLLOW).unwrap();
    assert_eq!(
        (left.kind, left.mode, left.rdev, left.nlink),
        (FileType::CharDevice, 0, Rdev::default(), 1)
    );
    assert_eq!(
        root.stat("/g", LookupFlags::FOLLOW).unwrap().kind,
        FileType::Regular
    );
    let both = RenameFlags::EXCHANGE | RenameFlags::WHITEOUT;
    assert_eq!(root.rename("/f", "/g", both).unwrap_err(), Errno::EINVAL);
    root.unlink("/f").unwrap();
}

#[test]
fn that_a_name_has_been_removed_stays_known_however_often_it_comes_back() {
    let root = volume();
    let turn = || {
        put(&root, "/f", b"");
        root.unlink("/f").unwrap();
    };
    turn();
    let lookups = sb(&root).stats().lookups;
    (0..20).for_each(|_| turn());
    assert_eq!(sb(&root).stats().lookups, lookups);
}
