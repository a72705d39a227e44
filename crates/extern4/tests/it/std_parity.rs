//! Calls of the library against the calls of `std::fs` that they are named after.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use extern4::{Errno, ErrorKind, File, OpenFlags, Session, Volume};
use tempfile::TempDir;

/// Returns a new volume, and the directory of its image.
fn volume() -> (Volume, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20).expect("a volume");
    (volume, dir)
}

/// The results of opening a file, reading all of it and writing to it, and its contents afterwards.
type Seen = (
    Result<(Result<String, io::ErrorKind>, Result<(), io::ErrorKind>), io::ErrorKind>,
    Vec<u8>,
);

fn used<F: Read + Write>(opened: io::Result<F>, contents: impl FnOnce() -> Vec<u8>) -> Seen {
    let used = opened.map(|mut file| {
        let mut text = String::new();
        let read = file.read_to_string(&mut text).map(|_| text);
        (
            read.map_err(|e| e.kind()),
            file.write_all(b"new").map_err(|e| e.kind()),
        )
    });
    (used.map_err(|e| e.kind()), contents())
}

#[test]
fn files_open_with_the_options_of_std() {
    let (volume, dir) = volume();
    let session = volume.superuser();
    let mut opened = 0;
    for bits in 0..64_u32 {
        let is = |bit: u32| bits & 1 << bit != 0;
        let mut ours = File::options();
        let mut theirs = fs::File::options();
        ours.read(is(0))
            .write(is(1))
            .append(is(2))
            .truncate(is(3))
            .create(is(4))
            .create_new(is(5));
        theirs
            .read(is(0))
            .write(is(1))
            .append(is(2))
            .truncate(is(3))
            .create(is(4))
            .create_new(is(5));
        let case = dir.path().join(bits.to_string());
        fs::create_dir_all(case.join("directory")).expect("directories");
        session
            .create_dir_all(format!("/{bits}/directory"))
            .expect("directories");
        fs::write(case.join("file"), "old").expect("a file");
        session
            .write(format!("/{bits}/file"), "old")
            .expect("a file");
        for (link, target) in [("link", "file"), ("dangling", "absent")] {
            symlink(target, case.join(link)).expect("a link");
            session
                .symlink(target, format!("/{bits}/{link}"))
                .expect("a link");
        }
        for name in [
            "missing",
            "file",
            "directory",
            "link",
            "dangling",
            "missing/x",
            "file/x",
        ] {
            let host = case.join(name);
            let path = format!("/{bits}/{name}");
            let read = || session.read(&path).unwrap_or_default();
            let found = used(
                session.open_with(&path, &ours).map_err(io::Error::from),
                read,
            );
            let expected = used(theirs.open(&host), || fs::read(&host).unwrap_or_default());
            assert_eq!(found, expected, "{name} with {ours:?}");
            opened += usize::from(found.0.is_ok());
        }
    }
    assert!(opened > 50, "only {opened} opens succeeded");
}

#[test]
fn further_flags_and_the_umask_count() {
    let (volume, _dir) = volume();
    let session = volume.superuser().with_umask(0o027);
    session.create_new("/new").expect("a file");
    assert_eq!(
        session.create_new("/new").expect_err("it is there").errno(),
        Errno::EEXIST
    );
    session.create_dir("/dir").expect("a directory");
    let mut options = File::options();
    session
        .open_with("/secret", options.write(true).create(true).mode(0o4666))
        .expect("a file");
    let mode = |path: &str| session.metadata(path).expect("it is there").mode() & 0o7777;
    assert_eq!(
        ["/new", "/dir", "/secret"].map(mode),
        [0o640, 0o750, 0o4640]
    );

    session.symlink("new", "/link").expect("a link");
    let open = |flags| session.open_with("/link", File::options().read(true).custom_flags(flags));
    assert_eq!(
        open(OpenFlags::NOFOLLOW).expect_err("a link").errno(),
        Errno::ELOOP
    );
    let handle = open(OpenFlags::PATH | OpenFlags::NOFOLLOW).expect("a handle");
    assert!(handle.metadata().is_symlink());
    open(OpenFlags::WRITE)
        .expect("it has no effect")
        .write_at(b"x", 0)
        .expect_err("it is for reading");
}

#[test]
fn whole_trees_go_and_links_are_not_followed() {
    let (volume, dir) = volume();
    let session = volume.superuser();
    let host = |path: &str| dir.path().join(path);
    fs::create_dir_all(host("kept/below")).expect("directories");
    session.create_dir_all("/kept/below").expect("directories");
    symlink("kept", host("link")).expect("a link");
    session.symlink("kept", "/link").expect("a link");
    fs::remove_dir_all(host("link")).expect("the link goes");
    session.remove_dir_all("/link").expect("the link goes");
    let found = |path: &str| {
        (
            session.exists(format!("/{path}")).expect("an answer"),
            host(path).exists(),
        )
    };
    assert_eq!(
        ["link", "kept/below"].map(found),
        [(false, false), (true, true)]
    );
    fs::remove_dir_all(host("kept")).expect("the tree goes");
    session.remove_dir_all("/kept").expect("the tree goes");
    assert_eq!(found("kept"), (false, false));
    // A path that no call takes.
    let name = "x".repeat(255);
    let mut inside = session.clone();
    for _ in 0..20 {
        inside.create_dir(&name).expect("a directory");
        inside = inside.at(&name).expect("it is there");
    }
    drop(inside);
    session
        .remove_dir_all(format!("/{name}"))
        .expect("the tree goes");
    assert!(!session.exists(format!("/{name}")).expect("an answer"));
}

/// Reads and writes through shared references, and at positions.
fn positions<'a, F>(
    file: &'a F,
    exact: impl Fn(&mut [u8], u64) -> Result<(), io::ErrorKind>,
) -> Vec<String>
where
    &'a F: Read + Write + Seek,
{
    let mut shared = file;
    shared.write_all(b"0123456789").expect("room");
    let at = shared.seek(SeekFrom::End(-4)).expect("a position");
    let mut text = String::new();
    shared.read_to_string(&mut text).expect("text");
    let mut bytes = [0; 3];
    let exactly = [2, 7, 8, 90].map(|at| exact(&mut bytes, at).map(|()| bytes));
    let seeks = [
        SeekFrom::Start(3),
        SeekFrom::Current(-4),
        SeekFrom::Current(-2),
        SeekFrom::End(5),
    ];
    let seeks = seeks.map(|to| shared.seek(to).map_err(|e| e.kind()));
    vec![
        format!("{at} {text}"),
        format!("{exactly:?}"),
        format!("{seeks:?}"),
    ]
}

#[test]
fn positions_are_those_of_std() {
    let (volume, dir) = volume();
    let ours = volume.superuser().create("/file").expect("a file");
    let path = dir.path().join("file");
    let theirs = fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .expect("a file");
    let exact = |buf: &mut [u8], at| {
        ours.read_exact_at(buf, at)
            .map_err(|e| io::Error::from(e).kind())
    };
    let found = positions(&ours, exact);
    assert_eq!(
        found,
        positions(&theirs, |buf, at| theirs
            .read_exact_at(buf, at)
            .map_err(|e| e.kind()))
    );
    assert!(found[1].contains("UnexpectedEof"), "{found:?}");
}

#[test]
fn text_is_utf_8() {
    let (volume, dir) = volume();
    let session = volume.superuser();
    let host = dir.path().join("file");
    for contents in [&b"text"[..], b"\xff"] {
        session.write("/file", contents).expect("a file");
        fs::write(&host, contents).expect("a file");
        let found = session
            .read_to_string("/file")
            .map_err(|e| io::Error::from(e).kind());
        assert_eq!(found, fs::read_to_string(&host).map_err(|e| e.kind()));
    }
}

#[test]
fn a_failed_call_can_be_shown() {
    // `unwrap_err` and `{:?}` need `Debug` of all types that a call returns.
    fn show(session: &Session, volume: &Volume) -> extern4::Result<String> {
        let entry = session.read_dir("/")?.next().expect("lost+found")?;
        let file = session.create("/f")?;
        let list = session.read_dir("/")?;
        let walk = session.walk("/");
        Ok(format!(
            "{volume:?} {session:?} {entry:?} {file:?} {list:?} {walk:?} {:?}",
            Volume::options()
        ))
    }
    let (volume, _dir) = volume();
    let shown = show(&volume.superuser(), &volume).expect("all can be opened");
    for word in [
        "Volume",
        "Session",
        "lost+found",
        "\"/f\"",
        "ReadDir",
        "Walk",
        "VolumeOptions",
    ] {
        assert!(shown.contains(word), "{word} is not in {shown}");
    }
}

#[test]
fn a_new_volume_is_sound_and_takes_no_existing_file() {
    let (volume, dir) = volume();
    let image = dir.path().join("disk.img");
    assert_eq!(
        Volume::create_new(&image, 16 << 20)
            .expect_err("it is there")
            .errno(),
        Errno::EEXIST
    );
    volume
        .superuser()
        .write("/file", [7; 100_000])
        .expect("room");
    volume.close().expect("it closes");
    extern4_testkit::tools::e2fsck(&image).unwrap_or_else(|e| panic!("{e}"));

    let other = Volume::create_new(dir.path().join("other.img"), 16 << 20).expect("a volume");
    assert_ne!(other.uuid(), [0; 16]);
    assert_ne!(other.uuid(), Volume::open(&image).expect("it opens").uuid());
    let small = dir.path().join("small.img");
    assert_eq!(
        Volume::create_new(&small, 4096)
            .expect_err("too small")
            .kind(),
        ErrorKind::Invalid
    );
    assert!(!small.exists());
    let nowhere = Volume::create_new(Path::new("/nowhere/disk.img"), 16 << 20);
    assert_eq!(nowhere.expect_err("no directory").errno(), Errno::ENOENT);
}
