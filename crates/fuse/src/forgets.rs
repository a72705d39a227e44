//! FORGETs: the kernel's messages that it no longer knows a node.
//!
//! The kernel sends them without waiting for an answer, and the blocks of a removed file are free
//! only after its FORGET. A request that needs those blocks first handles the waiting FORGETs:
//!
//! 1. A thread that reads from the kernel holds the lock shared from before it reads a FORGET until
//!    it has forgotten the nodes.
//! 2. [`drain`](Forgets::drain) reads waiting FORGETs itself, and then takes the lock exclusively.
//!    So it returns when each FORGET that any thread read before is handled.
//!
//! `Server` and its handlers call it for requests that need free space, for example after `ENOSPC`.

use extern4_sync::biased_rwlock::{BiasedReadGuard, BiasedRwLock};
use extern4_sync::primitive::OnceLock;

/// Reads the kernel's FORGETs, and forgets the nodes here.
type Reader = Box<dyn Fn(Drain) + Send + Sync>;

/// How many of the kernel's waiting messages to read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    /// All of them: a caller of another request may have to wait longer meanwhile.
    All,
    /// All up to the first request that needs an answer. As a rule, each FORGET comes before that.
    UntilRequest,
}

/// The FORGETs of one mount.
pub(crate) struct Forgets {
    /// Set once requests come.
    reader: OnceLock<Reader>,
    handling: BiasedRwLock<()>,
}

impl Forgets {
    pub(crate) fn new() -> Self {
        Self {
            reader: OnceLock::new(),
            handling: BiasedRwLock::new(()),
        }
    }

    /// Sets the function that reads FORGETs.
    pub(crate) fn set_reader(&self, reader: impl Fn(Drain) + Send + Sync + 'static) {
        // A server serves one mount, so this is the only call.
        let _ = self.reader.set(Box::new(reader));
    }

    /// Marks that the calling thread reads from the kernel, and then forgets nodes.
    pub(crate) fn handle(&self) -> BiasedReadGuard<'_, ()> {
        self.handling.read()
    }

    /// Handles the FORGETs that the kernel has sent until now, as many as `drain` says.
    pub(crate) fn drain(&self, drain: Drain) {
        if let Some(read) = self.reader.get() {
            read(drain);
        }
        self.wait();
    }

    /// Waits until the FORGETs that other threads have read are handled.
    pub(crate) fn wait(&self) {
        drop(self.handling.write());
    }
}
