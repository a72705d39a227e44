//! The state of a volume: whether it was unmounted, and what is left to do.
//!
//! `Info` has it. A checker decides by it whether a volume needs a check.

use std::fmt;

use extern4_disk::feature::Incompat;
use extern4_disk::superblock;

use crate::volume::Volume;

/// The state of a volume. Its text is in the words of dumpe2fs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Whether it was unmounted.
    pub is_clean: bool,
    /// Whether errors were found on it.
    pub has_errors: bool,
    /// Whether orphans were being deleted.
    pub deletes_orphans: bool,
    /// Whether its journal has to be replayed. The open volume is seen as if it were.
    pub needs_replay: bool,
}

impl State {
    /// Returns the state that a volume had when it was opened.
    pub fn of(volume: &Volume) -> Self {
        let superblock = volume.ext4().superblock();
        let state = superblock.state();
        // A copy of the superblock does not tell that the journal has to be replayed.
        let is_replayed = volume.ext4().replayed().is_some();
        Self {
            is_clean: state.contains(superblock::State::VALID),
            has_errors: state.contains(superblock::State::ERROR),
            deletes_orphans: state.contains(superblock::State::ORPHANS),
            needs_replay: is_replayed || superblock.features().incompat.contains(Incompat::RECOVER),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_clean { "clean" } else { "not clean" })?;
        for (is_so, text) in [
            (self.has_errors, " with errors"),
            (self.deletes_orphans, ", deleting orphans"),
            (self.needs_replay, ", journal to be replayed"),
        ] {
            if is_so {
                f.write_str(text)?;
            }
        }
        Ok(())
    }
}
