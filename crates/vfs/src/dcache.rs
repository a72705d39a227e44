//! Directory entry cache of one file system.
//!
//! The two walks (`lookup`) find names here. Calls that create, link, remove or rename lock names
//! here, and the superblock asks the file system for names that the cache lacks.
//!
//! Dentries are found by parent and name, without a lock. The name that counts is the directory's
//! canonical form of it, so that a case-folding directory has one dentry for all spellings.
//!
//! A thread that changes the binding of a name *locks* the name and then *hides* it. From then on
//! lookups do not find the name and wait for the lock, until the change is complete and the name
//! bound again. So a lookup without a lock sees all of a change or nothing of it. This holds for a
//! rename, too, which changes two names, and for an unlink, which also takes a link from the inode.
//! A thread that asks the file system for a name holds the lookup lock of that name. One thread
//! asks, and the others wait for its answer. All of them hold the directory's `rwsem`, shared at
//! least.
//!
//! A name that is not in the cache may exist. A negative dentry says that it does not. It does not
//! keep its directory in use. So a removed directory goes with its last user, and no thread finds
//! its negative dentries again, because no other dentry ever has the directory's number.
//!
//! # The lock of a name
//! Each entry has the lock of its name. So a name that is not in the cache is looked up before it
//! is locked, and two names never share a lock. Its states:
//!
//! | from | to | by |
//! | --- | --- | --- |
//! | `FREE` | `HELD` | a thread that locks the name and has a reference to its dentry |
//! | `HELD` | `AWAITED` | a thread that waits, with the mutex of the wait queue |
//! | `HELD`, `AWAITED` | `FREE` | the holder, if it leaves the name as it was |
//! | `HELD`, `AWAITED` | `GONE` | the holder, if it binds the name again: the new entry is free |
//!
//! An entry whose name is locked stays in the table. The cache reclaims only entries whose dentry
//! has no other reference, and only the holder of the lock removes or replaces the entry. So the
//! entry of a lock stays in the table as long as the holder keeps the dentry in use or has
//! [ended](LockedName::take_last) it. No thread sleeps for ever. A waiting thread sets the state to
//! `AWAITED` under the mutex of the wait queue, and releases the mutex only by sleeping. A holder
//! that finds `AWAITED` when it unlocks takes the mutex before it wakes all.
//!
//! An operation that is going to fail in any case, for example because the file exists, locks
//! nothing. It first compares the binding of the name with the one that it expects ([`Expect`]).
//!
//! Order of locks: `rwsem`, names (two of one directory by hash), lookup lock, bucket; the wait
//! queues are leaves. No thread waits for a name with a lookup lock held. Dentries are dropped with
//! none of the cache's locks held.
//!
//! The cache is bounded: an insertion into a full cache evicts unused dentries, and their inodes
//! with them. Positive children go before parents, since a child keeps its parent in use.
//!
//! | field | written by | read by | orderings |
//! |---|---|---|---|
//! | the table | the holder of the bucket | all threads | those of `hash_table` |
//! | `Entry::lock` | all threads | all threads | AcqRel: orders one holder after another |
//! | `Entry::hidden` | the lock's holder | all threads | [`DcacheEntry::is_current`] |

use std::sync::Arc;

use extern4_sync::lock_order::{Ordered, Rank, Ranked};
use extern4_sync::primitive::{AtomicBool, AtomicU32, Ordering};
use extern4_sync::rcu::{Guard, pin};
use extern4_sync::rcu_arc::{AtomicRcuArc, FinalRef, RcuArc, RcuRef};
use extern4_sync::rcu_hash_map::{Found, RcuHashMap, Unlinked};
use extern4_sync::thread_counter::IdAllocator;

use crate::dentry::Dentry;
use crate::errno::{Errno, Result};
use crate::icache::InodeCache;
use crate::inode::Inode;
use crate::key_locks::{KeyGuard, KeyLocks};
use crate::lock::WaitQueues;
use crate::name::{Name, Scanned, in_directory, new_seed, spread};

pub(crate) struct DentryCache {
    table: RcuHashMap<Entry>,
    /// Where the inode of an evicted dentry is.
    inodes: Arc<InodeCache>,
    lookups: KeyLocks,
    waiting: WaitQueues,
    seed: u64,
    ids: IdAllocator,
}

/// Bytes of a dentry, with a name of usual length, its entry and the links of the table.
const DENTRY_BYTES: u64 = (size_of::<Entry>() + Dentry::BYTES) as u64 + 80;

/// A name in a directory, with its dentry.
pub(crate) struct Entry {
    parent: u64,
    /// The dentry's own number, which is part of the key of the next name. A search for that can go
    /// on before the dentry is in the processor's cache.
    id: u64,
    dentry: AtomicRcuArc<Dentry>,
    hidden: AtomicBool,
    lock: AtomicU32,
    key: Name,
}

impl Entry {
    /// Asks the holder of the name's lock to wake the caller. Returns false if the lock is free.
    fn ask(&self) -> bool {
        // Relaxed: the caller reads nothing that depends on it.
        let asked = self.lock.compare_exchange(HELD, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
        matches!(asked, Ok(_) | Err(AWAITED))
    }
}

/// States of the lock of a name.
const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;
const GONE: u32 = 3;

/// An entry of the cache, as a reader finds it.
#[derive(Clone, Copy)]
pub(crate) struct DcacheEntry<'g>(Found<'g, Entry>);

impl<'g> DcacheEntry<'g> {
    /// Returns the dentry of the name; `None` while the name is being changed.
    #[inline]
    pub(crate) fn dentry(self, guard: &'g Guard) -> Option<RcuRef<'g, Dentry>> {
        let entry = self.0.value();
        // Acquire: pairs with the Release of `hidden`. The thread that hid the name and bound it
        // again has published the new entry, which the next search finds.
        if entry.hidden.load(Ordering::Acquire) {
            return None;
        }
        // Empty once the cache has begun to remove the entry.
        entry.dentry.load(guard)
    }

    /// Returns the dentry's number.
    #[inline]
    pub(crate) fn id(self) -> u64 {
        self.0.value().id
    }

    /// Returns whether the name is still bound to this dentry.
    ///
    /// A reader that reads attributes and then finds this true has read them at a moment when the
    /// name was bound to the inode. A change hides the name or removes it from the table, by a
    /// Release store, before it changes attributes. A reader of a changed attribute has read it
    /// with Acquire, so it sees that store here.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.0.is_live() && !self.0.value().hidden.load(Ordering::Acquire)
    }
}

/// A directory, and a name in it under the form the cache knows.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) parent: &'a RcuArc<Dentry>,
    name: Scanned<'a>,
}

impl Key<'_> {
    #[inline]
    fn hash(&self) -> u64 {
        in_directory(self.parent.id(), self.name.hash)
    }

    /// Returns whether a thread that locks both names locks this one first.
    pub(crate) fn precedes(&self, other: Key<'_>) -> bool {
        fn place<'k>(key: &Key<'k>) -> (u64, u64, &'k [u8]) {
            (key.parent.id(), key.hash(), key.name.bytes)
        }
        place(self) < place(&other)
    }

    fn is(&self, entry: &Entry) -> bool {
        entry.parent == self.parent.id() && entry.key.is_scanned(&self.name)
    }
}

/// The right to change the binding of a name. Unless the holder has changed it, the name becomes
/// visible again when this is dropped. Locks: `rwsem` of the directory, throughout.
pub(crate) struct LockedName<'a> {
    cache: &'a DentryCache,
    key: Key<'a>,
    /// `None` once the holder has taken it.
    dentry: Option<RcuArc<Dentry>>,
    /// Whether the entry with the lock has left the table.
    is_bound: bool,
    _ranked: Ranked,
}

impl<'a> LockedName<'a> {
    /// Returns the right to a name that the caller has locked, and whose dentry is `dentry`.
    #[inline(always)]
    pub(crate) fn new(cache: &'a DentryCache, key: Key<'a>, dentry: RcuArc<Dentry>, ranked: Ranked) -> Self {
        Self { cache, key, dentry: Some(dentry), is_bound: false, _ranked: ranked }
    }

    /// Returns the dentry of the name.
    pub(crate) fn dentry(&self) -> &RcuArc<Dentry> {
        self.dentry.as_ref().expect("it is there until it is taken")
    }

    /// Returns the directory and the name.
    pub(crate) fn key(&self) -> Key<'a> {
        self.key
    }

    /// Hides the name: no lookup finds it until it has a new binding or is unlocked.
    pub(crate) fn hide(&self) {
        // Release: see `DcacheEntry::is_current`.
        self.cache.with_entry(self.key, |entry| entry.hidden.store(true, Ordering::Release));
    }

    /// Ends the dentry if the caller has its only reference, so that no thread can get another. The
    /// caller must then bind the name, which is hidden, to another dentry, also after an error.
    pub(crate) fn take_last(&mut self) -> Option<FinalRef<Dentry>> {
        let mine = self.dentry.take()?;
        let taken = self.cache.with_entry(self.key, |entry| entry.dentry.take_if_last_but(mine))?;
        taken.map_err(|mine| self.dentry = Some(mine)).ok()
    }

    /// Takes the dentry of the name, to bind another name to it. The caller must then bind this
    /// name to another dentry, also after an error, and before it drops the one that it took. The
    /// cache reclaims an unused entry, and with it the lock for which other threads wait.
    pub(crate) fn take(&mut self) -> RcuArc<Dentry> {
        self.dentry.take().expect("it is taken once")
    }

    /// Ends the lock after the caller has bound the name to another dentry, which unlocked it.
    /// Returns the old dentry unless the caller has taken it.
    pub(crate) fn bound(mut self) -> Option<RcuArc<Dentry>> {
        self.is_bound = true;
        self.dentry.take()
    }
}

impl Drop for LockedName<'_> {
    fn drop(&mut self) {
        if !self.is_bound {
            self.cache.with_entry(self.key, |entry| {
                // Release: see `DcacheEntry::is_current`.
                entry.hidden.store(false, Ordering::Release);
                self.cache.unlock(entry, self.key, FREE);
            });
        }
    }
}

/// The state of a name that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The name may exist or not.
    Any,
    /// The name exists.
    Positive,
    /// The name does not exist.
    Negative,
}

impl Expect {
    /// Fails with `ENOENT` or `EEXIST` unless a name that is bound to `inode` is as expected.
    #[inline]
    pub(crate) fn check(self, inode: Option<&Inode>) -> Result<()> {
        match (self, inode) {
            (Self::Positive, None) => Err(Errno::ENOENT.into()),
            (Self::Negative, Some(_)) => Err(Errno::EEXIST.into()),
            _ => Ok(()),
        }
    }
}

/// The choice of a caller that finds a name locked by another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfLocked {
    Wait,
    GiveUp,
}

/// The result of an attempt to lock a name.
pub(crate) enum Attempt {
    /// The caller holds the lock, and this is the dentry.
    Locked(RcuArc<Dentry>),
    /// The name is not in the cache.
    Unknown,
    /// Another thread holds it. The caller drops this reference without a lock.
    Busy(RcuArc<Dentry>),
}

/// The certain state of a name in the cache.
pub(crate) enum CachedName {
    /// The name is bound to this dentry.
    Known(RcuArc<Dentry>),
    /// A thread is changing the binding, or was a moment ago.
    Hidden,
    /// The cache does not know the name.
    Unknown,
}

/// Dentries that no thread can find any more; dropped when no lock is held.
#[derive(Default)]
struct Dropped(Vec<FinalRef<Dentry>>);

impl DentryCache {
    /// Returns a cache within the budget of `inodes`. An evicted dentry takes its inode out of
    /// `inodes` unless that is in use.
    pub(crate) fn new(inodes: Arc<InodeCache>) -> Self {
        Self {
            table: RcuHashMap::new(),
            inodes,
            lookups: KeyLocks::new(),
            waiting: WaitQueues::new(),
            seed: new_seed(),
            ids: IdAllocator::new(),
        }
    }

    /// Returns the key of a name, which must be in its canonical form.
    pub(crate) fn key<'a>(&self, parent: &'a RcuArc<Dentry>, name: &'a [u8]) -> Key<'a> {
        Key { parent, name: Scanned::alone(self.seed, name) }
    }

    /// Returns a number for a new dentry, which also serves as its hash.
    pub(crate) fn new_id(&self) -> u64 {
        spread(self.seed, self.ids.take())
    }

    /// Returns the seed of the hashes of names.
    #[inline]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the entry and the dentry of a name as of some moment of this call; `None` says
    /// nothing about the name. Takes no lock and does not wait. `name` was scanned with the seed.
    #[inline(always)]
    pub(crate) fn see<'g>(
        &'g self,
        parent: u64,
        name: &Scanned<'_>,
        guard: &'g Guard,
    ) -> Option<(DcacheEntry<'g>, RcuRef<'g, Dentry>)> {
        let is = |entry: &Entry| entry.parent == parent && entry.key.is_scanned(name);
        let entry = DcacheEntry(self.table.find(in_directory(parent, name.hash), guard, is)?);
        Some((entry, entry.dentry(guard)?))
    }

    /// Like [`see`](Self::see), and takes a reference to the dentry.
    pub(crate) fn find(&self, key: Key<'_>) -> Option<RcuArc<Dentry>> {
        let guard = pin();
        let entry = self.table.find(key.hash(), &guard, |entry| key.is(entry))?;
        DcacheEntry(entry).dentry(&guard)?.try_upgrade()
    }

    /// Like [`find`](Self::find), under the lock of the bucket: a name that it does not find is not
    /// in the cache. Without the lock, another thread could have just inserted it.
    pub(crate) fn find_locked(&self, key: Key<'_>) -> CachedName {
        // Dropped after the bucket's lock.
        let held;
        let guard = pin();
        let bucket = self.table.lock(key.hash(), &guard);
        let Some(found) = bucket.find(key.hash(), |entry| key.is(entry)) else { return CachedName::Unknown };
        let entry = found.value();
        held = entry.dentry.load(&guard).and_then(RcuRef::try_upgrade);
        // Read last. An entry without a dentry stays in the table only while the name is hidden,
        // because eviction takes the dentry under the bucket's lock. Acquire: as in
        // `DcacheEntry::dentry`.
        if entry.hidden.load(Ordering::Acquire) {
            return CachedName::Hidden;
        }
        held.map_or(CachedName::Hidden, CachedName::Known)
    }

    /// Keeps other threads from asking the file system for the same name.
    pub(crate) fn single_flight(&self, key: Key<'_>) -> Ordered<KeyGuard<'_>> {
        self.lookups.lock(Rank::Lookup, key.hash())
    }

    /// Locks a name, if it is as expected. The caller then makes a [`LockedName`] of it. Locks: see
    /// the top.
    pub(crate) fn lock_name(&self, key: Key<'_>, expect: Expect, if_locked: IfLocked) -> Result<Attempt> {
        match self.try_lock_name(key, expect, false)? {
            Attempt::Busy(_) if if_locked == IfLocked::Wait => self.wait_for_name(key, expect),
            attempt => Ok(attempt),
        }
    }

    #[cold]
    fn wait_for_name(&self, key: Key<'_>, expect: Expect) -> Result<Attempt> {
        let queue = self.waiting.queue(key.hash());
        loop {
            // Dropped after the mutex.
            let _busy;
            let waiting = queue.enter();
            match self.try_lock_name(key, expect, true)? {
                Attempt::Busy(dentry) => _busy = dentry,
                settled => return Ok(settled),
            }
            drop(queue.sleep(waiting));
        }
    }

    /// Waits while a name is hidden. Locks: see the top.
    #[cold]
    pub(crate) fn wait_until_visible(&self, key: Key<'_>) {
        let _ranked = Ranked::take(Rank::Name);
        let queue = self.waiting.queue(key.hash());
        let mut waiting = queue.enter();
        // Acquire: pairs with the Release of the thread that shows the name again.
        while self.with_entry(key, |entry| entry.hidden.load(Ordering::Acquire) && entry.ask()) == Some(true)
        {
            waiting = queue.sleep(waiting);
        }
    }

    /// Tries to lock a name once. With `asks`, it asks the holder to wake the caller, which holds
    /// the mutex of the wait queue. A name that it locks is as expected, because an entry keeps its
    /// dentry.
    fn try_lock_name(&self, key: Key<'_>, expect: Expect, asks: bool) -> Result<Attempt> {
        loop {
            let guard = pin();
            let found = self.table.find(key.hash(), &guard, |entry| key.is(entry));
            let Some(entry) = found.map(Found::value) else { return Ok(Attempt::Unknown) };
            let Some(seen) = entry.dentry.load(&guard) else { return Ok(Attempt::Unknown) };
            // Acquire: as in `DcacheEntry::dentry`. While it is hidden, a thread holds the lock.
            let hidden = entry.hidden.load(Ordering::Acquire);
            if !hidden {
                expect.check(seen.get().inode())?;
            }
            // Held from before the lock is taken, so that an entry with a lock is not reclaimed.
            let Some(dentry) = seen.try_upgrade() else { return Ok(Attempt::Unknown) };
            let locked = match hidden {
                true => Err(HELD),
                // Acquire: pairs with the Release in `unlock`.
                false => entry.lock.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed),
            };
            match locked {
                Ok(_) => return Ok(Attempt::Locked(dentry)),
                Err(GONE) => {}
                Err(_) if asks && !entry.ask() => {}
                Err(_) => return Ok(Attempt::Busy(dentry)),
            }
        }
    }

    /// Releases a lock and wakes the threads that wait for it.
    fn unlock(&self, entry: &Entry, key: Key<'_>, next: u32) {
        // Release: pairs with the Acquire of the next holder.
        if entry.lock.swap(next, Ordering::Release) == AWAITED {
            self.waiting.queue(key.hash()).wake_all();
        }
    }

    fn with_entry<R>(&self, key: Key<'_>, then: impl FnOnce(&Entry) -> R) -> Option<R> {
        let guard = pin();
        self.table.find(key.hash(), &guard, |entry| key.is(entry)).map(|found| then(found.value()))
    }

    /// Binds a name to nothing, and returns the negative dentry: the cache remembers that the name
    /// does not exist.
    pub(crate) fn bind_nothing(&self, key: Key<'_>) -> RcuArc<Dentry> {
        let dentry = RcuArc::new(Dentry::negative(self.new_id()));
        self.put(key, dentry.clone());
        dentry
    }

    /// Binds a name to a dentry. If the name is in the cache, the caller has it locked; the new
    /// entry replaces the old one, and is not locked.
    pub(crate) fn put(&self, key: Key<'_>, dentry: RcuArc<Dentry>) {
        let entry = Entry {
            parent: key.parent.id(),
            id: dentry.id(),
            key: Name::new(key.name.bytes),
            hidden: AtomicBool::new(false),
            lock: AtomicU32::new(FREE),
            dentry: AtomicRcuArc::new(Some(dentry)),
        };
        let new = Unlinked::new(key.hash(), entry);
        let guard = pin();
        let mut bucket = self.table.lock(key.hash(), &guard);
        let (_, old) = bucket.replace(new, |entry| key.is(entry));
        let replaced = old.and_then(|old| old.value().dentry.take());
        drop(bucket);
        let is_more = old.is_none();
        if let Some(old) = old {
            self.unlock(old.value(), key, GONE);
        }
        drop(guard);
        drop(replaced);
        if is_more {
            self.inodes.account().add(DENTRY_BYTES);
            self.make_room();
        }
    }

    /// Evicts unused dentries and their inodes, if the budget is exceeded: two at most, so that no
    /// caller pays for much more than it adds.
    fn make_room(&self) {
        if self.inodes.account().excess() > 0 {
            let mut dropped = Dropped::default();
            self.table.evict(2, |entry| dropped.evict(entry));
            let evicted = dropped.end(&self.inodes);
            self.inodes.account().sub(evicted as u64 * DENTRY_BYTES);
        }
    }

    /// Removes the entry of a name. Locks: the name.
    pub(crate) fn remove(&self, key: Key<'_>) {
        let guard = pin();
        let mut bucket = self.table.lock(key.hash(), &guard);
        let found = bucket.find(key.hash(), |entry| key.is(entry));
        let removed = found.and_then(|found| {
            bucket.remove(found);
            self.inodes.account().sub(DENTRY_BYTES);
            found.value().dentry.take()
        });
        drop(bucket);
        if let Some(found) = found {
            self.unlock(found.value(), key, GONE);
        }
        drop(guard);
        drop(removed);
    }

    /// Drops every unused dentry.
    pub(crate) fn shrink(&self) {
        // Parents become free when their children have gone, so rounds go on while they find
        // something.
        loop {
            let mut dropped = Dropped::default();
            self.table.remove_if(|entry| dropped.evict(entry));
            let evicted = dropped.end(&self.inodes);
            if evicted == 0 {
                return;
            }
            self.inodes.account().sub(evicted as u64 * DENTRY_BYTES);
        }
    }

    /// Returns the number of dentries in memory.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

impl Dropped {
    /// Takes an unused dentry: it has no caller, no child and no mount.
    fn evict(&mut self, entry: &Entry) -> bool {
        let last = entry.dentry.take_if_last();
        let evicted = last.is_some();
        self.0.extend(last);
        evicted
    }

    /// Drops the dentries, and takes their inodes out of the cache unless these are in use.
    /// Returns the number of dentries.
    fn end(self, inodes: &InodeCache) -> usize {
        let evicted = self.0.len();
        for dentry in self.0 {
            let ino = dentry.get().inode().map(Inode::ino);
            drop(dentry);
            if let Some(ino) = ino {
                inodes.evict_unused(ino);
            }
        }
        evicted
    }
}
