//! Transactions that a caller begins and ends: all operations in one become durable together, or
//! none does.
//!
//! The journal holds its running transaction open meanwhile. That covers metadata and contents that
//! are new to a file, which the commit follows. It does not cover contents that a write replaces in
//! place: a crash before the commit would leave the new ones. So such a write is refused
//! (`EOPNOTSUPP`), unless the file is new, or the write lies behind its end. A file that a
//! transaction cuts off inside a block keeps the old bytes behind its new end, and then cannot grow
//! until the commit.

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

/// A transaction under way. Dropping it abandons it: nothing of it becomes durable, and nothing on
/// the volume can be changed until it is opened again.
pub struct Transaction<'f> {
    fs: &'f Ext4,
    hold: Option<Hold<'f>>,
}

/// The files that a transaction has to treat in their own way, by inode number.
#[derive(Default)]
pub(crate) struct HeldFiles {
    /// Whether there is a transaction.
    is_held: AtomicBool,
    files: Mutex<HashMap<u32, HeldFile>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldFile {
    /// The transaction made it, so a crash leaves nothing of it.
    New,
    /// The transaction cut it off inside a block.
    Cut,
}

impl Ext4 {
    /// Begins a transaction of this thread, after it has made every change so far durable. Changes
    /// of other threads meanwhile belong to it, too.
    ///
    /// # Errors
    /// [`Unsupported::Transaction`] on a volume without a journal.
    pub fn transaction(&self) -> Result<Transaction<'_>> {
        let writer = self.writer()?;
        if !writer.uses_journal() {
            return Err(Unsupported::Transaction.into());
        }
        let hold = writer.transactions.hold()?;
        writer.held_files.set_held(true);
        Ok(Transaction { fs: self, hold: Some(hold) })
    }
}

impl Transaction<'_> {
    /// Makes all changes since the transaction began durable, together.
    ///
    /// # Errors
    /// [`Unsupported::Journal`] with both sizes if they do not fit into the journal. After any
    /// error, nothing of the transaction is durable, and nothing can be changed any more.
    pub fn commit(mut self) -> Result<()> {
        // The files are held until the drop: a write in place must not precede the commit.
        Ok(self.hold.take().map_or(Ok(()), Hold::commit)?)
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
        // Relaxed: the thread of the transaction sees its own store. For others the transaction
        // begins when they see it.
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

    /// Notes that a file is being cut off, inside a block or between two. Returns whether the bytes
    /// behind its new end must stay.
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
            // Everything behind the new end is in blocks that the file no longer has.
            (Entry::Occupied(file), false) => {
                file.remove();
                true
            }
            (Entry::Vacant(_), false) => true,
        }
    }

    /// Returns `EOPNOTSUPP` if a crash could not undo a write at `from`, to a block of the file.
    pub(crate) fn check_in_place(&self, info: &InodeInfo, from: u64) -> Result<()> {
        if !self.is_held() {
            return Ok(());
        }
        let is_safe = match self.files().get(&info.ino()) {
            Some(HeldFile::New) => true,
            Some(HeldFile::Cut) => false,
            None => from >= info.size(),
        };
        if is_safe { Ok(()) } else { Err(Errno::EOPNOTSUPP.into()) }
    }
}
