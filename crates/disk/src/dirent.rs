//! Directory entries, and the blocks that hold them.
//!
//! A directory block is a chain of records that fills it exactly: each gives the distance to the next. A record with
//! inode 0 is free space. On a volume with `metadata_csum` the last 12 bytes look like such a record and hold the
//! block's checksum.
//!
//! ```text
//! | ino 4 | rec_len 2 | name_len 1 | file_type 1 | name, padded to 4 | (hash 8) | slack up to rec_len |
//! ```
//!
//! Three things bend the layout: without the `filetype` feature `name_len` takes both bytes; with 64 KiB blocks
//! `rec_len` cannot hold the largest distance and two values stand for it; and directories that are both encrypted
//! and case-folded keep each name's hash behind the name. A [`Layout`] says which of them apply.
//!
//! [`Entries`] is the loop under every listing and lookup: it borrows the block, checks each record as it reaches it,
//! and allocates nothing. Format: the kernel's ext4 documentation, "Linear (Classic) Directories".

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{self, ChecksumSeed};
use crate::{Corrupt, CorruptKind, Place};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Bytes of a record before its name.
const HEADER_SIZE: usize = size_of::<RawDirEntry>();
/// The shortest record: one with a name of up to four bytes.
const MIN_REC_LEN: usize = 12;
/// What stands in `file_type` of a checksum tail.
pub const TAIL_FILE_TYPE: u8 = 0xDE;
/// Bytes of a checksum tail.
pub const TAIL_SIZE: usize = size_of::<RawDirEntryTail>();

/// `struct ext4_dir_entry_2` up to its name, as it stands on the disk.
///
/// Without the `filetype` feature `file_type` is the high byte of the name's length.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[expect(missing_docs, reason = "the fields carry the names of the format's documentation")]
pub struct RawDirEntry {
    pub inode: U32,
    pub rec_len: U16,
    pub name_len: u8,
    pub file_type: u8,
}

/// `struct ext4_dir_entry_tail`, as it stands on the disk.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[expect(missing_docs, reason = "the fields carry the names of the format's documentation")]
pub struct RawDirEntryTail {
    pub det_reserved_zero1: U32,
    pub det_rec_len: U16,
    pub det_reserved_zero2: u8,
    pub det_reserved_ft: u8,
    pub det_checksum: U32,
}

/// `struct ext4_dir_entry_hash`: the hash behind a name of an encrypted and case-folded directory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[expect(missing_docs, reason = "the fields carry the names of the format's documentation")]
pub struct RawDirEntryHash {
    pub hash: U32,
    pub minor_hash: U32,
}

const _: () = assert!(size_of::<RawDirEntry>() == 8);
const _: () = assert!(size_of::<RawDirEntryTail>() == 12);
const _: () = assert!(size_of::<RawDirEntryHash>() == 8);

/// What a directory entry says its inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileType {
    /// Not said: the volume does not have the `filetype` feature, or the writer did not know.
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
    /// The type that `raw` stands for, if any does.
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

    /// The type that the format bits of an inode's mode say; `Unknown` if they say none.
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

    /// The number that stands for the type in a directory entry.
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
    /// Whether a hash stands behind each name but `.` and `..`.
    #[inline]
    pub fn hashes_in_entries(&self) -> bool {
        self.encrypted && self.casefold
    }

    /// Bytes that a record needs at least for a name of `name_len` bytes.
    #[inline]
    pub fn rec_len(&self, name: &[u8]) -> usize {
        let hashed = self.hashes_in_entries() && !is_dot_or_dotdot(name);
        let hash = if hashed { size_of::<RawDirEntryHash>() } else { 0 };
        (HEADER_SIZE + name.len()).next_multiple_of(4) + hash
    }

    #[inline]
    fn decode_rec_len(&self, raw: u16) -> usize {
        // 64 KiB do not fit in 16 bits. Lengths are multiples of 4, so 65535 is free to stand for it; 0 does as well.
        if self.block_size >= 65536 && (raw == u16::MAX || raw == 0) { 65536 } else { usize::from(raw) }
    }

    fn encode_rec_len(&self, rec_len: usize) -> u16 {
        u16::try_from(rec_len).unwrap_or_else(|_| {
            assert!(rec_len == 65536 && self.block_size == 65536, "a record of {rec_len} bytes");
            u16::MAX
        })
    }
}

#[inline]
fn is_dot_or_dotdot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The hash stored behind a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredHash {
    /// The part by which the tree is sorted.
    pub major: u32,
    /// The part that tells names apart whose major hashes collide.
    pub minor: u32,
}

/// A name in a directory, and the inode it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode: from 1 to the volume's last.
    pub ino: u32,
    /// What the entry says the inode is.
    pub kind: FileType,
    /// The name: 1 to 255 bytes, without `/` and NUL unless the directory is encrypted.
    pub name: &'a [u8],
    /// Where in the block the record starts.
    pub offset: u32,
    /// The hash behind the name, in directories that are both encrypted and case-folded.
    pub hash: Option<StoredHash>,
}

impl DirEntry<'_> {
    /// Whether this is `.` or `..`.
    #[inline]
    pub fn is_dot_or_dotdot(&self) -> bool {
        is_dot_or_dotdot(self.name)
    }

    /// Writes the entry as a record that fills `record`, whose length becomes `rec_len`; bytes behind the name up to
    /// the next multiple of 4 become zero and the slack after them is left as it is.
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
            file_type: if layout.filetype { self.kind.to_raw() } else { 0 },
        };
        let (header, rest) = record.split_at_mut(HEADER_SIZE);
        header.copy_from_slice(raw.as_bytes());
        let padded = self.name.len().next_multiple_of(4);
        rest[..padded].fill(0);
        rest[..self.name.len()].copy_from_slice(self.name);
        if let Some(hash) = self.hash {
            let raw = RawDirEntryHash { hash: hash.major.into(), minor_hash: hash.minor.into() };
            rest[padded..padded + size_of::<RawDirEntryHash>()].copy_from_slice(raw.as_bytes());
        }
    }
}

/// One record of a directory block: an entry, or free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// The entry, if the record is in use.
    pub entry: Option<DirEntry<'a>>,
    /// Where in the block it starts.
    pub offset: u32,
    /// Bytes to the next record.
    pub rec_len: u32,
}

/// The records of a directory block, used or not, each checked as the iterator reaches it.
///
/// After an error the iterator ends, for what follows a broken record cannot be found.
#[derive(Clone, Debug)]
pub struct Slots<'a> {
    /// All records, and nothing behind them.
    bytes: &'a [u8],
    at: usize,
    layout: Layout,
    place: Place,
}

impl<'a> Slots<'a> {
    /// The records of a block of a linear directory, or of a leaf of a hashed one: all but the checksum tail.
    pub fn new(block: &'a [u8], layout: &Layout, place: Place) -> Self {
        let end = if layout.checksum { block.len().saturating_sub(TAIL_SIZE) } else { block.len() };
        Self::without_tail(&block[..end], layout, place)
    }

    /// The records of bytes that have no checksum tail: the root of a hash tree, or a part of an inline directory.
    pub fn without_tail(bytes: &'a [u8], layout: &Layout, place: Place) -> Self {
        Self { bytes, at: 0, layout: *layout, place }
    }

    /// How they are laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The first record from here on that is the entry of `name`, byte by byte, and the record before it. It takes a fraction of
    /// the time that it takes to go through the records, for no more is checked of the others than that each leads to the next.
    ///
    /// # Errors
    /// A record before it after which nothing can be found.
    pub fn find_name(&self, name: &[u8]) -> Result<Option<(Option<Span>, Span)>, Corrupt> {
        self.search(name, self.at, || true)
    }

    /// The same among no more than `most` records from the one at byte `offset` on.
    ///
    /// # Errors
    /// As there.
    pub fn find_name_among(
        &self,
        name: &[u8],
        offset: usize,
        most: usize,
    ) -> Result<Option<(Option<Span>, Span)>, Corrupt> {
        let mut left = most;
        self.search(name, offset, || {
            let goes_on = left > 0;
            left = left.saturating_sub(1);
            goes_on
        })
    }

    #[inline(always)]
    fn search(
        &self,
        name: &[u8],
        mut at: usize,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<Option<(Option<Span>, Span)>, Corrupt> {
        let end = NameEnd::of(name);
        let mut before = None;
        while at < self.bytes.len() && goes_on() {
            let span = self.span_at(at)?;
            // Names in one directory often begin alike, so the end is compared first.
            if span.name_len(&self.layout) == name.len()
                && end.is_at(self.bytes, at + name.len())
                && !span.is_free()
                && self.bytes[at + HEADER_SIZE..].starts_with(name)
            {
                return Ok(Some((before, span)));
            }
            before = Some(span);
            at += span.rec_len;
        }
        Ok(None)
    }

    /// The first record from the one at byte `offset` on with at least `need` bytes that are not in use, and how many of it are. As much
    /// is checked as by [`find_name`](Self::find_name), and that names fit into their records.
    ///
    /// # Errors
    /// A record from there on after which nothing can be found, or whose name does not fit into it.
    pub fn find_room(&self, offset: usize, need: usize) -> Result<Option<(Span, usize)>, Corrupt> {
        let mut at = offset;
        while at < self.bytes.len() {
            let span = self.span_at(at)?;
            let used = self.used_of(span)?;
            if span.rec_len - used >= need {
                return Ok(Some((span, used)));
            }
            at += span.rec_len;
        }
        Ok(None)
    }

    /// The inode that the entry `span` of these records stands for.
    ///
    /// # Errors
    /// A name that does not fit into the record, or an inode that is not the volume's.
    pub fn ino_of(&self, span: Span) -> Result<u32, Corrupt> {
        self.name_of(span)?;
        if span.ino > self.layout.inodes {
            let kind = CorruptKind::InodeOutOfRange { field: "inode", ino: u64::from(span.ino) };
            return Err(self.place.byte(span.offset).corrupt(kind));
        }
        Ok(span.ino)
    }

    /// How many bytes of a record of these are not in use; all, if its name does not fit into it.
    pub fn slack_of(&self, span: Span) -> usize {
        span.rec_len - self.used_of(span).unwrap_or(0)
    }

    /// How many bytes of a record are in use.
    #[inline(always)]
    fn used_of(&self, span: Span) -> Result<usize, Corrupt> {
        if span.is_free() {
            return Ok(0);
        }
        let name_len = span.name_len(&self.layout);
        let used = (HEADER_SIZE + name_len).next_multiple_of(4);
        if name_len.wrapping_sub(1) >= NAME_MAX || used > span.rec_len || self.layout.hashes_in_entries() {
            return self.name_of(span).map(|name| self.layout.rec_len(name));
        }
        Ok(used)
    }

    /// The name of a record that is in use, with whatever bytes it has.
    fn name_of(&self, span: Span) -> Result<&'a [u8], Corrupt> {
        let name_len = span.name_len(&self.layout);
        let field = |field, value: usize| {
            let kind = CorruptKind::Field { field, value: value as u64 };
            Err(self.place.byte(span.offset).corrupt(kind))
        };
        match self.bytes[span.offset + HEADER_SIZE..].get(..name_len) {
            Some(name) if (1..=NAME_MAX).contains(&name_len) => match self.layout.rec_len(name) {
                need if need > span.rec_len => field("rec_len", span.rec_len),
                _ => Ok(name),
            },
            _ => field("name_len", name_len),
        }
    }

    /// The record at `at`, where one has to be.
    #[inline(always)]
    fn span_at(&self, at: usize) -> Result<Span, Corrupt> {
        let rest = &self.bytes[at..];
        let Some(header) = rest.first_chunk::<HEADER_SIZE>() else { return Err(self.truncated(at)) };
        let header = u64::from_le_bytes(*header);
        // OK, all: parts of the number.
        let (ino, raw, name_len) = (header as u32, (header >> 32) as u16, (header >> 48) as u16);
        let mut rec_len = usize::from(raw);
        if !is_rec_len(rec_len, rest.len()) {
            rec_len = self.unusual_rec_len(at, raw)?;
        }
        Ok(Span { offset: at, rec_len, ino, name_len })
    }

    /// The one length that does not fit into its field, if that is what it says.
    #[cold]
    fn unusual_rec_len(&self, at: usize, raw: u16) -> Result<usize, Corrupt> {
        let rec_len = self.layout.decode_rec_len(raw);
        match is_rec_len(rec_len, self.bytes.len() - at) {
            true => Ok(rec_len),
            false => {
                let kind = CorruptKind::Field { field: "rec_len", value: rec_len as u64 };
                Err(self.place.byte(at).corrupt(kind))
            }
        }
    }

    #[cold]
    fn truncated(&self, at: usize) -> Corrupt {
        let have = (self.bytes.len() - at) as u64;
        self.place.byte(at).corrupt(CorruptKind::Truncated { need: MIN_REC_LEN as u64, have })
    }

    #[inline]
    fn decode(&self) -> Result<Slot<'a>, Corrupt> {
        let span = self.span_at(self.at)?;
        // OK, both: inside a block, which has at most 65536 bytes.
        let (offset, rec_len) = (span.offset as u32, span.rec_len as u32);
        if span.is_free() {
            // Nothing but its length matters of free space; whoever freed it may have left the name behind.
            return Ok(Slot { entry: None, offset, rec_len });
        }
        let (ino, name) = (self.ino_of(span)?, self.name_of(span)?);
        if !self.layout.encrypted && has_slash_or_nul(name) {
            return Err(self.corrupt(CorruptKind::Mismatch { what: "a name holds a slash or a NUL" }));
        }
        let kind = match self.layout.filetype {
            true => {
                let raw = span.file_type();
                FileType::from_raw(raw).ok_or_else(|| self.field("file_type", u64::from(raw)))?
            }
            false => FileType::Unknown,
        };
        let hash = if self.layout.hashes_in_entries() && !is_dot_or_dotdot(name) {
            let end = self.at + self.layout.rec_len(name);
            RawDirEntryHash::ref_from_bytes(&self.bytes[end - size_of::<RawDirEntryHash>()..end])
                .ok()
                .map(|raw| StoredHash { major: raw.hash.get(), minor: raw.minor_hash.get() })
        } else {
            None
        };
        Ok(Slot { entry: Some(DirEntry { ino, kind, name, offset, hash }), offset, rec_len })
    }

    #[cold]
    fn field(&self, field: &'static str, value: u64) -> Corrupt {
        self.corrupt(CorruptKind::Field { field, value })
    }

    #[cold]
    fn corrupt(&self, kind: CorruptKind) -> Corrupt {
        self.place.byte(self.at).corrupt(kind)
    }
}

impl<'a> Iterator for Slots<'a> {
    type Item = Result<Slot<'a>, Corrupt>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let slot = self.decode();
        // OK: at most 65536.
        self.at = slot.as_ref().map_or(self.bytes.len(), |slot| self.at + slot.rec_len as usize);
        Some(slot)
    }
}

impl core::iter::FusedIterator for Slots<'_> {}

/// Whether a record can be so long that has `room` up to the end of the records.
#[inline(always)]
fn is_rec_len(rec_len: usize, room: usize) -> bool {
    rec_len >= MIN_REC_LEN && rec_len.is_multiple_of(4) && rec_len <= room
}

/// A record of a directory block, of which no more has been checked than that it is followed by another, or by the end.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Where in the block it starts.
    pub offset: usize,
    /// Bytes to the next record.
    pub rec_len: usize,
    ino: u32,
    /// With what stands in `file_type` for its upper half.
    name_len: u16,
}

impl Span {
    #[inline(always)]
    fn is_free(self) -> bool {
        self.ino == 0
    }

    #[inline(always)]
    fn name_len(self, layout: &Layout) -> usize {
        usize::from(if layout.filetype { self.name_len & 0xFF } else { self.name_len })
    }

    #[inline]
    fn file_type(self) -> u8 {
        self.name_len.to_be_bytes()[0]
    }
}

/// The last bytes of a name, up to eight, to be compared at once.
#[derive(Clone, Copy)]
struct NameEnd {
    bytes: u64,
    /// Which of them are the name's.
    mask: u64,
}

impl NameEnd {
    fn of(name: &[u8]) -> Self {
        if let Some(last) = name.last_chunk::<8>() {
            return Self { bytes: u64::from_le_bytes(*last), mask: u64::MAX };
        }
        // Each byte comes in from above.
        let bytes = name.iter().fold(0, |bytes, &byte| bytes >> 8 | u64::from(byte) << 56);
        let mask = if name.is_empty() { 0 } else { u64::MAX << (64 - 8 * name.len()) };
        Self { bytes, mask }
    }

    /// Whether the eight bytes from `at` on end like the name. Those of a short name have the end of the header before them.
    #[inline(always)]
    fn is_at(self, bytes: &[u8], at: usize) -> bool {
        let there = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
        there.is_some_and(|there| (u64::from_le_bytes(*there) ^ self.bytes) & self.mask == 0)
    }
}

/// The entries of a directory block, in the order they stand there, each checked as the iterator reaches it.
///
/// After an error the iterator ends, for what follows a broken record cannot be found.
#[derive(Clone, Debug)]
pub struct Entries<'a>(Slots<'a>);

impl<'a> Entries<'a> {
    /// The entries of a block of a linear directory, or of a leaf of a hashed one.
    pub fn new(block: &'a [u8], layout: &Layout, place: Place) -> Self {
        Self(Slots::new(block, layout, place))
    }

    /// The entries of bytes that have no checksum tail: `.` and `..` in the root of a hash tree, or a part of an
    /// inline directory.
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
                Ok(Slot { entry: Some(entry), .. }) => return Some(Ok(entry)),
                Ok(_) => {}
                Err(corrupt) => return Some(Err(corrupt)),
            }
        }
    }
}

impl core::iter::FusedIterator for Entries<'_> {}

#[inline]
fn has_slash_or_nul(name: &[u8]) -> bool {
    // Without early exit, so that the compiler compares many bytes at once.
    name.iter().fold(false, |found, &byte| found | (byte == b'/') | (byte == 0))
}

/// Looks for `name` in a block; the whole chain up to it is checked.
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
/// Holds for the first block of linear directories and for the root of a hash tree.
///
/// # Errors
/// Another name in either place, or a broken record.
pub fn dot_and_dotdot(block: &[u8], layout: &Layout, place: Place) -> Result<(u32, u32), Corrupt> {
    let mut slots = Slots::without_tail(block, layout, place);
    let mut expect = |name: &[u8], what| match slots.next() {
        Some(Ok(Slot { entry: Some(entry), .. })) if entry.name == name => Ok(entry.ino),
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
pub fn verify_checksum(block: &[u8], inode_seed: ChecksumSeed, place: Place) -> Result<(), Corrupt> {
    let Some((covered, tail)) = split_tail(block) else {
        return Err(place.corrupt(CorruptKind::Mismatch { what: "a directory block has no checksum tail" }));
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

/// Writes the tail of a block with this checksum: for a block that will be given [one of its own](store_checksum).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Structure;
    use proptest::prelude::*;

    const PLACE: Place = Place::new(Structure::DirectoryBlock).ino(2);
    const LAYOUT: Layout = Layout {
        block_size: 1024,
        inodes: 1000,
        filetype: true,
        checksum: false,
        encrypted: false,
        casefold: false,
    };

    fn entry(ino: u32, name: &[u8]) -> DirEntry<'_> {
        DirEntry { ino, kind: FileType::Regular, name, offset: 0, hash: None }
    }

    /// A block of these entries, each as short as can be but the last, which takes the rest.
    fn block(entries: &[DirEntry<'_>], layout: &Layout) -> Vec<u8> {
        let mut block = vec![0; layout.block_size as usize];
        let end = if layout.checksum { block.len() - TAIL_SIZE } else { block.len() };
        let mut at = 0;
        for (index, entry) in entries.iter().enumerate() {
            let next = if index + 1 == entries.len() { end } else { at + layout.rec_len(entry.name) };
            entry.encode(&mut block[at..next], layout);
            at = next;
        }
        if layout.checksum {
            store_checksum(&mut block, ChecksumSeed::new(1));
        }
        block
    }

    fn read<'a>(block: &'a [u8], layout: &Layout) -> Result<Vec<DirEntry<'a>>, Corrupt> {
        Entries::new(block, layout, PLACE).collect()
    }

    #[test]
    fn an_entry_byte_by_byte() {
        let mut record = [0xAA; 20];
        entry(0x0102, b"hello").encode(&mut record, &LAYOUT);
        let want = b"\x02\x01\0\0\x14\0\x05\x01hello\0\0\0\xAA\xAA\xAA\xAA";
        assert_eq!(&record, want);
        let without = Layout { filetype: false, ..LAYOUT };
        entry(0x0102, b"hello").encode(&mut record, &without);
        assert_eq!(record[7], 0);
    }

    #[test]
    fn the_first_names_are_dot_and_dotdot() {
        let good = block(&[entry(5, b"."), entry(2, b".."), entry(7, b"x")], &LAYOUT);
        assert_eq!(dot_and_dotdot(&good, &LAYOUT, PLACE), Ok((5, 2)));
        let bad = block(&[entry(5, b"."), entry(7, b"x")], &LAYOUT);
        let what = "the second entry of a directory is not `..`";
        assert_eq!(dot_and_dotdot(&bad, &LAYOUT, PLACE), Err(PLACE.corrupt(CorruptKind::Mismatch { what })));
    }

    #[test]
    fn lookups_find_names_and_check_what_comes_before() {
        let mut block = block(&[entry(5, b"a"), entry(6, b"bb"), entry(7, b"ccc")], &LAYOUT);
        let found = find(&block, b"bb", &LAYOUT, PLACE).unwrap().unwrap();
        assert_eq!((found.ino, found.kind, found.offset), (6, FileType::Regular, 12));
        assert_eq!(find(&block, b"b", &LAYOUT, PLACE), Ok(None));
        block[16] = 13;
        assert!(find(&block, b"a", &LAYOUT, PLACE).is_ok());
        let kind = CorruptKind::Field { field: "rec_len", value: 13 };
        assert_eq!(find(&block, b"ccc", &LAYOUT, PLACE), Err(PLACE.offset(12).corrupt(kind)));
    }

    #[test]
    fn every_broken_rule_has_its_kind() {
        let good = block(&[entry(5, b"a"), entry(6, b"name")], &LAYOUT);
        let broken = |at: usize, bytes: &[u8]| {
            let mut block = good.clone();
            block[at..at + bytes.len()].copy_from_slice(bytes);
            let corrupt = read(&block, &LAYOUT).expect_err("a broken block");
            (corrupt.kind, corrupt.place.offset)
        };
        let field = |field, value| CorruptKind::Field { field, value };
        let mismatch = CorruptKind::Mismatch { what: "a name holds a slash or a NUL" };
        assert_eq!(broken(4, &[8]), (field("rec_len", 8), Some(0)));
        assert_eq!(broken(4, &[0]), (field("rec_len", 0), Some(0)));
        assert_eq!(broken(4, &[14]), (field("rec_len", 14), Some(0)));
        assert_eq!(broken(16, &[0, 4]), (field("rec_len", 1024), Some(12)));
        let cut = CorruptKind::Truncated { need: 12, have: 4 };
        assert_eq!(broken(16, &[0xF0, 3]), (cut, Some(1020)));
        assert_eq!(broken(6, &[5]), (field("rec_len", 12), Some(0)));
        assert_eq!(broken(6, &[0]), (field("name_len", 0), Some(0)));
        assert_eq!(broken(19, &[8]), (field("file_type", 8), Some(12)));
        assert_eq!(broken(21, b"/"), (mismatch, Some(12)));
        assert_eq!(broken(23, b"\0"), (mismatch, Some(12)));
        let range = CorruptKind::InodeOutOfRange { field: "inode", ino: 1001 };
        assert_eq!(broken(12, &[0xE9, 3]), (range, Some(12)));
        let short = read(&good[..15], &LAYOUT).unwrap_err();
        assert_eq!(short.kind, CorruptKind::Truncated { need: 12, have: 3 });
        // Free space keeps whatever stood in it.
        let mut free = good.clone();
        free[12..16].fill(0);
        free[19..24].fill(b'/');
        assert_eq!(read(&free, &LAYOUT).unwrap().len(), 1);
    }

    #[test]
    fn blocks_of_64_kib_have_two_numbers_for_their_size() {
        let layout = Layout { block_size: 65536, ..LAYOUT };
        for raw in [0u16, 0xFFFF] {
            let mut bytes = block(&[entry(5, b"only")], &layout);
            assert_eq!(bytes[4..6], [0xFF, 0xFF]);
            bytes[4..6].copy_from_slice(&raw.to_le_bytes());
            let slots: Result<Vec<_>, _> = Slots::new(&bytes, &layout, PLACE).collect();
            assert_eq!(slots.unwrap()[0].rec_len, 65536);
            // One that does not start the block cannot be so long.
            bytes[4..6].copy_from_slice(&16u16.to_le_bytes());
            bytes[20..22].copy_from_slice(&raw.to_le_bytes());
            assert!(Slots::new(&bytes, &layout, PLACE).any(|slot| slot.is_err()));
        }
    }

    #[test]
    fn without_filetype_names_have_long_lengths() {
        let layout = Layout { filetype: false, ..LAYOUT };
        let mut bytes = block(&[entry(5, b"a"), entry(6, &[b'n'; 255])], &layout);
        let entries = read(&bytes, &layout).unwrap();
        assert_eq!((entries[1].name.len(), entries[1].kind), (255, FileType::Unknown));
        bytes[7] = 1;
        assert_eq!(
            read(&bytes, &layout).unwrap_err().kind,
            CorruptKind::Field { field: "name_len", value: 257 }
        );
    }

    #[test]
    fn encrypted_and_folded_names_carry_their_hash() {
        let layout = Layout { encrypted: true, casefold: true, ..LAYOUT };
        let hash = Some(StoredHash { major: 0xAABB_CCDC, minor: 7 });
        let names =
            [entry(5, b"."), entry(2, b".."), DirEntry { hash, ..entry(9, b"/cipher\0text\xFFxxxx") }];
        let bytes = block(&names, &layout);
        let read = read(&bytes, &layout).unwrap();
        assert_eq!((read[0].hash, read[1].hash, read[2].hash), (None, None, hash));
        assert_eq!(read[2].name, names[2].name);
        assert_eq!(layout.rec_len(b".."), 12);
        assert_eq!(layout.rec_len(b"...."), 20);
    }

    #[test]
    fn a_checksum_covers_all_but_itself() {
        let layout = Layout { checksum: true, ..LAYOUT };
        let good = block(&[entry(5, b"a")], &layout);
        let seed = ChecksumSeed::new(1);
        verify_checksum(&good, seed, PLACE).unwrap();
        assert_eq!(Slots::new(&good, &layout, PLACE).count(), 1);
        for bit in 0..good.len() * 8 {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(verify_checksum(&flipped, seed, PLACE).is_err(), "bit {bit}");
        }
    }

    prop_compose! {
        fn directories()(
            names in proptest::collection::vec((1u32..=1000, "[^/\0]{1,60}", 0u8..8), 1..12),
            filetype: bool, checksum: bool, hashed: bool,
        ) -> (Vec<(u32, String, u8)>, Layout) {
            (names, Layout { filetype, checksum, encrypted: hashed, casefold: hashed, ..LAYOUT })
        }
    }

    fn entries_of<'a>(names: &'a [(u32, String, u8)], layout: &Layout) -> Vec<DirEntry<'a>> {
        let mut room = 1000;
        let fits = |entry: &DirEntry<'_>| {
            let need = layout.rec_len(entry.name);
            need <= room && {
                room -= need;
                true
            }
        };
        let make = |(ino, name, kind): &'a (u32, String, u8)| DirEntry {
            ino: *ino,
            kind: if layout.filetype { FileType::from_raw(*kind).unwrap() } else { FileType::Unknown },
            name: &name.as_bytes()[..name.len().min(NAME_MAX)],
            offset: 0,
            hash: (layout.hashes_in_entries() && !matches!(name.as_str(), "." | ".."))
                .then_some(StoredHash { major: *ino, minor: 3 }),
        };
        names.iter().map(make).take_while(fits).collect()
    }

    proptest! {
        #[test]
        fn directories_come_back((names, layout) in directories()) {
            let entries = entries_of(&names, &layout);
            prop_assume!(!entries.is_empty());
            let bytes = block(&entries, &layout);
            let read = read(&bytes, &layout).unwrap();
            prop_assert_eq!(read.len(), entries.len());
            for (read, made) in read.iter().zip(&entries) {
                prop_assert_eq!(DirEntry { offset: 0, ..*read }, *made);
            }
            let mut again = bytes.clone();
            for slot in Slots::new(&bytes, &layout, PLACE) {
                let slot = slot.unwrap();
                let (at, len) = (slot.offset as usize, slot.rec_len as usize);
                slot.entry.unwrap().encode(&mut again[at..at + len], &layout);
            }
            prop_assert_eq!(again, bytes);
        }

        #[test]
        fn damaged_blocks_are_read_or_refused(
            (names, layout) in directories(),
            damage in proptest::collection::vec((0usize..1024, any::<u8>()), 1..5),
        ) {
            let entries = entries_of(&names, &layout);
            prop_assume!(!entries.is_empty());
            let mut bytes = block(&entries, &layout);
            for (at, byte) in damage {
                bytes[at] = byte;
            }
            let slots = Slots::new(&bytes, &layout, PLACE);
            let (mut from, mut seen) = (0, Vec::new());
            for slot in slots.clone() {
                let Ok(slot) = slot else { break };
                prop_assert_eq!(slot.offset, from);
                from += slot.rec_len;
                let before = seen.last().map(|slot: &Slot<'_>| slot.offset as usize);
                if let Some(entry) = slot.entry {
                    prop_assert!((1..=1000).contains(&entry.ino) && (1..=NAME_MAX).contains(&entry.name.len()));
                    let is_first = seen.iter().all(|slot| slot.entry.is_none_or(|other| other.name != entry.name));
                    if is_first {
                        let (found_before, span) = slots.find_name(entry.name).unwrap().unwrap();
                        prop_assert_eq!(found_before.map(|span| span.offset), before);
                        let from = before.unwrap_or(0);
                        let among = |most| slots.find_name_among(entry.name, from, most).unwrap();
                        let (found_before, beside) = among(2).unwrap();
                        prop_assert_eq!((found_before.map(|it| it.offset), beside.offset), (before, span.offset));
                        prop_assert!(among(0).is_none() && among(1).is_some() == before.is_none());
                        prop_assert_eq!(
                            (span.offset, span.rec_len, slots.ino_of(span).unwrap()),
                            (slot.offset as usize, slot.rec_len as usize, entry.ino)
                        );
                    }
                }
                seen.push(slot);
                for need in [12, 16, 40] {
                    let room = |slot: &&Slot<'_>| {
                        slot.rec_len as usize - slot.entry.map_or(0, |it| layout.rec_len(it.name)) >= need
                    };
                    if let Some(first) = seen.iter().find(room) {
                        let (span, used) = slots.find_room(0, need).unwrap().unwrap();
                        prop_assert_eq!(span.offset, first.offset as usize);
                        prop_assert_eq!(used, first.entry.map_or(0, |it| layout.rec_len(it.name)));
                    }
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), checksum: bool) {
            let layout = Layout { checksum, ..LAYOUT };
            let slots = Slots::new(&bytes, &layout, PLACE);
            prop_assert!(slots.clone().count() <= bytes.len() / 12 + 1);
            for need in [12, 100, 1000] {
                if let Ok(Some((span, used))) = slots.find_room(0, need) {
                    prop_assert!(used + need <= span.rec_len && span.offset + span.rec_len <= bytes.len());
                }
            }
            for at in 0..bytes.len().saturating_sub(12) {
                if let Ok(Some((_, span))) = slots.find_name(&bytes[at..at + at % 12]) {
                    prop_assert!(span.offset + span.rec_len <= bytes.len());
                    let _ = slots.ino_of(span);
                }
            }
            let _ = (verify_checksum(&bytes, ChecksumSeed::new(0), PLACE), dot_and_dotdot(&bytes, &layout, PLACE));
        }
    }
}
