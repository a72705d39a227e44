//! Rows of attributes that files share: `xattr-bench` of Linux's mbcache, with threads for its
//! processes. Each thread sets one attribute of 512 bytes, which has no room in an inode, on its
//! own files, over and over, with a value out of a number of them.

use std::fs;
use std::path::{Path, PathBuf};

use extern4::{File, Volume, XattrFlags};
use extern4_ext4::mbcache::MbCache;

use super::image::Rival;
use super::row::{Row, Unit};
use super::threads::in_threads;
use super::write::{Mounted, directory, open, remove};
use super::{Bench, RUNS, Result};

/// Runs of one cell, of which there are many.
const CELL_RUNS: usize = 5;

const VALUE_BYTES: usize = 512;
const NAME: &str = "user.value";
/// Attributes that all threads together set in one run.
const SETS: u32 = 20_000;

/// One cell of the table: how many threads set attributes, on how many files each, out of how many
/// values.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub(super) threads: u32,
    pub(super) files: u32,
    pub(super) values: u32,
}

impl Bench {
    /// One cell against the kernel.
    pub(super) fn xattr(&self, name: &'static str, cell: Cell) -> Result<Row> {
        let mut row = Row::faster(name, Unit::Nanoseconds, 1.0);
        let ours = self.fresh("ours.img", "512M", 20_000)?;
        let theirs = self.fresh("rival.img", "512M", 20_000)?;
        row.rounds(CELL_RUNS, || {
            let our_ns = set_all(&ours, cell)?;
            let mount = Mounted::new(Rival::Kernel, &theirs, &self.folder.join("mnt"))?;
            let their_ns = set_all_below(&mount.path, cell)?;
            mount.end()?;
            Ok((our_ns, their_ns))
        })?;
        row.set_note("time of one attribute in all threads together".to_owned());
        remove([ours, theirs])?;
        Ok(row)
    }

    /// Time for an attribute out of 100,000 values, by that for one out of 10.
    pub(super) fn xattr_many_values(&self) -> Result<Row> {
        let mut row = Row::below("xattr-100000-values-vs-10", Unit::Times, 1.3);
        let image = self.fresh("ours.img", "512M", 20_000)?;
        for run in 0..=RUNS {
            let cell = |values| Cell {
                threads: 1,
                files: 100,
                values,
            };
            let few = set_all(&image, cell(10))?;
            let many = set_all(&image, cell(100_000))?;
            if run > 0 {
                row.add(many / few, 1.3);
                row.set_note(format!("{many:.0} ns against {few:.0} ns"));
            }
        }
        remove([image])?;
        Ok(row)
    }

    /// Memory of one entry, when as many were put in as there is room for.
    pub(super) fn mbcache_bytes(&self) -> Result<Row> {
        let mut row = Row::below("mbcache-bytes-an-entry", Unit::Count, 16.0);
        let (bytes, entries) = filled();
        row.add(bytes as f64 / entries as f64, 16.0);
        row.set_note(format!("{entries} entries in {bytes} bytes"));
        Ok(row)
    }

    /// The part of 4 MiB that 200,000 entries take.
    pub(super) fn mbcache_entries(&self) -> Result<Row> {
        let mut row = Row::below("mbcache-200000-entries-in-4mib", Unit::Times, 1.0);
        let (bytes, entries) = filled();
        row.add(
            200_000.0 / entries as f64 * bytes as f64 / f64::from(4 << 20),
            1.0,
        );
        row.set_note(format!("{entries} entries in {bytes} bytes"));
        Ok(row)
    }
}

/// Bytes of a cache, and entries in it when as many were put in.
fn filled() -> (u64, u64) {
    let cache = MbCache::new(MbCache::BITS_FAR);
    let mut random = Random(1);
    for block in 1..=cache.stats().capacity {
        cache.insert(random.next(), block);
    }
    (cache.stats().bytes, cache.stats().entries)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

/// A value that differs from all others, as does its hash.
fn value(number: u32) -> [u8; VALUE_BYTES] {
    let mut value = [0x5a; VALUE_BYTES];
    value[..4].copy_from_slice(&number.to_le_bytes());
    value
}

/// Runs `set` in each thread, told which, which file and with which value, and returns the
/// nanoseconds of one.
fn timed(cell: Cell, set: impl Fn(u32, usize, &[u8]) -> Result<()> + Sync) -> Result<f64> {
    let sets = SETS / cell.threads;
    let ns = in_threads(cell.threads, |thread| {
        let mut random = Random(thread.into());
        (0..sets).try_for_each(|at| {
            set(
                thread,
                (at % cell.files) as usize,
                &value(random.next() % cell.values),
            )
        })
    })?;
    Ok(ns / f64::from(sets * cell.threads))
}

/// The files of each thread, by their paths in the volume.
fn paths(cell: Cell) -> Vec<Vec<String>> {
    let of = |thread| {
        (0..cell.files)
            .map(|file| format!("x{thread}-{file}"))
            .collect()
    };
    (0..cell.threads).map(of).collect()
}

/// By us.
fn set_all(image: &Path, cell: Cell) -> Result<f64> {
    let volume: Volume = open(image)?;
    let session = directory(&volume)?;
    let paths = paths(cell);
    for path in paths.iter().flatten() {
        let made = session.open_with(path, File::options().write(true).create(true));
        drop(made.map_err(|e| e.to_string())?);
    }
    let nanoseconds = timed(cell, |thread, file, value| {
        let path = &paths[thread as usize][file];
        session
            .setxattr(path, NAME, value, XattrFlags::empty())
            .map_err(|e| e.to_string())
    })?;
    drop(session);
    volume.close().map_err(|e| e.to_string())?;
    Ok(nanoseconds)
}

/// Sets all attributes by system calls below a mount point.
fn set_all_below(root: &Path, cell: Cell) -> Result<f64> {
    let work = root.join("work");
    fs::create_dir_all(&work).map_err(|e| e.to_string())?;
    let paths: Vec<Vec<PathBuf>> = paths(cell)
        .iter()
        .map(|paths| paths.iter().map(|path| work.join(path)).collect())
        .collect();
    for path in paths.iter().flatten() {
        fs::write(path, b"").map_err(|e| e.to_string())?;
    }
    timed(cell, |thread, file, value| {
        let path = &paths[thread as usize][file];
        rustix::fs::setxattr(path, NAME, value, rustix::fs::XattrFlags::empty())
            .map_err(|e| e.to_string())
    })
}
