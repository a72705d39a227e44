//! The checksums of the volume: crc32c for everything since `metadata_csum`, crc16 for the group
//! descriptors of `uninit_bg` volumes.
//!
//! ext4 and jbd2 use both in their raw form: the caller gives the register's start value. The
//! result is the register itself, inverted neither before nor after. The checksum of several pieces
//! is therefore the checksum of the last piece, seeded with that of the earlier ones.
//!
//! A structure's place in the volume enters its checksum the same way. The checksum covers the
//! volume's seed, then the inode number and generation (or the group number), then the structure.
//!
//! Each structure's own documentation says which bytes its checksum covers. The table is in the
//! kernel's `Documentation/filesystems/ext4/checksums.rst`.
//!
//! The decoders verify with it and the encoders store with it. A wrong checksum becomes a
//! [`Corrupt`] with both values.

use crc_fast::{CrcAlgorithm, Digest};

use crate::corrupt::{Corrupt, CorruptKind, Place};

/// Returns the crc32c (Castagnoli) of `data`, continuing from the register value `seed`; raw, as
/// ext4 and jbd2 use it.
///
/// `crc32c(crc32c(s, a), b)` is `crc32c(s, a ++ b)`.
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    // Inode and group numbers come 4 bytes at a time. For these a table is faster than the call
    // into crc-fast. For whole blocks crc-fast is the fastest crate that the example `crc_speed`
    // measures. It checks the processor before it uses its vectors.
    if data.len() <= SHORT {
        return data.iter().fold(seed, |register, &byte| {
            CRC32C_TABLE[usize::from((register.to_le_bytes()[0]) ^ byte)] ^ (register >> 8)
        });
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(data);
    let bytes = digest.get_state().to_le_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Returns the CRC-16 (polynomial 0x8005, reflected) of `data`, continuing from the register value
/// `seed`; raw.
///
/// Group descriptors of `uninit_bg` volumes store it, seeded with `!0`.
pub fn crc16(seed: u16, data: &[u8]) -> u16 {
    data.iter().fold(seed, |register, &byte| {
        CRC16_TABLE[usize::from((register.to_le_bytes()[0]) ^ byte)] ^ (register >> 8)
    })
}

/// The register value that the crc32c checksums of a volume, a group or an inode start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChecksumSeed(u32);

impl ChecksumSeed {
    /// Returns the seed with this number: `s_checksum_seed`, or the result of an earlier checksum.
    pub const fn new(seed: u32) -> Self {
        Self(seed)
    }

    /// Returns the seed of a volume that does not store one: the checksum of its UUID.
    pub fn of_uuid(uuid: &[u8; 16]) -> Self {
        Self(crc32c(!0, uuid))
    }

    /// Returns the seed as a number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the seed of everything that belongs to one inode (directory blocks, extent nodes,
    /// the inode itself), given the volume's seed.
    #[must_use]
    pub fn inode(self, ino: u32, generation: u32) -> Self {
        self.mix(ino).mix(generation)
    }

    /// Returns the seed of a group's descriptor, given the volume's seed.
    #[must_use]
    pub fn group(self, group: u32) -> Self {
        self.mix(group)
    }

    /// Returns this seed with one more little-endian number mixed in.
    #[must_use]
    pub fn mix(self, number: u32) -> Self {
        Self(crc32c(self.0, &number.to_le_bytes()))
    }

    /// Returns the checksum of `data` under this seed.
    pub fn checksum(self, data: &[u8]) -> u32 {
        crc32c(self.0, data)
    }

    /// Starts a checksum over several pieces.
    pub const fn start(self) -> Crc32c {
        Crc32c(self.0)
    }
}

/// Returns the seed of everything that belongs to one inode; see [`ChecksumSeed::inode`].
pub fn inode_seed(volume: ChecksumSeed, ino: u32, generation: u32) -> ChecksumSeed {
    volume.inode(ino, generation)
}

/// A crc32c under computation, over several pieces.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(u32);

impl Crc32c {
    /// Starts from the register value `seed`.
    pub const fn new(seed: u32) -> Self {
        Self(seed)
    }

    /// Continues over `data`.
    #[must_use]
    pub fn update(self, data: &[u8]) -> Self {
        Self(crc32c(self.0, data))
    }

    /// Continues over `len` zero bytes: a checksum field counts as zeroes in its own checksum.
    #[must_use]
    pub fn zeros(self, len: usize) -> Self {
        const ZEROS: [u8; 64] = [0; 64];
        let mut register = self.0;
        let mut left = len;
        while left > 0 {
            let now = left.min(ZEROS.len());
            register = crc32c(register, &ZEROS[..now]);
            left -= now;
        }
        Self(register)
    }

    /// Returns the checksum.
    pub const fn finish(self) -> u32 {
        self.0
    }
}

/// Compares a stored checksum with the computed one.
///
/// # Errors
/// [`CorruptKind::Checksum`] at `place` if they differ.
pub fn verify(stored: u32, computed: u32, place: Place) -> Result<(), Corrupt> {
    if stored == computed {
        Ok(())
    } else {
        Err(place.corrupt(CorruptKind::Checksum { stored, computed }))
    }
}

/// Up to this many bytes the table is faster than the vector code.
const SHORT: usize = 8;

static CRC32C_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut byte = 0u32;
    while byte < 256 {
        let mut register = byte;
        let mut bit = 0;
        while bit < 8 {
            register = (register >> 1) ^ (0x82f6_3b78 * (register & 1));
            bit += 1;
        }
        table[byte as usize] = register;
        byte += 1;
    }
    table
};

static CRC16_TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0u16;
    while byte < 256 {
        let mut register = byte;
        let mut bit = 0;
        while bit < 8 {
            register = (register >> 1) ^ (0xa001 * (register & 1));
            bit += 1;
        }
        table[byte as usize] = register;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // The check values of the CRC catalogue: CRC-32/ISCSI is inverted before and after,
        // CRC-16/MODBUS only before.
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc16(!0, b"123456789"), 0x4b37);
        // RFC 3720, B.4.
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(!crc32c(!0, &[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn pieces_and_lengths_agree() {
        let data: Vec<u8> = (0..5000u32)
            .map(|i| (i * 7 + i / 251).to_le_bytes()[0])
            .collect();
        for len in (0..300).chain([1000, 1024, 4095, 4096, 5000]) {
            let whole = crc32c(0x1234_5678, &data[..len]);
            let bytewise = data[..len]
                .iter()
                .fold(0x1234_5678, |seed, byte| crc32c(seed, &[*byte]));
            assert_eq!(whole, bytewise, "{len} bytes");
            let split = len / 3;
            let pieces = Crc32c::new(0x1234_5678)
                .update(&data[..split])
                .update(&data[split..len]);
            assert_eq!(whole, pieces.finish(), "{len} bytes");
        }
    }

    #[test]
    fn zeros_are_bytes() {
        for len in [0, 1, 2, 4, 63, 64, 65, 200] {
            assert_eq!(Crc32c::new(7).zeros(len).finish(), crc32c(7, &vec![0; len]));
        }
    }

    #[test]
    fn seeds_chain() {
        let volume = ChecksumSeed::of_uuid(&[7; 16]);
        let bytes: Vec<u8> = [12u32.to_le_bytes(), 99u32.to_le_bytes()].concat();
        assert_eq!(
            inode_seed(volume, 12, 99).get(),
            crc32c(volume.get(), &bytes)
        );
        assert_eq!(
            volume.inode(12, 99).checksum(b"x"),
            volume.start().update(&bytes).update(b"x").finish()
        );
    }

    #[test]
    fn verify_says_both_values() {
        let place = Place::new(crate::Structure::Inode).ino(5);
        assert_eq!(verify(1, 1, place), Ok(()));
        assert_eq!(
            verify(1, 2, place).unwrap_err().kind,
            CorruptKind::Checksum {
                stored: 1,
                computed: 2
            }
        );
    }
}
