//! The counters of a volume, as text.
//!
//! `stats` and `script` print them.

use extern4::Stats;
use extern4_mountd::counters::{ALL, Counter, of};

use crate::text::escape;

/// Returns what every counter counts, with its value before it where that is known.
pub(crate) fn explanation(values: Option<&[(String, u64)]>) -> String {
    let value = |name: &str| {
        values?
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, count)| *count)
    };
    let shown = ALL
        .iter()
        .filter(|counter| values.is_none() || value(counter.name).is_some());
    let line = |counter: &Counter| {
        let count = value(counter.name).map_or_else(String::new, |count| format!("{count:>12} "));
        format!("{count}{}: {}\n", counter.name, counter.meaning)
    };
    shown.map(line).collect()
}

/// Returns the text of the counters, one a line. For a changed volume it includes the averages of a
/// transaction.
pub(crate) fn text(stats: &Stats) -> String {
    let journal = stats
        .journal
        .map(|journal| per_commit(journal.transactions, journal.handles, journal.flushes));
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
    format!(
        "{:>12.1} handles per commit\n{:>12.1} flushes per commit\n",
        each(handles),
        each(flushes)
    )
}

#[cfg(test)]
mod tests {
    use super::{ALL, explanation};

    #[test]
    fn every_counter_is_explained() {
        for counter in ALL {
            let line = format!("{}: {}\n", counter.name, counter.meaning);
            assert!(explanation(None).contains(&line), "{line}");
        }
    }
}
