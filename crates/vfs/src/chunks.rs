//! The parts of files that are being written over.
//!
//! A write that changes nothing of an inode, and of its contents only what they say, has the `rwsem` shared ([`file`](crate::file)), so
//! that several threads write over one file at once. What the file system cannot write in one step, it writes with the latches of the
//! *chunks* of the file that the write covers, until its last byte is written. They stand in one table for all files; the inode and the
//! number of the chunk say which it is. Whoever has the `rwsem` exclusive needs none.
//!
//! # Why writes are whole towards each other
//! Two that have a byte in common cover the chunk that it lies in. So, if both take latches, they want one at least in common, each takes
//! all that it wants before it writes, and gives none back before it has written. One writes all it has to before the other begins.
//! One that takes none writes in one step, where the steps of others are whole as well; and as the map is the same for both, the bytes
//! that it has in common with the other are in one step of that: it comes before that step or after, and so before or after all of it.
//! Who has the `rwsem` exclusive comes before or after either.
//!
//! # Why nobody waits in a circle
//! A thread takes the latches that it wants once, each of them once, by rising place in the table. So of all latches that are waited for,
//! who has the one at the highest place waits for no latch. He takes nothing else that who waits for a latch, and so has a `rwsem`
//! shared, could keep from him: no `rwsem`, no handle; he looks at the map of the file, writes to the device, and is done with at most
//! [`MOST_BYTES`]. Debug builds check it: no lock with a rank is taken under these ([`Rank::Chunk`]).
//!
//! Two writes that do not overlap may want one latch, by chance. They wait for each other then, which is never wrong.

use std::ops::Range;

use extern4_sync::lock_order::{Ordered, Rank};
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::capacity;

use crate::inode::Inode;
use crate::lock::{self, Latch, LatchGuard};

/// Bytes of a chunk: a page, which is what databases write, or more.
const CHUNK_BYTES: u64 = 4096;
/// The longest write that may take latches: what is longer is not held up by taking the `rwsem` exclusive.
pub(crate) const MOST_BYTES: usize = 64 << 10;
/// Chunks that such a write covers at most, where it begins within one.
const MOST_CHUNKS: usize = MOST_BYTES / CHUNK_BYTES as usize + 1;
/// Latches: so many that of a few dozens of threads hardly two meet in one.
const LATCH_BITS: u32 = capacity(9, 1);

/// Latches of chunks, each on a line of its own.
pub(crate) struct Chunks(Box<[Padded<Latch<()>>]>);

/// Latches that are held.
type Held<'a> = [Option<LatchGuard<'a, ()>>; MOST_CHUNKS];

impl Chunks {
    pub(crate) fn new() -> Self {
        Self((0..1 << LATCH_BITS).map(|_| Padded(Latch::new(()))).collect())
    }

    /// Takes the latches of the chunks that these bytes of a file lie in: at least one byte, and at most [`MOST_BYTES`]. Locks: the
    /// inode's `rwsem` shared.
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

/// Where the latch of a chunk stands.
fn place_of(file: u64, chunk: u64) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    // By the upper bits of products, so that neither neighbours nor chunks at round distances meet. OK: a few bits.
    ((file.wrapping_mul(ODD) ^ chunk).wrapping_mul(ODD) >> (u64::BITS - LATCH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::attr::{Attr, FileType};
    use crate::inode::NewInode;

    fn file() -> Inode {
        let attr = Attr { kind: FileType::Regular, ..Attr::default() };
        Inode::detached(NewInode { attr, no_acl: true, no_caps: true, private: Box::new(()) })
    }

    fn held(held: &Ordered<Held<'_>>) -> usize {
        held.iter().flatten().count()
    }

    #[test]
    fn a_range_takes_each_latch_of_its_chunks_once() {
        let (chunks, inode) = (Chunks::new(), file());
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
                assert_eq!(latch.try_lock().is_err(), places.contains(&place), "{start}, {place}");
            }
        }
        assert!(chunks.0.iter().all(|latch| latch.try_lock().is_ok()), "all are given back");
    }

    #[test]
    fn chunks_near_each_other_and_at_round_distances_have_different_latches() {
        let inode = file();
        let file = std::ptr::from_ref(&inode).addr() as u64;
        for distance in [1, 16, 256, 4096, 1 << 20] {
            let places: BTreeSet<_> = (0..32).map(|chunk| place_of(file, chunk * distance)).collect();
            assert!(places.len() >= 28, "{distance}: {}", places.len());
        }
    }
}
