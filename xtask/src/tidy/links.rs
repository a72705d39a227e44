//! Links and paths in documents: each leads to something that exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// How a path of the tree begins, where a document names one.
const TREE: &[&str] = &["crates/", "docs/", "fuzz/", "scripts/", "xtask/"];

/// The documents of the workspace, by their paths in it.
pub(crate) fn documents(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new(), "docs".into()];
    let crates = fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .flatten();
    folders.extend(crates.map(|entry| Path::new("crates").join(entry.file_name())));
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = folder.join(entry.file_name());
            if path.extension().is_some_and(|ext| ext == "md") {
                found.push(path);
            } else if folder.starts_with("docs") && entry.path().is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Reports each link to a file or a heading that does not exist, and each path of the tree that a
/// document names and that does not exist. `sources` are the paths of all source files.
pub(crate) fn check_document(
    root: &Path,
    path: &Path,
    text: &str,
    sources: &BTreeSet<String>,
    faults: &mut Vec<String>,
) {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut missing = |line: usize, name: &str| {
        faults.push(format!(
            "{}:{}: {name} does not exist",
            path.display(),
            line + 1
        ));
    };
    for (number, line) in text.lines().enumerate() {
        let links = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = folder.join(file);
            let is_there = file.is_empty() || root.join(&target).exists();
            if !is_there {
                missing(number, &target.to_string_lossy());
            } else if !heading.is_empty() && !has_heading(root, &target, file, text, heading) {
                missing(number, link);
            }
        }
        // Every second piece stands between backticks.
        let named = line
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| !name.contains(['*', ' ', '<', '$', '(']));
        for name in named {
            if TREE.iter().any(|top| name.starts_with(top)) {
                if !root.join(name).exists() {
                    missing(number, name);
                }
            } else if name.ends_with(".rs") && !is_source(name, line, sources) {
                missing(number, name);
            }
        }
    }
}

/// Whether a file of this name is a source. A row of a table that begins with a crate names files
/// of that crate.
fn is_source(name: &str, line: &str, sources: &BTreeSet<String>) -> bool {
    let of = line
        .strip_prefix("| `")
        .and_then(|rest| rest.split('`').next())
        .unwrap_or_default();
    let folders = [format!("crates/{of}/"), format!("{of}/")];
    let is_crate = |folder: &&String| sources.iter().any(|path| path.starts_with(*folder));
    let of_crate = if of.is_empty() {
        None
    } else {
        folders.iter().find(is_crate)
    };
    of_crate.map_or_else(
        || {
            sources
                .iter()
                .any(|path| path.ends_with(&format!("/{name}")))
        },
        |folder| sources.contains(&format!("{folder}{name}")),
    )
}

/// Whether the document `target`, or this one where `file` is empty, has this heading.
fn has_heading(root: &Path, target: &Path, file: &str, own: &str, heading: &str) -> bool {
    let other = if file.is_empty() {
        None
    } else {
        fs::read_to_string(root.join(target)).ok()
    };
    let text = other.as_deref().unwrap_or(own);
    let anchors = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(anchor);
    target.extension().is_none_or(|ext| ext != "md") && !file.is_empty()
        || anchors.into_iter().any(|anchor| anchor == heading)
}

/// The anchor that GitHub and mdBook give a heading.
fn anchor(heading: &str) -> String {
    let text = heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .replace(' ', "-");
    text.chars()
        .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace_root;

    fn dead(text: &str) -> usize {
        let mut faults = Vec::new();
        let sources = ["crates/vfs/src/fs.rs", "crates/ext4/src/mount.rs"]
            .map(str::to_owned)
            .into();
        check_document(
            &workspace_root(),
            Path::new("docs/DECISIONS.md"),
            text,
            &sources,
            &mut faults,
        );
        faults.len()
    }

    #[test]
    fn a_dead_link_is_found() {
        let alive = "[map](../ARCHITECTURE.md) [floors](../ARCHITECTURE.md#floors) [net](https://example.org/x)";
        assert_eq!(dead(alive), 0);
        assert_eq!(dead("[map](ARCHITECTURE.md), `crates/no/such.rs`"), 2);
        assert_eq!(
            dead("`crates/vfs/src/lib.rs` and `crates/*/src` and [here](#choices)\n## Choices\n"),
            0
        );
        assert_eq!(
            dead("[map](../ARCHITECTURE.md#no-such-part) [here](#choices)"),
            2
        );
    }

    #[test]
    fn a_file_that_a_map_names_wrongly_is_found() {
        assert_eq!(
            dead("| `vfs` | `src/fs.rs` | `ext4` |\nand `mount.rs` next to it"),
            0
        );
        assert_eq!(dead("| `vfs` | `src/mount.rs` | |\nand `dismount.rs`"), 2);
    }
}
