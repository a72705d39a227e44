//! Circles of modules: each imports the next, and the last the first.
//!
//! A module is a file. It imports each module of its crate that a path of its code names, where the
//! path begins with `crate` or `super`. A module may import those above and below it, and tests do
//! not count.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::source::{test_modules, without_tests};

/// The largest circle that is no fault.
const LARGEST: usize = 3;

/// The path of a module below the root of its crate.
type Module = Vec<String>;

/// A source file and its code without comments and literals.
#[derive(Debug)]
pub(crate) struct File<'t> {
    /// From the root of the workspace.
    pub(crate) path: &'t str,
    pub(crate) code: &'t str,
}

/// The files of one crate that stand in circles of more than [`LARGEST`] modules.
pub(crate) fn of_crate(files: &[File<'_>]) -> Vec<Finding> {
    let mut modules: BTreeMap<Module, &File<'_>> = files
        .iter()
        .filter_map(|file| Some((module(file.path)?, file)))
        .collect();
    let tests: Vec<Module> = modules
        .iter()
        .flat_map(|(at, file)| children_for_tests(at, file.code))
        .collect();
    modules.retain(|at, _| !tests.iter().any(|test| at.starts_with(test)));
    let imports = imports(&modules);
    let mut findings = Vec::new();
    for circle in circles(&imports)
        .into_iter()
        .filter(|circle| circle.len() > LARGEST)
    {
        for at in &circle {
            let others: Vec<_> = imports[at]
                .intersection(&circle)
                .map(|other| other.join("::"))
                .collect();
            let says = format!(
                "in a circle of {} modules, imports {}",
                circle.len(),
                others.join(", ")
            );
            findings.push(Finding::new("circle", modules[at].path, 1, says));
        }
    }
    findings
}

/// The module that a file of `src` holds.
fn module(path: &str) -> Option<Module> {
    let (_, below) = path.split_once("/src/")?;
    let below = below.strip_suffix(".rs")?;
    let mut names: Module = below.split('/').map(str::to_owned).collect();
    if ["lib", "main", "mod"].contains(&names.last()?.as_str()) {
        names.pop();
    }
    (!names.iter().any(|name| name == "tests" || name == "bin")).then_some(names)
}

fn children_for_tests(at: &Module, code: &str) -> impl Iterator<Item = Module> {
    test_modules(code)
        .into_iter()
        .map(|name| at.iter().cloned().chain([name]).collect())
}

fn imports(modules: &BTreeMap<Module, &File<'_>>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut imports = BTreeMap::new();
    for (at, file) in modules {
        let paths = paths(&without_tests(file.code));
        let targets = paths.iter().filter_map(|path| target(at, path, modules));
        let is_apart = |other: &Module| !other.starts_with(at) && !at.starts_with(other);
        imports.insert(at.clone(), targets.filter(is_apart).collect());
    }
    imports
}

/// The innermost module that `path` names, as module `at` means it.
fn target(at: &Module, path: &[String], modules: &BTreeMap<Module, &File<'_>>) -> Option<Module> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (mut target, rest) = match path {
        [first, rest @ ..] if first == "crate" => (Module::new(), rest),
        _ => (
            at[..at.len().checked_sub(supers)?].to_vec(),
            &path[supers..],
        ),
    };
    for name in rest {
        target.push(name.clone());
        if !modules.contains_key(&target) {
            target.pop();
            break;
        }
    }
    Some(target)
}

/// All paths in `code` that begin with `crate` or `super`, those of groups one by one.
fn paths(code: &str) -> Vec<Vec<String>> {
    let tokens = tokens(code);
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let begins = ["crate", "super"].contains(&tokens[at]) && tokens.get(at + 1) == Some(&"::");
        if begins && (at == 0 || tokens[at - 1] != "::") {
            at = path(&tokens, at, &mut Vec::new(), &mut paths);
        }
        at += 1;
    }
    paths
}

/// Reads the path or the group that begins at token `at`, behind `before`. Returns its last token.
fn path(
    tokens: &[&str],
    mut at: usize,
    before: &mut Vec<String>,
    paths: &mut Vec<Vec<String>>,
) -> usize {
    let outer = before.len();
    while let Some(token) = tokens.get(at) {
        if *token == "{" {
            at += 1;
            while tokens.get(at).is_some_and(|token| *token != "}") {
                at = path(tokens, at, before, paths) + 1;
            }
            break;
        }
        before.push((*token).to_owned());
        let goes_on = tokens.get(at + 1) == Some(&"::")
            && tokens
                .get(at + 2)
                .is_some_and(|next| *next == "{" || is_name(next));
        if !goes_on {
            paths.push(before.clone());
            break;
        }
        at += 2;
    }
    before.truncate(outer);
    at
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Names, `::`, and all other characters but blanks.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_name(rest) {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The sets of modules that reach each other.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reached: BTreeMap<_, _> = imports
        .keys()
        .map(|at| (at, reached_from(at, imports)))
        .collect();
    let mut circles: Vec<BTreeSet<Module>> = Vec::new();
    for (at, others) in &reached {
        if others.contains(*at) && !circles.iter().any(|circle| circle.contains(*at)) {
            circles.push(
                others
                    .iter()
                    .filter(|other| reached[other].contains(*at))
                    .cloned()
                    .collect(),
            );
        }
    }
    circles
}

fn reached_from(at: &Module, imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<_> = imports[at].iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module.clone()) {
            next.extend(imports.get(module).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_circles(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, code)| File { path, code })
            .collect();
        of_crate(&files)
            .into_iter()
            .map(|finding| finding.path)
            .collect()
    }

    const CIRCLE: [(&str, &str); 4] = [
        ("crates/x/src/a.rs", "use crate::b::B;"),
        ("crates/x/src/b.rs", "use super::c::{self, C};"),
        ("crates/x/src/c.rs", "use crate::{B as _, d::{D, E}};"),
        ("crates/x/src/d.rs", "fn f() -> crate::a::A { g::<u8>() }"),
    ];

    #[test]
    fn a_circle_of_four_is_found() {
        assert_eq!(in_circles(&CIRCLE).len(), 4);
        assert_eq!(in_circles(&CIRCLE[..3]), [""; 0]);
        let smaller = ("crates/x/src/c.rs", "use crate::a::A;");
        assert_eq!(
            in_circles(&[CIRCLE[0], CIRCLE[1], smaller, CIRCLE[3]]),
            [""; 0]
        );
    }

    #[test]
    fn tests_and_parents_close_no_circle() {
        let with = |last: (&'static str, &'static str)| {
            in_circles(&[CIRCLE[0], CIRCLE[1], CIRCLE[2], last])
        };
        assert_eq!(
            with((
                "crates/x/src/d.rs",
                "#[cfg(test)]\nmod tests { use crate::a::A; }"
            )),
            [""; 0]
        );
        assert_eq!(
            with(("crates/x/src/d/tests.rs", "use crate::a::A;")),
            [""; 0]
        );
        assert_eq!(with(("crates/x/src/d.rs", "pub(crate) mod e;")), [""; 0]);
        let family = [
            (
                "crates/x/src/p.rs",
                "use crate::p::a::A; use crate::p::b::B; use crate::p::c::C;",
            ),
            ("crates/x/src/p/a.rs", "use super::P;"),
            ("crates/x/src/p/b.rs", "use super::P;"),
            ("crates/x/src/p/c.rs", "use super::P;"),
        ];
        assert_eq!(in_circles(&family), [""; 0]);
    }
}
