//! The progress of an export, and the end that a signal asks for.
//!
//! `export` follows its archives and layouts with it, and `tar` the archives that it makes.

use std::ops::ControlFlow;

use extern4::export::ExportObserver;

use crate::app::App;
use crate::progress::{Task, Unit};
use crate::stop::Stop;

/// How far an archive is, and whether the command goes on with it.
pub(in crate::cmd) struct Pace {
    task: Task,
    stop: Stop,
    /// The files that the output cannot have: their paths below the top, and why.
    pub(super) left_out: Vec<(Vec<u8>, &'static str)>,
}

impl Pace {
    pub(in crate::cmd) fn begin(verb: &'static str, app: &mut App) -> Self {
        Self {
            task: app.begin_task(Unit::bytes(verb), false),
            stop: app.stop_on_signals(),
            left_out: Vec::new(),
        }
    }
}

impl ExportObserver for Pace {
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
        self.stop.check()
    }

    fn left_out(&mut self, path: &[u8], reason: &'static str) {
        self.left_out.push((path.to_vec(), reason));
    }
}
