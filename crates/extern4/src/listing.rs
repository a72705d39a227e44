//! The listing of one directory, in bounded batches.
//!
//! `dir` and `walk` take the entries from it. A listing gives up its open directory when the walk
//! is far below, and continues at the same position afterwards.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use extern4_vfs as vfs;
use vfs::{DirBatch, OpenFile, OpenFlags};

use crate::error::{Error, Result};

/// Entries fetched at a time.
const BATCH: usize = 1024;

/// The state of listing one directory.
pub(crate) struct Listing {
    /// The session, standing in the directory. It keeps the directory in memory, so that the
    /// listing continues in the same one, wherever that has been moved.
    pub(crate) session: Arc<vfs::Session>,
    pub(crate) with_metadata: bool,
    /// The directory and the entries that were fetched last; `None` while it is closed.
    open: Option<Open>,
    /// The position after the last entry that the caller has received.
    cookie: u64,
    done: bool,
}

struct Open {
    directory: OpenFile,
    batch: DirBatch,
    /// Entries of the batch that the caller has received.
    taken: usize,
}

impl Listing {
    pub(crate) fn new(session: &vfs::Session, directory: OpenFile) -> Self {
        Self {
            session: Arc::new(session.at(directory.location())),
            with_metadata: false,
            open: Some(Open::new(directory)),
            cookie: 0,
            done: false,
        }
    }

    /// Closes the directory, and frees the entries that were fetched.
    pub(crate) fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.done |= open.taken == open.batch.len() && open.batch.reaches_end();
        }
    }

    /// Returns the next entry, without `.` and `..`. `path` is the directory's path, for messages.
    pub(crate) fn next(&mut self, path: &[u8]) -> Option<Result<vfs::DirEntry<'_>>> {
        let taken = match self.advance(path) {
            Ok(Some(taken)) => taken,
            Ok(None) => return None,
            Err(error) => {
                self.done = true;
                return Some(Err(Error::vfs(
                    "list",
                    Path::new(OsStr::from_bytes(path)),
                    error,
                )));
            }
        };
        let open = self.open.as_ref()?;
        Some(Ok(open.batch.get(taken)))
    }

    /// Returns the index of the next entry in the batch.
    fn advance(&mut self, path: &[u8]) -> vfs::Result<Option<usize>> {
        loop {
            let open = match &mut self.open {
                Some(open) => open,
                None if self.done => return Ok(None),
                None => self.open.insert(Open::new(self.session.open_location(
                    self.session.cwd().clone(),
                    OpenFlags::READ | OpenFlags::DIRECTORY,
                    path,
                )?)),
            };
            if open.taken == open.batch.len() {
                if self.done || open.batch.reaches_end() {
                    self.done = true;
                    return Ok(None);
                }
                open.fetch(self.cookie, self.with_metadata)?;
                self.done = open.batch.is_empty();
                continue;
            }
            let taken = open.taken;
            open.taken += 1;
            let entry = open.batch.get(taken);
            self.cookie = entry.next;
            if entry.name != b"." && entry.name != b".." {
                return Ok(Some(taken));
            }
        }
    }
}

impl Open {
    fn new(directory: OpenFile) -> Self {
        Self {
            directory,
            batch: DirBatch::new(),
            taken: 0,
        }
    }

    fn fetch(&mut self, cookie: u64, with_metadata: bool) -> vfs::Result<()> {
        self.taken = 0;
        if with_metadata {
            self.directory.read_dir_plus(cookie, BATCH, &mut self.batch)
        } else {
            self.directory.read_dir(cookie, BATCH, &mut self.batch)
        }
    }
}
