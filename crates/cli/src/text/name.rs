//! Names on a terminal.
//!
//! A name in a volume is any bytes but `/` and NUL, so it may hold a terminal's control sequences.
//! Output for people contains no such bytes: [`escape`] writes them as C does, [`shell_quote`] as a
//! shell reads them.
//!
//! All output for people and all messages pass names through it.

use std::borrow::Cow;
use std::fmt::Display;

pub(crate) use extern4::terminal::{escape, is_printable};
use extern4::terminal::{is_plain, push_escape};
use unicode_width::UnicodeWidthChar;

/// Returns the [`escape`]d form where the result goes to a terminal, else the bytes themselves.
pub(crate) fn escape_bytes(bytes: &[u8], terminal: bool) -> Cow<'_, [u8]> {
    if !terminal {
        return Cow::Borrowed(bytes);
    }
    match escape(bytes) {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Returns a name in quotes, as GNU's tools write it in messages: `'a b'`, `"it's"`.
pub(crate) fn quoted(name: impl Display) -> String {
    let text = name.to_string();
    if !text.contains('\'') {
        format!("'{text}'")
    } else if !text.contains(['"', '$', '`', '\\']) {
        format!("\"{text}\"")
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Returns the name as a shell reads it back, always in quotes, as GNU's tools print what they did.
pub(crate) fn always_quoted(name: &[u8]) -> String {
    let text = shell_quote(name);
    if text.starts_with(['\'', '"']) {
        text.into_owned()
    } else {
        format!("'{text}'")
    }
}

/// Returns the name as a shell reads it back, quoted only where it has to be: `'a b'`,
/// `'a'$'\n''b'`. `ls` uses this form on a terminal.
pub(crate) fn shell_quote(name: &[u8]) -> Cow<'_, str> {
    let plain = is_plain(name);
    if plain && !needs_quotes(name) {
        return String::from_utf8_lossy(name);
    }
    if plain
        && name.contains(&b'\'')
        && !name
            .iter()
            .any(|byte| matches!(byte, b'"' | b'$' | b'`' | b'\\'))
    {
        return Cow::Owned(format!("\"{}\"", String::from_utf8_lossy(name)));
    }
    let mut quoted = Quoted {
        text: String::with_capacity(name.len() + 16),
        state: QuoteState::Outside,
    };
    quoted.literal("");
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_printable(c) {
                quoted.literal(c.encode_utf8(&mut [0; 4]));
            } else {
                c.encode_utf8(&mut [0; 4])
                    .bytes()
                    .for_each(|byte| quoted.escaped(byte));
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|byte| quoted.escaped(*byte));
    }
    Cow::Owned(quoted.finish())
}

/// Returns whether the name has characters that mean something to a shell, anywhere or at the start
/// of a word.
pub(crate) fn needs_quotes(name: &[u8]) -> bool {
    matches!(name.first(), None | Some(b'#' | b'~'))
        || name.iter().any(|byte| {
            matches!(
                byte,
                b'\t'
                    | b'\n'
                    | b' '
                    | b'!'
                    | b'"'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b';'
                    | b'<'
                    | b'='
                    | b'>'
                    | b'?'
                    | b'['
                    | b'\\'
                    | b'^'
                    | b'`'
                    | b'|'
            )
        })
}

struct Quoted {
    text: String,
    state: QuoteState,
}

#[derive(PartialEq)]
enum QuoteState {
    Outside,
    Single,
    Dollar,
}

impl Quoted {
    fn literal(&mut self, text: &str) {
        if self.state != QuoteState::Single {
            self.text.push_str(if self.state == QuoteState::Dollar {
                "''"
            } else {
                "'"
            });
            self.state = QuoteState::Single;
        }
        self.text.push_str(if text == "'" { "'\\''" } else { text });
    }

    fn escaped(&mut self, byte: u8) {
        if self.state != QuoteState::Dollar {
            self.text.push_str(if self.state == QuoteState::Single {
                "'$'"
            } else {
                "$'"
            });
            self.state = QuoteState::Dollar;
        }
        push_escape(&mut self.text, byte);
    }

    fn finish(mut self) -> String {
        if self.state != QuoteState::Outside {
            self.text.push('\'');
        }
        self.text
    }
}

/// Returns how many columns a printable text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        text.len()
    } else {
        text.chars().map(|c| c.width().unwrap_or(0)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{quoted, shell_quote, width};

    #[test]
    fn places_are_quoted_as_gnu_does() {
        for (name, shown) in [
            ("disk.img:/a b", "'disk.img:/a b'"),
            ("it's", "\"it's\""),
            ("it's $1", r"'it'\''s $1'"),
        ] {
            assert_eq!(quoted(name), shown);
        }
    }

    #[test]
    fn shell_quote_is_as_ls_does() {
        let check = |name: &[u8], shown: &str| assert_eq!(shell_quote(name), shown);
        check(b"plain", "plain");
        check(b"a b", "'a b'");
        check(b"it's", "\"it's\"");
        check(b"it's $5", "'it'\\''s $5'");
        check(b"a\nb", "'a'$'\\n''b'");
        check(b"\x01", "''$'\\001'");
        check(b"x\xff", "'x'$'\\377'");
        check(b"#x", "'#x'");
        check(b"x#", "x#");
        check(b"", "''");
    }

    #[test]
    fn width_counts_columns() {
        assert_eq!(width("abc"), 3);
        assert_eq!(width("日本"), 4);
        assert_eq!(width("e\u{301}"), 1);
    }
}
