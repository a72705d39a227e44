//! Tests with eight threads on one buffer cache, in schedules that shuttle chooses. Loom explores
//! the table below the cache, in the tests of `extern4-sync` that have the same names.
#![cfg(feature = "shuttle")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use extern4_block::{
    BlockDevice, BufferCache, CacheBudget, CacheOptions, Error, Op, Result, read_each_at,
};
use extern4_sync::model::{Poisoning, race_many};
use extern4_sync::primitive::{AtomicU64, Mutex, Ordering, thread};
use extern4_sync::rcu::pin;

#[global_allocator]
static ALLOCATOR: Poisoning = Poisoning;

const THREADS: usize = 8;
const SIZE: usize = 512;
const BLOCKS: usize = 4;

/// A device in which each byte of a block is the block's number. Other threads run while it reads.
#[derive(Debug, Default)]
struct Numbered {
    /// Reads of each block.
    reads: [AtomicU64; BLOCKS],
    /// Reads that are still to fail.
    faults: AtomicU64,
}

impl Numbered {
    fn reads(&self) -> [u64; BLOCKS] {
        self.reads
            .each_ref()
            .map(|reads| reads.load(Ordering::Relaxed))
    }
}

impl BlockDevice for Numbered {
    fn size_bytes(&self) -> u64 {
        (BLOCKS * SIZE) as u64
    }

    fn sector_bytes(&self) -> u32 {
        512
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let number = offset as usize / SIZE;
        self.reads[number].fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
        let strike = |left: u64| left.checked_sub(1);
        if self
            .faults
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, strike)
            .is_ok()
        {
            return Err(Error::io(
                Op::Read,
                offset,
                SIZE as u64,
                std::io::Error::other("on purpose"),
            ));
        }
        buf.fill(number as u8);
        Ok(())
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        read_each_at(self, bufs, offset)
    }

    fn write_at(&self, _: &[u8], offset: u64) -> Result<()> {
        Err(Error::ReadOnly {
            op: Op::Write,
            offset,
        })
    }

    fn writes_whole(&self) -> bool {
        false
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        Err(Error::ReadOnly {
            op: Op::Discard,
            offset: range.start,
        })
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        Err(Error::ReadOnly {
            op: Op::WriteZeroes,
            offset: range.start,
        })
    }

    fn prefetch(&self, _range: Range<u64>) {}

    fn file_range(&self, _range: Range<u64>) -> Option<(&File, u64)> {
        None
    }

    fn forget(&self, _range: Range<u64>) {}

    fn name(&self) -> Option<&OsStr> {
        None
    }
}

/// Returns a device whose first `faults` reads fail, and a cache that keeps `kept` of its blocks.
fn device_and_cache(faults: u64, kept: usize) -> (Arc<Numbered>, BufferCache) {
    let device = Arc::new(Numbered {
        faults: AtomicU64::new(faults),
        ..Numbered::default()
    });
    let options = CacheOptions {
        block_size: SIZE as u32,
        block_count: BLOCKS as u64,
        budget: CacheBudget::new(kept as u64 * BufferCache::bytes_of_buffer(SIZE as u32)),
    };
    let cache = BufferCache::new(device.clone(), options).unwrap();
    (device, cache)
}

fn check(block: &[u8], number: u64) {
    assert!(
        block.len() == SIZE && block.iter().all(|&byte| u64::from(byte) == number),
        "block {number}"
    );
}

/// The cache has room for all blocks, so each block is read once, however many threads ask for it,
/// and by whatever method.
#[test]
fn buf_insert_vs_insert() {
    race_many(
        THREADS,
        || device_and_cache(0, BLOCKS),
        |(_, cache), index| match index {
            0 => cache.read_ahead(0..BLOCKS as u64),
            1..4 => {
                let buffers = cache.read_many(1..BLOCKS as u64).unwrap();
                buffers
                    .iter()
                    .zip(1..)
                    .for_each(|(buffer, number)| check(buffer, number));
            }
            _ => {
                let number = index as u64 % 2;
                cache.with(number, |block| check(block, number)).unwrap();
                let buffer = cache.read(number).unwrap();
                check(&buffer, number);
                let guard = pin();
                let found = cache.peek(number, &guard).expect("it has been read");
                assert!(std::ptr::eq(found, &*buffer), "two buffers of a block");
            }
        },
        |(device, cache)| {
            assert_eq!(device.reads(), [1; BLOCKS]);
            let stats = cache.stats();
            assert_eq!((stats.misses, stats.resident, stats.evictions), (4, 4, 0));
        },
    );
}

/// The cache has fewer buffers than blocks. All threads find the buffer that one of them holds, and
/// a guard protects what `peek` returns.
#[test]
fn buf_evict_vs_lookup() {
    race_many(
        THREADS,
        || device_and_cache(0, 2),
        |(_, cache), index| {
            for number in [index % BLOCKS, (index + 1) % BLOCKS].map(|number| number as u64) {
                let guard = pin();
                if let Some(block) = cache.peek(number, &guard) {
                    check(block, number);
                    thread::yield_now();
                    check(block, number);
                }
                drop(guard);
                let buffer = cache.read(number).unwrap();
                check(&buffer, number);
                // Others make room meanwhile.
                thread::yield_now();
                let again = cache.read(number).unwrap();
                assert!(std::ptr::eq(&*again, &*buffer), "two buffers of a block");
                check(&buffer, number);
            }
        },
        |(device, cache)| {
            let stats = cache.stats();
            assert_eq!(stats.misses, device.reads().iter().sum());
            assert_eq!(stats.resident, stats.allocations - stats.evictions);
            cache.read_many(0..BLOCKS as u64).unwrap();
        },
    );
}

/// A thread that gets an error finds no trace of it afterwards: its next read asks the device
/// again.
#[test]
fn buf_load_fail_waiters() {
    const FAULTS: u64 = 2;
    race_many(
        THREADS,
        || device_and_cache(FAULTS, 2),
        |(_, cache), _| {
            // At most `FAULTS` reads fail, whichever threads get the errors.
            let mut tries = (0..=FAULTS).map(|_| cache.read(1));
            check(
                &tries.find_map(Result::ok).expect("a failure is not kept"),
                1,
            );
        },
        |(device, cache)| {
            assert_eq!(device.reads()[1], FAULTS + 1);
            let stats = cache.stats();
            assert_eq!((stats.allocations, stats.resident), (FAULTS + 1, 1));
        },
    );
}

/// Buffers outlive the cache, and are freed with their last reference.
#[test]
fn buf_teardown_vs_retired() {
    race_many(
        THREADS,
        || Mutex::new(Some(Arc::new(device_and_cache(0, 2)))),
        |shared, index| {
            let number = (index % 2) as u64;
            let Some(both) = shared.lock().unwrap().clone() else {
                return;
            };
            let buffer = both.1.read(number).unwrap();
            let second = buffer.clone();
            if index % 4 == 0 {
                drop(shared.lock().unwrap().take());
            }
            drop(both);
            check(&buffer, number);
            drop(buffer);
            check(&second, number);
        },
        |shared| assert!(shared.lock().unwrap().is_none()),
    );
}

/// Threads change parts of one block, each its own, while other threads look at all of it. No
/// change is lost, and a thread that looks at the whole finds all earlier changes.
#[test]
fn part_vs_whole() {
    const PART: usize = SIZE / THREADS;
    const TIMES: u8 = 3;
    let tagged = || {
        let (_, cache) = device_and_cache(0, BLOCKS);
        let buffer = cache.read(0).unwrap();
        buffer.tag().store(1, Ordering::Relaxed);
        let pin = buffer.pin();
        (cache, pin)
    };
    race_many(
        THREADS,
        tagged,
        |(cache, block), index| {
            let range = index * PART..(index + 1) * PART;
            for time in 1..=TIMES {
                let change = |bytes: &mut [u8], unsealed: &mut [u32; 4]| {
                    assert!(bytes.iter().all(|&byte| byte == time - 1), "{bytes:?}");
                    bytes.fill(time);
                    unsealed[0] |= 1 << index;
                };
                assert!(
                    cache
                        .change_part_tagged(0, 1, range.clone(), change)
                        .is_ok()
                );
                match (index + usize::from(time)) % 4 {
                    0 => cache
                        .with(0, |bytes| assert_eq!(bytes[range.start], time))
                        .unwrap(),
                    1 => assert_eq!(block.snapshot()[range.end - 1], time),
                    2 => block.seal(|bytes, unsealed| {
                        assert_eq!(bytes[range.start], time);
                        assert!(unsealed[0] >> THREADS == 0);
                    }),
                    _ => {}
                }
            }
        },
        |(cache, block)| {
            block.seal(|_, _| ());
            assert!(
                cache
                    .with(0, |bytes| bytes.iter().all(|&byte| byte == TIMES))
                    .unwrap()
            );
            assert_eq!(block.buffer().unsealed(), [0; 4]);
        },
    );
}
