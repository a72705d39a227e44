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

use extern4_disk::geometry::Position;
use extern4_disk::journal::Tid;
use extern4_jbd2::{Flush, LastFlush};
use extern4_sync::biased_rwlock::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard};
use extern4_sync::lock_order::{Ordered, Rank};
use extern4_sync::primitive::{Latch, LatchGuard};
use extern4_sync::rcu::pin;
use extern4_sync::rcu_snapshot::RcuSnapshot;
use extern4_vfs::Inode;

use crate::alloc::preallocation::Window;
use crate::dir::name_map::DirNames;
use crate::inode::info::InodeInfo;

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
    position: Option<Position>,
    /// The range of extended attributes in its record, which never changes.
    xattr_range: Range<usize>,
    // Padding, for the assertion below. Two words suffice; with three, `current` is where
    // overwrites are faster.
    _apart: [u64; 3],
    pub(crate) window: Window,
    /// The map of a directory's names.
    pub(crate) names: DirNames,
    /// After the padding: readers of attributes conflict with changers of the fields below in any
    /// case, since they read the record.
    attributes: BiasedRwLock,
    current: Latch<Current>,
}

/// The fields that readers and overwriters of contents load share no cache line with fields that
/// other threads change. This holds for any address that is a multiple of 16.
const _: () = {
    let last = offset_of!(CachedInode, written) + size_of::<LastFlush>() - 1;
    assert!(offset_of!(CachedInode, window) / 16 >= last / 16 + 4);
};

/// A directory whose names are locked for a change: no other thread changes or reads them until
/// this is dropped.
pub(crate) struct LockedNames<'d> {
    pub(crate) dir: &'d Inode,
    /// The directory's inode, to be changed.
    pub(crate) info: InodeInfo,
    _names: Ordered<BiasedWriteGuard<'d>>,
}

impl<'d> LockedNames<'d> {
    /// Locks the names of `dir`.
    pub(crate) fn lock(dir: &'d Inode) -> Self {
        let cached = dir.private::<CachedInode>();
        let names = Ordered::lock(Rank::DirectoryBlocks, || cached.contents.write());
        // Built in its final place, since it is large.
        cached.peek(|info| Self { dir, info: info.clone(), _names: names })
    }
}

/// The current state of an inode.
struct Current {
    info: InodeInfo,
    /// The transactions that `fsync` and `fdatasync` wait for.
    changed_in: Changed,
    contents_in: Changed,
    /// The inode has been freed; another file may have its number.
    is_freed: bool,
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
        if (self.changed_in, self.contents_in) == (Some(tid), Some(tid)) {
            return;
        }
        for last in [&mut self.changed_in, &mut self.contents_in] {
            if !last.is_some_and(|last| last.is_after(tid)) {
                *last = Some(tid);
            }
        }
    }

    fn put(&mut self, info: &InodeInfo) {
        self.info.clone_from(info);
        self.info.set_untouched();
    }
}

impl CachedInode {
    pub(crate) fn new(info: InodeInfo) -> Self {
        Self::with(info, None)
    }

    fn with(mut info: InodeInfo, changed_in: Changed) -> Self {
        let (position, xattr_range) = (info.position(), info.fields().xattr_range());
        info.set_untouched();
        let current = Latch::new(Current { info, changed_in, contents_in: changed_in, is_freed: false });
        Self {
            snapshot: RcuSnapshot::empty(),
            contents: BiasedRwLock::new(()),
            written: LastFlush::default(),
            position,
            xattr_range,
            _apart: [0; 3],
            window: Window::default(),
            names: DirNames::default(),
            attributes: BiasedRwLock::new(()),
            current,
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
    pub(crate) fn changed(info: InodeInfo, tid: Tid) -> Self {
        Self::with(info, Some(tid))
    }

    /// Returns a copy of the current inode, for a caller that will change it.
    pub(crate) fn info(&self) -> InodeInfo {
        self.current().info.clone()
    }

    /// Calls `look` with the current inode. `look` must not block.
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&InodeInfo) -> R) -> R {
        look(&self.current().info)
    }

    /// Returns a copy of the current inode, for a caller that only reads. For frequent readers it
    /// stores nothing to shared memory.
    pub(crate) fn snapshot(&self) -> InodeInfo {
        if let Some(info) = self.snapshot.get(&pin()) {
            return info.clone();
        }
        let current = self.current();
        self.snapshot.count_read(|| current.info.clone());
        current.info.clone()
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
        if !current.info.reads_as(info) {
            self.snapshot.invalidate();
        }
        current.note(tid);
        current.put(info);
    }

    /// Replaces the inode after a change of times only, for which `fdatasync` need not wait.
    pub(crate) fn set_times(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.current();
        current.changed_in = Some(tid);
        current.put(info);
    }

    /// Notes that transaction `tid` has changed something that belongs to the inode, but no field
    /// of it. Takes the directory hint from `info`.
    pub(crate) fn note(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.current();
        current.note(tid);
        current.info.dir_hint = info.dir_hint;
    }

    /// Changes the inode in place, as part of transaction `tid`, but only the fields that
    /// [`set_touched`](Self::set_touched) names. `edit` must not block.
    pub(crate) fn touch<R>(&self, tid: Tid, edit: impl FnOnce(&mut InodeInfo) -> R) -> R {
        let mut current = self.current();
        current.note(tid);
        let result = edit(&mut current.info);
        current.info.set_untouched();
        result
    }

    /// Returns the position of its record, if that is in the inode table.
    pub(crate) fn position(&self) -> Option<Position> {
        self.position
    }

    /// Returns the range of extended attributes in its record.
    pub(crate) fn xattr_range(&self) -> Range<usize> {
        self.xattr_range.clone()
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

    /// Returns the transaction and the flush that make the inode durable; those of contents alone
    /// if `data_only`.
    pub(crate) fn durable_with(&self, data_only: bool) -> (Changed, Flush) {
        let current = self.current();
        (if data_only { current.contents_in } else { current.changed_in }, self.written.get())
    }

    /// Notes that all changes from before the inode was read are durable, as transaction `tid` is.
    pub(crate) fn note_durable(&self, tid: Tid) {
        let mut current = self.current();
        current.changed_in.get_or_insert(tid);
        current.contents_in.get_or_insert(tid);
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
