//! Who has what open on a file system, and who is changing it.
//!
//! A file system turns read-only only while nobody changes it: see `WriteGuard`. A list of open files is no snapshot of
//! one moment: it holds every file that is open throughout, and perhaps others.

use std::collections::HashMap;

use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU64, AtomicUsize, Ordering};

use crate::errno::{Errno, Result};
use crate::file::OpenFlags;
use crate::lock::{self, Mutex};
use crate::mount::{Location, Mount};
use crate::superblock::SuperBlock;

/// Who has what open on one file system, and how many may change it.
pub(crate) struct OpenFiles {
    shards: Box<[Padded<Mutex<Shard>>]>,
    next_id: AtomicU64,
    /// Files open for writing and changes under way.
    writers: AtomicUsize,
}

/// Open files by number.
type Shard = HashMap<u64, Opened>;

struct Opened {
    location: Location,
    flags: OpenFlags,
    uid: u32,
}

/// An open file, as the registry lists it.
#[derive(Clone, Debug)]
pub struct OpenFileInfo {
    /// What is open.
    pub location: Location,
    /// How.
    pub flags: OpenFlags,
    /// The user who opened it.
    pub uid: u32,
}

const SHARDS: u64 = 16;

impl OpenFiles {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Padded::default()).collect();
        Self { shards, next_id: AtomicU64::new(0), writers: AtomicUsize::new(0) }
    }

    fn shard(&self, id: u64) -> &Mutex<Shard> {
        &self.shards[usize::try_from(id % SHARDS).expect("less than SHARDS")].0
    }

    pub(crate) fn enter(&self, location: &Location, flags: OpenFlags, uid: u32) -> u64 {
        // Relaxed: only uniqueness counts.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        lock::lock(self.shard(id)).insert(id, Opened { location: location.clone(), flags, uid });
        id
    }

    pub(crate) fn leave(&self, id: u64) {
        // Dropped outside of the lock: it may be the last reference to an inode.
        let opened = lock::lock(self.shard(id)).remove(&id);
        drop(opened);
    }

    /// Ends a guard that was kept.
    pub(crate) fn drop_kept_guard(&self) {
        drop(WriteGuard(self));
    }

    pub(crate) fn writers(&self) -> usize {
        // SeqCst: one half of the handshake in `WriteGuard`.
        self.writers.load(Ordering::SeqCst)
    }
}

impl SuperBlock {
    /// Every open file: those open throughout the call for certain, others perhaps.
    pub fn open_files(&self) -> Vec<OpenFileInfo> {
        let mut list = Vec::new();
        for shard in &self.files.shards {
            list.extend(lock::lock(&shard.0).values().map(|opened| OpenFileInfo {
                location: opened.location.clone(),
                flags: opened.flags,
                uid: opened.uid,
            }));
        }
        list
    }
}

/// A change is under way: keeps the file system from becoming read-only.
pub(crate) struct WriteGuard<'a>(&'a OpenFiles);

impl<'a> WriteGuard<'a> {
    /// `EROFS` if nothing may be changed through this mount.
    pub(crate) fn take(mount: &'a Mount) -> Result<Self> {
        let files = &mount.superblock().files;
        // SeqCst: counted first, looked at the flag then; `SuperBlock::remount` does the reverse, so that one of the two
        // sees the other.
        files.writers.fetch_add(1, Ordering::SeqCst);
        let guard = Self(files);
        if mount.is_read_only() { Err(Errno::EROFS.into()) } else { Ok(guard) }
    }
}

impl WriteGuard<'_> {
    /// Leaves the guard in force until [`OpenFiles::drop_kept_guard`]: for as long as a file is open for writing.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::SeqCst);
    }
}
