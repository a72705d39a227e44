//! Changes records in a chain of directory entries: of a block, or of a part of an inline
//! directory.
//!
//! These functions work on bytes only. `insert`, `inline` and `htree::insert` of `dir` call them,
//! and so does `inode::dir_hint`. Finding a
//! record checks the chain from its start to that record, and a change fits the record that was
//! found. A search for a gap, or for a name byte by byte, skips other records by their lengths. A
//! removed record is cleared, so that a name does not stay on the volume longer than its file.

use extern4_disk::Corrupt;
use extern4_disk::dirent::{DirEntry, FileType, Layout, Slots, Span};

use crate::volume::group::to_usize;

/// The offset of the field with the distance to the next record.
const REC_LEN_OFFSET: usize = 4;
/// The offset of the length of the name, of which only this byte is used.
const NAME_LEN_OFFSET: usize = 6;
/// Bytes of an entry before the name.
const HEADER_SIZE: usize = 8;
/// The offset of the file type.
const FILE_TYPE_OFFSET: usize = 7;

/// A gap in a chain that a new record can fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The record that has the unused bytes.
    offset: usize,
    rec_len: usize,
    /// How many bytes of the record are in use; 0 for a free one.
    used: usize,
}

impl Gap {
    /// Returns the offset of the record.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

/// Returns the first gap of at least `need` bytes from the record at `offset` on.
pub(crate) fn find_gap(
    slots: &Slots<'_>,
    offset: usize,
    need: usize,
) -> Result<Option<Gap>, Corrupt> {
    let room = slots.find_room(offset, need)?;
    Ok(room.map(|(span, used)| Gap {
        offset: span.offset,
        rec_len: span.rec_len,
        used,
    }))
}

/// Fills a gap that was found in these bytes with `entry`.
pub(crate) fn fill_gap(bytes: &mut [u8], gap: Gap, entry: &DirEntry<'_>, layout: &Layout) {
    let start = gap.offset + gap.used;
    entry.encode(&mut bytes[start..gap.offset + gap.rec_len], layout);
    if gap.used > 0 {
        set_rec_len(bytes, gap.offset, gap.used);
    }
}

/// Returns the first entry for which `is` returns true, and the position of its record.
pub(crate) fn find<'a>(
    slots: Slots<'a>,
    is: impl Fn(&DirEntry<'a>) -> bool,
) -> Result<Option<(RecordPosition, DirEntry<'a>)>, Corrupt> {
    let mut before = None;
    let mut slack = 0;
    let layout = *slots.layout();
    for slot in slots {
        let slot = slot?;
        let start = to_usize(slot.offset);
        let rec_len = to_usize(slot.rec_len);
        if let Some(entry) = slot.entry.filter(&is) {
            return Ok(Some((
                RecordPosition {
                    before,
                    slack,
                    start,
                    rec_len,
                },
                entry,
            )));
        }
        before = Some((start, rec_len));
        slack = rec_len - slot.entry.map_or(0, |entry| layout.rec_len(entry.name));
    }
    Ok(None)
}

/// Returns the position of the record with exactly this `name`, and its inode. The search does not
/// check the records before it.
pub(crate) fn find_name(
    slots: &Slots<'_>,
    name: &[u8],
) -> Result<Option<(RecordPosition, u32)>, Corrupt> {
    slots
        .find_name(name)?
        .map(|(before, span)| locate(slots, before, span))
        .transpose()
}

/// Finds the entry `name` as `find_name` does, among the first `most` records after the one at
/// `at`.
pub(crate) fn find_name_near(
    slots: &Slots<'_>,
    name: &[u8],
    at: usize,
    most: usize,
) -> Result<Option<(RecordPosition, u32)>, Corrupt> {
    let found = slots.find_name_among(name, at, most + 1)?;
    // A record at `at` itself is no find: the record before it is not known.
    let found = found.filter(|(before, _)| before.is_some());
    found
        .map(|(before, span)| locate(slots, before, span))
        .transpose()
}

/// Returns the position of a record, and the inode of its entry.
fn locate(
    slots: &Slots<'_>,
    before: Option<Span>,
    span: Span,
) -> Result<(RecordPosition, u32), Corrupt> {
    let slack = before.map_or(0, |before| slots.slack_of(before));
    let before = before.map(|before| (before.offset, before.rec_len));
    Ok((
        RecordPosition {
            before,
            slack,
            start: span.offset,
            rec_len: span.rec_len,
        },
        slots.ino_of(span)?,
    ))
}

/// The position of a record in a chain, and of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordPosition {
    before: Option<(usize, usize)>,
    /// How many bytes of the record before it are unused.
    slack: usize,
    start: usize,
    rec_len: usize,
}

impl RecordPosition {
    /// Returns the offset of the record.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Returns the distance to the next record, in bytes.
    pub(crate) fn rec_len(&self) -> usize {
        self.rec_len
    }

    /// Returns how many bytes are free there once the record is removed.
    pub(crate) fn room(&self) -> usize {
        self.slack + self.rec_len
    }

    /// Returns the offset of the record that gets its bytes once it is removed.
    pub(crate) fn left(&self) -> usize {
        self.before.map_or(self.start, |(before, _)| before)
    }
}

/// Removes a record from the chain in which it was found. The record before it gets its bytes.
pub(crate) fn remove(bytes: &mut [u8], record: RecordPosition) {
    let RecordPosition {
        before,
        start,
        rec_len,
        ..
    } = record;
    clear(bytes, record);
    match before {
        Some((before, len)) => set_rec_len(bytes, before, len + rec_len),
        None => free_record(&mut bytes[start..start + rec_len]),
    }
}

/// Changes the name of a record's entry. The record must be long enough.
pub(crate) fn rename(
    bytes: &mut [u8],
    record: RecordPosition,
    entry: &DirEntry<'_>,
    layout: &Layout,
) {
    clear(bytes, record);
    entry.encode(
        &mut bytes[record.start..record.start + record.rec_len],
        layout,
    );
}

/// Clears the entry of a record, and not the gap after it, which may be most of the block. The
/// fields after an entry's name fit into 8 bytes.
fn clear(bytes: &mut [u8], RecordPosition { start, rec_len, .. }: RecordPosition) {
    let len = HEADER_SIZE + usize::from(bytes[start + NAME_LEN_OFFSET]) + 8;
    bytes[start..start + len.min(rec_len)].fill(0);
}

/// Makes the entry of a record refer to another inode.
pub(crate) fn replace(
    bytes: &mut [u8],
    record: RecordPosition,
    ino: u32,
    kind: FileType,
    layout: &Layout,
) {
    let at = record.start;
    bytes[at..at + REC_LEN_OFFSET].copy_from_slice(&ino.to_le_bytes());
    if layout.filetype {
        bytes[at + FILE_TYPE_OFFSET] = kind.to_raw();
    }
}

/// Fills all of `bytes` with these entries. Each record is as short as possible, except the last,
/// which gets the rest.
pub(crate) fn fill<'e>(
    bytes: &mut [u8],
    entries: impl IntoIterator<Item = &'e DirEntry<'e>>,
    layout: &Layout,
) {
    bytes.fill(0);
    let mut start = 0;
    let mut at = 0;
    for entry in entries {
        let len = layout.rec_len(entry.name);
        entry.encode(&mut bytes[at..at + len], layout);
        (start, at) = (at, at + len);
    }
    let rest = bytes.len() - start;
    if at == 0 {
        free_record(bytes);
    } else {
        set_rec_len(bytes, start, rest);
    }
}

/// Makes `record` one free record.
pub(crate) fn free_record(record: &mut [u8]) {
    let len = record.len();
    // A part of an inline directory may be shorter than any record.
    if len >= 8 {
        record[..8].fill(0);
        set_rec_len(record, 0, len);
    }
}

/// Sets the distance from the record at `offset` to the next. For 64 KiB, which do not fit into the
/// field, the format has a special value.
pub(crate) fn set_rec_len(bytes: &mut [u8], offset: usize, rec_len: usize) {
    let raw = u16::try_from(rec_len).unwrap_or(u16::MAX).to_le_bytes();
    bytes[offset + REC_LEN_OFFSET..offset + REC_LEN_OFFSET + 2].copy_from_slice(&raw);
}

#[cfg(test)]
mod tests {
    use super::*;
    use extern4_disk::dirent::Entries;
    use extern4_disk::{Place, Structure};

    const PLACE: Place = Place::new(Structure::DirectoryBlock).ino(2);

    fn layout(block_size: u32) -> Layout {
        Layout {
            block_size,
            inodes: 1000,
            filetype: true,
            checksum: false,
            encrypted: false,
            casefold: false,
        }
    }

    fn entry(ino: u32, name: &[u8]) -> DirEntry<'_> {
        DirEntry {
            ino,
            kind: FileType::Regular,
            name,
            offset: 0,
            hash: None,
        }
    }

    fn names(bytes: &[u8], layout: &Layout) -> Vec<(Vec<u8>, u32)> {
        let all = Entries::without_tail(bytes, layout, PLACE)
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        all.iter()
            .map(|entry| (entry.name.to_vec(), entry.ino))
            .collect()
    }

    #[test]
    fn records_come_and_go() {
        for size in [1024, 4096, 65536] {
            let layout = layout(size);
            let mut bytes = vec![0xAA; to_usize(size)];
            fill(&mut bytes, &[], &layout);
            assert!(names(&bytes, &layout).is_empty());
            let mut model = Vec::new();
            for ino in 1.. {
                let name = vec![b'a' + (ino % 26) as u8; 1 + ino as usize * 7 % 255];
                let entry = entry(ino, &name);
                let slots = Slots::without_tail(&bytes, &layout, PLACE);
                let Some(gap) = find_gap(&slots, 0, layout.rec_len(&name)).unwrap() else {
                    break;
                };
                fill_gap(&mut bytes, gap, &entry, &layout);
                model.push((name, ino));
                assert_eq!(names(&bytes, &layout), model);
            }
            for index in [1, 0, 0, 3, 2] {
                if index >= model.len() {
                    continue;
                }
                let slots = Slots::without_tail(&bytes, &layout, PLACE);
                let (record, ino) = find_name(&slots, &model[index].0).unwrap().unwrap();
                let (same, entry) = find(slots, |entry| entry.name == model[index].0)
                    .unwrap()
                    .unwrap();
                assert_eq!((record, ino, entry.ino), (same, model[index].1, ino));
                remove(&mut bytes, record);
                model.remove(index);
                assert_eq!(names(&bytes, &layout), model, "{size}");
            }
        }
    }
}
