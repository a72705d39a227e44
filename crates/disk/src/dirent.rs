//! Directory entries, and the blocks that hold them.
//!
//! `ext4`, the builder and the checker read and change directory blocks with it.
//!
//! A directory block is a chain of records that fills it exactly: each gives the distance to the
//! next. A record with inode 0 is free space. On a volume with `metadata_csum` the last 12 bytes
//! look like such a record and hold the block's checksum.
//!
//! ```text
//! | ino 4 | rec_len 2 | name_len 1 | file_type 1 | name, padded to 4 | (hash 8) | slack |
//! ```
//!
//! Three features change the layout. Without the `filetype` feature, `name_len` takes both bytes.
//! With 64 KiB blocks, `rec_len` cannot hold the largest distance, and two values stand for it.
//! Directories that are both encrypted and case-folded keep each name's hash after the name. A
//! [`Layout`] says which of them apply.
//!
//! [`Entries`] is the iterator under every listing and lookup. It borrows the block, checks each
//! record as it reaches it, and allocates nothing. Format: the kernel's ext4 documentation, "Linear
//! (Classic) Directories".

mod slots;
#[cfg(test)]
mod tests;

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{self, ChecksumSeed};
use crate::{Corrupt, CorruptKind, Place};

pub use slots::{Slot, Slots, Span};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Bytes of a record before its name.
const HEADER_SIZE: usize = size_of::<RawDirEntry>();
/// The shortest record: one with a name of up to four bytes.
const MIN_REC_LEN: usize = 12;
/// The value of `file_type` in a checksum tail.
pub const TAIL_FILE_TYPE: u8 = 0xDE;
/// Bytes of a checksum tail.
pub const TAIL_SIZE: usize = size_of::<RawDirEntryTail>();

/// `struct ext4_dir_entry_2` up to its name, as it stands on the disk.
///
/// Without the `filetype` feature `file_type` is the high byte of the name's length.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawDirEntry {
    pub inode: U32,
    pub rec_len: U16,
    pub name_len: u8,
    pub file_type: u8,
}

/// `struct ext4_dir_entry_tail`, as it stands on the disk.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawDirEntryTail {
    pub det_reserved_zero1: U32,
    pub det_rec_len: U16,
    pub det_reserved_zero2: u8,
    pub det_reserved_ft: u8,
    pub det_checksum: U32,
}

/// `struct ext4_dir_entry_hash`: the hash after a name of an encrypted and case-folded directory.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawDirEntryHash {
    pub hash: U32,
    pub minor_hash: U32,
}

const _: () = assert!(size_of::<RawDirEntry>() == 8);
const _: () = assert!(size_of::<RawDirEntryTail>() == 12);
const _: () = assert!(size_of::<RawDirEntryHash>() == 8);

/// The type of an inode, as a directory entry records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileType {
    /// Not recorded: the volume does not have the `filetype` feature, or the writer did not know
    /// the type.
    Unknown = 0,
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A character device.
    CharDevice = 3,
    /// A block device.
    BlockDevice = 4,
    /// A named pipe.
    Fifo = 5,
    /// A socket.
    Socket = 6,
    /// A symbolic link.
    Symlink = 7,
}

impl FileType {
    /// Returns the type that `raw` stands for, if any.
    #[inline]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Unknown,
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }

    /// Returns the type that the format bits of an inode's mode give; `Unknown` if they give none.
    pub const fn from_mode(mode: u16) -> Self {
        match mode & 0xF000 {
            0x8000 => Self::Regular,
            0x4000 => Self::Directory,
            0x2000 => Self::CharDevice,
            0x6000 => Self::BlockDevice,
            0x1000 => Self::Fifo,
            0xC000 => Self::Socket,
            0xA000 => Self::Symlink,
            _ => Self::Unknown,
        }
    }

    /// Returns the number that stands for the type in a directory entry.
    pub const fn to_raw(self) -> u8 {
        self as u8
    }
}

/// How one directory lays out its entries, from its volume's features and its inode's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a block: 1024 to 65536.
    pub block_size: u32,
    /// The volume's last inode: the superblock's inode count.
    pub inodes: u32,
    /// The volume's `filetype` feature.
    pub filetype: bool,
    /// The volume's `metadata_csum` feature: blocks end in a checksum tail.
    pub checksum: bool,
    /// The inode's encryption flag: names are ciphertext, in which any byte may occur.
    pub encrypted: bool,
    /// The inode's case-folding flag.
    pub casefold: bool,
}

impl Layout {
    /// Returns whether each name except `.` and `..` has a hash after it.
    #[inline]
    pub fn hashes_in_entries(&self) -> bool {
        self.encrypted && self.casefold
    }

    /// Returns the number of bytes that a record needs at least for a name of `name_len` bytes.
    #[inline]
    pub fn rec_len(&self, name: &[u8]) -> usize {
        let hashed = self.hashes_in_entries() && !is_dot_or_dotdot(name);
        let hash = if hashed {
            size_of::<RawDirEntryHash>()
        } else {
            0
        };
        (HEADER_SIZE + name.len()).next_multiple_of(4) + hash
    }

    #[inline]
    fn decode_rec_len(&self, raw: u16) -> usize {
        // 64 KiB do not fit in 16 bits. Lengths are multiples of 4, so 65535 is free to stand for
        // it; 0 does as well.
        if self.block_size >= 65536 && (raw == u16::MAX || raw == 0) {
            65536
        } else {
            usize::from(raw)
        }
    }

    fn encode_rec_len(&self, rec_len: usize) -> u16 {
        u16::try_from(rec_len).unwrap_or_else(|_| {
            assert!(
                rec_len == 65536 && self.block_size == 65536,
                "a record of {rec_len} bytes"
            );
            u16::MAX
        })
    }
}

#[inline]
fn is_dot_or_dotdot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The hash stored after a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredHash {
    /// The part by which the tree is sorted.
    pub major: u32,
    /// The part that distinguishes names whose major hashes collide.
    pub minor: u32,
}

/// A name in a directory, and the inode it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode: from 1 to the volume's last.
    pub ino: u32,
    /// The type of the inode, as the entry records it.
    pub kind: FileType,
    /// The name: 1 to 255 bytes, without `/` and NUL unless the directory is encrypted.
    pub name: &'a [u8],
    /// Where in the block the record starts.
    pub offset: u32,
    /// The hash after the name, in directories that are both encrypted and case-folded.
    pub hash: Option<StoredHash>,
}

impl DirEntry<'_> {
    /// Returns whether this is `.` or `..`.
    #[inline]
    pub fn is_dot_or_dotdot(&self) -> bool {
        is_dot_or_dotdot(self.name)
    }

    /// Writes the entry as a record that fills `record`, whose length becomes `rec_len`. Bytes
    /// after the name become zero up to the next multiple of 4; the slack after them stays as it
    /// is.
    ///
    /// # Panics
    /// If the record is too short for the name, or its length or the name's is not valid.
    pub fn encode(&self, record: &mut [u8], layout: &Layout) {
        let rec_len = record.len();
        assert!(
            rec_len.is_multiple_of(4) && rec_len >= layout.rec_len(self.name),
            "a record of {rec_len} bytes"
        );
        let raw = RawDirEntry {
            inode: self.ino.into(),
            rec_len: layout.encode_rec_len(rec_len).into(),
            name_len: u8::try_from(self.name.len()).expect("a name of at most 255 bytes"),
            file_type: if layout.filetype {
                self.kind.to_raw()
            } else {
                0
            },
        };
        let (header, rest) = record.split_at_mut(HEADER_SIZE);
        header.copy_from_slice(raw.as_bytes());
        let padded = self.name.len().next_multiple_of(4);
        rest[..padded].fill(0);
        rest[..self.name.len()].copy_from_slice(self.name);
        if let Some(hash) = self.hash {
            let raw = RawDirEntryHash {
                hash: hash.major.into(),
                minor_hash: hash.minor.into(),
            };
            rest[padded..padded + size_of::<RawDirEntryHash>()].copy_from_slice(raw.as_bytes());
        }
    }
}

/// The entries of a directory block in stored order. The iterator checks each as it reaches it.
///
/// After an error the iterator ends, because the records after a broken one cannot be found.
#[derive(Clone, Debug)]
pub struct Entries<'a>(Slots<'a>);

impl<'a> Entries<'a> {
    /// Iterates over the entries of a block of a linear directory, or of a leaf of a hashed one.
    pub fn new(block: &'a [u8], layout: &Layout, place: Place) -> Self {
        Self(Slots::new(block, layout, place))
    }

    /// Iterates over the entries of bytes that have no checksum tail. These are the records of `.`
    /// and `..` in the root of a hash tree, or a part of an inline directory.
    pub fn without_tail(bytes: &'a [u8], layout: &Layout, place: Place) -> Self {
        Self(Slots::without_tail(bytes, layout, place))
    }
}

impl<'a> From<Slots<'a>> for Entries<'a> {
    fn from(slots: Slots<'a>) -> Self {
        Self(slots)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<DirEntry<'a>, Corrupt>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.next()? {
                Ok(Slot {
                    entry: Some(entry), ..
                }) => return Some(Ok(entry)),
                Ok(_) => {}
                Err(corrupt) => return Some(Err(corrupt)),
            }
        }
    }
}

impl core::iter::FusedIterator for Entries<'_> {}

/// Looks for `name` in a block, and checks the whole chain up to it.
///
/// # Errors
/// The first broken record before the name.
pub fn find<'a>(
    block: &'a [u8],
    name: &[u8],
    layout: &Layout,
    place: Place,
) -> Result<Option<DirEntry<'a>>, Corrupt> {
    for entry in Entries::new(block, layout, place) {
        let entry = entry?;
        if entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Checks that a directory starts with `.` and `..`, and returns the inode of each.
///
/// This applies to the first block of linear directories and to the root of a hash tree.
///
/// # Errors
/// Another name in either place, or a broken record.
pub fn dot_and_dotdot(block: &[u8], layout: &Layout, place: Place) -> Result<(u32, u32), Corrupt> {
    let mut slots = Slots::without_tail(block, layout, place);
    let mut expect = |name: &[u8], what| match slots.next() {
        Some(Ok(Slot {
            entry: Some(entry), ..
        })) if entry.name == name => Ok(entry.ino),
        Some(Err(corrupt)) => Err(corrupt),
        _ => Err(place.corrupt(CorruptKind::Mismatch { what })),
    };
    let dot = expect(b".", "the first entry of a directory is not `.`")?;
    let dotdot = expect(b"..", "the second entry of a directory is not `..`")?;
    Ok((dot, dotdot))
}

/// Checks the checksum tail of a block of a linear directory, or of a leaf of a hashed one.
///
/// `inode_seed` is the seed of the directory's inode.
///
/// # Errors
/// No tail where one must be, or a checksum that does not match.
pub fn verify_checksum(
    block: &[u8],
    inode_seed: ChecksumSeed,
    place: Place,
) -> Result<(), Corrupt> {
    let Some((covered, tail)) = split_tail(block) else {
        return Err(place.corrupt(CorruptKind::Mismatch {
            what: "a directory block has no checksum tail",
        }));
    };
    let stored = tail.det_checksum.get();
    let computed = inode_seed.checksum(covered);
    checksum::verify(stored, computed, place.byte(covered.len()))
}

/// Writes the checksum tail of a block.
///
/// # Panics
/// If the block is shorter than a tail.
pub fn store_checksum(block: &mut [u8], inode_seed: ChecksumSeed) {
    let covered = &block[..block.len() - TAIL_SIZE];
    store_tail(block, inode_seed.checksum(covered));
}

/// Writes the tail of a block with this checksum. The block needs [its own
/// checksum](store_checksum) later.
///
/// # Panics
/// If the block is shorter than a tail.
pub fn store_tail(block: &mut [u8], checksum: u32) {
    let at = block.len() - TAIL_SIZE;
    let raw = RawDirEntryTail {
        det_reserved_zero1: 0.into(),
        det_rec_len: 12.into(),
        det_reserved_zero2: 0,
        det_reserved_ft: TAIL_FILE_TYPE,
        det_checksum: checksum.into(),
    };
    block[at..].copy_from_slice(raw.as_bytes());
}

fn split_tail(block: &[u8]) -> Option<(&[u8], &RawDirEntryTail)> {
    let (covered, tail) = RawDirEntryTail::ref_from_suffix(block).ok()?;
    let is_tail = tail.det_reserved_zero1.get() == 0
        && tail.det_rec_len.get() == 12
        && tail.det_reserved_zero2 == 0
        && tail.det_reserved_ft == TAIL_FILE_TYPE;
    is_tail.then_some((covered, tail))
}
