//! Rows of changes: what is made, removed and written, ours in this process or by the command, the
//! rivals' through mounts of volumes that were made in the same way.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use extern4::{Session, Volume};
use fs_ext4::Filesystem;
use fs_ext4::block_io::FileDevice;

use super::image::{Rival, must};
use super::metadata::Change;
use super::row::{Row, Unit};
use super::{Bench, RUNS, Result};

/// Runs of rows whose runs take long.
pub(super) const LONG_RUNS: usize = 3;
/// Pairs of operations in one run.
pub(super) const PAIRS: u32 = 100_000;
/// Names that take turns.
const NAMES: u32 = 64;
/// Files in the large directory, and how many at its start and end are timed.
const FILES: u32 = 200_000;
const PART: u32 = FILES / 10;
/// Commits in one run.
const COMMITS: u32 = 200;
/// Bytes that a large file gets at once, and in all.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
const LARGE_BYTES: u64 = 4 << 30;
/// The tree that is copied into a volume.
const TREE: &str = "/usr/share";

impl Bench {
    /// An empty file made and removed.
    pub(super) fn create_unlink(&self) -> Result<Row> {
        let mut row = Row::faster("create-unlink-vs-kernel", Unit::Nanoseconds, 5.0);
        let ours = self.fresh("ours.img", "512M", 20_000)?;
        let theirs = self.fresh("rival.img", "512M", 20_000)?;
        row.rounds(RUNS, || {
            let our_ns = create_unlink(&ours)?;
            let mount = Mounted::new(Rival::Kernel, &theirs, &self.folder.join("mnt"))?;
            let their_ns = create_unlink_below(&mount.path)?;
            mount.end()?;
            Ok((our_ns, their_ns))
        })?;
        row.set_note(
            "one thread, with a journal; an earlier goal, 3x, is inside this one".to_owned(),
        );
        remove([ours, theirs])?;
        Ok(row)
    }

    /// Files made and removed, compared with `rust-fs-ext4`, which writes every change through.
    pub(super) fn create_unlink_rust_fs_ext4(&self) -> Result<Row> {
        let mut row = Row::faster("create-unlink-vs-rust-fs-ext4", Unit::Nanoseconds, 100.0);
        let image = self.fresh("ours.img", "512M", 20_000)?;
        row.rounds(LONG_RUNS, || {
            let ours = create_unlink(&image)?;
            let theirs = create_unlink_rust_fs_ext4(&image)?;
            Ok((ours, theirs))
        })?;
        row.set_note("one image, in turn, each in this process".to_owned());
        remove([image])?;
        Ok(row)
    }

    /// Time for a file at the end of filling a directory, by that at its start.
    pub(super) fn large_directory(&self) -> Result<Row> {
        let mut row = Row::below("create-200000-end-vs-start", Unit::Times, 1.5);
        for run in 0..=LONG_RUNS {
            let image = self.fresh("ours.img", "2G", FILES + 1000)?;
            let volume = open(&image)?;
            let session = directory(&volume)?;
            let mut times = Vec::new();
            for part in 0..FILES / PART {
                let start = Instant::now();
                for number in part * PART..(part + 1) * PART {
                    let name = format!("file-{number}");
                    make(&session, &name).map_err(|e| e.to_string())?;
                }
                times.push(start.elapsed().as_secs_f64());
            }
            drop(session);
            volume.close().map_err(|e| e.to_string())?;
            if let (true, [first, .., last]) = (run > 0, &times[..]) {
                row.add(last / first, 1.5);
                row.set_note(format!(
                    "{:.2} us a file at the end",
                    last * 1e6 / f64::from(PART)
                ));
            }
            remove([image])?;
        }
        Ok(row)
    }

    /// Flushes that one commit takes.
    pub(super) fn flushes(&self) -> Result<Row> {
        let mut row = Row::below("flushes-per-commit", Unit::Count, 2.0);
        let image = self.fresh("ours.img", "512M", 20_000)?;
        for _ in 0..RUNS {
            let volume = open(&image)?;
            let session = directory(&volume)?;
            let stats = || {
                volume
                    .ext4()
                    .journal_stats()
                    .ok_or("it is open for reading only")
            };
            let before = stats()?;
            for _ in 0..COMMITS {
                create_and_unlink(&session, "file")?;
                volume.sync().map_err(|e| e.to_string())?;
            }
            let after = stats()?;
            drop(session);
            volume.close().map_err(|e| e.to_string())?;
            let commits = after.transactions - before.transactions;
            row.add(
                (after.flushes - before.flushes) as f64 / commits as f64,
                2.0,
            );
        }
        remove([image])?;
        Ok(row)
    }

    /// A large file written from start to end and made durable.
    pub(super) fn write_large(&self) -> Result<Row> {
        let mut row = Row::faster("write-4gib-vs-kernel", Unit::Milliseconds, 0.9);
        // Two images, and what others write meanwhile.
        let len = LARGE_BYTES.min(free_bytes(&self.folder)? / 4) >> 30 << 30;
        if len == 0 {
            return Err("there is not enough free space on the disk for a large file".to_owned());
        }
        row.rounds(LONG_RUNS, || {
            let image = self.fresh("ours.img", "6G", 20_000)?;
            let ours = write_large(&image, len)?;
            remove([image])?;
            let image = self.fresh("rival.img", "6G", 20_000)?;
            let mount = Mounted::new(Rival::Kernel, &image, &self.folder.join("mnt"))?;
            let theirs = write_large_below(&mount.path, len)?;
            mount.end()?;
            remove([image])?;
            Ok((ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3))
        })?;
        if len < LARGE_BYTES {
            row.set_note(format!("{} GiB, for the disk is short", len >> 30));
        }
        Ok(row)
    }

    /// A tree copied into a new volume, until it is durable and the volume clean.
    pub(super) fn copy_tree(&self, rival: Rival) -> Result<Row> {
        // fuse2fs takes minutes, so it copies once, and what it reads is warm from our turn.
        let (name, goal, runs) = match rival {
            Rival::Kernel => ("cp-share-vs-kernel", 1.5, 0..=LONG_RUNS),
            Rival::Fuse2fs => ("cp-share-vs-fuse2fs", 8.0, 1..=1),
        };
        let mut row = Row::faster(name, Unit::Milliseconds, goal);
        for run in runs {
            let image = self.fresh("ours.img", "4G", 200_000)?;
            let start = Instant::now();
            let place = format!("{}:/", image.display());
            must(
                Command::new(self.extern4()?)
                    .args(["cp", "-a", "-q", TREE])
                    .arg(place),
            )?;
            let ours = start.elapsed();
            remove([image])?;
            let image = self.fresh("rival.img", "4G", 200_000)?;
            let start = Instant::now();
            let mount = Mounted::new(rival, &image, &self.folder.join("mnt"))?;
            must(Command::new("cp").args(["-a", TREE]).arg(&mount.path))?;
            mount.end()?;
            // fuse2fs leaves what it has written to the operating system; for the kernel's mount
            // this finds nothing to do.
            File::open(&image)
                .and_then(|file| file.sync_all())
                .map_err(|e| e.to_string())?;
            let theirs = start.elapsed();
            remove([image])?;
            if run > 0 {
                row.add(ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3);
            }
        }
        Ok(row)
    }

    /// A new volume, nothing of which is left for later.
    pub(super) fn fresh(&self, name: &str, size: &str, inodes: u32) -> Result<PathBuf> {
        let image = self.folder.join(name);
        remove([image.clone()])?;
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args([
            "-q",
            "-F",
            "-t",
            "ext4",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
        ]);
        must(
            mke2fs
                .args(["-N", &inodes.to_string()])
                .arg(&image)
                .arg(size),
        )?;
        Ok(image)
    }
}

/// Makes a file and opens it for writing.
pub(super) fn make(session: &Session, name: impl AsRef<Path>) -> extern4::Result<extern4::File> {
    session.open_with(name, extern4::File::options().write(true).create_new(true))
}

pub(super) fn open(image: &Path) -> Result<Volume> {
    Volume::options()
        .write(true)
        .open(image)
        .map_err(|e| e.to_string())
}

/// The directory that the rows work in.
pub(super) fn directory(volume: &Volume) -> Result<Session> {
    let root = volume.superuser();
    root.create_dir_all("/made")
        .and_then(|()| root.at("/made"))
        .map_err(|e| e.to_string())
}

pub(super) fn create_and_unlink(session: &Session, name: &str) -> Result<()> {
    drop(make(session, name).map_err(|e| e.to_string())?);
    session.remove_file(name).map_err(|e| e.to_string())
}

pub(super) fn names() -> Vec<String> {
    (0..NAMES).map(|number| format!("f{number}")).collect()
}

/// Nanoseconds for a file made and removed, by us.
fn create_unlink(image: &Path) -> Result<f64> {
    let volume = open(image)?;
    let session = directory(&volume)?;
    let names = names();
    let start = Instant::now();
    for name in names.iter().cycle().take(PAIRS as usize) {
        create_and_unlink(&session, name)?;
    }
    let took = start.elapsed();
    drop(session);
    volume.close().map_err(|e| e.to_string())?;
    Ok(took.as_nanos() as f64 / f64::from(PAIRS))
}

/// Nanoseconds for a file made and removed by system calls below a mount point.
fn create_unlink_below(root: &Path) -> Result<f64> {
    let work = root.join("work");
    fs::create_dir_all(&work).map_err(|e| e.to_string())?;
    let paths: Vec<_> = names().iter().map(|name| work.join(name)).collect();
    let start = Instant::now();
    for path in paths.iter().cycle().take(PAIRS as usize) {
        drop(File::create_new(path).map_err(|e| e.to_string())?);
        fs::remove_file(path).map_err(|e| e.to_string())?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(PAIRS))
}

/// Nanoseconds for a file made and removed by `rust-fs-ext4`, in half a second.
fn create_unlink_rust_fs_ext4(image: &Path) -> Result<f64> {
    let path = image.to_str().ok_or("the path of the image is not UTF-8")?;
    let device = FileDevice::open_rw(path).map_err(|e| e.to_string())?;
    let volume = Filesystem::mount(Arc::new(device)).map_err(|e| e.to_string())?;
    let paths: Vec<_> = names().iter().map(|name| format!("/made/{name}")).collect();
    let start = Instant::now();
    let mut pairs = 0u32;
    for path in paths.iter().cycle() {
        volume
            .apply_create(path, 0o644)
            .map_err(|e| e.to_string())?;
        volume.apply_unlink(path).map_err(|e| e.to_string())?;
        pairs += 1;
        if start.elapsed() >= Duration::from_millis(500) {
            break;
        }
    }
    let took = start.elapsed();
    volume.flush().map_err(|e| e.to_string())?;
    Ok(took.as_nanos() as f64 / f64::from(pairs))
}

/// How long it takes to write a file of `len` bytes and to make it durable, by us.
fn write_large(image: &Path, len: u64) -> Result<Duration> {
    let volume = open(image)?;
    let session = directory(&volume)?;
    let chunk = vec![0x5a; CHUNK_BYTES];
    let start = Instant::now();
    let file = make(&session, "large").map_err(|e| e.to_string())?;
    for offset in (0..len).step_by(CHUNK_BYTES) {
        file.write_all_at(&chunk, offset)
            .map_err(|e| e.to_string())?;
    }
    file.sync_all().map_err(|e| e.to_string())?;
    let took = start.elapsed();
    drop((file, session));
    volume.close().map_err(|e| e.to_string())?;
    Ok(took)
}

/// Writes a large file by system calls below a mount point.
pub(super) fn write_large_below(root: &Path, len: u64) -> Result<Duration> {
    let chunk = vec![0x5a; CHUNK_BYTES];
    let start = Instant::now();
    let mut file = File::create_new(root.join("large")).map_err(|e| e.to_string())?;
    for _ in (0..len).step_by(CHUNK_BYTES) {
        file.write_all(&chunk).map_err(|e| e.to_string())?;
    }
    file.sync_all().map_err(|e| e.to_string())?;
    Ok(start.elapsed())
}

/// A volume that a rival has mounted to be written.
pub(super) struct Mounted {
    pub(super) path: PathBuf,
    /// The process that serves it, if it is one.
    server: Option<Child>,
    ended: bool,
}

impl Mounted {
    pub(super) fn new(rival: Rival, image: &Path, path: &Path) -> Result<Self> {
        Self::with(rival, "rw", image, path)
    }

    /// Mounted with these options.
    pub(super) fn with(rival: Rival, options: &str, image: &Path, path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut mounted = Self {
            path: path.to_owned(),
            server: None,
            ended: false,
        };
        match rival {
            Rival::Kernel => must(
                Command::new("mount")
                    .args(["-o", "loop", "-o", options])
                    .arg(image)
                    .arg(path),
            )?,
            Rival::Fuse2fs => mounted.serve(
                Command::new("fuse2fs")
                    .args(["-f", "-o", options])
                    .arg(image),
            )?,
        }
        Ok(mounted)
    }

    /// Mounted by the command, with these options.
    pub(super) fn by_us(extern4: &Path, options: &str, image: &Path, path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut mounted = Self {
            path: path.to_owned(),
            server: None,
            ended: false,
        };
        mounted.serve(
            Command::new(extern4)
                .args(["mount", "-f", "-o", options])
                .arg(image),
        )?;
        Ok(mounted)
    }

    /// Starts a server in the foreground, so that its end can be waited for, after which all has
    /// been written.
    fn serve(&mut self, server: &mut Command) -> Result<()> {
        server
            .arg(&self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.server = Some(server.spawn().map_err(|e| e.to_string())?);
        self.wait_for_server()
    }

    fn wait_for_server(&mut self) -> Result<()> {
        let is_it = |line: &str| {
            line.split(' ')
                .nth(1)
                .is_some_and(|at| Path::new(at) == self.path)
        };
        for _ in 0..5000 {
            let mounts = fs::read_to_string("/proc/self/mounts").map_err(|e| e.to_string())?;
            if mounts.lines().any(is_it) {
                return Ok(());
            }
            sleep(Duration::from_millis(1));
        }
        Err("the server does not mount the volume".to_owned())
    }

    /// The number of the process that serves it.
    pub(super) fn server_id(&self) -> Result<u32> {
        Ok(self
            .server
            .as_ref()
            .ok_or("no process serves the volume")?
            .id())
    }

    /// The most memory that the server has had so far, in MiB.
    pub(super) fn peak_memory(&self) -> Result<f64> {
        peak_memory(self.server.as_ref().ok_or("nobody serves the volume")?)
    }

    /// Unmounts it, and waits until everything has been written.
    pub(super) fn end(mut self) -> Result<()> {
        self.ended = true;
        must(Command::new("umount").arg(&self.path))?;
        match self.server.as_mut().map(Child::wait) {
            Some(Err(error)) => Err(error.to_string()),
            _ => Ok(()),
        }
    }
}

/// The most memory that a process that runs has had so far, in MiB.
pub(super) fn peak_memory(process: &Child) -> Result<f64> {
    let status =
        fs::read_to_string(format!("/proc/{}/status", process.id())).map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = line
        .and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
        .ok_or("the kernel does not say how much memory the process has had")?;
    Ok(kib / 1024.0)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.ended {
            // After an error, which is what is told.
            let _ = Command::new("umount")
                .arg(&self.path)
                .stderr(Stdio::null())
                .status();
            let _ = self.server.as_mut().map(Child::wait);
        }
    }
}

/// Bytes that are free where `folder` is.
fn free_bytes(folder: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(folder).map_err(|e| e.to_string())?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

pub(super) fn remove(images: impl IntoIterator<Item = PathBuf>) -> Result<()> {
    for image in images {
        match fs::remove_file(&image) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", image.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The hidden subcommand `write-loop IMAGE TIMES [CHANGE]`: makes a file and removes it, or makes a
/// change of it, over and over, for a look at what that costs.
pub(super) fn write_loop(args: &[String]) -> Result<()> {
    let (image, times, change) = match args {
        [image, times] => (image, times, None),
        [image, times, change] => (image, times, Some(Change::named(change)?)),
        _ => {
            return Err(
                "write-loop takes an image, a number of times, and perhaps a change".to_owned(),
            );
        }
    };
    let times: usize = times.parse().map_err(|_| "how many times is a number")?;
    let volume = open(Path::new(image))?;
    let session = directory(&volume)?;
    let files = change.unwrap_or(Change::Rename).files();
    if let Some(change) = change {
        change.make_files(&session, &files)?;
    }
    let start = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    for (at, (name, other)) in files.iter().cycle().take(times).enumerate() {
        match change {
            None => create_and_unlink(&session, name)?,
            Some(change) => change.make(&session, name, other, at / files.len() % 2 == 1)?,
        }
    }
    let end = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let ns = (end.tv_sec - start.tv_sec) as f64 * 1e9 + (end.tv_nsec - start.tv_nsec) as f64;
    println!("{:.0} ns of the thread's time", ns / times as f64);
    drop(session);
    volume.close().map_err(|e| e.to_string())
}
