//! Tests of directories as sources: kinds of files, attributes, holes, mounts and deep trees.
//!
//! A file that changes, vanishes or cannot be read must be an error that names it. Parts that need
//! root, such as devices and mounts, are left out without it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};

use super::{DirectorySource, FileSource};
use crate::testing::{Collected, is_root, read, run};
use crate::{Data, Entry, Error, Kind, Result, Sink, Source, Time, Unwanted};

fn source(path: &Path) -> DirectorySource {
    DirectorySource::new(path).unwrap()
}

fn node(path: &Path, kind: FileType, dev: u64) {
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, Mode::RUSR | Mode::WUSR, dev).unwrap();
}

#[test]
fn every_kind_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("d")).unwrap();
    fs::write(path("d/f"), "hello").unwrap();
    fs::set_permissions(path("d/f"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(path("d/f"), path("c")).unwrap();
    symlink("../nowhere", path("d/l")).unwrap();
    node(&path("p"), FileType::Fifo, 0);
    let _listener = UnixListener::bind(path("s")).unwrap();
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 1,
            tv_nsec: 2,
        },
        last_modification: Timespec {
            tv_sec: 1_234_567_890,
            tv_nsec: 987_654_321,
        },
    };
    rustix::fs::utimensat(
        rustix::fs::CWD,
        path("d/l"),
        &times,
        AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();

    let tree = source(dir.path());
    let found = Collected::of(&tree);
    assert_eq!(found.paths(), [".", "c", "d", "d/f", "d/l", "p", "s"]);
    assert_eq!(found.get("d").kind, Kind::Directory);
    assert_eq!(found.get("d/f").kind, Kind::HardLink(b"c".to_vec()));
    assert_eq!(found.get("c").mode, 0o4751);
    assert_eq!(found.get("c").uid, rustix::process::geteuid().as_raw());
    assert_eq!(read(&tree, found.get("c")), b"hello");
    assert_eq!(found.get("d/l").kind, Kind::Symlink(b"../nowhere".to_vec()));
    assert_eq!(
        found.get("d/l").mtime,
        Time {
            secs: 1_234_567_890,
            nanos: 987_654_321
        }
    );
    assert_eq!(found.get("p").kind, Kind::Fifo);
    assert_eq!(found.get("s").kind, Kind::Socket);
}

#[test]
fn devices_and_owners_are_read() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    node(
        &dir.path().join("c"),
        FileType::CharacterDevice,
        rustix::fs::makedev(10, 300),
    );
    node(
        &dir.path().join("b"),
        FileType::BlockDevice,
        rustix::fs::makedev(259, 70000),
    );
    std::os::unix::fs::lchown(dir.path().join("c"), Some(70_000), Some(4_000_000_000)).unwrap();
    let found = Collected::of(&source(dir.path()));
    assert_eq!(
        found.get("c").kind,
        Kind::CharDevice {
            major: 10,
            minor: 300
        }
    );
    assert_eq!(
        found.get("b").kind,
        Kind::BlockDevice {
            major: 259,
            minor: 70000
        }
    );
    assert_eq!(
        (found.get("c").uid, found.get("c").gid),
        (70_000, 4_000_000_000)
    );
}

#[test]
fn names_and_targets_need_not_be_utf8() {
    let dir = tempfile::tempdir().unwrap();
    let name: Vec<u8> = (128..255).chain(128..255).collect();
    let os = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&name);
    symlink(os, dir.path().join(os)).unwrap();
    let found = Collected::of(&source(dir.path()));
    assert_eq!(found.entries[1].path, name);
    assert_eq!(found.entries[1].kind, Kind::Symlink(name));
}

#[test]
fn attributes_are_read_as_the_kernel_gives_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    fs::write(&file, "").unwrap();
    symlink("f", dir.path().join("l")).unwrap();
    rustix::fs::setxattr(&file, "user.empty", b"", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&file, "user.bytes", b"\0\xff\n=", XattrFlags::empty()).unwrap();
    run(dir.path(), "setfacl", &["-m", "u:1234:r", "f"]);
    run(dir.path(), "setfacl", &["-d", "-m", "g:77:rwx", "."]);
    if is_root() {
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        rustix::fs::setxattr(
            &file,
            "security.capability",
            &capability,
            XattrFlags::empty(),
        )
        .unwrap();
        rustix::fs::setxattr(&file, "trusted.x", b"t", XattrFlags::empty()).unwrap();
        let link = dir.path().join("l");
        rustix::fs::lsetxattr(&link, "trusted.l", b"v", XattrFlags::empty()).unwrap();
    }
    let found = Collected::of(&source(dir.path()));
    assert_eq!(found.warnings, [""; 0]);
    for (path, names) in [
        (
            "f",
            &[
                "security.capability",
                "system.posix_acl_access",
                "trusted.x",
                "user.bytes",
                "user.empty",
            ][..],
        ),
        ("l", &["trusted.l"]),
        ("", &["system.posix_acl_default"]),
    ] {
        let names: Vec<_> = names
            .iter()
            .filter(|name| is_root() || !name.starts_with(['s', 't']) || name.contains("acl"))
            .collect();
        let entry = found.get(path);
        assert_eq!(entry.xattrs.len(), names.len(), "{:?}", entry.xattrs);
        for (name, (given, value)) in names.into_iter().zip(&entry.xattrs) {
            let mut buf = [0; 256];
            let length = rustix::fs::lgetxattr(dir.path().join(path), *name, &mut buf[..]).unwrap();
            assert_eq!(
                (given.as_slice(), value.as_slice()),
                (name.as_bytes(), &buf[..length])
            );
        }
    }
}

#[test]
fn a_file_with_holes_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    File::create(dir.path().join("holes"))
        .unwrap()
        .write_all_at(b"end", 1 << 30)
        .unwrap();
    fs::write(dir.path().join("full"), vec![7; 100_000]).unwrap();
    let found = Collected::of(&source(dir.path()));
    let sparse = |name| match &found.get(name).kind {
        Kind::File(contents) => match contents.data {
            Data::HostFile { sparse, .. } => (contents.size, sparse),
            _ => panic!("not of the host"),
        },
        kind => panic!("{kind:?}"),
    };
    assert_eq!(sparse("holes"), ((1 << 30) + 3, true));
    assert_eq!(sparse("full").0, 100_000);
}

#[test]
fn a_file_that_changes_or_vanishes_is_named() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 6] = [
        ("vanishes", |file| fs::remove_file(file).unwrap()),
        ("grows", |file| {
            fs::write(file, "longer than before").unwrap()
        }),
        ("is replaced by a link", |file| {
            fs::rename(file, file.with_extension("old")).unwrap();
            symlink(file.with_extension("old"), file).unwrap();
        }),
        ("is replaced by a fifo", |file| {
            fs::remove_file(file).unwrap();
            node(file, FileType::Fifo, 0);
        }),
        ("is touched", |file| {
            let file = File::options().write(true).open(file).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }),
        ("loses its directory to a link", |file| {
            let parent = file.parent().unwrap();
            fs::rename(parent, parent.with_extension("old")).unwrap();
            symlink(parent.with_extension("old"), parent).unwrap();
        }),
    ];
    for (what, change) in changes {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let file = dir.path().join("d/file");
        fs::write(&file, "contents").unwrap();
        let tree = source(dir.path());
        let found = Collected::of(&tree);
        let entry = found.get("d/file");
        let Kind::File(contents) = &entry.kind else {
            panic!("{entry:?}")
        };
        change(&file);
        let opened = tree.open(&entry.path, contents);
        let error = opened
            .and_then(|opened| opened.check_unchanged(&entry.path))
            .unwrap_err();
        assert!(
            matches!(error, Error::Changed { .. } | Error::Vanished { .. }),
            "{what}: {error}"
        );
        assert!(error.to_string().contains("d/file"), "{what}: {error}");
    }
}

#[test]
fn a_file_that_changes_while_it_is_open_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "contents").unwrap();
    let tree = source(dir.path());
    let found = Collected::of(&tree);
    let Kind::File(contents) = &found.get("file").kind else {
        panic!("no file")
    };
    let opened = tree.open(b"file", contents).unwrap();
    opened.check_unchanged(b"file").unwrap();
    fs::write(dir.path().join("file"), "other contents").unwrap();
    assert!(matches!(
        opened.check_unchanged(b"file"),
        Err(Error::Changed { .. })
    ));
}

#[test]
fn what_cannot_be_read_is_named_with_advice() {
    if is_root() {
        // Root reads them: the same check runs as another user.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret"), "x").unwrap();
    fs::set_permissions(dir.path().join("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    let tree = source(dir.path());
    let found = Collected::of(&tree);
    let Kind::File(contents) = &found.get("secret").kind else {
        panic!("no file")
    };
    let error = tree.open(b"secret", contents).unwrap_err().to_string();
    assert!(
        error.contains("secret") && error.contains("unshare"),
        "{error}"
    );
    fs::create_dir(dir.path().join("closed")).unwrap();
    fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let error = tree
        .scan(&mut Collected::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("closed") && error.contains("tar"), "{error}");
    // The temporary directory can be removed.
    fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn deep_trees_keep_few_directories_open() {
    let dir = tempfile::tempdir().unwrap();
    let mut at = std::os::fd::OwnedFd::from(File::open(dir.path()).unwrap());
    let depth = 300;
    for _ in 0..depth {
        for name in ["b", "c"] {
            rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
        }
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, "b", flags, Mode::empty()).unwrap();
    }
    let found = Collected::of(&source(dir.path()));
    assert_eq!(found.entries.len(), 1 + 2 * depth);
    assert_eq!(found.entries.last().unwrap().path, b"c");
    let components = |entry: &crate::Entry| {
        entry
            .path
            .split(|b| *b == b'/')
            .map(<[u8]>::to_vec)
            .collect::<Vec<_>>()
    };
    assert!(
        found
            .entries
            .windows(2)
            .all(|pair| components(&pair[0]) < components(&pair[1]))
    );
}

#[test]
fn file_systems_of_the_kernel_are_left_out() {
    let found = Collected::of(&source(Path::new("/proc")));
    assert_eq!(found.paths(), ["."]);
    assert!(found.warnings[0].contains("proc"), "{:?}", found.warnings);
}

/// Gives this thread mounts that no other sees.
#[expect(deprecated, reason = "the safe form; no files are unshared")]
fn own_mounts() {
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS).unwrap();
    let flags =
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", flags).unwrap();
}

#[test]
fn mounts_are_left_out_by_name() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for name in ["proc", "tmp", "own"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let tree = dir.path().to_owned();
    // A thread with its own mounts: nothing is left behind.
    std::thread::spawn(move || {
        own_mounts();
        for (name, kind) in [("proc", c"proc"), ("tmp", c"tmpfs")] {
            rustix::mount::mount(
                kind,
                tree.join(name),
                kind,
                rustix::mount::MountFlags::empty(),
                None,
            )
            .unwrap();
        }
        fs::write(tree.join("tmp/file"), "x").unwrap();
        let all = Collected::of(&source(&tree));
        assert_eq!(all.paths(), [".", "own", "proc", "tmp", "tmp/file"]);
        assert_eq!(all.warnings.len(), 1, "{:?}", all.warnings);
        let one = Collected::of(&source(&tree).one_file_system(true));
        assert_eq!(one.paths(), [".", "own", "proc", "tmp"]);
        assert_eq!(one.warnings.len(), 2, "{:?}", one.warnings);
    })
    .join()
    .unwrap();
}

/// A sink that is going to leave out a directory.
#[derive(Default)]
struct Choosy(Collected);

impl Sink for Choosy {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.0.entry(entry)
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        self.0.remove(path)
    }

    fn clear(&mut self, path: &[u8]) -> Result<()> {
        self.0.clear(path)
    }

    fn warn(&mut self, message: String) {
        self.0.warn(message);
    }

    fn unwanted(&self) -> Option<Unwanted> {
        Some(std::sync::Arc::new(|path| path == b"d/skipped"))
    }
}

#[test]
fn an_unwanted_directory_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("d/skipped/deep")).unwrap();
    fs::create_dir_all(dir.path().join("skipped/deep")).unwrap();
    let value = b"value";
    for name in ["d/skipped", "skipped"] {
        let path = dir.path().join(name);
        rustix::fs::setxattr(path, "user.name", value, XattrFlags::empty()).unwrap();
    }
    let mut sink = Choosy::default();
    source(dir.path()).scan(&mut sink).unwrap();
    assert_eq!(
        sink.0.paths(),
        [".", "d", "d/skipped", "skipped", "skipped/deep"]
    );
    assert!(sink.0.get("d/skipped").xattrs.is_empty());
    assert_eq!(sink.0.get("skipped").xattrs.len(), 1);
}

#[test]
fn the_output_is_left_out_by_any_of_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("out"), "1").unwrap();
    fs::create_dir(path("d")).unwrap();
    fs::hard_link(path("out"), path("d/hard")).unwrap();
    symlink("out", path("link")).unwrap();
    fs::write(path("kept"), "").unwrap();
    for output in ["out", "link"] {
        let found = Collected::of(&source(dir.path()).leave_out(&path(output)));
        assert_eq!(found.paths(), [".", "d", "kept", "link"]);
        assert_eq!(found.warnings.len(), 2, "{:?}", found.warnings);
        assert!(
            found.warnings[1].contains("/out' is the output"),
            "{:?}",
            found.warnings
        );
    }
    assert_eq!(
        Collected::of(&source(dir.path()).leave_out(&path("none")))
            .paths()
            .len(),
        6
    );
}

#[test]
fn one_file_is_read_under_its_new_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("agent"), "text").unwrap();
    fs::write(path("other"), "").unwrap();
    fs::set_permissions(path("agent"), fs::Permissions::from_mode(0o4755)).unwrap();
    symlink("agent", path("link")).unwrap();
    rustix::fs::setxattr(path("agent"), "user.x", b"y", XattrFlags::empty()).unwrap();
    for name in ["agent", "link"] {
        let file = FileSource::new(&path(name), b"init", false).unwrap();
        let found = Collected::of(&file);
        assert_eq!(found.paths(), ["init"]);
        assert_eq!(
            (found.get("init").mode, found.get("init").xattrs.len()),
            (0o4755, 1)
        );
        assert_eq!(read(&file, found.get("init")), b"text");
    }
    let bare = Collected::of(&FileSource::new(&path("agent"), b"init", true).unwrap());
    assert!(bare.get("init").xattrs.is_empty());
    assert!(
        Collected::of(&source(dir.path()).without_xattrs(true))
            .get("agent")
            .xattrs
            .is_empty()
    );
}
