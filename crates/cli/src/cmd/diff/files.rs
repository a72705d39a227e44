//! The comparison of two files: in volumes, of the host, or from standard input.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use extern4::Timespec;
use extern4::build::SourceError;
use extern4::diff::{Both, Error, FileError, MAX_TEXT_BYTES, OneError, OpenFile, same_contents};
use rustix::time::{ClockId, clock_gettime};

use super::Args;
use super::operand::TextFile;
use super::texts::{Side, Trouble, Writer, too_large};
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::interruptible::Interruptible;
use crate::json;
use crate::text::escape;

/// An open file, and the time that its header shows.
struct Opened {
    file: OpenFile<'static>,
    modified: Timespec,
}

/// Compares two files, and writes how they differ.
pub(super) fn compare(
    args: &Args,
    pair: &Both<TextFile>,
    mut writer: Writer<'_>,
    app: &mut App,
) -> io::Result<()> {
    let (Some(old), Some(new)) = (open(&pair.old, app), open(&pair.new, app)) else {
        return Ok(());
    };
    let compared = if args.json {
        json(
            pair,
            Both {
                old: &old,
                new: &new,
            },
            &mut writer,
        )
    } else {
        let label = &args.gnu.label;
        let side = |opened, file: &TextFile, label: Option<&std::ffi::OsString>| {
            let Opened {
                file: contents,
                modified,
            }: &Opened = opened;
            let name = label.map(|label| label.as_encoded_bytes().to_vec());
            let modified = name.is_none().then_some(*modified);
            Side {
                name: name.unwrap_or_else(|| file.name()),
                modified,
                file: contents,
            }
        };
        let sides = Both {
            old: side(&old, &pair.old, label.first()),
            new: side(&new, &pair.new, label.get(1)),
        };
        writer.compare(sides.as_ref(), "")
    };
    match compared {
        Ok(true) => {}
        Ok(false) => app.differs(),
        Err(Trouble::Output(error)) => return Err(error),
        Err(Trouble::File(FileError::TooLarge { is_new })) => {
            let name = if is_new { &pair.new } else { &pair.old }.name();
            app.fail_at(ExitStatus::Failed, escape(&name), too_large());
        }
        Err(Trouble::File(FileError::Unreadable(OneError { is_new, error }))) => {
            report(if is_new { &pair.new } else { &pair.old }, &error, app);
        }
    }
    writer.flush()
}

/// Writes an object if two files differ.
fn json(
    pair: &Both<TextFile>,
    opened: Both<&Opened>,
    writer: &mut Writer<'_>,
) -> Result<bool, Trouble> {
    let is_same = same_contents(opened.map(|opened| &opened.file)).map_err(FileError::from)?;
    if !is_same {
        let names = pair.as_ref().map(|file| escape(&file.name()).into_owned());
        let line = json::line(|object| {
            object.text("old", &names.old);
            object.text("new", &names.new);
            object.texts("differs", ["contents"]);
        });
        writer.out.write_all(line.as_bytes())?;
    }
    Ok(is_same)
}

/// Opens a file. Reports a failure.
fn open(file: &TextFile, app: &mut App) -> Option<Opened> {
    let opened = match file {
        TextFile::Volume(target) => {
            let opened = target
                .volume
                .reach(target.path(), |session, path| session.open(path));
            return match opened {
                Ok(file) => {
                    let modified = file.metadata().mtime();
                    Some(Opened {
                        file: OpenFile::of_volume(file),
                        modified,
                    })
                }
                Err(error) => {
                    app.error(&target.image_path, &error);
                    None
                }
            };
        }
        TextFile::Host(path) => open_host(path, app),
        TextFile::Input => Interruptible::standard_input(app.stop()).and_then(|input| {
            let now = clock_gettime(ClockId::Realtime);
            let modified = Timespec {
                sec: now.tv_sec,
                nsec: now.tv_nsec as u32,
            };
            Ok(Opened {
                file: spool(input)?,
                modified,
            })
        }),
        TextFile::Absent(_) => Ok(Opened {
            file: OpenFile::of_bytes(Vec::new()),
            modified: Timespec::default(),
        }),
    };
    opened.map_err(|error| fail(file, &error, app)).ok()
}

fn open_host(path: &Path, app: &App) -> io::Result<Opened> {
    let found = rustix::fs::stat(path)?;
    let modified = Timespec {
        sec: found.st_mtime,
        nsec: found.st_mtime_nsec as u32,
    };
    let is_stored =
        rustix::fs::FileType::from_raw_mode(found.st_mode).is_file() && found.st_size > 0;
    let file = if is_stored {
        OpenFile::of_host(std::fs::File::open(path)?)?
    } else {
        // A pipe, or a file of the kernel that does not tell its size.
        spool(Interruptible::open(path, app.stop())?)?
    };
    Ok(Opened { file, modified })
}

/// Reads a file whose size is not known.
fn spool(input: Interruptible) -> io::Result<OpenFile<'static>> {
    let mut bytes = Vec::new();
    input
        .take(MAX_TEXT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > MAX_TEXT_BYTES {
        return Err(io::Error::other(too_large()));
    }
    Ok(OpenFile::of_bytes(bytes))
}

fn report(file: &TextFile, error: &Error, app: &mut App) {
    match (error, file) {
        (Error::Volume(error), TextFile::Volume(target)) => app.error(&target.image_path, error),
        (Error::Source(SourceError::Io { source, .. }), _) => fail(file, source, app),
        (error, _) => app.fail_at(ExitStatus::Failed, escape(&file.name()), error),
    }
}

fn fail(file: &TextFile, error: &io::Error, app: &mut App) {
    app.fail_at(ExitStatus::Failed, escape(&file.name()), host_reason(error));
}
