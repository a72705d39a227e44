//! `--selinux`: labels by the file contexts of an SELinux policy, as in file_contexts(5).
//!
//! Each line is `REGEX [TYPE] CONTEXT`. The expression has to match a whole path. As in
//! selabel_file(5), an expression without special characters wins over others, and of several that
//! match the last one counts. The context `<<none>>` leaves a file as its source has it.
//!
//! `edits` labels each entry with it. A line that is wrong is an error with its number.

use std::path::{Path, PathBuf};

use extern4::build::{Entry, Kind};
use regex::bytes::Regex;

use crate::interruptible;
use crate::stop::Stop;

/// The attribute that has the label, with a NUL at its end as libselinux writes it.
const NAME: &[u8] = b"security.selinux";
const NONE: &str = "<<none>>";

/// The file contexts of one or several files.
pub(super) struct Contexts {
    /// In the order of precedence.
    rules: Vec<Rule>,
}

struct Rule {
    /// The beginning of each path that matches, without special characters. It is compared
    /// before the expression is.
    stem: String,
    /// `None` if the stem is the whole path.
    regex: Option<Regex>,
    /// The type of file; `None` for all.
    only: Option<u8>,
    context: String,
}

impl Contexts {
    /// Reads files; the lines of a later one count as if they stood at the end of the others.
    pub(super) fn read(files: &[PathBuf], stop: &Stop) -> Result<Self, String> {
        let mut rules = Vec::new();
        for file in files {
            let text = interruptible::read_text(file, stop.clone())
                .map_err(|error| named(file, None, &error))?;
            for (number, line) in (1..).zip(text.lines()) {
                rules.extend(
                    Rule::parse(line).map_err(|reason| named(file, Some(number), &reason))?,
                );
            }
        }
        rules.reverse();
        rules.sort_by_key(|rule| rule.regex.is_some());
        Ok(Self { rules })
    }

    /// Sets the label of an entry, if a line matches its path in the volume.
    pub(super) fn label(&self, entry: &mut Entry) {
        let path = [b"/", &*entry.path].concat();
        let Some(rule) = self
            .rules
            .iter()
            .find(|rule| rule.matches(&path, &entry.kind))
        else {
            return;
        };
        if rule.context != NONE {
            entry.xattrs.retain(|(name, _)| name != NAME);
            entry
                .xattrs
                .push((NAME.to_vec(), [rule.context.as_bytes(), b"\0"].concat()));
        }
    }
}

impl Rule {
    /// Reads a line; `None` for one without a rule.
    fn parse(line: &str) -> Result<Option<Self>, String> {
        let words: Vec<&str> = line
            .split_whitespace()
            .take_while(|word| !word.starts_with('#'))
            .collect();
        let (expression, only, context) = match words[..] {
            [] => return Ok(None),
            [expression, context] => (expression, None, context),
            [expression, only, context] => (expression, Some(letter(only)?), context),
            _ => return Err("write a line as REGEX [TYPE] CONTEXT".into()),
        };
        let (stem, is_whole) = stem(expression);
        let regex =
            || Regex::new(&format!("^(?s-u:{expression})$")).map_err(|error| error.to_string());
        let regex = (!is_whole).then(regex).transpose()?;
        Ok(Some(Self {
            stem,
            regex,
            only,
            context: context.into(),
        }))
    }

    fn matches(&self, path: &[u8], kind: &Kind) -> bool {
        self.only.is_none_or(|only| only == letter_of(kind))
            && path.starts_with(self.stem.as_bytes())
            && self
                .regex
                .as_ref()
                .map_or(path.len() == self.stem.len(), |regex| regex.is_match(path))
    }
}

/// Returns the literal text that each match begins with, and whether it is the whole expression.
fn stem(expression: &str) -> (String, bool) {
    let mut stem = String::new();
    if has_alternatives(expression) {
        return (stem, false);
    }
    let mut chars = expression.chars();
    while let Some(char) = chars.next() {
        match char {
            // After a backslash, punctuation stands for itself, and a letter for a class.
            '\\' => match chars.next() {
                Some(char) if char.is_ascii_punctuation() => stem.push(char),
                _ => return (stem, false),
            },
            '?' | '*' | '{' => {
                // The character before may be missing in a match.
                stem.pop();
                return (stem, false);
            }
            '.' | '[' | '(' | ')' | '+' | '^' | '$' => return (stem, false),
            char => stem.push(char),
        }
    }
    (stem, true)
}

/// Returns whether the expression may have alternatives outside of groups and brackets.
fn has_alternatives(expression: &str) -> bool {
    let mut depth = 0_usize;
    expression.chars().any(|char| {
        match char {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        char == '|' && depth == 0
    })
}

/// Returns the letter of `ls -l` that a line asks for.
fn letter(word: &str) -> Result<u8, String> {
    match word.as_bytes() {
        [b'-', letter] if b"-dlcbps".contains(letter) => Ok(*letter),
        _ => Err(format!(
            "'{word}' is no type of file: --, -d, -l, -c, -b, -p or -s"
        )),
    }
}

fn letter_of(kind: &Kind) -> u8 {
    match kind {
        Kind::Directory => b'd',
        Kind::File(_) | Kind::HardLink(_) => b'-',
        Kind::Symlink(_) => b'l',
        Kind::CharDevice { .. } => b'c',
        Kind::BlockDevice { .. } => b'b',
        Kind::Fifo => b'p',
        Kind::Socket => b's',
    }
}

fn named(file: &Path, line: Option<usize>, reason: &dyn std::fmt::Display) -> String {
    let line = line.map_or(String::new(), |line| format!(", line {line}"));
    format!("--selinux: '{}'{line}: {reason}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: PathBuf) -> Result<Contexts, String> {
        Contexts::read(&[file], &Stop::default())
    }

    fn contexts(text: &str) -> Contexts {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file_contexts");
        std::fs::write(&file, text).expect("a file");
        read(file).expect(text)
    }

    fn label(contexts: &Contexts, path: &str, kind: Kind) -> Option<String> {
        let xattrs = vec![(NAME.to_vec(), b"old\0".to_vec())];
        let path = path.into();
        let mtime = extern4::build::Time::default();
        let mut entry = Entry {
            path,
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime,
            xattrs,
            flags: None,
            project: None,
        };
        contexts.label(&mut entry);
        assert_eq!(entry.xattrs.len(), 1);
        let label = String::from_utf8(entry.xattrs.remove(0).1).expect("text");
        label.strip_suffix('\0').map(str::to_owned)
    }

    #[test]
    fn the_last_line_that_matches_counts_and_whole_paths_win() {
        let rules = contexts(
            "# comment\n\n/usr/bin/ssh\t--\tssh\n/.*  default\n/usr(/.*)? usr # more\n\
             /usr/bin/.* -- bin\n/usr/lib(64)? lib\n/a\\.b dot\n/tmp/.* <<none>>\n/x|/y either\n",
        );
        let file = || Kind::Fifo;
        let check = |path, kind, expected: &str| {
            assert_eq!(
                label(&rules, path, kind).as_deref(),
                Some(expected),
                "{path}"
            );
        };
        check("usr/bin/ssh", Kind::HardLink(Vec::new()), "ssh");
        check("usr/bin/ssh", Kind::Directory, "usr");
        check("usr/bin/x", Kind::HardLink(Vec::new()), "bin");
        check("usr/bin/x", Kind::Symlink(Vec::new()), "usr");
        check("usr", Kind::Directory, "usr");
        check("usrx", file(), "default");
        check("usr/lib64", file(), "lib");
        check("usr/lib", file(), "lib");
        check("a.b", file(), "dot");
        check("axb", file(), "default");
        check("tmp/x", file(), "old");
        check("y", file(), "either");
        check("", Kind::Directory, "default");
    }

    #[test]
    fn a_wrong_line_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        for (text, says) in [
            ("/a b\n/a -x b\n", "line 2: '-x' is no type of file"),
            ("/a\n", "line 1: write a line"),
            ("/a( b\n", "line 1: regex parse error"),
        ] {
            let file = dir.path().join("fc");
            std::fs::write(&file, text).expect("a file");
            let error = read(file).err().expect(text);
            assert!(error.contains(says), "{error}");
        }
        assert!(
            read(dir.path().join("gone"))
                .err()
                .expect("it is missing")
                .contains("gone")
        );
    }
}
