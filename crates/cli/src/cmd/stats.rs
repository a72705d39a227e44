//! `extern4 stats`: shows the counters of the caches and the journal for a look at everything below
//! a place. For a mount, it shows the requests answered so far.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;

use extern4::Stats;

use crate::app::App;
use crate::control::client;
use crate::control::holders::{self, Holder, holders};
use crate::control::mounts::is_dir;
use crate::control::report::Report;
use crate::control::table::{Activity, open_files};
use crate::json;
use crate::place::Place;
use crate::report::{flush, out};
use crate::status::Status;
use crate::text::escape;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The place to look at; or a directory in a mount, to ask the process that serves it
    #[arg(value_name = "PLACE")]
    place: OsString,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let dir = Path::new(&args.place);
    let Some(text) = (if is_dir(dir) { of_mount(args, dir, app) } else { of_image(args, &args.place, app) })
    else {
        return Ok(());
    };
    let mut out = out();
    out.write_all(text.as_bytes())?;
    flush(&mut out)
}

/// Looks at everything below a place, and returns the counters.
fn of_image(args: &Args, place: &OsStr, app: &mut App) -> Option<String> {
    let place = Place::parse(place);
    let target = app.target(&place)?;
    for entry in target.session().walk(target.path()) {
        if let Err(error) = entry.and_then(|entry| entry.metadata().map(drop)) {
            app.error(&place, &error);
        }
    }
    let stats = target.volume.volume.stats();
    Some(if args.json { json(&stats) } else { text(&stats) })
}

/// Asks the process that serves a mount.
fn of_mount(args: &Args, dir: &Path, app: &mut App) -> Option<String> {
    if !app.is_superuser() {
        app.fail(Status::Usage, "--as has no effect here: a mount is asked");
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
    let mut text = counter_lines(report.counters.iter().map(|(name, count)| (&**name, *count)));
    text += &format!("{:>12} transport\n", escape(report.transport.as_bytes()));
    if let Some(now) = &report.journaling {
        text +=
            &format!("{:>12} data\n{:>12} commit_seconds\n", escape(now.data.as_bytes()), now.commit_seconds);
    }
    text += &per_commit(report.counter("transactions"), report.counter("handles"), report.counter("flushes"));
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

/// Returns every counter with its name.
pub(crate) fn counters(stats: &Stats) -> Vec<(&'static str, u64)> {
    let Stats { names, files, blocks, journal, sharing, .. } = stats;
    let mut all = vec![
        ("dentries", names.dentries as u64),
        ("inodes", names.inodes as u64),
        ("inode_reads", names.inode_reads),
        ("lookups", names.lookups),
        ("fast_searches", names.fast_searches),
        ("full_searches", names.full_searches),
        ("rcu_walks", names.rcu_walks),
        ("walk_fallbacks", names.walk_fallbacks),
        ("walk_restarts", names.walk_restarts),
        ("files_opened", files.opened),
        ("files_closed_by_thread", files.closed_by_thread),
        ("files_closed_on_cpu", files.closed_on_cpu),
        ("files_closed_on_node", files.closed_on_node),
        ("files_closed_elsewhere", files.closed_elsewhere),
        ("block_hits", blocks.hits),
        ("block_misses", blocks.misses),
        ("block_waits", blocks.waits),
        ("block_evictions", blocks.evictions),
        ("blocks_resident", blocks.resident),
        ("device_reads", blocks.device_reads),
    ];
    if let Some(journal) = journal {
        all.extend([
            ("transactions", journal.transactions),
            ("handles", journal.handles),
            ("blocks_logged", journal.blocks_logged),
            ("bytes_logged", journal.bytes_logged),
            ("revokes", journal.revokes),
            ("flushes", journal.flushes),
            ("checkpoints", journal.checkpoints),
            ("blocks_checkpointed", journal.blocks_checkpointed),
            ("journal_waits", journal.waits),
        ]);
    }
    if let Some(sharing) = sharing {
        all.extend([
            ("xattr_blocks_shared", sharing.blocks_shared),
            ("xattr_blocks_made", sharing.blocks_made),
            ("xattr_values_shared", sharing.values_shared),
            ("mbcache_entries", sharing.blocks.entries + sharing.values.entries),
            ("mbcache_inserted", sharing.blocks.inserted + sharing.values.inserted),
            ("mbcache_removed", sharing.blocks.removed + sharing.values.removed),
            ("mbcache_evicted", sharing.blocks.evicted + sharing.values.evicted),
            ("mbcache_busy", sharing.blocks.busy + sharing.values.busy),
            ("mbcache_differing", sharing.differing),
        ]);
    }
    all
}

/// Returns the text of the counters, one a line. For a changed volume it includes the averages of a
/// transaction.
pub(crate) fn text(stats: &Stats) -> String {
    let journal =
        stats.journal.map(|journal| per_commit(journal.transactions, journal.handles, journal.flushes));
    counter_lines(counters(stats)) + &journal.unwrap_or_default()
}

fn counter_lines<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    // The process that serves a mount names its counters, so the names are escaped.
    let line = |(name, count): (&str, u64)| format!("{count:>12} {}\n", escape(name.as_bytes()));
    counters.into_iter().map(line).collect()
}

fn per_commit(transactions: u64, handles: u64, flushes: u64) -> String {
    if transactions == 0 {
        return String::new();
    }
    let each = |count: u64| count as f64 / transactions as f64;
    format!("{:>12.1} handles per commit\n{:>12.1} flushes per commit\n", each(handles), each(flushes))
}

fn json(stats: &Stats) -> String {
    json::line(|object| counters(stats).into_iter().for_each(|(name, count)| object.raw(name, count)))
}
