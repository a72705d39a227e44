//! Changes that become durable together, or not at all.
//!
//! A program begins one with [`Volume::transaction`](crate::Volume::transaction), and so do the
//! command's scripts. After a crash, the volume has all changes of a committed transaction and none
//! of another. If it is dropped without a commit, the volume refuses further changes and none of it
//! becomes durable.

use extern4_ext4 as ext4;
use extern4_vfs::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::volume::Volume;

/// Changes of a volume that become durable together, or not at all; see [`Volume::transaction`].
///
/// Dropping it without a [`commit`](Self::commit) abandons it. Nothing of it is durable then, and
/// nothing on the volume can be changed any more: the caller drops the volume and opens it again.
pub struct Transaction<'v>(ext4::Transaction<'v>);

impl Volume {
    /// Begins a transaction of this thread. It first makes every change so far durable. All changes
    /// that follow, of any session, are one transaction of the journal. After a crash at any
    /// moment, the volume has all of them or none.
    ///
    /// A sync by this thread does not wait. Contents that a file had before are not written over in
    /// place: such a write fails with `EOPNOTSUPP`. A file may be replaced, removed, cut off or
    /// appended to.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] on a volume without a journal.
    ///
    /// ```
    /// use extern4::Volume;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
    ///     let session = volume.superuser();
    ///     let transaction = volume.transaction()?;
    ///     session.create_dir("/new")?;
    ///     session.write("/new/file", "contents")?;
    ///     transaction.commit()?;
    ///     Ok(())
    /// }
    /// ```
    pub fn transaction(&self) -> Result<Transaction<'_>> {
        Ok(Transaction(self.ext4().transaction().map_err(|error| {
            failed("begin a transaction on", error)
        })?))
    }
}

impl Transaction<'_> {
    /// Makes the changes durable.
    ///
    /// # Errors
    /// `ENOSPC` if they take more blocks than the journal has; the message has both numbers. After
    /// any error, nothing of the transaction is durable, and nothing on the volume can be changed
    /// any more.
    pub fn commit(self) -> Result<()> {
        self.0.commit().map_err(|error| match error {
            ext4::Error::Unsupported(ext4::Unsupported::Journal(why)) => {
                Error::new(ErrorKind::Os(Errno::ENOSPC), "commit").because(why)
            }
            error => failed("commit", error),
        })
    }
}

fn failed(action: &'static str, error: ext4::Error) -> Error {
    Error::new((&error).into(), action).because(error)
}
