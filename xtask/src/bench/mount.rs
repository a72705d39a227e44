//! Rows of the mount: the same system calls and programs in a mount of ours, by either transport, and in a rival's. Ours is the command
//! in the foreground, with its usual options; each run mounts a volume anew.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::image::{BIG_BYTES, Rival, must};
use super::row::{Row, Unit};
use super::write::{CHUNK_BYTES, LONG_RUNS, Mounted, remove, write_large_below};
use super::{Bench, Result};

/// Interleaved runs of short rows.
const SHORT_RUNS: usize = 5;
const CALLS: u32 = 200_000;
const PAIRS: u32 = 5_000;

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

/// What is done in the mount.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// A file that is cached is asked for its attributes.
    Stat,
    /// It is opened and closed.
    OpenClose,
    /// An empty file is made and removed.
    CreateUnlink,
    /// `/usr/include` out of an archive, until the volume is unmounted and on the disk.
    Tar,
    /// All names of `/usr/share` with the attributes of each, by a daemon that has seen nothing yet.
    Find,
    /// A file of 1 GiB is written and made durable.
    Write,
    /// One is read that no cache but that of the image has.
    Read,
}

impl Work {
    fn unit(self) -> Unit {
        match self {
            Self::Stat | Self::OpenClose | Self::CreateUnlink => Unit::Nanoseconds,
            _ => Unit::Milliseconds,
        }
    }

    /// Whether the volume is the large one, with a tree and a file in it already.
    fn reads_only(self) -> bool {
        matches!(self, Self::Find | Self::Read)
    }

    fn runs(self, rival: Rival) -> usize {
        match (self, rival) {
            // It takes minutes.
            (Self::Tar | Self::Find | Self::Write, Rival::Fuse2fs) => 1,
            (Self::Tar | Self::Find | Self::Write | Self::Read, _) => LONG_RUNS,
            _ => SHORT_RUNS,
        }
    }
}

impl Bench {
    /// One row of the mount.
    pub(super) fn mount(
        &self,
        name: &'static str,
        goal: f64,
        transport: Transport,
        work: Work,
        rival: Rival,
    ) -> Result<Row> {
        let mut row = Row::faster(name, work.unit(), goal);
        for run in 0..=work.runs(rival) {
            let ours = self.in_mount(work, |image, dir| {
                Mounted::by_us(&self.extern4()?, transport.option(), image, dir)
            })?;
            let theirs = self.in_mount(work, |image, dir| Mounted::new(rival, image, dir))?;
            // A first run is not counted, unless it is the only one.
            if run > 0 || work.runs(rival) == 1 {
                row.add(ours, theirs);
            }
            if work.runs(rival) == 1 {
                break;
            }
        }
        Ok(row)
    }

    fn in_mount(&self, work: Work, mount: impl FnOnce(&Path, &Path) -> Result<Mounted>) -> Result<f64> {
        let dir = self.folder.join("mnt");
        if work.reads_only() {
            let mounted = mount(self.share()?, &dir)?;
            let took = match work {
                Work::Find => find(&mounted.path.join("share"))?,
                _ => read(&mounted.path.join("big"))?,
            };
            mounted.end()?;
            return Ok(took.as_secs_f64() * 1e3);
        }
        let image = self.fresh("mount.img", "2G", 100_000)?;
        let archive = if matches!(work, Work::Tar) { Some(self.archive()?) } else { None };
        let start = Instant::now();
        let mounted = mount(&image, &dir)?;
        let took = match (work, archive) {
            (Work::Stat | Work::OpenClose, _) => calls(work, &mounted.path)?,
            (Work::CreateUnlink, _) => create_and_unlink(&mounted.path)?,
            (Work::Tar, Some(archive)) => {
                must(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(&mounted.path))?;
                mounted.end()?;
                File::open(&image).and_then(|file| file.sync_all()).map_err(|e| e.to_string())?;
                let took = start.elapsed();
                remove([image])?;
                return Ok(took.as_secs_f64() * 1e3);
            }
            _ => write_large_below(&mounted.path, BIG_BYTES)?.as_secs_f64() * 1e3,
        };
        mounted.end()?;
        remove([image])?;
        Ok(took)
    }

    /// An archive of `/usr/include`, made anew each time that the rows are run.
    fn archive(&self) -> Result<PathBuf> {
        let archive = self.folder.join("include.tar");
        if !archive.exists() {
            must(Command::new("tar").arg("cf").arg(&archive).args(["-C", "/usr", "include"]))?;
        }
        Ok(archive)
    }
}

/// Nanoseconds of one call on a file that is cached.
fn calls(work: Work, root: &Path) -> Result<f64> {
    let path = root.join("file");
    fs::write(&path, b"contents").map_err(|e| e.to_string())?;
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    let call = || match work {
        Work::Stat => rustix::fs::stat(&path).map(drop),
        _ => rustix::fs::open(&path, OFlags::RDONLY, Mode::empty()).map(drop),
    };
    call().map_err(|e| e.to_string())?;
    let start = Instant::now();
    for _ in 0..CALLS {
        call().map_err(|e| e.to_string())?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(CALLS))
}

/// Nanoseconds of a file made and removed.
fn create_and_unlink(root: &Path) -> Result<f64> {
    let dir = root.join("own");
    fs::create_dir(&dir).map_err(|e| e.to_string())?;
    let path = dir.join("file");
    let start = Instant::now();
    for _ in 0..PAIRS {
        File::create_new(&path).and_then(|_| fs::remove_file(&path)).map_err(|e| e.to_string())?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(PAIRS))
}

fn find(tree: &Path) -> Result<Duration> {
    let start = Instant::now();
    // A size is asked of each.
    let found = Command::new("find").arg(tree).args(["-size", "+100M"]).stdout(Stdio::null()).status();
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
