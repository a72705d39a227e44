//! Lines of output for many commands: buffered, with the paths as [`Shown`] wants them.

use std::io::{self, BufWriter, StdoutLock, Write as _};

/// Buffered standard output.
pub(crate) type Out = BufWriter<StdoutLock<'static>>;

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 128 << 10;

/// Buffered standard output for as long as a subcommand runs.
pub(crate) fn out() -> Out {
    BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock())
}

/// Writes what is left: before a message to standard error, so that both come in order on a terminal, and at the end.
pub(crate) fn flush(out: &mut Out) -> io::Result<()> {
    out.flush()
}
