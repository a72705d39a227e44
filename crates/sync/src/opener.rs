//! The process that opened something.
//!
//! A child of `fork(2)` has copies of all memory, but only the thread that forked. It must not
//! write, unlock or wait for the things that its parent opened.
//!
//! Devices, journals, file systems and superblocks remember their opener, and do none of this in a
//! child.

/// The id of the process that opened something.
#[derive(Clone, Copy, Debug)]
pub struct Opener(u32);

impl Opener {
    /// Returns the id of this process.
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// Returns whether this process is the opener, and not a forked child of it.
    pub fn is_here(self) -> bool {
        self.0 == std::process::id()
    }
}
