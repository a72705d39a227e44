//! Regular expressions in the syntaxes of POSIX and of Emacs, translated to the syntax of the
//! library that matches them.
//!
//! In the syntax of Emacs, GNU `find`'s default, `\(`, `\|` and `\)` are operators, as are `*`, `+`
//! and `?` after an atom. A parenthesis, bar or brace alone stands for itself. The basic syntax has
//! `\{`, `\+` and `\?` too, and the extended one has all of them without a backslash. `^` is an
//! anchor where an alternative begins, `$` where one ends; in the extended syntax they always are.
//! In brackets a backslash stands for itself, and Emacs knows no classes such as `[:alpha:]`.
//!
//! `grep` and `find -regex` compile the result. A pattern that the library cannot express is an
//! error and never matches something else. The result says whether the pattern refers back to a
//! group, which only some libraries can match.

use std::iter::Peekable;
use std::str::CharIndices;

/// The syntax of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Emacs,
    Basic,
    Extended,
}

/// An expression in the syntax of the crate `regex`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Translated {
    pub(crate) text: String,
    /// The number of its groups.
    pub(crate) groups: usize,
    /// Whether it has references back to groups, which that crate does not know.
    pub(crate) looks_back: bool,
}

/// Returns an expression in the syntax of the crate `regex`. One that refers back to a group is an
/// error.
pub(crate) fn without_references(text: &str, syntax: Syntax) -> Result<String, String> {
    let translated = translate(text, syntax, 0)?;
    if translated.looks_back {
        Err(format!(
            "{text} refers back to a group, which only grep can"
        ))
    } else {
        Ok(translated.text)
    }
}

/// Translates an expression that stands behind `before` groups of others.
pub(crate) fn translate(text: &str, syntax: Syntax, before: usize) -> Result<Translated, String> {
    let mut translation = Translation {
        text,
        syntax,
        rest: text.char_indices().peekable(),
        out: String::new(),
        groups: Vec::new(),
        before,
        opened: 0,
        closed: Vec::new(),
        looks_back: false,
        atom: None,
        begins: true,
    };
    while let Some((at, c)) = translation.rest.next() {
        translation.one(at, c)?;
    }
    if translation.groups.is_empty() {
        Ok(Translated {
            text: translation.out,
            groups: translation.opened,
            looks_back: translation.looks_back,
        })
    } else {
        Err(format!("{text} lacks a {}", translation.spelled(')')))
    }
}

struct Translation<'a> {
    text: &'a str,
    syntax: Syntax,
    rest: Peekable<CharIndices<'a>>,
    out: String,
    /// The open groups: where each starts, and its number.
    groups: Vec<(usize, usize)>,
    /// The groups of expressions before this one.
    before: usize,
    /// How many groups have begun.
    opened: usize,
    /// The numbers of the groups that have ended.
    closed: Vec<usize>,
    looks_back: bool,
    /// The start of the atom that an operator would repeat; `None` where there is none.
    atom: Option<usize>,
    /// Whether an alternative begins here.
    begins: bool,
}

impl Translation<'_> {
    fn one(&mut self, at: usize, c: char) -> Result<(), String> {
        let begins = std::mem::take(&mut self.begins);
        let extended = self.syntax == Syntax::Extended;
        match c {
            '\\' => return self.escape(),
            '[' => return self.bracket(),
            '.' => self.push("."),
            '*' => self.repeat("*"),
            '+' | '?' if self.syntax != Syntax::Basic => self.repeat(c.encode_utf8(&mut [0; 4])),
            '^' if begins || extended => self.anchor("^"),
            '$' if extended || self.ends(at + 1) => self.anchor("$"),
            '(' | ')' | '|' | '{' if extended => return self.operator(c),
            c => self.literal(c),
        }
        Ok(())
    }

    fn push(&mut self, atom: &str) {
        self.atom = Some(self.out.len());
        self.out.push_str(atom);
    }

    fn literal(&mut self, c: char) {
        self.push(&quoted(c));
    }

    /// Appends an anchor. An operator after an anchor has nothing to repeat.
    fn anchor(&mut self, anchor: &str) {
        self.out.push_str(anchor);
        self.atom = None;
    }

    /// Repeats the last atom, in a group: two operators in a row mean something else to the
    /// library. Where there is no atom, the operator stands for itself, but in the extended syntax
    /// it repeats the empty text.
    fn repeat(&mut self, operator: &str) {
        match self.atom {
            Some(atom) => {
                self.out.insert_str(atom, "(?:");
                self.out.push(')');
                self.out.push_str(operator);
            }
            None if self.syntax == Syntax::Extended => {}
            None => operator.chars().for_each(|c| self.literal(c)),
        }
    }

    fn ends(&self, at: usize) -> bool {
        let behind = &self.text[at..];
        behind.is_empty() || behind.starts_with("\\)") || behind.starts_with("\\|")
    }

    /// Handles an operator that the extended syntax writes alone, and the others with a backslash.
    fn operator(&mut self, c: char) -> Result<(), String> {
        match c {
            '(' => {
                self.opened += 1;
                self.groups.push((self.out.len(), self.opened));
                self.anchor("(");
                self.begins = true;
            }
            ')' => {
                let Some((start, number)) = self.groups.pop() else {
                    return Err(format!(
                        "{} has a {} too many",
                        self.text,
                        self.spelled(')')
                    ));
                };
                self.out.push(')');
                self.closed.push(number);
                self.atom = Some(start);
            }
            '|' => {
                self.anchor("|");
                self.begins = true;
            }
            _ => return self.interval(),
        }
        Ok(())
    }

    /// Returns an operator as the syntax writes it.
    fn spelled(&self, c: char) -> String {
        if self.syntax == Syntax::Extended {
            c.to_string()
        } else {
            format!("\\{c}")
        }
    }

    /// Reads `M,N}` behind an opening brace.
    fn interval(&mut self) -> Result<(), String> {
        let start = self.rest.peek().map_or(self.text.len(), |(at, _)| *at);
        let rest = &self.text[start..];
        let close = self.spelled('}');
        let found = rest
            .find(&close)
            .and_then(|len| Some((start + len + close.len(), bounds(&rest[..len])?)));
        match found.filter(|_| self.atom.is_some()) {
            Some((end, bounds)) => {
                while self.rest.next_if(|(at, _)| *at < end).is_some() {}
                self.repeat(&bounds);
            }
            None if self.syntax == Syntax::Extended => self.literal('{'),
            None => {
                return Err(format!(
                    "{}: \\{{ is not followed by a number of repetitions",
                    self.text
                ));
            }
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let text = self.text;
        let syntax = self.syntax;
        match self.rest.next().map(|(_, c)| c) {
            None => return Err(format!("{text} ends with a backslash")),
            Some(c @ ('(' | ')' | '|')) if syntax != Syntax::Extended => return self.operator(c),
            Some('{') if syntax == Syntax::Basic => return self.operator('{'),
            Some(c @ ('+' | '?')) if syntax == Syntax::Basic => {
                self.repeat(c.encode_utf8(&mut [0; 4]))
            }
            Some('`') => self.anchor("\\A"),
            Some('\'') => self.anchor("\\z"),
            Some('<') => self.anchor("\\b{start}"),
            Some('>') => self.anchor("\\b{end}"),
            Some(c @ ('b' | 'B')) => self.anchor(&format!("\\{c}")),
            Some(c @ ('w' | 'W' | 's' | 'S')) => self.push(&format!("\\{c}")),
            Some(c @ '1'..='9') => {
                let number = usize::from(c as u8 - b'0');
                if !self.closed.contains(&number) {
                    return Err(format!("{text}: no group ends before \\{c}"));
                }
                self.looks_back = true;
                self.push(&format!("(?:\\{})", self.before + number));
            }
            Some(c) => self.literal(c),
        }
        Ok(())
    }

    fn bracket(&mut self) -> Result<(), String> {
        let text = self.text;
        let open = || format!("{text} lacks a ]");
        let mut set = String::from("[");
        if self.rest.next_if(|(_, c)| *c == '^').is_some() {
            set.push('^');
        }
        let mut is_first = true;
        loop {
            let (_, c) = self.rest.next().ok_or_else(open)?;
            if c == ']' && !is_first {
                break;
            }
            is_first = false;
            let next = self.rest.peek().map(|(_, next)| *next);
            if c == '[' && matches!(next, Some('.' | '=')) {
                return Err(format!("{}: [. and [= are not there", self.text));
            }
            if c == '[' && next == Some(':') && self.syntax != Syntax::Emacs {
                set.push_str(&self.class()?);
                continue;
            }
            set.push_str(&quoted(c));
            // A hyphen before the end stands for itself.
            let is_range = self.rest.peek().is_some_and(|(at, _)| {
                let rest = &self.text.as_bytes()[*at..];
                rest[0] == b'-' && rest.get(1).is_some_and(|next| *next != b']')
            });
            if is_range {
                self.rest.next();
                let (_, last) = self.rest.next().ok_or_else(open)?;
                set.push('-');
                set.push_str(&quoted(last));
            }
        }
        set.push(']');
        self.push(&set);
        Ok(())
    }

    /// Reads `:alpha:]` in brackets.
    fn class(&mut self) -> Result<String, String> {
        const CLASSES: [&str; 12] = [
            "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
            "space", "upper", "xdigit",
        ];
        let start = self.rest.peek().map_or(self.text.len(), |(at, _)| *at + 1);
        let (name, _) = self.text[start..].split_once(":]").unwrap_or_default();
        if !CLASSES.contains(&name) {
            return Err(format!("{} has a class that is not known", self.text));
        }
        let end = start + name.len() + 2;
        while self.rest.next_if(|(at, _)| *at < end).is_some() {}
        Ok(format!("[:{name}:]"))
    }
}

/// Returns the bounds of an interval as the library writes them.
fn bounds(text: &str) -> Option<String> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() < 6;
    let (least, most) = text.split_once(',').unwrap_or((text, text));
    if text.is_empty() || !is_number(least) || !is_number(most) {
        return None;
    }
    let least = if least.is_empty() { "0" } else { least };
    Some(if text.contains(',') {
        format!("{{{least},{most}}}")
    } else {
        format!("{{{least}}}")
    })
}

/// Returns a character that stands for itself, in brackets or not.
fn quoted(c: char) -> String {
    if c.is_alphanumeric() || !c.is_ascii() {
        c.to_string()
    } else {
        format!("\\x{{{:x}}}", u32::from(c))
    }
}

#[cfg(test)]
mod tests {
    use super::{Syntax, Translated, translate};
    use regex::bytes::Regex;

    fn compiled(regex: &str, syntax: Syntax) -> Result<Regex, String> {
        let Translated {
            text, looks_back, ..
        } = translate(regex, syntax, 0)?;
        assert!(!looks_back, "{regex}");
        let whole = format!("^(?:{text})$");
        Regex::new(&whole).map_err(|_| format!("{regex} is not a regular expression"))
    }

    fn parse(regex: &str) -> Result<Regex, String> {
        compiled(regex, Syntax::Emacs)
    }

    #[test]
    fn the_syntaxes_of_posix_differ_in_backslashes() {
        let check = |regex: &str, syntax, text: &str, matches| {
            let found = compiled(regex, syntax).map(|regex| regex.is_match(text.as_bytes()));
            assert_eq!(found, Ok(matches), "{regex} {text}");
        };
        use Syntax::{Basic, Extended};
        check("a{2}", Extended, "aa", true);
        check("a{2}", Basic, "a{2}", true);
        check("a\\{2,\\}", Basic, "aaa", true);
        check("a{,2}", Extended, "aaa", false);
        check("a{x", Extended, "a{x", true);
        check("(a|b)+", Extended, "abba", true);
        check("\\(a\\|b\\)\\+", Basic, "abba", true);
        check("(a|b)+", Basic, "(a|b)+", true);
        check("a\\+", Extended, "a+", true);
        check("*a", Basic, "*a", true);
        check("*a", Extended, "a", true);
        check("[[:alpha:]_-]*", Basic, "ab_-", true);
        check("[^[:digit:]]", Extended, "5", false);
        check("[\\n]", Extended, "\\", true);
        check("x^$", Basic, "x^", true);
        assert!(compiled("[[:no:]]", Basic).is_err() && compiled("a\\{x", Basic).is_err());
    }

    #[test]
    fn expressions_mean_what_they_mean_to_find() {
        let check = |regex: &str, path: &str, matches| {
            let found = parse(regex).map(|regex| regex.is_match(path.as_bytes()));
            assert_eq!(found, Ok(matches), "{regex} {path}");
        };
        check(".*\\(a\\|b\\)", "/a", true);
        check(".*(a|b)", "/a", false);
        check(".*(a|b)", "/(a|b)", true);
        check("*a+", "*aa", true);
        check("/\\(*a\\|+b\\)", "/+b", true);
        check("/a\\+", "/a+", true);
        check("/a{2}", "/aa", false);
        check("/a{2}", "/a{2}", true);
        check("/a+?", "/aa", true);
        check("/a+?", "/", true);
        check("/a^b$c", "/a^b$c", true);
        check("^\\(^/a$\\)$", "/a", true);
        check("/[]a\\]x", "/]x", true);
        check("/[^]a]", "/\\", true);
        check("/[a-c-]", "/-", true);
        check("/.", "/\n", false);
        check("/[^a]", "/\n", true);
    }

    #[test]
    fn references_back_are_told() {
        let check = |regex: &str, before, expected: &str, groups| {
            let expected = Translated {
                text: expected.to_owned(),
                groups,
                looks_back: true,
            };
            assert_eq!(
                translate(regex, Syntax::Basic, before),
                Ok(expected),
                "{regex}"
            );
        };
        check("\\(a\\)\\1", 0, "(a)(?:\\1)", 1);
        check("\\(a\\)\\(b\\)\\2*", 3, "(a)(b)(?:(?:\\5))*", 2);
    }

    #[test]
    fn an_invalid_expression_has_a_reason() {
        for (regex, why) in [
            ("\\(a\\)\\2", "no group ends before \\2"),
            ("\\(a\\1\\)", "no group ends before \\1"),
            ("\\(a", "lacks a \\)"),
            ("a\\)", "too many"),
            ("[a", "lacks a ]"),
            ("[]", "lacks a ]"),
            ("[[=a=]]", "[="),
            ("a\\", "ends with a backslash"),
            ("[b-a]", "is not a regular expression"),
        ] {
            let error = parse(regex).map(drop).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
