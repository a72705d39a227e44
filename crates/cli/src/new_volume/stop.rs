//! Signals that end a build: nothing is left of it, and the exit code tells of the signal.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cmd::mount::is_hangup_ignored;

/// The time in which the build can end by itself. It may be waiting for an archive on standard
/// input, which does not come.
const GRACE: Duration = Duration::from_secs(1);

/// The signal that has told the build to end, or 0.
#[derive(Clone)]
pub(crate) struct Stop(Arc<AtomicI32>);

impl Stop {
    /// Waits for signals in a thread. If the build does not end soon after one, the thread removes
    /// the unfinished file and ends the process.
    pub(crate) fn listen(unfinished: PathBuf) -> io::Result<Self> {
        let ending = [SIGHUP, SIGINT, SIGTERM].into_iter();
        let mut signals = Signals::new(ending.filter(|signal| *signal != SIGHUP || !is_hangup_ignored()))?;
        let stop = Self(Arc::new(AtomicI32::new(0)));
        let told = stop.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Relaxed: the number guards no other data.
                told.0.store(signal, Ordering::Relaxed);
                thread::sleep(GRACE);
                let _ = std::fs::remove_file(unfinished);
                std::process::exit(code(signal));
            }
        })?;
        Ok(stop)
    }

    /// Says whether the build goes on.
    pub(crate) fn check(&self) -> ControlFlow<()> {
        // Relaxed: see `listen`.
        if self.0.load(Ordering::Relaxed) == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Returns the exit code of a build that a signal has ended.
    pub(crate) fn code(&self) -> i32 {
        // Relaxed: see `listen`.
        code(self.0.load(Ordering::Relaxed))
    }
}

/// Returns the exit code that a shell reports for a signal.
fn code(signal: i32) -> i32 {
    128 + signal
}
