//! States that a crash leaves, written by the kernel: files are truncated, and removed while they
//! are open, until the file system is shut down in the middle.
//!
//! `e2fsck -p` replays the journal of a copy and frees its orphans. Where `e2fsck -fn` then finds
//! nothing, the check must find nothing in the state itself.

use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use extern4_testkit::crash::{Crash, shut_down};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{e2fsck_complaints, find};

use crate::check::faults;

const SPECS: [ImageSpec; 6] = [
    spec("ext4", &["-t", "ext4", "-b", "1024"]),
    spec(
        "orphan_file",
        &["-t", "ext4", "-b", "4096", "-O", "orphan_file"],
    ),
    spec("ext3", &["-t", "ext3", "-b", "1024"]),
    spec(
        "inline_data",
        &["-t", "ext4", "-b", "1024", "-O", "inline_data"],
    ),
    spec(
        "uninit_bg",
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
    ),
    spec(
        "bigalloc",
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
    ),
];

const fn spec(name: &'static str, mke2fs: &'static [&'static str]) -> ImageSpec {
    ImageSpec::new(name, 48 << 20, mke2fs)
}

const FILES: u64 = 12;
const DIRECTORIES: u64 = 6;

/// A generator of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// Makes files in one piece and in many, and directories of several sizes.
fn fill(root: &Path, random: &mut Random) -> io::Result<()> {
    for number in 0..FILES {
        let mut file = File::create(root.join(format!("f{number}")))?;
        // Many pieces: a truncation of them takes several transactions.
        for piece in 0..1 + random.below(2) * random.below(600) {
            file.seek(SeekFrom::Start(piece * 3 * 4096))?;
            file.write_all(&vec![b'x'; 100 + random.below(4000) as usize])?;
        }
    }
    for number in 0..DIRECTORIES {
        let dir = root.join(format!("d{number}"));
        fs::create_dir(&dir)?;
        for entry in 0..random.below(80) {
            File::create(dir.join(format!("{entry:0>60}")))?;
        }
    }
    for number in 0..4 {
        std::os::unix::fs::symlink(
            "t".repeat(5 + 300 * number),
            root.join(format!("s{number}")),
        )?;
    }
    File::open(root)?.sync_all()
}

/// Does one step. The handles in `open` keep what is removed from being freed.
fn step(root: &Path, random: &mut Random, open: &mut Vec<File>) -> io::Result<()> {
    let file = root.join(format!("f{}", random.below(FILES)));
    let dir = root.join(format!("d{}", random.below(DIRECTORIES)));
    let writable = || File::options().write(true).open(&file);
    match random.below(10) {
        0..3 => writable()?.set_len(random.below(2_000_000)),
        3 => writable()?.set_len(0),
        4 => {
            open.push(File::open(&file)?);
            fs::remove_file(&file)
        }
        5 => fs::remove_file(&file),
        6 => {
            open.push(File::open(&dir)?);
            for entry in fs::read_dir(&dir)? {
                fs::remove_file(entry?.path())?;
            }
            fs::remove_dir(&dir)
        }
        7 => fs::rename(&file, root.join(format!("f{}", random.below(FILES)))),
        8 => fs::remove_file(root.join(format!("s{}", random.below(4)))),
        _ => fs::create_dir(&dir),
    }
}

/// Returns the state of a volume after a crash in the middle of changes.
fn crashed(seed: u64) -> Image {
    let mut random = Random(seed);
    let image = SPECS[seed as usize % SPECS.len()].build();
    // Only syncs commit.
    let mount = image.mount(
        ["noatime,commit=300", "noatime,commit=300,data=journal"][usize::from(seed % 5 == 4)],
    );
    let root = mount.path.as_path();
    fill(root, &mut random).expect("files");
    let is_over = AtomicBool::new(false);
    let work = |seed| {
        let mut random = Random(seed);
        let mut open = Vec::new();
        for _ in 0..80 {
            // A file may be gone, and after the crash everything fails.
            let _ = step(root, &mut random, &mut open);
        }
        open
    };
    let commit = || {
        while !is_over.load(Relaxed) {
            let _ = File::open(root).and_then(|root| root.sync_all());
        }
    };
    let pause = Duration::from_millis(random.below(120));
    let how = random.below(3);
    thread::scope(|scope| {
        let workers = [seed << 8, seed << 8 | 1].map(|seed| scope.spawn(move || work(seed)));
        scope.spawn(commit);
        thread::sleep(pause);
        shut_down(
            root,
            if how == 0 {
                Crash::ShutdownAfterCommit
            } else {
                Crash::Shutdown
            },
        );
        is_over.store(true, Relaxed);
        // Unmounting writes the changes to their places.
        let state = image.copy();
        workers.into_iter().for_each(|worker| drop(worker.join()));
        state
    })
}

/// The judgement of e2fsck on a state.
struct Judgement {
    /// It replays the journal and frees the orphans, and then finds nothing.
    is_sound: bool,
    removed: usize,
    truncated: usize,
}

/// Complaints of `e2fsck -fn` about what `e2fsck -p` leaves: a tree of extents that has become too
/// deep, and names in the orphan file whose inodes it has freed.
const LEFT: [&str; 4] = [
    "Optimize?",
    "is not clean. Clear?",
    "orphan file. Recreate?",
    "still has errors",
];

fn judge(state: &Image) -> Judgement {
    let copy = state.copy();
    let preen = Command::new(find("e2fsck").expect("e2fsck"))
        .arg("-p")
        .arg(&copy.path)
        .output();
    let preen = preen.expect("e2fsck runs");
    let said = String::from_utf8_lossy(&preen.stdout);
    let complaints = e2fsck_complaints(&copy.path);
    let is_left = |line: &String| LEFT.iter().any(|left| line.contains(left));
    Judgement {
        is_sound: preen.status.code().is_some_and(|code| code <= 1)
            && complaints.iter().all(is_left),
        removed: said.matches("Clearing orphaned inode").count(),
        truncated: said.matches("Truncating orphaned inode").count(),
    }
}

#[test]
fn states_after_crashes_have_no_faults() {
    if !SPECS[0].can_run() {
        return;
    }
    let states = std::env::var("EXTERN4_CRASHES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(12);
    let mut sound = 0;
    let mut removed = 0;
    let mut truncated = 0;
    let mut failed = Vec::new();
    for seed in 0..states {
        let state = crashed(seed);
        let found: Vec<String> = match faults(&state.path, 0) {
            Ok((faults, _)) => faults.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error],
        };
        let judgement = judge(&state);
        sound += usize::from(judgement.is_sound);
        removed += judgement.removed;
        truncated += judgement.truncated;
        if judgement.is_sound && !found.is_empty() {
            failed.push(format!("state {seed}: {:#?}", &found[..found.len().min(8)]));
        }
    }
    let judged = format!(
        "{states} states, {sound} sound; orphans: {removed} removed, {truncated} truncated"
    );
    println!("{judged}");
    assert!(failed.is_empty(), "{judged}\n{}", failed.join("\n"));
    assert!(sound > 0 && removed > 0, "{judged}");
}
