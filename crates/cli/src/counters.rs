//! The counters of the caches and the journal of a volume, by name.
//!
//! `stats`, `script`, the report and the metrics show them, under the same names.

use extern4::Stats;

use crate::text::escape;

/// Returns every counter with its name.
pub(crate) fn of(stats: &Stats) -> Vec<(&'static str, u64)> {
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
    lines(of(stats)) + &journal.unwrap_or_default()
}

/// Returns the counters, one a line.
pub(crate) fn lines<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    // The process that serves a mount names its counters, so the names are escaped.
    let line = |(name, count): (&str, u64)| format!("{count:>12} {}\n", escape(name.as_bytes()));
    counters.into_iter().map(line).collect()
}

/// Returns the averages of a transaction, one a line; nothing if there was no transaction.
pub(crate) fn per_commit(transactions: u64, handles: u64, flushes: u64) -> String {
    if transactions == 0 {
        return String::new();
    }
    let each = |count: u64| count as f64 / transactions as f64;
    format!("{:>12.1} handles per commit\n{:>12.1} flushes per commit\n", each(handles), each(flushes))
}
