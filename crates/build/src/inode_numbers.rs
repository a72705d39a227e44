//! The inode numbers of all files.
//!
//! `layout` assigns the numbers once, and all later steps of the build read them. No two inodes
//! have the same number. The same tree and the same earlier volume give the same numbers.

use std::collections::HashSet;
use std::ops::Range;

use extern4_disk::inode::ROOT_INO;
use extern4_mkfs::LOST_FOUND_INO;

use crate::old_layout::Precedent;
use crate::tree::{Order, Tree};

/// The inode numbers of all files of a tree: the numbers that an earlier volume gave them, and
/// otherwise the lowest that are free, in the order of the files.
#[derive(Debug, Default)]
pub(crate) struct InodeNumbers {
    /// By the inode in the tree; 0 for one without a name.
    numbers: Vec<u32>,
    /// The inodes in the tree, in the order of their numbers.
    sorted: Vec<u32>,
}

impl InodeNumbers {
    /// Chooses from `available` numbers, which are at least as many as the tree needs.
    pub(crate) fn assign(
        tree: &Tree,
        order: &Order,
        old: Option<&Precedent>,
        available: Range<u32>,
    ) -> Self {
        let mut numbers = vec![0; tree.nodes()];
        numbers[0] = ROOT_INO;
        numbers[order.lost_found as usize] = LOST_FOUND_INO;
        let mut kept = HashSet::new();
        if let Some(old) = old {
            let is_fixed = |inode: &&u32| [0, order.lost_found].contains(*inode);
            for &inode in order.inodes.iter().filter(|inode| !is_fixed(inode)) {
                let number = old
                    .number(inode)
                    .filter(|number| available.contains(number));
                if let Some(number) = number.filter(|number| kept.insert(*number)) {
                    numbers[inode as usize] = number;
                }
            }
        }
        let mut free = available.filter(|number| !kept.contains(number));
        for &inode in &order.inodes {
            let number = &mut numbers[inode as usize];
            if *number == 0 {
                *number = free.next().unwrap_or_default();
            }
        }
        let mut sorted = order.inodes.clone();
        sorted.sort_unstable_by_key(|inode| numbers[*inode as usize]);
        Self { numbers, sorted }
    }

    /// The number of an inode in the tree.
    pub(crate) fn of(&self, inode: u32) -> u32 {
        self.numbers[inode as usize]
    }

    /// The inodes in the tree whose numbers are in `range`, in the order of the numbers.
    pub(crate) fn within(&self, range: Range<u32>) -> &[u32] {
        let at = |end: u32| self.sorted.partition_point(|inode| self.of(*inode) < end);
        &self.sorted[at(range.start)..at(range.end)]
    }

    /// The first number in use from `number` on.
    pub(crate) fn next(&self, number: u32) -> Option<u32> {
        self.within(number..u32::MAX)
            .first()
            .map(|inode| self.of(*inode))
    }

    /// Runs of all numbers in use, with those before `first_ino`, which are the file system's own.
    pub(crate) fn runs(&self, first_ino: u32) -> Vec<(u64, u64)> {
        let mut runs = vec![(1, u64::from(first_ino))];
        for number in self
            .within(first_ino..u32::MAX)
            .iter()
            .map(|inode| u64::from(self.of(*inode)))
        {
            match runs.last_mut() {
                Some((_, behind)) if *behind == number => *behind += 1,
                _ => runs.push((number, number + 1)),
            }
        }
        runs
    }
}
