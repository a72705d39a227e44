//! The digest of a file's bytes, which does not depend on how they are read.
//!
//! Both oracles and the tests compute it. Equal contents have equal digests; different ones differ,
//! except by chance. It is no protection against contents made to collide.

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The [`ContentDigest`] of the bytes, or the errno of a refused read.
    pub digest: Result<u64, i32>,
    /// The ranges that `lseek(SEEK_DATA)` finds, as start and end in bytes, where known.
    pub data: Option<Vec<(u64, u64)>>,
}

/// A digest that does not depend on the order or size of the pieces it is fed with.
///
/// Each aligned non-zero word of eight bytes is mixed with its offset and the results are added up.
/// Zeroes add nothing, so a hole, an unwritten extent and written zeroes are the same content. A
/// sparse terabyte costs as much as the bytes that are there.
#[derive(Clone, Copy, Debug, Default)]
pub struct ContentDigest(u64);

impl ContentDigest {
    /// Adds the bytes at `offset`. Pieces start at multiples of eight; only the last may end
    /// elsewhere.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        assert_eq!(
            offset % 8,
            0,
            "a piece of content starts at an unaligned offset"
        );
        for (at, chunk) in (offset..).step_by(8).zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_le_bytes(word);
            if word != 0 {
                self.0 = self
                    .0
                    .wrapping_add(mix(word ^ mix(at.wrapping_add(0x9e37_79b9_7f4a_7c15))));
            }
        }
    }

    /// Returns the digest of all bytes that were added.
    pub fn finish(self) -> u64 {
        self.0
    }
}

/// Spreads every input bit over the whole word (the finaliser of SplitMix64).
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_and_zeroes_make_no_difference() {
        let bytes: Vec<u8> = (0..1003_u32).map(|i| (i % 251) as u8).collect();
        let mut whole = ContentDigest::default();
        whole.add(4096, &bytes);
        let mut pieces = ContentDigest::default();
        pieces.add(4096 + 512, &bytes[512..]);
        pieces.add(0, &[0; 4096]);
        pieces.add(4096, &bytes[..512]);
        assert_eq!(whole.finish(), pieces.finish());
        let mut moved = ContentDigest::default();
        moved.add(4104, &bytes);
        assert_ne!(whole.finish(), moved.finish());
    }
}
