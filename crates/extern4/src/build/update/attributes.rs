//! The attributes of a file in a volume, next to those that it is to have.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use extern4_disk::time::Timestamp;
use extern4_tree::{Entry, Kind};
use extern4_vfs::{Attributes, SetTime, Timespec, XattrFlags};

use super::step::Extra;
use crate::build::tree_walk::xattrs;
use crate::error::Result;
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
    /// Whether owner and group count.
    pub(super) owners: bool,
    pub(super) extra: Extra,
}

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

impl Wanted<'_> {
    /// Returns whether the file has these attributes already.
    pub(super) fn are_those_of(&self, file: Named<'_>, found: &Metadata) -> Result<bool> {
        if self.new_mode(found).is_some() || self.new_owner(found).is_some() || self.new_time(found).is_some()
        {
            return Ok(false);
        }
        let xattrs = xattrs(file.directory, file.name)?;
        Ok(self.lacking(&xattrs).next().is_none() && self.surplus(&xattrs).next().is_none())
    }

    /// Gives the file these attributes. It changes only those that differ.
    ///
    /// The order matters. An ACL that the directory gave would be changed by the mode, so it goes
    /// first. A change of the owner takes set-id bits and capabilities away, so it comes before
    /// attributes. The times come last.
    pub(super) fn set(&self, file: Named<'_>) -> Result<()> {
        let Named { directory, name } = file;
        for attribute in self.surplus(&xattrs(directory, name)?) {
            directory.lremovexattr(name, attribute)?;
        }
        let found = directory.symlink_metadata(name)?;
        let (mode, owner) = (self.new_mode(&found), self.new_owner(&found));
        if mode.is_some() || owner.is_some() {
            let (uid, gid) = owner.unzip();
            let is_symlink = found.is_symlink();
            let mode = (!is_symlink).then_some(self.entry.mode.into());
            directory.set_attributes(name, &Attributes { mode, uid, gid, ..Attributes::default() })?;
        }
        for (attribute, value) in self.lacking(&xattrs(directory, name)?) {
            directory.lsetxattr(name, OsStr::from_bytes(attribute), value, XattrFlags::empty())?;
        }
        match self.new_time(&found) {
            Some(time) => directory.lset_times(name, SetTime::Omit, time),
            None => Ok(()),
        }
    }

    /// Returns the mode if the file has another one. Links have none of their own.
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
        let (wanted, has) = (Timestamp { seconds: time.secs, nanos: time.nanos }, found.mtime());
        let stored = match found.btime() {
            Some(_) => {
                let (low, extra) = wanted.encode();
                Timestamp::decode(low, Some(extra))
            }
            // Inodes without a time of creation have no room for nanoseconds either.
            None => Timestamp::decode(wanted.encode_short(), None),
        };
        let is_same = (stored.seconds, stored.nanos) == (has.sec, has.nsec);
        (!is_same).then_some(Timespec { sec: time.secs, nsec: time.nanos })
    }

    /// Returns the attributes that a file with these lacks, or has with another value.
    fn lacking<'s>(&'s self, has: &'s Xattrs) -> impl Iterator<Item = &'s (Vec<u8>, Vec<u8>)> {
        self.entry.xattrs.iter().filter(move |attribute| !has.contains(attribute))
    }

    /// Returns the names of those attributes among these that the file is not to have.
    fn surplus(&self, has: &Xattrs) -> impl Iterator<Item = OsString> {
        let is_wanted = |name: &[u8]| self.entry.xattrs.iter().any(|(wanted, _)| *wanted == name);
        let keeps = self.extra == Extra::Keep;
        let names = has.iter().filter(move |(name, _)| !keeps && !is_wanted(name));
        names.map(|(name, _)| OsString::from_vec(name.clone()))
    }
}
