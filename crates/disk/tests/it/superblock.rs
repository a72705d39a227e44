//! Tests of superblocks, descriptors and bitmaps against `dumpe2fs`.

use std::process::Command;

use extern4_disk::bitmap::{Bitmap, initial_block_bitmap};
use extern4_disk::geometry::Geometry;
use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_disk::quota::Kind;
use extern4_disk::superblock::{CreatorOs, ErrorPolicy, RawSuperblock, State, Superblock};
use extern4_disk::{Place, Structure};

use crate::image::{Image, run};
use crate::volumes::VOLUMES;

#[test]
fn superblock_as_dumpe2fs_sees_it() {
    for (options, size) in VOLUMES {
        let image = Image::make(options, size);
        let (header, _) = image.dumpe2fs();
        let sb = image.superblock();
        assert_eq!(
            sb.encode().as_slice(),
            image.superblock_bytes(),
            "{options}"
        );
        check_backups(&image, &sb, options);
        for (key, value) in describe(&sb) {
            assert_eq!(header.get(key), value.as_ref(), "{key} of {options}");
        }
    }
}

/// Returns the expected output of `dumpe2fs` for each of these keys; `None` for a line that should
/// be absent.
fn describe(sb: &Superblock) -> Vec<(&'static str, Option<String>)> {
    let geometry = sb.geometry();
    let some = |number: u64| Some(number.to_string());
    let bigalloc = |number: u64| Some(number.to_string()).filter(|_| geometry.bigalloc());
    let number = |ino: Option<u32>| ino.map(|ino| ino.to_string());
    let dynamic = sb.revision().0 > 0;
    let text = |bytes: &[u8], none: &str| {
        Some(if bytes.is_empty() {
            none.to_owned()
        } else {
            String::from_utf8(bytes.to_vec()).unwrap()
        })
    };
    let defaults: Vec<_> = sb.default_mount_options().names().collect();
    let extra_isize = |size: u16| some(size.into()).filter(|_| dynamic && sb.inode_size() > 128);
    vec![
        ("Filesystem volume name", text(sb.label(), "<none>")),
        (
            "Last mounted on",
            text(sb.last_mounted(), "<not available>"),
        ),
        ("Filesystem UUID", Some(uuid(sb.uuid()))),
        ("Filesystem features", Some(sb.features().to_string())),
        (
            "Default mount options",
            text(defaults.join(" ").as_bytes(), "(none)"),
        ),
        (
            "Filesystem state",
            Some(
                if sb.state() == State::VALID {
                    "clean"
                } else {
                    "not clean"
                }
                .into(),
            ),
        ),
        ("Errors behavior", Some(error_policy(sb).into())),
        (
            "Filesystem OS type",
            Some(
                if sb.creator_os() == CreatorOs::Hurd {
                    "Hurd"
                } else {
                    "Linux"
                }
                .into(),
            ),
        ),
        ("Inode count", some(sb.inodes_count().into())),
        ("Block count", some(sb.blocks_count())),
        ("Reserved block count", some(sb.reserved_blocks())),
        (
            "Overhead clusters",
            some(sb.overhead_clusters().into()).filter(|_| sb.overhead_clusters() != 0),
        ),
        ("Free blocks", some(sb.free_blocks())),
        ("Free inodes", some(sb.free_inodes().into())),
        ("First block", some(geometry.first_data_block().into())),
        ("Block size", some(sb.block_size().into())),
        ("Cluster size", bigalloc(sb.cluster_size())),
        (
            "Group descriptor size",
            some(geometry.desc_size().into()).filter(|_| geometry.desc_size() > 32),
        ),
        (
            "Reserved GDT blocks",
            some(sb.reserved_gdt_blocks().into()).filter(|_| sb.reserved_gdt_blocks() > 0),
        ),
        ("Blocks per group", some(geometry.blocks_per_group().into())),
        (
            "Clusters per group",
            bigalloc(geometry.clusters_per_group().into()),
        ),
        ("Inodes per group", some(geometry.inodes_per_group().into())),
        (
            "Inode blocks per group",
            some(geometry.inode_table_blocks().into()),
        ),
        (
            "RAID stride",
            some(sb.raid().0.into()).filter(|_| sb.raid().0 > 0),
        ),
        (
            "RAID stripe width",
            some(sb.raid().1.into()).filter(|_| sb.raid().1 > 0),
        ),
        (
            "Flex block group size",
            some(geometry.groups_per_flex().into()).filter(|_| geometry.flex_bg()),
        ),
        ("Filesystem created", Some(date(sb.made_time()))),
        (
            "Last mount time",
            Some(if sb.mount_time() == 0 {
                "n/a".into()
            } else {
                date(sb.mount_time())
            }),
        ),
        ("Last write time", Some(date(sb.write_time()))),
        ("Last checked", Some(date(sb.check_time()))),
        ("Mount count", some(sb.mount_count().into())),
        (
            "Maximum mount count",
            Some(
                sb.max_mount_count()
                    .map_or("-1".into(), |count| count.to_string()),
            ),
        ),
        (
            "Reserved blocks uid",
            Some(format!("{} (user root)", sb.reserved_ids().0)),
        ),
        (
            "Reserved blocks gid",
            Some(format!("{} (group root)", sb.reserved_ids().1)),
        ),
        (
            "First inode",
            some(sb.first_ino().into()).filter(|_| dynamic),
        ),
        (
            "Inode size",
            some(sb.inode_size().into()).filter(|_| dynamic),
        ),
        ("Required extra isize", extra_isize(sb.extra_isize().0)),
        ("Desired extra isize", extra_isize(sb.extra_isize().1)),
        ("Journal inode", number(sb.journal_inode())),
        (
            "Journal backup",
            sb.journal_backup().map(|_| "inode blocks".into()),
        ),
        ("Directory Hash Seed", Some(uuid(hash_seed(sb)))),
        ("Checksum type", sb.metadata_seed().map(|_| "crc32c".into())),
        ("Checksum seed", checksum_seed(sb)),
        (
            "MMP block number",
            sb.mmp_block().map(|block| block.to_string()),
        ),
        (
            "MMP update interval",
            sb.mmp_block().map(|_| sb.mmp_interval().to_string()),
        ),
        ("User quota inode", number(sb.quota_inode(Kind::User))),
        ("Group quota inode", number(sb.quota_inode(Kind::Group))),
        ("Project quota inode", number(sb.quota_inode(Kind::Project))),
        ("Orphan file inode", number(sb.orphan_file_inode())),
        (
            "Character encoding",
            sb.encoding()
                .map(|encoding| if encoding.0 == 1 { "utf8-12.1" } else { "?" }.into()),
        ),
    ]
}

fn error_policy(sb: &Superblock) -> &'static str {
    match sb.error_policy() {
        ErrorPolicy::Continue => "Continue",
        ErrorPolicy::RemountReadOnly => "Remount read-only",
        ErrorPolicy::Panic => "Panic",
        ErrorPolicy::Unknown(_) => "Unknown (continue)",
    }
}

fn checksum_seed(sb: &Superblock) -> Option<String> {
    let stored = sb
        .features()
        .incompat
        .contains(extern4_disk::feature::Incompat::CSUM_SEED);
    stored.then(|| format!("{:#x}", sb.checksum_seed().get()))
}

fn hash_seed(sb: &Superblock) -> [u8; 16] {
    sb.hash_seed()
        .map(u32::to_le_bytes)
        .concat()
        .try_into()
        .unwrap()
}

fn uuid(bytes: [u8; 16]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]]
        .map(|part| part.concat())
        .join("-")
}

fn date(seconds: u64) -> String {
    let mut date = Command::new("date");
    run(date
        .env("LC_ALL", "C")
        .args(["-u", "+%a %b %e %H:%M:%S %Y", "-d"])
        .arg(format!("@{seconds}")))
    .trim()
    .into()
}

#[test]
fn groups_as_dumpe2fs_sees_them() {
    for (options, size) in VOLUMES {
        let image = Image::make(options, size);
        let sb = image.superblock();
        let (_, groups) = image.dumpe2fs();
        assert_eq!(
            groups.len(),
            sb.geometry().group_count() as usize,
            "{options}"
        );
        for (group, text) in (0..).zip(&groups) {
            check_group(
                &image,
                &sb,
                group,
                text,
                &format!("group {group} of {options}"),
            );
        }
    }
}

fn check_group(image: &Image, sb: &Superblock, group: u32, text: &str, what: &str) {
    let geometry = sb.geometry();
    let descriptor = image.descriptor(group, sb);
    let bytes = image.descriptor_bytes(group, sb);
    let mut encoded = bytes.clone();
    encoded[..32].fill(0);
    descriptor.encode(&mut encoded, group, sb);
    assert_eq!(encoded, bytes, "{what}");
    descriptor
        .check_counts(group, geometry, Place::new(Structure::GroupDescriptor))
        .unwrap();

    let start = geometry.group_start(group).unwrap();
    let end = start + u64::from(geometry.group_blocks(group).unwrap()) - 1;
    assert!(
        text.starts_with(&format!("Group {group}: (Blocks {start}-{end})")),
        "{what}: {text}"
    );
    if text.contains("csum") {
        assert_eq!(
            hex_after(text, "csum 0x"),
            descriptor.checksum().into(),
            "{what}"
        );
    }
    check_flags(text, &descriptor, what);
    check_layout(text, group, geometry, what);
    assert_eq!(
        number_after(text, "Block bitmap at "),
        descriptor.block_bitmap(),
        "{what}"
    );
    assert_eq!(
        number_after(text, "Inode bitmap at "),
        descriptor.inode_bitmap(),
        "{what}"
    );
    let table = (
        descriptor.inode_table(),
        u64::from(geometry.inode_table_blocks()),
    );
    assert!(
        text.contains(&format!(
            "Inode table at {}-{}",
            table.0,
            table.0 + table.1 - 1
        )),
        "{what}: {text}"
    );

    let unit = if geometry.bigalloc() {
        "clusters"
    } else {
        "blocks"
    };
    let clusters = descriptor.free_clusters();
    let inodes = descriptor.free_inodes();
    let mut counts = format!(
        "{clusters} free {unit}, {inodes} free inodes, {} directories",
        descriptor.used_dirs()
    );
    if descriptor.unused_inodes() > 0 {
        counts += &format!(", {} unused inodes", descriptor.unused_inodes());
    }
    assert!(text.contains(&counts), "{what}: {counts}, not {text}");
    check_bitmaps(image, sb, group, text, what);
}

fn check_flags(text: &str, descriptor: &GroupDescriptor, what: &str) {
    let flags = [
        ("INODE_UNINIT", GroupFlags::INODE_UNINIT),
        ("BLOCK_UNINIT", GroupFlags::BLOCK_UNINIT),
        ("ITABLE_ZEROED", GroupFlags::INODE_ZEROED),
    ];
    for (name, flag) in flags {
        assert_eq!(
            text.contains(name),
            descriptor.flags().contains(flag),
            "{what}: {text}"
        );
    }
}

/// Checks the superblocks, descriptors and reserved blocks at the start of the group.
fn check_layout(text: &str, group: u32, geometry: &Geometry, what: &str) {
    let copy = if group == 0 {
        "Primary superblock at "
    } else {
        "Backup superblock at "
    };
    assert_eq!(
        geometry.superblock_in(group),
        find_number(text, copy),
        "{what}: {text}"
    );
    let own: Vec<u64> = (0..geometry.descriptor_blocks())
        .filter_map(|index| geometry.descriptor_block_in(group, index))
        .collect();
    let first =
        find_number(text, "Group descriptors at ").or(find_number(text, "Group descriptor at "));
    assert_eq!(own.first().copied(), first, "{what}: {text}");
    if let Some(range) = text.split("Group descriptors at ").nth(1) {
        assert_eq!(
            own.last().copied(),
            Some(number_after(range, "-")),
            "{what}: {text}"
        );
    }
    let fixed_end =
        geometry.group_start(group).unwrap() + u64::from(geometry.fixed_blocks(group).unwrap());
    let reserved = text
        .split("Reserved GDT blocks at ")
        .nth(1)
        .map(|range| number_after(range, "-"));
    let last = reserved
        .or(own.last().copied())
        .or(geometry.superblock_in(group));
    assert_eq!(
        last.map_or(geometry.group_start(group).unwrap(), |last| last + 1),
        fixed_end,
        "{what}: {text}"
    );
}

fn check_bitmaps(image: &Image, sb: &Superblock, group: u32, text: &str, what: &str) {
    let geometry = sb.geometry();
    let descriptor = image.descriptor(group, sb);
    let place = Place::new(Structure::BlockBitmap);
    let blocks = if descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
        initial_block_bitmap(group, &descriptor, geometry).unwrap()
    } else {
        let bytes = image.read_block(descriptor.block_bitmap(), sb);
        let bitmap = Bitmap::decode_blocks(&bytes, group, &descriptor, sb, place).unwrap();
        assert!(bitmap.is_padded(), "{what}");
        bytes
    };
    let blocks = Bitmap::new(&blocks, geometry.group_clusters(group).unwrap()).unwrap();
    assert_eq!(blocks.count_clear(), descriptor.free_clusters(), "{what}");
    let start = geometry.group_start(group).unwrap();
    let shift = geometry.cluster_shift();
    let block_of = |cluster: u32| start + (u64::from(cluster) << shift);
    let runs = blocks
        .clear_runs()
        .map(|run| (block_of(run.start), block_of(run.end - 1)));
    assert_eq!(
        ranges(text, "Free blocks: "),
        runs.collect::<Vec<_>>(),
        "{what}: {text}"
    );

    if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
        assert_eq!(
            descriptor.free_inodes(),
            geometry.inodes_per_group(),
            "{what}"
        );
        return;
    }
    let bytes = image.read_block(descriptor.inode_bitmap(), sb);
    let place = Place::new(Structure::InodeBitmap);
    let inodes = Bitmap::decode_inodes(&bytes, group, &descriptor, sb, place).unwrap();
    assert_eq!(inodes.count_clear(), descriptor.free_inodes(), "{what}");
    let base = u64::from(group) * u64::from(geometry.inodes_per_group()) + 1;
    let runs = inodes
        .clear_runs()
        .map(|run| (base + u64::from(run.start), base + u64::from(run.end) - 1));
    assert_eq!(
        ranges(text, "Free inodes: "),
        runs.collect::<Vec<_>>(),
        "{what}: {text}"
    );
}

/// Returns the ranges that a line lists: `5-9, 11`.
fn ranges(text: &str, line: &str) -> Vec<(u64, u64)> {
    let list = text
        .lines()
        .find_map(|it| it.trim_start().strip_prefix(line.trim_end()))
        .unwrap_or_default();
    let ranges = list
        .split(',')
        .map(str::trim)
        .filter(|range| !range.is_empty());
    ranges
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            (first.parse().unwrap(), last.parse().unwrap())
        })
        .collect()
}

fn find_number(text: &str, before: &str) -> Option<u64> {
    text.contains(before).then(|| number_after(text, before))
}

fn number_after(text: &str, before: &str) -> u64 {
    let rest = text
        .split_once(before)
        .unwrap_or_else(|| panic!("no {before} in {text}"))
        .1;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

fn hex_after(text: &str, before: &str) -> u32 {
    let rest = text.split_once(before).unwrap().1;
    u32::from_str_radix(
        rest.split(|c: char| !c.is_ascii_hexdigit()).next().unwrap(),
        16,
    )
    .unwrap()
}

#[test]
fn descriptors_in_a_table_and_in_meta_groups() {
    // A volume that has outgrown its table continues in meta groups.
    let image = Image::make("-t ext4 -b 1024 -g 256 -O ^resize_inode,^has_journal", "4M");
    image.debugfs_write("feature meta_bg\nssv first_meta_bg 1\n");
    image.resize("20M");
    let sb = image.superblock();
    assert_eq!(
        (
            sb.geometry().group_count(),
            sb.geometry().descriptor_blocks()
        ),
        (80, 5)
    );
    assert_eq!(sb.geometry().table_end(), 3);
    let (_, groups) = image.dumpe2fs();
    for (group, text) in (0..).zip(&groups) {
        check_group(&image, &sb, group, text, &format!("group {group}"));
    }
}

#[test]
fn feature_names_as_dumpe2fs_prints_them() {
    // The test leaves out bits that change other output of dumpe2fs, or that make it refuse the
    // volume.
    let words = [(0x5c, !0), (0x64, !0x610), (0x60, 0x3_e652)];
    let image = Image::make("-t ext2 -b 1024", "8M");
    let bytes = image.superblock_bytes();
    for (offset, bits) in words {
        for word in (0..32).map(|bit| bits & 1u32 << bit).chain([bits]) {
            let mut changed = bytes.clone();
            changed[0x5c..0x68].fill(0);
            changed[offset..offset + 4].copy_from_slice(&word.to_le_bytes());
            image.write(1024, &changed);
            let raw = RawSuperblock::read(&changed, Place::new(Structure::Superblock)).unwrap();
            assert_eq!(
                raw.features().to_string(),
                image.feature_names(),
                "{word:#x} at {offset:#x}"
            );
        }
    }
}

/// Checks that every backup of the superblock is valid, and has its group's number.
fn check_backups(image: &Image, sb: &Superblock, options: &str) {
    for group in 1..sb.geometry().group_count() {
        if let Some(block) = sb.geometry().superblock_in(group) {
            let bytes = image.read(block * u64::from(sb.block_size()), 1024);
            let copy =
                Superblock::decode(&bytes, Place::new(Structure::Superblock).block(block)).unwrap();
            assert_eq!(u32::from(copy.block_group()), group, "{options}");
            assert_eq!(copy.uuid(), sb.uuid(), "{options}");
        }
    }
}
