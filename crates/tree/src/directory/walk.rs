//! Walks a directory of the host and passes each file to a sink as an entry.
//!
//! `feed` runs it in a thread. It visits names in the order of their bytes, and passes a directory
//! before the files in it. A further name of a file becomes a hard link. It keeps a bounded number
//! of directories open, so a deep tree needs few descriptors. It reopens others, and checks that
//! they are the same. An error ends the walk and names the file.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::xattrs::{By, Reader};
use super::{DirectorySource, beneath};
use crate::entry::{Contents, Data, Entry, Identity, Kind, Time};
use crate::error::{Error, Result};
use crate::source::{Sink, Unwanted};

/// How many directories on the path stay open. The others are reopened on the way up.
const OPEN_DIRECTORIES: usize = 64;

/// File systems of the kernel without the user's files, by the type that statfs(2) returns.
const KERNEL_FILE_SYSTEMS: &[(u32, &str)] = &[
    (0x0000_9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0000_1cd1, "devpts"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4, "efivarfs"),
    (0xcafe_4a11, "bpf"),
    (0x6265_6570, "configfs"),
    (0x6573_5543, "fusectl"),
    (0x1980_0202, "mqueue"),
    (0x9584_58f6, "hugetlbfs"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x6759_6969, "rpc_pipefs"),
    (0x6e73_6673, "nsfs"),
    (0x0000_0187, "autofs"),
];

/// A directory whose names are being visited.
struct Frame {
    /// `None` while too many others are open.
    fd: Option<OwnedFd>,
    dev: u64,
    ino: u64,
    /// The length of its path.
    path: usize,
    /// The names left to visit, the next one last.
    names: Vec<Box<[u8]>>,
}

/// A file with several names.
struct Linked {
    /// The path that the sink got first.
    first: Box<[u8]>,
    /// The most names that can still come.
    left: u32,
}

/// A walk through a tree.
pub(super) struct Walk<'a> {
    source: &'a DirectorySource,
    sink: &'a mut dyn Sink,
    xattrs: Reader,
    unwanted: Option<Unwanted>,
    frames: Vec<Frame>,
    path: Vec<u8>,
    /// Files with several names, by device and inode number.
    links: HashMap<(u64, u64), Linked>,
    /// The last frame's directory is this thread's current directory.
    is_here: bool,
}

impl<'a> Walk<'a> {
    /// Returns a walk of `source` into `sink`, which reads extended attributes by `by`.
    pub(super) fn new(
        source: &'a DirectorySource,
        sink: &'a mut dyn Sink,
        unwanted: Option<Unwanted>,
        by: By,
    ) -> Self {
        Self {
            source,
            sink,
            xattrs: Reader::new(by),
            unwanted,
            frames: Vec::new(),
            path: Vec::new(),
            links: HashMap::new(),
            is_here: false,
        }
    }

    pub(super) fn run(mut self) -> Result<()> {
        let source = self.source;
        self.go_to(source.top.as_fd())?;
        let stat = self.stat(source.top.as_fd(), b".")?;
        if let Some(name) = &source.only {
            self.path.extend_from_slice(name);
            return self.visit_in(&source.top, name, device(&stat));
        }
        self.pass_entry(source.top.as_fd(), b".", &stat, Kind::Directory)?;
        self.descend(source.top.as_fd(), b".", &stat, None)?;
        while let Some(frame) = self.frames.last_mut() {
            self.path.truncate(frame.path);
            match frame.names.pop() {
                Some(name) => self.visit(&name)?,
                None => {
                    self.frames.pop();
                    self.is_here = false;
                }
            }
        }
        Ok(())
    }

    /// Changes the thread's current directory, if attributes are read by it.
    fn go_to(&mut self, at: BorrowedFd<'_>) -> Result<()> {
        if self.xattrs.by == By::CurrentDirectory && !self.is_here {
            rustix::process::fchdir(at).map_err(|error| self.source.error(&self.path, error))?;
            self.is_here = true;
        }
        Ok(())
    }

    /// Visits a name of the last frame.
    fn visit(&mut self, name: &[u8]) -> Result<()> {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.reopen()?;
        let last = self.frames.len() - 1;
        let Frame {
            dev, ref mut fd, ..
        } = self.frames[last];
        let Some(at) = fd.take() else { return Ok(()) };
        let result = self.visit_in(&at, name, dev);
        self.frames[last].fd = Some(at);
        result
    }

    fn visit_in(&mut self, at: &OwnedFd, name: &[u8], parent: u64) -> Result<()> {
        self.go_to(at.as_fd())?;
        let stat = self.stat(at.as_fd(), name)?;
        let crosses = device(&stat) != parent;
        if FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory {
            self.pass_entry(at.as_fd(), name, &stat, Kind::Directory)?;
            if self.is_unwanted() {
                return Ok(());
            }
            return self.descend(at.as_fd(), name, &stat, Some(crosses));
        }
        if self.source.left_out == Some((device(&stat), stat.stx_ino)) {
            self.warn("is the output itself and is left out");
            return Ok(());
        }
        if crosses && self.source.one_file_system {
            self.warn("is on another file system and is left out");
            return Ok(());
        }
        let kind = self.kind(&stat)?;
        self.pass_entry(at.as_fd(), name, &stat, kind)
    }

    fn stat(&self, at: BorrowedFd<'_>, name: &[u8]) -> Result<Statx> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        rustix::fs::statx(at, name, flags, StatxFlags::BASIC_STATS)
            .map_err(|error| self.source.error(&self.path, error))
    }

    /// Returns whether the directory at the walk's path is going to be left out.
    fn is_unwanted(&self) -> bool {
        self.unwanted
            .as_ref()
            .is_some_and(|unwanted| unwanted(&self.path))
    }

    fn warn(&mut self, what: &str) {
        let name = self.source.name(&self.path);
        self.sink.warn(format!("'{name}' {what}"));
    }

    /// Returns the kind of a file that is not a directory: a hard link for a further name of a
    /// file.
    fn kind(&mut self, stat: &Statx) -> Result<Kind> {
        let key = (device(stat), stat.stx_ino);
        if stat.stx_nlink > 1 {
            if let Some(linked) = self.links.get_mut(&key) {
                let first = linked.first.to_vec();
                linked.left -= 1;
                if linked.left == 0 {
                    self.links.remove(&key);
                }
                return Ok(Kind::HardLink(first));
            }
            let linked = Linked {
                first: self.path.clone().into(),
                left: stat.stx_nlink - 1,
            };
            self.links.insert(key, linked);
        }
        let major = stat.stx_rdev_major;
        let minor = stat.stx_rdev_minor;
        Ok(match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => Kind::File(contents(stat)),
            FileType::Symlink => Kind::Symlink(Vec::new()),
            FileType::CharacterDevice => Kind::CharDevice { major, minor },
            FileType::BlockDevice => Kind::BlockDevice { major, minor },
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            _ => {
                let reason = "it is of an unknown type".to_owned();
                return Err(Error::Refused {
                    path: self.source.name(&self.path),
                    reason,
                });
            }
        })
    }

    /// Passes the entry at the walk's path to the sink.
    fn pass_entry(
        &mut self,
        at: BorrowedFd<'_>,
        name: &[u8],
        stat: &Statx,
        kind: Kind,
    ) -> Result<()> {
        let kind = match kind {
            Kind::Symlink(_) => Kind::Symlink(
                rustix::fs::readlinkat(at, name, Vec::new())
                    .map_err(|error| self.source.error(&self.path, error))?
                    .into_bytes(),
            ),
            kind => kind,
        };
        let xattrs = match kind {
            Kind::HardLink(_) => Vec::new(),
            Kind::Directory if self.is_unwanted() => Vec::new(),
            _ if self.source.without_xattrs => self.xattrs.acl(self.source, (at, name), &self.path),
            _ => self.xattrs.read(
                self.source,
                (at, name),
                (&self.path, device(stat)),
                self.sink,
            )?,
        };
        let mut entry = Entry {
            path: self.path.clone(),
            kind,
            mode: stat.stx_mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            mtime: Time {
                secs: stat.stx_mtime.tv_sec,
                nanos: stat.stx_mtime.tv_nsec,
            },
            xattrs,
            flags: None,
            project: None,
        };
        if self.source.without_xattrs {
            entry.leave_out_xattrs();
        }
        self.sink.entry(entry)
    }

    /// Lists a directory and makes it the last frame, unless its file system is left out. `crosses`
    /// says whether it is on another device than its parent; it is `None` for the root of the walk.
    fn descend(
        &mut self,
        at: BorrowedFd<'_>,
        name: &[u8],
        stat: &Statx,
        crosses: Option<bool>,
    ) -> Result<()> {
        if crosses == Some(true) && self.source.one_file_system {
            self.warn("is on another file system; its contents are left out");
            return Ok(());
        }
        let error = |error| match error {
            Errno::LOOP => Error::Changed {
                name: self.source.name(&self.path),
            },
            error => self.source.error(&self.path, error),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(at, name, flags, rustix::fs::Mode::empty()).map_err(error)?;
        if crosses != Some(false) {
            let kind = rustix::fs::fstatfs(&fd).map_err(error)?.f_type as u32;
            if let Some((_, name)) = KERNEL_FILE_SYSTEMS.iter().find(|(magic, _)| *magic == kind) {
                self.warn(&format!(
                    "is of the file system {name}; its contents are left out"
                ));
                return Ok(());
            }
        }
        let names = names(&fd).map_err(error)?;
        let dev = device(stat);
        let ino = stat.stx_ino;
        if let Some(far) = self.frames.len().checked_sub(OPEN_DIRECTORIES) {
            self.frames[far].fd = None;
        }
        self.is_here = false;
        self.frames.push(Frame {
            fd: Some(fd),
            dev,
            ino,
            path: self.path.len(),
            names,
        });
        Ok(())
    }

    /// Opens the directory of the last frame again, if it was closed.
    fn reopen(&mut self) -> Result<()> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        if frame.fd.is_some() {
            return Ok(());
        }
        let path = &self.path[..frame.path];
        let error = |error| self.source.error(path, error);
        let fd = beneath::open(&self.source.top, path, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(error)?;
        let stat = rustix::fs::fstat(&fd).map_err(error)?;
        if (stat.st_dev, stat.st_ino) != (frame.dev, frame.ino) {
            return Err(Error::Changed {
                name: self.source.name(path),
            });
        }
        frame.fd = Some(fd);
        Ok(())
    }
}

/// Returns the names in a directory in descending order of their bytes.
fn names(fd: &OwnedFd) -> rustix::io::Result<Vec<Box<[u8]>>> {
    let mut names: Vec<Box<[u8]>> = Vec::new();
    for item in rustix::fs::Dir::read_from(fd)? {
        let item = item?;
        let name = item.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.into());
        }
    }
    names.sort_unstable_by(|left, right| right.cmp(left));
    Ok(names)
}

fn device(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

fn contents(stat: &Statx) -> Contents {
    let mtime = Time {
        secs: stat.stx_mtime.tv_sec,
        nanos: stat.stx_mtime.tv_nsec,
    };
    let identity = Identity {
        dev: device(stat),
        ino: stat.stx_ino,
        mtime,
        size: stat.stx_size,
    };
    let sparse = stat.stx_blocks.saturating_mul(512) < stat.stx_size;
    Contents {
        size: stat.stx_size,
        data: Data::HostFile { sparse, identity },
    }
}
