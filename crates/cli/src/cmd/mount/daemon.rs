//! Staying in the background: the command starts itself once more, and waits until that says that the volume is mounted.
//!
//! The second one says so on its standard output, which nobody else reads. Until then it may complain on the terminal, and how it ends is
//! how the first one ends.

use std::io::{self, Read as _, Write as _};
use std::process::{Command, Stdio};

use super::nowhere;
use crate::app::{App, host_reason};
use crate::helper::{self, Line};
use crate::status::Status;

/// What is said.
const READY: &[u8] = b"mounted\n";

/// Starts this command line again, in the background, and returns when the volume is mounted or cannot be.
pub(super) fn start(app: &mut App) -> io::Result<()> {
    match try_start() {
        Ok(None) => {}
        Ok(Some(code)) => app.end_as(code),
        Err(error) => {
            app.fail(Status::Failed, format_args!("cannot start in the background: {}", host_reason(&error)));
        }
    }
    Ok(())
}

/// The exit code of the second process, if it has not come to serve.
fn try_start() -> io::Result<Option<u8>> {
    let Line::Run(line) = helper::read(std::env::args_os()) else { return Ok(None) };
    let mut child = Command::new(std::env::current_exe()?)
        .args(line.into_iter().skip(1))
        .arg("--detach")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = Vec::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_end(&mut said)?;
    }
    if said == READY {
        return Ok(None);
    }
    let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(code.filter(|code| *code != 0).unwrap_or(Status::Failed.code())))
}

/// Says that the volume is mounted, and leaves the terminal, and the directory that the command was started in.
pub(super) fn detach() {
    // Without a terminal there is none to leave.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let _ = io::stdout().write_all(READY).and_then(|()| io::stdout().flush());
    if let Ok(nowhere) = nowhere() {
        let _ = rustix::stdio::dup2_stdout(&nowhere);
        let _ = rustix::stdio::dup2_stderr(&nowhere);
    }
}
