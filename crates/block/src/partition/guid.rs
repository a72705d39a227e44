//! Globally unique identifiers, in the mixed byte order that GPTs store.
//!
//! The readers and writers of GPTs use them, and listings of partitions print them. A [`Guid`]
//! holds the bytes as the disk has them; its text form is that of `sfdisk`, so it compares with a
//! UUID's text.

use std::fmt;

/// The 16 bytes of a GUID, in the order in which the disk holds them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// The GUID of zeroes, which marks an unused entry.
    pub const ZERO: Self = Self([0; 16]);
    /// The type of a partition that holds a file system of Linux.
    pub const LINUX: Self = Self::from_fields(0x0fc63daf, 0x8483, 0x4772, 0x8e79_3d69d8477de4);

    /// Returns the GUID that has the text form of this UUID, whose bytes are in the order of that.
    pub fn of_uuid(uuid: [u8; 16]) -> Self {
        let mut guid = uuid;
        [0..4, 4..6, 6..8]
            .into_iter()
            .for_each(|field| guid[field].reverse());
        Self(guid)
    }

    /// Returns the GUID written `a-b-c-d-e`, where `d` and `e` are one number here.
    const fn from_fields(a: u32, b: u16, c: u16, de: u64) -> Self {
        let a = a.to_le_bytes();
        let b = b.to_le_bytes();
        let c = c.to_le_bytes();
        let de = de.to_be_bytes();
        Self([
            a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], de[0], de[1], de[2], de[3], de[4],
            de[5], de[6], de[7],
        ])
    }
}

/// The common partition types, from the Discoverable Partitions Specification and the UEFI
/// specification.
pub(super) const KINDS: &[(Guid, &str)] = &[
    (Guid::LINUX, "Linux"),
    (
        Guid::from_fields(0x0657fd6d, 0xa4ab, 0x43c4, 0x84e5_0933c84b4f4f),
        "Linux swap",
    ),
    (
        Guid::from_fields(0x933ac7e1, 0x2eb4, 0x4f13, 0xb844_0e14e2aef915),
        "Linux home",
    ),
    (
        Guid::from_fields(0x4f68bce3, 0xe8cd, 0x4db1, 0x96e7_fbcaf984b709),
        "Linux root (x86-64)",
    ),
    (
        Guid::from_fields(0xb921b045, 0x1df0, 0x41c3, 0xaf44_4c6f280d3fae),
        "Linux root (ARM-64)",
    ),
    (
        Guid::from_fields(0xbc13c2ff, 0x59e6, 0x4262, 0xa352_b275fd6f7172),
        "Linux extended boot",
    ),
    (
        Guid::from_fields(0xe6d6d379, 0xf507, 0x44c2, 0xa23c_238f2a3df928),
        "Linux LVM",
    ),
    (
        Guid::from_fields(0xa19d880f, 0x05fc, 0x4d3b, 0xa006_743f0f84911e),
        "Linux RAID",
    ),
    (
        Guid::from_fields(0xc12a7328, 0xf81f, 0x11d2, 0xba4b_00a0c93ec93b),
        "EFI system",
    ),
    (
        Guid::from_fields(0x21686148, 0x6449, 0x6e6f, 0x744e_656564454649),
        "BIOS boot",
    ),
    (
        Guid::from_fields(0xebd0a0a2, 0xb9e5, 0x4433, 0x87c0_68b6b72699c7),
        "Microsoft basic data",
    ),
];

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The first three fields are little-endian numbers, the rest is bytes in order.
        const GROUPS: [&[usize]; 5] = [
            &[3, 2, 1, 0],
            &[5, 4],
            &[7, 6],
            &[8, 9],
            &[10, 11, 12, 13, 14, 15],
        ];
        for (i, group) in GROUPS.iter().enumerate() {
            if i > 0 {
                f.write_str("-")?;
            }
            for &byte in *group {
                write!(f, "{:02x}", self.0[byte])?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_it_is_written() {
        assert_eq!(
            KINDS[0].0.to_string(),
            "0fc63daf-8483-4772-8e79-3d69d8477de4"
        );
        assert_eq!(
            KINDS[8].0.to_string(),
            "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
        );
    }
}
