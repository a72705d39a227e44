//! Directories: OPENDIR, READDIR, READDIRPLUS.

use extern4_vfs::{DirEntry, Errno, How, OpenFlags, Result};

use crate::abi::{Dirent, EntryOut, FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE, OpenOut, ReadIn};
use crate::attributes::dirent_kind;
use crate::handles::{Handle, Listing};
use crate::lock::lock;
use crate::reply::Body;
use crate::request::Request;
use crate::server::Server;

/// Entries that are listed at a time, and sent as fast as the kernel takes them.
const ENTRIES: usize = 512;

impl Server {
    pub(crate) fn opendir(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let location = self.nodes.get(request.header.nodeid)?;
        let session = self.session(&request.header, &location);
        let dir = session.open_location(location, OpenFlags::READ | OpenFlags::DIRECTORY, b"")?;
        let fh = self.handles.enter(request.header.nodeid, dir);
        body.put(&OpenOut { fh, open_flags: FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE, backing_id: 0 })
    }

    pub(crate) fn readdir(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        self.list(request, body, |entry, room, body| {
            let record = record_len(entry.name);
            Ok(record <= room && put_dirent(entry, body).map(|()| true)?)
        })
    }

    pub(crate) fn readdirplus(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let dir = self.nodes.get(request.header.nodeid)?;
        let session = self.base.at(&dir);
        self.list(request, body, |entry, room, body| {
            if size_of::<EntryOut>() + record_len(entry.name) > room {
                return Ok(false);
            }
            // Of these two no node is told; nor of what has gone since it was listed, which the kernel then looks up.
            let found = match entry.name {
                b"." | b".." => None,
                name => session.locate(name, How::NOFOLLOW).ok(),
            };
            body.put(&found.map(|found| self.entry(found)).unwrap_or_default())?;
            put_dirent(entry, body)?;
            Ok(true)
        })
    }

    /// Lists as much as `put` has room for: it says whether it had.
    fn list(
        &self,
        request: &Request<'_>,
        body: &mut Body<'_>,
        put: impl Fn(&DirEntry<'_>, usize, &mut Body<'_>) -> Result<bool>,
    ) -> Result<()> {
        let read: ReadIn = request.arg()?;
        let handle = self.handles.get(read.fh)?;
        let size = usize::try_from(read.size).map_err(|_| Errno::EINVAL)?;
        let mut listing = lock(&handle.listing);
        let mut cookie = read.offset;
        loop {
            let Some(first) = listing.find(&handle, cookie)? else { return Ok(()) };
            for index in first..listing.batch.len() {
                let entry = listing.batch.get(index);
                if !put(&entry, size.saturating_sub(body.len()), body)? {
                    return Ok(());
                }
                cookie = entry.next;
            }
        }
    }
}

impl Listing {
    /// The place in the batch of what follows `cookie`; lists more if it is not there. `None` at the end.
    fn find(&mut self, handle: &Handle, cookie: u64) -> Result<Option<usize>> {
        // From the start means as it is now.
        if cookie != 0 {
            if self.from == cookie && !self.batch.is_empty() {
                return Ok(Some(0));
            }
            let before = self.batch.iter().position(|entry| entry.next == cookie);
            if let Some(next) = before.map(|before| before + 1).filter(|next| *next < self.batch.len()) {
                return Ok(Some(next));
            }
        }
        handle.file.read_dir(cookie, ENTRIES, &mut self.batch)?;
        self.from = cookie;
        Ok((!self.batch.is_empty()).then_some(0))
    }
}

/// How long the record of an entry is.
fn record_len(name: &[u8]) -> usize {
    (size_of::<Dirent>() + name.len()).next_multiple_of(8)
}

fn put_dirent(entry: &DirEntry<'_>, body: &mut Body<'_>) -> Result<()> {
    let namelen = u32::try_from(entry.name.len()).map_err(|_| Errno::EIO)?;
    body.put(&Dirent { ino: entry.ino, off: entry.next, namelen, kind: dirent_kind(entry.kind) })?;
    body.push(entry.name)?;
    let padding = record_len(entry.name) - size_of::<Dirent>() - entry.name.len();
    body.push(&[0; 8][..padding])
}
