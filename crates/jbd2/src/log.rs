//! The log on the device: a ring of blocks that transactions are appended to.
//!
//! The committer owns the log and appends to it. When `append` returns, the transaction is durable.
//! After a crash at any other moment, recovery finds the transaction whole or not at all.
//!
//! ```text
//!        tail (oldest transaction that is still needed)         head (next block to be written)
//!          │                                                      │
//! ─ free ──┤ revokes, descriptor, copies, ..., commit │ ... commit ├── free ─
//! ```
//!
//! # The order of writes
//! 1. Revoke blocks, descriptors and copies.
//! 2. A flush, which also makes file data durable that was written before. A volume whose journal
//!    has a separate device is flushed before that.
//! 3. The commit block, and the journal's superblock if the log was empty. A flush, and the
//!    transaction is durable.
//!
//! Blocks that this log has not written yet may hold anything. They may hold records of an earlier
//! volume on the device, with the same numbers and the same UUID. Recovery must take none of them
//! for a part of this log, so in this [area](StaleArea) the log writes more:
//!
//! * With step 1, zeroes where the commit block goes, and in some blocks behind it. So the log ends
//!   behind the commit block, whatever the device held there.
//! * With step 1, the first block without its magic number; with step 3, the first block with it.
//!   Otherwise a crash could leave only the beginning of the transaction, and recovery could take
//!   an old commit block for its end. For the first transaction of the log, the superblock prevents
//!   that instead. For a short one, zeroes that an earlier transaction wrote do.
//! * With the first transaction, a zeroed first block of the area for fast commits, whose checksums
//!   have no seed.
//!
//! None of this costs a flush, or a read of the log.
//!
//! The tail moves on only after the blocks of its transactions are durable in place:
//! [`Log::release`]. The log writes blocks of the ring again only after the superblock that frees
//! them is durable.
//!
//! All fields of the superblock that change are in its first 512 bytes, so that it is never torn.
//!
//! One thread owns a log, so it has no lock. The log never writes fast commits. Those in the
//! journal are void, since they go with a transaction whose number has been passed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use extern4_block::{BlockDevice, BlockWriter, Snapshot};
use extern4_disk::journal::{
    BlockHeader, ChecksumVersion, Commit, Descriptor, Format, Incompat, JournalSuperblock, MAGIC,
    Tag, TagFlags, Tid, TransactionChecksum, Version, escape,
};
use zerocopy::IntoBytes;

use crate::counters::Counters;
use crate::revoke::{self, CopyCounts};
use crate::{Error, Journal, JournalMap};

/// Bytes of the UUID behind the first tag of a descriptor.
const UUID: usize = 16;

/// The capacities that say how many blocks a transaction takes in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    /// Blocks of the ring that transactions may use.
    pub(crate) room: u32,
    tags_per_block: u64,
    revokes_per_block: u64,
}

impl Measure {
    fn new(superblock: &JournalSuperblock) -> Self {
        let format = superblock.format();
        let log = superblock.log();
        let fit = |bytes: usize, size: usize| u64::try_from((bytes / size).max(1)).unwrap_or(1);
        Self {
            // One block stays free, so that a full ring does not look like an empty one.
            room: log.end - log.start - 1,
            tags_per_block: fit(
                format.usable() - BlockHeader::SIZE - UUID,
                format.tag_size(),
            ),
            revokes_per_block: u64::try_from(revoke::per_block(&format)).unwrap_or(1),
        }
    }

    /// Returns the blocks of the log for this many copies and revoked blocks, the commit block
    /// included.
    pub(crate) fn blocks(&self, copies: u64, revokes: u64) -> u64 {
        copies + copies.div_ceil(self.tags_per_block) + revokes.div_ceil(self.revokes_per_block) + 1
    }
}

/// The contents of a transaction to be committed, in ascending order of blocks.
pub(crate) struct Contents<'a> {
    pub(crate) tid: Tid,
    pub(crate) copies: &'a [(u64, Snapshot)],
    pub(crate) revokes: &'a [u64],
}

/// A transaction that is in the log.
struct Live {
    tid: Tid,
    start: u32,
    len_blocks: u32,
    /// The blocks of the volume that it has copies of.
    copies: Vec<u64>,
}

/// The part of the ring that this log has not written yet, from the head on. It may hold anything.
#[derive(Clone, Copy)]
struct StaleArea {
    len_blocks: u32,
    /// The number of its first blocks that are zeroes, durably.
    cleared: u32,
}

impl StaleArea {
    /// The most blocks to clear ahead of the log. Up to this limit the log clears as many as it has
    /// logged, so a first transaction alone clears few.
    const AHEAD: u32 = 64;

    /// Returns how many blocks to clear behind the commit block of a transaction of `len_blocks`.
    /// The ring has `ring` blocks, of which `free` are behind the commit block. `None` if the
    /// transaction ends on cleared blocks, or on blocks that this log has already written.
    fn ahead(self, len_blocks: u32, ring: u32, free: u32) -> Option<u32> {
        let needed = self.len_blocks > 0 && self.cleared <= len_blocks;
        let logged = ring - self.len_blocks;
        let left = self.len_blocks.saturating_sub(len_blocks);
        needed.then(|| logged.min(Self::AHEAD).min(left).min(free).max(1))
    }

    /// Returns the area that is left behind a transaction of `len_blocks`, behind which `ahead`
    /// blocks were cleared.
    fn behind(self, len_blocks: u32, ahead: Option<u32>) -> Self {
        Self {
            len_blocks: self.len_blocks.saturating_sub(len_blocks),
            cleared: ahead.unwrap_or_else(|| self.cleared.saturating_sub(len_blocks)),
        }
    }
}

/// The log of a journal.
pub(crate) struct Log {
    device: Arc<dyn BlockDevice>,
    /// The volume, if that is another device.
    volume: Option<Arc<dyn BlockDevice>>,
    map: JournalMap,
    superblock: JournalSuperblock,
    index: u32,
    format: Format,
    measure: Measure,
    head: u32,
    stale: StaleArea,
    /// The next transaction.
    next: Tid,
    used: u32,
    live: VecDeque<Live>,
    /// The blocks of the volume that live transactions have copies of.
    copied: CopyCounts,
    /// When the last transaction was committed, in seconds. It never goes back, since recovery
    /// tells laps of the ring apart by it.
    seconds: u64,
    counters: Arc<Counters>,
}

impl Log {
    /// Returns the empty log of `journal`, for the volume on `volume` of `volume_blocks` blocks.
    pub(crate) fn new<D: BlockDevice + 'static>(
        journal: Journal<D>,
        volume: &Arc<dyn BlockDevice>,
        volume_blocks: u64,
        counters: Arc<Counters>,
    ) -> Result<Self, Error> {
        let (device, map, mut superblock, index, external) = journal.into_parts();
        if superblock.start.is_some() {
            return Err(Error::Dirty);
        }
        if volume_blocks > 1 << 32 {
            if superblock.version == Version::V1 {
                return Err(Error::Unsupported(
                    "block numbers of 64 bits in a journal without features".into(),
                ));
            }
            // The log is still empty, so its format may change.
            superblock.incompat |= Incompat::BIT64;
        }
        // An internal journal is written through the volume's device, so that one flush is enough
        // for both.
        let (device, volume): (Arc<dyn BlockDevice>, _) = if external {
            (Arc::new(device), Some(Arc::clone(volume)))
        } else {
            (Arc::clone(volume), None)
        };
        Ok(Self {
            device,
            volume,
            map,
            index,
            format: superblock.format(),
            measure: Measure::new(&superblock),
            head: superblock.first,
            stale: StaleArea {
                len_blocks: superblock.log().end - superblock.first,
                cleared: 0,
            },
            next: superblock.sequence,
            used: 0,
            live: VecDeque::new(),
            copied: CopyCounts::default(),
            seconds: 0,
            superblock,
            counters,
        })
    }

    /// Returns the identifier of the next transaction.
    pub(crate) fn next_tid(&self) -> Tid {
        self.next
    }

    pub(crate) fn measure(&self) -> Measure {
        self.measure
    }

    /// Returns the number of blocks that are free for transactions.
    pub(crate) fn free(&self) -> u32 {
        self.measure.room - self.used
    }

    /// Returns the transactions in the log, the oldest first, and the number of blocks of each.
    pub(crate) fn live(&self) -> impl Iterator<Item = (Tid, u32)> {
        self.live.iter().map(|live| (live.tid, live.len_blocks))
    }

    /// Returns whether the log can record revoked blocks.
    pub(crate) fn can_revoke(&self) -> bool {
        self.superblock.version == Version::V2
    }

    /// Returns the freed blocks that recovery would replay a copy of.
    pub(crate) fn with_copy<'a>(&'a self, freed: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
        freed
            .iter()
            .copied()
            .filter(|block| self.copied.has(*block))
    }

    /// Makes everything durable that was written to the devices before.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        self.flush_separate_volume()?;
        self.flush_log()
    }

    /// Makes everything durable that was written to the volume before, such as blocks written in
    /// place.
    pub(crate) fn flush_volume(&self) -> Result<(), Error> {
        if self.volume.is_some() {
            self.flush_separate_volume()
        } else {
            self.flush_log()
        }
    }

    fn flush_separate_volume(&self) -> Result<(), Error> {
        if let Some(volume) = &self.volume {
            Counters::add(&self.counters.flushes, 1);
            volume.flush()?;
        }
        Ok(())
    }

    fn flush_log(&self) -> Result<(), Error> {
        Counters::add(&self.counters.flushes, 1);
        Ok(self.device.flush()?)
    }

    /// Appends a transaction and makes it durable, and file data that was written before it. The
    /// caller has made room for it. Before each write that would make it durable this calls
    /// `check_not_aborted`, and stops at its error.
    pub(crate) fn append(
        &mut self,
        contents: &Contents<'_>,
        mut check_not_aborted: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        check_not_aborted()?;
        let start = self.head;
        let is_first = self.superblock.start.is_none();
        self.announce_revokes(contents)?;
        let len_blocks = self.len_blocks(contents);
        let log = self.superblock.log();
        let free = self.free().saturating_sub(len_blocks) + 1;
        let ahead = self.stale.ahead(len_blocks, log.end - log.start, free);
        let body = self.write_body(contents, ahead, !is_first)?;
        if is_first {
            self.void_fast_commits()?;
        }
        self.flush()?;
        check_not_aborted()?;
        if is_first {
            let mut superblock = self.superblock.clone();
            (superblock.start, superblock.sequence) = (Some(start), contents.tid);
            self.write_superblock(superblock)?;
        } else if let Some(first) = &body.hidden {
            let mut appender = Appender::new(self, start);
            appender.put(first)?;
            appender.finish()?;
        }
        let commit = self.commit_block(contents.tid, &body.checksum);
        let mut appender = Appender::new(self, body.end);
        appender.put(&commit)?;
        let head = appender.finish()?;
        self.flush_log()?;
        self.stale = self.stale.behind(len_blocks, ahead);
        self.note(contents, start, head);
        Ok(())
    }

    /// Returns the number of blocks of the log that a transaction takes; there is room for them.
    fn len_blocks(&self, contents: &Contents<'_>) -> u32 {
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        let blocks = self
            .measure
            .blocks(count(contents.copies.len()), count(contents.revokes.len()));
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    /// Records in the superblock that there are revoke blocks, before recovery could find one.
    fn announce_revokes(&mut self, contents: &Contents<'_>) -> Result<(), Error> {
        if contents.revokes.is_empty() || self.superblock.incompat.contains(Incompat::REVOKE) {
            return Ok(());
        }
        self.superblock.incompat.insert(Incompat::REVOKE);
        // The superblock of an empty log is written with the first commit block.
        if self.superblock.start.is_none() {
            Ok(())
        } else {
            self.write_superblock(self.superblock.clone())
        }
    }

    /// Clears the first block of fast commits: fast commits of a former volume may go with a later
    /// transaction of this one.
    fn void_fast_commits(&self) -> Result<(), Error> {
        let Some(first) = self.superblock.fast_commits().next() else {
            return Ok(());
        };
        let mut writer = BlockWriter::new(&self.device, self.superblock.block_size);
        writer.push(self.block(first)?, &vec![0; self.format.block_size])?;
        Ok(writer.finish()?)
    }

    /// Writes everything but the commit block from the head on. Writes zeroes to the commit block's
    /// place and to `ahead` blocks behind it. If this `hides` the transaction, it writes the first
    /// block without its magic number.
    fn write_body(
        &self,
        contents: &Contents<'_>,
        ahead: Option<u32>,
        hides: bool,
    ) -> Result<Body, Error> {
        let mut appender = Appender::new(self, self.head);
        let mut checksum = TransactionChecksum::new();
        appender.hides = hides && ahead.is_some();
        let fits = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        for block in revoke::encode(contents.tid, contents.revokes, &self.format) {
            appender.put(&block.ok_or_else(too_wide)?)?;
        }
        for copies in contents.copies.chunks(fits(self.measure.tags_per_block)) {
            self.write_copies(contents.tid, copies, &mut appender, &mut checksum)?;
        }
        let end = appender.at;
        appender.hides = false;
        let zeroes = vec![0; ahead.map_or(0, |_| self.format.block_size)];
        for _ in 0..ahead.map_or(0, |ahead| ahead + 1) {
            appender.put(&zeroes)?;
        }
        let hidden = appender.hidden.take();
        appender.finish()?;
        Ok(Body {
            end,
            checksum,
            hidden,
        })
    }

    /// Writes a descriptor and the copies that it describes.
    fn write_copies(
        &self,
        tid: Tid,
        copies: &[(u64, Snapshot)],
        appender: &mut Appender<'_>,
        checksum: &mut TransactionChecksum,
    ) -> Result<(), Error> {
        let mut tags = Vec::with_capacity(copies.len());
        let mut escaped = Vec::new();
        for (at, (block, snapshot)) in copies.iter().enumerate() {
            let mut flags = TagFlags::empty();
            flags.set(TagFlags::SAME_UUID, at != 0);
            flags.set(TagFlags::LAST, at + 1 == copies.len());
            if let Some(copy) = escape_copy(snapshot) {
                flags.insert(TagFlags::ESCAPED);
                escaped.push((at, copy));
            }
            let copy = escaped
                .last()
                .filter(|(of, _)| *of == at)
                .map_or(&snapshot[..], |(_, copy)| copy);
            let uuid = (at == 0).then_some(self.superblock.uuid);
            tags.push(Tag {
                block: *block,
                flags,
                checksum: self.format.copy_checksum(tid, copy),
                uuid,
            });
        }
        let descriptor = Descriptor { tid, tags }
            .encode(&self.format)
            .ok_or_else(too_wide)?;
        let mut put = |block: &[u8]| {
            if self.format.checksum == ChecksumVersion::V1 {
                checksum.update(block);
            }
            appender.put(block)
        };
        put(&descriptor)?;
        let mut escaped = escaped.into_iter().peekable();
        for (at, (_, snapshot)) in copies.iter().enumerate() {
            match escaped.next_if(|(of, _)| *of == at) {
                Some((_, copy)) => put(&copy)?,
                None => put(snapshot)?,
            }
        }
        Ok(())
    }

    fn commit_block(&mut self, tid: Tid, checksum: &TransactionChecksum) -> Vec<u8> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (seconds, nanoseconds) = if now.as_secs() < self.seconds {
            (self.seconds, 0)
        } else {
            (now.as_secs(), now.subsec_nanos())
        };
        self.seconds = seconds;
        let mut commit = Commit {
            tid,
            checksum_type: 0,
            checksum_size: 0,
            checksums: [0; 8],
            seconds,
            nanoseconds,
        };
        if self.format.checksum == ChecksumVersion::V1 {
            commit.checksum_type = TransactionChecksum::TYPE;
            commit.checksum_size = TransactionChecksum::SIZE;
            commit.checksums[0] = checksum.value();
        }
        commit.encode(&self.format)
    }

    /// Notes that the transaction is in the log from `start` to `head`.
    fn note(&mut self, contents: &Contents<'_>, start: u32, head: u32) {
        let log = self.superblock.log();
        let len_blocks = if head > start {
            head - start
        } else {
            head + (log.end - log.start) - start
        };
        let copies: Vec<_> = contents.copies.iter().map(|(block, _)| *block).collect();
        self.copied.add(&copies);
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        Counters::add(&self.counters.blocks_logged, count(copies.len()));
        Counters::add(&self.counters.revokes, count(contents.revokes.len()));
        let bytes = u64::from(len_blocks) * u64::from(self.superblock.block_size);
        Counters::add(&self.counters.bytes_logged, bytes);
        self.live.push_back(Live {
            tid: contents.tid,
            start,
            len_blocks,
            copies,
        });
        self.used += len_blocks;
        self.head = head;
        self.next = contents.tid.next();
    }

    /// Releases the transactions up to `last`: all their changes are durable in place. When this
    /// returns, their blocks are free.
    pub(crate) fn release(&mut self, last: Tid) -> Result<(), Error> {
        let released = self
            .live
            .iter()
            .take_while(|live| !live.tid.is_after(last))
            .count();
        if released == 0 {
            return Ok(());
        }
        let (start, sequence) = match self.live.get(released) {
            Some(live) => (live.start, live.tid),
            None => (self.head, self.next),
        };
        let mut superblock = self.superblock.clone();
        (superblock.start, superblock.sequence) = (Some(start), sequence);
        self.write_superblock(superblock)?;
        self.flush_log()?;
        for live in self.live.drain(..released) {
            self.used -= live.len_blocks;
            self.copied.remove(&live.copies);
        }
        Ok(())
    }

    /// Records durably that there is nothing to replay. The caller has made all changes durable in
    /// place.
    pub(crate) fn mark_empty(&mut self) -> Result<(), Error> {
        let mut superblock = self.superblock.clone();
        (superblock.start, superblock.sequence, superblock.head) = (None, self.next, self.head);
        self.write_superblock(superblock)?;
        self.flush_log()
    }

    /// Records in the superblock, if it can still be written, that the journal was aborted, and
    /// why.
    pub(crate) fn note_failure(&mut self, errno: i32) {
        let mut superblock = self.superblock.clone();
        superblock.errno = errno;
        // The error that led here is reported; this one adds nothing to it.
        let _ = self
            .write_superblock(superblock)
            .and_then(|()| self.flush_log());
    }

    /// Writes the superblock, and keeps it as the one on the device.
    fn write_superblock(&mut self, superblock: JournalSuperblock) -> Result<(), Error> {
        let block = self.block(self.index)?;
        let offset = block.saturating_mul(u64::from(superblock.block_size));
        BlockWriter::write_bytes(&self.device, offset, superblock.encode().as_bytes())?;
        self.superblock = superblock;
        Ok(())
    }

    /// Returns the block of the device that is block `index` of the journal.
    fn block(&self, index: u32) -> Result<u64, Error> {
        self.map.lookup(index).ok_or_else(|| {
            // The check at opening found that the map covers the journal.
            let what = "a block of the journal is not mapped";
            let place = extern4_disk::Place::new(extern4_disk::Structure::JournalBlock);
            place
                .corrupt(extern4_disk::CorruptKind::Mismatch { what })
                .into()
        })
    }
}

/// Returns the copy of `snapshot` for the log, if it has to be escaped.
fn escape_copy(snapshot: &Snapshot) -> Option<Vec<u8>> {
    let mut first: [u8; 4] = *snapshot.first_chunk()?;
    escape(&mut first).then(|| {
        let mut copy = snapshot.to_vec();
        escape(&mut copy);
        copy
    })
}

fn too_wide() -> Error {
    Error::Unsupported("a block number of 64 bits in a journal that has 32".into())
}

/// The part of a transaction written before its commit block.
struct Body {
    /// The block for the commit block.
    end: u32,
    checksum: TransactionChecksum,
    /// The first block with its magic number, if it was written without it.
    hidden: Option<Vec<u8>>,
}

/// A writer of consecutive blocks around the ring.
struct Appender<'a> {
    log: &'a Log,
    writer: BlockWriter<'a>,
    at: u32,
    /// Whether the next block is kept as `hidden`, and written without its magic number.
    hides: bool,
    hidden: Option<Vec<u8>>,
}

impl<'a> Appender<'a> {
    fn new(log: &'a Log, at: u32) -> Self {
        let writer = BlockWriter::new(&log.device, log.superblock.block_size);
        Self {
            log,
            writer,
            at,
            hides: false,
            hidden: None,
        }
    }

    fn put(&mut self, block: &[u8]) -> Result<(), Error> {
        let at = self.log.block(self.at)?;
        if std::mem::take(&mut self.hides) {
            let mut without = block.to_vec();
            without[..size_of_val(&MAGIC)].fill(0);
            self.writer.push(at, &without)?;
            self.hidden = Some(block.to_vec());
        } else {
            self.writer.push(at, block)?;
        }
        let ring = self.log.superblock.log();
        self.at = if self.at + 1 == ring.end {
            ring.start
        } else {
            self.at + 1
        };
        Ok(())
    }

    /// Writes the rest. Returns the block behind the last one.
    fn finish(self) -> Result<u32, Error> {
        self.writer.finish()?;
        Ok(self.at)
    }
}
