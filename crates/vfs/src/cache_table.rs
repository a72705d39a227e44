//! A bounded hash table with second chances: the form both caches share.
//!
//! Entries live in a slab and are found by hash. When the table is full, a hand goes round the slab and asks of each
//! entry whether it may go; hits only set a bit in the entry, so that finding changes nothing here.

use hashbrown::HashTable;

/// What the owner of the table says of an entry under the hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    Evict,
}

pub(crate) struct CacheTable<E> {
    index: HashTable<usize>,
    slots: Vec<Option<(u64, E)>>,
    free: Vec<usize>,
    hand: usize,
}

/// Slots the hand looks at, and entries it evicts, for each entry that comes to a full table. It evicts more than come
/// so that a table that grew while its entries were pinned shrinks again.
const SWEEP_SLOTS: usize = 64;
const SWEEP_EVICTIONS: usize = 4;

impl<E> CacheTable<E> {
    pub(crate) fn new() -> Self {
        Self { index: HashTable::new(), slots: Vec::new(), free: Vec::new(), hand: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn find(&self, hash: u64, is: impl Fn(&E) -> bool) -> Option<&E> {
        let slot = *self.index.find(hash, |&slot| self.slot_is(slot, hash, &is))?;
        self.slots[slot].as_ref().map(|(_, entry)| entry)
    }

    /// Adds an entry; the caller knows that it is not there yet.
    pub(crate) fn insert(&mut self, hash: u64, entry: E) {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(Some((hash, entry)));
        } else {
            self.slots[slot] = Some((hash, entry));
        }
        let slots = &self.slots;
        self.index.insert_unique(hash, slot, |&slot| slots[slot].as_ref().map_or(0, |(hash, _)| *hash));
    }

    pub(crate) fn remove(&mut self, hash: u64, is: impl Fn(&E) -> bool) -> Option<E> {
        let slots = &self.slots;
        let found = self.index.find_entry(hash, |&slot| match &slots[slot] {
            Some((other, entry)) => *other == hash && is(entry),
            None => false,
        });
        let (slot, _) = found.ok()?.remove();
        self.free.push(slot);
        self.slots[slot].take().map(|(_, entry)| entry)
    }

    /// Lets the hand go round while more than `limit` entries are there, as far as [`SWEEP_SLOTS`] allows. What is
    /// evicted goes to `evicted`, so that the caller drops it outside of its lock.
    pub(crate) fn reclaim(&mut self, limit: usize, evicted: &mut Vec<E>, judge: impl FnMut(&E) -> Verdict) {
        if self.len() > limit {
            self.sweep(SWEEP_SLOTS, SWEEP_EVICTIONS.min(self.len() - limit + 1), evicted, judge);
        }
    }

    /// Looks at `steps` slots and evicts up to `most` entries.
    pub(crate) fn sweep(
        &mut self,
        steps: usize,
        most: usize,
        evicted: &mut Vec<E>,
        mut judge: impl FnMut(&E) -> Verdict,
    ) {
        let goal = evicted.len() + most;
        for _ in 0..steps.min(self.slots.len()) {
            let slot = self.hand;
            self.hand = if slot + 1 < self.slots.len() { slot + 1 } else { 0 };
            if let Some((hash, entry)) = &self.slots[slot]
                && judge(entry) == Verdict::Evict
            {
                let found = self.index.find_entry(*hash, |&other| other == slot);
                found.expect("each entry in the slab is in the index").remove();
                self.free.push(slot);
                evicted.extend(self.slots[slot].take().map(|(_, entry)| entry));
                if evicted.len() == goal {
                    return;
                }
            }
        }
    }

    /// Number of slots, the free ones included: how many steps a full round takes.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    fn slot_is(&self, slot: usize, hash: u64, is: &impl Fn(&E) -> bool) -> bool {
        self.slots[slot].as_ref().is_some_and(|(other, entry)| *other == hash && is(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_inserted_among_equal_hashes() {
        let mut table = CacheTable::new();
        for entry in 0..100u32 {
            table.insert(u64::from(entry % 3), entry);
        }
        assert_eq!(table.find(1, |&e| e == 40), Some(&40));
        assert_eq!(table.remove(1, |&e| e == 40), Some(40));
        assert_eq!(table.find(1, |&e| e == 40), None);
        assert_eq!(table.len(), 99);
        table.insert(1, 400);
        assert_eq!((table.find(1, |&e| e == 400), table.slots()), (Some(&400), 100));
    }

    #[test]
    fn the_hand_keeps_the_table_at_its_limit_and_spares_who_must_stay() {
        let mut table = CacheTable::new();
        let mut evicted = Vec::new();
        for entry in 0..1000u64 {
            table.insert(entry, entry);
            let judge = |e: &u64| if *e < 10 { Verdict::Keep } else { Verdict::Evict };
            table.reclaim(100, &mut evicted, judge);
            assert!(table.len() <= 101);
        }
        assert!((0..10).all(|e| table.find(e, |&other| other == e).is_some()));
        assert_eq!(evicted.len() + table.len(), 1000);
    }
}
