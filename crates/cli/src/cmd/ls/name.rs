//! The forms of names in a listing.
//!
//! `entry` writes names with it. The forms are GNU `ls`'s, and a shell reads the quoted ones
//! back.

use std::borrow::Cow;

use clap::ValueEnum;
use extern4::FileType;

use crate::text::{is_printable, needs_quotes, shell_quote};

/// How names are written that hold odd characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Quoting {
    /// As they are
    Literal,
    /// As a shell reads them
    Shell,
    /// As a shell reads them, always in quotes
    ShellAlways,
    /// As a shell reads them, with escapes
    ShellEscape,
    /// As a shell reads them, with escapes and always in quotes
    ShellEscapeAlways,
    /// In double quotes, with the escapes of C
    C,
    /// With the escapes of C
    Escape,
    /// In quotes for people, with the escapes of C
    #[value(alias = "clocale")]
    Locale,
}

/// The marks that are appended to names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Indicators {
    /// Nothing
    None,
    /// As -p
    Slash,
    /// As --file-type
    FileType,
    /// As -F
    Classify,
}

impl Quoting {
    /// Returns a name in this form. With `hides_control`, a literal name has `?` for what is not
    /// printable.
    pub(super) fn quote(self, name: &[u8], hides_control: bool) -> Cow<'_, [u8]> {
        match self {
            Self::Literal if hides_control => Cow::Owned(with_question_marks(name)),
            Self::Literal => Cow::Borrowed(name),
            Self::Shell | Self::ShellAlways => {
                let shown = if hides_control {
                    with_question_marks(name)
                } else {
                    name.to_vec()
                };
                let is_quoted = self == Self::ShellAlways || needs_quotes(name);
                Cow::Owned(if is_quoted { in_quotes(&shown) } else { shown })
            }
            Self::ShellEscape | Self::ShellEscapeAlways => match shell_quote(name) {
                text if self == Self::ShellEscapeAlways && !text.starts_with(['\'', '"']) => {
                    Cow::Owned(format!("'{text}'").into_bytes())
                }
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
            Self::C => Cow::Owned([b"\"", &escape(name, b'"')[..], b"\""].concat()),
            Self::Escape => Cow::Owned(escape(name, b' ')),
            // No name has a NUL, so nothing else is escaped.
            Self::Locale => Cow::Owned(["‘".as_bytes(), &escape(name, 0), "’".as_bytes()].concat()),
        }
    }
}

/// Returns a name in the quotes of a shell.
fn in_quotes(name: &[u8]) -> Vec<u8> {
    let has = |byte: &u8| name.contains(byte);
    if has(&b'\'') && !b"\"$`\\".iter().any(has) {
        return [b"\"", name, b"\""].concat();
    }
    let inner = name
        .split(|byte| *byte == b'\'')
        .collect::<Vec<_>>()
        .join(&b"'\\''"[..]);
    [b"'", &inner[..], b"'"].concat()
}

fn with_question_marks(name: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let c = if is_printable(c) { c } else { '?' };
            shown.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        shown.resize(shown.len() + chunk.invalid().len(), b'?');
    }
    shown
}

/// Returns a name with the escapes of C, and a backslash before `special` and itself.
fn escape(name: &[u8], special: u8) -> Vec<u8> {
    let mut shown = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut utf8 = [0; 4];
            let utf8 = c.encode_utf8(&mut utf8).as_bytes();
            match c {
                '\\' => shown.extend_from_slice(b"\\\\"),
                c if c == char::from(special) => shown.extend_from_slice(&[b'\\', special]),
                c if is_printable(c) => shown.extend_from_slice(utf8),
                _ => utf8.iter().for_each(|byte| push_escape(*byte, &mut shown)),
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|byte| push_escape(*byte, &mut shown));
    }
    shown
}

fn push_escape(byte: u8, shown: &mut Vec<u8>) {
    let letter = match byte {
        7 => b'a',
        8 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        11 => b'v',
        12 => b'f',
        b'\r' => b'r',
        _ => return shown.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
    };
    shown.extend_from_slice(&[b'\\', letter]);
}

impl Indicators {
    /// Returns what is appended to the name of a file of this type and mode.
    pub(super) fn of(self, kind: FileType, mode: Option<u32>) -> Option<u8> {
        match (self, kind) {
            (Self::None, _) => None,
            (_, FileType::Directory) => Some(b'/'),
            (Self::Slash, _) => None,
            (_, FileType::Symlink) => Some(b'@'),
            (_, FileType::Fifo) => Some(b'|'),
            (_, FileType::Socket) => Some(b'='),
            (Self::Classify, FileType::Regular) if mode.is_some_and(|mode| mode & 0o111 != 0) => {
                Some(b'*')
            }
            _ => None,
        }
    }
}
