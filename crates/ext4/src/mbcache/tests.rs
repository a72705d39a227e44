//! Tests of the cache of attribute blocks, by one thread and by several at random.
//!
//! A map is the model of random insertions and removals, also while the cache grows and shrinks.
//! `tests/loom.rs` covers every interleaving of two threads.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

/// A cache of one bucket.
fn one() -> MbCache {
    MbCache::new(0)
}

fn all(cache: &MbCache, hash: u32) -> Vec<u64> {
    let mut numbers: Vec<_> = cache.candidates(hash).map(|found| found.number()).collect();
    numbers.sort_unstable();
    numbers
}

/// Whether the cache has an entry, even if lookups skip it.
fn contains(cache: &MbCache, hash: u32, number: u64) -> bool {
    let bucket = cache.bucket(hash, cache.state().bits());
    cache
        .entry(hash, number)
        .is_some_and(|entry| bucket.find(entry).is_some())
}

/// Marks an entry as used, through a lookup that returns it.
fn touch(cache: &MbCache, hash: u32, number: u64) {
    cache
        .candidates(hash)
        .filter(|found| found.number() == number)
        .for_each(|found| found.touch());
}

/// Every entry of the cache, counted by looking.
fn entries(cache: &MbCache) -> u64 {
    // Also where none should be: in buckets that are not in use.
    let buckets = cache.words[cache.start..].chunks_exact(WORDS);
    buckets
        .map(|words| {
            words[1..]
                .iter()
                .filter(|word| word.load(Ordering::Relaxed) != 0)
                .count() as u64
        })
        .sum()
}

#[test]
fn mixing_loses_nothing() {
    // The product with an odd number determines the number.
    let inverse = (0..5).fold(1u32, |x, _| {
        x.wrapping_mul(2u32.wrapping_sub(MIX.wrapping_mul(x)))
    });
    assert_eq!(MIX.wrapping_mul(inverse), 1);
    for hash in (0..1 << 20).map(|n: u32| n.wrapping_mul(4093)) {
        assert_eq!(mix(hash).swap_bytes().wrapping_mul(inverse), hash);
    }
}

#[test]
fn hashes_of_which_a_part_differs_are_spread() {
    for shift in [0, 5, 8, 12, 16, 20, 24] {
        let mut buckets = [0; 1 << MbCache::BITS_NEAR];
        let hashes = (0..256).map(|part: u32| 0x1234_5678 ^ part << shift);
        hashes.for_each(|hash| buckets[mix(hash) as usize % buckets.len()] += 1);
        let most = buckets.iter().max().unwrap();
        assert!(
            *most <= SLOTS / 2,
            "{most} of those that differ from bit {shift} on are in one bucket"
        );
    }
}

#[test]
fn a_pair_is_in_once() {
    let cache = MbCache::new(4);
    assert_eq!(
        (cache.insert(5, 70), cache.insert(5, 70)),
        (Inserted::Yes, Inserted::Present)
    );
    assert_eq!(
        (cache.insert(5, 71), cache.insert(6, 70)),
        (Inserted::Yes, Inserted::Yes)
    );
    assert_eq!(
        (all(&cache, 5), all(&cache, 6), all(&cache, 7)),
        (vec![70, 71], vec![70], vec![])
    );
    assert!(cache.remove(5, 70) && !cache.remove(5, 70) && !cache.remove(7, 70));
    assert_eq!((all(&cache, 5), cache.stats().entries), (vec![71], 2));
}

#[test]
fn numbers_that_fit_come_back_and_others_are_refused() {
    for (bits, most) in [
        (0, (1 << 32) - 1),
        (3, (1 << 35) - 1),
        (MbCache::BITS_FAR, (1 << 48) - 1),
    ] {
        let cache = MbCache::new(bits);
        for hash in [0, 1, 0x8000_0000, u32::MAX] {
            assert_eq!(
                (cache.insert(hash, most), cache.insert(hash, 1)),
                (Inserted::Yes, Inserted::Yes)
            );
            assert_eq!(all(&cache, hash), vec![1, most]);
            assert_eq!(
                (cache.insert(hash, most + 1), cache.insert(hash, 0)),
                (Inserted::No, Inserted::No)
            );
            assert!(cache.remove(hash, 1) && cache.remove(hash, most));
        }
    }
}

/// f0c8b46238db: a hit moved its entry in a list under a lock of all. Here it sets a bit, once.
#[test]
fn a_hit_sets_a_bit() {
    let cache = one();
    cache.insert(1, 10);
    let words = || {
        cache
            .words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect::<Vec<_>>()
    };
    let before = words();
    touch(&cache, 1, 10);
    let after = words();
    let changed: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
    assert_eq!(changed, [(&0, &1)]);
    touch(&cache, 1, 10);
    assert_eq!(words(), after);
}

/// The first version of the rewrite moved the second chance to the wrong end: what was of use went
/// first.
#[test]
fn second_chance_order() {
    let cache = one();
    (1..=7).for_each(|number| assert_eq!(cache.insert(0, number), Inserted::Yes));
    touch(&cache, 0, 1);
    touch(&cache, 0, 3);
    cache.insert(0, 8);
    assert_eq!(
        all(&cache, 0),
        [1, 3, 4, 5, 6, 7, 8],
        "the hand passes 1, and 2 goes"
    );
    cache.insert(0, 9);
    assert_eq!(
        all(&cache, 0),
        [1, 3, 5, 6, 7, 8, 9],
        "3 has its second chance"
    );
    (10..14).for_each(|number| assert_eq!(cache.insert(0, number), Inserted::Yes));
    assert_eq!(
        all(&cache, 0),
        [3, 8, 9, 10, 11, 12, 13],
        "a second chance, and no third"
    );
    cache.set_full(0, 12, true);
    cache.insert(0, 14);
    assert_eq!(
        all(&cache, 0),
        [3, 8, 9, 10, 11, 13, 14],
        "full blocks are not offered"
    );
    all(&cache, 0)
        .iter()
        .for_each(|number| touch(&cache, 0, *number));
    cache.insert(0, 15);
    assert_eq!(entries(&cache), 7, "one goes, though all were of use");
    assert!(contains(&cache, 0, 15));
}

/// 6048c64b2609: lookups walked chains of full blocks over and over.
#[test]
fn full_entries_are_not_offered() {
    let cache = one();
    cache.insert(3, 30);
    cache.insert(3, 31);
    touch(&cache, 3, 30);
    cache.set_full(3, 30, true);
    assert_eq!((all(&cache, 3), contains(&cache, 3, 30)), (vec![31], true));
    cache.set_full(3, 30, false);
    assert_eq!(all(&cache, 3), [30, 31]);
    cache.set_full(3, 30, true);
    cache.remove(3, 30);
    cache.insert(3, 32);
    assert_eq!(all(&cache, 3), [31, 32], "marks do not outlive the entry");
}

/// 3dc96bba65f5 met a count that went below zero, because an entry was taken out twice.
#[test]
fn each_removal_is_counted_once() {
    let cache = MbCache::new(4);
    for round in 0..100 {
        for number in 1..200 {
            cache.insert(number as u32, number);
        }
        for number in 1..200 {
            let twice = (
                cache.remove(number as u32, number),
                cache.remove(number as u32, number),
            );
            assert!(!twice.1);
        }
        assert_eq!((cache.stats().entries, entries(&cache)), (0, 0), "{round}");
    }
}

#[test]
fn threads_agree_on_the_count() {
    let cache = &MbCache::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for n in 0..30_000u64 {
                    let hash = (n * 7 + thread) as u32 % 50;
                    let number = n % 9 + 1;
                    match n % 3 {
                        0 => drop(cache.insert(hash, number)),
                        1 => drop(cache.remove(hash, number)),
                        _ => {
                            let offered = cache.candidates(hash).map(|found| found.number());
                            assert!(
                                offered
                                    .inspect(|number| assert!((1..10).contains(number)))
                                    .count()
                                    <= SLOTS
                            );
                        }
                    }
                }
            });
        }
    });
    assert_eq!(cache.stats().entries, entries(cache));
    for words in cache.words[cache.start..].chunks_exact(WORDS) {
        let found: Vec<_> = words[1..]
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .filter(|word| *word != 0)
            .collect();
        let once: HashSet<_> = found.iter().collect();
        assert_eq!(once.len(), found.len(), "the same pair twice");
    }
}

#[test]
fn a_finder_can_tell_whether_its_entry_is_still_in() {
    let cache = one();
    cache.insert(3, 30);
    let found = cache.candidates(3).next().unwrap();
    assert!(found.is_in() && found.number() == 30);
    cache.remove(3, 30);
    assert!(!found.is_in());
    found.touch();
    cache.insert(3, 31);
    assert!(!found.is_in(), "another has its place");
    found.touch();
    let marks = cache.words[cache.start].load(Ordering::Relaxed);
    assert_eq!(marks & 0xff, 0, "it was not used");
}

/// The author's cache had at most 16,384 entries of 56 bytes, and gains vanished where more were in
/// use.
#[test]
fn four_mebibytes_have_room_for_200_000_entries() {
    let cache = MbCache::new(MbCache::BITS_FAR);
    // As hashes are, and blocks that were allocated one after the other.
    let mut hash = 1u32;
    for block in 0..458_752u64 {
        hash = hash.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        cache.insert(hash, 0x7fff_0000_0000 + block);
    }
    let stats = cache.stats();
    assert_eq!(stats.entries, entries(&cache));
    assert!(stats.entries >= 200_000, "{stats:?}");
    assert!(
        stats.bytes <= (4 << 20) + 64 && stats.bytes / stats.entries <= 16,
        "{stats:?}"
    );
    assert!(stats.capacity >= 450_000);
}

/// An entry in the cache can still be found, and a removed one is gone, however often the cache has
/// grown.
#[test]
fn the_table_grows_with_its_entries() {
    let cache = MbCache::sized(2, 7);
    let mut hash = 7u32;
    let mut sizes = vec![cache.stats().capacity];
    let mut known = Vec::new();
    for number in 1..=500u64 {
        hash = hash.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        cache.insert(hash, number);
        known.push((hash, number));
        let stats = cache.stats();
        assert_eq!(stats.entries, entries(&cache), "{number}");
        if stats.capacity != sizes[sizes.len() - 1] {
            assert!(
                number > sizes[sizes.len() - 1] / 7 / 4,
                "it grows with an entry for every fourth bucket"
            );
            sizes.push(stats.capacity);
        }
    }
    assert_eq!(sizes, [4, 16, 64, 128].map(|buckets| 7 * buckets));
    let found = known
        .iter()
        .filter(|(hash, number)| contains(&cache, *hash, *number))
        .count();
    assert_eq!(found as u64, cache.stats().entries);
    assert!(found > 400, "{found}");
    let removed = known
        .iter()
        .filter(|(hash, number)| cache.remove(*hash, *number))
        .count();
    assert_eq!(
        (removed, cache.stats().entries, entries(&cache)),
        (found, 0, 0)
    );
}

/// By chance, entries that are added and removed sometimes fill a bucket. That is no reason to
/// grow.
#[test]
fn does_not_grow_by_chance() {
    let cache = MbCache::sized(6, 16);
    let mut hash = 7u32;
    let mut known = std::collections::VecDeque::new();
    for number in 1..1_000_000u64 {
        hash = hash.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        cache.insert(hash, number);
        known.push_back((hash, number));
        if known.len() == 1 << 4 {
            known
                .pop_front()
                .map(|(hash, number)| cache.remove(hash, number));
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.capacity, stats.entries), (7 << 6, 15));
}

/// The size of the cache while many entries are added and removed, and a few of them all the time.
#[test]
fn shrinks_when_there_is_little_to_find() {
    let cache = MbCache::sized(4, 12);
    let hash = |number: u64| (number as u32).wrapping_mul(0x9e37_79b9) ^ 0x5a5a;
    let most = 3000_u64;
    let known: Vec<_> = (1..=most)
        .filter(|number| cache.insert(hash(*number), *number) == Inserted::Yes)
        .collect();
    assert_eq!(cache.stats().capacity, 7 << 12);
    assert!(known.len() > 2900, "{}", known.len());
    let (stay, go) = known.split_at(3);
    go.iter()
        .for_each(|number| assert!(cache.remove(hash(*number), *number)));
    let mut sizes = vec![cache.stats().capacity];
    for number in most + 1..most + 5000 {
        assert_eq!(cache.insert(hash(number), number), Inserted::Yes);
        assert!(cache.remove(hash(number), number));
        let size = cache.stats().capacity;
        if size != sizes[sizes.len() - 1] {
            sizes.push(size);
        }
    }
    // With the one that has just come, there are as many as every 64th of 256 buckets.
    assert_eq!(sizes, [12, 10, 8].map(|bits| 7 << bits));
    assert!(
        stay.iter()
            .all(|number| all(&cache, hash(*number)).contains(number))
    );
    assert_eq!((cache.stats().entries, entries(&cache)), (3, 3));
}

/// Those marked full go first where it shrinks, too, and each once.
#[test]
fn moved_entries_replace_full_ones() {
    let cache = MbCache::sized(0, 2);
    cache.resize(cache.state(), 2);
    let hash_of = |bucket| {
        (0..)
            .find(|hash| mix(*hash) & 3 == bucket)
            .expect("a hash for each bucket")
    };
    let [full, moved] = [0, 3].map(hash_of);
    for number in 1..=7 {
        assert_eq!(cache.insert(full, number), Inserted::Yes);
        cache.set_full(full, number, true);
    }
    (8..=10).for_each(|number| assert_eq!(cache.insert(moved, number), Inserted::Yes));
    cache.resize(cache.state(), 0);
    assert_eq!(
        (all(&cache, moved), cache.stats().entries),
        (vec![8, 9, 10], 7)
    );
    assert!((4..=7).all(|number| contains(&cache, full, number)) && all(&cache, full).is_empty());
}

/// A cache that has begun small has no room for larger numbers, however large it is.
#[test]
fn numbers_that_do_not_fit_are_refused_at_every_size() {
    let cache = MbCache::sized(2, 6);
    let most = (1 << 34) - 1;
    assert!((1..500).all(|number| cache.insert(number * 0x9e37, number.into()) == Inserted::Yes));
    assert_eq!(cache.stats().capacity, 7 << 6);
    assert_eq!(
        (cache.insert(1, most), cache.insert(1, most + 1)),
        (Inserted::Yes, Inserted::No)
    );
    assert!(all(&cache, 1).contains(&most) && !cache.remove(1, most + 1));
}

/// Threads insert and remove their own entries while the cache grows and shrinks. No thread finds
/// an entry that it has removed.
#[test]
fn threads_agree_while_it_grows_and_shrinks() {
    for _ in 0..50 {
        let cache = &MbCache::sized(0, 8);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    for n in 0..2_000u64 {
                        let hash = (n.wrapping_mul(0x9e37_79b9) >> 7) as u32;
                        let number = 4 * n + thread + 1;
                        cache.insert(hash, number);
                        // In the second half, all that is left of the first goes, too.
                        let old = n.checked_sub(1000).map(|n| 4 * n + thread + 1);
                        if n % 3 == 0 || n >= 1000 {
                            cache.remove(hash, number);
                            assert!(!all(cache, hash).contains(&number));
                        }
                        if let Some(old) = old {
                            let hash = (((n - 1000).wrapping_mul(0x9e37_79b9)) >> 7) as u32;
                            cache.remove(hash, old);
                            assert!(!all(cache, hash).contains(&old));
                        }
                    }
                });
            }
        });
        assert_eq!((cache.stats().entries, entries(cache)), (0, 0));
    }
}

#[derive(Clone, Copy, Debug)]
enum Do {
    Insert(u32, u64),
    Remove(u32, u64),
    Touch(u32, u64),
    Full(u32, u64, bool),
}

fn steps() -> impl Strategy<Value = Vec<Do>> {
    let step = (0..10u8, 0..12u32, 1..20u64).prop_map(|(what, hash, number)| match what {
        0..=4 => Do::Insert(hash, number),
        5 | 6 => Do::Remove(hash, number),
        7 => Do::Touch(hash, number),
        8 => Do::Full(hash, number, true),
        _ => Do::Full(hash, number, false),
    });
    proptest::collection::vec(step, 0..300)
}

proptest! {
    /// Compares the cache with a map of the entries put in. Lookups find nothing else, missing
    /// entries were dropped and counted, and entries marked full are not offered.
    #[test]
    fn agrees_with_a_map(bits in 0..3u32, more in 0..4u32, steps in steps()) {
        let cache = MbCache::sized(bits, bits + more);
        // The entries that may be in, and whether each is marked.
        let mut map: HashMap<(u32, u64), bool> = HashMap::new();
        for step in steps {
            match step {
                Do::Insert(hash, number) => match cache.insert(hash, number) {
                    Inserted::Yes => drop(map.insert((hash, number), false)),
                    Inserted::Present => prop_assert!(map.contains_key(&(hash, number))),
                    Inserted::No => prop_assert!(false, "no other thread inserts"),
                },
                Do::Remove(hash, number) => {
                    prop_assert!(!cache.remove(hash, number) || map.contains_key(&(hash, number)));
                    map.remove(&(hash, number));
                }
                Do::Touch(hash, number) => touch(&cache, hash, number),
                Do::Full(hash, number, full) => {
                    cache.set_full(hash, number, full);
                    map.entry((hash, number)).and_modify(|mark| *mark = full);
                }
            }
            map.retain(|(hash, number), _| contains(&cache, *hash, *number));
            let stats = cache.stats();
            prop_assert_eq!(stats.entries, map.len() as u64);
            prop_assert_eq!(stats.entries, entries(&cache));
            prop_assert!(stats.entries <= stats.capacity);
            for hash in 0..12 {
                let mut offered: Vec<_> = map.iter().filter(|((of, _), full)| *of == hash && !**full).map(|((_, number), _)| *number).collect();
                offered.sort_unstable();
                prop_assert_eq!(all(&cache, hash), offered);
            }
        }
    }
}
