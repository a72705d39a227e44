//! Memory of threads that come and go, and of threads that rest: bounded, however many there have
//! been.
//!
//! `EXTERN4_THREADS` says how many threads come and go; 400 by default.

use std::sync::{Arc, Barrier};
use std::thread;

use extern4_block::MemoryDevice;
use extern4_ext4::{Ext4, OpenOptions};
use extern4_sync::allocations::{CountingLive, live_bytes};
use extern4_testkit::image::ImageSpec;
use extern4_vfs::memfs::{MemFs, MemLimits};
use extern4_vfs::*;

#[global_allocator]
static ALLOCATOR: CountingLive = CountingLive;

const SPEC: ImageSpec = ImageSpec::new("churn", 64 << 20, &["-t", "ext4", "-b", "4096"]);
/// Threads that run at one time, of the threads that start and end.
const AT_ONCE: usize = 8;
/// Files that each of them makes and removes.
const FILES: usize = 1000;
/// Bytes that may be allocated once they have gone.
const MAX_BYTES: usize = 64 << 20;

/// Bytes that each thread holds at rest, of many: about 260 KiB. A thread keeps pieces of memory by
/// their number, and nearly all of these here are inodes.
const AT_REST: usize = 384 << 10;
/// Bytes of free pieces that the process keeps for the next values.
const MAX_KEPT: usize = 8 << 20;

/// Makes files and removes them, each under one of `names` names of `slot`.
fn work(session: &Session, slot: usize, files: usize, names: usize) {
    for file in 0..files {
        let path = format!("/{}", slot * names + file % names);
        session
            .mknod(&path, NewKind::Regular, 0o644)
            .expect("a file");
        session.unlink(&path).expect("it is removed");
    }
}

/// A superblock in memory, and one of ext4 where an image can be made.
fn superblocks() -> Vec<(&'static str, Arc<SuperBlock>)> {
    let new = |fs| SuperBlock::new(fs, SuperOptions::default()).expect("the root");
    let mut all = vec![("memfs", new(MemFs::new(MemLimits::default()) as _))];
    if SPEC.can_run() {
        let bytes = std::fs::read(&SPEC.build().path).expect("the image is read");
        let device = Arc::new(MemoryDevice::new(bytes));
        let fs =
            Ext4::open_for_writing(device as _, &OpenOptions::default()).expect("the volume opens");
        all.push(("ext4", new(Arc::new(fs) as _)));
    }
    all
}

fn session(sb: &Arc<SuperBlock>) -> Session {
    Session::new(&Namespace::new(Arc::clone(sb)), Cred::root())
}

/// Starts and ends threads, `AT_ONCE` at a time.
fn start_and_end(sb: &Arc<SuperBlock>, threads: usize) {
    let session = &session(sb);
    for _ in 0..threads / AT_ONCE {
        thread::scope(|scope| {
            for slot in 0..AT_ONCE {
                scope.spawn(move || work(session, slot, FILES, 500));
            }
        });
    }
}

/// Bytes that `threads` hold, each of which has done the same work and rests.
fn held_at_rest(sb: &Arc<SuperBlock>, threads: usize, files: usize) -> usize {
    let worked = Barrier::new(threads + 1);
    let measured = Barrier::new(threads + 1);
    let session = &session(sb);
    let before = live_bytes();
    thread::scope(|scope| {
        for slot in 0..threads {
            let worked = &worked;
            let measured = &measured;
            scope.spawn(move || {
                work(session, slot, files, files);
                worked.wait();
                measured.wait();
            });
        }
        worked.wait();
        let held = live_bytes().saturating_sub(before);
        measured.wait();
        held
    })
}

/// Gives back the memory that earlier steps have retired.
fn drop_retired(sb: &Arc<SuperBlock>) {
    (0..10).for_each(|_| sb.drop_caches());
}

/// One test, since all threads of the process are counted.
#[test]
fn memory_does_not_grow_with_threads() {
    let threads = std::env::var("EXTERN4_THREADS")
        .ok()
        .and_then(|threads| threads.parse().ok())
        .unwrap_or(400);
    for (name, sb) in superblocks() {
        start_and_end(&sb, AT_ONCE);
        drop_retired(&sb);
        let before = live_bytes();
        let one = held_at_rest(&sb, 1, 100 * 1000);
        drop_retired(&sb);
        let many = held_at_rest(&sb, 100, 1000);
        println!("{name}: one thread holds {one} bytes, and 100 that rest hold {many}");
        start_and_end(&sb, threads);
        let grown = live_bytes().saturating_sub(before);
        println!("{name}: {threads} threads have left {grown} bytes");
        drop_retired(&sb);
        let left = live_bytes().saturating_sub(before);
        println!("{name}: {left} bytes after drop_caches");
        assert!(
            many <= one + 100 * AT_REST,
            "{name}: one thread {one} bytes, 100 that rest {many}"
        );
        assert!(
            grown < MAX_BYTES,
            "{name}: {threads} threads have left {grown} bytes"
        );
        assert!(left < MAX_KEPT, "{name}: {left} bytes after drop_caches");
    }
}
