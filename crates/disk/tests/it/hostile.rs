//! Tests of bytes that no tool would write: decoders catch flipped bits, name impossible numbers,
//! and never panic.

use extern4_disk::bitmap::{Bitmap, initial_block_bitmap};
use extern4_disk::feature::RoCompat;
use extern4_disk::geometry::{Geometry, InodeSlot};
use extern4_disk::group::GroupDescriptor;
use extern4_disk::inode::Inode;
use extern4_disk::mmp::Mmp;
use extern4_disk::orphan::OrphanBlock;
use extern4_disk::superblock::{RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use crate::image::Image;
use crate::inode::find;

const SUPERBLOCK: Place = Place::new(Structure::Superblock);
const FEATURE_RO_COMPAT: usize = 0x64;

fn decode(bytes: &[u8]) -> Result<Superblock, Corrupt> {
    Superblock::decode(bytes, SUPERBLOCK)
}

fn flip(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[bit / 8] ^= 1 << (bit % 8);
    flipped
}

fn is_checksum(kind: CorruptKind) -> bool {
    matches!(kind, CorruptKind::Checksum { .. })
}

#[test]
fn every_flipped_bit_of_a_superblock_is_caught() {
    let bytes = Image::make("-t ext4 -O metadata_csum", "64M").superblock_bytes();
    let switch = FEATURE_RO_COMPAT * 8 + RoCompat::METADATA_CSUM.bits().trailing_zeros() as usize;
    for bit in (0..SUPERBLOCK_SIZE * 8).filter(|bit| *bit != switch) {
        assert!(decode(&flip(&bytes, bit)).is_err(), "bit {bit}");
    }
}

#[test]
fn every_flipped_bit_of_a_descriptor_is_caught() {
    for features in [
        "metadata_csum,64bit",
        "metadata_csum,^64bit",
        "^metadata_csum,uninit_bg",
    ] {
        let image = Image::make(&format!("-t ext4 -O {features}"), "64M");
        let sb = image.superblock();
        let bytes = image.descriptor_bytes(0, &sb);
        for bit in 0..bytes.len() * 8 {
            let error =
                GroupDescriptor::decode(&flip(&bytes, bit), 0, &sb, SUPERBLOCK).unwrap_err();
            assert!(is_checksum(error.kind), "{features}, bit {bit}");
        }
        let moved = GroupDescriptor::decode(&bytes, 1, &sb, SUPERBLOCK).unwrap_err();
        assert!(is_checksum(moved.kind), "a descriptor belongs to its group");
    }
}

#[test]
fn every_flipped_bit_of_an_inode_is_caught() {
    for size in ["128", "256", "1024"] {
        let image = Image::make(&format!("-t ext4 -O metadata_csum -I {size}"), "64M");
        let sb = image.superblock();
        let ino = find(&image, "/large");
        let record = image.record(ino, &sb);
        for bit in 0..record.len() * 8 {
            assert!(
                Inode::decode(&flip(&record, bit), ino, &sb, SUPERBLOCK).is_err(),
                "bit {bit}"
            );
        }
        let moved = Inode::decode(&record, ino + 1, &sb, SUPERBLOCK).unwrap_err();
        assert!(is_checksum(moved.kind), "a record belongs to its number");
    }
}

#[test]
fn flipped_bits_of_bitmaps_are_caught() {
    for features in ["metadata_csum,64bit", "metadata_csum,^64bit"] {
        let image = Image::make(&format!("-t ext4 -b 1024 -g 1024 -O {features}"), "20M");
        let sb = image.superblock();
        let descriptor = image.descriptor(0, &sb);
        let blocks = image.read_block(descriptor.block_bitmap(), &sb);
        for bit in 0..1024 {
            let error = Bitmap::decode_blocks(&flip(&blocks, bit), 0, &descriptor, &sb, SUPERBLOCK)
                .unwrap_err();
            assert!(is_checksum(error.kind), "{features}, bit {bit}");
        }
        let inodes = image.read_block(descriptor.inode_bitmap(), &sb);
        for bit in 0..sb.geometry().inodes_per_group() as usize {
            let error = Bitmap::decode_inodes(&flip(&inodes, bit), 0, &descriptor, &sb, SUPERBLOCK)
                .unwrap_err();
            assert!(is_checksum(error.kind), "{features}, bit {bit}");
        }
    }
}

#[test]
fn impossible_superblocks_name_the_field() {
    let bytes = Image::make("-t ext4 -b 1024 -O ^metadata_csum,64bit", "20M").superblock_bytes();
    let raw = RawSuperblock::read_from_bytes(&bytes).unwrap();
    let refused = |change: fn(&mut RawSuperblock)| {
        let mut changed = raw;
        change(&mut changed);
        decode(changed.as_bytes()).unwrap_err().kind
    };
    let field = |field, value| CorruptKind::Field { field, value };
    let mismatch = |what| CorruptKind::Mismatch { what };
    assert_eq!(
        refused(|raw| raw.s_magic.set(1)),
        CorruptKind::Magic {
            found: 1,
            expected: 0xef53
        }
    );
    assert_eq!(
        refused(|raw| raw.s_log_block_size.set(7)),
        field("s_log_block_size", 7)
    );
    assert_eq!(
        refused(|raw| raw.s_log_block_size.set(u32::MAX)),
        field("s_log_block_size", 0xffff_ffff)
    );
    assert_eq!(
        refused(|raw| raw.s_log_cluster_size.set(1)),
        mismatch("s_log_cluster_size is not s_log_block_size")
    );
    assert_eq!(
        refused(|raw| raw.s_log_cluster_size.set(!0)),
        field("s_log_cluster_size", 0xffff_ffff)
    );
    assert_eq!(
        refused(|raw| raw.s_first_data_block.set(0)),
        field("s_first_data_block", 0)
    );
    assert_eq!(
        refused(|raw| raw.s_first_data_block.set(!0)),
        field("s_first_data_block", 0xffff_ffff)
    );
    assert_eq!(
        refused(|raw| raw.s_blocks_count_lo.set(0)),
        field("s_blocks_count", 0)
    );
    assert_eq!(
        refused(|raw| raw.s_blocks_count_hi.set(1 << 21)),
        field("s_blocks_count", (1 << 53) + 20480)
    );
    let inodes =
        "s_inodes_count is not s_inodes_per_group for each s_blocks_per_group of s_blocks_count";
    assert_eq!(
        refused(|raw| raw.s_blocks_count_hi.set(1)),
        mismatch(inodes)
    );
    assert_eq!(
        refused(|raw| raw.s_blocks_per_group.set(0)),
        field("s_blocks_per_group", 0)
    );
    assert_eq!(
        refused(|raw| raw.s_blocks_per_group.set(8193)),
        field("s_blocks_per_group", 8193)
    );
    assert_eq!(
        refused(|raw| raw.s_inodes_per_group.set(0)),
        field("s_inodes_per_group", 0)
    );
    assert_eq!(
        refused(|raw| raw.s_inodes_per_group.set(8193)),
        field("s_inodes_per_group", 8193)
    );
    assert_eq!(refused(|raw| raw.s_inodes_count.set(7)), mismatch(inodes));
    assert_eq!(
        refused(|raw| raw.s_inode_size.set(0)),
        field("s_inode_size", 0)
    );
    assert_eq!(
        refused(|raw| raw.s_inode_size.set(192)),
        field("s_inode_size", 192)
    );
    assert_eq!(
        refused(|raw| raw.s_inode_size.set(2048)),
        field("s_inode_size", 2048)
    );
    assert_eq!(
        refused(|raw| raw.s_desc_size.set(32)),
        field("s_desc_size", 32)
    );
    assert_eq!(
        refused(|raw| raw.s_desc_size.set(65)),
        field("s_desc_size", 65)
    );
    assert_eq!(
        refused(|raw| raw.s_desc_size.set(2048)),
        field("s_desc_size", 2048)
    );
    assert_eq!(
        refused(|raw| raw.s_reserved_gdt_blocks.set(257)),
        field("s_reserved_gdt_blocks", 257)
    );
    assert_eq!(
        refused(|raw| raw.s_first_ino.set(10)),
        field("s_first_ino", 10)
    );
    assert_eq!(
        refused(|raw| raw.s_first_ino.set(!0)),
        field("s_first_ino", 0xffff_ffff)
    );
    // With groups this small, there are as many as the volume has blocks.
    let tiny = |raw: &mut RawSuperblock| {
        raw.s_blocks_per_group.set(255);
        raw.s_clusters_per_group.set(255);
        raw.s_inodes_per_group.set(8);
        raw.s_inodes_count.set(20479_u32.div_ceil(255) * 8);
    };
    assert_eq!(refused(tiny), field("s_blocks_per_group", 255));
    let journal = CorruptKind::InodeOutOfRange {
        field: "s_journal_inum",
        ino: 0xffff_ffff,
    };
    assert_eq!(refused(|raw| raw.s_journal_inum.set(!0)), journal);
    assert_eq!(
        refused(|raw| {
            raw.s_feature_incompat
                .set(raw.s_feature_incompat.get() | 0x10);
            raw.s_first_meta_bg.set(2);
        }),
        field("s_first_meta_bg", 2)
    );
    assert_eq!(
        refused(|raw| {
            raw.s_feature_ro_compat
                .set(raw.s_feature_ro_compat.get() | 0x400);
            raw.s_checksum_type = 0;
        }),
        field("s_checksum_type", 0)
    );
    assert_eq!(
        decode(&bytes[..1000]).unwrap_err().kind,
        CorruptKind::Truncated {
            need: 1024,
            have: 1000
        }
    );
}

/// Linux mounts such volumes for reading.
#[test]
fn fields_that_only_writing_needs_are_named_and_not_refused() {
    let bytes = Image::make("-t ext4 -b 1024 -O ^metadata_csum,64bit", "20M").superblock_bytes();
    let raw = RawSuperblock::read_from_bytes(&bytes).unwrap();
    let named = |change: fn(&mut RawSuperblock)| {
        let mut changed = raw;
        change(&mut changed);
        let sb = decode(changed.as_bytes()).unwrap();
        assert_eq!(sb.mmp_block(), None);
        sb.impossible(SUPERBLOCK)
            .into_iter()
            .map(|corrupt| corrupt.kind)
            .collect::<Vec<_>>()
    };
    let field = |field, value| vec![CorruptKind::Field { field, value }];
    assert_eq!(named(|_| {}), []);
    assert_eq!(named(|raw| raw.s_rev_level.set(2)), field("s_rev_level", 2));
    assert_eq!(
        named(|raw| raw.s_r_blocks_count_hi.set(1)),
        field("s_r_blocks_count", (1 << 32) + 1024)
    );
    assert_eq!(
        named(|raw| raw.s_usr_quota_inum.set(!0)),
        field("s_usr_quota_inum", 0xffff_ffff)
    );
    let mmp = named(|raw| {
        raw.s_feature_incompat
            .set(raw.s_feature_incompat.get() | 0x100);
        raw.s_mmp_block.set(1 << 40);
    });
    assert_eq!(mmp, field("s_mmp_block", 1 << 40));
}

#[test]
fn impossible_descriptors_name_the_field() {
    let image = Image::make(
        "-t ext4 -b 1024 -g 1024 -O ^metadata_csum,^uninit_bg,^flex_bg,^64bit",
        "20M",
    );
    let sb = image.superblock();
    let bytes = image.descriptor_bytes(2, &sb);
    // Each of these is the superblock, a block of another group, or outside of the volume.
    for (offset, field) in [
        (0, "bg_block_bitmap"),
        (4, "bg_inode_bitmap"),
        (8, "bg_inode_table"),
    ] {
        for block in [0u32, 1, 2, 20480, 4000, 3072, !0] {
            let mut changed = bytes.clone();
            changed[offset..offset + 4].copy_from_slice(&block.to_le_bytes());
            let kind =
                GroupDescriptor::decode(&changed, 2, &sb, SUPERBLOCK).map_err(|error| error.kind);
            let block = u64::from(block);
            if block == 3072 && field != "bg_inode_table" {
                kind.unwrap();
            } else {
                assert_eq!(
                    kind.unwrap_err(),
                    CorruptKind::BlockOutOfRange { field, block }
                );
            }
        }
    }
    let mut changed = bytes.clone();
    changed[0xc..0xe].copy_from_slice(&1025u16.to_le_bytes());
    let descriptor = GroupDescriptor::decode(&changed, 2, &sb, SUPERBLOCK).unwrap();
    let error = descriptor
        .check_counts(2, sb.geometry(), SUPERBLOCK)
        .unwrap_err();
    assert_eq!(
        error.kind,
        CorruptKind::Field {
            field: "bg_free_blocks_count",
            value: 1025
        }
    );
}

/// Calls every method of a geometry, with numbers at and beyond its limits.
fn exercise(geometry: &Geometry) {
    let groups = [
        0,
        1,
        2,
        geometry.group_count().saturating_sub(1),
        geometry.group_count(),
        u32::MAX,
    ];
    let blocks = [
        0,
        1,
        geometry.table_end(),
        geometry.blocks_count() - 1,
        geometry.blocks_count(),
        u64::MAX,
    ];
    for group in groups {
        let inside = group < geometry.group_count();
        assert_eq!(geometry.group_start(group).is_some(), inside);
        assert_eq!(geometry.fixed_blocks(group).is_some(), inside);
        if let (Some(clusters), Some(blocks)) =
            (geometry.group_clusters(group), geometry.group_blocks(group))
        {
            assert!(0 < blocks && blocks <= geometry.blocks_per_group());
            assert!(0 < clusters && clusters <= geometry.clusters_per_group());
        }
        if let Some(position) = geometry.descriptor_position(group) {
            assert!(
                geometry.contains_block(position.block) || position.block < geometry.table_end()
            );
            assert!(position.offset + u32::from(geometry.desc_size()) <= geometry.block_size());
        }
        for index in [0, 1, geometry.descriptor_blocks(), u32::MAX] {
            let block = geometry.descriptor_block_in(group, index);
            assert!(block.is_none_or(|block| block < geometry.blocks_count()));
        }
        for index in [
            0,
            geometry.inodes_per_group() - 1,
            geometry.inodes_per_group(),
            u32::MAX,
        ] {
            let ino = geometry.inode_number(InodeSlot { group, index });
            assert_eq!(
                ino.and_then(|ino| geometry.inode_slot(ino)).is_some(),
                ino.is_some()
            );
            let position = geometry.inode_position(u64::MAX, index);
            assert!(position.is_none_or(|position| position.offset < geometry.block_size()));
        }
    }
    for block in blocks {
        let group = geometry.group_of_block(block);
        assert_eq!(
            group.is_some(),
            geometry.contains_block(block) && geometry.group_count() > 0
        );
        assert_eq!(geometry.cluster_in_group(block).is_some(), group.is_some());
        assert!(!geometry.contains_range(block, u64::MAX));
    }
    assert_eq!(geometry.inode_slot(0), None);
    assert_eq!(
        geometry.inode_slot(geometry.inodes_count()).is_some(),
        geometry.inodes_count() > 0
    );
}

/// Generates a superblock of one of several volumes with some bytes changed and the checksum
/// recomputed.
fn mutated_superblock() -> impl Strategy<Value = Vec<u8>> {
    let volumes = [
        ("-t ext2 -b 1024", "8M"),
        ("-t ext4 -O metadata_csum,64bit", "64M"),
        ("-t ext4 -b 1024 -C 2048 -g 1024 -O bigalloc", "24M"),
        (
            "-t ext4 -b 1024 -g 256 -O meta_bg,^resize_inode,64bit",
            "20M",
        ),
    ];
    let bytes = volumes.map(|(options, size)| Image::make(options, size).superblock_bytes());
    // Most fields that matter are in the first 0x180 bytes.
    let byte = (
        prop_oneof![3 => 0usize..0x68, 2 => 0xccusize..0x180, 1 => 0usize..0x3fc],
        any::<u8>(),
    );
    (
        prop::sample::select(bytes.to_vec()),
        prop::collection::vec(byte, 0..6),
    )
        .prop_map(|(mut bytes, changes)| {
            for (offset, value) in changes {
                bytes[offset] = value;
            }
            let mut raw = RawSuperblock::read_from_bytes(&bytes).unwrap();
            if raw.features().metadata_csum() {
                raw.s_checksum.set(raw.compute_checksum());
            }
            raw.as_bytes().to_vec()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn decoded_superblocks_encode_to_the_same_bytes(bytes in mutated_superblock()) {
        if let Ok(sb) = decode(&bytes) {
            prop_assert_eq!(sb.encode().to_vec(), bytes);
            exercise(sb.geometry());
            let _ = (sb.journal(), sb.journal_backup(), sb.first_error(), sb.mount_time(), sb.label().len());
        }
    }

    #[test]
    fn random_superblocks_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 1024)) {
        bytes[0x38..0x3a].copy_from_slice(&0xef53u16.to_le_bytes());
        if let Ok(sb) = decode(&bytes) {
            exercise(sb.geometry());
        }
    }
}

/// Returns superblocks of volumes without checksums, with small and large descriptors and inodes.
fn plain_superblocks() -> Vec<Superblock> {
    let volumes = [
        ("-t ext2 -b 1024 -I 128", "8M"),
        ("-t ext2 -o hurd -b 1024 -I 128", "8M"),
        (
            "-t ext4 -b 1024 -O ^metadata_csum,^uninit_bg,64bit,project,large_dir,mmp,orphan_file",
            "64M",
        ),
    ];
    volumes
        .iter()
        .map(|(options, size)| Image::make(options, size).superblock())
        .collect()
}

/// Returns superblocks of volumes with crc32c checksums, with small and large descriptors and
/// inodes, and of one with crc16 checksums.
fn checked_superblocks() -> Vec<Superblock> {
    let options = [
        "-O metadata_csum,64bit -I 256",
        "-O metadata_csum,^64bit -I 128",
        "-O ^metadata_csum,uninit_bg",
    ];
    options
        .map(|options| Image::make(&format!("-t ext4 {options}"), "64M").superblock())
        .to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn decoded_records_encode_to_the_same_bytes(
        sb in prop::sample::select(plain_superblocks()),
        mut record in prop::collection::vec(any::<u8>(), 256),
        (mode, extra, ino) in (any::<u16>(), 0u16..40, 1u32..2000),
        small in any::<bool>(),
    ) {
        // Half of the time, numbers that would be refused for being large are made small.
        record[..2].copy_from_slice(&mode.to_le_bytes());
        record[128..130].copy_from_slice(&(extra * 4).to_le_bytes());
        if small {
            record[0x6a..0x70].fill(0);
            record[0x76..0x78].fill(0);
        }
        if let Ok(inode) = Inode::decode(&record, ino, &sb, SUPERBLOCK) {
            let size = usize::from(sb.inode_size());
            let mut encoded = record.clone();
            encoded[..128].fill(0xa5);
            inode.encode(&mut encoded, &sb);
            prop_assert_eq!(&encoded, &record);
            prop_assert!(inode.xattr_area(&record).len() <= size - 128);
            prop_assert!(i64::try_from(inode.size()).is_ok());
            prop_assert!(inode.atime().nanos < 1_000_000_000);
            let _ = (inode.sectors(), inode.device(), inode.version(), inode.crtime(), inode.flags().letters());
        }
    }

    #[test]
    fn sealed_structures_verify(
        sb in prop::sample::select(checked_superblocks()),
        mut bytes in prop::collection::vec(any::<u8>(), 256),
        ino in 11u32..2000,
    ) {
        // Fields that could be refused get allowed values; the rest is random, and only the
        // checksum is made good.
        bytes[..2].copy_from_slice(&0o100_644u16.to_le_bytes());
        bytes[0x68..0x70].fill(0);
        bytes[0x76..0x78].fill(0);
        bytes[128..130].copy_from_slice(&32u16.to_le_bytes());
        if let Err(error) = Inode::decode(&bytes, ino, &sb, SUPERBLOCK) {
            prop_assert!(is_checksum(error.kind), "{}", error);
        }
        let sealed = seal_inode(&bytes, ino, &sb);
        prop_assert!(Inode::decode(&sealed, ino, &sb, SUPERBLOCK).is_ok());
    }

    #[test]
    fn other_structures_do_not_panic(
        sb in prop::sample::select(plain_superblocks()),
        mut bytes in prop::collection::vec(any::<u8>(), 1024),
        group in 0u32..20,
    ) {
        if let Ok(descriptor) = GroupDescriptor::decode(&bytes, group, &sb, SUPERBLOCK) {
            let _ = initial_block_bitmap(group, &descriptor, sb.geometry());
            let _ = descriptor.check_counts(group, sb.geometry(), SUPERBLOCK);
        }
        let _ = Mmp::decode(&bytes, &sb, SUPERBLOCK);
        bytes[..4].copy_from_slice(&mmp_magic());
        let mmp = Mmp::decode(&bytes, &sb, SUPERBLOCK).unwrap();
        prop_assert_eq!(mmp.encode(&sb).to_vec(), bytes.clone());
        let seed = sb.checksum_seed();
        bytes[1016..1020].copy_from_slice(&0x0b10_ca04u32.to_le_bytes());
        for slot in bytes[..1016].chunks_exact_mut(4) {
            slot[1..].fill(0);
            slot[0] = slot[0].max(11);
        }
        let orphans = OrphanBlock::decode(&bytes, 7, seed, &sb, SUPERBLOCK).unwrap();
        prop_assert_eq!(orphans.encode(7, seed, &sb), bytes);
    }
}

fn mmp_magic() -> [u8; 4] {
    0x004d_4d50u32.to_le_bytes()
}

/// Returns the record with a good checksum, by encoding the same fields on a volume without
/// checksums.
fn seal_inode(record: &[u8], ino: u32, sb: &Superblock) -> Vec<u8> {
    let mut raw = *sb.raw();
    raw.s_feature_ro_compat
        .set(raw.s_feature_ro_compat.get() & !RoCompat::METADATA_CSUM.bits());
    let plain = Superblock::from_raw(raw, SUPERBLOCK).unwrap();
    let inode = Inode::decode(record, ino, &plain, SUPERBLOCK).unwrap();
    let mut sealed = record.to_vec();
    inode.encode(&mut sealed, sb);
    sealed
}
