//! The order of versions: `file-9` before `file-10`, as GNU's `ls -v` and `sort -V` have it.
//!
//! `ls` and `tree` sort names with it.

use std::cmp::Ordering;

/// Compares two names by the numbers in them. Names that are equal so are compared by bytes.
pub(crate) fn compare_versions(one: &[u8], other: &[u8]) -> Ordering {
    let rank = |name: &[u8]| match name {
        b"" => 0,
        b"." => 1,
        b".." => 2,
        [b'.', ..] => 3,
        _ => 4,
    };
    // Suffixes count only between names that are equal before them.
    rank(one)
        .cmp(&rank(other))
        .then_with(|| compare(without_suffixes(one), without_suffixes(other)))
        .then_with(|| compare(one, other))
        .then_with(|| one.cmp(other))
}

/// Returns a name without the suffixes at its end: dots with letters, digits and tildes, of which
/// the first is no digit. Nothing may stay, as of `.a`.
fn without_suffixes(name: &[u8]) -> &[u8] {
    let mut end = name.len();
    while let Some(dot) = name[..end].iter().rposition(|byte| *byte == b'.') {
        let suffix = &name[dot + 1..end];
        let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'~';
        if !suffix.first().is_some_and(is_letter)
            || !suffix
                .iter()
                .all(|byte| is_letter(byte) || byte.is_ascii_digit())
        {
            break;
        }
        end = dot;
    }
    &name[..end]
}

/// Compares the texts before the first number, then that number, and so on.
fn compare(mut one: &[u8], mut other: &[u8]) -> Ordering {
    loop {
        let (text, number, rest) = parts(one);
        let (other_text, other_number, other_rest) = parts(other);
        let ordering = compare_texts(text, other_text)
            .then(number.len().cmp(&other_number.len()))
            .then(number.cmp(other_number));
        if ordering != Ordering::Equal || rest.is_empty() && other_rest.is_empty() {
            return ordering;
        }
        (one, other) = (rest, other_rest);
    }
}

/// Splits a name into the text before its first number, that number without its leading zeroes, and
/// the rest.
fn parts(name: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let start = name
        .iter()
        .position(u8::is_ascii_digit)
        .unwrap_or(name.len());
    let digits = name[start..]
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(name.len() - start);
    let (text, rest) = name.split_at(start);
    let (number, rest) = rest.split_at(digits);
    let zeroes = number
        .iter()
        .position(|byte| *byte != b'0')
        .unwrap_or(number.len());
    (text, &number[zeroes..], rest)
}

/// Compares texts without digits. A tilde is before the end of a text, then come letters, then all
/// other bytes.
fn compare_texts(one: &[u8], other: &[u8]) -> Ordering {
    let rank = |byte: Option<&u8>| match byte {
        Some(b'~') => (0, 0),
        None => (1, 0),
        Some(letter) if letter.is_ascii_alphabetic() => (2, *letter),
        Some(byte) => (3, *byte),
    };
    let len = one.len().max(other.len());
    let differing = (0..len).map(|at| rank(one.get(at)).cmp(&rank(other.get(at))));
    differing
        .into_iter()
        .find(|ordering| *ordering != Ordering::Equal)
        .unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::compare_versions;

    #[test]
    fn names_are_in_the_order_of_sort() {
        // The order is that of GNU sort -V.
        let sorted = [
            "",
            ".",
            "..",
            ".a1",
            ".a10",
            "a~",
            "a",
            "a.txt",
            "a1",
            "a1.b",
            "a2.1",
            "a2.9",
            "a2.10",
            "a02.11",
            "a10",
            "ab",
            "a-1",
            "file-9.tar.gz",
            "file-10.tar.gz",
            "x~1",
            "x",
            "x1~",
            "x1",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                assert_eq!(
                    compare_versions(one.as_bytes(), other.as_bytes()),
                    at.cmp(&other_at),
                    "{one} {other}"
                );
            }
        }
    }
}
