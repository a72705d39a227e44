//! The words of a script, quoted as in a shell.
//!
//! `script` and `shell` split their text with it, before `statement` parses. An open quote is an
//! error with the line in which it begins.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use crate::globs;

/// Looks up a variable.
pub(crate) type Lookup<'l> = &'l dyn Fn(&OsStr) -> Option<OsString>;

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The text, without its quotes.
    pub(crate) text: OsString,
    /// The text as a pattern, with a backslash before each quoted character that has a meaning
    /// there. `None` if no character has one.
    pub(crate) pattern: Option<OsString>,
}

impl<T: Into<OsString>> From<T> for Word {
    /// Returns a word that is no pattern.
    fn from(text: T) -> Self {
        Self { text: text.into(), pattern: None }
    }
}

/// A statement as words, before its command is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// A command and its arguments; never empty.
    Command(Vec<Word>),
    /// The command line that stands behind a `!`, for a shell of the host.
    Host(OsString),
}

/// The reason why a text is no statement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The text ends too early: more lines may complete it.
    Unfinished(&'static str),
    /// The text is wrong.
    Wrong(String),
}

impl Fault {
    /// Returns the reason in words.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Unfinished(reason) => reason,
            Self::Wrong(reason) => reason,
        }
    }
}

/// A statement or its fault, with the number of the line that it starts in.
pub(crate) type Numbered = (usize, Result<Words, Fault>);

const QUOTE: Fault = Fault::Unfinished("a quote is not closed");

/// Splits a text into statements. A statement ends at a newline or a `;`. In `'` everything stands
/// for itself. In `"` that holds for all but `\`, `$` and `"`. A `\` keeps the byte after it, and
/// joins two lines at the end of one. `$NAME` and `${NAME}` stand for a variable, which stays one
/// word. Text that is quoted or comes from a variable is no pattern.
pub(crate) fn statements(text: &[u8], lookup: Lookup<'_>) -> Vec<Numbered> {
    let mut lexer = Lexer { rest: text, line: 1, lookup };
    let mut found = Vec::new();
    while !lexer.rest.is_empty() {
        let mut line = None;
        match lexer.statement(&mut line) {
            Ok(None) => {}
            Ok(Some(words)) => found.push((line.unwrap_or(lexer.line), Ok(words))),
            Err(fault) => {
                found.push((line.unwrap_or(lexer.line), Err(fault)));
                lexer.line_rest();
            }
        }
    }
    found
}

/// A word that is being read.
#[derive(Default)]
struct Draft {
    text: Vec<u8>,
    pattern: Vec<u8>,
    is_pattern: bool,
}

impl Draft {
    /// Adds a byte that stands for itself or has a meaning in a pattern.
    fn push(&mut self, byte: u8) {
        self.is_pattern |= matches!(byte, b'*' | b'?' | b'[');
        self.text.push(byte);
        self.pattern.push(byte);
    }

    /// Adds bytes that stand for themselves.
    fn push_quoted(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        self.pattern.extend_from_slice(&globs::escaped(bytes));
    }

    fn end(self) -> Word {
        let pattern = self.is_pattern.then(|| OsString::from_vec(self.pattern));
        Word { text: OsString::from_vec(self.text), pattern }
    }
}

struct Lexer<'t> {
    rest: &'t [u8],
    /// The number of the line in which the rest begins.
    line: usize,
    lookup: Lookup<'t>,
}

impl<'t> Lexer<'t> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.line += usize::from(*first == b'\n');
        Some(*first)
    }

    /// Takes everything up to the end of the line.
    fn line_rest(&mut self) -> &'t [u8] {
        let end = self.rest.iter().position(|byte| *byte == b'\n').unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        line
    }

    /// Takes the next statement; `None` for an empty one. Sets `line` to that of the first word.
    fn statement(&mut self, line: &mut Option<usize>) -> Result<Option<Words>, Fault> {
        let mut words: Vec<Word> = Vec::new();
        let mut word: Option<Draft> = None;
        loop {
            let here = self.line;
            let Some(byte) = self.next() else { break };
            match byte {
                b'\n' | b';' => break,
                b' ' | b'\t' | b'\r' => words.extend(word.take().map(Draft::end)),
                b'#' if word.is_none() => drop(self.line_rest()),
                b'\\' if self.rest.first() == Some(&b'\n') => drop(self.next()),
                b'!' if word.is_none() && words.is_empty() => {
                    line.get_or_insert(here);
                    return Ok(Some(Words::Host(OsString::from_vec(self.line_rest().to_vec()))));
                }
                _ => {
                    line.get_or_insert(here);
                    self.part(byte, &mut word)?;
                }
            }
        }
        words.extend(word.map(Draft::end));
        Ok((!words.is_empty()).then_some(Words::Command(words)))
    }

    /// Adds the part of a word that begins with `byte`.
    fn part(&mut self, byte: u8, word: &mut Option<Draft>) -> Result<(), Fault> {
        match byte {
            b'\'' => self.single_quoted(word.get_or_insert_default()),
            b'"' => self.double_quoted(word.get_or_insert_default()),
            b'$' => {
                let value = self.variable()?;
                // As in a shell, an empty variable alone is no word.
                if !value.is_empty() {
                    word.get_or_insert_default().push_quoted(&value);
                }
                Ok(())
            }
            b'\\' => {
                let reason = Fault::Unfinished("there is nothing behind the last backslash");
                let next = self.next().ok_or(reason)?;
                word.get_or_insert_default().push_quoted(&[next]);
                Ok(())
            }
            byte => {
                word.get_or_insert_default().push(byte);
                Ok(())
            }
        }
    }

    fn single_quoted(&mut self, word: &mut Draft) -> Result<(), Fault> {
        loop {
            match self.next().ok_or(QUOTE)? {
                b'\'' => return Ok(()),
                inner => word.push_quoted(&[inner]),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Draft) -> Result<(), Fault> {
        loop {
            match self.next().ok_or(QUOTE)? {
                b'"' => return Ok(()),
                b'$' => word.push_quoted(&self.variable()?),
                b'\\' => match self.next().ok_or(QUOTE)? {
                    b'\n' => {}
                    next => {
                        if !matches!(next, b'"' | b'\\' | b'$') {
                            word.push_quoted(b"\\");
                        }
                        word.push_quoted(&[next]);
                    }
                },
                inner => word.push_quoted(&[inner]),
            }
        }
    }

    /// Returns the value of the variable whose `$` was taken last. A `$` that names nothing stands
    /// for itself.
    fn variable(&mut self) -> Result<Vec<u8>, Fault> {
        let is_braced = self.rest.first() == Some(&b'{');
        let rest = &self.rest[usize::from(is_braced)..];
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let len = rest.iter().position(|byte| !is_name(byte)).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(len);
        let only = "only $NAME and ${NAME} stand for a variable; write \\$ for the sign";
        let wrong = |reason: String| Err(Fault::Wrong(reason));
        if is_braced && behind.first() != Some(&b'}') || name.first().is_some_and(u8::is_ascii_digit) {
            return wrong(only.to_owned());
        }
        match name {
            [] if is_braced || matches!(behind.first(), Some(b'(' | b'$' | b'?' | b'@' | b'*' | b'!')) => {
                wrong(only.to_owned())
            }
            [] => Ok(b"$".to_vec()),
            name => {
                self.rest = &behind[usize::from(is_braced)..];
                let name = OsStr::from_bytes(name);
                match (self.lookup)(name) {
                    Some(value) => Ok(value.into_vec()),
                    None => wrong(format!("the variable ${} is not set", name.display())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Fault, Numbered, Word, Words};

    fn statements(text: &str) -> Vec<Numbered> {
        super::statements(text.as_bytes(), &|name| match name.to_str() {
            Some("A") => Some("one two".into()),
            Some("EMPTY") => Some(OsString::new()),
            _ => None,
        })
    }

    /// Checks the statements of a text: their lines and words.
    #[track_caller]
    fn check(text: &str, expected: &[(usize, &[&str])]) {
        let expected: Vec<Numbered> = expected
            .iter()
            .map(|(line, words)| (*line, Ok(Words::Command(words.iter().copied().map(Word::from).collect()))))
            .collect();
        assert_eq!(statements(text), expected, "{text}");
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        check("", &[]);
        check("  a  b\tc ", &[(1, &["a", "b", "c"])]);
        check("a 'b c' \"d e\"f", &[(1, &["a", "b c", "d ef"])]);
        check("a\\ b '\\' \"\\\"\\\\\\n\"", &[(1, &["a b", "\\", "\"\\\\n"])]);
        check("'' x", &[(1, &["", "x"])]);
        check("a#b #c", &[(1, &["a#b"])]);
        check("# all; of it", &[]);
    }

    #[test]
    fn statements_end_at_lines_and_semicolons() {
        check("a;b ; c\n\n;;d", &[(1, &["a"]), (1, &["b"]), (1, &["c"]), (3, &["d"])]);
        check("a ';' \\; \";\"", &[(1, &["a", ";", ";", ";"])]);
        check("a \\\n b\nc", &[(1, &["a", "b"]), (3, &["c"])]);
        check("a\\\nb \"c\\\nd\" 'e\\\nf'", &[(1, &["ab", "cd", "e\\\nf"])]);
        check("a # \\\nb", &[(1, &["a"]), (2, &["b"])]);
        check("\\\n\\\na", &[(3, &["a"])]);
    }

    #[test]
    fn variables_are_replaced_by_one_word() {
        check("$A x${A}y '$A' \\$A \"${A}\\$A\"", &[(1, &["one two", "xone twoy", "$A", "$A", "one two$A"])]);
        check("'$A'\\*", &[(1, &["$A*"])]);
        check("$EMPTY a \"$EMPTY\" $EMPTY", &[(1, &["a", ""])]);
        check("a$ $ $.b", &[(1, &["a$", "$", "$.b"])]);
        let unset = statements("a $B\nc");
        assert!(matches!(&unset[0], (1, Err(Fault::Wrong(reason))) if reason.contains("$B is not set")));
        assert_eq!(unset[1].0, 2, "the next line is read");
        for bad in ["$1", "${A", "${}", "$(ls)", "\"$?\"", "$$"] {
            assert!(matches!(statements(bad)[..], [(1, Err(Fault::Wrong(_)))]), "{bad}");
        }
    }

    #[test]
    fn unquoted_characters_make_patterns() {
        let found = statements("ls *.c 'a*'? \\*x $A* \"[\" [a]\\]");
        let Ok(Words::Command(words)) = &found[0].1 else { panic!("{found:?}") };
        let patterns: Vec<_> = words.iter().map(|word| word.pattern.as_ref()?.to_str()).collect();
        let expected = [None, Some("*.c"), Some("a\\*?"), None, Some("one two*"), None, Some("[a]\\]")];
        assert_eq!(patterns, expected);
        let texts: Vec<_> = words.iter().map(|word| word.text.to_str().expect("text")).collect();
        assert_eq!(texts, ["ls", "*.c", "a*?", "*x", "one two*", "[", "[a]]"]);
    }

    #[test]
    fn a_bang_takes_the_line() {
        let found = statements("a; ! echo 'b; c' # d\n!\nx !y");
        assert_eq!(found[1], (1, Ok(Words::Host(" echo 'b; c' # d".into()))));
        assert_eq!(found[2], (2, Ok(Words::Host("".into()))));
        assert_eq!(found[3], (3, Ok(Words::Command(vec!["x".into(), "!y".into()]))));
    }

    #[test]
    fn unfinished_texts_are_told_from_wrong_ones() {
        for unfinished in ["'a", "\"a", "a\\", "\"a\\", "a 'b\nc"] {
            assert!(matches!(statements(unfinished)[..], [(1, Err(Fault::Unfinished(_)))]), "{unfinished}");
        }
    }
}
