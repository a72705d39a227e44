//! Names of a volume on a terminal and in a log.
//!
//! A name in a volume is any bytes but `/` and NUL, so it may hold a terminal's control sequences,
//! or pass for another line. [`escape`] returns text for people that contains no such bytes.

use std::borrow::Cow;

/// Returns whether a character may reach a terminal: no control characters, none that change the
/// direction of the text or stay invisible.
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns whether the bytes are text of printable characters.
pub fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
        || std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(is_printable))
}

/// Returns the name with every character that is not printable as a C escape: `\n`, `\033`. A
/// backslash stays as it is, so the form is for reading only.
///
/// ```
/// use extern4::terminal::escape;
///
/// assert_eq!(escape(b"a\nb\x1b[31m"), r"a\nb\033[31m");
/// ```
pub fn escape(bytes: &[u8]) -> Cow<'_, str> {
    if is_plain(bytes) {
        return String::from_utf8_lossy(bytes);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_printable(c) {
                text.push(c);
            } else {
                c.encode_utf8(&mut [0; 4])
                    .bytes()
                    .for_each(|byte| push_escape(&mut text, byte));
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|byte| push_escape(&mut text, *byte));
    }
    Cow::Owned(text)
}

/// Appends a byte as a C escape.
pub fn push_escape(text: &mut String, byte: u8) {
    match byte {
        b'\n' => text.push_str("\\n"),
        b'\r' => text.push_str("\\r"),
        b'\t' => text.push_str("\\t"),
        _ => text.push_str(&format!("\\{byte:03o}")),
    }
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn escape_lets_no_control_byte_through() {
        let check = |name: &[u8], shown: &str| assert_eq!(escape(name), shown);
        check(b"plain name", "plain name");
        check("grüße".as_bytes(), "grüße");
        check(b"a\nb", "a\\nb");
        check(b"\x1b[31m", "\\033[31m");
        check(b"\xff\xfe", "\\377\\376");
        check("\u{202e}".as_bytes(), "\\342\\200\\256");
        check("\u{9b}".as_bytes(), "\\302\\233");
    }
}
