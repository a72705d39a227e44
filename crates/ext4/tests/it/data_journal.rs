//! Contents of files that go through the journal: their state after a crash. No replay writes over
//! contents that were written past the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use extern4_block::{BlockDevice, CrashDevice, MemoryDevice};
use extern4_disk::journal::MAGIC;
use extern4_ext4::{DataMode, Ext4, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools;
use extern4_vfs::*;

use crate::model::{LOG_CONTENTS, Random, open, session};
use crate::{memory, power, walk};

const JOURNAL_DATA: FileFlags = FileFlags::from_bits_retain(0x4000);

const SMALL_BLOCKS: ImageSpec = ImageSpec::new(
    "data-1k",
    8 << 20,
    &["-t", "ext4", "-b", "1024", "-J", "size=1"],
);
const LARGE_BLOCKS: ImageSpec = ImageSpec::new(
    "data-4k",
    16 << 20,
    &["-t", "ext4", "-b", "4096", "-J", "size=4"],
);
const INDIRECT: ImageSpec = ImageSpec::new(
    "data-ext3",
    8 << 20,
    &["-t", "ext3", "-b", "1024", "-J", "size=1"],
);

/// How contents come to go through the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournaledBy {
    /// The superblock says so.
    Default,
    /// The options for opening the volume say so.
    Option,
    /// New files take the flag over from the root directory.
    Flag,
    /// They do for a while, then do not, and so on; and files are emptied before they are written
    /// again.
    Alternately,
    /// They do not.
    Not,
}

/// A volume that may crash.
struct Volume {
    device: Arc<CrashDevice>,
    fs: Arc<Ext4>,
    session: Session,
}

fn options(journaled_by: JournaledBy) -> OpenOptions {
    let data = (journaled_by == JournaledBy::Option).then_some(DataMode::Journal);
    // Every block can be used again.
    OpenOptions {
        data,
        reserved_clusters: Some(0),
        ..OpenOptions::default()
    }
}

impl Volume {
    /// A new one; `None` if it cannot be made here.
    fn new(spec: &ImageSpec, journaled_by: JournaledBy) -> Option<Self> {
        let spec = if journaled_by == JournaledBy::Default {
            spec.then(LOG_CONTENTS)
        } else {
            *spec
        };
        if !spec.can_run() {
            return None;
        }
        let device = Arc::new(CrashDevice::new(memory::bytes_of(&spec)));
        let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &options(journaled_by))
            .expect("it opens");
        let fs = Arc::new(fs);
        let session = session(Arc::clone(&fs) as _);
        if journaled_by == JournaledBy::Flag {
            session
                .set_flags("/", JOURNAL_DATA, LookupFlags::FOLLOW)
                .expect("a flag");
        }
        Some(Self {
            device,
            fs,
            session,
        })
    }

    fn create(&self, path: &str) -> OpenFile {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        open(&self.session, path, flags, 0o644).expect("the file opens")
    }

    fn switch(&self, path: &str) {
        let flags = self
            .session
            .stat(path, LookupFlags::FOLLOW)
            .expect("attributes")
            .flags
            ^ JOURNAL_DATA;
        self.session
            .set_flags(path, flags, LookupFlags::FOLLOW)
            .expect("the flag can be changed");
    }

    fn sync(&self) {
        self.session
            .namespace()
            .root()
            .superblock()
            .sync()
            .expect("sync");
    }

    /// The bytes that a crash leaves now: only bytes that have been flushed.
    fn crash(&self) -> Vec<u8> {
        self.device
            .crash(self.device.moment(), |_| false)
            .into_bytes()
    }

    fn close(self, what: &str) {
        drop(self.session);
        self.fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
        let device = MemoryDevice::new(
            self.device
                .crash(self.device.moment(), |_| false)
                .into_bytes(),
        );
        memory::fsck(what, &device);
    }
}

fn write_all(file: &OpenFile, data: &[u8], offset: u64) {
    let mut done = 0;
    while done < data.len() {
        done += file
            .write_at(&data[done..], offset + done as u64)
            .expect("a write");
    }
}

fn read_all(file: &OpenFile) -> Vec<u8> {
    let mut bytes = vec![0xee; file.size() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).expect("a read"), bytes.len());
    bytes
}

/// The contents of a file of a volume that no thread writes to; empty if there is no such file.
fn contents_in(bytes: Vec<u8>, path: &str) -> Vec<u8> {
    let fs =
        Ext4::open(Arc::new(MemoryDevice::new(bytes)), &OpenOptions::default()).expect("it opens");
    let session = session(Arc::new(fs));
    open(&session, path, OpenFlags::READ, 0).map_or(Vec::new(), |file| read_all(&file))
}

/// The software that replays a journal.
#[derive(Clone, Copy, Debug)]
enum Recovery {
    /// We, in memory.
    Reading,
    /// We, on the device.
    Writing,
    E2fsck,
    Kernel,
}

const ALL: [Recovery; 4] = [
    Recovery::Reading,
    Recovery::Writing,
    Recovery::E2fsck,
    Recovery::Kernel,
];

/// A crashed volume after its journal has been replayed, which `e2fsck` finds no fault with.
fn recovered(what: &str, bytes: &[u8], by: Recovery) -> Vec<u8> {
    let what = format!("{what}, {by:?}");
    let folder = tools::temporary("extern4-data-");
    let file = folder.path().join("volume.img");
    std::fs::write(&file, bytes).expect("the image is written");
    match by {
        Recovery::Reading => return bytes.to_vec(),
        Recovery::Writing => {
            std::fs::write(&file, power::ours(&what, bytes.to_vec()))
                .expect("the image is written");
        }
        // `e2fsck` returns an error code where it has repaired something.
        Recovery::E2fsck => drop(tools::try_run("e2fsck", ["-p".as_ref(), file.as_os_str()])),
        Recovery::Kernel => power::kernel(&what, &file),
    }
    power::fsck(&what, &file, "-fn");
    std::fs::read(&file).expect("the image is read")
}

/// Asserts the contents of a file after a crash, for any software that recovers the volume.
fn assert_left(what: &str, left: &[u8], path: &str, want: &[u8]) {
    for by in ALL {
        let found = contents_in(recovered(what, left, by), path);
        let at = found.iter().zip(want).position(|(is, should)| is != should);
        assert!(
            found == want,
            "{what}, {by:?}: {} bytes of {}, {at:?}",
            found.len(),
            want.len()
        );
    }
}

/// The blocks of a file, each of which is written over as a whole.
const BLOCKS: usize = 30;
const FILES: usize = 3;
const VERSIONS: u64 = 40;

fn version(number: u64, block_size: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCKS * block_size / 8)
}

/// One thread's history of its file: the moment when each version was begun, and when a version was
/// durable.
#[derive(Default)]
struct Sequence {
    begun: Vec<usize>,
    synced: Vec<(usize, u64)>,
    /// A version may be there in part, mixed with others.
    alternates: bool,
}

fn write_versions(
    volume: &Volume,
    journaled_by: JournaledBy,
    path: &str,
    block_size: usize,
) -> Sequence {
    let mut sequence = Sequence {
        alternates: journaled_by == JournaledBy::Alternately,
        ..Sequence::default()
    };
    let file = volume.create(path);
    for number in 1..=VERSIONS {
        sequence.begun.push(volume.device.moment());
        if sequence.alternates && number % 5 == 3 {
            volume.switch(path);
        }
        if sequence.alternates && number % 8 == 6 {
            file.set_len(0).expect("it is cut");
        }
        write_all(&file, &version(number, block_size), 0);
        match number % 9 {
            0 => volume.sync(),
            4 => file.sync(false).expect("a sync"),
            7 => file.sync(true).expect("a sync"),
            _ => continue,
        }
        sequence.synced.push((volume.device.moment(), number));
    }
    sequence
}

impl Sequence {
    /// Why this cannot be what the file holds after a crash at `moment`.
    fn fault(&self, moment: usize, found: &[u8], block_size: usize) -> Option<String> {
        let least = self
            .synced
            .iter()
            .filter(|(at, _)| *at <= moment)
            .map(|(_, number)| *number)
            .max();
        let most = self.begun.iter().filter(|at| **at <= moment).count() as u64;
        let allowed = least.unwrap_or(1)..=most;
        if self.alternates {
            let mut words = found
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("8")));
            let is_whole = found.len() == version(0, block_size).len();
            if !is_whole && least == Some(most) {
                return Some(format!(
                    "{} bytes of version {most}, which was durable",
                    found.len()
                ));
            }
            let wrong = words.find(|number| !allowed.contains(number));
            return wrong
                .map(|number| format!("some of version {number}, not of one of {allowed:?}"));
        }
        let Some(first) = found.first_chunk() else {
            return least.map(|least| format!("nothing, and version {least} was durable"));
        };
        let number = u64::from_le_bytes(*first);
        if found != version(number, block_size) {
            return Some(format!("a part of version {number}"));
        }
        (!allowed.contains(&number)).then(|| format!("version {number}, not one of {allowed:?}"))
    }
}

/// How many states of each volume: more where the environment asks for a soak.
fn states() -> u64 {
    memory::number("EXTERN4_CRASHES", 120)
}

/// Threads write versions of their files; then the power fails at any moment. Returns the faults
/// that are found.
fn faults_after_crashes(
    spec: &ImageSpec,
    journaled_by: JournaledBy,
    block_size: usize,
) -> Option<Vec<String>> {
    let volume = Volume::new(spec, journaled_by)?;
    volume.sync();
    let start = volume.device.moment();
    let path = |file: usize| format!("/file{file}");
    let sequences: Vec<_> = std::thread::scope(|scope| {
        let volume = &volume;
        let write = |file| {
            scope.spawn(move || write_versions(volume, journaled_by, &path(file), block_size))
        };
        let threads: Vec<_> = (0..FILES).map(write).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it has written"))
            .collect()
    });
    let mut random = Random::new(block_size as u64 + 3);
    let mut faults = Vec::new();
    for at in 0..states() {
        let moment = start + random.below((volume.device.moment() - start) as u64 + 1) as usize;
        let (kind, bytes) = power::crash(&volume.device, moment, &mut random);
        let what = format!("{}, {journaled_by:?}, moment {moment}, {kind}", spec.name);
        let by = if at % 12 == 0 {
            ALL[(at / 12 % 4) as usize]
        } else {
            Recovery::Writing
        };
        let bytes = recovered(&what, &bytes, by);
        for (file, sequence) in sequences.iter().enumerate() {
            let found = contents_in(bytes.clone(), &path(file));
            let fault = sequence.fault(moment, &found, block_size);
            faults.extend(fault.map(|fault| format!("{what}, {by:?}, file {file}: {fault}")));
        }
    }
    volume.close(spec.name);
    Some(faults)
}

/// A file has its synced contents, whether they go through the journal or not, with blocks of any
/// former owner.
#[test]
fn contents_after_a_crash_are_no_older_than_the_last_sync() {
    for (spec, block_size) in [(SMALL_BLOCKS, 1024), (LARGE_BLOCKS, 4096), (INDIRECT, 1024)] {
        let Some(faults) = faults_after_crashes(&spec, JournaledBy::Alternately, block_size) else {
            return;
        };
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

#[test]
fn a_write_is_there_after_a_crash_whole_or_not_at_all() {
    for (spec, block_size, modes) in [
        (
            SMALL_BLOCKS,
            1024,
            &[JournaledBy::Default, JournaledBy::Option, JournaledBy::Flag][..],
        ),
        (LARGE_BLOCKS, 4096, &[JournaledBy::Flag]),
        (INDIRECT, 1024, &[JournaledBy::Option]),
    ] {
        for journaled_by in modes {
            let Some(faults) = faults_after_crashes(&spec, *journaled_by, block_size) else {
                return;
            };
            assert!(faults.is_empty(), "{}", faults.join("\n"));
        }
    }
    // The contents left without the journal's help show that the test would have found halves.
    let faults = faults_after_crashes(&SMALL_BLOCKS, JournaledBy::Not, 1024).unwrap_or_default();
    assert!(
        faults.iter().any(|fault| fault.contains("a part of")),
        "{faults:?}"
    );
}

/// Also where the file's map continues in another block: after the blocks in the inode itself, and
/// after the first indirect block.
#[test]
fn new_contents_are_written_in_one_step() {
    for (spec, block_size) in [(SMALL_BLOCKS, 1024), (LARGE_BLOCKS, 4096), (INDIRECT, 1024)] {
        let Some(volume) = Volume::new(&spec, JournaledBy::Option) else {
            return;
        };
        let handles = || volume.fs.journal_stats().expect("it is written").handles;
        for block in [0, 12 + 256 - 10] {
            let file = volume.create(&format!("/{block}"));
            let before = handles();
            let len = BLOCKS * block_size;
            let done = file
                .write_at(&vec![0xaa; len], block * block_size as u64)
                .expect("a write");
            assert_eq!(
                (done, handles() - before),
                (len, 1),
                "{}, block {block}",
                spec.name
            );
        }
        volume.close(spec.name);
    }
}

/// Blocks of contents are freed in some way and become blocks of a file that is not logged.
#[test]
fn the_successors_of_logged_blocks_are_not_written_over() {
    type Free = fn(&Volume, OpenFile);
    let blocks = 40;
    let ways: [(&str, bool, Free); 6] = [
        ("unlinked", true, |volume, file| {
            drop(file);
            volume.session.unlink("/logged").expect("it goes");
        }),
        ("unlinked while open", true, |volume, file| {
            volume.session.unlink("/logged").expect("it goes");
            drop(file);
        }),
        ("cut", true, |_, file| file.set_len(0).expect("it is cut")),
        ("cut from outside", true, |volume, file| {
            drop(file);
            volume
                .session
                .truncate("/logged", 100, LookupFlags::FOLLOW)
                .expect("it is cut");
        }),
        ("punched", true, |_, file| {
            let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            file.fallocate(punch, 1024, 1 << 20).expect("a hole");
        }),
        ("collapsed", false, |_, file| {
            file.fallocate(FallocateMode::COLLAPSE_RANGE, 1024, 30 << 10)
                .expect("it is shorter");
        }),
    ];
    for spec in [SMALL_BLOCKS, INDIRECT] {
        for (what, indirect_too, free) in ways {
            if spec.name == INDIRECT.name && !indirect_too {
                continue;
            }
            let what = format!("{}, {what}", spec.name);
            let Some(volume) = Volume::new(&spec, JournaledBy::Not) else {
                return;
            };
            let file = volume.create("/logged");
            volume.switch("/logged");
            write_all(&file, &vec![0xaa; blocks << 10], 0);
            volume.sync();
            let old = spans(&file);
            free(&volume, file);
            volume.sync();
            let plain = volume.create("/plain");
            let mut want = Vec::new();
            let chunk: Vec<u8> = (0..64 << 10).map(|at: u32| (at / 7) as u8).collect();
            while let Ok(len) = plain.write_at(&chunk, want.len() as u64) {
                want.extend_from_slice(&chunk[..len]);
            }
            plain.sync(false).expect("a sync");
            let new = spans(&plain);
            assert!(
                old.iter().any(|byte| new.contains(byte)),
                "{what}: its blocks have been taken"
            );
            let stats = volume.fs.journal_stats().expect("it is written");
            assert_eq!(stats.checkpoints, 0, "{what}: the log has everything");
            assert_left(&what, &volume.crash(), "/plain", &want);
            drop(plain);
            volume.close(&what);
        }
    }
}

/// Where each block of a file begins on the device.
fn spans(file: &OpenFile) -> std::collections::BTreeSet<u64> {
    let mut at = 0;
    let mut all = std::collections::BTreeSet::new();
    while let Some(span) = file.span_at(at).expect("the map is read") {
        if let SpanKind::Mapped { device_offset } = span.kind {
            all.extend((device_offset..device_offset + span.len).step_by(1024));
        }
        at += span.len;
    }
    all
}

#[test]
fn contents_that_look_like_journal_blocks_survive() {
    for (spec, block_size) in [(SMALL_BLOCKS, 1024), (LARGE_BLOCKS, 4096), (INDIRECT, 1024)] {
        let Some(volume) = Volume::new(&spec, JournaledBy::Flag) else {
            return;
        };
        let file = volume.create("/file");
        let mut want = vec![0x5a; 20 * block_size];
        // As a commit block of the next transaction, and as descriptors and revocations.
        for (at, block) in want
            .chunks_mut(block_size)
            .enumerate()
            .filter(|(at, _)| at % 3 != 1)
        {
            block[..4].copy_from_slice(&MAGIC.to_be_bytes());
            block[4..8].copy_from_slice(&(at as u32 % 5 + 1).to_be_bytes());
            block[8..12].copy_from_slice(&(at as u32 % 7).to_be_bytes());
        }
        write_all(&file, &want, 0);
        file.sync(true).expect("a sync");
        assert!(read_all(&file) == want, "{}", spec.name);
        assert_left(spec.name, &volume.crash(), "/file", &want);
        drop(file);
        volume.close(spec.name);
    }
}

/// They are not where the map says before the journal has been replayed.
#[test]
fn readers_find_contents_that_are_only_in_the_journal() {
    for journaled_by in [JournaledBy::Default, JournaledBy::Option, JournaledBy::Flag] {
        let Some(volume) = Volume::new(&SMALL_BLOCKS, journaled_by) else {
            return;
        };
        let file = volume.create("/file");
        let want: Vec<u8> = (0..100_000_u32).map(|at| (at / 3) as u8 | 1).collect();
        write_all(&file, &want, 0);
        file.sync(true).expect("a sync");
        let left = volume.crash();
        let home = spans(&file)
            .into_iter()
            .all(|at| left[at as usize..at as usize + 600].iter().all(|b| *b == 0));
        assert!(home && !volume.fs.is_raw_current(), "{journaled_by:?}");
        assert_left(&format!("{journaled_by:?}"), &left, "/file", &want);
        drop(file);
        volume.close("closed");
    }
}

/// Once the flag is gone, nothing that the journal has of the file is written over it.
#[test]
fn a_file_that_leaves_the_journal_is_not_written_over() {
    for (spec, synced) in [
        (SMALL_BLOCKS, true),
        (SMALL_BLOCKS, false),
        (INDIRECT, true),
    ] {
        let what = format!("{}, {synced}", spec.name);
        let Some(volume) = Volume::new(&spec, JournaledBy::Flag) else {
            return;
        };
        let file = volume.create("/file");
        let logged = vec![1; 50_000];
        write_all(&file, &logged, 0);
        if synced {
            file.sync(false).expect("a sync");
        }
        volume.switch("/file");
        assert!(read_all(&file) == logged, "{what}");
        // Even before the flag itself is gone for good.
        assert_left(&what, &volume.crash(), "/file", &logged);
        let plain = vec![2; 50_000];
        write_all(&file, &plain, 0);
        volume.device.flush().expect("a flush");
        assert_left(&what, &volume.crash(), "/file", &plain);
        file.sync(false).expect("a sync");
        assert_left(&what, &volume.crash(), "/file", &plain);
        drop(file);
        volume.close(&what);
    }
}

#[test]
fn a_file_that_starts_journaling_keeps_its_contents() {
    let Some(volume) = Volume::new(&SMALL_BLOCKS, JournaledBy::Flag) else {
        return;
    };
    let file = volume.create("/file");
    write_all(&file, &[1; 50_000], 0);
    // The blocks are in memory now, and the device gets others.
    volume.switch("/file");
    let mut want = vec![2; 50_000];
    write_all(&file, &want, 0);
    // Some blocks are after the end, too.
    file.fallocate(FallocateMode::KEEP_SIZE, 50_000, 20_000)
        .expect("room");
    volume.switch("/file");
    assert!(read_all(&file) == want);
    for at in [0, 700, 5_000, 49_990] {
        write_all(&file, b"in the middle of a block", at);
        want.resize(want.len().max(at as usize + 24), 0);
        want[at as usize..at as usize + 24].copy_from_slice(b"in the middle of a block");
    }
    assert!(read_all(&file) == want);
    file.sync(true).expect("a sync");
    assert_left("switched", &volume.crash(), "/file", &want);
    drop(file);
    volume.close("switched");
}

/// A file comes into the journal and leaves it, over and over, while it is read, and while others
/// log theirs. A reader finds nothing that is older than the last write that had returned before.
#[test]
fn a_file_that_is_switched_is_never_old() {
    let Some(volume) = Volume::new(&SMALL_BLOCKS, JournaledBy::Not) else {
        return;
    };
    memory::in_time("switching", Duration::from_secs(120), move || {
        let written = AtomicU64::new(0);
        let ends = AtomicBool::new(false);
        let file = volume.create("/file");
        let other = volume.create("/other");
        volume.switch("/other");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=200 {
                    write_all(&file, &version(number, 1024), 0);
                    written.store(number, Relaxed);
                    if number % 3 == 0 {
                        volume.switch("/file");
                    }
                }
                ends.store(true, Relaxed);
            });
            scope.spawn(|| {
                for number in 1.. {
                    write_all(&other, &version(number, 1024), 0);
                    if number % 5 == 0 {
                        other.sync(true).expect("a sync");
                    }
                    if ends.load(Relaxed) {
                        return;
                    }
                }
            });
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    let least = written.load(Relaxed);
                    let found = read_all(&file);
                    let words = found
                        .chunks_exact(8)
                        .map(|word| u64::from_le_bytes(word.try_into().expect("8")));
                    let oldest = words.min().unwrap_or(u64::MAX);
                    assert!(oldest >= least, "version {oldest} after {least}");
                }
            });
        });
        assert!(read_all(&file) == version(200, 1024));
        drop((file, other));
        volume.close("switched");
    });
}

fn fill_for_claims(root: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    std::fs::write(root.join("file"), [7; 1024])?;
    for (dir, count) in [("dir", 10), ("crowd", 300)] {
        std::fs::create_dir(root.join(dir))?;
        (0..count).try_for_each(|at| std::fs::write(root.join(format!("{dir}/{at:0>60}")), b""))?;
    }
    let map = std::fs::File::create(root.join("map"))?;
    (0..40).try_for_each(|at| map.write_all_at(&[3; 1024], at * 2048))
}

/// Uses what is in the volume; returns what answers say of damage.
fn use_all(session: &Session) -> Vec<Errno> {
    let map = || open(session, "/map", OpenFlags::READ, 0)?.read_at(&mut [0; 9000], 3000);
    let mut all = vec![
        session
            .get_xattr("/dir", "user.large", LookupFlags::FOLLOW)
            .map(drop),
        map().map(drop),
    ];
    for dir in ["/dir", "/crowd"] {
        let names = (0..20).map(|at| format!("{dir}/{at:0>60}"));
        all.extend(names.map(|name| session.stat(name, LookupFlags::FOLLOW).map(drop)));
        all.push(
            session
                .mkdir(format!("{dir}/{}", "n".repeat(200)), 0o755)
                .map(drop),
        );
        all.push(session.rmdir(format!("{dir}/{}", "n".repeat(200))));
    }
    session.namespace().root().superblock().drop_caches();
    let errors = all
        .into_iter()
        .filter_map(Result::err)
        .map(|error| error.errno());
    errors
        .filter(|errno| ![Errno::ENOENT, Errno::EEXIST].contains(errno))
        .collect()
}

/// On a damaged volume, a file has blocks that are others' metadata. A later reader of that
/// metadata verifies what the file wrote there.
#[test]
fn metadata_that_a_file_writes_over_is_not_believed() {
    const ARGS: [&[&str]; 2] = [
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^metadata_csum",
        ],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "metadata_csum",
        ],
    ];
    for (mke2fs, has_checksums) in ARGS.into_iter().zip([false, true]) {
        let spec =
            ImageSpec::new("data-claims", 8 << 20, mke2fs).from_directory(&[fill_for_claims]);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        tools::try_run("e2fsck", ["-fyD".as_ref(), image.path.as_os_str()]).ok();
        image.debugfs(&format!("ea_set /dir user.large {}\n", "v".repeat(500)));
        let fs = walk::open(&image.path);
        let raw = |path| {
            let ino = walk::resolve(&fs, path).expect("a file").ino();
            fs.raw_inode(ino.try_into().expect("an inode number"))
                .expect("an inode")
        };
        // The first block that the root of a map names: of a file's extents, or of what leads
        // there.
        let first = |path| {
            let inode = raw(path);
            let at = if inode.map()[6] == 0 { 20 } else { 16 };
            u64::from(u32::from_le_bytes(
                inode.map()[at..at + 4].try_into().expect("4 bytes"),
            ))
        };
        let attributes = raw("/dir").xattr_block().expect("an attribute block");
        // A hash tree that is none is done without.
        let claims = [
            (first("/dir"), true),
            (first("/crowd"), false),
            (first("/map"), true),
            (attributes, true),
        ];
        for (claimed, is_needed) in claims {
            let claiming = image.copy();
            claiming.debugfs(&format!("set_inode_field /file block[5] {claimed}\n"));
            let bytes = std::fs::read(&claiming.path).expect("the image is read");
            for byte in [0xff, 0, 1, 0x80] {
                let device = Arc::new(MemoryDevice::new(bytes.clone()));
                let fs = Ext4::open_for_writing(device as _, &options(JournaledBy::Option))
                    .expect("it opens");
                let session = session(Arc::new(fs));
                assert_eq!(use_all(&session), [], "{mke2fs:?}, block {claimed}");
                let file = open(&session, "/file", OpenFlags::READ | OpenFlags::WRITE, 0)
                    .expect("it opens");
                // Only a checksum shows that a name or the start of a run of blocks has changed.
                let data = if has_checksums {
                    &[byte; 3][..]
                } else {
                    &[byte; 1024]
                };
                file.write_at(data, 40).expect("it is the file's");
                let found = use_all(&session);
                let must_be_found = is_needed && (has_checksums || byte == 0xff);
                assert!(
                    !found.is_empty() || !must_be_found,
                    "{mke2fs:?}, block {claimed}, {byte}"
                );
            }
        }
    }
}

#[test]
fn the_journal_flag_needs_privilege_and_takes_effect() {
    let without = |caps: Caps| Cred::root().with_caps(Caps::all() - caps);
    let flag = |session: &Session, path: &str| {
        session
            .stat(path, LookupFlags::FOLLOW)
            .expect("attributes")
            .flags
            .contains(JOURNAL_DATA)
    };
    let Some(volume) = Volume::new(&SMALL_BLOCKS, JournaledBy::Not) else {
        return;
    };
    let file = volume.create("/file");
    let refused = volume.session.with_cred(without(Caps::SYS_RESOURCE));
    let answer = refused
        .set_flags("/file", JOURNAL_DATA, LookupFlags::FOLLOW)
        .map_err(|e| e.errno());
    assert_eq!(
        (answer, flag(&volume.session, "/file")),
        (Err(Errno::EPERM), false)
    );
    volume.switch("/file");
    assert!(flag(&volume.session, "/file"));
    let answer = refused
        .set_flags("/file", FileFlags::empty(), LookupFlags::FOLLOW)
        .map_err(|e| e.errno());
    assert_eq!(answer, Err(Errno::EPERM));
    refused
        .set_flags(
            "/file",
            JOURNAL_DATA | FileFlags::NOATIME,
            LookupFlags::FOLLOW,
        )
        .expect("it stays");
    let dax = FileFlags::from_bits_retain(0x200_0000);
    let answer = volume
        .session
        .set_flags("/file", JOURNAL_DATA | dax, LookupFlags::FOLLOW)
        .map_err(|e| e.errno());
    assert_eq!(answer, Err(Errno::EOPNOTSUPP));
    volume.session.mkdir("/dir", 0o755).expect("a directory");
    volume.switch("/dir");
    drop(volume.create("/dir/file"));
    volume
        .session
        .mkdir("/dir/sub", 0o755)
        .expect("a directory");
    assert!(flag(&volume.session, "/dir/file") && flag(&volume.session, "/dir/sub"));
    drop((file, refused));
    volume.close("flags");

    let spec = ImageSpec::new(
        "data-nojournal",
        8 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    );
    let Some(volume) = Volume::new(&spec.then(LOG_CONTENTS), JournaledBy::Not) else {
        return;
    };
    drop(volume.create("/file"));
    volume
        .session
        .set_flags("/file", JOURNAL_DATA, LookupFlags::FOLLOW)
        .expect("it is ignored");
    assert!(!flag(&volume.session, "/file") && volume.fs.is_raw_current());
    volume.close("no journal");
    let device = Arc::new(MemoryDevice::new(memory::bytes_of(&spec)));
    let error = Ext4::open_for_writing(device, &options(JournaledBy::Option))
        .err()
        .expect("there is no journal");
    assert!(error.to_string().contains("no journal"), "{error}");
}

/// The data mode in the options overrides that of the superblock.
#[test]
fn open_options_override_the_volumes_data_mode() {
    let spec = SMALL_BLOCKS.then(LOG_CONTENTS);
    if !spec.can_run() {
        return;
    }
    let logged = |spec: &ImageSpec, data| {
        let device = Arc::new(MemoryDevice::new(memory::bytes_of(spec)));
        let options = OpenOptions {
            data,
            ..OpenOptions::default()
        };
        let fs = Arc::new(Ext4::open_for_writing(device as _, &options).expect("it opens"));
        let session = session(Arc::clone(&fs) as _);
        let file = open(
            &session,
            "/file",
            OpenFlags::WRITE | OpenFlags::CREATE,
            0o644,
        )
        .expect("a file");
        write_all(&file, &[1; 60 << 10], 0);
        file.sync(false).expect("a sync");
        fs.journal_stats().expect("it is written").blocks_logged >= 60
    };
    for (data, want) in [
        (None, [false, true]),
        (Some(DataMode::Ordered), [false, false]),
        (Some(DataMode::Writeback), [false, false]),
        (Some(DataMode::Journal), [true, true]),
    ] {
        assert_eq!(
            [SMALL_BLOCKS, spec].map(|spec| logged(&spec, data)),
            want,
            "{data:?}"
        );
    }
}

/// More than the log has room for, by one write, and until the volume is full.
#[test]
fn contents_may_be_larger_than_the_journal() {
    for spec in [SMALL_BLOCKS, LARGE_BLOCKS, INDIRECT] {
        let Some(volume) = Volume::new(&spec, JournaledBy::Option) else {
            return;
        };
        let free = || volume.fs.statfs().expect("statistics").blocks_free;
        volume.sync();
        let before = free();
        let file = volume.create("/file");
        let most = volume.fs.statfs().expect("statistics");
        let data: Vec<u8> = (0..16_u32 << 20)
            .map(|at| (at.wrapping_mul(0x9e37_79b9) >> 21) as u8)
            .collect();
        let len = file.write_at(&data, 0).expect("there is room for some");
        assert!(
            len > (4 << 20) && len < data.len(),
            "{}: {len} of {most:?}",
            spec.name
        );
        let refused = file.write_at(&data, len as u64).map_err(|e| e.errno());
        assert_eq!(refused, Err(Errno::ENOSPC), "{}", spec.name);
        // Over what is there.
        write_all(&file, &data[1..=len / 2], 0);
        let want = [&data[1..=len / 2], &data[len / 2..len]].concat();
        assert!(read_all(&file) == want, "{}", spec.name);
        file.sync(false).expect("a sync");
        assert_left(spec.name, &volume.crash(), "/file", &want);
        drop(file);
        volume.session.unlink("/file").expect("it goes");
        volume.sync();
        assert!(
            before - free() < 8,
            "{}: {} of {before} blocks are free",
            spec.name,
            free()
        );
        volume.close(spec.name);
    }
}

/// Of what is written over, only those blocks are read that are not written over whole.
#[test]
fn blocks_that_are_written_over_whole_are_not_read() {
    let Some(volume) = Volume::new(&SMALL_BLOCKS, JournaledBy::Flag) else {
        return;
    };
    let file = volume.create("/file");
    let mut want = vec![1; 40 << 10];
    write_all(&file, &want, 0);
    drop(file);
    let device = Arc::clone(&volume.device);
    volume.close("written");
    let fs = Ext4::open_for_writing(device as _, &options(JournaledBy::Flag)).expect("it opens");
    let fs = Arc::new(fs);
    let session = session(Arc::clone(&fs) as _);
    let file = open(&session, "/file", OpenFlags::READ | OpenFlags::WRITE, 0).expect("it opens");
    for (offset, len, reads) in [
        (1024, 10 << 10, 0),
        (0, 1024, 0),
        (20_500, 8 << 10, 2),
        (39_000, 500, 1),
    ] {
        let before = fs.cache().stats().device_reads;
        write_all(&file, &vec![2; len], offset);
        want[offset as usize..offset as usize + len].fill(2);
        assert_eq!(
            fs.cache().stats().device_reads - before,
            reads,
            "{len} bytes at {offset}"
        );
        assert!(read_all(&file) == want);
    }
    drop((file, session));
    fs.close().expect("close");
}

/// We go on with a journal that the kernel has left.
#[test]
fn contents_that_the_kernel_logged_are_recovered() {
    if !SMALL_BLOCKS.can_run() {
        return;
    }
    let image: Image = SMALL_BLOCKS.build();
    let mount = image.mount("data=journal,commit=300");
    let data: Vec<u8> = (0..200_000_u32).map(|at| (at / 11) as u8).collect();
    std::fs::write(mount.path.join("file"), &data).expect("it is written");
    let file = std::fs::File::open(mount.path.join("file")).expect("it opens");
    file.sync_all().expect("a sync");
    let left = std::fs::read(&image.path).expect("the image is read");
    drop(file);
    mount.unmount();
    assert_left("the kernel's", &left, "/file", &data);
    let device = Arc::new(MemoryDevice::new(left));
    let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &options(JournaledBy::Option))
        .expect("it opens");
    assert!(
        fs.replayed().is_some_and(|replayed| replayed.blocks > 190),
        "{:?}",
        fs.replayed()
    );
    let fs = Arc::new(fs);
    let again = session(Arc::clone(&fs) as _);
    let file = open(&again, "/file", OpenFlags::READ | OpenFlags::WRITE, 0).expect("it opens");
    assert!(read_all(&file) == data);
    write_all(&file, &[9; 3000], 100);
    let want = [&data[..100], &[9; 3000], &data[3100..]].concat();
    assert!(read_all(&file) == want);
    drop((file, again));
    fs.close().expect("close");
    memory::judge_in("gone on with", &device, &image);
    assert!(std::fs::read(image.mount("ro").path.join("file")).expect("it is read") == want);
}
