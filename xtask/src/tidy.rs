//! The rules of the workspace that rustc cannot see: imports, `unsafe`, stubs, documents, names,
//! idioms and prose.
//!
//! A test runs all checks. Faults of prose, names, idioms and circles are counted, and [`allowed`]
//! has the numbers.

mod allowed;
mod circles;
mod finding;
mod idioms;
mod links;
mod names;
mod pages;
mod prose;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use allowed::Numbers;
use finding::Finding;

/// The floors: a crate may depend only on crates of lower floors, or on the crates that [`BELOW`]
/// names.
const FLOORS: &[(&str, u8)] = &[
    ("extern4-acl", 0),
    ("extern4-audit", 0),
    ("extern4-sync", 0),
    ("extern4-disk", 0),
    ("extern4-measure", 0),
    ("extern4-vfs", 1),
    ("extern4-block", 1),
    ("extern4-tree", 1),
    ("extern4-jbd2", 2),
    ("extern4-mkfs", 2),
    ("extern4-ext4", 3),
    ("extern4-build", 3),
    ("extern4-check", 4),
    ("extern4", 4),
    ("extern4-fuse", 4),
    ("extern4-mountd", 5),
    ("extern4-cli", 6),
];

/// Imports within one floor.
const BELOW: &[(&str, &str)] = &[
    ("extern4-sync", "extern4-audit"),
    ("extern4-disk", "extern4-acl"),
];

/// Imports that the floors alone would allow, but the design does not.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "extern4-vfs",
        &[
            "extern4-ext4",
            "extern4-jbd2",
            "extern4-block",
            "extern4-disk",
        ],
    ),
    ("extern4-jbd2", &["extern4-vfs"]),
    (
        "extern4-fuse",
        &[
            "extern4-ext4",
            "extern4-jbd2",
            "extern4-block",
            "extern4-disk",
        ],
    ),
];

/// The only files that may contain `unsafe`.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/audit/src/step.rs",
    "crates/sync/src/",
    "crates/sync/tests/",
    "crates/block/benches/hit.rs",
    "crates/cli/src/allocations.rs",
    "crates/cli/src/standard_input.rs",
    "crates/extern4/tests/forked.rs",
    "crates/fuse/src/loop_device.rs",
    "crates/fuse/src/transport/clone.rs",
    "crates/fuse/src/transport/ring/slot.rs",
    "crates/vfs/src/dentry.rs",
];

/// A line in the root of every crate without such a file.
const FORBID: &str = "#![forbid(unsafe_code)]";

/// The line in the root of a crate that has one.
const DENY: &str = "#![deny(unsafe_code)]";

/// Words in the code of a crate that its place in the house forbids, and why.
const FORBIDDEN_WORDS: &[(&str, &[&str], &str)] = &[
    (
        "crates/disk/src/",
        &["std::fs", "std::io", "std::net", "std::os"],
        "disk does no I/O",
    ),
    (
        "crates/vfs/src/",
        &["std::sync::atomic", "core::sync::atomic"],
        "atomics come from extern4-sync",
    ),
    (
        "crates/block/src/",
        &["std::sync::atomic", "core::sync::atomic"],
        "atomics come from extern4-sync",
    ),
    (
        "crates/jbd2/src/",
        &["std::sync::atomic", "core::sync::atomic"],
        "atomics come from extern4-sync",
    ),
    (
        "crates/ext4/src/",
        &["std::sync::atomic", "core::sync::atomic"],
        "atomics come from extern4-sync",
    ),
    (
        "crates/extern4/src/",
        &["std::sync::atomic", "core::sync::atomic"],
        "atomics come from extern4-sync",
    ),
    (
        "crates/fuse/src/",
        &["std::sync::atomic", "core::sync::atomic"],
        "atomics come from extern4-sync",
    ),
    (
        "crates/vfs/src/",
        DEVICE_WRITES,
        "only block writes to devices",
    ),
    (
        "crates/jbd2/src/",
        DEVICE_WRITES,
        "only block writes to devices",
    ),
    (
        "crates/ext4/src/",
        DEVICE_WRITES,
        "only block writes to devices",
    ),
    (
        "crates/extern4/src/",
        DEVICE_WRITES,
        "only block writes to devices",
    ),
    (
        "crates/mountd/src/",
        DEVICE_WRITES,
        "only block writes to devices",
    ),
    (
        "crates/cli/src/",
        DEVICE_WRITES,
        "only block writes to devices",
    ),
];

/// How a call of a writing method of `BlockDevice` looks.
const DEVICE_WRITES: &[&str] = &["device.write_at(", "dev.write_at(", "BlockDevice::write"];

/// The root of the workspace, wherever the command was started.
pub(crate) fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
        .to_owned()
}

/// Every breach of the rules, as a sentence that names the file.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    for manifest in manifests(root) {
        check_imports(&manifest, &mut faults);
    }
    let texts = read_all(root, sources(root));
    for (path, text) in &texts {
        check_source(path, text, &mut faults);
    }
    check_map(root, &mut faults);
    for entry in fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let manifest = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap_or_default();
        pages::check(&entry.path(), &manifest, &mut faults);
    }
    let names = texts.keys().cloned().collect::<BTreeSet<_>>();
    let documents = read_all(root, links::documents(root));
    for (path, text) in &documents {
        links::check_document(root, Path::new(path), text, &names, &mut faults);
    }
    match allowed_of(root) {
        Ok(allowed) => faults.extend(allowed::faults(&findings(&texts, &documents), &allowed)),
        Err(error) => faults.push(error),
    }
    faults
}

/// A crate's name and the workspace crates it depends on, tests not counted.
struct Manifest {
    name: String,
    imports: Vec<String>,
}

fn manifests(root: &Path) -> Vec<Manifest> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .flatten()
    {
        if let Ok(text) = fs::read_to_string(entry.path().join("Cargo.toml")) {
            found.push(parse_manifest(&text));
        }
    }
    found
}

fn parse_manifest(text: &str) -> Manifest {
    let mut manifest = Manifest {
        name: String::new(),
        imports: Vec::new(),
    };
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[package]" && line.starts_with("name") {
            manifest.name = line.split('"').nth(1).unwrap_or_default().to_owned();
        } else if section == "[dependencies]" && line.starts_with("extern4") {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            manifest.imports.push(line[..end].to_owned());
        }
    }
    manifest
}

fn floor(name: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, floor)| *floor)
}

fn check_imports(manifest: &Manifest, faults: &mut Vec<String>) {
    let Some(own) = floor(&manifest.name) else {
        // A crate that is on no floor, such as the testkit, may import anything.
        return;
    };
    for import in &manifest.imports {
        match floor(import) {
            Some(theirs) if theirs < own || BELOW.contains(&(manifest.name.as_str(), import)) => {}
            Some(_) => faults.push(format!(
                "{} imports {import}, which is not on a lower floor",
                manifest.name
            )),
            None => faults.push(format!(
                "{} imports {import}, which stands beside the house",
                manifest.name
            )),
        }
        let forbidden = FORBIDDEN
            .iter()
            .any(|(name, imports)| *name == manifest.name && imports.contains(&import.as_str()));
        if forbidden {
            faults.push(format!("{} must not know {import}", manifest.name));
        }
    }
}

fn sources(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![
        root.join("crates"),
        root.join("xtask"),
        root.join("fuzz"),
        root.join("scripts"),
        root.join(".ci"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if !["target", "corpus", "artifacts"]
                    .iter()
                    .any(|skip| name == *skip)
                {
                    folders.push(path);
                }
            } else if path
                .extension()
                .is_none_or(|ext| ["rs", "toml", "sh", "py"].iter().any(|known| ext == *known))
            {
                files.push(path);
            }
        }
    }
    files
}

fn check_source(path: &str, text: &str, faults: &mut Vec<String>) {
    if path.starts_with("xtask/src/tidy") {
        // These files spell the forbidden words out.
        return;
    }
    let code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    if path.ends_with(".rs")
        && !UNSAFE_ALLOWED
            .iter()
            .any(|allowed| path.starts_with(allowed))
    {
        for (number, line) in code.clone().enumerate() {
            if line
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "unsafe")
            {
                faults.push(format!("{path}:{}: unsafe is not allowed here", number + 1));
            }
        }
        let denies = [
            "audit/src/lib.rs",
            "vfs/src/lib.rs",
            "fuse/src/lib.rs",
            "cli/src/main.rs",
        ];
        let denies = denies
            .iter()
            .any(|root| path.strip_prefix("crates/") == Some(root));
        let says = if denies { DENY } else { FORBID };
        if (path.ends_with("src/lib.rs") || path.ends_with("src/main.rs")) && !text.contains(says) {
            faults.push(format!("{path}: a crate without unsafe says {says}"));
        }
    }
    for (folder, words, why) in FORBIDDEN_WORDS {
        if !path.starts_with(folder) {
            continue;
        }
        for (number, line) in code.clone().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                faults.push(format!("{path}:{}: {word}: {why}", number + 1));
            }
        }
    }
    for stub in ["todo!(", "unimplemented!("] {
        if code.clone().any(|line| line.contains(stub)) {
            faults.push(format!("{path}: {stub}) is not a product"));
        }
    }
}

/// ARCHITECTURE.md is the map: every crate is on it.
fn check_map(root: &Path, faults: &mut Vec<String>) {
    let map = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    for manifest in manifests(root) {
        let short = manifest
            .name
            .strip_prefix("extern4-")
            .unwrap_or(&manifest.name);
        if !map.contains(&format!("`{short}`")) {
            faults.push(format!("ARCHITECTURE.md does not name `{short}`"));
        }
    }
}

/// Breaches of the rules of prose, names, idioms and circles, which [`allowed`] may still allow.
fn findings(
    texts: &BTreeMap<String, String>,
    documents: &BTreeMap<String, String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
    let parts: BTreeMap<_, _> = rust
        .map(|(path, text)| (path.as_str(), source::parts(text)))
        .collect();
    for (path, parts) in &parts {
        findings.extend(prose::of_comments(path, &parts.comments));
        findings.extend(prose::of_width(path, &texts[*path], &parts.comments));
        findings.extend(idioms::of_file(path, &parts.code));
    }
    for (path, text) in documents {
        findings.extend(prose::of_document(path, text));
    }
    findings.extend(names::of_files(
        parts
            .iter()
            .map(|(path, parts)| (*path, parts.code.as_str())),
    ));
    let mut crates: BTreeMap<&str, Vec<circles::File<'_>>> = BTreeMap::new();
    for (path, parts) in &parts {
        crates
            .entry(finding::unit(path))
            .or_default()
            .push(circles::File {
                path,
                code: &parts.code,
            });
    }
    findings.extend(crates.values().flat_map(|files| circles::of_crate(files)));
    findings.sort();
    findings
}

fn read_all(root: &Path, paths: impl IntoIterator<Item = PathBuf>) -> BTreeMap<String, String> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root.join(&path)).ok()?;
        Some((
            path.strip_prefix(root)
                .unwrap_or(&path)
                .to_string_lossy()
                .into_owned(),
            text,
        ))
    };
    paths.into_iter().filter_map(read).collect()
}

fn findings_of(root: &Path) -> Vec<Finding> {
    findings(
        &read_all(root, sources(root)),
        &read_all(root, links::documents(root)),
    )
}

fn allowed_of(root: &Path) -> Result<Numbers, String> {
    let text = fs::read_to_string(root.join(allowed::FILE));
    allowed::parse(&text.map_err(|error| format!("{}: {error}", allowed::FILE))?)
}

/// All findings, or the findings of one check, or of one check in one crate.
pub(crate) fn list(root: &Path, check: Option<&String>, unit: Option<&String>) -> Vec<Finding> {
    let mut findings = findings_of(root);
    findings.retain(|finding| check.is_none_or(|check| finding.check == check));
    findings.retain(|finding| unit.is_none_or(|unit| finding.unit() == unit));
    findings
}

/// Lowers the allowed numbers of findings to the numbers that are left.
///
/// # Errors
/// A table that cannot be read or written.
pub(crate) fn tighten(root: &Path) -> Result<(), String> {
    let numbers = allowed::tighten(&findings_of(root), &allowed_of(root)?);
    fs::write(root.join(allowed::FILE), allowed::text(&numbers)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_its_rules() {
        let faults = check(&workspace_root());
        assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    }

    #[test]
    fn an_import_upwards_is_found() {
        let mut faults = Vec::new();
        let manifest = parse_manifest(
            "[package]\nname = \"extern4-vfs\"\n[dependencies]\nextern4-ext4.workspace = true\n",
        );
        check_imports(&manifest, &mut faults);
        assert_eq!(faults.len(), 2, "{faults:?}");
    }

    #[test]
    fn unsafe_outside_its_place_is_found() {
        let mut faults = Vec::new();
        check_source(
            "crates/ext4/src/x.rs",
            "fn f() { unsafe { g() } }\n// unsafe in a comment is fine\n",
            &mut faults,
        );
        assert_eq!(faults.len(), 1, "{faults:?}");
    }

    #[test]
    fn a_stub_is_found() {
        let mut faults = Vec::new();
        check_source("crates/ext4/src/x.rs", "fn f() { todo!() }", &mut faults);
        assert_eq!(faults.len(), 1, "{faults:?}");
    }
}
