//! Back and forth: the kernel and we change the same volume in turns. After each turn `e2fsck`
//! finds no fault and both see the same tree. Every other time we leave without closing, and the
//! kernel has our journal to replay.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use extern4_block::MemoryDevice;
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{self, Need};
use extern4_testkit::tree::{self, assert_same};
use rustix::fs::OFlags;

use crate::model::{ALL_QUOTAS, Habits, Random, data, judge, op, path, run, session};
use crate::{memory, walk};

/// Operations of a turn.
const OPERATIONS: u64 = 60;

/// Opens what there is to write to; a FIFO that we have made is an error, where otherwise a reader
/// would be waited for.
fn to_write() -> OpenOptions {
    let mut options = OpenOptions::new();
    // OK: a small number.
    options
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32);
    options
}

/// The kernel's operations in a turn. Many of them fail, as ours do: names are there or are not.
fn kernel(root: &Path, random: &mut Random) {
    let at = |path: String| root.join(path.trim_start_matches('/'));
    for _ in 0..OPERATIONS {
        let one = at(path(random));
        let two = at(path(random));
        let size = random.below(60_000) as usize;
        let _ = match random.below(12) {
            0..=2 => std::fs::create_dir(&one),
            3..=5 => {
                let file = to_write().create(true).truncate(true).open(&one);
                file.and_then(|mut file| file.write_all(&data(0, size)))
            }
            6 => std::fs::rename(&one, &two),
            7 => std::fs::remove_file(&one).or_else(|_| std::fs::remove_dir(&one)),
            8 => std::fs::hard_link(&one, &two),
            9 => symlink("t".repeat(size % 200 + 1), &one),
            10 => {
                let file = to_write().open(&one);
                file.and_then(|file| file.set_len(size as u64))
            }
            _ => {
                let value = data(0, size % 600);
                let set = rustix::fs::XattrFlags::empty();
                rustix::fs::lsetxattr(&one, format!("user.k{}", size % 5), &value, set)
                    .map_err(Into::into)
            }
        };
    }
}

/// Our operations in a turn. If we do not close the volume, the synced changes are in the journal
/// only.
fn ours(what: &str, image: &Image, habits: &Habits, random: &mut Random, closes: bool) {
    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    let fs = memory::open(what, &device);
    let session = session(Arc::clone(&fs) as _);
    for at in 0..OPERATIONS {
        let op = op(random, habits);
        if let Err(error) = run(&session, &op) {
            assert!(
                error.cause().is_none(),
                "{what}, operation {at}: {op:?}: {:?}",
                error.cause()
            );
        }
    }
    session
        .namespace()
        .root()
        .superblock()
        .sync()
        .expect("sync");
    drop(session);
    if closes {
        fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    std::fs::write(&image.path, memory::contents(&device)).expect("the image is written");
}

fn turns(spec: ImageSpec, habits: Habits) {
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let mut random = Random::new(77);
    let journaled = !spec.name.contains("ext2");
    for turn in 0..memory::number("EXTERN4_TURNS", 4) {
        let what = format!("{}, turn {turn}", spec.name);
        let mount = image.mount("noatime");
        kernel(&mount.path, &mut random);
        mount.unmount();
        judge(&format!("{what}, the kernel's"), &image);
        let closes = !journaled || turn % 2 == 0;
        ours(&what, &image, &habits, &mut random, closes);
        if !closes {
            let through_journal = walk::tree(&walk::open(&image.path));
            // Freeing the orphans is part of it, which a volume that is only read does not do.
            let mount = image.mount("noatime");
            let theirs = tree::from_mount(&mount.path);
            mount.unmount();
            assert_same(&format!("{what}, not closed"), &through_journal, &theirs);
        }
        judge(&format!("{what}, ours"), &image);
    }
}

const HABITS: Habits = Habits {
    file_size: 1 << 18,
    value_size: 700,
    block_size: 1024,
    fallocate: true,
    few_values: 0,
};

#[test]
fn the_kernel_and_we_take_turns_on_ext4() {
    turns(
        ImageSpec::new(
            "turns-ext4",
            48 << 20,
            &["-t", "ext4", "-b", "1024", "-J", "size=4"],
        ),
        HABITS,
    );
}

#[test]
fn the_kernel_and_we_take_turns_on_ext4_with_large_blocks() {
    let habits = Habits {
        block_size: 4096,
        ..HABITS
    };
    turns(
        ImageSpec::new(
            "turns-ext4-4k",
            64 << 20,
            &["-t", "ext4", "-b", "4096", "-O", "ea_inode"],
        ),
        habits,
    );
}

#[test]
fn the_kernel_and_we_take_turns_on_ext3() {
    let habits = Habits {
        fallocate: false,
        ..HABITS
    };
    turns(
        ImageSpec::new(
            "turns-ext3",
            48 << 20,
            &["-t", "ext3", "-b", "1024", "-J", "size=4"],
        ),
        habits,
    );
}

#[test]
fn the_kernel_and_we_take_turns_on_ext2() {
    let habits = Habits {
        fallocate: false,
        ..HABITS
    };
    turns(
        ImageSpec::new("turns-ext2", 32 << 20, &["-t", "ext2", "-b", "1024"]),
        habits,
    );
}

#[test]
fn the_kernel_and_we_take_turns_on_ext4_with_quotas() {
    if !tools::can_run(&[Need::Mount, Need::KernelQuota]) {
        return;
    }
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=4",
        "-O",
        "quota,project",
        "-E",
        ALL_QUOTAS,
    ];
    turns(ImageSpec::new("ext4-quota", 48 << 20, mke2fs), HABITS);
}
