//! Replacing the contents of a file atomically, by a new file that takes its name.
//!
//! Programs call [`Session::write_file`](crate::Session::write_file); the command's `put` replaces
//! files so, too. Readers, and the volume after a crash, have the old contents or the new ones,
//! whole. On an error the old file stays as it was and the new one is removed. Owner, mode, ACLs
//! and attributes are kept as far as the caller may set them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extern4_vfs as vfs;
use vfs::{AclKind, Caps, Errno, XattrFlags, XattrNamespace};

use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::metadata::Metadata;
use crate::session::Session;

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;

impl Session {
    /// Replaces the contents of a file, or creates it. A reader finds either the old file or the
    /// new one, whole, even after a crash. The call writes the contents under another name in the
    /// same directory, makes them durable, and renames that file.
    ///
    /// The call writes through a symbolic link, as `std::fs::write` does. The link and the path
    /// that it leads to stay, and its target need not exist yet.
    ///
    /// The new file takes from the old one the attributes that
    /// [`keep_attributes`](Self::keep_attributes) lists. It is another file: further names of the
    /// old one still lead to the old contents.
    ///
    /// # Errors
    /// `EISDIR` for a directory, and `EINVAL` for any other file that is not regular; the call
    /// replaces neither.
    pub fn write_file(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        self.replace_file(path, |file| {
            file.write_all_at(contents.as_ref(), 0)
                .map_err(|error| error.at(path))
        })
    }

    /// Replaces the contents of a file with the bytes that `write` writes to the new file. If
    /// `write` fails, the old file stays as it is. Otherwise this works as `write_file`.
    ///
    /// # Errors
    /// The error of `write`, or the errors of `write_file`. The old file stays as it is.
    pub fn replace_file<E: From<Error>>(
        &self,
        path: impl AsRef<Path>,
        write: impl FnOnce(&File) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = path.as_ref();
        // This refuses links that form a loop.
        let is_there = match self.metadata(path) {
            Ok(old) if old.is_file() => true,
            Ok(old) => {
                let errno = if old.is_dir() {
                    Errno::EISDIR
                } else {
                    Errno::EINVAL
                };
                return Err(Error::new(ErrorKind::Os(errno), "write").at(path).into());
            }
            Err(error) if error.errno() == Errno::ENOENT => false,
            Err(error) => return Err(error.into()),
        };
        if self
            .symlink_metadata(path)
            .is_ok_and(|found| found.is_symlink())
        {
            return self.replace_file(path.with_file_name(self.read_link(path)?), write);
        }
        let name = path
            .file_name()
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "write").at(path))?;
        // Until the new file has the old one's rights, no other user may read it.
        let (file, beside) =
            self.create_temporary(path, name, if is_there { 0o600 } else { 0o666 })?;
        let written = (|| {
            write(&file)?;
            if is_there {
                self.keep_attributes(path, &beside)
                    .map_err(|error| error.at(path))?;
            }
            file.sync_all().map_err(|error| error.at(path))?;
            Ok(self.rename(&beside, path).map_err(|error| error.at(path))?)
        })();
        if written.is_err() {
            let _ = self.remove_file(&beside);
        }
        written
    }

    /// Creates a file under a name that no other program uses, in the directory of `path`.
    pub(crate) fn create_temporary(
        &self,
        path: &Path,
        name: &OsStr,
        mode: u32,
    ) -> Result<(File, PathBuf)> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(mode);
        self.with_temporary_name(path, name, |beside| self.open_with(beside, &options))
    }

    /// Has `make` make a file under a name that no other file has, in the directory of `path`.
    pub(crate) fn with_temporary_name<T>(
        &self,
        path: &Path,
        name: &OsStr,
        mut make: impl FnMut(&Path) -> Result<T>,
    ) -> Result<(T, PathBuf)> {
        for attempt in 0u32.. {
            let mut beside = OsString::from(".");
            // Short enough for a name, however long the original is.
            beside.push(OsStr::from_bytes(&name.as_bytes()[..name.len().min(200)]));
            beside.push(format!(".new{attempt}"));
            let beside = path.with_file_name(beside);
            match make(&beside) {
                Err(error) if error.errno() == Errno::EEXIST => {}
                // The caller does not know the temporary name.
                made => {
                    return made
                        .map(|made| (made, beside))
                        .map_err(|error| error.at(path));
                }
            }
        }
        Err(Error::new(ErrorKind::Os(Errno::EEXIST), "write").at(path))
    }

    /// Gives `new`, a regular file with other contents, the attributes that it needs to take the
    /// place of `old`. These are its mode, its ACL and its extended attributes, and its owner where
    /// the session may give it.
    ///
    /// Linux takes some attributes from a file whose contents change, and `new` does not get those.
    /// They are capabilities, and set-id bits unless the session has `CAP_FSETID` and the owner is
    /// the same. `new` also does not get attributes that only a more privileged session may set.
    ///
    /// # Errors
    /// The errors of [paths](Session#errors); the errors of the calls that set attributes. `new`
    /// may then have some of them.
    pub fn keep_attributes(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        let old = old.as_ref();
        let new = new.as_ref();
        let found = self.metadata(old)?;
        // Only a privileged session may give files away. For others, the new file is their own.
        let given = self
            .lchown(new, Some(found.uid()), Some(found.gid()))
            .is_ok();
        self.keep_xattrs(old, new)?;
        let acl = self.acl(old, AclKind::Access)?;
        // The directory may have given the new file an ACL, whose mask the mode would set.
        if acl.is_none() && self.acl(new, AclKind::Access)?.is_some() {
            self.set_acl(new, AclKind::Access, None)?;
        }
        self.set_permissions(new, found.mode() & !self.set_ids_lost(&found, given))?;
        match acl {
            Some(acl) => self.set_acl(new, AclKind::Access, Some(acl)),
            None => Ok(()),
        }
    }

    /// Returns the set-id bits that the new contents must not have.
    fn set_ids_lost(&self, old: &Metadata, given: bool) -> u32 {
        // On a file of another owner than intended, such a bit is a security hole.
        if !given {
            return SET_UID | SET_GID;
        }
        if self.cred().has(Caps::FSETID) {
            return 0;
        }
        // Without the group's execute bit, set-group-id has another meaning.
        if old.mode() & GROUP_EXECUTES != 0 {
            SET_UID | SET_GID
        } else {
            SET_UID
        }
    }

    fn keep_xattrs(&self, old: &Path, new: &Path) -> Result<()> {
        for name in self.listxattr(old)? {
            // ACLs go with the mode. Capabilities were given to the old contents.
            if name == "security.capability"
                || XattrNamespace::of(name.as_bytes()) == Some(XattrNamespace::System)
            {
                continue;
            }
            let Some(value) = self.getxattr(old, &name)? else {
                continue;
            };
            match self.lsetxattr(new, &name, &value, XattrFlags::empty()) {
                Err(error) if error.errno() == Errno::EPERM => {}
                set => set?,
            }
        }
        Ok(())
    }
}
