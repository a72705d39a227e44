//! Benchmarks against rivals: each goal is one row, ours and the rival's measured in turn in the same run.
//!
//! A row is printed as a ratio and written to `target/bench/NAME.json`. Times are of whole processes, from start to
//! exit; the page cache of the operating system is warm, every other cache cold, unless a row says otherwise.

mod image;
mod row;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use image::{Mount, Rival};
use row::{Row, Unit};

/// Interleaved runs of each row, after one run that is not counted.
const RUNS: usize = 7;

/// An error as a sentence.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Runs every row; true if every goal was met.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let extern4 = target.join("release/extern4");
    if !extern4.exists() {
        return Err(format!("{} is missing: run `make bench`", extern4.display()));
    }
    let folder = target.join("bench");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let image = image::prepare(&folder)?;
    let bench = Bench { extern4, image, folder };

    let rows = [
        bench.find(Rival::Kernel)?,
        bench.find(Rival::Fuse2fs)?,
        bench.cat()?,
        bench.open()?,
        bench.open_reads()?,
        bench.check()?,
    ];
    println!("{}", Row::header());
    for row in &rows {
        println!("{row}");
        row.write(&bench.folder)?;
    }
    Ok(rows.iter().all(Row::met))
}

struct Bench {
    extern4: PathBuf,
    image: PathBuf,
    folder: PathBuf,
}

impl Bench {
    /// A cold listing of every name.
    fn find(&self, rival: Rival) -> Result<Row> {
        let (name, goal) = match rival {
            Rival::Kernel => ("find-vs-kernel", 1.0),
            Rival::Fuse2fs => ("find-vs-fuse2fs", 10.0),
        };
        let place = format!("{}:/share", self.image.display());
        let mut row = Row::faster(name, Unit::Milliseconds, goal);
        for run in 0..=RUNS {
            let ours = time(Command::new(&self.extern4).arg("find").arg(&place))?;
            // Mounted anew each time, so that its inode and dentry caches are as cold as ours.
            let mount = Mount::new(rival, &self.image, &self.folder.join("mnt"))?;
            let theirs = time(Command::new("find").arg(mount.path().join("share")))?;
            drop(mount);
            if run > 0 {
                row.add(ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3);
            }
        }
        Ok(row)
    }

    /// One large file into a pipe that is read empty; the kernel's mount has the file in its own page cache too.
    /// Not into `/dev/null`, which takes pages without looking at them.
    fn cat(&self) -> Result<Row> {
        let mount = Mount::new(Rival::Kernel, &self.image, &self.folder.join("mnt"))?;
        let place = format!("{}:/big", self.image.display());
        let mut row = Row::faster("cat-1gib-vs-kernel", Unit::Milliseconds, 0.9);
        for run in 0..=RUNS {
            let ours = time_piped(Command::new(&self.extern4).arg("cat").arg(&place))?;
            let theirs = time_piped(Command::new("cat").arg(mount.path().join("big")))?;
            if run > 0 {
                row.add(ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3);
            }
        }
        Ok(row)
    }

    /// Opening the image in process.
    fn open(&self) -> Result<Row> {
        let mut row = Row::below("open-20gb-time", Unit::Milliseconds, 5.0);
        for run in 0..=RUNS {
            let start = Instant::now();
            let volume = extern4::Volume::open(&self.image).map_err(|e| e.to_string())?;
            let took = start.elapsed();
            drop(volume);
            if run > 0 {
                row.add(took.as_secs_f64() * 1e3, 5.0);
            }
        }
        Ok(row)
    }

    /// Device reads of an open.
    fn open_reads(&self) -> Result<Row> {
        let mut row = Row::below("open-20gb-device-reads", Unit::Count, 8.0);
        for _ in 0..RUNS {
            row.add(image::device_reads_of_open(&self.image)?, 8.0);
        }
        Ok(row)
    }

    /// A check of everything, beside e2fsck's.
    fn check(&self) -> Result<Row> {
        let mut row = Row::faster("check-vs-e2fsck", Unit::Milliseconds, 1.0);
        for run in 0..=RUNS {
            let ours = time(Command::new(&self.extern4).arg("check").arg(&self.image))?;
            let theirs = time(Command::new("e2fsck").arg("-fn").arg(&self.image))?;
            if run > 0 {
                row.add(ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3);
            }
        }
        Ok(row)
    }
}

/// How long `command` runs; it has to succeed.
fn time(command: &mut Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    let took = start.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{command:?}: {status}")) }
}

/// How long `command` runs while all it prints is read through a pipe; it has to succeed.
fn time_piped(command: &mut Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let failed = |e: std::io::Error| format!("{e}");
    let start = Instant::now();
    let mut child = command.spawn().map_err(failed)?;
    let mut pipe = child.stdout.take().ok_or("no pipe")?;
    let mut buf = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        match pipe.read(&mut buf).map_err(failed)? {
            0 => break,
            len => bytes += len as u64,
        }
    }
    let status = child.wait().map_err(failed)?;
    let took = start.elapsed();
    if !status.success() || bytes != image::BIG_BYTES {
        return Err(format!("{command:?}: {status}, {bytes} bytes"));
    }
    Ok(took)
}
