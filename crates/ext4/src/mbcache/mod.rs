//! The attribute-block cache (mbcache): finds a block, or an inode, by the hash of its contents.
//!
//! `mbcache::sharing` has one for attribute blocks and one for EA inodes. An answer is a hint. The
//! caller compares the contents, and a reference count ([`extern4_sync::closable_refcount`])
//! decides whether it can share what it found. So the cache neither counts nor pins what it
//! returns, a lookup blocks on nothing, and the cache can lose an entry at any time. The callers
//! keep two rules:
//!
//! 1. A caller that frees a block [removes](MbCache::remove) its entry first.
//! 2. A caller that inserts an entry holds the block meanwhile.
//!
//! With them, a number for which [`Candidate::is_in`] returns true had not been freed when the
//! method read the bucket.
//!
//! # Memory
//! ```text
//! bucket, one cache line: | marks | entry | entry | ... | entry |
//! entry, 8 bytes:         | the rest of the hash | number |
//! ```
//!
//! A bijection mixes the hash. Its lower bits choose the bucket, as many bits as the buckets in use
//! need. The entry holds the bits above the first few, so a reader can compute the whole hash from
//! an entry and its bucket.
//!
//! The cache starts with as many buckets as a CPU's near cache holds. It uses four times as many
//! once there is one entry for four buckets: with more entries, a processor cannot predict the slot
//! of an entry. It uses a fourth of them once there is one entry for 64 buckets, because distant
//! cache lines are slow. The buckets in use are the first ones of a single allocation, and the
//! system gives memory to it only when a bucket is touched.
//!
//! # Protocol
//! 1. An entry is one word. A thread inserts or removes it whole, by a compare-and-swap, and the
//!    thread that succeeds counts it.
//! 2. An inserting thread claims the bucket first. Of two threads that insert the same pair of hash
//!    and number, the second one finds it in the bucket, so a pair is never in the cache twice. A
//!    thread that finds the bucket claimed gives up.
//! 3. A lookup takes no claim. A removal takes one only while entries are moved.
//! 4. Marks are bits of one word. Threads change them by atomic *or* and *and* only, so no mark is
//!    lost, except one of an entry that another thread is just inserting.
//!
//! # Resizing
//! One thread, the mover, announces in the state word the numbers of buckets between which it moves
//! entries. When it has moved all, it stores that the new number is in use. A bucket of the smaller
//! number and the buckets of the larger number that take its entries form a group. For each group,
//! the mover
//!
//! 1. claims the bucket of the smaller number, then the others of the group, one after the other,
//! 2. takes each entry out of its old bucket and inserts it into the new one; if another thread has
//!    removed the entry, it goes on,
//! 3. releases the claims.
//!
//! So an entry is never in two buckets, not even while it is moved. Until the mover is done, a
//! lookup can miss an entry that has been moved, which a cache is allowed to do. Two things need a
//! proof:
//!
//! - No thread inserts an entry where lookups do not look. The inserting thread reads the state
//!   before it claims the bucket, and again afterwards. It goes on only if both times nothing was
//!   being moved and the state was the same. The mover announces the move before it claims a
//!   bucket. If the mover claims this bucket later, it finds the new entry. If it claimed the
//!   bucket earlier, the inserting thread's claim acquires the mover's release of it, so the second
//!   reading sees another state.
//! - A removing thread takes out every entry that is in. If the thread does not find the entry
//!   where the state says, it reads the state again. If it saw that the mover had taken the entry
//!   out, it acquired the mover's release, so it sees another state. Then it claims the bucket of
//!   the smaller number, which keeps the mover out of the group, and looks in both buckets. It
//!   repeats this until the state before and after is the same.
//!
//! The cache has no thread.

pub(crate) mod blocks;
mod bucket;
pub(crate) mod sharing;

use std::fmt;

use bucket::{Bucket, SLOTS, WORDS};
use extern4_sync::percpu::Line;
use extern4_sync::primitive::{AtomicU32, AtomicU64, Ordering, zeroes};
use extern4_sync::thread_counter::ThreadCounter;

/// How many other entries make a bucket crowded. With an entry for every fourth bucket, one
/// insertion in forty finds that many.
const CROWD: u32 = 2;

/// An odd number, so that multiplying by it is a bijection.
const MIX: u32 = 0x9e37_79b1;

/// The factor between one number of buckets in use and the next, as a power of two.
const STEP: u32 = 2;
/// The cache can grow with more than one entry for `GROW` buckets, and shrinks with fewer than one
/// for `SHRINK`.
const GROW: u64 = 4;
const SHRINK: u64 = 64;

/// A cache of numbers by hash.
pub struct MbCache {
    words: Box<[AtomicU64]>,
    /// The word where the first bucket starts, at the start of a cache line.
    start: usize,
    /// At least 2^from and at most 2^to buckets are in use.
    from: u32,
    to: u32,
    /// A [`TableState`].
    state: AtomicU32,
    /// Insertions into crowded buckets since a thread last counted all entries.
    crowded: Line<AtomicU32>,
    /// Entries inserted, removed and evicted; insertions that found the bucket claimed.
    counts: ThreadCounter<4>,
}

/// The number of buckets in use, and the next number during a move, both as powers of two; and how
/// often a move has started or ended.
///
/// ```text
/// | 20 bits times | 6 bits to be | 6 bits in use |
/// ```
/// A state recurs after 2^20 changes. A thread would have to be suspended all that time to mistake
/// one for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TableState(u32);

impl TableState {
    fn of(bits: u32) -> Self {
        Self(bits | bits << 6)
    }

    #[inline]
    fn bits(self) -> u32 {
        self.0 & 63
    }

    fn next_bits(self) -> u32 {
        self.0 >> 6 & 63
    }

    #[inline]
    fn is_moving(self) -> bool {
        self.bits() != self.next_bits()
    }

    /// Returns the next state.
    fn then(self, bits: u32, next_bits: u32) -> Self {
        Self((self.0 >> 12).wrapping_add(1) << 12 | next_bits << 6 | bits)
    }
}

/// The result of [`MbCache::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The entry was inserted.
    Yes,
    /// The entry was in already.
    Present,
    /// The entry was not inserted: another thread was inserting into the bucket, or the number is 0
    /// or too large.
    No,
}

/// Counts since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MbCacheStats {
    /// Entries in it.
    pub entries: u64,
    /// Entries that it has room for now.
    pub capacity: u64,
    /// Bytes of the buckets in use.
    pub bytes: u64,
    /// Entries put in.
    pub inserted: u64,
    /// Entries removed, because their block or inode was changed or freed.
    pub removed: u64,
    /// Entries evicted to make room.
    pub evicted: u64,
    /// Entries not inserted, because another thread was inserting into the bucket.
    pub busy: u64,
}

impl MbCache {
    /// The buckets in 4 MiB, as a power of two, with room for 458,752 entries.
    pub const BITS_FAR: u32 = 16;
    /// The buckets in 64 KiB, as a power of two, which fit into a CPU's near cache. A cache that
    /// starts with these keeps numbers of 42 bits: blocks of 1 KiB up to 4 PiB.
    pub const BITS_NEAR: u32 = 10;

    /// Returns an empty cache of 2^`bits` buckets, at most 2^24, of 64 bytes. It keeps numbers of
    /// up to 32 + `bits` bits.
    pub fn new(bits: u32) -> Self {
        Self::sized(bits, bits)
    }

    /// Returns a cache that has 2^`from` to 2^`to` buckets in use, at most 2^24, depending on its
    /// entries. It keeps numbers of up to 32 + `from` bits.
    pub fn sized(from: u32, to: u32) -> Self {
        let to = to.min(24);
        let from = from.min(to);
        let words = zeroes((WORDS << to) + WORDS);
        let start = words.as_ptr().align_offset(WORDS * size_of::<u64>());
        // Without alignment the cache works, too, but more slowly.
        let start = if start < WORDS { start } else { 0 };
        let state = AtomicU32::new(TableState::of(from).0);
        Self {
            words,
            start,
            from,
            to,
            state,
            crowded: Line(AtomicU32::new(0)),
            counts: ThreadCounter::new(),
        }
    }

    /// Inserts a number for the contents with that hash.
    pub fn insert(&self, hash: u32, number: u64) -> Inserted {
        let (state, Some(entry)) = (self.state(), self.entry(hash, number)) else {
            return Inserted::No;
        };
        let bucket = self.bucket(hash, state.bits());
        if bucket.find(entry).is_some() {
            return Inserted::Present;
        }
        let claim = if state.is_moving() {
            None
        } else {
            bucket.claim()
        };
        // No entry is moved from or to this bucket from now on: see "Resizing".
        let Some(mut claim) = claim.filter(|_| self.state() == state) else {
            self.counts.add([0, 0, 0, 1]);
            return Inserted::No;
        };
        // Checked again under the claim, which excludes other insertions.
        if bucket.find(entry).is_some() {
            return Inserted::Present;
        }
        let put = claim.put(entry);
        drop(claim);
        self.counts.add([1, 0, u64::from(put.evicts), 0]);
        match put.others {
            0 => self.note_sparse(entry, state),
            CROWD.. => self.note_crowded(state),
            _ => {}
        }
        Inserted::Yes
    }

    /// Removes an entry. Returns whether it was in.
    pub fn remove(&self, hash: u32, number: u64) -> bool {
        let (state, Some(entry)) = (self.state(), self.entry(hash, number)) else {
            return false;
        };
        let mut taken = self.bucket(hash, state.bits()).remove(entry);
        if !taken && (state.is_moving() || self.state() != state) {
            taken = self.remove_moved(hash, entry);
        }
        // Only the thread that removes it counts it.
        self.counts.add([0, u64::from(taken), 0, 0]);
        taken
    }

    /// Returns the entries for a hash that are not marked full, read one by one: at most as many as
    /// a bucket has slots. An entry that is removed and inserted again meanwhile may come twice.
    #[inline]
    pub fn candidates(&self, hash: u32) -> Candidates<'_> {
        let bucket = self.bucket(hash, self.state().bits());
        let rest = self.rest(hash);
        let number_mask = self.number_mask();
        let full = bucket.full();
        Candidates {
            bucket,
            rest,
            number_mask,
            full,
            slot: 0,
        }
    }

    /// Sets or clears the mark of a full entry, whose block or inode cannot be shared by more.
    /// Lookups skip full entries.
    pub fn set_full(&self, hash: u32, number: u64, full: bool) {
        let Some(entry) = self.entry(hash, number) else {
            return;
        };
        self.bucket(hash, self.state().bits()).set_full(entry, full);
    }

    /// Counts since the cache was made.
    pub fn stats(&self) -> MbCacheStats {
        let [inserted, removed, evicted, busy] = self.counts.sum();
        let bits = self.state().bits();
        MbCacheStats {
            // Other threads may be counting.
            entries: inserted.saturating_sub(removed).saturating_sub(evicted),
            capacity: (SLOTS as u64) << bits,
            bytes: ((WORDS * size_of::<u64>()) as u64) << bits,
            inserted,
            removed,
            evicted,
            busy,
        }
    }

    #[inline]
    fn state(&self) -> TableState {
        // Acquire: pairs with the Release of the mover that has moved everything.
        TableState(self.state.load(Ordering::Acquire))
    }

    fn number_mask(&self) -> u64 {
        (1 << (32 + self.from)) - 1
    }

    /// Returns the part of the hash that an entry holds, at its place in the entry: all but the
    /// bits that choose among the smallest number of buckets.
    #[inline]
    fn rest(&self, hash: u32) -> u64 {
        u64::from(mix(hash) >> self.from) << (32 + self.from)
    }

    /// Returns the entry for a number; `None` if the number is 0 or too large.
    fn entry(&self, hash: u32, number: u64) -> Option<u64> {
        let fits = number != 0 && number <= self.number_mask();
        fits.then(|| self.rest(hash) | number)
    }

    /// Returns the bucket of a hash if 2^`bits` buckets are in use.
    #[inline]
    fn bucket(&self, hash: u32, bits: u32) -> Bucket<'_> {
        // OK: at most 24 bits.
        self.bucket_at((mix(hash) & ((1 << bits) - 1)) as usize)
    }

    #[inline]
    fn bucket_at(&self, index: usize) -> Bucket<'_> {
        Bucket::of(&self.words[self.start..][index * WORDS..][..WORDS])
    }

    /// Removes an entry that the mover is moving, or has moved since the caller read the state.
    /// Returns whether it was in.
    #[cold]
    fn remove_moved(&self, hash: u32, entry: u64) -> bool {
        loop {
            let state = self.state();
            let bits = state.bits();
            let next = state.next_bits();
            let [fewer, more] =
                [bits.min(next), bits.max(next)].map(|bits| self.bucket(hash, bits));
            let claim = fewer.wait_for_claim();
            let taken = fewer.remove(entry) || more.remove(entry);
            drop(claim);
            if taken || self.state() == state {
                return taken;
            }
        }
    }

    /// Notes an insertion into a crowded bucket, which may be chance. After many of them, counts
    /// all entries and may grow the cache.
    #[cold]
    fn note_crowded(&self, state: TableState) {
        let buckets = 1 << state.bits();
        if state.bits() == self.to {
            return;
        }
        // Relaxed, both: the number only says when to count.
        if self.crowded.0.fetch_add(1, Ordering::Relaxed) < buckets / 64 {
            return;
        }
        self.crowded.0.store(0, Ordering::Relaxed);
        if self.stats().entries > u64::from(buckets) / GROW {
            self.resize(state, self.to.min(state.bits() + STEP));
        }
    }

    /// Notes an entry that is alone in its bucket. One time in 64, counts all entries and may
    /// shrink the cache.
    #[inline]
    fn note_sparse(&self, entry: u64, state: TableState) {
        // OK: any bits are right, because the tested ones depend on all of them.
        let is_one_in_64 = mix((entry ^ entry >> 32) as u32) & 63 == 0;
        if is_one_in_64
            && state.bits() > self.from
            && self.stats().entries < (1 << state.bits()) / SHRINK
        {
            self.resize(state, self.from.max(state.bits().saturating_sub(STEP)));
        }
    }

    /// Sets the number of buckets in use to 2^`bits`, for loom tests.
    #[cfg(feature = "loom")]
    pub fn resize_to(&self, bits: u32) {
        let state = self.state();
        if !state.is_moving() && state.bits() != bits {
            self.resize(state, bits);
        }
    }

    /// Changes the number of buckets in use to 2^`bits`, unless another thread is resizing already.
    fn resize(&self, state: TableState, bits: u32) {
        debug_assert!(
            !state.is_moving() && state.bits() != bits,
            "{state:?} {bits}"
        );
        let moving = state.then(state.bits(), bits);
        // Relaxed: this thread acquired the previous mover's release when it loaded `state`, and
        // every thread that acquires a later release of this one sees the move. If the exchange
        // fails, another thread is resizing, or has resized.
        let begin =
            self.state
                .compare_exchange(state.0, moving.0, Ordering::Relaxed, Ordering::Relaxed);
        if begin.is_err() {
            return;
        }
        let [fewer, more] = [state.bits().min(bits), state.bits().max(bits)];
        let dropped = (1 << fewer..1 << more)
            .map(|index| self.move_bucket(index, fewer, more, bits))
            .sum();
        self.counts.add([0, 0, dropped, 0]);
        // Release: pairs with the Acquire of the threads that use the state.
        self.state
            .store(moving.then(bits, bits).0, Ordering::Release);
    }

    /// Moves entries between a bucket of the larger number and the bucket of the smaller number in
    /// its group. Returns how many entries were dropped.
    fn move_bucket(&self, index: usize, fewer: u32, more: u32, bits: u32) -> u64 {
        let small = index & ((1 << fewer) - 1);
        let large = index;
        let [small_bucket, large_bucket] = [small, large].map(|index| self.bucket_at(index));
        let mut small_claim = small_bucket.wait_for_claim();
        let mut large_claim = large_bucket.wait_for_claim();
        if bits == more {
            small_claim.move_entries_to(&mut large_claim, |entry| {
                self.index_of(small, entry, more) == large
            })
        } else {
            large_claim.move_entries_to(&mut small_claim, |_| true)
        }
    }

    /// Returns the bucket of an entry if 2^`bits` buckets are in use. The entry is in bucket
    /// `index` of a smaller number.
    fn index_of(&self, index: usize, entry: u64, bits: u32) -> usize {
        // OK: the rest has at most 32 bits.
        let mixed =
            ((entry >> (32 + self.from)) as usize) << self.from | index & ((1 << self.from) - 1);
        mixed & ((1 << bits) - 1)
    }
}

impl fmt::Debug for MbCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MbCache")
            .field("state", &self.state())
            .field("stats", &self.stats())
            .finish()
    }
}

/// Mixes a hash by a bijection, which spreads hashes that differ only in a part. The upper bits of
/// a product depend on all bits of the hash, so the uppermost byte moves to the bits that choose
/// the bucket. Every lookup needs this function, so it does no more.
#[inline]
fn mix(hash: u32) -> u32 {
    hash.wrapping_mul(MIX).swap_bytes()
}

/// The iterator of [`MbCache::candidates`].
#[derive(Debug)]
pub struct Candidates<'c> {
    bucket: Bucket<'c>,
    rest: u64,
    number_mask: u64,
    full: u64,
    slot: usize,
}

/// An entry that was found.
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
            let bucket = self.bucket;
            let slot = self.slot;
            let entry = bucket.entry(slot)?;
            self.slot += 1;
            // Compares the hash first: a CPU would have to guess whether a slot is empty.
            if entry & !self.number_mask != self.rest {
                continue;
            }
            let number = entry & self.number_mask;
            if number != 0 && self.full >> slot & 1 == 0 {
                return Some(Candidate {
                    bucket,
                    slot,
                    entry,
                    number,
                });
            }
        }
    }
}

impl Candidate<'_> {
    /// Returns the number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the entry is still in its slot.
    #[inline]
    pub fn is_in(&self) -> bool {
        self.bucket.entry(self.slot) == Some(self.entry)
    }

    /// Notes that the entry was used.
    #[inline]
    pub fn touch(&self) {
        self.bucket.touch(self.slot, self.entry);
    }
}

#[cfg(test)]
mod tests;
