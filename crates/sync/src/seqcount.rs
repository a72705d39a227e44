//! Sequence counts: consistent copies of several words without a lock.
//!
//! The attributes of an inode in the VFS are under one, and the registry of open files follows its
//! protocol.
//!
//! A writer makes the count odd, changes the payload, and makes the count even again. A reader
//! loads an even count, copies the payload, and discards the copy if the count has changed. Readers
//! write nothing and never wait. After [`TRIES`] attempts they take the writers' lock instead.
//!
//! Rules:
//! 1. Every payload word is an atomic, loaded and stored `Relaxed`: a torn copy is a wrong value,
//!    never a data race.
//! 2. Writers exclude one another by a lock of the caller. The count does not do it.
//! 3. A copy may be used only after [`SeqCount::validate`] returned true: before, its words may
//!    belong to different writers.
//!
//! | step | ordering | pairs with |
//! | --- | --- | --- |
//! | W1 writer: count := odd | `Relaxed`, then `fence(Release)` | R3 |
//! | W2 writer: payload | `Relaxed` | |
//! | W3 writer: count := even | `Release` | R1 |
//! | R1 reader: load count | `Acquire` | W3 |
//! | R2 reader: payload | `Relaxed` | |
//! | R3 reader: load count again | `fence(Acquire)`, then `Relaxed` | W1 |
//!
//! By W1 and R3 a reader that copied a word of W2 sees the odd count. By W3 and R1 a reader that
//! starts from an even count copies the payload of that count or of a later one.

use crate::primitive::{AtomicU32, Ordering, fence};

/// Attempts of [`SeqCount::read`] before it tells the reader to take the lock.
pub const TRIES: u32 = 3;

/// A count that is odd while a writer changes the payload.
#[derive(Debug, Default)]
pub struct SeqCount(AtomicU32);

/// An even count that a reader loaded before it began to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seq(u32);

impl SeqCount {
    /// Creates a count at zero.
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Starts a read section. Returns the count to validate with; `None` while a writer is inside.
    #[inline]
    pub fn begin(&self) -> Option<Seq> {
        // Acquire: R1, pairs with the Release store in `SeqWriter::drop` (W3).
        let seq = self.0.load(Ordering::Acquire);
        (seq & 1 == 0).then_some(Seq(seq))
    }

    /// Returns whether all words loaded since `begin` returned `seq` belong together.
    #[inline]
    #[must_use]
    pub fn validate(&self, seq: Seq) -> bool {
        // Acquire: R3, pairs with the Release fence in `write` (W1). If a word of a later writer
        // was loaded before this fence, the load below sees that writer's odd count.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == seq.0
    }

    /// Returns the result of `copy` in a read section that no writer disturbed. `None` after
    /// [`TRIES`] disturbed ones: the caller then takes the writers' lock and copies under it.
    /// `copy` must not act on the words that it loads.
    #[inline]
    pub fn read<R>(&self, mut copy: impl FnMut() -> R) -> Option<R> {
        for _ in 0..TRIES {
            let Some(seq) = self.begin() else { continue };
            let copied = copy();
            if self.validate(seq) {
                return Some(copied);
            }
        }
        None
    }

    /// Starts a write section. It ends when the returned value is dropped.
    ///
    /// Locks: the caller holds the lock that excludes other writers, for as long as the section
    /// lasts.
    #[inline]
    pub fn write(&self) -> SeqWriter<'_> {
        let seq = self.0.load(Ordering::Relaxed);
        debug_assert!(seq & 1 == 0, "a second writer entered at count {seq}");
        self.0.store(seq.wrapping_add(1), Ordering::Relaxed);
        // Release: W1, keeps the payload's stores after the odd count. Pairs with the Acquire fence
        // in `validate`.
        fence(Ordering::Release);
        SeqWriter { count: self, seq }
    }
}

/// A write section of a [`SeqCount`]. It ends when it is dropped.
#[derive(Debug)]
#[must_use = "the write section ends when this is dropped"]
pub struct SeqWriter<'a> {
    count: &'a SeqCount,
    seq: u32,
}

impl Drop for SeqWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: W3, publishes the payload. Pairs with the Acquire load in `begin`.
        self.count
            .0
            .store(self.seq.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_write_between_invalidates() {
        let count = SeqCount::new();
        let before = count.begin().unwrap();
        assert!(count.validate(before));
        let writer = count.write();
        assert_eq!(count.begin(), None);
        assert!(!count.validate(before));
        drop(writer);
        assert!(!count.validate(before));
        assert!(count.validate(count.begin().unwrap()));
    }

    #[test]
    fn a_reader_that_is_always_disturbed_gives_up() {
        let count = SeqCount::new();
        let mut copies = 0;
        let copied = count.read(|| {
            copies += 1;
            drop(count.write());
        });
        assert_eq!((copied, copies), (None, TRIES));
    }

    #[test]
    fn the_count_wraps() {
        let count = SeqCount(AtomicU32::new(u32::MAX - 1));
        let before = count.begin().unwrap();
        drop(count.write());
        assert!(!count.validate(before));
        assert_eq!(count.begin(), Some(Seq(0)));
    }
}
