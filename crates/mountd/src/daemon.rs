//! Moves the mount to the background. The program starts itself once more, and waits until that
//! process reports that the volume is mounted.
//!
//! The second process reports on its standard output, which only the first one reads. Until then it
//! may print errors on the terminal, and its exit status becomes the exit status of the first
//! process.
//!
//! The command calls [`start`] in the first process. The second one, which has the hidden option
//! `--detach`, opens `/dev/null` before it mounts, and leaves the terminal when the mount is ready.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;
use crate::mount_table::MountEntry;

/// The line that reports a finished mount.
const READY: &[u8] = b"mounted\n";

/// The outcome of the second process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It serves the mount.
    Serving,
    /// It has exited with this code, and printed the reason.
    Exited(u8),
}

/// Starts this program again, in the background. Returns when the volume is mounted on `dir` or
/// cannot be. The arguments go to the second process; the hidden option `--detach` follows.
///
/// # Errors
/// [`Error::Background`] if the process cannot be started, and [`Error::BackgroundEnded`] if it has
/// ended without a message.
pub fn start(args: impl IntoIterator<Item = OsString>, dir: &Path) -> Result<Started, Error> {
    let was_dead = MountEntry::dead_at(dir).is_some();
    match try_start(args).map_err(Error::Background)? {
        Ended::Serving => Ok(Started::Serving),
        Ended::Code(code) => Ok(Started::Exited(code)),
        Ended::Silent(status) => {
            // The process may have been killed, as where memory is short: a mount that it had made
            // goes with it.
            if let Some(mount) = MountEntry::dead_at(dir).filter(|_| !was_dead) {
                let _ = extern4_fuse::unmount(&mount.dir, extern4_fuse::Patience::UntilEnd, |_| {});
            }
            Err(Error::BackgroundEnded(status))
        }
    }
}

enum Ended {
    Serving,
    Code(u8),
    Silent(ExitStatus),
}

fn try_start(args: impl IntoIterator<Item = OsString>) -> io::Result<Ended> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(args)
        .arg("--detach")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = vec![0; READY.len()];
    if let Some(mut output) = child.stdout.take()
        && output.read_exact(&mut said).is_ok()
        && said == READY
    {
        return Ok(Ended::Serving);
    }
    let status = child.wait()?;
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .filter(|code| *code != 0);
    Ok(code.map_or(Ended::Silent(status), Ended::Code))
}

/// File descriptors that a mount needs. Descriptors of additional threads do not count: it works
/// without those threads.
const DESCRIPTORS: usize = 16;

/// Opens the file that replaces the terminal. It also makes sure that there are descriptors for
/// every later step: the mount must be able to end, too.
pub(crate) fn nowhere() -> io::Result<File> {
    let limit = getrlimit(Resource::Nofile);
    // A refusal leaves the limit as it is.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
    let open = || File::options().read(true).write(true).open("/dev/null");
    let nowhere = open()?;
    let all: io::Result<Vec<_>> = (0..DESCRIPTORS).map(|_| open()).collect();
    all.map(|_| nowhere)
}

/// Reports that the volume is mounted. Then leaves the terminal and the directory in which the
/// command was started.
pub(crate) fn detach(nowhere: &File) {
    // Without a terminal there is none to leave.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let _ = io::stdout()
        .write_all(READY)
        .and_then(|()| io::stdout().flush());
    let _ = rustix::stdio::dup2_stdout(nowhere);
    let _ = rustix::stdio::dup2_stderr(nowhere);
}
