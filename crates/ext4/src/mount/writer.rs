//! A volume that is open for writing.
//!
//! The superblock says so on the device before anything else is changed: a volume with a journal needs recovery until it is
//! closed, one without is not clean. Its counts of free blocks and inodes are set when a transaction closes, so they are right
//! after a crash, too.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use extern4_block::{BlockDevice, CountedDevice, Pin, Unsealed};
use extern4_disk::feature::{Compat, Features, Incompat, RoCompat};
use extern4_disk::journal::{ChecksumVersion, Tid};
use extern4_disk::superblock::{
    CreatorOs, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};
use extern4_disk::{Corrupt, Place, Structure};
use extern4_jbd2::{Closing, Journal, Observer, Options, Transactions};
use extern4_sync::primitive::{AtomicU32, Mutex, MutexGuard, Ordering::Relaxed};

use crate::alloc::balloc::Space;
use crate::alloc::discard::Discards;
use crate::alloc::orphan::Orphans;
use crate::error::{Error, Result, Unsupported};
use crate::file::data_journal::Journaling;
use crate::mount::loss::Losses;
use crate::mount::{Ext4, OpenOptions, READABLE};
use crate::ops::create::now_seconds;
use crate::quota::Quotas;
use crate::volume::deferred_checksum;
use crate::volume::handle::Change;
use crate::volume::system_zone::SystemZones;
use crate::xattr::mbcache::blocks::Blocks;
use crate::xattr::sharing::Sharing;

/// What changes of a volume go through.
pub(crate) struct Writer {
    pub(crate) transactions: Transactions,
    pub(crate) space: Arc<Space>,
    totals: Arc<Totals>,
    /// The device, and what has been written to it since the volume was opened.
    counted: Arc<CountedDevice>,
    pub(crate) orphans: Arc<Orphans>,
    /// None if the volume has none.
    pub(crate) quotas: Option<Arc<Quotas>>,
    pub(crate) sharing: Sharing,
    pub(crate) zones: SystemZones,
    /// Whose contents go through the journal.
    pub(crate) journaling: Journaling,
    /// Changes go through a journal: the volume may have one that is left aside.
    uses_journal: bool,
    spread: AtomicU32,
    /// Why the first removed file could not be freed, of those that could not.
    unfreed: Mutex<Option<Error>>,
}

/// The features whose presence changes how a volume is written, and that this crate writes.
const WRITABLE: Features = Features {
    compat: Compat::all(),
    incompat: READABLE,
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::BTREE_DIR)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::QUOTA)
        .union(RoCompat::PROJECT)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::ORPHAN_PRESENT),
};

/// Refuses, by name, to write to what this crate only reads.
pub(crate) fn check_writable(sb: &Superblock, options: &OpenOptions) -> Result<(), Unsupported> {
    let features = sb.features();
    let beyond = Features {
        compat: features.compat.difference(WRITABLE.compat),
        incompat: features.incompat.difference(WRITABLE.incompat),
        ro_compat: features.ro_compat.difference(WRITABLE.ro_compat),
    };
    let beyond: Vec<_> = beyond.iter().collect();
    if !beyond.is_empty() {
        return Err(Unsupported::Writing(beyond));
    }
    if options.superblock.is_some() {
        return Err(Unsupported::WritingTo("a backup superblock was asked for"));
    }
    if sb.creator_os() != CreatorOs::Linux {
        return Err(Unsupported::WritingTo("it was not made for Linux"));
    }
    if sb.state().contains(State::ERROR) {
        return Err(Unsupported::WritingTo("errors have been found on it; e2fsck mends them"));
    }
    let uses_journal = sb.journal().is_some() && !options.ignore_journal;
    if !uses_journal && !sb.state().contains(State::VALID) {
        let why = "it was not cleanly unmounted and uses no journal; e2fsck mends what that left";
        return Err(Unsupported::WritingTo(why));
    }
    Ok(())
}

/// Refuses to write to a volume whose journal would have to be replayed first, and is left aside.
pub(crate) fn check_needs_no_recovery(sb: &Superblock) -> Result<(), Unsupported> {
    if sb.features().incompat.contains(Incompat::RECOVER) {
        let why =
            "its journal must be replayed first, and noload leaves the journal aside; with ro it can be read";
        return Err(Unsupported::WritingTo(why));
    }
    Ok(())
}

/// The checksums that the journal is to have, as Linux chooses them; `None` for those that it has.
fn journal_checksum(sb: &Superblock, asked: Option<bool>) -> Option<ChecksumVersion> {
    let has_checksums = sb.features().ro_compat.contains(RoCompat::METADATA_CSUM);
    match (has_checksums, asked) {
        (_, Some(false)) => Some(ChecksumVersion::None),
        // The seed of these checksums keeps out the log of a former volume.
        (true, _) => Some(ChecksumVersion::V3),
        (false, Some(true)) => Some(ChecksumVersion::V1),
        (false, None) => None,
    }
}

impl Writer {
    /// Begins to write to a volume with this journal, which is empty, or with none.
    pub(crate) fn open(
        fs: &Ext4,
        journal: Option<Journal<Arc<dyn BlockDevice>>>,
        counted: Arc<CountedDevice>,
        asked: &OpenOptions,
    ) -> Result<Self> {
        let uses_journal = journal.is_some();
        let journaling = Journaling::chosen(fs.superblock(), uses_journal, asked.data)?;
        let mut journal = journal;
        if let Some(checksum) = journal_checksum(fs.superblock(), asked.journal_checksum) {
            journal.iter_mut().for_each(|journal| journal.set_checksum(checksum));
        }
        let options = asked.commit_interval.map_or_else(Options::default, |interval| Options { interval });
        let space = Arc::new(Space::count(fs)?);
        let cache = Arc::clone(&fs.cache);
        let orphans: Arc<Orphans> = Arc::default();
        let quotas = Quotas::open(fs)?.map(Arc::new);
        let totals = Arc::new(Totals {
            space: Arc::clone(&space),
            orphans: Arc::clone(&orphans),
            quotas: quotas.clone(),
            discards: Discards::chosen(fs, asked.discard),
            block: fs.cache.read(fs.superblock().geometry().superblock_block())?.pin(),
            superblock: Mutex::new(fs.superblock().clone()),
            sealing: fs.superblock().clone(),
            losses: Arc::clone(&fs.losses),
        });
        let observer = Arc::clone(&totals) as _;
        let writer = Self {
            transactions: match journal {
                Some(journal) => Transactions::journaled(cache, observer, journal, options)?,
                None => Transactions::unjournaled(cache, observer, options),
            },
            space,
            totals,
            counted,
            orphans,
            quotas,
            sharing: Sharing::new(fs.superblock(), Blocks::new(asked)),
            zones: SystemZones::of(fs)?,
            journaling,
            uses_journal,
            spread: AtomicU32::new(0),
            unfreed: Mutex::default(),
        };
        writer.mark(fs, true)?;
        Ok(writer)
    }

    /// Says on the device whether the volume is in use.
    fn mark(&self, fs: &Ext4, in_use: bool) -> Result<()> {
        let mut sb = self.totals.lock();
        let now = now_seconds();
        let raw = sb.raw_mut();
        let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
        let state = State::from_bits_retain(raw.s_state.get());
        match (self.uses_journal, in_use) {
            (true, true) => raw.s_feature_incompat.set((incompat | Incompat::RECOVER).bits()),
            (true, false) => raw.s_feature_incompat.set((incompat - Incompat::RECOVER).bits()),
            (false, true) => raw.s_state.set((state - State::VALID).bits()),
            (false, false) => raw.s_state.set((state | State::VALID).bits()),
        }
        if in_use {
            raw.s_mtime.set(now);
            raw.s_mnt_count.set(raw.s_mnt_count.get().saturating_add(1));
        } else {
            self.totals.set_counts(raw);
            // As Linux, which counts what a crash interrupts for nothing.
            let before = fs.superblock().kbytes_written();
            raw.s_kbytes_written.set(before.saturating_add(self.counted.bytes_written() / 1024));
        }
        raw.s_wtime.set(now);
        let mut buffer = fs.cache.read(sb.geometry().superblock_block())?;
        buffer.change(|block, _| store(&sb, block));
        fs.cache.write_bytes(SUPERBLOCK_OFFSET, &sb.encode())?;
        fs.cache.device().flush()?;
        Ok(())
    }

    /// Ends writing: everything is where it belongs, and the volume is clean.
    pub(crate) fn close(&self, fs: &Ext4) -> Result<()> {
        self.transactions.close()?;
        self.mark(fs, false)
    }

    /// Notes that a removed file could not be freed. The call that removed it has returned already,
    /// and the file stays an orphan.
    pub(crate) fn note_unfreed(&self, error: Error) {
        self.unfreed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Why a removed file could not be freed, if that has happened.
    pub(crate) fn unfreed(&self) -> Option<Error> {
        self.unfreed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes in the superblock on the device that the volume is damaged, so that everybody knows that `e2fsck` is due: at once, for
    /// transactions have come to an end, and nobody writes an older superblock. What cannot be noted is lost.
    pub(crate) fn note_error(&self, fs: &Ext4, corrupt: &Corrupt) {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let read = fs.cache.device().read_at(&mut bytes, SUPERBLOCK_OFFSET);
        let place = Place::new(Structure::Superblock);
        let (Ok(()), Ok(mut sb)) = (read, Superblock::decode(&bytes, place)) else { return };
        note(sb.raw_mut(), corrupt);
        let _ = fs.cache.write_bytes(SUPERBLOCK_OFFSET, &sb.encode());
        let _ = fs.cache.device().flush();
    }

    /// A number that grows with each call, to spread directories by.
    pub(crate) fn next_spread(&self) -> u32 {
        // Relaxed: any number will do.
        self.spread.fetch_add(1, Relaxed).wrapping_mul(7)
    }
}

/// Notes in a superblock what is damaged.
pub(crate) fn note(raw: &mut RawSuperblock, corrupt: &Corrupt) {
    let (ino, block, now) = (corrupt.place.ino.unwrap_or(0), corrupt.place.block.unwrap_or(0), now_seconds());
    raw.s_state.set(raw.s_state.get() | State::ERROR.bits());
    if raw.s_error_count.get() == 0 {
        raw.s_first_error_time.set(now);
        raw.s_first_error_ino.set(ino);
        raw.s_first_error_block.set(block);
    }
    raw.s_error_count.set(raw.s_error_count.get().saturating_add(1));
    raw.s_last_error_time.set(now);
    raw.s_last_error_ino.set(ino);
    raw.s_last_error_block.set(block);
}

impl Change<'_> {
    /// Changes the superblock.
    pub(crate) fn edit_superblock(&self, edit: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
        let mut sb = self.writer.totals.lock();
        edit(sb.raw_mut());
        let block = sb.geometry().superblock_block();
        self.edit_at(block, |block, _| store(&sb, block))
    }

    /// The superblock as it stands now.
    pub(crate) fn current_superblock(&self) -> Superblock {
        self.writer.totals.lock().clone()
    }
}

impl Ext4 {
    /// The superblock as it stands now.
    pub(crate) fn current_superblock(&self) -> Superblock {
        self.writer.get().map_or_else(|| self.superblock().clone(), |writer| writer.totals.lock().clone())
    }

    /// The label as it stands now.
    pub(crate) fn current_label(&self) -> Vec<u8> {
        match self.writer.get() {
            Some(writer) => writer.totals.lock().label().to_vec(),
            None => self.superblock().label().to_vec(),
        }
    }

    /// What transactions have cost so far; `None` if the volume is not open for writing.
    pub fn journal_stats(&self) -> Option<extern4_jbd2::Stats> {
        self.writer.get().map(|writer| writer.transactions.stats())
    }
}

/// What is done once for a transaction, not once for each change in it.
///
/// When no handle is open on a transaction any more, and before it is written, it is given the descriptors of the groups that it
/// has changed, with the checksums of their bitmaps, what quotas count, and the superblock, with the counts and the start of the list of orphans. Until
/// then these are in memory only. That is soon enough: a transaction is durable whole or not at all, and who uses the volume
/// asks the memory.
struct Totals {
    space: Arc<Space>,
    orphans: Arc<Orphans>,
    quotas: Option<Arc<Quotas>>,
    /// None if the device is not told of what is freed.
    discards: Option<Discards>,
    /// The superblock's block.
    block: Pin,
    /// The superblock as it stands now. Locks: held while its block is changed, inside a handle.
    superblock: Mutex<Superblock>,
    /// The superblock as it was when the volume was opened: what checksums depend on does not change.
    sealing: Superblock,
    losses: Arc<Losses>,
}

impl Totals {
    fn lock(&self) -> MutexGuard<'_, Superblock> {
        self.superblock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the counts of what is free; true if they were others before.
    fn set_counts(&self, raw: &mut RawSuperblock) -> bool {
        let before = (raw.s_free_blocks_count_lo, raw.s_free_blocks_count_hi, raw.s_free_inodes_count);
        let [a, b, c, d, e, f, g, h] = self.space.free_blocks().to_le_bytes();
        raw.s_free_blocks_count_lo.set(u32::from_le_bytes([a, b, c, d]));
        raw.s_free_blocks_count_hi.set(u32::from_le_bytes([e, f, g, h]));
        raw.s_free_inodes_count.set(u32::try_from(self.space.free_inodes()).unwrap_or(u32::MAX));
        before != (raw.s_free_blocks_count_lo, raw.s_free_blocks_count_hi, raw.s_free_inodes_count)
    }
}

impl Observer for Totals {
    fn closing(&self, closing: &Closing<'_>) {
        let mut sb = self.lock();
        self.space.store_groups(&sb, closing);
        if let Some(quotas) = &self.quotas {
            quotas.store(closing);
        }
        let newest = self.orphans.newest();
        let raw = sb.raw_mut();
        let old = std::mem::replace(&mut raw.s_last_orphan, newest.into());
        if self.set_counts(raw) || old.get() != newest {
            closing.change(&mut self.block.buffer(), |block| store(&sb, block));
        }
    }

    fn seal(&self, pin: &Pin, bytes: &mut [u8], unsealed: Unsealed) {
        deferred_checksum::seal(pin, bytes, unsealed, &self.sealing);
    }

    fn committed(&self, _tid: Tid, freed: &[Range<u64>]) {
        // While nobody can take them yet.
        if let Some(discards) = &self.discards {
            discards.tell(freed);
        }
        self.space.settle(freed);
    }

    fn failed(&self, error: &extern4_jbd2::Error) {
        self.losses.report(error);
    }
}

/// Writes the superblock to where it stands in its block.
fn store(sb: &Superblock, block: &mut [u8]) {
    let offset = if sb.block_size() > 1024 { SUPERBLOCK_OFFSET as usize } else { 0 };
    let bytes = sb.encode();
    block[offset..offset + bytes.len()].copy_from_slice(&bytes);
}
