//! Inline data: small files and directories stored inside their inode.
//!
//! `ext4` reads and changes inline data with it; the builder and the command read it. Decoding
//! fails if the two places hold fewer bytes than the size says.
//!
//! With the `inline_data` feature the first 60 bytes of a file's contents take the place of the
//! inode's block map. The rest, if any, is the value of the attribute `system.data` in the inode.
//! The inode's size says how many bytes of the two count.
//!
//! A directory uses the same two places, each with its own chain of entries. It has no records
//! for `.` and `..`: the first four bytes hold the parent's inode number.
//!
//! ```text
//! i_block, file:       | contents 60                     |    system.data: | the rest     |
//! i_block, directory:  | parent 4 | entries 56           |    system.data: | more entries |
//! ```
//!
//! Format: the kernel's ext4 documentation, "Inline Data".

use crate::dirent::{Entries, Layout};
use crate::xattr::{self, NameIndex};
use crate::{Corrupt, CorruptKind, Place};

/// Bytes of contents that fit in `i_block`.
pub const HEAD_SIZE: usize = 60;
/// Where the entries of a directory start in `i_block`.
const ENTRIES_OFFSET: usize = 4;
/// The name of the attribute that holds the rest, with its prefix's number.
pub const XATTR: (NameIndex, &[u8]) = (NameIndex::SYSTEM, b"data");

/// The contents of a file stored inside its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    head: &'a [u8],
    tail: &'a [u8],
}

impl<'a> Data<'a> {
    /// Returns the `size` bytes of contents in `i_block` and in `attribute`, the value of
    /// `system.data` (empty if there is none).
    ///
    /// # Errors
    /// A size larger than the two places hold.
    pub fn decode(
        i_block: &'a [u8; HEAD_SIZE],
        attribute: &'a [u8],
        size: u64,
        place: Place,
    ) -> Result<Self, Corrupt> {
        let room = HEAD_SIZE + attribute.len();
        let size = usize::try_from(size)
            .ok()
            .filter(|&size| size <= room)
            .ok_or_else(|| {
                place.corrupt(CorruptKind::Truncated {
                    need: size,
                    have: room as u64,
                })
            })?;
        Ok(Self {
            head: &i_block[..size.min(HEAD_SIZE)],
            tail: &attribute[..size.saturating_sub(HEAD_SIZE)],
        })
    }

    /// Returns how many bytes there are.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Returns whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies contents from byte `offset` on into `buf`. Returns the number of bytes copied; 0 at
    /// the end and beyond.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut copied = copy(self.head, offset, buf);
        if copied < buf.len() {
            copied += copy(
                self.tail,
                offset.saturating_sub(self.head.len()),
                &mut buf[copied..],
            );
        }
        copied
    }

    /// Returns the contents in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        [self.head, self.tail].concat()
    }

    /// Returns the contents as the two places hold them.
    pub fn parts(&self) -> (&'a [u8], &'a [u8]) {
        (self.head, self.tail)
    }
}

fn copy(from: &[u8], offset: usize, to: &mut [u8]) -> usize {
    let rest = from.get(offset..).unwrap_or(&[]);
    let len = rest.len().min(to.len());
    to[..len].copy_from_slice(&rest[..len]);
    len
}

/// A directory stored inside its inode.
#[derive(Clone, Copy, Debug)]
pub struct Dir<'a> {
    /// The inode of the parent directory, which `..` names.
    pub parent: u32,
    head: &'a [u8],
    tail: &'a [u8],
}

impl<'a> Dir<'a> {
    /// Returns the directory in `i_block` and in `attribute`, the value of `system.data` (empty if
    /// there is none). [`entries`](Self::entries) checks the entries as it reads them.
    ///
    /// # Errors
    /// A parent outside the volume.
    pub fn decode(
        i_block: &'a [u8; HEAD_SIZE],
        attribute: &'a [u8],
        layout: &Layout,
        place: Place,
    ) -> Result<Self, Corrupt> {
        // OK: the array is longer.
        let (parent, head) = i_block
            .split_first_chunk::<ENTRIES_OFFSET>()
            .expect("60 bytes");
        let parent = u32::from_le_bytes(*parent);
        if parent == 0 || parent > layout.inodes {
            let kind = CorruptKind::InodeOutOfRange {
                field: "inline parent",
                ino: u64::from(parent),
            };
            return Err(place.byte(0).corrupt(kind));
        }
        Ok(Self {
            parent,
            head,
            tail: attribute,
        })
    }

    /// Iterates over the entries, without `.` and `..`: first in `i_block`, then in the
    /// attribute.
    ///
    /// An entry's offset counts from the start of the entry's chain. After an error the iterator
    /// ends.
    pub fn entries(
        &self,
        layout: &Layout,
        place: Place,
    ) -> impl Iterator<Item = <Entries<'a> as Iterator>::Item> {
        let mut head = Entries::without_tail(self.head, layout, place);
        let mut tail = Entries::without_tail(self.tail, layout, place);
        let mut broken = false;
        core::iter::from_fn(move || {
            if broken {
                return None;
            }
            let next = head.next().or_else(|| tail.next());
            broken = matches!(next, Some(Err(_)));
            next
        })
    }

    /// Returns the two chains of entries as bytes.
    pub fn parts(&self) -> (&'a [u8], &'a [u8]) {
        (self.head, self.tail)
    }
}

/// Returns the value of `system.data` among the attributes of an inode; empty if there is none.
///
/// # Errors
/// A value in an EA inode, where inline data never is.
pub fn attribute<'a>(attrs: Option<&xattr::Attrs<'a>>, place: Place) -> Result<&'a [u8], Corrupt> {
    match attrs
        .and_then(|attrs| attrs.get(XATTR.0, XATTR.1))
        .map(|attr| attr.value)
    {
        None => Ok(&[]),
        Some(xattr::Value::Here(value)) => Ok(value),
        Some(xattr::Value::EaInode { .. }) => Err(place.corrupt(CorruptKind::Mismatch {
            what: "inline data is in another inode",
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Structure;
    use crate::dirent::{DirEntry, FileType};

    const PLACE: Place = Place::new(Structure::InlineData).ino(12);
    const LAYOUT: Layout = Layout {
        block_size: 4096,
        inodes: 100,
        filetype: true,
        checksum: true,
        encrypted: false,
        casefold: false,
    };

    #[test]
    fn contents_cross_from_one_place_to_the_other() {
        let head = core::array::from_fn(|at| at as u8);
        let tail: Vec<u8> = (60..100).collect();
        let data = Data::decode(&head, &tail, 95, PLACE).unwrap();
        assert_eq!(data.to_vec(), (0..95).collect::<Vec<u8>>());
        let mut buf = [0; 10];
        for (offset, want) in [
            (0, 0..10u8),
            (55, 55..65),
            (60, 60..70),
            (90, 90..95),
            (95, 0..0),
        ] {
            let len = data.read_at(offset, &mut buf);
            assert_eq!(
                buf[..len].to_vec(),
                want.collect::<Vec<u8>>(),
                "from {offset}"
            );
        }
        assert_eq!(data.read_at(u64::MAX, &mut buf), 0);
        let kind = CorruptKind::Truncated {
            need: 101,
            have: 100,
        };
        assert_eq!(
            Data::decode(&head, &tail, 101, PLACE),
            Err(PLACE.corrupt(kind))
        );
        assert!(Data::decode(&head, &tail, u64::MAX, PLACE).is_err());
        assert_eq!(
            Data::decode(&head, &[], 3, PLACE).unwrap().parts(),
            (&head[..3], &[][..])
        );
    }

    fn put(ino: u32, name: &[u8], record: &mut [u8]) {
        DirEntry {
            ino,
            kind: FileType::Regular,
            name,
            offset: 0,
            hash: None,
        }
        .encode(record, &LAYOUT);
    }

    #[test]
    fn entries_of_both_places_follow_each_other() {
        let mut head = [0; HEAD_SIZE];
        let mut tail = [0; 32];
        head[0] = 2;
        put(20, b"first", &mut head[4..20]);
        put(21, b"second", &mut head[20..60]);
        put(22, b"third", &mut tail);
        let dir = Dir::decode(&head, &tail, &LAYOUT, PLACE).unwrap();
        assert_eq!(dir.parent, 2);
        let names: Vec<_> = dir
            .entries(&LAYOUT, PLACE)
            .map(|entry| entry.unwrap().ino)
            .collect();
        assert_eq!(names, [20, 21, 22]);
        head[24] = 41;
        let dir = Dir::decode(&head, &tail, &LAYOUT, PLACE).unwrap();
        let read: Vec<_> = dir
            .entries(&LAYOUT, PLACE)
            .map(|entry| entry.is_ok())
            .collect();
        assert_eq!(read, [true, false]);
        head[0] = 101;
        let kind = CorruptKind::InodeOutOfRange {
            field: "inline parent",
            ino: 101,
        };
        assert_eq!(
            Dir::decode(&head, &[], &LAYOUT, PLACE).unwrap_err().kind,
            kind
        );
    }
}
