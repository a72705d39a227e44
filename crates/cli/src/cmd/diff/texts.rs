//! The difference of two files, as diff(1) writes it.
//!
//! `files` and `names` call it. Files that are no text are only said to differ. These, and files
//! that only have to be the same, are compared piece by piece; texts are read whole, so there is a
//! limit to their size.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::ops::Range;

use extern4::Timespec;
use extern4::diff::{Both, Hunk, OneError, OpenFile, Sign, TextDiff, same_contents};

use super::Args;
use super::options::{Gnu, TextForm};
use crate::app::App;
use crate::output::{Out, flush, out};
use crate::text::{escape_bytes, full_time};

/// A file with a NUL byte among these first ones is no text, as in GNU diff.
const BINARY_BYTES: usize = 4096;
/// The longest text, in MiB. Two of this size that have nothing but line ends take three gigabytes.
const MAX_TEXT_MIB: usize = 128;
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
    Unreadable(OneError),
    /// The new file is larger than a text may be, or else the old one.
    TooLarge(bool),
    Output(io::Error),
}

/// Writes the differences of files.
pub(super) struct Writer<'a> {
    pub(super) gnu: &'a Gnu,
    form: TextForm,
    is_colored: bool,
    is_terminal: bool,
    pub(super) out: Out,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<OneError> for Trouble {
    fn from(error: OneError) -> Self {
        Self::Unreadable(error)
    }
}

impl Trouble {
    /// Returns the reason why a file that is too large is not compared.
    pub(super) fn too_large() -> String {
        format!(
            "larger than {MAX_TEXT_MIB} MiB, up to which texts are compared; -q tells whether files differ"
        )
    }
}

/// Returns the limit for the size of a text in bytes.
pub(super) const fn max_text_bytes() -> usize {
    MAX_TEXT_MIB << 20
}

impl<'a> Writer<'a> {
    /// Makes a writer for two trees or two files. Reports an option whose value is wrong.
    pub(super) fn new(args: &'a Args, are_trees: bool, app: &mut App) -> Option<Self> {
        let form = args.gnu.text_form(are_trees, app)?;
        let is_colored = args.color.is_wanted();
        let is_terminal = io::stdout().is_terminal();
        Some(Self {
            gnu: &args.gnu,
            form,
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
        let files = sides.map(|side| side.file);
        let is_binary = !self.gnu.text
            && (is_binary(files.old).map_err(OneError::of_old)?
                || is_binary(files.new).map_err(OneError::of_new)?);
        let is_same = if is_binary || self.gnu.brief && self.form.is_exact() {
            let is_same = same_contents(files)?;
            if !is_same {
                let what: &[u8] = if is_binary && !self.gnu.brief {
                    b"Binary files "
                } else {
                    b"Files "
                };
                self.line(&[what, &sides.old.name, b" and ", &sides.new.name, b" differ"])?;
            }
            is_same
        } else {
            self.texts(sides, title)?
        };
        if is_same {
            self.identical(&sides.old.name, &sides.new.name)?;
        }
        Ok(is_same)
    }

    /// With `-s`, says that two files are the same.
    pub(super) fn identical(&mut self, old: &[u8], new: &[u8]) -> io::Result<()> {
        if self.gnu.report_identical_files {
            self.line(&[b"Files ", old, b" and ", new, b" are identical"])
        } else {
            Ok(())
        }
    }

    fn texts(&mut self, sides: Both<&Side<'_>>, title: &str) -> Result<bool, Trouble> {
        let files = sides.map(|side| side.file);
        let most = max_text_bytes();
        if files.old.size().max(files.new.size()) > most as u64 {
            let is_new = files.old.size() <= most as u64;
            return if same_contents(files)? {
                Ok(true)
            } else {
                Err(Trouble::TooLarge(is_new))
            };
        }
        let old = files.old.read(most).map_err(OneError::of_old)?;
        let new = files.new.read(most).map_err(OneError::of_new)?;
        let texts = Both { old, new }.map(|text| self.form.prepare(text));
        if texts.old == texts.new {
            return Ok(true);
        }
        let mut diff = TextDiff::new(texts.as_ref().map(|text| &text[..]), &self.form.options);
        self.form.ignore(&mut diff);
        if diff.is_same() {
            return Ok(true);
        }
        if self.gnu.brief {
            self.line(&[
                b"Files ",
                &sides.old.name,
                b" and ",
                &sides.new.name,
                b" differ",
            ])?;
            return Ok(false);
        }
        if !title.is_empty() {
            self.paint("1", title.as_bytes())?;
            self.out.write_all(b"\n")?;
        }
        match self.form.context {
            Some(context) => self.unified(sides, &diff, context)?,
            None => self.normal(&diff)?,
        }
        Ok(false)
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

fn is_binary(file: &OpenFile<'_>) -> Result<bool, extern4::diff::Error> {
    Ok(file.read(BINARY_BYTES)?.contains(&0))
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
