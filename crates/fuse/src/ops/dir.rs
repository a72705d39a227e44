//! Directories: OPENDIR, READDIR, READDIRPLUS.
//!
//! `Server` calls these handlers. If the kernel opens directories without asking the server, each
//! request opens its directory itself. A listing has each name exactly once, as long as no one
//! adds or removes that name meanwhile. Its cookies stay valid across requests and opens.

use std::sync::Arc;

use extern4_vfs::{DirBatch, DirEntry, Errno, OpenFlags, Result};

use crate::abi::{Dirent, EntryOut, FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE, OpenOut, ReadIn};
use crate::attributes::dirent_kind;
use crate::handles::{Handle, Listing};
use crate::lock::lock;
use crate::reply::Body;
use crate::request::Request;
use crate::server::Server;

/// Entries listed at a time. The server sends them as fast as the kernel takes them.
const ENTRIES: usize = 512;
/// Bytes of an entry with attributes and a name of usual length.
const PLUS_BYTES: usize = size_of::<EntryOut>() + size_of::<Dirent>() + 16;

impl Server {
    pub(crate) fn opendir(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        if !self.config().opens {
            return Err(Errno::ENOSYS.into());
        }
        let fh = self.handles.enter(self.dir(request, 0)?);
        body.put(&OpenOut {
            fh,
            open_flags: FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE,
            backing_id: 0,
        })
    }

    /// Returns the open directory that a request means. If the request names none, this opens the
    /// directory for it. Concurrent listings then need not wait for each other.
    fn dir(&self, request: &Request<'_>, fh: u64) -> Result<Arc<Handle>> {
        if fh != 0 {
            return self.handles.get(fh);
        }
        let location = self.nodes.get(request.header.nodeid)?;
        self.credentials.open(
            &request.caller,
            location,
            OpenFlags::READ | OpenFlags::DIRECTORY,
        )
    }

    pub(crate) fn readdir(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let read: ReadIn = request.arg()?;
        let handle = self.dir(request, read.fh)?;
        let size = usize::try_from(read.size).map_err(|_| Errno::EINVAL)?;
        let mut listing = lock(&handle.listing);
        let mut cookie = read.offset;
        while let Some(first) = listing.find(&handle, cookie)? {
            for index in first..listing.batch.len() {
                let entry = listing.batch.get(index);
                if body.len() + record_len(entry.name) > size {
                    return Ok(());
                }
                put_dirent(&entry, body)?;
                cookie = entry.next;
            }
        }
        Ok(())
    }

    /// Lists with attributes, and never ahead of the request. As long as a request is under way,
    /// the kernel allows no changes of the directory, and so every name sent still exists.
    pub(crate) fn readdirplus(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let read: ReadIn = request.arg()?;
        let handle = self.dir(request, read.fh)?;
        let size = usize::try_from(read.size).map_err(|_| Errno::EINVAL)?;
        let mut batch = DirBatch::new();
        let mut places = Vec::new();
        handle.file.read_dir_places(
            read.offset,
            (size / PLUS_BYTES).max(1),
            &mut batch,
            &mut places,
        )?;
        for (entry, place) in batch.iter().zip(places) {
            if body.len() + size_of::<EntryOut>() + record_len(entry.name) > size {
                break;
            }
            // `.` and `..` have no node in the answer. The kernel looks up an entry without a
            // location itself, and gets the error.
            body.put(&place.map(|place| self.entry(place)).unwrap_or_default())?;
            put_dirent(&entry, body)?;
        }
        Ok(())
    }
}

impl Listing {
    /// Returns the index in the batch of the entry that follows `cookie`; lists more if it is not
    /// there. `None` at the end.
    fn find(&mut self, handle: &Handle, cookie: u64) -> Result<Option<usize>> {
        // A listing from the start shows the present state.
        if cookie != 0 {
            if self.from == cookie && !self.batch.is_empty() {
                return Ok(Some(0));
            }
            let before = self.batch.iter().position(|entry| entry.next == cookie);
            if let Some(next) = before
                .map(|before| before + 1)
                .filter(|next| *next < self.batch.len())
            {
                return Ok(Some(next));
            }
        }
        handle.file.read_dir(cookie, ENTRIES, &mut self.batch)?;
        self.from = cookie;
        Ok((!self.batch.is_empty()).then_some(0))
    }
}

/// Returns the length of an entry's record.
fn record_len(name: &[u8]) -> usize {
    (size_of::<Dirent>() + name.len()).next_multiple_of(8)
}

fn put_dirent(entry: &DirEntry<'_>, body: &mut Body<'_>) -> Result<()> {
    let namelen = u32::try_from(entry.name.len()).map_err(|_| Errno::EIO)?;
    body.put(&Dirent {
        ino: entry.ino,
        off: entry.next,
        namelen,
        kind: dirent_kind(entry.kind),
    })?;
    body.push(entry.name)?;
    let padding = record_len(entry.name) - size_of::<Dirent>() - entry.name.len();
    body.push(&[0; 8][..padding])
}
