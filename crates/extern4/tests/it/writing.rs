//! Changing volumes through the library, and the permissions that this needs.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use extern4::{
    Acl, AclKind, Atime, Cred, DataMode, Errno, ErrorKind, FallocateMode, File, NewKind, Session,
    SetTime, Shutdown, Timespec, Volume, XattrFlags,
};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{self, LoopDevice, Need};

const SPEC: ImageSpec = ImageSpec::new("library", 32 << 20, &["-t", "ext4"]);

fn open(image: &Image) -> Volume {
    writable(&image.path).unwrap_or_else(|e| panic!("{e}"))
}

fn writable(path: &Path) -> extern4::Result<Volume> {
    Volume::options().write(true).open(path)
}

fn judge(volume: Volume, image: &Image) {
    volume.close().expect("close");
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn files_are_written_as_with_std() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image);
    let session = volume.superuser();
    session.create_dir_all("/a/b/c").unwrap();
    session.create_dir_all("/a/b/c").unwrap();
    let mut file = session.create("/a/b/c/file").unwrap();
    file.write_all(b"hello ").unwrap();
    file.write_all(b"world\n").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello world\n");
    file.set_len(5).unwrap();
    file.allocate(FallocateMode::KEEP_SIZE, 0, 100_000).unwrap();
    file.sync_all().unwrap();
    assert_eq!(session.metadata("/a/b/c/file").unwrap().len(), 5);
    session.hard_link("/a/b/c/file", "/a/link").unwrap();
    session.symlink("b/c/file", "/a/sym").unwrap();
    assert_eq!(session.read("/a/sym").unwrap(), b"hello");
    session.rename("/a/link", "/a/renamed").unwrap();
    assert_eq!(session.metadata("/a/renamed").unwrap().nlink(), 2);
    session
        .setxattr("/a/renamed", "user.note", b"x", XattrFlags::empty())
        .unwrap();
    assert_eq!(
        session
            .getxattr("/a/b/c/file", "user.note")
            .unwrap()
            .as_deref(),
        Some(&b"x"[..])
    );
    let mut log = session
        .open_with(
            "/log",
            File::options().append(true).create(true).mode(0o600),
        )
        .unwrap();
    log.write_all(b"one\n").unwrap();
    log.write_all(b"two\n").unwrap();
    assert_eq!(session.read("/log").unwrap(), b"one\ntwo\n");
    session.remove_dir_all("/a").unwrap();
    assert!(!session.exists("/a").unwrap());
    assert_eq!(
        session.remove_file("/none").unwrap_err().errno(),
        Errno::ENOENT
    );
    let error = session.create_dir("/log").unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot make the directory /log: File exists"
    );
    drop((file, log, session));
    judge(volume, &image);
}

#[test]
fn a_file_is_replaced_whole() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image);
    let session = volume.superuser();
    session.write_file("/config", "one").unwrap();
    session.set_permissions("/config", 0o640).unwrap();
    session.chown("/config", Some(7), Some(8)).unwrap();
    let old = session.open("/config").unwrap();
    session.write_file("/config", vec![b'x'; 300_000]).unwrap();
    let now = session.metadata("/config").unwrap();
    assert_eq!(
        (now.len(), now.mode() & 0o7777, now.uid(), now.gid()),
        (300_000, 0o640, 7, 8)
    );
    let mut before = [0; 3];
    assert_eq!((old.read_at(&mut before, 0).unwrap(), &before), (3, b"one"));
    assert_eq!(
        session.read_dir("/").unwrap().count(),
        2,
        "nothing else is left"
    );
    drop((old, session));
    judge(volume, &image);
}

#[test]
fn an_error_of_the_system_is_passed_on_when_an_image_is_opened() {
    let errno = |path: &Path| Volume::open(path).err().map(|error| error.errno());
    assert_eq!(errno(Path::new("/not/there")), Some(Errno::ENOENT));
    assert_eq!(
        errno(&Path::new("/").join("x".repeat(300))),
        Some(Errno::ENAMETOOLONG)
    );
    // Only the kind of file is wrong here.
    assert_eq!(
        Volume::open("/").err().map(|error| error.kind()),
        Some(ErrorKind::Io)
    );
    if !tools::can_run(&[Need::Mount]) || !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let device = LoopDevice::attach_read_only(&image.path);
    assert_eq!(
        writable(&device.path).err().map(|error| error.errno()),
        Some(Errno::EROFS)
    );
    drop(Volume::open(&device.path).unwrap());
}

/// As with `std::fs::write`.
#[test]
fn links_are_written_through_and_only_files_replaced() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image);
    let session = volume.superuser();
    session.create_dir("/dir").unwrap();
    session.write_file("/dir/file", "old").unwrap();
    session.symlink("dir/file", "/link").unwrap();
    session.symlink("/link", "/dir/further").unwrap();
    session.symlink("../new", "/dir/ahead").unwrap();
    session.symlink("nowhere/file", "/astray").unwrap();
    session.symlink("circle", "/circle").unwrap();
    session.make_node("/pipe", NewKind::Fifo, 0o644).unwrap();
    session.write_file("/dir/further", "one").unwrap();
    session.write_file("/dir/ahead", "two").unwrap();
    assert_eq!(session.read("/dir/file").unwrap(), b"one");
    assert_eq!(session.read("/new").unwrap(), b"two");
    for link in ["/link", "/dir/further", "/dir/ahead"] {
        assert!(
            session.symlink_metadata(link).unwrap().is_symlink(),
            "{link}"
        );
    }
    let refused = |path: &str| session.write_file(path, "x").unwrap_err().errno();
    let found = ["/dir", "/pipe", "/astray", "/circle", "/"].map(refused);
    assert_eq!(
        found,
        [
            Errno::EISDIR,
            Errno::EINVAL,
            Errno::ENOENT,
            Errno::ELOOP,
            Errno::EISDIR
        ]
    );
    assert_eq!(
        session.symlink_metadata("/pipe").unwrap().mode() & 0o170_000,
        0o010_000
    );
    drop(session);
    judge(volume, &image);
}

/// The rights of a file must not grow when its contents are replaced, and the attributes next to
/// its contents must not get lost.
#[test]
fn a_file_that_is_replaced_keeps_its_acl_and_attributes() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image);
    let root = volume.superuser();
    let acl: Acl = "u::rwx,u:1000:rwx,g::r-x,g:2000:r--,m::rwx,o::r-x"
        .parse()
        .unwrap();
    let default: Acl = "u::rwx,u:7:rwx,g::rwx,m::rwx,o::rwx".parse().unwrap();
    root.set_permissions("/", 0o777).unwrap();
    for path in ["/listed", "/plain"] {
        root.write_file(path, "old").unwrap();
        root.chown(path, Some(1000), Some(1000)).unwrap();
        for (name, value) in [("user.a", "1"), ("trusted.b", "2"), ("security.x", "3")] {
            root.setxattr(path, name, value.as_bytes(), XattrFlags::empty())
                .unwrap();
        }
        root.setxattr(
            path,
            "security.capability",
            &capability(),
            XattrFlags::empty(),
        )
        .unwrap();
        root.set_permissions(path, 0o6775).unwrap();
    }
    root.set_acl("/listed", AclKind::Access, Some(acl.clone()))
        .unwrap();
    // New files of this directory get an ACL, which must not affect the replaced file.
    root.set_acl("/", AclKind::Default, Some(default)).unwrap();
    let names = |path: &str| root.listxattr(path).unwrap();
    let check = |mode| {
        assert_eq!(
            root.acl("/listed", AclKind::Access).unwrap().as_ref(),
            Some(&acl)
        );
        assert_eq!(root.acl("/plain", AclKind::Access).unwrap(), None);
        for path in ["/listed", "/plain"] {
            let found = root.metadata(path).unwrap();
            assert_eq!(
                (found.mode() & 0o7777, found.uid(), found.gid()),
                (mode, 1000, 1000),
                "{path}"
            );
            assert_eq!(
                root.getxattr(path, "user.a").unwrap().as_deref(),
                Some(&b"1"[..]),
                "{path}"
            );
            assert!(
                !names(path).iter().any(|name| name == "security.capability"),
                "{path}"
            );
        }
    };
    let write = |session: &Session| {
        for path in ["/listed", "/plain"] {
            session.write_file(path, "new").unwrap();
        }
    };
    write(&root);
    check(0o6775);
    assert_eq!(
        root.getxattr("/plain", "trusted.b").unwrap().as_deref(),
        Some(&b"2"[..])
    );
    assert_eq!(
        root.getxattr("/plain", "security.x").unwrap().as_deref(),
        Some(&b"3"[..])
    );
    // An owner changes its own file: Linux takes the set-id bits.
    write(&volume.session(Cred::new(1000, 1000, &[])));
    check(0o775);
    // Any other user that may replace the file gets its own file, without set-id bits of
    // another owner.
    root.set_permissions("/plain", 0o6775).unwrap();
    volume
        .session(Cred::new(1000, 1000, &[]))
        .set_permissions("/plain", 0o6777)
        .unwrap();
    volume
        .session(Cred::new(1001, 1001, &[]))
        .write_file("/plain", "other")
        .unwrap();
    let found = root.metadata("/plain").unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid()), (0o777, 1001));
    drop(root);
    judge(volume, &image);
}

/// `cap_net_raw=ep`, as `setcap` stores it.
fn capability() -> [u8; 20] {
    let mut value = [0; 20];
    value[..6].copy_from_slice(&[1, 0, 0, 2, 0, 0x20]);
    value
}

/// A program that reads contents straight from the image must not miss those in the journal.
#[test]
fn contents_that_may_be_in_the_journal_are_not_looked_for_in_the_image() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    assert_eq!(
        Volume::open(&image.path).expect("it opens").image_offset(),
        Some(0)
    );
    let mut options = Volume::options();
    let volume = options
        .write(true)
        .data(DataMode::Journal)
        .open(&image.path)
        .expect("it opens");
    assert_eq!(volume.image_offset(), None);
    let session = volume.superuser();
    let data: Vec<u8> = (0..300_000_u32).map(|at| (at / 5) as u8).collect();
    session.write_file("/file", &data).expect("it is written");
    volume.sync().expect("sync");
    assert!(volume.stats().journal.expect("it is written").blocks_logged >= 300_000 / 4096);
    let crashed = image.copy();
    let again = Volume::open(&crashed.path).expect("it opens");
    assert!(
        again.image_offset().is_none()
            && again.superuser().read("/file").expect("it is read") == data
    );
    drop(session);
    judge(volume, &image);
    // Any file may get the flag, unless there is no journal.
    assert_eq!(open(&image).image_offset(), None);
    let plain = ImageSpec::new("library", 32 << 20, &["-t", "ext4", "-O", "^has_journal"]).build();
    assert_eq!(open(&plain).image_offset(), Some(0));
    let error = options.open(&plain.path).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn a_user_changes_only_own_files() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image);
    let root = volume.superuser();
    root.create_dir_with("/home", 0o755).unwrap();
    root.create_dir_with("/home/ann", 0o700).unwrap();
    root.chown("/home/ann", Some(1000), Some(1000)).unwrap();
    let ann = volume.session(Cred::new(1000, 1000, &[]));
    ann.write_file("/home/ann/notes", "mine").unwrap();
    assert_eq!(ann.metadata("/home/ann/notes").unwrap().uid(), 1000);
    assert_eq!(
        ann.create("/home/other").map(drop).unwrap_err().errno(),
        Errno::EACCES
    );
    assert_eq!(
        ann.chown("/home/ann/notes", Some(0), None)
            .unwrap_err()
            .errno(),
        Errno::EPERM
    );
    let bob = volume.session(Cred::new(1001, 1001, &[]));
    assert_eq!(
        bob.read("/home/ann/notes").unwrap_err().errno(),
        Errno::EACCES
    );
    assert_eq!(
        bob.remove_file("/home/ann/notes").unwrap_err().errno(),
        Errno::EACCES
    );
    drop((root, ann, bob));
    judge(volume, &image);
}

#[test]
fn a_volume_is_written_by_one() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image);
    let said = |opened: extern4::Result<Volume>| opened.map(drop).unwrap_err().to_string();
    assert!(said(writable(&image.path)).contains(" has it open"));
    assert!(said(Volume::open(&image.path)).contains(" has it open for writing"));
    drop(Volume::options().shared(true).open(&image.path).unwrap());
    judge(volume, &image);
    if tools::can_run(&[Need::Mount]) {
        let device = LoopDevice::attach(&image.path);
        assert!(said(writable(&image.path)).contains("the kernel has it in use"));
        drop(device);
    }
}

#[test]
fn a_feature_that_can_only_be_read_is_refused_by_name() {
    let refused = [(
        ImageSpec::new("bigalloc", 64 << 20, &["-t", "ext4", "-O", "bigalloc"]),
        "bigalloc",
    )];
    for (spec, feature) in refused {
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let before = std::fs::read(&image.path).unwrap();
        let error = writable(&image.path).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(
            text.contains("can only be read") && text.contains(feature),
            "{text}"
        );
        assert!(
            before == std::fs::read(&image.path).unwrap(),
            "{feature}: the image was written"
        );
        Volume::open(&image.path).expect("it can be read");
    }
}

#[test]
fn reading_changes_access_times_as_asked() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image);
    volume
        .superuser()
        .create("/file")
        .unwrap()
        .write_all(b"x")
        .unwrap();
    volume.close().unwrap();
    let at = |volume: &Volume| volume.superuser().metadata("/file").unwrap().atime();
    let made = at(&Volume::open(&image.path).unwrap());
    // The clock of file times has ticks of up to 10 ms.
    std::thread::sleep(Duration::from_millis(20));
    // Each case: when a read changes the access time, whether lazily, whether the change shows at
    // once, and whether it survives a crash. A sync of another file comes between.
    for (atime, lazy, seen, kept) in [
        (Atime::Never, false, false, false),
        (Atime::Strict, true, true, false),
        (Atime::Strict, false, true, true),
    ] {
        let volume = Volume::options()
            .write(true)
            .atime(atime)
            .lazytime(lazy)
            .open(&image.path)
            .unwrap();
        let session = volume.superuser();
        session.read("/file").unwrap();
        session.create("/other").unwrap().sync_all().unwrap();
        assert_eq!(at(&volume) > made, seen, "{atime:?}");
        let crashed = image.copy();
        assert_eq!(
            at(&Volume::open(&crashed.path).unwrap()) > made,
            kept,
            "{atime:?}, lazy: {lazy}"
        );
        drop(session);
        if lazy {
            // Closing would store it.
            volume.shut_down(Shutdown::Forget).unwrap();
        } else {
            volume.close().unwrap();
        }
    }
}

#[test]
fn a_volume_opened_for_reading_is_not_changed() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = Volume::open(&image.path).unwrap();
    let error = volume.superuser().create_dir("/x").unwrap_err();
    assert_eq!(error.errno(), Errno::EROFS);
    assert!(volume.stats().journal.is_none());
}

#[test]
fn synced_contents_survive_without_a_close() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = open(&image);
    let session = volume.superuser();
    session.write_file("/kept", "kept").unwrap();
    volume.sync().unwrap();
    let journal = volume.stats().journal.expect("it is open for writing");
    assert!(
        journal.transactions > 0 && journal.flushes <= 2 * journal.transactions,
        "{journal:?}"
    );
    volume.shut_down(Shutdown::Forget).unwrap();
    drop((session, volume));
    // Reading replays in memory, writing on the device.
    assert_eq!(
        Volume::open(&image.path)
            .unwrap()
            .superuser()
            .read("/kept")
            .unwrap(),
        b"kept"
    );
    let volume = open(&image);
    assert_eq!(volume.superuser().read("/kept").unwrap(), b"kept");
    judge(volume, &image);
}

#[test]
fn calls_follow_links_and_their_l_forms_do_not() {
    let sample = extern4_testkit::sample::image();
    let volume = Volume::options()
        .write(true)
        .open(&sample.path)
        .expect("it opens");
    let root = volume.superuser();
    root.write_file("/target", "x").expect("a file");
    root.symlink("target", "/alias").expect("a link");
    let owners = |path: &str| {
        let found = root.symlink_metadata(path).expect("it is there");
        (found.uid(), found.gid())
    };
    root.chown("/alias", Some(7), Some(8)).expect("its owner");
    assert_eq!((owners("/target"), owners("/alias")), ((7, 8), (0, 0)));
    root.lchown("/alias", Some(9), None).expect("its owner");
    assert_eq!((owners("/target"), owners("/alias")), ((7, 8), (9, 0)));

    let first = Timespec { sec: 100, nsec: 5 };
    let second = Timespec {
        sec: -2,
        nsec: 500_000_000,
    };
    let before = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
    root.set_times("/alias", first, SetTime::Omit)
        .expect("its times");
    root.lset_times("/alias", SetTime::Omit, before)
        .expect("its times");
    assert_eq!(root.metadata("/alias").expect("it is there").atime(), first);
    let link = root.symlink_metadata("/alias").expect("it is there");
    assert_eq!((link.mtime(), link.modified()), (second, before));
    assert_ne!(
        root.metadata("/alias").expect("it is there").modified(),
        before
    );
    assert!(link.created().is_some_and(|created| created > before));

    let none = XattrFlags::empty();
    root.setxattr("/alias", "user.note", b"1", none)
        .expect("an attribute");
    root.lsetxattr("/alias", "trusted.note", b"2", none)
        .expect("an attribute");
    let names = |names: Vec<OsString>| names.join(OsStr::new(" "));
    assert_eq!(names(root.listxattr("/alias").expect("names")), "user.note");
    assert_eq!(
        names(root.llistxattr("/alias").expect("names")),
        "trusted.note"
    );
    root.removexattr("/alias", "user.note").expect("it goes");
    root.lremovexattr("/alias", "trusted.note")
        .expect("it goes");
    assert!(root.listxattr("/target").expect("names").is_empty());
    drop(root);
    volume.close().expect("it closes");
}
