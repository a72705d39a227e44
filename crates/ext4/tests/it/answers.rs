//! What cannot be done is answered before anything is changed.

use std::sync::Arc;

use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools;
use extern4_vfs::*;

use crate::model::{open_for_writing, session};

#[test]
fn a_target_that_no_block_holds_leaves_nothing() {
    let spec = ImageSpec::new("targets", 16 << 20, &["-t", "ext4", "-b", "1024"]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    root.symlink("t".repeat(1023), "/longest").expect("it fits into a block");
    for len in [1024, 4095] {
        let error = root.symlink("t".repeat(len), "/longer").map(drop).expect_err("no block holds it");
        assert_eq!(error.errno(), Errno::ENAMETOOLONG);
    }
    drop(root);
    fs.close().expect("close");
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{e}"));
}
