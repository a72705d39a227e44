//! Rows that prove that costs stay flat: of a volume that is opened, read and closed many times,
//! and of many threads that read one volume.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::thread;

use extern4::{Cred, Session, Volume};
use extern4_measure::json;
use extern4_sync::{allocations, rcu};
use serde_json::Value;

use super::growth::Generated;
use super::paths;
use super::row::{Row, Unit};
use super::visit::{cpu_time, resident_mib, stat_by_us};
use super::walk::{UID, output};
use super::write::remove;
use super::{Bench, Result};

/// Files of the tree.
const FILES: u64 = 1000;
/// Times that the volume is opened before memory is compared, and in all.
const FIRST_OPENS: u32 = 20;
const OPENS: u32 = 1000;
const THREADS: usize = 1024;
/// Questions that all threads together ask.
const QUESTIONS: usize = 4_000_000;

impl Bench {
    /// Bytes that 980 more openings, readings and closings of a volume leave behind.
    pub(super) fn reopen(&self, name: &'static str) -> Result<Row> {
        let mut row = Row::below(name, Unit::Bytes, 65536.0);
        let [live, resident] =
            self.proof(|image, list| run(&["reopen", image, list], ["live", "resident_mib"]))?;
        row.add(live, 65536.0);
        row.set_note(format!(
            "more than after {FIRST_OPENS} openings; {resident:.1} MiB more are resident"
        ));
        Ok(row)
    }

    /// CPU time of a `stat` by 1,024 threads, compared with two.
    pub(super) fn crowd(&self, name: &'static str) -> Result<Row> {
        let mut row = Row::faster(name, Unit::Nanoseconds, 0.8);
        let mut kept = 0.0;
        self.proof(|image, list| {
            row.rounds(3, || {
                let of = |threads: usize| {
                    run(
                        &["crowd", image, list, &threads.to_string()],
                        ["nanos", "live_a_thread"],
                    )
                };
                let [many, live] = of(THREADS)?;
                let [two, _] = of(2)?;
                kept = live;
                Ok((many, two))
            })
        })?;
        row.set_note(format!(
            "CPU time; {THREADS} threads keep {kept:.0} bytes each after they have ended"
        ));
        Ok(row)
    }

    fn proof<T>(&self, measure: impl FnOnce(&str, &str) -> Result<T>) -> Result<T> {
        let [image, list] = ["proof.img", "proof.paths"].map(|name| self.folder.join(name));
        let shown = [&image, &list].map(|path| path.display().to_string());
        let measured =
            Generated::build(FILES, &image, &list).and_then(|()| measure(&shown[0], &shown[1]));
        remove([image, list])?;
        measured
    }
}

/// Runs a hidden subcommand, and returns two figures of its output.
fn run(args: &[&str], keys: [&str; 2]) -> Result<[f64; 2]> {
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let text = output(Command::new(this).args(args))?;
    let said: Value = serde_json::from_str(&text).map_err(|e| format!("{e} in {text}"))?;
    let [one, other] = keys.map(|key| {
        said[key]
            .as_f64()
            .ok_or_else(|| format!("no {key} in {text}"))
    });
    Ok([one?, other?])
}

/// The hidden subcommand `reopen IMAGE LIST`: opens a volume, asks for all paths and closes it,
/// over and over, and prints the growth of the memory.
pub(super) fn reopen(args: &[String]) -> Result<()> {
    let [image, list] = args else {
        return Err("reopen takes an image and a list of paths".to_owned());
    };
    let paths = paths::read(Path::new(list))?;
    allocations::count_live(true);
    let mut first = (0, 0.0);
    for open in 1..=OPENS {
        let volume = Volume::open(image).map_err(|e| e.to_string())?;
        let session = volume.session(Cred::new(UID, UID, &[]));
        paths
            .iter()
            .try_for_each(|path| stat_by_us(&session, path).map(drop))?;
        drop(session);
        volume.close().map_err(|e| e.to_string())?;
        rcu::pin().flush_all();
        if open == FIRST_OPENS {
            first = (allocations::live_bytes(), resident_mib()?);
        }
    }
    let live = allocations::live_bytes()
        .wrapping_sub(first.0)
        .cast_signed();
    let resident = resident_mib()? - first.1;
    print!(
        "{}",
        json::line(|object| {
            object.raw("live", live);
            object.number("resident_mib", resident);
        })
    );
    Ok(())
}

/// The hidden subcommand `crowd IMAGE LIST THREADS`: has many threads ask for all paths, and prints
/// the cost of a question and the memory that each thread leaves behind.
pub(super) fn crowd(args: &[String]) -> Result<()> {
    let [image, list, threads] = args else {
        return Err("crowd takes an image, a list of paths and a number of threads".to_owned());
    };
    let threads: usize = threads.parse().map_err(|_| "threads are a number")?;
    let paths = paths::read(Path::new(list))?;
    let volume = Volume::open(image).map_err(|e| e.to_string())?;
    let session = volume.session(Cred::new(UID, UID, &[]));
    let ask = |session: &Session| {
        paths
            .iter()
            .try_for_each(|path| black_box(stat_by_us(session, path)).map(drop))
    };
    ask(&session)?;
    let rounds = QUESTIONS.div_ceil(threads * paths.len());
    allocations::count_live(true);
    let live = allocations::live_bytes();
    let [ready, start, end] = [(); 3].map(|()| Barrier::new(threads + 1));
    let took = thread::scope(|scope| {
        let work = || {
            // Each thread has its first questions behind it when the clock starts.
            let first = ask(&session);
            ready.wait();
            start.wait();
            let asked = first.and_then(|()| (0..rounds).try_for_each(|_| ask(&session)));
            end.wait();
            asked
        };
        let asking: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        ready.wait();
        let before = cpu_time()?;
        start.wait();
        end.wait();
        let took = cpu_time()?.saturating_sub(before);
        let ended = asking
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no panic"));
        ended.map(|()| took)
    })?;
    rcu::pin().flush_all();
    let left = allocations::live_bytes().wrapping_sub(live).cast_signed();
    print!(
        "{}",
        json::line(|object| {
            object.number(
                "nanos",
                took.as_nanos() as f64 / (rounds * threads * paths.len()) as f64,
            );
            object.number("live_a_thread", left as f64 / threads as f64);
        })
    );
    Ok(())
}
