//! `-exec`: runs commands about the files that match.
//!
//! A command of extern4's own runs in this process: it sees the volume as the search does, and may
//! change it meanwhile. It may lack `extern4` before its name, as a search of GNU's does: for the
//! host, `rm -f {}` would find no file, and say nothing.
//!
//! `action` calls it. A command that fails makes the action false, and sets the exit code where
//! `find` does.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::app::{App, host_reason};
use crate::args::Args;
use crate::exit_status::ExitStatus;
use crate::image_path::{ImagePath, same_file};
use crate::text::{escape, quoted};

use super::Search;
use super::candidate::Candidate;

/// The limit for the bytes of the paths in one command of `-exec ... +`.
const MAX_BATCH_BYTES: usize = 96 << 10;

/// Bytes of a file copied at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// A command, and how it gets the files.
#[derive(Debug)]
pub(super) struct Exec {
    words: Vec<OsString>,
    /// Whether the command is one of extern4's own.
    is_own: bool,
    pub(super) how: How,
    /// The paths that wait for the next command of `-exec ... +`.
    batch: RefCell<Vec<OsString>>,
    batch_bytes: Cell<usize>,
    /// Whether a message has told why a program of the host may have failed.
    is_told: Cell<bool>,
}

/// How a command gets the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// One command a file, `{}` is its path.
    Each,
    /// One command for many files.
    Batch,
    /// One command a file, with its contents on standard input.
    Input,
    /// One command a file, `{}` is a copy on the host.
    Copy,
}

impl Exec {
    /// Returns the command of these words. The error describes their fault.
    pub(super) fn new(words: &[OsString], how: How) -> Result<Self, String> {
        let takes_paths = matches!(how, How::Each | How::Batch);
        let mut words = words.to_vec();
        let gets_path =
            how == How::Batch || how == How::Each && words.iter().any(|word| has(word, b"{}"));
        if gets_path
            && words
                .first()
                .is_some_and(|name| Args::subcommand(name).is_some())
        {
            words.insert(0, "extern4".into());
        }
        let name = words.first().map_or(OsStr::new(""), OsString::as_os_str);
        // Another process could not change the volume while this one searches it.
        let is_own = name == "extern4" || takes_paths && is_this_program(Path::new(name));
        match &words[..] {
            [] => Err("-exec needs a command".to_owned()),
            [_] if is_own => Err("-exec extern4 needs a subcommand".to_owned()),
            _ if is_own && !takes_paths => {
                Err("extern4 reads volumes itself: use -exec without -extract".to_owned())
            }
            _ => Ok(Self {
                words,
                is_own,
                how,
                batch: RefCell::default(),
                batch_bytes: Cell::default(),
                is_told: Cell::default(),
            }),
        }
    }

    /// Returns the name of the subcommand, if the command is one of extern4's own.
    pub(super) fn subcommand(&self) -> Option<&OsStr> {
        self.words
            .get(1)
            .filter(|_| self.is_own)
            .map(OsString::as_os_str)
    }

    /// Returns whether the command may change volumes.
    pub(super) fn writes(&self) -> bool {
        const READERS: [&str; 20] = [
            "info",
            "check",
            "ls",
            "tree",
            "stat",
            "cat",
            "get",
            "head",
            "tail",
            "grep",
            "cmp",
            "sha256sum",
            "du",
            "df",
            "getfacl",
            "getfattr",
            "lsattr",
            "readlink",
            "inode",
            "diff",
        ];
        let [_, name, .., last] = &self.words[..] else {
            return false;
        };
        match name.to_str() {
            Some("cp") => ImagePath::is_one(last),
            Some(name) => self.is_own && !READERS.contains(&name),
            None => false,
        }
    }

    /// Runs the command for an entry, or notes the entry for a later one. Returns whether it
    /// succeeded.
    pub(super) fn run(
        &self,
        search: &Search<'_>,
        candidate: &Candidate<'_>,
        app: &mut App,
    ) -> io::Result<bool> {
        // No pattern in the words of an own command is expanded.
        let path = if self.is_own {
            search.printed(candidate.path())
        } else {
            search
                .shown
                .off_terminal()
                .as_operands()
                .path(&search.volume.image, candidate.path())
        };
        let path = OsString::from_vec(path);
        match self.how {
            How::Each => self.command(&self.with(&path), Stdio::inherit(), app),
            How::Batch => {
                self.batch_bytes
                    .set(self.batch_bytes.get() + path.len() + 1);
                self.batch.borrow_mut().push(path);
                if self.batch_bytes.get() > MAX_BATCH_BYTES {
                    self.finish(app)?;
                }
                Ok(true)
            }
            How::Input => self.with_contents(&path, candidate, app),
            How::Copy => self.with_copy(candidate, app),
        }
    }

    /// Runs the command for the entries that wait.
    pub(super) fn finish(&self, app: &mut App) -> io::Result<()> {
        let batch = self.batch.take();
        self.batch_bytes.set(0);
        if batch.is_empty() {
            return Ok(());
        }
        let words = self.words.iter().cloned().chain(batch).collect::<Vec<_>>();
        if !self.command(&words, Stdio::inherit(), app)? {
            app.found(ExitStatus::Failed);
        }
        Ok(())
    }

    /// Returns the words with each `{}` replaced.
    fn with(&self, path: &OsStr) -> Vec<OsString> {
        self.words.iter().map(|word| replace(word, path)).collect()
    }

    fn command(&self, words: &[OsString], input: Stdio, app: &mut App) -> io::Result<bool> {
        if self.is_own {
            return app.run_line(words);
        }
        match Command::new(&words[0])
            .args(&words[1..])
            .stdin(input)
            .status()
        {
            Ok(status) => {
                if !status.success() {
                    self.point_to_copies(app);
                }
                Ok(status.success())
            }
            Err(error) => {
                app.fail_at(ExitStatus::Failed, words[0].display(), host_reason(&error));
                Ok(false)
            }
        }
    }

    /// Tells once why a program of the host may have failed that got the path of a file in the
    /// volume.
    fn point_to_copies(&self, app: &App) {
        let any_has = |text| self.words.iter().any(|word| has(word, text));
        let takes_path = self.how == How::Batch || self.how == How::Each && any_has(b"{}");
        // A shell may run extern4, and that says itself why it fails.
        if takes_path && !any_has(b"extern4") && !self.is_told.replace(true) {
            let name = quoted(escape(self.words[0].as_bytes()));
            app.note(format_args!(
                "{name} failed: a program of the host cannot open IMAGE:/PATH; \
                 with -extract, {{}} is a copy of the file, and -exec-in gives its contents"
            ));
        }
    }

    /// Runs the command with the contents of the file on its standard input.
    fn with_contents(
        &self,
        path: &OsStr,
        candidate: &Candidate<'_>,
        app: &mut App,
    ) -> io::Result<bool> {
        let opened = candidate.entry.parent().open(candidate.entry.file_name());
        let Some(mut file) = candidate.kept(opened) else {
            return Ok(false);
        };
        let words = self.with(path);
        let mut child = match Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .spawn()
        {
            Ok(child) => child,
            Err(error) => {
                app.fail_at(ExitStatus::Failed, words[0].display(), host_reason(&error));
                return Ok(false);
            }
        };
        if let Some(mut input) = child.stdin.take() {
            // A command need not read all of it.
            let copied = copy(&mut file, &mut input);
            candidate.kept(copied);
        }
        Ok(child.wait()?.success())
    }

    /// Runs the command with a copy of the file in a temporary directory, under the file's name.
    fn with_copy(&self, candidate: &Candidate<'_>, app: &mut App) -> io::Result<bool> {
        let opened = candidate.entry.parent().open(candidate.entry.file_name());
        let Some(mut file) = candidate.kept(opened) else {
            return Ok(false);
        };
        let directory = tempfile::tempdir()?;
        let name = candidate.path().file_name().unwrap_or(OsStr::new("file"));
        let path = directory.path().join(name);
        let mut output = File::create_new(&path)?;
        if candidate.kept(copy(&mut file, &mut output)).is_none() {
            return Ok(false);
        }
        drop(output);
        self.command(&self.with(path.as_os_str()), Stdio::inherit(), app)
    }
}

fn has(word: &OsStr, text: &[u8]) -> bool {
    word.as_bytes().windows(text.len()).any(|part| part == text)
}

/// Returns whether a path leads to the program of this process.
fn is_this_program(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "extern4")
        && same_file(path, Path::new("/proc/self/exe"))
}

/// Copies contents until their end, or until the other side takes no more.
fn copy(file: &mut extern4::File, to: &mut impl io::Write) -> extern4::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        let len = file.read_at(&mut buffer, at)?;
        if len == 0 || to.write_all(&buffer[..len]).is_err() {
            return Ok(());
        }
        at += len as u64;
    }
}

fn replace(word: &OsStr, path: &OsStr) -> OsString {
    let mut replaced = Vec::with_capacity(word.len() + path.len());
    let mut rest = word.as_bytes();
    while let Some(at) = rest.windows(2).position(|pair| pair == b"{}") {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(path.as_bytes());
        rest = &rest[at + 2..];
    }
    replaced.extend_from_slice(rest);
    OsString::from_vec(replaced)
}
