//! Partition tables, which say where on a disk the volumes are.
//!
//! `extern4` reads the table of a disk to find the volume that a user names.
//!
//! Reads the MBR with its chain of logical partitions, and the GPT. The reader uses what a damaged
//! table still says, and reports what it passed over in [`Table::faults`]. Only a GPT without a
//! valid copy is an error. Partitions have Linux's numbers: primary ones by their slot, logical
//! ones from 5.
//!
//! An image that was not copied whole may lack a part of a partition, and the GPT's copy at the
//! end. The table lists such partitions, and [`Partition::is_cut_off`] tells them.
//!
//! No table says how long its sectors are. For a GPT, the place of its header shows it. For an MBR,
//! [`Table::read_with`] asks the caller where volumes start.
//!
//! A volume that fills a disk without a table may have a boot loader that looks like an MBR. A
//! caller that opens a disk should look for a volume first, and for a table after that.
//!
//! Sources: the UEFI specification, chapter 5 (GPT, protective MBR, legacy MBR), and the layout of
//! extended boot records as fdisk(8) and sfdisk(8) write them.

use std::fmt;
use std::ops::Range;

use crate::{BlockDevice, Result};

mod gpt;
mod guid;
mod mbr;
mod new;
mod room;

pub use crate::error::Fault;
pub use guid::Guid;
pub use new::NewDisk;
pub use room::Border;

/// A partition of a disk. It may reach beyond the end of a device that was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as in `/dev/sda3`; from 1.
    pub number: u32,
    /// Where it starts.
    pub start_bytes: u64,
    /// How long it is; not zero.
    pub len_bytes: u64,
    /// How many bytes of it the device has.
    pub held_bytes: u64,
    /// The type that the table gives it.
    pub kind: Kind,
    /// Its name in a GPT, with unpaired surrogates replaced.
    pub name: Option<String>,
    /// Its own identifier in a GPT.
    pub id: Option<Guid>,
}

impl Partition {
    /// Returns the byte after its last one.
    fn end(&self) -> u64 {
        // OK: the sum was checked when the partition was read.
        self.start_bytes + self.len_bytes
    }

    /// Returns whether the device ends before the partition does.
    pub fn is_cut_off(&self) -> bool {
        self.held_bytes < self.len_bytes
    }
}

/// The type of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The type byte of an MBR.
    Mbr(u8),
    /// The type identifier of a GPT.
    Gpt(Guid),
}

impl Kind {
    /// Returns whether this is an MBR's container of logical partitions.
    pub fn is_extended(self) -> bool {
        matches!(self, Self::Mbr(0x05 | 0x0f | 0x85))
    }

    /// Returns the usual name of a common type.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Mbr(0x82) => "Linux swap",
            Self::Mbr(0x83) => "Linux",
            Self::Mbr(0x8e) => "Linux LVM",
            Self::Mbr(0xef) => "EFI system",
            Self::Mbr(0xfd) => "Linux RAID",
            Self::Mbr(0x07) => "NTFS or exFAT",
            Self::Mbr(0x0b | 0x0c) => "FAT32",
            kind if kind.is_extended() => "extended",
            Self::Gpt(id) => {
                return guid::KINDS
                    .iter()
                    .find(|(known, _)| *known == id)
                    .map(|&(_, name)| name);
            }
            Self::Mbr(_) => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self) {
            (Some(name), _) => f.write_str(name),
            (None, Self::Mbr(byte)) => write!(f, "{byte:#04x}"),
            (None, Self::Gpt(id)) => id.fmt(f),
        }
    }
}

/// The identifier of a partitioned disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskId {
    /// The signature in an MBR.
    Mbr(u32),
    /// The disk's identifier in a GPT.
    Gpt(Guid),
}

/// A partition table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The disk's identifier; also tells MBR from GPT.
    pub id: DiskId,
    /// Bytes in the sectors that the table counts in.
    pub sector_bytes: u32,
    /// The partitions, in the order of their numbers.
    pub partitions: Vec<Partition>,
    /// The bytes that the table itself takes: boot records, and headers and entries of a GPT. A
    /// part may be behind the end of a device that was cut off.
    pub areas: Vec<Range<u64>>,
    /// Faults that made the reader pass over something, and oddities of the partitions.
    pub faults: Vec<Fault>,
}

impl Table {
    /// Returns the table of `device`, or `None` if it has none.
    ///
    /// # Errors
    /// [`Error::PartitionTable`](crate::Error::PartitionTable) for a table that breaks its format;
    /// [`Error::Io`](crate::Error::Io).
    pub fn read(device: &dyn BlockDevice) -> Result<Option<Self>> {
        Self::read_with(device, &|_| false)
    }

    /// Returns the table of `device`, or `None` if it has none. `has_volume` returns whether a
    /// volume starts at a byte of the device.
    ///
    /// The sectors of an MBR have the length that the device says, with one exception. If volumes
    /// or extended boot records are found only with sectors of the other common length, that length
    /// counts. An image does not say from which disk it was copied.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_with(
        device: &dyn BlockDevice,
        has_volume: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Self>> {
        let sector = Sector(device.sector_bytes());
        let Some(mbr) = mbr::Record::read(device, sector, 0)? else {
            return Ok(gpt::read_unprotected(device, sector).map(Self::checked));
        };
        if mbr.is_protective() {
            let mut table = gpt::read(device, sector)?;
            if mbr.is_hybrid() {
                table.faults.push(Fault::Hybrid);
            }
            return Ok(Some(table.checked()));
        }
        if !mbr.is_plausible() {
            return Ok(None);
        }
        let [table, other] =
            [sector, sector.other()].map(|sector| mbr::table(device, sector, &mbr));
        let is_other = !table.is_confirmed(has_volume) && other.is_confirmed(has_volume);
        Ok(Some(if is_other { other } else { table }.checked()))
    }

    /// Returns whether a volume or an extended boot record is where the table says.
    fn is_confirmed(&self, has_volume: &dyn Fn(u64) -> bool) -> bool {
        let extended = self
            .partitions
            .iter()
            .any(|partition| partition.kind.is_extended());
        let has_record = extended
            && !self
                .faults
                .iter()
                .any(|fault| matches!(fault, Fault::NoExtendedRecord { .. }));
        has_record
            || self
                .partitions
                .iter()
                .any(|partition| has_volume(partition.start_bytes))
    }

    /// Records which partitions are cut off, and which overlap.
    fn checked(mut self) -> Self {
        let cut_off = self
            .partitions
            .iter()
            .filter(|partition| partition.is_cut_off());
        self.faults.extend(cut_off.map(|partition| Fault::CutOff {
            number: partition.number,
            start: partition.start_bytes,
            len: partition.len_bytes,
            held: partition.held_bytes,
        }));
        let mut sorted: Vec<&Partition> = self
            .partitions
            .iter()
            .filter(|partition| !partition.kind.is_extended())
            .collect();
        sorted.sort_by_key(|partition| partition.start_bytes);
        let mut longest: Option<&Partition> = None;
        for partition in sorted {
            match longest {
                Some(before) if before.end() > partition.start_bytes => {
                    self.faults.push(Fault::Overlap {
                        first: before.number,
                        second: partition.number,
                    });
                }
                _ => {}
            }
            longest = longest
                .filter(|before| before.end() >= partition.end())
                .or(Some(partition));
        }
        self
    }

    /// Returns the fault because of which the table lacks the partition of this number.
    pub fn left_out(&self, number: u32) -> Option<&Fault> {
        self.faults.iter().find(|fault| match fault {
            Fault::Range { number: of, .. } | Fault::Empty { number: of } => *of == number,
            _ => false,
        })
    }

    /// Returns the partition of this number.
    pub fn partition(&self, number: u32) -> Option<&Partition> {
        self.partitions
            .iter()
            .find(|partition| partition.number == number)
    }
}

/// The unit of a table: bytes in a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sector(u32);

impl Sector {
    /// Returns the byte at which sector `lba` starts, if it fits 64 bits.
    fn offset(self, lba: u64) -> Option<u64> {
        lba.checked_mul(u64::from(self.0))
    }

    /// Returns the number of whole sectors in `device`.
    fn count(self, device: &dyn BlockDevice) -> u64 {
        device.size_bytes() / u64::from(self.0)
    }

    /// Returns offset and length of sectors `first..=last` in bytes, if they all lie inside
    /// `device`.
    fn span(self, device: &dyn BlockDevice, first: u64, last: u64) -> Option<(u64, u64)> {
        if first > last || last >= self.count(device) {
            return None;
        }
        Some((self.offset(first)?, self.offset(last - first + 1)?))
    }

    /// Returns the bytes of `count` sectors from `lba` on. Numbers of a hostile table are cut.
    fn bytes(self, lba: u64, count: u64) -> Range<u64> {
        let at = |lba: u64| lba.saturating_mul(u64::from(self.0));
        at(lba)..at(lba.saturating_add(count))
    }

    /// Returns the other common length of a sector.
    fn other(self) -> Self {
        Self(if self.0 == 512 { 4096 } else { 512 })
    }

    /// Returns the partition of sectors `first..=last`, or the fault that its range is impossible.
    fn partition(
        self,
        device: &dyn BlockDevice,
        number: u32,
        kind: Kind,
        (first, last): (u64, u64),
    ) -> Result<Partition, Fault> {
        let bytes = || {
            let start = self.offset(first)?;
            let len = self.offset(last.checked_sub(first)?.checked_add(1)?)?;
            start.checked_add(len).map(|_| (start, len))
        };
        let (start_bytes, len_bytes) = bytes().ok_or(Fault::Range {
            number,
            first,
            last,
        })?;
        let held_bytes = len_bytes.min(device.size_bytes().saturating_sub(start_bytes));
        Ok(Partition {
            number,
            start_bytes,
            len_bytes,
            held_bytes,
            kind,
            name: None,
            id: None,
        })
    }
}

/// Returns the little-endian number in the four bytes of `bytes` from `at` on.
fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4]
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// Returns the little-endian number in the eight bytes of `bytes` from `at` on.
fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}
