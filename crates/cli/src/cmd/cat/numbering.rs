//! The forms in which `cat` shows lines: with numbers, ends and unprintable bytes.
//!
//! `cat` passes all contents through it if an option asks. Its output is that of GNU `cat`,
//! whatever the pieces are in which the contents come.

use crate::text::push_visible;

use super::Args;

/// Rewrites the contents of files, one after the other: a line may begin in one and end in another.
pub(super) struct Numbering {
    number: bool,
    number_nonblank: bool,
    squeeze_blank: bool,
    show_ends: bool,
    show_tabs: bool,
    show_nonprinting: bool,
    /// Lines numbered so far.
    lines: u64,
    begins_line: bool,
    /// Empty lines in a row.
    empty: u64,
    /// Whether a carriage return is held back: it may be part of a line's end.
    has_return: bool,
}

impl Numbering {
    /// Returns the form that the options ask for, if they ask for any.
    pub(super) fn new(args: &Args) -> Option<Self> {
        let form = Self {
            number: args.number && !args.number_nonblank,
            number_nonblank: args.number_nonblank,
            squeeze_blank: args.squeeze_blank,
            show_ends: args.show_ends || args.show_all || args.ends_and_nonprinting,
            show_tabs: args.show_tabs || args.show_all || args.tabs_and_nonprinting,
            show_nonprinting: args.show_nonprinting
                || args.show_all
                || args.ends_and_nonprinting
                || args.tabs_and_nonprinting,
            lines: 0,
            begins_line: true,
            empty: 0,
            has_return: false,
        };
        let is_plain = !(form.number
            || form.number_nonblank
            || form.squeeze_blank
            || form.show_ends
            || form.show_tabs
            || form.show_nonprinting);
        (!is_plain).then_some(form)
    }

    /// Appends the next bytes in their form.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            if *byte == b'\n' {
                self.end_line(out);
            } else {
                self.byte(*byte, out);
            }
        }
    }

    /// Appends what is held back at the end of a file.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.has_return) {
            out.push(b'\r');
        }
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        if self.begins_line {
            self.empty += 1;
            if self.squeeze_blank && self.empty > 1 {
                return;
            }
            if self.number {
                self.push_number(out);
            }
        }
        if std::mem::take(&mut self.has_return) {
            out.extend_from_slice(b"^M");
        }
        if self.show_ends {
            out.push(b'$');
        }
        out.push(b'\n');
        self.begins_line = true;
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.begins_line {
            (self.begins_line, self.empty) = (false, 0);
            if self.number || self.number_nonblank {
                self.push_number(out);
            }
        }
        if std::mem::take(&mut self.has_return) {
            out.push(b'\r');
        }
        match byte {
            b'\t' if self.show_tabs => out.extend_from_slice(b"^I"),
            b'\t' => out.push(b'\t'),
            b'\r' if self.show_ends && !self.show_nonprinting => self.has_return = true,
            byte if self.show_nonprinting => push_visible(byte, out),
            byte => out.push(byte),
        }
    }

    fn push_number(&mut self, out: &mut Vec<u8>) {
        self.lines += 1;
        out.extend_from_slice(format!("{:>6}\t", self.lines).as_bytes());
    }
}
