//! [`Upgrade`]: the state that a volume opened for reading keeps so that it can be made writable.
//!
//! `remount` uses it: the device that can be switched, and a lock that excludes two upgrades, and
//! an upgrade and a close. An upgrade that fails half way leaves its error here, and the volume
//! then stays read-only.

use std::sync::{Arc, PoisonError};

use extern4_block::SuccessiveDevice;
use extern4_sync::primitive::Mutex;

use crate::error::Error;

/// The state for making a volume writable.
pub(crate) struct Upgrade {
    pub(crate) device: Arc<SuccessiveDevice>,
    /// Why the volume cannot be made writable any more, after it failed half way. Locks: held while
    /// the volume is made writable, and while it is closed.
    pub(crate) failed: Mutex<Option<Error>>,
}

impl Upgrade {
    pub(crate) fn new(device: Arc<SuccessiveDevice>) -> Self {
        Self {
            device,
            failed: Mutex::default(),
        }
    }

    /// Waits for an upgrade that is under way.
    pub(crate) fn wait(&self) {
        drop(self.failed.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
