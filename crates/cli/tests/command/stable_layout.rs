//! Volumes that `build --stable-layout` makes: files keep the places that they have on an earlier
//! volume.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use extern4_testkit::image::{Image, Mount};
use extern4_testkit::plan;
use extern4_testkit::tools::{self, Need, can_run, debugfs, e2fsck, temporary};
use extern4_testkit::tree::{self, Kind, Tree};

use crate::run::{extern4_in, failed, ok, tool};

const BLOCK: usize = 4096;

/// A directory on the kernel's ext4, and the image that it is in.
fn source(bytes: u64) -> (Mount, Image) {
    let image = Image::in_directory(temporary("extern4-source-"), "source.img");
    fs::File::create(&image.path)
        .and_then(|file| file.set_len(bytes))
        .expect("an image file");
    tools::run(
        "mke2fs",
        [
            "-q",
            "-t",
            "ext4",
            "-b",
            "4096",
            image.path.to_str().expect("a name in UTF-8"),
        ],
    );
    let mount = image.mount("noatime");
    fs::remove_dir(mount.path.join("lost+found")).expect("lost+found is empty");
    (mount, image)
}

/// Fills a directory with files of many sizes, and some of each other kind.
fn fill(top: &Path) {
    for directory in 0..12 {
        let path = top.join(format!("d{directory:02}"));
        fs::create_dir(&path).expect("a directory");
        for file in 0..40_usize {
            let len = (file * 2039 + directory * 977) % 90_000;
            fs::write(
                path.join(format!("f{file:02}")),
                plan::pattern(file as u64, 7, len),
            )
            .expect("a file");
        }
    }
    fs::write(top.join("large"), plan::pattern(3, 0, 5 << 20)).expect("a file");
    symlink("x".repeat(200), top.join("d03/link")).expect("a link");
    fs::hard_link(top.join("d05/f07"), top.join("d06/same")).expect("a link");
    for plan in [
        plan::holes,
        plan::fragmented,
        plan::xattrs,
        plan::shared_xattrs,
        plan::small_directories,
    ] {
        plan(top).expect("a plan");
    }
}

/// The regular files below a directory, in the order of their paths.
fn files(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![top.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let entry = entry.expect("a name");
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Replaces every 20th file by one that is a tenth larger.
fn update(top: &Path) {
    for path in files(top).iter().skip(19).step_by(20) {
        let len = fs::metadata(path).expect("a file").len() as usize;
        fs::remove_file(path).expect("a file");
        fs::write(path, plan::pattern(99, 0, len + len.div_ceil(10))).expect("a file");
    }
}

/// The tree that the kernel shows in an image.
fn mounted(image: &Image) -> Tree {
    let mount = image.mount("ro,noatime");
    let tree = tree::from_mount(&mount.path);
    mount.unmount();
    tree
}

/// The blocks of each inode of these, as debugfs tells them.
fn blocks_of(image: &Path, inodes: &[u64]) -> BTreeMap<u64, Vec<usize>> {
    let script: String = inodes
        .iter()
        .map(|ino| format!("blocks <{ino}>\n"))
        .collect();
    let said = debugfs(image, false, &script);
    let answers = said.lines().filter(|line| !line.starts_with("debugfs:"));
    let numbers = |line: &str| {
        line.split_whitespace()
            .map(|word| word.parse().expect("a block number"))
            .collect::<Vec<_>>()
    };
    let blocks: BTreeMap<_, _> = inodes.iter().copied().zip(answers.map(numbers)).collect();
    assert_eq!(blocks.len(), inodes.len());
    blocks
}

/// How many blocks the files have on the old volume that did not change, and how many of them the
/// new volume has at the same places. Their inodes have the same numbers.
fn count_kept(old: (&Image, &Tree), new: (&Image, &Tree)) -> (usize, usize) {
    let mut unchanged = Vec::new();
    for (path, entry) in &old.1.entries {
        let Some(now) = new.1.entries.get(path) else {
            continue;
        };
        if entry.kind == Kind::File && entry.content == now.content && entry.mtime == now.mtime {
            assert_eq!(entry.ino, now.ino, "{}", path.escape_ascii());
            unchanged.push(entry.ino);
        }
    }
    unchanged.sort_unstable();
    unchanged.dedup();
    let blocks = blocks_of(&old.0.path, &unchanged);
    let read = |image: &Image| fs::read(&image.path).expect("an image");
    let before = read(old.0);
    let now = read(new.0);
    let block =
        |image: &[u8], at: usize| image.get(at * BLOCK..(at + 1) * BLOCK).map(<[u8]>::to_vec);
    let all: Vec<usize> = blocks
        .into_values()
        .flatten()
        .filter(|number| *number > 0)
        .collect();
    let kept = all
        .iter()
        .filter(|&&number| block(&before, number) == block(&now, number))
        .count();
    (all.len(), kept)
}

/// Builds a tree, changes it, and builds it again with the layout of the first volume.
fn keeps_its_places(mount: &Mount, options: &[&str]) {
    let build = |at: &Path, source: &Path, more: &[&str]| {
        let source = source.to_str().expect("a name in UTF-8");
        ok(extern4_in(
            at,
            [&["build", "-q", "out.img", source], options, more].concat(),
        ))
    };
    let old = Image::in_directory(temporary("extern4-old-"), "out.img");
    build(old.scratch(), &mount.path, &[]);
    let layout = old.path.to_str().expect("a name in UTF-8");
    // Without a change, the volumes are equal.
    let same = temporary("extern4-same-");
    build(same.path(), &mount.path, &["--stable-layout", layout]);
    let read = |path: &Path| fs::read(path).expect("an image");
    assert!(
        read(&same.path().join("out.img")) == read(&old.path),
        "{options:?}"
    );
    drop(same);
    update(&mount.path);
    let new = Image::in_directory(temporary("extern4-new-"), "out.img");
    build(new.scratch(), &mount.path, &["--stable-layout", layout]);
    e2fsck(&new.path).unwrap_or_else(|said| panic!("{options:?}: e2fsck: {said}"));
    let before = mounted(&old);
    let now = mounted(&new);
    let (all, kept) = count_kept((&old, &before), (&new, &now));
    println!("{options:?}: {kept} of {all} blocks of unchanged files are kept");
    assert!(
        all > 1000 && kept * 10 >= all * 9,
        "{options:?}: {kept} of {all}"
    );
    tree::assert_same(
        "what was built",
        &now.as_built(),
        &tree::from_mount(&mount.path).as_built(),
    );
    // The same bytes with any number of threads.
    let again = temporary("extern4-again-");
    build(
        again.path(),
        &mount.path,
        &["--stable-layout", layout, "--threads", "3"],
    );
    assert!(
        read(&again.path().join("out.img")) == read(&new.path),
        "{options:?}"
    );
}

#[test]
fn files_that_did_not_change_keep_their_blocks() {
    if !can_run(&[
        Need::Mount,
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
        Need::Tool("debugfs"),
    ]) {
        return;
    }
    for options in [
        &[][..],
        &["--size", "64M", "-O", "quota"],
        &["--size", "+20M", "-O", "^metadata_csum_seed"],
        &["-t", "ext3", "-I", "256"],
        &["--no-journal", "--inodes", "5000"],
    ] {
        let (mount, _image) = source(256 << 20);
        fill(&mount.path);
        keeps_its_places(&mount, options);
    }
}

/// For `make soak`.
#[test]
fn all_of_usr_share_keeps_its_blocks() {
    if std::env::var_os("EXTERN4_FULL").is_none() || !can_run(&[Need::Mount, Need::Tool("mke2fs")])
    {
        return;
    }
    for options in [&[][..], &["--size", "2G"]] {
        let (mount, _image) = source(8 << 30);
        tool(&mount.path, "cp", ["-a", "/usr/share/.", "."]);
        keeps_its_places(&mount, options);
    }
}

#[test]
fn files_come_and_go_over_many_volumes() {
    if !can_run(&[Need::Mount, Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let (mount, _image) = source(256 << 20);
    fill(&mount.path);
    let top = mount.path.to_str().expect("a name in UTF-8");
    let mut volume = Image::in_directory(temporary("extern4-old-"), "out.img");
    ok(extern4_in(
        volume.scratch(),
        ["build", "-q", "--size", "64M", "out.img", top],
    ));
    for round in 0..4_u64 {
        // The kernel changes the volume, and thereby its layout.
        let changed = volume.mount("rw,noatime");
        fs::create_dir(changed.path.join("kernel")).expect("a directory");
        fs::write(
            changed.path.join("kernel/file"),
            plan::pattern(round, 0, 70_000),
        )
        .expect("room");
        fs::remove_file(changed.path.join("kernel/file")).expect("a file");
        changed.unmount();
        // The source changes: files come, go, shrink, and change their types.
        for (at, path) in files(&mount.path).iter().enumerate() {
            match (at as u64 + round) % 11 {
                0 => fs::remove_file(path).expect("a file"),
                3 => fs::write(path, b"short").expect("a file"),
                5 if at % 3 == 0 => {
                    fs::remove_file(path).expect("a file");
                    fs::create_dir(path).expect("a directory");
                }
                7 => fs::write(
                    path.with_extension(format!("new{round}")),
                    plan::pattern(5, 0, at * 100),
                )
                .expect("a file"),
                _ => {}
            }
        }
        let layout = volume.path.to_str().expect("a name in UTF-8").to_owned();
        let next = Image::in_directory(temporary("extern4-next-"), "out.img");
        ok(extern4_in(
            next.scratch(),
            ["build", "-q", "--stable-layout", &layout, "out.img", top],
        ));
        e2fsck(&next.path).unwrap_or_else(|said| panic!("round {round}: e2fsck: {said}"));
        let before = mounted(&volume);
        let now = mounted(&next);
        let (all, kept) = count_kept((&volume, &before), (&next, &now));
        assert!(kept * 10 >= all * 9, "round {round}: {kept} of {all}");
        tree::assert_same(
            "what was built",
            &now.as_built(),
            &tree::from_mount(&mount.path).as_built(),
        );
        volume = next;
    }
}

#[test]
fn a_layout_that_cannot_be_kept_is_explained() {
    let dir = temporary("extern4-build-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/file"), vec![7; 300_000]).expect("a file");
    ok(extern4_in(
        at,
        ["build", "-q", "--size", "16M", "old.img", "tree"],
    ));
    let build = |options: &[&str]| {
        extern4_in(
            at,
            [
                &["build", "-F", "new.img", "tree", "--stable-layout"],
                options,
            ]
            .concat(),
        )
    };
    let said = String::from_utf8(ok(build(&["old.img"]))).expect("UTF-8");
    assert!(said.contains("A volume of 16777216 bytes"), "{said}");
    let last = said.lines().last().expect("a line");
    let numbers: Vec<&str> = last.split(' ').collect();
    assert_eq!(numbers[0], numbers[2], "{said}");
    assert!(
        last.ends_with("bytes in use by files stand where 'old.img' has them"),
        "{said}"
    );
    // Parts of it.
    let said = |options: &[&str]| {
        let output = build(options);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let smaller = said(&["old.img", "--size", "10M"]);
    assert!(
        smaller.contains("smaller: 10485760 bytes, and 16777216 before"),
        "{smaller}"
    );
    let other = said(&["old.img", "--no-journal", "-I", "128"]);
    assert!(
        other.contains("bytes of an inode: 128, and 256 before"),
        "{other}"
    );
    assert!(
        other.contains("other features: ^has_journal, ^orphan_file"),
        "{other}"
    );
    // Nothing of it.
    let blocks = failed(&build(&["old.img", "-b", "1024"]), 2);
    assert!(
        blocks.contains("blocks of 1024 bytes: the stable layout is one of blocks of 4096"),
        "{blocks}"
    );
    failed(&build(&["old.img:/file"]), 2);
    failed(&build(&["missing.img"]), 1);
    failed(&build(&["tree/file"]), 3);
    // The old volume can be replaced, and be in a partition.
    let before = fs::read(at.join("old.img")).expect("an image");
    ok(extern4_in(
        at,
        [
            "build",
            "-qF",
            "--stable-layout",
            "old.img",
            "old.img",
            "tree",
        ],
    ));
    assert!(fs::read(at.join("old.img")).expect("an image") == before);
    ok(extern4_in(
        at,
        [
            "build",
            "-q",
            "--partition",
            "--size",
            "16M",
            "disk.img",
            "tree",
        ],
    ));
    ok(extern4_in(
        at,
        [
            "build",
            "-qF",
            "--stable-layout",
            "disk.img#1",
            "new.img",
            "tree",
        ],
    ));
    assert!(fs::read(at.join("new.img")).expect("an image") == before);
    // A damaged one is an error.
    let mut damaged = before;
    let table = damaged
        .windows(2)
        .position(|pair| pair == 0o40755_u16.to_le_bytes())
        .expect("an inode");
    damaged[table + 4] ^= 1;
    fs::write(at.join("damaged.img"), &damaged).expect("an image");
    assert!(failed(&build(&["damaged.img"]), 4).contains("damaged.img"));
}
