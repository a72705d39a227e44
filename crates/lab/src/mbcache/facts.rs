//! What a cache takes, apart from time.

use super::{before, seed};
use crate::chapter::Fact;
use extern4_sync::mbcache::MbCache;

/// Its bytes and its lines.
pub(super) fn all() -> Vec<Fact> {
    let new = MbCache::new(MbCache::BITS_FAR).stats();
    let bytes = [before::WORDS, seed::WORDS].map(|words| (words * size_of::<u64>()) as f64);
    let slab = lines(include_str!("slab.rs"));
    let code = [
        slab + lines(include_str!("before.rs")),
        slab + lines(include_str!("seed.rs")),
        lines(include_str!("../../../sync/src/mbcache.rs"))
            + lines(include_str!("../../../sync/src/mbcache/bucket.rs"))
            + lines(include_str!("../../../sync/src/shares.rs")),
    ];
    vec![
        Fact {
            name: "bytes of an entry, its tables' apart from New's",
            figures: [bytes[0], bytes[1], new.bytes as f64 / new.capacity as f64],
        },
        Fact { name: "lines of code, without comments and tests", figures: code.map(|lines| lines as f64) },
    ]
}

/// Lines of code, up to the tests.
fn lines(source: &str) -> usize {
    let code = source.split("#[cfg(test)]").next().and_then(|code| code.split("#[cfg(all(test").next());
    let lines = code.unwrap_or_default().lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_code() {
        assert_eq!(lines("//! x\n\n/// y\nfn f() {\n    // z\n    g();\n}\n#[cfg(test)]\nmod tests {}\n"), 3);
        assert!(all().iter().all(|fact| fact.figures.iter().all(|figure| *figure > 1.0)));
    }
}
