//! An operation that cannot be done is refused before it changes anything.
//!
//! The tests reach limits of files and symbolic links, compare the errors with the kernel's, and
//! check that the volume is as it was.

use std::sync::Arc;

use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools::{self, Need};
use extern4_vfs::*;

use crate::model::{Op, open_for_writing, run, session};

#[test]
fn a_target_that_no_block_holds_leaves_nothing() {
    let spec = ImageSpec::new("targets", 16 << 20, &["-t", "ext4", "-b", "1024"]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    root.symlink("t".repeat(1023), "/longest")
        .expect("it fits into a block");
    for len in [1024, 4095] {
        let error = root
            .symlink("t".repeat(len), "/longer")
            .map(drop)
            .expect_err("no block holds it");
        assert_eq!(error.errno(), Errno::ENAMETOOLONG);
    }
    drop(root);
    fs.close().expect("close");
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{e}"));
}

/// As in the kernel's mount.
#[test]
fn a_hole_may_reach_further_than_a_file_without_extents() {
    let spec = ImageSpec::new("holes", 16 << 20, &["-t", "ext2", "-b", "1024"]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    let file = root
        .open(
            "/file",
            OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE,
        )
        .expect("a file");
    file.write_at(&[1; 10_000], 0).expect("it is written");
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    file.fallocate(punch, 5000, 1 << 40)
        .expect("all behind goes");
    file.fallocate(punch, 1 << 40, 4096)
        .expect("there is nothing");
    let error = file
        .fallocate(punch, 1 << 41, 4096)
        .expect_err("no file of this volume gets as far");
    assert_eq!(error.errno(), Errno::EFBIG);
    let mut contents = vec![2; 10_000];
    assert_eq!(file.read_at(&mut contents, 0).expect("it is read"), 10_000);
    assert!(contents[..5000] == [1; 5000] && contents[5000..] == [0; 5000]);
    drop((file, root));
    fs.close().expect("close");
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{e}"));
}

/// The largest size that `set` does not refuse.
fn largest(set: impl Fn(u64) -> bool) -> u64 {
    let mut good = 0;
    let mut bad = 1 << 46;
    while bad - good > 1 {
        let size = good + (bad - good) / 2;
        *if set(size) { &mut good } else { &mut bad } = size;
    }
    good
}

#[test]
fn files_grow_as_large_as_with_the_kernel() {
    if !tools::can_run(&[Need::Mount]) {
        return;
    }
    for kind in ["ext3", "ext4"] {
        for (block, features) in [
            ("1024", "^huge_file"),
            ("2048", "^huge_file"),
            ("4096", "^huge_file"),
            ("4096", "huge_file"),
        ] {
            let mke2fs = ["-q", "-F", "-t", kind, "-b", block, "-O", features];
            let folder = tools::temporary("extern4-largest-");
            let path = folder.path().join("image");
            tools::run(
                "mke2fs",
                mke2fs
                    .iter()
                    .map(std::ffi::OsStr::new)
                    .chain([path.as_os_str(), "32M".as_ref()]),
            );
            let ours = {
                let fs = open_for_writing(&path);
                let root = session(Arc::clone(&fs) as _);
                root.mknod("/file", NewKind::Regular, 0o644)
                    .expect("a file");
                let ours =
                    largest(|size| root.truncate("/file", size, LookupFlags::FOLLOW).is_ok());
                root.truncate("/file", 0, LookupFlags::FOLLOW)
                    .expect("an empty file");
                drop(root);
                fs.close().expect("close");
                ours
            };
            let mounted = tools::temporary("extern4-mnt-");
            let paths = [path.as_os_str(), mounted.path().as_os_str()];
            tools::run(
                "mount",
                ["-o", "loop"]
                    .map(std::ffi::OsStr::new)
                    .into_iter()
                    .chain(paths),
            );
            let file = std::fs::File::options()
                .write(true)
                .open(mounted.path().join("file"))
                .expect("the file");
            let theirs = largest(|size| file.set_len(size).is_ok());
            drop(file);
            tools::unmount(mounted.path());
            assert_eq!(ours, theirs, "{kind} {block} {features}");
        }
    }
}

/// A double indirect block could map more than the inode of a file without extents can count.
#[test]
fn files_without_extents_and_with_the_largest_blocks_can_be_written() {
    let spec = ImageSpec::new("64k", 64 << 20, &["-t", "ext3", "-b", "65536"]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    for offset in [0, 20 << 16, 20_000 << 16] {
        run(&root, &Op::Create("/file".to_owned(), 0o644)).expect("a file");
        run(&root, &Op::Write("/file".to_owned(), offset, 100_000)).expect("it is written");
    }
    drop(root);
    fs.close().expect("close");
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{e}"));
}
