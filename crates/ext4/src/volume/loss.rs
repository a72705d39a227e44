//! Reports to the user of a volume in use: losses, which are changes that can no longer be made
//! durable, and warnings, which are faults that do not prevent anything else.
//!
//! The committer, the guard of multiple mount protection and a close without a caller report to
//! [`Losses`], because no call of the user is there to return the error. Damage that an operation
//! passes over goes to [`Warnings`]. The user's callback ([`Listener`], an open option) gets the
//! text on the thread that met it.

use std::fmt;
use std::sync::{Arc, PoisonError};

use extern4_sync::primitive::Ordering::Relaxed;
use extern4_sync::primitive::{AtomicBool, Mutex};

/// A callback for losses or warnings. It gets the text, on the thread that met the fault, and must
/// not use the volume.
#[derive(Clone)]
pub struct Listener(Arc<dyn Fn(&str) + Send + Sync>);

impl Listener {
    /// Wraps a closure.
    pub fn new(callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(crate) fn tell(&self, text: &str) {
        (self.0)(text);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Reports losses of one volume.
pub(crate) struct Losses {
    callback: Option<Listener>,
    any: AtomicBool,
}

impl Losses {
    pub(crate) fn new(callback: Option<Listener>) -> Arc<Self> {
        Arc::new(Self {
            callback,
            any: AtomicBool::new(false),
        })
    }

    /// Reports a loss.
    pub(crate) fn report(&self, why: impl fmt::Display) {
        // Relaxed: `any` is called after all changes, by the thread that closes the volume.
        self.any.store(true, Relaxed);
        if let Some(callback) = &self.callback {
            callback.tell(&why.to_string());
        }
    }

    /// Whether a loss has been reported.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }
}

/// The faults of one volume that prevented nothing else.
pub(crate) struct Warnings {
    listener: Option<Listener>,
    /// All of them, in the order in which they were met. Locks: a leaf.
    all: Mutex<Vec<String>>,
}

impl Warnings {
    pub(crate) fn new(listener: Option<Listener>) -> Self {
        Self {
            listener,
            all: Mutex::default(),
        }
    }

    /// Keeps a fault that was met, and tells the listener. Does nothing for one that is known,
    /// since a volume is assembled again once its journal has been replayed.
    pub(crate) fn report(&self, warning: String) {
        {
            let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            if all.contains(&warning) {
                return;
            }
            all.push(warning.clone());
        }
        if let Some(listener) = &self.listener {
            listener.tell(&warning);
        }
    }

    /// Whether there is a listener.
    pub(crate) fn has_listener(&self) -> bool {
        self.listener.is_some()
    }

    /// Returns all faults so far.
    pub(crate) fn all(&self) -> Vec<String> {
        self.all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
