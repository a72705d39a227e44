//! `bench walk`: gets the attributes of one path repeatedly, in process.
//!
//! `bench` calls [`run`]. It opens the volume for reading. If one look-up fails, the benchmark
//! prints no figures.

use std::io::{self, Write as _};
use std::time::Duration;

use extern4::Session;
use extern4_measure::load::{Done, Load, for_span};
use extern4_sync::allocations;

use crate::app::{App, Target};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::json;
use crate::text::counted;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The path
    #[arg(value_name = "IMAGE:/PATH", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// Threads that do it at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Seconds to do it for
    #[arg(long, default_value_t = 3.0, value_parser = super::seconds)]
    seconds: f64,
    /// The path does not exist: measure how fast the answer "no such file" is
    ///
    /// Any other answer is an error. Each look-up still searches the directories above the path, as
    /// the caller that --as names.
    #[arg(long)]
    missing: bool,
    /// Write a JSON object
    #[arg(long)]
    json: bool,
}

/// Operations between two checks of the time.
const BATCH: u64 = 256;

/// The figures of a run.
struct Measured {
    threads: u32,
    missing: bool,
    done: Done,
    /// Walks that restarted, or went on with reference counts.
    restarts: u64,
    fast_exec_hit_rate: Option<f64>,
}

pub(super) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Args {
        image_path,
        threads,
        seconds,
        missing,
        json,
    } = args;
    let Some(target) = app.target(image_path) else {
        return Ok(());
    };
    // This look-up reads everything from the image before the time runs.
    match look_up(target.session(), target.path(), *missing) {
        Ok(true) => {}
        Ok(false) => {
            app.fail_at(
                ExitStatus::Failed,
                image_path,
                "the file is there, and --missing says that it is not",
            );
            return Ok(());
        }
        Err(error) => {
            app.error(image_path, &error);
            return Ok(());
        }
    }
    let measured = match walk(
        &target,
        *threads,
        *missing,
        Duration::from_secs_f64(*seconds),
    ) {
        Ok(measured) => measured,
        Err(error) => {
            app.error(image_path, &error);
            return Ok(());
        }
    };
    let text = if *json {
        measured.json()
    } else {
        measured.people()
    };
    io::stdout().write_all(text.as_bytes())
}

/// Gets the attributes; returns true if the file exists or is missing as expected.
fn look_up(session: &Session, path: &std::path::Path, missing: bool) -> extern4::Result<bool> {
    if missing {
        return session.exists(path).map(|exists| !exists);
    }
    let answer = session.metadata(path);
    // By reference, since a move would copy it.
    std::hint::black_box(&answer);
    answer.map(|_| true)
}

fn walk(
    target: &Target,
    threads: u32,
    missing: bool,
    duration: Duration,
) -> extern4::Result<Measured> {
    let session = target.session();
    let path = target.path();
    let before = target.volume.volume.cache_stats();
    let stat = |session: &mut Session| {
        for_span(duration, BATCH, |_| {
            std::hint::black_box(look_up(session, path, missing)?);
            Ok(1)
        })
    };
    let load = Load::counting(threads as usize, allocations::of_this_thread);
    let done = load.run(|_| session.clone(), stat, || {})?;
    let after = target.volume.volume.cache_stats();
    let fast = after.fast_searches.saturating_sub(before.fast_searches);
    let full = after.full_searches.saturating_sub(before.full_searches);
    Ok(Measured {
        threads,
        missing,
        done,
        restarts: (after.walk_restarts - before.walk_restarts)
            + (after.walk_fallbacks - before.walk_fallbacks),
        fast_exec_hit_rate: (fast + full > 0).then(|| fast as f64 / (fast + full) as f64),
    })
}

impl Measured {
    fn json(&self) -> String {
        json::line(|object| {
            object.text("op", "walk");
            object.raw("threads", self.threads);
            object.raw("missing", self.missing);
            super::write(&self.done, self.threads, object);
            object.rounded("fast_exec_hit_rate", self.fast_exec_hit_rate, 4);
            object.raw("restarts", self.restarts);
        })
    }

    fn people(&self) -> String {
        format!(
            "walk{}, {}: {}, {}{}\n",
            if self.missing {
                " to a missing file"
            } else {
                ""
            },
            counted(self.threads, "thread", "threads"),
            super::sentence(&self.done, self.threads),
            counted(self.restarts, "restart", "restarts"),
            self.fast_exec_hit_rate
                .map_or_else(String::new, |rate| format!(
                    ", {:.1} % of search checks fast",
                    rate * 100.0
                )),
        )
    }
}
