//! Rows of many threads that change one volume: empty files made and removed by two and by one, and
//! files that 64 make durable at the same time.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use extern4::{Session, Volume};
use extern4_measure::load::Load;

use super::image::Rival;
use super::row::{Row, Unit};
use super::write::{Mounted, PAIRS, create_and_unlink, directory, make, open, remove};
use super::{Bench, RUNS, Result};

/// Names of a thread that take turns.
const NAMES: u32 = 64;
/// Threads that make files durable, and how many each makes so in one run.
const SYNCERS: u32 = 64;
const SYNCED: u32 = 16;
const BLOCK: [u8; 4096] = [0x5a; 4096];

impl Bench {
    /// Two threads, each in its own directory, compared with one.
    pub(super) fn create_unlink_threads(&self) -> Result<Row> {
        self.two_beside_one(
            Row::faster("create-unlink-2-threads", Unit::Nanoseconds, 1.7),
            false,
        )
    }

    /// Two threads in one directory, compared with one.
    pub(super) fn create_unlink_shared_threads(&self) -> Result<Row> {
        self.two_beside_one(
            Row::faster("create-unlink-shared-2-threads", Unit::Nanoseconds, 1.5),
            true,
        )
    }

    fn two_beside_one(&self, mut row: Row, shared: bool) -> Result<Row> {
        let image = self.fresh("ours.img", "512M", 20_000)?;
        row.rounds(RUNS, || {
            let two = create_unlink(&image, 2, shared)?;
            let one = create_unlink(&image, 1, shared)?;
            Ok((two, one))
        })?;
        row.set_note(
            "ns of the clock for a file of any thread, two threads beside one, ours both"
                .to_owned(),
        );
        remove([image])?;
        Ok(row)
    }

    /// How many calls of fsync one commit serves.
    pub(super) fn fsyncs_per_commit(&self) -> Result<Row> {
        let mut row = Row::faster("fsync-64-threads-per-commit", Unit::Count, 16.0);
        self.synced(|synced| row.add(synced.commits, synced.fsyncs))?;
        row.set_note("commits beside calls of fsync".to_owned());
        Ok(row)
    }

    /// Flushes that a commit takes which many wait for.
    pub(super) fn fsync_flushes(&self) -> Result<Row> {
        let mut row = Row::below("fsync-64-threads-flushes", Unit::Count, 2.0);
        self.synced(|synced| row.add(synced.flushes / synced.commits, 2.0))?;
        row.set_note("for each commit".to_owned());
        Ok(row)
    }

    /// Files that 64 threads make durable, compared with the kernel.
    pub(super) fn fsync_threads(&self) -> Result<Row> {
        let mut row = Row::faster("fsync-64-threads-vs-kernel", Unit::Nanoseconds, 1.0);
        for run in 0..=RUNS {
            // A new volume each time, for the files stay.
            let image = self.fresh("ours.img", "512M", 20_000)?;
            let ours = Synced::measure(&image)?.ns;
            remove([image])?;
            let image = self.fresh("rival.img", "512M", 20_000)?;
            let mount = Mounted::new(Rival::Kernel, &image, &self.folder.join("mnt"))?;
            let theirs = sync_below(&mount.path)?;
            mount.end()?;
            remove([image])?;
            if run > 0 {
                row.add(ours, theirs);
                row.set_note(format!("{:.0} files a second", 1e9 / ours));
            }
        }
        Ok(row)
    }

    fn synced(&self, mut add: impl FnMut(Synced)) -> Result<()> {
        for _ in 0..RUNS {
            let image = self.fresh("ours.img", "512M", 20_000)?;
            add(Synced::measure(&image)?);
            remove([image])?;
        }
        Ok(())
    }
}

/// Runs `work` in `threads` threads from the same moment on, each with its number. Returns the
/// nanoseconds until all have ended.
pub(super) fn in_threads(threads: u32, work: impl Fn(u32) -> Result<()> + Sync) -> Result<f64> {
    let load = Load::of(threads as usize);
    let done = load.run(
        |thread| thread as u32,
        |thread| work(*thread).map(|()| 1),
        || {},
    )?;
    Ok(done.wall.as_nanos() as f64)
}

/// Nanoseconds of the clock for a file that any of the threads makes and removes.
fn create_unlink(image: &Path, threads: u32, shared: bool) -> Result<f64> {
    let volume = open(image)?;
    let sessions = directories(&volume, threads, shared)?;
    let ns = in_threads(threads, |thread| {
        let names: Vec<_> = (0..NAMES)
            .map(|number| format!("f{thread}-{number}"))
            .collect();
        names
            .iter()
            .cycle()
            .take(PAIRS as usize)
            .try_for_each(|name| create_and_unlink(&sessions[thread as usize], name))
    })?;
    drop(sessions);
    volume.close().map_err(|e| e.to_string())?;
    Ok(ns / f64::from(PAIRS * threads))
}

/// Where each thread works.
fn directories(volume: &Volume, threads: u32, shared: bool) -> Result<Vec<Session>> {
    let top = directory(volume)?;
    let of = |thread: u32| {
        let name = if shared {
            "all".to_owned()
        } else {
            format!("own-{thread}")
        };
        top.create_dir_all(&name)
            .and_then(|()| top.at(&name))
            .map_err(|e| e.to_string())
    };
    (0..threads).map(of).collect()
}

/// The cost of making many files durable.
struct Synced {
    fsyncs: f64,
    commits: f64,
    flushes: f64,
    /// Nanoseconds of the clock for each file.
    ns: f64,
}

impl Synced {
    fn measure(image: &Path) -> Result<Self> {
        let volume = open(image)?;
        let session = directory(&volume)?;
        volume.sync().map_err(|e| e.to_string())?;
        let stats = || {
            volume
                .ext4()
                .journal_stats()
                .ok_or("it is open for reading only")
        };
        let before = stats()?;
        let ns = in_threads(SYNCERS, |thread| {
            let make = |number| {
                let file = make(&session, format!("f{thread}-{number}"))?;
                file.write_all_at(&BLOCK, 0)?;
                file.sync_all()
            };
            (0..SYNCED)
                .try_for_each(|number| make(number).map_err(|e: extern4::Error| e.to_string()))
        })?;
        let after = stats()?;
        drop(session);
        volume.close().map_err(|e| e.to_string())?;
        let fsyncs = f64::from(SYNCERS * SYNCED);
        Ok(Self {
            fsyncs,
            commits: (after.transactions - before.transactions) as f64,
            flushes: (after.flushes - before.flushes) as f64,
            ns: ns / fsyncs,
        })
    }
}

/// Nanoseconds of the clock for each file, by system calls below a mount point.
fn sync_below(root: &Path) -> Result<f64> {
    let work = root.join("work");
    fs::create_dir_all(&work).map_err(|e| e.to_string())?;
    let make = |name: String| {
        let mut file = File::create_new(work.join(name))?;
        file.write_all(&BLOCK)?;
        file.sync_all()
    };
    let ns = in_threads(SYNCERS, |thread| {
        (0..SYNCED).try_for_each(|number| {
            make(format!("f{thread}-{number}")).map_err(|e: std::io::Error| e.to_string())
        })
    })?;
    Ok(ns / f64::from(SYNCERS * SYNCED))
}
