//! A volume that is written through transactions, and a model of its expected contents.
//!
//! Blocks from [`FIRST`] on are metadata or data. Each handle raises the serial number in block
//! [`SERIAL`], and the model keeps the state at every serial number. So a volume recovered after a
//! crash itself names the state that it should hold.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use extern4_block::{BlockDevice, BufferCache, CacheBudget, CacheOptions};
use extern4_disk::journal::{ChecksumVersion, MAGIC, Tid};
use extern4_jbd2::{Error, Journal, Observer, Options, Transactions};

use crate::hostile::Random;
use crate::log::{BLOCK, Log, VOLUME};

/// The block that holds the serial number.
pub(crate) const SERIAL: u64 = 1;
/// The first of the blocks that are changed, and their number.
pub(crate) const FIRST: u64 = 10;
pub(crate) const COUNT: u64 = 120;

/// An observer that records freed blocks.
#[derive(Default)]
pub(crate) struct Freed(pub(crate) Mutex<Vec<u64>>);

impl Observer for Freed {
    fn committed(&self, _tid: Tid, freed: &[Range<u64>]) {
        self.0
            .lock()
            .expect("no panic")
            .extend(freed.iter().cloned().flatten());
    }
}

/// Returns the contents of a block that was filled with `stamp`. Some begin as the journal's own
/// blocks do.
pub(crate) fn contents(stamp: u64) -> Vec<u8> {
    let mut bytes = stamp.to_le_bytes().repeat(BLOCK / 8);
    if stamp.is_multiple_of(5) {
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
    bytes
}

/// Returns an empty volume with an empty journal.
pub(crate) fn volume(checksum: ChecksumVersion, wide: bool) -> Vec<u8> {
    let mut log = Log::starting_at(checksum, wide, 1, Tid(u32::MAX - 20));
    log.superblock.start = None;
    log.volume()
}

pub(crate) fn cache(device: Arc<dyn BlockDevice>) -> Arc<BufferCache> {
    // No memory for blocks that are not pinned, so the cache reads them again each time.
    let options = CacheOptions {
        block_size: 1024,
        block_count: VOLUME,
        budget: CacheBudget::new(0),
    };
    Arc::new(BufferCache::new(device, options).expect("a cache"))
}

/// Options under which nothing is committed unless it is asked for.
pub(crate) const PATIENT: Options = Options {
    interval: Duration::from_secs(1000),
};

/// The expected state of the volume after the handle with some serial number: the stamps of its
/// metadata.
pub(crate) type State = BTreeMap<u64, u64>;

/// Data that was written to a block that is not metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    pub(crate) block: u64,
    pub(crate) stamp: u64,
    /// The serial number that freed the block, and the one that made it metadata again.
    freed: usize,
    reused: Option<usize>,
    /// The moment when the data was known to be durable.
    synced: Option<usize>,
}

/// A way to open the journal of the volume on a device.
pub(crate) type Opener = fn(&Arc<dyn BlockDevice>) -> Journal<Arc<dyn BlockDevice>>;

/// Opens the journal inside the volume.
pub(crate) fn internal(device: &Arc<dyn BlockDevice>) -> Journal<Arc<dyn BlockDevice>> {
    Journal::internal(Arc::clone(device), 1024, Log::map()).expect("a journal")
}

/// The volume and its model.
pub(crate) struct World {
    opener: Opener,
    pub(crate) cache: Arc<BufferCache>,
    pub(crate) freed: Arc<Freed>,
    pub(crate) transactions: Transactions,
    pub(crate) random: Random,
    pub(crate) states: Vec<State>,
    data: Vec<Data>,
    /// The last serial number that freed each block.
    freed_by: BTreeMap<u64, usize>,
    /// Moments at which a sync had returned, and the serial number that was durable then.
    pub(crate) syncs: Vec<(usize, usize)>,
    stamp: u64,
}

impl World {
    /// Returns the world of the volume on `device`, which is empty and has an empty journal.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, options: Options, seed: u64) -> Self {
        Self::with_journal(internal, device, options, seed, 0)
    }

    /// Returns a world whose journal `opener` opens, with contents made of stamps above `stamp`.
    pub(crate) fn with_journal(
        opener: Opener,
        device: Arc<dyn BlockDevice>,
        options: Options,
        seed: u64,
        stamp: u64,
    ) -> Self {
        let journal = opener(&device);
        let cache = cache(device);
        let freed = Arc::<Freed>::default();
        let observer: Arc<dyn Observer> = Arc::clone(&freed) as _;
        let transactions =
            Transactions::journaled(Arc::clone(&cache), observer, journal, options).expect("empty");
        // To test other histories than the daily ones: EXTERN4_SEED=7 cargo test -p extern4-jbd2
        // crashes
        let other = std::env::var("EXTERN4_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or(0_u64);
        let random = Random((seed + other * 1_000_003).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        Self {
            opener,
            cache,
            freed,
            transactions,
            random,
            states: vec![State::new()],
            data: Vec::new(),
            freed_by: BTreeMap::new(),
            syncs: Vec::new(),
            stamp,
        }
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.random.next() % limit
    }

    /// Runs one operation: changes some blocks, frees some, makes free ones metadata.
    pub(crate) fn operate(&mut self, most: u64) -> Result<(), Error> {
        self.write_data()?;
        let serial = self.states.len();
        let mut state = self.states.last().expect("one").clone();
        let picked: Vec<_> = (0..=self.below(most))
            .map(|_| (FIRST + self.below(COUNT), self.below(10)))
            .collect();
        // The handle borrows the transactions only, but the borrow checker sees all of `self`.
        let transactions = &self.transactions;
        let handle = transactions.start(u32::try_from(picked.len()).expect("small") + 1)?;
        let mut buffer = self.cache.read(SERIAL)?;
        handle.change(&mut buffer, |bytes, _| {
            bytes[..8].copy_from_slice(&(serial as u64).to_le_bytes())
        });
        for (block, what) in picked {
            self.stamp += 1;
            let stamp = self.stamp;
            match (state.contains_key(&block), what) {
                (true, 0) => {
                    handle.revoke(block..block + 1);
                    handle.free(block..block + 1);
                    state.remove(&block);
                    self.freed_by.insert(block, serial);
                }
                (true, _) => {
                    let mut buffer = self.cache.read(block)?;
                    let expected = contents(state[&block]);
                    assert!(
                        buffer[..] == expected[..],
                        "block {block} is not what it was changed to"
                    );
                    handle.change(&mut buffer, |bytes, _| {
                        bytes.copy_from_slice(&contents(stamp))
                    });
                    state.insert(block, stamp);
                }
                (false, _) if self.freed_by.get(&block) == Some(&serial) => {}
                (false, _) => {
                    if self.freed_by.contains_key(&block)
                        && !self
                            .data
                            .iter()
                            .any(|d| d.block == block && d.reused.is_none())
                    {
                        // The block is not yet known to be free.
                        continue;
                    }
                    let mut buffer = handle.fresh(block)?;
                    assert!(buffer.iter().all(|byte| *byte == 0));
                    handle.change(&mut buffer, |bytes, _| {
                        bytes.copy_from_slice(&contents(stamp))
                    });
                    state.insert(block, stamp);
                    for data in self.data.iter_mut().filter(|data| data.block == block) {
                        data.reused.get_or_insert(serial);
                    }
                }
            }
        }
        drop(handle);
        self.states.push(state);
        Ok(())
    }

    /// Gives freed blocks to files, and writes their data.
    fn write_data(&mut self) -> Result<(), Error> {
        let free = std::mem::take(&mut *self.freed.0.lock().expect("no panic"));
        for block in free {
            self.stamp += 1;
            let stamp = self.stamp;
            self.cache.write(block, &contents(stamp))?;
            let freed = self.freed_by[&block];
            self.data.push(Data {
                block,
                stamp,
                freed,
                reused: None,
                synced: None,
            });
        }
        Ok(())
    }

    /// Makes everything durable; `moment` tells the time.
    pub(crate) fn sync(&mut self, moment: impl FnOnce() -> usize) -> Result<(), Error> {
        let serial = self.states.len() - 1;
        let written = self.data.len();
        self.transactions.sync()?;
        let moment = moment();
        self.syncs.push((moment, serial));
        for data in &mut self.data[..written] {
            data.synced.get_or_insert(moment);
        }
        Ok(())
    }

    /// Recovers the volume after a crash at `moment`, and compares it to the model. Returns the
    /// serial number found.
    pub(crate) fn judge(&self, crashed: Arc<dyn BlockDevice>, moment: usize) -> usize {
        recover_by(self.opener, &crashed);
        let read = |block: u64| {
            let mut bytes = vec![0; BLOCK];
            crashed.read_at(&mut bytes, block * 1024).expect("readable");
            bytes
        };
        let serial = u64::from_le_bytes(read(SERIAL)[..8].try_into().expect("8 bytes"));
        let serial = usize::try_from(serial).expect("small");
        let synced = self
            .syncs
            .iter()
            .filter(|(at, _)| *at <= moment)
            .map(|(_, serial)| *serial)
            .max();
        assert!(
            serial >= synced.unwrap_or(0),
            "{serial} was found, but {synced:?} was durable at {moment}"
        );
        let state = self
            .states
            .get(serial)
            .expect("a serial number that was given out");
        for (block, stamp) in state {
            assert!(
                read(*block) == contents(*stamp),
                "block {block} in state {serial} at {moment}"
            );
        }
        for data in &self.data {
            let alive = data.freed <= serial && data.reused.is_none_or(|reused| serial < reused);
            if alive && data.synced.is_some_and(|synced| synced <= moment) {
                let found = read(data.block);
                assert!(
                    found == contents(data.stamp),
                    "{data:?} in state {serial} at {moment}"
                );
            }
        }
        serial
    }

    pub(crate) fn data_blocks(&self) -> usize {
        self.data.len()
    }
}

/// Replays the journal onto the device, and marks the log empty.
pub(crate) fn recover(device: &Arc<dyn BlockDevice>) {
    recover_by(internal, device);
}

fn recover_by(opener: Opener, device: &Arc<dyn BlockDevice>) {
    let open = || opener(device);
    let recovered = open().recover(VOLUME).expect("a sound log");
    assert_eq!(recovered.damage(), []);
    recovered.write_in_place(device).expect("written");
    let was_dirty = recovered.journal().is_dirty();
    let due = recovered.fast_commits().tid;
    let journal = recovered.mark_empty(0).expect("marked");
    // Recovery must not take the rest of an old transaction for a part of another with its number.
    assert_eq!(
        journal.superblock().sequence,
        if was_dirty { due.next() } else { due }
    );
    assert!(!journal.is_dirty() && !open().is_dirty());
}
