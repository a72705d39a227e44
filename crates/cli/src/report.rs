//! Standard output of the subcommands.

use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write as _};

/// Buffered standard output.
pub(crate) type Out = BufWriter<StdoutLock<'static>>;

/// Bytes that are gathered before they are written; on a terminal, whoever sits there wants each line at once.
const BUFFER_BYTES: usize = 128 << 10;

/// Buffered standard output for as long as a subcommand runs.
pub(crate) fn out() -> Out {
    let stdout = io::stdout().lock();
    let capacity = if stdout.is_terminal() { 0 } else { BUFFER_BYTES };
    BufWriter::with_capacity(capacity, stdout)
}

/// Writes what is left: before a message to standard error, so that both come in order on a terminal, and at the end.
pub(crate) fn flush(out: &mut Out) -> io::Result<()> {
    out.flush()
}
