//! `extern4 stats`: shows the counters of the caches and the journal for a look at everything below
//! an image path. For a mount, it shows the requests answered so far.
//!
//! `args` calls [`run`]. For a mount it asks the serving process through `control`, and changes
//! nothing.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;

use extern4::Stats;

use crate::app::App;
use crate::control::activity::{Activity, open_files};
use crate::control::client;
use crate::control::holders::{self, Holder, holders};
use crate::control::mounts::is_dir;
use crate::control::report::Report;
use crate::counters;
use crate::exit_status::ExitStatus;
use crate::json;
use crate::output::{flush, out};
use crate::text::escape;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory to look at; or a directory in a mount, to ask the process that serves it
    #[arg(value_name = "IMAGE:/PATH")]
    image_path: OsString,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let dir = Path::new(&args.image_path);
    let Some(text) = (if !app.in_script() && is_dir(dir) {
        of_mount(args, dir, app)
    } else {
        of_image(args, &args.image_path, app)
    }) else {
        return Ok(());
    };
    let mut out = out();
    out.write_all(text.as_bytes())?;
    flush(&mut out)
}

/// Looks at everything below an image path, and returns the counters.
fn of_image(args: &Args, image_path: &OsStr, app: &mut App) -> Option<String> {
    let image_path = app.image_path(image_path);
    let target = app.target(&image_path)?;
    for entry in target.session().walk(target.path()) {
        if let Err(error) = entry.and_then(|entry| entry.metadata().map(drop)) {
            app.error(&image_path, &error);
        }
    }
    let stats = target.volume.volume.stats();
    Some(if args.json { json(&stats) } else { counters::text(&stats) })
}

/// Asks the process that serves a mount.
fn of_mount(args: &Args, dir: &Path, app: &mut App) -> Option<String> {
    if !app.is_superuser() {
        app.fail(ExitStatus::Usage, "--as has no effect here: a mount is asked");
        return None;
    }
    if app.refuses_opening("a mount is asked") {
        return None;
    }
    match client::find(dir).and_then(|mount| Ok((client::ask(&mount)?, holders(mount.device)))) {
        Ok((report, who)) if args.json => Some(mount_json(&report, &who)),
        Ok((report, who)) => Some(mount_text(&report, &who)),
        Err(error) => {
            app.fail_at(error.status(), dir.display(), &error);
            None
        }
    }
}

fn mount_text(report: &Report, holders: &[Holder]) -> String {
    let activity = Activity::since_mount(report);
    let mut text = counters::lines(report.counters.iter().map(|(name, count)| (&**name, *count)));
    text += &format!("{:>12} transport\n", escape(report.transport.as_bytes()));
    if let Some(now) = &report.journaling {
        text +=
            &format!("{:>12} data\n{:>12} commit_seconds\n", escape(now.data.as_bytes()), now.commit_seconds);
    }
    text += &counters::per_commit(
        report.counter("transactions"),
        report.counter("handles"),
        report.counter("flushes"),
    );
    for (name, rate) in activity.rates() {
        text += &rate.map_or(String::new(), |rate| format!("{rate:>12.4} {name}\n"));
    }
    text + "\n" + &activity.operations(false, usize::MAX) + "\n" + &open_files(holders, usize::MAX)
}

fn mount_json(report: &Report, holders: &[Holder]) -> String {
    let activity = Activity::since_mount(report);
    json::line(|object| {
        report.counters.iter().for_each(|(name, count)| object.raw(name, count));
        object.text("image", &report.image);
        object.raw("daemon", report.daemon);
        object.raw("uptime_ms", report.uptime.as_millis());
        object.raw("read_only", report.read_only);
        object.text("transport", &report.transport);
        object.text_or_null("data", report.journaling.as_ref().map(|now| &*now.data));
        object.maybe("commit_seconds", report.journaling.as_ref().map(|now| now.commit_seconds));
        object.text_or_null("metrics", report.metrics.as_deref());
        activity.write(object);
        activity.write_operations(object);
        holders::write(holders, object);
    })
}

fn json(stats: &Stats) -> String {
    json::line(|object| counters::of(stats).into_iter().for_each(|(name, count)| object.raw(name, count)))
}
