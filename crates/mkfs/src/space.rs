//! [`Space`]: the blocks of a new volume that are in use.
//!
//! `Draft` and `layout` find free runs in it and mark blocks as used; `plan` makes bitmaps from it.
//! It has memory for runs, not for blocks, so a large volume costs no more than a small one.
//! Callers take only blocks that are free.

use std::collections::BTreeMap;

/// The blocks in use, as runs by start and end. Adjacent runs are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    runs: BTreeMap<u64, u64>,
}

impl Space {
    /// Marks `len` blocks from `start` on as used. The caller makes sure that they are free.
    pub(crate) fn take(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut from = start;
        let mut to = start + len;
        if let Some((&before, &end)) = self.runs.range(..start).next_back()
            && end >= start
        {
            from = before;
            to = to.max(end);
        }
        if let Some(end) = self.runs.remove(&to) {
            to = end;
        }
        self.runs.insert(from, to);
    }

    /// Returns the start of the first run of `len` free blocks in `from..end`.
    pub(crate) fn find(&self, len: u64, from: u64, end: u64) -> Option<u64> {
        let mut at = from;
        if let Some((_, &used)) = self.runs.range(..=from).next_back() {
            at = at.max(used);
        }
        for (&start, &used) in self.runs.range(from + 1..end.max(from + 1)) {
            if at + len <= start {
                break;
            }
            at = at.max(used);
        }
        (at + len <= end).then_some(at)
    }

    /// Returns how many blocks of `start..end` are in use.
    pub(crate) fn used_in(&self, start: u64, end: u64) -> u64 {
        self.runs_in(start, end).map(|(from, to)| to - from).sum()
    }

    /// Returns the runs in use in `start..end`, cut to it.
    pub(crate) fn runs_in(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.runs.range(..start).next_back();
        before
            .into_iter()
            .chain(self.runs.range(start..end.max(start)))
            .map(move |(&from, &to)| (from.max(start), to.min(end)))
            .filter(|(from, to)| from < to)
    }

    /// Returns the free runs in `start..end` by start and length.
    pub(crate) fn free_in(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut at = start;
        let used = self.runs_in(start, end).chain(std::iter::once((end, end)));
        used.filter_map(move |(from, to)| {
            let free = (at, from - at);
            at = to;
            (free.1 > 0).then_some(free)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(
            asked in prop::collection::vec((1u64..9, 0u64..60), 0..40),
            window in (0u64..64, 0u64..64),
        ) {
            let mut space = Space::default();
            let mut bits = [false; 64];
            for (len, from) in asked {
                let fits = |at: &u64| bits[*at as usize..(*at + len) as usize].iter().all(|bit| !bit);
                let expected = (from..=64u64.saturating_sub(len)).find(fits);
                let found = space.find(len, from, 64);
                prop_assert_eq!(found, expected);
                if let Some(at) = found {
                    space.take(at, len);
                    bits[at as usize..(at + len) as usize].fill(true);
                }
            }
            let start = window.0.min(window.1);
            let end = window.0.max(window.1);
            let used = bits[start as usize..end as usize].iter().filter(|bit| **bit).count();
            prop_assert_eq!(space.used_in(start, end), used as u64);
            let free: Vec<u64> = space.free_in(start, end).flat_map(|(at, len)| at..at + len).collect();
            prop_assert_eq!(free, (start..end).filter(|at| !bits[*at as usize]).collect::<Vec<_>>());
        }
    }
}
