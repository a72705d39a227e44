//! Rows of the mount: the same system calls and programs in a mount of ours, by either transport,
//! and in a rival's. Ours is the command in the foreground, with its usual options; each run mounts
//! a volume again.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use super::image::{BIG_BYTES, Rival, must};
use super::row::{Row, Unit};
use super::threads::in_threads;
use super::walk::output;
use super::write::{CHUNK_BYTES, LONG_RUNS, Mounted, make, open, remove, write_large_below};
use super::{Bench, Result};

/// Interleaved runs of short rows.
const SHORT_RUNS: usize = 5;
const CALLS: u32 = 200_000;
/// Calls each of which is a question to who serves.
const ASKED: u32 = 20_000;
const PAIRS: u32 = 5_000;
/// Threads that read blocks by chance, and how many each.
const READERS: u32 = 16;
const READS: u32 = 4_000;
const BLOCK_BYTES: usize = 4096;
/// For how many seconds the clients of dbench work, and on what.
const CLIENT_SECONDS: &str = "10";
const LOAD: &str = "/usr/share/dbench/client.txt";
/// Directories of the volume with many files, and files in each.
const DIRECTORIES: u32 = 1000;
const FILES: u32 = 1000;

/// How requests reach us.
#[derive(Clone, Copy)]
pub(super) enum Transport {
    Device,
    Ring,
}

impl Transport {
    pub(super) fn option(self) -> &'static str {
        match self {
            Self::Device => "transport=device",
            Self::Ring => "transport=ring",
        }
    }
}

/// A bound for the daemon's memory with many files.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    /// How it is told so.
    option: &'static str,
    /// In MiB.
    goal: f64,
}

impl Memory {
    /// Nothing is said.
    pub(super) const USUAL: Self = Self {
        option: "rw",
        goal: 300.0,
    };
    /// A third of the caches' usual memory, with as much again for all that is no cache.
    pub(super) const BOUNDED: Self = Self {
        option: "memory=64M",
        goal: 128.0,
    };
}

/// The work in the mount; a number is that of its threads.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// A file that is cached is asked for its attributes.
    Stat,
    /// It is opened and closed.
    OpenClose,
    /// A file is asked for its attributes, and the kernel keeps nothing and asks each time: ours
    /// for the name, fuse2fs's for the directory, the name and its file.
    AskedStat(u32),
    AskedOpenClose(u32),
    /// An empty file is made and removed in a directory of the thread's own.
    CreateUnlink(u32),
    /// This tree of `/usr` out of an archive, until the volume is unmounted and on the disk.
    Tar(&'static str),
    /// All names of `/usr/share` with the attributes of each, by a daemon that has seen nothing
    /// yet.
    Find,
    /// A file of 1 GiB is written and made durable.
    Write,
    /// One is read that no cache but that of the image has.
    Read,
    /// Blocks of it by chance, past the cache.
    RandomRead,
    /// The work of a number of clients of a file server; milliseconds for a megabyte of theirs.
    Dbench(u32),
}

impl Work {
    fn unit(self) -> Unit {
        match self {
            Self::Tar(_) | Self::Find | Self::Write | Self::Read | Self::Dbench(_) => {
                Unit::Milliseconds
            }
            _ => Unit::Nanoseconds,
        }
    }

    /// Whether the volume is the large one, with a tree and a file in it already.
    fn reads_only(self) -> bool {
        matches!(self, Self::Find | Self::Read | Self::RandomRead)
    }

    /// How many runs are counted; one more comes before, unless it would take minutes.
    fn runs(self, rival: Rival) -> usize {
        match (self, rival) {
            (
                Self::Tar(_) | Self::Find | Self::Write | Self::Read | Self::Dbench(_),
                Rival::Fuse2fs,
            ) => 1,
            (Self::Tar(_) | Self::Find | Self::Write | Self::Read | Self::Dbench(_), _) => {
                LONG_RUNS
            }
            _ => SHORT_RUNS,
        }
    }

    /// The options for us and for the rival.
    fn options(self) -> (&'static str, &'static str) {
        match self {
            Self::AskedStat(_) | Self::AskedOpenClose(_) => {
                ("lifetime=0", "attr_timeout=0,entry_timeout=0")
            }
            _ => ("rw", "rw"),
        }
    }
}

impl Bench {
    /// One row of the mount.
    pub(super) fn mount(
        &self,
        (name, goal): (&'static str, f64),
        transport: Transport,
        work: Work,
        rival: Rival,
    ) -> Result<Row> {
        let (our_options, their_options) = work.options();
        let our_options = format!("{},{our_options}", transport.option());
        let mut row = Row::faster(name, work.unit(), goal);
        let runs = work.runs(rival);
        for run in if runs == 1 { 1..=1 } else { 0..=runs } {
            let ours = self.in_mount(work, |image, dir| {
                Mounted::by_us(&self.extern4()?, &our_options, image, dir)
            })?;
            let theirs = self.in_mount(work, |image, dir| {
                Mounted::with(rival, their_options, image, dir)
            })?;
            if run > 0 {
                row.add(ours, theirs);
            }
        }
        Ok(row)
    }

    fn in_mount(
        &self,
        work: Work,
        mount: impl FnOnce(&Path, &Path) -> Result<Mounted>,
    ) -> Result<f64> {
        let dir = self.folder.join("mnt");
        if work.reads_only() {
            let mounted = mount(self.share()?, &dir)?;
            let figure = match work {
                Work::Find => milliseconds(find(&mounted.path.join("share"))?),
                Work::RandomRead => random_reads(&mounted.path.join("big"))?,
                _ => milliseconds(read(&mounted.path.join("big"))?),
            };
            mounted.end()?;
            return Ok(figure);
        }
        let image = self.fresh("mount.img", "4G", 200_000)?;
        let figure = if let Work::Tar(tree) = work {
            let archive = self.archive(tree)?;
            let start = Instant::now();
            let mounted = mount(&image, &dir)?;
            must(
                Command::new("tar")
                    .arg("xf")
                    .arg(archive)
                    .arg("-C")
                    .arg(&mounted.path),
            )?;
            mounted.end()?;
            File::open(&image)
                .and_then(|file| file.sync_all())
                .map_err(|e| e.to_string())?;
            milliseconds(start.elapsed())
        } else {
            let mounted = mount(&image, &dir)?;
            let figure = change(work, &mounted.path)?;
            mounted.end()?;
            figure
        };
        remove([image])?;
        Ok(figure)
    }

    /// An archive of a tree of `/usr`, made each time that the rows are run.
    fn archive(&self, tree: &str) -> Result<PathBuf> {
        let archive = self.folder.join(format!("{tree}.tar"));
        if !archive.exists() {
            must(
                Command::new("tar")
                    .arg("cf")
                    .arg(&archive)
                    .args(["-C", "/usr", tree]),
            )?;
        }
        Ok(archive)
    }

    /// Requests that reach the daemon for each call on a cached file. The kernel answers by itself,
    /// at its own speed, so a time would not be of ours.
    pub(super) fn mount_requests(
        &self,
        name: &'static str,
        transport: Transport,
        work: Work,
    ) -> Result<Row> {
        let mut row = Row::below(name, Unit::Count, 0.01);
        let image = self.fresh("mount.img", "1G", 1000)?;
        let options = transport.option();
        let mounted = Mounted::by_us(&self.extern4()?, options, &image, &self.folder.join("mnt"))?;
        let before = self.requests(&mounted.path)?;
        change(work, &mounted.path)?;
        row.add(
            (self.requests(&mounted.path)? - before) / f64::from(CALLS),
            0.01,
        );
        row.set_note(format!(
            "requests for a call, of {CALLS} calls and all that comes before"
        ));
        mounted.end()?;
        remove([image])?;
        Ok(row)
    }

    /// Requests that a mount of ours has answered so far.
    fn requests(&self, mount: &Path) -> Result<f64> {
        let ask = || {
            output(
                Command::new(self.extern4()?)
                    .args(["stats", "--json"])
                    .arg(mount),
            )
        };
        // The daemon mounts the volume and then listens.
        let text = (0..100).find_map(|_| {
            let text = ask().ok();
            if text.is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
            text
        });
        let text = text.map_or_else(ask, Ok)?;
        let said: Value = serde_json::from_str(&text).map_err(|e| format!("{e} in {text}"))?;
        let kinds = said["operations"]
            .as_array()
            .ok_or_else(|| format!("no operations in {text}"))?;
        Ok(kinds.iter().filter_map(|kind| kind["count"].as_f64()).sum())
    }

    /// The daemon's largest memory after a look at every file of many.
    pub(super) fn mount_memory(
        &self,
        name: &'static str,
        transport: Transport,
        memory: Memory,
    ) -> Result<Row> {
        let mut row = Row::below(name, Unit::Mebibytes, memory.goal);
        let options = format!("{},{}", transport.option(), memory.option);
        let image = self.fresh("mount.img", "4G", DIRECTORIES * (FILES + 1) + 1000)?;
        make_files(&image)?;
        let mounted = Mounted::by_us(&self.extern4()?, &options, &image, &self.folder.join("mnt"))?;
        find(&mounted.path)?;
        row.add(mounted.peak_memory()?, memory.goal);
        row.set_note(format!("mounted with {options}"));
        mounted.end()?;
        remove([image])?;
        Ok(row)
    }
}

fn milliseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

/// A row's figure of work in an empty volume.
fn change(work: Work, root: &Path) -> Result<f64> {
    match work {
        Work::Stat => calls(root, 1, CALLS, stat),
        Work::OpenClose => calls(root, 1, CALLS, open_and_close),
        Work::AskedStat(threads) => calls(root, threads, ASKED, stat),
        Work::AskedOpenClose(threads) => calls(root, threads, ASKED, open_and_close),
        Work::CreateUnlink(threads) => create_and_unlink(root, threads),
        Work::Dbench(clients) => dbench(root, clients),
        _ => write_large_below(root, BIG_BYTES).map(milliseconds),
    }
}

fn stat(path: &CStr) -> rustix::io::Result<()> {
    rustix::fs::stat(path).map(drop)
}

fn open_and_close(path: &CStr) -> rustix::io::Result<()> {
    rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).map(drop)
}

/// Nanoseconds of the clock for a call of any thread, each on its own file, which has been
/// used before.
fn calls(
    root: &Path,
    threads: u32,
    times: u32,
    call: fn(&CStr) -> rustix::io::Result<()>,
) -> Result<f64> {
    let path = |thread: u32| -> Result<CString> {
        let path = root.join(format!("file{thread}"));
        fs::write(&path, b"contents").map_err(|e| e.to_string())?;
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        call(&path).map_err(|e| e.to_string())?;
        Ok(path)
    };
    let paths = (0..threads).map(path).collect::<Result<Vec<_>>>()?;
    let ns = in_threads(threads, |thread| {
        (0..times)
            .try_for_each(|_| call(&paths[thread as usize]))
            .map_err(|e| e.to_string())
    })?;
    Ok(ns / f64::from(times * threads))
}

/// Nanoseconds of the clock for a file that any thread makes and removes.
fn create_and_unlink(root: &Path, threads: u32) -> Result<f64> {
    let own = |thread: u32| root.join(format!("own{thread}"));
    (0..threads)
        .try_for_each(|thread| fs::create_dir(own(thread)))
        .map_err(|e| e.to_string())?;
    let ns = in_threads(threads, |thread| {
        let path = own(thread).join("file");
        let pair = |_| File::create_new(&path).and_then(|_| fs::remove_file(&path));
        (0..PAIRS).try_for_each(pair).map_err(|e| e.to_string())
    })?;
    Ok(ns / f64::from(PAIRS * threads))
}

fn find(tree: &Path) -> Result<Duration> {
    let start = Instant::now();
    // A size is asked of each.
    let found = Command::new("find")
        .arg(tree)
        .args(["-size", "+100M"])
        .stdout(Stdio::null())
        .status();
    match found {
        Ok(status) if status.success() => Ok(start.elapsed()),
        other => Err(format!("find: {other:?}")),
    }
}

fn read(path: &Path) -> Result<Duration> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let start = Instant::now();
    let mut file = File::open(path).map_err(|e| e.to_string())?;
    while file.read(&mut chunk).map_err(|e| e.to_string())? > 0 {}
    Ok(start.elapsed())
}

/// Nanoseconds of the clock for a block that any thread reads past the cache, at places that are
/// the same in each run.
fn random_reads(path: &Path) -> Result<f64> {
    /// Direct reads need an aligned buffer.
    #[repr(align(4096))]
    struct Block([u8; BLOCK_BYTES]);
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty());
    let file = File::from(file.map_err(|e| e.to_string())?);
    let ns = in_threads(READERS, |thread| {
        let mut block = Block([0; BLOCK_BYTES]);
        let mut place = u64::from(thread) + 1;
        for _ in 0..READS {
            // Marsaglia's xorshift.
            place ^= place << 13;
            place ^= place >> 7;
            place ^= place << 17;
            let at = place % (BIG_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
            file.read_exact_at(&mut block.0, at)
                .map_err(|e| e.to_string())?;
        }
        Ok(())
    })?;
    Ok(ns / f64::from(READERS * READS))
}

/// Milliseconds for a megabyte of the clients' reading and writing.
fn dbench(root: &Path, clients: u32) -> Result<f64> {
    let mut dbench = Command::new("dbench");
    dbench
        .args(["-t", CLIENT_SECONDS, "-c", LOAD, "-D"])
        .arg(root)
        .arg(clients.to_string());
    let output = dbench
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("dbench: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rate = said.lines().find_map(|line| {
        line.strip_prefix("Throughput ")?
            .split(' ')
            .next()?
            .parse()
            .ok()
    });
    match rate {
        Some(rate) if output.status.success() => Ok(1e3 / f64::max(rate, f64::MIN_POSITIVE)),
        _ => Err(format!("dbench: {}, {}", output.status, said.trim_end())),
    }
}

/// Many files, made without a mount.
fn make_files(image: &Path) -> Result<()> {
    let volume = open(image)?;
    let root = volume.superuser();
    for dir in (0..DIRECTORIES).map(|number| format!("/{number}")) {
        root.create_dir_all(&dir).map_err(|e| e.to_string())?;
        let dir = root.at(&dir).map_err(|e| e.to_string())?;
        for file in 0..FILES {
            make(&dir, file.to_string()).map_err(|e| e.to_string())?;
        }
    }
    drop(root);
    volume.close().map_err(|e| e.to_string())
}
