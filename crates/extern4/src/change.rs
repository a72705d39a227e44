//! Changes to a volume through a session.
//!
//! Programs call these methods of [`Session`], and so do the command's subcommands. They check the
//! rights of the session's caller. A call that fails has changed nothing, except where its
//! documentation says otherwise: [`Session::remove_dir_all`] and `create_dir_all` work step by
//! step.
//!
//! Every call fails with `EROFS` on a volume that is not open for
//! [writing](crate::VolumeOptions::write). A change is durable after
//! [`Volume::sync`](crate::Volume::sync) or [`File::sync_all`], or once the journal commits by
//! itself, a few seconds later.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extern4_vfs as vfs;
use vfs::attr::permission_bits;
use vfs::{
    Acl, AclKind, Attributes, FileFlags, LookupFlags, NewKind, OpenHow, RenameFlags, SetTime,
    XattrFlags,
};

use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::open_options::OpenOptions;
use crate::removal;
use crate::session::{Session, bytes};

impl Session {
    /// Opens a file for reading and writing, truncated to nothing. Creates it, with the mode 0666
    /// less the umask, if it does not exist.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EISDIR` for a directory, `ENOSPC` or `EDQUOT` if
    /// there is no inode or block left.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// use extern4::Volume;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     let session = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?.superuser();
    ///     session.create("/motd")?.write_all(b"hello\n")?;
    ///     assert_eq!(session.read("/motd")?, b"hello\n");
    ///     Ok(())
    /// }
    /// ```
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(
            path,
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true),
        )
    }

    /// Creates a file with the mode 0666 less the umask, and opens it for reading and writing.
    /// Fails with `EEXIST` if there is one.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EEXIST` if the name exists, even as a dangling
    /// symbolic link; `ENOSPC` or `EDQUOT`.
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(
            path,
            File::options().read(true).write(true).create_new(true),
        )
    }

    /// Opens a file with options, as [`OpenOptions`] explains.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); for the options the errors of `open(2)`: `EEXIST`,
    /// `EISDIR`, `EPERM`, `ENOSPC`; [`ErrorKind::Invalid`] for options that exclude each other.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let path = path.as_ref();
        let invalid = |why| {
            Error::new(ErrorKind::Os(vfs::Errno::EINVAL), "open")
                .at(path)
                .because(why)
        };
        let flags = options.flags().map_err(invalid)?;
        let mode = permission_bits(options.mode);
        let how = OpenHow {
            flags,
            mode,
            resolve: self.resolve(),
        };
        let open = self
            .vfs()
            .open(bytes(path), how)
            .map_err(|e| Error::vfs("open", path, e))?;
        Ok(File::new(open))
    }

    /// Writes `contents` to a file, in place of all that it has. Creates the file if it does not
    /// exist. [`write_file`](Self::write_file) replaces contents in one step, even over a crash.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create), and of [`File::write_at`] half way: the file then
    /// has a part of the contents.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let file = self.open_with(
            path,
            File::options().write(true).create(true).truncate(true),
        )?;
        file.write_all_at(contents.as_ref(), 0)
    }

    /// Makes a directory with the mode 0777 less the umask.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EEXIST` if the name exists, `EMLINK` if the parent
    /// has too many directories, `ENOSPC` or `EDQUOT`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with(path, 0o777)
    }

    /// Makes a directory with a mode, less the umask.
    ///
    /// # Errors
    /// The errors of [`create_dir`](Self::create_dir).
    pub fn create_dir_with(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let mode = permission_bits(mode);
        self.run("make the directory", path.as_ref(), |path| {
            self.vfs().mkdir(path, mode).map(drop)
        })
    }

    /// Makes a directory and all missing directories above it.
    ///
    /// # Errors
    /// The errors of [`create_dir`](Self::create_dir), but `EEXIST` only if `path` is no directory.
    /// Directories made before the error stay.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self.create_dir(path) {
            Err(error) if error.errno() == vfs::Errno::ENOENT => {}
            Err(error) if error.errno() == vfs::Errno::EEXIST => {
                return if self.metadata(path).is_ok_and(|it| it.is_dir()) {
                    Ok(())
                } else {
                    Err(error)
                };
            }
            done => return done,
        }
        if let Some(parent) = path.parent() {
            self.create_dir_all(parent)?;
        }
        match self.create_dir(path) {
            Err(error) if error.errno() == vfs::Errno::EEXIST => Ok(()),
            done => done,
        }
    }

    /// Makes a symbolic link to `target`, which need not exist.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EEXIST` if the name exists, `ENAMETOOLONG` for a
    /// target that is longer than a block or 4,095 bytes, `ENOSPC` or `EDQUOT`.
    pub fn symlink(&self, target: impl AsRef<OsStr>, link: impl AsRef<Path>) -> Result<()> {
        let target = target.as_ref().as_bytes();
        self.run("make the link", link.as_ref(), |path| {
            self.vfs().symlink(target, path).map(drop)
        })
    }

    /// Makes a device node, pipe or socket with a mode, less the umask.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EEXIST` if the name exists, `EPERM` for a device
    /// without `CAP_MKNOD`, `ENOSPC` or `EDQUOT`.
    pub fn make_node(&self, path: impl AsRef<Path>, kind: NewKind<'_>, mode: u32) -> Result<()> {
        let mode = permission_bits(mode);
        self.run("make", path.as_ref(), |path| {
            self.vfs().mknod(path, kind, mode).map(drop)
        })
    }

    /// Gives a file one more name. For a symbolic link, the link itself gets the name.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EEXIST` if the name exists; `EPERM` for a directory,
    /// an immutable file, or a file that the caller may not link to; `EMLINK` for too many links;
    /// `EXDEV` between projects.
    pub fn hard_link(&self, file: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let file = bytes(file.as_ref());
        self.run("link", link.as_ref(), |path| {
            self.vfs().link(file, LookupFlags::NOFOLLOW, path)
        })
    }

    /// Gives a file one more name, as [`hard_link`](Self::hard_link) does. The new name is a path
    /// from the working directory of `to`.
    #[cfg(feature = "build")]
    pub(crate) fn hard_link_to(
        &self,
        file: impl AsRef<Path>,
        to: &Self,
        link: impl AsRef<Path>,
    ) -> Result<()> {
        let file = bytes(file.as_ref());
        let link_to = |path: &[u8]| {
            self.vfs()
                .link_to(file, LookupFlags::NOFOLLOW, to.vfs(), path)
        };
        self.run("link", link.as_ref(), link_to)
    }

    /// Renames a file; it replaces the file that has the new name.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `ENOTEMPTY`, `EISDIR` or `ENOTDIR` if the new name is
    /// a directory with entries, or only one of both is a directory; `EINVAL` for a directory into
    /// itself; `EXDEV` between projects.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// Renames as `renameat2(2)` does with these flags.
    ///
    /// # Errors
    /// The errors of [`rename`](Self::rename); `EEXIST` with `NOREPLACE` if the new name exists,
    /// `ENOENT` with `EXCHANGE` if it does not; `EINVAL` for flags that exclude each other.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let to = bytes(to.as_ref());
        self.run("rename", from.as_ref(), |path| {
            self.vfs().rename(path, to, flags)
        })
    }

    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EISDIR` for a directory; `EPERM` for an immutable
    /// file, or in a sticky directory; [`ErrorKind::Corrupt`] if the file's map or attributes are
    /// damaged: the name then stays.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.run("remove", path.as_ref(), |path| self.vfs().unlink(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `ENOTDIR`, `ENOTEMPTY`, `EBUSY` for the root; `EPERM`
    /// as for [`remove_file`](Self::remove_file).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.run("remove the directory", path.as_ref(), |path| {
            self.vfs().rmdir(path)
        })
    }

    /// Removes a directory with everything below it, however deep. Symbolic links are removed, not
    /// followed, even if `path` is one. It ends at the first name that cannot be removed.
    ///
    /// # Errors
    /// The errors of [`remove_file`](Self::remove_file) and [`remove_dir`](Self::remove_dir), with
    /// the path of the name that could not be removed. Names removed before it are gone.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let found = self.symlink_metadata(path)?;
        if !found.is_dir() && !found.is_symlink() {
            // The error is that of a file in the place of a directory.
            return self.remove_dir(path);
        }
        removal::remove(self, path)
    }

    /// Sets the permission bits, set-id bits and sticky bit.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EPERM` unless the caller owns the file or has
    /// `CAP_FOWNER`, or for an immutable file.
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let mode = permission_bits(mode);
        self.run("change the mode of", path.as_ref(), |path| {
            self.vfs().chmod(path, mode, LookupFlags::FOLLOW)
        })
    }

    /// Sets owner and group, symbolic links followed; `None` leaves that id as it is.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EPERM` if the caller may not give the file away or
    /// change it; `EDQUOT`.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.chown_how(path.as_ref(), uid, gid, LookupFlags::FOLLOW)
    }

    /// Sets owner and group of `path` itself, even if it is a symbolic link.
    ///
    /// # Errors
    /// The errors of [`chown`](Self::chown).
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.chown_how(path.as_ref(), uid, gid, LookupFlags::NOFOLLOW)
    }

    fn chown_how(
        &self,
        path: &Path,
        uid: Option<u32>,
        gid: Option<u32>,
        how: LookupFlags,
    ) -> Result<()> {
        self.run("change the owner of", path, |path| {
            self.vfs().chown(path, uid, gid, how)
        })
    }

    /// Sets the access time and the modification time, symbolic links followed.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EPERM` or `EACCES` as for `utimensat(2)`; `EPERM`
    /// for an immutable file.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use extern4::{SetTime, Volume};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     let session = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?.superuser();
    ///     session.write("/log", "")?;
    ///     let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1500);
    ///     session.set_times("/log", SetTime::Omit, time)?;
    ///     assert_eq!(session.metadata("/log")?.modified(), time);
    ///     Ok(())
    /// }
    /// ```
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: impl Into<SetTime>,
        modified: impl Into<SetTime>,
    ) -> Result<()> {
        self.set_times_how(
            path.as_ref(),
            (accessed.into(), modified.into()),
            LookupFlags::FOLLOW,
        )
    }

    /// Sets the access time and the modification time of `path` itself, even if it is a symbolic
    /// link.
    ///
    /// # Errors
    /// The errors of [`set_times`](Self::set_times).
    pub fn lset_times(
        &self,
        path: impl AsRef<Path>,
        accessed: impl Into<SetTime>,
        modified: impl Into<SetTime>,
    ) -> Result<()> {
        self.set_times_how(
            path.as_ref(),
            (accessed.into(), modified.into()),
            LookupFlags::NOFOLLOW,
        )
    }

    fn set_times_how(
        &self,
        path: &Path,
        times: (SetTime, SetTime),
        how: LookupFlags,
    ) -> Result<()> {
        self.run("set the times of", path, |path| {
            self.vfs().utimens(path, times.0, times.1, how)
        })
    }

    /// Sets owner, group, mode and times in one step, of a symbolic link itself. Either all given
    /// values take effect or, after an error, none does. This call replaces three:
    /// [`lchown`](Self::lchown), [`set_permissions`](Self::set_permissions) and
    /// [`lset_times`](Self::lset_times).
    ///
    /// # Errors
    /// The errors of the calls that it replaces.
    ///
    /// ```
    /// use extern4::{Attributes, Volume};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     let session = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?.superuser();
    ///     session.write("/log", "")?;
    ///     let new = Attributes { uid: Some(1000), mode: Some(0o640), ..Attributes::default() };
    ///     session.set_attributes("/log", &new)?;
    ///     let found = session.metadata("/log")?;
    ///     assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (1000, 0, 0o640));
    ///     Ok(())
    /// }
    /// ```
    pub fn set_attributes(&self, path: impl AsRef<Path>, new: &Attributes) -> Result<()> {
        self.run("change the attributes of", path.as_ref(), |path| {
            self.vfs().set_attributes(path, new, LookupFlags::NOFOLLOW)
        })
    }

    /// Makes a regular file `size` bytes long.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EISDIR`, `EINVAL` for another kind of file, `EFBIG`
    /// beyond the format's limit, `EPERM` for a file that is immutable or append-only.
    pub fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        self.run("truncate", path.as_ref(), |path| {
            self.vfs().truncate(path, size, LookupFlags::FOLLOW)
        })
    }

    /// Sets the inode flags, as `chattr` does.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EPERM` unless the caller owns the file, and for
    /// flags that need `CAP_LINUX_IMMUTABLE`; `EOPNOTSUPP` for flags that the volume or the kind of
    /// file cannot have.
    pub fn set_flags(&self, path: impl AsRef<Path>, flags: FileFlags) -> Result<()> {
        self.run("change the flags of", path.as_ref(), |path| {
            self.vfs().set_flags(path, flags, LookupFlags::NOFOLLOW)
        })
    }

    /// Sets the project to which the file is charged, as `chattr -p` does. Fails with `EOPNOTSUPP`
    /// on a volume without projects.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EOPNOTSUPP` on a volume without projects; `EPERM`
    /// unless the caller owns the file; `EDQUOT`.
    pub fn set_project(&self, path: impl AsRef<Path>, project: u32) -> Result<()> {
        let flags = self.symlink_metadata(path.as_ref())?.flags();
        self.run("change the project of", path.as_ref(), |path| {
            self.vfs()
                .set_flags_and_project(path, flags, Some(project), LookupFlags::NOFOLLOW)
        })
    }

    /// Sets an extended attribute, symbolic links followed.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EEXIST` or `ENODATA` with `CREATE` or `REPLACE`;
    /// `EOPNOTSUPP` for a namespace or kind of file without attributes; `ERANGE` for a name over
    /// 255 bytes; `ENOSPC` if the attributes do not fit; `EPERM`.
    pub fn setxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        self.set_xattr_how(
            path.as_ref(),
            name.as_ref(),
            value,
            flags,
            LookupFlags::FOLLOW,
        )
    }

    /// Sets an extended attribute of `path` itself, even if it is a symbolic link.
    ///
    /// # Errors
    /// The errors of [`setxattr`](Self::setxattr).
    pub fn lsetxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        self.set_xattr_how(
            path.as_ref(),
            name.as_ref(),
            value,
            flags,
            LookupFlags::NOFOLLOW,
        )
    }

    fn set_xattr_how(
        &self,
        path: &Path,
        name: &OsStr,
        value: &[u8],
        flags: XattrFlags,
        how: LookupFlags,
    ) -> Result<()> {
        let set = |path: &[u8]| {
            self.vfs()
                .set_xattr(path, name.as_bytes(), value, flags, how)
        };
        self.run("set an attribute of", path, set)
    }

    /// Removes an extended attribute, symbolic links followed.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `ENODATA` if there is no attribute of this name;
    /// `EOPNOTSUPP`, `EPERM` as for [`setxattr`](Self::setxattr).
    pub fn removexattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.remove_xattr_how(path.as_ref(), name.as_ref(), LookupFlags::FOLLOW)
    }

    /// Removes an extended attribute of `path` itself, even if it is a symbolic link.
    ///
    /// # Errors
    /// The errors of [`removexattr`](Self::removexattr).
    pub fn lremovexattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.remove_xattr_how(path.as_ref(), name.as_ref(), LookupFlags::NOFOLLOW)
    }

    fn remove_xattr_how(&self, path: &Path, name: &OsStr, how: LookupFlags) -> Result<()> {
        let name = name.as_bytes();
        self.run("remove an attribute of", path, |path| {
            self.vfs().remove_xattr(path, name, how)
        })
    }

    /// Sets or removes an ACL. An access ACL also sets the permission bits.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EOPNOTSUPP` on a volume or kind of file without
    /// ACLs; `EINVAL` for an ACL that makes no sense; `EACCES` for a default ACL of a file that is
    /// no directory; `EPERM`; `ENOSPC`.
    pub fn set_acl(&self, path: impl AsRef<Path>, kind: AclKind, acl: Option<Acl>) -> Result<()> {
        self.run("set the ACL of", path.as_ref(), |path| {
            self.vfs().set_acl(path, kind, acl, LookupFlags::FOLLOW)
        })
    }

    fn run(
        &self,
        action: &'static str,
        path: &Path,
        operate: impl FnOnce(&[u8]) -> vfs::Result<()>,
    ) -> Result<()> {
        operate(bytes(path)).map_err(|e| Error::vfs(action, path, e))
    }
}
