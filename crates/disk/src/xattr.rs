//! Extended attributes: in the inode, in a separate block, and in EA inodes.
//!
//! `ext4`, the builder and the checker read attributes here. No value or name of an [`Attrs`]
//! reaches beyond its bytes.
//!
//! The space after the inode's fields and the block that `i_file_acl` names have the same layout
//! after different headers. Entries grow from the front and end in four zero bytes; values grow
//! from the back.
//!
//! ```text
//! inode: | magic 4   | entry, entry, ... | 0000 | free | value, value, ... |
//! block: | header 32 | entry, entry, ... | 0000 | free | value, value, ... |
//! ```
//!
//! In an inode, a value's offset counts from the first entry; in a block, from the start of the
//! block. The entry stores a name's prefix as a number, a [`NameIndex`]. A value too large for
//! either place fills an inode (the `ea_inode` feature), which the entry names instead.
//!
//! [`Attrs`] borrows the bytes and checks all of them once. Hashes are in [`hash`]. Format: the
//! kernel's ext4 documentation, "Extended Attributes".

pub mod hash;
mod value_slot;

pub use value_slot::ValueSlot;

use extern4_acl::namespace::{self, Prefix};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{self, ChecksumSeed};
use crate::{Corrupt, CorruptKind, Place};

/// The magic number before the attributes, in an inode and in a block.
pub const MAGIC: u32 = 0xEA02_0000;
/// The largest size of a value, and so of an EA inode, that the format allows: 16 MiB. System calls
/// limit values to 64 KiB.
pub const VALUE_SIZE_MAX: u32 = 1 << 24;
/// The most inodes that may share an attribute block.
pub const REFCOUNT_MAX: u32 = 1024;

/// `struct ext4_xattr_ibody_header`, as it stands on the disk.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawXattrIbodyHeader {
    pub h_magic: U32,
}

/// `struct ext4_xattr_header`, as it stands on the disk.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawXattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_blocks: U32,
    pub h_hash: U32,
    pub h_checksum: U32,
    pub h_reserved: [U32; 3],
}

/// `struct ext4_xattr_entry` up to its name, as it stands on the disk.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawXattrEntry {
    pub e_name_len: u8,
    pub e_name_index: u8,
    pub e_value_offs: U16,
    pub e_value_inum: U32,
    pub e_value_size: U32,
    pub e_hash: U32,
}

const IBODY_HEADER_SIZE: usize = size_of::<RawXattrIbodyHeader>();
const HEADER_SIZE: usize = size_of::<RawXattrHeader>();
const ENTRY_SIZE: usize = size_of::<RawXattrEntry>();
/// The zero bytes after the last entry.
const TERMINATOR_SIZE: usize = 4;
const CHECKSUM_OFFSET: usize = core::mem::offset_of!(RawXattrHeader, h_checksum);
const REFCOUNT_OFFSET: usize = core::mem::offset_of!(RawXattrHeader, h_refcount);
const _: () = assert!(IBODY_HEADER_SIZE == 4);
const _: () = assert!(HEADER_SIZE == 32);
const _: () = assert!(ENTRY_SIZE == 16);

/// The number that stands for a name's prefix. A number that the format does not define is not
/// damage and is kept; its attributes have no name that a caller could ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameIndex(pub u8);

impl NameIndex {
    /// `user.`
    pub const USER: Self = Self(1);
    /// `system.posix_acl_access`, the whole name.
    pub const POSIX_ACL_ACCESS: Self = Self(2);
    /// `system.posix_acl_default`, the whole name.
    pub const POSIX_ACL_DEFAULT: Self = Self(3);
    /// `trusted.`
    pub const TRUSTED: Self = Self(4);
    /// The index of Lustre, which has no prefix.
    pub const LUSTRE: Self = Self(5);
    /// `security.`
    pub const SECURITY: Self = Self(6);
    /// `system.`
    pub const SYSTEM: Self = Self(7);
    /// `system.richacl`, the whole name.
    pub const RICHACL: Self = Self(8);
    /// The encryption context, whose name is `c`; no system call shows it.
    pub const ENCRYPTION: Self = Self(9);
    /// `gnu.`, of the Hurd.
    pub const HURD: Self = Self(10);

    /// Returns the row of the table of prefixes that has this number.
    fn row(self) -> Option<&'static Prefix> {
        static ROWS: &[Prefix] = &namespace::PREFIXES;
        ROWS.iter().find(|row| row.ext4_index == self.0)
    }

    /// Returns the text that the number stands for; `None` if it stands for none.
    pub fn prefix(self) -> Option<&'static [u8]> {
        self.row().map(|row| row.text.as_bytes())
    }

    /// Returns whether the prefix is a whole name, so that nothing may follow it.
    pub fn is_whole_name(self) -> bool {
        self.row().is_some_and(|row| row.is_whole)
    }

    /// Splits a full name, such as `user.note`, into its prefix's number and the rest. `None` if no
    /// prefix fits.
    pub fn split(name: &[u8]) -> Option<(Self, &[u8])> {
        namespace::split(name).map(|(row, rest)| (Self(row.ext4_index), rest))
    }
}

/// Where an attribute's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// In the same inode or block as the entry.
    Here(&'a [u8]),
    /// In an inode that holds nothing else.
    EaInode {
        /// That inode.
        ino: u32,
        /// The value's size in bytes.
        size: u32,
    },
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// The prefix of the attribute's name.
    pub index: NameIndex,
    /// The rest of the attribute's name.
    pub name: &'a [u8],
    /// Where the attribute's value is.
    pub value: Value<'a>,
    /// The stored hash of name and value; 0 if the writer did not compute one. See
    /// [`hash::verify_entry`].
    pub hash: u32,
}

impl Attr<'_> {
    /// Returns the name with its prefix; `None` if the prefix's number stands for none.
    pub fn full_name(&self) -> Option<Vec<u8>> {
        Some([self.index.prefix()?, self.name].concat())
    }
}

/// The header of an attribute block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many inodes share the block: 1 to 1024.
    pub refcount: u32,
    /// The hash of all entries; 0 if inodes must not share the block.
    pub hash: u32,
}

/// Checked attributes, borrowed from the inode or the block that holds them.
///
/// Invariants: names and values lie inside the bytes, and no value overlaps an entry or another
/// value.
#[derive(Clone, Copy, Debug)]
pub struct Attrs<'a> {
    /// The bytes from the origin of value offsets to the end of the space for values.
    base: &'a [u8],
    /// Where in `base` the first entry is.
    first: usize,
}

impl<'a> Attrs<'a> {
    /// Checks the space of an inode after its fields. `None` if it does not start with the magic
    /// number: then the inode has no attributes.
    ///
    /// # Errors
    /// Any broken rule of the format.
    pub fn in_inode(space: &'a [u8], place: Place) -> Result<Option<Self>, Corrupt> {
        let attrs = Self::unchecked(space);
        if let Some(attrs) = &attrs {
            attrs.check(place, IBODY_HEADER_SIZE, |_, _, _| ())?;
        }
        Ok(attrs)
    }

    /// Borrows the attributes of an inode as [`in_inode`](Self::in_inode) does, without checking
    /// them.
    #[inline]
    fn unchecked(space: &'a [u8]) -> Option<Self> {
        let (header, base) = RawXattrIbodyHeader::ref_from_prefix(space).ok()?;
        (header.h_magic.get() == MAGIC).then_some(Self { base, first: 0 })
    }

    /// Checks an attribute block, except for its checksum: [`verify_checksum`] does that.
    ///
    /// # Errors
    /// Any broken rule of the format.
    pub fn in_block(block: &'a [u8], place: Place) -> Result<(Header, Self), Corrupt> {
        let header = block_header(block, place)?;
        let field = |field, value| {
            place.corrupt(CorruptKind::Field {
                field,
                value: u64::from(value),
            })
        };
        if header.h_blocks.get() != 1 {
            return Err(field("h_blocks", header.h_blocks.get()));
        }
        let refcount = header.h_refcount.get();
        if refcount == 0 || refcount > REFCOUNT_MAX {
            return Err(field("h_refcount", refcount));
        }
        let attrs = Self {
            base: block,
            first: HEADER_SIZE,
        };
        attrs.check(place, 0, |_, _, _| ())?;
        Ok((
            Header {
                refcount,
                hash: header.h_hash.get(),
            },
            attrs,
        ))
    }

    /// Returns the attributes in stored order.
    pub fn iter(&self) -> Iter<'a> {
        Iter {
            base: self.base,
            at: self.first,
        }
    }

    /// Returns the attribute with that name.
    pub fn get(&self, index: NameIndex, name: &[u8]) -> Option<Attr<'a>> {
        self.iter()
            .find(|attr| attr.index == index && attr.name == name)
    }

    /// Checks that entries ascend by prefix, then by length of name, then by name. Linux keeps the
    /// entries of a block in that order.
    ///
    /// Lookups in this crate do not rely on the order, but the kernel's lookup stops early.
    ///
    /// # Errors
    /// [`CorruptKind::Order`].
    pub fn check_order(&self, place: Place) -> Result<(), Corrupt> {
        let key = |attr: Attr<'a>| (attr.index, attr.name.len(), attr.name);
        if self.iter().map(key).is_sorted_by(|a, b| a < b) {
            return Ok(());
        }
        Err(place.corrupt(CorruptKind::Order {
            what: "attribute entries",
        }))
    }

    /// Returns the number of bytes between the entries' end and the lowest value.
    pub fn free_bytes(&self) -> usize {
        let mut end = self.first;
        let mut low = self.base.len();
        while let Some((raw, _)) = raw_entry(self.base, end) {
            if raw.e_value_inum.get() == 0 && raw.e_value_size.get() > 0 {
                low = low.min(usize::from(raw.e_value_offs.get()));
            }
            end += entry_len(raw);
        }
        low.saturating_sub(end + TERMINATOR_SIZE)
    }

    /// Checks every entry. `lead` is how many bytes are before `base`; it gives errors their place.
    /// Calls `each` with the offset of an entry, its prefix and the rest of its name, before all
    /// entries are known to be valid.
    #[inline]
    fn check(
        &self,
        place: Place,
        lead: usize,
        each: impl FnMut(usize, NameIndex, &[u8]),
    ) -> Result<(), Corrupt> {
        let end = self.check_names(place, lead, each)?;
        // Writers place values from the back, so normally each ends before the previous one begins.
        // Then there is nothing to sort.
        let mut low = usize::MAX;
        let mut descend = true;
        self.check_values(end, place, lead, |start, end| {
            descend &= end <= low;
            low = start;
        })?;
        if descend {
            return Ok(());
        }
        let mut values = Vec::new();
        self.check_values(end, place, lead, |start, end| values.push((start, end)))?;
        values.sort_unstable();
        if values.is_sorted_by(|a, b| a.1 <= b.0) {
            return Ok(());
        }
        Err(place.corrupt(CorruptKind::Order {
            what: "attribute values",
        }))
    }

    /// Checks that every value is after the entries' end. Calls `each` with where a value begins
    /// and where it ends, padding included.
    fn check_values(
        &self,
        entries_end: usize,
        place: Place,
        lead: usize,
        mut each: impl FnMut(usize, usize),
    ) -> Result<(), Corrupt> {
        let mut at = self.first;
        while let Some((raw, _)) = raw_entry(self.base, at) {
            if let Some((start, len)) =
                value_range(raw, self.base.len(), entries_end, place.byte(lead + at))?
            {
                each(start, start + len);
            }
            at += entry_len(raw);
        }
        Ok(())
    }

    /// Checks that the entries with their names fit. Returns where they end, the terminator
    /// included.
    #[inline]
    fn check_names(
        &self,
        place: Place,
        lead: usize,
        mut each: impl FnMut(usize, NameIndex, &[u8]),
    ) -> Result<usize, Corrupt> {
        let mut at = self.first;
        loop {
            let truncated = |need: usize| {
                let kind = CorruptKind::Truncated {
                    need: (lead + need) as u64,
                    have: (lead + self.base.len()) as u64,
                };
                place.byte(lead + at).corrupt(kind)
            };
            let Some(rest) = self
                .base
                .get(at..)
                .filter(|rest| rest.len() >= TERMINATOR_SIZE)
            else {
                return Err(truncated(at + TERMINATOR_SIZE));
            };
            if rest[..TERMINATOR_SIZE] == [0; TERMINATOR_SIZE] {
                return Ok(at + TERMINATOR_SIZE);
            }
            let (raw, behind) =
                RawXattrEntry::ref_from_prefix(rest).map_err(|_| truncated(at + ENTRY_SIZE))?;
            let name_len = usize::from(raw.e_name_len);
            let name = behind
                .get(..name_len)
                .ok_or_else(|| truncated(at + entry_len(raw)))?;
            let index = NameIndex(raw.e_name_index);
            if index.is_whole_name() && name_len > 0 {
                let kind = CorruptKind::Field {
                    field: "e_name_len",
                    value: name_len as u64,
                };
                return Err(place.byte(lead + at).corrupt(kind));
            }
            if name.contains(&0) {
                let what = "an attribute's name holds a NUL";
                return Err(place
                    .byte(lead + at)
                    .corrupt(CorruptKind::Mismatch { what }));
            }
            each(at, index, name);
            at += entry_len(raw);
        }
    }
}

/// Checks where an entry's value is: after `entries_end` and before `space_end`. `None` if it takes
/// no space there.
fn value_range(
    raw: &RawXattrEntry,
    space_end: usize,
    entries_end: usize,
    place: Place,
) -> Result<Option<(usize, usize)>, Corrupt> {
    let field = |field, value| {
        Err(place.corrupt(CorruptKind::Field {
            field,
            value: u64::from(value),
        }))
    };
    let size = raw.e_value_size.get();
    if size > VALUE_SIZE_MAX {
        return field("e_value_size", size);
    }
    if raw.e_value_inum.get() != 0 || size == 0 {
        return Ok(None);
    }
    let start = usize::from(raw.e_value_offs.get());
    // OK: at most 16 MiB.
    let len = (size as usize).next_multiple_of(4);
    if start < entries_end || start + size as usize > space_end {
        return field("e_value_offs", u32::from(raw.e_value_offs.get()));
    }
    Ok(Some((start, len)))
}

/// Returns the entry at `at`, whose bounds the caller has checked, and the bytes after its fixed
/// part. `None` at the terminator.
#[inline]
fn raw_entry(base: &[u8], at: usize) -> Option<(&RawXattrEntry, &[u8])> {
    let rest = base.get(at..)?;
    if *rest.first_chunk::<TERMINATOR_SIZE>()? == [0; TERMINATOR_SIZE] {
        return None;
    }
    RawXattrEntry::ref_from_prefix(rest).ok()
}

#[inline]
fn entry_len(raw: &RawXattrEntry) -> usize {
    (ENTRY_SIZE + usize::from(raw.e_name_len)).next_multiple_of(4)
}

/// The attributes of an [`Attrs`], in stored order.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    base: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Attr<'a>;

    fn next(&mut self) -> Option<Attr<'a>> {
        let (raw, behind) = raw_entry(self.base, self.at)?;
        let ino = raw.e_value_inum.get();
        let size = raw.e_value_size.get();
        let value = if ino != 0 {
            Value::EaInode { ino, size }
        } else if size == 0 {
            Value::Here(&[])
        } else {
            let start = usize::from(raw.e_value_offs.get());
            Value::Here(self.base.get(start..start + size as usize)?)
        };
        self.at += entry_len(raw);
        Some(Attr {
            index: NameIndex(raw.e_name_index),
            name: behind.get(..usize::from(raw.e_name_len))?,
            value,
            hash: raw.e_hash.get(),
        })
    }
}

/// Writes `attrs` into the space of an inode after its fields, values from the back in the given
/// order.
///
/// # Errors
/// Returns how many bytes `attrs` take if that is more than `space` has; `space` is then unchanged.
pub fn encode_in_inode(attrs: &[Attr<'_>], space: &mut [u8]) -> Result<(), usize> {
    let need = IBODY_HEADER_SIZE + space_needed(attrs);
    if need > space.len() {
        return Err(need);
    }
    space.fill(0);
    let (header, base) = space.split_at_mut(IBODY_HEADER_SIZE);
    header.copy_from_slice(
        RawXattrIbodyHeader {
            h_magic: MAGIC.into(),
        }
        .as_bytes(),
    );
    encode_entries(attrs, base, 0);
    Ok(())
}

/// Writes an attribute block, values from the back in the given order. [`store_checksum`] stores
/// the checksum.
///
/// # Errors
/// Returns how many bytes `attrs` take if that is more than `block` has; `block` is then unchanged.
pub fn encode_in_block(header: &Header, attrs: &[Attr<'_>], block: &mut [u8]) -> Result<(), usize> {
    let need = HEADER_SIZE + space_needed(attrs);
    if need > block.len() {
        return Err(need);
    }
    block.fill(0);
    let raw = RawXattrHeader {
        h_magic: MAGIC.into(),
        h_refcount: header.refcount.into(),
        h_blocks: 1.into(),
        h_hash: header.hash.into(),
        h_checksum: 0.into(),
        h_reserved: [0.into(); 3],
    };
    block[..HEADER_SIZE].copy_from_slice(raw.as_bytes());
    encode_entries(attrs, block, HEADER_SIZE);
    Ok(())
}

/// Returns the number of bytes that entries, terminator and values take.
fn space_needed(attrs: &[Attr<'_>]) -> usize {
    let one = |attr: &Attr<'_>| {
        let value = match attr.value {
            Value::Here(value) => value.len().next_multiple_of(4),
            Value::EaInode { .. } => 0,
        };
        (ENTRY_SIZE + attr.name.len()).next_multiple_of(4) + value
    };
    attrs.iter().map(one).sum::<usize>() + TERMINATOR_SIZE
}

/// Writes entries from `first` and values from the back; the caller has checked that they fit and
/// zeroed the space.
fn encode_entries(attrs: &[Attr<'_>], base: &mut [u8], first: usize) {
    let mut at = first;
    let mut low = base.len();
    for attr in attrs {
        let (ino, size) = match attr.value {
            Value::Here(value) => {
                low -= value.len().next_multiple_of(4);
                base[low..low + value.len()].copy_from_slice(value);
                (
                    0,
                    u32::try_from(value.len()).expect("a value that fits in a block"),
                )
            }
            Value::EaInode { ino, size } => (ino, size),
        };
        let here = ino == 0 && size > 0;
        let raw = RawXattrEntry {
            e_name_len: u8::try_from(attr.name.len()).expect("a name of at most 255 bytes"),
            e_name_index: attr.index.0,
            // OK: a value that takes space starts inside a block, before its 65536th byte.
            e_value_offs: u16::try_from(if here { low } else { 0 })
                .expect("an offset in a block")
                .into(),
            e_value_inum: ino.into(),
            e_value_size: size.into(),
            e_hash: attr.hash.into(),
        };
        base[at..at + ENTRY_SIZE].copy_from_slice(raw.as_bytes());
        base[at + ENTRY_SIZE..at + ENTRY_SIZE + attr.name.len()].copy_from_slice(attr.name);
        at += entry_len(&raw);
    }
}

/// Returns how many bytes of an inode `attrs` take, the magic number included.
pub fn size_in_inode(attrs: &[Attr<'_>]) -> usize {
    IBODY_HEADER_SIZE + space_needed(attrs)
}

/// Returns how many bytes of a block `attrs` take, the header included.
pub fn size_in_block(attrs: &[Attr<'_>]) -> usize {
    HEADER_SIZE + space_needed(attrs)
}

/// Sets how many inodes share an attribute block. [`store_checksum`] stores the checksum.
///
/// # Panics
/// If the block is shorter than its header.
pub fn store_refcount(block: &mut [u8], refcount: u32) {
    block[REFCOUNT_OFFSET..REFCOUNT_OFFSET + 4].copy_from_slice(&refcount.to_le_bytes());
}

/// Returns the stored hash of an attribute block; 0 if no inode may share the block, or `block` is
/// no attribute block.
pub fn stored_hash(block: &[u8]) -> u32 {
    match RawXattrHeader::ref_from_prefix(block) {
        Ok((header, _)) if header.h_magic.get() == MAGIC => header.h_hash.get(),
        _ => 0,
    }
}

fn block_header(block: &[u8], place: Place) -> Result<&RawXattrHeader, Corrupt> {
    let (header, _) = RawXattrHeader::ref_from_prefix(block).map_err(|_| {
        place.corrupt(CorruptKind::Truncated {
            need: HEADER_SIZE as u64,
            have: block.len() as u64,
        })
    })?;
    let found = header.h_magic.get();
    if found != MAGIC {
        return Err(place.corrupt(CorruptKind::Magic {
            found,
            expected: MAGIC,
        }));
    }
    Ok(header)
}

/// Checks the checksum of the attribute block `number`, on a volume with `metadata_csum`.
///
/// # Errors
/// No attribute block, or a checksum that does not match.
pub fn verify_checksum(
    block: &[u8],
    number: u64,
    volume_seed: ChecksumSeed,
    place: Place,
) -> Result<(), Corrupt> {
    let stored = block_header(block, place)?.h_checksum.get();
    checksum::verify(
        stored,
        compute_checksum(block, number, volume_seed),
        place.byte(CHECKSUM_OFFSET),
    )
}

/// Computes the checksum of the attribute block `number` and stores it.
///
/// # Panics
/// If the block is shorter than its header.
pub fn store_checksum(block: &mut [u8], number: u64, volume_seed: ChecksumSeed) {
    let checksum = compute_checksum(block, number, volume_seed);
    block[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the checksum of the block: it covers the block's number, then the block with its
/// checksum field zero.
fn compute_checksum(block: &[u8], number: u64, volume_seed: ChecksumSeed) -> u32 {
    let (before, rest) = block.split_at(CHECKSUM_OFFSET);
    volume_seed
        .start()
        .update(&number.to_le_bytes())
        .update(before)
        .zeros(4)
        .update(&rest[4..])
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Structure;
    use proptest::prelude::*;

    const PLACE: Place = Place::new(Structure::Xattr).ino(12);

    fn attr<'a>(index: NameIndex, name: &'a [u8], value: &'a [u8]) -> Attr<'a> {
        let hash = hash::entry(name, hash::Contents::Value(value));
        Attr {
            index,
            name,
            value: Value::Here(value),
            hash,
        }
    }

    fn in_block(attrs: &[Attr<'_>]) -> Vec<u8> {
        let mut block = vec![0xAA; 1024];
        encode_in_block(
            &Header {
                refcount: 1,
                hash: 0,
            },
            attrs,
            &mut block,
        )
        .unwrap();
        block
    }

    fn broken(block: &[u8]) -> (CorruptKind, Option<u32>) {
        let corrupt = Attrs::in_block(block, PLACE)
            .map(|_| ())
            .expect_err("a broken block");
        (corrupt.kind, corrupt.place.offset)
    }

    #[test]
    fn prefixes_split_and_join() {
        let cases: [(&str, Option<(NameIndex, &str)>); 9] = [
            ("user.note", Some((NameIndex::USER, "note"))),
            ("user.", Some((NameIndex::USER, ""))),
            ("user", None),
            ("security.selinux", Some((NameIndex::SECURITY, "selinux"))),
            (
                "system.posix_acl_access",
                Some((NameIndex::POSIX_ACL_ACCESS, "")),
            ),
            (
                "system.posix_acl_default",
                Some((NameIndex::POSIX_ACL_DEFAULT, "")),
            ),
            (
                "system.posix_acl_accessory",
                Some((NameIndex::SYSTEM, "posix_acl_accessory")),
            ),
            ("system.data", Some((NameIndex::SYSTEM, "data"))),
            ("other.name", None),
        ];
        for (name, want) in cases {
            let split = NameIndex::split(name.as_bytes());
            assert_eq!(
                split,
                want.map(|(index, rest)| (index, rest.as_bytes())),
                "{name}"
            );
            if let Some((index, rest)) = split {
                assert_eq!([index.prefix().unwrap(), rest].concat(), name.as_bytes());
            }
        }
        assert_eq!(NameIndex::ENCRYPTION.prefix(), None);
    }

    #[test]
    fn an_inode_without_the_magic_has_no_attributes() {
        assert!(Attrs::in_inode(&[0; 96], PLACE).unwrap().is_none());
        assert!(Attrs::in_inode(&[], PLACE).unwrap().is_none());
        let mut space = [0xFF; 96];
        encode_in_inode(&[], &mut space).unwrap();
        let attrs = Attrs::in_inode(&space, PLACE).unwrap().unwrap();
        assert_eq!((attrs.iter().count(), attrs.free_bytes()), (0, 88));
        assert_eq!(
            encode_in_inode(&[attr(NameIndex::USER, b"n", &[1; 80])], &mut space),
            Err(108)
        );
    }

    #[test]
    fn every_broken_rule_has_its_kind() {
        let good = in_block(&[
            attr(NameIndex::USER, b"abcd", &[1; 8]),
            attr(NameIndex::USER, b"efgh", &[2; 8]),
        ]);
        let with = |at: usize, bytes: &[u8]| {
            let mut block = good.clone();
            block[at..at + bytes.len()].copy_from_slice(bytes);
            broken(&block)
        };
        let field = |field, value| CorruptKind::Field { field, value };
        assert_eq!(
            with(0, &[1]).0,
            CorruptKind::Magic {
                found: 0xEA02_0001,
                expected: MAGIC
            }
        );
        assert_eq!(with(4, &[0]), (field("h_refcount", 0), None));
        assert_eq!(with(4, &[1, 4]), (field("h_refcount", 1025), None));
        assert_eq!(with(8, &[2]), (field("h_blocks", 2), None));
        assert_eq!(with(34, &[70, 0]), (field("e_value_offs", 70), Some(32)));
        assert_eq!(
            with(54, &[0xF9, 3]),
            (field("e_value_offs", 1017), Some(52))
        );
        assert_eq!(
            with(54, &[0xF6, 3]),
            (
                CorruptKind::Order {
                    what: "attribute values"
                },
                None
            )
        );
        assert_eq!(
            with(40, &[0, 0, 0, 2]),
            (field("e_value_size", 1 << 25), Some(32))
        );
        assert_eq!(
            with(48, &[0]).0,
            CorruptKind::Mismatch {
                what: "an attribute's name holds a NUL"
            }
        );
        assert_eq!(with(33, &[2]), (field("e_name_len", 4), Some(32)));
        assert_eq!(
            broken(&good[..31]).0,
            CorruptKind::Truncated { need: 32, have: 31 }
        );
        assert_eq!(
            broken(&good[..70]).0,
            CorruptKind::Truncated { need: 72, have: 70 }
        );
        assert_eq!(
            broken(&good[..74]).0,
            CorruptKind::Truncated { need: 76, have: 74 }
        );
    }

    #[test]
    fn order_is_by_prefix_then_length_then_name() {
        let sorted = [
            attr(NameIndex::USER, b"z", b""),
            attr(NameIndex::USER, b"aa", b""),
            attr(NameIndex::USER, b"ab", b""),
            attr(NameIndex::TRUSTED, b"a", b""),
        ];
        let block = in_block(&sorted);
        Attrs::in_block(&block, PLACE)
            .unwrap()
            .1
            .check_order(PLACE)
            .unwrap();
        let block = in_block(&[sorted[1], sorted[0]]);
        let (_, attrs) = Attrs::in_block(&block, PLACE).unwrap();
        assert_eq!(
            attrs.check_order(PLACE).unwrap_err().kind,
            CorruptKind::Order {
                what: "attribute entries"
            }
        );
        assert!(attrs.get(NameIndex::USER, b"z").is_some());
    }

    #[test]
    fn a_checksum_covers_the_block_and_its_number() {
        let mut block = in_block(&[attr(NameIndex::USER, b"name", b"value")]);
        let seed = ChecksumSeed::new(9);
        store_checksum(&mut block, 77, seed);
        verify_checksum(&block, 77, seed, PLACE).unwrap();
        assert!(verify_checksum(&block, 78, seed, PLACE).is_err());
        for bit in 0..block.len() * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                verify_checksum(&flipped, 77, seed, PLACE).is_err(),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn hashes_accept_both_kinds_of_char() {
        let name = "größe".as_bytes();
        let value = b"12345";
        let unsigned = attr(NameIndex::USER, name, value);
        let signed = Attr {
            hash: hash::entry_signed(name, hash::Contents::Value(value)),
            ..unsigned
        };
        assert_ne!(signed.hash, unsigned.hash);
        for attr in [
            unsigned,
            signed,
            Attr {
                hash: 0,
                ..unsigned
            },
        ] {
            hash::verify_entry(&attr, None, PLACE).unwrap();
        }
        assert!(
            hash::verify_entry(
                &Attr {
                    hash: 1,
                    ..unsigned
                },
                None,
                PLACE
            )
            .is_err()
        );
        let remote = Attr {
            value: Value::EaInode { ino: 30, size: 5 },
            ..unsigned
        };
        hash::verify_entry(&remote, None, PLACE).unwrap();
        assert!(hash::verify_entry(&remote, Some(5), PLACE).is_err());
        let block = in_block(&[
            unsigned,
            Attr {
                hash: 0,
                ..unsigned
            },
        ]);
        assert_eq!(hash::block(&Attrs::in_block(&block, PLACE).unwrap().1), 0);
    }

    type Owned = (u8, Vec<u8>, Vec<u8>, bool);

    prop_compose! {
        fn lists()(list in proptest::collection::vec(
            (prop::sample::select(vec![1u8, 4, 6, 7, 9, 77]), "[^\0]{1,20}", proptest::collection::vec(any::<u8>(), 0..60), any::<bool>()),
            0..7,
        )) -> Vec<Owned> {
            list.into_iter().map(|(index, name, value, remote)| (index, name.into_bytes(), value, remote)).collect()
        }
    }

    fn borrow(list: &[Owned]) -> Vec<Attr<'_>> {
        let value = |value, remote| {
            if remote {
                Value::EaInode {
                    ino: 40,
                    size: 70_000,
                }
            } else {
                Value::Here(value)
            }
        };
        list.iter()
            .map(|(index, name, bytes, remote)| Attr {
                index: NameIndex(*index),
                name,
                value: value(bytes, *remote),
                hash: 5,
            })
            .collect()
    }

    proptest! {
        #[test]
        fn attributes_come_back(list in lists(), inode: bool) {
            let attrs = borrow(&list);
            let mut bytes = vec![0xAA; 1024];
            let header = Header { refcount: 3, hash: 8 };
            let written = if inode { encode_in_inode(&attrs, &mut bytes) } else { encode_in_block(&header, &attrs, &mut bytes) };
            prop_assume!(written.is_ok());
            let read = if inode { Attrs::in_inode(&bytes, PLACE).unwrap().unwrap() } else {
                    let (found, read) = Attrs::in_block(&bytes, PLACE).unwrap();
                    prop_assert_eq!(found, header);
                    read
                };
            let read: Vec<_> = read.iter().collect();
            prop_assert_eq!(&read, &attrs);
            let mut again = vec![0x55; 1024];
            if inode { encode_in_inode(&read, &mut again) } else { encode_in_block(&header, &read, &mut again) }.unwrap();
            prop_assert_eq!(again, bytes);
        }

        #[test]
        fn damaged_attributes_are_read_or_refused(
            list in lists(),
            damage in proptest::collection::vec((0usize..200, any::<u8>()), 1..5),
            inode: bool,
        ) {
            let attrs = borrow(&list);
            let mut bytes = vec![0; 1024];
            let header = Header { refcount: 1, hash: 0 };
            let written = if inode { encode_in_inode(&attrs, &mut bytes) } else { encode_in_block(&header, &attrs, &mut bytes) };
            prop_assume!(written.is_ok());
            for (at, byte) in damage {
                bytes[at] = byte;
            }
            walk(&bytes);
        }

        #[test]
        fn any_bytes_are_read_or_refused(tail in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = MAGIC.to_le_bytes().to_vec();
            bytes.extend([1, 0, 0, 0, 1, 0, 0, 0]);
            bytes.extend(tail);
            walk(&bytes);
        }
    }

    /// Reads everything in `bytes` both as an inode's space and as a block.
    fn walk(bytes: &[u8]) {
        let inode = Attrs::in_inode(bytes, PLACE).ok().flatten();
        let block = Attrs::in_block(bytes, PLACE).ok().map(|(_, attrs)| attrs);
        for attrs in inode.into_iter().chain(block) {
            assert!(attrs.iter().count() <= bytes.len() / ENTRY_SIZE);
            assert!(attrs.free_bytes() < bytes.len());
            let _ = (hash::block(&attrs), attrs.check_order(PLACE));
            for attr in attrs.iter() {
                assert_eq!(
                    attrs.get(attr.index, attr.name).map(|found| found.name),
                    Some(attr.name)
                );
                let _ = hash::verify_entry(&attr, Some(1), PLACE);
            }
        }
    }
}
