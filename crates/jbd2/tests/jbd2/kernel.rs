//! Journals that the kernel left dirty: what we recover is what e2fsck replays.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use extern4_block::{BlockDevice, FileDevice};
use extern4_disk::journal::{JournalSuperblock, MAGIC};
use extern4_jbd2::{Error, Recovered, Replayed, ReplayedDevice};
use extern4_testkit::crash::{self, CrashSpec};
use extern4_testkit::tools;

use crate::oracle;

/// Compares the volume seen through its journal to the replayed one, byte by byte, but for the two superblocks that a
/// replay changes by itself; `journal` is where that of the journal begins.
fn assert_same<D: BlockDevice>(name: &str, ours: &ReplayedDevice<D, D>, replayed: &Path, journal: usize) {
    const CHUNK: usize = 1 << 20;
    let ignored = [1024..2048, journal..journal + JournalSuperblock::SIZE];
    let theirs = File::open(replayed).expect("an image");
    let (mut mine, mut other) = (vec![0; CHUNK], vec![0; CHUNK]);
    let size = usize::try_from(ours.size_bytes()).expect("small");
    for start in (0..size).step_by(CHUNK) {
        let len = CHUNK.min(size - start);
        let offset = u64::try_from(start).expect("small");
        ours.read_at(&mut mine[..len], offset).expect("readable");
        theirs.read_exact_at(&mut other[..len], offset).expect("readable");
        if mine[..len] == other[..len] {
            continue;
        }
        let matters = |at: &usize| !ignored.iter().any(|range| range.contains(&(start + at)));
        if let Some(at) = (0..len).filter(|&at| mine[at] != other[at]).find(matters) {
            panic!("{name}: byte {} is {:#x}, with e2fsck {:#x}", start + at, mine[at], other[at]);
        }
    }
}

/// Replays the journal of the image with e2fsck, nothing else.
fn replay(image: &Path) {
    let words = ["-y", "-E", "journal_only"].map(OsString::from);
    // The exit status says that the volume was changed; that it was is what is compared.
    let _ = tools::try_run("e2fsck", words.into_iter().chain([image.into()]));
}

fn recover(spec: &CrashSpec, image: &Path) -> (usize, Recovered<FileDevice>) {
    let (superblock, journal) = oracle::open(image);
    let journal = journal.expect("a sound journal");
    assert!(journal.is_dirty(), "{}: the journal is clean", spec.name);
    let recovered = journal.recover(oracle::volume_blocks(&superblock)).expect("a sound log");
    assert_eq!(recovered.damage(), [], "{}", spec.name);
    (oracle::block_size(&superblock), recovered)
}

/// Recovers a crashed image and compares it to what e2fsck makes of it. Returns what was found, and how many blocks
/// begin with the journal's magic number.
fn check(spec: &CrashSpec) -> (Replayed, usize) {
    let image = spec.build();
    let (block_size, recovered) = recover(spec, &image.path);
    let mut escaped = 0;
    recovered
        .replay(|_, contents| {
            escaped += usize::from(contents.starts_with(&MAGIC.to_be_bytes()));
            Ok::<_, Error>(())
        })
        .expect("readable");
    let replayed = recovered.replayed();
    println!("{}: {replayed:?}, {escaped} escaped", spec.name);
    // Fast commits change more than the blocks of the log, and e2fsck deletes orphans even when told not to.
    if replayed.fast_commits == 0 && !spec.name.contains("orphan") {
        let copy = image.copy();
        replay(&copy.path);
        let journal = oracle::map(&image.path).lookup(0).expect("mapped");
        let journal = usize::try_from(journal).expect("small") * block_size;
        let ours = ReplayedDevice::new(FileDevice::open(&image.path).expect("an image"), recovered);
        assert_same(spec.name, &ours, &copy.path, journal);
    }
    (replayed, escaped)
}

/// Every image whose name `wanted` accepts.
fn check_all(wanted: impl Fn(&str) -> bool) -> Vec<(Replayed, usize)> {
    let wanted = |spec: &&CrashSpec| wanted(spec.name) && spec.can_run();
    crash::SPECS.iter().filter(wanted).map(check).collect()
}

fn is_special(name: &str) -> bool {
    ["wrapped", "revokes", "escapes", "fast_commit"].iter().any(|word| name.contains(word))
}

#[test]
fn crashed_volumes_are_replayed_as_e2fsck_does() {
    for (replayed, _) in check_all(|name| !is_special(name)) {
        assert!(replayed.transactions > 0 && replayed.blocks > 0, "{replayed:?}");
    }
}

#[test]
fn wrapped_logs_are_replayed_as_e2fsck_does() {
    for (replayed, _) in check_all(|name| name.contains("wrapped")) {
        assert!(replayed.transactions > 0, "{replayed:?}");
    }
}

#[test]
fn revoked_blocks_are_left_alone_as_e2fsck_does() {
    let found = check_all(|name| name.contains("revokes"));
    // Data in the journal lets the kernel checkpoint what it would otherwise revoke, so not every image has some.
    assert!(found.is_empty() || found.iter().any(|(replayed, _)| replayed.revokes > 0), "{found:?}");
}

#[test]
fn escaped_blocks_are_restored_as_e2fsck_does() {
    for (replayed, escaped) in check_all(|name| name.contains("escapes")) {
        assert!(escaped > 0, "{replayed:?}");
    }
}

#[test]
fn volumes_with_fast_commits_are_replayed() {
    for (replayed, _) in check_all(|name| name.contains("fast_commit")) {
        assert!(replayed.transactions + replayed.fast_commits > 0, "{replayed:?}");
    }
}
