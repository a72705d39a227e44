//! Partition tables: where on a disk the volumes are.
//!
//! Reads the MBR with its chain of logical partitions, and the GPT. What a damaged table still says is used, and what
//! was passed over is told in [`Table::faults`]; only a GPT of which neither copy holds is an error. Partitions are
//! numbered as Linux names them: by their slot, logical ones from 5.
//!
//! A volume that fills a disk without a table may have bytes of a boot loader that look like an MBR. Who opens a disk
//! should look for the volume first, and for a table after.
//!
//! Sources: the UEFI specification, chapter 5 (GPT, protective MBR, legacy MBR), and the layout of extended boot
//! records as fdisk(8) and sfdisk(8) write them.

use std::fmt;

use crate::{BlockDevice, Error, Result};

mod gpt;
mod guid;
mod mbr;

pub use guid::Guid;

/// A partition of a disk; lies inside the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as in `/dev/sda3`; from 1.
    pub number: u32,
    /// Where it starts.
    pub start_bytes: u64,
    /// How long it is; not zero.
    pub len_bytes: u64,
    /// What the table says it holds.
    pub kind: Kind,
    /// Its name in a GPT. Unpaired surrogates are replaced.
    pub name: Option<String>,
    /// Its own identifier in a GPT.
    pub id: Option<Guid>,
}

/// What a table says a partition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The type byte of an MBR.
    Mbr(u8),
    /// The type identifier of a GPT.
    Gpt(Guid),
}

impl Kind {
    /// Whether this is an MBR's container of logical partitions.
    pub fn is_extended(self) -> bool {
        matches!(self, Self::Mbr(0x05 | 0x0f | 0x85))
    }

    /// What people call the common kinds.
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
                return guid::KINDS.iter().find(|(known, _)| *known == id).map(|&(_, name)| name);
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
    /// The partitions that can be used, in the order of their numbers.
    pub partitions: Vec<Partition>,
    /// What was passed over.
    pub faults: Vec<Fault>,
}

impl Table {
    /// The table of `device`, or `None` if it has none.
    pub fn read(device: &dyn BlockDevice) -> Result<Option<Self>> {
        let sector = Sector(device.sector_bytes());
        let Some(mbr) = mbr::Record::read(device, sector, 0)? else { return Ok(None) };
        if mbr.is_protective() {
            return gpt::read(device, sector).map(Some);
        }
        Ok(mbr.is_plausible().then(|| mbr::table(device, sector, &mbr)))
    }

    /// The partition of this number.
    pub fn partition(&self, number: u32) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.number == number)
    }
}

/// Something about a table that breaks its format. Sectors count from the start of the device.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A sector of the table cannot be read.
    #[error("sector {lba}: {source}")]
    Unreadable {
        /// The sector.
        lba: u64,
        /// Why not.
        source: Box<Error>,
    },
    /// A partition does not lie inside the device, or ends before it starts.
    #[error("partition {number} from sector {first} to {last} is not inside the device of {sectors} sectors")]
    Outside {
        /// The partition's number.
        number: u32,
        /// Its first sector.
        first: u64,
        /// Its last sector.
        last: u64,
        /// Sectors in the device.
        sectors: u64,
    },
    /// An extended boot record lacks its signature.
    #[error("sector {lba} is no extended boot record")]
    NoExtendedRecord {
        /// The sector.
        lba: u64,
    },
    /// The chain of extended boot records comes back to one that it has passed.
    #[error("the chain of logical partitions returns to sector {lba}")]
    Loop {
        /// The sector it returns to.
        lba: u64,
    },
    /// There are more logical partitions than this crate reads.
    #[error("more than {limit} logical partitions")]
    TooManyLogical {
        /// How many are read.
        limit: usize,
    },
    /// A sector that should hold a GPT header holds something else.
    #[error("sector {lba} holds no GPT header")]
    NoHeader {
        /// The sector.
        lba: u64,
    },
    /// A GPT header whose fields cannot be: its own size or place, or the size or place of its entries.
    #[error("the GPT header in sector {lba} contradicts itself or the device")]
    BadHeader {
        /// The sector.
        lba: u64,
    },
    /// A GPT header does not match its checksum.
    #[error("the checksum of the GPT header in sector {lba} is {found:#010x}, not {stored:#010x}")]
    HeaderChecksum {
        /// The sector.
        lba: u64,
        /// The checksum that it holds.
        stored: u32,
        /// The checksum that its bytes have.
        found: u32,
    },
    /// The entries of a GPT do not match their checksum.
    #[error("the checksum of the GPT entries from sector {lba} on is {found:#010x}, not {stored:#010x}")]
    EntriesChecksum {
        /// The first sector of the entries.
        lba: u64,
        /// The checksum that the header holds.
        stored: u32,
        /// The checksum that the entries have.
        found: u32,
    },
}

/// The unit of a table: bytes in a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sector(u32);

impl Sector {
    /// The byte at which sector `lba` starts, if there is such a number.
    fn offset(self, lba: u64) -> Option<u64> {
        lba.checked_mul(u64::from(self.0))
    }

    /// Whole sectors in `device`.
    fn count(self, device: &dyn BlockDevice) -> u64 {
        device.size_bytes() / u64::from(self.0)
    }

    /// The bytes of sectors `first..=last`, if they all lie inside `device`: offset and length.
    fn span(self, device: &dyn BlockDevice, first: u64, last: u64) -> Option<(u64, u64)> {
        if first > last || last >= self.count(device) {
            return None;
        }
        Some((self.offset(first)?, self.offset(last - first + 1)?))
    }

    /// The partition of sectors `first..=last`, or the fault that there cannot be such a one.
    fn partition(
        self,
        device: &dyn BlockDevice,
        number: u32,
        kind: Kind,
        (first, last): (u64, u64),
    ) -> Result<Partition, Fault> {
        let (start_bytes, len_bytes) = self.span(device, first, last).ok_or_else(|| Fault::Outside {
            number,
            first,
            last,
            sectors: self.count(device),
        })?;
        Ok(Partition { number, start_bytes, len_bytes, kind, name: None, id: None })
    }
}

/// The little-endian number in the first bytes of `bytes` from `at` on.
fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// As [`le32`], of eight bytes.
fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}
