//! Volumes that are brought to the state of a tree, next to volumes that are built of it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use extern4::block::{BlockDevice, CrashDevice, MemoryDevice};
use extern4::build::{
    BuildOptions, Builder, Change, Contents, Data, Entries, Entry, Kind, Piece, ReadAt, Size,
    Source, Time, Update, UpdateError, UpdateOptions, UpdateStep, VolumeSource, source,
};
use extern4::{Session, Volume};
use extern4_testkit::image::Image;
use extern4_testkit::tools::{self, Need};
use extern4_testkit::tree;
use extern4_testkit::{plan, sample};

/// A member of a tree with its bytes.
type Member = (Entry, Option<Arc<dyn ReadAt>>);

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn entry(path: &str, kind: Kind, random: &mut Random) -> Entry {
    let attributes = |random: &mut Random| match random.below(4) {
        0 => vec![(b"user.x".to_vec(), vec![b'v'; random.below(60) as usize])],
        1 => vec![
            (b"trusted.y".to_vec(), b"y".to_vec()),
            (b"user.x".to_vec(), b"x".to_vec()),
        ],
        _ => Vec::new(),
    };
    let is_plain = matches!(kind, Kind::Directory | Kind::File(_));
    let is_symlink = matches!(kind, Kind::Symlink(_));
    Entry {
        path: path.as_bytes().to_vec(),
        // Linux gives all symbolic links one mode.
        mode: if is_symlink {
            0o777
        } else {
            [0o755, 0o644, 0o4711, 0o1770][random.below(4) as usize]
        },
        uid: random.below(3) as u32,
        gid: random.below(3) as u32,
        mtime: Time {
            secs: 1_700_000_000 + random.below(3) as i64,
            nanos: random.below(2) as u32 * 7,
        },
        xattrs: if is_plain {
            attributes(random)
        } else {
            Vec::new()
        },
        kind,
        flags: None,
        project: None,
    }
}

fn file(random: &mut Random) -> (Kind, Option<Arc<dyn ReadAt>>) {
    let size = [0, 5, 5, 4096, 300_000][random.below(5) as usize];
    let bytes = plan::pattern(random.below(2), 0, size);
    let size = size as u64;
    if size > 100_000 && random.below(2) == 0 {
        // A hole, of which this file has the two ends.
        let pieces = [(0, 4096), (200_704, size - 200_704)];
        let pieces = pieces.map(|(offset, len)| Piece {
            offset,
            len,
            position: offset,
        });
        let data = Data::Pieces(pieces.to_vec().into());
        return (Kind::File(Contents { size, data }), Some(Arc::new(bytes)));
    }
    (
        Kind::File(Contents {
            size,
            data: Data::Stored { position: 0 },
        }),
        Some(Arc::new(bytes)),
    )
}

/// A random tree. Trees of different seeds have many names, and some contents, in common.
fn members(seed: u64) -> Vec<Member> {
    let mut random = Random(seed);
    let mut members = vec![(entry("", Kind::Directory, &mut random), None)];
    let mut directories = vec![String::new()];
    let mut files = Vec::new();
    for _ in 0..60 {
        let above = directories[random.below(directories.len() as u64) as usize].clone();
        let name = char::from(b'a' + random.below(7) as u8);
        let path = if above.is_empty() {
            name.to_string()
        } else {
            format!("{above}/{name}")
        };
        if members
            .iter()
            .any(|(entry, _): &Member| entry.path == path.as_bytes())
        {
            continue;
        }
        let (kind, bytes) = match random.below(10) {
            0..3 if path.len() < 6 => {
                directories.push(path.clone());
                (Kind::Directory, None)
            }
            3 => (
                Kind::Symlink([b"a/b".to_vec(), vec![b't'; 100]][random.below(2) as usize].clone()),
                None,
            ),
            4 => match random.below(4) {
                0 => (Kind::Fifo, None),
                1 => (Kind::Socket, None),
                2 => (
                    Kind::BlockDevice {
                        major: 8,
                        minor: random.below(2) as u32,
                    },
                    None,
                ),
                _ => (
                    Kind::CharDevice {
                        major: 5,
                        minor: random.below(2) as u32,
                    },
                    None,
                ),
            },
            5..7 if !files.is_empty() => {
                let first: &String = &files[random.below(files.len() as u64) as usize];
                (Kind::HardLink(first.as_bytes().to_vec()), None)
            }
            _ => file(&mut random),
        };
        if !matches!(kind, Kind::Directory) {
            files.push(path.clone());
        }
        members.push((entry(&path, kind, &mut random), bytes));
    }
    members
}

fn builder(source: Box<dyn Source>, size: Size) -> Builder {
    let mut builder = Builder::new(BuildOptions {
        size,
        ..BuildOptions::default()
    });
    builder.add(source, b"").expect("a tree");
    builder
}

fn builder_of(seed: u64) -> Builder {
    builder(
        Box::new(members(seed).into_iter().collect::<Entries>()),
        Size::Slack(8 << 20),
    )
}

fn options() -> UpdateOptions {
    UpdateOptions {
        owners: true,
        ..UpdateOptions::default()
    }
}

/// Compares, and writes what differs. Returns the changes.
fn update(builder: Builder, session: &Session) -> Vec<(Change, Vec<u8>)> {
    let update = Update::plan(builder.merge().expect("a tree"), session, options(), None)
        .expect("a comparison");
    assert!(update.refused().is_empty(), "{:?}", update.refused());
    let mut done = Vec::new();
    let written = update.run(session, None, &mut |step| {
        match step {
            UpdateStep::Done(change, path) => done.push((change, path.to_vec())),
            UpdateStep::Failed(failed) => panic!("{failed:?}"),
        }
        ControlFlow::Continue(())
    });
    written.expect("an update");
    let expected: Vec<_> = update
        .changes()
        .map(|(change, path)| (change, path.to_vec()))
        .collect();
    assert_eq!(done, expected);
    done
}

/// Everything that a tree has of a volume, with the bytes of its files.
fn everything(session: &Session) -> BTreeMap<Vec<u8>, (Entry, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for file in extern4::build::TreeWalk::new(session).expect("a root") {
        let file = file.expect("a file");
        if file.is_lost_found {
            continue;
        }
        let is_file = matches!(file.entry.kind, Kind::File(_));
        let path = Path::new("/").join(std::ffi::OsStr::from_bytes(&file.entry.path));
        let bytes = if is_file {
            session.read(path).expect("contents")
        } else {
            Vec::new()
        };
        found.insert(file.entry.path.clone(), (file.entry, bytes));
    }
    found
}

fn assert_same(what: &str, ours: &Session, theirs: &Session) {
    let ours = everything(ours);
    let theirs = everything(theirs);
    for (path, theirs) in &theirs {
        let ours = ours.get(path);
        let shown = (path.escape_ascii(), ours.map(|ours| &ours.0), &theirs.0);
        assert!(ours == Some(theirs), "{what}: {shown:?}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
}

fn image(builder: Builder) -> Image {
    let image = Image::in_directory(tools::temporary("extern4-update-"), "out.img");
    builder
        .plan()
        .expect("a volume")
        .write_file(&image.path, false, 2)
        .expect("an image");
    image
}

fn writable(path: &Path) -> Volume {
    Volume::options().write(true).open(path).expect("a volume")
}

#[test]
fn a_random_tree_becomes_another_one() {
    let checks = tools::can_run(&[Need::Tool("e2fsck")]);
    for seed in 0..24 {
        let what = format!("seeds {seed} and {}", seed + 100);
        let updated = image(builder_of(seed));
        let built = image(builder_of(seed + 100));
        let volume = writable(&updated.path);
        update(builder_of(seed + 100), &volume.superuser());
        volume.close().expect("a volume");
        if checks {
            tools::e2fsck(&updated.path).unwrap_or_else(|said| panic!("{what}: {said}"));
        }
        let ours = Volume::open(&updated.path);
        let theirs = Volume::open(&built.path);
        let ours = ours.expect("a volume").superuser();
        let theirs = theirs.expect("a volume").superuser();
        assert_same(&what, &ours, &theirs);
        // Nothing is left to do.
        let again = Update::plan(
            builder_of(seed + 100).merge().expect("a tree"),
            &ours,
            options(),
            None,
        )
        .expect("a comparison");
        assert_eq!(again.changes().collect::<Vec<_>>(), [], "{what}");
        assert!(
            again.summary().is_empty() && again.summary().kept > 0,
            "{what}: {:?}",
            again.summary()
        );
    }
}

#[test]
fn everything_of_a_volume_comes_by_an_update() {
    if !tools::can_run(&[Need::Mount, Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    // Inodes of 128 bytes have times of whole seconds.
    for inode_size in ["256", "128"] {
        let make = |name| {
            let image = Image::in_directory(tools::temporary("extern4-update-"), name);
            fs::File::create(&image.path)
                .and_then(|file| file.set_len(2 << 30))
                .expect("an image file");
            let path = image.path.to_str().expect("a name in UTF-8");
            tools::run("mke2fs", ["-q", "-t", "ext4", "-I", inode_size, path]);
            image
        };
        let old = make("old.img");
        let new = make("new.img");
        let mount = old.mount("noatime");
        plan::TREE
            .iter()
            .for_each(|plan| plan(&mount.path).expect("a plan"));
        mount.unmount();
        let from_old = || {
            let volume = Volume::open(&old.path).expect("a volume");
            builder(Box::new(VolumeSource::new(volume.superuser())), Size::Auto)
        };
        let volume = writable(&new.path);
        update(from_old(), &volume.superuser());
        volume.close().expect("a volume");
        tools::e2fsck(&new.path).unwrap_or_else(|said| panic!("e2fsck: {said}"));
        let kept = |image: &Image| {
            let mount = image.mount("ro,noatime");
            let tree = tree::from_mount(&mount.path).as_built();
            mount.unmount();
            tree
        };
        tree::assert_same("the updated volume", &kept(&new), &kept(&old));
        let session = Volume::open(&new.path).expect("a volume").superuser();
        let again = Update::plan(
            from_old().merge().expect("a tree"),
            &session,
            options(),
            None,
        )
        .expect("a comparison");
        assert_eq!(again.changes().collect::<Vec<_>>(), []);
    }
}

#[test]
fn only_what_differs_is_written() {
    let tree = tools::temporary("extern4-source-");
    let at = tree.path();
    fs::create_dir(at.join("d")).expect("a directory");
    for (name, size) in [
        ("d/same", 1 << 20),
        ("d/other", 5000),
        ("d/mode", 1 << 20),
        ("gone", 10),
    ] {
        fs::write(at.join(name), plan::pattern(1, 0, size)).expect("a file");
    }
    let from = || builder(source(at, at).expect("a directory"), Size::Slack(8 << 20));
    let image = image(from());
    fs::write(at.join("d/other"), plan::pattern(2, 0, 5000)).expect("a file");
    fs::write(at.join("new"), "new").expect("a file");
    fs::remove_file(at.join("gone")).expect("a file");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(at.join("d/mode"), private).expect("a mode");
    let volume = writable(&image.path);
    let session = volume.superuser();
    let inodes = |name: &str| session.metadata(name).expect("a file").ino();
    let before = (inodes("/d/same"), inodes("/d/mode"), inodes("/d/other"));
    let mut changes = update(from(), &session);
    changes.sort_by(|left, right| left.1.cmp(&right.1));
    let expected = [
        (Change::SetAttributes, ""),
        (Change::SetAttributes, "d/mode"),
        (Change::Replace, "d/other"),
        (Change::Remove, "gone"),
        (Change::Create, "new"),
    ];
    assert_eq!(
        changes,
        expected.map(|(change, path)| (change, path.as_bytes().to_vec()))
    );
    let after = (inodes("/d/same"), inodes("/d/mode"), inodes("/d/other"));
    assert_eq!((before.0, before.1), (after.0, after.1));
    assert_ne!(before.2, after.2);
    volume.close().expect("a volume");
    // A second run finds nothing to do, and the image keeps its bytes.
    let bytes = fs::read(&image.path).expect("an image");
    let reader = Volume::open(&image.path).expect("a volume");
    let again = Update::plan(
        from().merge().expect("a tree"),
        &reader.superuser(),
        options(),
        None,
    )
    .expect("a comparison");
    assert!(
        again.summary().is_empty(),
        "{:?}",
        again.changes().collect::<Vec<_>>()
    );
    drop((again, reader));
    assert!(fs::read(&image.path).expect("an image") == bytes);
}

#[test]
fn the_tree_goes_over_a_volume_that_keeps_its_other_files() {
    let sample = sample::image().copy();
    let volume = writable(&sample.path);
    let session = volume.superuser();
    session.symlink("usr", "/to-usr").expect("a link");
    session
        .create_dir_with("/usr/private", 0o700)
        .expect("a directory");
    session.write("/usr/twice", "old").expect("a file");
    session
        .hard_link("/usr/twice", "/usr/other-name")
        .expect("a link");
    let bytes = |text: &str| -> Arc<dyn ReadAt> { Arc::new(text.as_bytes().to_vec()) };
    let file = |size| {
        Kind::File(Contents {
            size,
            data: Data::Stored { position: 0 },
        })
    };
    let mut random = Random(1);
    let entries = [
        (
            entry("to-usr/private/file", file(3), &mut random),
            Some(bytes("new")),
        ),
        (entry("usr/twice", file(3), &mut random), Some(bytes("new"))),
        (
            entry("usr/include", file(3), &mut random),
            Some(bytes("new")),
        ),
    ];
    let builder = builder(
        Box::new(entries.into_iter().collect::<Entries>()),
        Size::Auto,
    );
    let before = everything(&session);
    let keeping = UpdateOptions {
        keeps_others: true,
        ..options()
    };
    let update = Update::plan(builder.merge().expect("a tree"), &session, keeping, None)
        .expect("a comparison");
    // A directory with files in it is no place for a file.
    let refused: Vec<_> = update
        .refused()
        .iter()
        .map(|refused| &*refused.path)
        .collect();
    assert_eq!(refused, [&b"usr/include"[..]]);
    update
        .run(&session, None, &mut |_| ControlFlow::Continue(()))
        .expect("an update");
    assert_eq!(session.read("/usr/private/file").expect("a file"), b"new");
    assert_eq!(
        session
            .metadata("/usr/private")
            .expect("a directory")
            .mode()
            & 0o777,
        0o700
    );
    assert_eq!(session.read("/usr/twice").expect("a file"), b"new");
    assert_eq!(session.read("/usr/other-name").expect("a file"), b"old");
    let after = everything(&session);
    for path in before
        .keys()
        .filter(|path| !matches!(&***path, b"usr/twice" | b"usr" | b"usr/private"))
    {
        let is_first = matches!(before[path].0.kind, Kind::HardLink(_));
        assert!(
            is_first || before[path] == after[path],
            "{}",
            path.escape_ascii()
        );
    }
    drop(session);
    volume.close().expect("a volume");
}

#[test]
fn the_caller_can_end_an_update_between_two_files() {
    let updated = image(builder_of(3));
    let volume = writable(&updated.path);
    let session = volume.superuser();
    let update = Update::plan(
        builder_of(4).merge().expect("a tree"),
        &session,
        options(),
        None,
    )
    .expect("a comparison");
    let mut steps = 0;
    let ended = update.run(&session, None, &mut |_| {
        steps += 1;
        if steps == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(matches!(ended, Err(UpdateError::Interrupted)) && steps == 3);
    // The watch, within a file: nothing unfinished stays.
    let watch: extern4::build::Watch = Arc::new(|progress| match progress {
        extern4::build::Progress::Writing { bytes: 1.., .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    let update = Update::plan(
        builder_of(4).merge().expect("a tree"),
        &session,
        options(),
        None,
    )
    .expect("a comparison");
    let ended = update.run(&session, Some(&watch), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(ended, Err(UpdateError::Interrupted)));
    assert!(
        everything(&session)
            .keys()
            .all(|path| !path.ends_with(b".new0"))
    );
    drop((update, session));
    volume.close().expect("a volume");
}

#[test]
fn a_crash_leaves_old_and_new_files_whole() {
    if !tools::can_run(&[Need::Tool("e2fsck")]) {
        return;
    }
    // As many as `make soak` asks for.
    let states = std::env::var("EXTERN4_CRASHES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(12);
    let old = image(builder_of(5));
    let device = Arc::new(CrashDevice::new(fs::read(&old.path).expect("an image")));
    let volume = Volume::options()
        .write(true)
        .open_device(Arc::clone(&device) as _)
        .expect("a volume");
    let session = volume.superuser();
    let before = everything(&volume.superuser());
    let target = Update::plan(
        builder_of(6).merge().expect("a tree"),
        &session,
        options(),
        None,
    )
    .expect("a comparison");
    let mut steps = 0;
    let synced = target.run(&session, None, &mut |_| {
        steps += 1;
        if steps % 4 == 0 {
            volume.sync().expect("a sync");
        }
        ControlFlow::Continue(())
    });
    synced.expect("an update");
    let after = everything(&session);
    drop(session);
    volume.close().expect("a volume");
    let end = device.moment();
    for state in 0..states {
        let moment = (end * state / states).max(1);
        let what = format!("moment {moment} of {end}");
        let keep = |sector: u64| sector.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 < 8;
        // The superblock's two sectors are written both or not at all.
        let crashed = device.crash(moment, |pending| state % 2 == 0 || keep(pending.sector / 8));
        let crashed = Arc::new(MemoryDevice::new(crashed.into_bytes()));
        let volume = Volume::options()
            .write(true)
            .open_device(Arc::clone(&crashed) as _)
            .expect(&what);
        for (path, (entry, bytes)) in everything(&volume.superuser()) {
            if !matches!(entry.kind, Kind::File(_)) || path.ends_with(b".new0") {
                continue;
            }
            let whole = [&before, &after].iter().any(|tree| {
                // A further name may be the first by now.
                let named = tree.get(&path).map(|(entry, bytes)| match &entry.kind {
                    Kind::HardLink(first) => &tree[first].1,
                    _ => bytes,
                });
                named == Some(&bytes)
            });
            assert!(
                whole,
                "{what}: {} is neither old nor new",
                path.escape_ascii()
            );
        }
        volume.close().expect("a volume");
        let mut bytes = vec![0; crashed.size_bytes() as usize];
        crashed.read_at(&mut bytes, 0).expect("memory");
        fs::write(&old.path, bytes).expect("an image");
        tools::e2fsck(&old.path).unwrap_or_else(|said| panic!("{what}: {said}"));
    }
}
