//! Being told to end. The measuring ends then, and what was mounted and copied is taken away; who says it twice ends at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::{Failure, Result};
use crate::status::Status;

/// Whether the end was asked for.
#[derive(Clone)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens from now on.
    pub(super) fn listen() -> io::Result<Self> {
        let told = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first one finds that nobody has said so yet.
            flag::register_conditional_shutdown(signal, Status::Failed.code().into(), Arc::clone(&told))?;
            flag::register(signal, Arc::clone(&told))?;
        }
        Ok(Self(told))
    }

    /// Whether it was asked for.
    pub(super) fn is_told(&self) -> bool {
        // Relaxed: nothing else is known by it.
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once it was asked for.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_told() { Err(Failure::Stopped) } else { Ok(()) }
    }
}
