//! The counters of the caches and the journal of a volume: their names, their meanings and their
//! values.
//!
//! The report, the metrics, and the command's `stats` and `script` show them, under the same names.

use extern4::Stats;

/// Whether a counter only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The number of events so far.
    Total,
    /// The number of things at present.
    Now,
}

/// A counter.
#[derive(Debug)]
pub struct Counter {
    /// Its name, which stays.
    pub name: &'static str,
    /// Whether it counts events or things.
    pub kind: Kind,
    /// Says in a sentence which things or events it counts.
    pub meaning: &'static str,
    /// Returns its value; `None` for a volume that does not have it.
    read: fn(&Stats) -> Option<u64>,
}

/// All counters, in the order in which they are shown.
pub const ALL: &[Counter] = &[
    Counter {
        name: "dentries",
        kind: Kind::Now,
        meaning: "Names in the cache, including names that are known not to exist.",
        read: |stats| Some(stats.names.dentries as u64),
    },
    Counter {
        name: "inodes",
        kind: Kind::Now,
        meaning: "Inodes in the cache.",
        read: |stats| Some(stats.names.inodes as u64),
    },
    Counter {
        name: "inode_reads",
        kind: Kind::Total,
        meaning: "Inodes read from their tables.",
        read: |stats| Some(stats.names.inode_reads),
    },
    Counter {
        name: "evictions",
        kind: Kind::Total,
        meaning: "Names and inodes that left the cache for want of memory.",
        read: |stats| Some(stats.names.evictions),
    },
    Counter {
        name: "memory_used",
        kind: Kind::Now,
        meaning: "Bytes of all caches of the process.",
        read: |stats| Some(stats.names.memory_used),
    },
    Counter {
        name: "memory_limit",
        kind: Kind::Now,
        meaning: "The most bytes that all caches of the process keep.",
        read: |stats| Some(stats.names.memory_limit),
    },
    Counter {
        name: "lookups",
        kind: Kind::Total,
        meaning: "Names searched for in a directory of the volume, because the cache did not know them.",
        read: |stats| Some(stats.names.lookups),
    },
    Counter {
        name: "fast_searches",
        kind: Kind::Total,
        meaning: "Search permissions of directories answered from a cached word.",
        read: |stats| Some(stats.names.fast_searches),
    },
    Counter {
        name: "full_searches",
        kind: Kind::Total,
        meaning: "Search permissions of directories computed from mode and ACL.",
        read: |stats| Some(stats.names.full_searches),
    },
    Counter {
        name: "rcu_walks",
        kind: Kind::Total,
        meaning: "Paths that were walked in the cache without a lock.",
        read: |stats| Some(stats.names.rcu_walks),
    },
    Counter {
        name: "walk_fallbacks",
        kind: Kind::Total,
        meaning: "Of these, paths that were walked again with locks, because something was not cached.",
        read: |stats| Some(stats.names.walk_fallbacks),
    },
    Counter {
        name: "walk_restarts",
        kind: Kind::Total,
        meaning: "Of these, paths that were walked again because a name changed meanwhile.",
        read: |stats| Some(stats.names.walk_restarts),
    },
    Counter {
        name: "files_opened",
        kind: Kind::Total,
        meaning: "Times that a file was opened.",
        read: |stats| Some(stats.files.opened),
    },
    Counter {
        name: "files_closed_by_thread",
        kind: Kind::Total,
        meaning: "Files closed by the thread that opened them.",
        read: |stats| Some(stats.files.closed_by_thread),
    },
    Counter {
        name: "files_closed_on_cpu",
        kind: Kind::Total,
        meaning: "Files closed by another thread on the CPU where they were opened.",
        read: |stats| Some(stats.files.closed_on_cpu),
    },
    Counter {
        name: "files_closed_on_node",
        kind: Kind::Total,
        meaning: "Files closed on another CPU of the NUMA node where they were opened.",
        read: |stats| Some(stats.files.closed_on_node),
    },
    Counter {
        name: "files_closed_elsewhere",
        kind: Kind::Total,
        meaning: "Files closed on another NUMA node.",
        read: |stats| Some(stats.files.closed_elsewhere),
    },
    Counter {
        name: "block_hits",
        kind: Kind::Total,
        meaning: "Metadata blocks found in the cache.",
        read: |stats| Some(stats.blocks.hits),
    },
    Counter {
        name: "block_misses",
        kind: Kind::Total,
        meaning: "Metadata blocks read from the image, for a lookup or ahead of one.",
        read: |stats| Some(stats.blocks.misses),
    },
    Counter {
        name: "block_waits",
        kind: Kind::Total,
        meaning: "Lookups of metadata blocks that waited for a read of another thread.",
        read: |stats| Some(stats.blocks.waits),
    },
    Counter {
        name: "block_evictions",
        kind: Kind::Total,
        meaning: "Metadata blocks given up to keep the cache within its bound.",
        read: |stats| Some(stats.blocks.evictions),
    },
    Counter {
        name: "blocks_resident",
        kind: Kind::Now,
        meaning: "Metadata blocks in the cache.",
        read: |stats| Some(stats.blocks.resident),
    },
    Counter {
        name: "device_reads",
        kind: Kind::Total,
        meaning: "Reads of metadata sent to the image; one may fetch several blocks.",
        read: |stats| Some(stats.blocks.device_reads),
    },
    Counter {
        name: "transactions",
        kind: Kind::Total,
        meaning: "Transactions of the journal that have become durable.",
        read: |stats| Some(stats.journal?.transactions),
    },
    Counter {
        name: "handles",
        kind: Kind::Total,
        meaning: "Operations that changed metadata; many share a transaction.",
        read: |stats| Some(stats.journal?.handles),
    },
    Counter {
        name: "blocks_logged",
        kind: Kind::Total,
        meaning: "Copies of blocks written to the journal; without one, metadata blocks written by commits.",
        read: |stats| Some(stats.journal?.blocks_logged),
    },
    Counter {
        name: "bytes_logged",
        kind: Kind::Total,
        meaning: "Bytes written to the journal.",
        read: |stats| Some(stats.journal?.bytes_logged),
    },
    Counter {
        name: "revokes",
        kind: Kind::Total,
        meaning: "Blocks that the journal must never replay, because they were freed.",
        read: |stats| Some(stats.journal?.revokes),
    },
    Counter {
        name: "flushes",
        kind: Kind::Total,
        meaning: "Flushes of the image's or the journal's device.",
        read: |stats| Some(stats.journal?.flushes),
    },
    Counter {
        name: "checkpoints",
        kind: Kind::Total,
        meaning: "Times that room in the journal was freed.",
        read: |stats| Some(stats.journal?.checkpoints),
    },
    Counter {
        name: "blocks_checkpointed",
        kind: Kind::Total,
        meaning: "Blocks written from memory to their place, so that the journal no longer needs them.",
        read: |stats| Some(stats.journal?.blocks_checkpointed),
    },
    Counter {
        name: "journal_waits",
        kind: Kind::Total,
        meaning: "Operations that waited for a commit or for room in the journal.",
        read: |stats| Some(stats.journal?.waits),
    },
    Counter {
        name: "xattr_blocks_shared",
        kind: Kind::Total,
        meaning: "Times that an inode took over an attribute block that another inode has.",
        read: |stats| Some(stats.sharing?.blocks_shared),
    },
    Counter {
        name: "xattr_blocks_made",
        kind: Kind::Total,
        meaning: "Attribute blocks allocated, because none had the same attributes.",
        read: |stats| Some(stats.sharing?.blocks_made),
    },
    Counter {
        name: "xattr_values_shared",
        kind: Kind::Total,
        meaning: "Times that an attribute took over a large value that another attribute has.",
        read: |stats| Some(stats.sharing?.values_shared),
    },
    Counter {
        name: "mbcache_entries",
        kind: Kind::Now,
        meaning: "Attribute blocks and large values that the cache of shareable ones knows.",
        read: |stats| Some(stats.sharing?.blocks.entries + stats.sharing?.values.entries),
    },
    Counter {
        name: "mbcache_inserted",
        kind: Kind::Total,
        meaning: "Entries put into the cache of shareable attribute blocks and values.",
        read: |stats| Some(stats.sharing?.blocks.inserted + stats.sharing?.values.inserted),
    },
    Counter {
        name: "mbcache_removed",
        kind: Kind::Total,
        meaning: "Its entries removed because their block or value was freed.",
        read: |stats| Some(stats.sharing?.blocks.removed + stats.sharing?.values.removed),
    },
    Counter {
        name: "mbcache_evicted",
        kind: Kind::Total,
        meaning: "Its entries given up to make room.",
        read: |stats| Some(stats.sharing?.blocks.evicted + stats.sharing?.values.evicted),
    },
    Counter {
        name: "mbcache_busy",
        kind: Kind::Total,
        meaning: "Entries not put in, because another thread was inserting at the same place.",
        read: |stats| Some(stats.sharing?.blocks.busy + stats.sharing?.values.busy),
    },
    Counter {
        name: "mbcache_differing",
        kind: Kind::Total,
        meaning: "Attribute blocks and values with the hash that was searched for, but other contents.",
        read: |stats| Some(stats.sharing?.differing),
    },
];

/// Returns the counter of a name. A mount that another version serves may have counters that this
/// version does not know.
pub fn named(name: &str) -> Option<&'static Counter> {
    ALL.iter().find(|counter| counter.name == name)
}

/// Returns every counter of a volume with its name.
pub fn of(stats: &Stats) -> Vec<(&'static str, u64)> {
    ALL.iter()
        .filter_map(|counter| Some((counter.name, (counter.read)(stats)?)))
        .collect()
}

/// Returns how often each counter of events counted in a second of a period.
pub fn rates<'a>(
    counters: &'a [(String, u64)],
    earlier: &'a [(String, u64)],
    seconds: f64,
) -> impl Iterator<Item = (&'a str, f64)> {
    let events = counters
        .iter()
        .filter(|(name, _)| named(name).is_some_and(|it| it.kind == Kind::Total));
    events.map(move |(name, count)| {
        let before = earlier
            .iter()
            .find(|(known, _)| known == name)
            .map_or(0, |(_, before)| *before);
        let came = count.saturating_sub(before) as f64;
        (
            name.as_str(),
            if seconds > 0.0 { came / seconds } else { 0.0 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{ALL, Kind, of, rates};
    use extern4::Stats;

    #[test]
    fn every_counter_says_in_a_sentence_what_it_counts() {
        let mut stats = Stats::default();
        stats.journal = Some(Default::default());
        stats.sharing = Some(Default::default());
        assert_eq!(of(&stats).len(), ALL.len());
        for counter in ALL {
            let name = counter.name;
            let meaning = counter.meaning;
            assert!(
                meaning.ends_with('.') && meaning.split(' ').count() > 2,
                "{name}: {meaning}"
            );
        }
    }

    #[test]
    fn rates_are_those_of_events_in_a_period() {
        let list = |counters: &[(&str, u64)]| -> Vec<_> {
            counters
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect()
        };
        let later = list(&[
            ("lookups", 30),
            ("inodes", 7),
            ("flushes", 1),
            ("unknown", 9),
        ]);
        let earlier = list(&[("lookups", 10), ("inodes", 1), ("flushes", 2)]);
        assert_eq!(
            rates(&later, &earlier, 4.0).collect::<Vec<_>>(),
            [("lookups", 5.0), ("flushes", 0.0)]
        );
        assert_eq!(rates(&later, &[], 0.0).next(), Some(("lookups", 0.0)));
        assert_eq!(
            ALL.iter()
                .filter(|counter| counter.kind == Kind::Now)
                .count(),
            6
        );
    }
}
