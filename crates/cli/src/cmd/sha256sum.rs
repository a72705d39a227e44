//! `extern4 sha256sum`: prints SHA-256 digests of files, or checks them.
//!
//! `args` calls [`run`]. Its lines are the lines of GNU's tool, and each checks the other's. A
//! digest that does not match sets the exit code.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::input::{CHUNK_BYTES, Input, Source, TransferError, inputs};
use crate::json::{self, Object};
use crate::output::{Out, flush, out};
use crate::text::{counted, unescaped};

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    /// Files to read; '-' is standard input, as is no file. With --check, files of the host too
    #[arg(value_name = "IMAGE:/PATH")]
    files: Vec<OsString>,
    /// Mark the files as read in binary, which makes no difference here
    #[arg(short, long, overrides_with = "text")]
    binary: bool,
    /// Mark the files as read as text, which makes no difference here
    #[arg(short, long)]
    text: bool,
    /// Read digests and names of files, as this command and GNU's write them, and check them
    #[arg(short, long, conflicts_with_all = ["tag", "zero"])]
    check: bool,
    /// Write the form of BSD
    #[arg(long)]
    tag: bool,
    /// End lines with a NUL, and escape no names
    #[arg(short, long)]
    zero: bool,
    /// With --check, say nothing of files that are missing
    #[arg(long, requires = "check")]
    ignore_missing: bool,
    /// With --check, print no OK
    #[arg(long, requires = "check")]
    quiet: bool,
    /// With --check, print nothing: the exit code tells
    #[arg(long, requires = "check")]
    status: bool,
    /// With --check, fail if a line has no right form
    #[arg(long, requires = "check")]
    strict: bool,
    /// With --check, warn of every line that has no right form
    #[arg(short, long, requires = "check")]
    warn: bool,
    /// Write one JSON object a line for each file
    #[arg(long, conflicts_with_all = ["tag", "zero", "quiet", "status"])]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut out = out();
    if args.check {
        check(args, &mut out, app)?;
        return flush(&mut out);
    }
    let shown = app.shown();
    for input in inputs(&args.files, app) {
        let Some(source) = input.open(app) else {
            continue;
        };
        match digest(source) {
            Ok(digest) if args.json => {
                out.write_all(
                    json_line(&input, |object| object.text("sha256", &digest)).as_bytes(),
                )?;
            }
            Ok(digest) => {
                let name = Name {
                    text: input.name(shown, "-"),
                    is_complete: shown.is_complete(),
                };
                out.write_all(&line(args, &digest, &name))?;
            }
            Err(failure) => {
                flush(&mut out)?;
                input.settle(Err(failure), app)?;
            }
        }
    }
    flush(&mut out)
}

/// Returns the digest in hexadecimal digits.
fn digest(mut source: Source) -> Result<String, TransferError> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match source.next(&mut buffer)? {
            0 => break,
            len => hash.update(&buffer[..len]),
        }
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// Returns a file as JSON, with the member that `rest` adds.
fn json_line(input: &Input, rest: impl FnOnce(&mut Object<'_>)) -> String {
    json::line(|object| {
        input.members(object);
        rest(object);
    })
}

/// The name of a file in the output.
struct Name {
    text: Vec<u8>,
    /// Whether it is that of `--full-paths`, which needs no other escape.
    is_complete: bool,
}

impl Name {
    /// Returns whether GNU's tool writes the name with escapes.
    fn is_odd(&self) -> bool {
        !self.is_complete
            && self
                .text
                .iter()
                .any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'))
    }
}

/// Returns the line about a file. A name with a line end is escaped, and a backslash says so.
fn line(args: &Args, digest: &str, name: &Name) -> Vec<u8> {
    let escaped = !args.zero && name.is_odd();
    let mut line = if escaped { b"\\".to_vec() } else { Vec::new() };
    let name = if escaped {
        escape_name(&name.text)
    } else {
        name.text.clone()
    };
    if args.tag {
        line.extend_from_slice(&[b"SHA256 (", &name[..], b") = ", digest.as_bytes()].concat());
    } else {
        let mark = if args.binary { b" *" } else { b"  " };
        line.extend_from_slice(&[digest.as_bytes(), mark, &name].concat());
    }
    line.push(if args.zero { 0 } else { b'\n' });
    line
}

fn escape_name(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len() + 1);
    for byte in name {
        match byte {
            b'\\' => escaped.extend_from_slice(b"\\\\"),
            b'\n' => escaped.extend_from_slice(b"\\n"),
            b'\r' => escaped.extend_from_slice(b"\\r"),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

fn unescape_name(name: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(plain)
}

/// The results of checking the lines of one file.
#[derive(Default)]
struct Tally {
    right: u64,
    mismatched: u64,
    unread: u64,
    malformed: u64,
}

fn check(args: &Args, out: &mut Out, app: &mut App) -> io::Result<()> {
    let lists = if args.files.is_empty() {
        vec![Input::Standard]
    } else {
        args.files
            .iter()
            .map(|text| Input::or_host(text, app))
            .collect()
    };
    for list in lists {
        let Some(source) = list.open(app) else {
            continue;
        };
        let mut lines = source.lines();
        let mut line = Vec::new();
        let mut number = 0_u64;
        let mut tally = Tally::default();
        let read = loop {
            match lines.next(b'\n', &mut line) {
                Ok(true) => {}
                done => break done.map(drop),
            }
            number += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            match parse(text) {
                Some((digest, name)) => tally.one(args, &digest, &name, out, app)?,
                None if text.is_empty() || text.starts_with(b"#") => {}
                None => {
                    tally.malformed += 1;
                    if args.warn {
                        flush(out)?;
                        app.note(format_args!(
                            "{list}: {number}: improperly formatted SHA256 checksum line"
                        ));
                    }
                }
            }
        };
        flush(out)?;
        list.settle(read, app)?;
        tally.sum_up(args, &list, app);
    }
    Ok(())
}

/// Reads a line of either form.
fn parse(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let (escaped, line) = line
        .strip_prefix(b"\\")
        .map_or((false, line), |line| (true, line));
    let (digest, name) = match line.strip_prefix(b"SHA256 (") {
        Some(rest) => {
            let end = rest.windows(4).rposition(|part| part == b") = ")?;
            (&rest[end + 4..], &rest[..end])
        }
        None => {
            let (digest, rest) = line.split_at_checked(64)?;
            (
                digest,
                rest.strip_prefix(b"  ")
                    .or_else(|| rest.strip_prefix(b" *"))?,
            )
        }
    };
    let digest = std::str::from_utf8(digest).ok()?.to_ascii_lowercase();
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Without the mark of GNU's tool, a backslash comes from --full-paths.
    let name = if escaped {
        unescape_name(name)?
    } else {
        unescaped(name)
    };
    (is_digest && !name.is_empty()).then_some((digest, name))
}

impl Tally {
    /// Checks one file.
    fn one(
        &mut self,
        args: &Args,
        wanted: &str,
        name: &[u8],
        out: &mut Out,
        app: &mut App,
    ) -> io::Result<()> {
        let input = Input::or_host(OsStr::from_bytes(name), app);
        if args.ignore_missing && is_missing(&input, app) {
            return Ok(());
        }
        flush(out)?;
        let found = match input.open(app).map(digest) {
            Some(Ok(found)) => Some(found),
            Some(Err(failure)) => {
                input.settle(Err(failure), app)?;
                None
            }
            None => None,
        };
        let (count, result, word) = match &found {
            Some(found) if found == wanted => (&mut self.right, "OK", "ok"),
            Some(_) => (&mut self.mismatched, "FAILED", "failed"),
            None => (&mut self.unread, "FAILED open or read", "unreadable"),
        };
        *count += 1;
        if args.json {
            return out
                .write_all(json_line(&input, |object| object.text("result", word)).as_bytes());
        }
        if args.status || args.quiet && result == "OK" {
            return Ok(());
        }
        let name = Name {
            text: input.name(app.shown(), "-"),
            is_complete: app.shown().is_complete(),
        };
        let is_odd = name.is_odd();
        let shown = if is_odd {
            [b"\\", &escape_name(&name.text)[..]].concat()
        } else {
            name.text
        };
        out.write_all(&shown)?;
        writeln!(out, ": {result}")
    }

    fn sum_up(&self, args: &Args, list: &Input, app: &mut App) {
        let all = self.right + self.mismatched + self.unread;
        if all == 0 {
            let reason = if args.ignore_missing && self.malformed == 0 {
                "no file was verified"
            } else {
                "no properly formatted SHA256 checksum lines found"
            };
            return app.fail_at(ExitStatus::Failed, list, reason);
        }
        if self.mismatched + self.unread > 0 || args.strict && self.malformed > 0 {
            app.found(ExitStatus::Failed);
        }
        let warnings = [
            (
                self.malformed,
                "line is improperly formatted",
                "lines are improperly formatted",
            ),
            (
                self.unread,
                "listed file could not be read",
                "listed files could not be read",
            ),
            (
                self.mismatched,
                "computed checksum did NOT match",
                "computed checksums did NOT match",
            ),
        ];
        for (count, one, many) in warnings
            .into_iter()
            .filter(|(count, ..)| *count > 0 && !args.status)
        {
            app.note(format_args!("WARNING: {}", counted(count, one, many)));
        }
    }
}

fn is_missing(input: &Input, app: &mut App) -> bool {
    match input {
        Input::Standard => false,
        Input::Host(path) => !path.exists(),
        Input::Volume(image_path) => match app.target(image_path) {
            Some(target) => !target.session().exists(target.path()).unwrap_or(true),
            None => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines_are_read() {
        let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let check = |line: String, name: Option<&[u8]>| {
            let found = parse(line.as_bytes());
            assert_eq!(found.as_ref().map(|(_, name)| &name[..]), name, "{line}");
            assert!(found.is_none_or(|(found, _)| found == digest), "{line}");
        };
        check(format!("{digest}  a.img:/x y"), Some(b"a.img:/x y"));
        check(format!("{digest} *x"), Some(b"x"));
        check(format!("SHA256 (a) = b) = {digest}"), Some(b"a) = b"));
        check(format!("\\{digest}  a\\nb\\\\"), Some(b"a\nb\\"));
        check(digest.to_ascii_uppercase() + "  x", Some(b"x"));
        check(format!("{digest} x"), None);
        check(format!("{digest}  "), None);
        check(format!("\\{digest}  a\\x"), None);
        check("# comment".to_owned(), None);
    }
}
