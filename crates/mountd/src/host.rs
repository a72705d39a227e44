//! The resources of the host that a mount needs besides the volume: the directory, the log, a port
//! for metrics, file descriptors.
//!
//! The command prepares it before it opens the volume. A step that fails leaves the directory, if
//! it has made one.

use std::fs::{DirBuilder, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::daemon;
use crate::error::Error;
use crate::log::{self, Log};
use crate::mount_table::MountEntry;

/// How a process serves a mount.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// The directory to mount on.
    pub dir: PathBuf,
    /// The mode of the directory, which is made if it does not exist; `None` leaves it alone.
    pub directory_mode: Option<u32>,
    /// The address at which to serve metrics.
    pub metrics: Option<SocketAddr>,
    /// The file to append the log to. Without one, the log goes to standard error, or to the
    /// system's log where the process leaves its terminal.
    pub log: Option<PathBuf>,
    /// Whether the process leaves its terminal once the volume is mounted, as the second process
    /// of [`daemon`](crate::daemon) does.
    pub detach: bool,
    /// The parent process, with whose end the mount ends.
    pub with_parent: Option<u32>,
}

/// The resources of the host that a mount uses.
pub struct Host {
    pub(crate) dir: PathBuf,
    pub(crate) metrics: Option<TcpListener>,
    pub(crate) detach: bool,
    /// `/dev/null`, for the standard streams of a process in the background.
    pub(crate) nowhere: File,
}

impl Host {
    /// Checks and makes the directory, and opens the listener, the log and the spare file
    /// descriptors.
    ///
    /// # Errors
    /// The step that failed.
    pub fn prepare(options: HostOptions) -> Result<Self, Error> {
        if let Some(mount) = MountEntry::dead_at(&options.dir) {
            return Err(Error::DeadMount(mount.dir));
        }
        if let Some(mode) = options.directory_mode {
            DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(&options.dir)
                .map_err(Error::Directory)?;
        }
        if let Some(parent) = options.with_parent
            && !end_with(parent).map_err(Error::ParentUnwatched)?
        {
            return Err(Error::ParentEnded(parent));
        }
        let listen =
            |address| TcpListener::bind(address).map_err(|error| Error::Metrics(address, error));
        let metrics = options.metrics.map(listen).transpose()?;
        start_log(options.log.as_deref(), options.detach)?;
        Ok(Self {
            dir: options.dir,
            metrics,
            detach: options.detach,
            nowhere: daemon::nowhere().map_err(Error::Descriptors)?,
        })
    }
}

/// Has the kernel send this process `SIGTERM` when its parent ends, if the parent is process
/// `parent`. Returns false if that process has ended already.
fn end_with(parent: u32) -> io::Result<bool> {
    // Until this process handles the signal, its default action, to end the process, is right, too.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    Ok(std::os::unix::process::parent_id() == parent)
}

/// Starts the log in this file, or where the process has its messages otherwise.
fn start_log(file: Option<&Path>, detach: bool) -> Result<(), Error> {
    let level = log::level().ok_or(Error::LogLevel)?;
    let log = match file {
        Some(file) => Log::File(file),
        None if detach => Log::System,
        None => Log::Terminal,
    };
    log.start(level).map_err(|error| Error::Log {
        file: file.unwrap_or(Path::new("the system's log")).to_owned(),
        error,
    })
}
