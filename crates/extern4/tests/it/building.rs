//! Volumes built from volumes and from entries of the caller's own.

use std::path::Path;
use std::sync::Arc;

use extern4::Volume;
use extern4::build::{
    BuildOptions, Builder, Contents, Data, Entries, Entry, Kind, ReadAt, Source, Time,
    VolumeSource, source,
};
use extern4_testkit::image::Image;
use extern4_testkit::tools::{self, Need};
use extern4_testkit::tree::{self, Tree};
use extern4_testkit::{plan, sample};

fn build(source: Box<dyn Source>) -> Image {
    let image = Image::in_directory(tools::temporary("extern4-build-"), "out.img");
    let mut builder = Builder::new(BuildOptions::default());
    builder.add(source, b"").expect("a tree");
    builder
        .plan()
        .expect("a volume")
        .write_file(&image.path, false, 2)
        .expect("an image");
    image
}

/// The tree that the kernel shows in an image, as far as a build keeps it.
fn kept(image: &Image) -> Tree {
    let mount = image.mount("ro,noatime");
    let tree = tree::from_mount(&mount.path).as_built();
    mount.unmount();
    tree
}

#[test]
fn everything_of_a_volume_is_built() {
    if !tools::can_run(&[Need::Mount, Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    // Files in their inodes, and the journal that a crash leaves, are for the volume's reader.
    for features in [
        "none,extent,dir_index,filetype,has_journal,inline_data",
        "64bit",
    ] {
        let old = Image::in_directory(tools::temporary("extern4-source-"), "old.img");
        std::fs::File::create(&old.path)
            .and_then(|file| file.set_len(2 << 30))
            .expect("an image file");
        let path = old.path.to_str().expect("a name in UTF-8");
        tools::run(
            "mke2fs",
            ["-q", "-t", "ext4", "-I", "256", "-O", features, path],
        );
        let mount = old.mount("noatime");
        plan::TREE
            .iter()
            .for_each(|plan| plan(&mount.path).expect("a plan"));
        mount.unmount();
        let volume = Volume::open(&old.path).expect("a volume");
        let new = build(Box::new(VolumeSource::new(volume.superuser())));
        tools::e2fsck(&new.path).unwrap_or_else(|said| panic!("e2fsck: {said}"));
        tree::assert_same("the built volume", &kept(&new), &kept(&old));
        // From the volume that was built, the same bytes come.
        let again = build(source(&new.path, "/").expect("a volume"));
        assert!(
            std::fs::read(&again.path).expect("an image")
                == std::fs::read(&new.path).expect("an image")
        );
    }
}

#[test]
fn a_directory_of_a_volume_is_built() {
    let sample = sample::image();
    let session = Volume::open(&sample.path).expect("a volume").superuser();
    let image = build(Box::new(VolumeSource::new(
        session.at("/usr").expect("a directory"),
    )));
    let built = Volume::open(&image.path).expect("a volume").superuser();
    let old = session.read("/usr/include/fs.h").expect("a file");
    assert_eq!(built.read("/include/fs.h").expect("a file"), old);
    assert!(source(Path::new("/no/such/file"), "/").is_err());
}

#[test]
fn a_damaged_volume_is_named_with_the_place() {
    if !tools::can_run(&[Need::Tool("debugfs"), Need::Tool("mke2fs")]) {
        return;
    }
    let image = Image::in_directory(tools::temporary("extern4-source-"), "old.img");
    std::fs::File::create(&image.path)
        .and_then(|file| file.set_len(8 << 20))
        .expect("an image file");
    tools::run(
        "mke2fs",
        [
            "-q",
            "-t",
            "ext4",
            image.path.to_str().expect("a name in UTF-8"),
        ],
    );
    // A directory that has two names, one of them in itself.
    tools::debugfs(&image.path, true, "mkdir a\nmkdir a/b\nln a a/b/c\n");
    let session = Volume::open(&image.path).expect("a volume").superuser();
    let mut builder = Builder::new(BuildOptions::default());
    let refused = builder
        .add(Box::new(VolumeSource::new(session)), b"")
        .expect_err("a loop");
    assert!(refused.to_string().contains("/a/b/c"), "{refused}");
}

#[test]
fn entries_of_the_caller_are_built() {
    let bytes = plan::pattern(7, 0, 300_000);
    let contents: Arc<dyn ReadAt> = Arc::new(bytes.clone());
    let entry = |path: &str, kind| Entry {
        path: path.as_bytes().to_vec(),
        kind,
        mode: 0o640,
        uid: 7,
        gid: 8,
        mtime: Time {
            secs: 1_700_000_000,
            nanos: 5,
        },
        xattrs: vec![(b"user.x".to_vec(), b"y".to_vec())],
        flags: None,
        project: None,
    };
    let file = Kind::File(Contents {
        size: 300_000,
        data: Data::Stored { position: 0 },
    });
    let short = Kind::File(Contents {
        size: 4096,
        data: Data::Stored { position: 299_000 },
    });
    let entries = [
        (entry("a/file", file), Some(Arc::clone(&contents))),
        (entry("fifo", Kind::Fifo), None),
    ];
    let image = build(Box::new(entries.into_iter().collect::<Entries>()));
    let session = Volume::open(&image.path).expect("a volume").superuser();
    assert_eq!(session.read("/a/file").expect("a file"), bytes);
    let metadata = session.symlink_metadata("/fifo").expect("a FIFO");
    assert_eq!(
        (metadata.uid(), metadata.mode(), metadata.mtime().nsec),
        (7, 0o10640, 5)
    );
    // Bytes that are not there are an error.
    let mut builder = Builder::new(BuildOptions::default());
    let entries: Entries = [(entry("short", short), Some(contents))]
        .into_iter()
        .collect();
    builder.add(Box::new(entries), b"").expect("a tree");
    let out = tools::temporary("extern4-build-");
    let failed =
        builder
            .plan()
            .expect("a volume")
            .write_file(&out.path().join("out.img"), false, 2);
    assert!(
        failed
            .expect_err("too short")
            .to_string()
            .contains("/short")
    );
}
