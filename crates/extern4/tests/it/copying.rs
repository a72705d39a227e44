//! Trees that are copied into volumes, between them, and out of them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use extern4::copy::{
    CopyError, CopyFailure, CopyNames, CopyObserver, CopyOptions, CopyPath, CopySide, CopySummary,
    Follow, Preserve, Refusal, copy_tree,
};
use extern4::{NewKind, Session, Timespec, Volume};
use extern4_testkit::image::{Image, Mount};
use extern4_testkit::plan;
use extern4_testkit::tools::{self, Need};
use extern4_testkit::tree::{self, Tree};

const MIB: u64 = 1 << 20;

/// A new volume in a directory of the test, and its superuser.
fn volume(dir: &Path, name: &str, size: u64) -> (PathBuf, Volume, Session) {
    let path = dir.join(name);
    let volume = Volume::create_new(&path, size).expect("a volume");
    let session = volume.superuser();
    (path, volume, session)
}

fn options() -> CopyOptions {
    CopyOptions {
        no_target_directory: true,
        ..CopyOptions::default()
    }
}

fn copied(from: CopyPath<'_>, to: CopyPath<'_>) -> CopySummary {
    let summary = copy_tree(from, to, &options(), &mut ()).expect("a copy");
    assert_eq!((summary.failures, summary.is_stopped), (0, false));
    assert_eq!(
        (summary.losses.owners, summary.losses.xattrs),
        (0, 0),
        "{:?}",
        summary.losses
    );
    summary
}

/// A new volume in a new image, which is closed.
fn image() -> Image {
    let image = Image::in_directory(tools::temporary("extern4-copying-"), "disk.img");
    Volume::create_new(&image.path, 512 * MIB)
        .and_then(Volume::close)
        .expect("a volume");
    image
}

/// Copies a tree to the root of a closed image.
fn copied_to_root(from: CopyPath<'_>, image: &Image) {
    let volume = Volume::options()
        .write(true)
        .open(&image.path)
        .expect("a volume");
    let session = volume.superuser();
    copied(from, CopyPath::volume(&volume, &session, "/"));
    drop(session);
    volume.close().expect("a closed volume");
    tools::e2fsck(&image.path).unwrap_or_else(|said| panic!("e2fsck: {said}"));
}

/// The tree that the kernel shows in a mount, as far as copies keep it.
fn kept(mount: &Mount) -> Tree {
    tree::from_mount(&mount.path).as_built()
}

#[test]
fn a_copy_waits_for_the_writer_of_a_pipe() {
    let dir = tools::temporary("extern4-copying-");
    let (_, volume, session) = volume(dir.path(), "disk.img", 16 * MIB);
    let pipe = dir.path().join("pipe");
    tools::run("mkfifo", [&pipe]);
    let written = plan::pattern(1, 0, 3_000_000);
    let options = CopyOptions {
        recursive: false,
        follow: Follow::Always,
        ..options()
    };
    std::thread::scope(|scope| {
        // The copy opens the pipe before its writer, or after it.
        scope.spawn(|| fs::write(&pipe, &written).expect("a pipe with a reader"));
        let to = CopyPath::volume(&volume, &session, "/copy");
        copy_tree(CopyPath::Host(&pipe), to, &options, &mut ()).expect("a copy");
    });
    assert!(session.read("/copy").expect("a file") == written);
}

#[test]
fn everything_is_kept_into_a_volume_between_two_and_out_again() {
    if !tools::can_run(&[Need::Mount, Need::Tool("e2fsck")]) {
        return;
    }
    let source = image();
    let first = image();
    let second = image();
    let last = image();
    // On a volume of the kernel's, since not every file system has all that ext4 has.
    let mount = source.mount("noatime");
    plan::TREE
        .iter()
        .for_each(|plan| plan(&mount.path).expect("a plan"));
    let expected = kept(&mount);

    copied_to_root(CopyPath::host(&mount.path), &first);
    mount.unmount();
    tree::assert_same(
        "the copy from the host",
        &kept(&first.mount("ro,noatime")),
        &expected,
    );

    let volume = Volume::open(&first.path).expect("a volume");
    let session = volume.superuser();
    let from = CopyPath::volume(&volume, &session, "/");
    copied_to_root(from, &second);
    tree::assert_same(
        "the copy from a volume",
        &kept(&second.mount("ro,noatime")),
        &expected,
    );

    let mount = last.mount("noatime");
    copied(from, CopyPath::host(&mount.path));
    tree::assert_same("the copy to the host", &kept(&mount), &expected);
}

#[test]
fn holes_and_hard_links_stay() {
    let dir = tools::temporary("extern4-copying-");
    let (_, volume, session) = volume(dir.path(), "disk.img", 32 * MIB);
    let tree = dir.path().join("tree");
    let back = dir.path().join("back");
    fs::create_dir_all(tree.join("d")).expect("directories");
    fs::write(tree.join("a"), "one").expect("a file");
    fs::hard_link(tree.join("a"), tree.join("d/b")).expect("a link");
    fs::File::create(tree.join("sparse"))
        .and_then(|file| file.set_len(64 * MIB))
        .expect("a sparse file");

    let summary = copied(
        CopyPath::host(&tree),
        CopyPath::volume(&volume, &session, "/one"),
    );
    assert_eq!((summary.files, summary.bytes), (3, 3));
    copied(
        CopyPath::volume(&volume, &session, "/one"),
        CopyPath::volume(&volume, &session, "/two"),
    );
    copied(
        CopyPath::volume(&volume, &session, "/two"),
        CopyPath::host(&back),
    );
    for at in ["/one", "/two"] {
        let found = |name: &str| session.metadata(Path::new(at).join(name)).expect("a file");
        assert_eq!(
            (found("a").ino(), found("a").nlink()),
            (found("d/b").ino(), 2)
        );
        assert_eq!(
            (found("sparse").len(), found("sparse").blocks()),
            (64 * MIB, 0)
        );
    }
    let found = |name: &str| fs::metadata(back.join(name)).expect("a file");
    assert_eq!(
        (found("a").ino(), found("a").nlink()),
        (found("d/b").ino(), 2)
    );
    assert_eq!(
        (found("sparse").len(), found("sparse").blocks()),
        (64 * MIB, 0)
    );
}

#[test]
fn a_pipe_on_the_host_gets_the_mode_that_the_umask_would_cut() {
    let dir = tools::temporary("extern4-copying-");
    let (_, volume, session) = volume(dir.path(), "disk.img", 16 * MIB);
    session
        .make_node("/pipe", NewKind::Fifo, 0)
        .expect("a pipe");
    session.set_permissions("/pipe", 0o777).expect("a mode");
    let to = dir.path().join("pipe");
    let from = CopyPath::volume(&volume, &session, "/pipe");
    let summary = copy_tree(from, CopyPath::host(&to), &options(), &mut ()).expect("a copy");
    // Only root keeps the owner.
    let losses = u64::from(!rustix::process::geteuid().is_root());
    assert_eq!((summary.failures, summary.losses.owners), (0, losses));
    assert_eq!(fs::metadata(to).expect("a pipe").mode() & 0o7777, 0o777);
}

/// Notes each call, and ends the copy at a tick.
#[derive(Default)]
struct Notes {
    ticks: u64,
    /// The tick that ends the copy.
    ends_at: Option<u64>,
    failures: Vec<(PathBuf, CopySide, Option<Refusal>)>,
    /// Whether files that are there may be replaced.
    keeps: bool,
    /// The copies that were begun, and what took their places' files.
    begun: Vec<(PathBuf, Option<PathBuf>)>,
}

impl CopyObserver for Notes {
    fn advance(&mut self, _: u64, _: u64) -> ControlFlow<()> {
        self.ticks += 1;
        if Some(self.ticks) == self.ends_at {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn leaves_out(&mut self, path: &Path, is_directory: bool) -> bool {
        path == Path::new("out") && is_directory
    }

    fn may_replace(&mut self, _: &Path, _: Timespec, _: Timespec) -> bool {
        !self.keeps
    }

    fn set_aside(&mut self, name: &OsStr, names: Vec<OsString>) -> Option<OsString> {
        assert!(names.iter().any(|other| other == name));
        Some(OsString::from("old"))
    }

    fn copying(&mut self, names: &CopyNames<'_>) {
        self.begun
            .push((names.to.to_owned(), names.set_aside.map(Path::to_owned)));
    }

    fn failed(&mut self, failure: &CopyFailure) {
        let refusal = match &failure.error {
            CopyError::Refused(refusal) => Some(*refusal),
            _ => None,
        };
        self.failures
            .push((failure.to.clone(), failure.side, refusal));
    }
}

/// A tree of the host with three files and two directories.
fn three_files(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("d")).expect("directories");
    fs::create_dir_all(tree.join("out/below")).expect("directories");
    for (name, bytes) in [("a", 1), ("b", 5 << 19), ("d/c", 100)] {
        fs::write(tree.join(name), vec![7_u8; bytes]).expect("a file");
    }
    tree
}

#[test]
fn a_file_that_cannot_be_copied_does_not_end_the_copy() {
    let dir = tools::temporary("extern4-copying-");
    let tree = three_files(dir.path());
    let (_, volume, session) = volume(dir.path(), "disk.img", 32 * MIB);
    let in_volume = |path| CopyPath::volume(&volume, &session, path);
    let copy = |from, to| {
        let mut notes = Notes::default();
        let failure = copy_tree(from, to, &options(), &mut notes).expect_err("a failure");
        assert_eq!(failure.to, to.path().join("a"));
        assert_eq!(notes.failures.len(), 1);
        notes.failures.remove(0)
    };
    // A directory is where a file would go.
    session.create_dir_all("/one/a").expect("directories");
    session.create_dir_all("/two/a").expect("directories");
    let refused = (CopySide::To, Some(Refusal::DirectoryInPlace));
    assert_eq!(
        copy(CopyPath::host(&tree), in_volume("/one")),
        (PathBuf::from("/one/a"), refused.0, refused.1)
    );
    for name in ["b", "d/c"] {
        assert_eq!(
            session.read(Path::new("/one").join(name)).ok(),
            fs::read(tree.join(name)).ok()
        );
    }
    assert!(
        !session.exists("/one/out").expect("a directory"),
        "the observer leaves it out"
    );
    session.remove_dir("/one/a").expect("a directory");
    session.write("/one/a", "a").expect("a file");
    assert_eq!(
        copy(in_volume("/one"), in_volume("/two")),
        (PathBuf::from("/two/a"), refused.0, refused.1)
    );
    assert_eq!(session.read("/two/d/c").expect("a file").len(), 100);
    let back = dir.path().join("back");
    fs::create_dir_all(back.join("a")).expect("directories");
    assert_eq!(
        copy(in_volume("/one"), CopyPath::host(&back)),
        (back.join("a"), CopySide::To, None)
    );
    assert_eq!(fs::read(back.join("b")).ok(), fs::read(tree.join("b")).ok());
}

/// The sizes of the files below a directory of a volume, by path.
fn sizes_in(session: &Session, top: &str) -> BTreeMap<PathBuf, u64> {
    let entries = session.walk(top).map(|entry| entry.expect("an entry"));
    let files = entries.map(|entry| (entry.path().to_owned(), entry.metadata().expect("a file")));
    let files = files.filter(|(_, found)| found.is_file());
    files
        .map(|(path, found)| {
            (
                path.strip_prefix(top).expect("below").to_owned(),
                found.len(),
            )
        })
        .collect()
}

/// The sizes of the files below a directory of the host, by path.
fn sizes_on_host(top: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let size = path.metadata().expect("a file").len();
                found.insert(path.strip_prefix(top).expect("below").to_owned(), size);
            }
        }
    }
    found
}

#[test]
fn a_break_at_any_tick_leaves_no_partial_file() {
    let dir = tools::temporary("extern4-copying-");
    let tree = three_files(dir.path());
    let (path, volume, session) = volume(dir.path(), "disk.img", 64 * MIB);
    let in_volume = |path| CopyPath::volume(&volume, &session, path);
    let whole = sizes_on_host(&tree);
    assert_eq!(whole.len(), 3);
    copied(CopyPath::host(&tree), in_volume("/whole"));
    let sizes = |to: CopyPath<'_>| match to {
        CopyPath::Host(path) => sizes_on_host(path),
        CopyPath::Volume(..) => sizes_in(&session, "/copy"),
    };
    let host = dir.path().join("copy");
    let ways = [
        (CopyPath::host(&tree), in_volume("/copy")),
        (in_volume("/whole"), in_volume("/copy")),
        (in_volume("/whole"), CopyPath::host(&host)),
    ];
    for (from, to) in ways {
        let mut broken = 0;
        let mut partial = 0;
        for tick in 1.. {
            let mut notes = Notes {
                ends_at: Some(tick),
                ..Notes::default()
            };
            let summary = copy_tree(from, to, &options(), &mut notes).expect("a copy");
            let there = sizes(to);
            assert!(
                there
                    .iter()
                    .all(|(path, size)| whole.get(path) == Some(size)),
                "{tick}: {there:?}"
            );
            partial += usize::from(!there.is_empty() && there != whole);
            if !summary.is_stopped {
                assert_eq!(there, whole);
                break;
            }
            assert_eq!(notes.ticks, tick, "a copy goes on after a break");
            broken += 1;
            match to {
                CopyPath::Host(path) => drop(fs::remove_dir_all(path)),
                CopyPath::Volume(..) => drop(session.remove_dir_all("/copy")),
            }
        }
        assert!(
            broken > 5 && partial > 0,
            "{broken} breaks, {partial} with a part of the files"
        );
        let _ = session.remove_dir_all("/copy");
    }
    drop(session);
    volume.close().expect("a closed volume");
    if tools::can_run(&[Need::Tool("e2fsck")]) {
        tools::e2fsck(&path).unwrap_or_else(|said| panic!("e2fsck: {said}"));
    }
}

#[test]
fn the_observer_decides_about_files_that_are_there() {
    let dir = tools::temporary("extern4-copying-");
    let (_, volume, session) = volume(dir.path(), "disk.img", 16 * MIB);
    let tree = dir.path().join("tree");
    let host = dir.path().join("host");
    fs::create_dir_all(&tree).expect("a directory");
    fs::write(tree.join("f"), "new").expect("a file");
    copied(
        CopyPath::host(&tree),
        CopyPath::volume(&volume, &session, "/from"),
    );
    for keeps in [true, false] {
        let _ = (session.remove_dir_all("/to"), fs::remove_dir_all(&host));
        session.create_dir("/to").expect("a directory");
        session.write("/to/f", "there").expect("a file");
        fs::create_dir(&host).expect("a directory");
        fs::write(host.join("f"), "there").expect("a file");
        let options = CopyOptions {
            asks: true,
            sets_aside: true,
            ..options()
        };
        for (from, to) in [
            (
                CopyPath::host(&tree),
                CopyPath::volume(&volume, &session, "/to"),
            ),
            (
                CopyPath::volume(&volume, &session, "/from"),
                CopyPath::host(&host),
            ),
        ] {
            let mut notes = Notes {
                keeps,
                ..Notes::default()
            };
            copy_tree(from, to, &options, &mut notes).expect("a copy");
            let begun = (to.path().join("f"), Some(to.path().join("old")));
            assert_eq!(notes.begun, if keeps { vec![] } else { vec![begun] });
        }
        let expected = if keeps {
            ("there", None)
        } else {
            ("new", Some("there"))
        };
        let read = |path: &str| session.read_to_string(path).ok();
        assert_eq!(
            (read("/to/f").as_deref(), read("/to/old").as_deref()),
            (Some(expected.0), expected.1)
        );
        let read = |name: &str| fs::read_to_string(host.join(name)).ok();
        assert_eq!(
            (read("f").as_deref(), read("old").as_deref()),
            (Some(expected.0), expected.1)
        );
    }
}

#[test]
fn what_cannot_be_a_copy_is_refused() {
    let dir = tools::temporary("extern4-copying-");
    let tree = three_files(dir.path());
    let (image, volume, session) = volume(dir.path(), "disk.img", 16 * MIB);
    session.create_dir("/d").expect("a directory");
    let root = CopyPath::volume(&volume, &session, "/");
    let d = CopyPath::volume(&volume, &session, "/d");
    let check = |from: CopyPath<'_>, to: CopyPath<'_>, options: CopyOptions, expected: Refusal| {
        let failure = copy_tree(from, to, &options, &mut ()).expect_err("a refusal");
        assert!(
            matches!(failure.error, CopyError::Refused(refusal) if refusal == expected),
            "{failure}, and not {expected}"
        );
    };
    let plain = CopyOptions {
        recursive: false,
        preserve: Preserve::default(),
        ..CopyOptions::default()
    };
    check(
        CopyPath::host(&tree),
        CopyPath::host(&tree),
        CopyOptions::default(),
        Refusal::NoVolume,
    );
    check(
        CopyPath::host(&tree),
        d,
        plain.clone(),
        Refusal::IsDirectory,
    );
    check(d, CopyPath::host(&tree), plain, Refusal::IsDirectory);
    check(root, d, CopyOptions::default(), Refusal::IntoItself);
    check(
        CopyPath::host(&image),
        d,
        CopyOptions::default(),
        Refusal::OwnImage,
    );
    check(
        d,
        CopyPath::host(&image),
        CopyOptions::default(),
        Refusal::OwnImage,
    );
}
