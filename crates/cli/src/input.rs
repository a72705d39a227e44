//! The files that commands such as `head` and `grep` read: each in a volume, on the host, or
//! standard input.
//!
//! A failure to read is reported at the input, and the command goes on; a failure to write ends it.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::app::{App, Shown, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::interruptible::Interruptible;
use crate::json::{self, Object};
use crate::operands::host_path;
use crate::text::escape;

/// Bytes read at a time.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// The limit for the length of a line that a command has to see as a whole.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// A file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Standard input.
    Standard,
    /// A file in a volume.
    Volume(ImagePath),
    /// A file of the host.
    Host(PathBuf),
}

/// The side on which reading and writing failed.
pub(crate) enum TransferError {
    /// The input could not be read.
    Input(io::Error),
    /// The output could not be written.
    Output(io::Error),
}

/// An open input.
pub(crate) enum Source {
    /// A file in a volume.
    Volume(extern4::File),
    /// A file of the host, or standard input.
    Host(Interruptible),
}

impl Input {
    /// Returns the input that an operand names: `-` is standard input, anything else an image path.
    pub(crate) fn of(text: &OsStr, app: &App) -> Self {
        if text == "-" {
            Self::Standard
        } else {
            Self::Volume(app.image_path(text))
        }
    }

    /// Returns the input that an operand names, for commands that also take files of the host. An
    /// operand names an image only with a path in it. In a script, `host:PATH` is one of the host.
    pub(crate) fn or_host(text: &OsStr, app: &App) -> Self {
        if let Some(path) = host_path(text).filter(|_| app.in_script()) {
            return Self::Host(path.to_owned());
        }
        if text == "-" || app.in_script() || ImagePath::is_one(text) {
            Self::of(text, app)
        } else {
            Self::Host(PathBuf::from(text))
        }
    }

    /// Opens the input. Reports a failure.
    pub(crate) fn open(&self, app: &mut App) -> Option<Source> {
        let opened = match self {
            Self::Standard => Interruptible::standard_input(app.stop()).map(Source::Host),
            Self::Host(path) => Interruptible::open(path, app.stop()).map(Source::Host),
            Self::Volume(image_path) => {
                let target = app.target(image_path)?;
                target
                    .session()
                    .open(target.path())
                    .map(Source::Volume)
                    .map_err(io::Error::from)
            }
        };
        opened.map_err(|error| self.report(&error, app)).ok()
    }

    /// Reports an error of reading.
    pub(crate) fn report(&self, error: &io::Error, app: &mut App) {
        match error
            .get_ref()
            .and_then(|cause| cause.downcast_ref::<extern4::Error>())
        {
            Some(error) => app.error(self, error),
            None => app.fail_at(ExitStatus::Failed, self, host_reason(error)),
        }
    }

    /// Reports a failure of reading, and passes one of writing on.
    pub(crate) fn settle(&self, done: Result<(), TransferError>, app: &mut App) -> io::Result<()> {
        match done {
            Err(TransferError::Input(error)) => {
                self.report(&error, app);
                Ok(())
            }
            Err(TransferError::Output(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// Writes the members that name the input: its path, before that the image if it is in one, and
    /// `-` for standard input.
    pub(crate) fn members(&self, object: &mut Object<'_>) {
        match self {
            Self::Standard => object.text("path", "-"),
            Self::Volume(ImagePath { image, path }) => json::file(object, image, path),
            Self::Host(path) => object.bytes("path", path.as_os_str().as_bytes()),
        }
    }

    /// Returns the name that output shows, in a form that is an operand again. `standard` stands
    /// for standard input.
    pub(crate) fn name(&self, shown: Shown, standard: &str) -> Vec<u8> {
        match self {
            Self::Standard => standard.as_bytes().to_vec(),
            Self::Volume(ImagePath { image, path }) => shown.path(image, path),
            Self::Host(path) => shown.text(path.as_os_str().as_bytes()).into_owned(),
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("standard input"),
            Self::Volume(image_path) => image_path.fmt(f),
            Self::Host(path) => f.write_str(&escape(path.as_os_str().as_bytes())),
        }
    }
}

impl From<io::Error> for TransferError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Source {
    /// Reads the next bytes; none at the end.
    pub(crate) fn next(&mut self, buffer: &mut [u8]) -> Result<usize, TransferError> {
        loop {
            match self.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(TransferError::Input),
            }
        }
    }

    /// Returns the length of a file that has one, read from its start: a regular file.
    pub(crate) fn len(&self) -> Option<u64> {
        match self {
            Self::Volume(file) => Some(file.metadata().len()),
            Self::Host(file) => file
                .file()
                .metadata()
                .ok()
                .filter(std::fs::Metadata::is_file)
                .map(|found| found.len()),
        }
    }

    /// Moves to byte `at` of a file that has a length.
    pub(crate) fn seek(&mut self, at: u64) -> Result<(), TransferError> {
        let moved = match self {
            Self::Volume(file) => file.seek(SeekFrom::Start(at)),
            Self::Host(file) => file.file().seek(SeekFrom::Start(at)),
        };
        moved.map(drop).map_err(TransferError::Input)
    }

    /// Returns a reader of lines.
    pub(crate) fn lines(self) -> Lines {
        Lines {
            reader: BufReader::with_capacity(CHUNK_BYTES, self),
        }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Volume(file) => file.read(buffer),
            Self::Host(file) => file.read(buffer),
        }
    }
}

/// Reads an input line by line.
pub(crate) struct Lines {
    reader: BufReader<Source>,
}

impl Lines {
    /// Returns the first bytes, which stay there to be read.
    pub(crate) fn peek(&mut self) -> Result<&[u8], TransferError> {
        self.reader.fill_buf().map_err(TransferError::Input)
    }

    /// Reads a line with its end, if it has one. Returns false at the end of the input.
    pub(crate) fn next(&mut self, end: u8, line: &mut Vec<u8>) -> Result<bool, TransferError> {
        line.clear();
        let mut limited = (&mut self.reader).take(MAX_LINE_BYTES);
        let len = limited
            .read_until(end, line)
            .map_err(TransferError::Input)?;
        if len as u64 == MAX_LINE_BYTES {
            let message = format!("a line is longer than {} MiB", MAX_LINE_BYTES >> 20);
            return Err(TransferError::Input(io::Error::other(message)));
        }
        Ok(len > 0)
    }
}

/// Returns the inputs of operands; standard input where there are none.
pub(crate) fn inputs(operands: &[std::ffi::OsString], app: &App) -> Vec<Input> {
    if operands.is_empty() {
        return vec![Input::Standard];
    }
    operands.iter().map(|text| Input::of(text, app)).collect()
}

/// Returns the path of the host or in a volume below which `path` is, as [`Input::name`] shows it.
pub(crate) fn below(image_path: &ImagePath, path: &Path) -> Input {
    Input::Volume(ImagePath {
        image: image_path.image.clone(),
        path: path.to_owned(),
    })
}
