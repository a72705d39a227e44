//! New disks with a GPT and one partition.
//!
//! The builder writes its volume into such a disk when it is asked for one. The table has both
//! copies and a protective MBR, and is the same for the same sizes and identifiers. Where the
//! device holds zeroes, only the table's sectors are written.

use super::Guid;
use super::gpt::{ENTRY_BYTES, HEADER_BYTES, crc32};
use crate::{BlockDevice, Result};

/// The sectors that tables of image files count in.
const SECTOR: u64 = 512;
/// Entries of a table: as many as all tools make.
const ENTRIES: u32 = 128;
const ENTRIES_BYTES: u64 = (ENTRIES * ENTRY_BYTES) as u64;
/// Partitions start here, and disks end at a multiple of it, as all tools align them.
const ALIGNMENT: u64 = 1 << 20;
/// UTF-16 units of a name.
const NAME_UNITS: usize = 36;
/// Where a protective MBR has its entry, and the type of that.
const MBR_ENTRY: usize = 446;
const PROTECTIVE: u8 = 0xee;

/// A disk with a GPT and one partition, which is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDisk {
    /// The identifier of the disk.
    pub id: Guid,
    /// The identifier of the partition.
    pub partition_id: Guid,
    /// The partition's name, of which the table keeps the first 36 UTF-16 units.
    pub name: String,
    /// Bytes of the partition.
    pub partition_bytes: u64,
}

impl NewDisk {
    /// Where the partition starts.
    pub const PARTITION_START: u64 = ALIGNMENT;

    /// Returns the bytes of the disk.
    pub fn size_bytes(&self) -> u64 {
        let backup = ENTRIES_BYTES + SECTOR;
        (Self::PARTITION_START + self.partition_bytes + backup).next_multiple_of(ALIGNMENT)
    }

    /// Writes both copies of the table to a device of that size, which reads as zeroes where they
    /// go.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        let sectors = self.size_bytes() / SECTOR;
        let entries = self.entries();
        let last = sectors - 1;
        let backup_entries = last - ENTRIES_BYTES / SECTOR;
        device.write_at(&entries, backup_entries * SECTOR)?;
        device.write_at(
            &self.header(&entries, (last, 1), backup_entries),
            last * SECTOR,
        )?;
        device.write_at(&entries, 2 * SECTOR)?;
        device.write_at(&self.header(&entries, (1, last), 2), SECTOR)?;
        device.write_at(&protective_mbr(sectors), 0)?;
        device.flush()
    }

    fn entries(&self) -> Vec<u8> {
        let mut entries = vec![0; ENTRIES_BYTES as usize];
        let first = Self::PARTITION_START / SECTOR;
        let last = first + self.partition_bytes.div_ceil(SECTOR) - 1;
        entries[..16].copy_from_slice(&Guid::LINUX.0);
        entries[16..32].copy_from_slice(&self.partition_id.0);
        entries[32..40].copy_from_slice(&first.to_le_bytes());
        entries[40..48].copy_from_slice(&last.to_le_bytes());
        for (slot, unit) in entries[56..].chunks_exact_mut(2).zip(units(&self.name)) {
            slot.copy_from_slice(&unit.to_le_bytes());
        }
        entries
    }

    /// Returns the header for sector `places.0`, with the other copy in sector `places.1`.
    fn header(&self, entries: &[u8], places: (u64, u64), entries_lba: u64) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        let reserved = 2 + ENTRIES_BYTES / SECTOR;
        put(0, b"EFI PART");
        put(8, &0x0001_0000_u32.to_le_bytes());
        put(12, &(HEADER_BYTES as u32).to_le_bytes());
        put(24, &places.0.to_le_bytes());
        put(32, &places.1.to_le_bytes());
        put(40, &reserved.to_le_bytes());
        put(48, &(self.size_bytes() / SECTOR - reserved).to_le_bytes());
        put(56, &self.id.0);
        put(72, &entries_lba.to_le_bytes());
        put(80, &ENTRIES.to_le_bytes());
        put(84, &ENTRY_BYTES.to_le_bytes());
        put(88, &crc32(entries).to_le_bytes());
        let checksum = crc32(&header);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        header
    }
}

/// Returns the units of a name that fit, without half a surrogate pair at the end.
fn units(name: &str) -> Vec<u16> {
    let mut units = Vec::new();
    for char in name.chars() {
        if units.len() + char.len_utf16() > NAME_UNITS {
            break;
        }
        units.extend_from_slice(char.encode_utf16(&mut [0; 2]));
    }
    units
}

/// Returns the MBR that keeps programs which know no GPT from taking the disk for an empty one.
fn protective_mbr(sectors: u64) -> [u8; SECTOR as usize] {
    let mut mbr = [0; SECTOR as usize];
    let len = u32::try_from(sectors - 1).unwrap_or(u32::MAX);
    let entry = &mut mbr[MBR_ENTRY..MBR_ENTRY + 16];
    // Cylinder, head and sector of the first sector but one, and the largest that there are.
    entry[1..8].copy_from_slice(&[0x00, 0x02, 0x00, PROTECTIVE, 0xff, 0xff, 0xff]);
    entry[8..12].copy_from_slice(&1_u32.to_le_bytes());
    entry[12..16].copy_from_slice(&len.to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    mbr
}

#[cfg(test)]
mod tests {
    use super::NewDisk;
    use crate::partition::{DiskId, Guid, Table};
    use crate::{BlockDevice as _, MemoryDevice};

    #[test]
    fn a_new_disk_is_read_back() {
        let disk = NewDisk {
            id: Guid([1; 16]),
            partition_id: Guid([2; 16]),
            name: "r\u{f6}\u{f6}t \u{1f980}".to_owned(),
            partition_bytes: 61_440,
        };
        assert_eq!(disk.size_bytes(), 2 << 20);
        let device = MemoryDevice::zeroed(disk.size_bytes() as usize);
        disk.write(&device).unwrap();
        let table = Table::read(&device).unwrap().unwrap();
        assert_eq!(
            (table.id, table.faults.len(), table.partitions.len()),
            (DiskId::Gpt(disk.id), 0, 1)
        );
        let partition = &table.partitions[0];
        assert_eq!(
            (partition.number, partition.start_bytes, partition.len_bytes),
            (1, 1 << 20, 61_440)
        );
        let uuid = [
            0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        assert_eq!(
            Guid::of_uuid(uuid).to_string(),
            "abcdef01-2345-6789-0102-030405060708"
        );
        assert_eq!(
            (partition.name.as_deref(), partition.id),
            (Some(&*disk.name), Some(disk.partition_id))
        );
        assert_eq!(partition.kind.name(), Some("Linux"));
        // The copy at the end is as good.
        device.write_at(&[0; 512], 512).unwrap();
        let copy = Table::read(&device).unwrap().unwrap();
        assert_eq!((copy.partitions, copy.faults.len()), (table.partitions, 1));
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let units = super::units(&"\u{1f980}".repeat(20));
        assert_eq!(String::from_utf16(&units).unwrap(), "\u{1f980}".repeat(18));
        assert_eq!(
            super::units(&format!("a{}", "\u{1f980}".repeat(20))).len(),
            35
        );
    }
}
