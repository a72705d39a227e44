//! The state that lets a volume opened for reading be made writable.

use std::sync::{Arc, PoisonError};

use extern4_block::SuccessiveDevice;
use extern4_sync::primitive::Mutex;

use crate::error::Error;

/// The parts that a volume opened for reading keeps to be made writable.
pub(crate) struct Upgrade {
    pub(super) device: Arc<SuccessiveDevice>,
    /// Why the volume cannot be made writable any more, after it failed half way. Locks: held while
    /// the volume is made writable, and while it is closed.
    pub(super) failed: Mutex<Option<Error>>,
}

impl Upgrade {
    pub(crate) fn new(device: Arc<SuccessiveDevice>) -> Self {
        Self { device, failed: Mutex::default() }
    }

    /// Waits while the volume is being made writable.
    pub(crate) fn wait(&self) {
        drop(self.failed.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
