//! The GUID partition table.
//!
//! `partition` calls the reader, and `new` shares its numbers. The reader checks both checksums and
//! all sector numbers against the device, and uses the copy where the first header is damaged.
//!
//! A header in sector 1 points to the entries. The last sector holds a copy of the header, with
//! its own entries. Each header holds a checksum of itself and one of its entries. Sectors have
//! 512 or 4096 bytes. An image does not say which, so the reader tries both.

use std::array;
use std::ops::Range;

use super::{DiskId, Fault, Guid, Kind, Partition, Sector, Table, le32, le64};
use crate::{BlockDevice, Error, Result};

/// Bytes of the header that the specification defines.
pub(super) const HEADER_BYTES: usize = 92;
/// Bytes of an entry that the specification defines; a table may have longer ones.
pub(super) const ENTRY_BYTES: u32 = 128;
/// The most bytes of entries that are read: 8192 partitions, where usual tables have room for 128.
const MAX_ENTRIES_BYTES: u64 = 1 << 20;

/// A header that matches its checksum and fits the device.
struct Header {
    disk: Guid,
    entries_offset: u64,
    entries_lba: u64,
    entry_bytes: u32,
    entry_count: u32,
    entries_checksum: u32,
    alternate: u64,
}

/// Returns the GPT of `device`, which has a protective MBR. Tries sectors of the size `hint` first.
pub(super) fn read(device: &dyn BlockDevice, hint: Sector) -> Result<Table> {
    read_sized(device, hint)
        .or_else(|faults| read_sized(device, hint.other()).map_err(|_| faults))
        .map_err(|(primary, backup)| Error::PartitionTable {
            primary: Box::new(primary),
            backup: Box::new(backup),
        })
}

/// Returns the GPT of `device`, whose first sector holds no MBR: it may have been overwritten.
pub(super) fn read_unprotected(device: &dyn BlockDevice, hint: Sector) -> Option<Table> {
    let mut table = read(device, hint).ok()?;
    table.faults.insert(0, Fault::Unprotected);
    Some(table)
}

/// Returns the GPT of `device` if its sectors have this size; else the faults of its two copies.
fn read_sized(device: &dyn BlockDevice, sector: Sector) -> Result<Table, (Fault, Fault)> {
    let primary = match read_copy(device, sector, 1) {
        Ok(table) => return Ok(with_backup(device, sector, table)),
        Err(fault) => fault,
    };
    // The backup is in the last sector. If it is not, a valid first header may name another one:
    // the disk may have grown since.
    let last = sector.count(device).saturating_sub(1);
    let alternate = read_header(device, sector, 1).map_or(last, |header| header.alternate);
    let backup = read_copy(device, sector, last).or_else(|fault| match alternate {
        alternate if alternate == last => Err(fault),
        alternate => read_copy(device, sector, alternate),
    });
    match backup {
        Ok(mut table) => {
            table.faults.insert(0, primary);
            Ok(table)
        }
        Err(backup) => Err((primary, backup)),
    }
}

/// Records in a table, read from the first header, if the device ends before the second header.
fn with_backup(device: &dyn BlockDevice, sector: Sector, mut table: Table) -> Table {
    let sectors = sector.count(device);
    let lba = read_header(device, sector, 1).map_or(0, |header| header.alternate);
    if lba >= sectors {
        table.faults.push(Fault::NoBackup { lba, sectors });
    }
    table
}

/// Returns the table whose header is in sector `lba`.
fn read_copy(device: &dyn BlockDevice, sector: Sector, lba: u64) -> Result<Table, Fault> {
    let header = read_header(device, sector, lba)?;
    let entries = read_entries(device, &header)?;
    let mut table = Table {
        id: DiskId::Gpt(header.disk),
        sector_bytes: sector.0,
        partitions: Vec::new(),
        areas: areas(device, sector, lba, &header),
        faults: Vec::new(),
    };
    for (number, entry) in (1..).zip(entries.chunks_exact(header.entry_bytes as usize)) {
        let kind = guid(entry, 0);
        if kind == Guid::ZERO {
            continue;
        }
        match sector.partition(
            device,
            number,
            Kind::Gpt(kind),
            (le64(entry, 32), le64(entry, 40)),
        ) {
            Ok(partition) => {
                let name = Some(name(&entry[56..128])).filter(|name| !name.is_empty());
                table.partitions.push(Partition {
                    name,
                    id: Some(guid(entry, 16)),
                    ..partition
                });
            }
            Err(fault) => table.faults.push(fault),
        }
    }
    Ok(table)
}

/// Returns the bytes of the MBR, of both headers, and of the entries of both. If the other header
/// cannot be read, its entries are taken to be where all tools put them: behind the first header,
/// and before the second one.
fn areas(device: &dyn BlockDevice, sector: Sector, lba: u64, header: &Header) -> Vec<Range<u64>> {
    let count = header.entries_bytes().div_ceil(sector.0.into());
    let other = header.alternate;
    let entries = match read_header(device, sector, other) {
        Ok(other) => sector.bytes(
            other.entries_lba,
            other.entries_bytes().div_ceil(sector.0.into()),
        ),
        Err(_) if other < lba => sector.bytes(other.saturating_add(1), count),
        Err(_) => sector.bytes(other.saturating_sub(count), count),
    };
    let own = sector.bytes(header.entries_lba, count);
    vec![
        sector.bytes(0, 1),
        sector.bytes(lba, 1),
        own,
        sector.bytes(other, 1),
        entries,
    ]
}

fn read_header(device: &dyn BlockDevice, sector: Sector, lba: u64) -> Result<Header, Fault> {
    let (offset, len) = sector
        .span(device, lba, lba)
        .ok_or(Fault::NoHeader { lba })?;
    let mut bytes = vec![0; len as usize];
    device
        .read_at(&mut bytes, offset)
        .map_err(|source| Fault::Unreadable {
            lba,
            source: Box::new(source),
        })?;
    if bytes[..8] != *b"EFI PART" {
        return Err(Fault::NoHeader { lba });
    }
    let header_bytes = le32(&bytes, 12) as usize;
    if !(HEADER_BYTES..=bytes.len()).contains(&header_bytes) {
        return Err(Fault::BadHeader { lba });
    }
    let stored = le32(&bytes, 16);
    bytes[16..20].fill(0);
    let found = crc32(&bytes[..header_bytes]);
    if found != stored {
        return Err(Fault::HeaderChecksum { lba, stored, found });
    }
    let entries_lba = le64(&bytes, 72);
    let header = Header {
        disk: guid(&bytes, 56),
        entries_offset: sector.offset(entries_lba).ok_or(Fault::BadHeader { lba })?,
        entries_lba,
        entry_count: le32(&bytes, 80),
        entry_bytes: le32(&bytes, 84),
        entries_checksum: le32(&bytes, 88),
        alternate: le64(&bytes, 32),
    };
    // A header copied from another place holds another sector number.
    let here = le64(&bytes, 24) == lba;
    let entry_size_fits = header.entry_bytes >= ENTRY_BYTES && header.entry_bytes.is_power_of_two();
    if !here || !entry_size_fits || header.entries_bytes() > MAX_ENTRIES_BYTES {
        return Err(Fault::BadHeader { lba });
    }
    Ok(header)
}

fn read_entries(device: &dyn BlockDevice, header: &Header) -> Result<Vec<u8>, Fault> {
    // OK: `read_header` limits this, so it fits both types.
    let mut entries = vec![0; header.entries_bytes() as usize];
    device
        .read_at(&mut entries, header.entries_offset)
        .map_err(|source| Fault::Unreadable {
            lba: header.entries_lba,
            source: Box::new(source),
        })?;
    let stored = header.entries_checksum;
    let found = crc32(&entries);
    if found != stored {
        return Err(Fault::EntriesChecksum {
            lba: header.entries_lba,
            stored,
            found,
        });
    }
    Ok(entries)
}

impl Header {
    fn entries_bytes(&self) -> u64 {
        u64::from(self.entry_count) * u64::from(self.entry_bytes)
    }
}

fn guid(bytes: &[u8], at: usize) -> Guid {
    Guid(array::from_fn(|i| bytes[at + i]))
}

/// Decodes the name in UTF-16, up to its first NUL.
fn name(bytes: &[u8]) -> String {
    let units = bytes
        .chunks_exact(2)
        .map(|pair| u16::from(pair[0]) | u16::from(pair[1]) << 8);
    char::decode_utf16(units.take_while(|&unit| unit != 0))
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

/// Returns the CRC-32 of ISO 3309, as zlib and Ethernet compute it.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut crc = i as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 {
                    crc >> 1 ^ 0xedb8_8320
                } else {
                    crc >> 1
                };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, &byte| {
        crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    const SECTORS: u64 = 256;

    #[derive(Clone)]
    struct Spec {
        first: u64,
        last: u64,
        name: &'static str,
    }

    /// Writes a header with its entries, both with right checksums, at `lba` of a disk with sectors
    /// of `size` bytes.
    fn put(disk: &MemoryDevice, size: u64, lba: u64, entries_lba: u64, specs: &[Spec]) {
        let mut entries = vec![0; 128 * 128];
        for (entry, spec) in entries.chunks_exact_mut(128).zip(specs) {
            entry[..16].copy_from_slice(&[7; 16]);
            entry[32..40].copy_from_slice(&spec.first.to_le_bytes());
            entry[40..48].copy_from_slice(&spec.last.to_le_bytes());
            for (slot, unit) in entry[56..]
                .chunks_exact_mut(2)
                .zip(spec.name.encode_utf16())
            {
                slot.copy_from_slice(&unit.to_le_bytes());
            }
        }
        let mut header = vec![0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[12..16].copy_from_slice(&92u32.to_le_bytes());
        header[24..32].copy_from_slice(&lba.to_le_bytes());
        header[32..40].copy_from_slice(&(SECTORS - lba).to_le_bytes());
        header[72..80].copy_from_slice(&entries_lba.to_le_bytes());
        header[80..84].copy_from_slice(&128u32.to_le_bytes());
        header[84..88].copy_from_slice(&128u32.to_le_bytes());
        header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
        let checksum = crc32(&header);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        disk.write_at(&entries, entries_lba * size).unwrap();
        disk.write_at(&header, lba * size).unwrap();
    }

    fn disk(size: u64, specs: &[Spec]) -> MemoryDevice {
        let disk = MemoryDevice::zeroed((SECTORS * size) as usize);
        disk.write_at(&[0xee], 450).unwrap();
        disk.write_at(&[0x55, 0xaa], 510).unwrap();
        put(&disk, size, 1, 2, specs);
        put(&disk, size, SECTORS - 1, SECTORS - 33, specs);
        disk
    }

    fn one() -> Vec<Spec> {
        vec![Spec {
            first: 40,
            last: 49,
            name: "rööt",
        }]
    }

    #[test]
    fn the_checksum_is_the_common_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn sectors_of_both_sizes_are_found() {
        for size in [512, 4096] {
            let table = Table::read(&disk(size, &one())).unwrap().unwrap();
            assert_eq!((table.sector_bytes as u64, table.faults.len()), (size, 0));
            let partition = table.partition(1).unwrap();
            assert_eq!(
                (partition.start_bytes, partition.len_bytes),
                (40 * size, 10 * size)
            );
            assert_eq!(partition.name.as_deref(), Some("rööt"));
        }
    }

    #[test]
    fn the_backup_stands_in_for_a_damaged_copy() {
        let expected = Table::read(&disk(512, &one())).unwrap().unwrap().partitions;
        // A header's signature, size, checksum and place; the first entry.
        for at in [512, 512 + 13, 512 + 16, 512 + 24, 1024] {
            let disk = disk(512, &one());
            disk.write_at(&[0xa5], at).unwrap();
            let table = Table::read(&disk).unwrap().unwrap();
            assert_eq!(table.partitions, expected);
            assert_eq!(table.faults.len(), 1);
        }
    }

    #[test]
    fn without_a_whole_copy_both_are_blamed() {
        let disk = disk(512, &one());
        disk.write_at(&[0], 512 + 90).unwrap();
        disk.write_at(&[9], (SECTORS - 33) * 512 + 32).unwrap();
        let Err(Error::PartitionTable { primary, backup }) = Table::read(&disk) else {
            panic!("read it")
        };
        assert!(matches!(*primary, Fault::HeaderChecksum { lba: 1, .. }));
        assert!(matches!(*backup, Fault::EntriesChecksum { lba: 223, .. }));
    }

    #[test]
    fn hostile_ranges_are_told_and_left_out() {
        let ranges = [
            (40, 39),
            (0, u64::MAX),
            (u64::MAX, u64::MAX),
            (SECTORS, SECTORS),
            (SECTORS - 1, SECTORS - 1),
        ];
        let specs: Vec<_> = ranges
            .iter()
            .map(|&(first, last)| Spec {
                first,
                last,
                name: "",
            })
            .collect();
        let table = Table::read(&disk(512, &specs)).unwrap().unwrap();
        assert_eq!(
            table
                .partitions
                .iter()
                .map(|p| (p.number, p.is_cut_off()))
                .collect::<Vec<_>>(),
            [(4, true), (5, false)]
        );
        assert_eq!(
            (1..6)
                .filter(|number| table.left_out(*number).is_some())
                .count(),
            3
        );
        assert_eq!(table.faults.len(), 4);
    }

    #[test]
    fn a_disk_that_is_cut_off_has_lost_the_backup() {
        let whole = disk(512, &one());
        let mut bytes = vec![0; 45 * 512];
        whole.read_at(&mut bytes, 0).unwrap();
        let cut = MemoryDevice::read_only(bytes);
        let table = Table::read(&cut).unwrap().unwrap();
        assert_eq!(
            (
                table.partitions[0].held_bytes,
                table.partitions[0].len_bytes
            ),
            (5 * 512, 10 * 512)
        );
        let [
            Fault::NoBackup {
                lba: 255,
                sectors: 45,
            },
            Fault::CutOff { number: 1, .. },
        ] = table.faults[..]
        else {
            panic!("{:?}", table.faults)
        };
    }

    #[test]
    fn either_copy_is_found_without_an_mbr() {
        for lost in [1, 2] {
            let disk = disk(512, &one());
            disk.write_at(&vec![0; 512 * lost], 0).unwrap();
            let table = Table::read(&disk).unwrap().unwrap();
            assert_eq!(table.partitions.len(), 1);
            assert_eq!(table.faults.len(), lost);
            assert!(
                matches!(table.faults[0], Fault::Unprotected),
                "{:?}",
                table.faults
            );
        }
    }

    #[test]
    fn of_a_hybrid_the_gpt_counts() {
        let disk = disk(512, &one());
        // A second entry of the MBR, of one sector.
        disk.write_at(&[0x83, 0, 0, 0, 9, 0, 0, 0, 1], 446 + 16 + 4)
            .unwrap();
        let table = Table::read(&disk).unwrap().unwrap();
        assert!(matches!(table.id, DiskId::Gpt(_)));
        assert!(
            matches!(table.faults[..], [Fault::Hybrid]),
            "{:?}",
            table.faults
        );
    }

    #[test]
    fn hostile_headers_with_right_checksums_are_refused() {
        // Entry count, entry size and place of the entries, each beyond reason.
        for (at, bytes) in [
            (80, u64::from(u32::MAX).to_le_bytes()),
            (84, [0; 8]),
            (84, [200, 0, 0, 0, 0, 0, 0, 0]),
            (72, [0xff; 8]),
            (72, (SECTORS - 1).to_le_bytes()),
        ] {
            let disk = MemoryDevice::zeroed((SECTORS * 512) as usize);
            disk.write_at(&[0xee], 450).unwrap();
            disk.write_at(&[0x55, 0xaa], 510).unwrap();
            put(&disk, 512, 1, 2, &one());
            let mut header = [0; 92];
            disk.read_at(&mut header, 512).unwrap();
            let len = bytes.len().min(header.len() - at);
            header[at..at + len].copy_from_slice(&bytes[..len]);
            header[16..20].fill(0);
            let checksum = crc32(&header);
            header[16..20].copy_from_slice(&checksum.to_le_bytes());
            disk.write_at(&header, 512).unwrap();
            let Err(Error::PartitionTable { primary, .. }) = Table::read(&disk) else {
                panic!("read it")
            };
            assert!(
                matches!(
                    *primary,
                    Fault::BadHeader { lba: 1 } | Fault::Unreadable { .. }
                ),
                "{primary}"
            );
        }
    }
}
