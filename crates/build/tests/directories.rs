//! Volumes built from directories: e2fsck finds nothing to say, and the kernel shows the same tree.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use extern4_build::{BuildOptions, Builder, Error, Planned, Progress, Size};
use extern4_mkfs::Options;
use extern4_testkit::image::{Image, Plan};
use extern4_testkit::plan;
use extern4_testkit::tools::{self, Need};
use extern4_testkit::tree::{self, Tree};
use extern4_tree::{DirectorySource, Manifest, Rule};

/// Everything that a directory can hold but targets of symbolic links that are longer than a small
/// block.
const ALL: &[Plan] = &[
    plan::small_files,
    plan::holes,
    plan::odd_names,
    plan::modes_and_owners,
    plan::times,
    plan::devices,
    plan::many_links,
    plan::gaps,
    plan::xattrs,
    plan::access_lists,
    plan::shared_xattrs,
    plan::small_directories,
    plan::deep,
    plan::crowd,
];

fn options(words: &[&str]) -> BuildOptions {
    let mut volume = Options::default();
    for pair in words.chunks_exact(2) {
        match pair[0] {
            "-t" => volume.fs_type = pair[1].to_owned(),
            "-b" => volume.block_size = pair[1].parse().ok(),
            "-I" => volume.inode_size = pair[1].parse().ok(),
            "-O" => volume
                .features
                .extend(pair[1].split(',').map(str::to_owned)),
            other => panic!("{other}"),
        }
    }
    BuildOptions {
        volume,
        ..BuildOptions::default()
    }
}

fn planned(source: &Path, options: BuildOptions) -> Result<Planned, Error> {
    let mut builder = Builder::new(options);
    builder.add(Box::new(DirectorySource::new(source)?), b"")?;
    builder.plan()
}

/// Builds an image of a directory.
fn build(source: &Path, options: BuildOptions) -> Result<Image, Error> {
    let image = Image::in_directory(tools::temporary("extern4-build-"), "out.img");
    planned(source, options)?.write_file(&image.path, false, 2)?;
    Ok(image)
}

/// A directory on the kernel's ext4, filled by these plans.
fn source(plans: &[Plan]) -> (extern4_testkit::image::Mount, Image) {
    let image = Image::in_directory(tools::temporary("extern4-source-"), "source.img");
    fs::File::create(&image.path)
        .and_then(|file| file.set_len(4 << 30))
        .expect("an image file");
    tools::run(
        "mke2fs",
        [
            "-q",
            "-t",
            "ext4",
            "-O",
            "large_dir",
            image.path.to_str().expect("a name in UTF-8"),
        ],
    );
    let mount = image.mount("noatime");
    fs::remove_dir(mount.path.join("lost+found")).expect("lost+found is empty");
    for plan in plans {
        plan(&mount.path).expect("a plan");
    }
    (mount, image)
}

fn assert_equal(image: &Image, expected: &Tree) {
    tools::e2fsck(&image.path).unwrap_or_else(|said| panic!("e2fsck: {said}"));
    let mount = image.mount("ro,noatime");
    tree::assert_same(
        "the kernel's mount of what was built",
        &tree::from_mount(&mount.path).as_built(),
        expected,
    );
    mount.unmount();
}

#[test]
fn every_kind_of_entry_in_every_format() {
    if !tools::can_run(&[Need::Mount, Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let (mount, _image) = source(ALL);
    let mut expected = tree::from_mount(&mount.path).as_built();
    let formats: &[&[&str]] = &[
        &["-b", "1024", "-O", "quota"],
        &["-O", "^extents,^64bit", "-b", "2048"],
        &[],
        &["-O", "^has_journal"],
        &["-O", "^metadata_csum,^64bit"],
        &["-O", "^dir_index"],
        &["-O", "^flex_bg,^resize_inode"],
        &["-t", "ext3", "-I", "256"],
        &[
            "-t",
            "ext4",
            "-I",
            "512",
            "-O",
            "inline_data,meta_bg,^resize_inode",
        ],
        &["-O", "^metadata_csum,uninit_bg,mmp,sparse_super2"],
        &["-O", "^filetype,^huge_file,^orphan_file,fast_commit"],
        &["-O", "quota,project"],
        &["-b", "65536"],
    ];
    for format in formats {
        if format.is_empty() {
            plan::symlinks(&mount.path).expect("symbolic links");
            expected = tree::from_mount(&mount.path).as_built();
        }
        // The kernel mounts no blocks larger than a page here.
        let is_large = format.contains(&"65536");
        let image = build(&mount.path, options(format))
            .unwrap_or_else(|error| panic!("{format:?}: {error}"));
        if is_large {
            tools::e2fsck(&image.path).unwrap_or_else(|said| panic!("e2fsck: {said}"))
        } else {
            assert_equal(&image, &expected)
        }
    }
}

#[test]
fn directories_of_every_size() {
    if !tools::can_run(&[Need::Mount, Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    // 200,000 names in a directory and 65,000 directories are for `make soak`.
    let all = std::env::var_os("EXTERN4_FULL").is_some();
    let (mount, _image) = source(if all {
        &[plan::crowd_of_bytes, plan::subdirectories, plan::crowd_200k]
    } else {
        &[plan::crowd_of_bytes]
    });
    let big = mount.path.join("big");
    fs::create_dir(&big).expect("a directory");
    // Two levels of nodes in blocks of 1 KiB.
    for number in 0..if all { 60_000 } else { 12_000 } {
        fs::File::create(big.join(format!("{number:0>40}"))).expect("a file");
    }
    let expected = tree::from_mount(&mount.path).as_built();
    for format in [&[][..], &["-b", "1024"], &["-b", "1024", "-O", "large_dir"]] {
        assert_equal(
            &build(&mount.path, options(format)).expect("a volume"),
            &expected,
        );
    }
}

#[test]
fn a_sparse_terabyte_and_a_file_in_pieces() {
    if !tools::can_run(&[Need::Mount, Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let (mount, _image) = source(&[plan::terabyte, plan::shattered, plan::fragmented]);
    let expected = tree::from_mount(&mount.path).as_built();
    let image = build(&mount.path, options(&[])).expect("a volume");
    assert!(
        fs::metadata(&image.path).expect("an image").len() < 1 << 30,
        "holes take no blocks"
    );
    assert_equal(&image, &expected);
}

#[test]
fn the_same_bytes_with_any_number_of_threads() {
    let dir = tools::temporary("extern4-build-");
    plan::small_files(dir.path()).expect("files");
    plan::small_directories(dir.path()).expect("directories");
    let volume = planned(dir.path(), options(&[])).expect("a volume");
    let images: Vec<Vec<u8>> = [1, 2, 7]
        .into_iter()
        .map(|threads| {
            let out = tools::temporary("extern4-build-");
            let path = out.path().join("out.img");
            volume.write_file(&path, false, threads).expect("an image");
            fs::read(path).expect("an image")
        })
        .collect();
    assert!(images[0] == images[1] && images[0] == images[2]);
    let again = planned(dir.path(), options(&[])).expect("a volume");
    assert_eq!(again.superblock().uuid(), volume.superblock().uuid());
}

#[test]
fn the_size_is_the_least_that_works() {
    let dir = tools::temporary("extern4-build-");
    plan::small_files(dir.path()).expect("files");
    for len in [0_u64, 3 << 20, 9 << 20, 140 << 20] {
        if len > 0 {
            let file = fs::File::create(dir.path().join("large")).expect("a file");
            let bytes = vec![1; 1 << 20];
            (0..len >> 20).for_each(|at| file.write_all_at(&bytes, at << 20).expect("room"));
        }
        let chosen = planned(dir.path(), options(&[]))
            .expect("a volume")
            .size_bytes();
        let fits = |size| {
            planned(
                dir.path(),
                BuildOptions {
                    size: Size::Bytes(size),
                    ..options(&[])
                },
            )
            .is_ok()
        };
        let mut below = 0;
        let mut above = chosen;
        assert!(fits(above));
        while above - below > 4096 {
            let middle = (below + above) / 2;
            if fits(middle) {
                above = middle
            } else {
                below = middle
            }
        }
        assert!(
            chosen <= above + above / 20 + (1 << 20),
            "{chosen} bytes were chosen, and {above} are enough"
        );
        let slack = BuildOptions {
            size: Size::Slack(5 << 20),
            ..options(&[])
        };
        let free = planned(dir.path(), slack).expect("a volume").summary().free;
        assert!(free >= 5 << 20, "{free} bytes are free");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_numbers() {
    let dir = tools::temporary("extern4-build-");
    fs::write(dir.path().join("file"), vec![1; 3 << 20]).expect("a file");
    let refused = planned(
        dir.path(),
        BuildOptions {
            size: Size::Bytes(2 << 20),
            ..options(&[])
        },
    );
    assert!(matches!(
        refused,
        Err(Error::NoRoom {
            size: 2_097_152,
            ..
        })
    ));
}

/// Builds until the watch ends it, while the sources are read or the volume is written.
fn stopped_while(source: &Path, image: &Path, is_writing: bool) -> Result<(), Error> {
    let mut builder = Builder::new(options(&[]));
    builder.watch(Arc::new(move |progress| match progress {
        Progress::Reading { entries } => {
            assert!(entries > 0);
            if is_writing {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        }
        Progress::Writing { bytes, total } => {
            assert!(is_writing && 0 < bytes && bytes <= total);
            ControlFlow::Break(())
        }
        other => panic!("{other:?}"),
    }));
    builder.add(Box::new(DirectorySource::new(source)?), b"")?;
    builder.plan()?.write_file(image, false, 2).map(drop)
}

#[test]
fn nothing_is_left_of_a_build_that_failed() {
    let dir = tools::temporary("extern4-build-");
    let out = tools::temporary("extern4-build-");
    let file = dir.path().join("file");
    let image = out.path().join("out.img");
    fs::write(&file, vec![1; 3 << 20]).expect("a file");
    let volume = planned(dir.path(), options(&[])).expect("a volume");
    fs::write(&file, vec![2; 2 << 20]).expect("a file");
    let failed = volume
        .write_file(&image, false, 2)
        .expect_err("the file changed");
    assert!(
        failed.to_string().contains("file' changed") || failed.to_string().contains("changed"),
        "{failed}"
    );
    assert!(matches!(
        stopped_while(dir.path(), &image, false),
        Err(Error::Interrupted)
    ));
    assert!(matches!(
        stopped_while(dir.path(), &image, true),
        Err(Error::Interrupted)
    ));
    assert_eq!(fs::read_dir(out.path()).expect("a directory").count(), 0);
    fs::write(&image, "mine").expect("a file");
    let refused = planned(dir.path(), options(&[]))
        .expect("a volume")
        .write_file(&image, false, 2);
    assert!(matches!(refused, Err(Error::Output { .. })));
    assert_eq!(fs::read(&image).expect("a file"), b"mine");
    planned(dir.path(), options(&[]))
        .expect("a volume")
        .write_file(&image, true, 2)
        .expect("an image");
    assert!(fs::metadata(&image).expect("an image").size() > 2 << 20);
}

/// More inodes than the blocks of the contents: the volume is as large as its inode tables ask for.
#[test]
fn many_empty_files_and_links() {
    if !tools::can_run(&[Need::Mount, Need::Tool("e2fsck")]) {
        return;
    }
    let all = std::env::var_os("EXTERN4_FULL").is_some();
    let (directories, files) = if all { (1000, 1000) } else { (20, 1000) };
    let dir = tools::temporary("extern4-build-");
    for directory in 0..directories {
        let path = dir.path().join(format!("{directory}"));
        fs::create_dir(&path).expect("a directory");
        for file in 0..files {
            fs::File::create(path.join(format!("{file}"))).expect("a file");
        }
    }
    for link in 0..10_000 {
        fs::hard_link(
            dir.path().join("0/0"),
            dir.path().join(format!("link-{link}")),
        )
        .expect("a link");
    }
    let image = build(dir.path(), options(&[])).expect("a volume");
    tools::e2fsck(&image.path).unwrap_or_else(|said| panic!("e2fsck: {said}"));
    let mount = image.mount("ro,noatime");
    assert_eq!(
        fs::metadata(mount.path.join("0/0"))
            .expect("a file")
            .nlink(),
        10_001
    );
    let last = mount.path.join(format!("{}", directories - 1));
    assert_eq!(fs::read_dir(last).expect("a directory").count(), files);
    mount.unmount();
}

#[test]
fn a_filter_applies_to_the_whole_of_all_sources() {
    if !tools::can_run(&[Need::Mount, Need::Tool("e2fsck")]) {
        return;
    }
    let lower = tools::temporary("extern4-build-");
    let upper = tools::temporary("extern4-build-");
    let write = |dir: &Path, name: &str| {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, name).expect("a file");
    };
    for name in [
        "a.o",
        "src/b.c",
        "src/b.o",
        "src/keep.o",
        "cache/x",
        "var/cache/y",
        "both",
        "usr/lib/gone",
    ] {
        write(lower.path(), name);
    }
    fs::hard_link(lower.path().join("a.o"), lower.path().join("z")).expect("a link");
    std::os::unix::fs::symlink("usr/lib", lower.path().join("lib")).expect("a link");
    // The upper tree replaces a file by a directory that is left out.
    write(upper.path(), "both/inside");
    let rules = [
        Rule::include(b"keep.o"),
        Rule::exclude(b"*.o"),
        Rule::exclude(b"/cache"),
        Rule::exclude(b"both/"),
        Rule::exclude(b"/usr/lib/gone"),
    ];
    let mut builder = Builder::new(BuildOptions {
        filter: rules.into_iter().collect(),
        ..BuildOptions::default()
    });
    for dir in [lower.path(), upper.path()] {
        builder
            .add(
                Box::new(DirectorySource::new(dir).expect("a directory")),
                b"",
            )
            .expect("a tree");
    }
    // A manifest comes after the filter.
    let list = Manifest::read(&b"dir /cache 0755 0 0\n"[..], "list").expect("a list");
    builder.amend(list).expect("a directory");
    let image = Image::in_directory(tools::temporary("extern4-build-"), "out.img");
    builder
        .plan()
        .expect("a volume")
        .write_file(&image.path, false, 2)
        .expect("an image");
    tools::e2fsck(&image.path).unwrap_or_else(|said| panic!("e2fsck: {said}"));
    let mount = image.mount("ro,noatime");
    let found = tree::from_mount(&mount.path);
    let names: Vec<_> = found
        .entries
        .keys()
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect();
    let expected = [
        "/",
        "/cache",
        "/lib",
        "/lost+found",
        "/src",
        "/src/b.c",
        "/src/keep.o",
        "/usr",
        "/usr/lib",
        "/var",
        "/var/cache",
        "/var/cache/y",
        "/z",
    ];
    assert_eq!(names, expected);
    // Its first name is left out.
    assert_eq!(fs::read(mount.path.join("z")).expect("a file"), b"a.o");
    assert_eq!(
        fs::metadata(mount.path.join("z")).expect("a file").nlink(),
        1
    );
    mount.unmount();
}

#[test]
fn contents_decide_the_uuid() {
    if !tools::can_run(&[Need::Tool("e2fsck")]) {
        return;
    }
    let dir = tools::temporary("extern4-build-");
    let path = dir.path().join("large");
    let write = |first: u8, last: u8| {
        let bytes = [&[first][..], &[0; 3 << 20], &[last]].concat();
        fs::write(&path, bytes).expect("a file");
        let file = fs::File::options().write(true).open(&path).expect("a file");
        file.set_modified(std::time::UNIX_EPOCH).expect("a time");
        let top = fs::File::open(dir.path()).expect("a directory");
        top.set_modified(std::time::UNIX_EPOCH).expect("a time");
    };
    let identity = |words: &[&str]| {
        let image = build(dir.path(), options(words)).expect("a volume");
        tools::e2fsck(&image.path).unwrap_or_else(|said| panic!("{words:?}: e2fsck: {said}"));
        let bytes = fs::read(&image.path).expect("an image");
        // Its UUID and its hash seed.
        (
            bytes[1024 + 104..1024 + 120].to_vec(),
            bytes[1024 + 236..1024 + 252].to_vec(),
        )
    };
    let formats: &[(&[&str], bool)] = &[
        (&[], true),
        (&["-b", "1024"], true),
        (&["-t", "ext3"], true),
        (&["-O", "^metadata_csum,^metadata_csum_seed"], true),
        (&["-O", "^metadata_csum_seed"], false),
        (
            &["-O", "^metadata_csum,^metadata_csum_seed,uninit_bg"],
            false,
        ),
    ];
    for (words, is_free) in formats {
        write(1, 2);
        let first = identity(words);
        assert_eq!(first, identity(words), "{words:?}");
        for (one, other) in [(1, 3), (2, 2)] {
            write(one, other);
            let second = identity(words);
            assert_eq!(first.0 != second.0, *is_free, "{words:?}");
            assert_eq!(first.1, second.1, "{words:?}");
        }
    }
}

#[test]
fn a_file_that_changes_before_it_is_read_ends_the_build() {
    type Change = fn(&Path);
    let old = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).expect("a file");
        let file = fs::File::options().write(true).open(path).expect("a file");
        file.set_modified(std::time::UNIX_EPOCH).expect("a time");
    };
    let changes: &[(&str, Change)] = &[
        ("becomes shorter", |path| {
            fs::write(path, "x").expect("a file")
        }),
        ("grows", |path| {
            fs::write(path, vec![7; 9000]).expect("a file")
        }),
        ("is touched", |path| {
            let file = fs::File::options().write(true).open(path).expect("a file");
            file.set_modified(std::time::SystemTime::now())
                .expect("a time");
        }),
        ("is another file", |path| {
            fs::write(path.with_extension("new"), vec![1; 8192]).expect("a file");
            fs::rename(path.with_extension("new"), path).expect("a name");
        }),
        ("is a FIFO", |path| {
            fs::remove_file(path).expect("a file");
            tools::run("mkfifo", [path]);
        }),
        ("is a directory", |path| {
            fs::remove_file(path).expect("a file");
            fs::create_dir(path).expect("a directory");
        }),
        ("is a device", |path| {
            if tools::can_run(&[Need::Mount]) {
                fs::remove_file(path).expect("a file");
                tools::run(
                    "mknod",
                    [path.to_str().expect("a name in UTF-8"), "c", "1", "5"],
                );
            } else {
                fs::write(path, "x").expect("a file");
            }
        }),
        ("is a symbolic link", |path| {
            fs::rename(path, path.with_extension("old")).expect("a name");
            std::os::unix::fs::symlink(path.with_extension("old"), path).expect("a link");
        }),
    ];
    for (what, change) in changes {
        let dir = tools::temporary("extern4-build-");
        let tree = dir.path().join("tree");
        let image = dir.path().join("out.img");
        fs::create_dir(&tree).expect("a directory");
        old(&tree.join("file"), &[7; 8192]);
        let volume = planned(&tree, options(&[])).expect("a plan");
        change(&tree.join("file"));
        let error = volume
            .write_file(&image, false, 2)
            .expect_err(what)
            .to_string();
        assert!(
            error.contains("file': the file changed while it was read"),
            "{what}: {error}"
        );
        assert!(!image.exists(), "{what}");
    }
}

#[test]
fn a_file_with_holes_that_changes_before_they_are_found_ends_the_build() {
    let dir = tools::temporary("extern4-build-");
    let path = dir.path().join("holes");
    fs::File::create(&path)
        .and_then(|file| file.set_len(1 << 20))
        .expect("a file");
    let mut builder = Builder::new(options(&[]));
    builder
        .add(
            Box::new(DirectorySource::new(dir.path()).expect("a source")),
            b"",
        )
        .expect("a tree");
    // All holes still, so no block of it is going to be read.
    fs::File::create(&path)
        .and_then(|file| file.set_len(2 << 20))
        .expect("a file");
    let error = builder.plan().err().expect("a change").to_string();
    assert!(
        error.contains("holes': the file changed while it was read"),
        "{error}"
    );
}
