//! Requests to the process that serves a mount.
//!
//! Root may ask a process of another user. So the whole answer has one deadline and one limit of
//! length, and no part of it is printed unescaped.
//!
//! A remount, and the command's `stats` and `top` call it.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use extern4::block::os_reason;
use extern4::terminal::escape;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::mounts::{Mount, mount_of};
use super::report::Report;
use super::{REPORT, socket};

/// The time limit for the whole exchange.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// The limit for the length of an answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The reasons why a mount gives no report.
#[derive(Debug)]
pub enum AskError {
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

impl fmt::Display for AskError {
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
            Self::Io(error) => write!(f, "{}", os_reason(error)),
            Self::Answer(why) => write!(f, "the answer makes no sense: {}", escape(why.as_bytes())),
        }
    }
}

impl std::error::Error for AskError {}

impl From<io::Error> for AskError {
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
///
/// # Errors
/// It is in no mount of this program, or in one that only another user may look into.
pub fn find(dir: &Path) -> Result<Mount, AskError> {
    let mount = mount_of(dir)
        .map_err(AskError::Io)?
        .ok_or(AskError::NoMount)?;
    let user = geteuid().as_raw();
    if user != 0 && user != mount.owner {
        Err(AskError::Foreign(mount.owner))
    } else {
        Ok(mount)
    }
}

/// Asks for a report.
///
/// # Errors
/// No process answers in time, or its answer makes no sense.
pub fn ask(mount: &Mount) -> Result<Report, AskError> {
    let (_, answer) = exchange(socket::connect(mount)?, REPORT, Instant::now() + TIMEOUT)?;
    Report::read(&String::from_utf8_lossy(&answer)).map_err(AskError::Answer)
}

/// Sends the request, and receives the line that answers it.
pub(super) fn exchange(
    mut stream: UnixStream,
    request: &str,
    deadline: Instant,
) -> Result<(UnixStream, Vec<u8>), AskError> {
    stream.set_nonblocking(true)?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let answer = line(&mut stream, deadline)?;
    Ok((stream, answer))
}

/// Receives a line.
pub(super) fn line(stream: &mut UnixStream, deadline: Instant) -> Result<Vec<u8>, AskError> {
    let mut answer = Vec::new();
    let mut space = vec![0; 64 << 10];
    loop {
        wait(stream, deadline)?;
        let came = match stream.read(&mut space) {
            Ok(0) if answer.is_empty() => return Err(AskError::Gone),
            Ok(0) => return Err(AskError::Answer("it ends before it is complete".to_owned())),
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
            return Err(AskError::Answer(format!(
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
fn wait(stream: &UnixStream, deadline: Instant) -> Result<(), AskError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&timeout)) {
        // Data that arrive without a pause do not move the deadline.
        Ok(_) if left.is_zero() => Err(AskError::Silent),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(AskError::Io(error.into())),
    }
}
