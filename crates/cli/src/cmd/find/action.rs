//! The actions on entries that match: printing, removing, running commands.
//!
//! `find` opens their outputs, `parse` makes them, and `eval` runs them. An action that fails is
//! reported and counts as false, as in GNU `find`. A file that a search writes is made before the
//! search begins.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extern4::{FileType, Metadata};

use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::json;
use crate::output::{Held, Out, is_pipe};
use crate::text::{ListTime, ModeText};

use super::Search;
use super::candidate::Candidate;
use super::exec::Exec;
use super::printf::Format;

/// An action on an entry.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Prints the path and this byte.
    Print { end: u8, to: Output },
    /// Prints the entry as `ls -dils` would.
    Ls(Output),
    /// Prints what a format says.
    Printf(Rc<Format>, Output),
    /// Removes the file.
    Delete,
    /// Runs a command.
    Exec(Rc<Exec>),
}

/// Where an action prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Standard,
    /// The file of the command line with this number.
    File(usize),
}

/// The outputs of a search.
pub(super) struct Outputs {
    pub(super) standard: Out,
    files: Vec<(PathBuf, Held<BufWriter<File>>)>,
}

impl Outputs {
    /// Makes the files that the search writes. With `holds`, what goes into pipes is held. The
    /// error names the file that could not be made.
    pub(super) fn open<'a>(
        standard: Out,
        files: &'a [PathBuf],
        holds: bool,
    ) -> Result<Self, (&'a Path, io::Error)> {
        let make = |path: &'a PathBuf| match File::create(path) {
            Ok(file) => {
                let is_held = holds && is_pipe(&file);
                Ok((path.clone(), Held::new(BufWriter::new(file), is_held)))
            }
            Err(error) => Err((path.as_path(), error)),
        };
        Ok(Self {
            standard,
            files: files.iter().map(make).collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether output waits for the end of the search.
    pub(super) fn are_held(&self) -> bool {
        self.standard.is_held() || self.files.iter().any(|(_, file)| file.is_held())
    }

    fn get(&mut self, output: Output) -> &mut dyn Write {
        match output {
            Output::Standard => &mut self.standard,
            Output::File(number) => &mut self.files[number].1,
        }
    }

    /// Writes what is buffered or held. Reports a file that cannot be written.
    pub(super) fn close(mut self, app: &mut App) -> io::Result<()> {
        for (path, file) in &mut self.files {
            if let Err(error) = file.release() {
                app.fail_at(ExitStatus::Failed, path.display(), host_reason(&error));
            }
        }
        self.standard.release()
    }
}

impl Action {
    /// Returns whether the action needs attributes.
    pub(super) fn reads_attributes(&self) -> bool {
        match self {
            Self::Ls(_) => true,
            Self::Printf(format, _) => format.reads_attributes(),
            Self::Print { .. } | Self::Delete | Self::Exec(_) => false,
        }
    }

    /// Does the action. Returns whether it succeeded.
    pub(super) fn run(
        &self,
        search: &Search<'_>,
        candidate: &Candidate<'_>,
        outputs: &mut Outputs,
        app: &mut App,
    ) -> io::Result<bool> {
        match self {
            Self::Print {
                end: b'\n',
                to: Output::Standard,
            } if search.json => {
                print_json(search, candidate, &mut outputs.standard)?;
            }
            Self::Print { end, to } => {
                let shown = match (end, to) {
                    (b'\n', Output::Standard) => search.shown,
                    (b'\n', Output::File(_)) => search.shown.off_terminal(),
                    (_, Output::Standard) => search.shown.as_operands(),
                    (_, Output::File(_)) => search.shown.off_terminal().as_operands(),
                };
                let out = outputs.get(*to);
                out.write_all(&shown.path(&search.volume.image, candidate.path()))?;
                out.write_all(&[*end])?;
            }
            Self::Ls(to) => print_long(search, candidate, outputs.get(*to))?,
            Self::Printf(format, to) => {
                let shown = if *to == Output::Standard {
                    search.shown
                } else {
                    search.shown.off_terminal()
                };
                if let Some(text) = format.text(search, candidate, shown) {
                    outputs.get(*to).write_all(&text)?;
                }
            }
            Self::Delete => return Ok(delete(candidate)),
            Self::Exec(exec) => {
                outputs.standard.flush()?;
                return exec.run(search, candidate, app);
            }
        }
        Ok(true)
    }
}

/// Removes the file of an entry. The root stays, as GNU `find` leaves the directory that it is in.
fn delete(candidate: &Candidate<'_>) -> bool {
    let name = candidate.entry.file_name().as_bytes();
    let is_root = name.iter().all(|byte| *byte == b'/');
    is_root || candidate.kept(candidate.entry.remove()).is_some()
}

fn print_json(
    search: &Search<'_>,
    candidate: &Candidate<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(metadata) = candidate.metadata() else {
        return Ok(());
    };
    let line = json::line(|object| {
        super::super::stat::members(object, &search.volume, candidate.path(), metadata);
    });
    out.write_all(line.as_bytes())
}

fn print_long(
    search: &Search<'_>,
    candidate: &Candidate<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(metadata) = candidate.metadata() else {
        return Ok(());
    };
    let names = search.volume.names();
    write!(
        out,
        "{:>9} {:>6} {} {:>3} {:<8} {:<8} {:>8} {} ",
        metadata.ino(),
        metadata.blocks().div_ceil(2),
        ModeText {
            kind: metadata.file_type(),
            mode: metadata.mode()
        },
        metadata.nlink(),
        names.user(metadata.uid()),
        names.group(metadata.gid()),
        size(metadata),
        search
            .time
            .get_or_init(ListTime::new)
            .format(metadata.mtime()),
    )?;
    let is_complete = search.shown.is_complete();
    if is_complete {
        out.write_all(&search.shown.path(&search.volume.image, candidate.path()))?
    } else {
        out.write_all(escape_ls(&search.printed(candidate.path())).as_bytes())?
    }
    if metadata.is_symlink()
        && let Ok(link) = candidate
            .entry
            .parent()
            .read_link(candidate.entry.file_name())
    {
        let link = link.as_os_str().as_bytes();
        out.write_all(b" -> ")?;
        if is_complete {
            out.write_all(&search.shown.text(link))?
        } else {
            out.write_all(escape_ls(link).as_bytes())?
        }
    }
    out.write_all(b"\n")
}

/// Returns the size, or a device's number.
fn size(metadata: &Metadata) -> String {
    match metadata.file_type() {
        FileType::CharDevice | FileType::BlockDevice => {
            format!("{:>3}, {:>3}", metadata.rdev().major, metadata.rdev().minor)
        }
        _ => metadata.len().to_string(),
    }
}

/// Returns a name as `-ls` writes it to any output: C escapes, and a backslash before a space,
/// quote or backslash.
fn escape_ls(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if matches!(c, ' ' | '"' | '\\') {
                text.push('\\');
                text.push(c);
            } else {
                text.push_str(&crate::text::escape(c.encode_utf8(&mut [0; 4]).as_bytes()));
            }
        }
        text.push_str(&crate::text::escape(chunk.invalid()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::escape_ls;

    #[test]
    fn names_are_escaped_as_find_does() {
        assert_eq!(escape_ls(b"./a b"), "./a\\ b");
        assert_eq!(escape_ls(b"x\ny\xff"), "x\\ny\\377");
        assert_eq!(escape_ls(b"q\"\\"), "q\\\"\\\\");
    }
}
