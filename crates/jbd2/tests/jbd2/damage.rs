//! Tests of journals that debugfs wrote and the test damages. This crate recovers the blocks that
//! the kernel recovers. It reports damage where the kernel refuses to mount the volume.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use extern4_disk::journal::{Descriptor, Tag, TagFlags};
use extern4_jbd2::{Error, JournalMap};
use extern4_testkit::image::{Image, ImageSpec};

use crate::oracle;

const BLOCK: usize = 4096;
/// The block that the first transaction writes; the others write the blocks behind it.
const TARGET: u64 = 5000;

/// The kinds of checksums: features of the volume, and options of debugfs' `journal_open`.
const KINDS: [(&str, &str, &str); 5] = [
    ("none", "^metadata_csum,64bit", ""),
    ("v1", "^metadata_csum,64bit", "-c"),
    ("v2", "metadata_csum,64bit", "-c -v 2"),
    ("v2_narrow", "metadata_csum,^64bit", "-c -v 2"),
    ("v3", "metadata_csum,64bit", "-c -v 3"),
];

/// Blocks of the journal: a descriptor, a copy and a commit for each of three transactions.
const DESCRIPTOR: [u32; 3] = [1, 4, 7];
const COPY: [u32; 3] = [2, 5, 8];
const COMMIT: [u32; 3] = [3, 6, 9];

fn image(features: &'static str, options: &str) -> Image {
    let words = ["-t", "ext4", "-b", "4096", "-O", features];
    let image = ImageSpec::new("damage", 32 << 20, Box::leak(Box::new(words))).build();
    let mut script = format!("journal_open {options}\n");
    for (at, byte) in (TARGET..).zip(*b"ABC") {
        let source = image.scratch().join(at.to_string());
        std::fs::write(&source, vec![byte; BLOCK]).expect("a file");
        script.push_str(&format!("journal_write -b {at} {}\n", source.display()));
    }
    script.push_str("journal_close\n");
    image.debugfs(&script);
    image
}

/// A change to one byte of a block of the journal.
type Flip = (u32, usize);

fn flip(image: &Path, map: &JournalMap, (index, offset): Flip) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(image)
        .expect("an image");
    let block = map.lookup(index).expect("mapped");
    let at = block * BLOCK as u64 + offset as u64;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("readable");
    file.write_all_at(&[byte[0] ^ 1], at).expect("writable");
}

/// Returns the contents of the three blocks: a letter each, `?` if the bytes of a block differ, `.`
/// for zeroes.
fn letters(read: impl Fn(u64, &mut [u8])) -> String {
    let letter = |at: u64| {
        let mut block = vec![0; BLOCK];
        read(at, &mut block);
        match block[0] {
            first if block.iter().any(|byte| *byte != first) => '?',
            0 => '.',
            first => char::from(first),
        }
    };
    (TARGET..TARGET + 3).map(letter).collect()
}

/// Returns the contents that this crate recovers, and whether it would go on.
fn ours(image: &Path) -> (String, bool) {
    let (superblock, journal) = oracle::open(image);
    let recovered = journal.and_then(|journal| journal.recover(oracle::volume_blocks(&superblock)));
    match recovered {
        Ok(recovered) => {
            let found = letters(|block, buf| assert!(recovered.read(block, buf).is_ok()));
            (found, recovered.damage().is_empty())
        }
        Err(Error::Corrupt(_)) => ("...".into(), false),
        Err(other) => panic!("{other}"),
    }
}

/// Returns the contents that the kernel recovers, and whether it goes on.
fn kernel(image: &Image) -> (String, bool) {
    let copy = image.copy();
    let mounted = copy
        .try_mount("noatime")
        .map(extern4_testkit::image::Mount::unmount);
    let file = File::open(&copy.path).expect("an image");
    let read = |block: u64, buf: &mut [u8]| {
        file.read_exact_at(buf, block * BLOCK as u64)
            .expect("readable")
    };
    (letters(read), mounted.is_ok())
}

#[test]
fn damaged_logs_are_recovered_as_the_kernel_does() {
    if !ImageSpec::new("damage", 0, &[]).can_run() {
        return;
    }
    let mut cases: Vec<Vec<Flip>> = vec![vec![]];
    for transaction in 0..3 {
        for flip in [
            (DESCRIPTOR[transaction], 2000),
            (DESCRIPTOR[transaction], 4095),
            (COPY[transaction], 100),
            (COMMIT[transaction], 17),
            (COMMIT[transaction], 70),
            (COMMIT[transaction], 4000),
            (COMMIT[transaction], 0),
            (DESCRIPTOR[transaction], 11),
        ] {
            cases.push(vec![flip]);
        }
        // A transaction without a commit, first with a wrong descriptor, then with a wrong copy.
        cases.push(vec![
            (DESCRIPTOR[transaction], 2000),
            (COMMIT[transaction], 0),
        ]);
        cases.push(vec![(COPY[transaction], 100), (COMMIT[transaction], 0)]);
    }
    for (kind, features, options) in KINDS {
        let sound = image(features, options);
        let map = oracle::map(&sound.path);
        assert_eq!(ours(&sound.path), ("ABC".into(), true), "{kind}");
        for case in &cases {
            let damaged = sound.copy();
            case.iter()
                .for_each(|change| flip(&damaged.path, &map, *change));
            assert_eq!(
                ours(&damaged.path),
                kernel(&damaged),
                "{kind} with {case:?}"
            );
        }
    }
}

/// A transaction without a commit fills the rest of the ring, and its last descriptor claims more
/// copies than there are blocks left.
#[test]
fn a_log_that_bites_its_tail_is_recovered_as_the_kernel_does() {
    if !ImageSpec::new("damage", 0, &[]).can_run() {
        return;
    }
    for (kind, features, options) in KINDS {
        let image = image(features, options);
        let map = oracle::map(&image.path);
        let journal = oracle::open(&image.path).1.expect("a journal");
        let format = journal.superblock().format();
        let first = journal.superblock().sequence;
        let file = OpenOptions::new()
            .write(true)
            .open(&image.path)
            .expect("an image");
        for (at, count) in [(7, 200), (208, 200), (409, 200), (610, 200), (811, 250)] {
            let tag = |at: u64| Tag {
                block: TARGET + 10 + at,
                flags: if at == 0 {
                    TagFlags::empty()
                } else {
                    TagFlags::SAME_UUID
                } | if at + 1 == count {
                    TagFlags::LAST
                } else {
                    TagFlags::empty()
                },
                checksum: 0,
                uuid: (at == 0).then_some(journal.superblock().uuid),
            };
            let descriptor = Descriptor {
                tid: first.next().next(),
                tags: (0..count).map(tag).collect(),
            };
            let bytes = descriptor.encode(&format).expect("it fits");
            let block = map.lookup(at).expect("mapped");
            file.write_all_at(&bytes, block * BLOCK as u64)
                .expect("writable");
        }
        assert_eq!(journal.superblock().log(), 1..1024, "{kind}");
        let found = ours(&image.path);
        assert_eq!(found, kernel(&image), "{kind}");
        assert_eq!(found, ("AB.".into(), true), "{kind}");
    }
}

#[test]
fn a_broken_superblock_of_the_journal_is_refused_as_the_kernel_does() {
    if !ImageSpec::new("damage", 0, &[]).can_run() {
        return;
    }
    let (_, features, options) = KINDS[0];
    let sound = image(features, options);
    let map = oracle::map(&sound.path);
    // Bytes of the magic number, kind, block size, length, first block, start, and the three sets
    // of features.
    for offset in [0, 7, 14, 18, 23, 28, 31, 42, 46, 38] {
        let damaged = sound.copy();
        flip(&damaged.path, &map, (0, offset));
        let (superblock, journal) = oracle::open(&damaged.path);
        let opened =
            journal.and_then(|journal| journal.recover(oracle::volume_blocks(&superblock)));
        let mounted = damaged.copy().try_mount("noatime").is_ok();
        assert_eq!(
            opened.is_ok(),
            mounted,
            "byte {offset}: {:?}",
            opened.map(drop)
        );
    }
}
