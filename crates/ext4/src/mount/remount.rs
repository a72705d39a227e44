//! Making a volume writable that was opened for reading, as `mount -o remount,rw` does.
//!
//! A volume that is read stands on a device that another can follow. The journal is replayed onto
//! that second device first. Then it reads as the volume was seen all along: through the journal,
//! if that was not empty. So cached blocks stay true, and files stay open. Only inodes that were
//! being truncated change, when the orphans are freed; the caller has those [read
//! again](Ext4::reread).

use std::sync::{Arc, PoisonError};

use extern4_block::{BlockDevice, CountedDevice};
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_vfs::{Errno, Inode};

use crate::alloc::orphan::find_left_over;
use crate::error::{Result, Unsupported};
use crate::fs::Ext4;
use crate::inode::cached::CachedInode;
use crate::mount::mmp::MmpGuard;
use crate::mount::options::OpenOptions;

/// Blocks of the volume that are cached while its journal is replayed.
const CACHE_BYTES: usize = 1 << 20;

impl Ext4 {
    /// Makes a volume writable that was opened for reading. `device` is the one that it was opened
    /// on, and can be written to by now. Returns the inodes that have changed by that. The caller
    /// has them [read again](Self::reread) before anything is changed. Does nothing for a volume
    /// that is writable.
    ///
    /// # Errors
    /// As [`open_for_writing`](Self::open_for_writing). A volume that another program has changed
    /// since it was opened. If it fails before anything has been written but the journal, it can be
    /// tried again.
    pub fn make_writable(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Vec<u32>> {
        let Some(upgrade) = &self.upgrade else { return Ok(Vec::new()) };
        let mut failed = upgrade.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        // Relaxed: stored before the lock was last taken by `wait`, or the volume is closed later.
        if self.is_closed.load(Relaxed) {
            return Err(Errno::EROFS.into());
        }
        if self.writer.get().is_some() {
            return Ok(Vec::new());
        }
        let counted = Arc::new(CountedDevice::new(device));
        let device = Arc::clone(&counted) as Arc<dyn BlockDevice>;
        let small = OpenOptions { cache_bytes: CACHE_BYTES, ..options.clone() };
        let fresh = Self::assemble_writable(&device, &small)?;
        let guard = MmpGuard::take(&fresh)?;
        let begun = fresh.recover(&small).and_then(|(fresh, journal)| {
            if fresh.superblock().encode() != self.superblock().encode() {
                let why =
                    "another program has changed it since it was opened; unmount it, and mount it again";
                return Err(Unsupported::WritingTo(why).into());
            }
            let left = find_left_over(self)?;
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
                guard.map_or(Ok(()), |guard| guard.release())?;
                Err(error)
            }
        }
    }

    /// Replaces an inode in use by what its record says now.
    ///
    /// # Errors
    /// A corrupt record, or a device that fails.
    pub fn reread(&self, inode: &Inode) -> Result<()> {
        let cached = inode.private::<CachedInode>();
        let _contents = cached.change_map();
        let info = self.load_inode(cached.peek(|info| info.ino()))?;
        let attr = info.attr(self)?;
        cached.set_in_memory(&info);
        inode.update(|old| *old = attr);
        Ok(())
    }
}
