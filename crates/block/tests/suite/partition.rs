//! Partition tables written by sfdisk and sgdisk, read by this crate and by sfdisk; and the same
//! tables with bytes changed.

use std::sync::{Arc, OnceLock};

use extern4_block::partition::{Border, DiskId, Fault, Guid, Kind, Partition, Table};
use extern4_block::{BlockDevice, MemoryDevice, OverlayDevice, SliceDevice};
use proptest::prelude::*;

/// A disk from `tables/`, which `tables/make.sh` describes.
struct Disk {
    name: &'static str,
    device: Arc<MemoryDevice>,
    /// Sectors that are not all zeroes: where the table is.
    sectors: Vec<u64>,
    rows: Vec<Row>,
}

/// A partition as sfdisk lists it: number, first sector, sectors, type, identifier, name.
type Row = (u32, u64, u64, String, Option<String>, Option<String>);

impl Disk {
    fn parse(name: &'static str, text: &str) -> Self {
        let mut lines = text.lines();
        let size = lines
            .next()
            .and_then(|line| line.strip_prefix("size "))
            .unwrap();
        let device = Arc::new(MemoryDevice::zeroed(size.parse().unwrap()));
        let mut sectors = Vec::new();
        let mut rows = Vec::new();
        for line in lines {
            match line.split_once(' ').unwrap() {
                ("part", row) => rows.push(parse_row(row)),
                ("sector", sector) => {
                    let (number, hex) = sector.split_once(' ').unwrap();
                    let number: u64 = number.parse().unwrap();
                    let bytes = (0..hex.len())
                        .step_by(2)
                        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
                    device
                        .write_at(&bytes.collect::<Vec<_>>(), number * 512)
                        .unwrap();
                    sectors.push(number);
                }
                _ => panic!("{line}"),
            }
        }
        Self {
            name,
            device,
            sectors,
            rows,
        }
    }

    fn table(&self) -> Table {
        Table::read(&self.device).unwrap().expect("a table")
    }
}

fn parse_row(row: &str) -> Row {
    let (number, fields) = row.split_once(" : ").unwrap();
    let field = |key: &str| {
        let value = fields
            .split(", ")
            .find_map(|field| field.trim().strip_prefix(key)?.strip_prefix('='));
        value.map(|value| unescape(value.trim().trim_matches('"')).to_lowercase())
    };
    let count = |key| field(key).unwrap().parse().unwrap();
    (
        number.parse().unwrap(),
        count("start"),
        count("size"),
        field("type").unwrap(),
        field("uuid"),
        field("name"),
    )
}

/// Decodes text in which each byte beyond ASCII is written like `\xc3`.
fn unescape(text: &str) -> String {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}

fn disks() -> &'static [Disk] {
    static DISKS: OnceLock<Vec<Disk>> = OnceLock::new();
    DISKS.get_or_init(|| {
        vec![
            Disk::parse("mbr_primary", include_str!("tables/mbr_primary.txt")),
            Disk::parse("mbr_gap", include_str!("tables/mbr_gap.txt")),
            Disk::parse("mbr_logical", include_str!("tables/mbr_logical.txt")),
            Disk::parse("mbr_lba", include_str!("tables/mbr_lba.txt")),
            Disk::parse("mbr_backwards", include_str!("tables/mbr_backwards.txt")),
            Disk::parse("gpt", include_str!("tables/gpt.txt")),
            Disk::parse("gpt_sgdisk", include_str!("tables/gpt_sgdisk.txt")),
        ]
    })
}

fn disk(name: &str) -> &'static Disk {
    disks().iter().find(|disk| disk.name == name).unwrap()
}

fn row(partition: &Partition) -> Row {
    let kind = match partition.kind {
        Kind::Mbr(byte) => format!("{byte:x}"),
        Kind::Gpt(id) => id.to_string(),
    };
    let name = partition.name.as_ref().map(|name| name.to_lowercase());
    let start = partition.start_bytes / 512;
    let len = partition.len_bytes / 512;
    (
        partition.number,
        start,
        len,
        kind,
        partition.id.map(|id: Guid| id.to_string()),
        name,
    )
}

#[test]
fn tables_read_as_sfdisk_reads_them() {
    for disk in disks() {
        let table = disk.table();
        assert!(table.faults.is_empty(), "{}: {:?}", disk.name, table.faults);
        assert_eq!(
            table.partitions.iter().map(row).collect::<Vec<_>>(),
            disk.rows,
            "{}",
            disk.name
        );
    }
}

/// All sectors that a tool wrote are areas of the table, damaged sectors included.
#[test]
fn a_table_knows_its_places() {
    for disk in disks() {
        let damaged = OverlayDevice::new(disk.device.clone(), 512).unwrap();
        damaged.write_zeroes(512..34 * 512).unwrap();
        let second = OverlayDevice::new(disk.device.clone(), 512).unwrap();
        if disk.name.starts_with("gpt") {
            let sectors = second.size_bytes() / 512;
            second
                .write_zeroes((sectors - 33) * 512..sectors * 512)
                .unwrap();
        }
        for device in [&*disk.device as &dyn BlockDevice, &damaged, &second] {
            let Some(table) = Table::read(device).unwrap() else {
                continue;
            };
            for sector in &disk.sectors {
                let at = sector * 512;
                let border = (at, Border::Table);
                assert_eq!(
                    table.room(at),
                    Some(border),
                    "{}: sector {sector}",
                    disk.name
                );
            }
        }
    }
}

#[test]
fn disks_and_kinds_are_named() {
    assert_eq!(disk("mbr_primary").table().id, DiskId::Mbr(0x1234_5678));
    let kinds = |name| {
        disk(name)
            .table()
            .partitions
            .iter()
            .map(|p| p.kind.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        kinds("mbr_primary"),
        ["Linux", "Linux swap", "NTFS or exFAT"]
    );
    assert_eq!(kinds("gpt"), ["EFI system", "Linux", "Linux"]);
    assert_eq!(
        disk("gpt").table().partition(5).unwrap().name.as_deref(),
        Some("Größe 1")
    );
}

#[test]
fn a_lost_first_gpt_is_read_from_its_backup() {
    for name in ["gpt", "gpt_sgdisk"] {
        let disk = disk(name);
        let damaged = OverlayDevice::new(disk.device.clone(), 512).unwrap();
        damaged.write_zeroes(512..34 * 512).unwrap();
        let table = Table::read(&damaged).unwrap().unwrap();
        assert_eq!(table.partitions, disk.table().partitions);
        assert!(matches!(table.faults[..], [Fault::NoHeader { lba: 1 }]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn turned_over_bytes_never_yield_bytes_outside(
        disk in prop::sample::select((0..disks().len()).collect::<Vec<_>>()),
        turns in prop::collection::vec((any::<prop::sample::Index>(), 0..512u64, any::<u8>()), 1..6),
        cut in prop_oneof![3 => Just(0), 1 => 0..16u64 << 20],
    ) {
        let disk = &disks()[disk];
        let turned = Arc::new(OverlayDevice::new(disk.device.clone(), 512).unwrap());
        for (sector, offset, byte) in turns {
            let at = disk.sectors[sector.index(disk.sectors.len())] * 512 + offset;
            let mut old = [0];
            turned.read_at(&mut old, at).unwrap();
            turned.write_at(&[old[0] ^ byte], at).unwrap();
        }
        let size = turned.size_bytes() - cut;
        let device = SliceDevice::new(turned, 0, size).unwrap();
        if let Ok(Some(table)) = Table::read(&device) {
            for partition in table.partitions {
                prop_assert!(partition.len_bytes > 0);
                prop_assert!(partition.held_bytes <= partition.len_bytes);
                prop_assert!(partition.held_bytes == 0 || partition.start_bytes + partition.held_bytes <= size);
            }
        }
    }
}
