//! A tree by its names: what is at a path, which names a directory has, and the contents of files.
//!
//! `names` compares two trees by it, as `diff` of GNU does. Symbolic links lead on
//! in the tree: within the volume, on the host for one of its directories, and within an archive.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use extern4_tree::{Entry, Error as SourceError, Kind, Source, Time};
use extern4_vfs::FileType;
use rustix::fs::{OFlags, major, minor};

use super::change::file_type;
use super::contents::OpenFile;
use super::fault::Error;
use super::listing::{Listed, Listing, key};
use super::tree::{Root, Tree, open_in_source, open_in_volume};
use crate::dir::is_step;
use crate::error::ErrorKind;
use crate::metadata::Metadata;
use crate::session::Session;

/// The number of symbolic links that Linux follows on one path.
const MOST_LINKS: u32 = 40;

/// The inode of a volume's root directory.
const ROOT_INO: u64 = 2;
/// The directory for files that a check finds without a name.
const LOST_FOUND: &[u8] = b"lost+found";

/// A tree by its names.
pub struct View<'t>(Names<'t>);

enum Names<'t> {
    Volume(&'t Session),
    Directory(&'t Path),
    Listed {
        listing: Listing,
        source: &'t dyn Source,
    },
}

/// The type and attributes of the file at a path of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The type of the file itself, links not followed.
    pub file_type: FileType,
    /// The size of a regular file.
    pub size: u64,
    /// The time of the last change of the contents.
    pub modified: Time,
    /// The major and the minor number of a device.
    pub device: (u32, u32),
    /// Numbers that only names of the same file have in common.
    pub id: (u64, u64),
}

impl Tree {
    /// Returns the tree by its names. An archive is read to its end for that. One that can be read
    /// only once cannot be [compared](super::compare) then.
    ///
    /// # Errors
    /// The source cannot be listed.
    pub fn view(&self) -> Result<View<'_>, Error> {
        Ok(View(match &self.root {
            Root::Volume { top, .. } => Names::Volume(top),
            Root::Directory { path, .. } => Names::Directory(path),
            Root::Source(source) => {
                let mut listing = Listing::of_source(&**source);
                if let Some(failure) = listing.failure.take() {
                    return Err(failure.into());
                }
                Names::Listed {
                    listing,
                    source: &**source,
                }
            }
        }))
    }
}

impl View<'_> {
    /// Returns messages of the source about files that are left out or altered.
    pub fn warnings(&self) -> &[String] {
        match &self.0 {
            Names::Listed { listing, .. } => &listing.warnings,
            _ => &[],
        }
    }

    /// Returns whether the tree is in a volume.
    pub fn is_volume(&self) -> bool {
        matches!(self.0, Names::Volume(_))
    }

    /// Returns whether a path is that of the empty `lost+found` in the root of a volume. Every
    /// volume has its own.
    pub fn is_lost_found(&self, path: &[u8]) -> bool {
        let is_root = || matches!(self.node(b"", true), Ok(Some(node)) if node.id.1 == ROOT_INO);
        self.is_volume()
            && path == LOST_FOUND
            && is_root()
            && self.names(path).is_ok_and(|names| names.is_empty())
    }

    /// Returns what is at a path below the top, which is empty for the top. With `follow`, a
    /// symbolic link stands for the file that it leads to. `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or symbolic links lead in a circle.
    pub fn node(&self, path: &[u8], follow: bool) -> Result<Option<Node>, Error> {
        match &self.0 {
            Names::Volume(top) => {
                let (session, rest) = top.approach(Path::new(name(path)))?;
                let found = if follow {
                    session.metadata(rest)
                } else {
                    session.symlink_metadata(rest)
                };
                match found {
                    Ok(found) => Ok(Some(Node::of_volume(&found))),
                    Err(error) if error.errno() == extern4_vfs::Errno::ENOENT => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
            Names::Directory(top) => {
                let path = below(top, path);
                let found = if follow {
                    path.metadata()
                } else {
                    path.symlink_metadata()
                };
                match found {
                    Ok(found) => Ok(Some(Node::of_host(&found))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(host_error(&path, error)),
                }
            }
            Names::Listed { listing, .. } => Ok(
                resolve(listing, path, follow)?.map(|(_, listed)| Node::of_entry(&listed.entry))
            ),
        }
    }

    /// Returns the names in a directory, sorted by their bytes.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self, path: &[u8]) -> Result<BTreeSet<Vec<u8>>, Error> {
        match &self.0 {
            Names::Volume(top) => {
                let (session, rest) = top.approach(Path::new(name(path)))?;
                let mut names = BTreeSet::new();
                for entry in session.read_dir(rest)? {
                    let entry = entry?;
                    if !is_step(entry.file_name()) {
                        let error = crate::Error::new(ErrorKind::Corrupt, "read");
                        return Err(error.because("not a file name").into());
                    }
                    names.insert(entry.file_name().as_bytes().to_vec());
                }
                Ok(names)
            }
            Names::Directory(top) => {
                let path = below(top, path);
                let names = std::fs::read_dir(&path).and_then(|names| {
                    names
                        .map(|entry| Ok(entry?.file_name().into_vec()))
                        .collect::<io::Result<_>>()
                });
                names.map_err(|error| host_error(&path, error))
            }
            Names::Listed { listing, .. } => {
                let Some((directory, _)) = resolve(listing, path, true)? else {
                    return Ok(BTreeSet::new());
                };
                Ok(listing.names(&directory).map(<[u8]>::to_vec).collect())
            }
        }
    }

    /// Opens the regular file that a path leads to.
    ///
    /// # Errors
    /// It cannot be opened, or is no regular file.
    pub fn open(&self, path: &[u8]) -> Result<OpenFile<'_>, Error> {
        match &self.0 {
            Names::Volume(top) => open_in_volume(top, path),
            Names::Directory(top) => {
                let path = below(top, path);
                // Where a pipe has taken the file's place, its opening does not wait for a writer.
                let flags = OFlags::NONBLOCK.bits() as i32;
                let file = std::fs::OpenOptions::new()
                    .read(true)
                    .custom_flags(flags)
                    .open(&path);
                file.and_then(OpenFile::of_host)
                    .map_err(|error| host_error(&path, error))
            }
            Names::Listed { listing, source } => match resolve(listing, path, true)? {
                Some((_, listed)) => open_in_source(*source, &listed.entry),
                None => Err(host_error(
                    Path::new(name(path)),
                    io::ErrorKind::NotFound.into(),
                )),
            },
        }
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// There is none at the path, or it cannot be read.
    pub fn link_target(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        match &self.0 {
            Names::Volume(top) => {
                let (session, rest) = top.approach(Path::new(name(path)))?;
                Ok(session.read_link(rest)?.into_os_string().into_vec())
            }
            Names::Directory(top) => {
                let path = below(top, path);
                let target =
                    std::fs::read_link(&path).map(|target| target.into_os_string().into_vec());
                target.map_err(|error| host_error(&path, error))
            }
            Names::Listed { listing, .. } => {
                match resolve(listing, path, false)?.map(|(_, listed)| &listed.entry.kind) {
                    Some(Kind::Symlink(target)) => Ok(target.clone()),
                    _ => Err(host_error(
                        Path::new(name(path)),
                        io::ErrorKind::InvalidInput.into(),
                    )),
                }
            }
        }
    }
}

impl Node {
    fn of_volume(found: &Metadata) -> Self {
        let mtime = found.mtime();
        let rdev = found.rdev();
        Self {
            file_type: found.file_type(),
            size: found.len(),
            modified: Time {
                secs: mtime.sec,
                nanos: mtime.nsec,
            },
            device: (rdev.major, rdev.minor),
            id: (0, found.ino()),
        }
    }

    fn of_host(found: &std::fs::Metadata) -> Self {
        Self {
            file_type: host_type(found.mode()),
            size: found.len(),
            modified: Time {
                secs: found.mtime(),
                nanos: found.mtime_nsec() as u32,
            },
            device: (major(found.rdev()), minor(found.rdev())),
            id: (found.dev(), found.ino()),
        }
    }

    fn of_entry(entry: &Entry) -> Self {
        let (size, device) = match entry.kind {
            Kind::File(ref contents) => (contents.size, (0, 0)),
            Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
                (0, (major, minor))
            }
            _ => (0, (0, 0)),
        };
        // A name without its file comes from a damaged source only, which is an error before.
        let file_type = file_type(&entry.kind).unwrap_or(FileType::Socket);
        let id = (0, std::ptr::from_ref(entry).addr() as u64);
        Self {
            file_type,
            size,
            modified: entry.mtime,
            device,
            id,
        }
    }
}

fn host_type(mode: u32) -> FileType {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        rustix::fs::FileType::Fifo => FileType::Fifo,
        rustix::fs::FileType::Socket => FileType::Socket,
        _ => FileType::Regular,
    }
}

/// Returns a path for a call. The empty one is that of the top.
fn name(path: &[u8]) -> &OsStr {
    OsStr::from_bytes(if path.is_empty() { b"." } else { path })
}

fn below(top: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() {
        top.to_owned()
    } else {
        top.join(OsStr::from_bytes(path))
    }
}

fn host_error(path: &Path, source: io::Error) -> Error {
    SourceError::Io {
        name: path.to_string_lossy().into_owned(),
        source,
    }
    .into()
}

/// Returns the path that a path of a list leads to, and its file.
fn resolve<'l>(
    listing: &'l Listing,
    path: &[u8],
    follow: bool,
) -> Result<Option<(Vec<u8>, &'l Listed)>, Error> {
    let mut links = 0;
    let mut rest: Vec<Cow<'_, [u8]>> = path
        .split(|byte| *byte == b'/')
        .rev()
        .map(Cow::Borrowed)
        .collect();
    let mut at: Vec<u8> = Vec::new();
    while let Some(step) = rest.pop() {
        match &*step {
            b"" | b"." => continue,
            b".." => {
                at.truncate(at.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                continue;
            }
            _ => {}
        }
        let start = at.len();
        if start > 0 {
            at.push(b'/');
        }
        at.extend_from_slice(&step);
        let Some(listed) = listing.files.get(&key(&at)) else {
            return Ok(None);
        };
        if let Kind::Symlink(target) = &listed.entry.kind
            && (follow || !rest.is_empty())
        {
            links += 1;
            if links > MOST_LINKS {
                let error = io::Error::from(rustix::io::Errno::LOOP);
                return Err(host_error(Path::new(name(path)), error));
            }
            at.truncate(if target.starts_with(b"/") { 0 } else { start });
            rest.extend(
                target
                    .split(|byte| *byte == b'/')
                    .rev()
                    .map(|step| Cow::Owned(step.to_vec())),
            );
        }
    }
    Ok(listing.files.get(&key(&at)).map(|listed| (at, listed)))
}
