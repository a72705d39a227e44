//! Range locks: they exclude writes over the same part of a file.
//!
//! `OpenFile` takes them for such a write. Of two writes that overlap, each byte that both write
//! ends as the same one of them wrote it.
//!
//! A write over existing contents that changes no attribute holds the `rwsem` shared
//! ([`file`](crate::file)), so that several threads write over one file at once. If the file system
//! cannot write in one step, it takes the latches of the *chunks* of the file that the write
//! covers. It holds them until the last byte is written. One table has the latches of all files;
//! inode and chunk number select one. A writer with the `rwsem` exclusive needs none.
//!
//! # Why writes are whole towards each other
//! Two writes that have a byte in common cover its chunk. If both take latches, they need at least
//! one in common. Each takes all its latches before it writes and releases them after it has
//! written, so one is complete before the other begins. A write without latches is one step, and
//! the steps of others are atomic towards it. Both use the same block map, so the bytes that it
//! shares with another write are in one step of that write. It comes before that step or after it,
//! and so before or after the whole write. A writer with the `rwsem` exclusive comes before or
//! after either.
//!
//! # Why no deadlock arises
//! A thread takes its latches once, each of them once, by rising place in the table. So the holder
//! of the highest latch that threads wait for waits for no latch itself. Under its latches it takes
//! no `rwsem` and no handle, which the waiting threads could hold. It reads the block map, writes
//! at most [`MOST_BYTES`] to the device, and releases them. Debug builds check it: no lock with a
//! rank is taken under these ([`Rank::Chunk`]).
//!
//! Two writes that do not overlap may need the same latch by chance. One then waits for the other,
//! which costs time and is not wrong.

use std::ops::Range;

use extern4_sync::lock_order::{Ordered, Rank};
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::capacity;

use crate::inode::Inode;
use crate::lock::{self, Latch, LatchGuard};

/// Bytes of a chunk: a page, the unit of most databases' writes.
const CHUNK_BYTES: u64 = 4096;
/// The longest write that may take latches. Taking the `rwsem` exclusive adds little to the time of
/// a longer one.
pub(crate) const MOST_BYTES: usize = 64 << 10;
/// The most chunks that such a write covers, if it begins inside one.
const MOST_CHUNKS: usize = MOST_BYTES / CHUNK_BYTES as usize + 1;
/// The number of latches, as a power of two: enough that two of a few dozen threads hardly ever
/// need the same one.
const LATCH_BITS: u32 = capacity(9, 1);

/// Latches of chunks, each on its own line.
pub(crate) struct RangeLocks(Box<[Padded<Latch<()>>]>);

/// Latches that are held.
type Held<'a> = [Option<LatchGuard<'a, ()>>; MOST_CHUNKS];

impl RangeLocks {
    pub(crate) fn new() -> Self {
        Self(
            (0..1 << LATCH_BITS)
                .map(|_| Padded(Latch::new(())))
                .collect(),
        )
    }

    /// Takes the latches of the chunks that these bytes of a file lie in: at least one byte, and at
    /// most [`MOST_BYTES`]. Locks: the inode's `rwsem` shared.
    #[track_caller]
    pub(crate) fn lock(&self, inode: &Inode, bytes: Range<u64>) -> Ordered<Held<'_>> {
        debug_assert!(bytes.end > bytes.start && bytes.end - bytes.start <= MOST_BYTES as u64);
        let file = std::ptr::from_ref(inode).addr() as u64;
        let chunks = bytes.start / CHUNK_BYTES..bytes.end.div_ceil(CHUNK_BYTES);
        let mut places = [0; MOST_CHUNKS];
        let mut len = 0;
        for (place, chunk) in places.iter_mut().zip(chunks) {
            *place = place_of(file, chunk);
            len += 1;
        }
        let places = &mut places[..len];
        places.sort_unstable();
        Ordered::lock(Rank::Chunk, || {
            let (mut held, mut last): (Held<'_>, _) = ([const { None }; MOST_CHUNKS], None);
            for (held, &mut place) in held.iter_mut().zip(places) {
                if last.replace(place) != Some(place) {
                    *held = Some(lock::latch(&self.0[place].0));
                }
            }
            held
        })
    }
}

/// Returns the index of the latch of a chunk.
fn place_of(file: u64, chunk: u64) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    // By the upper bits of products, so that neither neighbours nor chunks at round distances share
    // a latch. OK: a few bits.
    ((file.wrapping_mul(ODD) ^ chunk).wrapping_mul(ODD) >> (u64::BITS - LATCH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::attr::{Attr, FileType};
    use crate::inode::NewInode;

    fn file() -> Inode {
        let attr = Attr {
            kind: FileType::Regular,
            ..Attr::default()
        };
        Inode::detached(NewInode {
            attr,
            no_acl: true,
            no_caps: true,
            private: Box::new(()),
        })
    }

    fn held(held: &Ordered<Held<'_>>) -> usize {
        held.iter().flatten().count()
    }

    #[test]
    fn a_range_takes_each_latch_of_its_chunks_once() {
        let chunks = RangeLocks::new();
        let inode = file();
        assert_eq!(held(&chunks.lock(&inode, 4095..4096)), 1);
        assert_eq!(held(&chunks.lock(&inode, 4095..4097)), 2);
        for start in [0, 1, 4095, 1 << 40] {
            let bytes = start..start + MOST_BYTES as u64;
            let numbers = start / CHUNK_BYTES..bytes.end.div_ceil(CHUNK_BYTES);
            let file = std::ptr::from_ref(&inode).addr() as u64;
            let places: BTreeSet<_> = numbers.map(|chunk| place_of(file, chunk)).collect();
            let taken = chunks.lock(&inode, bytes);
            assert_eq!(held(&taken), places.len(), "{start}");
            for (place, latch) in chunks.0.iter().enumerate() {
                assert_eq!(
                    latch.try_lock().is_err(),
                    places.contains(&place),
                    "{start}, {place}"
                );
            }
        }
        assert!(
            chunks.0.iter().all(|latch| latch.try_lock().is_ok()),
            "all are given back"
        );
    }

    #[test]
    fn chunks_near_each_other_and_at_round_distances_have_different_latches() {
        let inode = file();
        let file = std::ptr::from_ref(&inode).addr() as u64;
        for distance in [1, 16, 256, 4096, 1 << 20] {
            let places: BTreeSet<_> = (0..32)
                .map(|chunk| place_of(file, chunk * distance))
                .collect();
            assert!(places.len() >= 28, "{distance}: {}", places.len());
        }
    }
}
