//! `extern4 head`: writes the first lines or bytes of files.
//!
//! `args` calls [`run`], and `tail` shares its headings.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write as _};

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::input::{CHUNK_BYTES, Input, Source, TransferError, inputs};
use crate::output::{Out, flush, out};
use crate::text::size;

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
    /// Write the first NUM lines instead of 10; with -NUM, all but the last NUM
    #[arg(short = 'n', long, value_name = "NUM", value_parser = Amount::parse, allow_hyphen_values = true,
        overrides_with = "bytes")]
    lines: Option<Amount>,
    /// Write the first NUM bytes; with -NUM, all but the last NUM
    #[arg(short = 'c', long, value_name = "NUM", value_parser = Amount::parse, allow_hyphen_values = true)]
    bytes: Option<Amount>,
}

/// The form of the output, for `head` and `tail`.
#[derive(clap::Args)]
pub(super) struct Form {
    /// Write no headings with the names of files
    #[arg(short, long, visible_alias = "silent", overrides_with = "verbose")]
    pub(super) quiet: bool,
    /// Write headings with the names of files, even for one
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// Lines end with a NUL
    #[arg(short, long)]
    pub(super) zero_terminated: bool,
}

/// How much of a file is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    /// The first of them.
    First(u64),
    /// All but the last.
    ButLast(u64),
}

impl Amount {
    fn parse(text: &str) -> Result<Self, String> {
        let (amount, number): (fn(u64) -> Self, _) = match text.strip_prefix('-') {
            Some(number) => (Self::ButLast, number),
            None => (Self::First, text),
        };
        size(number)
            .map(amount)
            .ok_or_else(|| "write it as 20, 4K or -5".to_owned())
    }
}

impl Form {
    /// Returns the byte that ends a line.
    pub(super) fn end(&self) -> u8 {
        if self.zero_terminated { 0 } else { b'\n' }
    }

    /// Calls `copy` for every input, after its heading.
    pub(super) fn each(
        &self,
        files: &[Input],
        app: &mut App,
        mut copy: impl FnMut(Source, &mut Out) -> Result<(), TransferError>,
    ) -> io::Result<()> {
        let headings = self.verbose || files.len() > 1 && !self.quiet;
        let shown = app.shown();
        let mut out = out();
        let mut begun = false;
        for input in files {
            let Some(source) = input.open(app) else {
                continue;
            };
            if headings {
                let name = input.name(shown, "standard input");
                out.write_all(
                    &[
                        if begun { &b"\n==> "[..] } else { b"==> " },
                        &name,
                        b" <==\n",
                    ]
                    .concat(),
                )?;
            }
            begun = true;
            let done = copy(source, &mut out);
            flush(&mut out)?;
            input.settle(done, app)?;
        }
        Ok(())
    }
}

/// Returns the number of an operand `-NUM` before all others, and the rest of the operands.
pub(super) fn old_form(files: &[OsString]) -> (Option<u64>, &[OsString]) {
    let number = files
        .first()
        .and_then(|word| size(word.to_str()?.strip_prefix('-')?));
    (number, &files[usize::from(number.is_some())..])
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let (old, files) = old_form(&args.files);
    if old.is_some() && (args.lines.is_some() || args.bytes.is_some()) {
        app.fail(ExitStatus::Usage, "-NUM and -n or -c exclude each other");
        return Ok(());
    }
    let end = args.form.end();
    let lines = args
        .lines
        .or(old.map(Amount::First))
        .unwrap_or(Amount::First(10));
    args.form.each(&inputs(files, app), app, |source, out| {
        match (args.bytes, lines) {
            (Some(Amount::First(count)), _) => first_bytes(source, count, out),
            (Some(Amount::ButLast(count)), _) => but_last_bytes(source, count, out),
            (None, Amount::First(count)) => first_lines(source, count, end, out),
            (None, Amount::ButLast(count)) => but_last_lines(source, count, end, out),
        }
    })
}

fn first_bytes(mut source: Source, count: u64, out: &mut Out) -> Result<(), TransferError> {
    let mut left = count;
    let mut buffer = vec![0; CHUNK_BYTES];
    while left > 0 {
        let wanted = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let len = source.next(&mut buffer[..wanted])?;
        if len == 0 {
            break;
        }
        out.write_all(&buffer[..len])?;
        left -= len as u64;
    }
    Ok(())
}

fn first_lines(
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
            break;
        }
        let mut taken = len;
        for (at, _) in buffer[..len]
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == end)
        {
            left -= 1;
            if left == 0 {
                taken = at + 1;
                break;
            }
        }
        out.write_all(&buffer[..taken])?;
    }
    Ok(())
}

/// Writes all but the last bytes. Of an input without a length it keeps as many bytes in memory.
fn but_last_bytes(source: Source, count: u64, out: &mut Out) -> Result<(), TransferError> {
    if let Some(len) = source.len() {
        return first_bytes(source, len.saturating_sub(count), out);
    }
    let mut source = source;
    let kept = usize::try_from(count).unwrap_or(usize::MAX);
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut last = VecDeque::new();
    loop {
        let len = source.next(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        last.extend(&buffer[..len]);
        let ready: Vec<u8> = last.drain(..last.len().saturating_sub(kept)).collect();
        out.write_all(&ready)?;
    }
}

/// Writes all but the last lines, of which it keeps as many in memory.
fn but_last_lines(source: Source, count: u64, end: u8, out: &mut Out) -> Result<(), TransferError> {
    let mut lines = source.lines();
    let mut last = VecDeque::new();
    let mut line = Vec::new();
    while lines.next(end, &mut line)? {
        last.push_back(std::mem::take(&mut line));
        if last.len() as u64 > count
            && let Some(line) = last.pop_front()
        {
            out.write_all(&line)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Amount, old_form};
    use std::ffi::OsString;

    #[test]
    fn amounts_are_read() {
        assert_eq!(Amount::parse("20"), Ok(Amount::First(20)));
        assert_eq!(Amount::parse("-1K"), Ok(Amount::ButLast(1024)));
        assert!(Amount::parse("x").is_err() && Amount::parse("--1").is_err());
        let files = ["-5", "a.img:/x"].map(OsString::from);
        assert_eq!(old_form(&files), (Some(5), &files[1..]));
        assert_eq!(old_form(&files[1..]), (None, &files[1..]));
    }
}
