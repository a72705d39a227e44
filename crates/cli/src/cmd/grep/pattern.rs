//! The patterns of `grep`, as one regular expression.
//!
//! `grep` calls it once. A pattern that neither refers back to a group nor is one of Perl's is
//! matched in time in proportion to the input.

use std::ffi::OsString;

use crate::app::{App, host_reason};
use crate::interruptible;
use crate::posix_regex::{Syntax, translate};

use super::Args;
use super::matcher::Matcher;

/// Returns the expression for the patterns of the command line. The error describes their fault.
pub(super) fn compile(args: &Args, first: Option<&OsString>, app: &App) -> Result<Matcher, String> {
    let mut texts = Vec::new();
    for pattern in first.into_iter().chain(&args.patterns) {
        texts.push(
            pattern
                .to_str()
                .ok_or("a pattern is not text in UTF-8")?
                .to_owned(),
        );
    }
    for file in &args.file {
        let read = interruptible::read_text(file, app.stop());
        let text =
            read.map_err(|error| format!("'{}': {}", file.display(), host_reason(&error)))?;
        // An empty file has no pattern, and an empty line is one that matches all.
        if text.is_empty() {
            continue;
        }
        texts.push(text.strip_suffix('\n').unwrap_or(&text).to_owned());
    }
    let patterns: Vec<&str> = texts.iter().flat_map(|text| text.split('\n')).collect();
    let (all, backtracks) = if args.perl_regexp {
        (perl(&patterns)?, true)
    } else {
        posix(args, &patterns)?
    };
    let ignores_case = args.ignore_case && !args.no_ignore_case;
    let whole = match (args.line_regexp, args.word_regexp) {
        (true, _) => format!("^(?:{all})$"),
        (false, true) => format!("\\b{{start-half}}(?:{all})\\b{{end-half}}"),
        (false, false) => all,
    };
    let wrong = || {
        format!(
            "{} is not a regular expression, or too large a one",
            texts.join(" ")
        )
    };
    if backtracks {
        Matcher::backtracking(&whole, ignores_case).map_err(|why| format!("{}: {why}", wrong()))
    } else {
        Matcher::linear(&whole, ignores_case).ok_or_else(wrong)
    }
}

/// Returns an expression for all patterns, and whether it has to backtrack.
fn posix(args: &Args, patterns: &[&str]) -> Result<(String, bool), String> {
    let mut all = Vec::new();
    let mut groups = 0;
    let mut looks_back = false;
    for pattern in patterns {
        if args.fixed_strings {
            all.push(regex::escape(pattern));
            continue;
        }
        let syntax = if args.extended_regexp {
            Syntax::Extended
        } else {
            Syntax::Basic
        };
        let translated = translate(pattern, syntax, groups)?;
        groups += translated.groups;
        looks_back |= translated.looks_back;
        all.push(format!("(?:{})", translated.text));
    }
    if all.is_empty() {
        // Nothing matches.
        return Ok(("[^\\x{0}-\\x{10ffff}]".to_owned(), false));
    }
    Ok((all.join("|"), looks_back))
}

/// Returns a pattern of Perl's in the syntax of the library: `\h` is a blank, and what stands from
/// `\Q` to `\E` stands for itself.
fn perl(patterns: &[&str]) -> Result<String, String> {
    let [pattern] = patterns else {
        return Err("-P takes a single pattern".to_owned());
    };
    let mut out = String::new();
    let mut rest = *pattern;
    let mut in_brackets = false;
    while let Some(c) = rest.chars().next() {
        let len = if c == '\\' {
            1 + rest[1..].chars().next().map_or(0, char::len_utf8)
        } else {
            c.len_utf8()
        };
        let (piece, behind) = rest.split_at(len);
        rest = behind;
        match (piece, in_brackets) {
            ("\\Q", _) => {
                let (text, behind) = rest.split_once("\\E").unwrap_or((rest, ""));
                out.push_str(&regex::escape(text));
                rest = behind;
            }
            ("\\E", _) => {}
            ("\\h", true) => out.push_str("\\t "),
            ("\\h", false) => out.push_str("[\\t ]"),
            ("\\H", false) => out.push_str("[^\\t ]"),
            _ => {
                in_brackets = (in_brackets || piece == "[") && piece != "]";
                out.push_str(piece);
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::perl;

    #[test]
    fn patterns_of_perl_are_read() {
        let check =
            |pattern: &str, expected: &str| assert_eq!(perl(&[pattern]).as_deref(), Ok(expected));
        check(r"a\hb\Q.*\Ec", r"a[\t ]b\.\*c");
        check(r"[\h\]x]\H", r"[\t \]x][^\t ]");
        check(r"(\w)\1(?=x)", r"(\w)\1(?=x)");
        assert!(perl(&["a", "b"]).is_err());
    }
}
