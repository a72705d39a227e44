//! Rows of whole processes: the command and the tools that do the same, from start to exit.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::image::{self, Mount, Rival};
use super::row::{Row, Unit};
use super::{Bench, RUNS, Result};

impl Bench {
    /// A cold listing of every name.
    pub(super) fn find(&self, rival: Rival) -> Result<Row> {
        let (name, goal) = match rival {
            Rival::Kernel => ("find-vs-kernel", 1.0),
            Rival::Fuse2fs => ("find-vs-fuse2fs", 10.0),
        };
        let place = format!("{}:/share", self.share()?.display());
        let mut row = Row::faster(name, Unit::Milliseconds, goal);
        row.rounds(RUNS, || {
            let ours = time(Command::new(self.extern4()?).arg("find").arg(&place))?;
            // Mounted again each time, so that its inode and dentry caches are as cold as ours.
            let mount = Mount::new(rival, self.share()?, &self.folder.join("mnt"))?;
            let theirs = time(Command::new("find").arg(mount.path().join("share")))?;
            drop(mount);
            Ok((ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3))
        })?;
        Ok(row)
    }

    /// One large file into a pipe that is read empty; the kernel's mount has the file in its own
    /// page cache too. Not into `/dev/null`, which takes pages without looking at them.
    pub(super) fn cat(&self) -> Result<Row> {
        let mount = Mount::new(Rival::Kernel, self.share()?, &self.folder.join("mnt"))?;
        let place = format!("{}:/big", self.share()?.display());
        let mut row = Row::faster("cat-1gib-vs-kernel", Unit::Milliseconds, 0.9);
        row.rounds(RUNS, || {
            let ours = time_piped(Command::new(self.extern4()?).arg("cat").arg(&place))?;
            let theirs = time_piped(Command::new("cat").arg(mount.path().join("big")))?;
            Ok((ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3))
        })?;
        Ok(row)
    }

    /// Opening the image in process.
    pub(super) fn open(&self) -> Result<Row> {
        let mut row = Row::below("open-20gb-time", Unit::Milliseconds, 5.0);
        row.rounds(RUNS, || {
            let start = Instant::now();
            let volume = extern4::Volume::open(self.share()?).map_err(|e| e.to_string())?;
            let took = start.elapsed();
            drop(volume);
            Ok((took.as_secs_f64() * 1e3, 5.0))
        })?;
        Ok(row)
    }

    /// Device reads of an open.
    pub(super) fn open_reads(&self) -> Result<Row> {
        let mut row = Row::below("open-20gb-device-reads", Unit::Count, 8.0);
        for _ in 0..RUNS {
            row.add(image::device_reads_of_open(self.share()?)?, 8.0);
        }
        Ok(row)
    }

    /// A check of everything, compared with e2fsck's.
    pub(super) fn check(&self) -> Result<Row> {
        let mut row = Row::faster("check-vs-e2fsck", Unit::Milliseconds, 1.0);
        row.rounds(RUNS, || {
            let ours = time(
                Command::new(self.extern4()?)
                    .arg("check")
                    .arg(self.share()?),
            )?;
            let theirs = time(Command::new("e2fsck").arg("-fn").arg(self.share()?))?;
            Ok((ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3))
        })?;
        Ok(row)
    }
}

/// How long `command` runs; it has to succeed.
pub(super) fn time(command: &mut Command) -> Result<Duration> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    let took = start.elapsed();
    if status.success() {
        Ok(took)
    } else {
        Err(format!("{command:?}: {status}"))
    }
}

/// How long `command` runs while all it prints is read through a pipe; it has to succeed.
fn time_piped(command: &mut Command) -> Result<Duration> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
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

/// Milliseconds of CPU time of a program and all that it starts.
pub(super) fn cpu_milliseconds(command: &mut Command) -> Result<f64> {
    let mut shell = Command::new("bash");
    shell.args([
        "-c",
        "TIMEFORMAT='%3U %3S'; time \"$@\" > /dev/null",
        "bash",
    ]);
    shell.arg(command.get_program()).args(command.get_args());
    let output = shell.output().map_err(|e| format!("{shell:?}: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    let seconds: Vec<f64> = last.split(' ').flat_map(str::parse).collect();
    match seconds[..] {
        [user, system] if output.status.success() => Ok((user + system) * 1e3),
        _ => Err(format!("{command:?}: {}", said.trim_end())),
    }
}
