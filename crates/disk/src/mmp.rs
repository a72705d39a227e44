//! The multiple mount protection block: who has the volume open now.
//!
//! Whoever opens a volume with `mmp` for writing writes a sequence number here and keeps changing it. Who finds a
//! number that is not [`MmpState::Clean`] waits for twice the interval; if the number has changed by then, another
//! node is at work.
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
/// The numbers of nodes are below this.
const SEQUENCE_END: u32 = SEQUENCE_FSCK;

/// The block as it stands on the volume; blocks of more than 1 KiB have nothing behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields are the kernel documentation's, by its names")]
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

/// What the sequence number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MmpState {
    /// Nobody has the volume open for writing.
    Clean,
    /// A file system check is running, or has died.
    Fsck,
    /// A node has the volume open, if this number changes; else it has died.
    Live(u32),
}

/// A validated multiple mount protection block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmp {
    raw: RawMmp,
}

impl Mmp {
    /// The block of a new volume, which no node has open.
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
    /// [`CorruptKind::Magic`], [`CorruptKind::Truncated`], and [`CorruptKind::Checksum`] if the volume has
    /// `metadata_csum`.
    pub fn decode(block: &[u8], sb: &Superblock, at: Place) -> Result<Self, Corrupt> {
        let Ok((raw, _)) = RawMmp::read_from_prefix(block) else {
            return Err(
                at.corrupt(CorruptKind::Truncated { need: MMP_SIZE as u64, have: block.len() as u64 })
            );
        };
        if raw.mmp_magic.get() != MMP_MAGIC {
            let found = raw.mmp_magic.get();
            return Err(at.corrupt(CorruptKind::Magic { found, expected: MMP_MAGIC }));
        }
        if let Some(seed) = sb.metadata_seed() {
            verify(raw.mmp_checksum.get(), compute_checksum(&raw, seed), at)?;
        }
        Ok(Self { raw })
    }

    /// The bytes of the structure, with its checksum computed anew if the volume has checksums.
    pub fn encode(&self, sb: &Superblock) -> [u8; MMP_SIZE] {
        let mut raw = self.raw;
        if let Some(seed) = sb.metadata_seed() {
            raw.mmp_checksum.set(compute_checksum(&raw, seed));
        }
        zerocopy::transmute!(raw)
    }

    /// Who has the volume open.
    pub const fn state(&self) -> MmpState {
        match self.raw.mmp_seq.get() {
            SEQUENCE_CLEAN => MmpState::Clean,
            SEQUENCE_FSCK => MmpState::Fsck,
            number => MmpState::Live(number),
        }
    }

    /// When the block was last written, in seconds since 1970.
    pub const fn time(&self) -> u64 {
        self.raw.mmp_time.get()
    }

    /// The host that last wrote the block, for people. Any bytes but zero.
    pub fn node_name(&self) -> &[u8] {
        until_zero(&self.raw.mmp_nodename)
    }

    /// The name that host has for the device. Any bytes but zero.
    pub fn device_name(&self) -> &[u8] {
        until_zero(&self.raw.mmp_bdevname)
    }

    /// Seconds between two changes of the sequence number.
    pub const fn check_interval(&self) -> u16 {
        self.raw.mmp_check_interval.get()
    }
}

impl Mmp {
    /// The block as the node writes it that takes the volume: `sequence`, or the number beside it, is its own; it changes the
    /// number every so many seconds, and others wait as `check_interval` says before they take it for dead.
    #[must_use]
    pub fn taken(&self, sequence: u32, by: &Node<'_>, check_interval: u16, now: u64) -> Self {
        let mut raw = self.raw;
        raw.mmp_nodename = padded(by.host);
        raw.mmp_bdevname = padded(by.device);
        raw.mmp_check_interval.set(check_interval);
        let sequence = sequence % SEQUENCE_END;
        // Not what stood there, or who waits for that to change would go on waiting.
        raw.mmp_seq.set(if sequence == raw.mmp_seq.get() { next(sequence) } else { sequence });
        raw.mmp_time.set(now);
        Self { raw }
    }

    /// The block as that node writes it again.
    #[must_use]
    pub fn renewed(&self, now: u64) -> Self {
        let mut raw = self.raw;
        raw.mmp_seq.set(next(raw.mmp_seq.get()));
        raw.mmp_time.set(now);
        Self { raw }
    }

    /// The block as that node leaves it.
    #[must_use]
    pub fn released(&self, now: u64) -> Self {
        let mut raw = self.raw;
        raw.mmp_seq.set(SEQUENCE_CLEAN);
        raw.mmp_time.set(now);
        Self { raw }
    }
}

/// Who takes a volume, for people to read. What is too long is cut.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The name of the host.
    pub host: &'a [u8],
    /// The name that it has for the device.
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
