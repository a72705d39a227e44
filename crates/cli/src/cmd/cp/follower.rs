//! The command's part in a copy: its lines, questions, messages and progress.
//!
//! `cp` makes a [`Follower`] for each source, and the library calls it. A failure is reported, and
//! the copy goes on.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::Timespec;
use extern4::copy::{CopyError, CopyFailure, CopyNames, CopyObserver, CopySide, Refusal};

use super::Args;
use crate::app::{App, Opened, host_reason};
use crate::exit_status::ExitStatus;
use crate::progress::Task;
use crate::stop::Stop;
use crate::text::{always_quoted, escape};

/// Follows the copy of one source.
pub(super) struct Follower<'a> {
    pub(super) args: &'a Args,
    pub(super) app: &'a mut App,
    pub(super) task: &'a Task,
    pub(super) stop: &'a Stop,
    /// The side that is copied from.
    pub(super) from: Side<'a>,
    /// The side that is copied to.
    pub(super) to: Side<'a>,
    /// Whether the copy ends when the host has no room for more, as an export does.
    pub(super) ends_when_full: bool,
    /// Whether that has happened.
    pub(super) is_full: bool,
}

/// A side of a copy, for the names of its files.
#[derive(Clone, Copy)]
pub(super) enum Side<'a> {
    Host,
    Volume(&'a Opened),
}

impl Side<'_> {
    /// Returns a path as messages name it.
    fn text(self, path: &Path) -> String {
        match self {
            Self::Host => escape(path.as_os_str().as_bytes()).into_owned(),
            Self::Volume(volume) => volume.image_path(path).to_string(),
        }
    }

    /// Returns a path as lines about copies print it.
    fn quoted(self, path: &Path) -> String {
        match self {
            Self::Host => always_quoted(path.as_os_str().as_bytes()),
            Self::Volume(volume) => volume.image_path(path).quoted(),
        }
    }
}

impl CopyObserver for Follower<'_> {
    fn wants_total(&self) -> bool {
        self.task.is_shown()
    }

    fn expect(&mut self, bytes: u64) {
        self.task.expect(bytes);
    }

    fn advance(&mut self, files: u64, bytes: u64) -> ControlFlow<()> {
        (0..files).for_each(|_| self.task.file());
        if bytes > 0 {
            self.task.advance(bytes);
        }
        if self.is_full {
            return ControlFlow::Break(());
        }
        self.stop.check()
    }

    fn wait(&mut self, stream: BorrowedFd<'_>) -> ControlFlow<()> {
        self.stop.wait(stream)
    }

    fn leaves_out(&mut self, path: &Path, is_directory: bool) -> bool {
        self.args.rules.leaves_out(path, is_directory)
    }

    fn may_replace(&mut self, to: &Path, modified: Timespec, there: Timespec) -> bool {
        self.args
            .overwrite
            .allows(modified, there, &self.to.quoted(to), self.app)
    }

    fn set_aside(&mut self, name: &OsStr, names: Vec<OsString>) -> Option<OsString> {
        self.args.overwrite.backup.name(name, names.into_iter())
    }

    fn copying(&mut self, names: &CopyNames<'_>) {
        if !self.args.verbose {
            return;
        }
        let kept = names
            .set_aside
            .map(|kept| format!(" (backup: {})", self.to.quoted(kept)));
        let from = self.from.quoted(names.from);
        let to = self.to.quoted(names.to);
        self.app
            .print(format_args!("{from} -> {to}{}", kept.unwrap_or_default()));
    }

    fn made_parent(&mut self, from: &Path, to: &Path) {
        if self.args.verbose {
            self.app.print(format_args!(
                "{} -> {}",
                self.from.text(from),
                self.to.text(to)
            ));
        }
    }

    fn failed(&mut self, failure: &CopyFailure) {
        if self.is_full {
            // It follows from the first failure.
            return;
        }
        self.is_full = self.ends_when_full && is_full(failure);
        let name = match failure.side {
            CopySide::From => self.from.text(&failure.from),
            CopySide::To => self.to.text(&failure.to),
        };
        match &failure.error {
            CopyError::Volume(error) => self.app.error(name, error),
            CopyError::Host(error) => {
                self.app
                    .fail_at(ExitStatus::Failed, name, host_reason(error))
            }
            CopyError::Refused(refusal) => {
                let words = words(*refusal, self.args.recursive());
                self.app.fail_at(ExitStatus::Failed, name, words);
            }
        }
    }
}

/// Returns whether the host has no room for the copy, and so for no other.
fn is_full(failure: &CopyFailure) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match &failure.error {
        CopyError::Host(error) => matches!(
            error.kind(),
            StorageFull | QuotaExceeded | ReadOnlyFilesystem
        ),
        _ => false,
    }
}

/// Returns the words for a refusal, with the option that it is about.
fn words(refusal: Refusal, recursive: bool) -> String {
    match refusal {
        Refusal::IsDirectory => "is a directory; copy it with -r".to_owned(),
        Refusal::Special if recursive => format!("{refusal}; left out"),
        Refusal::Special => format!("{refusal}; copy it as a special file with -a or -r"),
        Refusal::DotDot => "--parents takes no path with '..'".to_owned(),
        refusal => refusal.to_string(),
    }
}
