//! File names: bytes, held in place while they are short, and their hash.

use std::fmt;

/// Longest name that needs no memory of its own; nine names in ten are shorter.
const INLINE: usize = 38;

/// An owned file name.
#[derive(Clone)]
pub(crate) struct Name(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl Name {
    pub(crate) fn new(name: &[u8]) -> Self {
        match u8::try_from(name.len()) {
            Ok(len) if name.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..name.len()].copy_from_slice(name);
                Self(Repr::Inline { len, bytes })
            }
            _ => Self(Repr::Heap(name.into())),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// Hashes a name in a directory. `seed` is secret, so that nobody can choose names that collide.
pub(crate) fn hash_name(seed: u64, parent: u64, name: &[u8]) -> u64 {
    let mut state = fold(seed ^ parent, 0x9e37_79b9_7f4a_7c15 ^ name.len() as u64);
    let mut words = name.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        state = fold(state ^ word, seed | 1);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        state = fold(state ^ u64::from_le_bytes(word), seed | 1);
    }
    fold(state, 0xd6e8_feb8_6659_fd93)
}

/// Both halves of the product: every bit of the operands reaches every bit of the result.
#[expect(clippy::cast_possible_truncation, reason = "the two halves of a 128-bit product are what is wanted")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_keep_their_bytes_at_every_length() {
        for len in 0..=255 {
            let bytes = vec![b'x'; len];
            assert_eq!(Name::new(&bytes).as_bytes(), bytes);
        }
    }

    #[test]
    fn hashes_spread() {
        let mut seen = HashSet::new();
        for parent in 0..100 {
            for number in 0..1000 {
                seen.insert(hash_name(7, parent, format!("file{number}").as_bytes()));
            }
        }
        assert_eq!(seen.len(), 100_000);
        assert_ne!(hash_name(7, 1, b"a"), hash_name(7, 1, b"a\0"), "the length counts");
    }
}
