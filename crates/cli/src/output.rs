//! Standard output of the subcommands, buffered.
//!
//! A subcommand takes it with [`out`] and flushes it at its end. On a terminal each line appears at
//! once. A closed pipe is an error of writing, which ends the command.

use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write as _};

/// Buffered standard output.
pub(crate) type Out = BufWriter<StdoutLock<'static>>;

/// The size of the buffer. On a terminal there is none, because its user wants each line at once.
const BUFFER_BYTES: usize = 128 << 10;

/// Returns buffered standard output, for as long as a subcommand runs.
pub(crate) fn out() -> Out {
    let stdout = io::stdout().lock();
    let capacity = if stdout.is_terminal() { 0 } else { BUFFER_BYTES };
    BufWriter::with_capacity(capacity, stdout)
}

/// Writes the buffered output: at the end, and before a message to standard error, so that both
/// appear in order on a terminal.
pub(crate) fn flush(out: &mut Out) -> io::Result<()> {
    out.flush()
}
