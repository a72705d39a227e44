//! A batch of directory entries, which one call of a listing returns.
//!
//! `OpenFile::read_dir` fills it from the file system's listing for its caller: the FUSE server, or
//! a listing of the `extern4` crate. One buffer holds the names of a batch, so a listing allocates
//! nothing for each entry. Entries keep the file system's order. Each carries the cookie with which
//! a listing goes on after it.

use extern4_sync::rcu_arc::RcuArc;

use crate::attr::{Attr, FileType};
use crate::fs::RawDirEntry;
use crate::inode::Inode;

/// Entries of a directory, as one call listed them.
#[derive(Default)]
pub struct DirBatch {
    names: Vec<u8>,
    entries: Vec<BatchEntry>,
    reaches_end: bool,
}

struct BatchEntry {
    name_end: usize,
    ino: u64,
    kind: Option<FileType>,
    next: u64,
    attr: Option<Attr>,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The name, without a slash, 1 to 255 bytes.
    pub name: &'a [u8],
    /// Its inode number.
    pub ino: u64,
    /// Its type, where known without reading the inode.
    pub kind: Option<FileType>,
    /// The cookie with which a listing continues after it.
    pub next: u64,
    /// Its attributes, if the caller asked for them and they could be read.
    pub attr: Option<&'a Attr>,
}

impl DirBatch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the batch has no entry: the listing has ended.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether the listing has ended with this batch. A batch that does not say so may
    /// still be the last one.
    pub fn reaches_end(&self) -> bool {
        self.reaches_end
    }

    /// Returns the cookie with which a listing continues after the last entry; `None` if there is
    /// no entry.
    pub fn next_cookie(&self) -> Option<u64> {
        self.entries.last().map(|entry| entry.next)
    }

    /// Returns the entry at `index`, counted from 0.
    ///
    /// # Panics
    ///
    /// If `index` is not below the number of entries.
    pub fn get(&self, index: usize) -> DirEntry<'_> {
        let start = index
            .checked_sub(1)
            .map_or(0, |before| self.entries[before].name_end);
        let entry = &self.entries[index];
        let name = &self.names[start..entry.name_end];
        DirEntry {
            name,
            ino: entry.ino,
            kind: entry.kind,
            next: entry.next,
            attr: entry.attr.as_ref(),
        }
    }

    /// Returns the entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = DirEntry<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Gives each entry the inode that `get` finds for it, and calls `found` with its name.
    pub(crate) fn add_inodes(
        &mut self,
        get: impl Fn(u64) -> Option<RcuArc<Inode>>,
        found: impl Fn(&[u8], RcuArc<Inode>),
    ) {
        let mut start = 0;
        for entry in &mut self.entries {
            let name = &self.names[start..entry.name_end];
            start = entry.name_end;
            if let Some(inode) = get(entry.ino) {
                entry.kind = Some(inode.kind());
                entry.attr = Some(inode.attr());
                found(name, inode);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
        self.reaches_end = false;
    }

    /// Notes that the directory has no entry after these.
    pub(crate) fn end(&mut self) {
        self.reaches_end = true;
    }

    pub(crate) fn push(&mut self, entry: RawDirEntry<'_>) {
        self.names.extend_from_slice(entry.name);
        let RawDirEntry {
            ino, kind, next, ..
        } = entry;
        self.entries.push(BatchEntry {
            name_end: self.names.len(),
            ino,
            kind,
            next,
            attr: None,
        });
    }
}
