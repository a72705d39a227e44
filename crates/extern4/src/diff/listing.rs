//! Lists of the files of a tree, in an order that is the same for all kinds of trees.
//!
//! `tree` lists each tree, and `compare` merges two lists. A list has each path once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use extern4_tree::{Entry, Error, Kind, Result, Sink, Source, Time};

use super::fault::Fault;
use crate::build::{TreeWalk, Unreadable};
use crate::session::Session;

/// The files of a tree.
#[derive(Default)]
pub(super) struct Listing {
    /// The files by their [keys](key).
    pub(super) files: BTreeMap<Vec<u8>, Listed>,
    /// Messages about files that were left out of the list, or altered.
    pub(super) warnings: Vec<String>,
    /// Files of a volume that cannot be read.
    pub(super) unreadable: Vec<Unreadable>,
    /// Why the list ends early.
    pub(super) failure: Option<Error>,
}

/// A file of a tree.
#[derive(Clone)]
pub(super) struct Listed {
    /// The file. All its names share one entry, which has the path of the first name that was read.
    pub(super) entry: Arc<Entry>,
    /// Whether the tree has the path of a directory, and nothing else about it.
    pub(super) is_implied: bool,
    /// Whether it is the empty lost+found that every volume has.
    pub(super) is_lost_found: bool,
}

impl Listed {
    /// Returns a directory of which only the path is known.
    fn implied(path: &[u8]) -> Self {
        let path = path.to_vec();
        let kind = Kind::Directory;
        let mtime = Time::default();
        let xattrs = Vec::new();
        let entry = Arc::new(Entry {
            path,
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            mtime,
            xattrs,
            flags: None,
            project: None,
        });
        Self {
            entry,
            is_implied: true,
            is_lost_found: false,
        }
    }

    fn is_directory(&self) -> bool {
        self.entry.kind == Kind::Directory
    }
}

/// Returns the key of a path. In the order of the keys, a walk over both trees visits the names of
/// each directory in the order of their bytes.
pub(super) fn key(path: &[u8]) -> Vec<u8> {
    path.iter()
        .map(|byte| if *byte == b'/' { 0 } else { *byte })
        .collect()
}

/// Returns the path of a key.
pub(super) fn path(key: &[u8]) -> Vec<u8> {
    key.iter()
        .map(|byte| if *byte == 0 { b'/' } else { *byte })
        .collect()
}

impl Listing {
    /// Lists the directory of a volume in which a session stands, and everything below it.
    pub(super) fn of_volume(top: &Session) -> Self {
        let mut listing = Self::default();
        match TreeWalk::new(top) {
            Ok(walk) => walk.for_each(|file| match file {
                Ok(file) => listing.insert(file.entry, file.is_lost_found),
                Err(unreadable) => listing.unreadable.push(unreadable),
            }),
            Err(unreadable) => listing.unreadable.push(unreadable),
        }
        listing
    }

    /// Lists a source.
    pub(super) fn of_source(source: &dyn Source) -> Self {
        let mut listing = Self::default();
        listing.failure = source.scan(&mut listing).err();
        listing
            .files
            .entry(Vec::new())
            .or_insert_with(|| Listed::implied(b""));
        listing
    }

    /// Adds an entry. A name of a file that is not listed stays a hard link: the file could not be
    /// read, and the list says so already.
    pub(super) fn insert(&mut self, entry: Entry, is_lost_found: bool) {
        let key = key(&entry.path);
        let target = match &entry.kind {
            Kind::HardLink(target) => self.files.get(&self::key(target)).cloned(),
            _ => None,
        };
        let listed = target.unwrap_or_else(|| Listed {
            entry: Arc::new(entry),
            is_implied: false,
            is_lost_found,
        });
        self.files.insert(key, listed);
    }

    /// Adds the directories above a path that the source did not give.
    fn imply_parents(&mut self, path: &[u8]) -> Result<()> {
        let ends = path
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(at, _)| at);
        let ends: Vec<_> = (!path.is_empty())
            .then_some(0)
            .into_iter()
            .chain(ends)
            .collect();
        // Only the first entry of a directory needs a look at those above it.
        let is_listed = |end: &usize| {
            self.files
                .get(&key(&path[..*end]))
                .is_some_and(Listed::is_directory)
        };
        if ends.last().is_none_or(is_listed) {
            return Ok(());
        }
        for end in ends {
            let directory = self
                .files
                .entry(key(&path[..end]))
                .or_insert_with(|| Listed::implied(&path[..end]));
            if !directory.is_directory() {
                let reason = "a part of its path is no directory".to_owned();
                return Err(Error::Refused {
                    path: String::from_utf8_lossy(path).into_owned(),
                    reason,
                });
            }
        }
        Ok(())
    }

    /// Returns the names in a directory.
    pub(super) fn names(&self, directory: &[u8]) -> impl Iterator<Item = &[u8]> {
        let mut above = key(directory);
        if !above.is_empty() {
            above.push(0);
        }
        let len = above.len();
        let below = self.files.range(above.clone()..).map(|(key, _)| &key[..]);
        let below = below.take_while(move |key| key.starts_with(&above));
        below
            .map(move |key| &key[len..])
            .filter(|name| !name.is_empty() && !name.contains(&0))
    }

    /// Returns whether the list may lack a file, because it or a directory above it cannot be read.
    pub(super) fn may_lack(&self, key: &[u8]) -> bool {
        self.unreadable.iter().any(|file| {
            let unreadable = self::key(&file.path);
            let rest = key.strip_prefix(&unreadable[..]);
            rest.is_some_and(|rest| unreadable.is_empty() || rest.is_empty() || rest[0] == 0)
        })
    }

    /// Returns what the list lacks, with the reasons.
    pub(super) fn into_faults(self) -> Vec<Fault> {
        let unreadable = self.unreadable.into_iter();
        let unreadable = unreadable.map(|Unreadable { path, error }| Fault {
            path,
            error: error.into(),
        });
        let failure = self.failure.map(|error| Fault {
            path: Vec::new(),
            error: error.into(),
        });
        unreadable.chain(failure).collect()
    }

    /// Returns the key of the first name of each file with several names.
    pub(super) fn first_names(&self) -> HashMap<*const Entry, &[u8]> {
        let mut first = HashMap::new();
        for (key, listed) in self
            .files
            .iter()
            .filter(|(_, listed)| Arc::strong_count(&listed.entry) > 1)
        {
            first.entry(Arc::as_ptr(&listed.entry)).or_insert(&key[..]);
        }
        first
    }
}

impl Sink for Listing {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.imply_parents(&entry.path)?;
        if let Kind::HardLink(target) = &entry.kind
            && !self.files.contains_key(&key(target))
        {
            let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
            return Err(Error::NoTarget {
                path: shown(&entry.path),
                target: shown(target),
            });
        }
        if entry.kind != Kind::Directory {
            self.clear(&entry.path)?;
        }
        self.insert(entry, false);
        Ok(())
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        self.clear(path)?;
        self.files.remove(&key(path));
        Ok(())
    }

    fn clear(&mut self, path: &[u8]) -> Result<()> {
        let mut first = key(path);
        if !first.is_empty() {
            first.push(0);
        }
        let below = self
            .files
            .range(first.clone()..)
            .map(|(key, _)| key.clone());
        let below: Vec<_> = below
            .take_while(|key| key.starts_with(&first))
            .filter(|key| !key.is_empty())
            .collect();
        for key in below {
            self.files.remove(&key);
        }
        Ok(())
    }

    fn warn(&mut self, message: String) {
        self.warnings.push(message);
    }
}
