//! [`Writer`]: the state of a volume that is open for writing.
//!
//! Before anything else is changed, the superblock on the device says that the volume is in use:
//! with a journal it needs recovery, without one it is not clean. [`Writer::close`] takes that
//! back. The superblock's counts of free blocks and inodes are set when a transaction closes, so
//! they are right after a crash, too.
//!
//! `mount` makes the one writer of a volume; handles and operations reach the journal, the
//! allocator, orphans and quotas through it. The journal calls its observer when a transaction
//! closes and when it is durable.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use extern4_block::{BlockDevice, CountedDevice, Pin, Unsealed};
use extern4_disk::feature::{Incompat, RoCompat};
use extern4_disk::journal::{ChecksumVersion, Tid};
use extern4_disk::superblock::{
    RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};
use extern4_disk::{Corrupt, Place, Structure};
use extern4_jbd2::{Closing, Journal, Observer, Options, Transactions};
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_sync::primitive::{AtomicBool, AtomicU32, Mutex, MutexGuard};

use crate::alloc::block_allocator::BlockAllocator;
use crate::alloc::discard::Discards;
use crate::alloc::orphan_list::Orphans;
use crate::alloc::reserve::BlockReserve;
use crate::error::{Error, Result};
use crate::fs::data_mode::Journaling;
use crate::fs::options::OpenOptions;
use crate::fs::quota_accounts::Quotas;
use crate::fs::transaction::HeldFiles;
use crate::mbcache::blocks::Blocks;
use crate::mbcache::sharing::Sharing;
use crate::time::now_seconds;
use crate::volume::loss::Losses;
use crate::volume::system_zone::SystemZones;
use crate::volume::{Volume, deferred_checksum};

/// The state that changes of a volume share.
pub(crate) struct Writer {
    pub(crate) transactions: Transactions,
    pub(crate) allocator: Arc<BlockAllocator>,
    observer: Arc<CommitObserver>,
    /// The device, with a count of the bytes written to it since the volume was opened.
    counted: Arc<CountedDevice>,
    pub(crate) orphans: Arc<Orphans>,
    /// `None` if the volume has no quotas.
    pub(crate) quotas: Option<Arc<Quotas>>,
    pub(crate) sharing: Sharing,
    pub(crate) zones: Arc<SystemZones>,
    /// The files whose contents go through the journal.
    pub(crate) journaling: Journaling,
    /// Changes go through a journal. False also for a volume whose journal is ignored.
    uses_journal: bool,
    pub(crate) held_files: HeldFiles,
    next_spread: AtomicU32,
    /// Damage has ended changes, as the volume's [`ErrorPolicy`] demands.
    ///
    /// [`ErrorPolicy`]: extern4_disk::superblock::ErrorPolicy
    has_ended_changes: AtomicBool,
    /// The opening of the volume, which frees orphans, is done.
    is_opened: AtomicBool,
    /// The error of the first removed file that could not be freed.
    unfreed: Mutex<Option<Error>>,
}

/// Returns the checksums that the journal gets, chosen as by Linux; `None` to keep the checksums
/// that it has.
fn journal_checksum(sb: &Superblock, asked: Option<bool>) -> Option<ChecksumVersion> {
    let has_checksums = sb.features().ro_compat.contains(RoCompat::METADATA_CSUM);
    match (has_checksums, asked) {
        (_, Some(false)) => Some(ChecksumVersion::None),
        // The seed of these checksums makes the log of a former volume invalid.
        (true, _) => Some(ChecksumVersion::V3),
        (false, Some(true)) => Some(ChecksumVersion::V1),
        (false, None) => None,
    }
}

/// Takes an error that the journal notes into the superblock, durably, and clears it in the
/// journal, as Linux does: a replay may have overwritten the superblock's own note.
fn keep_error(
    volume: &Volume,
    superblock: &mut Superblock,
    journal: Option<&mut Journal<Arc<dyn BlockDevice>>>,
) -> Result<()> {
    let Some(journal) = journal.filter(|journal| journal.superblock().errno != 0) else {
        return Ok(());
    };
    let raw = superblock.raw_mut();
    raw.s_state.set(raw.s_state.get() | State::ERROR.bits());
    volume
        .cache
        .write_bytes(SUPERBLOCK_OFFSET, &superblock.encode())?;
    volume.cache.device().flush()?;
    Ok(journal.clear_error()?)
}

/// Returns the cache of attribute blocks.
#[cfg_attr(not(feature = "lab"), expect(unused_variables))]
fn attribute_blocks(asked: &OpenOptions) -> Blocks {
    let blocks = Blocks::new();
    #[cfg(feature = "lab")]
    let blocks = blocks.replaced_by(asked.block_cache.clone());
    blocks
}

/// The parts of a writer that `mount` prepares.
pub(crate) struct WriterParts {
    pub(crate) block_reserve: BlockReserve,
    pub(crate) quotas: Option<Quotas>,
    pub(crate) zones: Arc<SystemZones>,
    pub(crate) losses: Arc<Losses>,
}

impl Writer {
    /// Locks the current superblock.
    pub(crate) fn superblock(&self) -> MutexGuard<'_, Superblock> {
        self.observer.lock()
    }

    /// Makes the writer of a volume with this empty journal, or without one, and marks the volume
    /// as in use.
    pub(crate) fn open(
        volume: &Volume,
        parts: WriterParts,
        journal: Option<Journal<Arc<dyn BlockDevice>>>,
        counted: Arc<CountedDevice>,
        asked: &OpenOptions,
    ) -> Result<Self> {
        let uses_journal = journal.is_some();
        let journaling = Journaling::chosen(volume.superblock(), uses_journal, asked.data)?;
        let mut journal = journal;
        let mut superblock = volume.superblock().clone();
        keep_error(volume, &mut superblock, journal.as_mut())?;
        if let Some(checksum) = journal_checksum(volume.superblock(), asked.journal_checksum) {
            journal
                .iter_mut()
                .for_each(|journal| journal.set_checksum(checksum));
        }
        let options = asked
            .commit_interval
            .map_or_else(Options::default, |interval| Options { interval });
        let allocator = Arc::new(BlockAllocator::count(
            volume,
            parts.block_reserve,
            Arc::clone(&parts.zones),
        )?);
        let cache = Arc::clone(&volume.cache);
        let orphans: Arc<Orphans> = Arc::default();
        let quotas = parts.quotas.map(Arc::new);
        let observer = Arc::new(CommitObserver {
            allocator: Arc::clone(&allocator),
            orphans: Arc::clone(&orphans),
            quotas: quotas.clone(),
            discards: Discards::chosen(volume, asked.discard),
            block: volume
                .cache
                .read(volume.superblock().geometry().superblock_block())?
                .pin(),
            superblock: Mutex::new(superblock),
            initial_superblock: volume.superblock().clone(),
            losses: parts.losses,
        });
        let observing = Arc::clone(&observer) as _;
        let writer = Self {
            transactions: match journal {
                Some(journal) => Transactions::journaled(cache, observing, journal, options)?,
                None => Transactions::unjournaled(cache, observing, options),
            },
            allocator,
            observer,
            counted,
            orphans,
            quotas,
            sharing: Sharing::new(volume.superblock(), attribute_blocks(asked)),
            zones: parts.zones,
            journaling,
            uses_journal,
            held_files: HeldFiles::default(),
            next_spread: AtomicU32::new(0),
            has_ended_changes: AtomicBool::new(false),
            is_opened: AtomicBool::new(false),
            unfreed: Mutex::default(),
        };
        writer.mark(volume, true)?;
        Ok(writer)
    }

    /// Returns whether changes go through a journal.
    pub(crate) fn uses_journal(&self) -> bool {
        self.uses_journal
    }

    /// Stores on the device whether the volume is in use.
    fn mark(&self, volume: &Volume, in_use: bool) -> Result<()> {
        self.write_superblock(volume, |raw| {
            let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
            let state = State::from_bits_retain(raw.s_state.get());
            match (self.uses_journal, in_use) {
                (true, true) => raw
                    .s_feature_incompat
                    .set((incompat | Incompat::RECOVER).bits()),
                (true, false) => raw
                    .s_feature_incompat
                    .set((incompat - Incompat::RECOVER).bits()),
                (false, true) => raw.s_state.set((state - State::VALID).bits()),
                (false, false) => raw.s_state.set((state | State::VALID).bits()),
            }
            if in_use {
                raw.s_mtime.set(now_seconds());
                raw.s_mnt_count.set(raw.s_mnt_count.get().saturating_add(1));
            } else {
                self.note_end(volume, raw);
            }
        })
    }

    /// Sets the counts of a volume whose use ends.
    fn note_end(&self, volume: &Volume, raw: &mut RawSuperblock) {
        self.observer.set_counts(raw);
        // As in Linux, the writes before a crash are not counted.
        let before = volume.superblock().kbytes_written();
        raw.s_kbytes_written
            .set(before.saturating_add(self.counted.bytes_written() / 1024));
    }

    /// Changes the superblock and stores it on the device at once, past the journal.
    fn write_superblock(
        &self,
        volume: &Volume,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> Result<()> {
        let mut sb = self.observer.lock();
        change(sb.raw_mut());
        sb.raw_mut().s_wtime.set(now_seconds());
        let mut buffer = volume.cache.read(sb.geometry().superblock_block())?;
        buffer.change(|block, _| store(&sb, block));
        volume.cache.write_bytes(SUPERBLOCK_OFFSET, &sb.encode())?;
        volume.cache.device().flush()?;
        Ok(())
    }

    /// Writes all changes in place, and marks the volume clean.
    pub(crate) fn close(&self, volume: &Volume) -> Result<()> {
        self.transactions.close()?;
        self.mark(volume, false)
    }

    /// Writes all changes in place, and takes the journal from the volume, which stays not clean.
    pub(crate) fn close_without_journal(&self, volume: &Volume) -> Result<()> {
        self.transactions.close()?;
        self.write_superblock(volume, |raw| {
            raw.clear_journal();
            let state = State::from_bits_retain(raw.s_state.get());
            raw.s_state.set((state - State::VALID).bits());
            self.note_end(volume, raw);
        })
    }

    /// Ends changes: operations that begin later are refused. Those under way end as usual, and so
    /// does the opening of the volume.
    pub(crate) fn end_changes(&self) {
        // Relaxed, here and below: the flags guard no memory. A thread that misses this one makes
        // one more change, which is as sound as those before.
        self.has_ended_changes.store(true, Relaxed);
    }

    /// Whether damage has ended changes.
    pub(crate) fn has_ended_changes(&self) -> bool {
        self.has_ended_changes.load(Relaxed) && self.is_opened.load(Relaxed)
    }

    /// Notes that the volume is open.
    pub(crate) fn note_opened(&self) {
        self.is_opened.store(true, Relaxed);
    }

    /// Notes that a removed file could not be freed. The call that removed it has returned already,
    /// and the file stays an orphan.
    pub(crate) fn note_unfreed(&self, error: Error) {
        self.unfreed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
    }

    /// Returns the error of the first removed file that could not be freed.
    pub(crate) fn unfreed(&self) -> Option<Error> {
        self.unfreed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Notes in the superblock on the device that the volume is damaged, so that `e2fsck` checks
    /// it. It writes directly: the journal is aborted, so no thread writes an older superblock
    /// later. If the write fails, the note is lost.
    pub(crate) fn note_error(&self, volume: &Volume, corrupt: &Corrupt) {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let read = volume.cache.device().read_at(&mut bytes, SUPERBLOCK_OFFSET);
        let place = Place::new(Structure::Superblock);
        let (Ok(()), Ok(mut sb)) = (read, Superblock::decode(&bytes, place)) else {
            return;
        };
        note(sb.raw_mut(), corrupt);
        let _ = volume.cache.write_bytes(SUPERBLOCK_OFFSET, &sb.encode());
        let _ = volume.cache.device().flush();
    }

    /// Returns a number that differs from call to call, to spread directories.
    pub(crate) fn next_spread(&self) -> u32 {
        // Relaxed: any number is correct.
        self.next_spread.fetch_add(1, Relaxed).wrapping_mul(7)
    }
}

/// Notes the damaged structure in a superblock.
pub(crate) fn note(raw: &mut RawSuperblock, corrupt: &Corrupt) {
    let ino = corrupt.place.ino.unwrap_or(0);
    let block = corrupt.place.block.unwrap_or(0);
    let now = now_seconds();
    raw.s_state.set(raw.s_state.get() | State::ERROR.bits());
    if raw.s_error_count.get() == 0 {
        raw.s_first_error_time.set(now);
        raw.s_first_error_ino.set(ino);
        raw.s_first_error_block.set(block);
    }
    raw.s_error_count
        .set(raw.s_error_count.get().saturating_add(1));
    raw.s_last_error_time.set(now);
    raw.s_last_error_ino.set(ino);
    raw.s_last_error_block.set(block);
}

/// Does the work that is needed once for a transaction, not once for each change in it.
///
/// When the last handle of a transaction has closed, and before the transaction is written, the
/// observer adds three things to it: the descriptors of changed groups with the checksums of their
/// bitmaps, the usage of quotas, and the superblock with its counts and the head of the list of
/// orphans.
///
/// Until then they are in memory only, where all users of the volume read them. That is safe,
/// because a transaction becomes durable as a whole.
struct CommitObserver {
    allocator: Arc<BlockAllocator>,
    orphans: Arc<Orphans>,
    quotas: Option<Arc<Quotas>>,
    /// `None` without the option `discard`.
    discards: Option<Discards>,
    /// The superblock's block.
    block: Pin,
    /// The current superblock. Locks: held while its block is changed, inside a handle.
    superblock: Mutex<Superblock>,
    /// The superblock at the open, for checksums: the fields that they depend on do not change.
    initial_superblock: Superblock,
    losses: Arc<Losses>,
}

impl CommitObserver {
    fn lock(&self) -> MutexGuard<'_, Superblock> {
        self.superblock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the counts of free blocks and inodes. Returns whether they have changed.
    fn set_counts(&self, raw: &mut RawSuperblock) -> bool {
        let before = (
            raw.s_free_blocks_count_lo,
            raw.s_free_blocks_count_hi,
            raw.s_free_inodes_count,
        );
        let [a, b, c, d, e, f, g, h] = self.allocator.free_blocks().to_le_bytes();
        raw.s_free_blocks_count_lo
            .set(u32::from_le_bytes([a, b, c, d]));
        raw.s_free_blocks_count_hi
            .set(u32::from_le_bytes([e, f, g, h]));
        raw.s_free_inodes_count
            .set(u32::try_from(self.allocator.free_inodes()).unwrap_or(u32::MAX));
        before
            != (
                raw.s_free_blocks_count_lo,
                raw.s_free_blocks_count_hi,
                raw.s_free_inodes_count,
            )
    }
}

impl Observer for CommitObserver {
    fn closing(&self, closing: &Closing<'_>) {
        let mut sb = self.lock();
        self.allocator.store_groups(&sb, closing);
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
        deferred_checksum::seal(pin, bytes, unsealed, &self.initial_superblock);
    }

    fn committed(&self, _tid: Tid, freed: &[Range<u64>]) {
        // Before the blocks are released, while no thread can allocate them.
        if let Some(discards) = &self.discards {
            discards.issue(freed);
        }
        self.allocator.release_freed(freed);
    }

    fn failed(&self, error: &extern4_jbd2::Error) {
        self.losses.report(error);
    }
}

/// Writes the superblock to its place in its block.
pub(crate) fn store(sb: &Superblock, block: &mut [u8]) {
    let offset = if sb.block_size() > 1024 {
        SUPERBLOCK_OFFSET as usize
    } else {
        0
    };
    let bytes = sb.encode();
    block[offset..offset + bytes.len()].copy_from_slice(&bytes);
}
