//! The daemon killed while many threads work in its mount. Everything that was made durable is
//! there afterwards, whole, and `e2fsck` finds nothing.

use std::fs::{self, File};
use std::io::{Result, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools;

use crate::mounting::{can_mount_as_root, in_foreground, patiently, sound, transports};

const SPEC: ImageSpec = ImageSpec::new(
    "disk",
    128 << 20,
    &["-t", "ext4", "-b", "4096", "-J", "size=4"],
);
/// Threads that work in the mount.
const THREADS: u64 = 4;
/// Files that one thread keeps at most.
const MOST_FILES: u64 = 64;

/// Returns bytes that identify their file and their position in it.
fn contents(thread: u64, number: u64) -> Vec<u8> {
    let words = 64 + (thread * 7919 + number * 104_729) % 4096;
    (0..words)
        .flat_map(|word| (thread << 48 ^ number << 24 ^ word).to_le_bytes())
        .collect()
}

fn path(dir: &Path, thread: u64, number: u64) -> PathBuf {
    dir.join(format!("t{thread}/{number}"))
}

/// The files that one thread knows to be durably there, and durably gone.
#[derive(Default)]
struct Told {
    there: Vec<u64>,
    gone: Vec<u64>,
}

/// Makes, changes, renames and removes files until the daemon is gone. A sync follows each change
/// of a file that has been synced, so that its durable state is known. Between the two it is not.
fn work(dir: &Path, thread: u64, first: u64, is_dead: &AtomicBool, is_synced: &AtomicBool) -> Told {
    let mut told = Told::default();
    let own = dir.join(format!("t{thread}"));
    let mut number = first;
    while !is_dead.load(Ordering::Relaxed) {
        let new = number;
        let oldest = told.there.first().copied();
        number += 1;
        if make(dir, thread, new).is_err() {
            break;
        }
        told.there.push(new);
        is_synced.store(true, Ordering::Relaxed);
        if told.there.len() as u64 > MOST_FILES
            && let Some(oldest) = oldest
        {
            told.there.remove(0);
            let removed = fs::remove_file(path(dir, thread, oldest))
                .and_then(|()| File::open(&own)?.sync_all());
            if removed.is_err() {
                break;
            }
            told.gone.push(oldest);
        }
        // Unsynced changes may or may not survive.
        let _ = churn(&own, number);
    }
    told
}

/// Makes a file under a temporary name, renames it to its path, and makes it durable.
fn make(dir: &Path, thread: u64, number: u64) -> Result<()> {
    let path = path(dir, thread, number);
    let other = dir.join(format!("t{thread}/new"));
    let bytes = contents(thread, number);
    let mut file = File::create(&other)?;
    for part in bytes.chunks(5000) {
        file.write_all(part)?;
    }
    fs::rename(&other, &path)?;
    file.sync_all()?;
    // Overwrites the file in place with the bytes that it holds already.
    file.write_all_at(&bytes[..8], 0)?;
    if number.is_multiple_of(3) {
        file.sync_data()
    } else {
        File::open(dir.join(format!("t{thread}")))?.sync_all()
    }
}

fn churn(own: &Path, number: u64) -> Result<()> {
    let dir = own.join("churn");
    fs::create_dir_all(dir.join(format!("{}", number % 5)))?;
    fs::write(dir.join("a"), vec![7; (number % 50_000) as usize])?;
    fs::rename(dir.join("a"), dir.join(format!("{}/b", number % 5)))?;
    if number.is_multiple_of(5) {
        fs::remove_dir_all(&dir)
    } else {
        Ok(())
    }
}

/// Asserts that the files that were durable are there, and that the removed ones are gone.
fn check(dir: &Path, thread: u64, told: &Told) {
    for number in &told.there {
        let path = path(dir, thread, *number);
        let found = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            found == contents(thread, *number),
            "{} holds something else",
            path.display()
        );
    }
    for number in &told.gone {
        assert!(
            !path(dir, thread, *number).exists(),
            "{thread}/{number} is back"
        );
    }
}

/// Mounts, works, kills the daemon after some time, and mounts again.
fn kill(image: &Image, dir: &Path, transport: &str, round: u64) {
    let mut daemon = in_foreground(image, dir, transport);
    for thread in 0..THREADS {
        fs::create_dir_all(dir.join(format!("t{thread}"))).expect("a directory");
    }
    File::open(dir)
        .and_then(|root| root.sync_all())
        .expect("durable");
    let is_dead = AtomicBool::new(false);
    let is_synced = AtomicBool::new(false);
    let told: Vec<Told> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let is_dead = &is_dead;
                let is_synced = &is_synced;
                scope.spawn(move || work(dir, thread, round * 1_000_000, is_dead, is_synced))
            })
            .collect();
        // A busy machine takes its time to make the first file durable.
        let start = Instant::now();
        while !is_synced.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100 + round * 37 % 400));
        daemon
            .kill()
            .and_then(|()| daemon.wait())
            .expect("it is killed");
        is_dead.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .map(|worker| worker.join().expect("it ends"))
            .collect()
    });
    tools::run("umount", ["-l".as_ref(), dir.as_os_str()]);
    let synced: usize = told
        .iter()
        .map(|told| told.there.len() + told.gone.len())
        .sum();
    assert!(synced > 0, "round {round}: no sync was reported");
    let mut daemon = in_foreground(image, dir, transport);
    for (thread, told) in (0..).zip(&told) {
        check(dir, thread, told);
        fs::remove_dir_all(dir.join(format!("t{thread}"))).expect("it goes");
    }
    patiently(&[env!("CARGO_BIN_EXE_extern4"), "umount"], dir);
    assert!(daemon.wait().expect("it ends").success());
    sound(image);
}

#[test]
fn synced_data_survives_a_kill() {
    if !can_mount_as_root() {
        return;
    }
    let rounds = std::env::var("EXTERN4_KILLS")
        .map_or(3, |text| text.parse().expect("EXTERN4_KILLS is a number"));
    for transport in transports() {
        let image = SPEC.build();
        let dir = image.scratch().join("mnt");
        for round in 0..rounds {
            kill(&image, &dir, transport, round);
        }
    }
}
