//! Makes a volume that was opened for reading writable, as `mount -o remount,rw` does.
//!
//! A volume that is read has a device that can be switched to another. [`Ext4::make_writable`]
//! replays the journal onto the writable device first. After that, it reads as the volume was seen
//! all along: through the replayed journal. So cached blocks stay valid, and files stay open. Only
//! inodes that were being truncated change, when the orphans are freed; the caller
//! [rereads](Ext4::reread) those.
//!
//! The mount's remount and the library's upgrade of a session call it. If another program has
//! changed the volume meanwhile, it is refused.

use std::sync::{Arc, PoisonError};

use extern4_block::{BlockDevice, CacheBudget, CountedDevice};
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_vfs::{Errno, Inode};

use crate::error::{Result, Unsupported};
use crate::fs::Ext4;
use crate::fs::mmp::MmpGuard;
use crate::fs::options::OpenOptions;
use crate::inode::cached::CachedInode;
use crate::ops::orphan::find_leftover_orphans;

/// The size of the buffer cache while the journal is replayed.
const CACHE_BYTES: u64 = 1 << 20;

impl Ext4 {
    /// Makes a volume that was opened for reading writable. `device` is the device that it was
    /// opened on, now opened for writing. Returns the inodes that this has changed. The caller
    /// [rereads](Self::reread) them before it changes anything. Does nothing for a volume that is
    /// writable.
    ///
    /// # Errors
    /// The errors of [`open_for_writing`](Self::open_for_writing), and a volume that another
    /// program has changed since it was opened. It can be tried again if nothing but the journal
    /// has been written.
    pub fn make_writable(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<Vec<u32>> {
        let Some(upgrade) = &self.upgrade else {
            return Ok(Vec::new());
        };
        let mut failed = upgrade
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        // Relaxed: `close` stores it and then takes this lock. So either this thread sees it, or
        // `close` waits for this upgrade.
        if self.is_closed.load(Relaxed) {
            return Err(Errno::EROFS.into());
        }
        if self.writer.get().is_some() {
            return Ok(Vec::new());
        }
        let counted = Arc::new(CountedDevice::new(device));
        let device = Arc::clone(&counted) as Arc<dyn BlockDevice>;
        let small = OpenOptions {
            budget: CacheBudget::new(CACHE_BYTES),
            ..options.clone()
        };
        let fresh = Self::assemble_writable(&device, &small)?;
        let guard = MmpGuard::take(&fresh)?;
        let begun = fresh.recover(&small).and_then(|(fresh, journal)| {
            if fresh.superblock().encode() != self.superblock().encode() {
                let why =
                    "another program has changed it since it was opened; unmount it, and mount it again";
                return Err(Unsupported::WritingTo(why).into());
            }
            let left = find_leftover_orphans(self)?;
            upgrade.device.follow(device);
            let begun = self.begin_writing(journal, counted, &left, options);
            begun.inspect_err(|error| *failed = Some(error.clone()))
        });
        match begun {
            Ok(changed) => {
                self.keep_guard(guard);
                Ok(changed)
            }
            Err(error) => {
                if let Some(guard) = guard {
                    guard.release()?;
                }
                Err(error)
            }
        }
    }

    /// Replaces an inode in use by the current contents of its record.
    ///
    /// # Errors
    /// A corrupt record, or a device that fails.
    pub fn reread(&self, inode: &Inode) -> Result<()> {
        let cached = inode.private::<CachedInode>();
        let _contents = cached.change_map();
        // OK: inode numbers of this file system have 32 bits.
        let info = self.load_inode(inode.ino() as u32)?;
        let attr = info.attr(self)?;
        cached.set_in_memory(&info);
        inode.update(|old| *old = attr);
        Ok(())
    }
}
