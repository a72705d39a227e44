//! Tests of a new log over that of a former volume. `mke2fs` leaves the old log in place
//! (`lazy_journal_init`), and the new one begins at the same transaction number. With the same
//! UUID, the old checksums are right, too. No old record may join the new log.
//!
//! The former volume has the same history as the new one, with other contents. So its transactions
//! are in the same places with the same numbers, and a replay of any of them shows in the contents.

use std::sync::Arc;

use extern4_block::{BlockDevice, CrashDevice, MemoryDevice, SliceDevice};
use extern4_disk::checksum::crc32c;
use extern4_disk::fast_commit::{Dentry, Record, Scanner};
use extern4_disk::journal::{BlockHeader, ChecksumVersion, Incompat, JournalSuperblock, Tid};
use extern4_disk::{Place, Structure};
use extern4_jbd2::{Journal, Transactions};
use extern4_testkit::tools::{self, Need};
use zerocopy::IntoBytes;

use crate::crashes::{VERSIONS, explore};
use crate::log::{BLOCK, LEN, Log, VOLUME};
use crate::world::{Freed, Opener, PATIENT, World, cache, contents, internal};

/// The lowest stamp of the former volume, above all stamps of the new one.
const FORMER: u64 = 1 << 40;
/// The first transaction's number, 21 below the wrap to 0.
const FIRST: Tid = Tid(u32::MAX - 20);

/// Returns how many pairs of histories to try for each form of a journal. To run all day:
/// EXTERN4_FORMER=100
fn pairs() -> u64 {
    std::env::var("EXTERN4_FORMER")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(2)
}

/// A device with an empty journal, a function to open it, and the block of its superblock.
struct Form {
    bytes: Vec<u8>,
    opener: Opener,
    superblock: usize,
}

impl Form {
    fn internal(checksum: ChecksumVersion, wide: bool) -> Self {
        let block = Log::map().lookup(0).expect("mapped");
        Self {
            bytes: empty(checksum, wide).volume(),
            opener: internal,
            superblock: at(block),
        }
    }

    /// Returns a volume with the device of its journal behind it.
    fn external(checksum: ChecksumVersion, wide: bool) -> Self {
        let dir = tools::temporary("extern4-");
        let path = dir.path().join("journal");
        std::fs::File::create(&path)
            .and_then(|file| file.set_len(2 << 20))
            .expect("a sparse file");
        let words = ["-q", "-F", "-b", "1024", "-O", "journal_dev"].map(Into::into);
        tools::run::<std::ffi::OsString>("mke2fs", words.into_iter().chain([path.clone().into()]));
        let mut bytes = vec![0; at(VOLUME)];
        bytes.extend(std::fs::read(&path).expect("the image is read"));
        let superblock = at(VOLUME + 2);
        let mut journal = decode(&bytes[superblock..]);
        let form = empty(checksum, wide).superblock;
        journal.set_checksum(ChecksumVersion::V3);
        (journal.sequence, journal.compat, journal.incompat) =
            (form.sequence, form.compat, form.incompat);
        bytes[superblock..superblock + BLOCK].copy_from_slice(journal.encode().as_bytes());
        Self {
            bytes,
            opener: external,
            superblock,
        }
    }

    /// Returns a new volume on the device of a former one, whose log is still there.
    fn over(&self, former: &[u8]) -> Vec<u8> {
        let mut bytes = former.to_vec();
        let superblock = self.superblock..self.superblock + BLOCK;
        bytes[superblock.clone()].copy_from_slice(&self.bytes[superblock]);
        // The second run of the journal in the volume is in front of the first.
        let is_inside = self.superblock < at(VOLUME);
        let end = at(if is_inside {
            Log::map().lookup(LEN - 1).expect("mapped") - 23
        } else {
            VOLUME
        });
        bytes[..end].copy_from_slice(&self.bytes[..end]);
        bytes
    }
}

fn at(block: u64) -> usize {
    usize::try_from(block).expect("small") * BLOCK
}

fn empty(checksum: ChecksumVersion, wide: bool) -> Log {
    let mut log = Log::starting_at(checksum, wide, 1, FIRST);
    log.superblock.start = None;
    log
}

fn decode(bytes: &[u8]) -> JournalSuperblock {
    JournalSuperblock::decode(bytes, Place::new(Structure::JournalSuperblock)).expect("sound")
}

fn external(device: &Arc<dyn BlockDevice>) -> Journal<Arc<dyn BlockDevice>> {
    let start = VOLUME * 1024;
    let slice =
        SliceDevice::new(Arc::clone(device), start, device.size_bytes() - start).expect("inside");
    let mut bytes = vec![0; BLOCK];
    slice.read_at(&mut bytes, 2048).expect("readable");
    let slice: Arc<dyn BlockDevice> = Arc::new(slice);
    Journal::external(slice, 1024, &decode(&bytes).uuid).expect("a journal")
}

/// Runs operations on a volume that may crash, with contents above `stamp`.
fn work(
    form: &Form,
    bytes: Vec<u8>,
    seed: u64,
    operations: u64,
    stamp: u64,
) -> (Arc<CrashDevice>, World) {
    let device = Arc::new(CrashDevice::new(bytes));
    let mut world =
        World::with_journal(form.opener, Arc::clone(&device) as _, PATIENT, seed, stamp);
    for _ in 0..operations {
        world.operate(12).expect("no fault");
        if world.below(3) > 0 {
            world.sync(|| device.moment()).expect("no fault");
        }
    }
    (device, world)
}

/// Returns whether the former log holds the next transaction where the new log ends.
fn goes_on(form: &Form, former: &[u8], world: &World) -> bool {
    let stats = world.transactions.stats();
    let first = decode(&form.bytes[form.superblock..]).first;
    let index = first + u32::try_from(stats.bytes_logged).expect("small") / 1024;
    let next = Tid(FIRST
        .0
        .wrapping_add(u32::try_from(stats.transactions).expect("small")));
    let place = if form.superblock < at(VOLUME) {
        Log::map().lookup(index).expect("mapped")
    } else {
        VOLUME + u64::from(index)
    };
    BlockHeader::recognise(&former[at(place)..]).is_some_and(|header| header.tid == next)
}

fn try_form(form: &Form, seed: u64) -> bool {
    let (device, world) = work(form, form.bytes.clone(), seed, 45, FORMER);
    let former = device.crash(device.moment(), |_| true).into_bytes();
    assert!(
        world.transactions.stats().transactions > 21,
        "numbers begin again"
    );
    drop(world);
    let (device, world) = work(form, form.over(&former), seed, 4 + seed % 37, 0);
    for moment in 0..=device.moment() {
        explore(&device, &world, moment, 2);
    }
    goes_on(form, &former, &world)
}

#[test]
fn no_transaction_of_a_former_volume_is_replayed() {
    let external = tools::can_run(&[Need::Tool("mke2fs")]);
    let mut tried = 0;
    let mut gone_on = 0;
    for (checksum, wide) in VERSIONS {
        let forms = [
            Some(Form::internal(checksum, wide)),
            external.then(|| Form::external(checksum, wide)),
        ];
        for form in forms.iter().flatten() {
            for seed in 1..=pairs() {
                tried += 1;
                gone_on += u64::from(try_form(form, seed * 7));
            }
        }
    }
    println!("the former log would go on in {gone_on} of {tried}");
    assert!(gone_on * 2 > tried, "the test is none");
}

/// A fast commit of the former volume is not applied, though its checksums have no seed.
#[test]
fn no_fast_commit_of_a_former_volume_is_replayed() {
    if !tools::can_run(&[Need::Tool("mke2fs")]) {
        return;
    }
    let mut form = Form::external(ChecksumVersion::V3, true);
    let mut journal = decode(&form.bytes[form.superblock..]);
    journal.incompat.insert(Incompat::FAST_COMMIT);
    form.bytes[form.superblock..form.superblock + BLOCK]
        .copy_from_slice(journal.encode().as_bytes());
    let area = at(VOLUME + u64::from(journal.fast_commits().start));
    // The fast commit goes with the third transaction.
    let tid = Tid(FIRST.0 + 2);
    let head = Record::Head { features: 0, tid }
        .encode(0)
        .expect("a record");
    let gone = Dentry {
        parent: 2,
        ino: 12,
        name: b"gone".to_vec(),
    };
    let unlink = Record::Unlink(gone).encode(0).expect("a record");
    let begun = [head, unlink].concat();
    let tail = |checksum| {
        Record::Tail { tid, checksum }
            .encode(BLOCK - begun.len())
            .expect("a record")
    };
    let covered = [&begun, &tail(0)[..8]].concat();
    let block = [&begun[..], &tail(crc32c(0, &covered))].concat();
    let mut scanner = Scanner::new(tid);
    scanner.feed(&block, Place::new(Structure::FastCommit));
    assert_eq!(
        scanner.finish().expect("sound").commits.len(),
        1,
        "it would be replayed"
    );
    form.bytes[area..area + BLOCK].copy_from_slice(&block);

    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(form.bytes));
    let cache = cache(Arc::clone(&device));
    let open = || external(&device);
    let transactions =
        Transactions::journaled(Arc::clone(&cache), Arc::<Freed>::default(), open(), PATIENT)
            .expect("empty");
    for stamp in 0..2 {
        let handle = transactions.start(1).expect("open");
        let mut buffer = cache.read(5).expect("readable");
        handle.change(&mut buffer, |bytes, _| {
            bytes.copy_from_slice(&contents(stamp))
        });
        drop(handle);
        transactions.sync().expect("written");
    }
    let recovered = open().recover(VOLUME).expect("sound");
    assert_eq!(recovered.fast_commits().tid, tid);
    assert!(recovered.fast_commits().commits.is_empty());
}
