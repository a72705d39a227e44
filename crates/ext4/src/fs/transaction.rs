//! [`Transaction`]: a transaction that a caller begins and ends. All operations in it become
//! durable together, or none does.
//!
//! The journal holds its running transaction open meanwhile. That covers metadata, and contents
//! that are new to a file, because the commit waits for them. It does not cover contents that a
//! write replaces in place: after a crash before the commit the new ones could be on the volume. So
//! such a write is refused (`EOPNOTSUPP`), unless the transaction made the file or the write is
//! past the file's end. A file that the transaction has truncated inside a block keeps the old
//! bytes after its new end, and then cannot grow until the commit.
//!
//! `Volume::transaction` of the crate `extern4` begins one. `file` and `ops` ask [`HeldFiles`]
//! before they write or truncate.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::PoisonError;

use extern4_jbd2::Hold;
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_sync::primitive::{AtomicBool, Mutex, MutexGuard};
use extern4_vfs::Errno;

use crate::error::{Result, Unsupported};
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;

/// A transaction that a caller has begun. Dropping it without a commit abandons it: none of its
/// changes becomes durable, and the volume takes no changes until it is opened again.
pub struct Transaction<'f> {
    fs: &'f Ext4,
    hold: Option<Hold<'f>>,
}

/// The files that the caller's transaction has made or truncated, by inode number.
#[derive(Default)]
pub(crate) struct HeldFiles {
    /// Whether there is a transaction.
    is_held: AtomicBool,
    files: Mutex<HashMap<u32, HeldFile>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldFile {
    /// The transaction made it, so it is gone after a crash.
    New,
    /// The transaction truncated it inside a block.
    Cut,
}

impl Ext4 {
    /// Begins a transaction of this thread, after making all earlier changes durable. Changes by
    /// other threads until the commit belong to it, too.
    ///
    /// # Errors
    /// [`Unsupported::Transaction`] on a volume without a journal.
    pub fn transaction(&self) -> Result<Transaction<'_>> {
        let writer = self.changer()?;
        if !writer.uses_journal() {
            return Err(Unsupported::Transaction.into());
        }
        let hold = writer.transactions.hold()?;
        writer.held_files.set_held(true);
        Ok(Transaction {
            fs: self,
            hold: Some(hold),
        })
    }
}

impl Transaction<'_> {
    /// Makes all changes since the transaction began durable, together.
    ///
    /// # Errors
    /// [`Unsupported::Journal`] with both sizes if they do not fit into the journal. After any
    /// error, nothing of the transaction is durable, and nothing can be changed any more.
    pub fn commit(mut self) -> Result<()> {
        // The files are held until the drop: a write in place must not reach the device before the
        // commit.
        if let Some(hold) = self.hold.take() {
            hold.commit()?;
        }
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Abandons the hold, if it was not committed.
        drop(self.hold.take());
        if let Some(writer) = self.fs.writer.get() {
            writer.held_files.set_held(false);
        }
    }
}

impl HeldFiles {
    fn files(&self) -> MutexGuard<'_, HashMap<u32, HeldFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is a transaction.
    pub(crate) fn is_held(&self) -> bool {
        // Relaxed: the thread of the transaction sees its own store. For other threads the
        // transaction begins when they see it.
        self.is_held.load(Relaxed)
    }

    fn set_held(&self, is_held: bool) {
        self.files().clear();
        // Relaxed: see `is_held`.
        self.is_held.store(is_held, Relaxed);
    }

    /// Notes that a file is new.
    pub(crate) fn note_new(&self, ino: u32) {
        if self.is_held() {
            self.files().insert(ino, HeldFile::New);
        }
    }

    /// Notes that a file is being truncated, inside a block or between two. Returns whether the
    /// bytes after its new end must stay on the device.
    pub(crate) fn note_cut(&self, ino: u32, is_inside_block: bool) -> bool {
        if !self.is_held() {
            return false;
        }
        match (self.files().entry(ino), is_inside_block) {
            (Entry::Occupied(file), _) if *file.get() == HeldFile::New => false,
            (file, true) => {
                file.insert_entry(HeldFile::Cut);
                true
            }
            // All bytes after the new end are in blocks that the file no longer has.
            (Entry::Occupied(file), false) => {
                file.remove();
                true
            }
            (Entry::Vacant(_), false) => true,
        }
    }

    /// Returns `EOPNOTSUPP` if a write at `from`, to a block that the file has, would survive a
    /// crash before the commit.
    pub(crate) fn check_in_place(&self, info: &InodeInfo, from: u64) -> Result<()> {
        if !self.is_held() {
            return Ok(());
        }
        let is_safe = match self.files().get(&info.ino()) {
            Some(HeldFile::New) => true,
            Some(HeldFile::Cut) => false,
            None => from >= info.size(),
        };
        if is_safe {
            Ok(())
        } else {
            Err(Errno::EOPNOTSUPP.into())
        }
    }
}
