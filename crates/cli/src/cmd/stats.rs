//! `extern4 stats`: what it takes to look at everything below a place, as the caches and the journal count it.

use std::io::{self, Write as _};

use extern4::Stats;

use crate::app::App;
use crate::json;
use crate::place::Place;
use crate::report::{flush, out};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to look at
    #[arg(value_name = "PLACE", value_parser = Place::parser())]
    place: Place,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Some(target) = app.target(&args.place) else { return Ok(()) };
    for entry in target.session().walk(target.path()) {
        if let Err(error) = entry.and_then(|entry| entry.metadata().map(drop)) {
            app.error(&args.place, &error);
        }
    }
    let mut out = out();
    let stats = target.volume.volume.stats();
    out.write_all(if args.json { json(&stats) } else { text(&stats) }.as_bytes())?;
    flush(&mut out)
}

/// Every counter with its name.
fn counters(stats: &Stats) -> Vec<(&'static str, u64)> {
    let Stats { names, files, blocks, journal, sharing, .. } = stats;
    let mut all = vec![
        ("dentries", names.dentries as u64),
        ("inodes", names.inodes as u64),
        ("inode_reads", names.inode_reads),
        ("lookups", names.lookups),
        ("fast_searches", names.fast_searches),
        ("full_searches", names.full_searches),
        ("rcu_walks", names.rcu_walks),
        ("remembered_walks", names.remembered_walks),
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

/// A counter a line, and of a volume that was changed what a transaction took on average.
pub(crate) fn text(stats: &Stats) -> String {
    let mut text: String =
        counters(stats).iter().map(|(name, count)| format!("{count:>12} {name}\n")).collect();
    if let Some(journal) = stats.journal.filter(|journal| journal.transactions > 0) {
        let each = |count: u64| count as f64 / journal.transactions as f64;
        text += &format!("{:>12.1} handles per commit\n", each(journal.handles));
        text += &format!("{:>12.1} flushes per commit\n", each(journal.flushes));
    }
    text
}

fn json(stats: &Stats) -> String {
    json::line(|object| counters(stats).into_iter().for_each(|(name, count)| object.raw(name, count)))
}
