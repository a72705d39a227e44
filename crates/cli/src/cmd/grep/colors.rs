//! The colours of `grep`: the usual ones, unless `GREP_COLORS` sets others.
//!
//! The search paints the parts of its output with it, byte for byte as GNU `grep` does. A code that
//! is no colour is ignored, so that the environment cannot send other sequences to the terminal.

use crate::color::{When, is_code};

/// The parts of the output that have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colored {
    /// A match in a selected line.
    Selected,
    /// A match in the context of selected lines.
    Context,
    Name,
    Line,
    Byte,
    Separator,
}

/// The parts with their keys in `GREP_COLORS` and their usual colours.
const PARTS: [(Colored, &str, &str); 6] = [
    (Colored::Selected, "ms", "01;31"),
    (Colored::Context, "mc", "01;31"),
    (Colored::Name, "fn", "35"),
    (Colored::Line, "ln", "32"),
    (Colored::Byte, "bn", "32"),
    (Colored::Separator, "se", "36"),
];

/// Colours, or none.
pub(super) struct Colors {
    /// The code of each part, in the order of `PARTS`; empty for no colour.
    codes: Option<[String; PARTS.len()]>,
    /// Whether the line is cleared up to its end, which matters when it wraps.
    clears: bool,
}

impl Colors {
    /// Returns the colours to use for standard output.
    pub(super) fn new(when: When) -> Self {
        if when.is_wanted() {
            Self::of(&std::env::var("GREP_COLORS").unwrap_or_default())
        } else {
            Self {
                codes: None,
                clears: false,
            }
        }
    }

    fn of(rules: &str) -> Self {
        let mut codes = PARTS.map(|(_, _, code)| code.to_owned());
        for (key, code) in rules.split(':').filter_map(|rule| rule.split_once('=')) {
            for ((part, name, _), known) in PARTS.iter().zip(&mut codes) {
                let is_match = matches!(part, Colored::Selected | Colored::Context);
                if (*name == key || key == "mt" && is_match) && is_code(code) {
                    code.clone_into(known);
                }
            }
        }
        Self {
            codes: Some(codes),
            clears: !rules.split(':').any(|rule| rule == "ne"),
        }
    }

    /// Returns the code of a part, if it has a colour.
    fn code(&self, part: Colored) -> Option<&str> {
        let at = PARTS.iter().position(|(known, ..)| *known == part)?;
        self.codes
            .as_ref()
            .map(|codes| &*codes[at])
            .filter(|code| !code.is_empty())
    }

    /// Returns whether a part has a colour.
    pub(super) fn has(&self, part: Colored) -> bool {
        self.code(part).is_some()
    }

    /// Appends text in the colour of a part.
    pub(super) fn paint(&self, part: Colored, text: &[u8], out: &mut Vec<u8>) {
        let Some(code) = self.code(part) else {
            return out.extend_from_slice(text);
        };
        let clear: &[u8] = if self.clears { b"\x1b[K" } else { b"" };
        out.extend_from_slice(
            &[
                b"\x1b[",
                code.as_bytes(),
                b"m",
                clear,
                text,
                b"\x1b[m",
                clear,
            ]
            .concat(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{Colored, Colors};

    #[test]
    fn rules_replace_the_usual_colours() {
        let check = |rules: &str, part: Colored, shown: &str| {
            let mut out = Vec::new();
            Colors::of(rules).paint(part, b"x", &mut out);
            assert_eq!(String::from_utf8_lossy(&out), shown, "{rules}");
        };
        check("", Colored::Name, "\x1b[35m\x1b[Kx\x1b[m\x1b[K");
        check("mt=32:ne", Colored::Context, "\x1b[32mx\x1b[m");
        check(
            "ms=4;5:fn=",
            Colored::Selected,
            "\x1b[4;5m\x1b[Kx\x1b[m\x1b[K",
        );
        check("ms=4;5:fn=", Colored::Name, "x");
        check(
            "ms=\x1b[2J",
            Colored::Selected,
            "\x1b[01;31m\x1b[Kx\x1b[m\x1b[K",
        );
    }
}
