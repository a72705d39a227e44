//! Buckets of [`MbCache`](super::MbCache): a few entries with their marks, in one cache line.
//!
//! ```text
//! | 8 bits referenced, 8 full, 8 hand, 1 claimed | entry | entry | ... | entry |
//! ```
//!
//! A full bucket evicts an entry by the clock algorithm: entries that were used get a second
//! chance, and those marked full go first.
//!
//! Only [`MbCache`](super::MbCache) uses buckets. A thread inserts through a [`Claim`], which one
//! thread at a time has. Lookups and removals need no claim. An entry is one word, so each thread
//! finds it whole or not at all.

use extern4_sync::primitive::{AtomicU64, Ordering, capacity, thread};

/// The number of entries in a bucket.
pub(super) const SLOTS: usize = capacity(7, 2);
/// The number of words in a bucket.
pub(super) const WORDS: usize = 8;

/// Positions in a bucket's first word: bits of slots that were used, bits of slots that are full,
/// the clock's hand, and the claim of an inserting thread.
const REFERENCED: u32 = 0;
const FULL: u32 = 8;
const HAND: u32 = 16;
const HAND_BITS: u64 = 0xff << HAND;
const CLAIMED: u64 = 1 << 24;

/// The result of putting an entry in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    /// The number of entries in the other slots.
    pub(super) others: u32,
    /// An old entry was evicted.
    pub(super) evicts: bool,
}

/// A slot for a new entry.
struct Victim {
    slot: u32,
    /// The slot's entry, 0 if it is empty.
    entry: u64,
    /// The number of entries in the other slots.
    others: u32,
}

/// A bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket<'c> {
    marks: &'c AtomicU64,
    entries: &'c [AtomicU64; SLOTS],
}

impl<'c> Bucket<'c> {
    /// Returns the bucket that consists of `words`.
    #[inline]
    pub(super) fn of(words: &'c [AtomicU64]) -> Self {
        Self {
            marks: &words[0],
            entries: words[1..].first_chunk().expect("a line has room for all"),
        }
    }

    /// Returns the entry in a slot; 0 if the slot is empty, `None` if there is no such slot.
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> Option<u64> {
        // Acquire: pairs with the Release of `Claim::put` and `take`. A thread that finds the
        // entry, or finds it gone, sees what the other thread did before.
        Some(self.entries.get(slot)?.load(Ordering::Acquire))
    }

    /// Returns the slots marked full, as bits.
    #[inline]
    pub(super) fn full(&self) -> u64 {
        self.marks.load(Ordering::Relaxed) >> FULL
    }

    pub(super) fn find(&self, entry: u64) -> Option<usize> {
        // Acquire: as in `entry`.
        self.entries
            .iter()
            .position(|word| word.load(Ordering::Acquire) == entry)
    }

    /// Notes that the entry in a slot was used.
    #[inline]
    pub(super) fn touch(&self, slot: usize, entry: u64) {
        self.mark(slot, entry, REFERENCED, true);
    }

    /// Sets or clears the mark of a full entry, if the entry is in.
    pub(super) fn set_full(&self, entry: u64, full: bool) {
        if let Some(slot) = self.find(entry) {
            self.mark(slot, entry, FULL, full);
        }
    }

    /// Returns the empty slots, as bits. The loop reads all slots: a CPU cannot predict the first
    /// empty one, and a misprediction costs more.
    #[inline]
    fn empty_slots(&self) -> u64 {
        let words = self.entries.iter().enumerate();
        words.fold(0, |slots, (slot, word)| {
            slots | u64::from(word.load(Ordering::Relaxed) == 0) << slot
        })
    }

    /// Sets or clears a mark of an entry that was found in a slot.
    #[inline]
    fn mark(&self, slot: usize, entry: u64, mark: u32, set: bool) {
        let bit = 1 << (mark + slot as u32);
        // Relaxed: marks guard no other memory. Skipping a write of an equal value is cheaper for
        // all threads.
        let is_set = self.marks.load(Ordering::Relaxed) & bit != 0;
        match (set, is_set) {
            (true, false) => {
                self.marks.fetch_or(bit, Ordering::Relaxed);
                // Another entry may have replaced it, so its mark is cleared again. An entry that
                // replaces it later clears its marks itself. Acquire: as in `entry`.
                if self.entries[slot].load(Ordering::Acquire) != entry {
                    self.marks.fetch_and(!bit, Ordering::Relaxed);
                }
            }
            (false, true) => drop(self.marks.fetch_and(!bit, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Removes an entry. Returns whether it was in.
    pub(super) fn remove(&self, entry: u64) -> bool {
        self.find(entry).is_some_and(|slot| self.take(slot, entry))
    }

    /// Removes an entry from its slot. Returns whether it was there.
    fn take(&self, slot: usize, entry: u64) -> bool {
        // Release: pairs with the Acquire of `entry` and `find`. A thread that finds the slot empty
        // sees what this thread did before. Acquire: pairs with the Release here of another thread,
        // if this one finds the slot empty; see "Resizing" in `MbCache`.
        self.entries[slot]
            .compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Claims the right to insert; `None` if another thread has it.
    pub(super) fn claim(&self) -> Option<Claim<'_, 'c>> {
        // Acquire: pairs with the Release of the last claim's `drop`.
        let before = self.marks.fetch_or(CLAIMED, Ordering::Acquire);
        (before & CLAIMED == 0).then(|| Claim {
            bucket: self,
            cleared: 0,
        })
    }

    /// Claims the right to insert, and yields until the thread that has it is done. That thread
    /// blocks on nothing.
    pub(super) fn wait_for_claim(&self) -> Claim<'_, 'c> {
        loop {
            if let Some(claim) = self.claim() {
                return claim;
            }
            thread::yield_now();
        }
    }
}

/// The right to insert into a bucket.
pub(super) struct Claim<'b, 'c> {
    bucket: &'b Bucket<'c>,
    /// Marks of entries that were replaced. They are cleared together when the claim is dropped.
    cleared: u64,
}

impl Claim<'_, '_> {
    /// Puts an entry in.
    pub(super) fn put(&mut self, entry: u64) -> Put {
        loop {
            let Victim {
                slot,
                entry: old,
                others,
            } = self.victim();
            let word = &self.bucket.entries[slot as usize];
            // A failure means that the old entry was removed meanwhile. That happens at most once
            // to each slot, because the claim excludes other insertions. Release: pairs with the
            // Acquire of `entry` and `find`. Acquire: pairs with the Release of `take`, if the slot
            // was emptied.
            if word
                .compare_exchange(old, entry, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                self.cleared |= 1 << (REFERENCED + slot) | 1 << (FULL + slot);
                return Put {
                    others,
                    evicts: old != 0,
                };
            }
        }
    }

    /// Moves the entries for another bucket to it. Counts those marked full as dropped, without
    /// moving them. Returns the number of dropped entries. A dropped one is a lost hint, unless its
    /// owner inserts it again.
    pub(super) fn move_entries_to(
        &self,
        other: &mut Claim<'_, '_>,
        is_to_go: impl Fn(u64) -> bool,
    ) -> u64 {
        let full = self.bucket.full();
        let mut dropped = 0;
        for (slot, word) in self.bucket.entries.iter().enumerate() {
            // Acquire: pairs with the Release of `put`.
            let entry = word.load(Ordering::Acquire);
            if entry != 0 && is_to_go(entry) && self.bucket.take(slot, entry) {
                let is_full = full >> slot & 1 != 0;
                dropped += u64::from(is_full || other.put(entry).evicts);
            }
        }
        dropped
    }

    /// Returns the slot for a new entry: an empty one, or one marked full, or the clock's choice.
    fn victim(&self) -> Victim {
        let bucket = self.bucket;
        let entry = |slot: u32| bucket.entries[slot as usize].load(Ordering::Relaxed);
        let empty = bucket.empty_slots();
        if empty != 0 {
            let others = SLOTS as u32 - empty.count_ones();
            return Victim {
                slot: empty.trailing_zeros(),
                entry: 0,
                others,
            };
        }
        let victim = |slot| Victim {
            slot,
            entry: entry(slot),
            others: SLOTS as u32 - 1,
        };
        let slots = 0..SLOTS as u32;
        let marks = bucket.marks.load(Ordering::Relaxed) & !self.cleared;
        if let Some(full) = slots.clone().find(|slot| marks >> (FULL + slot) & 1 != 0) {
            return victim(full);
        }
        let hand = (marks >> HAND) as u32 & 0xff;
        let turn = slots.map(|step| (hand + step) % SLOTS as u32);
        let is_referenced = |slot: u32| marks >> (REFERENCED + slot) & 1 != 0;
        // Referenced entries before the victim get their second chance. If all are referenced, the
        // victim is at the hand.
        let passed = turn.clone().take_while(|slot| is_referenced(*slot));
        let second_chances: u64 = passed.map(|slot| 1 << (REFERENCED + slot)).sum();
        let slot = turn
            .clone()
            .find(|slot| !is_referenced(*slot))
            .unwrap_or(hand);
        let next = u64::from((slot + 1) % SLOTS as u32);
        // Relaxed: the hand moves under the claim.
        bucket
            .marks
            .fetch_and(!(second_chances | HAND_BITS), Ordering::Relaxed);
        bucket.marks.fetch_or(next << HAND, Ordering::Relaxed);
        victim(slot)
    }
}

impl Drop for Claim<'_, '_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `Bucket::claim`.
        self.bucket
            .marks
            .fetch_and(!(CLAIMED | self.cleared), Ordering::Release);
    }
}
