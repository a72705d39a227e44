//! The algorithm of `fsx`: one file, read, written, cut and moved at random, and compared with an
//! array of bytes, through sessions of the VFS. Every read has to give what the array has. Now and
//! then the test closes the file, drops caches, or closes the volume and opens it again. On
//! request, the file's contents go through the journal for a while, and past it again.

use std::sync::Arc;

use extern4_block::MemoryDevice;
use extern4_testkit::image::ImageSpec;
use extern4_vfs::*;

use crate::memory;
use crate::model::{LOG_CONTENTS, Random, open, session};

/// The longest that the file gets, as in the original.
const MOST: u64 = 256 << 10;
/// How many operations to show of those before a failure.
const SHOWN: usize = 30;
const JOURNAL_DATA: FileFlags = FileFlags::from_bits_retain(0x4000);

struct Fsx {
    device: Arc<MemoryDevice>,
    session: Option<Session>,
    file: Option<OpenFile>,
    fs: Arc<extern4_ext4::Ext4>,
    model: Vec<u8>,
    random: Random,
    block: u64,
    /// The file's flag is set and cleared.
    switches: bool,
    log: Vec<String>,
}

impl Fsx {
    fn new(spec: &ImageSpec, block: u64, switches: bool, seed: u64) -> Self {
        let device = Arc::new(MemoryDevice::new(memory::bytes_of(spec)));
        let fs = memory::open(spec.name, &device);
        let mut fsx = Self {
            session: Some(session(Arc::clone(&fs) as _)),
            file: None,
            device,
            fs,
            model: Vec::new(),
            random: Random::new(seed),
            block,
            switches,
            log: Vec::new(),
        };
        fsx.open_file();
        fsx
    }

    fn open_file(&mut self) {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let session = self.session.as_ref().expect("the volume is open");
        self.file = None;
        self.file = Some(open(session, "/file", flags, 0o644).expect("the file opens"));
    }

    fn file(&self) -> &OpenFile {
        self.file.as_ref().expect("the file is open")
    }

    fn fail(&self, why: &str) -> ! {
        let from = self.log.len().saturating_sub(SHOWN);
        panic!("{why}\nafter\n{}", self.log[from..].join("\n"));
    }

    /// A range below `end`: some begin and end with blocks.
    fn range(&mut self, end: u64) -> (u64, u64) {
        let offset = self.random.below(end);
        let most = if self.random.one_in(2) {
            16 << 10
        } else {
            64 << 10
        };
        let len = 1 + self.random.below(most.min(end - offset));
        if self.random.one_in(3) {
            let block = self.block;
            let offset = offset / block * block;
            return (offset, len.next_multiple_of(block).min(end - offset));
        }
        (offset, len)
    }

    fn read(&mut self, offset: u64, len: u64) {
        let mut bytes = vec![0xee; len as usize];
        let got = match self.file().read_at(&mut bytes, offset) {
            Ok(got) => got,
            Err(e) => self.fail(&format!("read {offset} {len}: {e}")),
        };
        let start = (offset as usize).min(self.model.len());
        let want = &self.model[start..(start + bytes.len()).min(self.model.len())];
        if got != want.len() || bytes[..got] != *want {
            let at = bytes.iter().zip(want).position(|(a, b)| a != b);
            let at = at.map(|at| (offset + at as u64, bytes[at], want[at]));
            self.fail(&format!(
                "read {offset} {len}: {got} of {} bytes; (at, is, should) {at:?}",
                want.len()
            ));
        }
    }

    fn write(&mut self, offset: u64, len: u64) {
        let fill = self.random.next();
        let data: Vec<u8> = (0..len)
            .map(|at| (fill.wrapping_add(at) ^ (at >> 9)) as u8)
            .collect();
        let mut done = 0;
        while done < data.len() {
            match self.file().write_at(&data[done..], offset + done as u64) {
                Ok(0) => self.fail("nothing was written"),
                Ok(part) => done += part,
                Err(e) => self.fail(&format!("write: {e}")),
            }
        }
        let end = (offset + len) as usize;
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset as usize..end].copy_from_slice(&data);
    }

    fn fallocate(&mut self, mode: FallocateMode, offset: u64, len: u64) {
        let size = self.model.len() as u64;
        let moves = FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE;
        let block = self.block;
        let mut offset = offset;
        let mut len = len;
        if mode.intersects(moves) {
            (offset, len) = (offset / block * block, len.next_multiple_of(block));
            let fits = match mode {
                FallocateMode::COLLAPSE_RANGE => offset + len < size,
                _ => offset < size && size + len <= MOST,
            };
            if !fits {
                return;
            }
        }
        self.log.push(format!("fallocate {mode:?} {offset} {len}"));
        if let Err(e) = self.file().fallocate(mode, offset, len) {
            self.fail(&format!("fallocate: {e}"));
        }
        let from = offset as usize;
        let to = (offset + len) as usize;
        match mode {
            FallocateMode::COLLAPSE_RANGE => drop(self.model.drain(from..to)),
            FallocateMode::INSERT_RANGE => drop(self.model.splice(from..from, vec![0; to - from])),
            _ => {
                let grows = !mode.contains(FallocateMode::KEEP_SIZE);
                if mode.intersects(FallocateMode::PUNCH_HOLE | FallocateMode::ZERO_RANGE) {
                    let size = self.model.len();
                    self.model[from.min(size)..to.min(size)].fill(0);
                }
                if grows && self.model.len() < to {
                    self.model.resize(to, 0);
                }
            }
        }
    }

    /// Has contents go through the journal, or past it.
    fn switch(&mut self) {
        let flags = self.file().stat().flags ^ JOURNAL_DATA;
        self.log.push(format!("flags {flags:?}"));
        let session = self.session.as_ref().expect("the volume is open");
        session
            .set_flags("/file", flags, LookupFlags::FOLLOW)
            .expect("the flag can be changed");
        assert_eq!(self.file().stat().flags, flags);
    }

    /// Closes the volume, and opens it again.
    fn reopen_volume(&mut self) {
        self.file = None;
        self.session = None;
        self.fs.close().expect("close");
        self.fs = memory::open("again", &self.device);
        self.session = Some(session(Arc::clone(&self.fs) as _));
        self.open_file();
    }

    fn step(&mut self, fallocate: bool) {
        let kinds = if fallocate { 100 } else { 72 };
        let kind = self.random.below(kinds);
        let (offset, len) = self.range(MOST);
        match kind {
            0..=24 => {
                self.log.push(format!("read {offset} {len}"));
                self.read(offset, len);
            }
            25..=54 => {
                self.log.push(format!("write {offset} {len}"));
                self.write(offset, len);
            }
            55..=64 => {
                self.log.push(format!("truncate {offset}"));
                if let Err(e) = self.file().set_len(offset) {
                    self.fail(&format!("truncate: {e}"));
                }
                self.model.resize(offset as usize, 0);
            }
            65..=67 => {
                self.log.push("reopen".to_owned());
                self.open_file();
            }
            68 => {
                self.log.push("drop caches".to_owned());
                self.file = None;
                let session = self.session.as_ref().expect("the volume is open");
                session.namespace().root().superblock().drop_caches();
                self.open_file();
            }
            69 | 70 => {
                self.log.push("fsync".to_owned());
                self.file().sync(kind == 70).expect("fsync");
            }
            71 if self.switches && self.random.one_in(2) => self.switch(),
            71 if self.random.one_in(8) => {
                self.log.push("reopen the volume".to_owned());
                self.reopen_volume();
            }
            71 => {}
            _ => {
                let mode = match kind {
                    72..=75 => FallocateMode::empty(),
                    76..=78 => FallocateMode::KEEP_SIZE,
                    79..=85 => FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
                    86..=88 => FallocateMode::ZERO_RANGE,
                    89..=91 => FallocateMode::ZERO_RANGE | FallocateMode::KEEP_SIZE,
                    92..=95 => FallocateMode::COLLAPSE_RANGE,
                    _ => FallocateMode::INSERT_RANGE,
                };
                self.fallocate(mode, offset, len);
            }
        }
        if self.file().size() != self.model.len() as u64 {
            self.fail(&format!(
                "the size is {} and should be {}",
                self.file().size(),
                self.model.len()
            ));
        }
        if self.log.len() > 4 * SHOWN {
            self.log.drain(..2 * SHOWN);
        }
    }
}

fn check(spec: ImageSpec, block: u64, fallocate: bool) {
    run(spec, block, fallocate, false);
}

fn run(spec: ImageSpec, block: u64, fallocate: bool, switches: bool) {
    if !spec.can_run() {
        return;
    }
    let all = memory::number("EXTERN4_FSX", 3000);
    let part = 20_000;
    // Parts, with a volume each: the kernel and e2fsck look at every one of them.
    for at in 0..all.div_ceil(part) {
        let mut fsx = Fsx::new(&spec, block, switches, at + 1);
        for _ in 0..part.min(all - at * part) {
            fsx.step(fallocate);
        }
        fsx.reopen_volume();
        fsx.read(0, MOST);
        fsx.file = None;
        fsx.session = None;
        fsx.fs.close().expect("close");
        let image = spec.build();
        memory::judge_in(&format!("{} part {at}", spec.name), &fsx.device, &image);
        let read =
            std::fs::read(image.mount("ro,noload").path.join("file")).expect("the kernel reads it");
        assert!(
            read == fsx.model,
            "{} part {at}: the kernel reads something else",
            spec.name
        );
    }
}

#[test]
fn ext2_with_small_blocks() {
    check(
        ImageSpec::new("fsx-ext2-1k", 4 << 20, &["-t", "ext2", "-b", "1024"]),
        1024,
        false,
    );
}

#[test]
fn ext2_with_large_blocks() {
    check(
        ImageSpec::new("fsx-ext2-4k", 8 << 20, &["-t", "ext2", "-b", "4096"]),
        4096,
        false,
    );
}

#[test]
fn ext3_with_small_blocks() {
    check(
        ImageSpec::new(
            "fsx-ext3-1k",
            8 << 20,
            &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        ),
        1024,
        false,
    );
}

#[test]
fn ext3_with_large_blocks() {
    check(
        ImageSpec::new(
            "fsx-ext3-4k",
            16 << 20,
            &["-t", "ext3", "-b", "4096", "-J", "size=4"],
        ),
        4096,
        false,
    );
}

#[test]
fn ext4_with_small_blocks() {
    check(
        ImageSpec::new(
            "fsx-ext4-1k",
            8 << 20,
            &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        ),
        1024,
        true,
    );
}

#[test]
fn ext4_with_large_blocks() {
    check(
        ImageSpec::new(
            "fsx-ext4-4k",
            16 << 20,
            &["-t", "ext4", "-b", "4096", "-J", "size=4"],
        ),
        4096,
        true,
    );
}

#[test]
fn ext3_with_contents_in_the_journal() {
    let spec = ImageSpec::new(
        "fsx-ext3-data",
        8 << 20,
        &["-t", "ext3", "-b", "1024", "-J", "size=1"],
    );
    check(spec.then(LOG_CONTENTS), 1024, false);
}

#[test]
fn ext4_with_contents_in_the_journal() {
    let spec = ImageSpec::new(
        "fsx-ext4-data",
        16 << 20,
        &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    );
    check(spec.then(LOG_CONTENTS), 4096, true);
}

#[test]
fn ext4_with_contents_in_the_journal_and_past_it() {
    let small = &["-t", "ext4", "-b", "1024", "-J", "size=1"];
    run(
        ImageSpec::new("fsx-ext4-flag", 8 << 20, small),
        1024,
        true,
        true,
    );
    let inline = &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-J",
        "size=4",
        "-O",
        "inline_data",
    ];
    run(
        ImageSpec::new("fsx-inline-flag", 16 << 20, inline),
        4096,
        true,
        true,
    );
}
