//! Tests of directory blocks: records are read, refused and found as the format says.

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
    DirEntry {
        ino,
        kind: FileType::Regular,
        name,
        offset: 0,
        hash: None,
    }
}

/// Returns a block of these entries, each as short as possible but the last, which takes the rest.
fn block(entries: &[DirEntry<'_>], layout: &Layout) -> Vec<u8> {
    let mut block = vec![0; layout.block_size as usize];
    let end = if layout.checksum {
        block.len() - TAIL_SIZE
    } else {
        block.len()
    };
    let mut at = 0;
    for (index, entry) in entries.iter().enumerate() {
        let next = if index + 1 == entries.len() {
            end
        } else {
            at + layout.rec_len(entry.name)
        };
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
    let without = Layout {
        filetype: false,
        ..LAYOUT
    };
    entry(0x0102, b"hello").encode(&mut record, &without);
    assert_eq!(record[7], 0);
}

#[test]
fn the_first_names_are_dot_and_dotdot() {
    let good = block(&[entry(5, b"."), entry(2, b".."), entry(7, b"x")], &LAYOUT);
    assert_eq!(dot_and_dotdot(&good, &LAYOUT, PLACE), Ok((5, 2)));
    let bad = block(&[entry(5, b"."), entry(7, b"x")], &LAYOUT);
    let what = "the second entry of a directory is not `..`";
    assert_eq!(
        dot_and_dotdot(&bad, &LAYOUT, PLACE),
        Err(PLACE.corrupt(CorruptKind::Mismatch { what }))
    );
}

#[test]
fn lookups_find_names_and_check_what_comes_before() {
    let mut block = block(
        &[entry(5, b"a"), entry(6, b"bb"), entry(7, b"ccc")],
        &LAYOUT,
    );
    let found = find(&block, b"bb", &LAYOUT, PLACE).unwrap().unwrap();
    assert_eq!(
        (found.ino, found.kind, found.offset),
        (6, FileType::Regular, 12)
    );
    assert_eq!(find(&block, b"b", &LAYOUT, PLACE), Ok(None));
    block[16] = 13;
    assert!(find(&block, b"a", &LAYOUT, PLACE).is_ok());
    let kind = CorruptKind::Field {
        field: "rec_len",
        value: 13,
    };
    assert_eq!(
        find(&block, b"ccc", &LAYOUT, PLACE),
        Err(PLACE.offset(12).corrupt(kind))
    );
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
    let mismatch = CorruptKind::Mismatch {
        what: "a name holds a slash or a NUL",
    };
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
    let range = CorruptKind::InodeOutOfRange {
        field: "inode",
        ino: 1001,
    };
    assert_eq!(broken(12, &[0xE9, 3]), (range, Some(12)));
    let short = read(&good[..15], &LAYOUT).unwrap_err();
    assert_eq!(short.kind, CorruptKind::Truncated { need: 12, have: 3 });
    // Free space keeps the bytes of earlier entries.
    let mut free = good.clone();
    free[12..16].fill(0);
    free[19..24].fill(b'/');
    assert_eq!(read(&free, &LAYOUT).unwrap().len(), 1);
}

#[test]
fn blocks_of_64_kib_have_two_numbers_for_their_size() {
    let layout = Layout {
        block_size: 65536,
        ..LAYOUT
    };
    for raw in [0u16, 0xFFFF] {
        let mut bytes = block(&[entry(5, b"only")], &layout);
        assert_eq!(bytes[4..6], [0xFF, 0xFF]);
        bytes[4..6].copy_from_slice(&raw.to_le_bytes());
        let slots: Result<Vec<_>, _> = Slots::new(&bytes, &layout, PLACE).collect();
        assert_eq!(slots.unwrap()[0].rec_len, 65536);
        // A record that does not start the block cannot be so long.
        bytes[4..6].copy_from_slice(&16u16.to_le_bytes());
        bytes[20..22].copy_from_slice(&raw.to_le_bytes());
        assert!(Slots::new(&bytes, &layout, PLACE).any(|slot| slot.is_err()));
    }
}

#[test]
fn without_filetype_names_have_long_lengths() {
    let layout = Layout {
        filetype: false,
        ..LAYOUT
    };
    let mut bytes = block(&[entry(5, b"a"), entry(6, &[b'n'; 255])], &layout);
    let entries = read(&bytes, &layout).unwrap();
    assert_eq!(
        (entries[1].name.len(), entries[1].kind),
        (255, FileType::Unknown)
    );
    bytes[7] = 1;
    assert_eq!(
        read(&bytes, &layout).unwrap_err().kind,
        CorruptKind::Field {
            field: "name_len",
            value: 257
        }
    );
}

#[test]
fn encrypted_and_folded_names_carry_their_hash() {
    let layout = Layout {
        encrypted: true,
        casefold: true,
        ..LAYOUT
    };
    let hash = Some(StoredHash {
        major: 0xAABB_CCDC,
        minor: 7,
    });
    let names = [
        entry(5, b"."),
        entry(2, b".."),
        DirEntry {
            hash,
            ..entry(9, b"/cipher\0text\xFFxxxx")
        },
    ];
    let bytes = block(&names, &layout);
    let read = read(&bytes, &layout).unwrap();
    assert_eq!(
        (read[0].hash, read[1].hash, read[2].hash),
        (None, None, hash)
    );
    assert_eq!(read[2].name, names[2].name);
    assert_eq!(layout.rec_len(b".."), 12);
    assert_eq!(layout.rec_len(b"...."), 20);
}

#[test]
fn a_checksum_covers_all_but_itself() {
    let layout = Layout {
        checksum: true,
        ..LAYOUT
    };
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
        kind: if layout.filetype {
            FileType::from_raw(*kind).unwrap()
        } else {
            FileType::Unknown
        },
        name: &name.as_bytes()[..name.len().min(NAME_MAX)],
        offset: 0,
        hash: (layout.hashes_in_entries() && !matches!(name.as_str(), "." | "..")).then_some(
            StoredHash {
                major: *ino,
                minor: 3,
            },
        ),
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
            let at = slot.offset as usize;
            let len = slot.rec_len as usize;
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
        let mut from = 0;
        let mut seen = Vec::new();
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
                    let (found_before, near) = among(2).unwrap();
                    prop_assert_eq!((found_before.map(|it| it.offset), near.offset), (before, span.offset));
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
