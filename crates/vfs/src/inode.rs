//! Inodes in memory.
//!
//! Dentries and open files hold inodes in use. All calls of the VFS work on them, and most methods
//! of the file system get one. A number has at most one live inode. When its last reference goes,
//! the file system is told, and it frees the file if the file has no links.
//!
//! An inode's permission cache answers most search checks alone; its attributes are copied whole;
//! its two ACLs are read once and kept. The file system owns the truth: it changes an inode in
//! memory through [`Inode::update`] when it has changed it in its own structures.
//!
//! `rwsem` orders changes. For a directory it covers the names. A thread holds it shared to look a
//! name up in the file system, to list the directory, or to change a name. Changes of one name
//! exclude each other by the name's own lock (`dcache`). A thread holds it exclusive to remove the
//! directory, to change its attributes, and to move a name between two directories. For other files
//! it makes writes, truncation and changes of attributes exclude each other; but writes over
//! existing contents hold it shared, and exclude each other by ranges of the file (`range_lock`).
//! Reading takes no lock.
//!
//! Such a write reads size and times, and whether it has to remove set-id bits or capabilities or
//! may not write at all. A thread may change other attributes of a file (mode, ACL, extended
//! attributes, number of names) with `rwsem` shared, too. It then also holds the mutex
//! `attributes`, which excludes other such threads (`Inode::lock_attributes`). It holds `rwsem`
//! exclusive if it gets that at once. The attributes that a write reads change with `rwsem`
//! exclusive only. The time of the last change is an exception: both may set it, and both set it to
//! the present. A rename of a file that was changed within this tick of the clock holds `rwsem`
//! shared, because it leaves the file as it is.

use std::any::Any;
use std::fmt;
use std::mem::offset_of;
use std::sync::{Arc, OnceLock};

use extern4_acl::{Acl, AclKind};
use extern4_sync::biased_rwlock::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard};
use extern4_sync::lock_order::{Ordered, Rank};
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicBool, Ordering};
use extern4_sync::rcu::{Guard, pin};
use extern4_sync::rcu_arc::{Last, RcuArc, Release};
use extern4_sync::slab::SlabBox;
use extern4_sync::thread_refcount::ThreadRefcount;

use crate::acl_cache::AclPool;
use crate::attr::{Attr, FileType, NamesAttr, Timespec};
use crate::errno::Result;
use crate::fs::FileSystem;
use crate::inode_attrs::{COPIED_BYTES, Copied, InodeAttrs, STEADY_BYTES, Writer};
use crate::lock::{self, Mutex, MutexGuard};
use crate::permission_cache::{AclState, PermBits};

/// An inode that a file system has read or made.
pub struct NewInode {
    /// The attributes as the file system stores them.
    pub attr: Attr,
    /// Whether the inode is known to have no access ACL and, if it is a directory, no default ACL.
    pub no_acl: bool,
    /// Whether the inode is known to have no file capabilities.
    pub no_caps: bool,
    /// The file system's own data of the inode.
    pub private: Box<dyn Any + Send + Sync>,
}

/// An inode in memory. It begins a cache line. `inode_attrs` describes the first two lines, which
/// `stat` reads.
#[repr(C)]
pub struct Inode {
    attr: InodeAttrs,
    // The third line has what threads write that change attributes or move a directory.
    /// A thread that changes attributes with `rwsem` shared holds it.
    attributes: Mutex<Guarded>,
    // The fourth line is hardly ever written. Readers of contents read it, so it has no lock that a
    // thread would write that only changes attributes.
    private: SlabBox<dyn Any + Send + Sync>,
    // Only symbolic links have a target.
    link: OnceLock<Arc<[u8]>>,
    _apart: [u64; 3],
    // Writers over existing contents read the fifth line, and the line of contents. The link of the
    // map of inodes and the count, which is seldom written, are there, too.
    rwsem: BiasedRwLock,
    /// Whether the file is known to have no capabilities. Threads that change the inode read it,
    /// with the inode locked.
    no_caps: AtomicBool,
    #[cfg(feature = "lab")]
    pub(crate) acl_lock: crate::acl_lock::AclLock,
}

/// The fields that the mutex of an inode guards.
pub(crate) struct Guarded {
    /// The file system that the inode calls when it goes out of use.
    fs: Option<FsRef>,
    /// The dentry of a directory, to notice a second one.
    alias: Option<Alias>,
}

/// Each comment on a line in [`Inode`] holds.
const _: () = assert!(
    offset_of!(Inode, attr) + STEADY_BYTES == 64
        && offset_of!(Inode, attr) + COPIED_BYTES == 128
        && offset_of!(Inode, private) == 192
        && offset_of!(Inode, rwsem) == 256
        && RcuArc::<Inode>::BYTES == 320
        // Words of models are larger; the lab's have more.
        || cfg!(any(feature = "loom", feature = "audit", feature = "lab", not(target_pointer_width = "64")))
);

/// A file system, as inodes refer to it. References that different threads make are counted on
/// different lines.
pub(crate) type FsRef = Arc<Padded<Served>>;

/// The file system of an inode, which the inode calls when it goes out of use.
pub(crate) struct Served {
    pub(crate) fs: Arc<dyn FileSystem>,
    /// Inodes in use that have no links: see
    /// [`WriteGate`](crate::open_files::write_gate::WriteGate).
    pub(crate) unlinked: Arc<ThreadRefcount>,
}

/// The one dentry that a directory may have in use, and its place in the tree.
pub(crate) struct Alias {
    pub(crate) dentry: u64,
    pub(crate) parent: u64,
    pub(crate) name: Box<[u8]>,
}

impl Inode {
    /// Returns an inode outside of any cache, for tests of a file system's own methods.
    pub fn detached(new: NewInode) -> Self {
        Self::build(new, None)
    }

    /// Returns an inode of `fs`, which calls `fs` when it is dropped.
    pub(crate) fn of(fs: FsRef, new: NewInode) -> Self {
        let has_acls = fs.fs.traits().acl;
        let no_acl = new.no_acl || !has_acls;
        Self::build(NewInode { no_acl, ..new }, Some(fs))
    }

    fn build(new: NewInode, fs: Option<FsRef>) -> Self {
        let NewInode {
            attr,
            no_acl,
            no_caps,
            private,
        } = new;
        // Symbolic links have no ACLs, and only directories have a default one.
        let no_access = no_acl || attr.kind == FileType::Symlink;
        let no_default = no_acl || attr.kind != FileType::Directory;
        let state = if no_access {
            AclState::None
        } else {
            AclState::Unknown
        };
        let several_names = attr.nlink > 1 && attr.kind != FileType::Directory;
        let bits = PermBits::new(full_mode(&attr), attr.flags, state)
            .with_no_default_acl(no_default)
            .with_several_names(several_names);
        Self {
            attr: InodeAttrs::new(&attr, bits),
            attributes: Mutex::new(Guarded { fs, alias: None }),
            private: private.into(),
            link: OnceLock::new(),
            _apart: [0; 3],
            rwsem: BiasedRwLock::new(()),
            no_caps: AtomicBool::new(no_caps),
            #[cfg(feature = "lab")]
            acl_lock: Default::default(),
        }
    }

    /// Returns the inode number.
    pub fn ino(&self) -> u64 {
        self.attr.ino()
    }

    /// Returns the type of the file.
    pub fn kind(&self) -> FileType {
        self.attr.kind()
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.attr.is_dir()
    }

    /// Returns a consistent copy of the attributes.
    pub fn attr(&self) -> Attr {
        self.attr.get()
    }

    /// Returns the number of links: cheaper than all attributes.
    pub fn nlink(&self) -> u32 {
        self.attr.nlink()
    }

    /// Notes that the inode gets one more name.
    pub(crate) fn mark_named(&self) {
        if !self.perm().several_names() {
            self.attr.perm.publish_if(&self.attr.lock(), |bits| {
                Some(bits.with_several_names(true))
            });
        }
    }

    /// Returns whether a write up to byte `end` at that moment changes only contents of a regular
    /// file: no attribute, no permission bit, no capability. Locks: `rwsem`; without it, the answer
    /// may be outdated.
    #[inline]
    pub(crate) fn is_left_by_write(&self, end: u64, now: Timespec) -> bool {
        self.has_no_caps() && self.attr.is_written(end, now)
    }

    /// Returns whether the inode was last changed at that moment.
    pub(crate) fn is_changed_at(&self, ctime: Timespec) -> bool {
        self.attr.is_changed_at(ctime)
    }

    /// Returns the attributes, unless a thread is changing them.
    #[inline(always)]
    pub(crate) fn attr_if_still(&self) -> Option<Copied> {
        self.attr.try_get()
    }

    /// Returns owner, group, and mode with its type bits, of one moment.
    pub(crate) fn owner(&self) -> (u32, u32, u16) {
        let (uid, gid, mode) = self.attr.owner();
        (uid, gid, self.kind().mode_bits() | mode)
    }

    /// Returns owner, group, the permission cache and the access ACL, all of one moment. The ACL is
    /// as [`cached_acl`](Self::cached_acl) returns it.
    #[inline]
    pub(crate) fn owner_and_acl<'g>(
        &'g self,
        guard: &'g Guard,
    ) -> (u32, u32, PermBits, Option<Option<&'g Acl>>) {
        let (uid, gid, (bits, acl)) = self.attr.owner_with(|| {
            let bits = self.attr.perm.load();
            (bits, self.cached_acl(AclKind::Access, bits, guard))
        });
        (uid, gid, bits, acl)
    }

    /// Changes the attributes. For the file system whose inode this is, once its own structures
    /// have changed.
    ///
    /// Number, type and generation stay as they are, whatever `change` does to them.
    pub fn update<R>(&self, change: impl FnOnce(&mut Attr) -> R) -> R {
        self.change_and(change, |bits| bits, None::<fn()>)
    }

    /// Sets the attributes. For the file system whose inode this is, once its own structures have
    /// changed.
    ///
    /// Number, type and generation stay as they are, whatever `attr` says.
    pub fn set_attr(&self, attr: &Attr) {
        self.store(&self.attr.lock(), attr, |bits| bits, None::<fn()>);
    }

    /// Sets only permission bits, number of links and the time of the last change, in less time
    /// than [`set_attr`](Self::set_attr). Locks: its attributes.
    pub fn touch(&self, mode: u16, nlink: u32, ctime: Timespec) {
        debug_assert!(
            self.has_attributes_locked(),
            "inode {} is changed without its attributes locked",
            self.ino()
        );
        // A second change within a tick of the clock often changes none of these. Readers of them
        // then see no store.
        if self.attr.is_touched(mode, nlink, ctime) {
            return;
        }
        let writer = self.attr.lock();
        writer.touch(mode, nlink, ctime, || {
            let mode = self.kind().mode_bits() | mode & 0o7777;
            self.attr.perm.publish_if(&writer, |old| {
                let new = old.with_mode(mode);
                (new != old).then_some(new)
            });
        });
    }

    /// Sets the attributes of a directory that change with its names. The flags that permissions
    /// depend on stay as they are.
    pub fn touch_names(&self, names: &NamesAttr) {
        self.attr.lock().touch_names(names);
    }

    /// Changes an ACL and the attributes together: no reader sees the new mode with the old ACL.
    /// For the file system whose inode this is, once its own structures have changed.
    pub fn update_acl<R>(
        &self,
        kind: AclKind,
        acl: Option<Arc<Acl>>,
        change: impl FnOnce(&mut Attr) -> R,
    ) -> R {
        let state = AclState::of(acl.as_deref());
        self.change_and(
            change,
            |bits| with_acl(bits, kind, state),
            Some(|| self.attr.acls.set(kind, acl)),
        )
    }

    /// Stores attributes, permission cache, and the values that `also` sets, in one write section.
    /// Locks: takes the writers' lock of the attributes.
    fn change_and<R>(
        &self,
        change: impl FnOnce(&mut Attr) -> R,
        bits: impl Fn(PermBits) -> PermBits,
        also: Option<impl FnOnce()>,
    ) -> R {
        let writer = self.attr.lock();
        let mut attr = writer.get();
        let result = change(&mut attr);
        self.store(&writer, &attr, bits, also);
        result
    }

    fn store(
        &self,
        writer: &Writer<'_>,
        attr: &Attr,
        bits: impl Fn(PermBits) -> PermBits,
        also: Option<impl FnOnce()>,
    ) {
        let mode = self.kind().mode_bits() | attr.mode & 0o7777;
        let sets_more = also.is_some();
        writer.store(attr, sets_more, || {
            if let Some(also) = also {
                also();
            }
            self.attr.perm.publish_if(writer, |old| {
                let new = bits(old).with_mode(mode).with_flags(attr.flags);
                // Most changes are of times and sizes.
                (sets_more || new != old).then_some(new)
            });
        });
    }

    /// Returns the permission cache.
    #[inline]
    pub(crate) fn perm(&self) -> PermBits {
        self.attr.perm.load()
    }

    /// Marks a directory as removed: no name can be found in it or added to it any more.
    pub(crate) fn mark_dead(&self) {
        self.attr
            .perm
            .publish_if(&self.attr.lock(), |bits| Some(bits.with_dead()));
    }

    /// Makes `alias` the one dentry of a directory. Returns false if another is in use, unless
    /// `gives_way` returns true for that.
    pub(crate) fn claim_alias(&self, alias: Alias, gives_way: impl FnOnce(&Alias) -> bool) -> bool {
        let claimed = &mut lock::lock(&self.attributes).alias;
        let free = claimed.as_ref().is_none_or(gives_way);
        if free {
            *claimed = Some(alias);
        }
        free
    }

    /// Notes that the directory's dentry has moved.
    pub(crate) fn move_alias(&self, dentry: u64, parent: u64, name: &[u8]) {
        let claimed = &mut lock::lock(&self.attributes).alias;
        if claimed.as_ref().is_some_and(|alias| alias.dentry == dentry) {
            *claimed = Some(Alias {
                dentry,
                parent,
                name: name.into(),
            });
        }
    }

    /// Notes that a dentry is no longer the directory's.
    pub(crate) fn forget_alias(&self, dentry: u64) {
        if !self.is_dir() {
            return;
        }
        let claimed = &mut lock::lock(&self.attributes).alias;
        if claimed.as_ref().is_some_and(|alias| alias.dentry == dentry) {
            *claimed = None;
        }
    }

    /// Returns where the directory's dentry in use is: the number of the dentry above it, and the
    /// name.
    pub(crate) fn alias(&self) -> Option<(u64, Box<[u8]>)> {
        lock::lock(&self.attributes)
            .alias
            .as_ref()
            .map(|alias| (alias.parent, alias.name.clone()))
    }

    /// Lets a file that was made without a name get one.
    pub(crate) fn set_linkable(&self) {
        // Relaxed: set before any other thread can see the inode.
        self.attr.linkable.store(true, Ordering::Relaxed);
    }

    /// Notes that it has a name. When it loses that, it is like any file without a name.
    pub(crate) fn clear_linkable(&self) {
        // Relaxed, both: all readers have the attributes locked, as the caller does.
        if self.is_linkable() {
            self.attr.linkable.store(false, Ordering::Relaxed);
        }
    }

    /// Returns whether the file may get a name although it has none.
    pub(crate) fn is_linkable(&self) -> bool {
        self.attr.linkable.load(Ordering::Relaxed)
    }

    /// Counts the inode in `unlinked` as long as it has no links: until it gets one, or its file
    /// system has evicted it. Called within the change that adds or removes links. Locks: the locks
    /// of a change of attributes, unless no other thread can find the inode yet.
    pub(crate) fn count_links(&self, unlinked: &ThreadRefcount) {
        let none = self.nlink() == 0;
        // Relaxed, both: readers have the attributes locked, as the caller does, or are the last
        // user of the inode.
        if self.attr.unlinked.load(Ordering::Relaxed) == none {
            return;
        }
        self.attr.unlinked.store(none, Ordering::Relaxed);
        if none {
            unlinked.enter()
        } else {
            unlinked.exit()
        }
    }

    /// Returns whether the file is known to have no capabilities. Locks: `rwsem`, shared at least;
    /// without it, the answer may be outdated.
    pub(crate) fn has_no_caps(&self) -> bool {
        // Relaxed: the writer holds `rwsem` exclusive, and the caller holds it, too.
        self.no_caps.load(Ordering::Relaxed)
    }

    /// Notes whether that is known. Locks: `rwsem` exclusive.
    pub(crate) fn set_no_caps(&self, no_caps: bool) {
        // Relaxed: as in `has_no_caps`.
        self.no_caps.store(no_caps, Ordering::Relaxed);
    }

    /// Returns the data that the file system stored with the inode.
    ///
    /// # Panics
    ///
    /// If the inode belongs to another type of file system: the VFS hands an inode only to its own.
    pub fn private<T: Any>(&self) -> &T {
        self.private
            .downcast_ref()
            .expect("an inode goes only to the file system that made it")
    }

    /// Returns an ACL if it is known, where `bits` is the permission cache; `None` if the file
    /// system has to be asked.
    #[inline]
    pub(crate) fn cached_acl<'g>(
        &'g self,
        kind: AclKind,
        bits: PermBits,
        guard: &'g Guard,
    ) -> Option<Option<&'g Acl>> {
        if bits.has_no_acl(kind) {
            Some(None)
        } else {
            self.attr.acls.get(kind, guard)
        }
    }

    /// Returns an ACL, from the cache or read by `fs`.
    pub(crate) fn acl(
        &self,
        fs: &dyn FileSystem,
        pool: &AclPool,
        kind: AclKind,
    ) -> Result<Option<Arc<Acl>>> {
        if kind == AclKind::Access && self.perm().acl() == AclState::None {
            return Ok(None);
        }
        loop {
            if let Some(known) = self.known_acl(kind) {
                return Ok(known);
            }
            self.learn_acl(fs, pool, kind)?;
        }
    }

    /// Reads an ACL, which is known from now on. If another thread has filled it meanwhile, that
    /// answer stays. The one that was read here may be newer than the attributes that others still
    /// see. A reader that has seen a new ACL must not see the old one again.
    pub(crate) fn learn_acl(
        &self,
        fs: &dyn FileSystem,
        pool: &AclPool,
        kind: AclKind,
    ) -> Result<()> {
        let acl = fs.get_acl(self, kind)?.map(|acl| pool.intern(acl));
        let state = AclState::of(acl.as_deref());
        if self.attr.acls.fill(kind, acl) && kind == AclKind::Access {
            // Only from unknown: a thread that has set another ACL meanwhile has stored the word,
            // or is about to.
            let learn = |bits: PermBits| {
                (bits.acl() == AclState::Unknown).then(|| with_acl(bits, kind, state))
            };
            self.attr.perm.publish_if(&self.attr.lock(), learn);
        }
        Ok(())
    }

    /// Returns an ACL if it is known, as of one moment. A slot that is read under an earlier
    /// permission cache could be ahead of it.
    fn known_acl(&self, kind: AclKind) -> Option<Option<Arc<Acl>>> {
        let guard = pin();
        let known = || {
            if self.perm().has_no_acl(kind) {
                Some(None)
            } else {
                self.attr.acls.get_counted(kind, &guard)
            }
        };
        self.attr.owner_with(known).2
    }

    /// Returns the target of a symbolic link, if it has been read.
    #[inline]
    pub(crate) fn cached_link_target(&self) -> Option<&Arc<[u8]>> {
        self.link.get()
    }

    /// Returns the target of a symbolic link, which never changes, so it is read once.
    pub(crate) fn link_target(&self, fs: &dyn FileSystem) -> Result<Arc<[u8]>> {
        if let Some(target) = self.link.get() {
            return Ok(Arc::clone(target));
        }
        let target: Arc<[u8]> = fs.read_link(self)?.into();
        Ok(Arc::clone(self.link.get_or_init(|| target)))
    }

    /// Takes the `rwsem` of a directory whose names are to be looked up or changed, shared.
    pub(crate) fn lock_names(&self) -> Ordered<BiasedReadGuard<'_>> {
        Ordered::lock(Rank::Directory, || self.rwsem.read())
    }

    /// Takes it shared, unless it would have to wait.
    pub(crate) fn try_lock_names(&self) -> Option<Ordered<BiasedReadGuard<'_>>> {
        Ordered::try_lock(Rank::Directory, || self.rwsem.try_read())
    }

    /// Takes it exclusive.
    pub(crate) fn lock_names_exclusive(&self) -> Ordered<BiasedWriteGuard<'_>> {
        Ordered::lock(Rank::Directory, || self.rwsem.write())
    }

    /// Takes `rwsem` shared: to write over contents, with the latches of their
    /// [chunks](crate::range_lock), or to move a file that stays as it is.
    pub(crate) fn lock_shared(&self) -> Ordered<BiasedReadGuard<'_>> {
        Ordered::lock(Rank::Child, || self.rwsem.read())
    }

    /// Takes `rwsem` exclusive, to change the inode itself.
    pub(crate) fn lock_exclusive(&self) -> Ordered<BiasedWriteGuard<'_>> {
        Ordered::lock(Rank::Child, || self.rwsem.write())
    }

    /// Locks the inode to change attributes that writes over contents do not read. It excludes all
    /// other changes of attributes. While contents are being written, it does not exclude the
    /// writers.
    #[inline(always)]
    pub(crate) fn lock_attributes(&self) -> Ordered<AttributesGuard<'_>> {
        Ordered::lock(
            Rank::Child,
            #[inline(always)]
            // Without other holders, one exclusive lock costs less than two locks.
            || match self.rwsem.try_write_unless_read() {
                Some(alone) => AttributesGuard::Exclusive(alone),
                None => self.lock_attributes_unranked(),
            },
        )
    }

    #[cold]
    #[inline(never)]
    fn lock_attributes_unranked(&self) -> AttributesGuard<'_> {
        // A directory's `rwsem` protects its names, too.
        if self.is_dir() {
            return AttributesGuard::Exclusive(self.rwsem.write());
        }
        let contents = self.rwsem.read();
        AttributesGuard::Shared(contents, lock::lock(&self.attributes))
    }

    /// Returns whether a thread has the attributes locked. Models do not look: each attempt is one
    /// more step of theirs.
    fn has_attributes_locked(&self) -> bool {
        cfg!(feature = "loom")
            || self.attributes.try_lock().is_err()
            || self.rwsem.try_read().is_none()
    }

    /// Locks the inode to change any attribute, and excludes writers of contents, too.
    #[inline]
    pub(crate) fn lock_all_attributes(&self) -> Ordered<AttributesGuard<'_>> {
        Ordered::lock(Rank::Child, || {
            AttributesGuard::Exclusive(self.rwsem.write())
        })
    }
}

/// A lock on the attributes of an inode: no other thread changes them while this lives.
#[expect(dead_code, reason = "held until it is dropped")]
pub(crate) enum AttributesGuard<'a> {
    Exclusive(BiasedWriteGuard<'a>),
    /// Other threads may overwrite contents meanwhile.
    Shared(BiasedReadGuard<'a>, MutexGuard<'a, Guarded>),
}

impl Release for Inode {
    type Link = Last;

    fn release(&self) {
        let fs = lock::lock(&self.attributes).fs.take();
        if let Some(served) = fs {
            served.fs.evict_inode(self);
            // Not before the eviction, which may free the inode on the volume. Relaxed: no other
            // thread uses the inode.
            if self.attr.unlinked.load(Ordering::Relaxed) {
                served.unlinked.exit();
            }
        }
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inode")
            .field("ino", &self.ino())
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

fn full_mode(attr: &Attr) -> u16 {
    attr.kind.mode_bits() | attr.mode & 0o7777
}

fn with_acl(bits: PermBits, kind: AclKind, acl: AclState) -> PermBits {
    match kind {
        AclKind::Access => bits.with_acl(acl),
        AclKind::Default => bits.with_no_default_acl(acl == AclState::None),
    }
}
