//! The state of examined and damaged groups: [`Trust`] in each bitmap, and the free blocks on
//! [`Offer`].
//!
//! `block_allocator` keeps it, and `set_aside` changes it and has the rules.

#[cfg(all(test, feature = "loom"))]
mod loom_tests;

use extern4_disk::Corrupt;
use extern4_sync::primitive::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};

/// Whether a bitmap of a group is right, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It has not been read yet.
    Unexamined,
    /// It agrees with its descriptor, and is kept so.
    Sound,
    /// It is wrong, so nothing of the group is allocated or freed.
    SetAside,
}

/// The free blocks that operations can reserve.
///
/// # Shared memory
/// Each operation writes `free`, so both are on one cache line. `unexamined` changes once a group.
/// A thread that sets a group aside lowers `free` first and `unexamined` after it, with Release. A
/// thread that reserves loads `unexamined` with Acquire, and then changes `free`. So if it misses
/// one of the two, it is the second: it takes too many blocks for unexamined, never too few.
pub(crate) struct Offer {
    /// The blocks that no operation has reserved, in groups that are not set aside. Negative while
    /// more are reserved than such groups have.
    free: AtomicU64,
    /// How many of them are in groups whose bitmap has not been examined.
    unexamined: AtomicU64,
}

impl Offer {
    /// Returns the offer of `blocks` blocks in groups that have not been examined.
    pub(crate) fn new(blocks: u64) -> Self {
        Self {
            free: AtomicU64::new(blocks),
            unexamined: AtomicU64::new(blocks),
        }
    }

    /// Reserves blocks in groups that have been examined. Returns false if they have fewer
    /// beyond the `least` that have to be left.
    pub(crate) fn take(&self, blocks: u64, least: u64) -> bool {
        let least = least.max(self.unexamined.load(Ordering::Acquire));
        // Relaxed: apart from the order with `unexamined`, the number orders no other memory.
        let take = |free| rest(free, blocks, least);
        self.free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }

    /// Whether all groups together would have these blocks if there were `more`.
    pub(crate) fn could_take(&self, blocks: u64, least: u64, more: u64) -> bool {
        rest(
            self.free.load(Ordering::Relaxed).wrapping_add(more),
            blocks,
            least,
        )
        .is_some()
    }

    /// Gives blocks back that were reserved, or offers blocks that were released.
    pub(crate) fn give(&self, blocks: u64) {
        self.free.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Takes blocks of an examined group from the offer, even if they are reserved.
    pub(crate) fn withdraw(&self, blocks: u64) {
        self.free.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// Notes that blocks are in a group that has been examined now.
    pub(crate) fn note_examined(&self, blocks: u64) {
        self.unexamined.fetch_sub(blocks, Ordering::Release);
    }
}

/// The progress of examining groups, and the faults that it has found.
#[derive(Default)]
pub(crate) struct Examination {
    /// All groups before this one have been examined.
    pub(crate) first_left: AtomicU32,
    /// There may be faults that no operation has recorded.
    pub(crate) has_faults: AtomicBool,
    /// Locks: innermost, under a group's.
    pub(crate) faults: Mutex<Vec<Corrupt>>,
}

/// Returns how many of `free` blocks are left after `blocks` are taken; `None` if fewer than
/// `least`. `free` is a wrapped number that may be negative.
fn rest(free: u64, blocks: u64, least: u64) -> Option<u64> {
    let free = u64::try_from(free.cast_signed()).ok()?;
    free.checked_sub(blocks).filter(|&rest| rest >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_promises_no_more_than_examined_groups_have() {
        let offer = Offer::new(100);
        assert!(!offer.take(1, 0) && offer.could_take(100, 0, 0) && !offer.could_take(101, 0, 0));
        offer.note_examined(60);
        assert!(offer.take(50, 30) && !offer.take(11, 0) && offer.take(10, 0));
        // The group of these blocks is set aside, while all of them are reserved.
        offer.withdraw(60);
        offer.note_examined(40);
        assert!(!offer.take(1, 0) && !offer.could_take(1, 0, 20) && offer.could_take(1, 0, 21));
        offer.give(60);
        assert!(offer.take(10, 30) && !offer.take(1, 30));
    }
}
