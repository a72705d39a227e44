//! Requests to the process that serves a mount.
//!
//! Root may ask a process of another user. So the whole answer has one deadline and one limit of
//! length, and no part of it is printed unescaped.
//!
//! `stats`, `top` and a remount call it.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::mounts::{Mount, mount_of};
use super::report::Report;
use super::{REPORT, socket};
use crate::app::host_reason;
use crate::exit_status::ExitStatus;
use crate::text::escape;

/// The time limit for the whole exchange.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// The limit for the length of an answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The reasons why a mount gives no report.
#[derive(Debug)]
pub(crate) enum Error {
    /// The directory is in no mount of this program.
    NoMount,
    /// Another user serves it.
    Foreign(u32),
    /// No process serves it any more.
    Gone,
    /// The process that serves it does not answer in time.
    Silent,
    /// The directory cannot be looked at, or the process that serves it cannot be asked.
    Io(io::Error),
    /// The answer makes no sense. The text may quote it.
    Answer(String),
}

impl Error {
    /// Returns the exit code for the error.
    pub(crate) fn status(&self) -> ExitStatus {
        if matches!(self, Self::NoMount) {
            ExitStatus::Refused
        } else {
            ExitStatus::Failed
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMount => write!(f, "no volume is mounted here by extern4"),
            Self::Foreign(owner) => {
                write!(
                    f,
                    "user {owner} serves this mount; only that user and root can look into it"
                )
            }
            Self::Gone => {
                write!(
                    f,
                    "the process that serves this mount has ended, or listens nowhere"
                )
            }
            Self::Silent => {
                let seconds = TIMEOUT.as_secs();
                write!(
                    f,
                    "the process that serves this mount has not answered within {seconds} s"
                )
            }
            Self::Io(error) => write!(f, "{}", host_reason(error)),
            Self::Answer(why) => write!(f, "the answer makes no sense: {}", escape(why.as_bytes())),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::Gone,
            // The process ended just now.
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Gone,
            // The queue of connections is full.
            io::ErrorKind::WouldBlock => Self::Silent,
            _ => Self::Io(error),
        }
    }
}

/// Finds the mount that a directory is in.
pub(crate) fn find(dir: &Path) -> Result<Mount, Error> {
    let mount = mount_of(dir).map_err(Error::Io)?.ok_or(Error::NoMount)?;
    let user = geteuid().as_raw();
    if user != 0 && user != mount.owner {
        Err(Error::Foreign(mount.owner))
    } else {
        Ok(mount)
    }
}

/// Asks for a report.
pub(crate) fn ask(mount: &Mount) -> Result<Report, Error> {
    let (_, answer) = exchange(socket::connect(mount)?, REPORT, Instant::now() + TIMEOUT)?;
    Report::read(&String::from_utf8_lossy(&answer)).map_err(Error::Answer)
}

/// Sends the request, and receives the line that answers it.
pub(super) fn exchange(
    mut stream: UnixStream,
    request: &str,
    deadline: Instant,
) -> Result<(UnixStream, Vec<u8>), Error> {
    stream.set_nonblocking(true)?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let answer = line(&mut stream, deadline)?;
    Ok((stream, answer))
}

/// Receives a line.
pub(super) fn line(stream: &mut UnixStream, deadline: Instant) -> Result<Vec<u8>, Error> {
    let mut answer = Vec::new();
    let mut space = vec![0; 64 << 10];
    loop {
        wait(stream, deadline)?;
        let came = match stream.read(&mut space) {
            Ok(0) if answer.is_empty() => return Err(Error::Gone),
            Ok(0) => return Err(Error::Answer("it ends before it is complete".to_owned())),
            Ok(len) => &space[..len],
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let end = came.iter().position(|byte| *byte == b'\n');
        answer.extend_from_slice(&came[..end.unwrap_or(came.len())]);
        if answer.len() > MAX_ANSWER_BYTES {
            return Err(Error::Answer(format!(
                "it is longer than {} MiB",
                MAX_ANSWER_BYTES >> 20
            )));
        }
        if end.is_some() {
            return Ok(answer);
        }
    }
}

/// Waits until there is something to read.
fn wait(stream: &UnixStream, deadline: Instant) -> Result<(), Error> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&timeout)) {
        // Data that arrive without a pause do not move the deadline.
        Ok(_) if left.is_zero() => Err(Error::Silent),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(Error::Io(error.into())),
    }
}
