//! A directory of a volume as a tree.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::Arc;

use extern4_tree::{
    Contents, Data, Entry, Error as TreeError, Kind, Opened, Piece, ReadAt, Result as TreeResult, Sink,
    Source, Time, Unwanted,
};
use extern4_vfs::lookup::PATH_MAX;
use extern4_vfs::{FileFlags, FileType};

use crate::dir::DirEntry;
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::metadata::Metadata;
use crate::session::Session;

/// The inode of a volume's root directory.
const ROOT_INO: u64 = 2;
/// The directory for files that a check finds without a name.
const LOST_FOUND: &str = "lost+found";
/// Flags that a tree cannot have, with their names.
const LEFT_OUT: &[(FileFlags, &str)] = &[
    (FileFlags::IMMUTABLE, "immutable (i)"),
    (FileFlags::APPEND, "append only (a)"),
    (FileFlags::CASEFOLD, "names without regard to case (F)"),
    (FileFlags::VERITY, "protected by fs-verity (V)"),
    (FileFlags::PROJINHERIT, "inherited project (P)"),
];

/// A directory of a volume as a tree: all that the session may see, with owners, modes, times,
/// links, devices, holes and extended attributes.
///
/// The entries come in the order of their names' bytes, directory by directory. An empty
/// `lost+found` of the volume's root is left out, since each volume has its own.
pub struct VolumeSource {
    top: Session,
}

impl VolumeSource {
    /// Takes the directory in which the session stands: the volume's root, unless
    /// [`Session::at`] chose another one.
    pub fn new(session: Session) -> Self {
        Self { top: session }
    }
}

impl Source for VolumeSource {
    fn scan(&self, sink: &mut dyn Sink) -> TreeResult<()> {
        let unwanted = sink.unwanted();
        let (seen, entered, flags) = Default::default();
        Scan { sink, unwanted, seen, entered, flags }.run(&self.top)
    }

    fn open(&self, path: &[u8], _: &Contents) -> TreeResult<Opened> {
        let file = open(&self.top, path).map_err(|error| failed(path, error))?;
        Ok(Opened::other(Arc::new(file)))
    }
}

impl ReadAt for File {
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            let done = self.read_at(buf, offset)?;
            if done == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf = &mut buf[done..];
            offset += done as u64;
        }
        Ok(())
    }
}

/// An error at a path of the source.
fn failed(path: &[u8], error: Error) -> TreeError {
    TreeError::Source(Box::new(error.at(&Path::new("/").join(OsStr::from_bytes(path)))))
}

/// Opens a file whose path may be longer than a call takes.
fn open(top: &Session, mut path: &[u8]) -> Result<File> {
    let mut session = top.clone();
    while path.len() >= PATH_MAX
        && let Some(end) = path[..PATH_MAX].iter().rposition(|byte| *byte == b'/')
    {
        session = session.at(OsStr::from_bytes(&path[..end]))?;
        path = &path[end + 1..];
    }
    session.open(OsStr::from_bytes(path))
}

/// A directory whose names are being visited.
struct Level {
    session: Session,
    path: Vec<u8>,
    /// The names left to visit, the next one last.
    entries: Vec<DirEntry>,
}

/// A walk that gives all it meets to a sink.
struct Scan<'a> {
    sink: &'a mut dyn Sink,
    unwanted: Option<Unwanted>,
    /// The first path of each file with several names.
    seen: HashMap<u64, Vec<u8>>,
    /// Directories entered. A sound volume leads to each of them once.
    entered: HashSet<u64>,
    /// The names of flags that a warning has told of.
    flags: BTreeSet<&'static str>,
}

impl Scan<'_> {
    fn run(mut self, top: &Session) -> TreeResult<()> {
        self.member(top, Path::new("."), &[])?;
        let entries = names_of_top(top).map_err(|error| failed(b"", error))?;
        let mut levels = vec![Level { session: top.clone(), path: Vec::new(), entries }];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.entries.pop() else {
                levels.pop();
                continue;
            };
            let name = entry.file_name();
            let path = match &*level.path {
                b"" => name.as_bytes().to_vec(),
                path => [path, b"/", name.as_bytes()].concat(),
            };
            if !is_name(name.as_bytes()) {
                let cause = "the directory has an entry that is no name";
                return Err(failed(&level.path, Error::new(ErrorKind::Corrupt, "read").because(cause)));
            }
            let is_directory = self.member(&level.session, Path::new(name), &path)?;
            if is_directory && !self.is_unwanted(&path) {
                let session = level.session.at(name).map_err(|error| failed(&path, error))?;
                let entries = sorted(&session).map_err(|error| failed(&path, error))?;
                levels.push(Level { session, path, entries });
            }
        }
        Ok(())
    }

    fn is_unwanted(&self, path: &[u8]) -> bool {
        self.unwanted.as_ref().is_some_and(|unwanted| unwanted(path))
    }

    /// Gives one member. Says whether it is a directory.
    fn member(&mut self, session: &Session, name: &Path, path: &[u8]) -> TreeResult<bool> {
        let metadata = session.symlink_metadata(name).map_err(|error| failed(path, error))?;
        if metadata.is_dir() && !self.entered.insert(metadata.ino()) {
            let cause = "the volume leads to this directory twice";
            return Err(failed(path, Error::new(ErrorKind::Corrupt, "read").because(cause)));
        }
        if !metadata.is_dir() && metadata.nlink() > 1 {
            if let Some(first) = self.seen.get(&metadata.ino()) {
                let kind = Kind::HardLink(first.clone());
                self.sink.entry(entry(kind, path, &metadata, Vec::new()))?;
                return Ok(false);
            }
            self.seen.insert(metadata.ino(), path.to_vec());
        }
        self.warn_of_flags(path, metadata.flags());
        let kind = kind(session, name, &metadata).map_err(|error| failed(path, error))?;
        let xattrs = xattrs(session, name).map_err(|error| failed(path, error))?;
        self.sink.entry(entry(kind, path, &metadata, xattrs))?;
        Ok(metadata.is_dir())
    }

    /// Warns of flags that are left out, once of each.
    fn warn_of_flags(&mut self, path: &[u8], flags: FileFlags) {
        for (_, name) in LEFT_OUT.iter().filter(|(flag, _)| flags.contains(*flag)) {
            if self.flags.insert(name) {
                let path = String::from_utf8_lossy(path);
                self.sink.warn(format!("'/{path}': the inode's flag '{name}' is left out"));
            }
        }
    }
}

/// Returns whether these bytes lead one step down. Those in a volume may be something else.
fn is_name(bytes: &[u8]) -> bool {
    !matches!(bytes, b"" | b"." | b"..") && !bytes.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Returns the names in the tree's root, the last first.
fn names_of_top(top: &Session) -> Result<Vec<DirEntry>> {
    let mut entries = sorted(top)?;
    if top.metadata(".")?.ino() == ROOT_INO && is_empty(top, LOST_FOUND)? {
        entries.retain(|entry| entry.file_name() != LOST_FOUND);
    }
    Ok(entries)
}

/// Returns whether there is a directory with this name, and nothing is in it.
fn is_empty(session: &Session, name: &str) -> Result<bool> {
    let is_directory = session.exists(name)? && session.symlink_metadata(name)?.is_dir();
    Ok(is_directory && session.read_dir(name)?.next().is_none())
}

/// Returns the names in a directory, the last first.
fn sorted(session: &Session) -> Result<Vec<DirEntry>> {
    let mut entries = session.read_dir(".")?.collect::<Result<Vec<_>>>()?;
    entries.sort_unstable_by(|a, b| b.file_name().cmp(a.file_name()));
    Ok(entries)
}

fn entry(kind: Kind, path: &[u8], metadata: &Metadata, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Entry {
    let mtime = metadata.mtime();
    Entry {
        path: path.to_vec(),
        kind,
        mode: (metadata.mode() & 0o7777) as u16,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: Time { secs: mtime.sec, nanos: mtime.nsec },
        xattrs,
    }
}

fn kind(session: &Session, name: &Path, metadata: &Metadata) -> Result<Kind> {
    let (major, minor) = (metadata.rdev().major, metadata.rdev().minor);
    Ok(match metadata.file_type() {
        FileType::Directory => Kind::Directory,
        FileType::Regular => Kind::File(contents(&session.open(name)?, metadata.len())?),
        FileType::Symlink => Kind::Symlink(session.read_link(name)?.into_os_string().into_vec()),
        FileType::CharDevice => Kind::CharDevice { major, minor },
        FileType::BlockDevice => Kind::BlockDevice { major, minor },
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
    })
}

fn xattrs(session: &Session, name: &Path) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut xattrs = Vec::new();
    for attribute in session.llistxattr(name)? {
        if let Some(value) = session.lgetxattr(name, &attribute)? {
            xattrs.push((attribute.into_vec(), value));
        }
    }
    xattrs.sort();
    Ok(xattrs)
}

/// Returns where a file has data.
fn contents(file: &File, size: u64) -> Result<Contents> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < size
        && let Some(offset) = file.seek_data(at)?
    {
        at = file.seek_hole(offset)?.unwrap_or(size).min(size);
        pieces.push(Piece { offset, len: at - offset, position: offset });
    }
    let is_whole = match pieces[..] {
        [] => size == 0,
        [piece] => piece.offset == 0 && piece.len == size,
        _ => false,
    };
    let data = if is_whole { Data::Stored { position: 0 } } else { Data::Pieces(pieces.into()) };
    Ok(Contents { size, data })
}
