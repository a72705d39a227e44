//! Plans, which fill directories.
//!
//! A plan works on any directory whose file system can hold its files. So the kernel's mount and
//! the source of `mke2fs -d` share plans. All data is computed from names and offsets: two runs
//! make equal trees.
//!
//! [`zoo`](crate::zoo) combines them into images. A plan that a file system cannot hold fails, so
//! no image lacks files unnoticed.

mod crowd;
mod data;
mod names;
mod owners;
mod special;
mod xattrs;

pub use crowd::{
    crowd, crowd_200k, crowd_of_bytes, crowd_three_levels, deep, gaps, many_links, small_crowd,
    small_directories, subdirectories,
};
pub use data::{fragmented, holes, indirect, shattered, small_files, terabyte, unwritten};
pub use names::{odd_names, symlinks};
pub use owners::{modes_and_owners, times};
pub use special::{devices, encrypted, inode_flags};
pub use xattrs::{access_lists, big_xattrs, shared_xattrs, xattrs};

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::image::Plan;

/// A tree with everything that any file system of Linux keeps. Only root can make all of it.
pub const TREE: &[Plan] = &[
    small_files,
    holes,
    symlinks,
    odd_names,
    modes_and_owners,
    times,
    devices,
    many_links,
    gaps,
    xattrs,
    access_lists,
    shared_xattrs,
    small_directories,
    deep,
];

/// Returns bytes that differ from block to block and file to file.
pub fn pattern(seed: u64, offset: u64, len: usize) -> Vec<u8> {
    let word = |at: u64| {
        (at ^ seed.rotate_left(32))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
            | 1
    };
    let first = offset / 8;
    let words = len / 8 + 2;
    let bytes: Vec<u8> = (first..)
        .take(words)
        .flat_map(|at| word(at).to_le_bytes())
        .collect();
    let skip = (offset % 8) as usize;
    bytes[skip..skip + len].to_vec()
}

/// Makes a new file of `len` patterned bytes.
pub fn file(path: &Path, len: usize) -> io::Result<()> {
    std::fs::write(path, pattern(seed_of(path), 0, len))
}

/// Writes `len` patterned bytes at `offset`.
fn write_at(file: &File, seed: u64, offset: u64, len: usize) -> io::Result<()> {
    file.write_all_at(&pattern(seed, offset, len), offset)
}

/// Returns a seed made from the last name of a path.
fn seed_of(path: &Path) -> u64 {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| {
        (hash ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Makes a new directory inside `root`.
fn directory(root: &Path, name: &str) -> io::Result<std::path::PathBuf> {
    let dir = root.join(name);
    std::fs::create_dir(&dir)?;
    Ok(dir)
}

/// Returns the block size of the file system that holds `path`.
fn block_size(path: &Path) -> io::Result<u64> {
    Ok(rustix::fs::statvfs(path)?.f_bsize)
}
