//! Lists of two copies of one volume, without the files that are the same in both.
//!
//! The names of a directory that has not changed are the same in both volumes, and are read in one
//! only. They are not read at all if the directory leads to no inode that has changed. A file
//! whose inode has not changed is left out of both lists, if both volumes have its name at the
//! same inode. All others are listed, so the lists compare as whole ones do.
//!
//! `compare` calls it. Without such lists it lists both trees whole.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use extern4_vfs::FileType;

use super::Both;
use super::directories::LeadingDirectories;
use super::inodes::{Inodes, NoLists};
use super::listing::Listing;
use crate::build::TreeReader;
use crate::build::deep_path::enter;
use crate::dir::is_step;
use crate::session::Session;

/// A walk over both trees.
struct Walk<'c> {
    inodes: &'c Inodes,
    leading: &'c LeadingDirectories,
    tops: Both<&'c Session>,
    old: Side,
    new: Side,
    /// Directories that are left to visit.
    directories: Vec<Directory>,
}

/// The reader of one tree and its list.
#[derive(Default)]
struct Side {
    reader: TreeReader,
    listing: Listing,
    /// Directories that were found. A sound volume never leads to one twice.
    entered: HashSet<u64>,
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
pub(super) fn list(
    tops: Both<&Session>,
    inodes: &Inodes,
    leading: &LeadingDirectories,
) -> Result<Both<Listing>, NoLists> {
    let inos = Both {
        old: tops.old.metadata(".")?.ino(),
        new: tops.new.metadata(".")?.ino(),
    };
    let (old, new, directories) = (Side::default(), Side::default(), Vec::new());
    let mut walk = Walk {
        inodes,
        leading,
        tops,
        old,
        new,
        directories,
    };
    let top = inos.map(|ino| {
        Some(Named {
            ino,
            is_directory: true,
        })
    });
    walk.name(tops, b".", Vec::new(), top)?;
    while let Some(directory) = walk.directories.pop() {
        walk.visit(&directory)?;
    }
    Ok(Both {
        old: walk.old.listing,
        new: walk.new.listing,
    })
}

impl Walk<'_> {
    fn visit(&mut self, directory: &Directory) -> Result<(), NoLists> {
        let old = names(&directory.session)?;
        let is_same = |named: &Named| !self.inodes.is_changed(named.ino);
        if !directory.has_changed && old.values().all(is_same) {
            for (name, named) in old.into_iter().filter(|(_, named)| named.is_directory) {
                let inos = Both {
                    old: named.ino,
                    new: named.ino,
                };
                self.enter(
                    &directory.session,
                    &name,
                    joined(&directory.path, &name),
                    inos,
                    false,
                )?;
            }
            return Ok(());
        }
        let session = enter(self.tops.new, &directory.path)?;
        let mut new = if directory.has_changed {
            names(&session)?
        } else {
            old.clone()
        };
        let sessions = Both {
            old: &directory.session,
            new: &session,
        };
        for (name, old) in old {
            let named = Both {
                old: Some(old),
                new: new.remove(&name),
            };
            self.name(sessions, &name, joined(&directory.path, &name), named)?;
        }
        for (name, new) in new {
            let named = Both {
                old: None,
                new: Some(new),
            };
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
        let is_same = named.old == named.new
            && named
                .old
                .is_some_and(|old| !self.inodes.is_changed(old.ino));
        if !is_same {
            if named.old.is_some() {
                self.old
                    .add(sessions.old, name, path.clone(), self.inodes)?;
            }
            if named.new.is_some() {
                self.new
                    .add(sessions.new, name, path.clone(), self.inodes)?;
            }
        }
        match (named.old, named.new) {
            (Some(old), Some(new)) if old.is_directory && new.is_directory => {
                let inos = Both {
                    old: old.ino,
                    new: new.ino,
                };
                self.enter(sessions.old, name, path, inos, !is_same)
            }
            (old, new) => {
                let is_directory = |named: &Named| named.is_directory;
                if let Some(old) = old.filter(is_directory) {
                    self.old
                        .add_below(sessions.old, name, path.clone(), old.ino, self.inodes)?;
                }
                if let Some(new) = new.filter(is_directory) {
                    self.new
                        .add_below(sessions.new, name, path, new.ino, self.inodes)?;
                }
                Ok(())
            }
        }
    }

    /// Notes a directory that both trees have, unless nothing below it has changed.
    fn enter(
        &mut self,
        above: &Session,
        name: &[u8],
        path: Vec<u8>,
        inos: Both<u64>,
        has_changed: bool,
    ) -> Result<(), NoLists> {
        if !has_changed && !self.leading.contains(inos.old) {
            return Ok(());
        }
        if !self.old.entered.insert(inos.old) || !self.new.entered.insert(inos.new) {
            return Err(NoLists);
        }
        let session = above.at(OsStr::from_bytes(name))?;
        self.directories.push(Directory {
            path,
            session,
            has_changed,
        });
        Ok(())
    }
}

impl Side {
    fn add(
        &mut self,
        session: &Session,
        name: &[u8],
        path: Vec<u8>,
        inodes: &Inodes,
    ) -> Result<(), NoLists> {
        let (entry, metadata) = self.reader.file(session, name, path)?;
        if !metadata.is_dir() && metadata.nlink() > 1 && !inodes.is_changed(metadata.ino()) {
            // Its other names may be in unchanged directories, and are not listed then.
            return Err(NoLists);
        }
        self.listing.insert(entry, false);
        Ok(())
    }

    /// Lists everything below a directory that the other tree does not have: names there may belong
    /// to files that have other names elsewhere.
    fn add_below(
        &mut self,
        above: &Session,
        name: &[u8],
        path: Vec<u8>,
        ino: u64,
        inodes: &Inodes,
    ) -> Result<(), NoLists> {
        let mut left = vec![(above.at(OsStr::from_bytes(name))?, path, ino)];
        while let Some((session, path, ino)) = left.pop() {
            if !self.entered.insert(ino) {
                return Err(NoLists);
            }
            for (name, named) in names(&session)? {
                let path = joined(&path, &name);
                self.add(&session, &name, path.clone(), inodes)?;
                if named.is_directory {
                    left.push((session.at(OsStr::from_bytes(&name))?, path, named.ino));
                }
            }
        }
        Ok(())
    }
}

/// Returns the path of a name in a directory below the top.
fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        name.to_vec()
    } else {
        [directory, b"/", name].concat()
    }
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
        names.insert(
            name.as_bytes().to_vec(),
            Named {
                ino: entry.ino(),
                is_directory,
            },
        );
    }
    Ok(names)
}
