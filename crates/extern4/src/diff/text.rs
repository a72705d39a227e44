//! The difference of two texts, line by line, as `diff` of GNU finds it.
//!
//! Lines are equal if their keys are: the line itself, or what is left of it without what a caller
//! ignores. The crate `imara-diff` finds the changed lines. The lines at both ends that the texts
//! share are no part of that, as in GNU diff.

use std::borrow::Cow;
use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

use super::Both;

/// Which differences of lines count. The default is all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// Finds the smallest set of changes, however long that takes.
    pub minimal: bool,
    /// Ignores the case of ASCII letters.
    pub ignore_case: bool,
    /// Ignores whether a tab or spaces lead to a column, with a tab stop at each eighth one.
    pub ignore_tab_expansion: bool,
    /// Ignores white space at the ends of lines.
    pub ignore_trailing_space: bool,
    /// Ignores how much white space there is where some is, and white space at the ends of lines.
    pub ignore_space_change: bool,
    /// Ignores all white space.
    pub ignore_all_space: bool,
}

/// The difference of two texts.
///
/// ```
/// use extern4::diff::{Both, TextDiff, TextOptions};
///
/// let texts: Both<&[u8]> = Both { old: b"one\ntwo\n", new: b"one\nTwo\nthree\n" };
/// let diff = TextDiff::new(texts, &TextOptions::default());
/// let mut patch = Vec::new();
/// for hunk in diff.hunks(3) {
///     patch.extend(hunk.header().into_bytes());
///     patch.push(b'\n');
///     for (sign, line) in diff.lines(&hunk) {
///         patch.push(sign.byte());
///         patch.extend(line);
///     }
/// }
/// assert_eq!(patch, b"@@ -1,2 +1,3 @@\n one\n-two\n+Two\n+three\n");
/// ```
#[derive(Debug)]
pub struct TextDiff<'t> {
    texts: Both<Lines<'t>>,
    changes: Vec<LineChange>,
}

/// Lines of the new text in place of some of the old one.
#[derive(Debug)]
struct LineChange {
    lines: Both<Range<usize>>,
    is_ignored: bool,
}

/// The lines of a text, each with its end.
#[derive(Debug)]
struct Lines<'t> {
    text: Cow<'t, [u8]>,
    ends: Vec<u32>,
}

/// Changes that are shown together, with lines around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Its lines in both texts, counted from 0.
    pub lines: Both<Range<usize>>,
    /// The changed ones of them.
    pub changes: Vec<Both<Range<usize>>>,
}

/// Which of two texts has a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Both have it.
    Both,
    /// Only the old text has it.
    Old,
    /// Only the new text has it.
    New,
}

impl Sign {
    /// Returns the byte in front of the line in a unified difference.
    pub fn byte(self) -> u8 {
        match self {
            Self::Both => b' ',
            Self::Old => b'-',
            Self::New => b'+',
        }
    }
}

impl<'t> TextDiff<'t> {
    /// Compares two texts, each of less than 4 GiB.
    pub fn new(texts: Both<impl Into<Cow<'t, [u8]>>>, options: &TextOptions) -> Self {
        let texts = texts.map(|text| Lines::new(text.into()));
        let mut input = InternedInput::default();
        input.update_before((0..texts.old.len()).map(|line| key(texts.old.line(line), options)));
        input.update_after((0..texts.new.len()).map(|line| key(texts.new.line(line), options)));
        let old = &mut input.before;
        let new = &mut input.after;
        let first = old
            .iter()
            .zip(&*new)
            .take_while(|(old, new)| old == new)
            .count();
        old.drain(..first);
        new.drain(..first);
        let last = old
            .iter()
            .rev()
            .zip(new.iter().rev())
            .take_while(|(old, new)| old == new)
            .count();
        old.truncate(old.len() - last);
        new.truncate(new.len() - last);
        let algorithm = if options.minimal {
            Algorithm::MyersMinimal
        } else {
            Algorithm::Myers
        };
        let mut diff = Diff::compute(algorithm, &input);
        diff.postprocess_no_heuristic(&input);
        let place = |lines: Range<u32>| first + lines.start as usize..first + lines.end as usize;
        let changes = diff.hunks().map(|hunk| Both {
            old: place(hunk.before),
            new: place(hunk.after),
        });
        let changes = changes
            .map(|lines| LineChange {
                lines,
                is_ignored: false,
            })
            .collect();
        Self { texts, changes }
    }

    /// Ignores changes of which all lines, removed and added ones, are such. They still show where
    /// other changes are near.
    pub fn ignore(&mut self, is_such: impl Fn(&[u8]) -> bool) {
        for change in &mut self.changes {
            let Both { old, new } = &change.lines;
            let old = old.clone().map(|line| self.texts.old.line(line));
            let new = new.clone().map(|line| self.texts.new.line(line));
            change.is_ignored = old.chain(new).all(&is_such);
        }
    }

    /// Returns whether no change counts.
    pub fn is_same(&self) -> bool {
        self.changes.iter().all(|change| change.is_ignored)
    }

    /// Returns the changes with as many lines around each as `context` says.
    pub fn hunks(&self, context: usize) -> impl Iterator<Item = Hunk> {
        let mut groups: Vec<&[LineChange]> = Vec::new();
        let mut rest = &self.changes[..];
        while !rest.is_empty() {
            let len = 1 + rest
                .windows(2)
                .take_while(|pair| are_near(&pair[0], &pair[1], context))
                .count();
            let (group, behind) = rest.split_at(len);
            groups.push(group);
            rest = behind;
        }
        let counts = |group: &&[LineChange]| group.iter().any(|change| !change.is_ignored);
        groups
            .into_iter()
            .filter(counts)
            .map(move |group| self.hunk(group, context))
    }

    fn hunk(&self, group: &[LineChange], context: usize) -> Hunk {
        let changes: Vec<_> = group.iter().map(|change| change.lines.clone()).collect();
        let first = &changes[0];
        let last = &changes[changes.len() - 1];
        let above = context.min(first.old.start).min(first.new.start);
        let below = context
            .min(self.texts.old.len() - last.old.end)
            .min(self.texts.new.len() - last.new.end);
        let old = first.old.start - above..last.old.end + below;
        let new = first.new.start - above..last.new.end + below;
        Hunk {
            lines: Both { old, new },
            changes,
        }
    }

    /// Returns the lines of a hunk, each with its end, if it has one.
    pub fn lines<'d>(&'d self, hunk: &'d Hunk) -> impl Iterator<Item = (Sign, &'d [u8])> + 'd {
        let Both { old, new } = self.texts.as_ref();
        let end = Both {
            old: hunk.lines.old.end..hunk.lines.old.end,
            new: 0..0,
        };
        let starts = std::iter::once(hunk.lines.old.start);
        let starts = starts.chain(hunk.changes.iter().map(|change| change.old.end));
        let changes = hunk.changes.iter().cloned().chain([end]);
        starts.zip(changes).flat_map(move |(start, change)| {
            let both = (start..change.old.start).map(|line| (Sign::Both, old.line(line)));
            let removed = change.old.map(|line| (Sign::Old, old.line(line)));
            let added = change.new.map(|line| (Sign::New, new.line(line)));
            both.chain(removed).chain(added)
        })
    }

    /// Returns the last line of the old text above a hunk that is such, as `diff -p` shows it.
    pub fn heading(&self, hunk: &Hunk, is_such: impl Fn(&[u8]) -> bool) -> Option<&[u8]> {
        let above = (0..hunk.lines.old.start)
            .rev()
            .map(|line| self.texts.old.line(line));
        above
            .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
            .find(|line| is_such(line))
    }
}

/// Returns whether a change shows in the hunk of the one before it. One that is ignored shows only
/// inside of the other's context.
fn are_near(before: &LineChange, change: &LineChange, context: usize) -> bool {
    let gap = change.lines.old.start - before.lines.old.end;
    if change.is_ignored {
        gap < context
    } else {
        gap <= context.saturating_mul(2)
    }
}

impl Hunk {
    /// Returns the line in front of the hunk in a unified difference, without its end.
    pub fn header(&self) -> String {
        let range = |lines: &Range<usize>| match lines.len() {
            0 => format!("{},0", lines.start),
            1 => (lines.start + 1).to_string(),
            len => format!("{},{len}", lines.start + 1),
        };
        format!(
            "@@ -{} +{} @@",
            range(&self.lines.old),
            range(&self.lines.new)
        )
    }
}

impl<'t> Lines<'t> {
    fn new(text: Cow<'t, [u8]>) -> Self {
        let ends = text
            .split_inclusive(|byte| *byte == b'\n')
            .scan(0, |end, line| {
                *end += line.len() as u32;
                Some(*end)
            });
        let ends = ends.collect();
        Self { text, ends }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn line(&self, line: usize) -> &[u8] {
        let start = line.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[line] as usize]
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b'\x0b'
}

/// Returns what counts of a line.
fn key<'t>(line: &'t [u8], options: &TextOptions) -> Cow<'t, [u8]> {
    let mut key = Cow::Borrowed(line);
    if options.ignore_all_space {
        key.to_mut().retain(|byte| !is_space(*byte));
    } else if options.ignore_space_change {
        let mut was_space = false;
        let squeezed = key.iter().filter(|byte| {
            let again = was_space && is_space(**byte);
            was_space = is_space(**byte);
            !again
        });
        key = squeezed
            .map(|byte| if is_space(*byte) { b' ' } else { *byte })
            .collect();
    } else if options.ignore_tab_expansion {
        key = Cow::Owned(without_tabs(&key));
    }
    if options.ignore_space_change || options.ignore_trailing_space {
        let len = key
            .iter()
            .rposition(|byte| !is_space(*byte))
            .map_or(0, |last| last + 1);
        if len < key.len() {
            key.to_mut().truncate(len);
        }
    }
    if options.ignore_case && key.iter().any(u8::is_ascii_uppercase) {
        key.to_mut().make_ascii_lowercase();
    }
    key
}

/// Returns a line with spaces in place of tabs.
fn without_tabs(line: &[u8]) -> Vec<u8> {
    const STOP: usize = 8;
    let mut expanded = Vec::with_capacity(line.len());
    for byte in line {
        match byte {
            b'\t' => expanded.resize((expanded.len() / STOP + 1) * STOP, b' '),
            byte => expanded.push(*byte),
        }
    }
    expanded
}

#[cfg(test)]
mod tests {
    use super::{Both, TextDiff, TextOptions};

    fn patch(diff: &TextDiff<'_>, context: usize) -> String {
        let mut patch = String::new();
        for hunk in diff.hunks(context) {
            patch += &format!("{}\n", hunk.header());
            for (sign, line) in diff.lines(&hunk) {
                patch.push(sign.byte().into());
                patch += &String::from_utf8_lossy(line);
            }
        }
        patch
    }

    fn diff<'t>(old: &'t str, new: &'t str, options: TextOptions) -> TextDiff<'t> {
        TextDiff::new(
            Both {
                old: old.as_bytes(),
                new: new.as_bytes(),
            },
            &options,
        )
    }

    #[test]
    fn hunks_have_their_lines() {
        let check = |old: &str, new: &str, context: usize, expected: &str| {
            assert_eq!(
                patch(&diff(old, new, TextOptions::default()), context),
                expected,
                "{old:?} {new:?}"
            );
        };
        check(
            "a\nb\nc\n",
            "a\nB\nc\n",
            3,
            "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n",
        );
        check("a\nb\nc\n", "a\nB\nc\n", 0, "@@ -2 +2 @@\n-b\n+B\n");
        check("", "a\n", 3, "@@ -0,0 +1 @@\n+a\n");
        check("a\n", "", 3, "@@ -1 +0,0 @@\n-a\n");
        check("a\n", "a\n", 3, "");
        let far = "@@ -1,2 +1,2 @@\n-a\n+A\n b\n@@ -4,2 +4,2 @@\n d\n-e\n+E\n";
        check("a\nb\nc\nd\ne\n", "A\nb\nc\nd\nE\n", 1, far);
        let near = "@@ -1,4 +1,4 @@\n-a\n+A\n b\n c\n-d\n+D\n";
        check("a\nb\nc\nd\n", "A\nb\nc\nD\n", 1, near);
    }

    #[test]
    fn what_is_ignored_is_no_change() {
        let none = TextOptions::default();
        let check = |old: &str, new: &str, options: TextOptions, same: bool| {
            assert_eq!(
                diff(old, new, options).is_same(),
                same,
                "{old:?} {new:?} {options:?}"
            );
        };
        check(
            "a\n",
            "A\n",
            TextOptions {
                ignore_case: true,
                ..none
            },
            true,
        );
        let change = TextOptions {
            ignore_space_change: true,
            ..none
        };
        check("a b\n", "a \t b  ", change, true);
        check("a b\n", " a b\n", change, false);
        check("ab\n", "a b\n", change, false);
        check(
            "ab\n",
            " a\tb",
            TextOptions {
                ignore_all_space: true,
                ..none
            },
            true,
        );
        let trailing = TextOptions {
            ignore_trailing_space: true,
            ..none
        };
        check("a\n", "a \r\n", trailing, true);
        check("a\n", " a\n", trailing, false);
        let tabs = TextOptions {
            ignore_tab_expansion: true,
            ..none
        };
        check("a\tb\n", "a       b\n", tabs, true);
        check("a\tb\n", "a      b\n", tabs, false);
        check(
            "a\tb\n",
            "a       b \n",
            TextOptions {
                ignore_trailing_space: true,
                ..tabs
            },
            true,
        );
    }

    #[test]
    fn an_ignored_change_shows_inside_of_the_context_only() {
        let text = |lines: &[&str]| {
            lines
                .iter()
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        let old = text(&["X", "1", "2", "3", "4"]);
        for (at, shows) in [(2, true), (3, false), (4, false)] {
            let mut lines = vec!["Y", "1", "2", "3", "4"];
            lines.insert(at, "");
            let new = text(&lines);
            let mut diff = diff(&old, &new, TextOptions::default());
            diff.ignore(|line| line == b"\n");
            assert_eq!(patch(&diff, 2).contains("+\n"), shows, "{at}");
            assert!(!diff.is_same());
            diff.ignore(|_| true);
            assert!(diff.is_same() && diff.hunks(2).next().is_none());
        }
    }
}
