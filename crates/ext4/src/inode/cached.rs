//! [`CachedInode`]: the state that this crate keeps with an inode of the VFS.
//!
//! A reader of an inode works with a copy of its [`InodeInfo`], and a thread that changes the inode
//! replaces the whole. So the fields that one thread works with belong together, without a lock.
//! Copying an `InodeInfo` takes as long as counting a reference to it.
//!
//! An inode that is read again and again has a second copy, its [snapshot](CachedInode::snapshot),
//! which readers take without the latch. The next change drops the snapshot, unless it changes only
//! fields that readers do not take from here: times, permission bits and the number of links come
//! from the VFS.
//!
//! Operations in `ops`, `file`, `dir` and `xattr` get it by `Inode::private` and take the locks
//! below.
//!
//! # Locks
//! Changes of one inode exclude each other by locks of the VFS, which are held over every call that
//! makes them. There are two exceptions:
//!
//! - A thread that only overwrites contents may run next to one that changes attributes and links.
//!   It changes nothing here but `written`.
//! - A thread that moves a file without changing it may do so, too. It changes nothing here but the
//!   fields that [`note`](CachedInode::note) changes.
//!
//! `current` is a latch. A thread holds it while it copies or replaces the inode, or notes the
//! transaction that makes it durable. Under it the thread waits for nothing but the list of
//! orphans. `snapshot` is changed only under `current`, and is a copy of `current` or empty.
//!
//! `contents` guards a file's map, or contents inside the inode. It is taken inside `rwsem`.
//!
//! - A reader of contents holds it shared, from looking up where they are until it has read them.
//! - A thread that unmaps blocks holds it exclusive, so no reader reads a block that has become
//!   another file's. It takes `contents` before it opens its first handle.
//! - A thread that only adds to the map takes it while a handle is open. It keeps it as long as
//!   nodes below the root do not agree with the inode that readers have.
//!
//! Both orders are safe: a reader opens no handle under `contents`, and there is only one changer.
//!
//! In a directory `contents` guards the names. The VFS lets several threads change names of one
//! directory at once, and their changes share the directory's blocks and inode. A thread that
//! changes these holds `contents` exclusive ([`LockedNames`]); one that looks a name up or lists
//! names holds it shared. A changer takes it inside a handle. Neither opens a handle or waits for a
//! commit under it. A rename with two directories takes both in the order of their numbers.
//!
//! `attributes` guards extended attributes, in the record and in a block. A reader of attributes
//! holds it shared. A changer holds it exclusive, and takes it inside `rwsem` and before the first
//! handle. So a reader of contents does not wait for a changer of attributes.
//!
//! Contents inside the inode are the exception, since they share the record with attributes:
//!
//! - A thread that changes attributes of such an inode takes `contents` exclusive before
//!   `attributes`. This holds for a directory, too. No thread with a handle waits for the
//!   directory's `contents` then, because it would need the `rwsem`, which the changer of
//!   attributes holds.
//! - A thread that changes such contents needs `contents` alone: it leaves other attributes
//!   unchanged, and the record changes in one step.
//! - A reader holds one of the two locks at a time, and waits for no holder of the other under it.

use std::mem::offset_of;
use std::ops::Range;
use std::sync::PoisonError;

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::geometry::Position;
use extern4_disk::inode::Inode;
use extern4_disk::journal::Tid;
use extern4_jbd2::{Flush, LastFlush};
use extern4_sync::biased_rwlock::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard};
use extern4_sync::lock_order::{Ordered, Rank};
use extern4_sync::primitive::{Latch, LatchGuard};
use extern4_sync::rcu::pin;
use extern4_sync::rcu_snapshot::RcuSnapshot;
use extern4_vfs as vfs;

use crate::inode::dir_hint::DirHint;
use crate::inode::info::{InodeInfo, Record, reads_as};
use crate::inode::name_map::DirNames;
use crate::inode::preallocation::Window;

/// An inode in use. The module describes its locks.
#[repr(C)]
pub(crate) struct CachedInode {
    /// A copy of `current` for readers, except for fields that `set_touched` and `set_attributes`
    /// have changed since.
    snapshot: RcuSnapshot<InodeInfo>,
    /// A file's map, or a directory's names.
    contents: BiasedRwLock,
    /// The flush that covers the overwrites of this file so far. A writer loads it, and stores to
    /// it only if a flush has come in between.
    written: LastFlush,
    /// Changes with the size of the file, and then readers take another snapshot in any case.
    pub(crate) window: Window,
    /// The range of extended attributes in its record, which never changes.
    xattr_range: Range<u16>,
    record: Record,
    seed: Option<ChecksumSeed>,
    /// The map of a directory's names.
    pub(crate) names: DirNames,
    // Padding, for the assertion below.
    _apart: [u64; 2],
    /// After the padding: readers of attributes conflict with changers of the fields below in any
    /// case, since they read the record.
    attributes: BiasedRwLock,
    current: Latch<Current>,
}

/// The fields that readers and overwriters of contents load share no cache line with fields that
/// other threads change. This holds for any address that is a multiple of 16.
const _: () = {
    let last = offset_of!(CachedInode, written) + size_of::<LastFlush>() - 1;
    assert!(offset_of!(CachedInode, attributes) / 16 >= last / 16 + 4);
};

/// Each cached file has one. Locks of models are larger.
const _: () = assert!(size_of::<CachedInode>() <= 320 || size_of::<BiasedRwLock>() > 20);

/// A directory whose names are locked for a change: no other thread changes or reads them until
/// this is dropped.
pub(crate) struct LockedNames<'d> {
    pub(crate) dir: &'d vfs::Inode,
    /// The directory's inode, to be changed.
    pub(crate) info: InodeInfo,
    _names: Ordered<BiasedWriteGuard<'d>>,
}

impl<'d> LockedNames<'d> {
    /// Locks the names of `dir`.
    pub(crate) fn lock(dir: &'d vfs::Inode) -> Self {
        let cached = dir.private::<CachedInode>();
        let names = Ordered::lock(Rank::DirectoryBlocks, || cached.contents.write());
        Self {
            dir,
            info: cached.info(),
            _names: names,
        }
    }
}

/// The current state of an inode: what an [`InodeInfo`] holds, in less memory.
struct Current {
    inode: Inode,
    is_orphan: bool,
    /// The inode has been freed; another file may have its number.
    is_freed: bool,
    /// Whether the two transactions are known.
    is_changed_known: bool,
    is_contents_known: bool,
    /// The transactions that `fsync` and `fdatasync` wait for.
    changed_in: Tid,
    contents_in: Tid,
    /// Few directories have one.
    dir_hint: Option<Box<DirHint>>,
}

/// The last transaction that changed the inode since it was read, or one that is not older than any
/// earlier change. `None` if neither is known: then an earlier change may be in any transaction
/// that is not durable.
type Changed = Option<Tid>;

impl Current {
    /// Notes a change by transaction `tid`. A later transaction may have been noted already: a
    /// thread that moves the file and one that changes its attributes may note their transactions
    /// in either order.
    fn note(&mut self, tid: Tid) {
        for (last, is_known) in [
            (&mut self.changed_in, &mut self.is_changed_known),
            (&mut self.contents_in, &mut self.is_contents_known),
        ] {
            if !(*is_known && last.is_after(tid)) {
                (*last, *is_known) = (tid, true);
            }
        }
    }

    /// Notes that `tid` makes all changes durable that are in no known transaction.
    fn note_durable(&mut self, tid: Tid) {
        for (last, is_known) in [
            (&mut self.changed_in, &mut self.is_changed_known),
            (&mut self.contents_in, &mut self.is_contents_known),
        ] {
            if !*is_known {
                (*last, *is_known) = (tid, true);
            }
        }
    }

    fn changed_in(&self) -> Changed {
        self.is_changed_known.then_some(self.changed_in)
    }

    fn contents_in(&self) -> Changed {
        self.is_contents_known.then_some(self.contents_in)
    }

    #[inline]
    fn put(&mut self, info: &InodeInfo) {
        (self.inode, self.is_orphan) = (info.inode, info.is_orphan);
        self.put_hint(info.dir_hint);
    }

    #[inline]
    fn put_hint(&mut self, hint: DirHint) {
        match &mut self.dir_hint {
            Some(known) => **known = hint,
            None if hint == DirHint::default() => (),
            None => self.dir_hint = Some(Box::new(hint)),
        }
    }
}

impl CachedInode {
    pub(crate) fn new(info: &InodeInfo) -> Self {
        Self::with(info, None)
    }

    fn with(info: &InodeInfo, changed_in: Changed) -> Self {
        let mut current = Current {
            inode: info.inode,
            is_orphan: info.is_orphan,
            is_freed: false,
            is_changed_known: false,
            is_contents_known: false,
            changed_in: Tid(0),
            contents_in: Tid(0),
            dir_hint: None,
        };
        current.put_hint(info.dir_hint);
        if let Some(tid) = changed_in {
            current.note(tid);
        }
        let Range { start, end } = info.fields().xattr_range();
        // OK: the size of a record has 16 bits on the volume.
        let xattr_range = start as u16..end as u16;
        Self {
            snapshot: RcuSnapshot::empty(),
            contents: BiasedRwLock::new(()),
            written: LastFlush::default(),
            window: Window::default(),
            xattr_range,
            record: info.record,
            seed: info.seed,
            names: DirNames::default(),
            _apart: [0; 2],
            attributes: BiasedRwLock::new(()),
            current: Latch::new(current),
        }
    }

    /// Returns the inode as operations copy it.
    #[inline]
    fn unpack(&self, current: &Current) -> InodeInfo {
        InodeInfo {
            inode: current.inode,
            record: self.record,
            seed: self.seed,
            dir_hint: current.dir_hint.as_deref().copied().unwrap_or_default(),
            is_orphan: current.is_orphan,
            is_touched: false,
        }
    }

    fn current(&self) -> LatchGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks `current` for a change, and drops the snapshot. Frequent readers make another.
    #[inline]
    fn change(&self) -> LatchGuard<'_, Current> {
        let current = self.current();
        self.snapshot.invalidate();
        current
    }

    /// Returns an inode that transaction `tid` has made.
    pub(crate) fn changed(info: &InodeInfo, tid: Tid) -> Self {
        Self::with(info, Some(tid))
    }

    /// Returns a copy of the current inode, for a caller that will change it.
    pub(crate) fn info(&self) -> InodeInfo {
        self.unpack(&self.current())
    }

    /// Returns a copy of the current inode, for a caller that only reads. For frequent readers it
    /// stores nothing to shared memory.
    pub(crate) fn snapshot(&self) -> InodeInfo {
        if let Some(info) = self.snapshot.get(&pin()) {
            return info.clone();
        }
        let current = self.current();
        let info = self.unpack(&current);
        self.snapshot.count_read(|| info.clone());
        info
    }

    /// Replaces the inode after a change by transaction `tid`.
    pub(crate) fn set(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.change();
        current.note(tid);
        current.put(info);
    }

    /// Replaces the inode after a change of fields that readers do not take from here: times,
    /// permission bits, links, and whether it is an orphan.
    pub(crate) fn set_touched(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.current();
        current.note(tid);
        current.put(info);
    }

    /// Replaces the inode after a change of its extended attributes, which rarely changes fields
    /// that readers take from here.
    pub(crate) fn set_attributes(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.current();
        if !reads_as(&current.inode, &info.inode) {
            self.snapshot.invalidate();
        }
        current.note(tid);
        current.put(info);
    }

    /// Replaces the inode after a change of times only, for which `fdatasync` need not wait.
    pub(crate) fn set_times(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.current();
        (current.changed_in, current.is_changed_known) = (tid, true);
        current.put(info);
    }

    /// Notes that transaction `tid` has changed something that belongs to the inode, but no field
    /// of it. Takes the directory hint from `info`.
    pub(crate) fn note(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.current();
        current.note(tid);
        current.put_hint(info.dir_hint);
    }

    /// Changes the inode in place, as part of transaction `tid`, but only the fields that
    /// [`set_touched`](Self::set_touched) names. `edit` must not block.
    pub(crate) fn touch<R>(&self, tid: Tid, edit: impl FnOnce(&mut InodeInfo) -> R) -> R {
        let mut current = self.current();
        current.note(tid);
        let mut info = self.unpack(&current);
        let result = edit(&mut info);
        current.put(&info);
        result
    }

    /// Returns the position of its record, if that is in the inode table.
    pub(crate) fn position(&self) -> Option<Position> {
        self.record.position()
    }

    /// Returns the range of extended attributes in its record.
    pub(crate) fn xattr_range(&self) -> Range<usize> {
        usize::from(self.xattr_range.start)..usize::from(self.xattr_range.end)
    }

    /// Notes that the inode has been freed.
    pub(crate) fn set_freed(&self) {
        self.current().is_freed = true;
    }

    /// Whether the inode has been freed.
    pub(crate) fn is_freed(&self) -> bool {
        self.current().is_freed
    }

    /// Replaces the inode after a change that is not part of a transaction yet.
    pub(crate) fn set_in_memory(&self, info: &InodeInfo) {
        self.change().put(info);
    }

    /// Notes that `flush` covers an overwrite of the file. Locks: `rwsem`, shared or exclusive.
    pub(crate) fn note_written(&self, flush: Flush) {
        self.written.note(flush);
    }

    /// Returns the transaction and the flush that make the inode durable; the numbers of contents
    /// alone if `data_only`.
    pub(crate) fn durable_with(&self, data_only: bool) -> (Changed, Flush) {
        let current = self.current();
        (
            if data_only {
                current.contents_in()
            } else {
                current.changed_in()
            },
            self.written.get(),
        )
    }

    /// Notes that all changes from before the inode was read are durable, as transaction `tid` is.
    pub(crate) fn note_durable(&self, tid: Tid) {
        self.current().note_durable(tid);
    }

    /// Locks a file's map for reading.
    pub(crate) fn read_map(&self) -> BiasedReadGuard<'_> {
        self.contents.read()
    }

    /// Locks a directory's names for reading.
    pub(crate) fn read_names(&self) -> Ordered<BiasedReadGuard<'_>> {
        Ordered::lock(Rank::DirectoryBlocks, || self.contents.read())
    }

    /// Locks a file's map for a change, which excludes readers of contents.
    pub(crate) fn change_map(&self) -> BiasedWriteGuard<'_> {
        self.contents.write()
    }

    /// Locks the attributes for reading. A value may still be overwritten in one step.
    pub(crate) fn read_attributes(&self) -> BiasedReadGuard<'_> {
        self.attributes.read()
    }

    /// Locks the attributes for a change. Locks: `contents`, held if the contents are inside the
    /// inode.
    pub(crate) fn change_attributes(&self) -> BiasedWriteGuard<'_> {
        self.attributes.write()
    }
}
