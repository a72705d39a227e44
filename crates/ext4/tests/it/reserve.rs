//! Blocks that a volume keeps for some: who may fill them, and where others find the volume full. The kernel is asked beside us.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use extern4_ext4::OpenOptions;
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_vfs::*;

use crate::model::{judge, open, open_for_writing, open_for_writing_with, session};

const USER: (u32, u32) = (1000, 1000);
const ROOT: (u32, u32) = (0, 0);
const PIECE: usize = 64 << 10;
/// What the map of a file and its directory may take, here and there.
const MARGIN: u64 = 64 << 10;

fn image(name: &'static str, mke2fs: &'static [&'static str]) -> Option<Image> {
    image_for(name, mke2fs, &[Step::Tune2fs(&["-r", "4000", "-u", "1001", "-g", "1002"])])
}

fn image_for(name: &'static str, mke2fs: &'static [&'static str], reserve: &'static [Step]) -> Option<Image> {
    let spec = ImageSpec::new(name, 16 << 20, mke2fs).then(reserve).mounted(&[|root| {
        std::fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o777))
    }]);
    spec.can_run().then(|| spec.build())
}

/// Writes to a new file until there is no room; returns how many bytes could be written.
fn fill(session: &Session, path: &str) -> u64 {
    let file = match open(session, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644) {
        Err(error) if error == Errno::ENOSPC => return 0,
        file => file.expect("a new file"),
    };
    let mut size = 0;
    loop {
        match file.write_at(&[7; PIECE], size) {
            Ok(written) => size += written as u64,
            Err(error) => {
                assert_eq!(error.errno(), Errno::ENOSPC, "{error}");
                return size;
            }
        }
    }
}

/// The same through the kernel.
fn fill_by_kernel(root: &Path, (uid, gid): (u32, u32), name: &str) -> u64 {
    let path = root.join(name);
    let mut dd = Command::new("dd");
    dd.arg("if=/dev/zero").arg(format!("of={}", path.display())).args(["bs=64k", "conv=fsync"]);
    let output = dd.uid(uid).gid(gid).output().expect("dd runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{output:?}");
    path.metadata().map_or(0, |it| it.len())
}

/// Users one after the other, each of whom fills the volume.
const TURNS: [((u32, u32), &str); 5] =
    [(USER, "a"), ((1000, 0), "b"), ((1000, 1002), "c"), ((1001, 5), "d"), (ROOT, "e")];

fn as_user(root: &Session, (uid, gid): (u32, u32)) -> Session {
    root.with_cred(Cred::new(uid, gid, &[]))
}

fn available(root: &Session) -> u64 {
    let found = root.statfs("/", How::FOLLOW).expect("totals");
    found.blocks_available * u64::from(found.block_size)
}

fn full_where_the_kernel_is(image: &Image, options: &OpenOptions, metadata: u64) {
    let theirs: Vec<u64> = {
        let copy = image.copy();
        // Named again: kernels have taken the user for the group.
        let mount = copy.mount("noatime,resuid=1001,resgid=1002");
        TURNS.iter().map(|(who, name)| fill_by_kernel(&mount.path, *who, name)).collect()
    };
    let fs = Arc::new(open_for_writing_with(&image.path, options).expect("a volume"));
    let root = session(fs.clone() as _);
    for ((who, name), theirs) in TURNS.iter().zip(&theirs) {
        let ours = fill(&as_user(&root, *who), &format!("/{name}"));
        // The member of the group takes all that the kernel does not keep for itself.
        let margin = if *name == "c" { MARGIN + metadata } else { MARGIN };
        assert!(ours.abs_diff(*theirs) <= margin, "{name}: {ours} bytes here, {theirs} there, {theirs:?}");
        assert!(available(&root) < MARGIN, "{name}: {}", available(&root));
    }
    let sizes = theirs;
    assert!(sizes[0] > 8 << 20 && sizes[2] > 3 << 20, "there was something to fill: {sizes:?}");
    drop(root);
    fs.close().expect("close");
    drop(fs);
    judge("reserve", image);
}

#[test]
fn ordinary_users_leave_what_is_reserved() {
    // Of a volume with extents, the kernel keeps one block of fifty for itself, from the superuser too.
    for (name, mke2fs, metadata) in [
        ("reserve-ext4", &["-t", "ext4", "-b", "1024", "-J", "size=1"][..], (16 << 20) / 50),
        ("reserve-ext2", &["-t", "ext2", "-b", "1024"], 0),
    ] {
        if let Some(image) = image(name, mke2fs) {
            full_where_the_kernel_is(&image, &OpenOptions::default(), metadata);
        }
    }
}

/// Not the user and the group that the superblock names, which may use what is reserved no more.
#[test]
fn who_opens_a_volume_says_for_whom_it_is_reserved() {
    let others: &[Step] = &[Step::Tune2fs(&["-r", "4000", "-u", "1000", "-g", "5"])];
    let Some(image) = image_for("reserve-named", &["-t", "ext2", "-b", "1024"], others) else { return };
    let named = OpenOptions { reserved_uid: Some(1001), reserved_gid: Some(1002), ..OpenOptions::default() };
    full_where_the_kernel_is(&image, &named, 0);
}

#[test]
fn every_kind_of_change_leaves_what_is_reserved() {
    let Some(image) = image("reserve-kinds", &["-t", "ext4", "-b", "1024", "-J", "size=1"]) else { return };
    let fs = open_for_writing(&image.path);
    let root = session(fs.clone() as _);
    let user = as_user(&root, USER);
    let (create, write) = (OpenFlags::WRITE | OpenFlags::CREATE, OpenFlags::WRITE);
    let file = open(&user, "/room", create, 0o644).expect("a file");
    file.fallocate(FallocateMode::empty(), 0, 40 << 10).expect("there is room");
    let names = open(&user, "/names", create, 0o644).expect("a file");
    fill(&user, "/big");
    // Names that fit into blocks that are there go on until a block is full.
    let mut count = 0;
    let refused = loop {
        count += 1;
        let name = format!("/{}{count}", "n".repeat(200));
        match user.link("/names", How::FOLLOW, name) {
            Ok(()) => assert!(count < 20, "a new block was taken for names"),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, Errno::ENOSPC);
    let long = XattrFlags::empty();
    let target = "t".repeat(300);
    for (what, result) in [
        ("mkdir", user.mkdir("/dir", 0o755).map(drop)),
        ("symlink", user.symlink(&target, "/link").map(drop)),
        ("set_xattr", user.set_xattr("/names", "user.long", &[1; 600], long, How::FOLLOW)),
        ("fallocate", names.fallocate(FallocateMode::empty(), 0, 4096)),
        ("write", names.write_at(&[1; 1000], 0).map(drop)),
    ] {
        assert_eq!(result.expect_err(what), Errno::ENOSPC, "{what}");
    }
    // Whoever has allocated room uses it, in pieces that take blocks for their map, and gives it back.
    for at in (0..40).step_by(2) {
        file.write_at(&[2; 1024], at << 10).expect("the room is there");
    }
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    file.fallocate(punch, 2 << 10, 1024).expect("room can be given back");
    user.truncate("/big", 1 << 20, How::FOLLOW).expect("room can be given back");
    fs.sync().expect("sync");
    names.write_at(&[1; 1000], 0).expect("there is room again");
    open(&root, "/big", write, 0).expect("open");
    drop((file, names, user, root));
    fs.close().expect("close");
    drop(fs);
    judge("reserve-kinds", &image);
}
