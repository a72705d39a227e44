//! A view of a volume with the rights of one caller.
//!
//! A program gets one from [`Volume::session`](crate::Volume::session) and reads through it;
//! `change` has its methods that write, and `walk` the one that visits a tree. Each call is checked
//! as Linux checks that caller, whatever rights the process has. Sessions are cheap to clone, and
//! any thread may use them at once.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extern4_vfs as vfs;
use vfs::attr::permission_bits;
use vfs::lookup::PATH_MAX;
use vfs::{Access, Acl, AclKind, Cred, Errno, FileType, LookupFlags, OpenFlags, Uncached};

use crate::dir::ReadDir;
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::metadata::Metadata;

/// A view of a volume with the rights of one caller: its user, groups and capabilities, its root
/// and its working directory. Cheap to clone, and usable from any number of threads.
///
/// Relative paths start at the session's working directory, which is its root at first.
/// [`at`](Self::at) returns a session with another one, for the calls of the `...at` family.
///
/// # Errors
/// Every call that takes a path can fail on the way to it, as on Linux:
///
/// - `ENOENT` and `ENOTDIR` if a name is not there, or is no directory;
/// - `EACCES` if the caller may not search a directory, read, or write;
/// - `ELOOP` after 40 symbolic links, `ENAMETOOLONG` for a name over 255 or a path over 4,095
///   bytes;
/// - `EXDEV`, `ELOOP` or `EAGAIN` where the limits of [`with_resolve`](Self::with_resolve) end the
///   way;
/// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a structure on the way is damaged, with
///   its place; `EIO` if the device fails, or after the volume was shut down.
///
/// ```
/// use extern4::{Access, Cred, Errno, Volume};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let dir = tempfile::tempdir()?;
///     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
///     let root = volume.superuser();
///     root.create_dir("/etc")?;
///     root.write("/etc/hostname", "sample\n")?;
///     root.create_dir_with("/etc/secret", 0o700)?;
///
///     let etc = volume.session(Cred::new(1000, 1000, &[])).at("/etc")?;
///     assert_eq!(etc.metadata("hostname")?.len(), 7);
///     assert!(etc.access("hostname", Access::WRITE).is_err());
///     assert_eq!(etc.read_dir("secret").unwrap_err().errno(), Errno::EACCES);
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Session {
    pub(crate) vfs: vfs::Session,
    resolve: LookupFlags,
}

impl Session {
    pub(crate) fn new(vfs: vfs::Session) -> Self {
        Self {
            vfs,
            resolve: LookupFlags::empty(),
        }
    }

    /// Returns the credentials of the caller.
    pub fn cred(&self) -> &Cred {
        self.vfs.cred()
    }

    /// Returns this session with directory `path` as its working directory.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `ENOTDIR` if it is no directory.
    pub fn at(&self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut vfs = self.vfs.clone();
        let location = self.locate("enter", path, true)?;
        vfs = vfs.at(&location);
        // This checks that `path` is a directory that the caller may search.
        vfs.chdir(".").map_err(|e| Error::vfs("enter", path, e))?;
        Ok(Self {
            vfs,
            resolve: self.resolve,
        })
    }

    /// Descends along a path of any length until a call takes its rest, which has at most
    /// `PATH_MAX` bytes. Returns a session in the directory that it reached, and the rest.
    ///
    /// # Errors
    /// The errors of [`at`](Self::at) for the directories on the way.
    pub fn approach<'p>(&self, path: &'p Path) -> Result<(Cow<'_, Self>, &'p Path)> {
        let mut session = Cow::Borrowed(self);
        let mut rest = bytes(path);
        while let Some(start) = rest.get(..=PATH_MAX)
            && let Some(end) = start
                .iter()
                .rposition(|byte| *byte == b'/')
                .filter(|end| *end > 0)
        {
            session = Cow::Owned(session.at(OsStr::from_bytes(&rest[..end]))?);
            // A rest that begins with a slash would start at the root again.
            let name = rest[end..]
                .iter()
                .position(|byte| *byte != b'/')
                .unwrap_or(rest.len() - end);
            rest = &rest[end + name..];
        }
        Ok((session, Path::new(OsStr::from_bytes(rest))))
    }

    /// Returns this session with another umask: the permission bits that a new file does not get.
    /// The first umask is 022.
    pub fn with_umask(&self, umask: u32) -> Self {
        Self {
            vfs: self.vfs.with_umask(permission_bits(umask)),
            resolve: self.resolve,
        }
    }

    /// Returns the umask: the permission bits that a new file does not get.
    pub fn umask(&self) -> u32 {
        self.vfs.umask().into()
    }

    /// Returns this session with limits on path resolution: the limits of `openat2(2)`. The other
    /// flags have no effect here.
    pub fn with_resolve(&self, resolve: LookupFlags) -> Self {
        Self {
            vfs: self.vfs.clone(),
            resolve,
        }
    }

    pub(crate) fn vfs(&self) -> &vfs::Session {
        &self.vfs
    }

    pub(crate) fn resolve(&self) -> LookupFlags {
        self.resolve
    }

    pub(crate) fn how(&self, follow: bool) -> LookupFlags {
        self.resolve.with_follow(follow)
    }

    fn locate(&self, action: &'static str, path: &Path, follow: bool) -> Result<vfs::Location> {
        self.vfs
            .locate(bytes(path), self.how(follow))
            .map_err(|e| Error::vfs(action, path, e))
    }

    /// Returns the attributes of the file that `path` leads to, symbolic links followed.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors).
    ///
    /// ```
    /// use extern4::Volume;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     let session = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?.superuser();
    ///     session.write("/file", "text")?;
    ///     session.symlink("file", "/link")?;
    ///     assert!(session.metadata("/link")?.is_file());
    ///     assert!(session.symlink_metadata("/link")?.is_symlink());
    ///     Ok(())
    /// }
    /// ```
    #[inline]
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), true)
    }

    /// Returns the attributes of `path` itself, even if it is a symbolic link.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), false)
    }

    fn stat(&self, path: &Path, follow: bool) -> Result<Metadata> {
        let how = self.how(follow);
        let mut rest = Uncached::default();
        // In two steps, so that the result of the first is written once, to where the caller wants
        // it.
        if let Some(attr) = self.vfs.stat_cached(bytes(path), how, &mut rest) {
            return Ok(Metadata(attr));
        }
        let attr = self.vfs.stat_uncached(bytes(path), how, rest);
        attr.map(Metadata).map_err(|e| Error::vfs("stat", path, e))
    }

    /// Returns whether `path` leads to a file. If the caller may not search the path, that is an
    /// error, not a no.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors), but `ENOENT` and `ENOTDIR`, which are a no.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        // An access check without bits looks up only the name, so a no builds no error with the
        // path in it.
        match self
            .vfs
            .access(bytes(path), Access::empty(), self.how(true))
        {
            Ok(()) => Ok(true),
            Err(error) if error == Errno::ENOENT || error == Errno::ENOTDIR => Ok(false),
            Err(error) => Err(Error::vfs("stat", path, error)),
        }
    }

    /// Checks whether the caller may use the file at `path` in this way; fails with `EACCES` if
    /// not. Without bits, the call only checks that the file exists.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EACCES` if the caller may not; `EROFS` for writing
    /// on a volume that is not open for writing; `EPERM` for writing to an immutable file.
    pub fn access(&self, path: impl AsRef<Path>, access: Access) -> Result<()> {
        let path = path.as_ref();
        self.vfs
            .access(bytes(path), access, self.how(true))
            .map_err(|e| Error::vfs("access", path, e))
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EISDIR` for a directory, `ENXIO` for a device, pipe
    /// or socket; `ENOKEY` for an encrypted file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        Ok(File::new(self.open_vfs(path, OpenFlags::READ)?))
    }

    fn open_vfs(&self, path: &Path, flags: OpenFlags) -> Result<vfs::OpenFile> {
        let how = vfs::OpenHow {
            flags,
            mode: 0,
            resolve: self.resolve,
        };
        self.vfs
            .open(bytes(path), how)
            .map_err(|e| Error::vfs("open", path, e))
    }

    /// Returns the whole contents of a file.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open) and [`File::read_at`]; `ENOMEM` for a file that does not
    /// fit into memory.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.open(path)?.read_all()
    }

    /// Returns the whole contents of a file as text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if the contents are not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        let text = String::from_utf8(self.read(path)?);
        text.map_err(|e| {
            Error::new(ErrorKind::InvalidData, "read")
                .at(path)
                .because(e.utf8_error())
        })
    }

    /// Lists a directory, without `.` and `..`, in the directory's own order.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `ENOTDIR`; `EACCES` if the caller may not read it.
    /// Damage in the directory is an error of the iterator.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let directory = self.open_vfs(path, OpenFlags::READ | OpenFlags::DIRECTORY)?;
        Ok(ReadDir::new(&self.vfs, directory, path))
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EINVAL` if it is no symbolic link; `ENOKEY` for an
    /// encrypted one.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let target = self
            .vfs
            .read_link(bytes(path), self.how(false))
            .map_err(|e| Error::vfs("read the link", path, e))?;
        Ok(PathBuf::from(OsString::from_vec(target.to_vec())))
    }

    /// Returns the path with every symbolic link, `.` and `..` resolved, from the session's root.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors).
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let location = self.locate("resolve", path.as_ref(), true)?;
        Ok(PathBuf::from(OsString::from_vec(
            self.vfs.namespace().path_of(&location, self.vfs.root()),
        )))
    }

    /// Returns the value of an extended attribute, symbolic links followed; `None` if the file has
    /// none of that name.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); `EOPNOTSUPP` for a namespace that the volume does not
    /// have; `EACCES` or `EPERM` for one that the caller may not read.
    pub fn getxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        self.xattr(path.as_ref(), name.as_ref(), true)
    }

    /// Returns the value of an extended attribute of `path` itself, even if it is a symbolic link.
    ///
    /// # Errors
    /// The errors of [`getxattr`](Self::getxattr).
    pub fn lgetxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        self.xattr(path.as_ref(), name.as_ref(), false)
    }

    fn xattr(&self, path: &Path, name: &OsStr, follow: bool) -> Result<Option<Vec<u8>>> {
        match self
            .vfs
            .get_xattr(bytes(path), name.as_bytes(), self.how(follow))
        {
            Ok(value) => Ok(Some(value)),
            Err(error) if error == Errno::ENODATA => Ok(None),
            Err(error) => Err(Error::vfs("read an extended attribute of", path, error)),
        }
    }

    /// Returns the names of the extended attributes, symbolic links followed.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors).
    pub fn listxattr(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.xattr_names(path.as_ref(), true)
    }

    /// Returns the names of the extended attributes of `path` itself, even if it is a symbolic
    /// link.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors).
    pub fn llistxattr(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.xattr_names(path.as_ref(), false)
    }

    fn xattr_names(&self, path: &Path, follow: bool) -> Result<Vec<OsString>> {
        let names = self.vfs.list_xattr(bytes(path), self.how(follow));
        let names = names.map_err(|e| Error::vfs("list the extended attributes of", path, e))?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Returns an ACL, symbolic links followed. `None` if the mode bits say everything, or the
    /// volume has no ACLs.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors).
    pub fn acl(&self, path: impl AsRef<Path>, kind: AclKind) -> Result<Option<Acl>> {
        let path = path.as_ref();
        match self.vfs.acl(bytes(path), kind, self.how(true)) {
            Ok(acl) => Ok(acl.map(Arc::unwrap_or_clone)),
            Err(error) if error == Errno::EOPNOTSUPP => Ok(None),
            Err(error) => Err(Error::vfs("read the ACL of", path, error)),
        }
    }

    /// Returns the type of `path` itself, without following a symbolic link.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors).
    pub fn file_type(&self, path: impl AsRef<Path>) -> Result<FileType> {
        Ok(self.symlink_metadata(path)?.file_type())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("cred", self.cred())
            .finish_non_exhaustive()
    }
}

/// Returns the bytes of a path, as the VFS takes it.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
