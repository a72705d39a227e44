//! The search of one file, line by line.
//!
//! `grep` calls it for each input. Its output is that of GNU `grep`. Memory is bounded by the
//! longest line.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::rc::Rc;

use crate::input::{Input, Source, TransferError};
use crate::json::{self, Object};
use crate::output::Out;

use super::Args;
use super::colors::{Colored, Colors};
use super::matcher::{GaveUp, Matcher};

/// The part of a file in which a NUL tells that it is not text.
const HEAD_BYTES: usize = 32 << 10;

/// A search of files, one after the other.
pub(super) struct Search<'a> {
    args: &'a Args,
    matcher: Rc<Matcher>,
    with_name: bool,
    colors: Colors,
    before: usize,
    after: usize,
    /// The least width of numbers before lines.
    number_width: usize,
    pub(super) out: Out,
    /// Whether any line of any file was selected.
    pub(super) selected_any: bool,
    /// Whether lines were printed, so that the next group of them needs a separator.
    printed: bool,
}

/// The result of searching a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// All output is printed.
    Shown,
    /// A line is selected in a file that is not text.
    Binary,
}

/// A file, with its name as it is shown.
pub(super) struct Name<'a> {
    pub(super) input: &'a Input,
    pub(super) shown: Vec<u8>,
}

/// A line that was read.
#[derive(Clone, Default)]
struct Line {
    text: Vec<u8>,
    /// Counted from 1.
    number: u64,
    /// The byte at which it begins.
    offset: u64,
}

/// Returns whether a line is text: GNU `grep` prints no other by itself.
fn is_printable(line: &[u8]) -> bool {
    !line.contains(&0) && std::str::from_utf8(line).is_ok()
}

/// Returns the error of a line that took too many steps.
fn gave_up() -> io::Error {
    io::Error::other("the pattern takes too many steps on a line")
}

impl<'a> Search<'a> {
    pub(super) fn new(args: &'a Args, matcher: Matcher, with_name: bool, out: Out) -> Self {
        let context = &args.context;
        let before = context.before().unwrap_or(0);
        let after = context.after().unwrap_or(0);
        let colors = Colors::new(args.color);
        let selected_any = false;
        let printed = false;
        let matcher = Rc::new(matcher);
        let number_width = 0;
        Self {
            args,
            matcher,
            with_name,
            colors,
            before,
            after,
            number_width,
            out,
            selected_any,
            printed,
        }
    }

    /// Returns whether lines are printed, and not only names or numbers.
    fn prints_lines(&self) -> bool {
        let args = self.args;
        !(args.count || args.files_with_matches || args.files_without_match || args.quiet)
    }

    /// Searches a file with this name.
    pub(super) fn file(&mut self, source: Source, name: &Name<'_>) -> Result<Found, TransferError> {
        let args = self.args;
        if args.initial_tab {
            // As in GNU `grep`, the numbers of a file are as wide as any in it could be.
            let most = source
                .len()
                .map_or(i64::MAX as u64, |len| len.saturating_add(1));
            self.number_width = most.to_string().len();
        }
        let mut lines = source.lines();
        let head = lines.peek()?;
        let is_text = args.treats_all_as_text()
            || args.null_data
            || !head[..head.len().min(HEAD_BYTES)].contains(&0);
        if !is_text && args.skips_binary() {
            return self.summary(name, 0);
        }
        // A file that is not text is searched from NUL to NUL: its lines may be of any length.
        let end = if args.null_data || !is_text { 0 } else { b'\n' };
        let most = args.max_count.unwrap_or(u64::MAX);
        let mut line = Line::default();
        let mut selected = 0;
        let mut left_after = 0;
        let mut before: VecDeque<Line> = VecDeque::new();
        let mut last_printed = None;
        while (selected < most || left_after > 0) && lines.next(end, &mut line.text)? {
            line.number += 1;
            let len = line.text.len() as u64;
            if line.text.last() == Some(&end) {
                line.text.pop();
            }
            if selected < most && self.selects(&line.text, is_text)? {
                selected += 1;
                self.selected_any = true;
                if args.quiet || args.files_with_matches || args.files_without_match {
                    break;
                }
                if self.prints_lines() {
                    if !is_text || !(args.treats_all_as_text() || is_printable(&line.text)) {
                        return Ok(Found::Binary);
                    }
                    let first = before.front().map_or(line.number, |line| line.number);
                    self.separate(first, last_printed)?;
                    for line in before.drain(..) {
                        self.context_line(name, &line, end)?;
                    }
                    self.selected_line(name, &line, end)?;
                    (last_printed, left_after) = (Some(line.number), self.after);
                }
            } else if self.prints_lines() && left_after > 0 {
                left_after -= 1;
                self.context_line(name, &line, end)?;
                last_printed = Some(line.number);
            } else if self.prints_lines() && self.before > 0 && is_text {
                if before.len() == self.before {
                    before.pop_front();
                }
                before.push_back(line.clone());
            }
            line.offset += len;
        }
        self.summary(name, selected)
    }

    /// Returns whether a piece of the input is selected. A piece of a file that is not text may
    /// hold several lines.
    fn selects(&self, text: &[u8], is_text: bool) -> Result<bool, TransferError> {
        let selects = |line: &[u8]| {
            let is_match = self.matcher.is_match(line).map_err(|GaveUp| gave_up());
            is_match
                .map(|is_match| is_match != self.args.invert_match)
                .map_err(TransferError::Input)
        };
        if is_text {
            return selects(text);
        }
        for line in text.split(|byte| *byte == b'\n') {
            if selects(line)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Prints the line about a whole file, if the options ask for one.
    fn summary(&mut self, name: &Name<'_>, selected: u64) -> Result<Found, TransferError> {
        let args = self.args;
        if args.quiet {
            return Ok(Found::Shown);
        }
        if args.files_with_matches || args.files_without_match {
            if (selected > 0) != args.files_with_matches {
            } else if args.json {
                self.json(name, |_| {})?;
            } else {
                self.paint(Colored::Name, &name.shown)?;
                self.out.write_all(if args.null { b"\0" } else { b"\n" })?;
            }
        } else if args.count && args.json {
            self.json(name, |object| object.raw("count", selected))?;
        } else if args.count {
            self.name(name, b':')?;
            writeln!(self.out, "{selected}")?;
        }
        Ok(Found::Shown)
    }

    fn name(&mut self, name: &Name<'_>, mark: u8) -> io::Result<()> {
        if !self.with_name {
            return Ok(());
        }
        self.paint(Colored::Name, &name.shown)?;
        if self.args.null {
            self.out.write_all(b"\0")
        } else {
            self.paint(Colored::Separator, &[mark])
        }
    }

    /// Prints a separator if lines before number `first` were left out, or another file was before.
    fn separate(&mut self, first: u64, last_printed: Option<u64>) -> io::Result<()> {
        let context = &self.args.context;
        let has_context = context.before().or(context.after()).is_some();
        let is_next = last_printed.is_some_and(|last| first == last + 1);
        if has_context
            && self.printed
            && !self.args.json
            && !is_next
            && let Some(separator) = context.separator()
        {
            self.paint(Colored::Separator, separator.as_bytes())?;
            self.out.write_all(b"\n")?;
        }
        self.printed = true;
        Ok(())
    }

    fn paint(&mut self, part: Colored, text: &[u8]) -> io::Result<()> {
        let mut painted = Vec::with_capacity(text.len() + 24);
        self.colors.paint(part, text, &mut painted);
        self.out.write_all(&painted)
    }

    /// Writes an object about a file, with the members that `rest` adds.
    fn json(&mut self, name: &Name<'_>, rest: impl FnOnce(&mut Object<'_>)) -> io::Result<()> {
        let line = json::line(|object| {
            name.input.members(object);
            rest(object);
        });
        self.out.write_all(line.as_bytes())
    }

    /// Prints a line, or a part of one that begins at byte `offset`. A selected line has another
    /// mark than its context.
    fn text(
        &mut self,
        name: &Name<'_>,
        line: &Line,
        offset: u64,
        text: &[u8],
        end: u8,
        selected: bool,
    ) -> Result<(), TransferError> {
        if self.args.json {
            self.json(name, |object| {
                object.raw("line", line.number);
                object.raw("byte", offset);
                object.raw("selected", selected);
                object.bytes("text", text);
            })?;
            return Ok(());
        }
        self.prefix(name, line, offset, if selected { b':' } else { b'-' })?;
        // With -v, the context matches and the selected lines do not.
        let part = if selected {
            Colored::Selected
        } else {
            Colored::Context
        };
        if self.colors.has(part) && selected != self.args.invert_match {
            let mut at = 0;
            // A part that matches is a match as a whole, whatever stands around it.
            let is_part = self.args.only_matching;
            let found = if is_part {
                std::iter::once(0..text.len()).collect()
            } else {
                self.matches(text)?
            };
            for found in found {
                self.out.write_all(&text[at..found.start])?;
                at = found.end;
                self.paint(part, &text[found])?;
            }
            self.out.write_all(&text[at..])?;
        } else {
            self.out.write_all(text)?;
        }
        self.out.write_all(&[end])?;
        if self.args.line_buffered {
            self.out.flush()?;
        }
        Ok(())
    }

    /// Returns the parts of a line that match.
    fn matches(&self, text: &[u8]) -> Result<Vec<std::ops::Range<usize>>, TransferError> {
        self.matcher
            .matches(text)
            .map_err(|GaveUp| TransferError::Input(gave_up()))
    }

    fn prefix(&mut self, name: &Name<'_>, line: &Line, offset: u64, mark: u8) -> io::Result<()> {
        self.name(name, mark)?;
        let numbers = [
            (self.args.line_number, Colored::Line, line.number),
            (self.args.byte_offset, Colored::Byte, offset),
        ];
        for (_, part, number) in numbers.into_iter().filter(|(is_shown, ..)| *is_shown) {
            self.paint(
                part,
                format!("{number:>width$}", width = self.number_width).as_bytes(),
            )?;
            self.paint(Colored::Separator, &[mark])?;
        }
        let has_prefix = self.with_name || self.args.line_number || self.args.byte_offset;
        if self.args.initial_tab && has_prefix {
            self.out.write_all(b"\t")?;
        }
        Ok(())
    }

    fn context_line(&mut self, name: &Name<'_>, line: &Line, end: u8) -> Result<(), TransferError> {
        if self.args.only_matching {
            return Ok(());
        }
        self.text(name, line, line.offset, &line.text, end, false)
    }

    fn selected_line(
        &mut self,
        name: &Name<'_>,
        line: &Line,
        end: u8,
    ) -> Result<(), TransferError> {
        if !self.args.only_matching {
            return self.text(name, line, line.offset, &line.text, end, true);
        }
        if self.args.invert_match {
            return Ok(());
        }
        for found in self.matches(&line.text)? {
            self.text(
                name,
                line,
                line.offset + found.start as u64,
                &line.text[found],
                end,
                true,
            )?;
        }
        Ok(())
    }
}
