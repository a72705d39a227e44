//! `extern4 cmp`: compares two files byte by byte, as cmp(1) does.
//!
//! `args` calls [`run`]. The exit codes are cmp's: 0 if the files are equal, 1 if not, 2 for
//! trouble.

use std::ffi::OsString;
use std::io::{self, Write as _};

use crate::app::{App, Shown};
use crate::input::{CHUNK_BYTES, Input, Source, TransferError};
use crate::json::{self, Object};
use crate::output::{Out, flush, out};
use crate::text::{escape, push_visible, size};

#[derive(clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Exit codes: 0 the files are the same; 1 they differ; 2 trouble."
)]
pub(crate) struct Args {
    /// The first file: in a volume, of the host, or '-' for standard input
    #[arg(value_name = "FILE1")]
    one: OsString,
    /// The second file
    #[arg(value_name = "FILE2", default_value = "-")]
    other: OsString,
    /// Bytes to skip at the start of each file
    #[arg(value_name = "SKIP", num_args = 0..=2, value_parser = number)]
    skips: Vec<u64>,
    /// Print the bytes that differ
    #[arg(short = 'b', long)]
    print_bytes: bool,
    /// Skip the first bytes of both files, or SKIP1:SKIP2 of each
    #[arg(short, long, value_name = "SKIP", value_parser = skips, conflicts_with = "skips")]
    ignore_initial: Option<(u64, u64)>,
    /// Print the number and the values of every byte that differs
    #[arg(short = 'l', long, conflicts_with = "silent")]
    verbose: bool,
    /// Compare at most this many bytes
    #[arg(short = 'n', long = "bytes", value_name = "LIMIT", value_parser = number)]
    limit: Option<u64>,
    /// Print nothing: the exit code tells
    #[arg(short, long, visible_alias = "quiet")]
    silent: bool,
    /// Write one JSON object: whether the files are equal, and the first difference. With -l, write
    /// one a line for each byte that differs
    #[arg(long, conflicts_with_all = ["silent", "print_bytes"])]
    json: bool,
}

fn number(text: &str) -> Result<u64, String> {
    size(text).ok_or_else(|| "write it as 512 or 4K".to_owned())
}

fn skips(text: &str) -> Result<(u64, u64), String> {
    match text.split_once(':') {
        Some((one, other)) => Ok((number(one)?, number(other)?)),
        None => number(text).map(|both| (both, both)),
    }
}

/// One of the two files, in pieces.
struct Side<'a> {
    input: &'a Input,
    source: Source,
    buffer: Vec<u8>,
    /// The part of the buffer that is not compared yet.
    at: usize,
    len: usize,
}

/// The place of the comparison.
#[derive(Default)]
struct Position {
    /// Bytes that were compared.
    bytes: u64,
    /// Line ends among them.
    lines: u64,
    ends_line: bool,
    /// Whether a byte differed.
    differs: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    app.compares();
    let inputs = [&args.one, &args.other].map(|text| Input::or_host(text, app));
    if inputs[0] == Input::Standard && inputs[1] == Input::Standard {
        return Ok(());
    }
    let skip = args.ignore_initial.unwrap_or_else(|| {
        let given = |at: usize| args.skips.get(at).copied().unwrap_or(0);
        (given(0), given(1))
    });
    let Some(one) = inputs[0].open(app) else {
        return Ok(());
    };
    let Some(other) = inputs[1].open(app) else {
        return Ok(());
    };
    let mut sides = [(&inputs[0], one), (&inputs[1], other)].map(|(input, source)| Side {
        input,
        source,
        buffer: vec![0; CHUNK_BYTES],
        at: 0,
        len: 0,
    });
    let mut out = out();
    for (side, skip) in sides.iter_mut().zip([skip.0, skip.1]) {
        let skipped = side.skip(skip);
        if skipped.is_err() {
            return side.input.settle(skipped, app);
        }
    }
    compare(args, &mut sides, &mut out, app)?;
    flush(&mut out)
}

impl Side<'_> {
    fn skip(&mut self, mut count: u64) -> Result<(), TransferError> {
        while count > 0 {
            let wanted = usize::try_from(count).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            match self.source.next(&mut self.buffer[..wanted])? {
                0 => break,
                len => count -= len as u64,
            }
        }
        Ok(())
    }

    /// Returns the bytes that are there, after a read if there were none.
    fn bytes(&mut self) -> Result<&[u8], TransferError> {
        if self.at == self.len {
            (self.at, self.len) = (0, self.source.next(&mut self.buffer)?);
        }
        Ok(&self.buffer[self.at..self.len])
    }
}

/// Compares until the first difference, or with `-l` until the first end.
fn compare(args: &Args, sides: &mut [Side<'_>; 2], out: &mut Out, app: &mut App) -> io::Result<()> {
    let mut position = Position::default();
    let limit = args.limit.unwrap_or(u64::MAX);
    let longest = sides
        .iter()
        .filter_map(|side| side.source.len())
        .min()
        .unwrap_or(u64::MAX)
        .min(limit);
    let number_width = if longest == u64::MAX {
        1
    } else {
        longest.checked_ilog10().unwrap_or(0) as usize + 1
    };
    while position.bytes < limit {
        for side in sides.iter_mut() {
            if let Err(failure) = side.bytes().map(drop) {
                flush(out)?;
                return side.input.settle(Err(failure), app);
            }
        }
        let [one, other] = &*sides;
        let a = &one.buffer[one.at..one.len];
        let b = &other.buffer[other.at..other.len];
        if a.is_empty() || b.is_empty() {
            if a.len() != b.len() {
                flush(out)?;
                app.differs();
                let shorter = if a.is_empty() { one } else { other };
                if args.json {
                    let at = usize::from(!a.is_empty());
                    let bytes = position.bytes;
                    let ends = |object: &mut Object<'_>| {
                        object.text("ends", FILES[at]);
                        object.raw("bytes", bytes);
                    };
                    out.write_all(result([one.input, other.input], false, ends).as_bytes())?;
                } else if !args.silent {
                    app.note(end_of_file(args, shorter.input, app.shown(), &position));
                }
            } else {
                equal(args, [one.input, other.input], &position, out)?;
            }
            return Ok(());
        }
        let left = usize::try_from(limit - position.bytes).unwrap_or(usize::MAX);
        let len = a.len().min(b.len()).min(left);
        let a = &a[..len];
        let b = &b[..len];
        let ended = differences(
            args,
            a,
            b,
            [one.input, other.input],
            number_width,
            &mut position,
            out,
            app,
        )?;
        if ended {
            return Ok(());
        }
        sides.iter_mut().for_each(|side| side.at += len);
    }
    equal(args, [sides[0].input, sides[1].input], &position, out)
}

/// Writes as JSON that no byte differs, if none does.
fn equal(args: &Args, inputs: [&Input; 2], position: &Position, out: &mut Out) -> io::Result<()> {
    if !args.json || position.differs {
        return Ok(());
    }
    out.write_all(result(inputs, true, |object| object.raw("bytes", position.bytes)).as_bytes())
}

/// The keys of the two files in JSON.
const FILES: [&str; 2] = ["file1", "file2"];

/// Returns a result as JSON, with the members that `rest` adds.
fn result(inputs: [&Input; 2], equal: bool, rest: impl FnOnce(&mut Object<'_>)) -> String {
    json::line(|object| {
        for (key, input) in FILES.into_iter().zip(inputs) {
            object.object(key, |file| input.members(file));
        }
        object.raw("equal", equal);
        rest(object);
    })
}

/// Prints the differences of two pieces of one length. Returns true if the first one ends the
/// comparison.
#[expect(clippy::too_many_arguments, reason = "the state of one comparison")]
fn differences(
    args: &Args,
    a: &[u8],
    b: &[u8],
    inputs: [&Input; 2],
    number_width: usize,
    position: &mut Position,
    out: &mut Out,
    app: &mut App,
) -> io::Result<bool> {
    if a == b {
        position.pass(a);
        return Ok(false);
    }
    let mut from = 0;
    for at in (0..a.len()).filter(|at| a[*at] != b[*at]) {
        app.differs();
        position.differs = true;
        if args.silent {
            return Ok(true);
        }
        position.pass(&a[from..at]);
        from = at;
        let byte = position.bytes + 1;
        let one = a[at];
        let other = b[at];
        if args.json {
            let difference = |object: &mut Object<'_>| {
                object.raw("byte", byte);
                object.raw("line", position.lines + 1);
                object.numbers("values", [one, other]);
            };
            out.write_all(result(inputs, false, difference).as_bytes())?;
            if !args.verbose {
                return Ok(true);
            }
        } else if args.verbose && args.print_bytes {
            let shown = visible(one);
            let other_shown = visible(other);
            writeln!(
                out,
                "{byte:>number_width$} {one:>3o} {shown:<4} {other:>3o} {other_shown}"
            )?;
        } else if args.verbose {
            writeln!(out, "{byte:>number_width$} {one:>3o} {other:>3o}")?;
        } else {
            let shown = app.shown();
            for (input, end) in inputs.iter().zip([&b" "[..], b" differ"]) {
                out.write_all(&input.name(shown, "-"))?;
                out.write_all(end)?;
            }
            write!(out, ": byte {byte}, line {}", position.lines + 1)?;
            if args.print_bytes {
                write!(
                    out,
                    " is {one:>3o} {} {other:>3o} {}",
                    visible(one),
                    visible(other)
                )?;
            }
            out.write_all(b"\n")?;
            return Ok(true);
        }
    }
    position.pass(&a[from..]);
    Ok(false)
}

impl Position {
    fn pass(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        if let Some(last) = bytes.last() {
            self.ends_line = *last == b'\n';
        }
    }
}

/// Returns the message about the file that ends first.
fn end_of_file(args: &Args, input: &Input, shown: Shown, position: &Position) -> String {
    let name = escape(&input.name(shown, "-")).into_owned();
    let bytes = position.bytes;
    match (bytes, args.verbose, position.ends_line) {
        (0, ..) => format!("EOF on {name} which is empty"),
        (_, true, _) => format!("EOF on {name} after byte {bytes}"),
        (_, false, true) => format!("EOF on {name} after byte {bytes}, line {}", position.lines),
        (_, false, false) => format!(
            "EOF on {name} after byte {bytes}, in line {}",
            position.lines + 1
        ),
    }
}

/// Returns a byte as `cat -v` shows it.
fn visible(byte: u8) -> String {
    let mut shown = Vec::new();
    push_visible(byte, &mut shown);
    shown.into_iter().map(char::from).collect()
}
