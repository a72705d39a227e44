//! The umask of the process, which `cp` clears while it copies to the host.

use rustix::fs::Mode;

/// Clears the umask of the process until it is dropped. New files get their modes in full
/// meanwhile, so that a file never has more rights than it ends with.
pub(super) struct ClearedUmask(Mode);

impl ClearedUmask {
    pub(super) fn new() -> Self {
        Self(rustix::process::umask(Mode::empty()))
    }

    /// Returns the umask from before.
    pub(super) fn bits(&self) -> u32 {
        self.0.as_raw_mode()
    }
}

impl Drop for ClearedUmask {
    fn drop(&mut self) {
        rustix::process::umask(self.0);
    }
}
