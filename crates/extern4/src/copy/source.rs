//! The sources of copies into a volume: files of the host or of a volume.
//!
//! `walk` and `into` read through it, so that a copy is one text for both. Names are looked up in
//! open directories and never through a link.

mod contents;
mod host_xattrs;
mod node;

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extern4_vfs::FileType;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, openat, readlinkat, statat,
};

pub(super) use self::contents::Contents;
use self::contents::read_whole;
pub(super) use self::host_xattrs::Xattrs;
use self::node::host_node;
pub(super) use self::node::{Id, Node};
use super::failure::CopyError;
use super::total::stored_bytes;
use crate::file_flags::SETTABLE;
use crate::session::Session;

/// An open directory, in which names are looked up.
#[derive(Clone)]
pub(super) enum Directory {
    Host(Arc<OwnedFd>),
    /// A directory of a volume, and the index of that volume.
    Volume(Session, usize),
}

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
    pub(super) body: Result<Body, CopyError>,
    pub(super) xattrs: Result<Xattrs, CopyError>,
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

impl Directory {
    /// Returns this process's working directory.
    pub(super) fn of_host() -> Result<Self, CopyError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::Host(Arc::new(openat(
            CWD,
            ".",
            flags,
            Mode::empty(),
        )?)))
    }

    /// Returns the facts about `name`; about a symbolic link itself unless `follow` is true.
    pub(super) fn node(&self, name: &Path, follow: bool) -> Result<Node, CopyError> {
        match self {
            Self::Host(fd) => {
                let flags = if follow {
                    AtFlags::empty()
                } else {
                    AtFlags::SYMLINK_NOFOLLOW
                };
                host_node(&statat(fd, name, flags)?)
            }
            Self::Volume(session, volume) => {
                let found = if follow {
                    session.metadata(name)?
                } else {
                    session.symlink_metadata(name)?
                };
                Ok(Node {
                    id: Id::Volume(*volume, found.ino()),
                    kind: found.file_type(),
                    mode: found.mode(),
                    uid: found.uid(),
                    gid: found.gid(),
                    links: found.nlink().into(),
                    rdev: found.rdev(),
                    size: found.len(),
                    stored: stored_bytes(&found),
                    atime: found.atime(),
                    mtime: found.mtime(),
                    flags: Some((found.flags() & SETTABLE, found.project())),
                })
            }
        }
    }

    /// Opens directory `name`, which must not be a link unless `follow` is true.
    pub(super) fn inside(&self, name: &Path, follow: bool) -> Result<Self, CopyError> {
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
    pub(super) fn entries(&self) -> Result<Vec<OsString>, CopyError> {
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
    fn read_link(&self, name: &Path) -> Result<OsString, CopyError> {
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
            kind if wants.streams => self.stream(name, kind, follow),
            _ => Ok(Body::Nothing),
        };
        let xattrs = match &body {
            Ok(_) if !wants.xattrs => Ok(Vec::new()),
            Ok(Body::Open(Contents::Host(file) | Contents::Stream(file))) => {
                host_xattrs::open(file)
            }
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
        Found {
            name: name.to_owned(),
            node,
            body,
            xattrs,
        }
    }

    /// Returns the extended attributes of `name`; of a symbolic link itself unless `follow`
    /// is true.
    fn xattrs(&self, name: &Path, follow: bool) -> Result<Xattrs, CopyError> {
        let session = match self {
            Self::Host(fd) => return host_xattrs::named(fd.as_fd(), name, follow),
            Self::Volume(session, _) => session,
        };
        let names = if follow {
            session.listxattr(name)?
        } else {
            session.llistxattr(name)?
        };
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
    pub(super) fn own_xattrs(&self) -> Result<Xattrs, CopyError> {
        match self {
            Self::Host(fd) => host_xattrs::open(fd),
            Self::Volume(..) => self.xattrs(Path::new("."), false),
        }
    }

    /// Opens regular file `name`.
    fn open(&self, name: &Path, follow: bool) -> Result<Contents, CopyError> {
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

    /// Opens `name`, a pipe, a socket or a device. A socket fails.
    fn stream(&self, name: &Path, kind: FileType, follow: bool) -> Result<Body, CopyError> {
        let Self::Host(fd) = self else {
            return Ok(Body::Nothing);
        };
        // The observer waits for the writer of a pipe.
        let flags = if kind == FileType::Fifo {
            OFlags::NONBLOCK
        } else {
            OFlags::empty()
        };
        let link = if follow {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        };
        let file = openat(
            fd,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC | flags | link,
            Mode::empty(),
        )?;
        fcntl_setfl(&file, fcntl_getfl(&file)? & !flags)?;
        Ok(Body::Open(Contents::Stream(file.into())))
    }
}
