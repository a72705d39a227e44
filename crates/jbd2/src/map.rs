//! The map from the blocks of a journal to the blocks of its device.
//!
//! `ext4` makes it from the journal inode's extents, and `Journal` looks each block up here. Runs
//! ascend and do not overlap. A journal whose ring has holes is refused when it is opened.

use extern4_disk::{Corrupt, CorruptKind, Place, Structure};

/// A run of journal blocks that are contiguous on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first block, counted in the journal.
    pub logical: u32,
    /// The block of the device that holds it.
    pub physical: u64,
    /// Number of blocks, at least 1.
    pub len_blocks: u32,
}

impl Run {
    fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.len_blocks)
    }
}

/// The map from the blocks of a journal to the blocks of its device: ascending runs that do not
/// overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalMap {
    runs: Vec<Run>,
}

impl JournalMap {
    /// Returns the map of a journal inode, from the extents (or indirect blocks) of that inode, in
    /// ascending order.
    ///
    /// # Errors
    /// If runs overlap, are out of order, or are empty.
    pub fn new(runs: Vec<Run>) -> Result<Self, Corrupt> {
        let place = Place::new(Structure::JournalSuperblock);
        for run in &runs {
            let end = run.physical.checked_add(u64::from(run.len_blocks));
            if run.len_blocks == 0 || run.end() > 1 << 32 || end.is_none() {
                return Err(place.corrupt(CorruptKind::Mismatch {
                    what: "a run of the journal overflows",
                }));
            }
        }
        if runs
            .windows(2)
            .any(|pair| pair[0].end() > u64::from(pair[1].logical))
        {
            return Err(place.corrupt(CorruptKind::Order {
                what: "runs of the journal",
            }));
        }
        Ok(Self { runs })
    }

    /// Returns the map of an external journal, whose blocks are the blocks of its device.
    pub fn identity(len_blocks: u32) -> Self {
        Self {
            runs: vec![Run {
                logical: 0,
                physical: 0,
                len_blocks,
            }],
        }
    }

    /// Returns the block of the device that is block `index` of the journal; `None` in a hole or
    /// behind the end.
    pub fn lookup(&self, index: u32) -> Option<u64> {
        let after = self.runs.partition_point(|run| run.logical <= index);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let offset = index - run.logical;
        (offset < run.len_blocks).then(|| run.physical + u64::from(offset))
    }

    /// Returns whether the first `len_blocks` blocks of the journal are all mapped.
    pub fn covers(&self, len_blocks: u32) -> bool {
        let reached = self.runs.iter().try_fold(0, |reached, run| {
            if u64::from(run.logical) == reached {
                Ok(run.end())
            } else {
                Err(reached)
            }
        });
        reached.unwrap_or_else(|reached| reached) >= u64::from(len_blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(logical: u32, physical: u64, len_blocks: u32) -> Run {
        Run {
            logical,
            physical,
            len_blocks,
        }
    }

    #[test]
    fn looks_up_in_runs_and_not_in_holes() {
        let map =
            JournalMap::new(vec![run(0, 100, 3), run(3, 50, 2), run(6, 7, 1)]).expect("sound");
        let found: Vec<_> = (0..8).map(|index| map.lookup(index)).collect();
        assert_eq!(
            found,
            [
                Some(100),
                Some(101),
                Some(102),
                Some(50),
                Some(51),
                None,
                Some(7),
                None
            ]
        );
        assert!(map.covers(5) && !map.covers(6) && !map.covers(7));
        assert_eq!(JournalMap::identity(9).lookup(8), Some(8));
        assert_eq!(JournalMap::new(vec![]).expect("sound").lookup(0), None);
    }

    #[test]
    fn refuses_what_cannot_be_a_map() {
        for runs in [
            vec![run(0, 0, 0)],
            vec![run(0, u64::MAX, 1)],
            vec![run(u32::MAX, 0, 2)],
            vec![run(0, 0, 2), run(1, 9, 1)],
            vec![run(5, 0, 2), run(0, 9, 1)],
        ] {
            assert!(JournalMap::new(runs.clone()).is_err(), "{runs:?}");
        }
    }
}
