//! Times that are changed in memory only, as with Linux's `lazytime`.
//!
//! A read that is noted, and a write over what is there already, change nothing of an inode but its times. They are kept here until
//! the inode is stored for another reason, somebody asks for it to be durable, nobody uses it any more, or they have been here for
//! long; a crash loses them. `utimensat` is no such change: who sets times wants them kept.
//!
//! Source: `lazytime` in `mount(8)`, and the kernel's mount, beside which it is tested. Linux 6.18 was seen to be lazy about reads
//! only; writes are, too, by the manual.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use extern4_disk::inode::Inode as Fields;
use extern4_disk::time::Timestamp;
use extern4_disk::{Place, Structure};
use extern4_sync::primitive::{Mutex, MutexGuard};
use extern4_vfs::{Inode, SetAttr, Timespec};

use crate::error::Result;
use crate::inode::InodeInfo;
use crate::inode::inode_info::Node;
use crate::mount::Ext4;
use crate::ops::create::timestamp;

/// Times that are not stored yet.
pub(crate) struct LazyTimes {
    /// How long they may be here.
    most: Duration,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    of: HashMap<u32, Times>,
    /// Since when there are any.
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
    fn of(fields: &Fields) -> Self {
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
        Self { most, pending: Mutex::default() }
    }

    /// Locks: innermost, beside those of orphans.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The times of an inode that are not stored yet.
    pub(crate) fn get(&self, ino: u32) -> Option<Times> {
        self.lock().of.get(&ino).copied()
    }

    /// The same, which are stored now. Asked for under the record's lock, so that nobody stores older ones later.
    pub(crate) fn take(&self, ino: u32) -> Option<Times> {
        self.lock().of.remove(&ino)
    }

    /// Keeps the times of an inode; false if there are some that have been here for too long.
    fn keep(&self, ino: u32, times: Times) -> bool {
        let mut pending = self.lock();
        if pending.since.get_or_insert_with(Instant::now).elapsed() > self.most {
            return false;
        }
        pending.of.insert(ino, times);
        true
    }

    /// The inodes that there are times of, all of which are about to be stored.
    fn all(&self) -> Vec<u32> {
        let mut pending = self.lock();
        pending.since = None;
        pending.of.keys().copied().collect()
    }
}

impl Ext4 {
    /// Sets what `set` says in memory only, if that is no more than that the inode has been read; false if it has to be stored.
    /// Locks: the inode's `rwsem`, exclusive.
    pub(crate) fn note_read_lazily(&self, inode: &Inode, set: &SetAttr) -> Result<bool> {
        let Some(atime) = set.atime.filter(|_| self.lazy_times.get().is_some()) else { return Ok(false) };
        if *set != (SetAttr { atime: Some(atime), ..SetAttr::default() }) {
            return Ok(false);
        }
        let mut info = inode.private::<Node>().info();
        info.fields_mut().set_atime(timestamp(atime));
        self.keep_times(inode, &info)
    }

    /// Notes in memory only that what is there has been written over; false if that has to be stored.
    /// Locks: the inode's `rwsem`, exclusive.
    pub(crate) fn note_write_lazily(
        &self,
        inode: &Inode,
        info: &mut InodeInfo,
        now: Timespec,
    ) -> Result<bool> {
        if self.lazy_times.get().is_none() {
            return Ok(false);
        }
        let mut changed = info.clone();
        changed.fields_mut().set_mtime(timestamp(now));
        changed.fields_mut().set_ctime(timestamp(now));
        let kept = self.keep_times(inode, &changed)?;
        if kept {
            *info = changed;
        }
        Ok(kept)
    }

    fn keep_times(&self, inode: &Inode, info: &InodeInfo) -> Result<bool> {
        // A volume that was given up changes in memory no more either.
        let given_up = self.writer()?.transactions.error();
        given_up.map_or(Ok(()), |error| Err(crate::Error::from(error)))?;
        let Some(lazy) = self.lazy_times.get() else { return Ok(false) };
        if !lazy.keep(info.ino(), Times::of(info.fields())) {
            self.store_all_times()?;
            return Ok(false);
        }
        let attr = self.attr(info)?;
        inode.private::<Node>().set_in_memory(info);
        inode.update(|old| *old = attr);
        Ok(true)
    }

    /// Stores the times of an inode that are not stored yet.
    pub(crate) fn store_times(&self, ino: u32) -> Result<()> {
        let Some(lazy) = self.lazy_times.get().filter(|lazy| lazy.get(ino).is_some()) else {
            return Ok(());
        };
        let (at, sb) = (self.inode_position(ino)?, self.superblock());
        let place = Place::new(Structure::Inode).ino(ino).block(at.block).offset(at.offset);
        self.changing(1, 0, |change| {
            change.edit_record(ino, at, |record, has_checksum| {
                let Some(times) = lazy.take(ino) else { return Ok(()) };
                let decode = if has_checksum { Fields::decode } else { Fields::decode_fields };
                let mut fields = decode(record, ino, sb, place)?;
                times.apply(&mut fields);
                fields.encode_fields(record);
                Ok(())
            })?
        })
    }

    /// Stores the times of an inode that is no longer in use. They are lost if that fails.
    pub(crate) fn store_last_times(&self, ino: u32) {
        let has_ended = || self.writer.get().is_none_or(|writer| writer.transactions.error().is_some());
        if let Err(error) = self.store_times(ino)
            && !has_ended()
        {
            self.losses.report(error);
        }
    }

    /// Stores all times that are not stored yet.
    pub(crate) fn store_all_times(&self) -> Result<()> {
        let inodes = self.lazy_times.get().map_or(Vec::new(), LazyTimes::all);
        inodes.into_iter().try_for_each(|ino| self.store_times(ino))
    }
}
