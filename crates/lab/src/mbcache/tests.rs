//! Tests that all sides of the chapter on shared attributes have to pass: files with equal values
//! share blocks, and no block is lost.

use std::collections::HashMap;
use std::thread;

use super::sets::{Files, room};
use super::*;

/// Checks that each block has as many files as it counts, or is free.
fn check_counts<C: Cache>(cache: &C, blocks: &Blocks, all: &[Files], len: usize) {
    let mut files = HashMap::<u32, u32>::new();
    for block in all.iter().flat_map(Files::blocks) {
        *files.entry(*block).or_default() += 1;
    }
    for (block, files) in &files {
        assert_eq!(cache.count(blocks, *block), *files, "block {block}");
        assert!(*files <= MOST);
    }
    let mut free = blocks.take(len);
    free.extend(all.iter().flat_map(Files::free));
    free.sort_unstable();
    free.dedup();
    assert_eq!(
        files.len() + free.len(),
        len,
        "a block is lost, or free twice"
    );
    assert!(free.iter().all(|block| !files.contains_key(block)));
    // No free block can be found.
    assert!(cache.entries() <= files.len() as u64);
}

fn files_have_the_attributes_that_were_set<C: Cache>() {
    let len = room(1, 100);
    let cache = C::new();
    let blocks = Blocks::new(len);
    let mut files = Files::new(0, 100);
    let mut random = crate::random::Random::new(7);
    let mut values = vec![0; 100];
    for _ in 0..20_000 {
        let file = random.below(100) as usize;
        let value = random.below(40) as u32;
        files.set(&cache, &blocks, file, value);
        values[file] = value;
        assert_eq!(blocks.value(files.blocks()[file]), value);
    }
    let set = || {
        files
            .blocks()
            .iter()
            .zip(&values)
            .filter(|(block, _)| **block != 0)
    };
    assert!(set().all(|(block, value)| blocks.value(*block) == *value));
    // One block for each value.
    let mut of = HashMap::new();
    assert!(set().all(|(block, value)| {
        of.insert(*value, *block)
            .is_none_or(|other| other == *block)
    }));
    assert_eq!(set().count(), 100);
    check_counts(&cache, &blocks, &[files], len);
}

/// At most [`MOST`] files share a block. Further ones get another.
fn a_full_block_is_shared_no_further<C: Cache>() {
    let count = 3 * MOST as usize;
    let len = room(1, count);
    let cache = C::new();
    let blocks = Blocks::new(len);
    let mut files = Files::new(0, count);
    (0..count).for_each(|file| files.set(&cache, &blocks, file, 5));
    let full = |files: &Files| {
        files
            .blocks()
            .iter()
            .collect::<std::collections::HashSet<_>>()
            .len()
    };
    assert_eq!(full(&files), 3);
    // One file leaves a full block, and another joins it.
    files.set(&cache, &blocks, 17, 6);
    files.set(&cache, &blocks, 17, 5);
    assert_eq!(full(&files), 3);
    check_counts(&cache, &blocks, &[files], len);
}

/// More values than there is room for: some blocks are not found, and all else is right.
fn surplus_entries_are_evicted<C: Cache>() {
    let len = room(1, 40_000);
    let cache = C::new();
    let blocks = Blocks::new(len);
    let mut files = Files::new(0, 40_000);
    (0..40_000).for_each(|file| files.set(&cache, &blocks, file, file as u32));
    assert!(cache.entries() >= 15_000, "{}", cache.entries());
    (0..40_000).for_each(|file| files.set(&cache, &blocks, file, (file / 2) as u32));
    check_counts(&cache, &blocks, &[files], len);
}

fn many_may_set<C: Cache>(values: u32, count: usize) {
    const THREADS: usize = 4;
    let len = room(THREADS, count);
    let cache = &C::new();
    let blocks = &Blocks::new(len);
    let work = |number| {
        let mut files = Files::new(number, count);
        for _ in 0..20_000 {
            files.set_next(cache, blocks, values);
        }
        // A block that a file has keeps its contents.
        let mut random = crate::random::Random::new(number + 50);
        for round in 0..5_000 {
            let file = round % count;
            let value = random.below(values.into()) as u32;
            files.set(cache, blocks, file, value);
            thread::yield_now();
            assert_eq!(blocks.value(files.blocks()[file]), value);
        }
        files
    };
    let work = &work;
    let all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    check_counts(cache, blocks, &all, len);
}

fn all<C: Cache>() {
    files_have_the_attributes_that_were_set::<C>();
    a_full_block_is_shared_no_further::<C>();
    surplus_entries_are_evicted::<C>();
    // Each block loses its last file again and again. Many files join few blocks. Entries come and
    // go.
    many_may_set::<C>(3, 2);
    many_may_set::<C>(4, 2000);
    many_may_set::<C>(100_000, 6000);
}

#[test]
fn baseline() {
    all::<Baseline>();
}

#[test]
fn patch() {
    all::<Patch>();
}

#[test]
fn production() {
    all::<Extern4>();
}

/// On each side, the count of each block equals its number of files in the end.
#[test]
fn volumes_are_clean_after_attributes_were_set() {
    let Some(volumes) = setxattr::Volumes::new(4, 20) else {
        return;
    };
    let plan = Plan::quick();
    let cell = |values| Cell {
        values,
        files: 20,
        ..CELLS[0]
    };
    for (cell, threads) in [(cell(3), 4), (cell(3), 4), (cell(1000), 2), (cell(10), 4)] {
        for side in Side::ALL {
            let sample = volumes.take(&plan, side, cell, threads);
            let joined = sample
                .counters
                .iter()
                .find(|(name, _)| *name == "block joined, %");
            assert!(
                cell.values > 10 || joined.is_some_and(|(_, joined)| *joined > 50.0),
                "{side:?}: {joined:?}"
            );
        }
    }
    for (side, bytes) in Side::ALL.into_iter().zip(volumes.end()) {
        let image = tempfile::NamedTempFile::new().unwrap();
        write_with_holes(image.as_file(), &bytes).unwrap();
        extern4_testkit::tools::e2fsck(image.path()).unwrap_or_else(|e| panic!("{side:?}: {e}"));
    }
}

/// Writes a volume that is mostly empty, and takes no room for the blocks of zeros.
fn write_with_holes(file: &std::fs::File, bytes: &[u8]) -> std::io::Result<()> {
    file.set_len(bytes.len() as u64)?;
    for (index, block) in bytes.chunks(4096).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            std::os::unix::fs::FileExt::write_all_at(file, block, index as u64 * 4096)?;
        }
    }
    Ok(())
}

#[test]
fn hashes_differ() {
    let hashes: std::collections::HashSet<_> = (0..100_000).map(hash).collect();
    assert_eq!(hashes.len(), 100_000);
}
