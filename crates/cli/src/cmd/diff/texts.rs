//! The difference of two files, as diff(1) writes it.
//!
//! `files` and `names` call it. Files that are no text are only said to differ.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::ops::Range;

use extern4::Timespec;
use extern4::diff::{
    Both, FileDifference, FileError, FileOptions, Hunk, LineTest, MAX_TEXT_BYTES, OpenFile, Sign,
    TextDiff, compare_files,
};
use regex::bytes::Regex;

use super::Args;
use super::options::{Gnu, TextForm};
use crate::app::App;
use crate::output::{Out, flush, out};
use crate::text::{escape_bytes, full_time};

/// The longest heading of a hunk, as in GNU diff.
const MAX_HEADING_BYTES: usize = 40;

/// A file of the comparison.
pub(super) struct Side<'f> {
    /// The name that is shown.
    pub(super) name: Vec<u8>,
    /// The time that is shown; `None` for a label.
    pub(super) modified: Option<Timespec>,
    pub(super) file: &'f OpenFile<'f>,
}

/// Why two files were not compared.
pub(super) enum Trouble {
    File(FileError),
    Output(io::Error),
}

/// Writes the differences of files.
pub(super) struct Writer<'a> {
    pub(super) gnu: &'a Gnu,
    form: TextForm,
    /// The lines of which a change does not count.
    ignored: Option<Regex>,
    is_colored: bool,
    is_terminal: bool,
    pub(super) out: Out,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<FileError> for Trouble {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// Returns the reason why a file that is too large is not compared.
pub(super) fn too_large() -> String {
    let mib = MAX_TEXT_BYTES >> 20;
    format!("larger than {mib} MiB, up to which texts are compared; -q tells whether files differ")
}

impl<'a> Writer<'a> {
    /// Makes a writer for two trees or two files. Reports an option whose value is wrong.
    pub(super) fn new(args: &'a Args, are_trees: bool, app: &mut App) -> Option<Self> {
        let form = args.gnu.text_form(are_trees, app)?;
        let ignored = args.gnu.ignored(app)?;
        let is_colored = args.color.is_wanted();
        let is_terminal = io::stdout().is_terminal();
        Some(Self {
            gnu: &args.gnu,
            form,
            ignored,
            is_colored,
            is_terminal,
            out: out(),
        })
    }

    /// Writes what is buffered.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        flush(&mut self.out)
    }

    /// Writes a line, with the control bytes of names escaped on a terminal.
    pub(super) fn line(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.out
            .write_all(&escape_bytes(&parts.concat(), self.is_terminal))?;
        self.out.write_all(b"\n")
    }

    /// Compares two files, and writes how they differ, or with `-s` that they do not. `title` comes
    /// before the changes. Returns whether they are the same.
    pub(super) fn compare(&mut self, sides: Both<&Side<'_>>, title: &str) -> Result<bool, Trouble> {
        let is_ignored = self.ignored.as_ref();
        let is_ignored = is_ignored.map(|ignored| |line: &[u8]| ignored.is_match(line));
        let options = FileOptions {
            ignore_lines: is_ignored.as_ref().map(|test| test as LineTest<'_>),
            ..self.gnu.files()
        };
        let difference = compare_files(sides.map(|side| side.file), &options)?;
        let old = &*sides.old.name;
        let new = &*sides.new.name;
        match &difference {
            FileDifference::None => self.identical(old, new)?,
            FileDifference::Some => self.line(&[b"Files ", old, b" and ", new, b" differ"])?,
            FileDifference::Binary => {
                self.line(&[b"Binary files ", old, b" and ", new, b" differ"])?;
            }
            FileDifference::Lines(diff) => self.changes(sides, diff, title)?,
        }
        Ok(matches!(difference, FileDifference::None))
    }

    /// With `-s`, says that two files are the same.
    pub(super) fn identical(&mut self, old: &[u8], new: &[u8]) -> io::Result<()> {
        if self.gnu.report_identical_files {
            self.line(&[b"Files ", old, b" and ", new, b" are identical"])
        } else {
            Ok(())
        }
    }

    /// Writes the changes of two texts.
    fn changes(
        &mut self,
        sides: Both<&Side<'_>>,
        diff: &TextDiff<'_>,
        title: &str,
    ) -> io::Result<()> {
        if !title.is_empty() {
            self.paint("1", title.as_bytes())?;
            self.out.write_all(b"\n")?;
        }
        match self.form.context {
            Some(context) => self.unified(sides, diff, context),
            None => self.normal(diff),
        }
    }

    /// Writes the changes in the form of `diff -u`.
    fn unified(
        &mut self,
        sides: Both<&Side<'_>>,
        diff: &TextDiff<'_>,
        context: usize,
    ) -> io::Result<()> {
        for (sign, side) in [("---", sides.old), ("+++", sides.new)] {
            let head = match side.modified {
                Some(modified) => {
                    format!("{sign} {}\t{}", name(&side.name), full_time(modified)).into_bytes()
                }
                None => [
                    sign.as_bytes(),
                    b" ",
                    &escape_bytes(&side.name, self.is_terminal),
                ]
                .concat(),
            };
            self.paint("1", &head)?;
            self.out.write_all(b"\n")?;
        }
        for hunk in diff.hunks(context) {
            self.paint("36", hunk.header().as_bytes())?;
            self.heading(diff, &hunk)?;
            self.out.write_all(b"\n")?;
            for (sign, line) in diff.lines(&hunk) {
                self.text_line(sign, &[sign.byte()], line)?;
            }
        }
        Ok(())
    }

    fn heading(&mut self, diff: &TextDiff<'_>, hunk: &Hunk) -> io::Result<()> {
        let Some(headings) = &self.form.headings else {
            return Ok(());
        };
        let Some(heading) = diff.heading(hunk, |line| headings.is_match(line)) else {
            return Ok(());
        };
        let heading = heading.trim_ascii_start();
        let heading = heading[..heading.len().min(MAX_HEADING_BYTES)].trim_ascii_end();
        self.out.write_all(b" ")?;
        self.out.write_all(heading)
    }

    /// Writes the changes in the form of diff(1) without options.
    fn normal(&mut self, diff: &TextDiff<'_>) -> io::Result<()> {
        let range = |lines: &Range<usize>| match lines.len() {
            0 => lines.start.to_string(),
            1 => (lines.start + 1).to_string(),
            _ => format!("{},{}", lines.start + 1, lines.end),
        };
        for hunk in diff.hunks(0) {
            let Both { old, new } = &hunk.lines;
            let letter = match (old.is_empty(), new.is_empty()) {
                (true, _) => 'a',
                (_, true) => 'd',
                _ => 'c',
            };
            self.paint(
                "36",
                format!("{}{letter}{}", range(old), range(new)).as_bytes(),
            )?;
            self.out.write_all(b"\n")?;
            let mut above = Sign::New;
            for (sign, line) in diff.lines(&hunk) {
                if (above, sign) == (Sign::Old, Sign::New) {
                    self.out.write_all(b"---\n")?;
                }
                self.text_line(sign, if sign == Sign::Old { b"< " } else { b"> " }, line)?;
                above = sign;
            }
        }
        Ok(())
    }

    fn text_line(&mut self, sign: Sign, mark: &[u8], line: &[u8]) -> io::Result<()> {
        let code = match sign {
            Sign::Both => "",
            Sign::Old => "31",
            Sign::New => "32",
        };
        let text = line.strip_suffix(b"\n");
        self.paint(code, &[mark, text.unwrap_or(line)].concat())?;
        self.out.write_all(if text.is_some() {
            b"\n"
        } else {
            b"\n\\ No newline at end of file\n"
        })
    }

    /// Writes text in the colour of a code, if it is to have one.
    fn paint(&mut self, code: &str, text: &[u8]) -> io::Result<()> {
        if self.is_colored && !code.is_empty() {
            self.out
                .write_all(&[b"\x1b[", code.as_bytes(), b"m", text, b"\x1b[0m"].concat())
        } else {
            self.out.write_all(text)
        }
    }
}

/// Returns a name as the header of a patch has it: in quotes, if a byte of it needs them.
pub(super) fn name(name: &[u8]) -> Cow<'_, str> {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\".contains(byte);
    if name.iter().all(is_plain) {
        return String::from_utf8_lossy(name);
    }
    let mut quoted = String::from("\"");
    for byte in name {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(*byte)]),
            b' ' | b'!'..=b'~' => quoted.push(char::from(*byte)),
            7..=13 => quoted.extend(['\\', char::from(b"abtnvfr"[usize::from(*byte - 7)])]),
            byte => quoted += &format!("\\{byte:03o}"),
        }
    }
    Cow::Owned(quoted + "\"")
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn names_are_quoted_as_patch_reads_them() {
        for (bytes, expected) in [
            (&b"a/i't"[..], "a/i't"),
            (b"x y", "\"x y\""),
            (b"q\"\\", "\"q\\\"\\\\\""),
            (b"\t\n\x07\r", "\"\\t\\n\\a\\r\""),
            (b"\xc3\xa9\x1b\x7f", "\"\\303\\251\\033\\177\""),
        ] {
            assert_eq!(name(bytes), expected);
        }
    }
}
