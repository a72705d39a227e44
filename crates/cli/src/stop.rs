//! Signals that end a command.
//!
//! The first signal asks the command to end: it stops between two files or pieces of one, and
//! closes its volume. The exit code tells of the signal. A second signal ends the process at once,
//! and leaves the volume as after a crash. SIGUSR1 ends nothing: the command prints how far it is.
//!
//! Commands that take long listen through `app`, and ask between two files.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::cmd::mount::is_hangup_ignored;
use crate::progress::Progress;

/// The signal that has asked the command to end, or 0.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicI32>);

impl Stop {
    /// Waits for signals in a thread. The thread calls `first` with the first that ends the
    /// command.
    pub(crate) fn listen(progress: &Progress, first: impl Fn(i32) + Send + 'static) -> io::Result<Self> {
        let handled = [SIGHUP, SIGINT, SIGTERM, SIGUSR1].into_iter();
        let mut signals = Signals::new(handled.filter(|signal| *signal != SIGHUP || !is_hangup_ignored()))?;
        let progress = progress.clone();
        let stop = Self::default();
        let told = stop.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if signal == SIGUSR1 {
                    progress.tell();
                    continue;
                }
                // Relaxed: the number guards no other data.
                if told.0.swap(signal, Ordering::Relaxed) != 0 {
                    std::process::exit(code(signal).into());
                }
                first(signal);
            }
        })?;
        Ok(stop)
    }

    /// Returns the signal that has asked the command to end.
    pub(crate) fn signal(&self) -> Option<i32> {
        // Relaxed: see `listen`.
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// Returns whether the command goes on.
    pub(crate) fn check(&self) -> ControlFlow<()> {
        if self.signal().is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Forgets the signal, for a program that goes on with the next command.
    pub(crate) fn clear(&self) {
        // Relaxed: see `listen`.
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Returns the exit code that a shell reports for a signal.
pub(crate) fn code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
