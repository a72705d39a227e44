//! A cache of where contents are found by their hash: hash to the number of a block, or of an inode, that holds such contents.
//!
//! What it says is a hint. The caller compares the contents, and decides by other means ([`crate::shares`]) whether what he
//! found can still be shared. So nothing here is counted, pinned or waited for, and an entry may be lost at any time. Kept up by
//! the caller is one rule: who gives a number up [removes](MbCache::remove) its entry first, and who inserts one holds on to what
//! the number stands for meanwhile. Then what [`Candidate::is_in`] says was in had not been given up when it looked.
//!
//! # Memory
//! ```text
//! bucket, one cache line: | 8 bits referenced, 8 full, 8 hand, 1 claimed | entry | entry | ... | entry |
//! entry, 8 bytes:         | the rest of the hash | number |
//! ```
//!
//! The hash is mixed by a bijection; its upper bits are the bucket, and the rest stands in the entry, so that an entry tells
//! the whole hash. All is allocated at once, and no system memory is used before it is touched. A full bucket gives up an entry
//! by the rule of the clock: those that were of use get a second chance, those marked full go first.
//!
//! # Protocol
//! An entry is one word. It is put in and taken out whole, by a compare-and-swap; who succeeds counts it. Inserting claims the
//! bucket, so that of two who insert the same, one finds it there: a pair of hash and number is never in twice. Who finds the
//! bucket claimed gives up, for it is a cache. Lookups and removals ask for no claim. Marks are bits of one word, and are only
//! changed by atomic *or* and *and*, so that none is lost.
//!
//! There is no thread that works behind the callers' backs: nothing to stop, and nothing to outlive the cache.

use std::fmt;

use crate::primitive::{AtomicU64, Ordering, zeroes};
use crate::tally::Tally;

/// Entries of a bucket.
#[cfg(not(feature = "loom"))]
const SLOTS: usize = 7;
/// Few in models.
#[cfg(feature = "loom")]
const SLOTS: usize = 2;
/// Words of a bucket.
const WORDS: usize = 8;

/// In a bucket's first word: bits of slots that were of use, bits of slots that are full, the slot whose turn it is, and that
/// somebody inserts.
const REFERENCED: u32 = 0;
const FULL: u32 = 8;
const HAND: u32 = 16;
const HAND_BITS: u64 = 0xff << HAND;
const CLAIMED: u64 = 1 << 24;

/// An odd number, so that multiplying by it is a bijection.
const MIX: u32 = 0x9e37_79b1;

/// A cache of numbers by hash.
pub struct MbCache {
    words: Box<[AtomicU64]>,
    /// The first word of the first bucket: where a cache line starts.
    start: usize,
    /// The buckets are 2^bits.
    bits: u32,
    /// Entries put in, taken out, and given up for others; inserts that met another.
    counts: Tally<4>,
}

/// What came of [`MbCache::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is in.
    Yes,
    /// It was in already.
    Present,
    /// It is not in, for somebody else is inserting beside it, or the number is 0 or too large for an entry.
    No,
}

/// Counts since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MbCacheStats {
    /// Entries in it.
    pub entries: u64,
    /// Entries that it has room for.
    pub capacity: u64,
    /// Bytes that it takes, used or not.
    pub bytes: u64,
    /// Entries put in.
    pub inserted: u64,
    /// Entries taken out because what they led to was given up.
    pub removed: u64,
    /// Entries given up to make room.
    pub evicted: u64,
    /// Entries not put in, because somebody was inserting beside them.
    pub busy: u64,
}

impl MbCache {
    /// Buckets, as a power of two, of a cache of 4 MiB, which is the least that has room for numbers of 48 bits.
    pub const BITS_48: u32 = 16;

    /// An empty cache of 2^`bits` buckets, at most 2^24, of 64 bytes. It keeps numbers of up to 32 + `bits` bits.
    pub fn new(bits: u32) -> Self {
        let bits = bits.min(24);
        let words = zeroes((WORDS << bits) + WORDS);
        let start = words.as_ptr().align_offset(WORDS * size_of::<u64>());
        // Wherever it starts: a line is only faster.
        let start = if start < WORDS { start } else { 0 };
        Self { words, start, bits, counts: Tally::new() }
    }

    /// Puts a number in, for the contents with that hash.
    pub fn insert(&self, hash: u32, number: u64) -> Inserted {
        let (bucket, Some(entry)) = self.place(hash, number) else { return Inserted::No };
        if bucket.find(entry).is_some() {
            return Inserted::Present;
        }
        let Some(claim) = bucket.claim() else {
            self.counts.add([0, 0, 0, 1]);
            return Inserted::No;
        };
        // Nobody else inserts now.
        if bucket.find(entry).is_some() {
            return Inserted::Present;
        }
        let old = claim.put(entry);
        self.counts.add([1, 0, u64::from(old != 0), 0]);
        Inserted::Yes
    }

    /// Takes an entry out; true if it was in.
    pub fn remove(&self, hash: u32, number: u64) -> bool {
        let (bucket, Some(entry)) = self.place(hash, number) else { return false };
        let Some(slot) = bucket.find(entry) else { return false };
        // Only who takes it out counts it.
        let taken =
            bucket.entries[slot].compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        self.counts.add([0, u64::from(taken), 0, 0]);
        taken
    }

    /// The entries for a hash that are not marked full, as they are when it is their turn: each once.
    #[inline]
    pub fn candidates(&self, hash: u32) -> Candidates<'_> {
        let bucket = self.bucket(hash);
        let full = bucket.marks.load(Ordering::Relaxed) >> FULL;
        Candidates {
            bucket,
            rest: self.rest(hash),
            number_mask: self.number_mask(),
            full,
            slot: 0,
            passed: [0; SLOTS],
        }
    }

    /// Notes whether what an entry leads to is shared by as many as may share it, so that it is not looked at in vain.
    pub fn set_full(&self, hash: u32, number: u64, full: bool) {
        let (bucket, Some(entry)) = self.place(hash, number) else { return };
        if let Some(slot) = bucket.find(entry) {
            bucket.mark(slot, entry, FULL, full);
        }
    }

    /// Counts since the cache was made.
    pub fn stats(&self) -> MbCacheStats {
        let [inserted, removed, evicted, busy] = self.counts.sum();
        MbCacheStats {
            // Others may be counting.
            entries: inserted.saturating_sub(removed).saturating_sub(evicted),
            capacity: (SLOTS as u64) << self.bits,
            bytes: size_of_val(&*self.words) as u64,
            inserted,
            removed,
            evicted,
            busy,
        }
    }

    fn number_mask(&self) -> u64 {
        (1 << (32 + self.bits)) - 1
    }

    /// What an entry has of the hash, where it stands in it.
    fn rest(&self, hash: u32) -> u64 {
        u64::from(mix(hash)) << (32 + self.bits)
    }

    /// The bucket of a hash and the entry for a number, if there can be one.
    fn place(&self, hash: u32, number: u64) -> (Bucket<'_>, Option<u64>) {
        let fits = number != 0 && number <= self.number_mask();
        (self.bucket(hash), fits.then(|| self.rest(hash) | number))
    }

    fn bucket(&self, hash: u32) -> Bucket<'_> {
        // OK: at most 24 bits.
        let index = (u64::from(mix(hash)) >> (32 - self.bits)) as usize;
        let words = &self.words[self.start + index * WORDS..][..WORDS];
        Bucket { marks: &words[0], entries: words[1..].first_chunk().expect("a line has room for all") }
    }
}

impl fmt::Debug for MbCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MbCache").field("bits", &self.bits).field("stats", &self.stats()).finish()
    }
}

/// A bijection that spreads hashes of which only a part differs.
fn mix(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(MIX);
    hash ^ hash >> 15
}

/// Entries for a hash: what [`MbCache::candidates`] goes through.
#[derive(Debug)]
pub struct Candidates<'c> {
    bucket: Bucket<'c>,
    rest: u64,
    number_mask: u64,
    full: u64,
    slot: usize,
    /// Those that had their turn, lest one comes again that is taken out and put in elsewhere meanwhile.
    passed: [u64; SLOTS],
}

/// An entry as it was found.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'c> {
    bucket: Bucket<'c>,
    slot: usize,
    entry: u64,
    number: u64,
}

impl<'c> Iterator for Candidates<'c> {
    type Item = Candidate<'c>;

    #[inline]
    fn next(&mut self) -> Option<Candidate<'c>> {
        loop {
            let (bucket, slot) = (self.bucket, self.slot);
            let entry = bucket.entries.get(slot)?.load(Ordering::Acquire);
            self.slot += 1;
            let number = entry & self.number_mask;
            let is_one = number != 0 && entry ^ number == self.rest && self.full >> slot & 1 == 0;
            if is_one && !self.passed[..slot].contains(&entry) {
                self.passed[slot] = entry;
                return Some(Candidate { bucket, slot, entry, number });
            }
        }
    }
}

impl Candidate<'_> {
    /// The number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is in, where it was found.
    #[inline]
    pub fn is_in(&self) -> bool {
        self.bucket.entries[self.slot].load(Ordering::Acquire) == self.entry
    }

    /// Notes that it was of use.
    #[inline]
    pub fn touch(&self) {
        self.bucket.mark(self.slot, self.entry, REFERENCED, true);
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket<'c> {
    marks: &'c AtomicU64,
    entries: &'c [AtomicU64; SLOTS],
}

impl<'c> Bucket<'c> {
    fn find(&self, entry: u64) -> Option<usize> {
        self.entries.iter().position(|word| word.load(Ordering::Acquire) == entry)
    }

    /// Sets or clears a mark of an entry that was found in a slot.
    #[inline]
    fn mark(&self, slot: usize, entry: u64, mark: u32, set: bool) {
        let bit = 1 << (mark + slot as u32);
        // Relaxed: marks say nothing about other memory. Not to write what stands there is cheaper for all.
        let is_set = self.marks.load(Ordering::Relaxed) & bit != 0;
        match (set, is_set) {
            (true, false) => {
                self.marks.fetch_or(bit, Ordering::Relaxed);
                // Another entry may have taken its place. If one does later, its marks are cleared then.
                if self.entries[slot].load(Ordering::Acquire) != entry {
                    self.marks.fetch_and(!bit, Ordering::Relaxed);
                }
            }
            (false, true) => drop(self.marks.fetch_and(!bit, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// The right to insert; `None` if somebody has it.
    fn claim(&self) -> Option<Claim<'_, 'c>> {
        let before = self.marks.fetch_or(CLAIMED, Ordering::Acquire);
        (before & CLAIMED == 0).then(|| Claim(self))
    }
}

/// The right to insert into a bucket.
struct Claim<'b, 'c>(&'b Bucket<'c>);

impl Claim<'_, '_> {
    /// Puts an entry in, and returns the one that it has taken the place of, or 0.
    fn put(&self, entry: u64) -> u64 {
        let bucket = self.0;
        loop {
            let (slot, old) = self.victim();
            let word = &bucket.entries[slot as usize];
            // If it fails, the old one has been removed meanwhile, as happens at most once to each slot: nobody else inserts.
            if word.compare_exchange(old, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                let marks = 1 << (REFERENCED + slot) | 1 << (FULL + slot);
                bucket.marks.fetch_and(!marks, Ordering::Relaxed);
                return old;
            }
        }
    }

    /// The slot to use, and what is in it: an empty one, or one marked full, or that of the clock's hand.
    fn victim(&self) -> (u32, u64) {
        let bucket = self.0;
        let entry = |slot: u32| bucket.entries[slot as usize].load(Ordering::Relaxed);
        let slots = 0..SLOTS as u32;
        if let Some(empty) = slots.clone().find(|slot| entry(*slot) == 0) {
            return (empty, 0);
        }
        let marks = bucket.marks.load(Ordering::Relaxed);
        if let Some(full) = slots.clone().find(|slot| marks >> (FULL + slot) & 1 != 0) {
            return (full, entry(full));
        }
        let hand = (marks >> HAND) as u32 & 0xff;
        let turn = slots.map(|step| (hand + step) % SLOTS as u32);
        let is_referenced = |slot: u32| marks >> (REFERENCED + slot) & 1 != 0;
        // Those before it had their second chance; if all had, it is the first one's turn again.
        let passed = turn.clone().take_while(|slot| is_referenced(*slot));
        let second_chances: u64 = passed.map(|slot| 1 << (REFERENCED + slot)).sum();
        let slot = turn.clone().find(|slot| !is_referenced(*slot)).unwrap_or(hand);
        let next = u64::from((slot + 1) % SLOTS as u32);
        // Relaxed: the hand moves under the claim.
        bucket.marks.fetch_and(!(second_chances | HAND_BITS), Ordering::Relaxed);
        bucket.marks.fetch_or(next << HAND, Ordering::Relaxed);
        (slot, entry(slot))
    }
}

impl Drop for Claim<'_, '_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `Bucket::claim`.
        self.0.marks.fetch_and(!CLAIMED, Ordering::Release);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
