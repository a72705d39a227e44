//! [`Manifest`]: a list that gives a tree devices, owners and modes that its source lacks.
//!
//! It reads the formats of mtree(5) (`mtree`) and of the kernel's `gen_init_cpio` (`cpio_list`).
//! `build` applies each [`Amendment`] to the merged tree, and a manifest is also a source of the
//! entries that it describes fully. A line that is wrong, or that demands an entry that the tree
//! lacks, is an error with its number.
//!
//! Sources: mtree(5) of NetBSD and of libarchive, and the usage text of the kernel's program
//! `gen_init_cpio`.

mod cpio_list;
mod mtree;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};

use crate::entry::{Contents, Data, Entry, Identity, Kind, Time};
use crate::error::{Error, Result, shown};
use crate::source::{Opened, Sink, Source};

/// The longest line.
const LONGEST_LINE: u64 = 64 << 10;

/// A manifest's statement about one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Amendment {
    /// The path, as in an [`Entry`].
    pub path: Vec<u8>,
    /// The entry's type, with its data.
    pub kind: AmendedKind,
    /// The permission bits, if they are given.
    pub mode: Option<u16>,
    /// The owner, if it is given.
    pub uid: Option<u32>,
    /// The group, if it is given.
    pub gid: Option<u32>,
    /// The time of the last change, if it is given.
    pub mtime: Option<Time>,
    /// The tree may lack the entry.
    pub optional: bool,
    /// The line of the manifest, from 1.
    pub line: usize,
}

/// A manifest's statement about the type of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AmendedKind {
    /// No type is given: the tree has the entry.
    Any,
    /// A regular file, which the tree has.
    File,
    /// The type and all data: the manifest makes the entry, and opens the contents of a file.
    Made(Kind),
}

/// A manifest in the format of mtree(5), or a list of the kernel's `gen_init_cpio`.
///
/// As a source it has the entries that it can make.
#[derive(Debug)]
pub struct Manifest {
    name: String,
    amendments: Vec<Amendment>,
    warnings: Vec<String>,
    /// The host's files with contents, by path.
    locations: BTreeMap<Vec<u8>, PathBuf>,
}

impl Manifest {
    /// Reads a manifest. Relative names of files with contents start at the current directory.
    ///
    /// # Errors
    /// If the file cannot be read, or a line makes no sense: the error names the line.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let name = path.as_ref().to_string_lossy().into_owned();
        let file = File::open(&path).map_err(|error| Error::io(&name, error))?;
        Self::read(BufReader::new(file), name)
    }

    /// Reads a manifest from a stream. Messages use the name.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read(stream: impl BufRead, name: impl Into<String>) -> Result<Self> {
        let lines = lines(stream, name.into())?;
        let mut manifest = Self {
            name: lines.name.clone(),
            amendments: Vec::new(),
            warnings: Vec::new(),
            locations: BTreeMap::new(),
        };
        let read = if cpio_list::is_list(&lines.lines) {
            cpio_list::read
        } else {
            mtree::read
        };
        read(&lines, &mut manifest)?;
        Ok(manifest)
    }

    /// Returns its statements, in the order of its lines.
    pub fn amendments(&self) -> &[Amendment] {
        &self.amendments
    }

    /// Returns warnings about keywords that are ignored.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Applies an amendment to the entry that a tree has for its path, if there is one. Returns the
    /// entry that the tree has afterwards; `None` if it lacks an optional one.
    ///
    /// # Errors
    /// If the tree lacks an entry that is not optional, or the amendment does not go with its type.
    pub fn apply(&self, amendment: &Amendment, entry: Option<Entry>) -> Result<Option<Entry>> {
        if let Some(mut entry) = entry
            && amendment.fits(&entry.kind)
        {
            amendment.set(&mut entry);
            return Ok(Some(entry));
        }
        match amendment.made() {
            Some(entry) => Ok(Some(entry)),
            None if amendment.optional => Ok(None),
            None => {
                let what = if amendment.kind == AmendedKind::File {
                    "file"
                } else {
                    "entry"
                };
                let reason = format!("the tree has no {what} '{}'", shown(&amendment.path));
                Err(Error::Line {
                    manifest: self.name.clone(),
                    line: amendment.line,
                    reason,
                })
            }
        }
    }

    /// Registers a file of the host as the contents of a path. The error says why it cannot.
    fn contents(&mut self, path: &[u8], location: PathBuf) -> Result<Kind, String> {
        let name = location.to_string_lossy().into_owned();
        let stat = rustix::fs::stat(&location).map_err(|error| {
            format!(
                "the file '{name}' cannot be read: {}",
                std::io::Error::from(error)
            )
        })?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(format!("'{name}' is no regular file"));
        }
        let identity = Identity::of_stat(&stat);
        let sparse = (stat.st_blocks as u64).saturating_mul(512) < identity.size;
        self.locations.insert(path.to_vec(), location);
        Ok(Kind::File(Contents {
            size: identity.size,
            data: Data::HostFile { sparse, identity },
        }))
    }
}

impl Amendment {
    fn new(path: Vec<u8>, line: usize) -> Self {
        Self {
            path,
            kind: AmendedKind::Any,
            mode: None,
            uid: None,
            gid: None,
            mtime: None,
            optional: false,
            line,
        }
    }

    /// Whether an entry of this kind is kept, so that only its metadata change.
    fn fits(&self, kind: &Kind) -> bool {
        match (&self.kind, kind) {
            (AmendedKind::Any, _) | (AmendedKind::File, Kind::File(_) | Kind::HardLink(_)) => true,
            (AmendedKind::Made(Kind::File(_)), _) => false,
            (AmendedKind::Made(made), kind) => made == kind,
            (AmendedKind::File, _) => false,
        }
    }

    fn set(&self, entry: &mut Entry) {
        // The mode of a symbolic link means nothing, and Linux cannot change it.
        let mode = self
            .mode
            .filter(|_| !matches!(entry.kind, Kind::Symlink(_)));
        entry.mode = mode.unwrap_or(entry.mode);
        entry.uid = self.uid.unwrap_or(entry.uid);
        entry.gid = self.gid.unwrap_or(entry.gid);
        entry.mtime = self.mtime.unwrap_or(entry.mtime);
    }

    /// Returns the entry, if all of it is given. Owners that are not given are root.
    fn made(&self) -> Option<Entry> {
        let AmendedKind::Made(kind) = &self.kind else {
            return None;
        };
        let mode = match kind {
            Kind::Directory => 0o755,
            Kind::Symlink(_) => 0o777,
            _ => 0o644,
        };
        let mut entry = Entry {
            path: self.path.clone(),
            kind: kind.clone(),
            mode,
            uid: 0,
            gid: 0,
            mtime: Time::default(),
            xattrs: Vec::new(),
            flags: None,
            project: None,
        };
        self.set(&mut entry);
        Some(entry)
    }
}

impl Source for Manifest {
    fn scan(&self, sink: &mut dyn Sink) -> Result<()> {
        self.warnings
            .iter()
            .for_each(|warning| sink.warn(warning.clone()));
        for amendment in &self.amendments {
            if let Some(entry) = self.apply(amendment, None)? {
                sink.entry(entry)?;
            }
        }
        Ok(())
    }

    fn open(&self, path: &[u8], contents: &Contents) -> Result<Opened> {
        let (Some(location), Data::HostFile { identity, .. }) =
            (self.locations.get(path), &contents.data)
        else {
            let reason = "its contents are of another source".to_owned();
            return Err(Error::Refused {
                path: shown(path),
                reason,
            });
        };
        let name = location.to_string_lossy();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(location, flags, rustix::fs::Mode::empty())
            .map_err(|error| Error::io(&*name, error))?;
        let opened = Opened::own(File::from(file), *identity);
        opened.check_unchanged(name.as_bytes()).map(|()| opened)
    }
}

/// The lines of a manifest without comments and empty lines, with their numbers.
struct Lines {
    name: String,
    lines: Vec<(usize, Vec<u8>)>,
}

impl Lines {
    fn error(&self, line: usize, reason: impl Into<String>) -> Error {
        Error::Line {
            manifest: self.name.clone(),
            line,
            reason: reason.into(),
        }
    }
}

/// Reads lines. A `\` at the end of one continues it.
fn lines(mut stream: impl BufRead, name: String) -> Result<Lines> {
    let mut lines = Vec::new();
    let mut number = 0;
    let mut start = None;
    let mut whole = Vec::new();
    loop {
        let mut line = Vec::new();
        let read = (&mut stream)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line);
        let read = read.map_err(|error| Error::io(&name, error))?;
        number += 1;
        if read as u64 == LONGEST_LINE || (whole.len() + read) as u64 > LONGEST_LINE {
            let reason = "the line is too long".to_owned();
            return Err(Error::Line {
                manifest: name,
                line: number,
                reason,
            });
        }
        let text = line.trim_ascii();
        let (text, continues) = match text.strip_suffix(b"\\") {
            Some(text) if read > 0 => (text, true),
            _ => (text, false),
        };
        start.get_or_insert(number);
        whole.extend_from_slice(text);
        if continues {
            whole.push(b' ');
            continue;
        }
        let first = start.take().unwrap_or(number);
        let text = std::mem::take(&mut whole);
        if !text.is_empty() && (!text.starts_with(b"#") || text.starts_with(b"#mtree")) {
            lines.push((first, text));
        }
        if read == 0 {
            return Ok(Lines { name, lines });
        }
    }
}

/// Returns the words of a line.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// Reads a number, in octal digits if the base is 8.
fn number(word: &[u8], base: u32) -> Option<u32> {
    std::str::from_utf8(word)
        .ok()
        .and_then(|text| u32::from_str_radix(text, base).ok())
}

#[cfg(test)]
mod tests;
