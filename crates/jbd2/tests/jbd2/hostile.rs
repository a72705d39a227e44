//! Tests of journals of arbitrary bytes: recovery ends, with a result or an error.

use extern4_disk::journal::ChecksumVersion;
use extern4_jbd2::Error;

use crate::log::{BLOCK, Log, filled};

/// A generator of random numbers, the same each time (xorshift64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).expect("small")).expect("small")
    }
}

/// Returns a log of some transactions that allows fast commits, before the test damages it.
fn sound(version: ChecksumVersion, wide: bool) -> Log {
    let mut log = Log::starting_at(version, wide, 1000, extern4_disk::journal::Tid(3));
    for round in 0..6 {
        let copies: Vec<_> = (0..round + 1)
            .map(|block| (10 + block, filled(7)))
            .collect();
        log.transaction(&copies, &[round, 11]);
    }
    log
}

#[test]
fn mutated_logs_never_panic_or_hang() {
    let versions = [
        ChecksumVersion::None,
        ChecksumVersion::V1,
        ChecksumVersion::V2,
        ChecksumVersion::V3,
    ];
    for seed in 1..=400_u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let version = versions[random.below(4)];
        let mut log = sound(version, random.below(2) == 0);
        for _ in 0..=random.below(8) {
            // Most of the ring is empty; the log is its last 24 blocks and the first 40.
            let at = random.below(64);
            let index = if at < 24 { 1000 + at } else { 1 + at - 24 };
            let block = log.block(u32::try_from(index).expect("small"));
            // The first bytes of a block matter more than the rest.
            let offset = if random.below(3) == 0 {
                random.below(BLOCK)
            } else {
                random.below(64)
            };
            block[offset] = match random.below(3) {
                0 => 0,
                1 => 0xFF,
                _ => random.next().to_le_bytes()[0],
            };
        }
        match log.outcome() {
            Ok((blocks, _)) => assert!(blocks.len() < 1024, "seed {seed}"),
            Err(Error::Corrupt(_) | Error::Unsupported(_)) => {}
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
}

#[test]
fn mutated_superblocks_never_panic_or_hang() {
    for seed in 1..=400_u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let log = sound(ChecksumVersion::None, true);
        let mut bytes = log.volume();
        let superblock =
            usize::try_from(Log::map().lookup(0).expect("mapped")).expect("small") * BLOCK;
        for _ in 0..=random.below(3) {
            let at = superblock + 12 + random.below(0x54);
            bytes[at] = random.next().to_le_bytes()[0];
        }
        let device = extern4_block::MemoryDevice::new(bytes);
        let opened = extern4_jbd2::Journal::internal(device, 1024, Log::map());
        match opened.and_then(|journal| journal.recover(crate::log::VOLUME)) {
            Ok(_) | Err(Error::Corrupt(_) | Error::Unsupported(_)) => {}
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
}
