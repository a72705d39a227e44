//! Inodes: what the VFS keeps of a file while it is in use.
//!
//! An inode's permission word answers most search checks alone; its attributes are copied whole; its two ACLs are read
//! once and kept. The file system owns the truth: it changes an inode in memory through [`Inode::update`] when it has
//! changed it in its own structures.
//!
//! `rwsem` orders changes. For a directory it covers its names: who looks a name up in the file system or lists the
//! directory holds it shared, who adds, removes or renames one holds it exclusive. For other files it makes writes,
//! truncation and changes of attributes exclude each other; reading takes no lock.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use extern4_sync::primitive::{AtomicBool, Ordering};

use crate::acl::{Acl, AclKind};
use crate::attr::{Attr, FileType};
use crate::attr_cell::AttrCell;
use crate::dentry::Dentry;
use crate::errno::Result;
use crate::fs::FileSystem;
use crate::lock;
use crate::perm_word::{AclState, PermBits, PermWord};

/// What a file system hands over for an inode that it has read.
pub struct NewInode {
    /// The attributes.
    pub attr: Attr,
    /// The inode is known to have no access ACL and, where it is a directory, no default ACL, so that nobody need ask.
    pub no_acl: bool,
    /// Whatever the file system wants to find again with the inode.
    pub private: Box<dyn Any + Send + Sync>,
}

/// An inode in memory.
pub struct Inode {
    perm: PermWord,
    attr: AttrCell,
    acls: Mutex<[AclSlot; 2]>,
    link: OnceLock<Arc<[u8]>>,
    rwsem: RwLock<()>,
    /// The dentry of a directory, to notice a second one.
    alias: Mutex<Weak<Dentry>>,
    /// Made without a name, and may get one.
    linkable: AtomicBool,
    private: Box<dyn Any + Send + Sync>,
    fs: Option<Arc<dyn FileSystem>>,
}

/// What is known of one ACL. The generation counts changes, so that a reader who was slow to read an old ACL from the
/// file system does not put it over a newer one.
struct AclSlot {
    generation: u64,
    cached: Option<Option<Arc<Acl>>>,
}

impl Inode {
    /// An inode outside of any cache, for tests of a file system's own methods.
    pub fn detached(new: NewInode) -> Self {
        Self::build(new, None)
    }

    /// An inode of `fs`, which hears when it is dropped.
    pub(crate) fn of(fs: &Arc<dyn FileSystem>, new: NewInode) -> Self {
        let has_acls = fs.traits().acl;
        let no_acl = new.no_acl || !has_acls;
        Self::build(NewInode { no_acl, ..new }, Some(Arc::clone(fs)))
    }

    fn build(new: NewInode, fs: Option<Arc<dyn FileSystem>>) -> Self {
        let NewInode { attr, no_acl, private } = new;
        // Symbolic links have no ACLs, and only directories have a default one.
        let no_access = no_acl || attr.kind == FileType::Symlink;
        let no_default = no_acl || attr.kind != FileType::Directory;
        let state = if no_access { AclState::None } else { AclState::Unknown };
        let slot = |none: bool| AclSlot { generation: 0, cached: none.then_some(None) };
        Self {
            perm: PermWord::new(PermBits::new(full_mode(&attr), attr.flags, state)),
            attr: AttrCell::new(&attr),
            acls: Mutex::new([slot(no_access), slot(no_default)]),
            link: OnceLock::new(),
            rwsem: RwLock::new(()),
            alias: Mutex::new(Weak::new()),
            linkable: AtomicBool::new(false),
            private,
            fs,
        }
    }

    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.attr.ino()
    }

    /// The type of the file.
    pub fn kind(&self) -> FileType {
        self.attr.kind()
    }

    /// It is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    /// A consistent copy of the attributes.
    pub fn attr(&self) -> Attr {
        self.attr.get()
    }

    /// Owner, group, and mode with its type bits, of one moment.
    pub(crate) fn owner(&self) -> (u32, u32, u16) {
        let (uid, gid, mode) = self.attr.owner();
        (uid, gid, self.kind().mode_bits() | mode)
    }

    /// Changes the attributes. For the file system whose inode this is, once its own structures have changed.
    ///
    /// Number, type and generation stay as they are, whatever `change` does to them.
    pub fn update<R>(&self, change: impl FnOnce(&mut Attr) -> R) -> R {
        let writer = self.attr.lock();
        let mut attr = writer.get();
        let result = change(&mut attr);
        writer.store(&attr);
        let mode = self.kind().mode_bits() | attr.mode & 0o7777;
        // Still under the writers' lock: of two changes, the later one's word stays.
        self.perm.publish(|bits| bits.with_mode(mode).with_flags(attr.flags));
        result
    }

    /// The permission word.
    pub(crate) fn perm(&self) -> PermBits {
        self.perm.load()
    }

    /// Marks a directory as removed: no name can be found in it or added to it any more.
    pub(crate) fn mark_dead(&self) {
        self.perm.publish(PermBits::with_dead);
    }

    /// Makes `dentry` the one dentry of a directory. An earlier one that is in use is handed back instead, unless
    /// `gives_way` says that it is on its way out.
    pub(crate) fn claim_alias(
        &self,
        dentry: &Arc<Dentry>,
        gives_way: impl FnOnce(&Dentry) -> bool,
    ) -> Option<Arc<Dentry>> {
        let mut alias = lock::lock(&self.alias);
        let other = alias.upgrade();
        if other.as_ref().is_none_or(|other| gives_way(other)) {
            *alias = Arc::downgrade(dentry);
            drop(alias);
            return None;
        }
        other
    }

    /// Lets a file that was made without a name get one.
    pub(crate) fn set_linkable(&self) {
        // Relaxed: set before anybody else can see the inode.
        self.linkable.store(true, Ordering::Relaxed);
    }

    /// May get a name though it has none.
    pub(crate) fn is_linkable(&self) -> bool {
        self.linkable.load(Ordering::Relaxed)
    }

    /// What the file system stored with the inode.
    ///
    /// # Panics
    ///
    /// If the inode belongs to another type of file system: the VFS hands an inode only to its own.
    pub fn private<T: Any>(&self) -> &T {
        self.private.downcast_ref().expect("an inode goes only to the file system that made it")
    }

    /// An ACL, from the cache or read by `fs`.
    pub(crate) fn acl(&self, fs: &dyn FileSystem, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        let generation = {
            let slots = lock::lock(&self.acls);
            let slot = &slots[slot_index(kind)];
            match &slot.cached {
                Some(acl) => return Ok(acl.clone()),
                None => slot.generation,
            }
        };
        let acl = fs.get_acl(self, kind)?.map(Arc::new);
        let mut slots = lock::lock(&self.acls);
        let slot = &mut slots[slot_index(kind)];
        if slot.generation == generation && slot.cached.is_none() {
            slot.cached = Some(acl.clone());
            self.publish_acl(kind, acl.as_ref());
        }
        Ok(acl)
    }

    /// Sets an ACL in memory. For the file system whose inode this is, once its own structures have changed.
    pub fn set_cached_acl(&self, kind: AclKind, acl: Option<Arc<Acl>>) {
        let mut slots = lock::lock(&self.acls);
        let slot = &mut slots[slot_index(kind)];
        slot.generation += 1;
        self.publish_acl(kind, acl.as_ref());
        slot.cached = Some(acl);
    }

    /// Locks: `acls` held, so that word and slot change in the same order.
    fn publish_acl(&self, kind: AclKind, acl: Option<&Arc<Acl>>) {
        if kind == AclKind::Access {
            let state = if acl.is_some() { AclState::Present } else { AclState::None };
            self.perm.publish(|bits| bits.with_acl(state));
        }
    }

    /// The target of a symbolic link, which never changes, so it is read once.
    pub(crate) fn link_target(&self, fs: &dyn FileSystem) -> Result<Arc<[u8]>> {
        if let Some(target) = self.link.get() {
            return Ok(Arc::clone(target));
        }
        let target: Arc<[u8]> = fs.read_link(self)?.into();
        Ok(Arc::clone(self.link.get_or_init(|| target)))
    }

    /// Takes `rwsem` shared.
    pub(crate) fn lock_shared(&self) -> RwLockReadGuard<'_, ()> {
        lock::read(&self.rwsem)
    }

    /// Takes `rwsem` exclusive.
    pub(crate) fn lock_exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        lock::write(&self.rwsem)
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        if let Some(fs) = self.fs.take() {
            fs.evict_inode(self);
        }
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inode").field("ino", &self.ino()).field("kind", &self.kind()).finish_non_exhaustive()
    }
}

fn full_mode(attr: &Attr) -> u16 {
    attr.kind.mode_bits() | attr.mode & 0o7777
}

fn slot_index(kind: AclKind) -> usize {
    match kind {
        AclKind::Access => 0,
        AclKind::Default => 1,
    }
}
