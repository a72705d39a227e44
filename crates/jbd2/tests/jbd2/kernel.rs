//! Tests of journals that the kernel left dirty: this crate recovers the blocks that e2fsck
//! replays.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use extern4_block::{BlockDevice, FileDevice};
use extern4_disk::feature::RoCompat;
use extern4_disk::journal::{JournalSuperblock, MAGIC};
use extern4_jbd2::{Error, Journal, Recovered, Replayed, ReplayedDevice};
use extern4_testkit::crash::{self, CrashSpec};
use extern4_testkit::tools::{self, Need};

use crate::oracle;

/// Compares the volume seen through its journal to the replayed one, byte by byte. Leaves out the
/// two superblocks, which a replay itself changes; `journal` is where the journal's begins.
pub(crate) fn assert_same<V: BlockDevice, J: BlockDevice>(
    name: &str,
    ours: &ReplayedDevice<V, J>,
    replayed: &Path,
    journal: usize,
) {
    const CHUNK: usize = 1 << 20;
    let ignored = [1024..2048, journal..journal + JournalSuperblock::SIZE];
    let theirs = File::open(replayed).expect("an image");
    let mut mine = vec![0; CHUNK];
    let mut other = vec![0; CHUNK];
    let size = usize::try_from(ours.size_bytes()).expect("small");
    for start in (0..size).step_by(CHUNK) {
        let len = CHUNK.min(size - start);
        let offset = u64::try_from(start).expect("small");
        ours.read_at(&mut mine[..len], offset).expect("readable");
        theirs
            .read_exact_at(&mut other[..len], offset)
            .expect("readable");
        if mine[..len] == other[..len] {
            continue;
        }
        let matters = |at: &usize| !ignored.iter().any(|range| range.contains(&(start + at)));
        if let Some(at) = (0..len).filter(|&at| mine[at] != other[at]).find(matters) {
            panic!(
                "{name}: byte {} is {:#x}, with e2fsck {:#x}",
                start + at,
                mine[at],
                other[at]
            );
        }
    }
}

/// Replays the journal of the image with e2fsck, and does nothing else.
pub(crate) fn replay(image: &Path) {
    let words = ["-y", "-E", "journal_only"].map(OsString::from);
    // The exit status only says that e2fsck changed the volume; the test compares the change
    // itself.
    let _ = tools::try_run("e2fsck", words.into_iter().chain([image.into()]));
}

fn has_orphans(replayed: &impl BlockDevice) -> bool {
    let superblock = oracle::superblock(replayed);
    superblock.raw().s_last_orphan.get() != 0
        || superblock
            .features()
            .ro_compat
            .contains(RoCompat::ORPHAN_PRESENT)
}

fn recover(spec: &CrashSpec, image: &Path) -> (usize, Recovered<FileDevice>) {
    let (superblock, journal) = oracle::open(image);
    let journal = journal.expect("a sound journal");
    assert!(journal.is_dirty(), "{}: the journal is clean", spec.name);
    let recovered = journal
        .recover(oracle::volume_blocks(&superblock))
        .expect("a sound log");
    assert_eq!(recovered.damage(), [], "{}", spec.name);
    (oracle::block_size(&superblock), recovered)
}

/// Recovers a crashed image and compares it to the result of e2fsck. Returns the counts of the
/// recovery, and how many blocks begin with the journal's magic number.
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
    let ours = ReplayedDevice::new(FileDevice::open(&image.path).expect("an image"), recovered);
    // Fast commits change more than the blocks of the log, and e2fsck deletes orphans even when
    // told not to.
    if replayed.fast_commits == 0 && !has_orphans(&ours) {
        let copy = image.copy();
        replay(&copy.path);
        let journal = oracle::map(&image.path).lookup(0).expect("mapped");
        let journal = usize::try_from(journal).expect("small") * block_size;
        assert_same(spec.name, &ours, &copy.path, journal);
    }
    (replayed, escaped)
}

/// Checks every image whose name `wanted` accepts.
fn check_all(wanted: impl Fn(&str) -> bool) -> Vec<(Replayed, usize)> {
    let wanted = |spec: &&CrashSpec| wanted(spec.name) && spec.can_run();
    crash::SPECS.iter().filter(wanted).map(check).collect()
}

fn is_special(name: &str) -> bool {
    ["wrapped", "revokes", "escapes", "fast_commit"]
        .iter()
        .any(|word| name.contains(word))
}

#[test]
fn crashed_volumes_are_replayed_as_e2fsck_does() {
    for (replayed, _) in check_all(|name| !is_special(name)) {
        assert!(
            replayed.transactions > 0 && replayed.blocks > 0,
            "{replayed:?}"
        );
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
    // Data in the journal lets the kernel checkpoint blocks that it would otherwise revoke, so not
    // every image has revokes.
    assert!(
        found.is_empty() || found.iter().any(|(replayed, _)| replayed.revokes > 0),
        "{found:?}"
    );
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
        assert!(
            replayed.transactions + replayed.fast_commits > 0,
            "{replayed:?}"
        );
    }
}

/// A loop device on an image, detached when dropped.
struct Loop(String);

impl Loop {
    fn attach(image: &Path) -> Self {
        let words: [OsString; 3] = ["-f".into(), "--show".into(), image.into()];
        Self(
            String::from_utf8(tools::run("losetup", words))
                .expect("a path")
                .trim()
                .to_owned(),
        )
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        tools::run("losetup", ["-d", &self.0]);
    }
}

/// Makes a volume with an external journal and leaves it dirty. Returns both images, copied while
/// mounted.
fn external(dir: &Path, block_size: &str) -> (PathBuf, PathBuf) {
    let journal = dir.join("journal.img");
    let volume = dir.join("volume.img");
    let words = |rest: &[&str], image: &Path, size: &str| -> Vec<OsString> {
        let all = ["-q", "-F", "-b", block_size]
            .into_iter()
            .chain(rest.iter().copied())
            .map(OsString::from);
        all.chain([image.into(), size.into()]).collect()
    };
    tools::run("mke2fs", words(&["-O", "journal_dev"], &journal, "16M"));
    let attached = Loop::attach(&journal);
    tools::run(
        "mke2fs",
        words(
            &["-t", "ext4", "-J", &format!("device={}", attached.0)],
            &volume,
            "32M",
        ),
    );
    let volume_loop = Loop::attach(&volume);
    let point = dir.join("mounted");
    std::fs::create_dir(&point).expect("a directory");
    tools::run(
        "mount",
        [OsString::from(&volume_loop.0), point.clone().into()],
    );
    for name in ["one", "two", "three"] {
        let inner = point.join(name);
        std::fs::create_dir(&inner).expect("a directory");
        std::fs::write(inner.join("file"), vec![7; 5000]).expect("a file");
        File::open(inner.join("file"))
            .and_then(|file| file.sync_all())
            .expect("synced");
    }
    let copies = (dir.join("journal.copy"), dir.join("volume.copy"));
    std::fs::copy(&journal, &copies.0).expect("copied");
    std::fs::copy(&volume, &copies.1).expect("copied");
    tools::unmount(&point);
    copies
}

#[test]
fn external_journals_are_replayed_as_e2fsck_does() {
    if !tools::can_run(&[
        Need::Mount,
        Need::Tool("mke2fs"),
        Need::Tool("losetup"),
        Need::Tool("e2fsck"),
    ]) {
        return;
    }
    for block_size in ["1024", "4096"] {
        let dir = tempfile::tempdir().expect("a directory");
        let (journal, volume) = external(dir.path(), block_size);
        let superblock = oracle::superblock(&FileDevice::open(&volume).expect("an image"));
        let uuid = superblock.raw().s_journal_uuid;
        let open = |uuid| {
            let device = FileDevice::open(&journal).expect("an image");
            Journal::external(device, block_size.parse().expect("a number"), uuid)
        };
        assert!(matches!(open(&[1; 16]), Err(Error::Foreign(_))));
        let recovered =
            open(&uuid).and_then(|journal| journal.recover(oracle::volume_blocks(&superblock)));
        let recovered = recovered.expect("a sound journal");
        assert!(recovered.replayed().transactions > 0 && recovered.damage().is_empty());
        let ours = ReplayedDevice::new(FileDevice::open(&volume).expect("an image"), recovered);
        let replayed = dir.path().join("replayed");
        std::fs::copy(&volume, &replayed).expect("copied");
        let words: [OsString; 5] = [
            "-y".into(),
            "-E".into(),
            "journal_only".into(),
            "-j".into(),
            journal.clone().into(),
        ];
        let _ = tools::try_run("e2fsck", words.into_iter().chain([replayed.clone().into()]));
        // This volume holds no superblock of a journal; the volume's own superblock takes its
        // place.
        assert_same(block_size, &ours, &replayed, 1024);
    }
}
