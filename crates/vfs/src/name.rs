//! File names: bytes, held in place while they are short, and their hash.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// Words that a name has in place.
const WORDS: usize = 5;

/// Longest name that needs no memory of its own; nine names in ten are shorter.
const INLINE: usize = 8 * WORDS;

/// An owned file name.
#[derive(Clone)]
pub(crate) struct Name(Repr);

#[derive(Clone)]
enum Repr {
    /// Little-endian, zeroes behind the end.
    Inline {
        len: u16,
        words: [u64; WORDS],
    },
    Heap(Box<[u8]>),
}

/// A name in a path, as [`scan_name`] found it.
#[derive(Clone, Copy)]
pub(crate) struct Scanned<'a> {
    /// Its bytes.
    pub(crate) bytes: &'a [u8],
    /// The first eight of them, with zeroes behind the end.
    first: u64,
    /// Its hash.
    pub(crate) hash: u64,
}

impl<'a> Scanned<'a> {
    /// A name that stands alone, in the way that [`scan_name`] finds one in a path.
    pub(crate) fn alone(seed: u64, parent: u64, name: &'a [u8]) -> Self {
        let first = load(name, 0);
        let hash = match name.len() {
            // Then the first bytes are all.
            len @ ..8 => finish(seed, start(seed, parent), first, len),
            _ => hash_name(seed, parent, name),
        };
        Self { bytes: name, first, hash }
    }
}

impl Name {
    pub(crate) fn new(name: &[u8]) -> Self {
        match u16::try_from(name.len()) {
            // Not by way of memory: who copies words that were written in pieces waits for the pieces.
            Ok(len @ ..=8) => Self(Repr::Inline { len, words: [load(name, 0), 0, 0, 0, 0] }),
            Ok(len) if name.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..name.len()].copy_from_slice(name);
                let words = std::array::from_fn(|index| word_of(&bytes[8 * index..8 * index + 8]));
                Self(Repr::Inline { len, words })
            }
            _ => Self(Repr::Heap(name.into())),
        }
    }

    /// Calls `then` with the bytes.
    pub(crate) fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R {
        match &self.0 {
            Repr::Inline { len, words } => {
                let mut bytes = [0; INLINE];
                for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
                then(&bytes[..usize::from(*len)])
            }
            Repr::Heap(bytes) => then(bytes),
        }
    }

    /// Has these bytes.
    pub(crate) fn is(&self, name: &[u8]) -> bool {
        self.with_bytes(|bytes| bytes == name)
    }

    /// Is the name that was scanned.
    #[inline]
    pub(crate) fn is_scanned(&self, name: &Scanned<'_>) -> bool {
        match &self.0 {
            Repr::Inline { len, words } if *len <= 8 => {
                usize::from(*len) == name.bytes.len() && words[0] == name.first
            }
            _ => self.is_long(name),
        }
    }

    // Not inlined, lest short names pay for the registers that it needs.
    #[inline(never)]
    fn is_long(&self, name: &Scanned<'_>) -> bool {
        match &self.0 {
            Repr::Inline { len, words } => {
                usize::from(*len) == name.bytes.len()
                    && words[0] == name.first
                    && same_behind_first(words, name.bytes)
            }
            Repr::Heap(bytes) => **bytes == *name.bytes,
        }
    }
}

/// Compares what is behind the first eight of more than eight bytes.
fn same_behind_first(words: &[u64; WORDS], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<8>();
    let mut pairs = words.iter().zip(whole).skip(1);
    pairs.all(|(word, bytes)| *word == u64::from_le_bytes(*bytes))
        && words.get(whole.len()).is_none_or(|word| rest.is_empty() || *word == rest_of(bytes, rest))
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_bytes(|bytes| write!(f, "{:?}", String::from_utf8_lossy(bytes)))
    }
}

/// A number that nobody can foresee, to hash names with.
pub(crate) fn new_seed() -> u64 {
    // A model takes the same course each time that it is run.
    if cfg!(feature = "loom") { 1 } else { RandomState::new().hash_one(0u8) }
}

/// Hashes names in directories, eight bytes at a time; the last, incomplete word carries the length. `seed` is secret,
/// so that nobody can choose names that collide.
#[inline]
pub(crate) fn hash_name(seed: u64, parent: u64, name: &[u8]) -> u64 {
    let (words, rest) = name.as_chunks::<8>();
    let start = start(seed, parent);
    let state = words.iter().fold(start, |state, &bytes| fold(state ^ u64::from_le_bytes(bytes), seed | 1));
    finish(seed, state, rest_of(name, rest), name.len())
}

/// Hashes words in the same way.
pub(crate) fn hash_words(seed: u64, words: impl ExactSizeIterator<Item = u64>) -> u64 {
    let len = words.len();
    let state = words.fold(start(seed, 0), |state, word| fold(state ^ word, seed | 1));
    finish(seed, state, 0, len)
}

/// Up to seven bytes that `bytes` ends with, by one load where there are eight to load.
#[inline]
pub(crate) fn rest_of(bytes: &[u8], rest: &[u8]) -> u64 {
    match bytes.last_chunk::<8>() {
        Some(_) if rest.is_empty() => 0,
        Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
        None => short_word(rest),
    }
}

/// Compares by words: for what is as short as a path, a call of `memcmp` costs more.
#[inline]
pub(crate) fn same_bytes(one: &[u8], other: &[u8]) -> bool {
    let ((words, rest), (other_words, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    one.len() == other.len()
        && words.iter().zip(other_words).all(|(one, other)| one == other)
        && rest_of(one, rest) == rest_of(other, other_rest)
}

/// Finds the name that starts at `from` in `path`, which ends before a slash, a zero byte or with the path, and hashes it
/// as [`hash_name`] does, both in one go.
#[inline]
pub(crate) fn scan_name(seed: u64, parent: u64, path: &[u8], from: usize) -> Scanned<'_> {
    let text = load(path, from);
    let state = start(seed, parent);
    match rest_of_name(text) {
        Some((len, first)) => {
            let bytes = &path[from..from + len];
            Scanned { bytes, first, hash: finish(seed, state, first, len) }
        }
        None => scan_long(seed, state, text, path, from),
    }
}

/// Goes on behind the first eight bytes.
#[inline(never)]
fn scan_long(seed: u64, state: u64, first: u64, path: &[u8], from: usize) -> Scanned<'_> {
    let (mut state, mut text, mut at) = (state, first, from);
    loop {
        state = fold(state ^ text, seed | 1);
        at += 8;
        text = load(path, at);
        if let Some((len, rest)) = rest_of_name(text) {
            let bytes = &path[from..at + len];
            return Scanned { bytes, first, hash: finish(seed, state, rest, bytes.len()) };
        }
    }
}

/// The bytes in front of the first slash or zero in `text`, and how many they are; `None` if there is neither.
#[inline]
fn rest_of_name(text: u64) -> Option<(usize, u64)> {
    let ends = zero_bytes(text) | zero_bytes(text ^ SLASHES);
    if ends == 0 {
        return None;
    }
    // Eight times the number of bytes.
    let bits = ends.trailing_zeros() & !7;
    Some(((bits / 8) as usize, text & ((1 << bits) - 1)))
}

/// Eight bytes of `path` from `at` on, or as many as there are, and zeroes behind its end.
#[inline]
fn load(path: &[u8], at: usize) -> u64 {
    match path.get(at..at + 8) {
        Some(bytes) => word_of(bytes),
        None => load_last(path, at),
    }
}

/// Up to seven bytes at the end of `path`: by one load where there are eight to load.
#[inline(never)]
fn load_last(path: &[u8], at: usize) -> u64 {
    match path.last_chunk::<8>() {
        Some(bytes) if at < path.len() => u64::from_le_bytes(*bytes) >> (8 * (at + 8 - path.len())),
        Some(_) => 0,
        None => short_word(&path[at..]),
    }
}

const SLASHES: u64 = u64::from_le_bytes([b'/'; 8]);

/// The high bit of the lowest byte that is zero, and perhaps of higher ones.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

#[inline]
fn start(seed: u64, parent: u64) -> u64 {
    // By a secret factor, lest names be chosen to make up for the difference between two directories.
    seed ^ parent.wrapping_mul(seed.rotate_left(32) | 1)
}

#[inline]
fn finish(seed: u64, state: u64, rest: u64, len: usize) -> u64 {
    // At most seven bytes are left, so the eighth is free for the length.
    fold(state ^ rest ^ (len as u64) << 56, (seed ^ 0xd6e8_feb8_6659_fd93) | 1)
}

#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// Up to seven bytes, from the lowest on: by two loads, which may have bytes in common.
#[inline]
fn short_word(bytes: &[u8]) -> u64 {
    let both = |low: u64, high: u64, size: usize| low | high << (8 * (bytes.len() - size));
    match (bytes.first_chunk::<4>().zip(bytes.last_chunk()), bytes.first_chunk::<2>().zip(bytes.last_chunk()))
    {
        (Some((&low, &high)), _) => both(u32::from_le_bytes(low).into(), u32::from_le_bytes(high).into(), 4),
        (_, Some((&low, &high))) => both(u16::from_le_bytes(low).into(), u16::from_le_bytes(high).into(), 2),
        _ => bytes.first().map_or(0, |&byte| byte.into()),
    }
}

/// Both halves of the product: every bit of the operands reaches every bit of the result.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the two halves of a 128-bit product are what is wanted")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn names_keep_their_bytes_at_every_length() {
        for len in 1..=255u8 {
            let bytes: Vec<u8> = (1..=len).map(|byte| if byte == b'/' { 0xff } else { byte }).collect();
            let name = Name::new(&bytes);
            let scans = |path: &[u8]| name.is_scanned(&scan_name(1, 2, path, 0));
            assert!(name.with_bytes(|kept| kept == bytes) && name.is(&bytes) && scans(&bytes));
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 0x40;
                assert!(!name.is(&other) && !scans(&other));
                assert!(!name.is(&bytes[..at]) && !scans(&bytes[..at]));
            }
        }
    }

    #[test]
    fn bytes_are_the_same_only_if_all_are() {
        for len in 0..40u8 {
            let bytes: Vec<u8> = (0..len).collect();
            assert!(same_bytes(&bytes, &bytes.clone()));
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert!(!same_bytes(&bytes, &other) && !same_bytes(&bytes, &bytes[..at]));
            }
        }
    }

    #[test]
    fn hashes_spread() {
        let mut seen = HashSet::new();
        let mut low = HashSet::new();
        for parent in 0..100 {
            for number in 0..1000 {
                let hash = hash_name(0x5eed_0f1a_6c3b_9d27, parent, format!("file{number}").as_bytes());
                seen.insert(hash);
                low.insert(hash >> 44);
            }
        }
        assert_eq!(seen.len(), 100_000);
        // Of a million buckets; chance would leave 95,000 of them with an entry.
        assert!(low.len() > 94_000, "{} buckets", low.len());
        assert_ne!(hash_name(7, 1, b"a"), hash_name(7, 1, b"a\0"), "the length counts");
    }

    proptest! {
        #[test]
        fn a_scan_finds_the_name_and_its_hash(
            name in "[a-z]{0,40}", rest in "(/[a-z/]{0,20})?", seed: u64, parent: u64,
        ) {
            let want = (name.as_bytes(), hash_name(seed, parent, name.as_bytes()));
            for path in [format!("x/{name}{rest}"), format!("x/{name}\0{rest}")] {
                let scanned = scan_name(seed, parent, path.as_bytes(), 2);
                prop_assert_eq!((scanned.bytes, scanned.hash), want);
                prop_assert!(Name::new(name.as_bytes()).is_scanned(&scanned));
                let alone = Scanned::alone(seed, parent, name.as_bytes());
                prop_assert_eq!((alone.bytes, alone.first, alone.hash), (scanned.bytes, scanned.first, scanned.hash));
            }
        }
    }
}
