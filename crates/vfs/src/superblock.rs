//! A mounted file system: its caches, its open files and its locks.
//!
//! A host makes one for each file system and mounts it in a namespace. All calls of the VFS reach
//! caches, locks and the file system through it, and remounts, syncs and shutdowns are its methods.
//!
//! Lock order, within one superblock and outermost first:
//!
//! 1. `rename_mutex`, for a rename between two directories, and for one that has to lock two
//!    directories of one parent. It keeps every dentry's path to the root as it is. Only its holder
//!    has two directories locked of which neither lies above the other.
//! 2. `rwsem` of directories: an ancestor before the directories below it. Only a rename holds two:
//!    exclusive, or shared where it moves files only, and then it does not wait for the second. A
//!    thread that changes a name in one directory holds its `rwsem` shared, so that others can
//!    change other names.
//! 3. The locks of names (`dcache`): those in one directory by hash; those in two only with both
//!    `rwsem`s exclusive, so that no other thread holds one, or without waiting.
//! 4. `rwsem` of the inodes behind the names: directories before other inodes, and those by inode
//!    number. It is exclusive for a directory that is removed or replaced, so that no name appears
//!    in it meanwhile. It may be shared for a file that gains or loses names or moves. The file's
//!    mutex `attributes` follows where the file is changed (`inode`).
//! 5. The latches of the chunks of one file (`range_lock`), by their place in the table, with the
//!    file's `rwsem` shared. A thread that holds some takes no lock of the kinds above.
//! 6. The locks of a lookup and of a read (`key_locks`), then buckets of the caches; an inode's ACL
//!    slots, then its attributes. All of these are leaves: the file system is called with the first
//!    two held only to look up or read, and with nothing below them. A thread that waits for one of
//!    these wants the same name or inode.
//!
//! No circle of waiting threads can arise. Without the mutex, a thread takes locks of kinds 2 to 4
//! down the tree: directory, name in it, inode of that name. A locked name keeps its inode where it
//! is. So a thread that waits for a directory waits for a thread that works in it or below. A
//! rename that moves a file between two directories without the mutex holds nothing while it waits
//! for the first of them. After that it waits only for files and for hidden names, whose holders
//! take no further lock; if it cannot have any other lock at once, it releases all and starts again
//! with the mutex. A circle would have to lead back to a lock of the mutex's holder. That is a
//! parent or a child of its rename that lies below another one. But the holder locked ancestors
//! first, and a rename that would put a directory below itself has failed by then. A thread with a
//! file locked waits for no directory, and files are locked by number. Debug builds check the order
//! of kinds (`extern4_sync::lock_order`).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use extern4_acl::{Acl, AclKind};
use extern4_sync::cache_budget::{CacheAccount, CacheBudget, Registration};
use extern4_sync::lock_order::{Ordered, Rank, Ranked};
use extern4_sync::opener::Opener;
use extern4_sync::primitive::{AtomicU64, Ordering};
use extern4_sync::process_ids::ProcessIds;
use extern4_sync::rcu::Guard;
use extern4_sync::rcu_arc::RcuArc;
use extern4_sync::thread_counter::ThreadCounter;

use crate::attr::{FileType, StatFs, Timespec};
use crate::cred::{Caps, Cred};
use crate::dcache::{Attempt, CachedName, DentryCache, Expect, IfLocked, Key, LockedName};
use crate::dentry::Dentry;
use crate::errno::{Errno, Error, Result};
use crate::fs::{ChangeContext, FileSystem, FsTraits, SpaceRights};
use crate::icache::InodeCache;
use crate::inode::{Alias, Inode};
use crate::lock::{self, Mutex, MutexGuard};
use crate::name::Scanned;
use crate::open_files::opened::Opened;
use crate::open_files::registry::Registry;
use crate::open_files::write_gate::WriteGate;
use crate::open_files::{OpenFileInfo, OpenFileStats, OpenFiles};
use crate::permission::{Checker, SecurityHook};
use crate::range_lock::RangeLocks;

/// The options of a [`SuperBlock`].
#[derive(Clone)]
pub struct SuperOptions {
    /// Whether nothing may be changed, even if the file system could.
    pub read_only: bool,
    /// When a read changes the access time of a file.
    pub atime: Atime,
    /// Whether a read of a directory changes its access time, too.
    pub dir_atime: bool,
    /// The memory for dentries and inodes, which other caches may share.
    pub budget: Arc<CacheBudget>,
    /// Whether callers may only link to files that they own or may read and write, as with Linux's
    /// `fs.protected_hardlinks`.
    pub protected_hardlinks: bool,
    /// Further checks of the host.
    pub security: Option<Arc<dyn SecurityHook>>,
    /// The lab's replacements of parts.
    #[cfg(feature = "lab")]
    pub lab: crate::lab::Sides,
}

impl Default for SuperOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            atime: Atime::Relative,
            dir_atime: true,
            budget: CacheBudget::of_process(),
            protected_hardlinks: true,
            security: None,
            #[cfg(feature = "lab")]
            lab: crate::lab::Sides::default(),
        }
    }
}

/// When reading a file changes its access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atime {
    /// Never.
    Never,
    /// If it is not later than the last change, or a day old, as Linux's `relatime`.
    Relative,
    /// Always.
    Strict,
}

/// How to [shut a file system down](SuperBlock::shut_down): what is done about changes that are not
/// durable yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Waits for those under way, and makes all durable (`EXT4_GOING_FLAGS_DEFAULT`).
    Flush,
    /// Makes durable what is complete (`EXT4_GOING_FLAGS_LOGFLUSH`).
    FlushLog,
    /// Forgets them, as a crash would (`EXT4_GOING_FLAGS_NOLOGFLUSH`).
    Forget,
}

/// Counters of a file system in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Dentries in memory.
    pub dentries: usize,
    /// Inodes in memory.
    pub inodes: usize,
    /// Inodes read from the file system.
    pub inode_reads: u64,
    /// Dentries and inodes that left the caches for want of memory.
    pub evictions: u64,
    /// Bytes of all caches that share this one's budget.
    pub memory_used: u64,
    /// The most bytes that these caches keep.
    pub memory_limit: u64,
    /// Names for which the VFS asked the file system.
    pub lookups: u64,
    /// Search checks answered from the permission cache.
    pub fast_searches: u64,
    /// Search checks that took the full way.
    pub full_searches: u64,
    /// Path walks that were tried without a lock.
    pub rcu_walks: u64,
    /// Walks that gave up, because something was not cached or needed a reference.
    pub walk_fallbacks: u64,
    /// Walks that started again, with references, because the name changed while its attributes
    /// were read.
    pub walk_restarts: u64,
}

/// Indices of the counters of walks.
const FAST_SEARCHES: usize = 0;
const FULL_SEARCHES: usize = 1;
const FALLBACKS: usize = 2;
const RESTARTS: usize = 3;
const WALKS: usize = 4;

/// A file system in use. Mounts and sessions share it.
pub struct SuperBlock {
    /// Ends first, so that the caches end with this.
    _registration: Registration,
    id: u64,
    fs: Arc<dyn FileSystem>,
    traits: FsTraits,
    atime: Atime,
    dir_atime: bool,
    protected_hardlinks: bool,
    root: RcuArc<Dentry>,
    rename_mutex: Mutex<()>,
    /// Directories that changed their parent.
    dir_renames: AtomicU64,
    lookups: ThreadCounter<1>,
    walks: ThreadCounter<5>,
    pub(crate) icache: Arc<InodeCache>,
    pub(crate) dcache: Arc<DentryCache>,
    pub(crate) checker: Checker,
    pub(crate) files: OpenFiles,
    pub(crate) range_locks: RangeLocks,
    pub(crate) write_gate: WriteGate,
    /// Dropped last.
    _end: End,
}

/// Tells the file system of the end of its use, after the caches have been dropped.
struct End {
    opener: Opener,
    fs: Arc<dyn FileSystem>,
}

impl Drop for End {
    fn drop(&mut self) {
        if self.opener.is_here() {
            extern4_sync::rcu::pin().flush_all();
            self.fs.end();
        }
    }
}

impl SuperBlock {
    /// Makes the caches and locks for a file system, and reads its root inode.
    ///
    /// # Errors
    /// The error of reading the root inode; `ENOTDIR` if it is no directory.
    pub fn new(fs: Arc<dyn FileSystem>, options: SuperOptions) -> Result<Arc<Self>> {
        static IDS: ProcessIds = ProcessIds::new();
        let traits = fs.traits();
        let write_gate = WriteGate::new(options.read_only || traits.read_only);
        let account = CacheAccount::new(&options.budget);
        let icache = InodeCache::new(
            account,
            traits.inode_bytes,
            Arc::clone(write_gate.unlinked()),
        );
        let icache = Arc::new(icache);
        let dcache = Arc::new(DentryCache::new(Arc::clone(&icache)));
        options.budget.make_room();
        let root = match icache.get(&fs, fs.root_ino()) {
            Ok(root) if root.is_dir() => root,
            Err(error) if error != Errno::ESTALE => return Err(error),
            // Every file system has one, unless it is damaged.
            _ => {
                return Err(Error::with_cause(
                    Errno::EUCLEAN,
                    "there is no root directory",
                ));
            }
        };
        let root = dcache.counted(Dentry::root(dcache.new_id(), root));
        let alias = Alias {
            dentry: root.id(),
            parent: root.id(),
            name: Box::default(),
        };
        directory(&root).claim_alias(alias, |_| true);
        let id = IDS.take();
        let parts = (
            OpenFiles::new(),
            Checker::new(Arc::clone(&fs), options.security),
        );
        #[cfg(feature = "lab")]
        let parts = options.lab.replace(parts);
        let (files, checker) = parts;
        Ok(Arc::new(Self {
            _registration: options.budget.register(Arc::clone(&dcache) as _),
            id,
            traits,
            atime: options.atime,
            dir_atime: options.dir_atime,
            protected_hardlinks: options.protected_hardlinks,
            write_gate,
            root,
            rename_mutex: Mutex::new(()),
            dir_renames: AtomicU64::new(0),
            lookups: ThreadCounter::new(),
            walks: ThreadCounter::new(),
            checker,
            files,
            range_locks: RangeLocks::new(),
            icache,
            dcache,
            _end: End {
                opener: Opener::here(),
                fs: Arc::clone(&fs),
            },
            fs,
        }))
    }

    /// Returns a number that distinguishes file systems in use, as `st_dev` does.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the file system itself.
    pub fn fs(&self) -> &Arc<dyn FileSystem> {
        &self.fs
    }

    /// Returns the limits on space that do not bind `cred`.
    pub(crate) fn space_rights(&self, cred: &Cred) -> SpaceRights {
        SpaceRights {
            sys_resource: cred.has(Caps::SYS_RESOURCE),
            root_reserve: self.fs.may_use_root_reserve(cred),
        }
    }

    /// Returns the circumstances of a change at this time by a caller with `cred`.
    pub(crate) fn context_at(&self, now: Timespec, cred: &Cred) -> ChangeContext {
        ChangeContext {
            now,
            rights: self.space_rights(cred),
        }
    }

    /// Returns the properties that the file system reported at first.
    pub fn traits(&self) -> &FsTraits {
        &self.traits
    }

    /// Returns whether changes are forbidden at present.
    pub fn is_read_only(&self) -> bool {
        self.write_gate.is_read_only()
    }

    /// Allows changes or forbids them. `EBUSY` if a file is open for writing, a file or directory
    /// without a name is in use, or a change is under way. `EROFS` if the file system itself cannot
    /// change, `EIO` after a [shutdown](Self::shut_down).
    ///
    /// # Errors
    /// As above.
    pub fn remount(&self, read_only: bool) -> Result<()> {
        if !read_only {
            // It may have been made writable since.
            if self.fs.traits().read_only {
                return Err(Errno::EROFS.into());
            }
            return self.write_gate.open();
        }
        self.write_gate.close()?;
        self.fs.sync()
    }

    /// Calls `look` with inode `ino`, from the cache or read; for the file system's own use.
    ///
    /// # Errors
    /// The error of reading the inode; `ESTALE` if it is free.
    pub fn with_inode<R>(&self, ino: u64, look: impl FnOnce(&Inode) -> R) -> Result<R> {
        Ok(look(&*self.iget(ino)?))
    }

    /// Returns totals and free space.
    ///
    /// # Errors
    /// The file system's error.
    pub fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs()
    }

    /// Gives the volume another label. `EROFS` where nothing may be changed, `EINVAL` for a label
    /// that is too long.
    ///
    /// # Errors
    /// As above; `EIO`.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        let _change = self.write_gate.change()?;
        self.fs.set_label(label)
    }

    /// Discards free space on the device (`FITRIM`), as [`FileSystem::trim`] does. `EROFS` where
    /// nothing may be changed.
    ///
    /// # Errors
    /// As above; `EOPNOTSUPP` if the device cannot discard; `EIO`.
    pub fn trim(&self, bytes: Range<u64>, min_bytes: u64) -> Result<u64> {
        let _change = self.write_gate.change()?;
        self.fs.trim(bytes, min_bytes)
    }

    /// Makes everything durable. `EIO` after a [shutdown](Self::shut_down).
    ///
    /// # Errors
    /// As above; the file system's error.
    pub fn sync(&self) -> Result<()> {
        self.write_gate.check()?;
        self.fs.sync()
    }

    /// Ends all use of the file system, also of open files: from now on each read, write and change
    /// fails with `EIO`. When this returns, nothing more is written. A second call fails with
    /// `EIO`, too.
    ///
    /// # Errors
    /// The first error of the flush; the file system is shut down all the same.
    pub fn shut_down(&self, how: Shutdown) -> Result<()> {
        if !self.write_gate.shut_down() {
            return Err(Errno::EIO.into());
        }
        if how == Shutdown::Flush {
            self.write_gate.wait_for_changes();
        }
        let flushed = if how == Shutdown::Forget {
            Ok(())
        } else {
            self.fs.sync()
        };
        self.fs.abort("it was shut down");
        // Changes that had begun are refused by now.
        self.write_gate.wait_for_changes();
        flushed
    }

    /// Lists the open files: all that are open throughout the call, and perhaps some that are
    /// opened or closed meanwhile. The list keeps no file open.
    pub fn open_files(&self) -> Vec<OpenFileInfo> {
        self.files.registry.list(Opened::info)
    }

    /// Returns the counters of open files.
    pub fn open_file_stats(&self) -> OpenFileStats {
        self.files.stats()
    }

    /// Drops every unused dentry and inode from the caches.
    pub fn drop_caches(&self) {
        self.dcache.shrink();
        self.icache.shrink();
        extern4_sync::rcu::pin().flush_all();
    }

    /// Drops an inode that nothing uses and to which no cached name leads, if the caches exceed
    /// their budget. For callers that find files by number: other inodes leave with their names.
    pub fn trim_inode(&self, ino: u64) {
        if self.icache.account().excess() > 0 {
            self.icache.evict_unused(ino);
        }
    }

    /// Returns the memory for dentries and inodes, which other caches may share.
    pub fn cache_budget(&self) -> &Arc<CacheBudget> {
        self.icache.account().budget()
    }

    /// Returns the counters.
    pub fn stats(&self) -> CacheStats {
        let walks = self.walks.sum();
        let [lookups] = self.lookups.sum();
        let budget = self.icache.account().budget();
        CacheStats {
            dentries: self.dcache.len(),
            inodes: self.icache.len(),
            inode_reads: self.icache.reads(),
            evictions: self.icache.evictions(),
            memory_used: budget.used(),
            memory_limit: budget.limit(),
            lookups,
            fast_searches: walks[FAST_SEARCHES],
            full_searches: walks[FULL_SEARCHES],
            rcu_walks: walks[WALKS],
            walk_fallbacks: walks[FALLBACKS],
            walk_restarts: walks[RESTARTS],
        }
    }

    /// Counts search checks, fast and full, of a walk with references.
    pub(crate) fn count_searches(&self, [fast, full]: [u64; 2]) {
        self.walks.add([fast, full, 0, 0, 0]);
    }

    /// Counts a walk without a lock.
    #[inline]
    pub(crate) fn count_walk(&self, [fast, full]: [u64; 2], gave_up: bool) {
        self.walks.add([fast, full, u64::from(gave_up), 0, 1]);
    }

    /// Counts a walk that starts again.
    pub(crate) fn count_restart(&self) {
        self.walks.add([0, 0, 0, 1, 0]);
    }

    pub(crate) fn root(&self) -> &RcuArc<Dentry> {
        &self.root
    }

    pub(crate) fn protects_hardlinks(&self) -> bool {
        self.protected_hardlinks
    }

    /// Returns when a read of a file of this type changes its access time.
    pub(crate) fn atime(&self, kind: FileType) -> Atime {
        if self.dir_atime || !kind.is_dir() {
            self.atime
        } else {
            Atime::Never
        }
    }

    /// Returns the inode `ino`, from the cache or read.
    pub(crate) fn iget(&self, ino: u64) -> Result<RcuArc<Inode>> {
        self.icache.get(&self.fs, ino)
    }

    /// Notes that `inode` has got links or lost them, within the change that did so. Locks: the
    /// locks of that change.
    pub(crate) fn links_changed(&self, inode: &RcuArc<Inode>) {
        inode.count_links(self.write_gate.unlinked());
        self.icache.links_changed(inode);
    }

    /// Returns an ACL, from the cache or read.
    pub(crate) fn acl(&self, inode: &Inode, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        self.checker.acl(inode, kind)
    }

    /// Serialises renames between directories.
    pub(crate) fn lock_renames(&self) -> Ordered<MutexGuard<'_, ()>> {
        Ordered::lock(Rank::Rename, || lock::lock(&self.rename_mutex))
    }

    /// Returns the number of changes of directories' parents. A scoped walk, which must stay below
    /// its start, reads it when it starts and each time that it has gone up. If it has changed,
    /// `..` may have led out.
    pub(crate) fn dir_renames(&self) -> u64 {
        // Acquire: pairs with the Release in `count_dir_rename`.
        self.dir_renames.load(Ordering::Acquire)
    }

    /// Counts such a change. The caller has hidden the directory's old and new name and has not
    /// moved the dentry yet.
    ///
    /// So a walk that finds a directory by its old name and then goes up to its new parent notices.
    /// It has read the new parent, which is stored after the count, so it reads a new count next.
    /// It started with an old count: after a new one it would have found the old name hidden, and
    /// would have waited.
    pub(crate) fn count_dir_rename(&self) {
        // Release: pairs with the Acquire in `dir_renames`. A walk that sees the number sees that
        // the names are hidden.
        self.dir_renames.fetch_add(1, Ordering::Release);
    }

    /// Returns the dentry of `name` in `dir`: a negative one if the name does not exist.
    ///
    /// `dir` is positive and a directory, and the caller may search it.
    pub(crate) fn lookup(&self, dir: &RcuArc<Dentry>, name: &[u8]) -> Result<RcuArc<Dentry>> {
        let inode = directory(dir);
        let canonical = self.canonical_name(inode, name)?;
        let key = self.dcache.key(dir, &canonical);
        if let Some(dentry) = self.dcache.find(key) {
            return Ok(dentry);
        }
        self.lookup_unknown_key(inode, key, name)
    }

    /// Like [`lookup`](Self::lookup), for a name that the cache has just been found to lack.
    pub(crate) fn lookup_unknown(
        &self,
        dir: &RcuArc<Dentry>,
        name: &[u8],
    ) -> Result<RcuArc<Dentry>> {
        let inode = directory(dir);
        let canonical = self.canonical_name(inode, name)?;
        self.lookup_unknown_key(inode, self.dcache.key(dir, &canonical), name)
    }

    fn lookup_unknown_key(&self, dir: &Inode, key: Key<'_>, name: &[u8]) -> Result<RcuArc<Dentry>> {
        // Shared, because the name may be in neither directory during a rename that holds this
        // exclusive. Other renames hide the name.
        let _names = dir.lock_names();
        self.lookup_key(dir, key, name)
    }

    /// Returns whether the file system knows that a name, which the cache has just been found to
    /// lack, is not in `dir`, whose dentry has the number `id`. Takes no lock, and does not wait.
    ///
    /// # Why it is right
    /// The file system answers for a moment of this call. Only the holder of the lock of a name
    /// changes it, and the lock is in the cache from before the change until after it. If the
    /// answer comes from the middle of a change, there are two cases. Either the cache has the name
    /// afterwards, and this returns false. Or the change is complete by then, and the cache has
    /// lost the name again. The walk has missed the name before, so the whole change lies within
    /// this step of the walk. It added the name or removed it, so the name was absent before the
    /// change or after it.
    pub(crate) fn is_absent(
        &self,
        dir: &Inode,
        id: u64,
        name: &Scanned<'_>,
        guard: &Guard,
    ) -> bool {
        name.bytes.len() <= self.traits.name_max
            && self.fs.is_absent(dir, name.bytes)
            && !self.dcache.knows(id, name, guard)
    }

    /// Returns the form of `name` by which the cache knows it in `dir`. `ENAMETOOLONG` for a name
    /// that no directory can hold.
    pub(crate) fn canonical_name<'n>(&self, dir: &Inode, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        if name.len() > self.traits.name_max {
            let removed = dir.perm().dead();
            return Err(if removed {
                Errno::ENOENT
            } else {
                Errno::ENAMETOOLONG
            }
            .into());
        }
        if dir.perm().casefold() {
            self.fs.canonical_name(dir, name)
        } else {
            Ok(Cow::Borrowed(name))
        }
    }

    /// Like [`canonical_name`](Self::canonical_name), for a name that the caller is going to
    /// change. `ENOENT` in a directory that has been removed.
    pub(crate) fn name_to_change<'n>(&self, dir: &Inode, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        if dir.perm().dead() {
            return Err(Errno::ENOENT.into());
        }
        self.canonical_name(dir, name)
    }

    /// Locks a name if it is as expected, and waits for another holder. Locks: the directory's
    /// `rwsem`.
    #[inline(always)]
    pub(crate) fn lock_name<'a>(
        &'a self,
        key: Key<'a>,
        name: &[u8],
        expect: Expect,
    ) -> Result<LockedName<'a>> {
        let locked = self.lock_name_if(key, name, expect, IfLocked::Wait)?;
        Ok(locked.expect("it was waited for"))
    }

    /// Locks two names if the first exists; the second is `None` if both are the same. Returns
    /// `None` if another thread holds one of them and the caller does not wait. Locks: the `rwsem`
    /// of the directory, or of both, exclusive if it waits.
    pub(crate) fn lock_names<'a>(
        &'a self,
        (key, name): (Key<'a>, &[u8]),
        (other_key, other_name): (Key<'a>, &[u8]),
        if_locked: IfLocked,
    ) -> Result<Option<(LockedName<'a>, Option<LockedName<'a>>)>> {
        let lock_second = || self.lock_name_if(other_key, other_name, Expect::Any, if_locked);
        let mut second = None;
        if other_key.precedes(key) {
            let Some(locked) = lock_second()? else {
                return Ok(None);
            };
            second = Some(locked);
        }
        let Some(first) = self.lock_name_if(key, name, Expect::Positive, if_locked)? else {
            return Ok(None);
        };
        if key.precedes(other_key) {
            let Some(locked) = lock_second()? else {
                return Ok(None);
            };
            second = Some(locked);
        }
        Ok(Some((first, second)))
    }

    /// Locks a name if it is as expected, after a lookup where the cache does not have it. Returns
    /// `None` if another thread holds it and the caller does not wait. Locks: the directory's
    /// `rwsem`.
    #[inline(always)]
    pub(crate) fn lock_name_if<'a>(
        &'a self,
        key: Key<'a>,
        name: &[u8],
        expect: Expect,
        if_locked: IfLocked,
    ) -> Result<Option<LockedName<'a>>> {
        // Once it is looked up, the entry stays as long as its dentry is in use.
        let mut _known;
        loop {
            let ranked = Ranked::take(Rank::Name);
            match self.dcache.lock_name(key, expect, if_locked)? {
                // Made where it stays: to hand it on takes longer.
                Attempt::Locked(dentry) => {
                    return Ok(Some(LockedName::new(&self.dcache, key, dentry, ranked)));
                }
                Attempt::Busy(_) => return Ok(None),
                Attempt::Unknown => {}
            }
            drop(ranked);
            _known = self.lookup_key(directory(key.parent), key, name)?;
        }
    }

    /// Binds a name to the inode that a listing found for it, and returns its dentry. Locks:
    /// `rwsem` of the directory exclusive since the listing.
    pub(crate) fn prime(
        &self,
        dir: &RcuArc<Dentry>,
        name: &[u8],
        found: RcuArc<Inode>,
    ) -> Result<RcuArc<Dentry>> {
        self.check_found(directory(dir), &found)?;
        // Only damage makes such a name. No path has it, and the cache could take it for another.
        if name.contains(&0) {
            return Err(Errno::EINVAL.into());
        }
        let canonical = self.canonical_name(directory(dir), name)?;
        let key = self.dcache.key(dir, &canonical);
        if let Some(known) = self.dcache.find(key) {
            return Ok(known);
        }
        let _single_flight = self.dcache.single_flight(key);
        match self.dcache.find_locked(key) {
            CachedName::Known(known) => Ok(known),
            CachedName::Unknown => self.bind(key, name, found),
            CachedName::Hidden => Err(Errno::EAGAIN.into()),
        }
    }

    /// Checks whether `found` may be in `dir`, if that is encrypted.
    fn check_found(&self, dir: &Inode, found: &Inode) -> Result<()> {
        if dir.perm().encrypted() {
            self.fs.check_found(dir, found)
        } else {
            Ok(())
        }
    }

    /// Looks a name up in the file system, and caches the answer. Locks: `rwsem` of the directory
    /// held.
    fn lookup_key(&self, dir: &Inode, key: Key<'_>, name: &[u8]) -> Result<RcuArc<Dentry>> {
        let _single_flight = loop {
            let single_flight = self.dcache.single_flight(key);
            match self.dcache.find_locked(key) {
                CachedName::Known(dentry) => return Ok(dentry),
                CachedName::Unknown => break single_flight,
                CachedName::Hidden => {
                    drop(single_flight);
                    self.dcache.wait_until_visible(key);
                }
            }
        };
        if dir.perm().dead() {
            return Err(Errno::ENOENT.into());
        }
        self.lookups.add([1]);
        // No thread is changing the name: the cache would have it.
        let found = if self.fs.is_absent(dir, key.name()) {
            None
        } else {
            self.fs.lookup(dir, name)?
        };
        let inode = match found {
            Some(ino) => {
                let found = self.iget(ino).map_err(|error| dangling(error, ino))?;
                self.check_found(dir, &found)?;
                Some(found)
            }
            None => None,
        };
        match inode {
            Some(inode) => self.bind(key, name, inode),
            None => Ok(self.dcache.put_nothing(key)),
        }
    }

    /// Binds a name that is not in the cache to the inode it stands for. `EUCLEAN` for a directory
    /// that has another name already: such a tree has no way up, may have no end, and is damaged.
    /// Locks: `rwsem` of the directory held.
    fn bind(&self, key: Key<'_>, name: &[u8], inode: RcuArc<Inode>) -> Result<RcuArc<Dentry>> {
        let dentry = self.dcache.new_dentry(key, name, inode);
        claim_name(&dentry, key, name, directory(&dentry))?;
        self.dcache.put(key, dentry.clone());
        Ok(dentry)
    }

    /// Binds a name that the caller has hidden and that does not exist to an inode. `EUCLEAN` as in
    /// [`bind`](Self::bind).
    pub(crate) fn bind_made(
        &self,
        locked: LockedName<'_>,
        name: &[u8],
        inode: RcuArc<Inode>,
    ) -> Result<RcuArc<Dentry>> {
        claim_name(locked.dentry(), locked.key(), name, &inode)?;
        Ok(locked.bind(name, inode))
    }
}

/// Makes a dentry the one name of its inode, if that is a directory.
fn claim_name(dentry: &Dentry, key: Key<'_>, name: &[u8], inode: &Inode) -> Result<()> {
    if !inode.is_dir() {
        return Ok(());
    }
    // A dentry that was evicted a moment ago may not have released the inode yet. It has the same
    // place as the new one.
    let folds = directory(key.parent).perm().casefold();
    let gives_way =
        |other: &Alias| other.parent == key.parent.id() && (folds || *other.name == *name);
    let alias = Alias {
        dentry: dentry.id(),
        parent: key.parent.id(),
        name: name.into(),
    };
    if inode.claim_alias(alias, gives_way) {
        Ok(())
    } else {
        Err(two_names(inode))
    }
}

/// Returns the inode of a dentry that is known to be positive.
pub(crate) fn directory(dentry: &Dentry) -> &Inode {
    dentry
        .inode()
        .expect("a walk stands on positive dentries only")
}

/// Returns a reference to the inode of a positive dentry, which must be in use.
pub(crate) fn keep_inode(dentry: &RcuArc<Dentry>) -> RcuArc<Inode> {
    dentry
        .hold_inode()
        .expect("a positive dentry in use keeps its inode in use")
}

/// Returns the error for a directory with two names. Only damage makes a directory its own child,
/// or gives it two parents.
pub(crate) fn two_names(inode: &Inode) -> Error {
    Error::with_cause(
        Errno::EUCLEAN,
        format!("directory inode {} has two names", inode.ino()),
    )
}

/// Returns the error of a lookup by name: an entry whose inode is not in use is damage, not a stale
/// handle.
pub(crate) fn dangling(error: Error, ino: u64) -> Error {
    if error == Errno::ESTALE {
        return Error::with_cause(
            Errno::EUCLEAN,
            format!("a directory entry names inode {ino}, which is not in use"),
        );
    }
    error
}
