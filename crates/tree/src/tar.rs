//! Tar archives: [`TarSource`] reads them, [`TarWriter`] writes them.
//!
//! `build`, `diff` and the commands for archives use both. The reader takes the forms of POSIX
//! (ustar, pax), GNU tar, star, and old ones, compressed or not, from a file or a pipe. The scan
//! streams through the archive once; contents of a plain file are read in place, others are
//! spooled. A damaged member is an error with its name and offset.
//!
//! Sources: POSIX.1-2017, `pax`, sections "ustar Interchange Format" and "pax Interchange Format";
//! tar(5) of libarchive; the manual of GNU tar, appendix "Tar Internals"; star(5); and archives
//! that those programs made.

mod file_flags;
mod header;
mod input;
mod pax;
mod read;
mod sparse;
mod write;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FileType;

use crate::compression::{Behind, Compression, MAGIC_LEN};
use crate::entry::Contents;
use crate::error::{Error, Result};
use crate::read_ahead::ReadAhead;
use crate::source::{Opened, Sink, Source};
use crate::spool::Spool;
use crate::stores::Stores;

use header::Header;

pub(crate) use input::{InPlace, Input, Keep};
pub use write::{ReadContents, TarWriter};

/// The key of a record with the project of a file, which no other program has one for.
const PROJECT: &[u8] = b"EXTERN4.project";

pub(crate) use read::{Member, Reader, placed};

/// The size of a block of a tar archive.
pub(crate) const BLOCK: usize = 512;

/// The size of the buffer before a decoder.
const COMPRESSED_BUFFER: usize = 128 << 10;

/// A tar archive as a tree: plain, or compressed with gzip, zstd, xz or bzip2.
///
/// A plain archive in a file is read in place. The contents of all others are spooled: the scan
/// copies them to a temporary file without a name.
pub struct TarSource {
    name: String,
    spool: PathBuf,
    archive: Archive,
    stores: Stores,
}

enum Archive {
    File(Arc<File>),
    /// A stream that can be read only once; `None` afterwards.
    Stream(Mutex<Option<Box<dyn Read + Send>>>),
}

impl TarSource {
    /// Opens an archive. `spool` is the directory for the temporary file, if one is needed.
    ///
    /// # Errors
    /// The system's error with the archive's name. Faults of the archive are found by the scan.
    pub fn open(archive: impl AsRef<Path>, spool: impl Into<PathBuf>) -> Result<Self> {
        let name = archive.as_ref().to_string_lossy().into_owned();
        let file = File::open(&archive).map_err(|error| Error::io(&name, error))?;
        Self::from_file(file, name, spool)
    }

    /// Makes a source of an open file or pipe, such as standard input. Messages use the name.
    ///
    /// # Errors
    /// The error of making the temporary file.
    pub fn from_file(
        file: File,
        name: impl Into<String>,
        spool: impl Into<PathBuf>,
    ) -> Result<Self> {
        let name = name.into();
        let spool = spool.into();
        let stat = rustix::fs::fstat(&file).map_err(|error| Error::io(&name, error))?;
        let archive = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::BlockDevice => Archive::File(Arc::new(file)),
            FileType::Directory => return Err(Error::io(&name, rustix::io::Errno::ISDIR)),
            _ => Archive::Stream(Mutex::new(Some(Box::new(file)))),
        };
        Ok(Self {
            name,
            spool,
            archive,
            stores: Stores::default(),
        })
    }

    /// Makes a source of a stream, which can be scanned once.
    pub fn from_stream(
        stream: impl Read + Send + 'static,
        name: impl Into<String>,
        spool: impl Into<PathBuf>,
    ) -> Self {
        let archive = Archive::Stream(Mutex::new(Some(Box::new(stream))));
        Self {
            name: name.into(),
            spool: spool.into(),
            archive,
            stores: Stores::default(),
        }
    }

    /// Whether a file starts as an archive does: with a header whose checksum is right, perhaps
    /// compressed.
    ///
    /// # Errors
    /// The error of reading.
    pub fn is_archive(file: &File) -> std::io::Result<bool> {
        let mut start = [0; BLOCK];
        match compression(file) {
            None => {
                let length = file.read_at(&mut start, 0)?;
                Ok(length == BLOCK && Header::parse(start).is_some())
            }
            Some(compression) => {
                let whole = InPlace::new(Arc::new(file.try_clone()?), 0, None)?;
                let whole = BufReader::with_capacity(COMPRESSED_BUFFER, whole);
                // A stream that cannot be decompressed is no archive.
                let decoder = compression.decoder(whole, &Behind::default());
                let read = decoder.and_then(|mut stream| stream.read_exact(&mut start));
                Ok(read.is_ok() && Header::parse(start).is_some())
            }
        }
    }

    /// Whether the scan copies contents to a temporary file.
    pub fn is_spooled(&self) -> bool {
        match &self.archive {
            Archive::File(file) => compression(file).is_some(),
            Archive::Stream(_) => true,
        }
    }

    /// Gives the whole tree to the sink, as [`scan`](Source::scan) does, and keeps no contents: no
    /// file can be opened afterwards.
    ///
    /// # Errors
    /// The first fault of the archive, or the error of the sink.
    pub fn list(&self, sink: &mut dyn Sink) -> Result<()> {
        self.read(false, sink)
    }

    fn read(&self, keeps_contents: bool, sink: &mut dyn Sink) -> Result<()> {
        let behind = Behind::default();
        let input = self.input(keeps_contents, &behind)?;
        let mut reader = Reader::new(input);
        while let Some(member) = reader.next(&mut |message| sink.warn(message))? {
            sink.entry(member.entry)
                .map_err(|error| placed(error, &self.name, member.position))?;
        }
        reader.finish()?;
        if behind.has_bytes() {
            sink.warn(format!(
                "{}: the bytes behind the end of the compressed archive are ignored",
                self.name
            ));
        }
        Ok(())
    }

    fn input(&self, keeps_contents: bool, behind: &Behind) -> Result<Input<'_>> {
        let error = |error| Error::io(&self.name, error);
        let stream: Box<dyn BufRead + Send> = match &self.archive {
            Archive::File(file) if compression(file).is_none() => {
                let input = InPlace::new(Arc::clone(file), 0, None).map_err(error)?;
                let start = self.stores.add(Arc::clone(file), 0, Some(&self.name))?;
                return Ok(Input::new(
                    &self.name,
                    Box::new(input),
                    Keep::InPlace { start },
                ));
            }
            Archive::File(file) => {
                let whole = InPlace::new(Arc::clone(file), 0, None).map_err(error)?;
                Box::new(BufReader::with_capacity(COMPRESSED_BUFFER, whole))
            }
            Archive::Stream(stream) => {
                let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
                let stream = stream.ok_or_else(|| Error::Archive {
                    archive: self.name.clone(),
                    position: 0,
                    reason: "it can be read only once".to_owned(),
                })?;
                Box::new(BufReader::with_capacity(COMPRESSED_BUFFER, stream))
            }
        };
        let plain = plain(&self.name, stream, behind)?;
        if keeps_contents {
            spooled(&self.name, plain, &self.spool, &self.stores)
        } else {
            Ok(Input::new(
                &self.name,
                Box::new(input::Forward(plain)),
                Keep::Nothing,
            ))
        }
    }
}

/// Returns the input from a stream that is not compressed, and whose contents are spooled.
pub(crate) fn spooled<'a>(
    name: &'a str,
    plain: Box<dyn Read>,
    spool: &Path,
    stores: &Stores,
) -> Result<Input<'a>> {
    let spool = Spool::new(spool).map_err(|error| Error::io(spool.to_string_lossy(), error))?;
    let start = stores.add(spool.file(), 0, None)?;
    Ok(Input::new(
        name,
        Box::new(input::Forward(plain)),
        Keep::Spool { spool, start },
    ))
}

/// Decompresses a stream that is perhaps compressed.
fn plain(
    name: &str,
    mut stream: Box<dyn BufRead + Send>,
    behind: &Behind,
) -> Result<Box<dyn Read>> {
    let error = |error| Error::io(name, error);
    let compression = Compression::detect(stream.fill_buf().map_err(error)?);
    Ok(match compression {
        Some(compression) => {
            let decoder = compression.decoder(stream, behind).map_err(error)?;
            Box::new(ReadAhead::new(decoder).map_err(error)?)
        }
        None => Box::new(stream),
    })
}

fn compression(file: &File) -> Option<Compression> {
    let mut start = [0; MAGIC_LEN];
    let length = file.read_at(&mut start, 0).unwrap_or(0);
    Compression::detect(&start[..length])
}

impl Source for TarSource {
    fn scan(&self, sink: &mut dyn Sink) -> Result<()> {
        self.read(true, sink)
    }

    fn open(&self, path: &[u8], contents: &Contents) -> Result<Opened> {
        self.stores.open(path, contents)
    }
}

#[cfg(test)]
mod tests;
