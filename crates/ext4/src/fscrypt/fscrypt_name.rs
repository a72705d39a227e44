//! The names of encrypted directories, for those who have no key.
//!
//! On the disk such a name is ciphertext, in which any byte may occur. Linux shows it as base64url
//! without padding. It encodes the two 32-bit hashes of the name, the first 149 bytes of the
//! ciphertext, and if there are more, the SHA-256 of the rest. That is at most 252 characters and
//! never contains a slash. It leads back to the entry: the hash to the leaf of a hashed directory,
//! the bytes to the name. extern4 shows names as Linux does.
//!
//! Source: `Documentation/filesystems/fscrypt.rst`, and listings of a mounted volume with its key
//! removed.

use extern4_disk::htree::Hash;

use crate::fscrypt::sha256::sha256;

/// How many bytes of ciphertext are shown in full.
const SHOWN: usize = 149;
/// Bytes of the two hashes in front.
const HASHES: usize = 8;
const DIGEST: usize = 32;
/// The most bytes that a shown name stands for.
const MAX_DECODED: usize = HASHES + SHOWN + DIGEST;
/// The most characters of a shown name.
pub(crate) const MAX_SHOWN: usize = MAX_DECODED.div_ceil(3) * 4;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Writes the shown form of a name into `shown`, and returns the part of it that was used. The
/// directory has `ciphertext` and `hash` for the name.
pub(crate) fn show<'a>(ciphertext: &[u8], hash: Hash, shown: &'a mut [u8; MAX_SHOWN]) -> &'a [u8] {
    let mut bytes = [0; MAX_DECODED];
    let len = decoded_form(ciphertext, hash, &mut bytes);
    encode(&bytes[..len], shown)
}

/// Returns how many characters [`show`] gives for that number of bytes of ciphertext.
pub(crate) fn shown_len(ciphertext_bytes: u64) -> u64 {
    let decoded =
        if ciphertext_bytes <= SHOWN as u64 { HASHES as u64 + ciphertext_bytes } else { MAX_DECODED as u64 };
    (decoded * 4).div_ceil(3)
}

/// A shown name, decoded to what it says of the entry.
pub(crate) struct ShownName {
    bytes: [u8; MAX_DECODED],
    len: usize,
}

impl ShownName {
    /// Parses a name; `None` if it is not of the form that [`show`] gives.
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
    bytes[HASHES + SHOWN..].copy_from_slice(&sha256(&ciphertext[SHOWN..]));
    MAX_DECODED
}

/// Writes `bytes` as base64url without padding.
fn encode<'a>(bytes: &[u8], text: &'a mut [u8; MAX_SHOWN]) -> &'a [u8] {
    let mut len = 0;
    for group in bytes.chunks(3) {
        let word =
            group.iter().zip([16, 8, 0]).fold(0u32, |word, (&byte, shift)| word | u32::from(byte) << shift);
        for shift in [18, 12, 6, 0].into_iter().take(group.len() + 1) {
            // OK: masked to 6 bits.
            text[len] = ALPHABET[(word >> shift & 63) as usize];
            len += 1;
        }
    }
    &text[..len]
}

/// Reads base64url without padding; `None` for anything else, also for bits behind the last byte.
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
        let ciphertext: Vec<u8> = (0..255u32).map(|i| (i * 37 + 11).to_le_bytes()[0]).collect();
        for len in [1, 2, 3, 16, 32, 148, 149, 150, 176, 255] {
            let name = &ciphertext[..len];
            let hash = Hash { major: 0x1234_5678, minor: 0x9abc_def0 };
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

    #[test]
    fn encodes_as_rfc_4648_without_padding() {
        for (bytes, text) in [("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
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
        for name in [&b"a.txt"[..], b"AAAAA", b"Zh", b"", b"AAAAAAAAAAA", &[b'A'; 253]] {
            assert!(ShownName::parse(name).is_none(), "{name:?}");
        }
    }
}
