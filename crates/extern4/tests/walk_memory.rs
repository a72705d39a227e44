//! The memory of a walk: bounded in a directory of many names, and in a deep tree of large
//! directories.

use extern4::{Session, Volume};
use extern4_sync::allocations::{CountingLive, live_bytes};

#[global_allocator]
static ALLOCATOR: CountingLive = CountingLive;

/// More than one batch of a walk.
const NAMES: usize = 1500;
/// Names that a file may have, at most, in this test.
const LINKS: usize = 50_000;

/// Fills a directory with names of the same few files.
fn fill(inside: &Session, names: usize, made: &mut usize) {
    for name in 0..names {
        let file = format!("/files/{}", *made / LINKS);
        if made.is_multiple_of(LINKS) {
            inside.write(&file, "").expect("a file");
        }
        *made += 1;
        inside.hard_link(&file, name.to_string()).expect("a name");
    }
}

/// Returns the most bytes that a walk has in memory, next to the caches, and its entries.
fn peak(session: &Session, path: &str) -> (usize, u64) {
    // The caches are full after it.
    session.walk(path).for_each(drop);
    // Memory that other threads free during a walk hides a part of the walk's.
    (0..5)
        .map(|_| peak_of_one(session, path))
        .max()
        .expect("five walks")
}

fn peak_of_one(session: &Session, path: &str) -> (usize, u64) {
    let before = live_bytes();
    let mut most = 0;
    let mut walk = session.walk(path);
    while let Some(event) = walk.next_event() {
        event.expect("no error");
        most = most.max(live_bytes().saturating_sub(before));
    }
    (most, walk.visited())
}

#[test]
fn memory_does_not_grow_with_directories_and_depth() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("disk.img");
    drop(Volume::create_new(&image, 256 << 20).expect("a volume"));
    let volume = Volume::options()
        .write(true)
        .open(&image)
        .expect("it opens");
    let session = volume.superuser();
    session.create_dir("/files").expect("a directory");
    let mut made = 0;
    for (path, names) in [("/some", 2_000), ("/many", 100_000)] {
        session.create_dir(path).expect("a directory");
        fill(&session.at(path).expect("it is there"), names, &mut made);
    }
    for (path, depth) in [("/shallow", 33), ("/deep", 99)] {
        session.create_dir(path).expect("a directory");
        let mut inside = session.at(path).expect("it is there");
        for _ in 0..depth {
            fill(&inside, NAMES, &mut made);
            inside.create_dir("d").expect("a directory");
            inside = inside.at("d").expect("it is there");
        }
    }
    volume.sync().expect("room");
    let (some, _) = peak(&session, "/some");
    let (many, names) = peak(&session, "/many");
    println!("a directory of 2,000 names: {some} bytes; of 100,000: {many}");
    assert_eq!(names, 100_001);
    assert!(many < some + (64 << 10), "{many} bytes, and not {some}");
    let (shallow, _) = peak(&session, "/shallow");
    let (deep, _) = peak(&session, "/deep");
    println!("33 levels of 1,500 names: {shallow} bytes; 99: {deep}");
    assert!(deep < shallow + (256 << 10), "{deep} bytes, not {shallow}");
}
