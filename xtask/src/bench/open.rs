//! Rows of opening and closing: a file that is cached, over and over.
//!
//! Ours is the library as user 1000, in this process; the kernel's is `open(2)` and `close(2)` by the same user on a loop mount of
//! the same image, in a process whose root is the mount. Registries of open files are measured by themselves, beside those
//! that are not in production.

use std::convert::Infallible;
use std::hint::black_box;
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use extern4::{Cred, Session, Volume};
use extern4_measure::load::{Load, for_span};
use extern4_sync::primitive::{AtomicU64, Ordering};
use extern4_vfs::open_files::lab::{CpuLists, OneList, Registry, Slabs};

use super::image::{Mount, Rival};
use super::row::{Row, Unit};
use super::walk::{self, Call, PATH, SECONDS, UID};
use super::{Bench, RUNS, Result};

const OTHER: &str = "/usr/include/linux/elf.h";
/// Operations between two looks at whether the time is up.
const BATCH: u64 = 64;
/// Who closes what one thread opens.
const CLOSERS: usize = 3;
/// Files that are handed over at once.
const HANDFUL: u64 = 64;

impl Bench {
    pub(super) fn open_close(&self) -> Result<Row> {
        let (_volume, session) = self.session()?;
        let mount = Mount::new(Rival::Kernel, self.include()?, &self.folder.join("mnt"))?;
        let mut row = Row::faster("open-close-vs-kernel", Unit::Nanoseconds, 10.0);
        row.rounds(RUNS, || {
            let ours = open_close(&session, &[PATH])?;
            let theirs = walk::kernel(Call::Open, mount.path(), PATH)?;
            Ok((ours, theirs))
        })?;
        Ok(row)
    }

    /// Two threads, each with a file of its own, beside one: nanoseconds of the clock for an operation of any thread.
    pub(super) fn open_close_threads(&self) -> Result<Row> {
        let (_volume, session) = self.session()?;
        let mut row = Row::faster("open-close-2-threads-vs-1", Unit::Nanoseconds, 1.9);
        row.rounds(RUNS, || {
            let (two, one) = (open_close(&session, &[PATH, OTHER])?, open_close(&session, &[PATH])?);
            Ok((two, one))
        })?;
        row.set_note("two threads, one session, two files".to_owned());
        Ok(row)
    }

    /// What the test called footprint finds: it has atomics that note what is done to them.
    pub(super) fn open_close_locked(&self) -> Result<Row> {
        const SAYS: &str = "locked instructions on lines that another thread uses:";
        let mut test = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        test.args([
            "test",
            "--quiet",
            "--package",
            "extern4-vfs",
            "--features",
            "audit",
            "--test",
            "footprint",
        ]);
        test.args(["open_and_close", "--", "--nocapture"]);
        let text = walk::output(&mut test)?;
        let counts = text.lines().filter_map(|line| line.strip_prefix(SAYS)?.trim().parse().ok());
        let fewest = counts.reduce(f64::min).ok_or_else(|| format!("the test says {text:?}"))?;
        let mut row = Row::below("open-close-shared-locked-instructions", Unit::Count, 0.0);
        row.add(fewest, 0.0);
        row.set_note("closed by the thread that opened; counted by the test called footprint".to_owned());
        Ok(row)
    }

    /// One thread opens, others close.
    pub(super) fn open_handed_over(&self) -> Result<Row> {
        let mut row = Row::faster("open-1-close-3-vs-one-lock", Unit::Nanoseconds, 1.0);
        let (mut lists, mut alone) = (f64::INFINITY, [f64::INFINITY; 3]);
        row.rounds(RUNS, || {
            let ours = hand_over::<Slabs<AtomicU64>>();
            let rival = hand_over::<OneList<AtomicU64>>();
            lists = lists.min(hand_over::<CpuLists<AtomicU64>>());
            let now = [alone_in::<Slabs<_>>(), alone_in::<OneList<_>>(), alone_in::<CpuLists<_>>()];
            alone = std::array::from_fn(|index| alone[index].min(now[index]));
            Ok((ours, rival))
        })?;
        let [slabs, one, cpus] = alone;
        row.set_note(format!(
            "per-CPU lists {lists:.0} ns; each thread closing what it opens: slabs {slabs:.1}, one list {one:.1}, per-CPU lists {cpus:.1} ns"
        ));
        Ok(row)
    }

    fn session(&self) -> Result<(Volume, Session)> {
        let volume = Volume::open(self.include()?).map_err(|e| e.to_string())?;
        let session = volume.session(Cred::new(UID, UID, &[]));
        Ok((volume, session))
    }
}

/// Nanoseconds of the clock for one open and close of any thread, a thread for each path.
fn open_close(session: &Session, paths: &[&str]) -> Result<f64> {
    let open = |path: &str| session.open(black_box(path)).map(|_| 1).map_err(|e| e.to_string());
    let work = |path: &mut &str| for_span(Duration::from_secs_f64(SECONDS), BATCH, |_| open(path));
    Ok(Load::of(paths.len()).run(|thread| paths[thread], work, || {})?.nanos())
}

fn add<R: Registry<AtomicU64>>(registry: &R, value: u64) -> R::Ticket {
    registry.add(|record| record.store(value, Ordering::Relaxed)).expect("there is room")
}

/// Nanoseconds of the clock for a record that one thread enters and another takes out.
fn hand_over<R: Registry<AtomicU64, Ticket: Send>>() -> f64 {
    const RECORDS: u64 = 1 << 20;
    let registry = &R::default();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..CLOSERS)
            .map(|_| {
                let (sender, tickets) = sync_channel::<Vec<R::Ticket>>(16);
                scope.spawn(move || {
                    tickets.iter().flatten().for_each(|ticket| assert!(registry.remove(&ticket, |_| ())));
                });
                sender
            })
            .collect();
        for (handful, sender) in (0..RECORDS / HANDFUL).zip(senders.iter().cycle()) {
            let tickets = (0..HANDFUL).map(|n| add(registry, handful + n)).collect();
            sender.send(tickets).expect("the closers take all");
        }
    });
    start.elapsed().as_nanos() as f64 / RECORDS as f64
}

/// Nanoseconds of the clock for a record that is entered and taken out by one of two threads that do so.
fn alone_in<R: Registry<AtomicU64>>() -> f64 {
    const RECORDS: u64 = 1 << 20;
    let registry = &R::default();
    let work = |_: &mut ()| {
        for n in 0..RECORDS {
            registry.remove(&add(registry, n), |_| ());
        }
        Ok::<_, Infallible>(RECORDS)
    };
    let Ok(done) = Load::of(2).run(|_| (), work, || {});
    done.nanos()
}
