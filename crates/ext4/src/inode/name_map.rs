//! A map in memory from the names of a directory to their blocks.
//!
//! It answers that a name is not in a directory, without a lock and without a block, or in which
//! blocks of a linear directory the name may be. It has the hash of each name, in 32 bits, so a
//! name that is not there may seem to be: the search of a block then tells. The hash depends on a
//! random seed, so a volume's names cannot be chosen to collide. A case-folded directory hashes
//! folded names. In a directory with a hash tree, which finds blocks itself, all names have block 0
//! here, and so they have in an inline directory.
//!
//! A map is made by one scan of the directory, once lookups have searched as many blocks in vain
//! as the directory has ([`DirNames::count_in_vain`]). So all scans together cost no more than the
//! searches before them. Its memory counts in the budget of the volume's caches. It goes with its
//! inode, or if the budget is exceeded when the directory gains names. A directory in which the
//! scan finds damage gets no map, so lookups go on to report the damage.
//!
//! `names` makes maps, asks them and keeps them true.
//!
//! # Why a reader is right
//! A reader pins, loads the map, and probes slots from the place of the hash on, up to an empty
//! one. Changers exclude each other by the directory's lock on its names.
//!
//! 1. A slot that is not empty never becomes empty again: a removed name leaves a mark, which only
//!    another name overwrites. So the slots between the place of a name's hash and the slot of the
//!    name were not empty when the name was added, and no reader that finds the name's slot filled
//!    stops before it.
//! 2. A name stays in its slot as long as it is in the map. A changer that needs more slots makes
//!    another map and publishes it complete. The map before it keeps the state of that moment, and
//!    its readers have loaded it before.
//! 3. So a reader that does not find the hash of a name has probed a map in which the name was
//!    missing at some moment since the reader loaded it.
//! 4. A changer of names first hides the name in the dentry cache and then changes the map. The
//!    caller that gets the answer "absent" looks into that cache afterwards
//!    (`InodeOps::is_absent`). The reader's load of the slot is Acquire and pairs with the
//!    changer's Release. So if the reader has seen the removal, it also sees the hidden name there,
//!    or the state after the whole change.
//!
//! | field | written by | read by | orderings |
//! |---|---|---|---|
//! | `DirNames` | the holder of the names; a lookup without a map | all threads | as in `rcu` |
//! | `NameMap::slots` | the holder of the names | all threads | Release / Acquire: rule 4 |
//! | `NameMap::taken` | the holder of the names | the same | Relaxed: the lock orders them |
//! | `State::Unmapped` | lookups | lookups | Relaxed: a count |

#[cfg(all(test, feature = "loom"))]
mod loom_tests;

use std::sync::Arc;

use extern4_block::CacheBudget;
use extern4_sync::cache_budget::CacheAccount;
use extern4_sync::primitive::{AtomicU32, AtomicU64, AtomicUsize, Ordering, capacity, zeroes};
use extern4_sync::rcu::{RcuOption, pin};
use extern4_vfs::{hash_name, new_seed};

/// Blocks that lookups search in vain before a map is made, on top of the number of blocks of the
/// directory. A new directory with few names needs no map.
const PATIENCE: u32 = 3;
/// The part of the budget that the maps of a volume may take.
const SHARE: u64 = 8;

/// The seed and the memory that all maps of a volume share.
pub(crate) struct NameMaps {
    seed: u64,
    account: Arc<CacheAccount>,
}

impl NameMaps {
    /// Returns the maps of a volume, within `budget`.
    pub(crate) fn new(budget: &Arc<CacheBudget>) -> Self {
        Self {
            seed: new_seed(),
            account: Arc::new(CacheAccount::new(budget)),
        }
    }

    /// Returns the hash of a name, in the form in which its directory compares names.
    pub(crate) fn hash(&self, name: &[u8]) -> u32 {
        // OK: the upper half.
        (hash_name(self.seed, name) >> 32) as u32
    }

    /// Returns the map with these hashes and blocks. Returns `None` if the budget has no room.
    pub(crate) fn map(&self, names: &[(u32, u32)]) -> Option<NameMap> {
        let map = NameMap::with_room(names.len(), &self.account)?;
        for &(hash, block) in names {
            map.add(hash, block);
        }
        Some(map)
    }

    /// Returns how many names a map can have at most.
    pub(crate) fn most_names(&self) -> usize {
        usize::try_from(self.account.budget().limit() / SHARE / 12).unwrap_or(usize::MAX)
    }
}

/// The names of a directory in use, as far as they are mapped.
#[derive(Default)]
pub(crate) struct DirNames(RcuOption<State>);

enum State {
    /// There is no map yet, and lookups have searched this many blocks in vain.
    Unmapped(AtomicU32),
    Mapped(NameMap),
    /// The directory is damaged.
    Refused,
}

impl DirNames {
    /// Returns whether the directory surely has no name with the hash that `hash` returns. Takes no
    /// lock. See the module for the moment at which that was true.
    pub(crate) fn lacks(&self, hash: impl FnOnce() -> u32) -> bool {
        let guard = pin();
        matches!(self.0.load(&guard), Some(State::Mapped(map)) if map.next_block(hash(), 0).is_none())
    }

    /// Returns the first block from `from` on in which a name with this hash may be, and `None` in
    /// its place if there is none. Returns `None` if there is no map.
    pub(crate) fn next_block(&self, hash: u32, from: u32) -> Option<Option<u32>> {
        let guard = pin();
        match self.0.load(&guard) {
            Some(State::Mapped(map)) => Some(map.next_block(hash, from)),
            _ => None,
        }
    }

    /// Counts blocks that a lookup has searched in vain. Returns whether the caller is to map the
    /// directory, which has `len` blocks. Locks: the names, shared.
    pub(crate) fn count_in_vain(&self, blocks: u32, len: u32) -> bool {
        if blocks == 0 {
            return false;
        }
        if self.0.is_none() {
            self.0.fill(State::Unmapped(AtomicU32::new(0)));
        }
        let guard = pin();
        let Some(State::Unmapped(count)) = self.0.load(&guard) else {
            return false;
        };
        let before = count.fetch_add(blocks, Ordering::Relaxed);
        let enough = len.saturating_add(capacity(PATIENCE, 0));
        before < enough && before.saturating_add(blocks) >= enough
    }

    /// Publishes a map with all names of the directory. Locks: the names, shared at least since the
    /// scan.
    pub(crate) fn publish(&self, map: NameMap) {
        self.0.store(Some(State::Mapped(map)));
    }

    /// Gives up mapping a damaged directory.
    pub(crate) fn refuse(&self) {
        self.0.store(Some(State::Refused));
    }

    /// Drops the map. Lookups may make another.
    pub(crate) fn clear(&self) {
        if !self.0.is_none() {
            self.0.store(None);
        }
    }

    /// Adds a name in `block`. Locks: the names, exclusive.
    pub(crate) fn add(&self, hash: impl FnOnce() -> u32, block: u32) {
        let guard = pin();
        let Some(State::Mapped(map)) = self.0.load(&guard) else {
            return;
        };
        let hash = hash();
        if !map.add(hash, block) {
            let grown = map.grown().filter(|grown| grown.add(hash, block));
            self.0.store(grown.map(State::Mapped));
        }
    }

    /// Removes a name in `block`. Locks: the names, exclusive.
    pub(crate) fn remove(&self, hash: impl FnOnce() -> u32, block: u32) {
        let guard = pin();
        let Some(State::Mapped(map)) = self.0.load(&guard) else {
            return;
        };
        if !map.remove(hash(), block) {
            self.clear();
        }
    }
}

/// A slot that no name has had.
const EMPTY: u64 = 0;
/// A slot whose name was removed.
const REMOVED: u64 = 2;

/// Returns the word of a slot with a name.
fn word(hash: u32, block: u32) -> u64 {
    // A directory has far fewer blocks than 31 bits count.
    u64::from(hash) << 32 | u64::from(block) << 1 | 1
}

/// A hash table with a word for each name: its hash and its block. Two names may have the same
/// word.
pub(crate) struct NameMap {
    slots: Box<[AtomicU64]>,
    /// How many slots are not empty.
    taken: AtomicUsize,
    account: Arc<CacheAccount>,
}

impl NameMap {
    /// Returns a map with room for `names` names, and some more. Returns `None` if the budget has
    /// no room for it.
    fn with_room(names: usize, account: &Arc<CacheAccount>) -> Option<Self> {
        let slots = zeroes(names + names / 2 + capacity(8, 2));
        let bytes = size_of_val(&*slots) as u64;
        if account.excess() > 0 || account.used() + bytes > account.budget().limit() / SHARE {
            return None;
        }
        account.add(bytes);
        Some(Self {
            slots,
            taken: AtomicUsize::new(0),
            account: Arc::clone(account),
        })
    }

    /// Returns the slots in the order in which a name with this hash probes them.
    fn probe(&self, hash: u32) -> impl Iterator<Item = &AtomicU64> {
        // OK: less than the number of slots.
        let first = ((u64::from(hash) * self.slots.len() as u64) >> 32) as usize;
        self.slots[first..].iter().chain(&self.slots[..first])
    }

    /// Returns the first block from `from` on in which a name with this hash may be.
    fn next_block(&self, hash: u32, from: u32) -> Option<u32> {
        let mut next = None;
        for slot in self.probe(hash) {
            // Acquire: rule 4.
            let word = slot.load(Ordering::Acquire);
            if word == EMPTY {
                break;
            }
            if word >> 32 == u64::from(hash) && word & 1 == 1 {
                // OK: 31 bits.
                let block = ((word & u64::from(u32::MAX)) >> 1) as u32;
                if block >= from && next.is_none_or(|next| block < next) {
                    next = Some(block);
                }
            }
        }
        next
    }

    /// Adds a name. Returns false if the map is full.
    fn add(&self, hash: u32, block: u32) -> bool {
        for slot in self.probe(hash) {
            let there = slot.load(Ordering::Relaxed);
            if there == EMPTY {
                let taken = self.taken.load(Ordering::Relaxed) + 1;
                // A search ends at an empty slot, and is short while a quarter of all is empty.
                if taken > self.slots.len() - self.slots.len() / 4 - 1 {
                    return false;
                }
                self.taken.store(taken, Ordering::Relaxed);
            }
            if there == EMPTY || there == REMOVED {
                slot.store(word(hash, block), Ordering::Release);
                return true;
            }
        }
        false
    }

    /// Removes a name. Returns false if it is not there.
    fn remove(&self, hash: u32, block: u32) -> bool {
        let word = word(hash, block);
        for slot in self.probe(hash) {
            let there = slot.load(Ordering::Relaxed);
            if there == word {
                slot.store(REMOVED, Ordering::Release);
                return true;
            }
            if there == EMPTY {
                return false;
            }
        }
        false
    }

    /// Returns a map with the same names and more room.
    fn grown(&self) -> Option<Self> {
        let words = || {
            self.slots
                .iter()
                .map(|slot| slot.load(Ordering::Relaxed))
                .filter(|word| word & 1 == 1)
        };
        let names = words().count();
        let grown = Self::with_room(names + names / 2, &self.account)?;
        for word in words() {
            // OK: the two halves.
            grown.add((word >> 32) as u32, (word as u32) >> 1);
        }
        Some(grown)
    }
}

impl Drop for NameMap {
    fn drop(&mut self) {
        self.account.sub(size_of_val(&*self.slots) as u64);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_map_has_the_names_of_a_model() {
        let maps = NameMaps::new(&CacheBudget::new(1 << 30));
        let names = DirNames::default();
        names.publish(maps.map(&[]).unwrap());
        let mut model = BTreeMap::<u32, Vec<u32>>::new();
        let mut random = 7_u64;
        for step in 0..60_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Few hashes, so that names share them; many names first, then fewer.
            let hash = (random >> 52) as u32 * 0x0010_0001;
            let block = (random >> 40) as u32 % 5;
            let blocks = model.entry(hash).or_default();
            if random >> 33 & 3 < if step < 30_000 { 3 } else { 1 } {
                names.add(|| hash, block);
                blocks.push(block);
            } else if let Some(gone) = blocks.pop() {
                names.remove(|| hash, gone);
            }
            let from = block;
            let want = blocks.iter().copied().filter(|&block| block >= from).min();
            assert_eq!(names.next_block(hash, from), Some(want), "step {step}");
            assert_eq!(names.lacks(|| hash), blocks.is_empty());
            assert!(names.lacks(|| hash | 1 << 19), "no name has it");
        }
        names.remove(|| 3, 1);
        assert_eq!(
            names.next_block(3, 0),
            None,
            "a map that lacks a name is dropped"
        );
    }

    #[test]
    fn maps_stay_within_their_share_of_the_budget() {
        let budget = CacheBudget::new(1 << 20);
        let maps = NameMaps::new(&budget);
        let names = DirNames::default();
        names.publish(maps.map(&[]).unwrap());
        let mut added = 0;
        while names.next_block(0, 0).is_some() {
            added += 1;
            names.add(|| u32::wrapping_mul(added, 0x9e37_79b1), 0);
        }
        assert!((3_000..12_000).contains(&added), "{added}");
        assert!(maps.map(&vec![(1, 1); maps.most_names() + 1]).is_none());
        names.clear();
    }

    #[test]
    fn a_directory_is_mapped_once_lookups_have_cost_as_much() {
        let names = DirNames::default();
        let mut asked = 0;
        while !names.count_in_vain(5, 20) {
            asked += 1;
        }
        assert_eq!(asked, 4);
        assert!(!names.count_in_vain(100, 20), "one thread maps it");
        names.refuse();
        assert!(!names.count_in_vain(100, 20) && !names.lacks(|| 1));
    }
}
