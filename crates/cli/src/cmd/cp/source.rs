//! What is copied into a volume: files of the host, or of a volume.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extern4::{FileType, Rdev, Session, SpanKind, Timespec};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, lgetxattr, llistxattr, openat, readlinkat, statat};
use rustix::io::Errno;

/// Why a source cannot be read.
pub(super) enum Fault {
    Volume(extern4::Error),
    Host(io::Error),
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

/// Which file it is, whatever its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Id {
    /// Device and inode of the host.
    Host(u64, u64),
    /// Which of the open volumes, and the inode.
    Volume(usize, u64),
}

/// What is known of a file before it is read.
pub(super) struct Node {
    pub(super) id: Id,
    pub(super) kind: FileType,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u64,
    pub(super) rdev: Rdev,
    /// Bytes that are not holes, about.
    pub(super) stored: u64,
    pub(super) atime: Timespec,
    pub(super) mtime: Timespec,
}

/// A directory that is open, in which names are looked up.
#[derive(Clone)]
pub(super) enum Directory {
    Host(Rc<OwnedFd>),
    /// And which of the open volumes it is in.
    Volume(Session, usize),
}

/// An open file.
pub(super) enum Contents {
    Host(std::fs::File),
    Volume(extern4::File),
}

impl Directory {
    /// The directory that this process works in.
    pub(super) fn of_host() -> Result<Self, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::Host(Rc::new(openat(CWD, ".", flags, Mode::empty())?)))
    }

    /// What `name` is; a symbolic link itself unless `follow`.
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
                    stored: super::progress::stored_bytes(&found),
                    atime: found.atime(),
                    mtime: found.mtime(),
                })
            }
        }
    }

    /// Directory `name`, which is no link.
    pub(super) fn inside(&self, name: &Path) -> Result<Self, Fault> {
        Ok(match self {
            Self::Host(fd) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                Self::Host(Rc::new(openat(fd, name, flags, Mode::empty())?))
            }
            Self::Volume(session, volume) => Self::Volume(session.at(name)?, *volume),
        })
    }

    /// The names in it, in its own order.
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

    /// The target of link `name`.
    pub(super) fn read_link(&self, name: &Path) -> Result<OsString, Fault> {
        Ok(match self {
            Self::Host(fd) => OsString::from_vec(readlinkat(fd, name, Vec::new())?.into_bytes()),
            Self::Volume(session, _) => session.read_link(name)?.into_os_string(),
        })
    }

    /// The extended attributes of `name` itself, ACLs among them in the form that the kernel gives them.
    pub(super) fn xattrs(&self, name: &Path) -> Result<Vec<(OsString, Vec<u8>)>, Fault> {
        match self {
            Self::Host(fd) => host_xattrs(fd, name),
            Self::Volume(session, _) => {
                let mut found = Vec::new();
                for attribute in session.llistxattr(name)? {
                    if let Some(value) = session.lgetxattr(name, &attribute)? {
                        found.push((attribute, value));
                    }
                }
                Ok(found)
            }
        }
    }

    /// Opens regular file `name`.
    pub(super) fn open(&self, name: &Path, follow: bool) -> Result<Contents, Fault> {
        Ok(match self {
            Self::Host(fd) => {
                // What was a regular file may be a pipe by now, which nobody waits for.
                let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                if !follow {
                    flags |= OFlags::NOFOLLOW;
                }
                Contents::Host(openat(fd, name, flags, Mode::empty())?.into())
            }
            Self::Volume(session, _) => Contents::Volume(session.open(name)?),
        })
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
        stored: size.min(u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(512)),
        atime: time(found.st_atime, found.st_atime_nsec as u64),
        mtime: time(found.st_mtime, found.st_mtime_nsec as u64),
    })
}

fn host_xattrs(directory: &OwnedFd, name: &Path) -> Result<Vec<(OsString, Vec<u8>)>, Fault> {
    // There is no call that takes a directory and a name; the directory's entry in /proc is as good as it.
    let path: PathBuf = if name.is_absolute() {
        name.to_owned()
    } else {
        Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
    };
    let names = match sized(|buffer| llistxattr(&path, buffer)) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut found = Vec::new();
    for name in
        names.split_inclusive(|byte| *byte == 0).filter_map(|name| CStr::from_bytes_with_nul(name).ok())
    {
        match sized(|buffer| lgetxattr(&path, name, buffer)) {
            // It has gone meanwhile, or is for others to read.
            Err(Errno::NODATA | Errno::NOTSUP) => {}
            value => found.push((OsStr::from_bytes(name.to_bytes()).to_owned(), value?)),
        }
    }
    Ok(found)
}

/// What a call gives that fills a buffer, and says so if that is too small.
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
    /// The size in bytes as it is now, and which file it is where the host knows.
    pub(super) fn size(&self) -> Result<u64, Fault> {
        Ok(match self {
            Self::Host(file) => file.metadata()?.len(),
            Self::Volume(file) => file.metadata().len(),
        })
    }

    /// The next piece of data at or behind `offset`, from where to where; nothing if only a hole is left.
    pub(super) fn data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>, Fault> {
        if offset >= size {
            return Ok(None);
        }
        let (start, end) = match self {
            Self::Host(file) => {
                let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
                    Err(Errno::NXIO) => return Ok(None),
                    // Nobody knows about holes there.
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

    /// Reads at `offset`; nothing at the end.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Fault> {
        match self {
            Self::Host(file) => loop {
                match file.read_at(buffer, offset) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    read => return Ok(read?),
                }
            },
            Self::Volume(file) => Ok(file.read_at(buffer, offset)?),
        }
    }
}
