//! The result of a copy.

use std::ops::ControlFlow;
use std::path::Path;

use super::failure::{CopyFailure, Failure};
use super::losses::CopyLosses;
use super::observer::CopyObserver;

/// The result of a copy.
#[derive(Debug, Default)]
pub struct CopySummary {
    /// The number of files that were copied, without directories.
    pub files: u64,
    /// The number of bytes that were copied.
    pub bytes: u64,
    /// The number of failures.
    pub failures: u64,
    /// The first failure.
    pub first_failure: Option<CopyFailure>,
    /// The attributes that copies could not keep.
    pub losses: CopyLosses,
    /// The observer ended the copy.
    pub is_stopped: bool,
}

impl CopySummary {
    /// Counts files and bytes, and tells the observer. Breaks if the observer ends the copy, or
    /// has ended it.
    pub(super) fn advance(
        &mut self,
        files: u64,
        bytes: u64,
        observer: &mut dyn CopyObserver,
    ) -> ControlFlow<()> {
        self.files += files;
        self.bytes += bytes;
        self.is_stopped = self.is_stopped || observer.advance(files, bytes).is_break();
        if self.is_stopped {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Notes how the copy of a file ended.
    pub(super) fn note(
        &mut self,
        copied: Result<(), Failure>,
        from: &Path,
        to: &Path,
        observer: &mut dyn CopyObserver,
    ) {
        if let Some(failure) = copied.err().and_then(|failure| failure.report(from, to)) {
            self.fail(failure, observer);
        }
    }

    /// Counts a failure, and tells the observer.
    pub(super) fn fail(&mut self, failure: CopyFailure, observer: &mut dyn CopyObserver) {
        self.failures += 1;
        observer.failed(&failure);
        self.first_failure.get_or_insert(failure);
    }
}
