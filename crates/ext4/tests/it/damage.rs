//! Damage that a change comes upon: it stops there, and says so.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use extern4_disk::superblock::State;
use extern4_testkit::image::{ImageSpec, Step};
use extern4_vfs::*;

use crate::model::{Op, open_for_writing, run, session};
use crate::walk;

#[test]
fn a_change_that_meets_damage_is_the_last() {
    let spec = ImageSpec::new("damaged", 32 << 20, &["-t", "ext4", "-b", "4096"]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let bitmap = walk::open(&image.path).group(0).expect("a descriptor").inode_bitmap();
    let file = std::fs::File::options().write(true).open(&image.path).expect("the image opens");
    file.write_all_at(&[0xa5; 64], bitmap * 4096).expect("it is written");

    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    let error = root.mknod("/f", NewKind::Regular, 0o644).map(drop).expect_err("the bitmap is damaged");
    assert_eq!(error.errno(), Errno::EUCLEAN);
    assert!(error.to_string().contains("inode bitmap"), "{error}");
    // Nothing can be changed any more, and what is there can be read.
    assert_eq!(root.mkdir("/d", 0o755).map(drop).expect_err("it was given up"), Errno::EROFS);
    assert!(root.stat("/lost+found", How::FOLLOW).is_ok());
    drop(root);
    assert!(fs.close().is_err());
    drop(fs);

    let fs = walk::open(&image.path);
    let noted = fs.superblock();
    assert!(noted.state().contains(State::ERROR) && noted.error_count() == 1);
    assert_eq!(noted.last_error().map(|error| error.block), Some(bitmap));
    assert!(walk::resolve(&fs, "/f").is_err(), "nothing of it was made durable");
}

/// A group that says it has free blocks, and a bitmap that has none: what was promised to a change cannot be found.
#[test]
fn free_blocks_that_are_not_there_are_damage() {
    let mke2fs = &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^uninit_bg"];
    let spec = ImageSpec::new("overpromised", 32 << 20, mke2fs);
    if !spec.can_run() {
        return;
    }
    for change in ["mkdir", "write", "symlink", "set_xattr"] {
        let image = spec.build();
        let bitmap = walk::open(&image.path).group(0).expect("a descriptor").block_bitmap();
        let file = std::fs::File::options().write(true).open(&image.path).expect("the image opens");
        file.write_all_at(&[0xff; 4096], bitmap * 4096).expect("it is written");

        let fs = open_for_writing(&image.path);
        let root = session(Arc::clone(&fs) as _);
        root.mknod("/file", NewKind::Regular, 0o644).expect("it takes no block");
        let long = "long".repeat(200);
        let done = match change {
            "mkdir" => root.mkdir("/d", 0o755).map(drop),
            "write" => run(&root, &Op::Write("/file".to_owned(), 0, 10)),
            "symlink" => root.symlink(&long, "/link").map(drop),
            _ => root.set_xattr("/file", "user.a", long.as_bytes(), XattrFlags::empty(), How::FOLLOW),
        };
        let error = done.expect_err("no block is free");
        assert_eq!(error.errno(), Errno::EUCLEAN, "{change}");
        assert!(error.to_string().contains("block bitmap"), "{error}");
        drop(root);
        assert!(fs.close().is_err());
        drop(fs);
        assert!(walk::open(&image.path).superblock().state().contains(State::ERROR));
    }
}

/// A directory that says it has as many blocks as can be counted, and needs one more.
#[test]
fn a_directory_whose_blocks_cannot_be_counted_is_damaged() {
    let mke2fs = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^huge_file"];
    let spec = ImageSpec::new("overcounted", 32 << 20, mke2fs)
        .then(&[Step::Debugfs("mkdir d\nsif d blocks 0xfffffff8\n")]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let root = session(open_for_writing(&image.path) as _);
    let name = |at| format!("/d/{at}-{}", "n".repeat(200));
    let added = (0..10).map(|at| root.mknod(name(at), NewKind::Fifo, 0o644).map(drop));
    let error = added.collect::<Result<Vec<()>>>().expect_err("it cannot be counted");
    assert_eq!(error.errno(), Errno::EUCLEAN, "{error}");
}
