//! The progress of the suite, on a terminal.
//!
//! `run` and `source` report to it. It writes to standard error, and nothing where that is no
//! terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error if that is a terminal, else a hidden one.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        Self(ProgressBar::with_draw_target(
            Some(0),
            ProgressDrawTarget::stderr_with_hz(8),
        ))
    }

    /// Starts the bar for a copy of `bytes` bytes.
    pub(super) fn begin_copy(&self, bytes: u64) {
        self.begin("copying {bar:30} {bytes}/{total_bytes}", bytes);
    }

    /// Starts the bar for `steps` measurements.
    pub(super) fn begin_measuring(&self, steps: u64) {
        self.begin("{bar:30} {pos}/{len} eta {eta} {msg}", steps);
        self.0.enable_steady_tick(Duration::from_millis(250));
    }

    fn begin(&self, template: &str, steps: u64) {
        if self.0.is_hidden() {
            return;
        }
        self.0
            .set_style(ProgressStyle::with_template(template).expect("a template that is there"));
        self.0.reset();
        self.0.set_length(steps);
    }

    /// Shows the current activity.
    pub(super) fn doing(&self, what: impl FnOnce() -> String) {
        if !self.0.is_hidden() {
            self.0.set_message(what());
        }
    }

    /// Counts `steps` more as done.
    pub(super) fn done(&self, steps: u64) {
        self.0.inc(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
