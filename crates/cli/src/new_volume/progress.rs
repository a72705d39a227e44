//! The progress of a build: a bar on a terminal, or lines elsewhere.
//!
//! `filling` updates it. It writes to standard error. If standard error is no terminal, it writes
//! nothing unless the user asks for it.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use extern4::build::Progress;
use indicatif::{BinaryBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::app::message_of;

/// When to show the progress.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// If standard error is a terminal
    Auto,
    /// Always; as lines if standard error is no terminal
    Always,
    /// Never
    Never,
}

/// Steps of lines, in per cent.
const STEP: u64 = 10;

/// Shows how far a build is.
pub(crate) enum Shown {
    Nothing,
    Bar(ProgressBar),
    /// Lines, of which this many have told of the writing.
    Lines(AtomicU64),
}

impl Shown {
    pub(crate) fn new(when: When) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        match when {
            When::Auto | When::Always if is_terminal => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
                bar.set_style(style("{spinner} {pos} entries read"));
                bar.enable_steady_tick(Duration::from_millis(250));
                Self::Bar(bar)
            }
            When::Always => Self::Lines(AtomicU64::new(0)),
            When::Auto | When::Never => Self::Nothing,
        }
    }

    /// Shows the progress.
    pub(crate) fn update(&self, progress: Progress) {
        match (self, progress) {
            (Self::Bar(bar), Progress::Reading { entries } | Progress::Comparing { entries }) => {
                bar.set_position(entries);
            }
            (Self::Bar(bar), Progress::Writing { bytes, total } | Progress::Hashing { bytes, total }) => {
                if bar.length() != Some(total) {
                    bar.set_length(total);
                    bar.set_style(style("{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} eta {eta}"));
                    bar.reset();
                }
                bar.set_position(bytes);
            }
            (Self::Lines(told), Progress::Writing { bytes, total }) => {
                let step = bytes * 100 / total.max(1) / STEP;
                // Relaxed: the number guards no other data.
                if told.fetch_max(step, Ordering::Relaxed) < step {
                    let text = format!("{} % of {} written", step * STEP, BinaryBytes(total));
                    eprintln!("{}", message_of("build", text));
                }
            }
            _ => {}
        }
    }

    /// Runs `write`, which writes to standard error, while the bar is out of its way.
    pub(crate) fn suspend(&self, write: impl FnOnce()) {
        match self {
            Self::Bar(bar) => bar.suspend(write),
            _ => write(),
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template that is there")
}
