//! Moves the mount to the background. The command starts itself once more, and waits until that
//! process reports that the volume is mounted.
//!
//! The second process reports on its standard output, which only the first one reads. Until then it
//! may print errors on the terminal, and its exit status becomes the exit status of the first
//! process.
//!
//! `mount` calls [`start`] in the first process. The second one, which has the hidden option
//! `--detach`, calls [`nowhere`] before it mounts and [`detach`] when the mount is ready.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{self, Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::mount_helper::{self, Line};
use crate::mount_table::MountEntry;

/// The line that reports a finished mount.
const READY: &[u8] = b"mounted\n";

/// Starts this command line again, in the background. Returns when the volume is mounted or cannot
/// be.
pub(super) fn start(dir: &Path, app: &mut App) -> io::Result<()> {
    let was_dead = MountEntry::dead_at(dir).is_some();
    match try_start() {
        Ok(Ended::Serving) => {}
        Ok(Ended::Code(code)) => app.end_as(code),
        Ok(Ended::Silent(status)) => {
            app.fail(
                ExitStatus::Failed,
                format_args!("the process in the background has not mounted it: {status}"),
            );
            // The process may have been killed, as where memory is short: a mount that it had made
            // goes with it.
            if let Some(mount) = MountEntry::dead_at(dir).filter(|_| !was_dead) {
                let _ = extern4_fuse::unmount(&mount.dir, extern4_fuse::Patience::UntilEnd, |_| {});
            }
        }
        Err(error) => {
            app.fail(
                ExitStatus::Failed,
                format_args!("cannot start in the background: {}", host_reason(&error)),
            );
        }
    }
    Ok(())
}

/// The outcome of the second process.
enum Ended {
    /// It serves the mount.
    Serving,
    /// It has exited with this code, and printed the reason.
    Code(u8),
    /// It has ended without a message.
    Silent(process::ExitStatus),
}

fn try_start() -> io::Result<Ended> {
    let Line::Run(line) = mount_helper::read(std::env::args_os()) else {
        return Ok(Ended::Serving);
    };
    let mut child = Command::new(std::env::current_exe()?)
        .args(line.into_iter().skip(1))
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

/// File descriptors that a mount needs. Those of additional threads do not count: it works without
/// those threads.
const DESCRIPTORS: usize = 16;

/// Opens the file that replaces the terminal. It also makes sure that there are descriptors for
/// every later step: the mount must be able to end, too.
pub(super) fn nowhere() -> io::Result<File> {
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
pub(super) fn detach(nowhere: &File) {
    // Without a terminal there is none to leave.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let _ = io::stdout()
        .write_all(READY)
        .and_then(|()| io::stdout().flush());
    let _ = rustix::stdio::dup2_stdout(nowhere);
    let _ = rustix::stdio::dup2_stderr(nowhere);
}
