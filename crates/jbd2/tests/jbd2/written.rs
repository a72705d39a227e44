//! Tests of logs that this crate writes on volumes that mke2fs makes, replayed by e2fsck and by the
//! kernel.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extern4_block::{
    BlockDevice, BufferCache, CacheBudget, CacheOptions, FileDevice, MemoryDevice, RecordDevice,
};
use extern4_disk::journal::{ChecksumVersion, Compat, Incompat, JournalSuperblock};
use extern4_disk::{Place, Structure};
use extern4_jbd2::{Error, Journal, JournalMap, Options, ReplayedDevice, Transactions};
use extern4_testkit::tools::{self, LoopDevice, Need};
use zerocopy::IntoBytes;

use crate::hostile::Random;
use crate::kernel::{assert_same, replay};
use crate::oracle;
use crate::world::{Freed, PATIENT};

/// A volume to be written.
struct Volume {
    _dir: tempfile::TempDir,
    path: PathBuf,
    block_size: usize,
    map: JournalMap,
    /// Blocks that the volume does not use.
    free: Vec<u64>,
}

fn run(tool: &str, words: &[&str], image: &Path) -> String {
    let words = words.iter().map(OsString::from).chain([image.into()]);
    String::from_utf8_lossy(&tools::run(tool, words)).into_owned()
}

impl Volume {
    /// Makes a volume with mke2fs, and marks it as one that needs recovery.
    fn new(words: &[&str]) -> Self {
        let dir = tools::temporary("extern4-");
        let path = dir.path().join("volume.img");
        let file = std::fs::File::create(&path).expect("an image");
        file.set_len(48 << 20).expect("a sparse image");
        run("mke2fs", &[&["-q", "-F"], words].concat(), &path);
        Self::at(dir, path, true)
    }

    fn at(dir: tempfile::TempDir, path: PathBuf, internal: bool) -> Self {
        tools::run(
            "debugfs",
            [
                "-w".into(),
                "-R".into(),
                "feature needs_recovery".into(),
                OsString::from(&path),
            ],
        );
        let superblock = oracle::superblock(&FileDevice::open(&path).expect("an image"));
        let said = oracle::debugfs(&path, "ffb 200");
        let free = said
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let map = if internal {
            oracle::map(&path)
        } else {
            JournalMap::identity(0)
        };
        Self {
            _dir: dir,
            path,
            block_size: oracle::block_size(&superblock),
            map,
            free,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).expect("an image")
    }

    fn journal_offset(&self) -> usize {
        usize::try_from(self.map.lookup(0).expect("mapped")).expect("small") * self.block_size
    }

    /// Changes the features of the journal, which is empty.
    fn set_features(&self, bytes: &mut [u8], checksum: ChecksumVersion, others: Incompat) {
        let at = self.journal_offset();
        let place = Place::new(Structure::JournalSuperblock);
        let mut superblock = JournalSuperblock::decode(&bytes[at..], place).expect("sound");
        superblock
            .compat
            .set(Compat::CHECKSUM, checksum == ChecksumVersion::V1);
        superblock
            .incompat
            .set(Incompat::CSUM_V2, checksum == ChecksumVersion::V2);
        superblock
            .incompat
            .set(Incompat::CSUM_V3, checksum == ChecksumVersion::V3);
        superblock.incompat |= others;
        let mut raw = superblock.encode();
        raw.s_checksum_type = if superblock.format().checksums_blocks() {
            4
        } else {
            0
        };
        bytes[at..at + JournalSuperblock::SIZE].copy_from_slice(raw.as_bytes());
        // A second time, for the checksum that covers the field.
        let bytes = &mut bytes[at..at + JournalSuperblock::SIZE];
        let summed = summed(bytes);
        bytes.copy_from_slice(&summed);
    }
}

/// Returns the superblock with the checksum that its other fields need.
fn summed(bytes: &[u8]) -> Vec<u8> {
    const CHECKSUM: usize = 0xFC;
    let mut bytes = bytes.to_vec();
    bytes[CHECKSUM..CHECKSUM + 4].fill(0);
    let checksum = extern4_disk::checksum::crc32c(!0, &bytes);
    bytes[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn cache(device: Arc<dyn BlockDevice>, block_size: usize) -> Arc<BufferCache> {
    let block_size = u32::try_from(block_size).expect("small");
    let block_count = device.size_bytes() / u64::from(block_size);
    Arc::new(
        BufferCache::new(
            device,
            CacheOptions {
                block_size,
                block_count,
                budget: CacheBudget::new(0),
            },
        )
        .expect("a cache"),
    )
}

/// Changes, frees and reuses blocks in many transactions, the last of which is not committed.
fn work(transactions: &Transactions, cache: &BufferCache, free: &[u64], rounds: u64) {
    let mut random = Random(rounds * 77 + 1);
    for round in 0..rounds {
        for _ in 0..random.next() % 5 + 1 {
            let handle = transactions.start(40).expect("open");
            for _ in 0..random.next() % 40 {
                // A few are never revoked, so that some copies of every block count.
                let at = usize::try_from(random.next()).unwrap_or(0) % free.len();
                if random.next().is_multiple_of(8) && at > 20 {
                    handle.revoke(free[at]..free[at] + 1);
                    continue;
                }
                let mut buffer = cache.read(free[at]).expect("readable");
                let byte = random.next().to_le_bytes()[0];
                handle.change(&mut buffer, |bytes, _| {
                    bytes.fill(byte);
                    if byte.is_multiple_of(4) {
                        bytes[..4].copy_from_slice(&extern4_disk::journal::MAGIC.to_be_bytes());
                    }
                });
            }
        }
        if round + 1 < rounds {
            transactions.sync().expect("written");
        }
    }
}

const COMMON: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

/// Writes a volume, leaves it as a crash would, and compares the result of e2fsck to this crate's.
fn check(name: &str, words: &[&str], checksum: ChecksumVersion, others: Incompat, rounds: u64) {
    let volume = Volume::new(words);
    let mut bytes = volume.bytes();
    volume.set_features(&mut bytes, checksum, others);
    let before = bytes.clone();
    let device = Arc::new(MemoryDevice::new(bytes));
    let open = |device: Arc<dyn BlockDevice>| {
        Journal::internal(
            device,
            u32::try_from(volume.block_size).expect("small"),
            volume.map.clone(),
        )
        .expect("sound")
    };
    let journal = open(Arc::clone(&device) as _);
    let area = journal.superblock().fast_commits();
    let cache = cache(Arc::clone(&device) as _, volume.block_size);
    let transactions = Transactions::journaled(
        Arc::clone(&cache),
        Arc::<Freed>::default(),
        journal,
        PATIENT,
    )
    .expect("empty");
    work(&transactions, &cache, &volume.free, rounds);
    let stats = transactions.stats();
    drop((transactions, cache));
    let bytes = Arc::into_inner(device)
        .expect("the last reference")
        .into_bytes();
    for index in area {
        let at = usize::try_from(volume.map.lookup(index).expect("mapped")).expect("small")
            * volume.block_size;
        assert!(
            bytes[at..at + volume.block_size] == before[at..at + volume.block_size],
            "a fast commit block"
        );
    }
    std::fs::write(&volume.path, &bytes).expect("an image");
    let dump = oracle::debugfs(&volume.path, "logdump");
    assert!(dump.contains("Found expected sequence"), "{dump}");

    let recovered = open(Arc::new(MemoryDevice::new(bytes.clone())))
        .recover(1 << 32)
        .expect("sound");
    assert_eq!(recovered.damage(), []);
    println!("{name}: {stats:?}, {:?}", recovered.replayed());
    assert!(recovered.replayed().transactions > 0 && stats.revokes > 0);
    let ours = ReplayedDevice::new(
        Arc::new(MemoryDevice::new(bytes.clone())) as Arc<dyn BlockDevice>,
        recovered,
    );
    let theirs = volume.path.with_extension("replayed");
    std::fs::write(&theirs, &bytes).expect("an image");
    replay(&theirs);
    assert_same(name, &ours, &theirs, volume.journal_offset());
    run("e2fsck", &["-fn"], &theirs);

    // This crate replays the journal in place; then the journal and the volume are clean.
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes.clone()));
    let recovered = open(Arc::clone(&device)).recover(1 << 32).expect("sound");
    recovered.write_in_place(&device).expect("written");
    recovered.mark_empty(0).expect("marked");
    let mut replayed = vec![0; bytes.len()];
    device.read_at(&mut replayed, 0).expect("readable");
    std::fs::write(&theirs, &replayed).expect("an image");
    run("e2fsck", &["-fn"], &theirs);
    if tools::can_run(&[Need::Mount]) {
        check_kernel(name, &volume, &replayed);
    }
}

/// Lets the kernel replay the volume, and compares the written blocks to `ours`.
fn check_kernel(name: &str, volume: &Volume, ours: &[u8]) {
    let point = tools::temporary("extern4-mnt-");
    tools::run(
        "mount",
        [
            "-o".into(),
            "loop".into(),
            OsString::from(&volume.path),
            point.path().into(),
        ],
    );
    tools::unmount(point.path());
    let theirs = volume.bytes();
    for block in &volume.free {
        let at = usize::try_from(*block).expect("small") * volume.block_size;
        let range = at..at + volume.block_size;
        assert!(
            ours[range.clone()] == theirs[range],
            "{name}: block {block} differs from the kernel's"
        );
    }
}

#[test]
fn e2fsck_and_the_kernel_replay_our_log() {
    if !tools::can_run(COMMON) {
        return;
    }
    use ChecksumVersion::{None, V1, V2, V3};
    let small = &["-t", "ext4", "-b", "1024", "-J", "size=1"][..];
    let wide = Incompat::BIT64;
    check("1k", small, None, Incompat::empty(), 12);
    check("1k wrapped", small, None, wide, 80);
    check("1k v1", small, V1, Incompat::empty(), 60);
    check("1k v2", small, V2, wide, 80);
    check("1k v3", small, V3, wide, 80);
    check(
        "1k v3 narrow",
        &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        V3,
        Incompat::empty(),
        20,
    );
    check(
        "4k v3",
        &["-t", "ext4", "-b", "4096", "-J", "size=4"],
        V3,
        wide,
        60,
    );
    check(
        "ext3",
        &["-t", "ext3", "-b", "4096", "-J", "size=4"],
        None,
        Incompat::empty(),
        60,
    );
}

#[test]
fn a_journal_with_fast_commits_keeps_their_area() {
    if !tools::can_run(COMMON) {
        return;
    }
    let words = [
        "-t",
        "ext4",
        "-O",
        "fast_commit",
        "-b",
        "1024",
        "-J",
        "size=4",
    ];
    check(
        "fast_commit",
        &words,
        ChecksumVersion::V3,
        Incompat::BIT64 | Incompat::FAST_COMMIT,
        150,
    );
}

#[test]
fn fast_commits_are_not_dropped_by_mistake() {
    let spec = extern4_testkit::crash::spec("fast_commit");
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let bytes = std::fs::read(&image.path).expect("an image");
    let size = oracle::block_size(&oracle::superblock(&MemoryDevice::new(bytes.clone())));
    let map = oracle::map(&image.path);
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes));
    let open = || {
        let size = u32::try_from(size).expect("small");
        Journal::internal(Arc::clone(&device), size, map.clone()).expect("sound")
    };
    let recovered = open().recover(1 << 32).expect("sound");
    let commits = recovered.replayed().fast_commits;
    let due = recovered.fast_commits().tid;
    assert!(commits > 0);
    recovered.write_in_place(&device).expect("written");
    assert!(matches!(recovered.mark_empty(0), Err(Error::FastCommits(n)) if n == commits));
    let recovered = open().recover(1 << 32).expect("still there");
    assert_eq!(recovered.replayed().fast_commits, commits);
    let mut journal = recovered.mark_empty(commits).expect("marked");
    assert_eq!(
        (journal.superblock().sequence, journal.is_dirty()),
        (due.next(), false)
    );
    journal.clear_error().expect("written");
    assert_eq!(
        (open().superblock().sequence, open().superblock().errno),
        (due.next(), 0)
    );
}

#[test]
fn an_external_journal_is_written_in_two_flushes_and_replayed_by_e2fsck() {
    if !tools::can_run(COMMON) || !tools::can_run(&[Need::Mount, Need::Tool("losetup")]) {
        return;
    }
    for block_size in ["1024", "4096"] {
        let dir = tools::temporary("extern4-");
        let journal_path = dir.path().join("journal.img");
        let path = dir.path().join("volume.img");
        let words = |rest: &[&str], image: &Path, size: &str| -> Vec<OsString> {
            let all = ["-q", "-F", "-b", block_size]
                .into_iter()
                .chain(rest.iter().copied())
                .map(OsString::from);
            all.chain([image.into(), size.into()]).collect()
        };
        tools::run(
            "mke2fs",
            words(&["-O", "journal_dev"], &journal_path, "16M"),
        );
        let attached = LoopDevice::attach(&journal_path);
        let device = format!("device={}", attached.path.display());
        tools::run(
            "mke2fs",
            words(&["-t", "ext4", "-J", &device], &path, "32M"),
        );
        drop(attached);
        let volume = Volume::at(dir, path, false);
        let uuid = oracle::superblock(&FileDevice::open(&volume.path).expect("an image"))
            .raw()
            .s_journal_uuid;
        let size = u32::try_from(volume.block_size).expect("small");
        let memory =
            |path: &Path| Arc::new(MemoryDevice::new(std::fs::read(path).expect("an image")));
        let home = memory(&volume.path);
        let log = memory(&journal_path);
        let record =
            |device: &Arc<MemoryDevice>| Arc::new(RecordDevice::new(Arc::clone(device) as _));
        let home_record = record(&home);
        let log_record = record(&log);
        let journal = Journal::external(Arc::clone(&log_record), size, &uuid).expect("a journal");
        let cache = cache(Arc::clone(&home_record) as _, volume.block_size);
        let transactions = Transactions::journaled(
            Arc::clone(&cache),
            Arc::<Freed>::default(),
            journal,
            Options::default(),
        )
        .expect("empty");
        work(&transactions, &cache, &volume.free, 20);
        let stats = transactions.stats();
        assert_eq!(stats.checkpoints, 0);
        let flushes = (home_record.counts().flushes, log_record.counts().flushes);
        assert_eq!(flushes, (stats.transactions, 2 * stats.transactions));
        drop((transactions, cache, home_record, log_record));
        let save = |device: Arc<MemoryDevice>, path: &Path| {
            std::fs::write(
                path,
                Arc::into_inner(device)
                    .expect("the last reference")
                    .into_bytes(),
            )
            .expect("an image");
        };
        save(home, &volume.path);
        save(log, &journal_path);
        let open = || Journal::external(memory(&journal_path), size, &uuid).expect("a journal");
        let recovered = open().recover(1 << 32).expect("sound");
        assert!(recovered.replayed().transactions > 10 && recovered.damage().is_empty());
        let ours = ReplayedDevice::new(memory(&volume.path), recovered);
        let theirs = volume.path.with_extension("replayed");
        std::fs::copy(&volume.path, &theirs).expect("copied");
        let words: [OsString; 5] = [
            "-y".into(),
            "-E".into(),
            "journal_only".into(),
            "-j".into(),
            journal_path.clone().into(),
        ];
        let _ = tools::try_run("e2fsck", words.into_iter().chain([theirs.clone().into()]));
        assert_same(block_size, &ours, &theirs, 1024);
    }
}
