//! Encodes and decodes the names of encrypted directories as they are shown without the key.
//!
//! On the disk such a name is ciphertext, which may contain any byte. Like Linux, extern4 shows it
//! as base64url without padding. The encoded bytes are the two 32-bit hashes of the name, the first
//! 149 bytes of the ciphertext, and if there are more, the SHA-256 of the rest. So a shown name has
//! at most 252 characters and never a slash. A lookup gets back to the entry: the hash leads to the
//! leaf of a hash tree, the bytes to the name.
//!
//! `dir::list` and `file::symlink` call [`show`]; `dir::namei` searches for a [`ShownName`].
//!
//! Source: `Documentation/filesystems/fscrypt.rst`, and listings of a mounted volume with its key
//! removed.

use extern4_disk::htree::Hash;
use sha2::{Digest as _, Sha256};

/// How many bytes of ciphertext are shown in full.
const SHOWN: usize = 149;
/// The size of the two hashes at the start.
const HASHES: usize = 8;
const DIGEST: usize = 32;
/// The most bytes that a shown name encodes.
const MAX_DECODED: usize = HASHES + SHOWN + DIGEST;
/// The most characters of a shown name.
pub(crate) const MAX_SHOWN: usize = MAX_DECODED.div_ceil(3) * 4;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes a name with this `ciphertext` and `hash` into `shown`, and returns the used part of it.
pub(crate) fn show<'a>(ciphertext: &[u8], hash: Hash, shown: &'a mut [u8; MAX_SHOWN]) -> &'a [u8] {
    let mut bytes = [0; MAX_DECODED];
    let len = decoded_form(ciphertext, hash, &mut bytes);
    encode(&bytes[..len], shown)
}

/// Returns how many characters [`show`] returns for that many bytes of ciphertext.
fn shown_len(ciphertext_bytes: u64) -> u64 {
    let decoded = if ciphertext_bytes <= SHOWN as u64 {
        HASHES as u64 + ciphertext_bytes
    } else {
        MAX_DECODED as u64
    };
    (decoded * 4).div_ceil(3)
}

/// The size of the length before the ciphertext of a link's target.
pub(crate) const TARGET_HEADER: usize = 2;

/// Returns the length of a link's target as it is shown, by the size of the link.
pub(crate) fn shown_target_len(size: u64) -> u64 {
    shown_len(size.saturating_sub(TARGET_HEADER as u64))
}

/// A decoded shown name: hashes, ciphertext and digest.
pub(crate) struct ShownName {
    bytes: [u8; MAX_DECODED],
    len: usize,
}

impl ShownName {
    /// Decodes a name; `None` if [`show`] cannot have returned it.
    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_DECODED];
        let len = decode(name, &mut bytes)?;
        (len > HASHES).then_some(Self { bytes, len })
    }

    /// Returns the major hash of the name, if it was shown by a directory that hashes its names.
    pub(crate) fn major(&self) -> u32 {
        let [a, b, c, d, ..] = self.bytes;
        u32::from_le_bytes([a, b, c, d])
    }

    /// Whether `ciphertext` is the name.
    pub(crate) fn matches(&self, ciphertext: &[u8]) -> bool {
        let mut bytes = [0; MAX_DECODED];
        let len = decoded_form(ciphertext, Hash { major: 0, minor: 0 }, &mut bytes);
        bytes[HASHES..len] == self.bytes[HASHES..self.len]
    }
}

fn decoded_form(ciphertext: &[u8], hash: Hash, bytes: &mut [u8; MAX_DECODED]) -> usize {
    bytes[..4].copy_from_slice(&hash.major.to_le_bytes());
    bytes[4..HASHES].copy_from_slice(&hash.minor.to_le_bytes());
    let shown = &ciphertext[..ciphertext.len().min(SHOWN)];
    bytes[HASHES..HASHES + shown.len()].copy_from_slice(shown);
    if ciphertext.len() <= SHOWN {
        return HASHES + shown.len();
    }
    bytes[HASHES + SHOWN..].copy_from_slice(&Sha256::digest(&ciphertext[SHOWN..]));
    MAX_DECODED
}

/// Writes `bytes` as base64url without padding.
fn encode<'a>(bytes: &[u8], text: &'a mut [u8; MAX_SHOWN]) -> &'a [u8] {
    let mut len = 0;
    for group in bytes.chunks(3) {
        let word = group
            .iter()
            .zip([16, 8, 0])
            .fold(0u32, |word, (&byte, shift)| word | u32::from(byte) << shift);
        for shift in [18, 12, 6, 0].into_iter().take(group.len() + 1) {
            // OK: masked to 6 bits.
            text[len] = ALPHABET[(word >> shift & 63) as usize];
            len += 1;
        }
    }
    &text[..len]
}

/// Decodes base64url without padding; `None` for anything else, and for bits after the last byte.
fn decode(text: &[u8], bytes: &mut [u8; MAX_DECODED]) -> Option<usize> {
    if text.len() > MAX_SHOWN || text.len() % 4 == 1 {
        return None;
    }
    let mut len = 0;
    for group in text.chunks(4) {
        let mut word = 0u32;
        for (&c, shift) in group.iter().zip([18, 12, 6, 0]) {
            word |= u32::from(value(c)?) << shift;
        }
        let [_, decoded @ ..] = word.to_be_bytes();
        let (used, unused) = decoded.split_at(group.len() * 3 / 4);
        if unused.iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.get_mut(len..len + used.len())?.copy_from_slice(used);
        len += used.len();
    }
    Some(len)
}

fn value(c: u8) -> Option<u8> {
    Some(match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_name_leads_back_to_its_entry() {
        let ciphertext: Vec<u8> = (0..255u32)
            .map(|i| (i * 37 + 11).to_le_bytes()[0])
            .collect();
        for len in [1, 2, 3, 16, 32, 148, 149, 150, 176, 255] {
            let name = &ciphertext[..len];
            let hash = Hash {
                major: 0x1234_5678,
                minor: 0x9abc_def0,
            };
            let mut shown = [0; MAX_SHOWN];
            let shown = show(name, hash, &mut shown);
            assert_eq!(shown.len() as u64, shown_len(len as u64));
            assert!(shown.len() <= 252 && !shown.contains(&b'/'));
            let parsed = ShownName::parse(shown).unwrap();
            assert_eq!(parsed.major(), 0x1234_5678);
            assert!(parsed.matches(name));
            assert!(!parsed.matches(&ciphertext[1..=len.min(254)]));
        }
    }

    /// The digests are the examples of FIPS 180-4.
    #[test]
    fn answers_of_the_standard() {
        for (tail, digest) in [
            (
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            let ciphertext = [&[7; SHOWN], tail.as_bytes()].concat();
            let hash = Hash { major: 0, minor: 0 };
            let parsed = ShownName::parse(show(&ciphertext, hash, &mut [0; MAX_SHOWN])).unwrap();
            let hex: String = parsed.bytes[HASHES + SHOWN..parsed.len]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(hex, digest);
        }
    }

    #[test]
    fn encodes_as_rfc_4648_without_padding() {
        for (bytes, text) in [
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut shown = [0; MAX_SHOWN];
            assert_eq!(encode(bytes.as_bytes(), &mut shown), text.as_bytes());
            let mut back = [0; MAX_DECODED];
            assert_eq!(decode(text.as_bytes(), &mut back), Some(bytes.len()));
            assert_eq!(&back[..bytes.len()], bytes.as_bytes());
        }
        assert_eq!(encode(&[0xfb, 0xff], &mut [0; MAX_SHOWN]), b"-_8");
    }

    #[test]
    fn other_names_are_not_taken_for_shown_ones() {
        for name in [
            &b"a.txt"[..],
            b"AAAAA",
            b"Zh",
            b"",
            b"AAAAAAAAAAA",
            &[b'A'; 253],
        ] {
            assert!(ShownName::parse(name).is_none(), "{name:?}");
        }
    }
}
