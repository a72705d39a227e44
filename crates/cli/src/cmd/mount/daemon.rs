//! Staying in the background: the command starts itself once more, and waits until that says that the volume is mounted.
//!
//! The second one says so on its standard output, which nobody else reads. Until then it may complain on the terminal, and how it ends is
//! how the first one ends.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::app::{App, host_reason};
use crate::helper::{self, Line};
use crate::mount_table::Entry;
use crate::status::Status;

/// What is said.
const READY: &[u8] = b"mounted\n";

/// Starts this command line again, in the background, and returns when the volume is mounted or cannot be.
pub(super) fn start(dir: &Path, app: &mut App) -> io::Result<()> {
    let was_dead = Entry::dead_at(dir).is_some();
    match try_start() {
        Ok(Ended::Serving) => {}
        Ok(Ended::Code(code)) => app.end_as(code),
        Ok(Ended::Silent(status)) => {
            app.fail(
                Status::Failed,
                format_args!("the process in the background has not mounted it: {status}"),
            );
            // As where memory is too short for it: what it has mounted by then goes with it.
            if let Some(mount) = Entry::dead_at(dir).filter(|_| !was_dead) {
                let _ = extern4_fuse::unmount(&mount.dir, || {});
            }
        }
        Err(error) => {
            app.fail(Status::Failed, format_args!("cannot start in the background: {}", host_reason(&error)));
        }
    }
    Ok(())
}

/// What has become of the second process.
enum Ended {
    /// It serves.
    Serving,
    /// It has ended with this code, and said why.
    Code(u8),
    /// It has ended without a word.
    Silent(ExitStatus),
}

fn try_start() -> io::Result<Ended> {
    let Line::Run(line) = helper::read(std::env::args_os()) else { return Ok(Ended::Serving) };
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
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
    Ok(code.map_or(Ended::Silent(status), Ended::Code))
}

/// File descriptors that a mount takes, beside those for further threads, which it can do without.
const DESCRIPTORS: usize = 16;

/// Opens what takes the place of the terminal, and makes sure that there are descriptors for all that comes later: the mount must be able
/// to end, too.
pub(super) fn nowhere() -> io::Result<File> {
    let limit = getrlimit(Resource::Nofile);
    // To ask for more than is allowed would change nothing.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let open = || File::options().read(true).write(true).open("/dev/null");
    let nowhere = open()?;
    let all: io::Result<Vec<_>> = (0..DESCRIPTORS).map(|_| open()).collect();
    all.map(|_| nowhere)
}

/// Says that the volume is mounted, and leaves the terminal, and the directory that the command was started in.
pub(super) fn detach(nowhere: &File) {
    // Without a terminal there is none to leave.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let _ = io::stdout().write_all(READY).and_then(|()| io::stdout().flush());
    let _ = rustix::stdio::dup2_stdout(nowhere);
    let _ = rustix::stdio::dup2_stderr(nowhere);
}
