//! Names of a directory.
//!
//! `MemFs` keeps one in each directory. The caller holds the node's lock; the VFS has checked that
//! a name to insert does not exist.
//!
//! Each name gets a number when it comes, greater than all before; the numbers are the cookies of
//! `readdir`. So a listing shows every name that is there throughout exactly once, whatever comes
//! and goes meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use crate::attr::FileType;
use crate::fs::RawDirEntry;

pub(super) struct Dir {
    parent: u64,
    by_name: HashMap<Box<[u8]>, u64>,
    by_cookie: BTreeMap<u64, NamedInode>,
    next_cookie: u64,
}

struct NamedInode {
    name: Box<[u8]>,
    kind: FileType,
    ino: u64,
}

/// Cookies 0 and 1 stand before `.` and `..`.
const FIRST_COOKIE: u64 = 2;

impl Dir {
    pub(super) fn new(parent: u64) -> Self {
        Self {
            parent,
            by_name: HashMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
        }
    }

    pub(super) fn set_parent(&mut self, parent: u64) {
        self.parent = parent;
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<u64> {
        Some(self.by_cookie[self.by_name.get(name)?].ino)
    }

    /// Adds a name that does not exist.
    pub(super) fn insert(&mut self, name: &[u8], kind: FileType, ino: u64) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_name.insert(name.into(), cookie);
        self.by_cookie.insert(
            cookie,
            NamedInode {
                name: name.into(),
                kind,
                ino,
            },
        );
    }

    /// Removes a name, if it exists.
    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(cookie) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }

    /// Binds a name to this inode; with `None`, removes the name.
    pub(super) fn set(&mut self, name: &[u8], what: Option<(FileType, u64)>) {
        self.remove(name);
        if let Some((kind, ino)) = what {
            self.insert(name, kind, ino);
        }
    }

    pub(super) fn list(
        &self,
        own_ino: u64,
        cookie: u64,
        each: &mut dyn FnMut(RawDirEntry<'_>) -> ControlFlow<()>,
    ) {
        let dots: [(&[u8], u64); 2] = [(b".", own_ino), (b"..", self.parent)];
        let dots = dots
            .into_iter()
            .zip(1u64..)
            .map(|((name, ino), next)| RawDirEntry {
                name,
                ino,
                kind: Some(FileType::Directory),
                next,
            });
        let names = self
            .by_cookie
            .range(cookie.max(FIRST_COOKIE)..)
            .map(|(cookie, entry)| RawDirEntry {
                name: &entry.name,
                ino: entry.ino,
                kind: Some(entry.kind),
                next: cookie + 1,
            });
        for entry in dots.filter(|entry| entry.next > cookie).chain(names) {
            if each(entry).is_break() {
                return;
            }
        }
    }
}
