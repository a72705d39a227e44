//! How far a check is, for its caller.

use std::ops::ControlFlow;

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The pass that it is in.
    pub pass: Pass,
    /// The parts of the pass that are done.
    pub done: u64,
    /// All parts of the pass.
    pub total: u64,
}

/// A pass that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pass {
    /// Over the inodes, a group a part.
    Inodes,
    /// Over the directories, some of them a part.
    Directories,
    /// Over the bitmaps, a group a part.
    Bitmaps,
}

/// Gets the progress of a check, on any of its threads. A break ends the check with
/// [`Interrupted`].
pub type Watch<'w> = dyn Fn(Progress) -> ControlFlow<()> + Sync + 'w;

/// The caller has ended a check before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// How many faults were reported before.
    pub faults: u64,
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the check was interrupted")
    }
}

impl std::error::Error for Interrupted {}
