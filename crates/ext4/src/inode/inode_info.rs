//! What this crate keeps with an inode of the VFS.
//!
//! Who reads an inode works with a copy of its [`InodeInfo`], and who changes it puts another in its place: so the fields that one
//! works with belong together, without a lock. To copy one takes as long as to count a reference to it. Of an inode that is read and
//! read again, a further copy is [shown](Node::shown) to readers, who need not even take the latch for it; the next change takes it away,
//! unless nothing changes that readers look for here: who wants times, permission bits or the number of links asks the VFS.
//!
//! # Locks
//! Changes of one inode exclude each other by locks of the VFS, which are held over every call that makes them. Who only writes over
//! contents may do so beside who changes attributes and links, and changes nothing here but `written`; who moves a file that stays as it is
//! may do so, too, and changes nothing but what [`note`](Node::note) does. `current` is held
//! for as long as it takes to copy it or to replace it, or to note what makes it durable, and nothing is waited for under it but the list of orphans; `shown` is changed only under it, and so is
//! what `current` says, or nothing.
//!
//! `contents` guards a file's map. It is held shared by who
//! reads contents, from finding out where they are until they have been read, and exclusive by who takes blocks away from the
//! file: so nobody reads a block that has become another's. Contents inside the inode are guarded by it in the
//! same way, for they stand in two places that belong together. It is taken inside `rwsem`. Who
//! takes blocks away takes it before the first handle is opened; who only adds to the map takes it while a handle is open, for
//! as long as nodes below the root do not agree with the inode that readers have. Both are in order, for a reader opens no
//! handle under it, and there is only one changer.
//!
//! Of a directory `contents` guards the names. The VFS lets names of one directory be changed side by side; what they have in common, the
//! blocks with the entries and the directory's own inode, is changed by who has it exclusive ([`Names`]), and who looks a name up or
//! lists them has it shared. It is taken inside a handle by who changes, and neither opens a handle nor waits for a commit under it.
//! Who has two, for a rename, has taken them by number.
//!
//! `attributes` guards extended attributes, in the record and in a block, which belong together. It is held shared by who reads them, and
//! exclusive by who changes them, who takes it inside `rwsem` and before the first handle. So who reads contents does not meet him. But
//! contents inside the inode stand beside attributes: who changes attributes of such an inode takes `contents` exclusive before
//! `attributes`. (Of a directory, too: nobody who has a handle wants that then, for he would have the `rwsem`, which is exclusive for a
//! directory.) Who
//! changes contents there needs `contents` alone, for he leaves other attributes as they are, and the record changes in one step and is
//! looked at as it stood at one moment. Who reads has one of the two at a time, and waits for nobody under it who has the other.

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
use crate::inode::info::InodeInfo;

/// An inode in use.
#[repr(C)]
pub(crate) struct Node {
    /// For readers, what `current` says, but for what `set_touched` and `set_attributes` may have changed since.
    snapshot: RcuSnapshot<InodeInfo>,
    /// A file's map, or a directory's names.
    contents: BiasedRwLock,
    /// The flush that covers what was written over blocks that the file had. Who writes looks at it, and changes it after a flush.
    written: LastFlush,
    position: Option<Position>,
    /// Where in its record extended attributes are. What that follows from never changes.
    xattr_range: Range<usize>,
    // Two are enough for what is below; with three, `current` stands so that a write over contents takes 4 ns less, of 88.
    _apart: [u64; 3],
    pub(crate) window: Window,
    /// Who reads attributes reads the record, and so meets who changes what is behind this, wherever it is.
    attributes: BiasedRwLock,
    current: Latch<Current>,
}

/// What readers of contents look at, and who writes over them, is on another cache line than what is changed beside them, wherever the
/// memory begins: that is a multiple of 16.
const _: () = {
    let last = offset_of!(Node, written) + size_of::<LastFlush>() - 1;
    assert!(offset_of!(Node, window) / 16 >= last / 16 + 4);
};

/// A directory while its names are changed: nobody else changes or reads them until this is gone.
pub(crate) struct Names<'d> {
    pub(crate) dir: &'d Inode,
    /// The directory's inode, to be changed.
    pub(crate) info: InodeInfo,
    _names: Ordered<BiasedWriteGuard<'d>>,
}

impl<'d> Names<'d> {
    /// Locks the names of `dir`.
    pub(crate) fn lock(dir: &'d Inode) -> Self {
        let node = dir.private::<Node>();
        let names = Ordered::lock(Rank::DirectoryBlocks, || node.contents.write());
        // Where it is made it stays, for it is large.
        node.peek(|info| Self { dir, info: info.clone(), _names: names })
    }
}

/// What is known of an inode now.
struct Current {
    info: InodeInfo,
    /// What `fsync` waits for, and what `fdatasync` does.
    changed_in: Changed,
    contents_in: Changed,
    /// The inode has been given back; another file may have its number.
    is_freed: bool,
}

/// The last transaction that changed something since the inode was read, or one that has all that was changed before; if neither is known,
/// then whatever was changed before may be in one that is not durable.
type Changed = Option<Tid>;

impl Current {
    /// Notes a change by transaction `tid`. One by a younger may have been noted before: of a file that moves, when others who change its
    /// attributes have closed their handle and not yet shown what they did.
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

impl Node {
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
            attributes: BiasedRwLock::new(()),
            current,
        }
    }

    fn current(&self) -> LatchGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it to be changed, and shows readers nothing until they ask again and again.
    #[inline]
    fn change(&self) -> LatchGuard<'_, Current> {
        let current = self.current();
        self.snapshot.invalidate();
        current
    }

    /// An inode that transaction `tid` has made.
    pub(crate) fn changed(info: InodeInfo, tid: Tid) -> Self {
        Self::with(info, Some(tid))
    }

    /// The inode as it stands, for who is going to change it.
    pub(crate) fn info(&self) -> InodeInfo {
        self.current().info.clone()
    }

    /// Hands the inode as it stands to `look`, which waits for nothing.
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&InodeInfo) -> R) -> R {
        look(&self.current().info)
    }

    /// The inode as it stands, for who only reads: where that is done often, without a store to memory that others use.
    pub(crate) fn shown(&self) -> InodeInfo {
        if let Some(info) = self.snapshot.get(&pin()) {
            return info.clone();
        }
        let current = self.current();
        self.snapshot.count_read(|| current.info.clone());
        current.info.clone()
    }

    /// Puts a changed inode in place, which transaction `tid` makes durable.
    pub(crate) fn set(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.change();
        current.note(tid);
        current.put(info);
    }

    /// The same for one of which nothing has changed that readers look at here: times, permission bits, links, and whether it is an orphan.
    pub(crate) fn set_touched(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.current();
        current.note(tid);
        current.put(info);
    }

    /// The same for one whose extended attributes have changed. Of the inode that changes nothing, mostly, that readers look at here.
    pub(crate) fn set_attributes(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.current();
        if !current.info.reads_as(info) {
            self.snapshot.invalidate();
        }
        current.note(tid);
        current.put(info);
    }

    /// The same for one of which nothing but times has changed: contents can be read without that.
    pub(crate) fn set_times(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.current();
        current.changed_in = Some(tid);
        current.put(info);
    }

    /// Notes that transaction `tid` has changed something that belongs to the inode, and of the inode nothing but what `info` says of where
    /// its names have changed.
    pub(crate) fn note(&self, info: &InodeInfo, tid: Tid) {
        let mut current = self.current();
        current.note(tid);
        current.info.near = info.near;
    }

    /// Changes the inode where it stands, as part of transaction `tid`, but nothing that readers look at here, as in
    /// [`set_touched`](Self::set_touched). `edit` waits for nothing.
    pub(crate) fn touch<R>(&self, tid: Tid, edit: impl FnOnce(&mut InodeInfo) -> R) -> R {
        let mut current = self.current();
        current.note(tid);
        let result = edit(&mut current.info);
        current.info.set_untouched();
        result
    }

    /// Where its record is in the inode table, if it is there.
    pub(crate) fn position(&self) -> Option<Position> {
        self.position
    }

    /// Where in its record extended attributes are.
    pub(crate) fn xattr_range(&self) -> Range<usize> {
        self.xattr_range.clone()
    }

    /// Notes that the inode has been given back.
    pub(crate) fn set_freed(&self) {
        self.current().is_freed = true;
    }

    /// Whether the inode has been given back.
    pub(crate) fn is_freed(&self) -> bool {
        self.current().is_freed
    }

    /// Puts a changed inode in place, which is not part of a transaction yet.
    pub(crate) fn set_in_memory(&self, info: &InodeInfo) {
        self.change().put(info);
    }

    /// Notes that `flush` covers what has been written over blocks that the file had. Locks: `rwsem`, shared or exclusive.
    pub(crate) fn note_written(&self, flush: Flush) {
        self.written.note(flush);
    }

    /// What makes it durable: a transaction, for contents alone if `data_only`, and a flush.
    pub(crate) fn durable_with(&self, data_only: bool) -> (Changed, Flush) {
        let current = self.current();
        (if data_only { current.contents_in } else { current.changed_in }, self.written.get())
    }

    /// Notes that all is durable that was changed before the inode was read, as transaction `tid` is.
    pub(crate) fn note_durable(&self, tid: Tid) {
        let mut current = self.current();
        current.changed_in.get_or_insert(tid);
        current.contents_in.get_or_insert(tid);
    }

    /// A file's blocks stay where they are as long as this lives.
    pub(crate) fn read_map(&self) -> BiasedReadGuard<'_> {
        self.contents.read()
    }

    /// Names stay as they are as long as this lives.
    pub(crate) fn read_names(&self) -> Ordered<BiasedReadGuard<'_>> {
        Ordered::lock(Rank::DirectoryBlocks, || self.contents.read())
    }

    /// Nobody reads contents as long as this lives.
    pub(crate) fn change_map(&self) -> BiasedWriteGuard<'_> {
        self.contents.write()
    }

    /// Attributes stay as they are, and where they are, as long as this lives; but a value may be written over in one step.
    pub(crate) fn read_attributes(&self) -> BiasedReadGuard<'_> {
        self.attributes.read()
    }

    /// Nobody reads attributes as long as this lives. Locks: of an inode with its contents in it, those.
    pub(crate) fn change_attributes(&self) -> BiasedWriteGuard<'_> {
        self.attributes.write()
    }
}
