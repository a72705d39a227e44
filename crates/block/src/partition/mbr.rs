//! The master boot record, and the chain of extended boot records that holds the logical
//! partitions.
//!
//! `partition` calls it. Each sector number is checked against the device. A chain of extended
//! records that loops or grows too long ends with a fault, so no image makes it hang.
//!
//! A record is the first 512 bytes of a sector. It has four entries of 16 bytes from byte 446 on,
//! and the signature 55 AA at byte 510. An entry is: boot flag, first CHS (3 bytes), type, last CHS
//! (3 bytes), first sector, number of sectors. The reader ignores the CHS values.
//!
//! A primary entry of an extended type points to the first extended boot record. In each extended
//! boot record, the first entry is a logical partition, counted from that record. The second entry
//! points to the next record, counted from the first extended boot record.

use super::{DiskId, Fault, Kind, Partition, Sector, Table, le32};
use crate::{BlockDevice, Result};

/// Bytes that a record uses of its sector.
const RECORD_BYTES: usize = 512;
const DISK_SIGNATURE: usize = 440;
const ENTRIES: usize = 446;
const SIGNATURE: usize = 510;
/// The type of the entry that covers a disk with a GPT.
const PROTECTIVE: u8 = 0xee;
/// The most extended boot records that the reader follows. Linux names no more than 256 partitions
/// of a disk.
const MAX_LOGICAL: usize = 256;

#[derive(Clone, Copy)]
struct Entry {
    boot: u8,
    kind: u8,
    first: u32,
    count: u32,
}

impl Entry {
    fn is_used(self) -> bool {
        self.kind != 0 && self.count != 0
    }

    fn is_extended(self) -> bool {
        self.is_used() && Kind::Mbr(self.kind).is_extended()
    }

    /// Returns the first and last sector, if the entry counts from sector `base`.
    fn sectors(self, base: u64) -> (u64, u64) {
        let first = base.saturating_add(u64::from(self.first));
        // OK: only used entries get here, and those have a sector.
        (first, first.saturating_add(u64::from(self.count) - 1))
    }
}

/// A master or extended boot record.
pub(super) struct Record {
    disk_signature: u32,
    entries: [Entry; 4],
}

impl Record {
    /// Returns the record in sector `lba`, or `None` if it has no signature or is not in the
    /// device.
    pub(super) fn read(device: &dyn BlockDevice, sector: Sector, lba: u64) -> Result<Option<Self>> {
        let Some((offset, _)) = sector.span(device, lba, lba) else {
            return Ok(None);
        };
        let mut bytes = [0; RECORD_BYTES];
        device.read_at(&mut bytes, offset)?;
        if bytes[SIGNATURE..] != [0x55, 0xaa] {
            return Ok(None);
        }
        let entries = std::array::from_fn(|i| {
            let at = ENTRIES + 16 * i;
            Entry {
                boot: bytes[at],
                kind: bytes[at + 4],
                first: le32(&bytes, at + 8),
                count: le32(&bytes, at + 12),
            }
        });
        Ok(Some(Self {
            disk_signature: le32(&bytes, DISK_SIGNATURE),
            entries,
        }))
    }

    /// Returns whether the record only says that the disk has a GPT.
    pub(super) fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == PROTECTIVE)
    }

    /// Returns whether the record names partitions other than the entry for the GPT.
    pub(super) fn is_hybrid(&self) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.is_used() && entry.kind != PROTECTIVE)
    }

    /// Returns whether this is a table and not the boot sector of a volume. Boot flags have two
    /// legal values, and a table has an entry.
    pub(super) fn is_plausible(&self) -> bool {
        self.entries.iter().all(|entry| entry.boot & 0x7f == 0)
            && self.entries.iter().any(|entry| entry.is_used())
    }
}

/// Returns the table whose master boot record is `mbr`.
pub(super) fn table(device: &dyn BlockDevice, sector: Sector, mbr: &Record) -> Table {
    let mut partitions = Vec::new();
    let mut faults = Vec::new();
    let mut areas = vec![sector.bytes(0, 1)];
    let mut add = |partition: Result<Partition, Fault>| match partition {
        Ok(partition) => partitions.push(partition),
        Err(fault) => faults.push(fault),
    };
    for (number, entry) in (1..).zip(mbr.entries).filter(|(_, entry)| entry.kind != 0) {
        add(if entry.is_used() {
            sector.partition(device, number, Kind::Mbr(entry.kind), entry.sectors(0))
        } else {
            Err(Fault::Empty { number })
        });
    }
    let mut number = 4;
    for container in mbr.entries.iter().filter(|entry| entry.is_extended()) {
        let (records, fault) =
            for_each_logical(device, sector, u64::from(container.first), |base, entry| {
                number += 1;
                add(sector.partition(device, number, Kind::Mbr(entry.kind), entry.sectors(base)));
            });
        areas.extend(records.into_iter().map(|lba| sector.bytes(lba, 1)));
        if let Err(fault) = fault {
            add(Err(fault));
        }
    }
    Table {
        id: DiskId::Mbr(mbr.disk_signature),
        sector_bytes: sector.0,
        partitions,
        areas,
        faults,
    }
}

/// Calls `f` with each logical partition of the container that starts at sector `start`, and the
/// sector that the entry counts from. A fault ends the chain. Returns the sectors of the records.
fn for_each_logical(
    device: &dyn BlockDevice,
    sector: Sector,
    start: u64,
    f: impl FnMut(u64, Entry),
) -> (Vec<u64>, Result<(), Fault>) {
    // The chain may run backwards, so only a list of the records passed shows a loop.
    let mut passed = Vec::new();
    let ended = follow(device, sector, start, &mut passed, f);
    (passed, ended)
}

fn follow(
    device: &dyn BlockDevice,
    sector: Sector,
    start: u64,
    passed: &mut Vec<u64>,
    mut f: impl FnMut(u64, Entry),
) -> Result<(), Fault> {
    let mut next = Some(start);
    while let Some(lba) = next {
        if passed.contains(&lba) {
            return Err(Fault::Loop { lba });
        }
        if passed.len() == MAX_LOGICAL {
            return Err(Fault::TooManyLogical { limit: MAX_LOGICAL });
        }
        passed.push(lba);
        let record = Record::read(device, sector, lba)
            .map_err(|source| Fault::Unreadable {
                lba,
                source: Box::new(source),
            })?
            .ok_or(Fault::NoExtendedRecord { lba })?;
        // The last two entries are unused. In records that other systems wrote they may hold
        // anything.
        let [first, second, ..] = record.entries;
        for entry in [first, second]
            .into_iter()
            .filter(|entry| entry.is_used() && !entry.is_extended())
        {
            f(lba, entry);
        }
        next = [first, second]
            .into_iter()
            .find(|entry| entry.is_extended())
            .map(|link| link.sectors(start).0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    /// Writes a record with these entries (type, first, count) into sector `lba`.
    fn put(disk: &MemoryDevice, lba: u64, entries: &[(u8, u32, u32)]) {
        let mut bytes = [0; 512];
        bytes[SIGNATURE..].copy_from_slice(&[0x55, 0xaa]);
        for (i, &(kind, first, count)) in entries.iter().enumerate() {
            let at = ENTRIES + 16 * i;
            bytes[at + 4] = kind;
            bytes[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
            bytes[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
        }
        disk.write_at(&bytes, lba * 512).unwrap();
    }

    fn disk() -> MemoryDevice {
        MemoryDevice::zeroed(1000 * 512)
    }

    fn sectors(table: &Table) -> Vec<(u32, u64, u64)> {
        table
            .partitions
            .iter()
            .map(|p| (p.number, p.start_bytes / 512, p.len_bytes / 512))
            .collect()
    }

    #[test]
    fn a_disk_without_a_signature_has_no_table() {
        assert!(Table::read(&disk()).unwrap().is_none());
        assert!(Table::read(&MemoryDevice::zeroed(100)).unwrap().is_none());
    }

    #[test]
    fn a_boot_sector_of_a_volume_is_no_table() {
        let disk = disk();
        put(&disk, 0, &[]);
        assert!(Table::read(&disk).unwrap().is_none());
        put(&disk, 0, &[(0x83, 1, 10)]);
        disk.write_at(&[0x6f], ENTRIES as u64).unwrap();
        assert!(Table::read(&disk).unwrap().is_none());
    }

    #[test]
    fn partitions_beyond_the_end_are_listed_and_told() {
        let disk = disk();
        put(
            &disk,
            0,
            &[
                (0x83, 990, 11),
                (0x83, 990, 10),
                (0x83, u32::MAX, u32::MAX),
                (0x83, 0, 0),
            ],
        );
        let table = Table::read(&disk).unwrap().unwrap();
        let max = u64::from(u32::MAX);
        assert_eq!(sectors(&table), [(1, 990, 11), (2, 990, 10), (3, max, max)]);
        let cut_off: Vec<_> = table
            .partitions
            .iter()
            .map(|p| (p.is_cut_off(), p.held_bytes / 512))
            .collect();
        assert_eq!(cut_off, [(true, 10), (false, 10), (true, 0)]);
        assert!(
            matches!(
                table.faults[..],
                [
                    Fault::Empty { number: 4 },
                    Fault::CutOff { number: 1, .. },
                    Fault::CutOff { number: 3, .. },
                    Fault::Overlap {
                        first: 1,
                        second: 2
                    },
                ]
            ),
            "{:?}",
            table.faults
        );
        assert!(
            table.left_out(4).is_some()
                && table.left_out(1).is_none()
                && table.left_out(5).is_none()
        );
    }

    #[test]
    fn overlapping_partitions_are_told() {
        let disk = disk();
        put(
            &disk,
            0,
            &[
                (0x83, 500, 100),
                (0x83, 100, 500),
                (0x83, 600, 10),
                (0x05, 700, 300),
            ],
        );
        put(&disk, 700, &[(0x83, 1, 10)]);
        let table = Table::read(&disk).unwrap().unwrap();
        assert_eq!(sectors(&table).len(), 5);
        assert!(
            matches!(
                table.faults[..],
                [Fault::Overlap {
                    first: 2,
                    second: 1
                }]
            ),
            "{:?}",
            table.faults
        );
    }

    /// A volume or an extended boot record shows that sectors have 4 KiB.
    #[test]
    fn long_sectors_are_found_by_their_contents() {
        let disk = MemoryDevice::zeroed(1000 * 4096);
        put(&disk, 0, &[(0x83, 100, 50), (0x83, 200, 50)]);
        let read = |volumes: &[u64]| {
            Table::read_with(&disk, &|byte| volumes.contains(&byte))
                .unwrap()
                .unwrap()
                .sector_bytes
        };
        assert_eq!(read(&[]), 512);
        assert_eq!(read(&[200 * 4096]), 4096);
        assert_eq!(read(&[100 * 4096, 200 * 512]), 512, "both places have one");
        put(&disk, 0, &[(0x83, 100, 50), (0x05, 200, 300)]);
        assert_eq!(read(&[]), 512);
        put(&disk, 200 * 8, &[(0x83, 1, 10), (0x05, 30, 20)]);
        put(&disk, 230 * 8, &[(0x83, 2, 10)]);
        assert_eq!(read(&[]), 4096);
        let table = Table::read(&disk).unwrap().unwrap();
        let logical: Vec<_> = table
            .partitions
            .iter()
            .map(|p| (p.number, p.start_bytes / 4096))
            .collect();
        assert_eq!(logical, [(1, 100), (2, 200), (5, 201), (6, 232)]);
    }

    #[test]
    fn a_looping_chain_ends() {
        let disk = disk();
        put(&disk, 0, &[(0x05, 100, 900)]);
        put(&disk, 100, &[(0x83, 1, 10), (0x05, 50, 20)]);
        put(&disk, 150, &[(0x83, 1, 10), (0x05, 0, 20)]);
        let table = Table::read(&disk).unwrap().unwrap();
        assert_eq!(sectors(&table), [(1, 100, 900), (5, 101, 10), (6, 151, 10)]);
        assert!(matches!(table.faults[..], [Fault::Loop { lba: 100 }]));
    }

    #[test]
    fn a_chain_that_leaves_the_disk_or_its_records_ends() {
        for (link, lba) in [
            (5000, 5100),
            (70, 170),
            (u32::MAX, 100 + u64::from(u32::MAX)),
        ] {
            let disk = disk();
            put(&disk, 0, &[(0x0f, 100, 900)]);
            put(&disk, 100, &[(0x83, 1, 10), (0x05, link, 20)]);
            let table = Table::read(&disk).unwrap().unwrap();
            assert_eq!(sectors(&table)[1..], [(5, 101, 10)]);
            assert!(matches!(table.faults[..], [Fault::NoExtendedRecord { lba: at }] if at == lba));
        }
    }

    #[test]
    fn an_endless_chain_is_cut() {
        let disk = disk();
        put(&disk, 0, &[(0x05, 100, 900)]);
        for i in 0..800 {
            put(&disk, 100 + i, &[(0x83, 1, 1), (0x05, i as u32 + 1, 1)]);
        }
        let table = Table::read(&disk).unwrap().unwrap();
        assert_eq!(table.partitions.len(), 1 + MAX_LOGICAL);
        assert!(matches!(
            table.faults[..],
            [Fault::TooManyLogical { limit: MAX_LOGICAL }]
        ));
    }
}
