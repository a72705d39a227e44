//! The encodings of attribute values.
//!
//! `getfattr` and `setfattr` call it. Each value that is written is read back as the same bytes.

use clap::ValueEnum;

/// An encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    /// In quotes, with `\ooo` for what is not printable.
    Text,
    /// In hexadecimal behind `0x`.
    Hex,
    /// In base64 behind `0s`.
    Base64,
}

impl Encoding {
    /// Returns `Text` where at most one byte of eight is not printable ASCII, else `Base64`.
    pub(super) fn fitting(value: &[u8]) -> Self {
        let value = without_nul(value);
        let odd = value
            .iter()
            .filter(|byte| !matches!(byte, b' '..=b'~'))
            .count();
        if odd * 8 <= value.len() {
            Self::Text
        } else {
            Self::Base64
        }
    }

    /// Appends `value` in this encoding.
    pub(super) fn push(self, out: &mut Vec<u8>, value: &[u8]) {
        match self {
            Self::Text => {
                out.push(b'"');
                without_nul(value).iter().for_each(|byte| match byte {
                    b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
                    b' '..=b'~' => out.push(*byte),
                    _ => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
                });
                out.push(b'"');
            }
            Self::Hex => {
                out.extend_from_slice(b"0x");
                value
                    .iter()
                    .for_each(|byte| out.extend_from_slice(format!("{byte:02x}").as_bytes()));
            }
            Self::Base64 => {
                out.extend_from_slice(b"0s");
                push_base64(out, value);
            }
        }
    }
}

/// Decodes a value from any of these encodings. Text in none of them is the value itself.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => decode_hex(digits),
        [b'0', b's' | b'S', digits @ ..] => decode_base64(digits),
        [b'"', inner @ .., b'"'] => Some(crate::text::unescape(inner)),
        _ => Some(text.to_vec()),
    }
}

fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let pair = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    digits.chunks(2).map(pair).collect()
}

fn decode_base64(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    let padding = digits
        .iter()
        .rev()
        .take(2)
        .take_while(|digit| **digit == b'=')
        .count();
    let mut value = Vec::with_capacity(digits.len() / 4 * 3);
    let last = digits.len() - padding;
    let digits = &digits[..digits.len() - padding];
    for chunk in digits.chunks(4) {
        let mut bits = 0_u32;
        for digit in chunk {
            bits =
                bits << 6 | u32::try_from(DIGITS.iter().position(|known| known == digit)?).ok()?;
        }
        let [_, bytes @ ..] = (bits << (6 * (4 - chunk.len()))).to_be_bytes();
        value.extend_from_slice(&bytes[..chunk.len() * 3 / 4]);
    }
    debug_assert_eq!(value.len(), last * 3 / 4);
    Some(value)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Strips a final NUL: a program that stores a C string with its NUL means the string.
fn without_nul(value: &[u8]) -> &[u8] {
    value.strip_suffix(b"\0").unwrap_or(value)
}

fn push_base64(out: &mut Vec<u8>, value: &[u8]) {
    for chunk in value.chunks(3) {
        let mut bytes = [0; 4];
        bytes[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(bytes);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            out.push(if digit <= chunk.len() {
                DIGITS[index]
            } else {
                b'='
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoding, decode};

    #[test]
    fn written_text_is_read_back() {
        for value in [
            &b""[..],
            b"a",
            b"ab",
            b"abc",
            b"abcd",
            b"\x00\xff\n\"\\x",
            b"0x12",
        ] {
            for encoding in [Encoding::Text, Encoding::Hex, Encoding::Base64] {
                let mut out = Vec::new();
                encoding.push(&mut out, value);
                assert_eq!(
                    decode(&out).as_deref(),
                    Some(value),
                    "{}",
                    out.escape_ascii()
                );
            }
        }
        assert_eq!(decode(b"plain \\101").as_deref(), Some(&b"plain \\101"[..]));
        for bad in [&b"0x1"[..], b"0xgg", b"0sA", b"0s!!!!", b"0sA==="] {
            assert_eq!(decode(bad), None, "{}", bad.escape_ascii());
        }
    }

    fn check(encoding: Encoding, value: &[u8], shown: &str) {
        let mut out = Vec::new();
        encoding.push(&mut out, value);
        assert_eq!(String::from_utf8(out).as_deref(), Ok(shown));
    }

    #[test]
    fn values_are_written_as_getfattr_does() {
        check(Encoding::Text, b"ha\"l\\lo", "\"ha\\\"l\\\\lo\"");
        check(Encoding::Text, b"a\nb", "\"a\\012b\"");
        check(Encoding::Text, b"a\0", "\"a\"");
        check(Encoding::Hex, b"\x00\xff\x01", "0x00ff01");
        check(Encoding::Base64, b"\x00\xff\x01", "0sAP8B");
        check(Encoding::Base64, b"a\0", "0sYQA=");
        check(Encoding::Base64, b"a", "0sYQ==");
        check(Encoding::Base64, b"", "0s");
    }

    #[test]
    fn encoding_fits_the_value() {
        let check =
            |value: &[u8], encoding| assert_eq!(Encoding::fitting(value), encoding, "{value:?}");
        check(b"", Encoding::Text);
        check(b"plain", Encoding::Text);
        check(b"a\0", Encoding::Text);
        check(b"aaaaaaa\n", Encoding::Text);
        check(b"aaaaaa\n", Encoding::Base64);
        check("grüße".as_bytes(), Encoding::Base64);
    }
}
