//! Files that fs-verity protects: the metadata is that of `fsverity digest`, and e2fsck finds
//! nothing to say.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use extern4_build::{BuildOptions, Builder};
use extern4_testkit::image::Image;
use extern4_testkit::tools::{self, Need};
use extern4_tree::{DirectorySource, Pattern};

/// Names and sizes of files.
const FILES: &[(&str, usize)] = &[
    ("empty", 0),
    ("one-byte", 1),
    ("one-block", 4096),
    ("to-the-boundary", 65_536),
    ("past-the-boundary", 65_537),
    ("two-levels", 600_000),
    ("large", (3 << 20) + 1),
];

/// The metadata that the file of a volume must have, and where it begins.
fn expected(path: &Path, block_size: u32, scratch: &Path) -> (u64, Vec<u8>) {
    let tree = scratch.join("tree");
    let descriptor = scratch.join("descriptor");
    let option = |name: &str, path: &Path| format!("{name}={}", path.display());
    let arguments = [
        "digest".to_owned(),
        format!("--block-size={}", block_size.min(4096)),
        option("--out-merkle-tree", &tree),
        option("--out-descriptor", &descriptor),
        path.display().to_string(),
    ];
    tools::run("fsverity", arguments);
    let mut metadata = fs::read(tree).expect("a tree");
    let descriptor = fs::read(descriptor).expect("bytes");
    let block = block_size as usize;
    metadata.resize(metadata.len().next_multiple_of(block), 0);
    metadata.extend_from_slice(&descriptor);
    metadata.resize((metadata.len() + 4).next_multiple_of(block) - 4, 0);
    metadata.extend_from_slice(&(descriptor.len() as u32).to_le_bytes());
    (
        fs::metadata(path)
            .expect("a file")
            .len()
            .next_multiple_of(65_536),
        metadata,
    )
}

/// A file of a volume, with what is behind its end up to `end`.
fn dumped(image: &Image, name: &str, end: u64, scratch: &Path) -> Vec<u8> {
    let to = scratch.join("dumped");
    image.debugfs(&format!(
        "sif /{name} size {end}\ndump /{name} {}\n",
        to.display()
    ));
    fs::read(to).expect("a file")
}

#[test]
fn metadata_is_that_of_fsverity() {
    if !tools::can_run(&[
        Need::Tool("fsverity"),
        Need::Tool("debugfs"),
        Need::Tool("e2fsck"),
    ]) {
        return;
    }
    let source = tools::temporary("extern4-source-");
    let scratch = tools::temporary("extern4-build-");
    let path = |name: &str| source.path().join(name);
    for (name, size) in FILES {
        let bytes: Vec<u8> = (0..*size).map(|at| (at / 17 + at) as u8).collect();
        fs::write(path(name), bytes).expect("a file");
    }
    let holes = File::create(path("holes")).expect("a file");
    holes
        .set_len(1 << 20)
        .and_then(|()| holes.write_all_at(b"data", 500_000))
        .expect("a file");
    fs::write(path("open"), "open").expect("a file");
    fs::hard_link(path("open"), path("open-too")).expect("a link");
    fs::write(path("unsealed"), "open").expect("a file");
    for block_size in [1024, 4096, 65_536] {
        let mut options = BuildOptions::default();
        options.volume.block_size = Some(block_size);
        options.fs_verity = vec![
            Pattern::new(b"/*-*"),
            Pattern::new(b"large"),
            Pattern::new(b"/holes"),
        ];
        options.fs_verity.push(Pattern::new(b"/empty"));
        let image = Image::in_directory(tools::temporary("extern4-build-"), "out.img");
        let mut builder = Builder::new(options);
        builder
            .add(
                Box::new(DirectorySource::new(source.path()).expect("a source")),
                b"",
            )
            .expect("a tree");
        builder
            .plan()
            .and_then(|volume| volume.write_file(&image.path, false, 2))
            .expect("a volume");
        tools::e2fsck(&image.path).unwrap_or_else(|said| panic!("{block_size}: e2fsck: {said}"));
        let changed = image.copy();
        for name in FILES.iter().map(|(name, _)| *name).chain(["holes"]) {
            let (start, metadata) = expected(&path(name), block_size, scratch.path());
            let end = start + metadata.len() as u64;
            let mut wanted = fs::read(path(name)).expect("a file");
            wanted.resize(start as usize, 0);
            wanted.extend_from_slice(&metadata);
            let found = dumped(&changed, name, end, scratch.path());
            assert!(found == wanted, "{name} with blocks of {block_size}");
            assert_eq!(flags(&image, name), 0x18_0000, "{name}");
        }
        // The pattern matches one of its names.
        assert_eq!(flags(&image, "open"), 0x18_0000);
        assert_eq!(flags(&image, "unsealed"), 0x8_0000);
        assert!(image.debugfs("features\n").contains("verity"));
    }
}

/// The flags of an inode.
fn flags(image: &Image, name: &str) -> u32 {
    let shown = image.debugfs(&format!("stat /{name}\n"));
    let found = shown
        .split("Flags: 0x")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    u32::from_str_radix(found.expect("flags"), 16).expect("a number")
}

#[test]
fn without_extents_there_is_no_place_for_it() {
    let source = tools::temporary("extern4-source-");
    fs::write(source.path().join("file"), "x").expect("a file");
    let mut options = BuildOptions {
        fs_verity: vec![Pattern::new(b"file")],
        ..BuildOptions::default()
    };
    options.volume.features.push("^extents,^64bit".to_owned());
    let mut builder = Builder::new(options);
    builder
        .add(
            Box::new(DirectorySource::new(source.path()).expect("a source")),
            b"",
        )
        .expect("a tree");
    let image = source.path().join("out.img");
    let written = builder
        .plan()
        .and_then(|volume| volume.write_file(&image, false, 1));
    let error = written.expect_err("an impossible volume").to_string();
    assert!(
        error.contains("/file': fs-verity needs the feature extent"),
        "{error}"
    );
}

#[test]
fn the_kernel_measures_the_same_digest() {
    let needs = [
        Need::Mount,
        Need::Tool("fsverity"),
        Need::KernelFeature("verity"),
    ];
    if !tools::can_run(&needs) {
        return;
    }
    let source = tools::temporary("extern4-source-");
    let path = source.path().join("file");
    fs::write(&path, vec![7; 1_000_000]).expect("a file");
    let options = BuildOptions {
        fs_verity: vec![Pattern::new(b"*")],
        ..BuildOptions::default()
    };
    let image = Image::in_directory(tools::temporary("extern4-build-"), "out.img");
    let mut builder = Builder::new(options);
    builder
        .add(
            Box::new(DirectorySource::new(source.path()).expect("a source")),
            b"",
        )
        .expect("a tree");
    builder
        .plan()
        .and_then(|volume| volume.write_file(&image.path, false, 2))
        .expect("a volume");
    let mount = image.mount("ro");
    let digest = |what: &str, path: &Path| {
        let said = String::from_utf8(tools::run("fsverity", [what.as_ref(), path.as_os_str()]))
            .expect("text");
        said.split_whitespace().next().expect("a digest").to_owned()
    };
    assert_eq!(
        digest("measure", &mount.path.join("file")),
        digest("digest", &path)
    );
    assert!(fs::read(mount.path.join("file")).expect("verified bytes") == vec![7; 1_000_000]);
    mount.unmount();
}
