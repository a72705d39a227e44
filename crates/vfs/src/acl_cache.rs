//! The ACLs of an inode, as far as they are known.
//!
//! `Inode` holds the slots of its two ACLs, and `permission` and the attribute calls read and set
//! them. A caller that finds no answer here asks the file system and fills the slot.
//!
//! The permission cache of an inode has the state of its access ACL (none, unknown, present). It
//! also says whether the inode is known to have no default ACL. A check loads it for the mode in
//! any case. The same load may show that there is no ACL, or that the ACL refuses the wanted rights
//! to no user. An ACL that is present has a slot, which points to an immutable ACL: readers follow
//! it with no lock and no count ([`RcuOption`]).
//!
//! # Filling and setting
//! A slot starts empty, is filled once, and never becomes empty again:
//!
//! | step | slot | permission cache |
//! |---|---|---|
//! | fill with the file system's answer | empty to answer, by CAS | unknown to none or present |
//! | set, in the attributes' write section | swapped | none or present, with the mode |
//!
//! So a slow filler never overwrites a newer ACL. After a setter, the slot is not empty, and the
//! word (the permission cache) is not unknown. A setter changes the slot before the word. So a
//! reader that finds *present* in the word (Acquire) finds the slot filled. A reader that needs an
//! ACL and its mode reads slot and word in one read section of the attributes. Otherwise it could
//! get the new ACL with the old word, between a setter's two steps. A filler whose CAS has failed
//! reads them in the same way. The file system's answer may be newer than the slot, and no reader
//! may see it earlier.
//!
//! The file system changes its own ACL before the inode in memory. So a setter of the access ACL
//! fills its slot first. Then no other thread can fill it with the new ACL while the word still has
//! the old mode.
//!
//! Equal ACLs are interned, since trees made under a default ACL have thousands of them. They share
//! memory, and their addresses show that they are equal.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use extern4_acl::{Acl, AclEntry, AclKind};
use extern4_sync::per_thread::PerThread;
use extern4_sync::rcu::{Guard, RcuOption};
use hashbrown::HashTable;

use crate::lock::{self, Mutex};
use crate::name::{hash_words, new_seed};

/// The ACLs of one inode that the VFS had to read.
#[derive(Default)]
pub(crate) struct AclSlots {
    access: Slot,
    default: Slot,
}

/// Empty until the VFS has asked the file system; then its answer, an ACL or none.
type Slot = RcuOption<Option<Arc<Acl>>>;

impl AclSlots {
    fn slot(&self, kind: AclKind) -> &Slot {
        match kind {
            AclKind::Access => &self.access,
            AclKind::Default => &self.default,
        }
    }

    /// Returns the contents of the slot; `None` if it has not been filled.
    #[inline]
    pub(crate) fn get<'g>(&'g self, kind: AclKind, guard: &'g Guard) -> Option<Option<&'g Acl>> {
        self.slot(kind).load(guard).map(Option::as_deref)
    }

    /// Like [`get`](Self::get), with a counted reference.
    pub(crate) fn get_counted(&self, kind: AclKind, guard: &Guard) -> Option<Option<Arc<Acl>>> {
        self.slot(kind).load(guard).cloned()
    }

    /// Fills the slot if it is empty; returns whether it did.
    pub(crate) fn fill(&self, kind: AclKind, acl: Option<Arc<Acl>>) -> bool {
        self.slot(kind).fill(acl)
    }

    /// Replaces the contents of the slot.
    pub(crate) fn set(&self, kind: AclKind, acl: Option<Arc<Acl>>) {
        self.slot(kind).store(Some(acl));
    }
}

/// The ACLs in use on one file system, each once.
///
/// Each shard has the ACLs of some hashes. A thread holds its lock to look an ACL up and to insert
/// it. Files that are read one after the other mostly have the same ACL. So each thread keeps the
/// last one that it interned, and compares with that first.
pub(crate) struct AclPool {
    /// Random, so that no user can choose ACLs that collide.
    seed: u64,
    shards: [Mutex<HashTable<Weak<Acl>>>; SHARDS],
    last: PerThread<RefCell<Option<Arc<Acl>>>>,
}

/// The number of shards, a power of two.
const SHARDS: usize = 16;

impl AclPool {
    pub(crate) fn new() -> Self {
        Self {
            seed: new_seed(),
            shards: Default::default(),
            last: PerThread::new(),
        }
    }

    /// Returns the one copy of `acl`.
    pub(crate) fn intern(&self, acl: Acl) -> Arc<Acl> {
        let known = |last: &RefCell<Option<Arc<Acl>>>| {
            last.borrow()
                .as_ref()
                .filter(|last| ***last == acl)
                .cloned()
        };
        if let Some(known) = self.last.with(known).flatten() {
            return known;
        }
        let acl = self.intern_shared(acl);
        self.last.with(|last| last.replace(Some(Arc::clone(&acl))));
        acl
    }

    /// Interns an ACL that is not the last one of this thread.
    fn intern_shared(&self, acl: Acl) -> Arc<Acl> {
        let hash = self.hash(&acl);
        let mut acls = lock::lock(self.shard(hash));
        let mut known = None;
        let same = |other: &Weak<Acl>| {
            known = other.upgrade().filter(|other| **other == acl);
            known.is_some()
        };
        if acls.find(hash, same).is_some()
            && let Some(known) = known
        {
            return known;
        }
        let acl = Arc::new(acl);
        if acls.len() == acls.capacity() {
            // Before the table grows, this removes entries whose ACL is no longer in use.
            acls.retain(|acl| acl.strong_count() > 0);
        }
        let rehash = |acl: &Weak<Acl>| acl.upgrade().map_or(0, |acl| self.hash(&acl));
        acls.insert_unique(hash, Arc::downgrade(&acl), rehash);
        acl
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<Weak<Acl>>> {
        // Bits that the table does not use to choose a bucket. OK: reduced to the number of shards.
        &self.shards[(hash >> 48) as usize % SHARDS]
    }

    fn hash(&self, acl: &Acl) -> u64 {
        hash_words(self.seed, acl.entries().iter().map(AclEntry::word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extern4_acl::AclTag;
    use extern4_sync::rcu::pin;

    fn acl(uid: u32) -> Acl {
        let entry = |tag, perm| AclEntry { tag, perm };
        Acl::new(vec![
            entry(AclTag::UserObj, 7),
            entry(AclTag::User(uid), 5),
            entry(AclTag::GroupObj, 5),
            entry(AclTag::Mask, 5),
            entry(AclTag::Other, 0),
        ])
        .unwrap()
    }

    #[test]
    fn equal_acls_are_one() {
        let pool = AclPool::new();
        let first = pool.intern(acl(1));
        assert!(Arc::ptr_eq(&first, &pool.intern(acl(1))));
        assert!(!Arc::ptr_eq(&first, &pool.intern(acl(2))));
        for uid in 0..10_000 {
            pool.intern(acl(uid));
        }
        let capacity: usize = pool
            .shards
            .iter()
            .map(|shard| lock::lock(shard).capacity())
            .sum();
        assert!(capacity < 1000, "unused ACLs are freed: {capacity}");
        assert!(
            pool.shards
                .iter()
                .all(|shard| lock::lock(shard).capacity() > 0),
            "they spread"
        );
        assert!(Arc::ptr_eq(&first, &pool.intern(acl(1))));
    }

    #[test]
    fn a_slow_fill_loses_to_a_set() {
        let slots = AclSlots::default();
        let guard = pin();
        assert!(slots.get(AclKind::Access, &guard).is_none());
        slots.set(AclKind::Access, None);
        assert!(!slots.fill(AclKind::Access, Some(Arc::new(acl(1)))));
        assert_eq!(slots.get(AclKind::Access, &guard), Some(None));
        assert!(slots.fill(AclKind::Default, Some(Arc::new(acl(1)))));
        assert_eq!(
            *slots.get(AclKind::Default, &guard).unwrap().unwrap(),
            acl(1)
        );
    }
}
