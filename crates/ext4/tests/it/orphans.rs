//! Files without names: they stand in a list through their own records, so who makes or ends one writes to its neighbours.

use std::collections::VecDeque;
use std::sync::Arc;

use extern4_block::MemoryDevice;
use extern4_testkit::image::ImageSpec;
use extern4_vfs::*;

use crate::memory;
use crate::model::{open, session};

const THREADS: u64 = 4;

/// A neighbour goes while one is being made: its record is written by two threads, of which the maker is the first.
#[test]
fn files_without_names_come_and_go_side_by_side() {
    let spec = ImageSpec::new("ext4", 16 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=4"]);
    if !spec.can_run() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(memory::bytes_of(&spec)));
    let fs = memory::open("files without names", &device);
    let session = session(Arc::clone(&fs) as _);
    let rounds = memory::number("EXTERN4_UNNAMED", 2000);
    std::thread::scope(|scope| {
        for kept in 0..THREADS {
            let session = &session;
            scope.spawn(move || {
                let mut files = VecDeque::new();
                for _ in 0..rounds {
                    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::TMPFILE;
                    files.push_back(open(session, "/", flags, 0o600).expect("a file without a name"));
                    if files.len() as u64 > kept {
                        files.pop_front();
                    }
                }
            });
        }
    });
    drop(session);
    fs.close().expect("closed");
    memory::fsck("files without names", &device);
}
