//! Images next to their sources on file systems of the host that share blocks among files.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use extern4_build::{BuildOptions, Builder};
use extern4_testkit::image::{Image, Mount};
use extern4_testkit::tools::{self, Need};
use extern4_tree::DirectorySource;

/// The file systems, and how they are made.
const HOSTS: &[(&str, &str, &[&str])] = &[
    ("xfs", "mkfs.xfs", &["-q", "-m", "reflink=1"]),
    ("btrfs", "mkfs.btrfs", &["-q"]),
];

/// Mounts a new file system of the host, if this machine has it.
fn host(
    (fs_type, program, options): (&'static str, &'static str, &[&str]),
) -> Option<(Mount, Image)> {
    if !tools::can_run(&[
        Need::Mount,
        Need::Tool(program),
        Need::Tool("filefrag"),
        Need::Tool("e2fsck"),
    ]) {
        return None;
    }
    let image = Image::in_directory(tools::temporary("extern4-host-"), "host.img");
    File::create(&image.path)
        .and_then(|file| file.set_len(512 << 20))
        .expect("an image file");
    tools::run(
        program,
        options
            .iter()
            .copied()
            .chain([image.path.to_str().expect("a name in UTF-8")]),
    );
    match image.try_mount_as(fs_type, "noatime") {
        Ok(mount) => Some((mount, image)),
        // The kernel was built without it.
        Err(error) => {
            tools::skip(fs_type, &error);
            None
        }
    }
}

/// Fills a directory with files that can be shared, in part or in whole, and with others.
fn fill(directory: &Path) {
    fs::create_dir(directory).expect("a directory");
    let bytes: Vec<u8> = (0..(5 << 20) + 1234_u32)
        .map(|at| (at / 251) as u8)
        .collect();
    let file = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).expect("a file");
    file("aligned", &bytes[..4 << 20]);
    file("small", b"small");
    file("with a tail", &bytes);
    let holes = File::create(directory.join("with holes")).expect("a file");
    holes.set_len(8 << 20).expect("a size");
    holes
        .write_all_at(&bytes[..1 << 20], 2 << 20)
        .expect("a write");
    holes
        .write_all_at(&bytes[..1 << 20], (6 << 20) + 777)
        .expect("a write");
    holes.sync_all().expect("it is durable");
    for name in ["", "aligned", "small", "with a tail", "with holes"] {
        let file = File::open(directory.join(name)).expect("a file");
        file.set_modified(std::time::UNIX_EPOCH).expect("a time");
    }
    tools::run("sync", ["-f".as_ref(), directory.as_os_str()]);
}

fn build(source: &Path, image: &Path, options: BuildOptions) {
    let mut builder = Builder::new(options);
    builder
        .add(
            Box::new(DirectorySource::new(source).expect("a source")),
            b"",
        )
        .expect("a tree");
    builder
        .plan()
        .and_then(|planned| planned.write_file(image, false, 2))
        .expect("a volume");
}

/// Bytes of a file's blocks that other files have as well.
fn shared_bytes(file: &Path) -> u64 {
    let shown =
        String::from_utf8(tools::run("filefrag", ["-v".as_ref(), file.as_os_str()])).expect("text");
    // A line: number, logical range, physical range, length in blocks, expected place, flags.
    let blocks = |line: &str| -> Option<u64> { line.split(':').nth(3)?.trim().parse().ok() };
    shown
        .lines()
        .filter(|line| line.contains("shared"))
        .filter_map(blocks)
        .sum::<u64>()
        * 4096
}

#[test]
fn an_image_shares_blocks_with_its_source_and_has_the_same_bytes() {
    for (mount, _image) in HOSTS.iter().filter_map(|host_of| host(*host_of)) {
        let source = mount.path.join("tree");
        let elsewhere = tools::temporary("extern4-build-");
        fill(&source);
        let derived = BuildOptions::default();
        let given = BuildOptions {
            uuid: Some([7; 16]),
            ..BuildOptions::default()
        };
        let disk = BuildOptions {
            partition: true,
            verity: true,
            ..BuildOptions::default()
        };
        let mut small = BuildOptions::default();
        small.volume.block_size = Some(1024);
        let mut large = given.clone();
        large.volume.block_size = Some(65_536);
        for (number, options) in [derived, given, disk, small, large].into_iter().enumerate() {
            let here = mount.path.join("out.img");
            let copied = elsewhere.path().join("out.img");
            build(&source, &here, options.clone());
            build(&source, &copied, options.clone());
            assert!(
                fs::read(&here).expect("an image") == fs::read(&copied).expect("an image"),
                "{number}"
            );
            tools::run("sync", ["-f".as_ref(), mount.path.as_os_str()]);
            let shared = shared_bytes(&here);
            // Smaller blocks of the volume need not be at places where the host can share.
            if options.volume.block_size != Some(1024) {
                assert!(
                    shared >= 8 << 20,
                    "{number}: {shared} bytes of {} are shared",
                    mount.path.display()
                );
            }
            if !options.partition {
                tools::e2fsck(&here).unwrap_or_else(|said| panic!("{number}: e2fsck: {said}"));
            }
            fs::remove_file(&here)
                .and_then(|()| fs::remove_file(&copied))
                .expect("images");
        }
        mount.unmount();
    }
}
