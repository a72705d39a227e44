//! Damage that a change comes upon: it stops there, and says so.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use extern4_disk::superblock::State;
use extern4_testkit::image::ImageSpec;
use extern4_vfs::*;

use crate::model::{open_for_writing, session};
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
