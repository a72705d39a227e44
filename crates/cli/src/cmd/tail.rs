//! `extern4 tail`: writes the last lines or bytes of files.
//!
//! `args` calls [`run`]. Files are read from their end, and standard input is kept only as far as
//! it may be wanted.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write as _};

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::input::{CHUNK_BYTES, Source, TransferError, inputs};
use crate::output::Out;
use crate::text::size;

use super::head::{Form, old_form};

#[derive(clap::Args)]
#[command(
    args_override_self = true,
    after_help = "A number may have a unit: b (512), kB, K, MB, M and so on. -NUM is the same as -n NUM."
)]
pub(crate) struct Args {
    /// Files to read; '-' is standard input, as is no file
    #[arg(value_name = "IMAGE:/PATH", allow_negative_numbers = true)]
    files: Vec<OsString>,
    #[command(flatten)]
    form: Form,
    /// Write the last NUM lines instead of 10; with +NUM, from line NUM on
    #[arg(short = 'n', long, value_name = "NUM", value_parser = Amount::parse, allow_hyphen_values = true,
        overrides_with = "bytes")]
    lines: Option<Amount>,
    /// Write the last NUM bytes; with +NUM, from byte NUM on
    #[arg(short = 'c', long, value_name = "NUM", value_parser = Amount::parse, allow_hyphen_values = true)]
    bytes: Option<Amount>,
}

/// How much of a file is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    /// The last of them.
    Last(u64),
    /// All but this many at the start.
    Behind(u64),
}

impl Amount {
    /// Reads a number; a hyphen before it means nothing.
    fn parse(text: &str) -> Result<Self, String> {
        let (amount, number): (fn(u64) -> Self, _) = match text.strip_prefix('+') {
            Some(number) => (|from| Self::Behind(from.saturating_sub(1)), number),
            None => (Self::Last, text.strip_prefix('-').unwrap_or(text)),
        };
        size(number)
            .map(amount)
            .ok_or_else(|| "write it as 20, 4K or +5".to_owned())
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let (old, files) = old_form(&args.files);
    if old.is_some() && (args.lines.is_some() || args.bytes.is_some()) {
        app.fail(ExitStatus::Usage, "-NUM and -n or -c exclude each other");
        return Ok(());
    }
    if matches!(
        (args.bytes, args.lines, old),
        (Some(Amount::Last(0)), ..) | (None, Some(Amount::Last(0)), _)
    ) {
        // As in GNU's, there is nothing to say then.
        return Ok(());
    }
    let end = args.form.end();
    let lines = args
        .lines
        .or(old.map(Amount::Last))
        .unwrap_or(Amount::Last(10));
    args.form.each(&inputs(files, app), app, |source, out| {
        match (args.bytes, lines) {
            (Some(Amount::Behind(count)), _) => behind_bytes(source, count, out),
            (Some(Amount::Last(count)), _) => last_bytes(source, count, out),
            (None, Amount::Behind(count)) => behind_lines(source, count, end, out),
            (None, Amount::Last(count)) => last_lines(source, count, end, out),
        }
    })
}

/// Writes everything from the current position on.
fn rest(mut source: Source, out: &mut Out) -> Result<(), TransferError> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match source.next(&mut buffer)? {
            0 => return Ok(()),
            len => out.write_all(&buffer[..len])?,
        }
    }
}

fn behind_bytes(mut source: Source, count: u64, out: &mut Out) -> Result<(), TransferError> {
    if let Some(len) = source.len() {
        source.seek(count.min(len))?;
        return rest(source, out);
    }
    let mut left = count;
    let mut buffer = vec![0; CHUNK_BYTES];
    while left > 0 {
        let wanted = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        match source.next(&mut buffer[..wanted])? {
            0 => return Ok(()),
            len => left -= len as u64,
        }
    }
    rest(source, out)
}

/// Writes the last bytes. Of an input without a length it keeps as many bytes in memory.
fn last_bytes(mut source: Source, count: u64, out: &mut Out) -> Result<(), TransferError> {
    if let Some(len) = source.len() {
        source.seek(len.saturating_sub(count))?;
        return rest(source, out);
    }
    let kept = usize::try_from(count).unwrap_or(usize::MAX);
    let mut last = VecDeque::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let len = source.next(&mut buffer)?;
        if len == 0 {
            break;
        }
        last.extend(&buffer[..len]);
        last.drain(..last.len().saturating_sub(kept));
    }
    let (start, end) = last.as_slices();
    out.write_all(start)?;
    Ok(out.write_all(end)?)
}

fn behind_lines(
    mut source: Source,
    count: u64,
    end: u8,
    out: &mut Out,
) -> Result<(), TransferError> {
    let mut left = count;
    let mut buffer = vec![0; CHUNK_BYTES];
    while left > 0 {
        let len = source.next(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        for (at, _) in buffer[..len]
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == end)
        {
            left -= 1;
            if left == 0 {
                out.write_all(&buffer[at + 1..len])?;
                break;
            }
        }
    }
    rest(source, out)
}

/// Writes the last lines. It reads a file that has a length from its end, and keeps the last lines
/// of any other input in memory.
fn last_lines(mut source: Source, count: u64, end: u8, out: &mut Out) -> Result<(), TransferError> {
    if let Some(len) = source.len() {
        let start = start_of_last_lines(&mut source, len, count, end)?;
        source.seek(start)?;
        return rest(source, out);
    }
    let mut lines = source.lines();
    let mut last = VecDeque::new();
    let mut line = Vec::new();
    while lines.next(end, &mut line)? {
        last.push_back(std::mem::take(&mut line));
        if last.len() as u64 > count {
            last.pop_front();
        }
    }
    Ok(last.iter().try_for_each(|line| out.write_all(line))?)
}

/// Returns the byte at which the last `count` lines of a file start.
fn start_of_last_lines(
    source: &mut Source,
    len: u64,
    count: u64,
    end: u8,
) -> Result<u64, TransferError> {
    if count == 0 {
        return Ok(len);
    }
    let mut left = count;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut until = len;
    while until > 0 {
        let from = until.saturating_sub(CHUNK_BYTES as u64);
        let wanted = usize::try_from(until - from).unwrap_or(CHUNK_BYTES);
        source.seek(from)?;
        let mut filled = 0;
        while filled < wanted {
            match source.next(&mut buffer[filled..wanted])? {
                0 => break,
                read => filled += read,
            }
        }
        for at in (0..filled).rev().filter(|at| buffer[*at] == end) {
            let start = from + at as u64 + 1;
            // The end of the last line begins no line.
            if start == len {
                continue;
            }
            left -= 1;
            if left == 0 {
                return Ok(start);
            }
        }
        until = from;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::Amount;

    #[test]
    fn amounts_are_read() {
        assert_eq!(Amount::parse("20"), Ok(Amount::Last(20)));
        assert_eq!(Amount::parse("-20"), Ok(Amount::Last(20)));
        assert_eq!(Amount::parse("+3"), Ok(Amount::Behind(2)));
        assert_eq!(Amount::parse("+0"), Ok(Amount::Behind(0)));
        assert!(Amount::parse("+-3").is_err());
    }
}
