//! Loom tests of the cache of attribute blocks (`mbcache`) together with the word that decides
//! whether a thread may share a block (`extern4_sync::closable_refcount`).

use std::sync::Arc;

use extern4_ext4::mbcache::{Inserted, MbCache};
use extern4_sync::closable_refcount::{ClosableRefcount, Put, TryGet};
use extern4_sync::model::{explore, race, race_for};
use extern4_sync::primitive::{AtomicU64, Mutex, Ordering, thread};

/// A model of a shared block: its sharers, whether it is free, its contents, and whether the
/// journal has it.
struct SharedBlock {
    cache: MbCache,
    sharers: ClosableRefcount,
    freed: AtomicU64,
    contents: AtomicU64,
    /// The block is part of the transaction.
    is_part: AtomicU64,
    change: Mutex<()>,
}

const HASH: u32 = 77;
const BLOCK: u64 = 5;
const MOST: u32 = 1024;
/// The block's contents.
const WANTED: u64 = 1;

/// Whether a block can be found.
fn offers(cache: &MbCache, block: u64) -> bool {
    cache.candidates(HASH).any(|found| found.number() == block)
}

impl SharedBlock {
    /// A block with one sharer, counted in memory or only where it is stored.
    fn of_one(is_known: bool) -> Self {
        Self::in_cache(MbCache::new(0), is_known)
    }

    fn in_cache(cache: MbCache, is_known: bool) -> Self {
        let [freed, contents, is_part] = [0, WANTED, 0].map(AtomicU64::new);
        let block = Self {
            cache,
            sharers: ClosableRefcount::new(),
            freed,
            contents,
            is_part,
            change: Mutex::new(()),
        };
        if is_known {
            block.sharers.set(block.sharers.snapshot(), 1);
        }
        block.cache.insert(HASH, BLOCK);
        block
    }

    /// A block with one sharer that is part of the transaction already.
    fn of_one_in_transaction() -> Self {
        let block = Self::of_one(true);
        block.is_part.store(1, Ordering::Relaxed);
        block
    }

    /// Runs `edit` with journal access. Access to a block that has been freed would take back the
    /// revocation of its older copies.
    fn journal<R>(&self, edit: impl FnOnce() -> R) -> R {
        let _change = self.change.lock().unwrap();
        assert_eq!(
            self.freed.load(Ordering::Relaxed),
            0,
            "journal access to a block that is free"
        );
        self.is_part.store(1, Ordering::Relaxed);
        edit()
    }

    fn is_part(&self) -> bool {
        self.is_part.load(Ordering::Relaxed) == 1
    }

    /// Finds the block and joins it, if it holds what is wanted; true if it did.
    fn reuse_for(&self, wanted: u64) -> bool {
        self.cache.candidates(HASH).any(|found| {
            let was_part = self.is_part();
            if !was_part {
                let seen = self.sharers.snapshot();
                if !found.is_in() {
                    return false;
                }
                self.sharers.set(seen, 1);
            }
            match self.sharers.try_get(MOST) {
                TryGet::Got => {}
                TryGet::Closed => return false,
                other => panic!("{other:?}"),
            }
            let holds = self.contents.load(Ordering::Relaxed) == wanted;
            match holds {
                true if !was_part => self.journal(|| ()),
                true => {}
                false => self.left(self.sharers.put()),
            }
            holds
        })
    }

    fn reuse(&self) -> bool {
        self.reuse_for(WANTED)
    }

    /// A thread that has the block leaves, and frees it if it is the last.
    fn release(&self) {
        if self.is_part() {
            return self.left(self.sharers.put());
        }
        self.sharers.set(self.sharers.snapshot(), 1);
        let left = if self.sharers.try_close() {
            Put::Last
        } else {
            self.journal(|| self.sharers.put())
        };
        self.left(left);
    }

    fn left(&self, left: Put) {
        if left == Put::Last {
            self.cache.remove(HASH, BLOCK);
            assert_eq!(self.freed.fetch_add(1, Ordering::Relaxed), 0, "freed twice");
            self.is_part.store(0, Ordering::Relaxed);
        }
    }

    /// Checks that `sharers` inodes have the block in the end. The count is stored if it differs
    /// from the one before.
    fn check(&self, sharers: u32, has_changed: bool) {
        assert_eq!(self.freed.load(Ordering::Relaxed) == 0, sharers > 0);
        assert_eq!(offers(&self.cache, BLOCK), sharers > 0);
        assert_eq!(self.sharers.snapshot().is_closed(), sharers == 0);
        if sharers > 0 {
            assert_eq!(self.sharers.count(), Some(sharers));
            assert!(self.is_part() || !has_changed, "it is not stored");
        }
    }
}

/// 3dc96bba65f5, 65f8b80053a1: a finder took journal access to a block that its last owner had
/// freed and revoked.
#[test]
fn xattr_reuse_vs_release_last() {
    let setups: [fn() -> SharedBlock; 3] = [
        || SharedBlock::of_one(true),
        || SharedBlock::of_one(false),
        SharedBlock::of_one_in_transaction,
    ];
    for setup in setups {
        race_for(
            setup,
            SharedBlock::reuse,
            SharedBlock::release,
            |block, joined, ()| {
                block.check(joined.into(), joined);
            },
        );
    }
}

/// Two threads leave and one joins: the last frees the block, once.
#[test]
fn xattr_reuse_vs_two_releases() {
    explore(|| {
        let block = Arc::new(SharedBlock::of_one(true));
        assert!(block.reuse());
        let others =
            [block.clone(), block.clone()].map(|block| thread::spawn(move || block.release()));
        let joined = block.reuse();
        others.into_iter().for_each(|other| other.join().unwrap());
        block.check(joined.into(), true);
    });
}

/// A thread joins a block whose contents turn out to differ. It leaves as any other does, and frees
/// the block if the last owner has left it meanwhile.
#[test]
fn xattr_reuse_in_vain_vs_release_last() {
    for setup in [
        || SharedBlock::of_one(true),
        SharedBlock::of_one_in_transaction,
    ] {
        race_for(
            setup,
            |block| block.reuse_for(WANTED + 1),
            SharedBlock::release,
            |block, joined, ()| {
                assert!(!joined);
                block.check(0, true);
            },
        );
    }
}

/// A thread joins a block whose contents differ, while one inode stays and another joins for the
/// contents.
#[test]
fn xattr_reuse_in_vain_vs_reuse() {
    race_for(
        SharedBlock::of_one_in_transaction,
        |block| block.reuse_for(WANTED + 1),
        |block| {
            let joined = block.reuse();
            block.release();
            joined
        },
        |block, in_vain, joined| {
            assert!(!in_vain && joined);
            block.check(1, true);
        },
    );
}

/// Two threads read the stored count at once: both are counted.
#[test]
fn xattr_reuse_vs_reuse_of_unknown() {
    race_for(
        || SharedBlock::of_one(false),
        SharedBlock::reuse,
        SharedBlock::reuse,
        |block, mine, theirs| {
            assert!(mine && theirs);
            block.check(3, true);
        },
    );
}

/// A thread that changes a block in place takes it out of sharing first: a block that another
/// thread joined does not change.
#[test]
fn xattr_reuse_vs_change_in_place() {
    race_for(
        || SharedBlock::of_one(true),
        |block| match block.sharers.try_get(MOST) {
            TryGet::Got => Some(block.contents.load(Ordering::Relaxed)),
            _ => None,
        },
        |block| {
            let alone = block.sharers.try_close();
            if alone {
                block.cache.remove(HASH, BLOCK);
                block.contents.store(WANTED + 1, Ordering::Relaxed);
                block.sharers.open();
            }
            alone
        },
        |block, joined, changed| {
            let contents = block.contents.load(Ordering::Relaxed);
            assert!(
                joined.is_none_or(|seen| seen == contents),
                "changed under an inode that had joined"
            );
            assert_eq!(contents == WANTED + 1, changed);
            assert!(changed || joined.is_some(), "closed to its only owner");
            assert_eq!(block.sharers.count(), Some(1 + u32::from(joined.is_some())));
        },
    );
}

/// A thread leaves. Before it knows whether it is the last, another has joined, changed the
/// contents in place, and left. That one is the last, and no lookup finds the new contents.
#[test]
fn xattr_release_vs_another_life() {
    const OTHER: u32 = HASH + 1;
    race_for(
        SharedBlock::of_one_in_transaction,
        |block| {
            if block.sharers.try_get(MOST) != TryGet::Got || !block.sharers.try_close() {
                return;
            }
            block.cache.remove(HASH, BLOCK);
            block.sharers.open();
            block.cache.insert(OTHER, BLOCK);
            if block.sharers.put() == Put::Last {
                block.cache.remove(OTHER, BLOCK);
            }
        },
        SharedBlock::release,
        |block, (), ()| {
            assert_eq!(
                block.cache.candidates(OTHER).count(),
                0,
                "a free block can be found"
            )
        },
    );
}

/// One finds that too many have it while one of those leaves: it is not marked full when all is
/// done.
#[test]
fn xattr_full_vs_release() {
    const FEW: u32 = 2;
    fn leave(block: &SharedBlock) {
        if block.sharers.put() == Put::Others(FEW - 1) {
            block.cache.set_full(HASH, BLOCK, false);
        }
    }
    race_for(
        || {
            let block = SharedBlock::of_one(true);
            assert_eq!(block.sharers.try_get(FEW), TryGet::Got);
            block
        },
        |block| match block.sharers.try_get(FEW) {
            TryGet::Full => {
                block.cache.set_full(HASH, BLOCK, true);
                leave(block);
                false
            }
            other => other == TryGet::Got,
        },
        leave,
        |block, joined, ()| {
            let count = 1 + u32::from(joined);
            assert_eq!(block.sharers.count(), Some(count));
            assert!(
                offers(&block.cache, BLOCK),
                "marked full by a thread that did not join"
            );
        },
    );
}

/// Two threads make the same entry: it is in once, and counted once.
#[test]
fn xattr_create_dup() {
    race_for(
        || MbCache::new(0),
        |cache| cache.insert(HASH, BLOCK),
        |cache| cache.insert(HASH, BLOCK),
        |cache, mine, theirs| {
            assert!(
                [mine, theirs].contains(&Inserted::Yes) && mine != theirs,
                "{mine:?} {theirs:?}"
            );
            assert_eq!(
                (cache.candidates(HASH).count(), cache.stats().entries),
                (1, 1)
            );
            assert!(
                cache.remove(HASH, BLOCK) && !offers(cache, BLOCK),
                "there was another"
            );
        },
    );
}

/// a44e84a9b776: two bits of one word were changed by plain stores, and one change was lost.
#[test]
fn xattr_flag_lost_update() {
    let marked = || {
        let cache = MbCache::new(0);
        cache.insert(HASH, BLOCK);
        cache.insert(HASH, BLOCK + 1);
        cache
    };
    race_for(
        marked,
        // Not offered if it is marked full before that.
        |cache| {
            cache
                .candidates(HASH)
                .find(|found| found.number() == BLOCK)
                .map(|found| found.touch())
                .is_some()
        },
        |cache| cache.set_full(HASH, BLOCK, true),
        |cache, touched, ()| {
            let offered: Vec<_> = cache.candidates(HASH).map(|found| found.number()).collect();
            assert_eq!(offered, [BLOCK + 1], "the mark was lost");
            cache.set_full(HASH, BLOCK, false);
            // If the use was noted, the other one goes.
            cache.insert(HASH, BLOCK + 2);
            assert!(offers(cache, BLOCK) == touched && offers(cache, BLOCK + 1) != touched);
        },
    );
}

/// A thread looks up a hash while another evicts: it sees whole entries of that hash, and no more
/// than a bucket has room for.
#[test]
fn xattr_evict_vs_find_next() {
    race(
        || {
            let cache = MbCache::new(0);
            cache.insert(HASH, 1);
            cache.insert(HASH, 2);
            cache
        },
        |cache| {
            let found: Vec<_> = cache.candidates(HASH).collect();
            let are_whole = found
                .iter()
                .all(|found| [1, 2, 4].contains(&found.number()));
            assert!(are_whole && found.len() <= 2, "{found:?}");
            found.iter().for_each(|found| found.touch());
        },
        |cache| {
            assert_eq!(cache.insert(HASH + 1, 3), Inserted::Yes);
            cache.remove(HASH, 2);
            assert_eq!(cache.insert(HASH, 4), Inserted::Yes);
        },
        |cache| {
            assert_eq!(cache.stats().entries, 2);
            assert!(offers(cache, 4));
        },
    );
}

/// A cache with an entry, which has one bucket of four in use, or with all in use.
fn of_size(bits: u32) -> MbCache {
    let cache = MbCache::sized(0, 2);
    cache.resize_to(bits);
    cache.insert(HASH, BLOCK);
    cache
}

fn grow(cache: &MbCache) {
    cache.resize_to(2);
}

fn shrink(cache: &MbCache) {
    cache.resize_to(0);
}

/// After a thread has removed an entry, no lookup finds it, also while the cache grows or shrinks.
#[test]
fn xattr_remove_vs_resize() {
    fn of_two(bits: u32) -> MbCache {
        let cache = of_size(bits);
        cache.insert(HASH, BLOCK + 1);
        cache
    }
    let remove = |cache: &MbCache| {
        let removed = cache.remove(HASH, BLOCK);
        assert!(!offers(cache, BLOCK));
        removed
    };
    let end = |cache: &MbCache, (), removed: bool| {
        assert!(removed, "it was in");
        assert_eq!(cache.stats().entries, 1);
        assert!(!offers(cache, BLOCK) && offers(cache, BLOCK + 1));
    };
    race_for(|| of_two(0), grow, remove, end);
    race_for(|| of_two(2), shrink, remove, end);
}

/// An entry inserted while the cache grows or shrinks is moved, or is not in.
#[test]
fn xattr_create_vs_resize() {
    let create = |cache: &MbCache| cache.insert(HASH, BLOCK + 1) == Inserted::Yes;
    let end = |cache: &MbCache, (), inserted: bool| {
        assert_eq!(cache.stats().entries, 1 + u64::from(inserted));
        assert!(offers(cache, BLOCK) && offers(cache, BLOCK + 1) == inserted);
        assert!(!inserted || cache.remove(HASH, BLOCK + 1));
    };
    race_for(|| of_size(0), grow, create, end);
    race_for(|| of_size(2), shrink, create, end);
}

/// Two threads find that the cache should be larger: one moves the entries, and nothing is lost.
#[test]
fn xattr_grow_twice() {
    race(
        || of_size(0),
        grow,
        grow,
        |cache| {
            assert_eq!(cache.stats().capacity, 8);
            assert!(offers(cache, BLOCK) && cache.remove(HASH, BLOCK) && !offers(cache, BLOCK));
        },
    );
}

/// A removing thread may meet a cache that grows, and then shrinks again.
#[test]
fn xattr_remove_vs_grow_and_shrink() {
    race_for(
        || of_size(0),
        |cache| [grow, shrink].iter().for_each(|resize| resize(cache)),
        |cache| cache.remove(HASH, BLOCK),
        |cache, (), removed| {
            assert!(removed, "it was in");
            assert_eq!((cache.stats().entries, cache.stats().capacity), (0, 2));
            grow(cache);
            assert!(!offers(cache, BLOCK));
        },
    );
}

/// A thread joins a block and its only owner leaves, while the cache grows or shrinks. A thread
/// that found the entry at its old place finds that the block was released.
#[test]
fn xattr_reuse_vs_release_last_vs_resize() {
    for (bits, resize) in [(0, grow as fn(&MbCache)), (2, shrink)] {
        explore(move || {
            let block = Arc::new(SharedBlock::in_cache(of_size(bits), true));
            let releases = thread::spawn({
                let block = block.clone();
                move || block.release()
            });
            let resizes = thread::spawn({
                let block = block.clone();
                move || resize(&block.cache)
            });
            let joined = block.reuse();
            releases.join().unwrap();
            resizes.join().unwrap();
            block.check(joined.into(), joined);
        });
    }
}
