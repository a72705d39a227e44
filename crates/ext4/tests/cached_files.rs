//! The memory of a cached file: a dentry, an inode, and the state that ext4 keeps with it. The
//! buffers of its blocks are not part of it.

use std::sync::Arc;

use extern4_block::MemoryDevice;
use extern4_ext4::{Ext4, OpenOptions};
use extern4_sync::allocations::{CountingLive, live_bytes};
use extern4_sync::cache_budget::CacheBudget;
use extern4_testkit::image::ImageSpec;
use extern4_vfs::*;

#[global_allocator]
static ALLOCATOR: CountingLive = CountingLive;

/// The most bytes that a cached file may take, next to its buffers. In tests of the whole workspace
/// inodes have a place for the lab, and with it one more cache line.
const MAX_BYTES: usize = if cfg!(feature = "lab") { 884 } else { 820 };
const DIRS: usize = 100;
const FILES: usize = 1000;
const SPEC: ImageSpec = ImageSpec::new(
    "cached_files",
    256 << 20,
    &["-t", "ext4", "-b", "1024", "-N", "110000"],
);

/// Something that a directory of 1,000 can be filled with.
type Make = fn(&Session, &str);

fn kinds() -> [(&'static str, Make); 3] {
    [
        ("file", |session, path| {
            drop(
                session
                    .mknod(path, NewKind::Regular, 0o644)
                    .expect("a file"),
            )
        }),
        ("link", |session, path| {
            drop(session.symlink("to/a/file", path).expect("a link"))
        }),
        ("directory", |session, path| {
            drop(session.mkdir(path, 0o755).expect("a directory"))
        }),
    ]
}

fn session(fs: Ext4, budget: &Arc<CacheBudget>) -> Session {
    let options = SuperOptions {
        budget: Arc::clone(budget),
        ..SuperOptions::default()
    };
    let sb = SuperBlock::new(Arc::new(fs), options).expect("the root");
    Session::new(&Namespace::new(sb), Cred::root())
}

fn paths() -> impl Iterator<Item = String> {
    (0..DIRS * FILES).map(|file| format!("/{}/{}", file / FILES, file % FILES))
}

/// Returns a volume with 100,000 files of one kind.
fn volume(make: Make) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&SPEC.build().path).expect("the image is read"),
    ));
    let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default());
    let session = session(fs.expect("the volume opens"), &CacheBudget::new(u64::MAX));
    (0..DIRS).for_each(|dir| {
        drop(
            session
                .mkdir(format!("/{dir}"), 0o755)
                .expect("a directory"),
        )
    });
    paths().for_each(|path| make(&session, &path));
    session.root().superblock().sync().expect("it is durable");
    device
}

/// One test, since all allocations of the process are counted.
#[test]
fn a_cached_file_takes_as_much_memory_as_its_account_says() {
    if !SPEC.can_run() {
        return;
    }
    for (kind, make) in kinds() {
        let device = volume(make);
        let budget = CacheBudget::new(u64::MAX);
        let fs = Ext4::open(
            device as _,
            &OpenOptions {
                budget: CacheBudget::new(u64::MAX),
                ..OpenOptions::default()
            },
        );
        let fs = fs.expect("the volume opens");
        // Now the buffers are there.
        (11..100 + DIRS * FILES).for_each(|ino| drop(fs.raw_inode(ino as u32)));
        let session = session(fs, &budget);
        let list = |dir: usize| {
            let dir = session
                .open(format!("/{dir}"), OpenFlags::READ)
                .expect("a directory");
            dir.read_dir(0, 2 * FILES, &mut DirBatch::default())
                .expect("its names");
        };
        (0..DIRS).for_each(list);
        let before = (live_bytes(), budget.used());
        for path in paths() {
            session
                .stat(&path, LookupFlags::NOFOLLOW)
                .expect("it is there");
        }
        let each = |bytes: usize| bytes / (DIRS * FILES);
        let live = each(live_bytes() - before.0);
        let counted = each((budget.used() - before.1) as usize);
        println!("a cached {kind}: {live} bytes allocated, {counted} in the account");
        assert!(live <= MAX_BYTES, "a cached {kind} takes {live} bytes");
        assert!(
            live.abs_diff(counted) * 20 <= live,
            "a {kind} takes {live} bytes, counted as {counted}"
        );
    }
}
