//! Directories: their entries, and walks over whole trees.
//!
//! [`Session::read_dir`](crate::Session::read_dir) and [`walk`](crate::Session::walk) return these
//! iterators to programs and to the command. A listing has each name that is there throughout
//! exactly once, and perhaps names that come or go meanwhile. A walk does not follow symbolic
//! links. An error of one directory is an item, and the walk goes on after it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extern4_vfs as vfs;
use vfs::{Attr, DirBatch, FileType, LookupFlags, OpenFile, OpenFlags};

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Metadata;
use crate::session::bytes;

/// Entries fetched at a time.
const BATCH: usize = 1024;

/// One entry of a directory or a walk.
pub struct DirEntry {
    /// The session, standing in the directory that has the entry.
    parent: Arc<vfs::Session>,
    path: PathBuf,
    /// The length in bytes of the entry's name in `parent`, which ends `path`.
    name_len: usize,
    depth: usize,
    ino: u64,
    kind: Option<FileType>,
    attr: Option<Attr>,
}

impl DirEntry {
    /// Returns the path, starting with the one that the walk or listing was asked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path as a buffer, starting with the one that the walk or listing was asked for.
    pub fn into_path(self) -> PathBuf {
        self.path
    }

    /// Returns the last component of the path.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(self.name())
    }

    fn name(&self) -> &[u8] {
        let path = bytes(&self.path);
        &path[path.len() - self.name_len..]
    }

    /// Returns the number of directories between the start and this entry: 0 for the start itself.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the inode number.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Returns the type. Where the directory stores types, the call reads it from there, at no
    /// cost.
    ///
    /// # Errors
    /// `EIO` or [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the inode has to be read;
    /// `ENOENT` if the entry is gone by then.
    pub fn file_type(&self) -> Result<FileType> {
        match self.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.metadata()?.file_type()),
        }
    }

    /// Returns the attributes of the entry itself, even if it is a symbolic link.
    ///
    /// # Errors
    /// As [`file_type`](Self::file_type), and `EACCES` if the caller may not search the directory.
    pub fn metadata(&self) -> Result<Metadata> {
        match self.attr {
            Some(attr) => Ok(Metadata(attr)),
            None => self
                .parent
                .stat(self.name(), LookupFlags::NOFOLLOW)
                .map(Metadata)
                .map_err(|e| Error::vfs("stat", &self.path, e)),
        }
    }

    /// Returns a view of the volume that stands in the directory of this entry. From there,
    /// [`file_name`](Self::file_name) alone leads to the entry, however long its path is.
    pub fn parent(&self) -> crate::Session {
        crate::Session::new(vfs::Session::clone(&self.parent))
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirEntry")
            .field("path", &self.path)
            .field("ino", &self.ino)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// The state of listing one open directory.
struct Listing {
    session: Arc<vfs::Session>,
    directory: OpenFile,
    path: PathBuf,
    depth: usize,
    with_metadata: bool,
    batch: DirBatch,
    /// Entries of the batch that the caller has received.
    taken: usize,
    cookie: u64,
    done: bool,
}

impl Listing {
    fn new(
        session: &vfs::Session,
        directory: OpenFile,
        path: PathBuf,
        depth: usize,
        with_metadata: bool,
    ) -> Self {
        let session = Arc::new(session.at(directory.location()));
        let batch = DirBatch::new();
        Self {
            session,
            directory,
            path,
            depth,
            with_metadata,
            batch,
            taken: 0,
            cookie: 0,
            done: false,
        }
    }

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            if self.taken == self.batch.len() {
                if self.done {
                    return None;
                }
                if let Err(error) = self.fetch() {
                    self.done = true;
                    return Some(Err(error));
                }
                continue;
            }
            let entry = self.batch.get(self.taken);
            self.taken += 1;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            return Some(Ok(DirEntry {
                parent: Arc::clone(&self.session),
                path: join(&self.path, OsStr::from_bytes(entry.name)),
                name_len: entry.name.len(),
                depth: self.depth,
                ino: entry.ino,
                kind: entry.kind,
                attr: entry.attr.copied(),
            }));
        }
    }

    fn fetch(&mut self) -> Result<()> {
        let listed = if self.with_metadata {
            self.directory
                .read_dir_plus(self.cookie, BATCH, &mut self.batch)
        } else {
            self.directory.read_dir(self.cookie, BATCH, &mut self.batch)
        };
        self.taken = 0;
        self.done = self.batch.reaches_end();
        if let Some(cookie) = self.batch.next_cookie() {
            self.cookie = cookie;
        }
        listed.map_err(|e| {
            self.done = true;
            Error::vfs("list", &self.path, e)
        })
    }
}

/// Joins as [`Path::join`] does, in memory that is allocated once.
fn join(directory: &Path, name: &OsStr) -> PathBuf {
    let mut path = PathBuf::with_capacity(directory.as_os_str().len() + 1 + name.len());
    path.push(directory);
    path.push(name);
    path
}

/// An iterator over the entries of a directory; see
/// [`Session::read_dir`](crate::Session::read_dir).
pub struct ReadDir(Listing);

impl ReadDir {
    pub(crate) fn new(session: &vfs::Session, directory: OpenFile, path: &Path) -> Self {
        Self(Listing::new(session, directory, path.to_owned(), 1, false))
    }

    /// Fetches the attributes along with the entries, which is cheaper than one query for each.
    pub fn with_metadata(mut self) -> Self {
        self.0.with_metadata = true;
        self
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir")
            .field("path", &self.0.path)
            .finish_non_exhaustive()
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

/// A walk over a tree; see [`Session::walk`](crate::Session::walk).
pub struct Walk {
    session: Arc<vfs::Session>,
    /// The start of the walk; the first step takes it.
    start: Option<(PathBuf, LookupFlags)>,
    with_metadata: bool,
    /// The directory returned last; the next step enters it.
    pending: Option<Pending>,
    stack: Vec<Listing>,
    /// Directories entered. A sound volume never leads to one twice, so this set ends a walk over
    /// an unsound one.
    entered: HashSet<u64>,
}

struct Pending {
    parent: Arc<vfs::Session>,
    path: PathBuf,
    name_len: usize,
    depth: usize,
    ino: u64,
}

impl Walk {
    pub(crate) fn new(session: &vfs::Session, path: &Path, how: LookupFlags) -> Self {
        Self {
            session: Arc::new(session.clone()),
            start: Some((path.to_owned(), how)),
            with_metadata: false,
            pending: None,
            stack: Vec::new(),
            entered: HashSet::new(),
        }
    }

    /// Fetches the attributes along with the entries, which is cheaper than one query for each.
    pub fn with_metadata(mut self) -> Self {
        self.with_metadata = true;
        self
    }

    /// Does not descend into the directory returned last.
    pub fn skip_subtree(&mut self) {
        self.pending = None;
    }

    fn first(&mut self, path: PathBuf, how: LookupFlags) -> Result<DirEntry> {
        let attr = self
            .session
            .stat(bytes(&path), how)
            .map_err(|e| Error::vfs("stat", &path, e))?;
        Ok(DirEntry {
            parent: Arc::clone(&self.session),
            name_len: bytes(&path).len(),
            path,
            depth: 0,
            ino: attr.ino,
            kind: Some(attr.kind),
            attr: Some(attr),
        })
    }

    fn descend(&mut self, into: Pending) -> Result<()> {
        if !self.entered.insert(into.ino) {
            let twice = "the directory has more than one name, or is inside itself";
            return Err(Error::new(ErrorKind::Corrupt, "enter")
                .at(&into.path)
                .because(twice));
        }
        let path = bytes(&into.path);
        let name = &path[path.len() - into.name_len..];
        let open = || -> vfs::Result<OpenFile> {
            let location = into.parent.locate(name, LookupFlags::NOFOLLOW)?;
            into.parent
                .open_location(location, OpenFlags::READ | OpenFlags::DIRECTORY, path)
        };
        let directory = open().map_err(|e| Error::vfs("open", &into.path, e))?;
        self.stack.push(Listing::new(
            &into.parent,
            directory,
            into.path,
            into.depth + 1,
            self.with_metadata,
        ));
        Ok(())
    }

    /// Remembers a directory for the next step to enter.
    fn found(&mut self, entry: DirEntry) -> Result<DirEntry> {
        // Where the directory does not store types, the inode has the type. The walk does not enter
        // an entry whose inode it cannot read.
        let kind = match entry.kind {
            Some(kind) => kind,
            None => entry.metadata()?.file_type(),
        };
        if kind == FileType::Directory {
            self.pending = Some(Pending {
                parent: Arc::clone(&entry.parent),
                path: entry.path.clone(),
                name_len: entry.name_len,
                depth: entry.depth,
                ino: entry.ino,
            });
        }
        Ok(DirEntry {
            kind: Some(kind),
            ..entry
        })
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("depth", &self.stack.len())
            .finish_non_exhaustive()
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((path, how)) = self.start.take() {
            let first = self.first(path, how).and_then(|entry| self.found(entry));
            return Some(first);
        }
        if let Some(pending) = self.pending.take()
            && let Err(error) = self.descend(pending)
        {
            return Some(Err(error));
        }
        while let Some(listing) = self.stack.last_mut() {
            match listing.next() {
                Some(Ok(entry)) => return Some(self.found(entry)),
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.stack.pop();
                }
            }
        }
        None
    }
}

/// Returns whether `name` is one step down. Names in volumes may be something else.
pub fn is_step(name: &OsStr) -> bool {
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
