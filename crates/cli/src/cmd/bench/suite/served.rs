//! Our own mount of a volume, served by a process of this same program that ends with this one.
//!
//! `side` opens it. The mount has the default options. If the process that serves it ends early,
//! its log says why, and the report has that.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use extern4_mountd::control::mounts::mount_of;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::scratch::Scratch;
use super::side::Source;
use super::stop::Stop;
use super::{Result, SuiteError};
use crate::app::host_reason;

/// How long the mount may take to begin, and to end after all has been written.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long the mount may take to end when it is no longer needed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A mount of ours, and the process that serves it.
pub(super) struct Served {
    process: Child,
    dir: PathBuf,
    /// The root of the mount; open during measurements.
    root: Option<OwnedFd>,
    log: PathBuf,
    ended: bool,
}

/// Returns the reason why there can be no such mount, as far as that is known beforehand.
pub(super) fn lacks() -> Option<String> {
    // fusermount3 opens it with the rights of its caller, too.
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse: {}", host_reason(&error)));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_program = || std::env::split_paths(&path).any(|dir| dir.join("fusermount3").exists());
    (!geteuid().is_root() && !has_program())
        .then(|| "fusermount3 is not installed, and only root mounts without it".to_owned())
}

impl Served {
    /// Mounts the volume with the default options.
    pub(super) fn new(source: &Source, scratch: &Scratch, stop: &Stop) -> Result<Self> {
        let dir = scratch.mountpoint();
        let log = scratch.log();
        let start = || {
            let said = File::create(&log)?;
            let mut command = Command::new(std::env::current_exe()?);
            command
                .args(["mount", "--foreground", "--with-parent"])
                .arg(std::process::id().to_string())
                .arg("-o");
            let how = if source.writing { "rw" } else { "ro" };
            command.arg(format!("{how},offset={}", source.bytes.start));
            command.arg("--").args([&source.image.file, &dir]);
            command
                .env("EXTERN4_LOG", "error")
                .env_remove("NOTIFY_SOCKET");
            // This process itself passes on the signals that a terminal sends to its process group.
            command.process_group(0);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(said)
                .spawn()
        };
        let process = start().map_err(|error| because("cannot be started", &error))?;
        let mut served = Self {
            process,
            dir,
            root: None,
            log,
            ended: false,
        };
        served.wait_until_mounted(stop)?;
        let root = rustix::fs::open(
            &served.dir,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        served.root = Some(root.map_err(|error| because("cannot be entered", &error.into()))?);
        Ok(served)
    }

    fn wait_until_mounted(&mut self, stop: &Stop) -> Result<()> {
        let start = Instant::now();
        loop {
            if mount_of(&self.dir).is_ok_and(|mount| mount.is_some()) {
                return Ok(());
            }
            if let Some(status) = self
                .process
                .try_wait()
                .map_err(|error| because("is lost", &error))?
            {
                self.ended = true;
                return Err(self.failure(status));
            }
            if start.elapsed() > TIMEOUT {
                return Err(SuiteError::Because("it does not begin".to_owned()));
            }
            stop.check()?;
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns the root of the mount.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root
            .as_ref()
            .expect("it is open until the end")
            .as_fd()
    }

    /// Unmounts the volume, and waits until everything is in the image.
    pub(super) fn end(mut self) -> Result<()> {
        self.root = None;
        self.tell(Signal::TERM);
        match self.wait(TIMEOUT) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failure(status)),
            None => Err(SuiteError::Because("it does not end".to_owned())),
        }
    }

    /// Returns the reason for this exit status.
    fn failure(&self, status: ExitStatus) -> SuiteError {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        match said.lines().last() {
            Some(line) => {
                SuiteError::Because(line.trim_start_matches("extern4: mount: ").to_owned())
            }
            None => SuiteError::Because(format!("it ended with {status}")),
        }
    }

    fn tell(&self, signal: Signal) {
        // Only this process waits for the server, so the number is still its own. If the server has
        // ended already, there is no process to signal.
        let pid = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, signal));
    }

    /// Waits until the server has ended.
    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < patience {
            if let Ok(Some(status)) = self.process.try_wait() {
                self.ended = true;
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // This comes after a failure, which is reported.
        self.root = None;
        self.tell(Signal::TERM);
        if self.wait(STOP_TIMEOUT).is_some() {
            return;
        }
        let _ = extern4_mountd::detach(&self.dir);
        self.tell(Signal::KILL);
        let _ = self.process.wait();
    }
}

fn because(what: &str, error: &std::io::Error) -> SuiteError {
    SuiteError::Because(format!("{what}: {}", host_reason(error)))
}
