//! Runs a statement whose input or output is redirected.
//!
//! `interpreter` calls [`run`]. Standard input and output of the process are exchanged meanwhile,
//! so that programs of the host that the statement starts have them, too. A file of the volume gets
//! the whole output when the statement has succeeded, and stays as it is otherwise.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use extern4::Session;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdout, stdout};

use super::words::{Output, Redirections, Word};
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::interruptible::Interruptible;
use crate::operands::host_path;
use crate::standard_input::Replaced;
use crate::text::escape;

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Where the output of a statement goes.
enum Sink {
    /// A file of the host.
    Host(PathBuf),
    /// A file of a volume, and the output that it gets at the end.
    Volume {
        to: ImagePath,
        spool: File,
        appends: bool,
    },
    /// A program of the host.
    Program(Child),
}

/// The reason why contents did not get from one file to another.
enum CopyError {
    Volume(extern4::Error),
    Host(io::Error),
    Stopped,
}

impl From<extern4::Error> for CopyError {
    fn from(error: extern4::Error) -> Self {
        Self::Volume(error)
    }
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

/// Runs a statement. It is not run if its input or output cannot be opened, and that is reported.
/// The error is one of writing to the output of the process itself.
pub(super) fn run(
    redirections: &Redirections,
    app: &mut App,
    statement: impl FnOnce(&mut App) -> io::Result<()>,
) -> io::Result<()> {
    let input = match &redirections.input {
        Some(word) => {
            let Some(file) = input(&word.text, app) else {
                return Ok(());
            };
            Some(file)
        }
        None => None,
    };
    let Some(output) = &redirections.output else {
        return with_input(input, app, statement);
    };
    let Some((sink, end)) = sink(output, app) else {
        return Ok(());
    };
    let written = with_output(&end, || {
        let done = with_input(input, app, statement);
        done.and_then(|()| app.take_unwritten())
    });
    // A program reads until all ends of the pipe are closed.
    drop(end);
    finish(sink, written, app);
    Ok(())
}

/// Opens the input of a statement. Reports a failure.
fn input(text: &OsStr, app: &mut App) -> Option<File> {
    if let Some(path) = host_path(text) {
        let opened = Interruptible::open(path, app.stop()).map(Interruptible::into_file);
        return opened.map_err(|error| fail(path, &error, app)).ok();
    }
    let from = app.image_path(text);
    let target = app.target(&from)?;
    let copied = tempfile::tempfile()
        .map_err(CopyError::from)
        .and_then(|mut spool| {
            let file = target.session().open(target.path())?;
            let mut buffer = vec![0; CHUNK_BYTES];
            let mut at = 0;
            loop {
                let len = file.read_at(&mut buffer, at)?;
                if len == 0 {
                    break;
                }
                if app.is_stopped() {
                    return Err(CopyError::Stopped);
                }
                spool.write_all(&buffer[..len])?;
                at += len as u64;
            }
            spool.rewind()?;
            Ok(spool)
        });
    report(copied, &from, app)
}

/// Opens the output of a statement, and returns it with the file to write to. Reports a failure.
fn sink(output: &Output, app: &mut App) -> Option<(Sink, OwnedFd)> {
    let program = match output {
        Output::File(word) => return file(word, false, app),
        Output::End(word) => return file(word, true, app),
        Output::Program(line) => line,
    };
    let mut command = Command::new("sh");
    let spawned = command.arg("-c").arg(program).stdin(Stdio::piped()).spawn();
    let mut child = spawned
        .map_err(|error| fail(Path::new("sh"), &error, app))
        .ok()?;
    let pipe = child.stdin.take()?;
    Some((Sink::Program(child), pipe.into()))
}

fn file(word: &Word, appends: bool, app: &mut App) -> Option<(Sink, OwnedFd)> {
    if let Some(path) = host_path(&word.text) {
        let mut options = File::options();
        options
            .create(true)
            .append(appends)
            .write(true)
            .truncate(!appends);
        let file = options
            .open(path)
            .map_err(|error| fail(path, &error, app))
            .ok()?;
        return Some((Sink::Host(path.to_owned()), file.into()));
    }
    let to = app.written_path(&word.text);
    let spooled =
        tempfile::tempfile().and_then(|spool| Ok((OwnedFd::from(spool.try_clone()?), spool)));
    let (end, spool) = spooled
        .map_err(|error| fail(&std::env::temp_dir(), &error, app))
        .ok()?;
    Some((Sink::Volume { to, spool, appends }, end))
}

fn with_input(
    input: Option<File>,
    app: &mut App,
    statement: impl FnOnce(&mut App) -> io::Result<()>,
) -> io::Result<()> {
    let replaced = input.map(Replaced::with).transpose()?;
    let done = statement(app);
    drop(replaced);
    done
}

/// Calls `work` with another standard output.
fn with_output(end: &OwnedFd, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    io::stdout().flush()?;
    let own = fcntl_dupfd_cloexec(stdout(), 3)?;
    dup2_stdout(end)?;
    let done = work().and_then(|()| io::stdout().flush());
    if done.is_err() {
        // The rest that could not be written must not go to the next output.
        let null = File::options().write(true).open("/dev/null");
        let _ = null
            .and_then(|null| Ok(dup2_stdout(null.as_fd())?))
            .and_then(|()| io::stdout().flush());
    }
    dup2_stdout(&own)?;
    done
}

/// Ends the output of a statement. Reports a failure.
fn finish(sink: Sink, written: io::Result<()>, app: &mut App) {
    let has_succeeded = app.status() == ExitStatus::Success && !app.is_stopped();
    match (sink, written) {
        (Sink::Program(mut child), written) => {
            match written {
                // The program has read as much as it wants.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    fail(Path::new("|"), &error, app)
                }
                _ => {}
            }
            match child.wait() {
                Ok(status) if status.success() => {}
                Ok(status) => {
                    app.fail(
                        ExitStatus::Failed,
                        format_args!("the host's command behind '|': {status}"),
                    );
                }
                Err(error) => fail(Path::new("sh"), &error, app),
            }
        }
        (Sink::Host(path), Err(error)) => fail(&path, &error, app),
        (Sink::Volume { .. }, Err(error)) => fail(&std::env::temp_dir(), &error, app),
        (Sink::Host(_), Ok(())) => {}
        (Sink::Volume { .. }, Ok(())) if !has_succeeded => {}
        (Sink::Volume { to, spool, appends }, Ok(())) => {
            let Some(target) = app.target(&to) else {
                return;
            };
            let stored = store(target.session(), target.path(), spool, appends);
            report(stored, &to, app);
        }
    }
}

/// Puts the output into a file of a volume.
fn store(session: &Session, path: &Path, mut spool: File, appends: bool) -> Result<(), CopyError> {
    spool.rewind()?;
    if !appends {
        return session.replace_file(path, |file| copy(&mut spool, file, 0));
    }
    let file = session.open_with(path, extern4::File::options().append(true).create(true))?;
    let len = file.metadata().len();
    copy(&mut spool, &file, len).inspect_err(|_| {
        // The failure is the one to report.
        let _ = session.truncate(path, len);
    })
}

fn copy(from: &mut File, to: &extern4::File, start: u64) -> Result<(), CopyError> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = start;
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            len => {
                to.write_all_at(&buffer[..len], at)?;
                at += len as u64;
            }
        }
    }
}

/// Reports the failure of a copy from or to a file of a volume.
fn report<T>(copied: Result<T, CopyError>, image_path: &ImagePath, app: &mut App) -> Option<T> {
    match copied {
        Ok(copied) => return Some(copied),
        Err(CopyError::Volume(error)) => app.error(image_path, &error),
        Err(CopyError::Host(error)) => fail(&std::env::temp_dir(), &error, app),
        Err(CopyError::Stopped) => {}
    }
    None
}

/// Reports a failure about a file of the host.
fn fail(path: &Path, error: &io::Error, app: &mut App) {
    app.fail_at(
        ExitStatus::Failed,
        escape(path.as_os_str().as_bytes()),
        host_reason(error),
    );
}
