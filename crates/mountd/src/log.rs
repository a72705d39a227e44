//! The log of a mount: on standard error in the foreground, in the system's log from the
//! background, or in a file. `EXTERN4_LOG` sets the level.
//!
//! `mount` starts it. Names of a volume are escaped, so none can forge a line. A log that cannot be
//! written loses lines and stops nothing.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::{env, panic, process};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use extern4::terminal::escape;

/// The environment variable that names the least severe level to log.
const LEVEL: &str = "EXTERN4_LOG";

/// The destination of the log.
#[derive(Clone, Copy)]
pub(crate) enum Log<'a> {
    /// To standard error.
    Terminal,
    /// To the system's log.
    System,
    /// To the end of this file.
    File(&'a Path),
}

/// Returns the level that the environment asks for; `None` if there is no such level.
pub(crate) fn level() -> Option<Level> {
    match env::var_os(LEVEL) {
        Some(text) => text.to_str()?.parse().ok(),
        None => Some(Level::INFO),
    }
}

impl Log<'_> {
    /// Starts logging, up to this level.
    pub(crate) fn start(self, level: Level) -> io::Result<()> {
        let lines = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_target(false)
            .with_ansi(false);
        // A line that cannot be written is lost. A message about that on standard error would panic
        // if standard error itself is closed. A thread that logs a signal still has a volume to
        // close.
        let lines = lines.log_internal_errors(false);
        let started = match self {
            // A reader of the terminal sees when the line comes.
            Self::Terminal => lines
                .without_time()
                .with_writer(|| Escaped(io::stderr()))
                .try_init(),
            // The system's log adds both in its own form.
            Self::System => lines
                .without_time()
                .with_level(false)
                .with_writer(Syslog::new()?)
                .try_init(),
            Self::File(path) => {
                // Opened before the mount exists, so the file is in no mount that this process
                // would have to serve to write it.
                let file = Arc::new(File::options().append(true).create(true).open(path)?);
                lines
                    .with_writer(move || Escaped(Arc::clone(&file)))
                    .try_init()
            }
        };
        started.map_err(io::Error::other)?;
        if !matches!(self, Self::Terminal) {
            // A panic message on standard error would be lost.
            panic::set_hook(Box::new(|fault| tracing::error!("{fault}")));
        }
        Ok(())
    }
}

/// A writer for lines that may hold names of a volume. It escapes them, so a name with a newline
/// cannot pass for another line.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (text, end) = match line.strip_suffix(b"\n") {
            Some(text) => (text, "\n"),
            None => (line, ""),
        };
        self.0
            .write_all(format!("{}{end}", escape(text)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The system's log, by RFC 3164. Where there is none, lines are lost, as the lines of every other
/// program.
struct Syslog {
    socket: UnixDatagram,
}

impl Syslog {
    /// The socket that the log listens on.
    const PATH: &str = "/dev/log";
    /// The facility of the lines: daemons.
    const FACILITY: u8 = 3;

    fn new() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A line is lost rather than that the mount waits for a log that may itself be in it.
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line {
            log: self,
            severity: severity(Level::INFO),
        }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Line<'a> {
        Line {
            log: self,
            severity: severity(*about.level()),
        }
    }
}

/// Returns the severity as syslog(3) counts.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// A writer that sends each line in one piece.
struct Line<'a> {
    log: &'a Syslog,
    severity: u8,
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let priority = Syslog::FACILITY * 8 + self.severity;
        let pid = process::id();
        let time = jiff::Zoned::now().strftime("%b %e %H:%M:%S");
        let mut message = format!("<{priority}>{time} extern4[{pid}]: ").into_bytes();
        message.extend_from_slice(escape(text.trim_ascii_end()).as_bytes());
        // The socket is looked up each time, because the log may have been restarted.
        let _ = self.log.socket.send_to(&message, Syslog::PATH);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_line_is_no_line_of_its_own() {
        let mut log = Vec::new();
        let line = "ERROR a\nERROR forged \u{1b}[2J\u{9b}1m\n";
        Escaped(&mut log)
            .write_all(line.as_bytes())
            .expect("memory");
        assert_eq!(log, b"ERROR a\\nERROR forged \\033[2J\\302\\2331m\n");
    }
}
