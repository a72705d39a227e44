//! Opening files: `openat2(2)`.
//!
//! These methods of `Session` check flags, type, rights and the state of the mount in Linux's
//! order, and return an `OpenFile`. If one of these checks fails, no file is open and none has been
//! truncated. `create` handles `O_CREAT` and `O_TMPFILE`. The FUSE server and the `extern4` crate
//! call them.

use extern4_sync::rcu::pin;

use crate::attr::FileType;
use crate::errno::{Errno, Result};
use crate::file::{OpenFile, OpenHow, truncate};
use crate::inode::Inode;
use crate::mount::{Location, WriteGuard};
use crate::open_flags::OpenFlags;
use crate::permission::{Access, owner_or_capable};
use crate::session::Session;

impl Session {
    /// Opens a file (`openat2(2)`).
    ///
    /// Device nodes, pipes and sockets open with [`OpenFlags::PATH`] only: `ENXIO` otherwise, as
    /// there is nothing behind them here.
    ///
    /// # Errors
    /// The errors of a walk ([`Session`]); `EEXIST`, `EISDIR`, `ENXIO`, `EPERM`,
    /// `ENOSPC`, `EROFS` as `open(2)` has them.
    pub fn open(&self, path: impl AsRef<[u8]>, how: impl Into<OpenHow>) -> Result<OpenFile> {
        let path = path.as_ref();
        let how = how.into();
        check_flags(how.flags)?;
        if how.flags.contains(OpenFlags::TMPFILE) {
            return self.open_tmpfile(path, how);
        }
        if how.flags.contains(OpenFlags::CREATE) {
            return self.open_or_create(path, how);
        }
        let follow = !how.flags.intersects(OpenFlags::NOFOLLOW);
        let found = self.lookup().path(path, how.resolve.with_follow(follow))?;
        self.open_at(found.into_location(), how.flags, path)
    }

    /// Opens the file at a location, with the checks at the end of a path to it. `path` is the path
    /// in the [list](crate::SuperBlock::open_files) of open files.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open) but for the walk's.
    pub fn open_location(
        &self,
        location: Location,
        flags: OpenFlags,
        path: &[u8],
    ) -> Result<OpenFile> {
        check_flags(flags)?;
        if flags.intersects(OpenFlags::CREATE | OpenFlags::TMPFILE) {
            return Err(Errno::EINVAL.into());
        }
        self.open_at(location, flags, path)
    }

    /// Opens the file that a walk along `path` has found.
    pub(crate) fn open_at(
        &self,
        location: Location,
        flags: OpenFlags,
        path: &[u8],
    ) -> Result<OpenFile> {
        if flags.contains(OpenFlags::DIRECTORY) && !location.inode().is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if !flags.contains(OpenFlags::PATH) {
            self.may_open(&location, flags)?;
        }
        let truncates = flags.contains(OpenFlags::TRUNC) && location.kind() == FileType::Regular;
        if !truncates {
            return OpenFile::new(self, location, flags, path);
        }
        let mount = location.mount.clone();
        let _writer = WriteGuard::take(&mount)?;
        let file = OpenFile::new(self, location, flags, path)?;
        truncate(&self.cred, mount.superblock(), file.location().inode(), 0)?;
        Ok(file)
    }

    /// Makes Linux's checks at the end of an open, in Linux's order.
    fn may_open(&self, location: &Location, flags: OpenFlags) -> Result<()> {
        let inode: &Inode = location.inode();
        let writes = flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNC);
        match inode.kind() {
            FileType::Symlink => return Err(Errno::ELOOP.into()),
            FileType::Directory if writes => return Err(Errno::EISDIR.into()),
            _ => {}
        }
        let mut want = Access::empty();
        want.set(Access::READ, flags.contains(OpenFlags::READ));
        want.set(Access::WRITE, writes);
        let sb = location.superblock();
        sb.checker
            .permission(&self.cred, inode, want, location.mount.is_read_only())?;
        let overwrites = flags.contains(OpenFlags::WRITE) && !flags.contains(OpenFlags::APPEND);
        if (overwrites || flags.contains(OpenFlags::TRUNC)) && inode.perm().append() {
            return Err(Errno::EPERM.into());
        }
        if flags.contains(OpenFlags::NOATIME) && !owner_or_capable(&self.cred, inode) {
            return Err(Errno::EPERM.into());
        }
        match inode.kind() {
            FileType::Directory => Ok(()),
            FileType::Regular => check_encryption(location),
            _ => Err(Errno::ENXIO.into()),
        }
    }
}

impl Location {
    /// Returns whether its name decides about an open: an encrypted directory may hold no file that
    /// is not encrypted. The same file can be opened where it is located by number.
    pub fn is_misplaced(&self) -> bool {
        !self.inode().is_dir() && !self.inode().perm().encrypted() && is_in_encrypted(self)
    }
}

/// Asks the file system whether a regular file may be opened, if the file or its directory is
/// encrypted.
fn check_encryption(location: &Location) -> Result<()> {
    let inode = location.inode();
    let in_encrypted = is_in_encrypted(location);
    if !in_encrypted && !inode.perm().encrypted() {
        return Ok(());
    }
    location.superblock().fs().check_open(inode, in_encrypted)
}

/// Returns whether the directory of a location is encrypted.
fn is_in_encrypted(location: &Location) -> bool {
    let guard = pin();
    location
        .dentry
        .see_parent(&guard)
        .is_some_and(|(_, dir)| dir.perm().encrypted())
}

/// Fails with `EINVAL` for flags that make no sense together.
fn check_flags(flags: OpenFlags) -> Result<()> {
    let handle_only = OpenFlags::PATH | OpenFlags::NOFOLLOW | OpenFlags::DIRECTORY;
    let valid = if flags.contains(OpenFlags::PATH) {
        handle_only.contains(flags)
    } else if flags.contains(OpenFlags::TMPFILE) {
        flags.contains(OpenFlags::WRITE) && !flags.contains(OpenFlags::CREATE)
    } else {
        flags.intersects(OpenFlags::READ | OpenFlags::WRITE)
    };
    if valid && !flags.contains(OpenFlags::CREATE | OpenFlags::DIRECTORY) {
        Ok(())
    } else {
        Err(Errno::EINVAL.into())
    }
}
