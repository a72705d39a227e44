//! Recovery: reading the log after a crash.
//!
//! `ext4` recovers each volume whose journal is dirty, when it opens it. Reading the log changes
//! nothing. A damaged log gives an error or reported damage, and never blocks of an incomplete
//! transaction.
//!
//! Recovery reads the log once, from where the superblock says that it starts. It goes on as long
//! as each block carries the number of the transaction that is due. The contents of a transaction
//! count once its commit block is found:
//!
//! 1. Its copies replace copies of older transactions for the same blocks.
//! 2. Then its revoke records void all copies found so far, since these copies are of this or an
//!    older transaction. A younger transaction that logs the block again comes later, and its copy
//!    counts.
//!
//! So at every moment recovery knows one copy of each block, the youngest that counts, and needs no
//! table of revoked blocks. The result is that of the passes named in the documentation (scan,
//! revoke, replay).
//!
//! A log ends in one of these ways:
//!
//! * With a block that is not of the log, or of another transaction: the usual end.
//! * With a descriptor of more copies than the ring has blocks left: no commit can follow. A crash
//!   leaves this where the last transaction reaches the end of a full log. Some sectors of its
//!   descriptor are then older than others.
//! * With a wrong checksum, of a transaction that was committed before the one ahead of it. An
//!   older lap around the ring left it behind: an end as usual.
//! * With a wrong checksum in a commit block. If commits are asynchronous, a crash between the
//!   writes of the commit block and of the other blocks leaves this: an end as usual. Otherwise it
//!   is damage.
//! * With a wrong checksum in a descriptor or revoke block of a committed transaction: recovery
//!   fails as a whole.
//!
//! A copy with a wrong checksum is left out, and is damage. The kernel (6.18) behaves in these
//! ways, as observed on journals damaged on purpose.
//!
//! The length of the journal bounds time and memory. Recovery follows the log at most once around
//! the ring, and keeps a few dozen bytes for each copy and none of the contents.

use std::collections::BTreeMap;

use extern4_block::{BlockDevice, BlockWriter};
use extern4_disk::fast_commit::{FastCommits, Scanner};
use extern4_disk::journal::{
    BlockHeader, BlockKind, ChecksumVersion, Commit, Descriptor, Format, Incompat, Revoke,
    TagFlags, Tid, TransactionChecksum, unescape,
};
use extern4_disk::{Corrupt, CorruptKind, Structure};

use crate::{Error, Journal};

/// The counts of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The oldest and the youngest transaction, if there is any.
    pub tids: Option<(Tid, Tid)>,
    /// Number of transactions.
    pub transactions: u32,
    /// Copies of blocks in them, including outdated and revoked copies.
    pub copies: u64,
    /// Revoke records in them.
    pub revokes: u64,
    /// Blocks of the volume to be replaced.
    pub blocks: u64,
    /// Fast commits after the last transaction.
    pub fast_commits: u32,
}

/// A copy of a block of the volume.
#[derive(Clone, Copy, Debug)]
struct Copy {
    /// The block of the journal.
    index: u32,
    escaped: bool,
}

/// A recovered journal: the blocks of the volume that it has newer contents of.
#[derive(Debug)]
pub struct Recovered<D> {
    journal: Journal<D>,
    copies: BTreeMap<u64, Copy>,
    replayed: Replayed,
    fast_commits: FastCommits,
    damage: Vec<Corrupt>,
    /// The transaction that would have been next.
    due: Tid,
}

impl<D: BlockDevice> Journal<D> {
    /// Reads the log of the journal, for a volume of `volume_blocks` blocks. Writes nothing.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the log is damaged so that nothing of it may be used;
    /// [`Error::Unsupported`] for a fast commit area with unknown features; [`Error::Device`].
    pub fn recover(self, volume_blocks: u64) -> Result<Recovered<D>, Error> {
        let Some(start) = self.superblock().start else {
            let copies = BTreeMap::new();
            let replayed = Replayed::default();
            let due = self.superblock().sequence;
            let fast_commits = FastCommits {
                tid: due,
                ..FastCommits::default()
            };
            return Ok(Recovered {
                journal: self,
                copies,
                replayed,
                fast_commits,
                damage: Vec::new(),
                due,
            });
        };
        let mut scan = Scan::new(&self, start, volume_blocks);
        scan.run()?;
        let Scan {
            due,
            copies,
            damage,
            mut replayed,
            ..
        } = scan;
        // After damage, fast commits may not belong to the recovered blocks.
        let fast_commits = if damage.is_empty() {
            self.read_fast_commits(due)?
        } else {
            FastCommits::default()
        };
        replayed.blocks = u64::try_from(copies.len()).unwrap_or(u64::MAX);
        replayed.fast_commits = u32::try_from(fast_commits.commits.len()).unwrap_or(u32::MAX);
        Ok(Recovered {
            journal: self,
            copies,
            replayed,
            fast_commits,
            damage,
            due,
        })
    }

    /// Reads the fast commits that go with transaction `due`, the one after the log's last.
    fn read_fast_commits(&self, due: Tid) -> Result<FastCommits, Error> {
        let mut scanner = Scanner::new(due);
        let mut block = vec![0; self.block_size()];
        for index in self.superblock().fast_commits() {
            self.read(index, &mut block)?;
            let mut place = self.place(index);
            place.structure = Structure::FastCommit;
            if !scanner.feed(&block, place) {
                break;
            }
        }
        Ok(scanner.finish()?)
    }
}

impl<D: BlockDevice> Recovered<D> {
    /// Returns the counts of this recovery.
    pub fn replayed(&self) -> Replayed {
        self.replayed
    }

    /// Returns the fast commits, for the file system to apply on top of the replayed blocks.
    pub fn fast_commits(&self) -> &FastCommits {
        &self.fast_commits
    }

    /// Returns the damage in the log. If there is any, [`Recovered`] holds what could be recovered.
    /// The kernel would refuse to mount the volume. A caller should refuse it, too, unless its user
    /// asks to go on regardless.
    pub fn damage(&self) -> &[Corrupt] {
        &self.damage
    }

    /// Returns the journal.
    pub fn journal(&self) -> &Journal<D> {
        &self.journal
    }

    /// Returns the blocks of the volume that the journal has newer contents of, ascending.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.copies.keys().copied()
    }

    /// Returns the blocks from `first` to `last` that the journal has newer contents of, ascending.
    pub fn blocks_between(&self, first: u64, last: u64) -> impl Iterator<Item = u64> {
        // A range that runs backwards would make the map panic.
        self.copies
            .range(first..=last.max(first))
            .map(|(&block, _)| block)
    }

    /// Reads the newer contents of block `block` of the volume into `buf`, which has the size of a
    /// block. Returns false and leaves `buf` alone if the journal has none.
    ///
    /// # Errors
    /// [`Error::Device`] if the journal cannot be read.
    pub fn read(&self, block: u64, buf: &mut [u8]) -> Result<bool, Error> {
        let Some(copy) = self.copies.get(&block) else {
            return Ok(false);
        };
        self.journal.read(copy.index, buf)?;
        if copy.escaped {
            unescape(buf);
        }
        Ok(true)
    }

    /// Passes every block of the volume to be replaced, with its new contents, to `sink`, in
    /// ascending order. A second replay does no harm.
    ///
    /// # Errors
    /// The first of `sink`, or of reading the journal.
    pub fn replay<E: From<Error>>(
        &self,
        mut sink: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut contents = vec![0; self.journal.block_size()];
        for block in self.blocks() {
            self.read(block, &mut contents)?;
            sink(block, &contents)?;
        }
        Ok(())
    }
}

impl<D: BlockDevice> Recovered<D> {
    /// Writes the recovered blocks in place on `volume`, and flushes it. The log stays as it is, so
    /// that a crash in between does no harm. The caller then applies the [fast
    /// commits](Recovered::fast_commits) and calls [`Recovered::mark_empty`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is [damage](Recovered::damage), and the errors of
    /// [`Recovered::replay`].
    pub fn write_in_place(&self, volume: &dyn BlockDevice) -> Result<(), Error> {
        self.check_damage()?;
        let mut writer = BlockWriter::new(volume, self.journal.superblock().block_size);
        self.replay(|block, contents| Ok::<_, Error>(writer.push(block, contents)?))?;
        writer.finish()?;
        Ok(volume.flush()?)
    }

    /// Records durably in the journal that its log is empty, and returns the journal, ready for
    /// transactions. The caller has made all of the log durable in place. `applied` is the number
    /// of fast commits that the caller has applied to the volume, durably.
    ///
    /// # Errors
    /// [`Error::FastCommits`] if that is not all of them, so that none is dropped by mistake;
    /// [`Error::Corrupt`] if there is damage; [`Error::Device`].
    pub fn mark_empty(mut self, applied: u32) -> Result<Journal<D>, Error> {
        self.check_damage()?;
        if applied != self.replayed.fast_commits {
            return Err(Error::FastCommits(self.replayed.fast_commits));
        }
        if self.journal.is_dirty() {
            // Blocks of the transaction that was due may be in the log, incomplete. Its number is
            // not used again, so recovery never takes them for blocks of another transaction. The
            // same holds for fast commits that went with it.
            self.journal.mark_empty(self.due.next())?;
        }
        Ok(self.journal)
    }

    fn check_damage(&self) -> Result<(), Corrupt> {
        match self.damage.first() {
            Some(damage) => Err(*damage),
            None => Ok(()),
        }
    }
}

/// Whether the log continues behind a block.
#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    End,
}

/// A copy of the transaction that is being read.
struct Pending {
    block: u64,
    copy: Copy,
    checksum: u32,
}

/// A scan of the log.
struct Scan<'a, D> {
    journal: &'a Journal<D>,
    format: Format,
    volume_blocks: u64,
    /// The next block of the journal to read, and how many may be read before the scan has gone
    /// around the ring.
    at: u32,
    left: u32,
    /// The transaction that is due.
    due: Tid,
    /// Of the transaction that is being read: its copies, its revoke blocks, its checksum of
    /// version 1, and the first block whose checksum is wrong.
    pending: Vec<Pending>,
    revokes: Vec<u32>,
    checksum: TransactionChecksum,
    suspect: Option<Corrupt>,
    /// When the last transaction was committed, in seconds.
    committed: u64,
    /// An asynchronous commit with a wrong checksum, which may be the end of the log.
    torn: Option<Corrupt>,
    /// The copies and the damage found so far.
    copies: BTreeMap<u64, Copy>,
    damage: Vec<Corrupt>,
    /// Copies with wrong checksums, of blocks that may still be revoked.
    bad_copies: BTreeMap<u64, Corrupt>,
    replayed: Replayed,
    /// A buffer for one block.
    block: Vec<u8>,
}

impl<'a, D: BlockDevice> Scan<'a, D> {
    fn new(journal: &'a Journal<D>, start: u32, volume_blocks: u64) -> Self {
        let superblock = journal.superblock();
        let log = superblock.log();
        Self {
            journal,
            format: superblock.format(),
            volume_blocks,
            at: start,
            left: log.end - log.start,
            due: superblock.sequence,
            pending: Vec::new(),
            revokes: Vec::new(),
            checksum: TransactionChecksum::new(),
            suspect: None,
            committed: 0,
            torn: None,
            copies: BTreeMap::new(),
            damage: Vec::new(),
            bad_copies: BTreeMap::new(),
            replayed: Replayed::default(),
            block: vec![0; journal.block_size()],
        }
    }

    fn run(&mut self) -> Result<(), Error> {
        while let Some(index) = self.take() {
            self.journal.read(index, &mut self.block)?;
            let next = match BlockHeader::recognise(&self.block) {
                Some(header) if header.tid == self.due => match header.kind {
                    BlockKind::Descriptor => self.descriptor(index)?,
                    BlockKind::Revoke => self.revoke(index),
                    BlockKind::Commit => self.commit(index)?,
                    BlockKind::SuperblockV1 | BlockKind::SuperblockV2 => Next::End,
                },
                _ => Next::End,
            };
            if next == Next::End {
                break;
            }
        }
        self.damage
            .extend(std::mem::take(&mut self.bad_copies).into_values());
        Ok(())
    }

    /// Returns the next block of the ring; `None` when the scan is back where the log started.
    fn take(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let index = self.at;
        let log = self.journal.superblock().log();
        self.at = if index + 1 < log.end {
            index + 1
        } else {
            log.start
        };
        Some(index)
    }

    fn descriptor(&mut self, index: u32) -> Result<Next, Error> {
        let place = self.journal.place(index);
        self.suspect = self
            .suspect
            .or(self.format.verify_tail(&self.block, place).err());
        let descriptor = Descriptor::decode(&self.block, &self.format, place)?;
        let version_1 = self.format.checksum == ChecksumVersion::V1;
        if version_1 {
            self.checksum.update(&self.block);
        }
        for tag in descriptor.tags {
            let Some(index) = self.take() else {
                return Ok(Next::End);
            };
            if version_1 {
                self.journal.read(index, &mut self.block)?;
                self.checksum.update(&self.block);
            }
            let copy = Copy {
                index,
                escaped: tag.flags.contains(TagFlags::ESCAPED),
            };
            self.pending.push(Pending {
                block: tag.block,
                copy,
                checksum: tag.checksum,
            });
        }
        Ok(Next::Continue)
    }

    fn revoke(&mut self, index: u32) -> Next {
        let place = self.journal.place(index);
        self.suspect = self
            .suspect
            .or(self.format.verify_tail(&self.block, place).err());
        self.revokes.push(index);
        Next::Continue
    }

    fn commit(&mut self, index: u32) -> Result<Next, Error> {
        let place = self.journal.place(index);
        if let Some(torn) = self.torn {
            // The log continues behind a commit that looked torn, so no crash can explain that
            // commit.
            self.damage.push(torn);
            return Ok(Next::End);
        }
        let commit = Commit::decode(&self.block, place)?;
        let wrong = commit
            .verify(&self.block, &self.checksum, &self.format, place)
            .err();
        if self.suspect.or(wrong).is_some() && commit.seconds < self.committed {
            return Ok(Next::End);
        }
        if let Some(suspect) = self.suspect {
            return Err(suspect.into());
        }
        if let Some(wrong) = wrong {
            return Ok(self.bad_commit(wrong));
        }
        self.apply()?;
        self.committed = commit.seconds;
        self.start_transaction();
        Ok(Next::Continue)
    }

    /// Decides what a commit with a wrong checksum means.
    fn bad_commit(&mut self, wrong: Corrupt) -> Next {
        if !self
            .journal
            .superblock()
            .incompat
            .contains(Incompat::ASYNC_COMMIT)
        {
            self.damage.push(wrong);
            return Next::End;
        }
        if self.format.checksum != ChecksumVersion::V1 {
            return Next::End;
        }
        self.torn = Some(wrong);
        self.start_transaction();
        Next::Continue
    }

    fn start_transaction(&mut self) {
        self.due = self.due.next();
        self.pending.clear();
        self.revokes.clear();
        self.checksum = TransactionChecksum::new();
    }

    /// Adds a committed transaction to the result.
    fn apply(&mut self) -> Result<(), Error> {
        for pending in std::mem::take(&mut self.pending) {
            self.replayed.copies += 1;
            match self.check(&pending)? {
                Ok(()) => drop(self.copies.insert(pending.block, pending.copy)),
                Err(corrupt) => drop(self.bad_copies.entry(pending.block).or_insert(corrupt)),
            }
        }
        for index in std::mem::take(&mut self.revokes) {
            self.journal.read(index, &mut self.block)?;
            let revoke = Revoke::decode(&self.block, &self.format, self.journal.place(index))?;
            for block in revoke.blocks {
                self.replayed.revokes += 1;
                self.copies.remove(&block);
                self.bad_copies.remove(&block);
            }
        }
        let first = self.replayed.tids.map_or(self.due, |(first, _)| first);
        self.replayed.tids = Some((first, self.due));
        self.replayed.transactions += 1;
        Ok(())
    }

    /// Checks whether a copy may be used: it has the checksum in its tag, and belongs to the
    /// volume.
    fn check(&mut self, pending: &Pending) -> Result<Result<(), Corrupt>, Error> {
        let place = self.journal.place(pending.copy.index);
        if pending.block >= self.volume_blocks {
            let kind = CorruptKind::BlockOutOfRange {
                field: "t_blocknr",
                block: pending.block,
            };
            return Ok(Err(place.corrupt(kind)));
        }
        if self.format.checksums_blocks() {
            self.journal.read(pending.copy.index, &mut self.block)?;
            let stored = pending.checksum;
            let computed = self.format.copy_checksum(self.due, &self.block);
            if stored != computed {
                return Ok(Err(
                    place.corrupt(CorruptKind::Checksum { stored, computed })
                ));
            }
        }
        Ok(Ok(()))
    }
}
