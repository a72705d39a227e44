//! `bench walk`: the attributes of one path, over and over, in process.

use std::io::{self, Write as _};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use extern4_sync::allocations;

use crate::app::{App, Target};
use crate::json;
use crate::place::Place;
use crate::status::Status;
use crate::text::counted;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The path
    #[arg(value_name = "PLACE", value_parser = Place::parser())]
    place: Place,
    /// Threads that do it at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Seconds to do it for
    #[arg(long, default_value_t = 3.0, value_parser = super::seconds)]
    seconds: f64,
    /// The path is not there: measure how fast that is said
    ///
    /// Every answer has to be that there is no such file; anything else is an error. The directories on the way
    /// to it are searched all the same, as the caller that --as names.
    #[arg(long)]
    missing: bool,
    /// Write a JSON object
    #[arg(long)]
    json: bool,
}

/// Operations between two looks at whether the time is up.
const BATCH: u64 = 256;

/// What a run measured.
struct Measured {
    threads: u32,
    missing: bool,
    ops: u64,
    allocations: u64,
    elapsed: Duration,
    /// Walks that began again, or went on with references.
    restarts: u64,
    fast_exec_hit_rate: Option<f64>,
}

pub(super) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Args { place, threads, seconds, missing, json } = args;
    let Some(target) = app.target(place) else { return Ok(()) };
    // Whatever has to be read is read before.
    match look_up(target.session(), target.path(), *missing) {
        Ok(true) => {}
        Ok(false) => {
            app.fail(
                Status::Failed,
                format_args!("{place}: the file is there, and --missing says that it is not"),
            );
            return Ok(());
        }
        Err(error) => {
            app.error(place, &error);
            return Ok(());
        }
    }
    let measured = match walk(&target, *threads, *missing, Duration::from_secs_f64(*seconds)) {
        Ok(measured) => measured,
        Err(error) => {
            app.error(place, &error);
            return Ok(());
        }
    };
    let text = if *json { measured.json() } else { measured.people() };
    io::stdout().write_all(text.as_bytes())
}

/// Gets the attributes; true if the file is there or not as it should be.
fn look_up(session: &extern4::Session, path: &std::path::Path, missing: bool) -> extern4::Result<bool> {
    if missing {
        return session.exists(path).map(|exists| !exists);
    }
    let answer = session.metadata(path);
    // Looked at where it is, since it is not to be moved about.
    std::hint::black_box(&answer);
    answer.map(|_| true)
}

fn walk(target: &Target, threads: u32, missing: bool, duration: Duration) -> extern4::Result<Measured> {
    let barrier = Barrier::new(threads as usize + 1);
    let before = target.volume.volume.cache_stats();
    let (counts, elapsed) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let session = target.session().clone();
                let (barrier, path) = (&barrier, target.path());
                scope.spawn(move || {
                    barrier.wait();
                    stat(&session, path, missing, duration)
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        let counts: Vec<_> =
            workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect();
        (counts, start.elapsed())
    });
    let after = target.volume.volume.cache_stats();
    let (mut ops, mut allocated) = (0, 0);
    for count in counts {
        let (thread_ops, thread_allocations) = count?;
        ops += thread_ops;
        allocated += thread_allocations;
    }
    let fast = after.fast_searches.saturating_sub(before.fast_searches);
    let full = after.full_searches.saturating_sub(before.full_searches);
    Ok(Measured {
        threads,
        missing,
        ops,
        allocations: allocated,
        elapsed,
        restarts: (after.walk_restarts - before.walk_restarts)
            + (after.walk_fallbacks - before.walk_fallbacks),
        fast_exec_hit_rate: (fast + full > 0).then(|| fast as f64 / (fast + full) as f64),
    })
}

/// One thread's work: its operations and allocations.
fn stat(
    session: &extern4::Session,
    path: &std::path::Path,
    missing: bool,
    duration: Duration,
) -> extern4::Result<(u64, u64)> {
    let start = Instant::now();
    let before = allocations::of_this_thread();
    let mut ops = 0;
    while start.elapsed() < duration {
        for _ in 0..BATCH {
            std::hint::black_box(look_up(session, path, missing)?);
        }
        ops += BATCH;
    }
    Ok((ops, allocations::of_this_thread() - before))
}

impl Measured {
    fn ops_per_s(&self) -> f64 {
        self.ops as f64 / self.elapsed.as_secs_f64()
    }

    /// Nanoseconds that a thread takes for an operation.
    fn ns_per_op(&self) -> f64 {
        self.elapsed.as_nanos() as f64 * f64::from(self.threads) / self.ops as f64
    }

    fn allocs_per_op(&self) -> f64 {
        self.allocations as f64 / self.ops as f64
    }

    fn json(&self) -> String {
        json::line(|object| {
            object.text("op", "walk");
            object.raw("threads", self.threads);
            object.raw("missing", self.missing);
            object.raw("ops_per_s", format_args!("{:.0}", self.ops_per_s()));
            object.raw("ns_per_op", format_args!("{:.1}", self.ns_per_op()));
            object.raw("allocs_per_op", format_args!("{:.4}", self.allocs_per_op()));
            object.maybe("fast_exec_hit_rate", self.fast_exec_hit_rate.map(|rate| format!("{rate:.4}")));
            object.raw("restarts", self.restarts);
        })
    }

    fn people(&self) -> String {
        format!(
            "walk{}, {}: {:.0} operations/s, {:.1} ns each, {:.4} allocations each, {}{}\n",
            if self.missing { " to a missing file" } else { "" },
            counted(self.threads, "thread", "threads"),
            self.ops_per_s(),
            self.ns_per_op(),
            self.allocs_per_op(),
            counted(self.restarts, "restart", "restarts"),
            self.fast_exec_hit_rate
                .map_or_else(String::new, |rate| format!(", {:.1} % of search checks fast", rate * 100.0)),
        )
    }
}
