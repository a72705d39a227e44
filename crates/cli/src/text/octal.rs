//! Names as `getfacl` and `getfattr` write them, and as `setfacl` and `setfattr` read them back.
//!
//! Each name that is written is read back as the same bytes.

/// The two forms of a backslash, one for each tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backslash {
    /// `\\`, as `getfacl` does.
    Doubled,
    /// `\134`, as `getfattr` does.
    Octal,
}

/// Appends a name with line ends and `special` bytes as `\ooo`; for a terminal, also every byte
/// that is not printable.
pub(crate) fn push_octal(
    out: &mut Vec<u8>,
    name: &[u8],
    special: &[u8],
    backslash: Backslash,
    terminal: bool,
) {
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut utf8 = [0; 4];
            let utf8 = c.encode_utf8(&mut utf8).as_bytes();
            let escaped = matches!(c, '\n' | '\r') || special.contains(&utf8[0]);
            if c == '\\' {
                out.extend_from_slice(if backslash == Backslash::Doubled {
                    b"\\\\"
                } else {
                    b"\\134"
                });
            } else if escaped || terminal && !super::name::is_printable(c) {
                utf8.iter().for_each(|byte| push(out, *byte));
            } else {
                out.extend_from_slice(utf8);
            }
        }
        if terminal {
            chunk.invalid().iter().for_each(|byte| push(out, *byte));
        } else {
            out.extend_from_slice(chunk.invalid());
        }
    }
}

fn push(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(format!("\\{byte:03o}").as_bytes());
}

/// Returns the name that was written in either form.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        rest = match (byte, octal, after) {
            (b'\\', Some(digits), _) => {
                // Three digits can hold more than a byte; like the tools, this keeps the low eight
                // bits.
                name.push(
                    digits
                        .iter()
                        .fold(0_u8, |value, digit| value.wrapping_mul(8) | (digit - b'0')),
                );
                &after[3..]
            }
            (b'\\', None, [next @ (b'\\' | b'"'), rest @ ..]) => {
                name.push(*next);
                rest
            }
            _ => {
                name.push(byte);
                after
            }
        };
    }
    name
}

#[cfg(test)]
mod tests {
    use super::{Backslash, push_octal, unescape};

    #[test]
    fn written_text_is_read_back() {
        for name in [&b"a b=\n\\x"[..], b"\\101", b"\xff\"", b"\\\\", b""] {
            for backslash in [Backslash::Doubled, Backslash::Octal] {
                let mut out = Vec::new();
                push_octal(&mut out, name, b"=", backslash, true);
                assert_eq!(unescape(&out), name, "{}", name.escape_ascii());
            }
        }
        assert_eq!(unescape(b"a\\"), b"a\\");
    }

    #[test]
    fn names_are_written_as_the_tools_do() {
        let check = |name: &[u8], backslash, terminal, shown: &[u8]| {
            let mut out = Vec::new();
            push_octal(&mut out, name, b"=", backslash, terminal);
            assert_eq!(out, shown, "{}", name.escape_ascii());
        };
        check(b"a b=", Backslash::Octal, false, b"a b\\075");
        check(b"a\nb\x01", Backslash::Octal, false, b"a\\012b\x01");
        check(b"a\nb\x01", Backslash::Octal, true, b"a\\012b\\001");
        check(b"a\\", Backslash::Octal, false, b"a\\134");
        check(b"a\\", Backslash::Doubled, false, b"a\\\\");
        check(b"\xff", Backslash::Octal, false, b"\xff");
        check(b"\xff", Backslash::Octal, true, b"\\377");
    }
}
