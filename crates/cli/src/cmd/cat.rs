//! `extern4 cat`: writes the contents of files, one after the other.
//!
//! `args` calls [`run`], and `get` uses [`write`]. A file that cannot be read is reported, and the
//! next one follows. Bytes go out unchanged unless an option asks for a form.

mod numbering;

use std::ffi::OsString;
use std::fs::File as HostFile;
use std::io::{self, Write as _};

use extern4::copy::KernelCopy;
use extern4::{File, Span, SpanKind};

use crate::app::{App, Opened};
use crate::image_path::ImagePath;
use crate::input::{CHUNK_BYTES, Input, Source, TransferError, inputs};

use numbering::Numbering;

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    /// Files to write; '-' is standard input, as is no file
    #[arg(value_name = "IMAGE:/PATH")]
    files: Vec<OsString>,
    /// Show everything: -vET
    #[arg(short = 'A', long)]
    show_all: bool,
    /// Number lines that are not empty
    #[arg(short = 'b', long)]
    number_nonblank: bool,
    /// Show ends and control bytes: -vE
    #[arg(short = 'e')]
    ends_and_nonprinting: bool,
    /// Show a $ at the end of each line
    #[arg(short = 'E', long)]
    show_ends: bool,
    /// Number all lines
    #[arg(short, long)]
    number: bool,
    /// Write one empty line for several in a row
    #[arg(short, long)]
    squeeze_blank: bool,
    /// Show tabs and control bytes: -vT
    #[arg(short = 't')]
    tabs_and_nonprinting: bool,
    /// Show tabs as ^I
    #[arg(short = 'T', long)]
    show_tabs: bool,
    /// For other programs' sake: output is never held back
    #[arg(short = 'u')]
    unbuffered: bool,
    /// Show control bytes as ^X and others as M-X, but for tabs and line ends
    #[arg(short = 'v', long)]
    show_nonprinting: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    copy(&inputs(&args.files, app), Numbering::new(args), app)
}

/// Writes files to standard output.
pub(crate) fn write(files: &[Input], app: &mut App) -> io::Result<()> {
    copy(files, None, app)
}

/// Writes files to standard output, in the form that `numbering` gives them.
fn copy(files: &[Input], mut numbering: Option<Numbering>, app: &mut App) -> io::Result<()> {
    // The output goes straight to the descriptor: `Stdout` would search all of it for line feeds.
    let mut output = Output {
        out: HostFile::from(rustix::io::dup(io::stdout())?),
        buffer: vec![0; CHUNK_BYTES],
    };
    for input in files {
        let Some(source) = input.open(app) else {
            continue;
        };
        let done = match (source, input, &mut numbering) {
            (source, _, Some(numbering)) => output.formatted(source, numbering),
            (Source::Volume(file), Input::Volume(ImagePath { image, .. }), None) => {
                match app.volume(image) {
                    Some(volume) => output.file(&file, &volume),
                    None => Ok(()),
                }
            }
            (source, _, None) => output.all(source),
        };
        input.settle(done, app)?;
    }
    if let Some(numbering) = &mut numbering {
        let mut rest = Vec::new();
        numbering.finish(&mut rest);
        output.out.write_all(&rest)?;
    }
    Ok(())
}

struct Output {
    out: HostFile,
    buffer: Vec<u8>,
}

impl Output {
    /// Writes everything that can be read from a source.
    fn all(&mut self, mut source: Source) -> Result<(), TransferError> {
        loop {
            match source.next(&mut self.buffer)? {
                0 => return Ok(()),
                len => self.out.write_all(&self.buffer[..len])?,
            }
        }
    }

    fn formatted(
        &mut self,
        mut source: Source,
        numbering: &mut Numbering,
    ) -> Result<(), TransferError> {
        let mut shown = Vec::new();
        loop {
            let len = source.next(&mut self.buffer)?;
            if len == 0 {
                return Ok(());
            }
            shown.clear();
            numbering.push(&self.buffer[..len], &mut shown);
            self.out.write_all(&shown)?;
        }
    }

    /// Writes the contents of a file in a volume.
    fn file(&mut self, file: &File, volume: &Opened) -> Result<(), TransferError> {
        let read = |error: extern4::Error| TransferError::Input(error.into());
        let mut kernel_copy = KernelCopy::new(&volume.volume);
        let len = file.metadata().len();
        let mut at = 0;
        while at < len {
            let Some(span) = file.span_at(at).map_err(read)? else {
                break;
            };
            let end = span.offset.saturating_add(span.len).clamp(at + 1, len);
            match (span.kind, &mut kernel_copy) {
                (SpanKind::Mapped { .. }, Some(kernel_copy)) => {
                    self.span(file, kernel_copy, &span, at, end)?
                }
                _ => self.bytes(file, at, end)?,
            }
            at = end;
        }
        Ok(())
    }

    /// Writes data that the image holds unchanged, from `at` to `end`.
    fn span(
        &mut self,
        file: &File,
        kernel_copy: &mut KernelCopy,
        span: &Span,
        at: u64,
        end: u64,
    ) -> Result<(), TransferError> {
        let mut at = at;
        while at < end {
            match kernel_copy.send(span, at, end - at, &self.out, None)? {
                0 => return self.bytes(file, at, end),
                sent => at += sent.min(end - at),
            }
        }
        Ok(())
    }

    /// Writes the bytes from `at` to `end`, wherever they are.
    fn bytes(&mut self, file: &File, at: u64, end: u64) -> Result<(), TransferError> {
        let mut at = at;
        while at < end {
            let wanted =
                usize::try_from(end - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let read = file.read_at(&mut self.buffer[..wanted], at);
            let len = read.map_err(|error| TransferError::Input(error.into()))?;
            if len == 0 {
                break;
            }
            self.out.write_all(&self.buffer[..len])?;
            at += len as u64;
        }
        Ok(())
    }
}
