//! Shuttle tests: eight threads on one journal in memory, with the committing thread, in schedules
//! that shuttle chooses. The loom tests in `src/loom_tests.rs` explore all schedules of two
//! threads.
#![cfg(feature = "shuttle")]

use std::ops::Range;
use std::sync::Arc;

use extern4_block::{BlockDevice, BufferCache, CacheBudget, CacheOptions, MemoryDevice};
use extern4_disk::journal::{ChecksumVersion, Tid};
use extern4_jbd2::{Closing, Error, Journal, Observer, Options, Transactions};
use extern4_sync::model::{Poisoning, race_many};
use extern4_sync::primitive::{AtomicU64, Mutex, Ordering, thread};
use log::{LEN, Log, VOLUME};

#[global_allocator]
static ALLOCATOR: Poisoning = Poisoning;

#[path = "jbd2/log.rs"]
#[expect(dead_code, reason = "the journal's own tests use all of it")]
mod log;

const THREADS: usize = 8;
/// Operations of each thread.
const ROUNDS: u64 = 3;
/// Two blocks to which every operation makes the same change.
const TWINS: [u64; 2] = [10, 11];
/// The first of the blocks that each belong to one thread.
const OWN: u64 = 20;
/// Blocks that a transaction of this journal should not exceed.
const LIMIT: u32 = (LEN - 2) / 4;

/// An observer that checks that the twins are equal when a transaction closes, and collects the
/// freed blocks.
#[derive(Default)]
struct Witness {
    cache: std::sync::OnceLock<Arc<BufferCache>>,
    freed: Mutex<Vec<u64>>,
    last: AtomicU64,
}

impl Observer for Witness {
    fn committed(&self, _tid: Tid, freed: &[Range<u64>]) {
        self.freed
            .lock()
            .unwrap()
            .extend(freed.iter().cloned().flatten());
    }

    fn closing(&self, closing: &Closing<'_>) {
        let cache = self.cache.get().expect("set at first");
        let twins = TWINS.map(|block| count(&cache.read(block).expect("readable")));
        assert_eq!(twins[0], twins[1], "half of an operation");
        // Transactions close one after the other.
        let tid = u64::from(closing.tid().0);
        assert!(self.last.swap(tid, Ordering::Relaxed) < tid);
    }
}

struct World {
    device: Arc<dyn BlockDevice>,
    cache: Arc<BufferCache>,
    witness: Arc<Witness>,
    transactions: Transactions,
}

fn count(block: &[u8]) -> u64 {
    u64::from_le_bytes(block[8..16].try_into().expect("8 bytes"))
}

fn add(block: &mut [u8]) {
    let sum = count(block) + 1;
    block[8..16].copy_from_slice(&sum.to_le_bytes());
}

fn journal(device: &Arc<dyn BlockDevice>) -> Journal<Arc<dyn BlockDevice>> {
    Journal::internal(Arc::clone(device), 1024, Log::map()).expect("a journal")
}

impl World {
    fn new() -> Self {
        let mut log = Log::starting_at(ChecksumVersion::V3, true, 1, Tid(7));
        log.superblock.start = None;
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(log.volume()));
        let options = CacheOptions {
            block_size: 1024,
            block_count: VOLUME,
            budget: CacheBudget::new(64 << 10),
        };
        let cache = Arc::new(BufferCache::new(Arc::clone(&device), options).expect("a cache"));
        let witness = Arc::new(Witness::default());
        assert!(witness.cache.set(Arc::clone(&cache)).is_ok());
        let observer: Arc<dyn Observer> = Arc::clone(&witness) as _;
        let patient = Options {
            interval: std::time::Duration::from_secs(1000),
        };
        let transactions =
            Transactions::journaled(Arc::clone(&cache), observer, journal(&device), patient)
                .expect("empty");
        Self {
            device,
            cache,
            witness,
            transactions,
        }
    }

    /// Raises both twins and the thread's own block.
    fn operate(&self, index: usize, credits: u32) -> Result<Tid, Error> {
        let handle = self.transactions.start(credits)?;
        handle.edit(TWINS[0], |bytes, _| add(bytes))?;
        thread::yield_now();
        handle.edit(OWN + index as u64, |bytes, _| add(bytes))?;
        handle.edit(TWINS[1], |bytes, _| add(bytes))?;
        Ok(handle.tid())
    }

    /// Returns the number in block `block` of the device after a replay.
    fn recovered(&self, block: u64) -> u64 {
        let recovered = journal(&self.device).recover(VOLUME).expect("a sound log");
        assert_eq!(recovered.damage(), []);
        recovered.write_in_place(&self.device).expect("written");
        let mut bytes = [0; 1024];
        self.device
            .read_at(&mut bytes, block * 1024)
            .expect("readable");
        count(&bytes)
    }
}

/// Small and large operations, threads that make everything durable, and threads that free blocks:
/// the log holds all of them at the end.
#[test]
fn handles_and_commits() {
    race_many(
        THREADS,
        World::new,
        |world, index| {
            for round in 0..ROUNDS {
                let credits = if index == 7 {
                    3 * LIMIT
                } else {
                    3 + index as u32 * 20
                };
                let tid = world.operate(index, credits).expect("open");
                match (index, round) {
                    (0, _) => world.transactions.commit(tid).expect("written"),
                    (1, 1) => world.transactions.sync().expect("written"),
                    (2, 1) => world.transactions.begin_sync(),
                    (3, _) => {
                        let handle = world.transactions.start(1).expect("open");
                        let block = 50 + round;
                        handle.revoke(block..block + 1);
                        handle.free(block..block + 1);
                        assert!(!tid.is_after(handle.tid()));
                    }
                    _ => {}
                }
                if index == 0 {
                    // The transaction is durable now.
                    assert!(
                        world
                            .cache
                            .read(OWN)
                            .is_ok_and(|block| count(&block) == round + 1)
                    );
                }
            }
        },
        |world| {
            world.transactions.sync().expect("written");
            let stats = world.transactions.stats();
            assert_eq!(stats.handles, (THREADS as u64 + 1) * ROUNDS);
            assert_eq!(*world.witness.freed.lock().unwrap(), [50, 51, 52]);
            world.transactions.abort_and_wait("of a test");
            for block in TWINS {
                assert_eq!(world.recovered(block), THREADS as u64 * ROUNDS);
            }
        },
    );
}

/// One thread aborts in the middle of an operation: recovery never finds that operation, and no
/// thread waits for ever.
#[test]
fn handles_and_abort() {
    race_many(
        THREADS,
        World::new,
        |world, index| {
            for round in 0..ROUNDS {
                if (index, round) == (0, 1) {
                    let Ok(handle) = world.transactions.start(3) else {
                        return;
                    };
                    handle
                        .edit(TWINS[0], |bytes, _| add(bytes))
                        .expect("readable");
                    world.transactions.abort("of a test");
                    drop(handle);
                    assert!(matches!(
                        world.transactions.start(1),
                        Err(Error::Aborted(_))
                    ));
                    return;
                }
                let done = world.operate(index, 3 + index as u32 * 10);
                let synced = if index == 1 {
                    world.transactions.sync()
                } else {
                    Ok(())
                };
                match done.and(synced) {
                    Ok(()) => {}
                    Err(error) => return assert!(matches!(error, Error::Aborted(_))),
                }
            }
        },
        |world| {
            world.transactions.abort_and_wait("of a test");
            let [first, second] = TWINS.map(|block| world.recovered(block));
            assert!(first == second && first < THREADS as u64 * ROUNDS);
        },
    );
}

/// Closing waits for the operations that have begun, and refuses the others.
#[test]
fn handles_and_close() {
    race_many(
        THREADS,
        World::new,
        |world, index| {
            if index == 0 {
                world.operate(index, 3).expect("open");
                return world.transactions.close().expect("written");
            }
            for _ in 0..ROUNDS {
                let done = world.operate(index, 40);
                assert!(matches!(done, Ok(_) | Err(Error::Closed)));
            }
        },
        |world| {
            let device = journal(&world.device);
            assert!(!device.is_dirty());
            let sum = (OWN..OWN + THREADS as u64)
                .map(|block| world.recovered(block))
                .sum::<u64>();
            assert_eq!(sum, world.recovered(TWINS[0]));
            assert_eq!(sum, world.transactions.stats().handles);
        },
    );
}
