//! `extern4 cat`: writes the contents of files, one after the other.

use std::fs::File as HostFile;
use std::io::{self, Write as _};

use extern4::{File, Span, SpanKind};

use crate::app::{App, Target};
use crate::image_path::ImagePath;
use crate::kernel_copy::KernelCopy;

/// Bytes read at a time: few enough to stay in a core's own cache until they are written.
const CHUNK_BYTES: usize = 256 << 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files to write
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    write(&args.image_paths, app)
}

/// Writes files to standard output.
pub(crate) fn write(image_paths: &[ImagePath], app: &mut App) -> io::Result<()> {
    // The output goes straight to the descriptor: `Stdout` would search all of it for line feeds.
    let mut output =
        Output { out: HostFile::from(rustix::io::dup(io::stdout())?), buffer: vec![0; CHUNK_BYTES] };
    for image_path in image_paths {
        let Some(target) = app.target(image_path) else { continue };
        match target.session().open(target.path()) {
            Ok(file) => match output.file(&file, &target) {
                Ok(()) => {}
                Err(Failure::Volume(error)) => app.error(image_path, &error),
                Err(Failure::Output(error)) => return Err(error),
            },
            Err(error) => app.error(image_path, &error),
        }
    }
    Ok(())
}

/// The side on which a copy failed.
enum Failure {
    Volume(extern4::Error),
    Output(io::Error),
}

impl From<extern4::Error> for Failure {
    fn from(error: extern4::Error) -> Self {
        Self::Volume(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

struct Output {
    out: HostFile,
    buffer: Vec<u8>,
}

impl Output {
    fn file(&mut self, file: &File, target: &Target) -> Result<(), Failure> {
        let mut kernel_copy = KernelCopy::new(&target.volume);
        let len = file.metadata().len();
        let mut at = 0;
        while at < len {
            let Some(span) = file.span_at(at)? else { break };
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
    ) -> Result<(), Failure> {
        let mut at = at;
        while at < end {
            match kernel_copy.send(span, at, end - at, &self.out, None).map_err(io::Error::from)? {
                0 => return self.bytes(file, at, end),
                sent => at += sent.min(end - at),
            }
        }
        Ok(())
    }

    /// Writes the bytes from `at` to `end`, wherever they are.
    fn bytes(&mut self, file: &File, at: u64, end: u64) -> Result<(), Failure> {
        let mut at = at;
        while at < end {
            let wanted = usize::try_from(end - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let len = file.read_at(&mut self.buffer[..wanted], at)?;
            if len == 0 {
                break;
            }
            self.out.write_all(&self.buffer[..len])?;
            at += len as u64;
        }
        Ok(())
    }
}
