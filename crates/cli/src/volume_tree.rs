//! Trees of volumes as entries: the form that archives and directories of the host have, too.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use extern4::{File, FileType, Metadata, Session};
use extern4_tree::{Contents, Data, Entry, Kind, Piece, Time};

use crate::app::{App, Target, approach};
use crate::exit_status::ExitStatus;

/// The directory for files that a check finds without a name. Every volume has its own.
pub(crate) const LOST_FOUND: &[u8] = b"lost+found";

/// A walk over a directory of a volume and everything below it, in the order of the names' bytes, a
/// directory before its entries.
///
/// A file with several names is a hard link to its first name at all others. A file that the walk
/// cannot read is an error in its place; the walk then goes on.
pub(crate) struct TreeWalk {
    levels: Vec<Level>,
    /// The results of the next calls.
    ready: VecDeque<Result<TreeFile, Unreadable>>,
    reader: TreeReader,
    /// Directories entered. A sound volume never leads to one twice, so this set ends a walk over
    /// an unsound one.
    entered: HashSet<u64>,
}

/// Reads the files of a tree as entries.
#[derive(Default)]
pub(crate) struct TreeReader {
    /// The first path of each file with several names, by its inode number.
    first_paths: HashMap<u64, Vec<u8>>,
}

/// A directory whose names are being visited.
struct Level {
    session: Session,
    /// The directory's path below the top.
    path: Vec<u8>,
    /// The names left to visit, the next one last.
    names: Vec<Box<[u8]>>,
}

/// A file that a [`TreeWalk`] found.
pub(crate) struct TreeFile {
    /// The file, as [`TreeReader::file`] reads it.
    pub(crate) entry: Entry,
    /// Whether it is a directory without entries.
    pub(crate) is_empty_directory: bool,
    /// A session in the file's directory.
    session: Session,
    name: Box<[u8]>,
}

/// A file of a volume that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    /// The path below the top of the walk.
    pub(crate) path: Vec<u8>,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Error(extern4::Error),
    /// The walk has entered this directory before.
    Again,
    /// The name cannot be that of a file.
    Name,
}

impl From<extern4::Error> for Reason {
    fn from(error: extern4::Error) -> Self {
        Self::Error(error)
    }
}

impl Unreadable {
    pub(crate) fn new(path: Vec<u8>, error: extern4::Error) -> Self {
        Self { path, reason: Reason::Error(error) }
    }

    /// Reports it, for a walk over an image path.
    pub(crate) fn report(&self, target: &Target, app: &mut App) {
        let image_path = target.volume.image_path(&path_below(target.path(), &self.path));
        match &self.reason {
            Reason::Error(error) => app.error(image_path, error),
            Reason::Again => {
                let reason = "the directory has more than one name, or is inside itself";
                app.fail_at(ExitStatus::Corrupt, image_path, reason);
            }
            Reason::Name => app.fail_at(ExitStatus::Corrupt, image_path, "not a file name"),
        }
    }
}

impl TreeWalk {
    /// Starts a walk over the directory `top`.
    pub(crate) fn new(session: &Session, top: &Path) -> Result<Self, Unreadable> {
        let mut walk = Self {
            levels: Vec::new(),
            ready: VecDeque::new(),
            reader: TreeReader::default(),
            entered: HashSet::new(),
        };
        let visited = at(session, top.as_os_str().as_bytes())
            .map_err(Reason::Error)
            .and_then(|session| walk.visit(&session, b".", Vec::new()));
        visited.map_err(|reason| Unreadable { path: Vec::new(), reason })?;
        Ok(walk)
    }

    /// Finds a file, and lists it if it is a directory.
    fn visit(&mut self, session: &Session, name: &[u8], path: Vec<u8>) -> Result<(), Reason> {
        let (entry, metadata) = self.reader.file(session, name, path)?;
        let level = match entry.kind {
            Kind::Directory => Some(self.list(session, name, &entry.path, metadata.ino())),
            _ => None,
        };
        let is_empty_directory = matches!(&level, Some(Ok(level)) if level.names.is_empty());
        let path = entry.path.clone();
        let (session, name) = (session.clone(), Box::from(name));
        self.ready.push_back(Ok(TreeFile { entry, is_empty_directory, session, name }));
        match level {
            Some(Ok(level)) => self.levels.push(level),
            Some(Err(reason)) => self.ready.push_back(Err(Unreadable { path, reason })),
            None => {}
        }
        Ok(())
    }

    fn list(&mut self, session: &Session, name: &[u8], path: &[u8], ino: u64) -> Result<Level, Reason> {
        if !self.entered.insert(ino) {
            return Err(Reason::Again);
        }
        let session = session.at(OsStr::from_bytes(name))?;
        let names = session.read_dir(".")?.map(|entry| Ok(Box::from(entry?.file_name().as_bytes())));
        let mut names = names.collect::<extern4::Result<Vec<Box<[u8]>>>>()?;
        names.sort_unstable_by(|left, right| right.cmp(left));
        Ok(Level { session, path: path.to_vec(), names })
    }
}

impl Iterator for TreeWalk {
    type Item = Result<TreeFile, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            let level = self.levels.last_mut()?;
            let Some(name) = level.names.pop() else {
                self.levels.pop();
                continue;
            };
            let path = joined(&level.path, &name);
            if !is_step(OsStr::from_bytes(&name)) {
                return Some(Err(Unreadable { path, reason: Reason::Name }));
            }
            let session = level.session.clone();
            if let Err(reason) = self.visit(&session, &name, path.clone()) {
                return Some(Err(Unreadable { path, reason }));
            }
        }
    }
}

impl TreeReader {
    /// Reads the file `name` in the session's directory. `path` is its path below the top. The
    /// contents of a regular file are [`Data::Stored`] as a whole.
    pub(crate) fn file(
        &mut self,
        session: &Session,
        name: &[u8],
        path: Vec<u8>,
    ) -> extern4::Result<(Entry, Metadata)> {
        let metadata = session.symlink_metadata(OsStr::from_bytes(name))?;
        let kind = self.kind(session, name, &path, &metadata)?;
        let mut entry = entry(kind, path, &metadata);
        if !matches!(entry.kind, Kind::HardLink(_)) {
            entry.xattrs = xattrs(session, OsStr::from_bytes(name))?;
        }
        Ok((entry, metadata))
    }

    fn kind(
        &mut self,
        session: &Session,
        name: &[u8],
        path: &[u8],
        metadata: &Metadata,
    ) -> extern4::Result<Kind> {
        if !metadata.is_dir() && metadata.nlink() > 1 {
            if let Some(first) = self.first_paths.get(&metadata.ino()) {
                return Ok(Kind::HardLink(first.clone()));
            }
            self.first_paths.insert(metadata.ino(), path.to_vec());
        }
        let (major, minor) = (metadata.rdev().major, metadata.rdev().minor);
        Ok(match metadata.file_type() {
            FileType::Directory => Kind::Directory,
            FileType::Regular => {
                Kind::File(Contents { size: metadata.len(), data: Data::Stored { position: 0 } })
            }
            FileType::Symlink => {
                Kind::Symlink(session.read_link(OsStr::from_bytes(name))?.into_os_string().into_vec())
            }
            FileType::CharDevice => Kind::CharDevice { major, minor },
            FileType::BlockDevice => Kind::BlockDevice { major, minor },
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
        })
    }
}

impl TreeFile {
    /// Opens the contents of a regular file.
    pub(crate) fn open(&self) -> extern4::Result<File> {
        self.session.open(OsStr::from_bytes(&self.name))
    }
}

/// Returns a session that stands in a directory, given by a path of any length. The empty path is
/// that of the session's own directory.
pub(crate) fn at(session: &Session, path: &[u8]) -> extern4::Result<Session> {
    if path.is_empty() {
        return Ok(session.clone());
    }
    let (session, rest) = approach(session, path)?;
    session.at(OsStr::from_bytes(rest))
}

/// Returns the path of a name in a directory below the top.
pub(crate) fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Returns the path in the volume of a path below a directory.
pub(crate) fn path_below(top: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() { top.to_owned() } else { top.join(OsStr::from_bytes(path)) }
}

fn entry(kind: Kind, path: Vec<u8>, metadata: &Metadata) -> Entry {
    let mtime = metadata.mtime();
    Entry {
        path,
        kind,
        mode: (metadata.mode() & 0o7777) as u16,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: Time { secs: mtime.sec, nanos: mtime.nsec },
        xattrs: Vec::new(),
    }
}

fn xattrs(session: &Session, name: &OsStr) -> extern4::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    for attribute in session.llistxattr(name)? {
        if let Some(value) = session.lgetxattr(name, &attribute)? {
            found.push((attribute.into_vec(), value));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the contents of a file with its holes. Positions are offsets in the file.
pub(crate) fn mapped(file: &File, size: u64) -> extern4::Result<Contents> {
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

/// Returns whether `name` is one step down. Names in volumes may be something else.
pub(crate) fn is_step(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    !matches!(bytes, b"" | b"." | b"..") && !bytes.iter().any(|byte| matches!(byte, b'/' | 0))
}

#[cfg(test)]
mod tests {
    use super::is_step;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn only_plain_names_are_steps() {
        for name in ["", ".", "..", "a/b", "/", "a\0b"] {
            assert!(!is_step(OsStr::from_bytes(name.as_bytes())), "{name:?}");
        }
        assert!(is_step(OsStr::new("...")));
        assert!(is_step(OsStr::from_bytes(b"\xff\n")));
    }
}
