//! Losses: changes that cannot be made durable any more, and the caller that is told of them.

use std::fmt;
use std::sync::Arc;

use extern4_sync::primitive::AtomicBool;
use extern4_sync::primitive::Ordering::Relaxed;

/// Called with the reason of each loss, on the thread that met it. It must not use the volume.
#[derive(Clone)]
pub struct OnLoss(Arc<dyn Fn(&str) + Send + Sync>);

impl OnLoss {
    /// Wraps a closure.
    pub fn new(told: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }
}

impl fmt::Debug for OnLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLoss")
    }
}

/// Reports losses of one volume.
pub(crate) struct Losses {
    told: Option<OnLoss>,
    any: AtomicBool,
}

impl Losses {
    pub(crate) fn new(told: Option<OnLoss>) -> Arc<Self> {
        Arc::new(Self { told, any: AtomicBool::new(false) })
    }

    /// Reports a loss.
    pub(crate) fn report(&self, why: impl fmt::Display) {
        // Relaxed: a caller that asks comes after all changes.
        self.any.store(true, Relaxed);
        if let Some(OnLoss(told)) = &self.told {
            told(&why.to_string());
        }
    }

    /// Whether one has been reported.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }
}
