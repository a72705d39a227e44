//! Tests of crashes: recovery yields a committed state, none older than the last sync, whatever the
//! crash left on the device.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use extern4_block::device::crash::PendingSector;
use extern4_block::device::fault::{Effect, Fault, FaultDevice};
use extern4_block::{
    BlockDevice, BufferCache, CacheBudget, CacheOptions, CrashDevice, MemoryDevice, Op,
};
use extern4_disk::journal::ChecksumVersion;
use extern4_jbd2::{Error, Handle, Journal, Options, Transactions};

use crate::hostile::Random;
use crate::log::{BLOCK, Log, VOLUME};
use crate::world::{Freed, PATIENT, World, cache, contents, recover, volume};

pub(crate) const VERSIONS: [(ChecksumVersion, bool); 6] = [
    (ChecksumVersion::None, false),
    (ChecksumVersion::V1, false),
    (ChecksumVersion::V2, false),
    (ChecksumVersion::V2, true),
    (ChecksumVersion::V3, false),
    (ChecksumVersion::V3, true),
];

/// Runs operations on a volume that may crash. One operation changes at most `most` blocks, and
/// every `each` operations a sync follows.
fn work(
    version: (ChecksumVersion, bool),
    seed: u64,
    operations: u64,
    most: u64,
    each: u64,
) -> (Arc<CrashDevice>, World) {
    let device = Arc::new(CrashDevice::new(volume(version.0, version.1)));
    let mut world = World::new(Arc::clone(&device) as _, PATIENT, seed);
    for _ in 0..operations {
        world.operate(most).expect("no fault");
        if world.below(each) == 0 {
            world.sync(|| device.moment()).expect("no fault");
        }
    }
    (device, world)
}

/// Checks the states that a crash at `moment` may leave: no write kept, all kept, and random
/// subsets.
pub(crate) fn explore(device: &CrashDevice, world: &World, moment: usize, chances: u32) -> u32 {
    let mut random = Random(moment as u64 * 0x9E37_79B9 + 1);
    let judge = |keep: &mut dyn FnMut(PendingSector) -> bool| {
        world.judge(Arc::new(device.crash(moment, keep)), moment);
    };
    judge(&mut |_| true);
    if device.is_flushed(moment) {
        return 1;
    }
    judge(&mut |_| false);
    for _ in 0..chances {
        // From nearly all lost to nearly all kept.
        let odds = random.next() % 15 + 1;
        judge(&mut |_| random.next() % 16 < odds);
    }
    chances + 2
}

#[test]
fn every_crash_is_recovered_to_a_committed_state() {
    for (seed, version) in (1..).zip(VERSIONS) {
        let (device, world) = work(version, seed, 60, 12, 3);
        let states: u32 = (0..=device.moment())
            .map(|moment| explore(&device, &world, moment, 4))
            .sum();
        println!(
            "{version:?}: {} moments, {states} states, {:?}",
            device.moment(),
            world.transactions.stats()
        );
    }
}

#[test]
fn a_log_that_wraps_is_recovered_after_every_crash() {
    let mut states = 0;
    let mut revokes = 0;
    let mut data = 0;
    for (seed, version) in (100..).zip(VERSIONS) {
        let (device, world) = work(version, seed, 300, 60, 2);
        let stats = world.transactions.stats();
        assert!(
            stats.bytes_logged > 3 * 1024 * 1024 && stats.checkpoints > 5,
            "{stats:?}"
        );
        // A check of every moment of such a long history would take minutes.
        let mut random = Random(seed);
        for moment in 0..=device.moment() {
            if random.next().is_multiple_of(4) {
                states += explore(&device, &world, moment, 2);
            }
        }
        revokes += stats.revokes;
        data += world.data_blocks();
    }
    println!("{states} states, {revokes} revokes, {data} blocks given to files");
    assert!(revokes > 50 && data > 100);
}

#[test]
fn a_volume_goes_on_after_a_crash() {
    let (device, world) = work(VERSIONS[5], 7, 40, 20, 4);
    drop(world);
    let crashed: Arc<dyn BlockDevice> =
        Arc::new(device.crash(device.moment(), |pending| pending.sector % 3 == 0));
    recover(&crashed);
    // A second history, on the same log with other numbers.
    let journal = Journal::internal(Arc::clone(&crashed), 1024, Log::map()).expect("a journal");
    let tid = journal.superblock().sequence;
    let cache = cache(Arc::clone(&crashed));
    let transactions = Transactions::journaled(
        Arc::clone(&cache),
        Arc::<Freed>::default(),
        journal,
        PATIENT,
    )
    .expect("empty");
    let handle = transactions.start(1).expect("open");
    assert_eq!(handle.tid(), tid);
    let mut buffer = cache.read(5).expect("readable");
    handle.change(&mut buffer, |bytes, _| bytes.fill(9));
    drop(handle);
    transactions.sync().expect("written");
    drop(transactions);
    let journal = Journal::internal(Arc::clone(&crashed), 1024, Log::map()).expect("a journal");
    let recovered = journal.recover(VOLUME).expect("sound");
    assert_eq!(recovered.blocks().collect::<Vec<_>>(), [5]);
}

#[test]
fn a_closed_journal_needs_no_recovery() {
    let (device, mut world) = work(VERSIONS[0], 3, 30, 20, 5);
    world.operate(5).expect("no fault");
    let before = device.moment();
    world.transactions.close().expect("no fault");
    let moment = device.moment();
    assert!(device.is_flushed(moment));
    for moment in before..moment {
        explore(&device, &world, moment, 20);
    }
    let crashed: Arc<dyn BlockDevice> = Arc::new(device.crash(moment, |_| false));
    let journal = Journal::internal(Arc::clone(&crashed), 1024, Log::map()).expect("a journal");
    assert!(!journal.is_dirty());
    assert_eq!(world.judge(crashed, moment), world.states.len() - 1);
    assert!(matches!(world.transactions.start(1), Err(Error::Closed)));
    world.transactions.close().expect("closed already");
    drop(world);
    assert_eq!(
        device.moment(),
        moment,
        "something was written after the end"
    );
}

#[test]
fn a_crash_while_recovering_does_no_harm() {
    let (device, world) = work(VERSIONS[2], 11, 40, 30, 3);
    let moment = device.moment();
    let found = world.judge(Arc::new(device.crash(moment, |_| true)), moment);
    let again = CrashDevice::new(device.crash(moment, |_| true).into_bytes());
    let again = Arc::new(again);
    recover(&(Arc::clone(&again) as _));
    let mut random = Random(3);
    for at in 0..=again.moment() {
        for odds in 0..=8 {
            let crashed = Arc::new(again.crash(at, |_| random.next() % 8 < odds));
            assert_eq!(world.judge(crashed, moment), found);
        }
    }
}

#[test]
fn dropping_writes_nothing_more() {
    let (device, mut world) = work(VERSIONS[4], 3, 30, 20, 5);
    world.operate(5).expect("no fault");
    world.sync(|| device.moment()).expect("no fault");
    world.operate(5).expect("no fault");
    let World { transactions, .. } = world;
    drop(transactions);
    let moment = device.moment();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(device.moment(), moment);
}

/// Runs operations until the fault strikes, and checks the contents of the device after that.
fn strike(fault: Fault, seed: u64) -> bool {
    let memory = Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let faulty = Arc::new(FaultDevice::new(Arc::clone(&memory) as _));
    let mut world = World::new(Arc::clone(&faulty) as _, PATIENT, seed);
    faulty.inject(fault);
    let mut moment = 0;
    let mut result = Ok(());
    for _ in 0..60 {
        result = world.operate(40);
        if result.is_ok() && world.below(2) == 0 {
            result = world.sync(|| {
                moment += 1;
                moment
            });
        }
        if result.is_err() {
            break;
        }
    }
    if let Err(error) = &result {
        assert!(matches!(error, Error::Device(_)), "{error}");
        // A failed write of data is the caller's error; all others stop the journal.
        if world.transactions.error().is_some() {
            assert!(matches!(world.transactions.start(1), Err(Error::Device(_))));
            assert!(world.transactions.sync().is_err() && world.transactions.close().is_err());
            faulty.heal();
        }
    }
    // No write begins after this, and none is under way when it returns.
    world.transactions.abort("of a test");
    assert!(world.transactions.close().is_err());
    world.judge(memory, moment);
    result.is_err()
}

#[test]
fn a_failing_device_stops_the_journal_and_keeps_committed_blocks() {
    let mut struck = 0;
    for n in 0..120 {
        for (op, effect) in [
            (Op::Write, Effect::Error(5)),
            (Op::Write, Effect::Short(700)),
            (Op::Flush, Effect::Error(5)),
        ] {
            struck += u32::from(strike(Fault::nth(op, n, effect), n + 1));
            let for_good = Fault {
                times: u64::MAX,
                ..Fault::nth(op, n, effect)
            };
            struck += u32::from(strike(for_good, n + 1));
        }
    }
    println!("{struck} of 720 struck");
    assert!(struck > 300);
}

#[test]
fn a_failure_is_noted_in_the_journal() {
    let memory = Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let faulty = Arc::new(FaultDevice::new(Arc::clone(&memory) as _));
    let mut world = World::new(Arc::clone(&faulty) as _, PATIENT, 1);
    world.operate(5).expect("no fault");
    faulty.inject(Fault::nth(Op::Flush, 1, Effect::Error(5)));
    assert!(world.sync(|| 0).is_err());
    assert!(world.transactions.close().is_err());
    let journal = Journal::internal(memory, 1024, Log::map()).expect("a journal");
    assert_eq!(journal.superblock().errno, -5);
}

/// Returns a volume with a journal of the first ext3, which has no features, so no block can be
/// revoked in it.
fn featureless() -> Vec<u8> {
    let mut bytes = volume(ChecksumVersion::None, false);
    let at = usize::try_from(Log::map().lookup(0).expect("mapped")).expect("small") * BLOCK;
    bytes[at + 4..at + 8].copy_from_slice(&3_u32.to_be_bytes());
    bytes
}

#[test]
fn a_journal_without_features_needs_no_revokes() {
    let device = Arc::new(CrashDevice::new(featureless()));
    let mut world = World::new(Arc::clone(&device) as _, PATIENT, 5);
    for _ in 0..60 {
        world.operate(30).expect("no fault");
        if world.below(3) == 0 {
            world.sync(|| device.moment()).expect("no fault");
        }
    }
    let stats = world.transactions.stats();
    assert!(
        stats.revokes == 0 && stats.checkpoints > 2 && world.data_blocks() > 10,
        "{stats:?}"
    );
    for moment in 0..=device.moment() {
        explore(&device, &world, moment, 2);
    }
}

#[test]
fn room_is_made_before_it_is_used() {
    // These blocks are behind the volume of the other tests. They are many enough for each
    // transaction to take more than half of the log.
    const BLOCKS: std::ops::Range<u64> = VOLUME..VOLUME + 600;
    let mut bytes = volume(ChecksumVersion::None, false);
    bytes.resize(bytes.len() + 600 * BLOCK, 0);
    let device = Arc::new(CrashDevice::new(bytes));
    let options = CacheOptions {
        block_size: 1024,
        block_count: BLOCKS.end,
        budget: CacheBudget::new(0),
    };
    let cache = Arc::new(BufferCache::new(Arc::clone(&device) as _, options).expect("a cache"));
    let journal = Journal::internal(Arc::clone(&device), 1024, Log::map()).expect("a journal");
    let transactions = Transactions::journaled(
        Arc::clone(&cache),
        Arc::<Freed>::default(),
        journal,
        PATIENT,
    )
    .expect("empty");
    let mut syncs = Vec::new();
    for round in 1..=5_u8 {
        let handle = transactions.start(600).expect("a transaction of its own");
        for block in BLOCKS {
            let mut buffer = handle.fresh(block).expect("inside");
            handle.change(&mut buffer, |bytes, _| bytes.fill(round));
        }
        drop(handle);
        transactions.sync().expect("written");
        syncs.push((device.moment(), round));
    }
    let mut random = Random(1);
    for moment in 0..=device.moment() {
        for odds in 0..=8 {
            let crashed: Arc<dyn BlockDevice> =
                Arc::new(device.crash(moment, |_| random.next() % 8 < odds));
            let journal =
                Journal::internal(Arc::clone(&crashed), 1024, Log::map()).expect("a journal");
            journal
                .recover(BLOCKS.end)
                .and_then(|recovered| recovered.write_in_place(&crashed))
                .expect("sound");
            let mut found = vec![0; 600 * BLOCK];
            crashed
                .read_at(&mut found, VOLUME * 1024)
                .expect("readable");
            let synced = syncs
                .iter()
                .filter(|(at, _)| *at <= moment)
                .map(|(_, round)| *round)
                .max();
            assert!(
                found[0] >= synced.unwrap_or(0),
                "{} at {moment}, {synced:?}",
                found[0]
            );
            assert!(
                found.iter().all(|byte| *byte == found[0]),
                "two states in one at {moment}"
            );
        }
    }
}

/// Returns the first number in a block.
fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

#[test]
fn operations_of_many_threads_are_whole_after_every_crash() {
    const THREADS: u64 = 4;
    const ACCOUNTS: u64 = 60;
    const FORTUNE: u64 = 1_000_000;
    let device = Arc::new(CrashDevice::new(volume(ChecksumVersion::V3, true)));
    let cache = cache(Arc::clone(&device) as _);
    let journal = Journal::internal(Arc::clone(&device), 1024, Log::map()).expect("a journal");
    let options = Options {
        interval: Duration::from_millis(1),
    };
    let transactions = Transactions::journaled(
        Arc::clone(&cache),
        Arc::<Freed>::default(),
        journal,
        options,
    )
    .expect("empty");
    let set = |handle: &Handle<'_>, block: u64, value: u64| {
        let mut buffer = cache.read(block).expect("readable");
        handle.change(&mut buffer, |bytes, _| {
            bytes[..8].copy_from_slice(&value.to_le_bytes())
        });
    };
    let get = |block: u64| number(&cache.read(block).expect("readable"));
    let handle = transactions.start(1).expect("open");
    set(&handle, 10, FORTUNE);
    drop(handle);
    transactions.sync().expect("written");
    let founded = device.moment();
    let locks: Vec<_> = (0..ACCOUNTS).map(|_| Mutex::new(())).collect();
    let syncs = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let transactions = &transactions;
            let locks = &locks;
            let syncs = &syncs;
            let device = &device;
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                for round in 1..=300 {
                    let from = random.next() % ACCOUNTS;
                    let to = random.next() % ACCOUNTS;
                    let handle = transactions.start(3).expect("open");
                    {
                        let lock = |account: u64| {
                            locks[usize::try_from(account).expect("small")]
                                .lock()
                                .expect("sound")
                        };
                        let _first = lock(from.min(to));
                        let _second = (from != to).then(|| lock(from.max(to)));
                        let amount = get(10 + from) / 3;
                        set(&handle, 10 + from, get(10 + from) - amount);
                        // A commit that did not wait for this handle would come now.
                        std::thread::sleep(Duration::from_micros(100));
                        set(&handle, 10 + to, get(10 + to) + amount);
                    }
                    set(&handle, 100 + thread, round);
                    drop(handle);
                    if random.next().is_multiple_of(30) {
                        transactions.sync().expect("written");
                        syncs
                            .lock()
                            .expect("sound")
                            .push((device.moment(), thread, round));
                    }
                }
            });
        }
    });
    println!("{:?}, {} moments", transactions.stats(), device.moment());
    drop(transactions);
    let syncs = syncs.into_inner().expect("sound");
    let mut random = Random(9);
    for moment in founded..=device.moment() {
        for odds in [0, 1, 4, 7, 8] {
            let crashed: Arc<dyn BlockDevice> =
                Arc::new(device.crash(moment, |_| random.next() % 8 < odds));
            recover(&crashed);
            let read = |block: u64| {
                let mut bytes = [0; 8];
                crashed.read_at(&mut bytes, block * 1024).expect("readable");
                number(&bytes)
            };
            assert_eq!(
                (10..10 + ACCOUNTS).map(read).sum::<u64>(),
                FORTUNE,
                "at {moment}"
            );
            for (_, thread, round) in syncs.iter().filter(|(at, ..)| *at <= moment) {
                assert!(read(100 + thread) >= *round, "thread {thread} at {moment}");
            }
        }
    }
}

#[test]
fn unwritten_blocks_can_still_be_read() {
    let memory = Arc::new(MemoryDevice::new(volume(ChecksumVersion::V3, true)));
    let faulty = Arc::new(FaultDevice::new(memory));
    let mut world = World::new(Arc::clone(&faulty) as _, PATIENT, 1);
    for _ in 0..4 {
        world.operate(40).expect("no fault");
        world.sync(|| 0).expect("no fault");
    }
    world.operate(40).expect("no fault");
    faulty.inject(Fault::every(Op::Write, Effect::Error(5)));
    assert!(world.sync(|| 0).is_err() && world.transactions.close().is_err());
    // Reading every block evicts all blocks that are not pinned.
    (0..VOLUME).for_each(|block| drop(world.cache.read(block).expect("readable")));
    for (block, stamp) in world.states.last().expect("one") {
        assert!(
            world.cache.read(*block).expect("readable")[..] == contents(*stamp)[..],
            "block {block}"
        );
    }
}
