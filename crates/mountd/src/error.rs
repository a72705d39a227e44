//! The messages of a mount for its user: failures and notices.
//!
//! The steps of a mount return an [`Error`]. The user's program gets everything else as an
//! [`Observer`]. The texts are the command's; the program adds the name of the directory or
//! the image before them.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use extern4::block::os_reason;

use crate::control::client::AskError;

/// A failure to mount, to serve, to remount or to close a volume.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source has a part already, and the option `offset=` names another one.
    #[error("it says already where the volume is")]
    TwoOffsets,
    /// The options ask for a name in the mount table, and for the mount of a block device, which
    /// the table names itself.
    #[error("fsname: the mount table names the block device of a fuseblk mount")]
    NameOfBlockDevice,
    /// The environment variable of the log's level has no such value.
    #[error("EXTERN4_LOG is error, warn, info or debug")]
    LogLevel,
    /// The log cannot be kept in this file.
    #[error("cannot keep a log there: {}", os_reason(error))]
    Log {
        /// The file, or the words for the system's log.
        file: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The process whose end is to end the mount has ended already.
    #[error("process {0}, which was to be waited for, has ended")]
    ParentEnded(u32),
    /// The end of the parent process cannot be watched.
    #[error("cannot wait for the process that has started this one: {}", os_reason(.0))]
    ParentUnwatched(io::Error),
    /// Metrics cannot be served at this address.
    #[error("cannot serve metrics there: {}", os_reason(.1))]
    Metrics(SocketAddr, io::Error),
    /// The limit of open files is too low for a mount.
    #[error("too few file descriptors for a mount (ulimit -n): {}", os_reason(.0))]
    Descriptors(io::Error),
    /// The directory of the mount cannot be made.
    #[error("{}", os_reason(.0))]
    Directory(io::Error),
    /// The directory is in a mount whose process has ended: the directory of that mount.
    #[error("{}", dead(.0))]
    DeadMount(PathBuf),
    /// The image is mounted on this directory, and the process of that mount has ended.
    #[error("{}", dead(.0))]
    DeadMountOfImage(PathBuf),
    /// The device is mounted on this directory already.
    #[error("it is mounted on {} already", .0.display())]
    Mounted(PathBuf),
    /// The kernel does not hold the block device for the mount.
    #[error("cannot mount: {}", os_reason(.0))]
    Claim(io::Error),
    /// The volume cannot be opened.
    #[error("{error}")]
    Volume {
        /// The library's error.
        error: extern4::Error,
        /// Whether the volume can be opened for reading only.
        is_readable: bool,
    },
    /// The volume has more bytes than the option `sizelimit=` allows.
    #[error("the volume has more than sizelimit={0} bytes")]
    TooLarge(u64),
    /// The mount was not made.
    #[error("cannot mount: {}", os_reason(error))]
    Mount {
        /// The system's reason.
        error: io::Error,
        /// The failure to close the volume afterwards.
        close: Option<extern4::Error>,
    },
    /// Requests of the kernel can no longer be answered.
    #[error("{}", os_reason(error))]
    Serve {
        /// The directory of the mount, resolved and escaped.
        dir: String,
        /// The system's reason.
        error: io::Error,
    },
    /// Data that programs had written is lost.
    #[error("{0}")]
    Lost(&'static str),
    /// The volume was not closed as it should be.
    #[error("{0}")]
    Close(extern4::Error),
    /// The process in the background was not started.
    #[error("cannot start in the background: {}", os_reason(.0))]
    Background(io::Error),
    /// The process in the background has ended without a message.
    #[error("the process in the background has not mounted it: {0}")]
    BackgroundEnded(ExitStatus),
    /// A remount asks for a change that is no longer possible, or the volume is not to be written.
    #[error("{0}")]
    RemountRefused(String),
    /// The process that serves the mount cannot be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The kernel refuses a remount.
    #[error("{}", os_reason(.0))]
    Remount(io::Error),
}

/// Something that the user of a mount is to know, and that is no failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Notice {
    /// The volume is in use by this process, whose mount is just ending.
    #[error("waits for process {0}, which closes the volume")]
    Waits(u32),
    /// The options expect quotas of a volume without quotas.
    #[error("it has no quotas, and none are kept: tune2fs -O quota makes them")]
    NoQuotas,
    /// The mount works, but `stats`, `top` and others cannot ask for its state.
    #[error("the mount cannot be looked into: {}", os_reason(.0))]
    NoControl(io::Error),
}

/// The user's side of a mount: where its messages go.
pub trait Observer {
    /// Tells a notice.
    fn notice(&self, notice: &Notice);

    /// Tells that the mount has been served. Its user may have closed the terminal since, so later
    /// messages go to the log.
    fn was_served(&mut self);

    /// Reports a failure after which the mount goes on to its end.
    fn failed(&mut self, error: &Error);
}

/// Returns the message about a mount that no process serves any more.
fn dead(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "the process that served the mount on {dir} has ended; take it away first: extern4 umount {dir}"
    )
}
