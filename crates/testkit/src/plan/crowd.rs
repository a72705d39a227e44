//! Many names: big directories, deep trees, many links.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{directory, file};

/// A directory of `count` names, each a file without content.
fn fill(dir: &Path, count: u32, name: impl Fn(u32) -> String) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0o644);
    (0..count).try_for_each(|at| Ok(mknodat(CWD, dir.join(name(at)), FileType::RegularFile, mode, 0)?))
}

/// Directories that outgrow a block, some of them by long names.
pub fn crowd(root: &Path) -> io::Result<()> {
    let dir = directory(root, "crowd")?;
    fill(&directory(&dir, "of-300")?, 300, |at| format!("name-{at}"))?;
    fill(&directory(&dir, "of-3000")?, 3000, |at| format!("{at:x}{}", "-".repeat(at as usize % 40)))?;
    fill(&directory(&dir, "of-long-names")?, 600, |at| format!("{at:04}{}", "x".repeat(251)))
}

/// A directory of 200,000 names.
pub fn crowd_200k(root: &Path) -> io::Result<()> {
    fill(&directory(root, "crowd")?, 200_000, |at| format!("file-number-{at}"))
}

/// Directories that lost names: at the front, in the middle, whole blocks, all of them.
pub fn gaps(root: &Path) -> io::Result<()> {
    let dir = directory(root, "gaps")?;
    let one = |name: &str, keep: fn(u32) -> bool| -> io::Result<()> {
        let dir = directory(&dir, name)?;
        fill(&dir, 1200, |at| format!("entry-{at:05}"))?;
        (0..1200)
            .filter(|at| !keep(*at))
            .try_for_each(|at| std::fs::remove_file(dir.join(format!("entry-{at:05}"))))
    };
    one("first-gone", |at| at > 3)?;
    one("every-other", |at| at % 2 == 0)?;
    one("few-left", |at| at % 397 == 0)?;
    one("all-gone", |_| false)
}

/// A chain of 200 directories with a file in each.
pub fn deep(root: &Path) -> io::Result<()> {
    let mut dir: PathBuf = directory(root, "deep")?;
    for level in 0..200 {
        dir.push(format!("d{level}"));
        std::fs::create_dir(&dir)?;
        file(&dir.join("f"), level)?;
    }
    Ok(())
}

/// One file with many names, over several directories.
pub fn many_links(root: &Path) -> io::Result<()> {
    let dir = directory(root, "hard-links")?;
    let first = dir.join("first");
    file(&first, 3000)?;
    for at in 0..5 {
        let inner = directory(&dir, &format!("{at}"))?;
        (0..20).try_for_each(|name| std::fs::hard_link(&first, inner.join(format!("link-{name}"))))?;
    }
    Ok(())
}

/// More subdirectories than a link count can say (the feature `dir_nlink`).
pub fn subdirectories(root: &Path) -> io::Result<()> {
    let dir = directory(root, "subdirectories")?;
    let mode = Mode::from_raw_mode(0o755);
    (0..65_100).try_for_each(|at| Ok(rustix::fs::mkdirat(CWD, dir.join(format!("{at}")), mode)?))
}
