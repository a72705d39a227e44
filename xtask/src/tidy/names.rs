//! Type names that say little: a crate has each at most once.

use std::collections::BTreeSet;

use super::finding::{Finding, unit};
use super::source::without_tests;

const GENERIC: &[&str] = &[
    "Entry", "Held", "Node", "Part", "Place", "Spot", "State", "Way",
];

const KEYWORDS: &[&str] = &["enum", "struct", "trait", "type", "union"];

/// Types with a generic name that another type of their crate has, too. `files` are paths and their
/// code without comments.
pub(crate) fn of_files<'t>(files: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for (path, code) in files.filter(|(path, _)| path.contains("/src/") && !path.contains("tests"))
    {
        for (at, line) in without_tests(code).lines().enumerate() {
            let line = line.trim_start();
            // An associated type has the name that its trait gives it.
            let is_free = !line.starts_with("type") || !line.contains("Self");
            let Some(name) = defined(line).filter(|name| GENERIC.contains(name) && is_free) else {
                continue;
            };
            if !seen.insert((unit(path), name.to_owned())) {
                let says = format!("`{name}` is the name of another type of this crate, too");
                findings.push(Finding::new("generic-name", path, at + 1, says));
            }
        }
    }
    findings
}

/// The name of the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let mut words = line
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty());
    let mut words = words
        .by_ref()
        .skip_while(|word| ["pub", "crate", "super", "in", "unsafe"].contains(word));
    KEYWORDS.contains(&words.next()?).then(|| words.next())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_type_of_a_generic_name_is_found() {
        let lines = |files: &[(&'static str, &'static str)]| {
            of_files(files.iter().copied())
                .iter()
                .map(|finding| finding.line)
                .collect::<Vec<_>>()
        };
        let first = (
            "crates/x/src/a.rs",
            "pub(crate) struct Place<'p>(&'p u8);\n",
        );
        assert_eq!(
            lines(&[first, ("crates/x/src/b.rs", "use a;\nenum Place { A }")]),
            [2]
        );
        assert_eq!(
            lines(&[first, ("crates/y/src/b.rs", "struct Place;")]),
            [0; 0]
        );
        assert_eq!(
            lines(&[
                first,
                ("crates/x/src/b.rs", "struct Places; // struct Place\n")
            ]),
            [0; 0]
        );
        assert_eq!(
            lines(&[
                first,
                (
                    "crates/x/src/b.rs",
                    "#[cfg(test)]\nmod tests { struct Place; }"
                )
            ]),
            [0; 0]
        );
        assert_eq!(
            lines(&[first, ("crates/x/src/b/tests.rs", "struct Place;")]),
            [0; 0]
        );
    }
}
