//! Files that grow alternately, in small steps.
//!
//! Each must be in few runs, and other files must get the blocks that are kept free ahead of it
//! when the volume is nearly full.

use extern4_testkit::image::ImageSpec;
use extern4_vfs::*;

use crate::memory::Volume;
use crate::model::open;

/// The bytes by which a file grows, and its final size.
const STEP: usize = 4 << 10;
const SIZE: u64 = 8 << 20;
/// The most pieces that a file may have on the device.
const MOST: usize = 12;

/// A new volume of `mib` MiB.
fn volume(what: &'static str, mib: u64, mke2fs: &'static [&'static str]) -> Option<Volume> {
    Volume::new(&ImageSpec::new(what, mib << 20, mke2fs))
}

impl Volume {
    fn create(&self, name: &str) -> OpenFile {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        open(&self.session, &format!("/{name}"), flags, 0o644).expect("the file opens")
    }

    fn create_all(&self, count: usize) -> Vec<OpenFile> {
        (0..count)
            .map(|at| self.create(&format!("f{at}")))
            .collect()
    }
}

/// The contents of block `block` of file `at`.
fn contents(at: usize, block: u64) -> Vec<u8> {
    let seed = (at as u64).wrapping_mul(0x9e37_79b9).wrapping_add(block);
    (0..STEP as u64)
        .map(|byte| (seed ^ (byte / 8)) as u8)
        .collect()
}

fn grow(file: &OpenFile, at: usize) {
    let size = file.size();
    let written = file
        .write_at(&contents(at, size / STEP as u64), size)
        .expect("there is room");
    assert_eq!(written, STEP);
}

fn assert_contents(file: &OpenFile, at: usize) {
    let mut bytes = vec![0; STEP];
    for block in 0..file.size() / STEP as u64 {
        file.read_at(&mut bytes, block * STEP as u64)
            .expect("it is read");
        assert!(bytes == contents(at, block), "block {block} of file {at}");
    }
}

/// Returns how many pieces a file has on the device.
fn pieces(file: &OpenFile) -> usize {
    let mut at = 0;
    let mut end = 0;
    let mut pieces = 0;
    while let Some(span) = file.span_at(at).expect("the map is read") {
        if let SpanKind::Mapped { device_offset } = span.kind {
            pieces += usize::from(device_offset != end);
            end = device_offset + span.len;
        }
        at += span.len;
    }
    pieces
}

fn assert_few_pieces(what: &str, files: &[OpenFile]) {
    let all: Vec<usize> = files.iter().map(pieces).collect();
    assert!(
        all.iter().all(|pieces| *pieces <= MOST),
        "{what}: {all:?} pieces"
    );
}

/// Files that grow in turn, in one thread and in one thread each.
fn grow_by_turns(what: &'static str, mke2fs: &'static [&'static str]) {
    let mib = |count: usize| 64 + 12 * count as u64;
    for count in [2, 8, 32] {
        let Some(volume) = volume(what, mib(count), mke2fs) else {
            return;
        };
        let files = volume.create_all(count);
        for _ in 0..SIZE / STEP as u64 {
            files
                .iter()
                .enumerate()
                .for_each(|(at, file)| grow(file, at));
        }
        files
            .iter()
            .enumerate()
            .for_each(|(at, file)| assert_contents(file, at));
        assert_few_pieces(&format!("{what}, {count} files"), &files);
        drop(files);
        volume.close();
    }
    for count in [2, 8] {
        let Some(volume) = volume(what, mib(count), mke2fs) else {
            return;
        };
        let files = volume.create_all(count);
        std::thread::scope(|scope| {
            for (at, file) in files.iter().enumerate() {
                scope.spawn(move || (0..SIZE / STEP as u64).for_each(|_| grow(file, at)));
            }
        });
        files
            .iter()
            .enumerate()
            .for_each(|(at, file)| assert_contents(file, at));
        assert_few_pieces(&format!("{what}, {count} threads"), &files);
        drop(files);
        volume.close();
    }
}

#[test]
fn files_with_extents_that_grow_alternately_stand_in_few_pieces() {
    grow_by_turns("windows-ext4", &["-t", "ext4", "-b", "4096"]);
}

#[test]
fn files_with_indirect_blocks_that_grow_alternately_stand_in_few_pieces() {
    grow_by_turns("windows-ext3", &["-t", "ext3", "-b", "4096"]);
}

/// Groups of 8 MiB, so that no window can be as large as it could be elsewhere.
#[test]
fn files_that_grow_alternately_in_small_groups_stand_in_few_pieces() {
    let Some(volume) = volume("windows-1k", 160, &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let files = volume.create_all(4);
    for _ in 0..SIZE / STEP as u64 {
        files
            .iter()
            .enumerate()
            .for_each(|(at, file)| grow(file, at));
    }
    let all: Vec<usize> = files.iter().map(pieces).collect();
    assert!(all.iter().all(|pieces| *pieces <= 24), "{all:?} pieces");
    drop(files);
    volume.close();
}

#[test]
fn small_files_stand_next_to_each_other() {
    let Some(volume) = volume("windows-small", 64, &["-t", "ext4", "-b", "4096"]) else {
        return;
    };
    let files = volume.create_all(100);
    files
        .iter()
        .enumerate()
        .for_each(|(at, file)| grow(file, at));
    let start = |file: &OpenFile| match file
        .span_at(0)
        .expect("the map is read")
        .expect("a block")
        .kind
    {
        SpanKind::Mapped { device_offset } => device_offset,
        other => panic!("{other:?}"),
    };
    let starts: Vec<u64> = files.iter().map(start).collect();
    assert!(
        starts
            .windows(2)
            .all(|pair| pair[1] == pair[0] + STEP as u64),
        "{starts:?}"
    );
    drop(files);
    volume.close();
}

/// Every block is handed out, though windows are open, and then `ENOSPC` is the answer. Freed
/// blocks can be taken again.
#[test]
fn windows_are_broken_when_blocks_run_short() {
    let kinds: [(_, &[_]); 2] = [
        (
            "windows-full-ext4",
            &["-t", "ext4", "-b", "4096", "-m", "0"],
        ),
        (
            "windows-full-ext2",
            &["-t", "ext2", "-b", "4096", "-m", "0"],
        ),
    ];
    for (what, mke2fs) in kinds {
        let Some(volume) = volume(what, 40, mke2fs) else {
            return;
        };
        let files = volume.create_all(5);
        for _ in 0..100 {
            files
                .iter()
                .enumerate()
                .for_each(|(at, file)| grow(file, at));
        }
        volume.sync();
        let free = volume.free();
        // The windows are open, and one file takes all.
        let big = volume.create("big");
        let block = vec![7; STEP];
        let mut size = 0;
        while let Ok(written) = big.write_at(&block, size) {
            size += written as u64;
        }
        assert_eq!(
            volume.free(),
            0,
            "{free} blocks were free, and {} were taken",
            size / STEP as u64
        );
        let refused = files[0]
            .write_at(&block, files[0].size())
            .expect_err("nothing is free");
        assert_eq!(refused.errno(), Errno::ENOSPC);
        big.set_len(size - 3 * STEP as u64).expect("it is cut");
        volume.sync();
        assert_eq!(volume.free(), 3);
        // These take the places of blocks that were removed, so the map needs no new block.
        big.write_at(&[7; 3 * STEP], size - 3 * STEP as u64)
            .expect("there is room for these");
        assert_eq!(volume.free(), 0);
        files
            .iter()
            .enumerate()
            .for_each(|(at, file)| assert_contents(file, at));
        drop((files, big));
        volume.session.unlink("/big").expect("it goes");
        volume.sync();
        assert!(
            volume.free() + 8 > free,
            "{} blocks are free of {free}",
            volume.free()
        );
        volume.close();
    }
}

/// Blocks ahead of a file count as free, and are anybody's once the file is closed, cut or gone.
#[test]
fn windows_end_with_the_file() {
    type End = fn(&Volume, OpenFile) -> Option<OpenFile>;
    let ends: [(&str, End); 4] = [
        ("closed", |_, _| None),
        ("cut", |_, file| {
            file.set_len(2 * STEP as u64).expect("it is cut");
            Some(file)
        }),
        ("removed", |volume, _| {
            volume.session.unlink("/f").expect("it goes");
            None
        }),
        ("closed by another", |volume, file| {
            let another = volume.create("f");
            another.write_at(b"x", 0).expect("a block that is there");
            Some(file)
        }),
    ];
    for (what, end) in ends {
        let Some(volume) = volume("windows-end", 64, &["-t", "ext4", "-b", "4096"]) else {
            return;
        };
        let other = volume.create("other");
        grow(&other, 1);
        let file = volume.create("f");
        let before = volume.free();
        (0..2).for_each(|_| grow(&file, 0));
        assert_eq!(volume.free(), before - 2, "{what}: a window is not taken");
        let behind = device_end(&file);
        // Not while the window is open.
        grow(&other, 1);
        assert_ne!(
            device_end(&other),
            behind + STEP as u64,
            "{what}: the window is left alone"
        );
        let file = end(&volume, file);
        let small = volume.create("small");
        grow(&small, 2);
        volume.sync();
        let large = volume.create("large");
        large
            .write_at(&vec![1; 16 << 20], 0)
            .expect("there is room");
        assert!(
            holds(&large, behind) || holds(&small, behind),
            "{what}: its blocks are anybody's"
        );
        drop((other, small, large, file));
        volume.close();
    }
}

/// One past the last byte of a file on the device.
fn device_end(file: &OpenFile) -> u64 {
    let span = file
        .span_at(file.size() - 1)
        .expect("the map is read")
        .expect("a block");
    match span.kind {
        SpanKind::Mapped { device_offset } => device_offset + span.len,
        other => panic!("{other:?}"),
    }
}

/// Whether byte `offset` of the device is the file's.
fn holds(file: &OpenFile, offset: u64) -> bool {
    let mut at = 0;
    while let Some(span) = file.span_at(at).expect("the map is read") {
        if let SpanKind::Mapped { device_offset } = span.kind
            && (device_offset..device_offset + span.len).contains(&offset)
        {
            return true;
        }
        at += span.len;
    }
    false
}
