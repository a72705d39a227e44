//! Tests of the orphan file, the multiple mount protection block and the external journal.

use extern4_disk::mmp::{Mmp, MmpNode, MmpState};
use extern4_disk::orphan::OrphanBlock;
use extern4_disk::superblock::{JournalLocation, Superblock};
use extern4_disk::{CorruptKind, Place, Structure};

use crate::image::Image;

#[test]
fn orphan_file() {
    for options in [
        "-t ext4 -O orphan_file,metadata_csum",
        "-t ext4 -b 1024 -O orphan_file,^metadata_csum",
    ] {
        let image = Image::make(options, "64M");
        let sb = image.superblock();
        let ino = sb.orphan_file_inode().unwrap();
        let seed = image
            .inode(ino, &sb)
            .unwrap()
            .checksum_seed(sb.checksum_seed());
        let blocks = image.debugfs(&format!("blocks <{ino}>"));
        let blocks: Vec<u64> = blocks
            .split_whitespace()
            .map(|block| block.parse().unwrap())
            .collect();
        assert!(!blocks.is_empty(), "{options}");
        for number in blocks {
            let mut bytes = image.read_block(number, &sb);
            let place = Place::new(Structure::Orphan);
            let block = OrphanBlock::decode(&bytes, number, seed, &sb, place).unwrap();
            assert_eq!(block.inodes().count(), 0);
            assert_eq!(block.capacity() * 4 + 8, bytes.len());
            assert_eq!(block.encode(number, seed, &sb), bytes);

            bytes[4..8].copy_from_slice(&12u32.to_le_bytes());
            let changed = OrphanBlock::decode(&bytes, number, seed, &sb, place);
            match sb.metadata_seed() {
                Some(_) => assert!(matches!(
                    changed.unwrap_err().kind,
                    CorruptKind::Checksum { .. }
                )),
                None => assert_eq!(changed.unwrap().inodes().collect::<Vec<_>>(), [12]),
            }
        }
    }
}

#[test]
fn orphans_out_of_range() {
    let image = Image::make("-t ext4 -O orphan_file,^metadata_csum", "64M");
    let sb = image.superblock();
    for ino in [1, 10, sb.inodes_count() + 1, u32::MAX] {
        let mut bytes = vec![0; sb.block_size() as usize];
        let tail = bytes.len() - 8;
        bytes[tail..tail + 4].copy_from_slice(&0x0b10_ca04u32.to_le_bytes());
        bytes[..4].copy_from_slice(&ino.to_le_bytes());
        let place = Place::new(Structure::Orphan);
        let block = OrphanBlock::decode(&bytes, 99, sb.checksum_seed(), &sb, place).unwrap();
        let error = block.check_inodes(&sb, place);
        let kind = CorruptKind::InodeOutOfRange {
            field: "orphan entry",
            ino: ino.into(),
        };
        assert_eq!(error.unwrap_err().kind, kind);
    }
}

#[test]
fn mmp_block() {
    let image = Image::make("-t ext4 -O mmp,metadata_csum", "64M");
    let sb = image.superblock();
    let block = sb.mmp_block().unwrap();
    let bytes = image.read_block(block, &sb);
    let place = Place::new(Structure::Mmp).block(block);
    let mmp = Mmp::decode(&bytes, &sb, place).unwrap();
    assert_eq!(mmp.encode(&sb), bytes[..1024]);
    let text = image.debugfs("dump_mmp");
    assert_eq!(mmp.state(), MmpState::Clean);
    assert!(text.contains(&format!("time: {} --", mmp.time())), "{text}");
    assert!(
        text.contains(&format!(
            "node_name: {}\n",
            str::from_utf8(mmp.node_name()).unwrap()
        )),
        "{text}"
    );
    assert!(
        text.contains(&format!(
            "device_name: {}\n",
            str::from_utf8(mmp.device_name()).unwrap()
        )),
        "{text}"
    );
    assert!(
        text.contains(&format!("check_interval: {}\n", mmp.check_interval())),
        "{text}"
    );

    for bit in 0..1024 * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let kind = Mmp::decode(&flipped, &sb, place).unwrap_err().kind;
        assert!(
            matches!(
                kind,
                CorruptKind::Magic { .. } | CorruptKind::Checksum { .. }
            ),
            "bit {bit}"
        );
    }
}

#[test]
fn mmp_states() {
    let image = Image::make("-t ext4 -O mmp,^metadata_csum", "64M");
    let sb = image.superblock();
    let mut bytes = image.read_block(sb.mmp_block().unwrap(), &sb);
    let states = [
        (0xff4d_4d50, MmpState::Clean),
        (0xe24d_4d50, MmpState::Fsck),
        (77, MmpState::Live(77)),
    ];
    for (sequence, state) in states {
        bytes[4..8].copy_from_slice(&u32::to_le_bytes(sequence));
        assert_eq!(
            Mmp::decode(&bytes, &sb, Place::new(Structure::Mmp))
                .unwrap()
                .state(),
            state
        );
    }
}

#[test]
fn mmp_block_is_taken_and_released() {
    let image = Image::make("-t ext4 -O mmp,metadata_csum", "64M");
    let sb = image.superblock();
    let bytes = image.read_block(sb.mmp_block().unwrap(), &sb);
    let found = Mmp::decode(&bytes, &sb, Place::new(Structure::Mmp)).unwrap();
    let host = "h".repeat(100);
    let device = "d".repeat(31);
    let node = MmpNode {
        host: host.as_bytes(),
        device: device.as_bytes(),
    };
    let number = |mmp: &Mmp| match mmp.state() {
        MmpState::Live(number) => number,
        state => panic!("{state:?}"),
    };
    for sequence in [0, 7, 0xe24d_4d4f, 0xe24d_4d50, 0xff4d_4d50, u32::MAX] {
        let taken = found.taken(sequence, &node, 9, 1_000);
        assert_eq!((taken.time(), taken.check_interval()), (1_000, 9));
        assert_eq!(
            (taken.node_name(), taken.device_name()),
            (&host.as_bytes()[..63], device.as_bytes())
        );
        assert_eq!(
            Mmp::decode(&taken.encode(&sb), &sb, Place::new(Structure::Mmp))
                .unwrap()
                .state(),
            taken.state()
        );
        let renewed = taken.renewed(1_001);
        assert!(number(&renewed) != number(&taken) && renewed.time() == 1_001);
        assert_ne!(
            number(&taken.taken(number(&taken), &node, 9, 0)),
            number(&taken)
        );
        assert_eq!(renewed.released(1_002).state(), MmpState::Clean);
    }
}

#[test]
fn external_journal_has_no_groups() {
    for block_size in ["1024", "4096"] {
        let image = Image::make_journal(block_size, "16M");
        let sb = image.superblock();
        assert!(sb.is_journal_device());
        assert_eq!((sb.inodes_count(), sb.geometry().group_count()), (0, 0));
        assert_eq!(sb.blocks_count() * u64::from(sb.block_size()), 16 << 20);
        assert_eq!(sb.encode().as_slice(), image.superblock_bytes());
        assert_eq!(sb.geometry().inode_slot(1), None);
        assert_eq!(sb.geometry().group_of_block(5), None);
        assert_eq!(sb.geometry().descriptor_position(0), None);
        assert_eq!(sb.features().to_string(), "journal_dev");
    }
}

#[test]
fn journal_backup_is_the_inodes_map() {
    let image = Image::make("-t ext4", "64M");
    let sb = image.superblock();
    let inode = image.inode(8, &sb).unwrap();
    assert_eq!(sb.journal(), Some(JournalLocation::Inode(8)));
    let backup = sb.journal_backup().unwrap();
    assert_eq!((&backup.map, backup.size), (inode.map(), inode.size()));
}

#[test]
fn errors_are_recorded() {
    let image = Image::make("-t ext4", "64M");
    image.debugfs_write(
        "ssv error_count 3\nssv first_error_time 20200102030405\nssv first_error_ino 12\n\
         ssv first_error_block 34\nssv first_error_func some_function\nssv first_error_line 56\n\
         ssv last_error_time 20210102030405\nssv last_error_line 78\nssv state 3\n",
    );
    let sb: Superblock = image.superblock();
    let first = sb.first_error().unwrap();
    assert_eq!(
        (
            sb.error_count(),
            first.time,
            first.ino,
            first.block,
            first.line
        ),
        (3, 1_577_934_245, 12, 34, 56)
    );
    assert!(first.function.starts_with(b"some_function\0"));
    assert_eq!(
        sb.last_error().map(|error| (error.time, error.line)),
        Some((1_609_556_645, 78))
    );
    assert!(sb.state().contains(extern4_disk::superblock::State::ERROR));
}
