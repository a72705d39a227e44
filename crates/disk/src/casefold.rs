//! Case-insensitive comparison of names, as ext4's encoding `utf8-12.1` defines it.
//!
//! Two names of a case-folded directory are equal if they are equal after three steps: full case
//! folding of every character, canonical decomposition (NFD), and removal of the characters that
//! Unicode calls default ignorable. The directory's hash tree hashes names in that form. A name
//! that is not UTF-8 has no such form. It is compared and hashed byte by byte; in strict mode it
//! cannot be created.
//!
//! The encoding is fixed at Unicode 12.1, and the tables that this module uses are newer. Unicode
//! never changes how an assigned character folds or decomposes, so only characters assigned since
//! could differ. `LATER` lists the characters that newer tables fold, decompose or reorder, and
//! they pass unchanged. Tests compare the forms with `dx_hash -c` of `debugfs`.
//!
//! `ext4` and the builder look names up by a [`FoldedName`] and hash [`fold`]ed names.

use caseless::Caseless;
use unicode_normalization::UnicodeNormalization;

/// Returns the folded form of `name`; `None` if it is not UTF-8.
pub fn fold(name: &[u8]) -> Option<Vec<u8>> {
    let name = std::str::from_utf8(name).ok()?;
    if name.is_ascii() {
        return Some(name.to_ascii_lowercase().into_bytes());
    }
    let mut folded = String::with_capacity(name.len());
    // A later character is not folded, and no combining mark moves across it.
    for piece in name.split_inclusive(is_later) {
        let (piece, later) = match piece.char_indices().next_back() {
            Some((at, last)) if is_later(last) => (&piece[..at], Some(last)),
            _ => (piece, None),
        };
        // Folding precedes decomposition: a folded iota subscript is a letter, which decomposing
        // first would have moved after other marks. Ignorable characters are removed last, because
        // no mark moves across one.
        folded.extend(
            piece
                .chars()
                .default_case_fold()
                .nfd()
                .filter(|&c| !is_ignorable(c)),
        );
        folded.extend(later);
    }
    Some(folded.into_bytes())
}

/// A name to be found without regard to case.
#[derive(Debug)]
pub struct FoldedName<'a> {
    name: &'a [u8],
    folded: Option<Vec<u8>>,
}

impl<'a> FoldedName<'a> {
    /// Folds `name` once, to compare it with many.
    pub fn new(name: &'a [u8]) -> Self {
        Self {
            name,
            folded: fold(name),
        }
    }

    /// Returns the bytes that the name is hashed by.
    pub fn hashed(&self) -> &[u8] {
        self.folded.as_deref().unwrap_or(self.name)
    }

    /// Whether `other` is the same name.
    pub fn matches(&self, other: &[u8]) -> bool {
        if other == self.name {
            return true;
        }
        let Some(folded) = &self.folded else {
            return false;
        };
        if folded.is_ascii() && other.is_ascii() {
            return folded.eq_ignore_ascii_case(other);
        }
        fold(other).is_some_and(|other| other == *folded)
    }
}

fn in_ranges(ranges: &[(u32, u32)], c: char) -> bool {
    let code = u32::from(c);
    let next = ranges.partition_point(|&(first, _)| first <= code);
    next.checked_sub(1).is_some_and(|at| code <= ranges[at].1)
}

fn is_ignorable(c: char) -> bool {
    in_ranges(IGNORABLE, c)
}

fn is_later(c: char) -> bool {
    in_ranges(LATER, c)
}

/// The characters with the property `Default_Ignorable_Code_Point` in Unicode 12.1.
const IGNORABLE: &[(u32, u32)] = &[
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180e),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
];

/// Characters assigned after Unicode 12.1, up to 18.0, that fold, decompose or combine.
#[rustfmt::skip]
const LATER: &[(u32, u32)] = &[
    (0x5c8, 0x5c9), (0x897, 0x89f), (0x8ca, 0x8d2), (0xc3c, 0xc3c), (0x1715, 0x1715), (0x1abf, 0x1af0),
    (0x1c89, 0x1c89), (0x1dfa, 0x1dfa), (0x2c2f, 0x2c2f), (0xa7c0, 0xa7c0), (0xa7c7, 0xa7c7),
    (0xa7c9, 0xa7c9), (0xa7cb, 0xa7cc), (0xa7d0, 0xa7d0), (0xa7d6, 0xa7d6), (0xa7d8, 0xa7d8),
    (0xa7da, 0xa7da), (0xa7dc, 0xa7dc), (0xa7f5, 0xa7f5), (0xa82c, 0xa82c), (0x10570, 0x1057a),
    (0x1057c, 0x1058a), (0x1058c, 0x10592), (0x10594, 0x10595), (0x105c9, 0x105c9), (0x105e4, 0x105e4),
    (0x10d50, 0x10d65), (0x10d69, 0x10d6d), (0x10eab, 0x10eac), (0x10ecb, 0x10ecf), (0x10ef0, 0x10efb),
    (0x10efd, 0x10eff), (0x10f82, 0x10f85), (0x11070, 0x11070), (0x11383, 0x11383), (0x11385, 0x11385),
    (0x1138e, 0x1138e), (0x11391, 0x11391), (0x113c5, 0x113c5), (0x113c7, 0x113c8), (0x113ce, 0x113d0),
    (0x11938, 0x11938), (0x1193d, 0x1193e), (0x11943, 0x11943), (0x11f41, 0x11f42), (0x16121, 0x16128),
    (0x1612f, 0x1612f), (0x16d68, 0x16d6a), (0x16ff0, 0x16ff1), (0x1d127, 0x1d128), (0x1d250, 0x1d252),
    (0x1d25b, 0x1d25c), (0x1d25f, 0x1d25f), (0x1d280, 0x1d281), (0x1e08f, 0x1e08f), (0x1e2ae, 0x1e2ae),
    (0x1e4ec, 0x1e4ef), (0x1e5ee, 0x1e5ef), (0x1e6e3, 0x1e6e3), (0x1e6e6, 0x1e6e6), (0x1e6ee, 0x1e6ef),
    (0x1e6f5, 0x1e6f5),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that `debugfs`'s `dx_hash -c -e utf8-12.1` gives the same hash.
    #[test]
    fn names_that_fold_to_the_same() {
        let same = [
            ("Foo", "fOO"),
            ("Straße", "STRASSE"),
            ("a\u{ad}b", "ab"),
            ("a\u{fff8}b", "A\u{e0fff}B"),
            // The Angstrom sign, a letter with a ring, and a letter and a ring.
            ("\u{212b}", "a\u{30a}"),
            ("\u{e5}", "\u{c5}"),
            ("\u{1fb3}\u{301}", "\u{3b1}\u{3b9}\u{301}"),
            ("\u{3b1}\u{345}\u{301}", "\u{3b1}\u{3b9}\u{301}"),
            ("\u{ff21}", "\u{ff41}"),
            // The characters are unknown to Unicode 12.1, the letters next to them are not.
            ("A\u{1e000}", "a\u{1e000}"),
            ("A\u{378}", "a\u{378}"),
        ];
        for (a, b) in same {
            assert_eq!(fold(a.as_bytes()), fold(b.as_bytes()), "{a} {b}");
            assert!(
                FoldedName::new(a.as_bytes()).matches(b.as_bytes()),
                "{a} {b}"
            );
            assert!(
                FoldedName::new(b.as_bytes()).matches(a.as_bytes()),
                "{b} {a}"
            );
        }
    }

    /// Names that have different hashes with `dx_hash`.
    #[test]
    fn names_that_do_not() {
        let different = [
            ("\u{3b1}\u{301}\u{3b9}", "\u{3b1}\u{3b9}\u{301}"),
            // An ignorable character keeps the marks next to it from changing places.
            ("a\u{301}\u{ad}\u{323}", "a\u{323}\u{301}"),
            // Letters of Unicode 13 and 14, and a mark of 15: they do not fold, nor does it move.
            ("\u{a7c7}", "\u{a7c8}"),
            ("\u{10570}", "\u{10597}"),
            ("a\u{1e08f}\u{323}", "a\u{323}\u{1e08f}"),
            ("a\u{180f}b", "ab"),
        ];
        for (a, b) in different {
            assert_ne!(fold(a.as_bytes()), fold(b.as_bytes()), "{a} {b}");
            assert!(
                !FoldedName::new(a.as_bytes()).matches(b.as_bytes()),
                "{a} {b}"
            );
        }
    }

    #[test]
    fn other_bytes_are_compared_as_they_are() {
        assert_eq!(fold(b"A\xff"), None);
        let name = FoldedName::new(b"A\xff");
        assert!(name.matches(b"A\xff") && !name.matches(b"a\xff"));
        assert_eq!(name.hashed(), b"A\xff");
    }
}
