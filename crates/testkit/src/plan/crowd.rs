//! Many names: big directories, deep trees, many links.
//!
//! The images of directories and hash trees use these plans. Numbers of names are chosen so that a
//! tree has the levels that the plan is about.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{directory, file};

/// Puts `count` files without content into a directory.
fn fill(dir: &Path, count: u32, name: impl Fn(u32) -> String) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0o644);
    (0..count).try_for_each(|at| {
        Ok(mknodat(
            CWD,
            dir.join(name(at)),
            FileType::RegularFile,
            mode,
            0,
        )?)
    })
}

/// Puts `count` names of a thousand pipes into a directory. In a big directory only the names
/// matter, and links to pipes are quickly made and read.
fn fill_with_links(dir: &Path, count: u32, name: impl Fn(u32) -> String) -> io::Result<()> {
    const PIPES: u32 = 1000;
    let mode = Mode::from_raw_mode(0o644);
    let pipes: Vec<PathBuf> = (0..PIPES).map(|at| dir.join(name(at))).collect();
    pipes
        .iter()
        .try_for_each(|pipe| mknodat(CWD, pipe, FileType::Fifo, mode, 0))?;
    (PIPES..count)
        .try_for_each(|at| std::fs::hard_link(&pipes[(at % PIPES) as usize], dir.join(name(at))))
}

/// Makes directories that outgrow a block, some of them by long names.
pub fn crowd(root: &Path) -> io::Result<()> {
    let dir = directory(root, "crowd")?;
    fill(&directory(&dir, "of-300")?, 300, |at| format!("name-{at}"))?;
    fill(&directory(&dir, "of-3000")?, 3000, |at| {
        format!("{at:x}{}", "-".repeat(at as usize % 40))
    })?;
    fill(&directory(&dir, "of-long-names")?, 600, |at| {
        format!("{at:04}{}", "x".repeat(251))
    })
}

/// Makes directories that outgrow a block, like [`crowd`], for images that are filled slowly.
pub fn small_crowd(root: &Path) -> io::Result<()> {
    let dir = directory(root, "crowd")?;
    fill(&directory(&dir, "of-300")?, 300, |at| format!("name-{at}"))?;
    fill(&directory(&dir, "of-long-names")?, 300, |at| {
        format!("{at:04}{}", "x".repeat(251))
    })
}

/// Makes a directory of 200,000 names.
pub fn crowd_200k(root: &Path) -> io::Result<()> {
    fill_with_links(&directory(root, "crowd")?, 200_000, |at| {
        format!("file-number-{at}")
    })
}

/// Makes directories that lost names: at the front, in the middle, whole blocks, all of them.
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

/// Makes a chain of 200 directories with a file in each.
pub fn deep(root: &Path) -> io::Result<()> {
    let mut dir: PathBuf = directory(root, "deep")?;
    for level in 0..200 {
        dir.push(format!("d{level}"));
        std::fs::create_dir(&dir)?;
        file(&dir.join("f"), level)?;
    }
    Ok(())
}

/// Makes one file with many names, over several directories.
pub fn many_links(root: &Path) -> io::Result<()> {
    let dir = directory(root, "hard-links")?;
    let first = dir.join("first");
    file(&first, 3000)?;
    for at in 0..5 {
        let inner = directory(&dir, &format!("{at}"))?;
        (0..20)
            .try_for_each(|name| std::fs::hard_link(&first, inner.join(format!("link-{name}"))))?;
    }
    Ok(())
}

/// Makes more subdirectories than a link count can say (the feature `dir_nlink`).
pub fn subdirectories(root: &Path) -> io::Result<()> {
    let dir = directory(root, "subdirectories")?;
    let mode = Mode::from_raw_mode(0o755);
    (0..65_100).try_for_each(|at| Ok(rustix::fs::mkdirat(CWD, dir.join(format!("{at}")), mode)?))
}

/// Makes names of bytes beyond ASCII, which signed and unsigned hashes tell apart.
pub fn crowd_of_bytes(root: &Path) -> io::Result<()> {
    let dir = directory(root, "crowd-of-bytes")?;
    let mode = Mode::from_raw_mode(0o644);
    for at in 0..1500_u32 {
        let digits = format!("{at:o}");
        let name: Vec<u8> = digits
            .bytes()
            .cycle()
            .take(8 + at as usize % 50)
            .map(|digit| digit | 0x80)
            .collect();
        let name = [&name, digits.as_bytes()].concat();
        mknodat(
            CWD,
            dir.join(OsStr::from_bytes(&name)),
            FileType::RegularFile,
            mode,
            0,
        )?;
    }
    Ok(())
}

/// Makes a directory whose index has three levels with blocks of 1024 bytes (the feature
/// `large_dir`).
pub fn crowd_three_levels(root: &Path) -> io::Result<()> {
    // Three names a leaf: 120 entries of the root times 120 of a node are too few for 60,000 of
    // them.
    fill_with_links(&directory(root, "crowd")?, 60_000, |at| {
        format!("{at:06}{}", "w".repeat(244))
    })
}

/// Makes directories of 0 to 40 names, and directories that shrank from there. With the feature
/// `inline_data` they are in the inode, partly in its attributes, or have just moved to a block.
pub fn small_directories(root: &Path) -> io::Result<()> {
    let dir = directory(root, "small-directories")?;
    for count in 0..40 {
        fill(&directory(&dir, &format!("of-{count}"))?, count, |at| {
            format!("n{at}")
        })?;
        let shrunk = directory(&dir, &format!("from-{count}"))?;
        fill(&shrunk, count, |at| format!("name-{at}"))?;
        (0..count)
            .step_by(2)
            .try_for_each(|at| std::fs::remove_file(shrunk.join(format!("name-{at}"))))?;
    }
    Ok(())
}
