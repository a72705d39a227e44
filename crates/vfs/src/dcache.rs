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
//! A name that is not in the cache may exist. A negative dentry says that it does not, and some
//! file systems know it without one (`SuperBlock::is_absent`).
//!
//! # The lock of a name
//! A dentry in the cache has the lock of its name, in its [`DentryState`]. So a name that is not in
//! the cache is looked up before it is locked, and two names never share a lock. The holder changes
//! the binding in one of these ways, and unlocks the name with that:
//!
//! | change | the dentry of the name | by |
//! | --- | --- | --- |
//! | it is made | becomes positive in its place | [`LockedName::bind`] |
//! | it is removed | if unused becomes negative in its place, | [`LockedName::bind_nothing`] |
//! | | else leaves the cache for a negative one | |
//! | a rename | moves to another name, whose dentry leaves the cache | [`LockedName::rename`] |
//! | an exchange | each of two moves to the other name | [`LockedName::exchange`] |
//!
//! A dentry whose name is locked stays in the cache, since the cache evicts only dentries without
//! another reference, and only the holder of the lock removes or replaces it. A dentry that moves
//! is taken out of the cache, gets its new key, and is put in again. Its old name has another
//! dentry by then, or is not known. Its new name has the dentry that it replaces, which is hidden.
//! So a thread that looks under the bucket's lock never misses a name that is being changed.
//!
//! No thread sleeps for ever. A waiting thread asks the holder in the state under the mutex of the
//! wait queue, and releases the mutex only by sleeping. A holder that is asked takes the mutex
//! before it wakes all: when it unlocks the name, and when it changes the name of the dentry.
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
//! | the table | the holder of the bucket | all threads | as in `rcu_hash_map` |
//! | the state of a dentry | all threads | all threads | as in `dentry_state` |
//! | its inode | the holder of its name | all threads | AcqRel / Acquire, and the state |
//! | its name, hash, parent | the holder of its name | all threads | Relaxed; the state |

use std::cell::Cell;
use std::sync::Arc;

use extern4_sync::cache_budget::{CacheAccount, Reclaim};
use extern4_sync::lock_order::{Ordered, Rank, Ranked};
use extern4_sync::rcu::{Guard, pin};
use extern4_sync::rcu_arc::{FinalRef, RcuArc, RcuRef, end_all};
use extern4_sync::rcu_hash_map::RcuHashMap;
use extern4_sync::thread_counter::IdAllocator;

use crate::dentry::Dentry;
use crate::dentry_state::{DentryState, LockError, SeenState};
use crate::errno::{Errno, Result};
use crate::icache::InodeCache;
use crate::inode::Inode;
use crate::key_locks::{KeyGuard, KeyLocks};
use crate::lock::WaitQueues;
use crate::name::{Scanned, in_directory, new_seed, spread};

pub(crate) struct DentryCache {
    table: RcuHashMap<Dentry>,
    /// Where the inode of an evicted dentry is.
    inodes: Arc<InodeCache>,
    lookups: KeyLocks,
    waiting: WaitQueues,
    seed: u64,
    ids: IdAllocator,
}

/// Dentries evicted together at the request of others.
const RECLAIM_BATCH: usize = 64;

/// Bytes of a dentry, with its count, its link and its part of the table.
const DENTRY_BYTES: u64 = RcuArc::<Dentry>::BYTES as u64 + 16;

/// The binding of a name at one moment, as a reader found it.
#[derive(Clone, Copy)]
pub(crate) struct DcacheEntry<'g> {
    pub(crate) dentry: RcuRef<'g, Dentry>,
    /// The inode that the name was bound to.
    pub(crate) inode: Option<&'g Inode>,
    pub(crate) seen: SeenState,
}

impl<'g> DcacheEntry<'g> {
    /// Returns the binding of a dentry, if it has the hash, and its state is still as the caller
    /// saw it before it compared the name.
    #[inline]
    fn new(dentry: RcuRef<'g, Dentry>, hash: u64, seen: SeenState) -> Option<Self> {
        let inode = dentry.get().inode();
        // The table has compared the hash before the caller saw the state.
        let has_key = dentry.hash() == hash && seen.is_cached();
        (has_key && dentry.get().state.is_still(seen)).then_some(Self {
            dentry,
            inode,
            seen,
        })
    }

    /// Returns whether the name is still bound to this dentry, and the dentry to this inode.
    ///
    /// A reader that reads attributes and then finds this true has read them at a moment when the
    /// name was bound to the inode. A change hides the name before it changes attributes.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.dentry.get().state.is_still(self.seen)
    }
}

/// A directory, and a name in it under the form the cache knows.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) parent: &'a RcuArc<Dentry>,
    name: Scanned<'a>,
}

impl Key<'_> {
    /// Returns the name in its canonical form.
    pub(crate) fn name(&self) -> &[u8] {
        self.name.bytes
    }

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
}

/// The right to change the binding of a name. Unless the holder has changed it, the name becomes
/// visible again when this is dropped. Locks: `rwsem` of the directory, throughout.
pub(crate) struct LockedName<'a> {
    cache: &'a DentryCache,
    key: Key<'a>,
    /// `None` once the name has another dentry.
    dentry: Option<RcuArc<Dentry>>,
    _ranked: Ranked,
}

impl<'a> LockedName<'a> {
    /// Returns the right to a name that the caller has locked, and whose dentry is `dentry`.
    #[inline(always)]
    pub(crate) fn new(
        cache: &'a DentryCache,
        key: Key<'a>,
        dentry: RcuArc<Dentry>,
        ranked: Ranked,
    ) -> Self {
        Self {
            cache,
            key,
            dentry: Some(dentry),
            _ranked: ranked,
        }
    }

    /// Returns the dentry of the name.
    pub(crate) fn dentry(&self) -> &RcuArc<Dentry> {
        self.dentry
            .as_ref()
            .expect("it is there until the name has another")
    }

    /// Returns the directory and the name.
    pub(crate) fn key(&self) -> Key<'a> {
        self.key
    }

    /// Hides the name: no lookup finds it until it has a new binding or is unlocked.
    pub(crate) fn hide(&self) {
        self.dentry().state.hide();
    }

    /// Binds the name, which is hidden and bound to nothing, to an inode. `spelling` is what paths
    /// show.
    pub(crate) fn bind(mut self, spelling: &[u8], inode: RcuArc<Inode>) -> RcuArc<Dentry> {
        let dentry = self.take();
        dentry.bind(self.key.parent, (self.key.name.bytes, spelling), inode);
        self.cache.wake_if(dentry.state.unlock_changed(), self.key);
        dentry
    }

    /// Binds the name, which is hidden, to nothing: the cache remembers that it does not exist.
    /// Returns the old dentry if it keeps its inode, because it is in use or stands for a
    /// directory.
    pub(crate) fn bind_nothing(mut self) -> Option<RcuArc<Dentry>> {
        if Dentry::unbind(self.dentry()) {
            let dentry = self.take();
            self.cache.wake_if(dentry.state.unlock_changed(), self.key);
            return None;
        }
        self.dentry().mark_gone();
        let negative = self.cache.new_negative(self.key, DentryState::cached());
        Some(self.replace(negative))
    }

    /// Moves the dentry to the name `to`, which is hidden, too. Returns the dentry that this name
    /// was bound to. The old name does not exist from now on if `leaves_nothing`; if not, the cache
    /// does not know it.
    pub(crate) fn rename(
        mut self,
        to: LockedName<'_>,
        spelling: &[u8],
        leaves_nothing: bool,
    ) -> RcuArc<Dentry> {
        let cache = self.cache;
        let to_key = to.key;
        let negative = leaves_nothing.then(|| cache.new_negative(self.key, DentryState::cached()));
        // The old name first: no thread finds both.
        let moved = self.take_out(negative);
        cache.move_to(&moved, self.key, to_key, spelling);
        let old = to.replace(moved.clone());
        cache.wake_if(moved.state.unlock(), to_key);
        old
    }

    /// Exchanges the dentries of two names, which are hidden. Each gets the spelling that comes
    /// with its new name.
    pub(crate) fn exchange(
        mut self,
        spelling: &[u8],
        mut other: LockedName<'_>,
        other_spelling: &[u8],
    ) {
        let cache = self.cache;
        let key = self.key;
        let other_key = other.key;
        // Keeps the other name in the cache, locked and hidden, until this one's dentry is there.
        let keeper = cache.new_negative(other_key, DentryState::hidden());
        let theirs = other.take_out(Some(keeper.clone()));
        other.dentry = Some(keeper);
        cache.move_to(&theirs, other_key, key, spelling);
        let mine = self.take_out(Some(theirs.clone()));
        cache.wake_if(theirs.state.unlock(), key);
        cache.move_to(&mine, key, other_key, other_spelling);
        other.replace(mine.clone());
        cache.wake_if(mine.state.unlock(), other_key);
    }

    /// Binds the name to another dentry. Returns the old one, which has left the cache.
    fn replace(mut self, new: RcuArc<Dentry>) -> RcuArc<Dentry> {
        let old = self.take_out(Some(new));
        self.cache.wake_if(old.state.unlock_removed(), self.key);
        old
    }

    /// Takes the dentry, which stays locked and hidden, out of the cache, and puts another one in
    /// its place.
    fn take_out(&mut self, new: Option<RcuArc<Dentry>>) -> RcuArc<Dentry> {
        match new {
            Some(new) => self.cache.put(self.key, new),
            None => self.cache.remove(self.key),
        }
        self.take()
    }

    fn take(&mut self) -> RcuArc<Dentry> {
        self.dentry.take().expect("it is taken once")
    }
}

impl Drop for LockedName<'_> {
    fn drop(&mut self) {
        if let Some(dentry) = &self.dentry {
            self.cache.wake_if(dentry.state.unlock(), self.key);
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
        Key {
            parent,
            name: Scanned::alone(self.seed, name),
        }
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

    /// Returns the binding of a name at some moment of this call; `None` says nothing about the
    /// name. Takes no lock and does not wait. `name` was scanned with the seed.
    #[inline(always)]
    pub(crate) fn see<'g>(
        &'g self,
        parent: u64,
        name: &Scanned<'_>,
        guard: &'g Guard,
    ) -> Option<DcacheEntry<'g>> {
        self.probe(parent, name, guard)
            .filter(|entry| !entry.seen.is_hidden())
    }

    /// Like [`see`](Self::see), and finds hidden names, too.
    #[inline(always)]
    fn probe<'g>(
        &'g self,
        parent: u64,
        name: &Scanned<'_>,
        guard: &'g Guard,
    ) -> Option<DcacheEntry<'g>> {
        let seen = Cell::default();
        let hash = in_directory(parent, name.hash);
        let dentry = self.table.find(hash, guard, |dentry| {
            seen.set(dentry.state.load());
            dentry.has_name(name, guard)
        })?;
        DcacheEntry::new(dentry, hash, seen.get())
    }

    /// Returns whether the cache has the name, hidden or not, as of some moment of this call.
    pub(crate) fn knows(&self, parent: u64, name: &Scanned<'_>, guard: &Guard) -> bool {
        let hash = in_directory(parent, name.hash);
        self.table
            .find(hash, guard, |dentry| dentry.has_name(name, guard))
            .is_some()
    }

    /// Like [`see`](Self::see), and takes a reference to the dentry.
    pub(crate) fn find(&self, key: Key<'_>) -> Option<RcuArc<Dentry>> {
        let (held, is_current) = {
            let guard = pin();
            let entry = self.see(key.parent.id(), &key.name, &guard)?;
            // The state after the reference: see `Dentry::unbind`.
            (entry.dentry.try_upgrade()?, entry.is_current())
        };
        is_current.then_some(held)
    }

    /// Like [`find`](Self::find), under the lock of the bucket: a name that it does not find is not
    /// in the cache. Without the lock, another thread could have just inserted it.
    pub(crate) fn find_locked(&self, key: Key<'_>) -> CachedName {
        let seen = Cell::default();
        let held = {
            let guard = pin();
            let bucket = self.table.lock(key.hash(), &guard);
            let is = |dentry: &Dentry| {
                seen.set(dentry.state.load());
                dentry.has_name(&key.name, &guard)
            };
            bucket.find(key.hash(), is).and_then(RcuRef::try_upgrade)
        };
        // The state after the reference: see `Dentry::unbind`.
        let is_visible =
            |held: &RcuArc<Dentry>, seen: SeenState| !seen.is_hidden() && held.state.is_still(seen);
        match held {
            None => CachedName::Unknown,
            Some(dentry) if is_visible(&dentry, seen.get()) => CachedName::Known(dentry),
            Some(_) => CachedName::Hidden,
        }
    }

    /// Keeps other threads from asking the file system for the same name.
    pub(crate) fn single_flight(&self, key: Key<'_>) -> Ordered<KeyGuard<'_>> {
        self.lookups.lock(Rank::Lookup, key.hash())
    }

    /// Locks a name, if it is as expected. The caller then makes a [`LockedName`] of it. Locks: see
    /// the top.
    pub(crate) fn lock_name(
        &self,
        key: Key<'_>,
        expect: Expect,
        if_locked: IfLocked,
    ) -> Result<Attempt> {
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
        let asks = |entry: DcacheEntry<'_>| {
            entry.seen.is_hidden() && entry.dentry.get().state.ask(entry.seen)
        };
        while self
            .probe(key.parent.id(), &key.name, &pin())
            .is_some_and(asks)
        {
            waiting = queue.sleep(waiting);
        }
    }

    /// Tries to lock a name once. With `asks`, it asks the holder to wake the caller, which holds
    /// the mutex of the wait queue.
    fn try_lock_name(&self, key: Key<'_>, expect: Expect, asks: bool) -> Result<Attempt> {
        loop {
            let guard = pin();
            let Some(entry) = self.probe(key.parent.id(), &key.name, &guard) else {
                return Ok(Attempt::Unknown);
            };
            if !entry.seen.is_hidden() {
                expect.check(entry.inode)?;
            }
            // Held from before the lock is taken, so that a dentry with a lock is not evicted.
            let Some(dentry) = entry.dentry.try_upgrade() else {
                return Ok(Attempt::Unknown);
            };
            match dentry.state.try_lock(entry.seen) {
                Ok(()) => return Ok(Attempt::Locked(dentry)),
                Err(LockError::Held) if !asks || dentry.state.ask(entry.seen) => {
                    return Ok(Attempt::Busy(dentry));
                }
                Err(_) => {}
            }
        }
    }

    /// Wakes the threads that wait for a name.
    fn wake_if(&self, is_awaited: bool, key: Key<'_>) {
        if is_awaited {
            self.waiting.queue(key.hash()).wake_all();
        }
    }

    /// Returns a new dentry that is not in the cache yet. `spelling` is what paths show.
    pub(crate) fn new_dentry(
        &self,
        key: Key<'_>,
        spelling: &[u8],
        inode: RcuArc<Inode>,
    ) -> RcuArc<Dentry> {
        let texts = (key.name.bytes, spelling);
        self.counted(Dentry::new(
            DentryState::cached(),
            self.new_id(),
            key.parent,
            texts,
            Some(inode),
        ))
    }

    fn new_negative(&self, key: Key<'_>, state: DentryState) -> RcuArc<Dentry> {
        let texts = (key.name.bytes, key.name.bytes);
        self.counted(Dentry::new(state, self.new_id(), key.parent, texts, None))
    }

    /// Returns the first reference to a dentry of this file system.
    pub(crate) fn counted(&self, dentry: Dentry) -> RcuArc<Dentry> {
        self.table.alloc(dentry)
    }

    /// Binds a name that is not in the cache to nothing, and returns the negative dentry: the cache
    /// remembers that the name does not exist.
    pub(crate) fn put_nothing(&self, key: Key<'_>) -> RcuArc<Dentry> {
        let negative = self.new_negative(key, DentryState::cached());
        self.put(key, negative.clone());
        negative
    }

    /// Puts the dentry of a name into the cache. If the name is in the cache, the caller has it
    /// locked and hidden, and its dentry leaves.
    pub(crate) fn put(&self, key: Key<'_>, dentry: RcuArc<Dentry>) {
        let replaced = {
            let guard = pin();
            let is = |dentry: &Dentry| dentry.has_name(&key.name, &guard);
            self.table
                .lock(key.hash(), &guard)
                .replace(key.hash(), dentry, is)
        };
        if replaced.is_none() {
            self.inodes.account().add(DENTRY_BYTES);
            self.make_room();
        }
    }

    /// Evicts unused dentries if the budget is exceeded: two at most, so that no caller pays for
    /// much more than it adds.
    fn make_room(&self) {
        if self.inodes.account().excess() > 0 {
            self.evict(2);
        }
    }

    /// Evicts up to `want` unused dentries, and their inodes. Returns the number of dentries.
    fn evict(&self, want: usize) -> usize {
        let evicted = self.end(self.table.evict(want, |dentry| dentry.state.evict()));
        self.inodes.count_evictions(evicted);
        evicted
    }

    /// Removes a name from the cache. Locks: the name, hidden.
    fn remove(&self, key: Key<'_>) {
        let removed = {
            let guard = pin();
            let mut bucket = self.table.lock(key.hash(), &guard);
            let is = |dentry: &Dentry| dentry.has_name(&key.name, &guard);
            bucket
                .find(key.hash(), is)
                .and_then(|found| bucket.remove(found))
        };
        if removed.is_some() {
            self.inodes.account().sub(DENTRY_BYTES);
        }
    }

    /// Gives a dentry that has left the cache another name. Locks: both names, hidden.
    fn move_to(&self, dentry: &Dentry, from: Key<'_>, to: Key<'_>, spelling: &[u8]) {
        let is_awaited = dentry.move_to(to.parent, to.name.bytes, spelling);
        self.wake_if(is_awaited, from);
    }

    /// Drops every unused dentry.
    pub(crate) fn shrink(&self) {
        let mut evicted = self.table.evict_all(|dentry| dentry.state.evict());
        // A directory is unused when its last child has gone.
        while !evicted.is_empty() {
            let parents = Dentry::parents(evicted.iter().map(FinalRef::get));
            self.end(evicted);
            let evict = |parent| self.table.evict_held(parent, |dentry| dentry.state.evict());
            evicted = parents.into_iter().filter_map(evict).collect();
        }
    }

    /// Drops evicted dentries, and takes their inodes out of the cache unless these are in use.
    /// Returns the number of dentries.
    fn end(&self, dentries: Vec<FinalRef<Dentry>>) -> usize {
        let evicted = dentries.len();
        let inodes = dentries
            .iter()
            .filter_map(|dentry| dentry.get().take_inode());
        let inodes = inodes.collect::<Vec<_>>();
        end_all(dentries);
        self.inodes.evict_held(inodes);
        self.inodes.account().sub(evicted as u64 * DENTRY_BYTES);
        evicted
    }

    /// Returns the number of dentries in memory.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

impl Reclaim for DentryCache {
    fn account(&self) -> &CacheAccount {
        self.inodes.account()
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        let inode_bytes = self.inodes.inode_bytes();
        let mut reclaimed = 0;
        while reclaimed < bytes {
            let dentries = self.evict(RECLAIM_BATCH) as u64;
            // The few inodes without a dentry in the cache leave when no dentry does.
            let inodes = if dentries > 0 {
                dentries
            } else {
                self.inodes.evict(RECLAIM_BATCH) as u64
            };
            if inodes == 0 {
                break;
            }
            reclaimed += dentries * DENTRY_BYTES + inodes * inode_bytes;
        }
        pin().flush_all();
        reclaimed
    }
}
