//! `extern4 top`: shows the activity of a mount, live.
//!
//! `args` calls [`run`]. It asks the serving process through `extern4_mountd` again and again, and
//! ends with it.

mod keyboard;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use extern4_mountd::activity::Activity;
use extern4_mountd::control::client::{self, AskError};
use extern4_mountd::control::holders::{Holder, holders};
use extern4_mountd::control::mounts::Mount;
use extern4_mountd::control::report::Report;

use self::keyboard::Keyboard;
use crate::activity::{self, clock, open_files};
use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::json;
use crate::output::{Out, flush, out};
use crate::text::escape;

/// Lines of the screen other than the lines of the operations.
const OTHER_LINES: usize = 8;
/// The number of processes that are named.
const PROCESSES: usize = 5;
/// The sequence that moves to the top left corner and clears the screen from there.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A directory in a mount. On a terminal, `q` ends the command
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Seconds from one update to the next
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// End after this many updates
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Write one JSON object a line for each update
    #[arg(long)]
    json: bool,
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 0.01 and 86400".to_owned())
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let dir = args.dir.display();
    let first = client::find(&args.dir).and_then(|mount| Ok((client::ask(&mount)?, mount)));
    match first {
        Ok((report, mount)) => match look(args, &mount, report)? {
            Ok(()) => {}
            Err(AskError::Gone) => app.note_at(&dir, "the volume is no longer mounted"),
            Err(error) => app.fail_at(ExitStatus::from(&error), &dir, &error),
        },
        Err(error) => app.fail_at(ExitStatus::from(&error), &dir, &error),
    }
    Ok(())
}

/// Shows reports at the interval. The outer error is one of writing the output.
fn look(args: &Args, mount: &Mount, mut before: Report) -> io::Result<Result<(), AskError>> {
    let mut out = out();
    let keyboard = Keyboard::open()?;
    let mut next = Instant::now();
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) {
        next = (next + args.interval).max(Instant::now());
        if keyboard.wait_until(next)? {
            break;
        }
        let now = match client::ask(mount) {
            // The device number may be another mount's by now.
            Ok(report) if report.daemon != before.daemon => return Ok(Err(AskError::Gone)),
            Ok(report) => report,
            Err(error) => return Ok(Err(error)),
        };
        let activity = Activity::between(&before, &now);
        let holders = holders(mount.device);
        if args.json {
            out.write_all(line(&now, &activity, &holders).as_bytes())?;
        } else {
            screen(&mut out, &text(&now, &activity, &holders), looks)?;
        }
        flush(&mut out)?;
        before = now;
        looks += 1;
    }
    Ok(Ok(()))
}

/// Writes an update as text: over the last one on a terminal, otherwise after it.
fn screen(out: &mut Out, text: &str, looks: u64) -> io::Result<()> {
    if io::stdout().is_terminal() {
        // One write, so that the screen does not flicker.
        out.write_all(&[CLEAR, text.as_bytes()].concat())
    } else if looks > 0 {
        out.write_all(format!("\n{text}").as_bytes())
    } else {
        out.write_all(text.as_bytes())
    }
}

/// Returns an update as text, with as many operations as the terminal has room for.
fn text(report: &Report, activity: &Activity, holders: &[Holder]) -> String {
    let rows = rustix::termios::tcgetwinsize(io::stdout()).map(|size| usize::from(size.ws_row));
    let most = rows
        .ok()
        .and_then(|rows| rows.checked_sub(OTHER_LINES))
        .unwrap_or(usize::MAX);
    format!(
        "{}: {:.1} operations/s; served for {} by process {} through {}\n\n{}\n{}{}",
        escape(report.image.as_bytes()),
        activity.operations_per_second(),
        clock(report.uptime),
        report.daemon,
        escape(report.transport.as_bytes()),
        activity::operations(activity, true, most),
        activity::caches_and_journal(activity),
        open_files(holders, PROCESSES),
    )
}

fn line(report: &Report, activity: &Activity, holders: &[Holder]) -> String {
    json::line(|object| {
        object.text("image", &report.image);
        object.raw("daemon", report.daemon);
        object.raw("uptime_ms", report.uptime.as_millis());
        object.text("transport", &report.transport);
        activity::write(activity, object);
        activity::write_holders(holders, object);
    })
}
