//! Bytes as `cat -v` shows them.
//!
//! `cat -v` shows bytes with it. It is the form of GNU `cat`, and it cannot be read back.

/// Appends a byte: `^A` for a control byte, `M-a` for one with the high bit.
pub(crate) fn push_visible(byte: u8, out: &mut Vec<u8>) {
    if byte >= 0x80 {
        out.extend_from_slice(b"M-");
    }
    match byte & 0x7f {
        low @ 0..0x20 => out.extend_from_slice(&[b'^', low + 0x40]),
        0x7f => out.extend_from_slice(b"^?"),
        low => out.push(low),
    }
}

#[cfg(test)]
mod tests {
    use super::push_visible;

    #[test]
    fn all_bytes_are_visible() {
        for (byte, shown) in [
            (0, "^@"),
            (b'a', "a"),
            (0x7f, "^?"),
            (0x80, "M-^@"),
            (0xe9, "M-i"),
            (0xff, "M-^?"),
        ] {
            let mut out = Vec::new();
            push_visible(byte, &mut out);
            assert_eq!(out, shown.as_bytes());
        }
    }
}
