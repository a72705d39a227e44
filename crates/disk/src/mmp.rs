//! The multiple mount protection block, which records the node that has the volume open.
//!
//! `ext4` holds a volume through it, `mkfs` makes it, and the checker checks it. This module only
//! decodes and encodes; `ext4` does the waiting.
//!
//! A node that opens a volume with `mmp` for writing writes a sequence number here and keeps
//! changing it. A node that finds a number other than [`MmpState::Clean`] waits for twice the
//! interval. If the number has changed by then, another node has the volume open.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/mmp.rst`.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{ChecksumSeed, verify};
use crate::corrupt::{Corrupt, CorruptKind, Place};
use crate::superblock::{Superblock, until_zero};

/// `mmp_magic`: "MMP" and a zero.
pub const MMP_MAGIC: u32 = 0x004d_4d50;
const SEQUENCE_CLEAN: u32 = 0xff4d_4d50;
const SEQUENCE_FSCK: u32 = 0xe24d_4d50;
/// The sequence numbers of nodes are below this.
const SEQUENCE_END: u32 = SEQUENCE_FSCK;

/// The block as it is on the volume; blocks of more than 1 KiB have nothing after it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields are the kernel documentation's, by its names"
)]
pub struct RawMmp {
    pub mmp_magic: U32,
    pub mmp_seq: U32,
    pub mmp_time: U64,
    pub mmp_nodename: [u8; 64],
    pub mmp_bdevname: [u8; 32],
    pub mmp_check_interval: U16,
    pub mmp_pad1: U16,
    pub mmp_pad2: [U32; 226],
    pub mmp_checksum: U32,
}

/// Bytes of the structure.
pub const MMP_SIZE: usize = size_of::<RawMmp>();
const CHECKSUM_OFFSET: usize = core::mem::offset_of!(RawMmp, mmp_checksum);
const _: () = assert!(MMP_SIZE == 1024 && CHECKSUM_OFFSET == 0x3fc);

/// The meaning of the sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MmpState {
    /// No node has the volume open for writing.
    Clean,
    /// A file system check is running, or died.
    Fsck,
    /// A node has the volume open if this number keeps changing; else that node has died.
    Live(u32),
}

/// A validated multiple mount protection block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmp {
    raw: RawMmp,
}

impl Mmp {
    /// Returns the block of a new volume, which no node has open.
    pub fn new(check_interval: u16, now: u64) -> Self {
        let mut raw = RawMmp::new_zeroed();
        raw.mmp_magic.set(MMP_MAGIC);
        raw.mmp_seq.set(SEQUENCE_CLEAN);
        raw.mmp_time.set(now);
        raw.mmp_check_interval.set(check_interval);
        Self { raw }
    }

    /// Validates the block that [`Superblock::mmp_block`] names.
    ///
    /// # Errors
    /// [`CorruptKind::Magic`], [`CorruptKind::Truncated`], and [`CorruptKind::Checksum`] if the
    /// volume has `metadata_csum`.
    pub fn decode(block: &[u8], sb: &Superblock, at: Place) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = RawMmp::read_from_prefix(block) else {
            return Err(at.corrupt(CorruptKind::Truncated {
                need: MMP_SIZE as u64,
                have: block.len() as u64,
            }));
        };
        if raw.mmp_magic.get() != MMP_MAGIC {
            let found = raw.mmp_magic.get();
            return Err(at.corrupt(CorruptKind::Magic {
                found,
                expected: MMP_MAGIC,
            }));
        }
        if let Some(seed) = sb.metadata_seed() {
            verify(raw.mmp_checksum.get(), compute_checksum(&raw, seed), at)?;
        }
        Ok(Self { raw })
    }

    /// Returns the bytes of the structure, with a computed checksum if the volume has checksums.
    pub fn encode(&self, sb: &Superblock) -> [u8; MMP_SIZE] {
        let mut raw = self.raw;
        if let Some(seed) = sb.metadata_seed() {
            raw.mmp_checksum.set(compute_checksum(&raw, seed));
        }
        zerocopy::transmute!(raw)
    }

    /// Returns the state of the volume that the sequence number gives.
    pub const fn state(&self) -> MmpState {
        match self.raw.mmp_seq.get() {
            SEQUENCE_CLEAN => MmpState::Clean,
            SEQUENCE_FSCK => MmpState::Fsck,
            number => MmpState::Live(number),
        }
    }

    /// Returns when the block was last written, in seconds since 1970.
    pub const fn time(&self) -> u64 {
        self.raw.mmp_time.get()
    }

    /// Returns the host that last wrote the block, for people to read. Any bytes but zero.
    pub fn node_name(&self) -> &[u8] {
        until_zero(&self.raw.mmp_nodename)
    }

    /// Returns that host's name for the device. Any bytes but zero.
    pub fn device_name(&self) -> &[u8] {
        until_zero(&self.raw.mmp_bdevname)
    }

    /// Returns the check interval in seconds, from which other nodes derive how long they wait. The
    /// node that wrote the block set it, as a rule to twice the interval of its changes.
    pub const fn check_interval(&self) -> u16 {
        self.raw.mmp_check_interval.get()
    }
}

impl Mmp {
    /// Returns the block that a node writes to take the volume. Its number is `sequence`, or the
    /// next one if the block already has `sequence`. The node then keeps changing the number at
    /// regular intervals. Other nodes derive from `check_interval`, in seconds, how long they wait
    /// before they take the node for dead.
    #[must_use]
    pub fn taken(&self, sequence: u32, by: &MmpNode<'_>, check_interval: u16, now: u64) -> Self {
        let mut raw = self.raw;
        raw.mmp_nodename = padded(by.host);
        raw.mmp_bdevname = padded(by.device);
        raw.mmp_check_interval.set(check_interval);
        let sequence = sequence % SEQUENCE_END;
        // The number must differ from the stored one: a node that waits for a change would
        // otherwise wait on.
        raw.mmp_seq.set(if sequence == raw.mmp_seq.get() {
            next(sequence)
        } else {
            sequence
        });
        raw.mmp_time.set(now);
        Self { raw }
    }

    /// Returns the block that the node writes at every interval, with the next number.
    #[must_use]
    pub fn renewed(&self, now: u64) -> Self {
        let mut raw = self.raw;
        raw.mmp_seq.set(next(raw.mmp_seq.get()));
        raw.mmp_time.set(now);
        Self { raw }
    }

    /// Returns the block that the node writes when it releases the volume.
    #[must_use]
    pub fn released(&self, now: u64) -> Self {
        let mut raw = self.raw;
        raw.mmp_seq.set(SEQUENCE_CLEAN);
        raw.mmp_time.set(now);
        Self { raw }
    }
}

/// The names of the node that takes a volume, for people to read. Names that are too long are cut.
#[derive(Clone, Copy, Debug)]
pub struct MmpNode<'a> {
    /// The name of the host.
    pub host: &'a [u8],
    /// The host's name for the device.
    pub device: &'a [u8],
}

fn padded<const N: usize>(name: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let len = name.len().min(N - 1);
    bytes[..len].copy_from_slice(&name[..len]);
    bytes
}

fn next(sequence: u32) -> u32 {
    (sequence % SEQUENCE_END + 1) % SEQUENCE_END
}

fn compute_checksum(raw: &RawMmp, volume: ChecksumSeed) -> u32 {
    volume.checksum(&raw.as_bytes()[..CHECKSUM_OFFSET])
}
