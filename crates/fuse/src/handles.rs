//! Open files and directories, under the numbers by which the kernel names them.
//!
//! The handlers of `ops` insert a file at OPEN and find it for the requests on it, until RELEASE. A
//! number belongs to one open file until its release; an unknown one is `EBADF`. A file is closed
//! when it was removed here and the last request on it is done. Shards keep threads from contending
//! for one lock.

use std::sync::Arc;

use extern4_sync::primitive::Mutex;
use extern4_vfs::{DirBatch, Errno, OpenFile, Result};

use crate::caller::Caller;
use crate::lock::lock;

/// The number of shards, a power of two: the low bits of a handle's number choose the shard.
const SHARDS: usize = 16;

/// An open file or directory.
pub(crate) struct Handle {
    /// The file or directory.
    pub(crate) file: OpenFile,
    /// The caller that opened it.
    pub(crate) opener: Caller,
    /// Entries of a directory that were listed and not sent yet.
    pub(crate) listing: Mutex<Listing>,
}

impl Handle {
    /// Makes a handle for a file that `opener` has opened.
    pub(crate) fn new(opener: &Caller, file: OpenFile) -> Arc<Self> {
        Arc::new(Self {
            file,
            opener: *opener,
            listing: Mutex::default(),
        })
    }
}

/// Names of a directory that were listed ahead.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) batch: DirBatch,
    /// The cookie from which the first of them was listed.
    pub(crate) from: u64,
}

/// All open files and directories.
pub(crate) struct Handles {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Default)]
struct Shard {
    open: Vec<Option<Arc<Handle>>>,
    free: Vec<usize>,
}

impl Handles {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Inserts an open file; returns its number, which is not zero.
    pub(crate) fn enter(&self, handle: Arc<Handle>) -> u64 {
        // The node chooses the shard, so threads with different files seldom meet.
        let ino = handle.file.location().ino();
        let at = usize::try_from(ino % SHARDS as u64).expect("a small number");
        let mut shard = lock(&self.shards[at]);
        let index = match shard.free.pop() {
            Some(index) => {
                shard.open[index] = Some(handle);
                index
            }
            None => {
                shard.open.push(Some(handle));
                shard.open.len() - 1
            }
        };
        u64::try_from(index * SHARDS + at + 1).expect("as many as fit into memory")
    }

    /// Returns the open file of this number. `EBADF` if there is none.
    pub(crate) fn get(&self, fh: u64) -> Result<Arc<Handle>> {
        let (shard, index) = self.place(fh)?;
        lock(shard)
            .open
            .get(index)
            .cloned()
            .flatten()
            .ok_or(Errno::EBADF.into())
    }

    /// Removes an open file. The file is closed when its last user drops it.
    pub(crate) fn remove(&self, fh: u64) -> Result<Arc<Handle>> {
        let (shard, index) = self.place(fh)?;
        let mut shard = lock(shard);
        let handle = shard
            .open
            .get_mut(index)
            .and_then(Option::take)
            .ok_or(Errno::EBADF)?;
        shard.free.push(index);
        Ok(handle)
    }

    /// Closes everything: the kernel is gone.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *lock(shard));
            drop(gone);
        }
    }

    fn place(&self, fh: u64) -> Result<(&Mutex<Shard>, usize)> {
        let fh = usize::try_from(fh)
            .ok()
            .and_then(|fh| fh.checked_sub(1))
            .ok_or(Errno::EBADF)?;
        Ok((&self.shards[fh % SHARDS], fh / SHARDS))
    }
}
