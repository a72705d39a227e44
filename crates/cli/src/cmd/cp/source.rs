//! The sources of copies into a volume: files of the host or of a volume.
//!
//! `walk` and `into` read through it, so that a copy is one text for both. Names are looked up in
//! open directories and never through a link.

use std::ffi::{CStr, OsStr, OsString};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extern4::{FileType, Rdev, Session, SpanKind, Timespec};
use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, SeekFrom, fgetxattr, flistxattr, getxattr, lgetxattr, listxattr, llistxattr,
    openat, readlinkat, statat,
};
use rustix::io::{Errno, pread};

/// The largest file, in bytes, that is read ahead.
const AHEAD_BYTES: u64 = 4 << 20;

/// The reason why a source cannot be read.
pub(super) enum Fault {
    Volume(extern4::Error),
    Host(io::Error),
    /// No file can have this name.
    Name,
    /// Another directory has taken the place of the directory that is being copied.
    Moved,
    /// A symbolic link leads back to a directory above it.
    Loop,
}

impl From<extern4::Error> for Fault {
    fn from(error: extern4::Error) -> Self {
        Self::Volume(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

impl From<Errno> for Fault {
    fn from(error: Errno) -> Self {
        Self::Host(error.into())
    }
}

/// The identity of a file, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Id {
    /// Device and inode number on the host.
    Host(u64, u64),
    /// Index of the open volume, and inode number.
    Volume(usize, u64),
}

/// The facts about a file that are known before it is read.
pub(super) struct Node {
    pub(super) id: Id,
    pub(super) kind: FileType,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u64,
    pub(super) rdev: Rdev,
    pub(super) size: u64,
    /// About how many bytes are not holes.
    pub(super) stored: u64,
    pub(super) atime: Timespec,
    pub(super) mtime: Timespec,
}

/// An open directory, in which names are looked up.
#[derive(Clone)]
pub(super) enum Directory {
    Host(Arc<OwnedFd>),
    /// A directory of a volume, and the index of that volume.
    Volume(Session, usize),
}

/// An open file.
pub(super) enum Contents {
    Host(std::fs::File),
    /// A pipe or a device of the host, which is read from its current position.
    Stream(std::fs::File),
    Volume(extern4::File),
}

/// Extended attributes, with ACLs in the form that the kernel gives them.
pub(super) type Xattrs = Vec<(OsString, Vec<u8>)>;

/// The contents of a file that is not a directory.
pub(super) enum Body {
    /// Nothing that can be copied.
    Nothing,
    /// The target of a symbolic link.
    Link(OsString),
    /// Contents without holes that have been read: their range in the bytes read with them.
    Read(Range<usize>),
    /// Contents that are still to be read.
    Open(Contents),
}

/// A file that is not a directory, with everything that its copy needs.
pub(super) struct Found {
    pub(super) name: PathBuf,
    pub(super) node: Node,
    pub(super) body: Result<Body, Fault>,
    pub(super) xattrs: Result<Xattrs, Fault>,
}

/// The parts of files that a copy needs, apart from their attributes.
#[derive(Clone, Copy)]
pub(super) struct Wants {
    pub(super) body: bool,
    /// Contents of short files are read at once.
    pub(super) ahead: bool,
    /// A copy may not need the contents under every name of a file with several names.
    pub(super) links: bool,
    pub(super) xattrs: bool,
    /// Symbolic links are followed.
    pub(super) follow: bool,
    /// Pipes, sockets and devices of the host are read.
    pub(super) streams: bool,
}

impl Node {
    pub(super) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
}

impl Directory {
    /// Returns this process's working directory.
    pub(super) fn of_host() -> Result<Self, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::Host(Arc::new(openat(CWD, ".", flags, Mode::empty())?)))
    }

    /// Returns the facts about `name`; about a symbolic link itself unless `follow` is true.
    pub(super) fn node(&self, name: &Path, follow: bool) -> Result<Node, Fault> {
        match self {
            Self::Host(fd) => {
                let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                host_node(&statat(fd, name, flags)?)
            }
            Self::Volume(session, volume) => {
                let found = if follow { session.metadata(name)? } else { session.symlink_metadata(name)? };
                Ok(Node {
                    id: Id::Volume(*volume, found.ino()),
                    kind: found.file_type(),
                    mode: found.mode(),
                    uid: found.uid(),
                    gid: found.gid(),
                    links: found.nlink().into(),
                    rdev: found.rdev(),
                    size: found.len(),
                    stored: super::total::stored_bytes(&found),
                    atime: found.atime(),
                    mtime: found.mtime(),
                })
            }
        }
    }

    /// Opens directory `name`, which must not be a link unless `follow` is true.
    pub(super) fn inside(&self, name: &Path, follow: bool) -> Result<Self, Fault> {
        Ok(match self {
            Self::Host(fd) => {
                let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                if !follow {
                    flags |= OFlags::NOFOLLOW;
                }
                Self::Host(Arc::new(openat(fd, name, flags, Mode::empty())?))
            }
            Self::Volume(session, volume) => Self::Volume(session.at(name)?, *volume),
        })
    }

    /// Returns the names in the directory, in its own order.
    pub(super) fn entries(&self) -> Result<Vec<OsString>, Fault> {
        let mut names = Vec::new();
        match self {
            Self::Host(fd) => {
                for entry in rustix::fs::Dir::read_from(fd.as_fd())? {
                    let entry = entry?;
                    let name = entry.file_name().to_bytes();
                    if !matches!(name, b"." | b"..") {
                        names.push(OsStr::from_bytes(name).to_owned());
                    }
                }
            }
            Self::Volume(session, _) => {
                for entry in session.read_dir(".")? {
                    names.push(entry?.file_name().to_owned());
                }
            }
        }
        Ok(names)
    }

    /// Returns the target of link `name`.
    fn read_link(&self, name: &Path) -> Result<OsString, Fault> {
        Ok(match self {
            Self::Host(fd) => OsString::from_vec(readlinkat(fd, name, Vec::new())?.into_bytes()),
            Self::Volume(session, _) => session.read_link(name)?.into_os_string(),
        })
    }

    /// Gathers everything that the copy of `name` needs. `node` is the file, which is not a
    /// directory.
    pub(super) fn find(&self, name: &Path, node: Node, wants: Wants, bytes: &mut Vec<u8>) -> Found {
        let follow = wants.follow;
        let body = match node.kind {
            _ if !wants.body => Ok(Body::Nothing),
            FileType::Regular => self.open(name, follow).map(Body::Open),
            FileType::Symlink => self.read_link(name).map(Body::Link),
            _ if wants.streams => self.stream(name),
            _ => Ok(Body::Nothing),
        };
        let xattrs = match &body {
            Ok(_) if !wants.xattrs => Ok(Vec::new()),
            Ok(Body::Open(Contents::Host(file) | Contents::Stream(file))) => file_xattrs(file),
            Ok(_) => self.xattrs(name, follow),
            // Without contents there is no copy that could have the attributes.
            Err(_) => Ok(Vec::new()),
        };
        let mut body = body;
        if let Ok(Body::Open(Contents::Host(file))) = &body
            && wants.ahead
            && !(wants.links && node.links > 1)
            && let Some(read) = read_whole(file, node.size, bytes)
        {
            body = Ok(Body::Read(read));
        }
        Found { name: name.to_owned(), node, body, xattrs }
    }

    /// Returns the extended attributes of `name`; those of a symbolic link itself unless `follow`
    /// is true.
    fn xattrs(&self, name: &Path, follow: bool) -> Result<Xattrs, Fault> {
        let Self::Volume(session, _) = self else { return self.host_xattrs(name, follow) };
        let names = if follow { session.listxattr(name)? } else { session.llistxattr(name)? };
        let mut found = Vec::new();
        for attribute in names {
            let value = if follow {
                session.getxattr(name, &attribute)?
            } else {
                session.lgetxattr(name, &attribute)?
            };
            found.extend(value.map(|value| (attribute, value)));
        }
        Ok(found)
    }

    /// Returns the extended attributes of the directory itself.
    pub(super) fn own_xattrs(&self) -> Result<Xattrs, Fault> {
        match self {
            Self::Host(fd) => file_xattrs(fd),
            Self::Volume(..) => self.xattrs(Path::new("."), false),
        }
    }

    /// Returns the extended attributes of a file of the host that cannot be opened, such as a
    /// symbolic link.
    fn host_xattrs(&self, name: &Path, follow: bool) -> Result<Xattrs, Fault> {
        let path: PathBuf = match self {
            // No system call takes a directory and a name here; the directory's entry in /proc
            // serves as well.
            Self::Host(fd) if !name.is_absolute() => {
                Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string()).join(name)
            }
            _ => name.to_owned(),
        };
        if follow {
            return collect_xattrs(
                |buffer| listxattr(&path, buffer),
                |name, buffer| getxattr(&path, name, buffer),
            );
        }
        collect_xattrs(|buffer| llistxattr(&path, buffer), |name, buffer| lgetxattr(&path, name, buffer))
    }

    /// Opens regular file `name`.
    fn open(&self, name: &Path, follow: bool) -> Result<Contents, Fault> {
        Ok(match self {
            Self::Host(fd) => {
                // A file that was regular may be a pipe by now, and opening it must not wait for a
                // writer.
                let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                if !follow {
                    flags |= OFlags::NOFOLLOW;
                }
                Contents::Host(openat(fd, name, flags, Mode::empty())?.into())
            }
            Self::Volume(session, _) => Contents::Volume(session.open(name)?),
        })
    }

    /// Opens `name`, a pipe, a socket or a device. A pipe waits for a writer; a socket fails.
    fn stream(&self, name: &Path) -> Result<Body, Fault> {
        let Self::Host(fd) = self else { return Ok(Body::Nothing) };
        let file = openat(fd, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Body::Open(Contents::Stream(file.into())))
    }
}

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_cast,
    reason = "these fields have other types elsewhere"
)]
fn host_node(found: &rustix::fs::Stat) -> Result<Node, Fault> {
    use rustix::fs::FileType as Host;
    let kind = match Host::from_raw_mode(found.st_mode) {
        Host::RegularFile => FileType::Regular,
        Host::Directory => FileType::Directory,
        Host::Symlink => FileType::Symlink,
        Host::CharacterDevice => FileType::CharDevice,
        Host::BlockDevice => FileType::BlockDevice,
        Host::Fifo => FileType::Fifo,
        Host::Socket => FileType::Socket,
        Host::Unknown => return Err(Fault::Host(io::ErrorKind::Unsupported.into())),
    };
    let time = |sec: i64, nsec: u64| Timespec { sec, nsec: u32::try_from(nsec).unwrap_or(0) };
    let size = u64::try_from(found.st_size).unwrap_or(0);
    Ok(Node {
        id: Id::Host(found.st_dev, found.st_ino),
        kind,
        mode: found.st_mode & 0o7777,
        uid: found.st_uid,
        gid: found.st_gid,
        links: u64::from(found.st_nlink),
        rdev: Rdev { major: rustix::fs::major(found.st_rdev), minor: rustix::fs::minor(found.st_rdev) },
        size,
        stored: size.min(u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(512)),
        atime: time(found.st_atime, found.st_atime_nsec as u64),
        mtime: time(found.st_mtime, found.st_mtime_nsec as u64),
    })
}

/// Returns the extended attributes of an open file of the host.
fn file_xattrs(file: impl AsFd) -> Result<Xattrs, Fault> {
    let file = file.as_fd();
    collect_xattrs(|buffer| flistxattr(file, buffer), |name, buffer| fgetxattr(file, name, buffer))
}

fn collect_xattrs(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&CStr, &mut [u8]) -> rustix::io::Result<usize>,
) -> Result<Xattrs, Fault> {
    let names = match sized(list) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut found = Vec::new();
    for name in
        names.split_inclusive(|byte| *byte == 0).filter_map(|name| CStr::from_bytes_with_nul(name).ok())
    {
        match sized(|buffer| get(name, buffer)) {
            // The attribute is gone by now, or only other users may read it.
            Err(Errno::NODATA | Errno::NOTSUP) => {}
            value => found.push((OsStr::from_bytes(name.to_bytes()).to_owned(), value?)),
        }
    }
    Ok(found)
}

/// Appends a short file without holes to `bytes`. Returns `None` if it is another kind of file by
/// now, or cannot be read. The caller then reads it again piece by piece, which shows why.
fn read_whole(file: &std::fs::File, size: u64, bytes: &mut Vec<u8>) -> Option<Range<usize>> {
    if size > AHEAD_BYTES || size > 0 && rustix::fs::seek(file, SeekFrom::Hole(0)).ok()? < size {
        return None;
    }
    let len = usize::try_from(size).ok()?;
    let start = bytes.len();
    // One byte more, which is filled only if the file has grown.
    bytes.reserve(len + 1);
    let read = pread(file, spare_capacity(bytes), 0);
    if read != Ok(len) {
        bytes.truncate(start);
        return None;
    }
    Some(start..start + len)
}

/// Calls `read`, which fills a buffer, with larger buffers until it no longer fails with `ERANGE`.
fn sized(read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 256];
    loop {
        match read(&mut buffer) {
            // The kernel's own limit is half of it.
            Err(Errno::RANGE) if buffer.len() < 128 << 10 => buffer.resize(buffer.len() * 4, 0),
            len => {
                buffer.truncate(len?);
                return Ok(buffer);
            }
        }
    }
}

impl Contents {
    /// Returns the current size in bytes, and the identity of the file where the host knows it.
    pub(super) fn size(&self) -> Result<u64, Fault> {
        Ok(match self {
            Self::Host(file) => file.metadata()?.len(),
            Self::Stream(_) => 0,
            Self::Volume(file) => file.metadata().len(),
        })
    }

    /// Returns the next range of data at or behind `offset`, as start and end; `None` if only a
    /// hole is left.
    pub(super) fn data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>, Fault> {
        if offset >= size {
            return Ok(None);
        }
        let (start, end) = match self {
            Self::Host(file) | Self::Stream(file) => {
                let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
                    Err(Errno::NXIO) => return Ok(None),
                    // The host knows nothing about holes there.
                    Err(Errno::INVAL | Errno::NOTSUP) => return Ok(Some((offset, size))),
                    start => start?,
                };
                (start, rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size))
            }
            Self::Volume(file) => {
                let mut at = offset;
                loop {
                    let Some(span) = file.span_at(at)? else { return Ok(None) };
                    let end = span.offset.saturating_add(span.len).max(at.saturating_add(1));
                    match span.kind {
                        SpanKind::Hole | SpanKind::Unwritten if end < size => at = end,
                        SpanKind::Hole | SpanKind::Unwritten => return Ok(None),
                        SpanKind::Mapped { .. } | SpanKind::Inline => break (at, end),
                    }
                }
            }
        };
        Ok((start < size).then(|| (start, end.clamp(start + 1, size))))
    }

    /// Reads at `offset`; returns 0 at the end.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Fault> {
        loop {
            let read = match self {
                Self::Host(file) => file.read_at(buffer, offset),
                Self::Stream(file) => (&*file).read(buffer),
                Self::Volume(file) => return Ok(file.read_at(buffer, offset)?),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return Ok(read?),
            }
        }
    }
}
