//! The caller's part in a copy: it follows the copy, decides about files that are there, and may
//! end the copy.
//!
//! The command prints its lines, asks its questions and reports failures through it.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::Path;

use extern4_vfs::Timespec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use super::failure::CopyFailure;

/// Follows a copy. Every method has a default, with which the copy goes on and replaces files;
/// `()` is an observer with all of them.
pub trait CopyObserver {
    /// Returns whether [`expect`](Self::expect) is worth a walk over the source before the copy.
    fn wants_total(&self) -> bool {
        false
    }

    /// Adds to the number of bytes that are going to be copied. Holes do not count.
    fn expect(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Counts files and bytes that were copied since the last call, which may be none. A break
    /// ends the copy. A file that is half copied then is removed; one that was there before and
    /// was being written is empty.
    fn advance(&mut self, files: u64, bytes: u64) -> ControlFlow<()> {
        let _ = (files, bytes);
        ControlFlow::Continue(())
    }

    /// Waits until a pipe or device of the host can be read. The default waits for as long as it
    /// takes. A break ends the copy, as that of [`advance`](Self::advance) does.
    fn wait(&mut self, stream: BorrowedFd<'_>) -> ControlFlow<()> {
        // The read after it reports what is wrong with the stream.
        let _ = retry_on_intr(|| poll(&mut [PollFd::new(&stream, PollFlags::IN)], None));
        ControlFlow::Continue(())
    }

    /// Returns whether a file is left out, and everything below it. `path` is its path below the
    /// directory that is copied.
    fn leaves_out(&mut self, path: &Path, is_directory: bool) -> bool {
        let _ = (path, is_directory);
        false
    }

    /// Returns whether a file that is there is replaced, if [`asks`](super::CopyOptions::asks) is
    /// set. `modified` and `there` are the times of the last change of the original and of the
    /// file at `to`.
    fn may_replace(&mut self, to: &Path, modified: Timespec, there: Timespec) -> bool {
        let _ = (to, modified, there);
        true
    }

    /// Returns the new name of a file that a copy replaces, if
    /// [`sets_aside`](super::CopyOptions::sets_aside) is set. `names` are all names of its
    /// directory. With `None` the file is replaced.
    fn set_aside(&mut self, name: &OsStr, names: Vec<OsString>) -> Option<OsString> {
        let _ = (name, names);
        None
    }

    /// Called before a file is copied, and after a new directory is made.
    fn copying(&mut self, names: &CopyNames<'_>) {
        let _ = names;
    }

    /// Called after a directory is made for [`parents`](super::CopyOptions::parents).
    fn made_parent(&mut self, from: &Path, to: &Path) {
        let _ = (from, to);
    }

    /// Called for each file that cannot be copied. The copy goes on with the next one.
    fn failed(&mut self, failure: &CopyFailure) {
        let _ = failure;
    }
}

impl CopyObserver for () {}

/// The names of a file that is copied.
#[derive(Clone, Copy, Debug)]
pub struct CopyNames<'a> {
    /// The path of the original.
    pub from: &'a Path,
    /// The path of the copy.
    pub to: &'a Path,
    /// The path of the file that was at `to` before, if it was set aside.
    pub set_aside: Option<&'a Path>,
}
