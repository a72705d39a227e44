//! The buffer cache's invariants, over failing devices and among threads.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use extern4_block::device::fault::{Effect, Fault};
use extern4_block::{
    BlockDevice, Buffer, BufferCache, CacheBudget, CacheOptions, DeviceWrapper, Error, FaultDevice,
    MemoryDevice, Op, RecordDevice, Result, Unsealed,
};
use extern4_sync::rcu;
use proptest::prelude::*;

const SIZE: u64 = 512;
const EIO: i32 = 5;

/// Returns a device in which each block holds its number in every four bytes.
fn numbered(blocks: u32) -> Arc<MemoryDevice> {
    let bytes = (0..blocks)
        .flat_map(|block| block.to_le_bytes().repeat(SIZE as usize / 4))
        .collect();
    Arc::new(MemoryDevice::new(bytes))
}

fn holds_its_number(buffer: &Buffer) -> bool {
    holds(buffer.number(), buffer)
}

fn holds(number: u64, bytes: &[u8]) -> bool {
    bytes.len() as u64 == SIZE
        && bytes
            .chunks(4)
            .all(|word| word == (number as u32).to_le_bytes())
}

fn cache(device: Arc<dyn BlockDevice>, blocks_kept: usize) -> BufferCache {
    let block_count = device.size_bytes() / SIZE;
    let options = CacheOptions {
        block_size: 512,
        block_count,
        budget: CacheBudget::new(blocks_kept as u64 * BufferCache::bytes_of_buffer(512)),
    };
    BufferCache::new(device, options).unwrap()
}

#[test]
fn threads_that_miss_together_read_once() {
    let device = Arc::new(RecordDevice::new(Arc::new(FaultDevice::new(numbered(64)))));
    let cache = &cache(device.clone(), 64);
    let barrier = &Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for block in 0..64 {
                    barrier.wait();
                    assert!(holds_its_number(&cache.read(block).unwrap()));
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!(
        (device.counts().reads, stats.misses, stats.device_reads),
        (64, 64, 64)
    );
    assert_eq!(stats.hits + stats.waits, 3 * 64);
}

#[test]
fn a_failed_read_reaches_every_waiter_and_is_tried_again() {
    let faults = Arc::new(FaultDevice::new(numbered(4)));
    faults.inject(Fault::nth(Op::Read, 0, Effect::Error(EIO)));
    // The slow device keeps the first reader waiting until the others wait for it.
    let cache = &cache(Arc::new(Slow(faults.clone())), 64);
    let failed = &AtomicUsize::new(0);
    let barrier = &Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                match cache.read(1) {
                    Ok(buffer) => assert!(holds_its_number(&buffer)),
                    Err(Error::Io {
                        op: Op::Read,
                        offset: 512,
                        ..
                    }) => _ = failed.fetch_add(1, Relaxed),
                    Err(other) => panic!("{other}"),
                }
            });
        }
    });
    assert!(failed.load(Relaxed) >= 1);
    assert!(holds_its_number(&cache.read(1).unwrap()));
    assert_eq!(cache.stats().resident, 1);
}

#[test]
fn a_bad_block_fails_alone() {
    let faults = Arc::new(FaultDevice::new(numbered(16)));
    faults.inject(Fault::within(
        Op::Read,
        5 * SIZE..6 * SIZE,
        Effect::Error(EIO),
    ));
    let cache = cache(faults.clone(), 64);
    assert!(matches!(cache.read_many(0..16), Err(Error::Io { offset, .. }) if offset == 5 * SIZE));
    cache.read_ahead(0..16);
    assert_eq!(cache.stats().resident, 15);
    let guard = rcu::pin();
    assert!((0..16).all(|block| {
        cache
            .peek(block, &guard)
            .is_some_and(|bytes| holds(block, bytes))
            == (block != 5)
    }));
    faults.heal();
    assert!(holds_its_number(&cache.read(5).unwrap()));
}

#[test]
fn an_image_shorter_than_its_volume_is_an_error_at_its_place() {
    let options = CacheOptions {
        block_size: 512,
        block_count: u64::MAX,
        budget: CacheBudget::new(1 << 16),
    };
    let cache = BufferCache::new(numbered(4), options).unwrap();
    assert!(matches!(
        cache.read(4),
        Err(Error::OutOfRange {
            offset: 2048,
            size: 2048,
            ..
        })
    ));
    assert!(matches!(
        cache.read(u64::MAX - 1),
        Err(Error::OutOfRange { .. })
    ));
    assert!(matches!(
        cache.read_many(2..6),
        Err(Error::OutOfRange { offset: 2048, .. })
    ));
    assert_eq!(cache.stats().resident, 2);
}

#[test]
fn a_panicking_device_does_not_hang_the_others() {
    let cache = &cache(Arc::new(Panicking(AtomicU32::new(1), numbered(4))), 64);
    let panicked = thread::scope(|scope| scope.spawn(|| cache.read(2)).join().is_err());
    assert!(panicked);
    assert!(holds_its_number(&cache.read(2).unwrap()));
}

#[test]
fn memory_stays_bounded_and_used_buffers_stay() {
    let cache = cache(numbered(4096), 256);
    let kept = cache.read(7).unwrap();
    for block in 0..4096 {
        assert!(holds_its_number(&cache.read(block).unwrap()));
        assert!(cache.with(100, |bytes| holds(100, bytes)).unwrap());
        // The budget is exact within a 64th.
        assert!(cache.stats().resident <= 256 + 256 / 64 + 1);
    }
    let stats = cache.stats();
    assert!(stats.evictions >= 4096 - 257);
    // Block 100 was read twice at most: before it was first looked at, and never again while it was
    // in use.
    assert!(stats.misses <= 4096 + 1, "{stats:?}");
    let guard = rcu::pin();
    assert!(
        std::ptr::eq(cache.peek(7, &guard).unwrap(), &*kept),
        "a held block has a second buffer"
    );
}

#[test]
fn buffers_that_are_held_may_exceed_the_bound_until_they_are_dropped() {
    let cache = cache(numbered(1024), 64);
    let held = cache.read_many(0..512).unwrap();
    assert!(held.iter().all(holds_its_number));
    assert!(cache.stats().resident >= 512);
    drop(held);
    for block in 512..600 {
        cache.read(block).unwrap();
    }
    assert!(cache.stats().resident <= 65);
}

#[test]
fn threads_see_one_buffer_a_block_while_others_evict() {
    let device = Arc::new(FaultDevice::new(numbered(200)));
    device.inject(Fault {
        after: 100,
        times: 50,
        ..Fault::every(Op::Read, Effect::Error(EIO))
    });
    let cache = &cache(device, 32);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for i in 0..10_000u64 {
                    let block = (i * 31 + thread * 57) % 200;
                    match i % 4 {
                        0 => cache.read_ahead(block..block + 5),
                        1 => _ = cache.with(block, |bytes| assert!(holds(block, bytes))),
                        2 => _ = cache.read_many(block..(block + 4).min(200)),
                        _ => {
                            let Ok(held) = cache.read(block) else {
                                continue;
                            };
                            let guard = rcu::pin();
                            let found = cache.peek(block, &guard).expect("held, so in the table");
                            assert!(std::ptr::eq(found, &*held) && holds(block, found));
                        }
                    }
                }
            });
        }
    });
    assert!(cache.stats().resident <= 32 + 4 * 5, "{:?}", cache.stats());
}

/// Some threads count in parts of one block, each in its own, while others read the whole block.
/// One more thread counts in the last part by changing the whole block.
#[test]
fn parts_of_a_block_are_changed_side_by_side() {
    const THREADS: usize = 4;
    const PART: usize = SIZE as usize / 8;
    const TIMES: u32 = 20_000;
    let cache = &cache(numbered(8), 8);
    let mut buffer = cache.read(0).unwrap();
    buffer.tag().store(7, Relaxed);
    let pin = &buffer.pin();
    let part = |index: usize| index * PART..(index + 1) * PART;
    let count = |bytes: &mut [u8], unsealed: &mut Unsealed, index: usize| {
        let counted = u32::from_le_bytes(bytes[..4].try_into().unwrap()) + 1;
        bytes
            .chunks_mut(4)
            .for_each(|word| word.copy_from_slice(&counted.to_le_bytes()));
        (unsealed[0], unsealed[1]) = (9, unsealed[1] | 1 << index);
        counted
    };
    let counted = |bytes: &[u8], index: usize| {
        let words: Vec<_> = bytes[part(index)].chunks(4).collect();
        assert!(words.iter().all(|word| word == &words[0]), "{words:?}");
        u32::from_le_bytes(words[0].try_into().unwrap())
    };
    let sealed = AtomicU32::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let sealed = &sealed;
            scope.spawn(move || {
                for time in 1..=TIMES {
                    let now = cache.change_part_tagged(0, 7, part(thread), |bytes, unsealed| {
                        count(bytes, unsealed, thread)
                    });
                    assert_eq!(now.ok(), Some(time));
                    match time % 64 {
                        0 => {
                            assert_eq!(cache.with(0, |bytes| counted(bytes, thread)).unwrap(), time)
                        }
                        16 => assert_eq!(counted(&pin.snapshot(), thread), time),
                        32 => pin.seal(|bytes, unsealed| {
                            assert_eq!((counted(bytes, thread), unsealed[0]), (time, 9));
                            sealed.fetch_or(unsealed[1], Relaxed);
                        }),
                        _ => {}
                    }
                }
            });
        }
        scope.spawn(|| {
            for time in 1..=TIMES {
                buffer.change(|bytes, unsealed| {
                    assert_eq!(count(&mut bytes[part(7)], unsealed, 7), time)
                });
            }
        });
    });
    pin.seal(|_, unsealed| _ = sealed.fetch_or(unsealed[1], Relaxed));
    cache
        .with(0, |bytes| {
            (0..THREADS).for_each(|index| assert_eq!(counted(bytes, index), TIMES))
        })
        .unwrap();
    assert_eq!(sealed.load(Relaxed), 0b1000_1111);
    assert_eq!(
        cache
            .change_part_tagged(0, 6, part(0), |_, _| ())
            .err()
            .map(drop),
        Some(()),
        "another tag"
    );
    // The range has another length than the parts that are out.
    let twice = |bytes: &mut [u8], _: &mut Unsealed| (counted(bytes, 0), counted(bytes, 1));
    assert_eq!(
        cache.change_part_tagged(0, 7, 0..2 * PART, twice).ok(),
        Some((TIMES, TIMES))
    );
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64),
    Many(u64, u64),
    Ahead(u64, u64),
    Break(Range<u64>),
    Heal,
}

proptest! {
    #[test]
    fn a_cache_reads_as_its_device_does(steps in prop::collection::vec(prop_oneof![
        4 => (0..70u64).prop_map(Step::Read),
        2 => (0..70u64, 0..20u64).prop_map(|(start, len)| Step::Many(start, len)),
        1 => (0..70u64, 0..20u64).prop_map(|(start, len)| Step::Ahead(start, len)),
        1 => (0..64u64, 1..4u64).prop_map(|(start, len)| Step::Break(start..start + len)),
        1 => Just(Step::Heal),
    ], 1..60)) {
        let faults = Arc::new(FaultDevice::new(numbered(64)));
        let cache = cache(faults.clone(), 32);
        let mut broken: Vec<Range<u64>> = Vec::new();
        for step in steps {
            let check = |blocks: Range<u64>, result: Result<Vec<extern4_block::Buffer>>| {
                let inside = blocks.end <= 64;
                let whole = !blocks.clone().any(|block| broken.iter().any(|bad| bad.contains(&block)));
                match result {
                    Ok(buffers) => {
                        prop_assert!(inside && buffers.len() as u64 == blocks.end - blocks.start);
                        prop_assert!(buffers.iter().zip(blocks).all(|(b, n)| b.number() == n && holds_its_number(b)));
                    }
                    Err(Error::BlockOutOfRange { .. }) => prop_assert!(!inside),
                    Err(_) => prop_assert!(inside && !whole),
                }
                Ok(())
            };
            match step {
                Step::Read(block) => check(block..block + 1, cache.read(block).map(|buffer| vec![buffer]))?,
                Step::Many(start, len) => check(start..start + len, cache.read_many(start..start + len))?,
                Step::Ahead(start, len) => cache.read_ahead(start..start + len),
                Step::Break(range) => {
                    faults.inject(Fault::within(Op::Read, range.start * SIZE..range.end * SIZE, Effect::Error(EIO)));
                    broken.push(range);
                }
                Step::Heal => {
                    faults.heal();
                    broken.clear();
                }
            }
        }
    }
}

/// A device whose every read takes a while.
#[derive(Debug)]
struct Slow(Arc<FaultDevice>);

/// A device whose first reads panic.
#[derive(Debug)]
struct Panicking(AtomicU32, Arc<MemoryDevice>);

impl DeviceWrapper for Slow {
    type Inner = FaultDevice;

    fn inner(&self) -> &FaultDevice {
        &self.0
    }

    fn before_request(&self, op: Op, _range: Range<u64>) -> Result<()> {
        assert_eq!(op, Op::Read);
        thread::sleep(Duration::from_millis(30));
        Ok(())
    }
}

impl DeviceWrapper for Panicking {
    type Inner = MemoryDevice;

    fn inner(&self) -> &MemoryDevice {
        &self.1
    }

    fn before_request(&self, _op: Op, _range: Range<u64>) -> Result<()> {
        let no_panic = self
            .0
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_err();
        assert!(no_panic, "as the test wants");
        Ok(())
    }
}
