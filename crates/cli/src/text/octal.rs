//! Names as `getfacl` and `getfattr` write them, for their siblings that set to read back.

/// How a backslash is written; each of the two tools has its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backslash {
    /// `\\`, as `getfacl` does.
    Doubled,
    /// `\134`, as `getfattr` does.
    Octal,
}

/// Appends a name with line ends and `special` bytes as `\ooo`; for a terminal, with all that is not printable so.
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
                out.extend_from_slice(if backslash == Backslash::Doubled { b"\\\\" } else { b"\\134" });
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

#[cfg(test)]
mod tests {
    use super::{Backslash, push_octal};

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
