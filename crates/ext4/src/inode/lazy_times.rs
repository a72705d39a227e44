//! Times that are changed in memory only, as with Linux's `lazytime`.
//!
//! A read that updates the access time, and an overwrite of existing blocks, change nothing of an
//! inode but its times. [`LazyTimes`] keeps them until the inode is stored for another reason, or a
//! caller syncs it. They are also stored when the inode's last user closes it, or when they have
//! been here for long. A crash loses them. `utimensat` stores its times at once.
//!
//! `handle::times` puts times here and stores them; the handle and `fs::inode` take them from here.
//!
//! Source: `lazytime` in `mount(8)`, and the kernel's mount, against which it is tested. Linux 6.18
//! delays only access times; delaying the times of writes follows the manual.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use extern4_disk::inode::Inode as Fields;
use extern4_disk::time::Timestamp;
use extern4_sync::primitive::{Mutex, MutexGuard};

/// The times of all inodes that are not stored yet.
pub(crate) struct LazyTimes {
    /// How long times may stay here.
    most: Duration,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    of: HashMap<u32, Times>,
    /// When the oldest of them came.
    since: Option<Instant>,
}

#[derive(Clone, Copy)]
pub(crate) struct Times {
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    version: u64,
}

impl Times {
    pub(crate) fn of(fields: &Fields) -> Self {
        Self {
            atime: fields.atime(),
            mtime: fields.mtime(),
            ctime: fields.ctime(),
            version: fields.version(),
        }
    }

    pub(crate) fn apply(&self, fields: &mut Fields) {
        fields.set_atime(self.atime);
        fields.set_mtime(self.mtime);
        fields.set_ctime(self.ctime);
        fields.set_version(self.version);
    }
}

impl LazyTimes {
    pub(crate) fn new(most: Duration) -> Self {
        Self {
            most,
            pending: Mutex::default(),
        }
    }

    /// Locks: innermost, with the same rank as the list of orphans.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the times of an inode that are not stored yet.
    pub(crate) fn get(&self, ino: u32) -> Option<Times> {
        self.lock().of.get(&ino).copied()
    }

    /// Removes and returns the times, to be stored now. The caller holds the record's lock, so that
    /// no thread stores older ones later.
    pub(crate) fn take(&self, ino: u32) -> Option<Times> {
        self.lock().of.remove(&ino)
    }

    /// Keeps the times of an inode. Returns false, without keeping them, if some have been here for
    /// too long.
    pub(crate) fn keep(&self, ino: u32, times: Times) -> bool {
        let mut pending = self.lock();
        if pending.since.get_or_insert_with(Instant::now).elapsed() > self.most {
            return false;
        }
        pending.of.insert(ino, times);
        true
    }

    /// Returns the inodes with times here. The caller is about to store all of them.
    pub(crate) fn all(&self) -> Vec<u32> {
        let mut pending = self.lock();
        pending.since = None;
        pending.of.keys().copied().collect()
    }
}
