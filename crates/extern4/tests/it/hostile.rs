//! Images that lie: truncated, with flipped bits, with numbers out of range, with blocks in the
//! wrong place.
//!
//! On any image, opening it and walking all of it ends soon and takes little memory, with or
//! without an error. The mutations come from a seed, and a failure names it; `EXTERN4_SEED=n`
//! replays that one alone.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use extern4::{AclKind, FileType, Session, Volume};
use extern4_testkit::image::{Image, ImageSpec, Plan, Step};
use extern4_testkit::{crash, plan};

/// Far more than one walk takes, even on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

/// Far more than all tests of this program take at once.
const MOST_MEMORY_KIB: u64 = 2 << 20;

/// No image here has room for this many names.
const MOST_ENTRIES: usize = 50_000;

/// Metadata of every kind and little else, so that mutations hit structures, not contents.
const PLANS: &[Plan] = &[
    plan::symlinks,
    plan::small_files,
    plan::xattrs,
    plan::access_lists,
    plan::small_directories,
    plan::many_links,
];

/// Opens an image and looks at everything in it. Errors are welcome.
fn exercise(image: &Path) {
    let Ok(volume) = Volume::open(image) else {
        return;
    };
    let session = volume.superuser();
    let _ = volume.stat_fs();
    let mut entries = 0;
    for entry in session.walk("/") {
        entries += 1;
        assert!(entries < MOST_ENTRIES, "the walk does not end");
        let Ok(entry) = entry else { continue };
        let _ = entry.metadata();
        look_at(&session, entry.path(), entry.file_type().ok());
    }
    for path in [
        "/lost+found/..",
        "/small-directories/of-7/n3",
        "/links/to-a-link",
        "/crowd/of-300/name-7",
    ] {
        let _ = session.metadata(path);
    }
}

fn look_at(session: &Session, path: &Path, kind: Option<FileType>) {
    let _ = session.symlink_metadata(path);
    for name in session.llistxattr(path).unwrap_or_default() {
        let _ = session.lgetxattr(path, name);
    }
    let _ = session.acl(path, AclKind::Access);
    match kind {
        Some(FileType::Symlink) => drop(session.read_link(path)),
        Some(FileType::Regular) => read(session, path),
        _ => {}
    }
}

fn read(session: &Session, path: &Path) {
    let Ok(file) = session.open(path) else { return };
    let size = file.metadata().len();
    let mut buffer = vec![0; 128 << 10];
    for at in [0, size / 2, size.saturating_sub(100), size, u64::MAX] {
        let _ = file.read_at(&mut buffer, at);
    }
    let mut at = 0;
    for _ in 0..200 {
        let Ok(Some(start)) = file.seek_data(at) else {
            break;
        };
        let Ok(Some(end)) = file.seek_hole(start) else {
            break;
        };
        assert!(
            start >= at && end > start,
            "data from {start} to {end}, sought from {at}"
        );
        at = end;
    }
}

/// A small generator of numbers (SplitMix64): equal seeds give equal mutations everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// An image, and the list of its blocks that hold anything.
struct Victim {
    file: File,
    bytes: Vec<u8>,
    used: Vec<usize>,
}

const BLOCK: usize = 1024;

impl Victim {
    fn new(image: &Image) -> Victim {
        let bytes = std::fs::read(&image.path).expect("the image can be read");
        let used = bytes
            .chunks(BLOCK)
            .enumerate()
            .filter(|(_, b)| b.iter().any(|&b| b != 0))
            .map(|(at, _)| at);
        let used = used.collect();
        let file = OpenOptions::new()
            .write(true)
            .open(&image.path)
            .expect("the image can be written");
        Victim { file, bytes, used }
    }

    /// Returns the bytes that mutation `seed` puts into the image, with their places.
    fn mutation(&self, seed: u64) -> Vec<(usize, Vec<u8>)> {
        let mut random = Random(seed);
        (0..1 + random.below(4))
            .map(|_| self.one(&mut random))
            .collect()
    }

    fn one(&self, random: &mut Random) -> (usize, Vec<u8>) {
        // The superblock and the first descriptors decide on all other structures and deserve more
        // than their share.
        let early = random.below(4) == 0;
        let block = if early {
            1 + random.below(4)
        } else {
            random.pick(&self.used)
        };
        let start = block * BLOCK;
        let whole = |at: usize| self.bytes[at * BLOCK..(at + 1) * BLOCK].to_vec();
        match random.below(16) {
            0 => (start, vec![0; BLOCK]),
            1 => (start, vec![0xff; BLOCK]),
            2 => (start, whole(random.pick(&self.used))),
            3..6 => {
                let at = start + random.below(BLOCK);
                (at, vec![self.bytes[at] ^ 1 << random.below(8)])
            }
            _ => {
                let width = random.pick(&[1, 2, 4, 8]);
                let at = start + random.below(BLOCK / width) * width;
                let value = self.number(random, at, width);
                (at, value.to_le_bytes()[..width].to_vec())
            }
        }
    }

    /// Returns a number that may well mean something at its place.
    fn number(&self, random: &mut Random, at: usize, width: usize) -> u64 {
        let word = |at: usize| {
            let mut word = [0; 8];
            word[..width].copy_from_slice(&self.bytes[at..at + width]);
            u64::from_le_bytes(word)
        };
        let other = random.pick(&self.used) * BLOCK + random.below(BLOCK / width) * width;
        match random.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => word(at).wrapping_add(1),
            3 => word(at).wrapping_sub(1),
            4 => 1 << random.below(64),
            5 => u64::MAX >> random.below(64),
            6 => word(other),
            _ => random.next(),
        }
    }

    fn write(&self, mutation: &[(usize, Vec<u8>)]) {
        mutation.iter().for_each(|(at, bytes)| {
            self.file
                .write_all_at(bytes, *at as u64)
                .expect("the image is there")
        });
    }

    fn restore(&self, mutation: &[(usize, Vec<u8>)]) {
        for (at, bytes) in mutation {
            self.file
                .write_all_at(&self.bytes[*at..at + bytes.len()], *at as u64)
                .expect("the image is there");
        }
    }
}

/// Runs `attempt` for each number of `attempts` in its own thread. Fails by name with the
/// first that panics or does not end.
fn survive(what: &str, attempts: Vec<u64>, mut attempt: impl FnMut(u64) + Send + 'static) {
    let (report, reports) = mpsc::channel();
    let numbers = attempts.clone();
    std::thread::spawn(move || {
        for number in numbers {
            let survived =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| attempt(number)));
            if report.send((number, survived.is_ok())).is_err() {
                return;
            }
        }
    });
    let mut failed = Vec::new();
    for number in attempts {
        match reports.recv_timeout(LONGEST) {
            Ok((_, true)) => {}
            Ok((number, false)) => failed.push(number),
            Err(_) => panic!(
                "{what}: {number} did not end within {LONGEST:?} (panics before: {failed:?})"
            ),
        }
    }
    assert!(failed.is_empty(), "{what}: panics with {failed:?}");
    assert!(
        peak_memory_kib() < MOST_MEMORY_KIB,
        "{what}: took {} KiB of memory",
        peak_memory_kib()
    );
}

/// Returns the most memory that this process ever had, in units of 1024 bytes.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has a status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("the status tells the peak");
    line.split_whitespace()
        .next()
        .and_then(|kib| kib.parse().ok())
        .expect("a number of KiB")
}

/// Walks `image` under `count` mutations.
fn mutate(what: &str, image: Image, count: u64) {
    let seeds = match std::env::var("EXTERN4_SEED") {
        Ok(seed) => vec![seed.parse().expect("EXTERN4_SEED is a number")],
        Err(_) => (0..count).collect(),
    };
    let victim = Victim::new(&image);
    survive(what, seeds, move |seed| {
        let mutation = victim.mutation(seed);
        victim.write(&mutation);
        exercise(&image.path);
        victim.restore(&mutation);
    });
}

fn mutate_spec(spec: &ImageSpec, count: u64) {
    if spec.can_run() {
        mutate(spec.name, spec.build(), count);
    }
}

fn mutate_crashed(name: &str, count: u64) {
    let spec = crash::spec(name);
    if spec.can_run() {
        mutate(name, spec.build(), count);
    }
}

macro_rules! hostile {
    ($($name:ident: $count:literal mutations of $mib:literal MiB $args:expr, $plans:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let spec = ImageSpec::new(stringify!($name), $mib << 20, &$args).mounted($plans);
                mutate_spec(&spec, $count);
            }
        )*
    };
}

hostile! {
    mutated_ext2: 300 mutations of 6 MiB ["-t", "ext2", "-b", "1024", "-N", "2000"], PLANS;
    mutated_ext4: 200 mutations of 8 MiB ["-t", "ext4", "-b", "1024", "-N", "2000"], PLANS;
    mutated_without_checksums: 500 mutations of 8 MiB ["-t", "ext4", "-b", "1024", "-N", "2000", "-O", "^metadata_csum,^has_journal"], PLANS;
    mutated_inline_data: 300 mutations of 6 MiB ["-t", "ext4", "-b", "1024", "-N", "2000", "-O", "inline_data,^metadata_csum,^has_journal"], PLANS;
    mutated_ea_inode: 300 mutations of 6 MiB ["-t", "ext4", "-b", "1024", "-N", "500", "-O", "ea_inode,^metadata_csum,^has_journal"], &[plan::big_xattrs, plan::xattrs];
    mutated_htree: 200 mutations of 8 MiB ["-t", "ext4", "-b", "1024", "-N", "1500", "-O", "^metadata_csum,^has_journal"], &[plan::small_crowd];
    mutated_extents: 300 mutations of 12 MiB ["-t", "ext4", "-b", "1024", "-N", "100", "-O", "^metadata_csum,^has_journal"], &[plan::fragmented, plan::unwritten, plan::holes];
    mutated_indirect: 300 mutations of 12 MiB ["-t", "ext2", "-b", "1024", "-N", "100"], &[plan::indirect, plan::holes];
    mutated_bigalloc_64bit: 150 mutations of 16 MiB ["-t", "ext4", "-b", "1024", "-N", "2000", "-O", "bigalloc,^metadata_csum,^has_journal", "-C", "4096"], &[plan::symlinks, plan::xattrs, plan::access_lists];
}

#[test]
fn mutated_casefold() {
    let spec = ImageSpec::new(
        "mutated_casefold",
        8 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-N",
            "2000",
            "-O",
            "casefold,^metadata_csum,^has_journal",
            "-E",
            "encoding=utf8",
        ],
    );
    let spec = spec.from_directory(&[plan::small_crowd]).then(&[
        Step::Debugfs("sif /crowd flags 0x40080000\nsif /crowd/of-300 flags 0x40080000\n"),
        Step::E2fsck(&["-D"]),
    ]);
    mutate_spec(&spec, 200);
}

#[test]
fn mutated_journal() {
    mutate_crashed("no_csum_no_64bit", 100);
}

#[test]
fn mutated_journal_with_checksums() {
    mutate_crashed("ordered_1k", 60);
}

#[test]
fn mutated_fast_commits() {
    mutate_crashed("fast_commit_no_csum", 100);
}

#[test]
fn truncated_images() {
    let spec = ImageSpec::new(
        "truncated",
        8 << 20,
        &["-t", "ext4", "-b", "1024", "-N", "2000"],
    )
    .mounted(PLANS);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let file = OpenOptions::new()
        .write(true)
        .open(&image.path)
        .expect("the image can be written");
    let early = [
        0, 1, 511, 512, 1023, 1024, 1025, 1500, 2047, 2048, 2049, 3072, 4096, 5000,
    ];
    let mut lengths: Vec<u64> = early
        .into_iter()
        .chain((0..120).map(|at| at * 69_000 + 1))
        .collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    survive("truncated to", lengths, move |length| {
        file.set_len(length).expect("the image can be cut");
        exercise(&image.path);
    });
}

/// A walk over a directory that contains its own parent ends.
#[test]
fn directory_loops_end() {
    let spec = ImageSpec::new("loop", 4 << 20, &["-t", "ext4", "-b", "1024"]);
    let spec = spec.then(&[Step::Debugfs(
        "mkdir /a\nmkdir /a/b\nlink /a /a/b/a\nlink / /a/b/root\nmkdir /c\nlink /c /c/self\n",
    )]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    survive("directory loop", vec![0], move |_| {
        exercise(&image.path);
        let session = Volume::open(&image.path)
            .expect("the volume itself is fine")
            .superuser();
        let _ = session.metadata("/a/b/a/b/a/b/a/b");
        let _ = session.canonicalize("/c/self/self/self/..");
    });
}

/// An error of the device does not name the file a second time.
#[test]
fn an_image_that_is_not_there_is_named_once() {
    let error = Volume::open("/none.img").expect_err("there is none");
    assert_eq!(
        error.to_string(),
        "cannot open /none.img: No such file or directory"
    );
}
