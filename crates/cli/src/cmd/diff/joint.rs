//! Lists of two copies of one volume, without the files that are the same in both.
//!
//! The names of a directory that has not changed are those of both volumes, and are read in one
//! only. A file whose inode has not changed is left out of both lists, if both volumes have its
//! name at the same inode. All others are listed, so the lists compare as whole ones do.
//!
//! `compare` calls it. Without such lists it lists both trees whole.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use extern4::build::TreeReader;
use extern4::is_step;
use extern4::{FileType, Session};

use super::Both;
use super::inodes::ChangedInodes;
use super::listing::Listing;
use crate::volume_tree::at;

/// The error where there are no such lists: something cannot be read, or the volumes are not two
/// copies of one. The lists of the whole trees then show the reason.
#[derive(Debug)]
pub(super) struct NoLists;

impl From<extern4::Error> for NoLists {
    fn from(_: extern4::Error) -> Self {
        Self
    }
}

/// A walk over both trees.
struct Walk<'c> {
    changed: &'c ChangedInodes,
    tops: Both<&'c Session>,
    old: Side,
    new: Side,
    /// Directories that are left to visit.
    directories: Vec<Directory>,
    /// Directories that were found. A sound volume never leads to one twice.
    entered: HashSet<u64>,
}

/// The reader of one tree and its list.
#[derive(Default)]
struct Side {
    reader: TreeReader,
    listing: Listing,
}

/// A directory that both trees have.
struct Directory {
    path: Vec<u8>,
    session: Session,
    has_changed: bool,
}

/// The file that a name belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Named {
    ino: u64,
    is_directory: bool,
}

/// Lists what may differ below two directories, in which the sessions stand.
pub(super) fn list(tops: Both<&Session>, changed: &ChangedInodes) -> Result<Both<Listing>, NoLists> {
    let inos = Both { old: tops.old.metadata(".")?.ino(), new: tops.new.metadata(".")?.ino() };
    let (old, new, directories, entered) = (Side::default(), Side::default(), Vec::new(), HashSet::new());
    let mut walk = Walk { changed, tops, old, new, directories, entered };
    let top = inos.map(|ino| Some(Named { ino, is_directory: true }));
    walk.name(tops, b".", Vec::new(), top)?;
    while let Some(directory) = walk.directories.pop() {
        walk.visit(&directory)?;
    }
    Ok(Both { old: walk.old.listing, new: walk.new.listing })
}

impl Walk<'_> {
    fn visit(&mut self, directory: &Directory) -> Result<(), NoLists> {
        let old = names(&directory.session)?;
        let is_same = |named: &Named| !self.changed.contains(named.ino);
        if !directory.has_changed && old.values().all(is_same) {
            for (name, named) in old.into_iter().filter(|(_, named)| named.is_directory) {
                self.enter(&directory.session, &name, joined(&directory.path, &name), named.ino, false)?;
            }
            return Ok(());
        }
        let session = at(self.tops.new, &directory.path)?;
        let mut new = if directory.has_changed { names(&session)? } else { old.clone() };
        let sessions = Both { old: &directory.session, new: &session };
        for (name, old) in old {
            let named = Both { old: Some(old), new: new.remove(&name) };
            self.name(sessions, &name, joined(&directory.path, &name), named)?;
        }
        for (name, new) in new {
            let named = Both { old: None, new: Some(new) };
            self.name(sessions, &name, joined(&directory.path, &name), named)?;
        }
        Ok(())
    }

    /// Lists a name that one of the trees has, or both, unless its file is the same.
    fn name(
        &mut self,
        sessions: Both<&Session>,
        name: &[u8],
        path: Vec<u8>,
        named: Both<Option<Named>>,
    ) -> Result<(), NoLists> {
        let is_same = named.old == named.new && named.old.is_some_and(|old| !self.changed.contains(old.ino));
        if !is_same {
            if named.old.is_some() {
                self.old.add(sessions.old, name, path.clone(), self.changed)?;
            }
            if named.new.is_some() {
                self.new.add(sessions.new, name, path.clone(), self.changed)?;
            }
        }
        match (named.old, named.new) {
            (Some(old), Some(new)) if old.is_directory && new.is_directory => {
                self.enter(sessions.old, name, path, old.ino, !is_same)
            }
            _ => Ok(()),
        }
    }

    fn enter(
        &mut self,
        above: &Session,
        name: &[u8],
        path: Vec<u8>,
        ino: u64,
        has_changed: bool,
    ) -> Result<(), NoLists> {
        if !self.entered.insert(ino) {
            return Err(NoLists);
        }
        let session = above.at(OsStr::from_bytes(name))?;
        self.directories.push(Directory { path, session, has_changed });
        Ok(())
    }
}

impl Side {
    fn add(
        &mut self,
        session: &Session,
        name: &[u8],
        path: Vec<u8>,
        changed: &ChangedInodes,
    ) -> Result<(), NoLists> {
        let (entry, metadata) = self.reader.file(session, name, path)?;
        if !metadata.is_dir() && metadata.nlink() > 1 && !changed.contains(metadata.ino()) {
            // Its other names may be in unchanged directories, and are not listed then.
            return Err(NoLists);
        }
        self.listing.insert(entry, false);
        Ok(())
    }
}

/// Returns the path of a name in a directory below the top.
fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Returns the names in a directory.
fn names(session: &Session) -> Result<BTreeMap<Vec<u8>, Named>, NoLists> {
    let mut names = BTreeMap::new();
    for entry in session.read_dir(".")? {
        let entry = entry?;
        let is_directory = entry.file_type()? == FileType::Directory;
        let name = entry.file_name();
        if !is_step(name) {
            return Err(NoLists);
        }
        names.insert(name.as_bytes().to_vec(), Named { ino: entry.ino(), is_directory });
    }
    Ok(names)
}
