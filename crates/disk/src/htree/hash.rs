//! The hashes of names in hashed directories.
//!
//! `ext4` hashes the names that it looks up, inserts and lists; the builder sorts names by their
//! hashes.
//!
//! A name hashes to two 32-bit numbers. The tree is sorted by `major`; `minor` only distinguishes
//! names whose majors collide. The tree's root says which function computes them.
//!
//! The functions are the legacy one, half MD4 and TEA. Half MD4 is three shortened rounds of MD4
//! (RFC 1320). TEA is the Tiny Encryption Algorithm of Wheeler and Needham, as a compression
//! function. Volumes carry a 128-bit seed for the latter two. Directories that are both encrypted
//! and case-folded use SipHash with the directory's key. This crate reads their hashes from the
//! entries instead.
//!
//! Early kernels took the bytes of a name as C's `char`, which is signed on some machines and not
//! on others. The two hash names beyond ASCII differently. The superblock's flags say which of the
//! two wrote the volume.

/// The function that hashes a directory's names, from the tree's root or the superblock's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HashVersion {
    /// The legacy hash.
    Legacy = 0,
    /// Half MD4.
    HalfMd4 = 1,
    /// TEA.
    Tea = 2,
    /// The legacy hash over unsigned bytes.
    LegacyUnsigned = 3,
    /// Half MD4 over unsigned bytes.
    HalfMd4Unsigned = 4,
    /// TEA over unsigned bytes.
    TeaUnsigned = 5,
    /// SipHash with the directory's key, of directories that are both encrypted and case-folded.
    SipHash = 6,
}

impl HashVersion {
    /// Returns the function that the number `raw` stands for, if any.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Legacy,
            1 => Self::HalfMd4,
            2 => Self::Tea,
            3 => Self::LegacyUnsigned,
            4 => Self::HalfMd4Unsigned,
            5 => Self::TeaUnsigned,
            6 => Self::SipHash,
            _ => return None,
        })
    }

    /// Returns the number that stands for the function.
    pub const fn to_raw(self) -> u8 {
        self as u8
    }

    /// Returns the function to use if the superblock's flags say that `char` was unsigned on the
    /// machine that hashed.
    ///
    /// Roots store the number of the signed function in either case.
    pub const fn unsigned(self) -> Self {
        match self {
            Self::Legacy => Self::LegacyUnsigned,
            Self::HalfMd4 => Self::HalfMd4Unsigned,
            Self::Tea => Self::TeaUnsigned,
            other => other,
        }
    }
}

/// The hash of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash {
    /// The sort key of the tree. The lowest bit is never set, and the value is never
    /// [`Hash::EOF_MAJOR`].
    pub major: u32,
    /// Distinguishes most names with equal `major`.
    pub minor: u32,
}

impl Hash {
    /// The major hash that marks the end of a directory; no name has it.
    pub const EOF_MAJOR: u32 = 0xFFFF_FFFE;
    /// The readdir cookie of the end of a directory.
    pub const EOF_COOKIE: u64 = (1 << 63) - 1;

    /// Returns the hash with its major made valid. It clears the lowest bit, which marks
    /// continuations, and replaces the value that marks the end of the directory.
    pub const fn new(major: u32, minor: u32) -> Self {
        let even = major & !1;
        let major = if even == Self::EOF_MAJOR {
            Self::EOF_MAJOR - 2
        } else {
            even
        };
        Self { major, minor }
    }

    /// Returns the readdir position of names with this hash: 63 bits that ascend as `(major,
    /// minor)` does.
    ///
    /// The position depends on the name alone, so it survives any change of the directory around
    /// it. It is the position that Linux returns to 64-bit programs.
    pub const fn cookie(self) -> u64 {
        (self.major as u64 >> 1) << 32 | self.minor as u64
    }

    /// Returns the hash of the names at a readdir position; `None` at the end of the directory and
    /// beyond.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes the position's parts"
    )]
    pub const fn from_cookie(cookie: u64) -> Option<Self> {
        if cookie >= Self::EOF_COOKIE || (cookie >> 32) as u32 >= Self::EOF_MAJOR >> 1 {
            return None;
        }
        Some(Self {
            major: ((cookie >> 32) as u32) << 1,
            minor: cookie as u32,
        })
    }
}

/// Hashes the names of one directory.
#[derive(Clone, Copy, Debug)]
pub struct Hasher {
    function: Function,
    signed: bool,
    state: [u32; 4],
}

#[derive(Clone, Copy, Debug)]
enum Function {
    Legacy,
    HalfMd4,
    Tea,
}

/// MD4's initial state, the replacement for a seed of zero.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];

impl Hasher {
    /// Returns a hasher for `version` with the superblock's `s_hash_seed`; `None` for SipHash,
    /// which needs a secret key.
    pub fn new(version: HashVersion, seed: [u32; 4]) -> Option<Self> {
        let (function, signed) = match version {
            HashVersion::Legacy => (Function::Legacy, true),
            HashVersion::HalfMd4 => (Function::HalfMd4, true),
            HashVersion::Tea => (Function::Tea, true),
            HashVersion::LegacyUnsigned => (Function::Legacy, false),
            HashVersion::HalfMd4Unsigned => (Function::HalfMd4, false),
            HashVersion::TeaUnsigned => (Function::Tea, false),
            HashVersion::SipHash => return None,
        };
        let state = if seed == [0; 4] { DEFAULT_SEED } else { seed };
        Some(Self {
            function,
            signed,
            state,
        })
    }

    /// Returns the hash of `name`. For a case-folded directory, `name` is the folded name.
    pub fn hash(&self, name: &[u8]) -> Hash {
        if self.signed {
            self.hash_with(name, sign_extend)
        } else {
            self.hash_with(name, u32::from)
        }
    }

    #[inline]
    fn hash_with(&self, name: &[u8], widen: fn(u8) -> u32) -> Hash {
        let mut state = self.state;
        match self.function {
            Function::Legacy => Hash::new(legacy(name, widen), 0),
            Function::HalfMd4 => {
                for_each_block(name, widen, |words: &[u32; 8]| half_md4(&mut state, words));
                Hash::new(state[1], state[2])
            }
            Function::Tea => {
                for_each_block(name, widen, |words: &[u32; 4]| tea(&mut state, words));
                Hash::new(state[0], state[1])
            }
        }
    }
}

fn sign_extend(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

/// Returns the hash of the first ext3: two numbers of 31 bits, updated from each other at every
/// byte.
fn legacy(name: &[u8], widen: fn(u8) -> u32) -> u32 {
    let mut hash = 0x12A3_FE2D_u32;
    let mut previous = 0x37AB_E8F9_u32;
    for &byte in name {
        let mut next = previous.wrapping_add(hash ^ widen(byte).wrapping_mul(7_152_373));
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7FFF_FFFF);
        }
        (previous, hash) = (hash, next);
    }
    hash << 1
}

/// Cuts `name` into blocks of `N` words and passes each to `mix`; an empty name has none.
///
/// A word takes four bytes, the first in its highest place. Bytes that sign-extend carry into the
/// places above them. Words that the name does not fill hold the low byte of the remaining length,
/// four times over.
#[inline]
fn for_each_block<const N: usize>(
    name: &[u8],
    widen: fn(u8) -> u32,
    mut mix: impl FnMut(&[u32; N]),
) {
    let mut rest = name;
    while !rest.is_empty() {
        // OK: a name has at most 255 bytes; of a longer one the lowest byte of its length counts.
        let fill = u32::from(rest.len() as u8) * 0x0101_0101;
        let (now, later) = rest.split_at(rest.len().min(N * 4));
        let mut words = [fill; N];
        for (word, bytes) in words.iter_mut().zip(now.chunks(4)) {
            *word = match <[u8; 4]>::try_from(bytes) {
                // No byte sign-extends.
                Ok(four) if four.is_ascii() => u32::from_be_bytes(four),
                _ => bytes
                    .iter()
                    .fold(fill, |sum, &byte| widen(byte).wrapping_add(sum << 8)),
            };
        }
        mix(&words);
        rest = later;
    }
}

/// Runs MD4's three rounds over eight words instead of sixteen, so each round steps every register
/// twice.
fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    fn choose(x: u32, y: u32, z: u32) -> u32 {
        z ^ (x & (y ^ z))
    }
    fn majority(x: u32, y: u32, z: u32) -> u32 {
        (x & y) | (x & z) | (y & z)
    }
    fn parity(x: u32, y: u32, z: u32) -> u32 {
        x ^ y ^ z
    }
    // The functions and constants of RFC 1320, with the order of words and the rotations that ext3
    // chose.
    let [w0, w1, w2, w3, w4, w5, w6, w7] = *words;
    let first = md4_round(
        *state,
        choose,
        0,
        [w0, w1, w2, w3, w4, w5, w6, w7],
        [3, 7, 11, 19],
    );
    let second = md4_round(
        first,
        majority,
        0x5A82_7999,
        [w1, w3, w5, w7, w0, w2, w4, w6],
        [3, 5, 9, 13],
    );
    let third = md4_round(
        second,
        parity,
        0x6ED9_EBA1,
        [w3, w7, w2, w6, w1, w5, w0, w4],
        [3, 9, 11, 15],
    );
    for (kept, mixed) in state.iter_mut().zip(third) {
        *kept = kept.wrapping_add(mixed);
    }
}

/// Runs a round of MD4 over eight words. `mix` is a parameter of the type, so it is inlined.
#[inline(always)]
fn md4_round(
    state: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
    constant: u32,
    words: [u32; 8],
    rotations: [u32; 4],
) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = state;
    for (step, word) in words.into_iter().enumerate() {
        let sum = a
            .wrapping_add(mix(b, c, d))
            .wrapping_add(word)
            .wrapping_add(constant);
        (a, b, c, d) = (d, sum.rotate_left(rotations[step % 4]), b, c);
    }
    [a, b, c, d]
}

/// Runs sixteen rounds of TEA: the first half of the state is the plaintext, the words are the key.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9E37_79B9;
    fn mix(x: u32, sum: u32, k0: u32, k1: u32) -> u32 {
        (x << 4).wrapping_add(k0) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(k1)
    }
    let mut x = state[0];
    let mut y = state[1];
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        x = x.wrapping_add(mix(y, sum, key[0], key[1]));
        y = y.wrapping_add(mix(x, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEED: [u32; 4] = [0x3322_1100, 0x7766_5544, 0xBBAA_9988, 0xFFEE_DDCC];

    #[test]
    fn hashes_that_debugfs_shows() {
        // debugfs -R "dx_hash -h N -s 00112233-4455-6677-8899-aabbccddeeff NAME"
        let name = "föö".as_bytes();
        let cases = [
            (HashVersion::Legacy, 0x3A22_CDCC, 0),
            (HashVersion::HalfMd4, 0x85A8_3C32, 0x0AD5_9BC7),
            (HashVersion::Tea, 0x7B00_1388, 0x53BF_46E6),
            (HashVersion::LegacyUnsigned, 0x1AFE_D3CC, 0),
            (HashVersion::HalfMd4Unsigned, 0x85D2_EC46, 0x12A5_248E),
            (HashVersion::TeaUnsigned, 0x04D3_D388, 0x28DB_3332),
        ];
        for (version, major, minor) in cases {
            let hasher = Hasher::new(version, SEED).unwrap();
            assert_eq!(hasher.hash(name), Hash { major, minor }, "{version:?}");
        }
        assert!(Hasher::new(HashVersion::SipHash, SEED).is_none());
    }

    #[test]
    fn no_name_hashes_to_the_end() {
        assert_eq!(
            Hash::new(0xFFFF_FFFF, 5),
            Hash {
                major: 0xFFFF_FFFC,
                minor: 5
            }
        );
        assert_eq!(
            Hash::new(0xFFFF_FFFD, 5),
            Hash {
                major: 0xFFFF_FFFC,
                minor: 5
            }
        );
        assert_eq!(Hash::from_cookie(Hash::EOF_COOKIE), None);
        assert_eq!(Hash::from_cookie(u64::MAX), None);
        assert!(
            Hash {
                major: 0xFFFF_FFFC,
                minor: u32::MAX
            }
            .cookie()
                < Hash::EOF_COOKIE
        );
    }

    proptest! {
        #[test]
        fn cookies_come_back_in_order(a: (u32, u32), b: (u32, u32)) {
            let a = Hash::new(a.0, a.1);
            let b = Hash::new(b.0, b.1);
            prop_assert_eq!(Hash::from_cookie(a.cookie()), Some(a));
            prop_assert_eq!(a.cookie().cmp(&b.cookie()), a.cmp(&b));
        }

        #[test]
        fn plain_names_hash_alike_signed_or_not(name in "[ -~]{0,255}", version in 0u8..3) {
            let version = HashVersion::from_raw(version).unwrap();
            let signed = Hasher::new(version, SEED).unwrap().hash(name.as_bytes());
            prop_assert_eq!(Hasher::new(version.unsigned(), SEED).unwrap().hash(name.as_bytes()), signed);
        }
    }
}
