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
//! the whole hash. A full bucket gives up an entry by the rule of the clock: those that were of use get a second chance, those
//! marked full go first.
//!
//! A cache begins with a table that a CPU keeps near, and goes on to one of four times as many buckets when there is an entry for
//! every fourth: where there are more, nobody can foretell in which slot one is. All tables stand in one allocation, that of 2^b
//! buckets from bucket 2^b on, and no system memory is used before it is touched.
//!
//! # Protocol
//! An entry is one word. It is put in and taken out whole, by a compare-and-swap; who succeeds counts it. Inserting claims the
//! bucket, so that of two who insert the same, one finds it there: a pair of hash and number is never in twice. Who finds the
//! bucket claimed gives up, for it is a cache. Lookups and removals ask for no claim. Marks are bits of one word, and are only
//! changed by atomic *or* and *and*, so that none is lost.
//!
//! # Growing
//! One thread moves what is in the table in use to the next, which nobody uses before it is done. Of each bucket it
//!
//! 1. takes the claim, and keeps it for ever: nothing is put in any more, for who wants to finds the bucket claimed;
//! 2. puts each entry in the next table first, then takes it out here by a compare-and-swap. If that fails, somebody has removed the entry:
//!    so it is taken out there, too.
//!
//! Then it says that the next table is the one in use. Until then an entry that has been moved is found by nobody, which a cache may do.
//! An entry that is being removed while it is moved is in neither table when both are done, and not found in between:
//!
//! - Who removes it here makes the mover's exchange fail, and it is gone from the next table before anybody looks there.
//! - Who does not find it here any more has loaded what the mover stored in its place (Acquire, Release): so he sees that there is a next
//!   table, which was said before, and the entry in it, and removes it there.
//! - Who looks in a table that is used no more, for he loaded its place before that, finds nothing, and nothing is put in there again. He
//!   cannot miss what was put in the next table by others: who removes an entry knows of it from who put it in, who knew of the table.
//!
//! There is no thread that works behind the callers' backs: nothing to stop, and nothing to outlive the cache.

use std::fmt;

use crate::percpu::Line;
use crate::primitive::{AtomicU32, AtomicU64, Ordering, thread, zeroes};
use crate::tally::Tally;

/// Entries of a bucket.
#[cfg(not(feature = "loom"))]
const SLOTS: usize = 7;
/// Few in models.
#[cfg(feature = "loom")]
const SLOTS: usize = 2;
/// A slot that is only used where so many others are: one entry in forty is put there, with an entry for every fourth bucket.
const CROWD: u32 = 2;
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

/// A table has so many times as many buckets as the one before, as a power of two.
const STEP: u32 = 2;

/// A cache of numbers by hash.
pub struct MbCache {
    words: Box<[AtomicU64]>,
    /// The word that buckets are counted from: where a cache line starts.
    start: usize,
    /// The buckets of the first table are 2^from, of the last 2^to.
    from: u32,
    to: u32,
    /// Of the table in use, the buckets as a power of two.
    bits: AtomicU32,
    /// Of the last table that there may be something in. Larger than `bits` while something is moved to it.
    reached: AtomicU32,
    /// Entries that were put into a bucket with many others, since the table is in use or somebody has looked how many there are.
    crowded: Line<AtomicU32>,
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
    /// Entries that it has room for, as long as it does not grow.
    pub capacity: u64,
    /// Bytes of its tables, with those that are used no more.
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
    /// Buckets, as a power of two, of a table of 4 MiB, which is the least that has room for numbers of 48 bits.
    pub const BITS_48: u32 = 16;
    /// The same of one of 64 KiB, which a CPU keeps near.
    pub const BITS_NEAR: u32 = 10;

    /// An empty cache of 2^`bits` buckets, at most 2^24, of 64 bytes. It keeps numbers of up to 32 + `bits` bits.
    pub fn new(bits: u32) -> Self {
        Self::growing(bits, bits)
    }

    /// One that begins with 2^`from` buckets, and has up to 2^`to`, at most 2^24, when there is so much to be found or numbers are so large.
    pub fn growing(from: u32, to: u32) -> Self {
        let to = to.min(24);
        let from = from.min(to);
        let words = zeroes((WORDS << (to + 1)) + WORDS);
        let start = words.as_ptr().align_offset(WORDS * size_of::<u64>());
        // Wherever it starts: a line is only faster.
        let start = if start < WORDS { start } else { 0 };
        let (bits, reached) = (AtomicU32::new(from), AtomicU32::new(from));
        Self { words, start, from, to, bits, reached, crowded: Line(AtomicU32::new(0)), counts: Tally::new() }
    }

    /// Puts a number in, for the contents with that hash.
    pub fn insert(&self, hash: u32, number: u64) -> Inserted {
        let table = self.table();
        let (bucket, Some(entry)) = table.place(hash, number) else {
            // One of the next may have room for it.
            if number != 0 {
                self.grow(table);
            }
            return Inserted::No;
        };
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
        let put = claim.put(entry);
        drop(claim);
        self.counts.add([1, 0, u64::from(put.takes_place), 0]);
        if put.slot >= CROWD {
            self.note_crowded(table);
        }
        Inserted::Yes
    }

    /// Takes an entry out; true if it was in.
    pub fn remove(&self, hash: u32, number: u64) -> bool {
        let mut table = self.table();
        let mut taken = table.remove(hash, number);
        // Acquire: pairs with the Release of who began to move; see "Growing". It is loaded again, for there may be one more by now.
        while !taken && table.bits < self.reached.load(Ordering::Acquire) {
            table = self.table_of(table.bits_of_next(self.to));
            taken = table.remove(hash, number);
        }
        // Only who takes it out counts it.
        self.counts.add([0, u64::from(taken), 0, 0]);
        taken
    }

    /// The entries for a hash that are not marked full, as they are when it is their turn: each once.
    #[inline]
    pub fn candidates(&self, hash: u32) -> Candidates<'_> {
        let table = self.table();
        let (bucket, rest, number_mask) = (table.bucket(hash), table.rest(hash), table.number_mask());
        let full = bucket.marks.load(Ordering::Relaxed) >> FULL;
        Candidates { bucket, rest, number_mask, full, slot: 0, passed: [0; SLOTS] }
    }

    /// Notes whether what an entry leads to is shared by as many as may share it, so that it is not looked at in vain.
    pub fn set_full(&self, hash: u32, number: u64, full: bool) {
        let (bucket, Some(entry)) = self.table().place(hash, number) else { return };
        if let Some(slot) = bucket.find(entry) {
            bucket.mark(slot, entry, FULL, full);
        }
    }

    /// Counts since the cache was made.
    pub fn stats(&self) -> MbCacheStats {
        let [inserted, removed, evicted, busy] = self.counts.sum();
        let bits = self.table().bits;
        let buckets: u64 = (self.from..bits).step_by(STEP as usize).chain([bits]).map(|bits| 1 << bits).sum();
        MbCacheStats {
            // Others may be counting.
            entries: inserted.saturating_sub(removed).saturating_sub(evicted),
            capacity: (SLOTS as u64) << bits,
            bytes: (WORDS * size_of::<u64>()) as u64 * buckets,
            inserted,
            removed,
            evicted,
            busy,
        }
    }

    /// The table in use.
    #[inline]
    fn table(&self) -> Table<'_> {
        // Acquire: pairs with the Release of who moved everything there.
        self.table_of(self.bits.load(Ordering::Acquire))
    }

    #[inline]
    fn table_of(&self, bits: u32) -> Table<'_> {
        Table { words: &self.words[self.start..], bits }
    }

    /// There are many entries in a bucket. It may be chance, or there may be as many in all.
    #[cold]
    fn note_crowded(&self, table: Table<'_>) {
        let buckets = 1 << table.bits;
        if table.bits == self.to {
            return;
        }
        // Relaxed, both: it says when to look, and nothing else.
        if self.crowded.0.fetch_add(1, Ordering::Relaxed) < buckets / 64 {
            return;
        }
        self.crowded.0.store(0, Ordering::Relaxed);
        if self.stats().entries > u64::from(buckets) / 4 {
            self.grow(table);
        }
    }

    /// Moves what is in the table in use to the next, unless somebody does already or there is none.
    #[cold]
    fn grow(&self, table: Table<'_>) {
        if table.bits == self.to {
            return;
        }
        let next = self.table_of(table.bits_of_next(self.to));
        // Release: who finds an entry moved is to see that there is a next table. Relaxed on failure: somebody else moves, or has.
        let begin =
            self.reached.compare_exchange(table.bits, next.bits, Ordering::Release, Ordering::Relaxed);
        if begin.is_err() {
            return;
        }
        let gone = (1 << table.bits..2 << table.bits).map(|index| table.move_bucket(index, next)).sum();
        self.counts.add([0, 0, gone, 0]);
        // Release: pairs with the Acquire of who uses it.
        self.bits.store(next.bits, Ordering::Release);
    }
}

impl fmt::Debug for MbCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MbCache").field("bits", &self.table().bits).field("stats", &self.stats()).finish()
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
            // Its hash before all else: whether a slot is empty is what a CPU would have to guess.
            if entry & !self.number_mask != self.rest {
                continue;
            }
            let number = entry & self.number_mask;
            let is_one = number != 0 && self.full >> slot & 1 == 0;
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

/// The buckets, all of them or those that there were before the cache grew.
#[derive(Clone, Copy, Debug)]
struct Table<'c> {
    /// Those of all tables.
    words: &'c [AtomicU64],
    /// They are 2^bits.
    bits: u32,
}

impl<'c> Table<'c> {
    fn bits_of_next(self, to: u32) -> u32 {
        to.min(self.bits + STEP)
    }

    fn number_mask(self) -> u64 {
        (1 << (32 + self.bits)) - 1
    }

    /// What an entry has of the hash, where it stands in it.
    fn rest(self, hash: u32) -> u64 {
        u64::from(mix(hash)) << (32 + self.bits)
    }

    /// The bucket of a hash and the entry for a number, if there can be one.
    fn place(self, hash: u32, number: u64) -> (Bucket<'c>, Option<u64>) {
        let fits = number != 0 && number <= self.number_mask();
        (self.bucket(hash), fits.then(|| self.rest(hash) | number))
    }

    fn bucket(self, hash: u32) -> Bucket<'c> {
        self.bucket_of_mixed(mix(hash))
    }

    fn bucket_of_mixed(self, mixed: u32) -> Bucket<'c> {
        // OK: at most 25 bits, of which the first says which table it is.
        self.bucket_at(((1 << 32 | u64::from(mixed)) >> (32 - self.bits)) as usize)
    }

    fn bucket_at(self, index: usize) -> Bucket<'c> {
        let words = &self.words[index * WORDS..][..WORDS];
        Bucket { marks: &words[0], entries: words[1..].first_chunk().expect("a line has room for all") }
    }

    fn remove(self, hash: u32, number: u64) -> bool {
        let (bucket, Some(entry)) = self.place(hash, number) else { return false };
        bucket.find(entry).is_some_and(|slot| bucket.take(slot, entry))
    }

    /// Steps 1 and 2 of "Growing" for one bucket. So many entries are given up for it.
    fn move_bucket(self, index: usize, next: Table<'c>) -> u64 {
        let bucket = self.bucket_at(index);
        // Kept for ever.
        std::mem::forget(bucket.wait_for_claim());
        let full = bucket.marks.load(Ordering::Relaxed) >> FULL;
        let mut gone = 0;
        for slot in 0..SLOTS {
            let entry = bucket.entries[slot].load(Ordering::Acquire);
            // One that is full would be the first to go. If it is not any more, somebody inserts it, or has lost a hint.
            if entry == 0 || full >> slot & 1 != 0 {
                gone += u64::from(entry != 0 && bucket.take(slot, entry));
                continue;
            }
            gone += self.move_entry(index, slot, entry, next);
        }
        gone
    }

    fn move_entry(self, index: usize, slot: usize, entry: u64, next: Table<'c>) -> u64 {
        // Of the mixed hash, the upper bits are the bucket's but for the first, and the lower are the upper bits of the entry. OK: 32 bits in all.
        let mixed = (((index as u64) << 32 | entry >> 32) >> self.bits) as u32;
        let moved = u64::from(mixed) << (32 + next.bits) | entry & self.number_mask();
        let to = next.bucket_of_mixed(mixed);
        let put = to.wait_for_claim().put(moved);
        if !self.bucket_at(index).take(slot, entry)
            && let Some(slot) = to.find(moved)
        {
            // Nobody else does that who would have to count it: who has removed the entry from this table has counted that.
            to.take(slot, moved);
        }
        u64::from(put.takes_place)
    }
}

/// Where an entry was put.
#[derive(Clone, Copy, Debug)]
struct Put {
    slot: u32,
    /// Another was there.
    takes_place: bool,
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

    /// Those that are empty, as bits. All are looked at: which one is the first cannot be foretold, and a CPU that guesses wrong loses more.
    #[inline]
    fn empty_slots(&self) -> u64 {
        let words = self.entries.iter().enumerate();
        words.fold(0, |slots, (slot, word)| slots | u64::from(word.load(Ordering::Relaxed) == 0) << slot)
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

    /// Takes an entry out of its slot; true if it was there.
    fn take(&self, slot: usize, entry: u64) -> bool {
        // Release: what was done before is seen by who finds the slot empty. Acquire: by this thread, too, if that is how it finds the slot; see
        // "Growing".
        self.entries[slot].compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The right to insert; `None` if somebody has it.
    fn claim(&self) -> Option<Claim<'_, 'c>> {
        let before = self.marks.fetch_or(CLAIMED, Ordering::Acquire);
        (before & CLAIMED == 0).then(|| Claim(self))
    }

    /// The same, when whoever inserts is done; nobody waits for anything meanwhile.
    fn wait_for_claim(&self) -> Claim<'_, 'c> {
        loop {
            if let Some(claim) = self.claim() {
                return claim;
            }
            thread::yield_now();
        }
    }
}

/// The right to insert into a bucket.
struct Claim<'b, 'c>(&'b Bucket<'c>);

impl Claim<'_, '_> {
    /// Puts an entry in.
    fn put(&self, entry: u64) -> Put {
        let bucket = self.0;
        loop {
            let (slot, old) = self.victim();
            let word = &bucket.entries[slot as usize];
            // If it fails, the old one has been removed meanwhile, as happens at most once to each slot: nobody else inserts.
            if word.compare_exchange(old, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                let marks = 1 << (REFERENCED + slot) | 1 << (FULL + slot);
                bucket.marks.fetch_and(!marks, Ordering::Relaxed);
                return Put { slot, takes_place: old != 0 };
            }
        }
    }

    /// The slot to use, and what is in it: an empty one, or one marked full, or that of the clock's hand.
    fn victim(&self) -> (u32, u64) {
        let bucket = self.0;
        let entry = |slot: u32| bucket.entries[slot as usize].load(Ordering::Relaxed);
        let empty = bucket.empty_slots();
        if empty != 0 {
            return (empty.trailing_zeros(), 0);
        }
        let slots = 0..SLOTS as u32;
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
