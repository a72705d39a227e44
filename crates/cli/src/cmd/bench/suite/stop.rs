//! Requests to stop the suite, by SIGINT, SIGTERM or SIGHUP.
//!
//! The first signal ends the measuring, and the suite removes its mounts and copies. A second
//! signal ends the process at once. `run` and the measures ask the flag between two steps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::{Result, SuiteError};
use crate::exit_status::ExitStatus;

/// A flag that a signal sets.
#[derive(Clone)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Registers the signal handlers.
    pub(super) fn listen() -> io::Result<Self> {
        let told = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The order matters: at the first signal, the first handler finds the flag still unset.
            flag::register_conditional_shutdown(
                signal,
                ExitStatus::Failed.code().into(),
                Arc::clone(&told),
            )?;
            flag::register(signal, Arc::clone(&told))?;
        }
        Ok(Self(told))
    }

    /// Returns whether a signal has come.
    pub(super) fn is_told(&self) -> bool {
        // Relaxed: the flag guards no other data.
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once a signal has come.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_told() {
            Err(SuiteError::Stopped)
        } else {
            Ok(())
        }
    }
}
