//! The process that opened something.
//!
//! A child made by `fork(2)` has copies of all memory, but of the threads only the one that forked. What its parent opened is not the child's to
//! write, to unlock or to wait for.

/// The number of the process that opened something.
#[derive(Clone, Copy, Debug)]
pub struct Opener(u32);

impl Opener {
    /// This process.
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this process is the opener, and not a child that inherited the memory.
    pub fn is_here(self) -> bool {
        self.0 == std::process::id()
    }
}
