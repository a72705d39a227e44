//! Reports of losses: changes that can no longer be made durable.
//!
//! The committer, the guard of multiple mount protection and a close without a caller report to
//! [`Losses`], because no call of the user is there to return the error. The user's callback
//! ([`OnLoss`], an open option) gets the reason on the thread that met it.

use std::fmt;
use std::sync::Arc;

use extern4_sync::primitive::AtomicBool;
use extern4_sync::primitive::Ordering::Relaxed;

/// A callback for losses. It gets the reason, on the thread that met it, and must not use the
/// volume.
#[derive(Clone)]
pub struct OnLoss(Arc<dyn Fn(&str) + Send + Sync>);

impl OnLoss {
    /// Wraps a closure.
    pub fn new(callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }
}

impl fmt::Debug for OnLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLoss")
    }
}

/// Reports losses of one volume.
pub(crate) struct Losses {
    callback: Option<OnLoss>,
    any: AtomicBool,
}

impl Losses {
    pub(crate) fn new(callback: Option<OnLoss>) -> Arc<Self> {
        Arc::new(Self { callback, any: AtomicBool::new(false) })
    }

    /// Reports a loss.
    pub(crate) fn report(&self, why: impl fmt::Display) {
        // Relaxed: `any` is called after all changes, by the thread that closes the volume.
        self.any.store(true, Relaxed);
        if let Some(OnLoss(callback)) = &self.callback {
            callback(&why.to_string());
        }
    }

    /// Whether a loss has been reported.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }
}
