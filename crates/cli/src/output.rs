//! Standard output of the subcommands, buffered.
//!
//! A subcommand takes it with [`out`] and flushes it at its end. On a terminal each line appears at
//! once. A closed pipe is an error of writing, which ends the command.

use std::io::{self, BufWriter, IsTerminal as _, Seek as _, StdoutLock, Write};
use std::os::fd::AsFd;

use rustix::fs::{FileType, fstat};
use tempfile::SpooledTempFile;

/// Buffered standard output.
pub(crate) type Out = Held<BufWriter<StdoutLock<'static>>>;

/// The size of the buffer. On a terminal there is none, because its user wants each line at once.
const BUFFER_BYTES: usize = 128 << 10;

/// Returns buffered standard output, for as long as a subcommand runs.
pub(crate) fn out() -> Out {
    held_out(false)
}

/// Returns buffered standard output, which is held if `is_held`.
pub(crate) fn held_out(is_held: bool) -> Out {
    let stdout = io::stdout().lock();
    let capacity = if stdout.is_terminal() {
        0
    } else {
        BUFFER_BYTES
    };
    Held::new(BufWriter::with_capacity(capacity, stdout), is_held)
}

/// The most bytes of held output in memory. The rest is in a file without a name.
const MEMORY_BYTES: usize = 1 << 20;

/// An output that may be held until the volume is closed.
///
/// The reader of a pipe may be a command that waits for the volume, as xargs(1) starts some. It
/// would wait for a process that waits until the pipe has room.
pub(crate) struct Held<W> {
    to: W,
    held: Option<BufWriter<SpooledTempFile>>,
}

impl<W: Write> Held<W> {
    /// Returns an output that is held if `is_held`.
    pub(crate) fn new(to: W, is_held: bool) -> Self {
        let held = is_held.then(|| BufWriter::new(SpooledTempFile::new(MEMORY_BYTES)));
        Self { to, held }
    }

    /// Returns whether what is written stays here.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Writes what was held, now that the volume is closed.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        if let Some(held) = self.held.take() {
            let mut held = held.into_inner()?;
            held.rewind()?;
            io::copy(&mut held, &mut self.to)?;
        }
        self.to.flush()
    }
}

impl<W: Write> Write for Held<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.held {
            Some(held) => held.write(bytes),
            None => self.to.write(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.held {
            Some(held) => held.write_all(bytes),
            None => self.to.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_held() {
            Ok(())
        } else {
            self.to.flush()
        }
    }
}

/// Returns whether another process reads what is written to a file.
pub(crate) fn is_pipe(file: impl AsFd) -> bool {
    let kind = fstat(file).map(|found| FileType::from_raw_mode(found.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}

/// Writes the buffered output: at the end, and before a message to standard error, so that both
/// appear in order on a terminal.
pub(crate) fn flush(out: &mut Out) -> io::Result<()> {
    out.flush()
}
