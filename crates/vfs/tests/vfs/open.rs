//! open, reading, writing, seeking, O_TMPFILE, times.

use extern4_vfs::setattr::SetTime;
use extern4_vfs::*;

use crate::fixture::{errno, get, names, put, user, volume, volume_with};

const R: OpenFlags = OpenFlags::READ;
const W: OpenFlags = OpenFlags::WRITE;
const CREATE: OpenFlags = OpenFlags::CREATE;
const EXCL: OpenFlags = OpenFlags::EXCL;

#[test]
fn open_meets_linux_s_errors() {
    let root = volume();
    put(&root, "/f", b"");
    root.mkdir("/d", 0o755).unwrap();
    root.symlink("f", "/s").unwrap();
    root.symlink("d", "/sd").unwrap();
    root.symlink("/tmp/made", "/dangling").unwrap();
    root.chmod("/f", 0o640, LookupFlags::FOLLOW).unwrap();
    let user = user(&root, 9);
    let nofollow = OpenFlags::NOFOLLOW;
    let dir = OpenFlags::DIRECTORY;
    let path = OpenFlags::PATH;
    for (name, flags, want) in [
        ("/nowhere", R, Err(Errno::ENOENT)),
        ("/f", R, Err(Errno::EACCES)),
        ("/f", W | CREATE, Err(Errno::EACCES)),
        ("/f", W | CREATE | EXCL, Err(Errno::EEXIST)),
        ("/s", W | CREATE | EXCL, Err(Errno::EEXIST)),
        ("/dangling", W | CREATE | EXCL, Err(Errno::EEXIST)),
        ("/d", R, Ok(())),
        ("/d", W, Err(Errno::EISDIR)),
        ("/d", R | CREATE, Err(Errno::EISDIR)),
        ("/d", R | CREATE | EXCL, Err(Errno::EEXIST)),
        ("/d/.", R | CREATE, Err(Errno::EISDIR)),
        ("/tmp/x/", R | CREATE, Err(Errno::EISDIR)),
        ("/d/new", W | CREATE, Err(Errno::EACCES)),
        ("/f", R | dir, Err(Errno::ENOTDIR)),
        ("/s", R | nofollow, Err(Errno::ELOOP)),
        ("/s", R | nofollow | CREATE, Err(Errno::ELOOP)),
        ("/s", path | nofollow, Ok(())),
        ("/sd", R | nofollow | dir, Err(Errno::ENOTDIR)),
        ("/sd/", R | nofollow, Ok(())),
        ("/f", path, Ok(())),
        ("/f", path | R, Err(Errno::EINVAL)),
        ("/f", OpenFlags::empty(), Err(Errno::EINVAL)),
        ("/f", R | CREATE | dir, Err(Errno::EINVAL)),
        ("/d", R | OpenFlags::NOATIME, Err(Errno::EPERM)),
    ] {
        assert_eq!(errno(user.open(name, flags)), want, "{name} {flags:?}");
    }
    // A dangling link is where the new file goes.
    drop(user.open("/dangling", W | CREATE).unwrap());
    assert_eq!(names(&root, "/tmp"), ["made"]);
}

#[test]
fn the_creator_may_use_the_new_file_whatever_its_mode() {
    let root = volume();
    let user = user(&root, 9);
    let file = user
        .open(
            "/tmp/f",
            OpenHow {
                flags: W | CREATE | EXCL,
                mode: 0o400,
                ..Default::default()
            },
        )
        .unwrap();
    assert_eq!(file.write_at(b"x", 0).unwrap(), 1);
    assert_eq!(errno(user.open("/tmp/f", W)), Err(Errno::EACCES));
    assert_eq!(file.stat().mode, 0o400);
}

#[test]
fn an_open_file_allows_only_its_access_mode() {
    let root = volume();
    put(&root, "/f", b"abc");
    let mut buf = [0; 2];
    let file = root.open("/f", W).unwrap();
    assert_eq!(errno(file.read_at(&mut buf, 0)), Err(Errno::EBADF));
    let file = root.open("/f", R).unwrap();
    assert_eq!(errno(file.write_at(b"x", 0)), Err(Errno::EBADF));
    assert_eq!(errno(file.set_len(1)), Err(Errno::EINVAL));
    assert_eq!(file.read_at(&mut buf, 1).unwrap(), 2);
    assert_eq!(file.read_at(&mut buf, 3).unwrap(), 0);
    assert_eq!(file.read_at(&mut buf, u64::MAX).unwrap(), 0);
    let dir = root.open("/tmp", R).unwrap();
    assert_eq!(errno(dir.read_at(&mut buf, 0)), Err(Errno::EISDIR));
    assert_eq!(
        errno(file.read_dir(0, 1, &mut DirBatch::new())),
        Err(Errno::ENOTDIR)
    );
    let path = root.open("/f", OpenFlags::PATH).unwrap();
    assert_eq!(errno(path.read_at(&mut buf, 0)), Err(Errno::EBADF));
}

#[test]
fn holes_are_found_and_read_as_zeroes() {
    let root = volume();
    let file = root.open("/f", R | W | CREATE).unwrap();
    file.write_at(&[7; 100], 10_000).unwrap();
    file.write_at(&[8; 4096], 40_960).unwrap();
    file.set_len(60_000).unwrap();
    assert_eq!(
        (file.seek_data(0).unwrap(), file.seek_hole(0).unwrap()),
        (8192, 0)
    );
    assert_eq!(
        (
            file.seek_hole(9000).unwrap(),
            file.seek_data(12_288).unwrap()
        ),
        (12_288, 40_960)
    );
    assert_eq!(errno(file.seek_data(45_056)), Err(Errno::ENXIO));
    assert_eq!(errno(file.seek_hole(60_000)), Err(Errno::ENXIO));
    let mut bytes = vec![9; 20_000];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 20_000);
    assert!(
        bytes[..10_000]
            .iter()
            .chain(&bytes[10_100..])
            .all(|&byte| byte == 0)
    );
    assert_eq!(file.stat().blocks, 16);
    // Contents that were cut off do not come back.
    file.set_len(10_050).unwrap();
    file.set_len(10_100).unwrap();
    let mut bytes = [9; 100];
    file.read_at(&mut bytes, 10_000).unwrap();
    assert_eq!((&bytes[..50], &bytes[50..]), (&[7; 50][..], &[0; 50][..]));
}

#[test]
fn fallocate_allocates_punches_and_zeroes() {
    let root = volume();
    let file = root.open("/f", R | W | CREATE).unwrap();
    let keep = FallocateMode::KEEP_SIZE;
    let punch = FallocateMode::PUNCH_HOLE;
    file.fallocate(keep, 0, 8192).unwrap();
    assert_eq!((file.size(), file.stat().blocks), (0, 16));
    file.fallocate(FallocateMode::empty(), 0, 10_000).unwrap();
    assert_eq!(file.size(), 10_000);
    file.write_at(&[5; 10_000], 0).unwrap();
    file.fallocate(punch | keep, 100, 8192).unwrap();
    assert_eq!((file.size(), file.stat().blocks), (10_000, 16));
    assert_eq!(file.seek_hole(0).unwrap(), 4096);
    let bytes = get(&root, "/f");
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(at, &byte)| (byte == 0) == (100..8292).contains(&at))
    );
    file.fallocate(FallocateMode::ZERO_RANGE, 0, 20_000)
        .unwrap();
    assert_eq!(get(&root, "/f"), vec![0; 20_000]);
    assert_eq!(errno(file.fallocate(punch, 0, 1)), Err(Errno::EOPNOTSUPP));
    assert_eq!(
        errno(file.fallocate(FallocateMode::COLLAPSE_RANGE, 0, 4096)),
        Err(Errno::EOPNOTSUPP)
    );
    assert_eq!(errno(file.fallocate(keep, 0, 0)), Err(Errno::EINVAL));
    assert_eq!(errno(file.fallocate(keep, u64::MAX, 1)), Err(Errno::EFBIG));
}

#[test]
fn truncate_asks_for_permission_and_a_regular_file() {
    let root = volume();
    put(&root, "/f", b"12345");
    let user = user(&root, 9);
    assert_eq!(
        errno(user.truncate("/f", 0, LookupFlags::FOLLOW)),
        Err(Errno::EACCES)
    );
    assert_eq!(
        errno(user.truncate("/tmp", 0, LookupFlags::FOLLOW)),
        Err(Errno::EISDIR)
    );
    assert_eq!(
        errno(root.truncate("/f", u64::MAX, LookupFlags::FOLLOW)),
        Err(Errno::EFBIG)
    );
    root.mknod("/p", NewKind::Fifo, 0o666).unwrap();
    assert_eq!(
        errno(root.truncate("/p", 0, LookupFlags::FOLLOW)),
        Err(Errno::EINVAL)
    );
    root.truncate("/f", 2, LookupFlags::FOLLOW).unwrap();
    assert_eq!(get(&root, "/f"), b"12");
    drop(root.open("/f", W | OpenFlags::TRUNC).unwrap());
    assert_eq!(get(&root, "/f"), b"");
}

#[test]
fn a_file_without_a_name_may_get_one() {
    let root = volume();
    let tmp = OpenFlags::TMPFILE;
    let file = root.open("/tmp", R | W | tmp).unwrap();
    file.write_at(b"later", 0).unwrap();
    assert_eq!((file.stat().nlink, names(&root, "/tmp")), (0, vec![]));
    let link = || {
        root.at(file.location())
            .link("", LookupFlags::EMPTY_PATH, "/tmp/named")
    };
    link().unwrap();
    root.unlink("/tmp/named").unwrap();
    assert_eq!(errno(link()), Err(Errno::ENOENT), "it has had its name");

    let file = root.open("/tmp", R | W | tmp).unwrap();
    file.write_at(b"later", 0).unwrap();
    root.at(file.location())
        .link("", LookupFlags::EMPTY_PATH, "/tmp/named")
        .unwrap();
    drop(file);
    assert_eq!(
        (
            get(&root, "/tmp/named"),
            root.stat("/tmp/named", LookupFlags::FOLLOW).unwrap().nlink
        ),
        (b"later".to_vec(), 1)
    );

    let file = root.open("/tmp", W | tmp | EXCL).unwrap();
    assert_eq!(
        errno(
            root.at(file.location())
                .link("", LookupFlags::EMPTY_PATH, "/tmp/x")
        ),
        Err(Errno::ENOENT)
    );
    let free = root.statfs("/", LookupFlags::FOLLOW).unwrap().files_free;
    drop(file);
    assert_eq!(
        root.statfs("/", LookupFlags::FOLLOW).unwrap().files_free,
        free + 1
    );
    assert_eq!(errno(root.open("/tmp", R | tmp)), Err(Errno::EINVAL));
    assert_eq!(errno(root.open("/tmp/named", W | tmp)), Err(Errno::ENOTDIR));
    root.mkdir("/d", 0o755).unwrap();
    assert_eq!(
        errno(user(&root, 9).open("/d", W | tmp)),
        Err(Errno::EACCES)
    );
    root.symlink("tmp", "/s").unwrap();
    assert_eq!(errno(root.open("/s", W | tmp)), Ok(()));
    assert_eq!(
        errno(root.open("/s", W | tmp | OpenFlags::NOFOLLOW)),
        Err(Errno::ENOTDIR)
    );
}

#[test]
fn relatime_notes_the_first_read_after_a_change() {
    let root = volume();
    put(&root, "/f", b"x");
    let old = Timespec { sec: 1000, nsec: 5 };
    root.utimens("/f", SetTime::At(old), SetTime::Omit, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(root.stat("/f", LookupFlags::FOLLOW).unwrap().atime, old);
    // Longer than one tick of the clock: an access time no later than the change is noted again.
    std::thread::sleep(std::time::Duration::from_millis(20));
    get(&root, "/f");
    let noted = root.stat("/f", LookupFlags::FOLLOW).unwrap().atime;
    assert!(noted > old);
    get(&root, "/f");
    assert_eq!(root.stat("/f", LookupFlags::FOLLOW).unwrap().atime, noted);
    root.utimens("/f", SetTime::At(old), SetTime::Omit, LookupFlags::FOLLOW)
        .unwrap();
    let file = root.open("/f", R | OpenFlags::NOATIME).unwrap();
    file.read_at(&mut [0], 0).unwrap();
    assert_eq!(file.stat().atime, old);
    let never = volume_with(
        MemLimits::default(),
        SuperOptions {
            atime: Atime::Never,
            ..Default::default()
        },
    );
    put(&never, "/f", b"x");
    let before = never.stat("/f", LookupFlags::FOLLOW).unwrap().atime;
    get(&never, "/f");
    assert_eq!(never.stat("/f", LookupFlags::FOLLOW).unwrap().atime, before);
}

#[test]
fn changes_are_seen_in_the_times() {
    let root = volume();
    put(&root, "/f", b"x");
    root.mkdir("/d", 0o755).unwrap();
    let old = Timespec { sec: 1000, nsec: 0 };
    let times = |path: &str| {
        let attr = root.stat(path, LookupFlags::NOFOLLOW).unwrap();
        (attr.mtime > old, attr.ctime)
    };
    let set_old = |path: &str| {
        root.utimens(
            path,
            SetTime::At(old),
            SetTime::At(old),
            LookupFlags::NOFOLLOW,
        )
        .unwrap()
    };
    let check = |name: &str, path: &str, mtime: bool, ctime: bool, act: &dyn Fn()| {
        set_old(path);
        let before = times(path).1;
        // Longer than from one tick of the clock to the next.
        std::thread::sleep(std::time::Duration::from_millis(20));
        act();
        assert_eq!(
            (times(path).0, times(path).1 > before),
            (mtime, ctime),
            "{name}: {path}"
        );
    };
    check("create", "/d", true, true, &|| put(&root, "/d/x", b""));
    check("link", "/d", true, true, &|| {
        root.link("/f", LookupFlags::FOLLOW, "/d/l").unwrap()
    });
    check("link", "/f", false, true, &|| {
        root.link("/f", LookupFlags::FOLLOW, "/d/m").unwrap()
    });
    check("unlink", "/d", true, true, &|| root.unlink("/d/l").unwrap());
    check("unlink", "/f", false, true, &|| {
        root.unlink("/d/m").unwrap()
    });
    check("rename", "/d", true, true, &|| {
        root.rename("/d/x", "/d/y", RenameFlags::empty()).unwrap()
    });
    root.rename("/d/y", "/d/x", RenameFlags::empty()).unwrap();
    check("rename", "/d/x", false, true, &|| {
        root.rename("/d/x", "/d/y", RenameFlags::empty()).unwrap();
        root.rename("/d/y", "/d/x", RenameFlags::empty()).unwrap();
    });
    check("chmod", "/f", false, true, &|| {
        root.chmod("/f", 0o600, LookupFlags::FOLLOW).unwrap()
    });
    check("chown", "/f", false, true, &|| {
        root.chown("/f", Some(1), None, LookupFlags::FOLLOW)
            .unwrap()
    });
    check("write", "/f", true, true, &|| put(&root, "/f", b"new"));
    check("truncate", "/f", true, true, &|| {
        root.truncate("/f", 1, LookupFlags::FOLLOW).unwrap()
    });
    check("stat", "/f", false, false, &|| {
        drop(root.stat("/f", LookupFlags::FOLLOW))
    });
    let flags = XattrFlags::empty();
    check("xattr", "/f", false, true, &|| {
        root.set_xattr("/f", "user.a", b"1", flags, LookupFlags::FOLLOW)
            .unwrap()
    });
}

/// Does something to a file between two writes over what is there, again and again, until all has
/// happened within one tick of the clock. The first write of a tick finds other times than its own;
/// the second changes nothing but contents.
fn between_writes(root: &Session, file: &OpenFile, act: impl Fn(), check: impl Fn(Result<usize>)) {
    put(root, "/tmp/f", &[0; 9000]);
    for turn in 0..10_000 {
        assert_eq!(file.write_at(&[1; 5000], 100).unwrap(), 5000);
        let before = file.stat();
        act();
        let written = file.write_at(&[2; 5000], 100);
        let after = file.stat();
        check(written);
        if turn > 20 && [before.mtime; 2] == [after.mtime, after.ctime] {
            return;
        }
    }
    panic!("no two writes are in one tick");
}

#[test]
fn an_overwrite_sees_changes_since_the_last_write() {
    let root = volume();
    let user = user(&root, 9);
    put(&user, "/tmp/f", &[0; 9000]);
    let file = user.open("/tmp/f", R | W).unwrap();

    // Set-id bits, and capabilities, whoever writes.
    let set_id = || user.chmod("/tmp/f", 0o6755, LookupFlags::FOLLOW).unwrap();
    between_writes(&root, &file, set_id, |written| {
        assert_eq!((written.unwrap(), file.stat().mode), (5000, 0o755));
    });
    let name = "security.capability";
    let value = [&[1, 0, 0, 2][..], &[0; 16]].concat();
    let give = || {
        root.set_xattr(
            "/tmp/f",
            name,
            &value,
            XattrFlags::empty(),
            LookupFlags::FOLLOW,
        )
        .unwrap()
    };
    between_writes(&root, &file, give, |written| {
        assert_eq!(written.unwrap(), 5000);
        assert_eq!(
            errno(
                root.get_xattr("/tmp/f", name, LookupFlags::FOLLOW)
                    .map(drop)
            ),
            Err(Errno::ENODATA)
        );
    });

    // Immutable.
    let freeze = || {
        root.set_flags("/tmp/f", FileFlags::IMMUTABLE, LookupFlags::FOLLOW)
            .unwrap()
    };
    between_writes(&root, &file, freeze, |written| {
        assert_eq!(errno(written.map(drop)), Err(Errno::EPERM));
        assert_eq!(get(&root, "/tmp/f")[100..5100], [1; 5000]);
        root.set_flags("/tmp/f", FileFlags::empty(), LookupFlags::FOLLOW)
            .unwrap();
    });

    // Holes, and what lies behind the end.
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    between_writes(
        &root,
        &file,
        || file.fallocate(punch, 4096, 4096).unwrap(),
        |written| {
            assert_eq!(written.unwrap(), 5000);
            assert_eq!(
                get(&root, "/tmp/f")[100..],
                [&[2; 5000][..], &[0; 3900]].concat()
            );
        },
    );
    between_writes(
        &root,
        &file,
        || file.set_len(3000).unwrap(),
        |written| {
            assert_eq!(written.unwrap(), 5000);
            assert_eq!(get(&root, "/tmp/f")[100..], [2; 5000]);
            file.set_len(9000).unwrap();
        },
    );

    // A file opened to append appends, at any offset.
    let append = user.open("/tmp/f", W | OpenFlags::APPEND).unwrap();
    let appended = || {
        let size = file.size();
        assert_eq!(append.write_at(&[3; 10], 0).unwrap(), 10);
        assert_eq!(
            (file.size(), get(&root, "/tmp/f")[size as usize..].to_vec()),
            (size + 10, vec![3; 10])
        );
    };
    between_writes(&root, &file, appended, |written| {
        assert_eq!(written.unwrap(), 5000)
    });
}

/// Threads write over one file and read it; each has its own blocks, and bytes of blocks that both
/// have.
#[test]
fn threads_write_over_one_file() {
    let root = volume();
    put(&root, "/f", &[0; 1 << 16]);
    std::thread::scope(|scope| {
        for who in 0..2_u8 {
            let root = &root;
            scope.spawn(move || {
                let file = root.open("/f", R | W).unwrap();
                let mut bytes = [0; 5000];
                for turn in 0..3000_u64 {
                    let mark = 1 + 2 * (turn % 100) as u8 + who;
                    let offset = (turn % 6) * 10_000;
                    let own = offset + 5000 * u64::from(who);
                    assert_eq!(file.write_at(&[mark; 5000], own).unwrap(), 5000);
                    assert_eq!(file.read_at(&mut bytes, own).unwrap(), 5000);
                    assert_eq!(bytes, [mark; 5000], "{who}, {turn}");
                    // All write here: what stands there is one's.
                    assert_eq!(file.write_at(&[mark; 3000], 61_000).unwrap(), 3000);
                    assert_eq!(file.read_at(&mut bytes[..3000], 61_000).unwrap(), 3000);
                    assert!(
                        bytes[..440].iter().all(|byte| *byte == bytes[0]),
                        "{who}, {turn}"
                    );
                }
            });
        }
    });
}
