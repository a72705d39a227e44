//! The progress bar of a copy, on a terminal.
//!
//! `copier` and `into` count for it. It writes to standard error, and nothing where that is no
//! terminal.

use std::time::Duration;

use extern4::FileType;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::app::Target;
use crate::text::counted;

/// The progress of a copy.
pub(super) struct Progress {
    bar: ProgressBar,
    files: u64,
}

impl Progress {
    /// Returns a bar on standard error if that is a terminal, else a hidden one.
    pub(super) fn new(quiet: bool) -> Self {
        if quiet || !std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            return Self { bar: ProgressBar::hidden(), files: 0 };
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(8));
        let template = "{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {msg} eta {eta}";
        bar.set_style(ProgressStyle::with_template(template).expect("a template that is there"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, files: 0 }
    }

    /// Counts the files and bytes to copy, if the bar is visible.
    pub(super) fn expect(&self, target: &Target, recursive: bool) {
        if self.bar.is_hidden() {
            return;
        }
        let session = target.session();
        let bytes = if recursive {
            let files = session.walk(target.path()).filter_map(Result::ok);
            let files = files.filter(|entry| entry.file_type().is_ok_and(|kind| kind == FileType::Regular));
            files.filter_map(|entry| entry.metadata().ok()).map(|found| stored_bytes(&found)).sum()
        } else {
            session.metadata(target.path()).map_or(0, |found| stored_bytes(&found))
        };
        self.expect_bytes(bytes);
    }

    /// Adds `bytes` to the bytes to copy.
    pub(super) fn expect_bytes(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Returns whether the bar is hidden.
    pub(super) fn is_hidden(&self) -> bool {
        self.bar.is_hidden()
    }

    /// Counts `bytes` as copied.
    pub(super) fn bytes(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Counts one more copied file.
    pub(super) fn file(&mut self) {
        self.files += 1;
        if !self.bar.is_hidden() {
            self.bar.set_message(counted(self.files, "file", "files"));
        }
    }

    /// Returns how many files were copied.
    pub(super) fn files(&self) -> u64 {
        self.files
    }

    /// Runs `write`, which writes to standard error, while the bar is out of its way.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Returns about how many bytes of a file are not holes.
pub(super) fn stored_bytes(metadata: &extern4::Metadata) -> u64 {
    metadata.len().min(metadata.blocks().saturating_mul(512).max(metadata.len() % 4096))
}
