//! Completion of commands and of paths in the volume and on the host.
//!
//! `editor` calls it for each completion. It only reads, and what cannot be read is no candidate.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use extern4::{FileType, Session};
use rustyline::completion::{Completer as CompleteLine, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};

use super::is_unfinished;
use crate::image_path::ImagePath;

/// Completes lines.
pub(super) struct Completer {
    names: Vec<String>,
    volume: SharedVolume,
}

/// The volume whose paths are completed, and the directory that they start in. The shell takes it
/// away from the thread that reads the keys, also while that reads.
#[derive(Clone, Default)]
pub(super) struct SharedVolume(Arc<Mutex<Option<(Session, ImagePath)>>>);

impl SharedVolume {
    pub(super) fn set(&self, volume: Option<(Session, ImagePath)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = volume;
    }
}

/// The word that the cursor stands in.
#[derive(Debug, PartialEq, Eq)]
struct Word {
    /// Where it begins in the line.
    start: usize,
    /// Its text so far, without its quotes.
    text: Vec<u8>,
    /// The command before it, `|` for one of the host; `None` if it is the command.
    command: Option<Vec<u8>>,
}

impl Completer {
    pub(super) fn new(names: Vec<String>, volume: SharedVolume) -> Self {
        Self { names, volume }
    }

    /// Returns the whole words that the word may become.
    fn candidates(&self, word: &Word) -> Vec<Vec<u8>> {
        let Some(command) = &word.command else {
            let names = self
                .names
                .iter()
                .filter(|name| name.as_bytes().starts_with(&word.text));
            return names.map(|name| [name.as_bytes(), b" "].concat()).collect();
        };
        let is_host = matches!(&**command, b"lcd" | b"|");
        let host = if is_host {
            Some(&*word.text)
        } else {
            word.text.strip_prefix(b"host:")
        };
        let text = host.unwrap_or(&word.text);
        let end = text
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |slash| slash + 1);
        let (directory, start) = text.split_at(end);
        let names = match host {
            Some(_) => host_names(OsStr::from_bytes(directory)),
            None => self.names_in(OsStr::from_bytes(directory)),
        };
        let before = &word.text[..word.text.len() - start.len()];
        let mut found: Vec<Vec<u8>> = names
            .into_iter()
            .filter(|(name, _)| name.as_bytes().starts_with(start))
            // A control character cannot be typed, nor shown.
            .filter(|(name, _)| {
                name.to_str()
                    .is_some_and(|name| !name.chars().any(char::is_control))
            })
            .filter(|(name, _)| !start.is_empty() || !name.as_bytes().starts_with(b"."))
            .map(|(name, is_directory)| {
                let end: &[u8] = if is_directory { b"/" } else { b" " };
                [&escaped(&[before, name.as_bytes()].concat())[..], end].concat()
            })
            .collect();
        // Where a path of the host may stand.
        if host.is_none() && !text.is_empty() && b"host:".starts_with(text) {
            found.push(b"host:".to_vec());
        }
        found.sort_unstable();
        found
    }

    /// Returns the names in a directory of the volume, and which of them are directories.
    fn names_in(&self, directory: &OsStr) -> Vec<(OsString, bool)> {
        let volume = self.volume.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((session, base)) = &*volume else {
            return Vec::new();
        };
        let Ok(entries) = session.read_dir(&base.join(directory).path) else {
            return Vec::new();
        };
        let entry = |entry: extern4::DirEntry| {
            let is_directory = entry
                .file_type()
                .is_ok_and(|kind| kind == FileType::Directory);
            (entry.file_name().to_owned(), is_directory)
        };
        entries.flatten().map(entry).collect()
    }
}

fn host_names(directory: &OsStr) -> Vec<(OsString, bool)> {
    let directory = if directory.is_empty() {
        Path::new(".")
    } else {
        Path::new(directory)
    };
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let is_directory = |path: PathBuf| path.is_dir();
    entries
        .flatten()
        .map(|entry| (entry.file_name(), is_directory(entry.path())))
        .collect()
}

/// Returns the last word of a line.
fn last_word(line: &str) -> Word {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut word: Option<(usize, Vec<u8>)> = None;
    let mut quote = None;
    let mut bytes = line.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(open), end) if open == end => quote = None,
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert((at, Vec::new()));
            }
            (None | Some(b'"'), b'\\') => {
                let next = bytes.next().map(|(_, next)| next);
                word.get_or_insert((at, Vec::new())).1.extend(next);
            }
            // A file follows.
            (None, b' ' | b'\t' | b'<' | b'>') => words.extend(word.take().map(|(_, word)| word)),
            (None, b'|') => {
                (words, word) = (vec![b"|".to_vec()], None);
            }
            (None, b';' | b'\n') => {
                words.clear();
                word = None;
            }
            (_, byte) => word.get_or_insert((at, Vec::new())).1.push(byte),
        }
    }
    let (start, text) = word.unwrap_or((line.len(), Vec::new()));
    Word {
        start,
        text,
        command: words.into_iter().next(),
    }
}

/// Returns a word so that it is read as it is.
fn escaped(word: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(word.len());
    for byte in word {
        if b" \t'\"\\$;#!*?[<>|&".contains(byte) {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

impl CompleteLine for Completer {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> Result<(usize, Vec<Pair>)> {
        let word = last_word(&line[..at]);
        let shown = |replacement: &str| {
            let name = replacement.trim_end();
            let end = name
                .trim_end_matches('/')
                .rfind('/')
                .map_or(0, |slash| slash + 1);
            name[end..].to_owned()
        };
        let found = self.candidates(&word).into_iter().filter_map(|found| {
            let replacement = OsString::from_vec(found).into_string().ok()?;
            Some(Pair {
                display: shown(&replacement),
                replacement,
            })
        });
        Ok((word.start, found.collect()))
    }
}

impl Validator for Completer {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        let mut text = context.input().as_bytes().to_vec();
        text.push(b'\n');
        let is_unfinished = is_unfinished(&text);
        Ok(if is_unfinished {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}

impl Hinter for Completer {
    type Hint = String;
}

impl Highlighter for Completer {}

impl Helper for Completer {}

#[cfg(test)]
mod tests {
    use super::{escaped, last_word};

    #[test]
    fn the_word_at_the_cursor_is_found() {
        let check = |line: &str, start: usize, text: &str, command: Option<&str>| {
            let word = last_word(line);
            assert_eq!(
                (word.start, &*word.text),
                (start, text.as_bytes()),
                "{line}"
            );
            assert_eq!(
                word.command.as_deref(),
                command.map(str::as_bytes),
                "{line}"
            );
        };
        check("", 0, "", None);
        check("l", 0, "l", None);
        check("ls ", 3, "", Some("ls"));
        check("ls a\\ b", 3, "a b", Some("ls"));
        check("ls 'a b", 3, "a b", Some("ls"));
        check("ls -l \"/a b/c", 6, "/a b/c", Some("ls"));
        check("ls x; ca", 6, "ca", None);
        check("ls >/et", 4, "/et", Some("ls"));
        check("ls >> host:a", 6, "host:a", Some("ls"));
        check("put x <", 7, "", Some("put"));
        check("ls 'a>b", 3, "a>b", Some("ls"));
        check("ls | wc fi", 8, "fi", Some("|"));
    }

    #[test]
    fn completed_words_are_read_as_they_are() {
        assert_eq!(escaped(b"a b'c$d;e*"), b"a\\ b\\'c\\$d\\;e\\*");
        assert_eq!(escaped(b"a<b>c|d&e"), b"a\\<b\\>c\\|d\\&e");
    }
}
