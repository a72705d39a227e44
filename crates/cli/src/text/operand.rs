//! Paths as operands of a command line: the patterns and escapes in them, and the text that is read
//! as exactly one path.
//!
//! A backslash takes the meaning from the character behind it if that is no letter and no digit,
//! and three octal digits behind a backslash are a byte. Any other backslash stands for itself, so
//! names such as `dev-sda\x2d1.device` need no escape.
//!
//! `globs` reads operands with it, and all that prints paths writes them.

use std::borrow::Cow;

use super::name::is_printable;

/// The characters in a complete path that no shell and no other reader takes for anything else.
const SAFE: &str = "/._-+,:@%=#~";

/// One byte of a path on a command line.
pub(crate) enum Byte {
    /// It stands for itself, or has its meaning in a pattern.
    Plain(u8),
    /// It is escaped, and stands for this one.
    Escaped(u8),
}

/// Returns the first byte of a name, and the rest.
fn first(name: &[u8]) -> Option<(Byte, &[u8])> {
    Some(match name {
        [
            b'\\',
            a @ b'0'..=b'3',
            b @ b'0'..=b'7',
            c @ b'0'..=b'7',
            rest @ ..,
        ] => (
            Byte::Escaped((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')),
            rest,
        ),
        [b'\\', byte, rest @ ..] if byte.is_ascii_punctuation() || *byte == b' ' => {
            (Byte::Escaped(*byte), rest)
        }
        [byte, rest @ ..] => (Byte::Plain(*byte), rest),
        [] => return None,
    })
}

/// Returns the bytes of a path. A slash cannot be escaped.
pub(crate) fn bytes(path: &[u8]) -> impl Iterator<Item = Byte> {
    path.split_inclusive(|byte| *byte == b'/').flat_map(|part| {
        let (mut name, slash) = match part {
            [name @ .., b'/'] => (name, Some(Byte::Plain(b'/'))),
            name => (name, None),
        };
        let bytes = std::iter::from_fn(move || {
            let (byte, rest) = first(name)?;
            name = rest;
            Some(byte)
        });
        bytes.chain(slash)
    })
}

/// Returns whether a path holds a pattern: one of its names may match others.
pub(crate) fn is_pattern(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| {
        let plain = bytes(name).filter_map(|byte| {
            if let Byte::Plain(byte) = byte {
                Some(byte)
            } else {
                None
            }
        });
        let plain: Vec<u8> = plain.collect();
        let opens = plain.iter().position(|byte| *byte == b'[');
        opens.is_some_and(|at| plain[at..].contains(&b']'))
            || plain.iter().any(|byte| b"*?".contains(byte))
    })
}

/// Returns the path that an operand without a pattern stands for.
pub(crate) fn unescaped(path: &[u8]) -> Vec<u8> {
    let byte = |byte| match byte {
        Byte::Plain(byte) | Byte::Escaped(byte) => byte,
    };
    bytes(path).map(byte).collect()
}

/// Returns a path so that it is read as this path: as it is, unless it would be read as a pattern
/// or has an escape.
pub(crate) fn operand(path: &[u8]) -> Cow<'_, [u8]> {
    if is_pattern(path) || unescaped(path) != path {
        Cow::Owned(octal(path, |c| !"*?[]\\".contains(c)))
    } else {
        Cow::Borrowed(path)
    }
}

/// Returns a text with all that is not plain in octal, so that a shell takes it for one word and no
/// control character is in it. As an operand it is read as this text.
pub(crate) fn complete(text: &[u8]) -> Vec<u8> {
    octal(text, |c| {
        c.is_ascii_alphanumeric()
            || SAFE.contains(c)
            || !c.is_ascii() && is_printable(c) && !c.is_whitespace()
    })
}

/// Returns a text with each byte in octal that `is_plain` does not let stand: `\040`. Bytes that
/// are no UTF-8 are never plain.
fn octal(text: &[u8], is_plain: impl Fn(char) -> bool) -> Vec<u8> {
    let mut done = Vec::with_capacity(text.len() + 16);
    let escape = |byte: &u8| format!("\\{byte:03o}").into_bytes();
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut utf8 = [0; 4];
            let utf8 = c.encode_utf8(&mut utf8).as_bytes();
            if is_plain(c) {
                done.extend_from_slice(utf8)
            } else {
                done.extend(utf8.iter().flat_map(escape))
            }
        }
        // A plain byte of a character that is cut off would be taken for a part of the next one.
        done.extend(chunk.invalid().iter().flat_map(escape));
    }
    done
}

#[cfg(test)]
mod tests {
    use super::{complete, is_pattern, operand, unescaped};

    #[test]
    fn escapes_are_read() {
        let check =
            |text: &str, name: &[u8]| assert_eq!(unescaped(text.as_bytes()), name, "{text}");
        check("/a\\*\\?\\[b\\]\\\\", b"/a*?[b]\\");
        check("/dev-disk\\x2duuid.device", b"/dev-disk\\x2duuid.device");
        check("/a\\040b\\377\\n\\08", b"/a b\xff\\n\\08");
        check("/a\\/b\\", b"/a\\/b\\");
        check("/\\ \\.", b"/ .");
    }

    #[test]
    fn patterns_are_told_from_names() {
        for (text, expected) in [
            ("/a*", true),
            ("/a\\*", false),
            ("/usr/bin/[", false),
            ("/[a]/x", true),
            ("/[a/]x", false),
            ("/a\\[b]", false),
            ("/a\\052", false),
        ] {
            assert_eq!(is_pattern(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn operands_are_read_as_the_path() {
        let names: [&[u8]; 10] = [
            b"/a*",
            b"/a[1]",
            b"/usr/bin/[",
            b"/x\\x2d",
            b"/\\052",
            b"/\\\\",
            b"/\xff?",
            b"/ a b\t",
            b"/\n*\x1b",
            "/ü\u{202e}\u{3000}".as_bytes(),
        ];
        for name in names {
            for text in [operand(name).into_owned(), complete(name)] {
                assert!(!is_pattern(&text), "{text:?}");
                assert_eq!(unescaped(&text), name, "{text:?}");
            }
        }
        assert_eq!(operand(b"/usr/bin/["), &b"/usr/bin/["[..]);
        assert_eq!(operand(b"/a *"), &b"/a \\052"[..]);
        assert_eq!(
            complete(b"v.img:/a \xc3\xbc\xff$x"),
            b"v.img:/a\\040\xc3\xbc\\377\\044x"
        );
    }
}
