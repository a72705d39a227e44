//! The caller's part in an export: it follows the progress, learns what is left out, and may stop
//! the export.

use std::ops::ControlFlow;

use crate::build::{Entry, Unreadable};

/// Follows an export. Every method has a default, with which the export goes on; `()` is an
/// observer with all of them.
pub trait ExportObserver {
    /// Returns whether [`expect`](Self::expect) is worth a walk over the tree before the export.
    fn wants_total(&self) -> bool {
        false
    }

    /// Adds to the number of bytes of contents that the export is going to read. Holes count, but
    /// [`advance`](Self::advance) passes over them.
    fn expect(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Counts files that the export begins, and bytes of their contents; both may be zero. A break
    /// stops the export, which then returns [`Interrupted`](super::ExportError::Interrupted).
    fn advance(&mut self, files: u64, bytes: u64) -> ControlFlow<()> {
        let _ = (files, bytes);
        ControlFlow::Continue(())
    }

    /// Called for a file that the output cannot have, with its path below the top and the reason.
    fn left_out(&mut self, path: &[u8], reason: &'static str) {
        let _ = (path, reason);
    }

    /// Called by a [`TarBuilder`](crate::tar::TarBuilder) after it has written a member.
    fn added(&mut self, member: &Entry) {
        let _ = member;
    }

    /// Called by a [`TarBuilder`](crate::tar::TarBuilder) for a file that it cannot read, with its
    /// path below the top. The archive goes on with the next file.
    fn failed(&mut self, unreadable: &Unreadable) {
        let _ = unreadable;
    }
}

impl ExportObserver for () {}
