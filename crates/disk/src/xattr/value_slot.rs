//! In-place changes of an attribute's value in its inode.
//!
//! `ext4` sets a value of the same length through it, without laying the inode's attributes out
//! again. The caller checks [`ValueSlot::fits`] first; then no other byte of the inode changes. An
//! attribute whose value is elsewhere is not found.

use zerocopy::FromBytes;

use super::{Attrs, IBODY_HEADER_SIZE, NameIndex, RawXattrEntry};
use crate::{Corrupt, Place};

/// The place of an attribute in an inode, and the room that its value has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSlot {
    /// The offset of its entry after the header.
    entry: usize,
    /// The offset of its value after the header.
    value: usize,
    len: usize,
    /// Bytes up to the next value, or to the end.
    room: usize,
}

impl ValueSlot {
    /// Finds the attribute of that name in `space`, and checks `space` as [`Attrs::in_inode`] does.
    /// `None` unless the attribute exists and has a nonempty value in the inode.
    ///
    /// # Errors
    /// Any broken rule of the format.
    pub fn find(
        space: &[u8],
        place: Place,
        (index, name): (NameIndex, &[u8]),
    ) -> Result<Option<Self>, Corrupt> {
        let Some(attrs) = Attrs::unchecked(space) else {
            return Ok(None);
        };
        let mut found = None;
        attrs.check(place, IBODY_HEADER_SIZE, |at, its_index, its_name| {
            if found.is_none() && its_index == index && its_name == name {
                found = Some(at);
            }
        })?;
        Ok(found.and_then(|at| Self::of_entry(attrs.base, at)))
    }

    /// Returns the place of the attribute whose entry, already checked, is at `entry`.
    fn of_entry(base: &[u8], entry: usize) -> Option<Self> {
        let (raw, _) = RawXattrEntry::ref_from_prefix(base.get(entry..)?).ok()?;
        let value = usize::from(raw.e_value_offs.get());
        let len = raw.e_value_size.get() as usize;
        let room = len.next_multiple_of(4).min(base.len().checked_sub(value)?);
        (raw.e_value_inum.get() == 0 && len > 0).then_some(Self {
            entry,
            value,
            len,
            room,
        })
    }

    /// Returns whether a value of `len` bytes takes as much room as the stored one.
    pub fn fits(&self, len: usize) -> bool {
        len.next_multiple_of(4) == self.len.next_multiple_of(4) && len <= self.room
    }

    /// Returns whether the stored value is `value`. `space` must be the one that
    /// [`find`](Self::find) got.
    pub fn has(&self, space: &[u8], value: &[u8]) -> bool {
        let base = space.get(IBODY_HEADER_SIZE..).unwrap_or_default();
        base.get(self.value..).and_then(|rest| rest.get(..self.len)) == Some(value)
    }

    /// Writes `value`, which [fits](Self::fits), over the stored one. The entry gets no hash, like
    /// every entry of an inode whose value is in the same inode. `space` must be the one that
    /// [`find`](Self::find) got.
    ///
    /// # Panics
    /// If the value does not fit. With another `space`, this may panic or overwrite other bytes.
    pub fn overwrite(&self, space: &mut [u8], value: &[u8]) {
        assert!(
            self.fits(value.len()),
            "{} bytes in place of {}",
            value.len(),
            self.len
        );
        let base = &mut space[IBODY_HEADER_SIZE..];
        let (entry, _) =
            RawXattrEntry::mut_from_prefix(&mut base[self.entry..]).expect("an entry is there");
        // OK: fewer than a block has.
        entry.e_value_size.set(value.len() as u32);
        entry.e_hash.set(0);
        let (new, padding) = base[self.value..self.value + self.room].split_at_mut(value.len());
        new.copy_from_slice(value);
        padding.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Attr, Value, encode_in_inode};
    use super::*;
    use crate::Structure;

    const PLACE: Place = Place::new(Structure::Xattr);

    fn attr<'a>(name: &'a [u8], value: Value<'a>) -> Attr<'a> {
        Attr {
            index: NameIndex::USER,
            name,
            value,
            hash: 7,
        }
    }

    fn slot(space: &[u8], name: &[u8]) -> Option<ValueSlot> {
        ValueSlot::find(space, PLACE, (NameIndex::USER, name)).unwrap()
    }

    #[test]
    fn a_value_is_written_over_where_it_stands() {
        let elsewhere = Value::EaInode {
            ino: 12,
            size: 70_000,
        };
        let mut list = [
            attr(b"one", Value::Here(b"first")),
            attr(b"two", Value::Here(b"second")),
            attr(b"three", Value::Here(b"")),
            attr(b"four", elsewhere),
        ];
        let mut space = [0xEE; 120];
        encode_in_inode(&list, &mut space).unwrap();
        for value in [b"123456".as_slice(), b"12345", b"12345678"] {
            let place = slot(&space, b"two").unwrap();
            assert!(!place.has(&space, value) && !place.has(&space, b""));
            assert!(place.fits(value.len()) && !place.fits(4) && !place.fits(9) && !place.fits(0));
            place.overwrite(&mut space, value);
            assert!(slot(&space, b"two").unwrap().has(&space, value));
            // The same bytes as if the value had been encoded there.
            list[1] = Attr {
                hash: 0,
                ..attr(b"two", Value::Here(value))
            };
            let mut encoded = [0xEE; 120];
            encode_in_inode(&list, &mut encoded).unwrap();
            assert_eq!(space, encoded);
        }
        assert_eq!(
            [&b"three"[..], b"four", b"five"].map(|name| slot(&space, name)),
            [None; 3]
        );
    }

    /// The format allows a value that begins at any byte, though no writer makes one.
    #[test]
    fn a_value_at_the_very_end_has_no_padding() {
        let mut space = [0; 64];
        encode_in_inode(&[attr(b"n", Value::Here(b"abc"))], &mut space).unwrap();
        // The offset of its value is after the header and the first two bytes of the entry.
        space[6..8].copy_from_slice(&57u16.to_le_bytes());
        let slot = slot(&space, b"n").unwrap();
        assert!(slot.fits(3) && slot.fits(1) && !slot.fits(4));
        slot.overwrite(&mut space, b"z");
        assert_eq!(space[61..], *b"z\0\0");
    }
}
