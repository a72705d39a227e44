//! Tests of the rules of recovery, one by one, on journals built block by block.

use std::collections::BTreeMap;

use extern4_block::{BlockDevice, MemoryDevice};
use extern4_disk::journal::{ChecksumVersion, Incompat, MAGIC, RoCompat, Tid};
use extern4_disk::{CorruptKind, Structure};
use extern4_jbd2::{Error, Journal, JournalMap, ReplayedDevice, Run};

use crate::log::{BLOCK, LEN, Log, VOLUME, filled};

const VERSIONS: [ChecksumVersion; 4] = [
    ChecksumVersion::None,
    ChecksumVersion::V1,
    ChecksumVersion::V2,
    ChecksumVersion::V3,
];

fn formats() -> impl Iterator<Item = (ChecksumVersion, bool)> {
    VERSIONS
        .into_iter()
        .flat_map(|version| [(version, false), (version, true)])
}

fn blocks<const N: usize>(pairs: [(u64, u8); N]) -> BTreeMap<u64, u8> {
    pairs.into()
}

#[test]
fn the_youngest_copy_wins() {
    for (version, wide) in formats() {
        let mut log = Log::new(version, wide);
        log.transaction(&[(5, filled(1)), (6, filled(2))], &[]);
        log.transaction(&[(6, filled(3)), (9, filled(4)), (9, filled(5))], &[]);
        let recovered = log.recover().expect("sound");
        let replayed = recovered.replayed();
        assert_eq!(replayed.tids, Some((Tid(7), Tid(8))));
        assert_eq!(
            (replayed.transactions, replayed.copies, replayed.blocks),
            (2, 5, 3)
        );
        assert_eq!(
            log.outcome().expect("sound"),
            (blocks([(5, 1), (6, 3), (9, 5)]), 0),
            "{version:?}"
        );
    }
}

#[test]
fn an_uncommitted_transaction_does_not_count() {
    for (version, wide) in formats() {
        let mut log = Log::new(version, wide);
        log.transaction(&[(5, filled(1))], &[]);
        let written = log.uncommitted(&[(6, filled(2))], &[5]);
        assert_eq!(log.outcome().expect("sound"), (blocks([(5, 1)]), 0));
        log.block(written.descriptor)[900] ^= 1;
        log.block(written.revoke)[900] ^= 1;
        assert_eq!(log.outcome().expect("sound"), (blocks([(5, 1)]), 0));
    }
}

#[test]
fn revoked_blocks_are_left_alone_until_logged_again() {
    for (version, wide) in formats() {
        let mut log = Log::new(version, wide);
        log.transaction(&[(5, filled(1)), (6, filled(1)), (7, filled(1))], &[]);
        log.transaction(&[(8, filled(2)), (7, filled(2))], &[5, 6, 8]);
        log.transaction(&[(6, filled(3))], &[]);
        let recovered = log.recover().expect("sound");
        assert_eq!(recovered.replayed().revokes, 3);
        assert_eq!(
            log.outcome().expect("sound"),
            (blocks([(6, 3), (7, 2)]), 0),
            "{version:?}"
        );
    }
}

#[test]
fn escaped_blocks_get_their_magic_back() {
    for (version, wide) in formats() {
        let mut log = Log::new(version, wide);
        let mut contents = filled(9);
        contents[..4].copy_from_slice(&MAGIC.to_be_bytes());
        let written = log.transaction(&[(5, contents.clone()), (6, filled(0))], &[]);
        assert_eq!(log.block(written.copies[0])[..4], [0; 4]);
        let recovered = log.recover().expect("sound");
        let mut found = filled(1);
        assert!(recovered.read(5, &mut found).expect("readable"));
        assert_eq!(found, contents);
        assert!(recovered.read(6, &mut found).expect("readable"));
        assert_eq!(found, filled(0));
        assert!(!recovered.read(7, &mut found).expect("readable"));
    }
}

#[test]
fn the_ring_and_the_numbers_wrap() {
    for (version, wide) in formats() {
        for start in LEN - 12..LEN {
            let mut log = Log::starting_at(version, wide, start, Tid(u32::MAX - 1));
            for round in 0..4 {
                log.transaction(
                    &[(5, filled(round)), (6 + u64::from(round), filled(round))],
                    &[100],
                );
            }
            let recovered = log.recover().expect("sound");
            assert_eq!(recovered.replayed().tids, Some((Tid(u32::MAX - 1), Tid(1))));
            let expected = blocks([(5, 3), (6, 0), (7, 1), (8, 2), (9, 3)]);
            assert_eq!(
                log.outcome().expect("sound"),
                (expected, 0),
                "{version:?} from {start}"
            );
        }
    }
}

#[test]
fn an_older_lap_is_no_part_of_the_log() {
    let mut log = Log::new(ChecksumVersion::None, true);
    log.transaction(&[(5, filled(1))], &[]);
    let old = log.transaction(&[(6, filled(2))], &[]);
    log.block(old.descriptor)[8..12].copy_from_slice(&6_u32.to_be_bytes());
    assert_eq!(log.outcome().expect("sound"), (blocks([(5, 1)]), 0));
}

#[test]
fn an_empty_log_has_nothing() {
    let mut log = Log::new(ChecksumVersion::V3, true);
    log.transaction(&[(5, filled(1))], &[]);
    log.superblock.start = None;
    let recovered = log.recover().expect("sound");
    assert_eq!(recovered.replayed(), Default::default());
    assert_eq!(log.outcome().expect("sound"), (BTreeMap::new(), 0));
}

/// Returns a log of three transactions that write blocks 0x41 to 0x43, with the second one damaged
/// as told.
fn damaged(
    version: ChecksumVersion,
    damage: impl Fn(&mut Log, &[crate::log::Written]),
) -> Result<String, Error> {
    let mut log = Log::new(version, true);
    let written: Vec<_> = (0x41_u8..=0x43)
        .map(|byte| log.transaction(&[(byte.into(), filled(byte))], &[500]))
        .collect();
    damage(&mut log, &written);
    let (blocks, damage) = log.outcome()?;
    let letter = |block| blocks.get(&block).map_or('.', |byte| char::from(*byte));
    let mut found: String = (0x41..=0x43).map(letter).collect();
    if damage > 0 {
        found.push('!');
    }
    Ok(found)
}

fn flip(log: &mut Log, index: u32, offset: usize) {
    log.block(index)[offset] ^= 1;
}

#[test]
fn a_bad_copy_is_left_out_and_is_damage() {
    for version in [ChecksumVersion::V2, ChecksumVersion::V3] {
        let found = damaged(version, |log, written| flip(log, written[1].copies[0], 77));
        assert_eq!(found.expect("usable"), "A.C!");
    }
    let found = damaged(ChecksumVersion::V1, |log, written| {
        flip(log, written[1].copies[0], 77)
    });
    assert_eq!(found.expect("usable"), "A..!");
    let found = damaged(ChecksumVersion::None, |log, written| {
        flip(log, written[1].copies[0], 77)
    });
    assert_eq!(found.expect("usable"), "ABC");
}

#[test]
fn a_bad_copy_that_is_revoked_is_no_damage() {
    let mut log = Log::new(ChecksumVersion::V3, true);
    let written = log.transaction(&[(5, filled(1)), (6, filled(1))], &[]);
    log.transaction(&[], &[5]);
    flip(&mut log, written.copies[0], 77);
    assert_eq!(log.outcome().expect("usable"), (blocks([(6, 1)]), 0));
}

#[test]
fn a_bad_copy_leaves_the_one_before_it() {
    let mut log = Log::new(ChecksumVersion::V3, true);
    log.transaction(&[(5, filled(1))], &[]);
    let written = log.transaction(&[(5, filled(2))], &[]);
    flip(&mut log, written.copies[0], 77);
    assert_eq!(log.outcome().expect("usable"), (blocks([(5, 1)]), 1));
}

#[test]
fn a_bad_descriptor_or_revoke_block_makes_recovery_fail() {
    for version in [ChecksumVersion::V2, ChecksumVersion::V3] {
        for which in [
            |w: &crate::log::Written| w.descriptor,
            |w: &crate::log::Written| w.revoke,
        ] {
            let found = damaged(version, |log, written| flip(log, which(&written[1]), 900));
            let Err(Error::Corrupt(corrupt)) = found else {
                panic!("{found:?}")
            };
            assert!(
                matches!(corrupt.kind, CorruptKind::Checksum { .. }),
                "{corrupt}"
            );
            assert_eq!(corrupt.place.structure, Structure::JournalBlock);
        }
    }
}

#[test]
fn a_bad_commit_ends_the_log() {
    for version in [
        ChecksumVersion::V1,
        ChecksumVersion::V2,
        ChecksumVersion::V3,
    ] {
        let found = damaged(version, |log, written| flip(log, written[1].commit, 17));
        assert_eq!(found.expect("usable"), "A..!", "{version:?}");
        let last = damaged(version, |log, written| flip(log, written[2].commit, 17));
        assert_eq!(last.expect("usable"), "AB.!", "{version:?}");
    }
}

#[test]
fn a_bad_commit_without_barriers_is_a_torn_one() {
    for (version, second) in [
        (ChecksumVersion::V1, "A..!"),
        (ChecksumVersion::V2, "A.."),
        (ChecksumVersion::V3, "A.."),
    ] {
        let asynchronous = |log: &mut Log| log.superblock.incompat |= Incompat::ASYNC_COMMIT;
        let found = damaged(version, |log, written| {
            asynchronous(log);
            flip(log, written[1].commit, 17);
        });
        assert_eq!(found.expect("usable"), second, "{version:?}");
        let found = damaged(version, |log, written| {
            asynchronous(log);
            flip(log, written[2].commit, 17);
        });
        assert_eq!(found.expect("usable"), "AB.", "{version:?}");
    }
}

#[test]
fn bad_checksums_of_an_older_lap_are_the_end() {
    for version in [ChecksumVersion::V2, ChecksumVersion::V3] {
        let mut log = Log::new(version, true);
        log.transaction(&[(5, filled(1))], &[]);
        log.seconds -= 100;
        let stale = log.transaction(&[(6, filled(2))], &[]);
        assert_eq!(log.outcome().expect("sound"), (blocks([(5, 1), (6, 2)]), 0));
        flip(&mut log, stale.descriptor, 900);
        assert_eq!(log.outcome().expect("sound"), (blocks([(5, 1)]), 0));
        flip(&mut log, stale.descriptor, 900);
        flip(&mut log, stale.commit, 17);
        assert_eq!(log.outcome().expect("sound"), (blocks([(5, 1)]), 0));
    }
}

#[test]
fn version_1_accepts_commits_without_a_checksum() {
    let found = damaged(ChecksumVersion::V1, |log, written| {
        log.block(written[1].commit)[12..20].fill(0)
    });
    assert_eq!(found.expect("sound"), "ABC");
}

#[test]
fn a_copy_outside_of_the_volume_is_damage() {
    let mut log = Log::new(ChecksumVersion::V3, true);
    log.transaction(
        &[
            (VOLUME, filled(1)),
            (VOLUME - 1, filled(1)),
            (1 << 40, filled(1)),
        ],
        &[],
    );
    let recovered = log.recover().expect("usable");
    let kinds: Vec<_> = recovered
        .damage()
        .iter()
        .map(|corrupt| corrupt.kind)
        .collect();
    let outside = |block| CorruptKind::BlockOutOfRange {
        field: "t_blocknr",
        block,
    };
    assert_eq!(kinds, [outside(VOLUME), outside(1 << 40)]);
    assert_eq!(recovered.blocks().collect::<Vec<_>>(), [VOLUME - 1]);
}

#[test]
fn a_revoke_count_beyond_the_block_makes_recovery_fail() {
    let mut log = Log::new(ChecksumVersion::None, true);
    let written = log.transaction(&[], &[1]);
    log.block(written.revoke)[12..16].copy_from_slice(&1025_u32.to_be_bytes());
    let Err(Error::Corrupt(corrupt)) = log.recover() else {
        panic!("it recovered")
    };
    assert_eq!(
        corrupt.kind,
        CorruptKind::Field {
            field: "r_count",
            value: 1025
        }
    );
}

/// The descriptor of a transaction that was never committed claims more copies than the ring has
/// blocks left. Its first sector is new, and the other is of an older descriptor.
#[test]
fn a_log_that_bites_its_tail_ends_there() {
    let copies: Vec<_> = (0..120).map(|block| (block, filled(1))).collect();
    for version in VERSIONS {
        // Tags are shorter without checksums, so more of them are in a sector.
        let (filling, new, old) = match version {
            ChecksumVersion::None | ChecksumVersion::V1 => ([40; 22].as_slice(), 64, 120),
            ChecksumVersion::V2 | ChecksumVersion::V3 => ([30; 31].as_slice(), 50, 60),
        };
        let older = {
            let mut log = Log::new(version, false);
            let written = log.uncommitted(&copies[..old], &[]);
            log.block(written.descriptor)[512..].to_vec()
        };
        let mut log = Log::new(version, false);
        log.transaction(&[(500, filled(0x41))], &[]);
        for &count in filling {
            log.uncommitted(&copies[..count], &[]);
        }
        let torn = log.uncommitted(&copies[..new], &[]).descriptor;
        assert!((new..old).contains(&((LEN - 1 - torn) as usize)), "{torn}");
        for _ in 0..2 {
            assert_eq!(
                log.outcome().expect("sound"),
                ([(500, 0x41)].into(), 0),
                "{version:?}"
            );
            log.block(torn)[512..].copy_from_slice(&older);
        }
    }
}

#[test]
fn unknown_features_are_refused_by_name() {
    let mut log = Log::new(ChecksumVersion::None, true);
    log.superblock.incompat |= Incompat::from_bits_retain(0x4000);
    log.superblock.ro_compat = RoCompat::from_bits_retain(2);
    let Err(Error::Unsupported(names)) = log.recover() else {
        panic!("it recovered")
    };
    assert_eq!(names, "FEATURE_I14 FEATURE_R1");
}

#[test]
fn a_journal_must_fit_its_map_and_its_volume() {
    let log = Log::new(ChecksumVersion::None, true);
    let open = |block_size, map| Journal::internal(log.device(), block_size, map).map(drop);
    let kind = |result| match result {
        Err(Error::Corrupt(corrupt)) => corrupt.kind,
        other => panic!("{other:?}"),
    };
    assert!(open(1024, Log::map()).is_ok());
    let short = JournalMap::new(vec![Run {
        logical: 0,
        physical: 200,
        len_blocks: 1000,
    }])
    .expect("sound");
    let what = "the journal is shorter than its superblock says";
    assert_eq!(kind(open(1024, short)), CorruptKind::Mismatch { what });
    let hole = JournalMap::new(vec![Run {
        logical: 1,
        physical: 200,
        len_blocks: 1000,
    }])
    .expect("sound");
    assert_eq!(
        kind(open(1024, hole)),
        CorruptKind::Mismatch {
            what: "the journal has no first block"
        }
    );
    let odd = Journal::internal(
        MemoryDevice::new(vec![0; 4096]),
        1024,
        JournalMap::identity(4),
    )
    .map(drop);
    assert_eq!(
        kind(odd),
        CorruptKind::Magic {
            found: 0,
            expected: MAGIC
        }
    );
    let far = JournalMap::new(vec![Run {
        logical: 0,
        physical: u64::MAX - 5000,
        len_blocks: 1024,
    }])
    .expect("sound");
    assert!(matches!(open(1024, far), Err(Error::Device(_))));
    let mut bytes = log.volume();
    let at = usize::try_from(Log::map().lookup(0).expect("mapped")).expect("small") * BLOCK;
    bytes[at + 12..at + 16].copy_from_slice(&2048_u32.to_be_bytes());
    let other = Journal::internal(MemoryDevice::new(bytes), 1024, Log::map()).map(drop);
    let what = "the journal has another block size than the volume";
    assert_eq!(kind(other), CorruptKind::Mismatch { what });
}

#[test]
fn a_replayed_device_shows_the_newer_blocks() {
    let mut log = Log::new(ChecksumVersion::V3, true);
    log.transaction(&[(3, filled(1)), (4, filled(2)), (7, filled(3))], &[]);
    let before = log.volume();
    let recovered = log.recover().expect("sound");
    let mut after = before.clone();
    recovered
        .replay(|block, contents| {
            let start = usize::try_from(block).expect("small") * BLOCK;
            after[start..start + BLOCK].copy_from_slice(contents);
            Ok::<_, Error>(())
        })
        .expect("readable");
    assert_ne!(before, after);
    let device = ReplayedDevice::new(log.device(), recovered);
    assert_eq!(
        (device.is_read_only(), device.size_bytes()),
        (true, VOLUME * 1024)
    );
    for (offset, len) in [
        (0, 10_000),
        (3071, 2),
        (3072, 0),
        (3500, 100),
        (4095, 1026),
        (7167, 1025),
        (8192, 5),
    ] {
        let mut buf = vec![0; len];
        device.read_at(&mut buf, offset as u64).expect("readable");
        assert_eq!(buf, after[offset..offset + len], "{len} bytes at {offset}");
    }
    assert!(device.read_at(&mut [0; 2], VOLUME * 1024 - 1).is_err());
    assert!(device.write_at(&[0], 0).is_err() && device.discard(0..1).is_err());
    assert!(device.write_zeroes(0..1).is_err() && device.flush().is_ok());
}

#[test]
fn a_volume_is_no_external_journal() {
    let log = Log::new(ChecksumVersion::None, true);
    let opened = Journal::external(log.device(), 1024, &log.superblock.uuid);
    assert!(matches!(opened, Err(Error::Foreign(_))));
}
