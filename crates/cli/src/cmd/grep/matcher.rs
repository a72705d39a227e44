//! The engines that match the patterns of `grep`.
//!
//! An expression without references back and without looks around takes time in proportion to the
//! text. Any other one backtracks. It gives up with an error after a number of steps, so that no
//! text keeps it busy.

use std::ops::Range;

use fancy_regex::{BytesMode, RegexBuilder};
use regex_automata::meta;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};

/// The limit for the bytes that an expression takes.
const SIZE: usize = 10 << 20;

/// A compiled expression.
pub(super) enum Matcher {
    Linear {
        /// Finds the first match.
        first: meta::Regex,
        /// Finds the end of the longest match that starts there.
        longest: meta::Regex,
    },
    Backtracking(fancy_regex::Regex),
}

/// A search that took too many steps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GaveUp;

impl Matcher {
    /// Compiles an expression that needs no backtracking. The result is `None` if it is none, or
    /// too large.
    pub(super) fn linear(text: &str, ignore_case: bool) -> Option<Self> {
        let build = |kind| {
            let limits = meta::Config::new()
                .nfa_size_limit(Some(SIZE))
                .utf8_empty(false);
            meta::Regex::builder()
                .configure(limits.match_kind(kind))
                .syntax(
                    syntax::Config::new()
                        .utf8(false)
                        .case_insensitive(ignore_case),
                )
                .build(text)
                .ok()
        };
        Some(Self::Linear {
            first: build(MatchKind::LeftmostFirst)?,
            longest: build(MatchKind::All)?,
        })
    }

    /// Compiles an expression that may backtrack. The error describes its fault.
    pub(super) fn backtracking(text: &str, ignore_case: bool) -> Result<Self, String> {
        RegexBuilder::new(text)
            .case_insensitive(ignore_case)
            .bytes_mode(BytesMode::UnicodeBytes)
            .delegate_size_limit(SIZE)
            .build()
            .map(Self::Backtracking)
            .map_err(|error| error.to_string())
    }

    /// Returns whether there is a match.
    pub(super) fn is_match(&self, text: &[u8]) -> Result<bool, GaveUp> {
        match self {
            Self::Linear { first, .. } => Ok(first.is_match(text)),
            Self::Backtracking(regex) => regex.is_match(text).map_err(|_| GaveUp),
        }
    }

    /// Returns where the matches are that are not empty. Where alternatives start at the same
    /// place, the longest counts, but the first one if the expression may backtrack.
    pub(super) fn matches(&self, text: &[u8]) -> Result<Vec<Range<usize>>, GaveUp> {
        let (first, longest) = match self {
            Self::Linear { first, longest } => (first, longest),
            Self::Backtracking(regex) => {
                let found = regex
                    .find_iter(text)
                    .map(|found| found.map(|found| found.range()));
                let found = found.collect::<Result<Vec<_>, _>>().map_err(|_| GaveUp)?;
                return Ok(found
                    .into_iter()
                    .filter(|range| !range.is_empty())
                    .collect());
            }
        };
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(start) = first
            .search(&Input::new(text).range(at..))
            .map(|found| found.start())
        {
            let here = Input::new(text).range(start..).anchored(Anchored::Yes);
            let end = longest.search(&here).map_or(start, |found| found.end());
            if end > start {
                found.push(start..end);
            }
            at = end.max(start + 1);
            if at > text.len() {
                break;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{GaveUp, Matcher};

    #[test]
    fn the_longest_alternative_matches() {
        let check = |regex: &str, text: &str, expected: &[&str]| {
            let matcher = Matcher::linear(regex, false).expect(regex);
            let found = matcher.matches(text.as_bytes()).expect("matches");
            let found: Vec<_> = found.into_iter().map(|range| &text[range]).collect();
            assert_eq!(found, expected, "{regex} {text}");
        };
        check("a|ab", "abab", &["ab", "ab"]);
        check("a*", "baac", &["aa"]);
        check("(?:a|ab)(?:c|bcd)", "abcd", &["abcd"]);
        check("\\ba|b", "ab ab", &["a", "b", "a", "b"]);
    }

    #[test]
    fn a_search_gives_up() {
        let matcher = Matcher::backtracking("(?:(x+)x+)+\\1y", false).expect("a pattern");
        assert_eq!(matcher.is_match(&[b'x'; 60]), Err(GaveUp));
        assert_eq!(matcher.is_match(b"xxxxxy"), Ok(true));
        assert!(Matcher::backtracking("(a", false).is_err());
    }
}
