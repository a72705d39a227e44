//! [`Filter`]: rsync-like rules that leave out parts of a tree.
//!
//! The command makes one from `--exclude` and `--include`; `build` and `diff` ask
//! [`Filter::leaves_out`] for each path. Any pattern is valid. Matching takes time proportional to
//! the product of the lengths of pattern and path at most.

use std::sync::Arc;

use crate::glob::Glob;

/// Rules that leave out parts of a tree, as in rsync.
///
/// The first rule whose pattern matches a path decides about it. A path that no rule matches is
/// kept. Below a directory that is left out, nothing is kept.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rules: Arc<[Rule]>,
}

/// A pattern, and the decision about the paths that match it.
#[derive(Clone, Debug)]
pub struct Rule {
    pattern: Pattern,
    excludes: bool,
}

/// A pattern of paths.
///
/// `*`, `?` and `[...]` match within a component of the path, and `**` as a whole component matches
/// any number of them. A pattern that begins with a slash starts at the root; any other matches the
/// end of a path, at any depth. One that ends in a slash matches directories only. At the end,
/// `dir/**` matches everything in `dir`, and `dir/***` matches `dir` as well.
#[derive(Clone, Debug)]
pub struct Pattern {
    parts: Vec<Part>,
    only_directories: bool,
}

/// A part of a pattern.
#[derive(Clone, Debug)]
enum Part {
    /// One component of a path.
    Name(Glob),
    /// Any number of components, or none.
    Any,
}

impl Rule {
    /// Returns a rule that leaves out paths that the pattern matches.
    pub fn exclude(pattern: &[u8]) -> Self {
        Self {
            pattern: Pattern::new(pattern),
            excludes: true,
        }
    }

    /// Returns a rule that keeps paths that the pattern matches.
    pub fn include(pattern: &[u8]) -> Self {
        Self {
            pattern: Pattern::new(pattern),
            excludes: false,
        }
    }
}

impl Pattern {
    /// Reads a pattern.
    pub fn new(pattern: &[u8]) -> Self {
        let mut parts = Vec::new();
        let names: Vec<&[u8]> = pattern
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
            .collect();
        if !pattern.starts_with(b"/") && !names.is_empty() {
            parts.push(Part::Any);
        }
        for (at, name) in names.iter().enumerate() {
            match (*name, at + 1 == names.len()) {
                (b"**", true) => parts.extend([Part::Any, Part::Name(Glob::new(b"*", false))]),
                (b"**", false) | (b"***", _) => parts.push(Part::Any),
                (name, _) => parts.push(Part::Name(Glob::new(name, false))),
            }
        }
        Self {
            parts,
            only_directories: pattern.ends_with(b"/"),
        }
    }

    /// Returns whether the pattern matches this path of a tree.
    pub fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        self.matches_names(&names(path), is_directory)
    }

    /// Whether the pattern matches the whole path. After a mismatch, the last part that matches any
    /// number of components takes one more.
    fn matches_names(&self, path: &[&[u8]], is_directory: bool) -> bool {
        if self.only_directories && !is_directory {
            return false;
        }
        let mut part = 0;
        let mut name = 0;
        let mut retry = None;
        while name < path.len() {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    part += 1;
                    retry = Some((part, name));
                }
                Some(Part::Name(glob)) if glob.matches(path[name]) => {
                    (part, name) = (part + 1, name + 1)
                }
                _ => {
                    let Some((after, from)) = retry else {
                        return false;
                    };
                    (part, name) = (after, from + 1);
                    retry = Some((after, from + 1));
                }
            }
        }
        self.parts[part..]
            .iter()
            .all(|part| matches!(part, Part::Any))
    }
}

impl FromIterator<Rule> for Filter {
    fn from_iter<T: IntoIterator<Item = Rule>>(rules: T) -> Self {
        Self {
            rules: rules.into_iter().collect(),
        }
    }
}

impl Filter {
    /// Whether there are no rules, so nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the rules leave out this path of a tree. The caller asks for the directories above
    /// it first.
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        if self.rules.is_empty() || path.is_empty() {
            return false;
        }
        let names = names(path);
        let matches = |rule: &&Rule| rule.pattern.matches_names(&names, is_directory);
        self.rules
            .iter()
            .find(matches)
            .is_some_and(|rule| rule.excludes)
    }
}

/// The components of a path.
fn names(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').collect()
}

#[cfg(test)]
mod tests {
    use super::{Filter, Rule};

    #[test]
    fn patterns_match_paths() {
        let check = |pattern: &str, path: &str, matches: bool| {
            let filter: Filter = [Rule::exclude(pattern.as_bytes())].into_iter().collect();
            let path = path
                .strip_suffix('/')
                .map_or((path, false), |path| (path, true));
            assert_eq!(
                filter.leaves_out(path.0.as_bytes(), path.1),
                matches,
                "{pattern} {path:?}"
            );
        };
        // A name at any depth.
        check("*.o", "a.o", true);
        check("*.o", "src/deep/a.o", true);
        check("*.o", "src/a.o/", true);
        check("*.o", "src/a.c", false);
        check("cache", "var/cache/", true);
        check("cache", "var/cache/x", false);
        check(".git", "x/.git/", true);
        // From the root.
        check("/cache", "cache/", true);
        check("/cache", "var/cache/", false);
        check("/var/*", "var/cache/", true);
        check("/var/*", "var/cache/x", false);
        check("/var/*", "var/", false);
        check("/", "var/", false);
        // The end of a path.
        check("a/b", "a/b", true);
        check("a/b", "x/a/b", true);
        check("a/b", "x/b", false);
        check("a/*/c", "a/b/c", true);
        check("a/*/c", "a/b/b/c", false);
        // Directories only.
        check("tmp/", "tmp/", true);
        check("tmp/", "x/tmp/", true);
        check("tmp/", "tmp", false);
        // Any number of components.
        check("/a/**/c", "a/c", true);
        check("/a/**/c", "a/b/b/c", true);
        check("/a/**/c", "a/b/b/d", false);
        check("/a/**", "a/", false);
        check("/a/**", "a/b", true);
        check("/a/**", "a/b/c", true);
        check("/a/***", "a/", true);
        check("/a/***", "a/b/c", true);
        check("/a/***", "b/a/", false);
        check("**/x", "x", true);
        check("**", "x", true);
        check("/**/a/**/b", "a/x/a/b", true);
        check("", "x", false);
        // Characters.
        check("?.[ch]", "x.c", true);
        check("?.[ch]", "xy.c", false);
        check("\\*", "*", true);
        check("\\*", "x", false);
        check("*", "\u{fc}/x", true);
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let filter: Filter = [
            Rule::include(b"*/"),
            Rule::include(b"keep.log"),
            Rule::exclude(b"*.log"),
            Rule::include(b"*"),
        ]
        .into_iter()
        .collect();
        assert!(!filter.leaves_out(b"a.log", true));
        assert!(filter.leaves_out(b"a.log", false));
        assert!(!filter.leaves_out(b"x/keep.log", false));
        assert!(!filter.leaves_out(b"x/other", false));
        assert!(!filter.leaves_out(b"", true));
        assert!(Filter::default().is_empty() && !Filter::default().leaves_out(b"x", false));
    }
}
