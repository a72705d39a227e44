//! Memory after a volume has been closed: what was allocated for it has been freed.

use std::sync::Arc;

use extern4_block::MemoryDevice;
use extern4_ext4::{Ext4, OpenOptions};
use extern4_sync::allocations::{CountingLive, live_bytes};
use extern4_testkit::image::ImageSpec;
use extern4_vfs::*;

#[global_allocator]
static ALLOCATOR: CountingLive = CountingLive;

const SPEC: ImageSpec = ImageSpec::new(
    "close",
    64 << 20,
    &["-t", "ext4", "-b", "4096", "-N", "32768"],
);
const DIRECTORIES: usize = 100;
const FILES: usize = 200;
/// Bytes that a file and its name take in memory, at least.
const FILE_BYTES: usize = 400;
/// Bytes that may be left. The objects that a thread keeps for the next volume are there before.
const MAX_LEFT: usize = 1 << 20;

fn session(device: &Arc<MemoryDevice>, open: fn(Arc<MemoryDevice>) -> Ext4) -> Session {
    let sb = SuperBlock::new(Arc::new(open(Arc::clone(device))), SuperOptions::default());
    Session::new(&Namespace::new(sb.expect("the root")), Cred::root())
}

fn for_each_file(mut then: impl FnMut(&str)) {
    // Each directory is below the one before, so that a name keeps many in use.
    let mut directory = String::new();
    for _ in 0..DIRECTORIES {
        directory.push_str("/d");
        then(&directory);
        (0..FILES).for_each(|file| then(&format!("{directory}/{file}")));
    }
}

/// One test, since all threads of the process are counted.
#[test]
fn a_dropped_volume_leaves_no_memory_behind() {
    if !SPEC.can_run() {
        return;
    }
    let image = std::fs::read(&SPEC.build().path).expect("the image is read");
    let device = Arc::new(MemoryDevice::new(image));
    // It also leaves freed objects for the rounds below.
    let writer = session(&device, |device| {
        Ext4::open_for_writing(device, &OpenOptions::default()).expect("it opens")
    });
    for_each_file(|path| {
        let made = if path.ends_with('d') {
            writer.mkdir(path, 0o755)
        } else {
            writer.mknod(path, NewKind::Regular, 0o644)
        };
        made.expect("it is made");
    });
    writer
        .namespace()
        .root()
        .superblock()
        .sync()
        .expect("it is durable");
    drop(writer);

    for _ in 0..2 {
        let before = live_bytes();
        let reader = session(&device, |device| {
            Ext4::open(device, &OpenOptions::default()).expect("it opens")
        });
        let mut inodes = 0;
        for_each_file(|path| {
            reader.stat(path, LookupFlags::FOLLOW).expect("it is there");
            inodes += 1;
        });
        let held = live_bytes() - before;
        assert!(
            held > inodes * FILE_BYTES,
            "{held} bytes for {inodes} files"
        );
        drop(reader);
        let left = live_bytes().saturating_sub(before);
        println!("{inodes} files took {held} bytes and left {left}");
        assert!(left < MAX_LEFT, "{left} bytes are left of {held}");
    }
}
