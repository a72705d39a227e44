//! The attributes of a file in a volume, next to the attributes that it is to have.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use extern4_disk::inode::InodeFlags;
use extern4_disk::time::Timestamp;
use extern4_tree::{Entry, Kind};
use extern4_vfs::{Attributes, FileFlags, SetTime, Timespec, XattrFlags};

use super::step::Extra;
use crate::build::tree_walk::xattrs;
use crate::error::Result;
use crate::file_flags::{FORBIDDING, set_casefold, set_flags, set_project};
use crate::metadata::Metadata;
use crate::session::Session;

/// A file of a volume, by a session in its directory and its name there.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) directory: &'a Session,
    pub(super) name: &'a OsStr,
}

/// The attributes that a file is to have.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) entry: &'a Entry,
    /// Whether owner, group, flags and project count.
    pub(super) owners: bool,
    pub(super) extra: Extra,
}

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

impl Wanted<'_> {
    /// Returns whether the file has these attributes already.
    pub(super) fn are_those_of(&self, file: Named<'_>, found: &Metadata) -> Result<bool> {
        let changes = [
            self.new_mode(found).is_some(),
            self.new_owner(found).is_some(),
            self.new_time(found).is_some(),
            self.new_flags(found.flags()).is_some(),
            self.new_project(found).is_some(),
        ];
        if changes.contains(&true) {
            return Ok(false);
        }
        let xattrs = xattrs(file.directory, file.name)?;
        Ok(self.lacking(&xattrs).next().is_none() && self.surplus(&xattrs).next().is_none())
    }

    /// Gives the file these attributes. It changes only attributes that differ.
    ///
    /// The order matters. Flags that forbid changes go first; [`protect`](Self::protect) sets them
    /// when all else is done. An ACL that the directory gave would be changed by the mode, so it
    /// goes before that. A change of the owner takes set-id bits and capabilities away, so it comes
    /// before attributes. The times come after these.
    pub(super) fn set(&self, file: Named<'_>) -> Result<()> {
        let Named { directory, name } = file;
        let old = directory.symlink_metadata(name)?;
        if self.flags().is_some() && old.flags().intersects(FORBIDDING) {
            directory.set_flags(name, old.flags() - FORBIDDING)?;
        }
        for attribute in self.surplus(&xattrs(directory, name)?) {
            directory.lremovexattr(name, attribute)?;
        }
        let found = directory.symlink_metadata(name)?;
        let mode = self.new_mode(&found);
        let owner = self.new_owner(&found);
        if mode.is_some() || owner.is_some() {
            let (uid, gid) = owner.unzip();
            let is_symlink = found.is_symlink();
            let mode = (!is_symlink).then_some(self.entry.mode.into());
            directory.set_attributes(
                name,
                &Attributes {
                    mode,
                    uid,
                    gid,
                    ..Attributes::default()
                },
            )?;
        }
        for (attribute, value) in self.lacking(&xattrs(directory, name)?) {
            directory.lsetxattr(
                name,
                OsStr::from_bytes(attribute),
                value,
                XattrFlags::empty(),
            )?;
        }
        if let Some(project) = self.new_project(&found) {
            set_project(directory, Path::new(name), project)?;
        }
        if let Some(time) = self.new_time(&found) {
            directory.lset_times(name, SetTime::Omit, time)?;
        }
        let found = directory.symlink_metadata(name)?.flags();
        match self.new_flags(found).map(|flags| flags - FORBIDDING) {
            Some(flags) if flags != found => set_flags(file.directory, Path::new(file.name), flags),
            _ => Ok(()),
        }
    }

    /// Gives the file the flags that forbid changes.
    pub(super) fn protect(&self, file: Named<'_>) -> Result<()> {
        let found = file.directory.symlink_metadata(file.name)?.flags();
        match self.new_flags(found) {
            Some(flags) => set_flags(file.directory, Path::new(file.name), flags),
            None => Ok(()),
        }
    }

    /// Returns whether the file is to have flags that forbid changes.
    pub(super) fn protects(&self) -> bool {
        self.flags()
            .is_some_and(|flags| flags.intersects(FORBIDDING))
    }

    /// Has a new and empty directory compare names as the entry's does.
    pub(super) fn set_casefold(&self, file: Named<'_>) -> Result<()> {
        match self.flags() {
            Some(wanted) => set_casefold(file.directory, Path::new(file.name), wanted),
            None => Ok(()),
        }
    }

    /// The flags that the file is to have, if they count.
    fn flags(&self) -> Option<FileFlags> {
        let flags = self.entry.flags.filter(|_| self.owners)?;
        Some(FileFlags::from_bits_retain(flags.bits()))
    }

    /// Returns the flags if the file has others.
    fn new_flags(&self, found: FileFlags) -> Option<FileFlags> {
        let kept = FileFlags::from_bits_retain(InodeFlags::KEPT.bits());
        let new = (found - kept) | self.flags()?;
        (new != found).then_some(new)
    }

    /// Returns the project if the file has another one.
    fn new_project(&self, found: &Metadata) -> Option<u32> {
        self.entry
            .project
            .filter(|project| self.owners && *project != found.project())
    }

    /// Returns the mode if the file has another one. Links have none.
    fn new_mode(&self, found: &Metadata) -> Option<u32> {
        let mode = u32::from(self.entry.mode);
        let is_symlink = matches!(self.entry.kind, Kind::Symlink(_));
        (!is_symlink && found.mode() & 0o7777 != mode).then_some(mode)
    }

    fn new_owner(&self, found: &Metadata) -> Option<(u32, u32)> {
        let owner = (self.entry.uid, self.entry.gid);
        (self.owners && owner != (found.uid(), found.gid())).then_some(owner)
    }

    /// Returns the time of the last change, if that of the file is not the nearest that its inode
    /// can hold.
    fn new_time(&self, found: &Metadata) -> Option<Timespec> {
        let time = self.entry.mtime;
        let wanted = Timestamp {
            seconds: time.secs,
            nanos: time.nanos,
        };
        let has = found.mtime();
        let stored = match found.btime() {
            Some(_) => {
                let (low, extra) = wanted.encode();
                Timestamp::decode(low, Some(extra))
            }
            // Inodes without a time of creation have no room for nanoseconds either.
            None => Timestamp::decode(wanted.encode_short(), None),
        };
        let is_same = (stored.seconds, stored.nanos) == (has.sec, has.nsec);
        (!is_same).then_some(Timespec {
            sec: time.secs,
            nsec: time.nanos,
        })
    }

    /// Returns the attributes that a file with these lacks, or has with another value.
    fn lacking<'s>(&'s self, has: &'s Xattrs) -> impl Iterator<Item = &'s (Vec<u8>, Vec<u8>)> {
        self.entry
            .xattrs
            .iter()
            .filter(move |attribute| !has.contains(attribute))
    }

    /// Returns the names of those attributes among these that the file is not to have.
    fn surplus(&self, has: &Xattrs) -> impl Iterator<Item = OsString> {
        let is_wanted = |name: &[u8]| self.entry.xattrs.iter().any(|(wanted, _)| *wanted == name);
        let keeps = self.extra == Extra::Keep;
        let names = has
            .iter()
            .filter(move |(name, _)| !keeps && !is_wanted(name));
        names.map(|(name, _)| OsString::from_vec(name.clone()))
    }
}
