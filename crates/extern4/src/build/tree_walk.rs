//! Walks over trees of volumes, whose files come as entries: the form that archives and directories
//! of the host have, too.
//!
//! [`VolumeSource`](super::VolumeSource) and the modules `export` and `tar` walk volumes through
//! it. The order does not depend on how a volume stores its directories. A damaged volume gives
//! errors, but the walk always ends.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use extern4_disk::inode::InodeFlags;
use extern4_tree::{Contents, Data, Entry, Kind, Piece, Time, Unwanted};
use extern4_vfs::FileType;

use crate::dir::DirEntry;
use crate::error::{Error, Result};
use crate::file::File;
use crate::metadata::Metadata;
use crate::session::Session;
use crate::walk::Walk;

/// The inode of a volume's root directory.
const ROOT_INO: u64 = 2;
/// The directory for files that a check finds without a name.
const LOST_FOUND: &[u8] = b"lost+found";

/// A walk over a directory of a volume and everything below it, in the order of the names' bytes, a
/// directory before its entries.
///
/// A file with several names is a hard link to its first name at all others. A file that the walk
/// cannot read is an error in its place; the walk then goes on.
pub struct TreeWalk {
    walk: Walk,
    /// The length of the top's path, which begins all paths of the walk.
    top_len: usize,
    /// The top, until the first call returns it.
    top: Option<TreeFile>,
    reader: TreeReader,
    /// Directories that are not entered.
    unwanted: Option<Unwanted>,
    /// Whether the walk starts at the root of the volume.
    is_whole: bool,
}

/// Reads the files of a tree as entries.
#[derive(Default)]
pub struct TreeReader {
    /// The first path of each file with several names, by its inode number.
    first_paths: HashMap<u64, Vec<u8>>,
}

/// A file that a [`TreeWalk`] found.
pub struct TreeFile {
    /// The file, as [`TreeReader::file`] reads it.
    pub entry: Entry,
    /// The attributes of its inode.
    pub metadata: Metadata,
    /// Whether it is the empty `lost+found` in a volume's root directory. Every volume has its own.
    pub is_lost_found: bool,
    /// A session in the file's directory.
    session: Session,
    name: Box<[u8]>,
}

/// A file of a volume that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// The path below the top of the walk.
    pub path: Vec<u8>,
    /// Why the entry could not be read.
    pub error: Error,
}

impl TreeWalk {
    /// Starts a walk over the directory in which the session stands.
    ///
    /// # Errors
    /// That directory cannot be read.
    pub fn new(session: &Session) -> std::result::Result<Self, Unreadable> {
        Self::of(session, b".")
    }

    /// Starts a walk over the file `name` in the directory in which the session stands, and all
    /// below it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(session: &Session, name: &[u8]) -> std::result::Result<Self, Unreadable> {
        let mut walk = Self {
            walk: session.walk(OsStr::from_bytes(name)).sorted(),
            top_len: name.len(),
            top: None,
            reader: TreeReader::default(),
            unwanted: None,
            is_whole: false,
        };
        let top = walk.next().transpose()?;
        walk.is_whole = top
            .as_ref()
            .is_some_and(|top| top.metadata.ino() == ROOT_INO);
        walk.top = top;
        Ok(walk)
    }

    /// Enters no directory below the top whose path is unwanted. Its own entry comes all the same.
    pub fn without(mut self, unwanted: Option<Unwanted>) -> Self {
        self.unwanted = unwanted;
        self
    }

    /// Makes the next name of a file its first. A caller that leaves the file out at its first name
    /// calls this, for then no further name can be a link to that.
    pub fn forget_first(&mut self, file: &TreeFile) {
        if !matches!(file.entry.kind, Kind::HardLink(_)) {
            self.reader.first_paths.remove(&file.metadata.ino());
        }
    }

    fn visit(&mut self, found: &DirEntry) -> Result<TreeFile> {
        let session = found.parent();
        let name = found.file_name();
        let path = self.below_top(found.path());
        let (entry, metadata) = self.reader.file(&session, name.as_bytes(), path)?;
        let is_entered = entry.kind == Kind::Directory
            && !self
                .unwanted
                .as_ref()
                .is_some_and(|unwanted| unwanted(&entry.path));
        if !is_entered {
            self.walk.skip_subtree();
        }
        let is_lost_found = is_entered
            && self.is_whole
            && entry.path == LOST_FOUND
            && session
                .read_dir(name)
                .is_ok_and(|mut names| names.next().is_none());
        Ok(TreeFile {
            entry,
            metadata,
            is_lost_found,
            name: name.as_bytes().into(),
            session,
        })
    }

    /// Returns the path below the top for a path of the walk.
    fn below_top(&self, path: &Path) -> Vec<u8> {
        let below = path.as_os_str().as_bytes().get(self.top_len + 1..);
        below.unwrap_or_default().to_vec()
    }
}

impl Iterator for TreeWalk {
    type Item = std::result::Result<TreeFile, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(top) = self.top.take() {
            return Some(Ok(top));
        }
        Some(match self.walk.next()? {
            Ok(found) => self.visit(&found).map_err(|error| {
                self.walk.skip_subtree();
                Unreadable {
                    path: self.below_top(found.path()),
                    error,
                }
            }),
            Err(error) => Err(Unreadable {
                path: error
                    .path()
                    .map_or_else(Vec::new, |path| self.below_top(path)),
                error,
            }),
        })
    }
}

impl TreeReader {
    /// Reads the file `name` in the session's directory. `path` is its path below the top. The
    /// contents of a regular file are [`Data::Stored`] as a whole.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn file(
        &mut self,
        session: &Session,
        name: &[u8],
        path: Vec<u8>,
    ) -> Result<(Entry, Metadata)> {
        let metadata = session.symlink_metadata(OsStr::from_bytes(name))?;
        let kind = self.kind(session, name, &path, &metadata)?;
        let xattrs = match kind {
            Kind::HardLink(_) => Vec::new(),
            _ => xattrs(session, OsStr::from_bytes(name))?,
        };
        let mtime = metadata.mtime();
        let entry = Entry {
            path,
            kind,
            mode: (metadata.mode() & 0o7777) as u16,
            uid: metadata.uid(),
            gid: metadata.gid(),
            mtime: Time {
                secs: mtime.sec,
                nanos: mtime.nsec,
            },
            xattrs,
            flags: Some(InodeFlags::from_bits_retain(metadata.flags().bits()) & InodeFlags::KEPT),
            project: Some(metadata.project()),
        };
        Ok((entry, metadata))
    }

    fn kind(
        &mut self,
        session: &Session,
        name: &[u8],
        path: &[u8],
        metadata: &Metadata,
    ) -> Result<Kind> {
        if !metadata.is_dir() && metadata.nlink() > 1 {
            if let Some(first) = self.first_paths.get(&metadata.ino()) {
                return Ok(Kind::HardLink(first.clone()));
            }
            self.first_paths.insert(metadata.ino(), path.to_vec());
        }
        let major = metadata.rdev().major;
        let minor = metadata.rdev().minor;
        Ok(match metadata.file_type() {
            FileType::Directory => Kind::Directory,
            FileType::Regular => Kind::File(Contents {
                size: metadata.len(),
                data: Data::Stored { position: 0 },
            }),
            FileType::Symlink => Kind::Symlink(
                session
                    .read_link(OsStr::from_bytes(name))?
                    .into_os_string()
                    .into_vec(),
            ),
            FileType::CharDevice => Kind::CharDevice { major, minor },
            FileType::BlockDevice => Kind::BlockDevice { major, minor },
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
        })
    }
}

impl TreeFile {
    /// Opens the contents of a regular file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(&self) -> Result<File> {
        self.session.open(OsStr::from_bytes(&self.name))
    }

    /// Finds where the file, which is open, has data. Positions are offsets in it.
    ///
    /// # Errors
    /// The file's map cannot be read.
    pub fn contents(&self, opened: &File) -> Result<Contents> {
        let size = self.metadata.len();
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < size
            && let Some(offset) = opened.seek_data(at)?
        {
            at = opened.seek_hole(offset)?.unwrap_or(size).min(size);
            pieces.push(Piece {
                offset,
                len: at - offset,
                position: offset,
            });
        }
        let is_whole = match pieces[..] {
            [] => size == 0,
            [piece] => piece.offset == 0 && piece.len == size,
            _ => false,
        };
        let data = if is_whole {
            Data::Stored { position: 0 }
        } else {
            Data::Pieces(pieces.into())
        };
        Ok(Contents { size, data })
    }
}

pub(super) fn xattrs(session: &Session, name: &OsStr) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    for attribute in session.llistxattr(name)? {
        if let Some(value) = session.lgetxattr(name, &attribute)? {
            found.push((attribute.into_vec(), value));
        }
    }
    found.sort();
    Ok(found)
}
