//! The costs of a cache other than time: memory and lines of code.
//!
//! `mbcache` puts them next to its rows. Memory is counted with a fixed number of blocks in the
//! cache, and lines in the sources of this repository.

use super::{Baseline, Blocks, Cache, Extern4, Patch, hash};
use crate::chapter::Fact;

/// Numbers of entries that are added, to see the memory of one.
const FILLED: [u32; 4] = [100, 1_000, 10_000, 100_000];

/// Returns the bytes and the lines of code of each side.
pub(super) fn all() -> Vec<Fact> {
    let mut facts = Vec::new();
    for entries in FILLED {
        let figures = [
            filled::<Baseline>(entries),
            filled::<Patch>(entries),
            filled::<Extern4>(entries),
        ];
        facts.push(Fact {
            name: format!("bytes of an entry, tables counted, {entries} put in"),
            figures: figures.map(|(bytes, kept)| bytes as f64 / kept as f64),
        });
        facts.push(Fact {
            name: format!("entries kept of {entries}"),
            figures: figures.map(|(_, kept)| kept as f64),
        });
    }
    let slab = lines(include_str!("slab.rs"));
    let code = [
        slab + lines(include_str!("baseline.rs")),
        slab + lines(include_str!("patch.rs")),
        lines(include_str!("../../../ext4/src/mbcache/mod.rs"))
            + lines(include_str!("../../../ext4/src/mbcache/bucket.rs"))
            + lines(include_str!("../../../sync/src/closable_refcount.rs")),
    ];
    let name = "lines of code, without comments and tests".to_owned();
    facts.push(Fact {
        name,
        figures: code.map(|lines| lines as f64),
    });
    facts
}

/// Returns the bytes of a cache after `entries` entries were added, and how many it kept.
fn filled<C: Cache>(entries: u32) -> (u64, u64) {
    let cache = C::new();
    let blocks = Blocks::new(entries as usize);
    (1..=entries).for_each(|block| cache.add(&blocks, hash(block), block));
    (cache.bytes(), cache.entries())
}

/// Returns the number of lines of code up to the tests.
fn lines(source: &str) -> usize {
    let code = source
        .split("#[cfg(test)]")
        .next()
        .and_then(|code| code.split("#[cfg(all(test").next());
    let lines = code.unwrap_or_default().lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_code() {
        assert_eq!(
            lines("//! x\n\n/// y\nfn f() {\n    // z\n    g();\n}\n#[cfg(test)]\nmod tests {}\n"),
            3
        );
    }

    #[test]
    fn an_entry_is_told_with_its_tables() {
        let facts = all();
        assert!(
            facts
                .iter()
                .all(|fact| fact.figures.iter().all(|figure| *figure > 1.0)),
            "{facts:?}"
        );
        let bytes = |entries| {
            let is = |fact: &&Fact| fact.name.ends_with(&format!("{entries} put in"));
            facts.iter().find(is).expect("it is told").figures
        };
        // With few entries, each bears more of the tables. On no side does an entry take less than
        // its own size.
        assert!((0..3).all(|side| bytes(100)[side] > bytes(10_000)[side]));
        assert!(
            bytes(10_000)[0] > 13.0 * 8.0 && bytes(10_000)[1] > 7.0 * 8.0 && bytes(10_000)[2] > 8.0
        );
    }
}
