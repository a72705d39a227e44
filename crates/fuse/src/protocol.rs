//! The version and the features on which kernel and server have agreed.
//!
//! INIT sets them once, before the kernel sends another request, and they never change. The
//! handlers and the session maker read them without a lock to learn which form of a request or an
//! answer applies.

use extern4_sync::primitive::OnceLock;

use crate::abi::Features;

/// The agreement. Each part is set once, before the kernel sends other requests.
pub(crate) struct Protocol {
    features: OnceLock<Features>,
    /// Bytes that a request carries through the rings that exist, to be used if the kernel agrees.
    rings: OnceLock<Option<usize>>,
}

impl Protocol {
    pub(crate) fn new() -> Self {
        Self {
            features: OnceLock::new(),
            rings: OnceLock::new(),
        }
    }

    /// Records the features that were agreed on; the first call counts.
    pub(crate) fn agree(&self, features: Features) -> Features {
        *self.features.get_or_init(|| features)
    }

    /// Returns whether kernel and server have agreed on a feature.
    pub(crate) fn has(&self, feature: Features) -> bool {
        self.features
            .get()
            .is_some_and(|agreed| agreed.contains(feature))
    }

    /// Records how much a request carries through rings, if there are any, before INIT.
    pub(crate) fn set_rings(&self, rings: Option<usize>) {
        // A server serves one mount.
        let _ = self.rings.set(rings);
    }

    /// Returns how much a request carries through rings, if there are any to be used.
    pub(crate) fn rings(&self) -> Option<usize> {
        self.rings.get().copied().flatten()
    }
}
