//! A volume in memory with a journal that a test builds block by block.

use std::collections::BTreeMap;

use extern4_block::MemoryDevice;
use extern4_disk::journal::{
    ChecksumVersion, Commit, Compat, Descriptor, Format, Incompat, JournalSuperblock,
    RawJournalSuperblock, Revoke, Tag, TagFlags, Tid, TransactionChecksum, escape,
};
use extern4_disk::{Place, Structure};
use extern4_jbd2::{Error, Journal, JournalMap, Recovered, Run};
use zerocopy::{FromZeros, IntoBytes};

/// Size of all blocks here, in bytes.
pub(crate) const BLOCK: usize = 1024;
/// Blocks of the volume; the last ones are the journal, in two runs.
pub(crate) const VOLUME: u64 = 1200;
/// Blocks of the journal.
pub(crate) const LEN: u32 = 1024;
const FIRST_RUN: u32 = 1000;

/// The positions of the blocks of one transaction in the journal.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) descriptor: u32,
    pub(crate) copies: Vec<u32>,
    pub(crate) revoke: u32,
    pub(crate) commit: u32,
}

/// The journal being written.
pub(crate) struct Log {
    pub(crate) superblock: JournalSuperblock,
    blocks: BTreeMap<u32, Vec<u8>>,
    at: u32,
    tid: Tid,
    /// The commit time of the next transaction.
    pub(crate) seconds: u64,
}

/// Returns the contents of a block: one byte, repeated.
pub(crate) fn filled(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK]
}

impl Log {
    /// Returns an empty log at the beginning of the ring.
    pub(crate) fn new(checksum: ChecksumVersion, wide: bool) -> Self {
        Self::starting_at(checksum, wide, 1, Tid(7))
    }

    /// Returns an empty log that starts at block `start`.
    pub(crate) fn starting_at(checksum: ChecksumVersion, wide: bool, start: u32, tid: Tid) -> Self {
        let mut raw = RawJournalSuperblock::new_zeroed();
        raw.s_header.h_magic = extern4_disk::journal::MAGIC.into();
        raw.s_header.h_blocktype = 4.into();
        raw.s_blocksize = 1024.into();
        raw.s_maxlen = LEN.into();
        raw.s_first = 1.into();
        raw.s_checksum_type = 4;
        raw.s_uuid = *b"a journal's uuid";
        let place = Place::new(Structure::JournalSuperblock);
        let mut superblock = JournalSuperblock::decode(raw.as_bytes(), place).expect("sound");
        superblock.incompat = Incompat::REVOKE;
        superblock.incompat.set(Incompat::BIT64, wide);
        superblock
            .incompat
            .set(Incompat::CSUM_V2, checksum == ChecksumVersion::V2);
        superblock
            .incompat
            .set(Incompat::CSUM_V3, checksum == ChecksumVersion::V3);
        superblock
            .compat
            .set(Compat::CHECKSUM, checksum == ChecksumVersion::V1);
        superblock.start = Some(start);
        superblock.sequence = tid;
        Self {
            superblock,
            blocks: BTreeMap::new(),
            at: start,
            tid,
            seconds: 1_000,
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.superblock.format()
    }

    fn put(&mut self, block: Vec<u8>) -> u32 {
        let index = self.at;
        let log = self.superblock.log();
        self.blocks.insert(index, block);
        self.at = if index + 1 == log.end {
            log.start
        } else {
            index + 1
        };
        index
    }

    /// Appends a transaction of copies (block and contents) and revoked blocks.
    pub(crate) fn transaction(&mut self, copies: &[(u64, Vec<u8>)], revoked: &[u64]) -> Written {
        let mut written = self.uncommitted(copies, revoked);
        let mut commit = Commit {
            tid: self.tid,
            checksum_type: 0,
            checksum_size: 0,
            checksums: [0; 8],
            seconds: self.seconds,
            nanoseconds: 0,
        };
        if self.format().checksum == ChecksumVersion::V1 {
            (commit.checksum_type, commit.checksum_size) =
                (TransactionChecksum::TYPE, TransactionChecksum::SIZE);
            let mut checksum = TransactionChecksum::new();
            for index in written
                .copies
                .first()
                .map(|_| written.descriptor)
                .iter()
                .chain(&written.copies)
            {
                checksum.update(&self.blocks[index]);
            }
            commit.checksums[0] = checksum.value();
        }
        written.commit = self.put(commit.encode(&self.format()));
        self.tid = self.tid.next();
        self.seconds += 1;
        written
    }

    /// Appends a transaction that was not committed before the crash.
    pub(crate) fn uncommitted(&mut self, copies: &[(u64, Vec<u8>)], revoked: &[u64]) -> Written {
        let format = self.format();
        let mut written = Written::default();
        if !copies.is_empty() {
            let mut tags = Vec::new();
            let mut escaped_copies = Vec::new();
            for (at, (block, contents)) in copies.iter().enumerate() {
                let mut contents = contents.clone();
                let mut flags = TagFlags::empty();
                flags.set(TagFlags::ESCAPED, escape(&mut contents));
                flags.set(TagFlags::SAME_UUID, at != 0);
                flags.set(TagFlags::LAST, at + 1 == copies.len());
                let checksum = format.copy_checksum(self.tid, &contents);
                let uuid = (at == 0).then_some(self.superblock.uuid);
                tags.push(Tag {
                    block: *block,
                    flags,
                    checksum,
                    uuid,
                });
                escaped_copies.push(contents);
            }
            let descriptor = Descriptor {
                tid: self.tid,
                tags,
            }
            .encode(&format)
            .expect("it fits");
            written.descriptor = self.put(descriptor);
            written.copies = escaped_copies
                .into_iter()
                .map(|copy| self.put(copy))
                .collect();
        }
        if !revoked.is_empty() {
            let revoke = Revoke {
                tid: self.tid,
                blocks: revoked.to_vec(),
            };
            written.revoke = self.put(revoke.encode(&format).expect("it fits"));
        }
        written
    }

    /// Returns the bytes of block `index` of the journal.
    pub(crate) fn block(&mut self, index: u32) -> &mut Vec<u8> {
        self.blocks.entry(index).or_insert_with(|| filled(0))
    }

    /// Returns the map of the journal: its first run is the higher one.
    pub(crate) fn map() -> JournalMap {
        let physical = VOLUME - u64::from(FIRST_RUN);
        let rest = LEN - FIRST_RUN;
        let runs = vec![
            Run {
                logical: 0,
                physical,
                len_blocks: FIRST_RUN,
            },
            Run {
                logical: FIRST_RUN,
                physical: physical - u64::from(rest),
                len_blocks: rest,
            },
        ];
        JournalMap::new(runs).expect("sound")
    }

    /// Returns the bytes of the whole volume; blocks outside of the journal are empty.
    pub(crate) fn volume(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(VOLUME).expect("small") * BLOCK];
        let mut put = |index: u32, block: &[u8]| {
            let physical = Self::map().lookup(index).expect("mapped");
            let start = usize::try_from(physical).expect("small") * BLOCK;
            bytes[start..start + block.len()].copy_from_slice(block);
        };
        put(0, self.superblock.encode().as_bytes());
        self.blocks
            .iter()
            .for_each(|(index, block)| put(*index, block));
        bytes
    }

    pub(crate) fn device(&self) -> MemoryDevice {
        MemoryDevice::read_only(self.volume())
    }

    pub(crate) fn recover(&self) -> Result<Recovered<MemoryDevice>, Error> {
        Journal::internal(self.device(), 1024, Self::map())?.recover(VOLUME)
    }

    /// Returns the result of recovery, as the first byte of each block to be replaced.
    pub(crate) fn outcome(&self) -> Result<(BTreeMap<u64, u8>, usize), Error> {
        let recovered = self.recover()?;
        let mut blocks = BTreeMap::new();
        recovered.replay(|block, contents| {
            blocks.insert(block, contents[0]);
            Ok::<_, Error>(())
        })?;
        Ok((blocks, recovered.damage().len()))
    }
}
