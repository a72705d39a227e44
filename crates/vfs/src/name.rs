//! Names of dentries: bytes, stored in place while they are short, and their hash.
//!
//! Walks scan names out of paths, and dentries keep them. A hash depends on a random seed for each
//! cache, so a volume's names cannot be chosen to collide. Two names are equal only if their bytes
//! are; file systems with case folding compare canonical forms instead. A name may hold any bytes
//! but `/` and zero, and need not be UTF-8.

use std::hash::{BuildHasher, RandomState};

use extern4_sync::primitive::{AtomicU64, Ordering, capacity};
use extern4_sync::rcu::{Guard, RcuOption};

/// Words that a name has in place.
const WORDS: usize = capacity(5, 2);

/// Length from which a name needs separate memory; nine names in ten are shorter.
const LONG: usize = 8 * WORDS;

/// The name of a dentry: the key by which lookups find it, and the spelling that paths show.
///
/// Readers compare it while a rename writes it. So each word is an atomic, and the reader asks the
/// dentry afterwards whether the words belong together ([`DentryState`]). Since a name has no zero
/// bytes, the first zero ends it.
///
/// [`DentryState`]: crate::dentry_state::DentryState
pub(crate) struct DentryName {
    /// The key, or the first bytes of a long one: little-endian, zeroes behind the end.
    words: [AtomicU64; WORDS],
    /// Texts that the words do not hold.
    texts: RcuOption<Texts>,
}

struct Texts {
    key: Box<[u8]>,
    /// The spelling, if it differs.
    spelling: Option<Box<[u8]>>,
}

/// A name in a path, as [`scan_name`] found it.
#[derive(Clone, Copy)]
pub(crate) struct Scanned<'a> {
    pub(crate) bytes: &'a [u8],
    /// The first eight of them, with zeroes behind the end.
    first: u64,
    /// Its hash, as [`hash_name`] has it.
    pub(crate) hash: u64,
}

impl<'a> Scanned<'a> {
    /// Returns whether it is `.` or `..`.
    #[inline]
    pub(crate) fn is_dots(&self) -> bool {
        self.first == u64::from(b'.') || self.first == u64::from_le_bytes(*b"..\0\0\0\0\0\0")
    }

    /// Returns a name that stands alone, in the way that [`scan_name`] finds one in a path.
    pub(crate) fn alone(seed: u64, name: &'a [u8]) -> Self {
        let first = load(name);
        let hash = match name.len() {
            // The name has no further bytes.
            len @ ..8 => finish(seed, seed, first, len),
            _ => hash_name(seed, name),
        };
        Self {
            bytes: name,
            first,
            hash,
        }
    }
}

impl DentryName {
    pub(crate) fn new(key: &[u8], spelling: &[u8]) -> Self {
        let word = |index: usize| AtomicU64::new(key.get(8 * index..).map_or(0, load));
        Self {
            words: std::array::from_fn(word),
            texts: RcuOption::new(Texts::of(key, spelling)),
        }
    }

    /// Writes another name. Locks: the dentry's name, whose state says that it is being written.
    pub(crate) fn set(&self, key: &[u8], spelling: &[u8], guard: &Guard) {
        for (index, word) in self.words.iter().enumerate() {
            let new = key.get(8 * index..).map_or(0, load);
            // Relaxed: see `DentryState`. The test spares models a store that changes nothing.
            if word.load(Ordering::Relaxed) != new {
                word.store(new, Ordering::Relaxed);
            }
        }
        self.respell(key, spelling, guard);
    }

    /// Writes another spelling of the name. Locks: as for [`set`](Self::set).
    pub(crate) fn respell(&self, key: &[u8], spelling: &[u8], guard: &Guard) {
        let texts = Texts::of(key, spelling);
        if texts.is_some() || !self.texts.is_none() {
            self.texts.swap(texts, guard);
        }
    }

    /// Returns the spelling, which is of one moment only if the state has not changed.
    pub(crate) fn spelling(&self, guard: &Guard) -> Box<[u8]> {
        if let Some(texts) = self.texts.load(guard) {
            return texts.spelling.as_ref().unwrap_or(&texts.key).clone();
        }
        let mut bytes = [0; LONG];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&self.words) {
            // Relaxed: see `DentryState`.
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(LONG);
        bytes[..end].into()
    }

    /// Returns whether its key is the name that was scanned.
    #[inline]
    pub(crate) fn is(&self, name: &Scanned<'_>, guard: &Guard) -> bool {
        // Relaxed: see `DentryState`. A name of less than eight bytes ends in the first word.
        self.words[0].load(Ordering::Relaxed) == name.first
            && (name.bytes.len() < 8 || self.is_longer(name.bytes, guard))
    }

    // Not inlined: short names would pay for the registers that it needs.
    #[inline(never)]
    fn is_longer(&self, name: &[u8], guard: &Guard) -> bool {
        if name.len() >= LONG {
            return self
                .texts
                .load(guard)
                .is_some_and(|texts| *texts.key == *name);
        }
        // By words: for texts as short as names, a call of `memcmp` costs more. The word behind the
        // whole ones holds the rest and the zero that ends the name.
        let (whole, rest) = name.as_chunks::<8>();
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        let expected = whole
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .chain([rest_of(name, rest)]);
        words.zip(expected).all(|(word, expected)| word == expected)
    }
}

impl Texts {
    /// Returns the texts that do not fit into the words of a name.
    fn of(key: &[u8], spelling: &[u8]) -> Option<Self> {
        let differs = key != spelling;
        (differs || key.len() >= LONG).then(|| Self {
            key: key.into(),
            spelling: differs.then(|| spelling.into()),
        })
    }
}

/// Returns a random seed for hashes of names.
pub fn new_seed() -> u64 {
    // A model takes the same course each time that it is run.
    if cfg!(feature = "loom") {
        1
    } else {
        RandomState::new().hash_one(0u8)
    }
}

/// Hashes a name, eight bytes at a time; the last, incomplete word carries the length. `seed` is
/// secret, so that names cannot be chosen to collide. The hash of a name in a directory is that of
/// the name, combined with the directory's own number (`in_directory`). So a walk hashes the
/// names ahead while it waits for a directory's number.
#[inline]
pub fn hash_name(seed: u64, name: &[u8]) -> u64 {
    let (words, rest) = name.as_chunks::<8>();
    let state = words.iter().fold(seed, |state, &bytes| {
        fold(state ^ u64::from_le_bytes(bytes), seed | 1)
    });
    finish(seed, state, rest_of(name, rest), name.len())
}

/// Returns the hash of a name in a directory, whose number comes from [`spread`]. For one name, two
/// directories never give one hash.
#[inline]
pub(crate) fn in_directory(parent: u64, name_hash: u64) -> u64 {
    parent ^ name_hash
}

/// Returns a different number for each number, in which every bit depends on all bits of that. So a
/// difference between the numbers of directories does not cancel one between the hashes of names.
#[inline]
pub(crate) fn spread(seed: u64, number: u64) -> u64 {
    // Each step can be undone, so two numbers never become one.
    let mixed = (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

/// Hashes words in the same way.
pub(crate) fn hash_words(seed: u64, words: impl ExactSizeIterator<Item = u64>) -> u64 {
    let len = words.len();
    let state = words.fold(seed, |state, word| fold(state ^ word, seed | 1));
    finish(seed, state, 0, len)
}

/// Returns up to seven bytes that `bytes` ends with, by one load where there are eight to load.
#[inline]
fn rest_of(bytes: &[u8], rest: &[u8]) -> u64 {
    match bytes.last_chunk::<8>() {
        Some(_) if rest.is_empty() => 0,
        Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
        None => short_word(rest),
    }
}

/// Finds the name that `path` starts with, and hashes it as [`hash_name`] does in the same pass.
/// The name ends before a slash or a zero byte, or with the path.
#[inline]
pub(crate) fn scan_name(seed: u64, path: &[u8]) -> Scanned<'_> {
    let text = load(path);
    let (first, len, hash) = match rest_of_name(text) {
        Some((len, first)) => (first, len, finish(seed, seed, first, len)),
        None => {
            let (len, hash) = scan_long(seed, text, path);
            (text, len, hash)
        }
    };
    Scanned {
        bytes: &path[..len],
        first,
        hash,
    }
}

/// Goes on behind the first eight bytes. Length and hash come back in registers.
#[inline(never)]
fn scan_long(seed: u64, first: u64, path: &[u8]) -> (usize, u64) {
    let mut state = seed;
    let mut text = first;
    let mut at = 0;
    loop {
        state = fold(state ^ text, seed | 1);
        at += 8;
        text = load(&path[at..]);
        if let Some((len, rest)) = rest_of_name(text) {
            return (at + len, finish(seed, state, rest, at + len));
        }
    }
}

/// Returns the bytes in front of the first slash or zero in `text`, and how many they are; `None`
/// if there is neither.
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

/// Returns the first eight bytes of `text`, or as many as there are, and zeroes behind its end.
#[inline]
fn load(text: &[u8]) -> u64 {
    match text.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => short_word(text),
    }
}

const SLASHES: u64 = u64::from_le_bytes([b'/'; 8]);

/// Returns the high bit of the lowest byte that is zero, and perhaps of higher ones.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

#[inline]
fn finish(seed: u64, state: u64, rest: u64, len: usize) -> u64 {
    // At most seven bytes are left, so the eighth is free for the length.
    fold(
        state ^ rest ^ (len as u64) << 56,
        (seed ^ 0xd6e8_feb8_6659_fd93) | 1,
    )
}

/// Returns up to seven bytes, from the lowest on: by two loads, which may have bytes in common.
#[inline(never)]
fn short_word(bytes: &[u8]) -> u64 {
    let both = |low: u64, high: u64, size: usize| low | high << (8 * (bytes.len() - size));
    match (
        bytes.first_chunk::<4>().zip(bytes.last_chunk()),
        bytes.first_chunk::<2>().zip(bytes.last_chunk()),
    ) {
        (Some((&low, &high)), _) => both(
            u32::from_le_bytes(low).into(),
            u32::from_le_bytes(high).into(),
            4,
        ),
        (_, Some((&low, &high))) => both(
            u16::from_le_bytes(low).into(),
            u16::from_le_bytes(high).into(),
            2,
        ),
        _ => bytes.first().map_or(0, |&byte| byte.into()),
    }
}

/// Returns both halves of the product: every bit of the operands reaches every bit of the result.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of a 128-bit product are what is wanted"
)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use extern4_sync::rcu::pin;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn names_keep_their_bytes_at_every_length() {
        let guard = pin();
        let name = DentryName::new(b"a former name", b"a former name");
        for len in 1..=255u8 {
            let bytes: Vec<u8> = (1..=len)
                .map(|byte| if byte == b'/' { 0xff } else { byte })
                .collect();
            name.set(&bytes, &bytes, &guard);
            let scans = |path: &[u8]| name.is(&scan_name(1, path), &guard);
            assert!(*name.spelling(&guard) == *bytes && scans(&bytes));
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 0x80;
                assert!(!scans(&other) && !scans(&bytes[..at]));
            }
        }
    }

    #[test]
    fn a_key_may_have_another_spelling() {
        let guard = pin();
        for (key, spelling) in [
            ("name", "Name"),
            ("", "x"),
            (&*"k".repeat(60), &*"K".repeat(60)),
        ] {
            let name = DentryName::new(key.as_bytes(), spelling.as_bytes());
            assert_eq!(*name.spelling(&guard), *spelling.as_bytes());
            assert!(name.is(&Scanned::alone(1, key.as_bytes()), &guard));
            name.respell(key.as_bytes(), key.as_bytes(), &guard);
            assert_eq!(*name.spelling(&guard), *key.as_bytes());
        }
    }

    #[test]
    fn hashes_spread() {
        // Directories that were made one after the other, all with the same names: few directories,
        // many, and a deep tree.
        for (seed, parents, names) in [
            (0x5eed_0f1a_6c3b_9d27, 100, 1000),
            (0xc0de_2b8f_91d3_7a45, 10_000, 10),
            (u64::MAX / 7, 50_000, 2),
        ] {
            let mut hashes = HashSet::new();
            // The bits that choose a bucket and the bits that choose a lock.
            let mut high = HashSet::new();
            let mut low = vec![0u32; 256];
            for parent in 1..=parents {
                for name in 0..names {
                    let name = hash_name(seed, format!("file{name}").as_bytes());
                    let hash = in_directory(spread(seed, parent), name);
                    hashes.insert(hash);
                    high.insert(hash >> 44);
                    low[(hash & 255) as usize] += 1;
                }
            }
            assert_eq!(hashes.len(), 100_000);
            // Of a million buckets; chance would leave 95,000 of them with an entry.
            assert!(high.len() > 94_000, "{} buckets", high.len());
            assert!(
                low.iter().all(|&there| (200..600).contains(&there)),
                "{low:?}"
            );
        }
        assert_ne!(
            hash_name(7, b"a"),
            hash_name(7, b"a\0"),
            "the length counts"
        );
    }

    proptest! {
        #[test]
        fn a_scan_finds_the_name_and_its_hash(
            name in "[a-z]{0,40}", rest in "(/[a-z/]{0,20})?", seed: u64,
        ) {
            let want = (name.as_bytes(), hash_name(seed, name.as_bytes()));
            for path in [format!("x/{name}{rest}"), format!("x/{name}\0{rest}")] {
                let scanned = scan_name(seed, &path.as_bytes()[2..]);
                prop_assert_eq!((scanned.bytes, scanned.hash), want);
                let kept = DentryName::new(name.as_bytes(), name.as_bytes());
                prop_assert!(kept.is(&scanned, &pin()));
                let alone = Scanned::alone(seed, name.as_bytes());
                prop_assert_eq!((alone.bytes, alone.first, alone.hash), (scanned.bytes, scanned.first, scanned.hash));
            }
        }
    }
}
