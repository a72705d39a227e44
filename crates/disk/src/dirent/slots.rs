//! The records of a directory block, used or free.
//!
//! `Entries` and the checker walk with [`Slots`], which checks each record before it returns it.
//! Lookups and insertions of `ext4` use the faster searches. These check the record that they
//! return. Of the others they check only that each leads to the next. No walk leaves the block or
//! goes on for ever.

use core::iter::FusedIterator;

use zerocopy::FromBytes;

use super::{
    DirEntry, FileType, HEADER_SIZE, Layout, MIN_REC_LEN, NAME_MAX, RawDirEntryHash, StoredHash,
    TAIL_SIZE, is_dot_or_dotdot,
};
use crate::{Corrupt, CorruptKind, Place};

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

/// The records of a directory block, used or not. The iterator checks each as it reaches it.
///
/// After an error the iterator ends, because the records after a broken one cannot be found.
#[derive(Clone, Debug)]
pub struct Slots<'a> {
    /// All records, and nothing after them.
    bytes: &'a [u8],
    at: usize,
    layout: Layout,
    place: Place,
}

impl<'a> Slots<'a> {
    /// Iterates over the records of a block of a linear directory, or of a leaf of a hashed one:
    /// all but the checksum tail.
    pub fn new(block: &'a [u8], layout: &Layout, place: Place) -> Self {
        let end = if layout.checksum {
            block.len().saturating_sub(TAIL_SIZE)
        } else {
            block.len()
        };
        Self::without_tail(&block[..end], layout, place)
    }

    /// Iterates over the records of bytes that have no checksum tail: the root of a hash tree, or a
    /// part of an inline directory.
    pub fn without_tail(bytes: &'a [u8], layout: &Layout, place: Place) -> Self {
        Self {
            bytes,
            at: 0,
            layout: *layout,
            place,
        }
    }

    /// Returns the layout of the records.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the first record from here on whose entry has `name`, byte by byte, and the record
    /// before it.
    ///
    /// This takes a fraction of the time of iterating. Of the other records it checks only that
    /// each leads to the next.
    ///
    /// # Errors
    /// A record before the match after which no further record can be found.
    pub fn find_name(&self, name: &[u8]) -> Result<Option<(Option<Span>, Span)>, Corrupt> {
        self.search(name, self.at, || true)
    }

    /// Returns what [`find_name`](Self::find_name) does, among at most `most` records from the one
    /// at byte `offset` on.
    ///
    /// # Errors
    /// As [`find_name`](Self::find_name).
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
        offset: usize,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<Option<(Option<Span>, Span)>, Corrupt> {
        let end = NameEnd::of(name);
        let len_mask = if self.layout.filetype { 0xFF } else { 0xFFFF };
        let len = name.len() as u64;
        let mut rest = &self.bytes[offset..];
        // Bytes from the record before: its `Span` would not stay in registers.
        let mut step = 0;
        loop {
            let (header, next) = match split_record(rest) {
                Some(record) => record,
                None if rest.is_empty() => return Ok(None),
                None => self.split_unusual(rest)?,
            };
            if !goes_on() {
                return Ok(None);
            }
            // Names in one directory often begin alike, so the end is compared first. The lower
            // half of the header is the inode.
            if header >> 48 & len_mask == len
                && end.is_at(rest, name.len())
                && header << 32 != 0
                && rest[HEADER_SIZE..].starts_with(name)
            {
                let at = self.bytes.len() - rest.len();
                let before = (at > offset).then(|| self.span_at(at - step)).transpose()?;
                return Ok(Some((before, self.span_at(at)?)));
            }
            step = rest.len() - next.len();
            rest = next;
        }
    }

    /// Splits a record off `rest`, the end of these records, that [`split_record`] does not split.
    #[cold]
    fn split_unusual(&self, rest: &'a [u8]) -> Result<(u64, &'a [u8]), Corrupt> {
        let span = self.span_at(self.bytes.len() - rest.len())?;
        Ok((span.header(), &rest[span.rec_len..]))
    }

    /// Returns the first record, from the one at byte `offset` on, with at least `need` unused
    /// bytes, and the number of its unused bytes. The checks are the checks of
    /// [`find_name`](Self::find_name), and that names fit into their records.
    ///
    /// # Errors
    /// A record from there on after which no further record can be found, or whose name does not
    /// fit into it.
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

    /// Returns the inode that the entry `span` of these records stands for.
    ///
    /// # Errors
    /// A name that does not fit into the record, or an inode that the volume does not have.
    pub fn ino_of(&self, span: Span) -> Result<u32, Corrupt> {
        self.name_of(span)?;
        if span.ino > self.layout.inodes {
            let kind = CorruptKind::InodeOutOfRange {
                field: "inode",
                ino: u64::from(span.ino),
            };
            return Err(self.place.byte(span.offset).corrupt(kind));
        }
        Ok(span.ino)
    }

    /// Returns how many bytes of one of these records are unused: all of them if its name does not
    /// fit.
    pub fn slack_of(&self, span: Span) -> usize {
        span.rec_len - self.used_of(span).unwrap_or(0)
    }

    /// Returns how many bytes of a record are in use.
    #[inline(always)]
    fn used_of(&self, span: Span) -> Result<usize, Corrupt> {
        if span.is_free() {
            return Ok(0);
        }
        let name_len = span.name_len(&self.layout);
        let used = (HEADER_SIZE + name_len).next_multiple_of(4);
        if name_len.wrapping_sub(1) >= NAME_MAX
            || used > span.rec_len
            || self.layout.hashes_in_entries()
        {
            return self.name_of(span).map(|name| self.layout.rec_len(name));
        }
        Ok(used)
    }

    /// Returns the name of a record that is in use, without checking the name's bytes.
    fn name_of(&self, span: Span) -> Result<&'a [u8], Corrupt> {
        let name_len = span.name_len(&self.layout);
        let field = |field, value: usize| {
            let kind = CorruptKind::Field {
                field,
                value: value as u64,
            };
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

    /// Returns the record at `at`, where one has to be.
    #[inline(always)]
    fn span_at(&self, at: usize) -> Result<Span, Corrupt> {
        let rest = &self.bytes[at..];
        let Some(header) = rest.first_chunk::<HEADER_SIZE>() else {
            return Err(self.truncated(at));
        };
        let header = u64::from_le_bytes(*header);
        // OK, all three: parts of the number.
        let ino = header as u32;
        let raw = (header >> 32) as u16;
        let name_len = (header >> 48) as u16;
        let mut rec_len = usize::from(raw);
        if !is_rec_len(rec_len, rest.len()) {
            rec_len = self.unusual_rec_len(at, raw)?;
        }
        Ok(Span {
            offset: at,
            rec_len,
            ino,
            name_len,
        })
    }

    /// Returns the one length that does not fit into its field, if `raw` stands for it.
    #[cold]
    fn unusual_rec_len(&self, at: usize, raw: u16) -> Result<usize, Corrupt> {
        let rec_len = self.layout.decode_rec_len(raw);
        if is_rec_len(rec_len, self.bytes.len() - at) {
            Ok(rec_len)
        } else {
            let kind = CorruptKind::Field {
                field: "rec_len",
                value: rec_len as u64,
            };
            Err(self.place.byte(at).corrupt(kind))
        }
    }

    #[cold]
    fn truncated(&self, at: usize) -> Corrupt {
        let have = (self.bytes.len() - at) as u64;
        self.place.byte(at).corrupt(CorruptKind::Truncated {
            need: MIN_REC_LEN as u64,
            have,
        })
    }

    #[inline]
    fn decode(&self) -> Result<Slot<'a>, Corrupt> {
        let span = self.span_at(self.at)?;
        // OK, both: inside a block, which has at most 65536 bytes.
        let offset = span.offset as u32;
        let rec_len = span.rec_len as u32;
        if span.is_free() {
            // Only the length of free space matters; the writer that freed it may have left the
            // name there.
            return Ok(Slot {
                entry: None,
                offset,
                rec_len,
            });
        }
        let ino = self.ino_of(span)?;
        let name = self.name_of(span)?;
        if !self.layout.encrypted && has_slash_or_nul(name) {
            return Err(self.corrupt(CorruptKind::Mismatch {
                what: "a name holds a slash or a NUL",
            }));
        }
        let kind = if self.layout.filetype {
            let raw = span.file_type();
            FileType::from_raw(raw).ok_or_else(|| self.field("file_type", u64::from(raw)))?
        } else {
            FileType::Unknown
        };
        let hash = if self.layout.hashes_in_entries() && !is_dot_or_dotdot(name) {
            let end = self.at + self.layout.rec_len(name);
            RawDirEntryHash::ref_from_bytes(&self.bytes[end - size_of::<RawDirEntryHash>()..end])
                .ok()
                .map(|raw| StoredHash {
                    major: raw.hash.get(),
                    minor: raw.minor_hash.get(),
                })
        } else {
            None
        };
        Ok(Slot {
            entry: Some(DirEntry {
                ino,
                kind,
                name,
                offset,
                hash,
            }),
            offset,
            rec_len,
        })
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
        self.at = slot
            .as_ref()
            .map_or(self.bytes.len(), |slot| self.at + slot.rec_len as usize);
        Some(slot)
    }
}

impl FusedIterator for Slots<'_> {}

/// Returns whether a record of that length can exist, given the `room` up to the end of the
/// records.
#[inline(always)]
fn is_rec_len(rec_len: usize, room: usize) -> bool {
    rec_len >= MIN_REC_LEN && rec_len.is_multiple_of(4) && rec_len <= room
}

/// Splits the first record off `rest`. Returns its header and the bytes after the record, or `None`
/// if there is no whole record, or its length is not stored as a number of bytes.
#[inline(always)]
fn split_record(rest: &[u8]) -> Option<(u64, &[u8])> {
    let header = u64::from_le_bytes(*rest.first_chunk::<HEADER_SIZE>()?);
    // OK: the length of the record.
    let rec_len = (header >> 32) as u16;
    // Whether it is a multiple of 4 and long enough, in one comparison: the rotation makes any
    // other number a large one.
    const SHORTEST: u16 = MIN_REC_LEN as u16 / 4;
    if rec_len.rotate_right(2).wrapping_sub(SHORTEST) > u16::MAX / 4 - SHORTEST {
        return None;
    }
    Some((header, rest.get(usize::from(rec_len)..)?))
}

/// A record of a directory block. The only check so far is that another record, or the end, follows
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Where in the block it starts.
    pub offset: usize,
    /// Bytes to the next record.
    pub rec_len: usize,
    ino: u32,
    /// The length of the name, with `file_type` as its upper half.
    name_len: u16,
}

impl Span {
    /// Returns the inode, and the lengths of the record and of the name, as the record begins. A
    /// length of the record that does not fit into its field is missing.
    fn header(self) -> u64 {
        u64::from(self.ino) | u64::from(self.name_len) << 48
    }

    #[inline(always)]
    fn is_free(self) -> bool {
        self.ino == 0
    }

    #[inline(always)]
    fn name_len(self, layout: &Layout) -> usize {
        usize::from(if layout.filetype {
            self.name_len & 0xFF
        } else {
            self.name_len
        })
    }

    #[inline]
    fn file_type(self) -> u8 {
        self.name_len.to_be_bytes()[0]
    }
}

/// The last bytes of a name, up to eight, for comparison in one step.
#[derive(Clone, Copy)]
struct NameEnd {
    bytes: u64,
    /// Which of them are the name's.
    mask: u64,
}

impl NameEnd {
    fn of(name: &[u8]) -> Self {
        if let Some(last) = name.last_chunk::<8>() {
            return Self {
                bytes: u64::from_le_bytes(*last),
                mask: u64::MAX,
            };
        }
        // Each byte enters from above.
        let bytes = name
            .iter()
            .fold(0, |bytes, &byte| bytes >> 8 | u64::from(byte) << 56);
        let mask = if name.is_empty() {
            0
        } else {
            u64::MAX << (64 - 8 * name.len())
        };
        Self { bytes, mask }
    }

    /// Returns whether the eight bytes from `at` on end like the name. A short name has the end of
    /// the header before it.
    #[inline(always)]
    fn is_at(self, bytes: &[u8], at: usize) -> bool {
        let there = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
        there.is_some_and(|there| (u64::from_le_bytes(*there) ^ self.bytes) & self.mask == 0)
    }
}

#[inline]
fn has_slash_or_nul(name: &[u8]) -> bool {
    // Without early exit, so that the compiler compares many bytes at once.
    name.iter()
        .fold(false, |found, &byte| found | (byte == b'/') | (byte == 0))
}
