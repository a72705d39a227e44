//! `extern4 put`: replaces the contents of a file with standard input.
//!
//! A reader of the file meanwhile, or after a crash, finds the old contents or the new ones, whole.
//! The new contents are written next to the file, made durable, and renamed over it.
//!
//! `args` calls [`run`].

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;

use extern4::Session;
use extern4::copy::own_name;

use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::interruptible::Interruptible;

/// Bytes read at a time. Contents no longer than this are written in one piece.
const CHUNK_BYTES: usize = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to replace or make. Owner, mode, ACL and extended attributes stay as they are, but
    /// for capabilities, and for set-id bits unless the caller may keep them; other names of the
    /// file keep the old contents
    #[arg(value_name = "IMAGE:/PATH")]
    image_path: OsString,
}

/// The side on which the command failed.
enum PutError {
    Volume(extern4::Error),
    Input(io::Error),
    /// The file is not a regular file.
    Kind,
}

impl From<extern4::Error> for PutError {
    fn from(error: extern4::Error) -> Self {
        Self::Volume(error)
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let image_path = app.written_path(&args.image_path);
    if own_name(&image_path.path).is_none() {
        let name = format_args!("the file needs a name: {}:/PATH", image_path.image);
        app.fail_at(ExitStatus::Failed, &image_path, name);
        return Ok(());
    }
    app.stop_on_signals();
    // The first piece is read before the volume is opened: a failing input changes nothing.
    let mut chunk = vec![0; CHUNK_BYTES];
    let first = Interruptible::standard_input(app.stop())
        .and_then(|mut input| Ok((fill(&mut input, &mut chunk)?, input)));
    let done = match first {
        Err(error) => Err(PutError::Input(error)),
        Ok((len, mut input)) => {
            let Some(target) = app.target(&image_path) else {
                return Ok(());
            };
            put(target.session(), target.path(), &mut input, &mut chunk, len)
        }
    };
    match done {
        Ok(()) => {}
        Err(PutError::Volume(error)) => app.error(&image_path, &error),
        Err(PutError::Kind) => {
            app.fail_at(ExitStatus::Failed, &image_path, "is not a regular file")
        }
        Err(PutError::Input(_)) if app.is_stopped() => app.report_stop("nothing was changed"),
        Err(PutError::Input(error)) => {
            app.fail(
                ExitStatus::Failed,
                format_args!("standard input: {}", host_reason(&error)),
            );
        }
    }
    Ok(())
}

/// Reads until the chunk is full or the input ends. Returns the number of bytes.
fn fill(input: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < chunk.len() {
        match input.read(&mut chunk[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

fn put(
    session: &Session,
    path: &Path,
    input: &mut impl Read,
    chunk: &mut [u8],
    first: usize,
) -> Result<(), PutError> {
    if session.metadata(path).is_ok_and(|old| !old.is_file()) {
        return Err(PutError::Kind);
    }
    session.replace_file(path, |file| {
        let mut len = first;
        let mut offset = 0;
        loop {
            file.write_all_at(&chunk[..len], offset)?;
            if len < chunk.len() {
                return Ok(());
            }
            offset += len as u64;
            len = fill(input, chunk).map_err(PutError::Input)?;
        }
    })
}
