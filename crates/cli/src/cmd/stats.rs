//! `extern4 stats`: shows the counters of the caches and the journal for a look at everything below
//! an image path. For a mount, it shows the requests answered so far.
//!
//! `args` calls [`run`]. For a mount it asks the serving process through `extern4_mountd`, and
//! changes nothing.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use extern4_mountd::activity::Activity;
use extern4_mountd::control::client;
use extern4_mountd::control::holders::{Holder, holders};
use extern4_mountd::control::mounts::is_dir;
use extern4_mountd::control::report::Report;

use super::top::seconds;
use crate::activity::{self, open_files};
use crate::app::App;
use crate::counters;
use crate::exit_status::ExitStatus;
use crate::json::{self, Object};
use crate::output::{flush, out};
use crate::text::escape;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory to look at; or a directory in a mount, to ask the process that serves it
    #[arg(value_name = "IMAGE:/PATH")]
    image_path: Option<OsString>,
    /// Say in a sentence what each counter counts; without a path, of all counters
    #[arg(short, long, conflicts_with_all = ["json", "rates", "interval"])]
    explain: bool,
    /// Show also how often a second: since the volume was mounted, or during the look
    #[arg(short, long)]
    rates: bool,
    /// Show how often a second between two readings of a mount that are this many seconds apart
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    interval: Option<Duration>,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let text = match args.image_path.as_ref().map(|path| (path, Path::new(path))) {
        None if args.explain => Some(counters::explanation(None)),
        None => {
            app.fail(
                ExitStatus::Usage,
                "a path is missing: IMAGE:/PATH, or a directory in a mount",
            );
            None
        }
        Some((_, dir)) if !app.in_script() && is_dir(dir) => of_mount(args, dir, app),
        Some(_) if args.interval.is_some() => {
            app.fail(
                ExitStatus::Usage,
                "--interval reads a mount twice, and this is no directory in one",
            );
            None
        }
        Some((image_path, _)) => of_image(args, image_path, app),
    };
    let Some(text) = text else { return Ok(()) };
    let mut out = out();
    out.write_all(text.as_bytes())?;
    flush(&mut out)
}

/// Looks at everything below an image path, and returns the counters.
fn of_image(args: &Args, image_path: &OsStr, app: &mut App) -> Option<String> {
    let image_path = app.image_path(image_path);
    let start = Instant::now();
    let target = app.target(&image_path)?;
    for entry in target.session().walk(target.path()) {
        if let Err(error) = entry.and_then(|entry| entry.metadata().map(drop)) {
            app.error(&image_path, &error);
        }
    }
    let stats = target.volume.volume.stats();
    let counters: Vec<_> = extern4_mountd::counters::of(&stats)
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    let rates = args
        .rates
        .then(|| Rates::new(&counters, &[], start.elapsed()));
    Some(match (args.explain, args.json) {
        (true, _) => counters::explanation(Some(&counters)),
        (_, true) => json::line(|object| {
            counters
                .iter()
                .for_each(|(name, count)| object.raw(name, count));
            rates.iter().for_each(|rates| rates.write(object));
        }),
        (false, false) => {
            counters::text(&stats) + &rates.map_or_else(String::new, |rates| rates.text())
        }
    })
}

/// How often counters counted in a period.
struct Rates<'a> {
    period: Duration,
    rates: Vec<(&'a str, f64)>,
}

impl<'a> Rates<'a> {
    fn new(counters: &'a [(String, u64)], earlier: &'a [(String, u64)], period: Duration) -> Self {
        Self {
            period,
            rates: extern4_mountd::counters::rates(counters, earlier, period.as_secs_f64())
                .collect(),
        }
    }

    fn text(&self) -> String {
        let line = |(name, rate): &(&str, f64)| format!("{rate:>12.1} {name}\n");
        let lines: String = self.rates.iter().map(line).collect();
        format!(
            "\nper second, in {:.1} seconds:\n{lines}",
            self.period.as_secs_f64()
        )
    }

    fn write(&self, object: &mut Object<'_>) {
        object.raw("period_ms", self.period.as_millis());
        object.objects("rates", &self.rates, |(name, rate), item| {
            item.text("name", name);
            item.rounded("per_second", *rate, 3);
        });
    }
}

/// Asks the process that serves a mount.
fn of_mount(args: &Args, dir: &Path, app: &mut App) -> Option<String> {
    if !app.is_superuser() {
        app.fail(
            ExitStatus::Usage,
            "--as has no effect here: a mount is asked",
        );
        return None;
    }
    if app.refuses_opening("a mount is asked") {
        return None;
    }
    let readings = client::find(dir).and_then(|mount| {
        let earlier = args.interval.map(|_| client::ask(&mount)).transpose()?;
        std::thread::sleep(args.interval.unwrap_or_default());
        Ok((
            earlier.unwrap_or_default(),
            client::ask(&mount)?,
            holders(mount.device),
        ))
    });
    match readings {
        Ok((earlier, report, who)) => {
            let period = report.uptime.saturating_sub(earlier.uptime);
            let rates = (args.rates || args.interval.is_some())
                .then(|| Rates::new(&report.counters, &earlier.counters, period));
            Some(match (args.explain, args.json) {
                (true, _) => counters::explanation(Some(&report.counters)),
                (_, true) => mount_json(&report, rates.as_ref(), &who),
                (false, false) => mount_text(&report, rates.as_ref(), &who),
            })
        }
        Err(error) => {
            app.fail_at(ExitStatus::from(&error), dir.display(), &error);
            None
        }
    }
}

fn mount_text(report: &Report, rates: Option<&Rates<'_>>, holders: &[Holder]) -> String {
    let activity = Activity::since_mount(report);
    let mut text = counters::lines(
        report
            .counters
            .iter()
            .map(|(name, count)| (&**name, *count)),
    );
    text += &format!("{:>12} transport\n", escape(report.transport.as_bytes()));
    if let Some(now) = &report.journaling {
        text += &format!(
            "{:>12} data\n{:>12} commit_seconds\n",
            escape(now.data.as_bytes()),
            now.commit_seconds
        );
    }
    text += &counters::per_commit(
        report.counter("transactions"),
        report.counter("handles"),
        report.counter("flushes"),
    );
    for (name, rate) in activity::rates(&activity) {
        text += &rate.map_or(String::new(), |rate| format!("{rate:>12.4} {name}\n"));
    }
    for warning in &report.warnings {
        text += &format!("{:>12} {}\n", "warning", escape(warning.as_bytes()));
    }
    text += &rates.map_or_else(String::new, Rates::text);
    text + "\n"
        + &activity::operations(&activity, false, usize::MAX)
        + "\n"
        + &open_files(holders, usize::MAX)
}

fn mount_json(report: &Report, rates: Option<&Rates<'_>>, holders: &[Holder]) -> String {
    let activity = Activity::since_mount(report);
    json::line(|object| {
        report
            .counters
            .iter()
            .for_each(|(name, count)| object.raw(name, count));
        rates.iter().for_each(|rates| rates.write(object));
        object.text("image", &report.image);
        object.raw("daemon", report.daemon);
        object.raw("uptime_ms", report.uptime.as_millis());
        object.raw("read_only", report.read_only);
        object.text("transport", &report.transport);
        object.text_or_null("data", report.journaling.as_ref().map(|now| &*now.data));
        object.maybe(
            "commit_seconds",
            report.journaling.as_ref().map(|now| now.commit_seconds),
        );
        object.text_or_null("metrics", report.metrics.as_deref());
        object.texts("warnings", &report.warnings);
        activity::write(&activity, object);
        activity::write_holders(holders, object);
    })
}
