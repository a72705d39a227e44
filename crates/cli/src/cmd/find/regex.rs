//! Regular expressions in GNU `find`'s default syntax, that of Emacs, translated to the syntax of
//! the library that matches them.
//!
//! `\(`, `\|` and `\)` are operators, as are `*`, `+` and `?` after an atom. A parenthesis, bar or
//! brace alone stands for itself. `^` is an anchor where an alternative begins, `$` where one ends.
//! In brackets a backslash stands for itself, and there are no classes.

use std::iter::Peekable;
use std::str::CharIndices;

use regex_lite::{Regex, RegexBuilder};

/// Returns the expression `text`, for the whole of a path.
pub(super) fn parse(text: &str, fold: bool) -> Result<Regex, String> {
    let whole = format!("^(?:{})$", translate(text)?);
    let regex = RegexBuilder::new(&whole).case_insensitive(fold).build();
    regex.map_err(|_| format!("{text} is not a regular expression"))
}

fn translate(text: &str) -> Result<String, String> {
    let mut translation = Translation {
        text,
        rest: text.char_indices().peekable(),
        out: String::new(),
        groups: Vec::new(),
        atom: None,
    };
    while let Some((at, c)) = translation.rest.next() {
        translation.one(at, c)?;
    }
    if translation.groups.is_empty() { Ok(translation.out) } else { Err(format!("{text} lacks a \\)")) }
}

struct Translation<'a> {
    text: &'a str,
    rest: Peekable<CharIndices<'a>>,
    out: String,
    /// The starts of the open groups.
    groups: Vec<usize>,
    /// The start of the atom that an operator would repeat; `None` where there is none.
    atom: Option<usize>,
}

impl Translation<'_> {
    fn one(&mut self, at: usize, c: char) -> Result<(), String> {
        match c {
            '*' | '+' | '?' => self.repeat(c),
            '\\' => return self.escape(),
            '[' => return self.bracket(),
            '.' => self.push("."),
            '^' if self.begins(at) => self.anchor("^"),
            '$' if self.ends(at + 1) => self.anchor("$"),
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

    /// Appends an anchor. An operator after an anchor stands for itself.
    fn anchor(&mut self, anchor: &str) {
        self.out.push_str(anchor);
        self.atom = None;
    }

    /// Repeats the last atom, in a group: two operators in a row mean something else to the
    /// library.
    fn repeat(&mut self, operator: char) {
        let Some(atom) = self.atom else { return self.literal(operator) };
        self.out.insert_str(atom, "(?:");
        self.out.push(')');
        self.out.push(operator);
    }

    fn begins(&self, at: usize) -> bool {
        let before = &self.text[..at];
        // The backslash of an operator is not one that another backslash escapes.
        let operator = before.ends_with("\\(") || before.ends_with("\\|");
        at == 0
            || operator
                && (self.out.ends_with("(?:") || self.out.ends_with('|') && !self.out.ends_with("\\|"))
    }

    fn ends(&self, at: usize) -> bool {
        let behind = &self.text[at..];
        behind.is_empty() || behind.starts_with("\\)") || behind.starts_with("\\|")
    }

    fn escape(&mut self) -> Result<(), String> {
        let text = self.text;
        match self.rest.next().map(|(_, c)| c) {
            None => return Err(format!("{text} ends with a backslash")),
            Some('(') => {
                self.groups.push(self.out.len());
                self.anchor("(?:");
            }
            Some(')') => {
                let start = self.groups.pop().ok_or_else(|| format!("{text} has a \\) too many"))?;
                self.out.push(')');
                self.atom = Some(start);
            }
            Some('|') => self.anchor("|"),
            Some('`') => self.anchor("\\A"),
            Some('\'') => self.anchor("\\z"),
            Some('<') => self.anchor("\\b{start}"),
            Some('>') => self.anchor("\\b{end}"),
            Some(c @ ('b' | 'B')) => self.anchor(&format!("\\{c}")),
            Some(c @ ('w' | 'W' | 's' | 'S')) => self.push(&format!("\\{c}")),
            Some(c @ '1'..='9') => return Err(format!("{text}: \\{c}, which looks back, is not there")),
            Some(c) => self.literal(c),
        }
        Ok(())
    }

    fn bracket(&mut self) -> Result<(), String> {
        let open = || format!("{} lacks a ]", self.text);
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
            if c == '[' && self.rest.peek().is_some_and(|(_, c)| matches!(c, '.' | '=')) {
                return Err(format!("{}: [. and [= are not there", self.text));
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
}

/// Returns a character that stands for itself, in brackets or not.
fn quoted(c: char) -> String {
    if c.is_alphanumeric() || !c.is_ascii() { c.to_string() } else { format!("\\x{{{:x}}}", u32::from(c)) }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn expressions_mean_what_they_mean_to_find() {
        let check = |regex: &str, path: &str, matches| {
            let found = parse(regex, false).map(|regex| regex.is_match(path));
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
    fn an_invalid_expression_has_a_reason() {
        for (regex, why) in [
            ("\\(a\\)\\1", "\\1, which looks back"),
            ("\\(a", "lacks a \\)"),
            ("a\\)", "too many"),
            ("[a", "lacks a ]"),
            ("[]", "lacks a ]"),
            ("[[=a=]]", "[="),
            ("a\\", "ends with a backslash"),
            ("[b-a]", "is not a regular expression"),
        ] {
            let error = parse(regex, false).map(drop).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
