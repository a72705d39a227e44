//! Tests of commits: their writes and flushes, the events they wait for, and the calls of the
//! observer.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use extern4_block::device::fault::{Effect, Fault};
use extern4_block::{BlockDevice, CrashDevice, FaultDevice, MemoryDevice, Op, RecordDevice};
use extern4_disk::journal::{ChecksumVersion, JournalSuperblock, Tid};
use extern4_jbd2::{Closing, Error, Journal, Observer, Options, Transactions};

use crate::log::{BLOCK, Log, VOLUME};
use crate::world::{Freed, PATIENT, World, cache, contents, recover, volume};

fn open(
    device: &Arc<dyn BlockDevice>,
    options: Options,
) -> (Arc<extern4_block::BufferCache>, Arc<Freed>, Transactions) {
    let journal = Journal::internal(Arc::clone(device), 1024, Log::map()).expect("a journal");
    let cache = cache(Arc::clone(device));
    let freed = Arc::<Freed>::default();
    let observer: Arc<dyn Observer> = Arc::clone(&freed) as _;
    let transactions =
        Transactions::journaled(Arc::clone(&cache), observer, journal, options).expect("empty");
    (cache, freed, transactions)
}

fn fill(
    cache: &extern4_block::BufferCache,
    transactions: &Transactions,
    block: u64,
    stamp: u64,
) -> Tid {
    let handle = transactions.start(1).expect("open");
    let mut buffer = cache.read(block).expect("readable");
    handle.change(&mut buffer, |bytes, _| {
        bytes.copy_from_slice(&contents(stamp))
    });
    handle.tid()
}

#[test]
fn a_commit_is_two_flushes_however_much_it_holds() {
    let device = Arc::new(RecordDevice::new(Arc::new(MemoryDevice::new(volume(
        ChecksumVersion::V3,
        true,
    )))));
    let (cache, _, transactions) = open(&(Arc::clone(&device) as _), PATIENT);
    for (round, operations) in (0..).zip([1, 10, 100]) {
        let before = device.counts();
        for operation in 0..operations {
            fill(
                &cache,
                &transactions,
                10 + operation,
                round * 1000 + operation,
            );
        }
        assert_eq!(
            device.counts().writes,
            before.writes,
            "an operation is no I/O"
        );
        transactions.sync().expect("written");
        assert_eq!(device.counts().flushes - before.flushes, 2);
        // The log's blocks in one piece, the commit block, and once the superblock.
        assert!(device.counts().writes - before.writes <= 3);
    }
    let before = device.counts();
    transactions.sync().expect("flushed");
    assert_eq!(
        (
            device.counts().flushes - before.flushes,
            device.counts().writes - before.writes
        ),
        (1, 0)
    );
    let stats = transactions.stats();
    assert_eq!(
        (
            stats.transactions,
            stats.handles,
            stats.blocks_logged,
            stats.flushes
        ),
        (3, 111, 111, 7)
    );
}

/// A flush that fails may have lost the writes of all threads that wait for it, even if the next
/// flush would succeed.
#[test]
fn a_flush_that_fails_fails_for_all_waiting_threads() {
    const WAITING: usize = 3;
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let faulty = Arc::new(FaultDevice::new(device));
    let (_cache, _, transactions) = open(&(Arc::clone(&faulty) as _), PATIENT);
    faulty.inject(Fault::nth(
        Op::Flush,
        0,
        Effect::Delay(Duration::from_millis(400)),
    ));
    faulty.inject(Fault::nth(Op::Flush, 1, Effect::Error(5)));
    let before = transactions.next_flush();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| transactions.flush(before));
        while transactions.next_flush() == before {
            std::thread::yield_now();
        }
        // The flush has begun, so these threads wait for the next one.
        let flush = || transactions.flush(transactions.next_flush());
        let waiting: Vec<_> = (0..WAITING).map(|_| scope.spawn(flush)).collect();
        let flushed = waiting
            .into_iter()
            .filter_map(|thread| thread.join().expect("no panic").ok());
        assert_eq!(flushed.count(), 0, "of {WAITING}");
        slow.join().expect("no panic").expect("flushed");
    });
    assert!(
        transactions.start(1).is_err(),
        "nothing can be changed any more"
    );
    transactions.flush(before).expect("it is durable still");
}

#[test]
fn many_syncs_share_a_commit() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let slow = Arc::new(FaultDevice::new(device));
    slow.inject(Fault::every(
        Op::Flush,
        Effect::Delay(Duration::from_millis(20)),
    ));
    let (cache, _, transactions) = open(&(slow as _), PATIENT);
    // No thread asks for a commit before all have changed something, so each round is one
    // transaction.
    let all_have_changed = Barrier::new(16);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let cache = &cache;
            let transactions = &transactions;
            let all_have_changed = &all_have_changed;
            scope.spawn(move || {
                for round in 0..5 {
                    let tid = fill(cache, transactions, 10 + thread, round);
                    all_have_changed.wait();
                    transactions.commit(tid).expect("written");
                }
            });
        }
    });
    let stats = transactions.stats();
    assert!(
        stats.transactions == 5 && stats.flushes <= 2 * stats.transactions,
        "80 syncs: {stats:?}"
    );
}

#[test]
fn a_timer_commits_without_a_sync() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, _, transactions) = open(
        &device,
        Options {
            interval: Duration::from_millis(30),
        },
    );
    let tid = fill(&cache, &transactions, 10, 1);
    let begun = Instant::now();
    while transactions.stats().transactions == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    transactions.commit(tid).expect("durable");
    assert_eq!(transactions.stats().flushes, 2);
}

#[test]
fn much_file_data_is_committed_without_being_asked_for() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, _, transactions) = open(&device, PATIENT);
    let tid = fill(&cache, &transactions, 10, 1);
    let until = |count| {
        let begun = Instant::now();
        while transactions.stats().transactions < count {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    transactions.note_data(1 << 20);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(
        transactions.stats().transactions,
        0,
        "a little is no reason"
    );
    (0..64).for_each(|_| transactions.note_data(1 << 20));
    until(1);
    transactions.commit(tid).expect("durable");
    assert_eq!(transactions.stats().transactions, 1);
    // No thread needs to wait for a commit that was only begun.
    fill(&cache, &transactions, 10, 2);
    transactions.begin_sync();
    until(2);
}

#[test]
fn a_transaction_that_grows_large_is_committed() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::None, false)));
    let (cache, _, transactions) = open(&device, PATIENT);
    // More blocks than the volume has, so that the log wraps, and never a sync.
    for round in 0..60 {
        for block in 10..160 {
            fill(&cache, &transactions, block, round * 1000 + block);
        }
        let handle = transactions.start(400).expect("room");
        assert!(!handle.extend(1000));
    }
    let stats = transactions.stats();
    println!("{stats:?}");
    assert!(stats.transactions >= 5, "{stats:?}");
    transactions.close().expect("written");
    assert!((10..160).all(|block| device_block(&device, block) == contents(59000 + block)));
}

#[test]
fn a_handle_may_change_more_than_it_said_but_not_more_than_the_log() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::None, false)));
    let (cache, _, transactions) = open(&device, PATIENT);
    let handle = transactions.start(1).expect("open");
    for block in 0..150 {
        let mut buffer = cache.read(block).expect("readable");
        handle.change(&mut buffer, |bytes, _| bytes.fill(3));
    }
    drop(handle);
    transactions.sync().expect("it fits");
    let handle = transactions.start(1).expect("open");
    for block in 0..VOLUME {
        let mut buffer = cache.read(block).expect("readable");
        handle.change(&mut buffer, |bytes, _| bytes.fill(3));
    }
    drop(handle);
    assert!(matches!(transactions.sync(), Err(Error::TooLarge { .. })));
    assert!(matches!(transactions.start(1), Err(Error::TooLarge { .. })));
}

/// The revoked blocks may be blocks of the map of a huge file that was there before the volume was
/// opened.
#[test]
fn a_revoked_block_without_a_copy_takes_no_room_in_the_log() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::None, false)));
    let (cache, _, transactions) = open(&device, PATIENT);
    transactions.start(1).expect("open").revoke(0..300_000);
    transactions.sync().expect("it fits");
    fill(&cache, &transactions, 10, 7);
    transactions.close().expect("written");
    assert_eq!(device_block(&device, 10), contents(7));
}

fn device_block(device: &Arc<dyn BlockDevice>, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    device.read_at(&mut bytes, block * 1024).expect("readable");
    bytes
}

#[test]
fn without_a_journal_a_commit_writes_home() {
    let device = Arc::new(CrashDevice::new(vec![0; 200 << 10]));
    let options = extern4_block::CacheOptions {
        block_size: 1024,
        block_count: 200,
        budget: extern4_block::CacheBudget::new(0),
    };
    let cache = Arc::new(
        extern4_block::BufferCache::new(Arc::clone(&device) as _, options).expect("a cache"),
    );
    let freed = Arc::<Freed>::default();
    let transactions =
        Transactions::new(Arc::clone(&cache), Arc::clone(&freed) as Arc<dyn Observer>);
    for block in (0..100).rev() {
        fill(&cache, &transactions, block, block + 1);
    }
    transactions.start(1).expect("open").free(7..9);
    let gone = transactions.start(1).expect("open");
    gone.revoke(50..51);
    drop(gone);
    assert_eq!(device.moment(), 0);
    transactions.sync().expect("written");
    let moment = device.moment();
    assert_eq!(
        (
            device.flushes(moment),
            *freed.0.lock().expect("no panic") == [7, 8]
        ),
        (2, true)
    );
    // Two runs, around the block that was revoked.
    assert_eq!(moment, 4);
    let bytes: Arc<dyn BlockDevice> = Arc::new(device.crash(moment, |_| false));
    assert!(
        (0..100)
            .filter(|block| *block != 50)
            .all(|block| device_block(&bytes, block) == contents(block + 1))
    );
    transactions.close().expect("closed");
}

#[test]
fn freed_blocks_are_told_when_their_transaction_is_durable() {
    let device = Arc::new(CrashDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, freed, transactions) = open(&(Arc::clone(&device) as _), PATIENT);
    fill(&cache, &transactions, 10, 1);
    transactions.sync().expect("written");
    let handle = transactions.start(2).expect("open");
    handle.revoke(10..11);
    handle.free(10..11);
    handle.free(30..33);
    drop(handle);
    assert!(freed.0.lock().expect("no panic").is_empty());
    transactions.sync().expect("written");
    assert_eq!(*freed.0.lock().expect("no panic"), [10, 30, 31, 32]);
    assert_eq!(transactions.stats().revokes, 1);
    // The block is data now, so neither a checkpoint nor a replay may touch it.
    cache.write(10, &contents(77)).expect("written");
    transactions.sync().expect("flushed");
    let crashed: Arc<dyn BlockDevice> = Arc::new(device.crash(device.moment(), |_| true));
    recover(&crashed);
    assert!(device_block(&crashed, 10) == contents(77));
    transactions.close().expect("closed");
    let closed: Arc<dyn BlockDevice> = device;
    assert!(device_block(&closed, 10) == contents(77));
}

/// A block that has been checkpointed may be written without the log, though it was never revoked.
#[test]
fn checkpointed_blocks_are_in_place_and_not_replayed() {
    let device = Arc::new(CrashDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, _, transactions) = open(&(Arc::clone(&device) as _), PATIENT);
    for checkpoints in [false, true] {
        fill(&cache, &transactions, 10, 1);
        fill(&cache, &transactions, 11, 5);
        if checkpoints {
            transactions.checkpoint_all().expect("written");
            let home: Arc<dyn BlockDevice> = Arc::new(device.crash(device.moment(), |_| false));
            assert!(
                device_block(&home, 10) == contents(1) && device_block(&home, 11) == contents(5)
            );
        } else {
            transactions.sync().expect("written");
        }
        cache.write(10, &contents(77)).expect("written");
        cache.device().flush().expect("flushed");
        let crashed: Arc<dyn BlockDevice> = Arc::new(device.crash(device.moment(), |_| false));
        recover(&crashed);
        assert!(device_block(&crashed, 10) == contents(if checkpoints { 77 } else { 1 }));
        assert!(device_block(&crashed, 11) == contents(5));
    }
    // The second call has nothing to write, and no call succeeds after the end.
    transactions.checkpoint_all().expect("written");
    transactions.close().expect("closed");
    assert!(matches!(transactions.checkpoint_all(), Err(Error::Closed)));
}

#[test]
fn a_checkpoint_waits_for_earlier_changes_only() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, _, transactions) = open(
        &device,
        Options {
            interval: Duration::from_millis(2),
        },
    );
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            let transactions = &transactions;
            let device = &device;
            scope.spawn(move || {
                for round in 1..40 {
                    fill(cache, transactions, 10 + thread, round);
                    transactions.checkpoint_all().expect("written");
                    assert!(
                        device_block(device, 10 + thread) == contents(round),
                        "{thread} {round}"
                    );
                }
            });
        }
    });
    transactions.close().expect("closed");
}

#[test]
fn a_revoked_block_that_is_metadata_again_is_replayed() {
    let device = Arc::new(CrashDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, _, transactions) = open(&(Arc::clone(&device) as _), PATIENT);
    fill(&cache, &transactions, 10, 1);
    transactions.sync().expect("written");
    let handle = transactions.start(2).expect("open");
    handle.revoke(10..11);
    let mut buffer = handle.fresh(10).expect("inside");
    handle.change(&mut buffer, |bytes, _| bytes.copy_from_slice(&contents(2)));
    drop(handle);
    transactions.sync().expect("written");
    assert_eq!(transactions.stats().revokes, 0);
    let crashed: Arc<dyn BlockDevice> = Arc::new(device.crash(device.moment(), |_| true));
    recover(&crashed);
    assert!(device_block(&crashed, 10) == contents(2));
}

#[test]
fn many_threads_never_wait_for_ever() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, _, transactions) = open(
        &device,
        Options {
            interval: Duration::from_millis(2),
        },
    );
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let cache = &cache;
            let transactions = &transactions;
            scope.spawn(move || {
                let mut random = crate::hostile::Random(thread * 77 + 1);
                for _ in 0..1500 {
                    let credits = u32::try_from(random.next() % 120 + 1).expect("small");
                    let handle = transactions.start(credits).expect("open");
                    for _ in 0..random.next() % u64::from(credits) % 12 {
                        let mut buffer = cache.read(10 + random.next() % 100).expect("readable");
                        handle.change(&mut buffer, |bytes, _| {
                            let count =
                                u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) + 1;
                            bytes[..8].copy_from_slice(&count.to_le_bytes());
                        });
                    }
                    let mut buffer = cache.read(120 + thread).expect("readable");
                    handle.change(&mut buffer, |bytes, _| bytes[0] = bytes[0].wrapping_add(1));
                    let tid = handle.tid();
                    drop(handle);
                    match random.next() % 40 {
                        0 => transactions.sync().expect("written"),
                        1 => transactions.commit(tid).expect("written"),
                        _ => {}
                    }
                }
            });
        }
    });
    let stats = transactions.stats();
    println!("{stats:?}");
    transactions.close().expect("written");
    assert_eq!(stats.handles, 8 * 1500);
    assert!((0..8).all(|thread| device_block(&device, 120 + thread)[0] == (1500 % 256) as u8));
}

#[test]
fn aborting_wakes_all_waiting_threads() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let (_, _, transactions) = open(&device, PATIENT);
    std::thread::scope(|scope| {
        let handle = transactions.start(1).expect("open");
        let waiters: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| transactions.sync()))
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        transactions.abort("of a test");
        for waiter in waiters {
            assert!(matches!(waiter.join(), Ok(Err(Error::Aborted(_)))));
        }
        drop(handle);
    });
    assert!(matches!(transactions.start(1), Err(Error::Aborted(_))));
    let journal = Journal::internal(device, 1024, Log::map()).expect("a journal");
    assert!(!journal.is_dirty() && journal.superblock().errno == 0);
}

#[test]
fn damage_is_noted_in_the_journal_unless_it_was_aborted_before() {
    for (is_aborted, errno) in [(false, JournalSuperblock::EUCLEAN), (true, 0)] {
        let device: Arc<dyn BlockDevice> =
            Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
        let (_, _, transactions) = open(&device, PATIENT);
        if is_aborted {
            transactions.abort("of a test");
        }
        transactions.abort_damaged("of a test");
        assert!(transactions.start(1).is_err());
        let journal = Journal::internal(device, 1024, Log::map()).expect("a journal");
        assert_eq!(
            journal.superblock().errno,
            errno,
            "aborted before: {is_aborted}"
        );
    }
}

#[test]
fn a_dirty_journal_is_refused() {
    let log = Log::new(ChecksumVersion::V3, true);
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(log.volume()));
    let journal = Journal::internal(Arc::clone(&device), 1024, Log::map()).expect("a journal");
    let refused = Transactions::journaled(cache(device), Arc::<Freed>::default(), journal, PATIENT);
    assert!(matches!(refused, Err(Error::Dirty)));
}

#[test]
fn a_world_can_be_closed_and_opened_again_and_again() {
    let device = Arc::new(CrashDevice::new(volume(ChecksumVersion::V1, false)));
    let mut tids = Vec::new();
    for seed in 1..4 {
        let mut world = World::new(Arc::clone(&device) as _, PATIENT, seed);
        tids.push(world.transactions.start(1).expect("open").tid());
        for _ in 0..5 {
            world.operate(5).ok();
            world.sync(|| 0).expect("written");
        }
        world.transactions.close().expect("closed");
        if seed == 1 {
            assert_eq!(
                world.judge(Arc::new(device.crash(device.moment(), |_| true)), 0),
                5
            );
        }
        // The model of the next world begins with an empty volume.
        extern4_block::BlockWriter::write_bytes(&*device, 0, &vec![0; 170 << 10]).expect("written");
    }
    assert_eq!(
        tids,
        [0, 5, 10].map(|n: u32| Tid((u32::MAX - 20).wrapping_add(n)))
    );
}

#[test]
fn no_copy_in_the_log_looks_like_a_block_of_its_own() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V2, true)));
    let (cache, _, transactions) = open(&device, PATIENT);
    for block in 10..30 {
        fill(&cache, &transactions, block, 5 * block);
    }
    transactions.sync().expect("written");
    drop(transactions);
    let magic = extern4_disk::journal::MAGIC.to_be_bytes();
    let blocks = (1..1024).filter(|index| {
        let physical = Log::map().lookup(*index).expect("mapped");
        device_block(&device, physical).starts_with(&magic)
    });
    // The descriptor and the commit block.
    assert_eq!(blocks.collect::<Vec<_>>(), [1, 22]);
    recover(&device);
    assert!((10..30).all(|block| device_block(&device, block).starts_with(&magic)));
}

/// Writes a total into block 3 when a transaction closes.
struct Total(Arc<extern4_block::BufferCache>, Mutex<Vec<Tid>>);

impl Observer for Total {
    fn committed(&self, _tid: Tid, _freed: &[std::ops::Range<u64>]) {}

    fn closing(&self, closing: &Closing<'_>) {
        let mut buffer = self.0.read(3).expect("readable");
        closing.change(&mut buffer, |bytes| bytes[0] += 1);
        self.1.lock().expect("no panic").push(closing.tid());
    }
}

#[test]
fn the_observer_has_the_last_word_in_a_transaction() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let journal = Journal::internal(Arc::clone(&device), 1024, Log::map()).expect("a journal");
    let cache = cache(Arc::clone(&device));
    let total = Arc::new(Total(Arc::clone(&cache), Mutex::default()));
    let observer: Arc<dyn Observer> = Arc::clone(&total) as _;
    let transactions =
        Transactions::journaled(Arc::clone(&cache), observer, journal, PATIENT).expect("empty");
    let tids: Vec<_> = (0..3)
        .map(|round| {
            let tid = fill(&cache, &transactions, 10, round);
            transactions.sync().expect("written");
            // The next transaction is empty, so the observer is not called for it.
            transactions.sync().expect("flushed");
            tid
        })
        .collect();
    assert_eq!(
        (&tids, transactions.stats().blocks_logged),
        (&*total.1.lock().expect("no panic"), 6)
    );
    drop(transactions);
    recover(&device);
    assert_eq!(
        (
            device_block(&device, 3)[0],
            device_block(&device, 10) == contents(2)
        ),
        (3, true)
    );
}

#[test]
fn a_handle_may_be_dropped_by_another_thread() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, _, transactions) = open(&device, PATIENT);
    fill(&cache, &transactions, 10, 1);
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::sync_channel(0);
        scope.spawn(move || receiver.into_iter().for_each(drop));
        for _ in 0..2000 {
            sender
                .send(transactions.start(20).expect("open"))
                .expect("a receiver");
        }
    });
    // None of the credits that they have not used are lost.
    drop(transactions.start(480).expect("open"));
    assert_eq!(
        (transactions.stats().handles, transactions.stats().flushes),
        (2002, 0)
    );
}

#[test]
fn unused_credits_of_idle_threads_can_be_used() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, _, transactions) = open(&device, PATIENT);
    let all = std::sync::Barrier::new(40);
    std::thread::scope(|scope| {
        for thread in 0..40 {
            let cache = &cache;
            let transactions = &transactions;
            let all = &all;
            scope.spawn(move || {
                // Together they are more than a transaction has room for.
                drop(transactions.start(30).expect("open"));
                all.wait();
                fill(cache, transactions, 10 + thread, 1);
                all.wait();
            });
        }
    });
    let handle = transactions.start(400).expect("open");
    assert!(handle.extend(50) && !handle.extend(50));
    drop(handle);
    assert_eq!(
        (transactions.stats().handles, transactions.stats().flushes),
        (81, 0)
    );
    // After the commit the count of credits begins again at zero.
    transactions.sync().expect("written");
    drop(transactions.start(250).expect("open"));
    assert_eq!(transactions.stats().blocks_logged, 40);
}

#[test]
fn an_operation_that_needs_a_transaction_of_its_own_gets_it() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, _, transactions) = open(&device, PATIENT);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cache = &cache;
        let transactions = &transactions;
        let over = &over;
        let small: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    let mut rounds = 0;
                    while !over.load(Relaxed) {
                        fill(cache, transactions, 10 + thread, rounds);
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let large: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let handle = transactions.start(700).expect("open");
                        let mut buffer = cache.read(50).expect("readable");
                        handle.change(&mut buffer, |bytes, _| bytes[9] += 1);
                    }
                })
            })
            .collect();
        large
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
        over.store(true, Relaxed);
        let rounds: u64 = small
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum();
        println!(
            "100 large and {rounds} small operations: {:?}",
            transactions.stats()
        );
        assert!(rounds > 0);
    });
    transactions.close().expect("written");
    assert_eq!(device_block(&device, 50)[9], 100);
}

#[test]
#[ignore = "measures, and judges nothing"]
fn costs_of_handles() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let (cache, _, transactions) = open(&device, PATIENT);
    for threads in [1, 2] {
        let rounds = 200_000_u32;
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let cache = &cache;
                let transactions = &transactions;
                scope.spawn(move || {
                    let mut buffer = cache.read(10 + thread).expect("readable");
                    for _ in 0..rounds {
                        let handle = transactions.start(1).expect("open");
                        handle.change(&mut buffer, |bytes, _| bytes[0] = bytes[0].wrapping_add(1));
                    }
                });
            }
        });
        println!(
            "{threads} threads: a handle with a change takes {:?}",
            begun.elapsed() / rounds
        );
    }
    let mut buffer = cache.read(10).expect("readable");
    let handle = transactions.start(1).expect("open");
    let rounds = 200_000_u32;
    let begun = Instant::now();
    for _ in 0..rounds {
        handle.change(&mut buffer, |bytes, _| bytes[0] = bytes[0].wrapping_add(1));
    }
    println!(
        "a change of a block that is part of the transaction takes {:?}",
        begun.elapsed() / rounds
    );
    drop(handle);
    let rounds = 500_u32;
    let begun = Instant::now();
    for round in 0..rounds {
        fill(&cache, &transactions, 10, round.into());
        transactions.sync().expect("written");
    }
    println!("a sync in memory takes {:?}", begun.elapsed() / rounds);
}
