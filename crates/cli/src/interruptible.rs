//! [`Interruptible`]: standard input and files of the host, whose reads a signal ends.
//!
//! read(2) of a pipe, a terminal or a socket waits for the other side, and open(2) of a named pipe
//! for a writer. Here the command waits in [`Stop::wait`] instead, so the first signal ends it. A
//! command that does not listen to signals is ended by them in any case.
//!
//! Every command that reads standard input, or a file of the host while a volume is open, opens it
//! here.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use extern4::build::{SourceError, TarSource};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};

use crate::standard_input;
use crate::stop::Stop;

/// An open file. Once a signal has asked the command to end, reading it fails.
pub(crate) struct Interruptible {
    file: File,
    stop: Stop,
}

impl Interruptible {
    /// Opens standard input.
    pub(crate) fn standard_input(stop: Stop) -> io::Result<Self> {
        Ok(Self {
            file: standard_input::open()?,
            stop,
        })
    }

    /// Opens a file of the host.
    pub(crate) fn open(path: &Path, stop: Stop) -> io::Result<Self> {
        let is_pipe = fs::metadata(path)?.file_type().is_fifo();
        let flags = if is_pipe {
            OFlags::NONBLOCK
        } else {
            OFlags::empty()
        };
        let file = rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::CLOEXEC | flags,
            Mode::empty(),
        )?;
        // Reads do not wait for the first writer of a pipe. The wait before them does.
        fcntl_setfl(&file, fcntl_getfl(&file)? & !flags)?;
        Ok(Self {
            file: file.into(),
            stop,
        })
    }

    /// Opens a file of the host; `-` is standard input.
    pub(crate) fn named(path: &Path, stop: Stop) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            Self::standard_input(stop)
        } else {
            Self::open(path, stop)
        }
    }

    /// Returns the open file, whose reads no signal ends.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// Returns the open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns whether a read may wait for another process, or for the user.
    fn waits(&self) -> io::Result<bool> {
        let kind = self.file.metadata()?.file_type();
        Ok(kind.is_fifo() || kind.is_socket() || kind.is_char_device())
    }
}

impl Read for Interruptible {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stop.wait(&self.file).is_break() {
                return Err(io::Error::other("interrupted"));
            }
            match self.file.read(buffer) {
                // Another process made the descriptor one that does not wait.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// Reads a file of the host; `-` is standard input.
pub(crate) fn read(path: &Path, stop: Stop) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Interruptible::named(path, stop)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a text of the host in UTF-8; `-` is standard input.
pub(crate) fn read_text(path: &Path, stop: Stop) -> io::Result<String> {
    let mut text = String::new();
    Interruptible::named(path, stop)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Opens an archive of the host, which messages call `name`; `-` is standard input. Contents that
/// can be read only once go to a file without a name in `spool`.
pub(crate) fn archive(
    path: &Path,
    name: &Path,
    spool: &Path,
    stop: Stop,
) -> Result<TarSource, SourceError> {
    let name = name.to_string_lossy().into_owned();
    let opened = Interruptible::named(path, stop).and_then(|opened| Ok((opened.waits()?, opened)));
    match opened {
        Ok((true, stream)) => Ok(TarSource::from_stream(stream, name, spool)),
        Ok((false, opened)) => TarSource::from_file(opened.file, name, spool),
        Err(source) => Err(SourceError::Io { name, source }),
    }
}

/// Reads one line of standard input, and no byte behind it.
pub(crate) fn line(stop: Stop) -> io::Result<String> {
    let mut input = Interruptible::standard_input(stop)?;
    let mut line = Vec::new();
    let mut byte = [0];
    while input.read(&mut byte)? == 1 && byte != *b"\n" {
        line.extend(byte);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}
