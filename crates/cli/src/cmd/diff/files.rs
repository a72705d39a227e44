//! The comparison of the text of two files.
//!
//! `diff` calls it for two files. The output is that of diff(1) in the form that is asked for;
//! files that are no text are only said to differ.

use std::io::{self, Write};
use std::time::Duration;

use extern4::Timespec;
use extern4::diff::Both;
use similar::{Algorithm, ChangeTag, TextDiff};

use super::Args;
use super::operand::TextFile;
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::json;
use crate::output::{flush, out};
use crate::text::{escape, full_time};

/// A file with a NUL byte among these first ones is no text, as in GNU diff.
const BINARY_BYTES: usize = 4096;

/// After this time, the comparison takes the shortest difference that it has found.
const LONGEST: Duration = Duration::from_secs(10);

/// A file that was read.
struct Read {
    bytes: Vec<u8>,
    modified: Timespec,
}

/// Compares two files, and writes the difference of their texts.
pub(super) fn compare(args: &Args, pair: &Both<TextFile>, app: &mut App) -> io::Result<()> {
    let (Some(old), Some(new)) = (read(&pair.old, app), read(&pair.new, app)) else { return Ok(()) };
    let names = pair.as_ref().map(|file| escape(&file.name()).into_owned());
    if old.bytes == new.bytes {
        return Ok(());
    }
    app.differs();
    let mut out = out();
    let is_binary = |file: &Read| file.bytes.iter().take(BINARY_BYTES).any(|byte| *byte == 0);
    if args.json {
        let line = json::line(|object| {
            object.text("old", &names.old);
            object.text("new", &names.new);
            object.texts("differs", ["contents"]);
        });
        out.write_all(line.as_bytes())?;
    } else if args.brief {
        writeln!(out, "Files {} and {} differ", names.old, names.new)?;
    } else if is_binary(&old) || is_binary(&new) {
        writeln!(out, "Binary files {} and {} differ", names.old, names.new)?;
    } else {
        let is_colored = args.color.is_wanted();
        for (sign, name, file) in [("---", names.old, &old), ("+++", names.new, &new)] {
            let head = format!("{sign} {name}\t{}", full_time(file.modified));
            paint(is_colored, "1", head.as_bytes(), &mut out)?;
            out.write_all(b"\n")?;
        }
        write_hunks(&old.bytes, &new.bytes, is_colored, &mut out)?;
    }
    flush(&mut out)
}

/// Reads a file. Reports a failure.
fn read(file: &TextFile, app: &mut App) -> Option<Read> {
    match file {
        TextFile::Volume(target) => {
            let read = target.volume.reach(target.path(), |session, path| {
                Ok(Read { bytes: session.read(path)?, modified: session.metadata(path)?.mtime() })
            });
            read.map_err(|error| app.error(&target.image_path, &error)).ok()
        }
        TextFile::Host(path) => {
            let read = std::fs::read(path).and_then(|bytes| {
                let found = rustix::fs::stat(path)?;
                let modified = Timespec { sec: found.st_mtime, nsec: found.st_mtime_nsec as u32 };
                Ok(Read { bytes, modified })
            });
            let reason = |error| app.fail_at(ExitStatus::Failed, path.display(), host_reason(&error));
            read.map_err(reason).ok()
        }
    }
}

/// Writes text in the colour of a code, if it is to have one.
fn paint(is_colored: bool, code: &str, text: &[u8], out: &mut impl Write) -> io::Result<()> {
    match is_colored && !code.is_empty() {
        true => out.write_all(&[b"\x1b[", code.as_bytes(), b"m", text, b"\x1b[0m"].concat()),
        false => out.write_all(text),
    }
}

/// Writes the differing lines with three lines around them, in the form and the colours of
/// `diff -u`.
fn write_hunks(old: &[u8], new: &[u8], is_colored: bool, out: &mut impl Write) -> io::Result<()> {
    let lines = |text| -> Vec<&[u8]> { <[u8]>::split_inclusive(text, |byte| *byte == b'\n').collect() };
    let (old, new) = (lines(old), lines(new));
    let mut config = TextDiff::configure();
    config.algorithm(Algorithm::Myers).timeout(LONGEST);
    let diff = config.diff_slices(&old, &new);
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        paint(is_colored, "36", hunk.header().to_string().as_bytes(), out)?;
        out.write_all(b"\n")?;
        for change in hunk.ops().iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, code) = match change.tag() {
                ChangeTag::Equal => (b' ', ""),
                ChangeTag::Delete => (b'-', "31"),
                ChangeTag::Insert => (b'+', "32"),
            };
            let line: &[u8] = change.value();
            let text = line.strip_suffix(b"\n");
            paint(is_colored, code, &[&[sign], text.unwrap_or(line)].concat(), out)?;
            out.write_all(if text.is_some() { b"\n" } else { b"\n\\ No newline at end of file\n" })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::write_hunks;

    #[test]
    fn hunks_are_those_of_gnu_diff() {
        let check = |old: &str, new: &str, expected: &str| {
            let mut out = Vec::new();
            write_hunks(old.as_bytes(), new.as_bytes(), false, &mut out).expect("a vector takes everything");
            assert_eq!(String::from_utf8_lossy(&out), expected);
        };
        check("a\nb\nc\n", "a\nB\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
        check("", "a\n", "@@ -0,0 +1 @@\n+a\n");
        check(
            "a\r",
            "a\rb",
            "@@ -1 +1 @@\n-a\r\n\\ No newline at end of file\n+a\rb\n\\ No newline at end of file\n",
        );
    }
}
