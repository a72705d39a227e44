//! Circles of modules: each imports the next, and the last the first.
//!
//! A module is a file. It imports each module of its crate that a path of its code names, where the
//! path begins with `crate` or `super`. A path that names a re-export imports the module that
//! defines the name. A module may import those above and below it, and tests do not count.
//!
//! A folder and the file of its name, or its `mod.rs`, are one module among the files and folders
//! next to it. A file of the folder that imports a file outside makes the folder import it, or the
//! folder that holds it. Folders are layers: none is in a circle.

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

/// The modules that each module of a crate imports.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// For each module the names that it re-exports, with their paths from the root of the crate.
type Exports = BTreeMap<Module, BTreeMap<String, Module>>;

/// How many re-exports one path may pass.
const MOST_EXPORTS: usize = 8;

/// The files of one crate that stand in circles of more than [`LARGEST`] modules, and the imports
/// that close circles of folders.
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
    findings.extend(of_folders(&modules, &imports));
    findings
}

/// The imports that close circles with folders in them.
fn of_folders(modules: &BTreeMap<Module, &File<'_>>, imports: &Imports) -> Vec<Finding> {
    let arrows: Vec<_> = imports
        .iter()
        .flat_map(|(from, others)| others.iter().map(move |to| (from, to)))
        .collect();
    let mut floors: BTreeMap<&[String], Imports> = BTreeMap::new();
    for (from, to) in &arrows {
        let (parent, from, to) = siblings(from, to);
        let floor = floors.entry(parent).or_default();
        floor.entry(to.to_vec()).or_default();
        floor.entry(from.to_vec()).or_default().insert(to.to_vec());
    }
    let is_folder = |at: &Module| {
        modules
            .keys()
            .any(|other| other.len() > at.len() && other.starts_with(at))
    };
    let mut findings = Vec::new();
    for (parent, floor) in &floors {
        for circle in circles(floor)
            .into_iter()
            .filter(|circle| circle.iter().any(is_folder))
        {
            let names: Vec<_> = circle.iter().filter_map(|at| at.last().cloned()).collect();
            for (from, to) in &arrows {
                let (above, one, other) = siblings(from, to);
                if above == *parent && circle.contains(one) && circle.contains(other) {
                    let says = format!(
                        "imports {}, in a circle of the folders or files {}",
                        to.join("::"),
                        names.join(", ")
                    );
                    findings.push(Finding::new("folder-circle", modules[*from].path, 1, says));
                }
            }
        }
    }
    findings
}

/// The innermost module above both modules, and the modules in it that hold them.
fn siblings<'m>(one: &'m Module, other: &'m Module) -> (&'m [String], &'m [String], &'m [String]) {
    let common = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    (&one[..common], &one[..=common], &other[..=common])
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

fn imports(modules: &BTreeMap<Module, &File<'_>>) -> Imports {
    let exports: Exports = modules
        .iter()
        .map(|(at, file)| (at.clone(), exports(at, &without_tests(file.code))))
        .collect();
    let mut imports = BTreeMap::new();
    for (at, file) in modules {
        let paths = paths(&without_tests(file.code));
        let targets = paths
            .iter()
            .filter_map(|path| target(&from_root(at, path)?, &exports));
        let is_apart = |other: &Module| !other.starts_with(at) && !at.starts_with(other);
        imports.insert(at.clone(), targets.filter(is_apart).collect());
    }
    imports
}

/// A path from the root of the crate, as module `at` means `path`.
fn from_root(at: &Module, path: &[String]) -> Option<Module> {
    if let [first, rest @ ..] = path
        && first == "crate"
    {
        return Some(rest.to_vec());
    }
    let supers = path.iter().take_while(|name| *name == "super").count();
    let above = &at[..at.len().checked_sub(supers)?];
    let below = path[supers..].iter().filter(|name| *name != "self");
    Some(above.iter().chain(below).cloned().collect())
}

/// The innermost module that a path from the root names; `None` if re-exports go in a circle.
fn target(path: &[String], exports: &Exports) -> Option<Module> {
    let mut path = path.to_vec();
    for _ in 0..MOST_EXPORTS {
        let known = |len: &usize| exports.contains_key(&path[..*len]);
        let len = (0..=path.len()).rev().find(known)?;
        let exported = path
            .get(len)
            .and_then(|name| exports[&path[..len]].get(name));
        let Some(exported) = exported else {
            path.truncate(len);
            return Some(path);
        };
        path = exported.iter().chain(&path[len + 1..]).cloned().collect();
    }
    None
}

/// The names that module `at` re-exports from modules of its crate.
fn exports(at: &Module, code: &str) -> BTreeMap<String, Module> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    for (used, _) in tokens.iter().enumerate().filter(|(_, it)| **it == "use") {
        let is_public = used.checked_sub(1).is_some_and(|before| {
            let before = tokens[before];
            before == "pub" || before == ")"
        });
        if is_public {
            path(&tokens, used + 1, &mut Vec::new(), &mut found);
        }
    }
    found
        .iter()
        .filter_map(|path| {
            let name = path.last()?.clone();
            let path = from_root(at, path)?;
            // A name of the module itself, or of another crate.
            let is_own = path.len() == at.len() + 1 && path.starts_with(at);
            (!is_own).then_some((name, path))
        })
        .collect()
}

/// All paths in `code` that begin with `crate` or `super`, with the paths of groups one by one.
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
                if tokens[at] != "," {
                    at = path(tokens, at, before, paths);
                }
                at += 1;
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
            // The other name, which only this file uses.
            at += 2 * usize::from(tokens.get(at + 1) == Some(&"as"));
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
fn circles(imports: &Imports) -> Vec<BTreeSet<Module>> {
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

fn reached_from(at: &Module, imports: &Imports) -> BTreeSet<Module> {
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

    const FOLDERS: [(&str, &str); 3] = [
        ("crates/x/src/a/one.rs", "use crate::b::two::T;"),
        ("crates/x/src/a/three.rs", ""),
        ("crates/x/src/b/two.rs", "use super::super::a::three::T;"),
    ];

    #[test]
    fn a_circle_of_folders_is_found() {
        assert_eq!(
            in_circles(&FOLDERS),
            ["crates/x/src/a/one.rs", "crates/x/src/b/two.rs"]
        );
        assert_eq!(in_circles(&FOLDERS[..2]), [""; 0]);
        let below = FOLDERS.map(|(path, code)| (path.replace("src/", "src/p/"), code));
        let below: Vec<_> = below
            .iter()
            .map(|(at, code)| (at.as_str(), *code))
            .collect();
        assert_eq!(in_circles(&below), [""; 0]);
        let relative = ("crates/x/src/p/a/one.rs", "use super::super::b::two::T;");
        assert_eq!(in_circles(&[relative, below[1], below[2]]).len(), 2);
    }

    #[test]
    fn a_file_closes_a_circle_with_a_folder() {
        let file = ("crates/x/src/c.rs", "fn f() { crate::a::three::f() }");
        let folder = ("crates/x/src/a/one.rs", "use crate::c;");
        assert_eq!(in_circles(&[FOLDERS[1], file, folder]).len(), 2);
        let facade = ("crates/x/src/a.rs", "use crate::c; use a::one::One;");
        assert_eq!(in_circles(&[FOLDERS[1], file, facade]).len(), 2);
        let facade = ("crates/x/src/a/mod.rs", "use crate::a::three::T;");
        let inner = ("crates/x/src/a/three.rs", "use super::A; use crate::d;");
        assert_eq!(in_circles(&[facade, inner, file]), [""; 0]);
    }

    #[test]
    fn a_name_that_the_root_exports_comes_from_its_module() {
        let root = (
            "crates/x/src/lib.rs",
            "mod a; mod b; pub use b::{Far, two::T};",
        );
        let one = ("crates/x/src/a/one.rs", "use crate::T;");
        assert_eq!(
            in_circles(&[root, one, FOLDERS[1], FOLDERS[2]]),
            ["crates/x/src/a/one.rs", "crates/x/src/b/two.rs"]
        );
        let chain = ("crates/x/src/b/mod.rs", "pub(crate) use self::two::Far;");
        let one = ("crates/x/src/a/one.rs", "fn f() -> crate::Far { g() }");
        assert_eq!(
            in_circles(&[root, chain, one, FOLDERS[1], FOLDERS[2]]).len(),
            2
        );
        let private = ("crates/x/src/lib.rs", "mod a; mod b; use b::two::T;");
        assert_eq!(in_circles(&[private, one, FOLDERS[1], FOLDERS[2]]), [""; 0]);
        let endless = ("crates/x/src/lib.rs", "pub use a::T;");
        let other = ("crates/x/src/a/mod.rs", "pub use crate::T;");
        assert_eq!(in_circles(&[endless, other, FOLDERS[1]]), [""; 0]);
    }
}
