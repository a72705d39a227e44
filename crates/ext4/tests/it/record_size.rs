//! The room that new inodes keep for fields is what the superblock asks for, as with Linux;
//! attributes have the rest.

use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools;
use extern4_vfs::{LookupFlags, OpenFlags, XattrFlags};

use crate::model::{judge, open, open_for_writing, session};

/// The size of records, and the room for fields that the superblock wants, and asks for at least.
const SIZES: [(&str, u16, u16); 9] = [
    ("1024", 640, 32),
    ("1024", 64, 128),
    ("1024", 20, 0),
    ("1024", 0, 0),
    ("1024", 896, 32),
    ("1024", 892, 32),
    ("256", 128, 32),
    ("256", 124, 32),
    ("128", 640, 32),
];

fn extra_isize(image: &std::path::Path, path: &str) -> String {
    let stat = tools::debugfs(image, false, &format!("stat {path}"));
    let line = stat
        .lines()
        .find(|line| line.contains("extra inode fields"));
    line.unwrap_or("none").to_owned()
}

#[test]
fn new_inodes_have_the_fields_that_the_superblock_asks_for() {
    for features in ["metadata_csum", "^extra_isize,^metadata_csum"] {
        for (size, wanted, least) in SIZES {
            let mke2fs = vec![
                "-t", "ext4", "-b", "1024", "-N", "256", "-I", size, "-O", features,
            ];
            let mke2fs: &'static [&'static str] = Vec::leak(mke2fs);
            let spec = ImageSpec::new("extra", 16 << 20, mke2fs);
            if !spec.can_run() {
                return;
            }
            let what = format!("{features}, records of {size}, {wanted} wanted, {least} at least");
            let image = spec.build();
            image.debugfs(&format!(
                "ssv want_extra_isize {wanted}\nssv min_extra_isize {least}\n"
            ));
            let theirs = {
                let copy = image.copy();
                let mount = copy.mount("noatime");
                std::fs::write(mount.path.join("f"), "f").expect("a file");
                mount.unmount();
                extra_isize(&copy.path, "f")
            };
            let fs = open_for_writing(&image.path);
            let ours = session(fs.clone() as _);
            drop(open(&ours, "/f", OpenFlags::WRITE | OpenFlags::CREATE, 0o644).expect("a file"));
            ours.mkdir("/d", 0o755).expect("a directory");
            ours.symlink("target", "/l").expect("a link");
            // In what is left of the record, or in a block.
            for (name, len) in [("user.a", 10), ("user.b", 150), ("user.c", 300)] {
                ours.set_xattr(
                    "/f",
                    name,
                    &vec![b'1'; len],
                    XattrFlags::empty(),
                    LookupFlags::FOLLOW,
                )
                .expect(name);
                let value = ours.get_xattr("/f", name, LookupFlags::FOLLOW).expect(name);
                assert_eq!(value, vec![b'1'; len], "{what}");
            }
            drop(ours);
            fs.close().expect("close");
            drop(fs);
            for path in ["f", "d", "l"] {
                assert_eq!(extra_isize(&image.path, path), theirs, "{what}, {path}");
            }
            judge(&what, &image);
        }
    }
}
