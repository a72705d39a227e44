//! The paths of a tree: sorted as `git status` asks for them, in a random order, or names that are
//! not there as an include search asks for them.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::Result;

/// The order in which a process visits paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As sorted.
    Tree,
    /// At random, the same in each run.
    Shuffled,
    /// Names that are not there: each visit of a directory asks for another one.
    Absent,
}

impl Order {
    const ALL: [(&str, Self); 3] = [
        ("tree", Self::Tree),
        ("shuffled", Self::Shuffled),
        ("absent", Self::Absent),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, order)| *order == self)
            .map_or("", |(name, _)| name)
    }

    pub(super) fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, order)| *order)
            .ok_or_else(|| format!("there is no order {name}"))
    }

    /// Returns the paths to visit in a tree that has `paths`.
    pub(super) fn of(self, paths: &[CString]) -> Vec<CString> {
        match self {
            Self::Tree => paths.to_vec(),
            Self::Shuffled => shuffled(paths.to_vec()),
            Self::Absent => absent(paths),
        }
    }
}

/// Writes the paths below `tree`, sorted, to a file. Each begins with a slash and ends with a zero
/// byte. Returns their number.
pub(super) fn write(tree: &Path, file: &Path) -> Result<usize> {
    let failed = |e: std::io::Error| format!("{}: {e}", tree.display());
    let mut paths = Vec::new();
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                directories.push(entry.path());
            }
            paths.push(entry.path());
        }
    }
    paths.sort();
    let mut text = Vec::new();
    for path in &paths {
        let below = path.strip_prefix(tree).map_err(|e| e.to_string())?;
        text.push(b'/');
        text.extend_from_slice(below.as_os_str().as_bytes());
        text.push(0);
    }
    std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(paths.len())
}

/// Reads the file that [`write()`] wrote.
pub(super) fn read(file: &Path) -> Result<Vec<CString>> {
    let text = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let paths = text.split_inclusive(|byte| *byte == 0);
    paths
        .map(|path| CString::from_vec_with_nul(path.to_vec()).map_err(|e| e.to_string()))
        .collect()
}

/// Marsaglia's xorshift.
pub(super) fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Fisher and Yates's shuffle.
fn shuffled(mut paths: Vec<CString>) -> Vec<CString> {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for at in (1..paths.len()).rev() {
        // OK: a place in a vector.
        paths.swap(at, (random(&mut state) % (at as u64 + 1)) as usize);
    }
    paths
}

/// As many absent names as there are paths. The directories take turns.
fn absent(paths: &[CString]) -> Vec<CString> {
    let parent = |path: &CString| -> Option<PathBuf> {
        Some(
            Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()))
                .parent()?
                .to_owned(),
        )
    };
    let directories: BTreeSet<PathBuf> = paths.iter().filter_map(parent).collect();
    let names = directories
        .iter()
        .cycle()
        .take(paths.len())
        .enumerate()
        .map(|(number, directory)| {
            let path = directory.join(format!("absent-{number}.h"));
            CString::new(path.into_os_string().as_bytes())
                .expect("a path of a tree has no zero byte")
        });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str]) -> Vec<CString> {
        paths
            .iter()
            .map(|path| CString::new(*path).expect("no zero byte"))
            .collect()
    }

    #[test]
    fn a_tree_is_written_and_read() {
        let dir = std::env::temp_dir().join(format!("extern4-paths-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("tree/b")).expect("a directory");
        std::fs::write(dir.join("tree/b/c"), "").expect("a file");
        std::fs::write(dir.join("tree/a"), "").expect("a file");
        assert_eq!(write(&dir.join("tree"), &dir.join("list")), Ok(3));
        assert_eq!(read(&dir.join("list")), Ok(of(&["/a", "/b", "/b/c"])));
        std::fs::remove_dir_all(&dir).expect("it is there");
    }

    #[test]
    fn each_absent_name_is_another_one() {
        let paths = of(&["/a", "/d", "/d/x", "/d/y", "/e", "/e/z"]);
        let absent = Order::Absent.of(&paths);
        assert_eq!(
            absent[..4],
            of(&[
                "/absent-0.h",
                "/d/absent-1.h",
                "/e/absent-2.h",
                "/absent-3.h"
            ])
        );
        assert_eq!(absent.len(), paths.len());
        let mut shuffled = Order::Shuffled.of(&paths);
        assert_ne!(shuffled, paths);
        shuffled.sort();
        assert_eq!(shuffled, paths);
    }
}
