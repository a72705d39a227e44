//! The words of a script, quoted as in a shell.
//!
//! `script` and `shell` split their text with it, before `statement` parses. An open quote is an
//! error with the line in which it begins.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use super::draft::{CommandDraft, Draft, Operator, joins, no_file};

/// Looks up a variable.
pub(crate) type Lookup<'l> = &'l dyn Fn(&OsStr) -> Option<OsString>;

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The text, without its quotes.
    pub(crate) text: OsString,
    /// The meaning of a word that is the path of a file.
    pub(crate) meaning: Meaning,
}

/// The files that a word stands for where a command takes a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The file of that name.
    Name,
    /// The files that match a pattern. Each quoted character that has a meaning there has a
    /// backslash before it.
    Pattern(OsString),
    /// The file with this inode number, written `<12>`.
    Inode(u64),
    /// The directory that relative paths start in, which no user writes.
    Directory,
}

impl<T: Into<OsString>> From<T> for Word {
    /// Returns a word that is a name.
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            meaning: Meaning::Name,
        }
    }
}

/// A statement as words, before its command is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// A command and its arguments, never empty, and where it reads and writes.
    Command(Vec<Word>, Redirections),
    /// The command line that stands behind a `!`, for a shell of the host.
    Host(OsString),
}

/// Where a command reads and writes instead of at standard input and output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Redirections {
    /// The file behind a `<`.
    pub(crate) input: Option<Word>,
    /// The file behind a `>` or `>>`, or the program behind a `|`.
    pub(crate) output: Option<Output>,
}

/// Where the output of a command goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Into a file, in the place of what it holds.
    File(Word),
    /// To the end of a file.
    End(Word),
    /// To a command line of the host, as it was typed.
    Program(OsString),
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
/// word. Text that is quoted or comes from a variable is no pattern and no operator.
pub(crate) fn statements(text: &[u8], lookup: Lookup<'_>) -> Vec<Numbered> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
        lookup,
    };
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
        let end = self
            .rest
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        line
    }

    /// Takes the next statement; `None` for an empty one. Sets `line` to that of the first word.
    fn statement(&mut self, line: &mut Option<usize>) -> Result<Option<Words>, Fault> {
        let mut draft = CommandDraft::default();
        loop {
            let here = self.line;
            let Some(byte) = self.next() else { break };
            match byte {
                b'\n' | b';' => break,
                b' ' | b'\t' | b'\r' => draft.end_word()?,
                b'#' if draft.word.is_none() => drop(self.line_rest()),
                b'\\' if self.rest.first() == Some(&b'\n') => drop(self.next()),
                b'!' if draft.is_empty() && draft.operator.is_none() => {
                    line.get_or_insert(here);
                    return Ok(Some(Words::Host(OsString::from_vec(
                        self.line_rest().to_vec(),
                    ))));
                }
                b'|' => {
                    line.get_or_insert(here);
                    self.program(&mut draft)?;
                    break;
                }
                b'<' | b'>' | b'&' => {
                    line.get_or_insert(here);
                    self.operator(byte, &mut draft)?;
                }
                _ => {
                    line.get_or_insert(here);
                    self.part(byte, &mut draft.word)?;
                }
            }
        }
        draft.end()
    }

    /// Takes what a `|` begins, up to the end of the line: a command line of the host.
    fn program(&mut self, draft: &mut CommandDraft) -> Result<(), Fault> {
        if self.rest.first() == Some(&b'|') {
            return Err(joins("||"));
        }
        draft.end_word()?;
        if let Some(operator) = draft.operator {
            return Err(no_file(operator));
        }
        if draft.words.is_empty() {
            return Err(Fault::Wrong("there is no command before '|'".to_owned()));
        }
        let program = self.line_rest();
        if program.trim_ascii().is_empty() {
            return Err(Fault::Wrong(
                "there is no command of the host behind '|'".to_owned(),
            ));
        }
        if names_host(program) {
            let reason =
                "behind '|' the line is for a shell of the host: name its files without 'host:'";
            return Err(Fault::Wrong(reason.to_owned()));
        }
        draft.output(Output::Program(OsString::from_vec(program.to_vec())))
    }

    /// Takes what `byte` begins: a redirection, or an inode.
    fn operator(&mut self, byte: u8, draft: &mut CommandDraft) -> Result<(), Fault> {
        let is_double = self.rest.first() == Some(&byte);
        if byte == b'<'
            && let Some(number) = self.inode()
        {
            if draft.word.is_some() {
                return Err(Fault::Wrong(format!(
                    "<{number}>: an inode is a word by itself"
                )));
            }
            let text = format!("<{number}>").into();
            let meaning = Meaning::Inode(number);
            return draft.push(Word { text, meaning });
        }
        match (byte, is_double) {
            (b'&', true) => Err(joins("&&")),
            (b'&', false) => Err(joins("&")),
            (b'<', true) => Err(Fault::Wrong(
                "'<<' has no meaning here: '<' takes a file".to_owned(),
            )),
            (b'<', false) => draft.operator(Operator::Input),
            (_, true) => {
                self.next();
                draft.operator(Operator::End)
            }
            (_, false) => draft.operator(Operator::File),
        }
    }

    /// Takes the rest of a word such as `<12>`, whose `<` was taken last.
    fn inode(&mut self) -> Option<u64> {
        let len = self.rest.iter().position(|byte| !byte.is_ascii_digit())?;
        let (number, behind) = self.rest.split_at(len);
        let number = std::str::from_utf8(number).ok()?.parse().ok()?;
        let rest = behind.strip_prefix(b">")?;
        matches!(
            rest.first(),
            None | Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'|')
        )
        .then(|| {
            self.rest = rest;
            number
        })
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
        let len = rest
            .iter()
            .position(|byte| !is_name(byte))
            .unwrap_or(rest.len());
        let (name, behind) = rest.split_at(len);
        let only = "only $NAME and ${NAME} stand for a variable; write \\$ for the sign";
        let wrong = |reason: String| Err(Fault::Wrong(reason));
        if is_braced && behind.first() != Some(&b'}')
            || name.first().is_some_and(u8::is_ascii_digit)
        {
            return wrong(only.to_owned());
        }
        match name {
            [] if is_braced
                || matches!(
                    behind.first(),
                    Some(b'(' | b'$' | b'?' | b'@' | b'*' | b'!')
                ) =>
            {
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

/// Returns whether a redirection in a command line of the host has the prefix that files of the
/// host have only in this language.
fn names_host(line: &[u8]) -> bool {
    let mut quote = None;
    line.iter().enumerate().any(|(at, byte)| {
        match (quote, byte) {
            (Some(open), end) if open == *end => quote = None,
            (None, b'\'' | b'"') => quote = Some(*byte),
            (None, b'<' | b'>') => return line[at + 1..].trim_ascii_start().starts_with(b"host:"),
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Fault, Meaning, Numbered, Output, Redirections, Word, Words};

    fn statements(text: &str) -> Vec<Numbered> {
        super::statements(text.as_bytes(), &|name| match name.to_str() {
            Some("A") => Some("one two".into()),
            Some("EMPTY") => Some(OsString::new()),
            _ => None,
        })
    }

    fn plain(words: &[&str]) -> Words {
        Words::Command(
            words.iter().copied().map(Word::from).collect(),
            Redirections::default(),
        )
    }

    /// Checks the statements of a text: their lines and words.
    #[track_caller]
    fn check(text: &str, expected: &[(usize, &[&str])]) {
        let expected: Vec<Numbered> = expected
            .iter()
            .map(|(line, words)| (*line, Ok(plain(words))))
            .collect();
        assert_eq!(statements(text), expected, "{text}");
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        check("", &[]);
        check("  a  b\tc ", &[(1, &["a", "b", "c"])]);
        check("a 'b c' \"d e\"f", &[(1, &["a", "b c", "d ef"])]);
        check(
            "a\\ b '\\' \"\\\"\\\\\\n\"",
            &[(1, &["a b", "\\", "\"\\\\n"])],
        );
        check("'' x", &[(1, &["", "x"])]);
        check("a#b #c", &[(1, &["a#b"])]);
        check("# all; of it", &[]);
    }

    #[test]
    fn statements_end_at_lines_and_semicolons() {
        check(
            "a;b ; c\n\n;;d",
            &[(1, &["a"]), (1, &["b"]), (1, &["c"]), (3, &["d"])],
        );
        check("a ';' \\; \";\"", &[(1, &["a", ";", ";", ";"])]);
        check("a \\\n b\nc", &[(1, &["a", "b"]), (3, &["c"])]);
        check(
            "a\\\nb \"c\\\nd\" 'e\\\nf'",
            &[(1, &["ab", "cd", "e\\\nf"])],
        );
        check("a # \\\nb", &[(1, &["a"]), (2, &["b"])]);
        check("\\\n\\\na", &[(3, &["a"])]);
    }

    #[test]
    fn variables_are_replaced_by_one_word() {
        check(
            "$A x${A}y '$A' \\$A \"${A}\\$A\"",
            &[(1, &["one two", "xone twoy", "$A", "$A", "one two$A"])],
        );
        check("'$A'\\*", &[(1, &["$A*"])]);
        check("$EMPTY a \"$EMPTY\" $EMPTY", &[(1, &["a", ""])]);
        check("a$ $ $.b", &[(1, &["a$", "$", "$.b"])]);
        let unset = statements("a $B\nc");
        assert!(
            matches!(&unset[0], (1, Err(Fault::Wrong(reason))) if reason.contains("$B is not set"))
        );
        assert_eq!(unset[1].0, 2, "the next line is read");
        for bad in ["$1", "${A", "${}", "$(ls)", "\"$?\"", "$$"] {
            assert!(
                matches!(statements(bad)[..], [(1, Err(Fault::Wrong(_)))]),
                "{bad}"
            );
        }
    }

    #[test]
    fn unquoted_characters_make_patterns() {
        let found = statements("ls *.c 'a*'? \\*x $A* \"[\" [a]\\]");
        let Ok(Words::Command(words, _)) = &found[0].1 else {
            panic!("{found:?}")
        };
        let pattern = |word: &Word| match &word.meaning {
            Meaning::Pattern(pattern) => pattern.to_str().map(ToOwned::to_owned),
            _ => None,
        };
        let patterns: Vec<_> = words.iter().map(pattern).collect();
        let patterns: Vec<_> = patterns.iter().map(Option::as_deref).collect();
        let expected = [
            None,
            Some("*.c"),
            Some("a\\*?"),
            None,
            Some("one two*"),
            None,
            Some("[a]\\]"),
        ];
        assert_eq!(patterns, expected);
        let texts: Vec<_> = words
            .iter()
            .map(|word| word.text.to_str().expect("text"))
            .collect();
        assert_eq!(texts, ["ls", "*.c", "a*?", "*x", "one two*", "[", "[a]]"]);
    }

    #[test]
    fn a_bang_takes_the_line() {
        let found = statements("a; ! echo 'b; c' # d\n!\nx !y");
        assert_eq!(found[1], (1, Ok(Words::Host(" echo 'b; c' # d".into()))));
        assert_eq!(found[2], (2, Ok(Words::Host("".into()))));
        assert_eq!(found[3], (3, Ok(plain(&["x", "!y"]))));
    }

    #[test]
    fn redirections_are_read() {
        let file = |name: &str| Some(Output::File(name.into()));
        let end = |name: &str| Some(Output::End(name.into()));
        let program = |line: &str| Some(Output::Program(line.into()));
        for (text, words, input, output) in [
            ("a > b", &["a"][..], None, file("b")),
            ("a>b c", &["a", "c"], None, file("b")),
            ("> 'b c' a", &["a"], None, file("b c")),
            ("a >> host:b", &["a"], None, end("host:b")),
            ("a - <b >c", &["a", "-"], Some("b"), file("c")),
            ("a < \\\nb", &["a"], Some("b"), None),
            (
                "a | b 'c; d' > e; f && g",
                &["a"],
                None,
                program(" b 'c; d' > e; f && g"),
            ),
            (
                "a | grep '> host:b'",
                &["a"],
                None,
                program(" grep '> host:b'"),
            ),
            ("a <b|c", &["a"], Some("b"), program("c")),
            (
                "a '>' \\| \"<\" '&&' x\\&y",
                &["a", ">", "|", "<", "&&", "x&y"],
                None,
                None,
            ),
            ("a $A > $A", &["a", "one two"], None, file("one two")),
        ] {
            let words = words.iter().copied().map(Word::from).collect();
            let redirections = Redirections {
                input: input.map(Word::from),
                output,
            };
            assert_eq!(
                statements(text),
                [(1, Ok(Words::Command(words, redirections)))],
                "{text}"
            );
        }
        for (wrong, says) in [
            ("a && b", "'&&' has no meaning here"),
            ("a || b", "'||' has no meaning here"),
            ("a & b", "'&' has no meaning here"),
            ("a b&", "first failure ends a script"),
            ("a >", "no file behind '>'"),
            ("a > | b", "no file behind '>'"),
            ("a > > b", "no file behind '>'"),
            ("a > b > c", "one place"),
            ("a > b | c", "one place"),
            ("a < b < c", "one '<'"),
            ("a > *", "the name of one file"),
            ("a > <12>", "the name of one file"),
            ("a 2> b", "2>: "),
            ("a << b", "'<<' has no meaning"),
            ("a >& b", "'&' has no meaning"),
            ("| b", "no command before '|'"),
            ("a |", "no command of the host"),
            ("a | gzip > host:b", "without 'host:'"),
            ("a | tee b >>host:c", "without 'host:'"),
            ("> a", "a command before it"),
        ] {
            let found = statements(wrong);
            let [(1, Err(Fault::Wrong(reason))), ..] = &found[..] else {
                panic!("{wrong}: {found:?}")
            };
            assert!(reason.contains(says), "{wrong}: {reason}");
        }
    }

    #[test]
    fn a_number_in_angle_brackets_is_an_inode() {
        let found = statements("cat <12> x <2>|wc");
        let Ok(Words::Command(words, redirections)) = &found[0].1 else {
            panic!("{found:?}")
        };
        let inode = |text: &str, number| Word {
            text: text.into(),
            meaning: Meaning::Inode(number),
        };
        assert_eq!(
            *words,
            ["cat".into(), inode("<12>", 12), "x".into(), inode("<2>", 2)]
        );
        assert_eq!(redirections.output, Some(Output::Program("wc".into())));
        for wrong in ["cat - <12>x", "cat a<12>"] {
            assert!(
                matches!(statements(wrong)[..], [(1, Err(Fault::Wrong(_)))]),
                "{wrong}"
            );
        }
        assert_eq!(statements("cat '<12>'"), [(1, Ok(plain(&["cat", "<12>"])))]);
        assert!(matches!(
            statements("chmod --reference=<12> /x")[..],
            [(1, Err(Fault::Wrong(_)))]
        ));
    }

    #[test]
    fn unfinished_texts_are_told_from_wrong_ones() {
        for unfinished in ["'a", "\"a", "a\\", "\"a\\", "a 'b\nc"] {
            assert!(
                matches!(statements(unfinished)[..], [(1, Err(Fault::Unfinished(_)))]),
                "{unfinished}"
            );
        }
    }
}
