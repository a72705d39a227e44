//! Directory entry cache of one file system.
//!
//! Dentries are found by parent and name, without a lock. The name that counts is the directory's canonical form of it,
//! so that a case-folding directory has one dentry for all spellings.
//!
//! Who changes what a name stands for holds the directory's `rwsem` exclusive, and *hides* the name first: from then on
//! whoever looks for it finds nothing and waits for the `rwsem`, until the change is whole and the name is bound anew. So
//! a lookup that takes no lock sees all of a change or nothing of it, be it a rename that takes two names or an unlink
//! that also takes a link from the inode. Who adds what the file system said about a name holds the `rwsem` shared, and
//! the stripe of that name, so that one caller asks and the others wait for the answer.
//!
//! A name that is not found is never taken for one that does not exist: that is what negative dentries say.
//!
//! Order of locks: `rwsem`, stripe, bucket. Dentries are dropped with none of the cache's locks held.
//!
//! The cache is bounded: a hand goes round the table and evicts what nobody uses, children before parents, since a
//! child keeps its parent in use. Negative dentries are bounded for each directory too.
//!
//! | field | written by | read by | orderings |
//! |---|---|---|---|
//! | the table | who holds the bucket | everyone | those of `hash_table` |
//! | `Entry::hidden` | who holds the directory's `rwsem` exclusive | everyone | Release, Acquire: see [`Hit::is_current`] |

use extern4_sync::hash_table::{Bucket, Found, HashTable, Kept};
use extern4_sync::primitive::{AtomicBool, AtomicU64, Ordering};
use extern4_sync::rcu::{Guard, pin};
use extern4_sync::shared::{Last, Link, Seen, Shared};

use crate::dentry::Dentry;
use crate::inode::Inode;
use crate::lock::{self, Stripes};
use crate::name::{Name, Scanned, hash_name, new_seed};

pub(crate) struct DentryCache {
    table: HashTable<Entry>,
    stripes: Stripes,
    seed: u64,
    limit: usize,
    negatives_per_dir: usize,
    next_id: AtomicU64,
}

/// What a name in a directory stands for.
pub(crate) struct Entry {
    parent: u64,
    /// The dentry's own number, which the next name is looked for with: so that the search goes on before the dentry has
    /// come into the cache of the processor.
    id: u64,
    dentry: Link<Dentry>,
    hidden: AtomicBool,
    key: Name,
}

/// A name that was found.
#[derive(Clone, Copy)]
pub(crate) struct Hit<'g>(Found<'g, Entry>);

/// A name that was found, to be had again later.
#[derive(Clone, Copy)]
pub(crate) struct KeptHit(Kept<Entry>);

impl<'g> Hit<'g> {
    /// What the name stands for; `None` if somebody is changing that.
    #[inline]
    pub(crate) fn dentry(self, guard: &'g Guard) -> Option<Seen<'g, Dentry>> {
        let entry = self.0.value();
        // Acquire: who hid the name and bound it anew has published the new entry, which is then found next time.
        if entry.hidden.load(Ordering::Acquire) {
            return None;
        }
        // Empty when the entry is on its way out.
        entry.dentry.see(guard)
    }

    /// The dentry's number.
    #[inline]
    pub(crate) fn id(self) -> u64 {
        self.0.value().id
    }

    /// The name still stands for this dentry.
    ///
    /// Whoever reads attributes and then finds this true has read them at a moment when the name stood for the inode. For
    /// a change hides the name or takes it out of the table, which is a Release store, before it changes attributes; and who
    /// has read a changed attribute has done so with Acquire, and sees the store here.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.0.is_live() && !self.0.value().hidden.load(Ordering::Acquire)
    }
}

/// A directory, and a name in it under the form the cache knows.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) parent: &'a Shared<Dentry>,
    pub(crate) name: &'a [u8],
    hash: u64,
}

impl Key<'_> {
    /// Means the same entry.
    pub(crate) fn same(&self, other: Key<'_>) -> bool {
        self.parent.id() == other.parent.id() && self.name == other.name
    }

    fn is(&self, entry: &Entry) -> bool {
        entry.is(self.parent.id(), self.name)
    }
}

impl Entry {
    fn is(&self, parent: u64, name: &[u8]) -> bool {
        self.parent == parent && self.key.is(name)
    }
}

/// A name that is hidden for as long as this lives, or until it is bound anew.
/// Locks: `rwsem` of the directory exclusive, throughout.
pub(crate) struct Hidden<'a> {
    cache: &'a DentryCache,
    parent: u64,
    name: &'a [u8],
    hash: u64,
}

impl Hidden<'_> {
    /// The name has been bound anew, so there is nothing left to show again.
    pub(crate) fn bound(self) {
        std::mem::forget(self);
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        self.cache.set_hidden(self, false);
    }
}

/// Dentries that nobody can find any more; dropped when no lock is held.
#[derive(Default)]
struct Dropped {
    replaced: Option<Shared<Dentry>>,
    evicted: Vec<Last<Dentry>>,
}

impl DentryCache {
    /// A cache that keeps about `limit` dentries beside those in use, and at most `negatives_per_dir` negative ones in
    /// any directory.
    pub(crate) fn new(limit: usize, negatives_per_dir: usize) -> Self {
        Self {
            table: HashTable::with_capacity(limit),
            stripes: Stripes::new(),
            seed: new_seed(),
            limit,
            negatives_per_dir: negatives_per_dir.max(1),
            next_id: AtomicU64::new(1),
        }
    }

    /// `name` must be in its canonical form.
    pub(crate) fn key<'a>(&self, parent: &'a Shared<Dentry>, name: &'a [u8]) -> Key<'a> {
        Key { parent, name, hash: hash_name(self.seed, parent.id(), name) }
    }

    /// A number for a new dentry.
    pub(crate) fn new_id(&self) -> u64 {
        // Relaxed: only uniqueness counts.
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// What names are hashed with.
    #[inline]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// What a name stands for at some moment of this call; `None` says nothing. Takes no lock, and waits for nobody.
    /// `name` was scanned with the seed and the parent.
    #[inline]
    pub(crate) fn see<'g>(
        &'g self,
        parent: u64,
        name: &Scanned<'_>,
        guard: &'g Guard,
    ) -> Option<(Hit<'g>, Seen<'g, Dentry>)> {
        let is = |entry: &Entry| entry.parent == parent && entry.key.is_scanned(name);
        let hit = Hit(self.table.find(name.hash, guard, is)?);
        Some((hit, hit.dentry(guard)?))
    }

    /// Remembers a name that was found.
    pub(crate) fn keep(&self, hit: Hit<'_>) -> Option<KeptHit> {
        self.table.keep(hit.0).map(KeptHit)
    }

    /// A name that was kept, if it is certain to be there at some moment of this call.
    #[inline]
    pub(crate) fn recall<'g>(&'g self, kept: &KeptHit, guard: &'g Guard) -> Option<Hit<'g>> {
        self.table.recall(&kept.0, guard).map(Hit)
    }

    /// The same as [`see`](Self::see), in use.
    pub(crate) fn find(&self, key: Key<'_>) -> Option<Shared<Dentry>> {
        let guard = pin();
        let entry = self.table.find(key.hash, &guard, |entry| key.is(entry))?;
        Hit(entry).dentry(&guard)?.hold()
    }

    /// The same, waiting for whoever changes the table: a name that is not found is not there. Without the wait, one
    /// that is just being spared by the reclaiming hand could be missed.
    pub(crate) fn find_settled(&self, key: Key<'_>) -> Option<Shared<Dentry>> {
        let guard = pin();
        let bucket = self.table.lock(key.hash, &guard);
        bucket.find(key.hash, |entry| key.is(entry))?.value().dentry.see(&guard)?.hold()
    }

    /// Keeps others from asking the file system for the same name.
    pub(crate) fn single_flight(&self, key: Key<'_>) -> impl Drop + '_ {
        self.stripes.lock(key.hash)
    }

    /// Hides a name: nobody finds it until what this returns is dropped.
    /// Locks: `rwsem` of the directory exclusive.
    pub(crate) fn hide<'a>(&'a self, key: Key<'a>) -> Hidden<'a> {
        let hidden = Hidden { cache: self, parent: key.parent.id(), name: key.name, hash: key.hash };
        self.set_hidden(&hidden, true);
        hidden
    }

    fn set_hidden(&self, name: &Hidden<'_>, hidden: bool) {
        let guard = pin();
        // Under the `rwsem` nobody puts another entry in its place meanwhile; one that is not there hides nothing.
        if let Some(found) = self.table.find(name.hash, &guard, |entry| entry.is(name.parent, name.name)) {
            // Release: see `Hit::is_current`.
            found.value().hidden.store(hidden, Ordering::Release);
        }
    }

    /// A dentry that is not in the cache yet. `name` is the spelling that paths show.
    pub(crate) fn new_dentry(
        &self,
        key: Key<'_>,
        name: &[u8],
        inode: Option<Shared<Inode>>,
    ) -> Shared<Dentry> {
        Shared::new(Dentry::new(self.new_id(), key.parent, name, inode))
    }

    /// Remembers that a name is not there.
    pub(crate) fn bind_nothing(&self, key: Key<'_>, name: &[u8]) -> Shared<Dentry> {
        let dentry = self.new_dentry(key, name, None);
        self.put(key, dentry.clone());
        self.count_negative(key, dentry.id());
        dentry
    }

    /// Puts a dentry under a name, in place of what was there.
    pub(crate) fn put(&self, key: Key<'_>, dentry: Shared<Dentry>) {
        let entry = Entry {
            parent: key.parent.id(),
            id: dentry.id(),
            key: Name::new(key.name),
            hidden: AtomicBool::new(false),
            dentry: Link::new(Some(dentry)),
        };
        let mut dropped = Dropped::default();
        let guard = pin();
        let mut bucket = self.table.lock(key.hash, &guard);
        let old = bucket.find(key.hash, |entry| key.is(entry));
        bucket.insert(key.hash, entry);
        if let Some(old) = old {
            bucket.remove(old);
            dropped.replaced = old.value().dentry.take();
        }
        bucket.trim(self.limit, |entry| dropped.evict(entry));
        drop(bucket);
        drop(guard);
        drop(dropped);
    }

    /// Forgets what a name stands for.
    pub(crate) fn remove(&self, key: Key<'_>) {
        let guard = pin();
        let mut bucket = self.table.lock(key.hash, &guard);
        let removed = bucket.find(key.hash, |entry| key.is(entry)).and_then(|found| {
            bucket.remove(found);
            found.value().dentry.take()
        });
        drop(bucket);
        drop(guard);
        drop(removed);
    }

    /// Notes a new negative dentry with its directory and drops the oldest one above the limit. That one may be gone already, such as
    /// when its name has been made since; a younger one of the same name stays.
    fn count_negative(&self, key: Key<'_>, id: u64) {
        let oldest = {
            let mut negatives = lock::lock(&key.parent.negatives);
            negatives.push_back((key.hash, id));
            if negatives.len() > self.negatives_per_dir { negatives.pop_front() } else { None }
        };
        if let Some((hash, id)) = oldest {
            self.remove_negative(hash, id);
        }
    }

    /// Lets go of what is known not to be in a directory that has been removed: negative dentries would keep it in use.
    /// Locks: its `rwsem` exclusive.
    pub(crate) fn forget_negatives(&self, dir: &Dentry) {
        let negatives = std::mem::take(&mut *lock::lock(&dir.negatives));
        for (hash, id) in negatives {
            self.remove_negative(hash, id);
        }
    }

    /// Lets go of the dentry with this number, whose entry's hash is known.
    fn remove_negative(&self, hash: u64, id: u64) {
        let guard = pin();
        let negative = |entry: &Entry| entry.id == id;
        let mut bucket: Bucket<'_, Entry> = self.table.lock(hash, &guard);
        let removed = bucket.find(hash, negative).and_then(|found| {
            bucket.remove(found);
            found.value().dentry.take()
        });
        drop(bucket);
        drop(removed);
    }

    /// Lets go of every dentry that nobody uses.
    pub(crate) fn shrink(&self) {
        // Parents become free when their children have gone, so rounds go on while they find something.
        loop {
            let before = self.len();
            let mut dropped = Dropped::default();
            // The first round takes the second chances away.
            for _ in 0..2 {
                self.table.reclaim_all(|entry| dropped.evict(entry));
            }
            drop(dropped);
            if self.len() >= before {
                return;
            }
        }
    }

    /// Dentries in memory.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

impl Dropped {
    /// Takes a dentry that nobody uses: no caller, no child, no mount.
    fn evict(&mut self, entry: &Entry) -> bool {
        let last = entry.dentry.take_last();
        let evicted = last.is_some();
        self.evicted.extend(last);
        evicted
    }
}
