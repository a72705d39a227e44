//! Overwrites of one file by several threads at the same time.
//!
//! Each write is whole, holes and unwritten blocks are filled, and a sync makes the last contents
//! durable.

use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use extern4_block::{BlockDevice, CrashDevice};
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::ImageSpec;
use extern4_vfs::*;

use crate::memory;
use crate::model::{Op, open, run, session};

/// Volumes whose blocks are smaller than what excludes writers, and as large.
const VOLUMES: [ImageSpec; 3] = [
    ImageSpec::new(
        "ext4-1k",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    ),
    ImageSpec::new(
        "ext4-4k",
        32 << 20,
        &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    ),
    ImageSpec::new("ext2-1k", 16 << 20, &["-t", "ext2", "-b", "1024"]),
];

const BOTH: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

/// Lets others write between any two writes.
#[derive(Debug)]
struct Slow {
    device: Arc<CrashDevice>,
    writes_whole: bool,
}

impl BlockDevice for Slow {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.device.sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> extern4_block::Result<()> {
        self.device.read_at(buf, offset)
    }

    fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> extern4_block::Result<()> {
        self.device.read_vectored_at(bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> extern4_block::Result<()> {
        // Without that, a write is one of a half, and another.
        let middle = if self.writes_whole { 0 } else { buf.len() / 2 };
        let (first, second) = buf.split_at(middle);
        for (part, at) in [(first, offset), (second, offset + middle as u64)] {
            if !part.is_empty() {
                self.device.write_at(part, at)?;
                thread::yield_now();
            }
        }
        Ok(())
    }

    fn writes_whole(&self) -> bool {
        self.writes_whole
    }

    fn flush(&self) -> extern4_block::Result<()> {
        self.device.flush()
    }

    fn discard(&self, range: Range<u64>) -> extern4_block::Result<()> {
        self.device.discard(range)
    }

    fn write_zeroes(&self, range: Range<u64>) -> extern4_block::Result<()> {
        self.device.write_zeroes(range)
    }

    fn prefetch(&self, range: Range<u64>) {
        self.device.prefetch(range);
    }

    fn file_range(&self, range: Range<u64>) -> Option<(&File, u64)> {
        self.device.file_range(range)
    }

    fn forget(&self, range: Range<u64>) {
        self.device.forget(range);
    }

    fn name(&self) -> Option<&OsStr> {
        self.device.name()
    }
}

struct Volume {
    device: Arc<CrashDevice>,
    session: Session,
}

impl Volume {
    fn new(spec: &ImageSpec, writes_whole: bool) -> Self {
        let device = Arc::new(CrashDevice::new(memory::bytes_of(spec)));
        let slow = Arc::new(Slow {
            device: Arc::clone(&device),
            writes_whole,
        });
        let fs = Ext4::open_for_writing(slow, &OpenOptions::default()).expect("it opens");
        Self {
            device,
            session: session(Arc::new(fs) as _),
        }
    }

    fn file(&self, path: &str) -> OpenFile {
        run(&self.session, &Op::Create(path.to_owned(), 0o644)).expect("a file");
        open(&self.session, path, BOTH, 0).expect("it opens")
    }
}

/// Each on a device that writes whole what it is handed, and on one that does not.
fn volumes() -> impl Iterator<Item = (&'static str, Volume)> {
    let both = |spec| [false, true].map(|writes_whole| (spec, writes_whole));
    let specs = VOLUMES.iter().filter(|spec| spec.can_run()).flat_map(both);
    specs.map(|(spec, writes_whole)| (spec.name, Volume::new(spec, writes_whole)))
}

fn contents(file: &OpenFile) -> Vec<u8> {
    let mut bytes = vec![0; file.size() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).expect("a read"), bytes.len());
    bytes
}

fn write(file: &OpenFile, mark: u8, bytes: &Range<usize>) {
    let written = file
        .write_at(&vec![mark; bytes.len()], bytes.start as u64)
        .expect("a write");
    assert_eq!(written, bytes.len());
}

/// Both write at the same moment, as well as two threads can.
fn at_once(turns: &AtomicUsize, turn: usize) {
    turns.fetch_add(1, Ordering::SeqCst);
    while turns.load(Ordering::SeqCst) < 2 * turn {
        thread::yield_now();
    }
}

#[test]
fn writes_that_overlap_are_whole() {
    const TURNS: usize = 400;
    for (name, volume) in volumes() {
        let file = volume.file("/file");
        for block in 0..32 {
            file.write_at(&[0xff; 4096], block * 4096)
                .expect("contents");
        }
        // Removes every other block, so that no two are adjacent. A map of block numbers returns
        // runs in parts anyway.
        if name != "ext2-1k" {
            let collapse =
                |block| file.fallocate(FallocateMode::COLLAPSE_RANGE, block * 4096, 4096);
            (1..16_u64).for_each(|block| collapse(block).expect("a block less"));
        }
        file.set_len(16 * 4096).expect("so much is left");
        let ends_at = |at| {
            file.span_at(at)
                .expect("a span")
                .map(|span| span.offset + span.len)
        };
        let spans = std::iter::successors(ends_at(0), |&at| ends_at(at)).count();
        assert!(spans > 1, "{name}: blocks stand together");
        // Bytes of one chunk, and of many, which begin and end anywhere.
        for (ours, theirs) in [
            (100..300, 150..4000),
            (100..60_000, 4000..65_500),
            (0..65_536, 0..65_536),
        ] {
            let both = ours.start.max(theirs.start)..ours.end.min(theirs.end);
            let turns = AtomicUsize::new(0);
            let barrier = Barrier::new(2);
            let work = |mark: u8, bytes: &Range<usize>| {
                let file = open(&volume.session, "/file", BOTH, 0).expect("it opens");
                for turn in 1..=TURNS {
                    let mark = mark + 2 * (turn % 100) as u8;
                    at_once(&turns, turn);
                    write(&file, mark, bytes);
                    barrier.wait();
                    let left = contents(&file);
                    let whole = left[both.clone()]
                        .iter()
                        .all(|byte| *byte == left[both.start]);
                    assert!(whole, "{name}, {ours:?} and {theirs:?}, {turn}");
                    let outside = bytes
                        .clone()
                        .filter(|at| !both.contains(at))
                        .find(|at| left[*at] != mark);
                    assert_eq!(outside, None, "{name}, {ours:?} and {theirs:?}, {turn}");
                    barrier.wait();
                }
            };
            thread::scope(|scope| {
                scope.spawn(|| work(1, &theirs));
                work(0, &ours);
            });
        }
    }
}

/// Room that holds nothing yet is not written over, also within a tick of the clock.
#[test]
fn holes_and_unwritten_blocks_are_filled() {
    for (name, volume) in volumes() {
        let file = volume.file("/file");
        let fallocates = name != "ext2-1k";
        let mut turn = 0;
        let mut in_one_tick = 0;
        // On a busy machine few are.
        while turn < 50 || in_one_tick == 0 && turn < 5000 {
            turn += 1;
            file.set_len(0).expect("nothing is left");
            file.set_len(3 << 14).expect("a hole");
            if fallocates {
                file.fallocate(FallocateMode::empty(), 1 << 14, 1 << 14)
                    .expect("room");
            }
            file.write_at(&[1; 100], 0).expect("a beginning");
            let mut expected = vec![0; 3 << 14];
            expected[..100].fill(1);
            // Over the block that is there and into the hole, into the room, out of it, and over
            // the result.
            for (mark, at, len) in [
                (2, 50, 9000),
                (3, 20_000, 300),
                (4, 31_000, 5000),
                (5, 20_100, 50),
                (6, 1 << 14, 1 << 14),
            ] {
                let before = file.stat().mtime;
                write(&file, mark, &(at..at + len));
                in_one_tick += u32::from(before == file.stat().mtime);
                expected[at..at + len].fill(mark);
                assert!(contents(&file) == expected, "{name}, {turn}, {at}");
            }
        }
        assert!(in_one_tick > 0, "{name}: each is in a tick of its own");
    }
}

/// Of several writers in parallel, each that asks for durability has it for its own writes, even if
/// another thread's flush provides it.
#[test]
fn concurrent_overwrites_are_durable() {
    for (name, volume) in volumes() {
        let file = volume.file("/file");
        file.write_at(&[0xff; 1 << 15], 0).expect("contents");
        file.sync(false).expect("a sync");
        let barrier = Barrier::new(2);
        let work = |writer: u64| {
            let file = open(&volume.session, "/file", BOTH, 0).expect("it opens");
            let offset = writer << 14;
            for turn in 0..100 {
                for mark in [!turn, turn] {
                    file.write_at(&[mark; 1000], offset + 500).expect("a write");
                    file.sync(true).expect("a sync");
                }
                barrier.wait();
                let left = Arc::new(volume.device.crash(volume.device.moment(), |_| false));
                let left = Ext4::open(left, &OpenOptions::default()).expect("it opens");
                let inode = crate::walk::resolve(&left, "/file").expect("the file");
                let mut bytes = [0; 1000];
                assert_eq!(
                    left.read_at(&inode, &mut bytes, offset + 500)
                        .expect("a read"),
                    1000
                );
                assert_eq!(bytes, [turn; 1000], "{name}, {writer}, {turn}");
                barrier.wait();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| work(1));
            work(0);
        });
    }
}
