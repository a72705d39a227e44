//! The patterns of `grep`, as one regular expression.
//!
//! `grep` calls it once. Matching takes time in proportion to the input, whatever the pattern is. A
//! pattern with references back is refused.

use std::ffi::OsString;

use regex::bytes::{Regex, RegexBuilder};

use crate::app::{App, host_reason};
use crate::interruptible;
use crate::posix_regex::{Syntax, translate};

use super::Args;

/// Returns the expression for the patterns of the command line. The error describes their fault.
pub(super) fn compile(args: &Args, first: Option<&OsString>, app: &App) -> Result<Regex, String> {
    let mut texts = Vec::new();
    for pattern in first.into_iter().chain(&args.patterns) {
        texts.push(pattern.to_str().ok_or("a pattern is not text in UTF-8")?.to_owned());
    }
    for file in &args.file {
        let read = interruptible::read_text(file, app.stop());
        let text = read.map_err(|error| format!("'{}': {}", file.display(), host_reason(&error)))?;
        // An empty file has no pattern, and an empty line is one that matches all.
        if text.is_empty() {
            continue;
        }
        texts.push(text.strip_suffix('\n').unwrap_or(&text).to_owned());
    }
    let patterns = texts.iter().flat_map(|text| text.split('\n'));
    let translated = patterns.map(|pattern| one(args, pattern)).collect::<Result<Vec<_>, _>>()?;
    let all = match translated.is_empty() {
        // Nothing matches.
        true => "[^\\x{0}-\\x{10ffff}]".to_owned(),
        false => translated.join("|"),
    };
    let whole = match (args.line_regexp, args.word_regexp) {
        (true, _) => format!("^(?:{all})$"),
        (false, true) => format!("\\b{{start-half}}(?:{all})\\b{{end-half}}"),
        (false, false) => all,
    };
    let built = RegexBuilder::new(&whole).case_insensitive(args.ignore_case).build();
    built.map_err(|_| format!("{} is not a regular expression, or too large a one", texts.join(" ")))
}

fn one(args: &Args, pattern: &str) -> Result<String, String> {
    let translated = match (args.fixed_strings, args.extended_regexp) {
        (true, _) => regex::escape(pattern),
        (false, true) => translate(pattern, Syntax::Extended)?,
        (false, false) => translate(pattern, Syntax::Basic)?,
    };
    Ok(format!("(?:{translated})"))
}
