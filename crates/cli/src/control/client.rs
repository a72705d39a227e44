//! Asking who serves a mount.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::geteuid;

use super::mounts::{Mount, mount_of};
use super::report::Report;
use super::{REPORT, socket};
use crate::app::host_reason;
use crate::status::Status;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// No answer is longer than this.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// Why a mount cannot be looked into.
#[derive(Debug)]
pub(crate) enum Error {
    /// It is none of ours.
    NoMount,
    /// Another user serves it.
    Foreign(u32),
    /// Nobody serves it any more.
    Gone,
    /// The directory cannot be looked at, or who serves it cannot be asked.
    Io(io::Error),
    /// The answer makes no sense.
    Answer(String),
}

impl Error {
    /// The exit code that goes with it.
    pub(crate) fn status(&self) -> Status {
        if matches!(self, Self::NoMount) { Status::Refused } else { Status::Failed }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMount => write!(f, "no volume is mounted here by extern4"),
            Self::Foreign(owner) => {
                write!(f, "user {owner} serves this mount; only he and root can look into it")
            }
            Self::Gone => {
                write!(f, "nobody can be asked: who serves this mount has ended, or listens nowhere")
            }
            Self::Io(error) => write!(f, "{}", host_reason(error)),
            Self::Answer(why) => write!(f, "the answer makes no sense: {why}"),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::Io(io::ErrorKind::TimedOut.into()),
            _ => Self::Io(error),
        }
    }
}

/// Finds the mount that a directory is in.
pub(crate) fn find(dir: &Path) -> Result<Mount, Error> {
    let mount = mount_of(dir)?.ok_or(Error::NoMount)?;
    let user = geteuid().as_raw();
    if user != 0 && user != mount.owner { Err(Error::Foreign(mount.owner)) } else { Ok(mount) }
}

/// Asks for a report.
pub(crate) fn ask(mount: &Mount) -> Result<Report, Error> {
    let stream = socket::connect(mount).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::Gone,
        _ => Error::Io(error),
    })?;
    let answer = exchange(stream).map_err(|error| match error.kind() {
        // It ended just now.
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::Gone,
        _ => Error::from(error),
    })?;
    if answer.is_empty() {
        return Err(Error::Gone);
    }
    Report::read(&String::from_utf8_lossy(&answer)).map_err(Error::Answer)
}

fn exchange(mut stream: UnixStream) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{REPORT}\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    Ok(answer)
}
