//! Rows of contents that are written over: blocks of a file that is there, as databases write them,
//! ours in this process, the kernel's through system calls.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use extern4::{File as OpenFile, Session};

use super::image::Rival;
use super::metadata::Change;
use super::row::{Row, Unit};
use super::write::{Mounted, directory, open, remove};
use super::{Bench, RUNS, Result};

/// Blocks of the file, which are written in an order in which neighbours do not follow each other.
const BLOCKS: u64 = 8192;
const STRIDE: u64 = 1237;
const BLOCK: [u8; 4096] = [0x5a; 4096];
const FILE: &str = "file";
/// A file without writers.
const BYSTANDER: &str = "bystander";
/// The other name of either, where it gets one.
const OTHER: &str = "other";

/// The work of one run.
#[derive(Clone, Copy)]
pub(super) struct Overwrite {
    /// Blocks that are written.
    writes: u64,
    /// Each is made durable, as by `fdatasync(2)`.
    syncs: bool,
    goal: f64,
}

impl Overwrite {
    /// They are written: by the kernel to its page cache, by us to that of the image, through a
    /// system call as well.
    pub(super) const WRITTEN: Self = Self {
        writes: 16 * BLOCKS,
        syncs: false,
        goal: 0.5,
    };
    /// They are made durable one by one.
    pub(super) const SYNCED: Self = Self {
        writes: 2000,
        syncs: true,
        goal: 1.5,
    };

    /// Nanoseconds of one block, written by `write` and made durable by `sync`.
    fn time<E: ToString>(
        self,
        write: impl Fn(u64) -> Result<(), E>,
        sync: impl Fn() -> Result<(), E>,
    ) -> Result<f64> {
        let each = |number: u64| {
            write(number * STRIDE % BLOCKS * BLOCK.len() as u64)?;
            if self.syncs { sync() } else { Ok(()) }
        };
        let start = Instant::now();
        (0..self.writes)
            .try_for_each(each)
            .map_err(|e| e.to_string())?;
        Ok(start.elapsed().as_nanos() as f64 / self.writes as f64)
    }

    /// Nanoseconds of one block, and the flushes that it took, by us.
    fn ours(self, image: &Path) -> Result<(f64, f64)> {
        let volume = open(image)?;
        let session = directory(&volume)?;
        let file = filled(&session)?;
        let stats = || {
            volume
                .ext4()
                .journal_stats()
                .ok_or("it is open for reading only")
        };
        let before = stats()?;
        let ns = self.time(
            |offset| file.write_all_at(&BLOCK, offset),
            || file.sync_data(),
        )?;
        let flushes = (stats()?.flushes - before.flushes) as f64 / self.writes as f64;
        drop((file, session));
        volume.close().map_err(|e| e.to_string())?;
        Ok((ns, flushes))
    }

    /// Nanoseconds of one block, by us, while a thread makes changes of the file with the name
    /// `changed`; and of one of these.
    fn beside(self, image: &Path, change: Change, changed: &str) -> Result<(f64, f64)> {
        let volume = open(image)?;
        let session = directory(&volume)?;
        let file = filled(&session)?;
        change.make_files(&session, &[(BYSTANDER.to_owned(), OTHER.to_owned())])?;
        let is_over = AtomicBool::new(false);
        let change_all = || {
            let start = Instant::now();
            let mut made = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                change.make(&session, changed, OTHER, made % 2 == 1)?;
                made += 1;
            }
            Ok::<_, String>(start.elapsed().as_nanos() as f64 / f64::from(made))
        };
        let (written, made) = thread::scope(|scope| {
            let changer = scope.spawn(change_all);
            let written = self.time(
                |offset| file.write_all_at(&BLOCK, offset),
                || file.sync_data(),
            );
            is_over.store(true, Ordering::Relaxed);
            (written, changer.join().expect("it has not panicked"))
        });
        drop((file, session));
        volume.close().map_err(|e| e.to_string())?;
        Ok((written?, made?))
    }

    /// Nanoseconds of one block, by system calls below a mount point.
    fn below(self, root: &Path) -> Result<f64> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(root.join(FILE));
        let file = file.map_err(|e| e.to_string())?;
        let fill = || -> io::Result<()> {
            (0..BLOCKS)
                .try_for_each(|block| file.write_all_at(&BLOCK, block * BLOCK.len() as u64))?;
            file.sync_all()
        };
        fill().map_err(|e| e.to_string())?;
        let ns = self.time(
            |offset| file.write_all_at(&BLOCK, offset),
            || file.sync_data(),
        )?;
        drop(file);
        fs::remove_file(root.join(FILE)).map_err(|e| e.to_string())?;
        Ok(ns)
    }
}

/// A file with all its blocks, which are durable.
fn filled(session: &Session) -> Result<OpenFile> {
    let fill = || {
        let file = session.open_with(
            FILE,
            OpenFile::options().read(true).write(true).create(true),
        )?;
        (0..BLOCKS).try_for_each(|block| file.write_all_at(&BLOCK, block * BLOCK.len() as u64))?;
        file.sync_all()?;
        Ok(file)
    };
    fill().map_err(|e: extern4::Error| e.to_string())
}

impl Bench {
    /// Blocks written over by one thread, while another changes the file otherwise, and while it
    /// does the same to another file: so that all is the same but what the two have in common.
    /// Alone, a thread has more of the CPUs, of which what writes the image back takes its part.
    pub(super) fn overwrite_beside(&self, name: &'static str, change: Change) -> Result<Row> {
        let mut row = Row::faster(name, Unit::Nanoseconds, 0.8);
        let image = self.fresh("ours.img", "512M", 20_000)?;
        for run in 0..=3 * RUNS {
            let (apart, made_apart) = Overwrite::WRITTEN.beside(&image, change, BYSTANDER)?;
            let (beside, made) = Overwrite::WRITTEN.beside(&image, change, FILE)?;
            if run > 0 {
                row.add(beside, apart);
                row.set_note(format!(
                    "4 KiB each, ours both; {made:.0} ns a change of the file meanwhile, {made_apart:.0} ns one of another"
                ));
            }
        }
        remove([image])?;
        Ok(row)
    }

    /// Blocks written over, compared with the kernel.
    pub(super) fn overwrite(&self, name: &'static str, what: Overwrite) -> Result<Row> {
        let mut row = Row::faster(name, Unit::Nanoseconds, what.goal);
        let ours = self.fresh("ours.img", "512M", 20_000)?;
        let theirs = self.fresh("rival.img", "512M", 20_000)?;
        for run in 0..=RUNS {
            let (our_ns, flushes) = what.ours(&ours)?;
            let mount = Mounted::new(Rival::Kernel, &theirs, &self.folder.join("mnt"))?;
            let their_ns = what.below(&mount.path)?;
            mount.end()?;
            if run > 0 {
                row.add(our_ns, their_ns);
                row.set_note(format!(
                    "4 KiB each, with a journal; {flushes:.3} flushes of ours for one"
                ));
            }
        }
        remove([ours, theirs])?;
        Ok(row)
    }
}
