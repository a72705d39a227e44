//! Extended attributes: in the inode, in a block of their own, and in EA inodes.
//!
//! The space behind the inode's fields, and the block that `i_file_acl` names, hold the same thing behind different
//! headers: entries from the front, then four zero bytes, and values from the back.
//!
//! ```text
//! inode: | magic 4   | entry, entry, ... | 0000 | free | value, value, ... |
//! block: | header 32 | entry, entry, ... | 0000 | free | value, value, ... |
//! ```
//!
//! A value's offset counts from the first entry in an inode, from the start of the block in a block. A name's prefix
//! is stored as a number, a [`NameIndex`]. A value too large for either place fills an inode of its own (the `ea_inode`
//! feature), which the entry names instead.
//!
//! [`Attrs`] borrows the bytes and checks all of them once. Hashes live in [`hash`]. Format: the kernel's ext4
//! documentation, "Extended Attributes".

pub mod hash;

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{self, ChecksumSeed};
use crate::{Corrupt, CorruptKind, Place};

/// The magic number before the attributes, in an inode and in a block.
pub const MAGIC: u32 = 0xEA02_0000;
/// The largest value: the size of an EA inode, 64 KiB as system calls limit it, 16 MiB as the format does.
pub const VALUE_SIZE_MAX: u32 = 1 << 24;
/// The most inodes that may share an attribute block.
pub const REFCOUNT_MAX: u32 = 1024;

/// `struct ext4_xattr_ibody_header`, as it stands on the disk.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[expect(missing_docs, reason = "the fields carry the names of the format's documentation")]
pub struct RawXattrIbodyHeader {
    pub h_magic: U32,
}

/// `struct ext4_xattr_header`, as it stands on the disk.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[expect(missing_docs, reason = "the fields carry the names of the format's documentation")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[expect(missing_docs, reason = "the fields carry the names of the format's documentation")]
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
/// The zero bytes behind the last entry.
const TERMINATOR_SIZE: usize = 4;
const CHECKSUM_OFFSET: usize = core::mem::offset_of!(RawXattrHeader, h_checksum);
const _: () = assert!(IBODY_HEADER_SIZE == 4);
const _: () = assert!(HEADER_SIZE == 32);
const _: () = assert!(ENTRY_SIZE == 16);

/// The number that stands for a name's prefix. Numbers that the format does not define are kept, for they are no
/// damage: their attributes have no name that could be asked for.
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
    /// Lustre's, which has no prefix.
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

    /// Longest first, so that a name finds the most specific one.
    const PREFIXES: [(Self, &'static [u8]); 8] = [
        (Self::POSIX_ACL_DEFAULT, b"system.posix_acl_default"),
        (Self::POSIX_ACL_ACCESS, b"system.posix_acl_access"),
        (Self::RICHACL, b"system.richacl"),
        (Self::SECURITY, b"security."),
        (Self::TRUSTED, b"trusted."),
        (Self::SYSTEM, b"system."),
        (Self::USER, b"user."),
        (Self::HURD, b"gnu."),
    ];

    /// The text that the number stands for; `None` if it stands for none.
    pub fn prefix(self) -> Option<&'static [u8]> {
        Self::PREFIXES.iter().find(|(index, _)| *index == self).map(|(_, prefix)| *prefix)
    }

    /// Whether the prefix is a whole name, so that nothing may follow it.
    pub fn is_whole_name(self) -> bool {
        matches!(self, Self::POSIX_ACL_ACCESS | Self::POSIX_ACL_DEFAULT | Self::RICHACL)
    }

    /// Splits a full name, such as `user.note`, into its prefix's number and the rest; `None` if no prefix fits.
    pub fn split(name: &[u8]) -> Option<(Self, &[u8])> {
        Self::PREFIXES.iter().find_map(|&(index, prefix)| {
            let rest = name.strip_prefix(prefix)?;
            (rest.is_empty() || !index.is_whole_name()).then_some((index, rest))
        })
    }
}

/// Where an attribute's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Beside the entry.
    Here(&'a [u8]),
    /// In an inode of its own.
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
    /// The prefix of its name.
    pub index: NameIndex,
    /// The rest of its name.
    pub name: &'a [u8],
    /// Where its value is.
    pub value: Value<'a>,
    /// The stored hash of name and value; 0 if the writer did not compute one. See [`hash::verify_entry`].
    pub hash: u32,
}

impl Attr<'_> {
    /// The name with its prefix; `None` if the prefix's number stands for none.
    pub fn full_name(&self) -> Option<Vec<u8>> {
        Some([self.index.prefix()?, self.name].concat())
    }
}

/// The facts at the start of an attribute block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many inodes share the block: 1 to 1024.
    pub refcount: u32,
    /// The hash of all entries; 0 if the block must not be shared.
    pub hash: u32,
}

/// Checked attributes, borrowed from the inode or the block that holds them.
///
/// Invariants: names and values lie inside the bytes, no value overlaps an entry or another value.
#[derive(Clone, Copy, Debug)]
pub struct Attrs<'a> {
    /// What value offsets count from, to the end of the space for values.
    base: &'a [u8],
    /// Where in `base` the first entry is.
    first: usize,
}

impl<'a> Attrs<'a> {
    /// Checks the space of an inode behind its fields; `None` if it does not start with the magic number, which says
    /// that there are no attributes.
    ///
    /// # Errors
    /// Any broken rule of the format.
    pub fn in_inode(space: &'a [u8], place: Place) -> Result<Option<Self>, Corrupt> {
        match RawXattrIbodyHeader::ref_from_prefix(space) {
            Ok((header, base)) if header.h_magic.get() == MAGIC => {
                let attrs = Self { base, first: 0 };
                attrs.check(place, IBODY_HEADER_SIZE)?;
                Ok(Some(attrs))
            }
            _ => Ok(None),
        }
    }

    /// Checks an attribute block. Its checksum is checked apart, by [`verify_checksum`].
    ///
    /// # Errors
    /// Any broken rule of the format.
    pub fn in_block(block: &'a [u8], place: Place) -> Result<(Header, Self), Corrupt> {
        let header = block_header(block, place)?;
        let field = |field, value| place.corrupt(CorruptKind::Field { field, value: u64::from(value) });
        if header.h_blocks.get() != 1 {
            return Err(field("h_blocks", header.h_blocks.get()));
        }
        let refcount = header.h_refcount.get();
        if refcount == 0 || refcount > REFCOUNT_MAX {
            return Err(field("h_refcount", refcount));
        }
        let attrs = Self { base: block, first: HEADER_SIZE };
        attrs.check(place, 0)?;
        Ok((Header { refcount, hash: header.h_hash.get() }, attrs))
    }

    /// The attributes in stored order.
    pub fn iter(&self) -> Iter<'a> {
        Iter { base: self.base, at: self.first }
    }

    /// The attribute of that name.
    pub fn get(&self, index: NameIndex, name: &[u8]) -> Option<Attr<'a>> {
        self.iter().find(|attr| attr.index == index && attr.name == name)
    }

    /// Checks that entries ascend by prefix, length of name and name, as Linux keeps those of a block.
    ///
    /// A lookup here does not rely on it, but the kernel's stops early.
    ///
    /// # Errors
    /// [`CorruptKind::Order`].
    pub fn check_order(&self, place: Place) -> Result<(), Corrupt> {
        let key = |attr: Attr<'a>| (attr.index, attr.name.len(), attr.name);
        if self.iter().map(key).is_sorted_by(|a, b| a < b) {
            return Ok(());
        }
        Err(place.corrupt(CorruptKind::Order { what: "attribute entries" }))
    }

    /// Bytes left between the entries' end and the lowest value.
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

    /// Checks every entry; `lead` is how many bytes stand before `base`, for the place of what is wrong.
    fn check(&self, place: Place, lead: usize) -> Result<(), Corrupt> {
        let end = self.check_names(place, lead)?;
        let mut values = Vec::new();
        let mut at = self.first;
        while let Some((raw, _)) = raw_entry(self.base, at) {
            if let Some((start, len)) = value_range(raw, self.base.len(), end, place.byte(lead + at))? {
                values.push((start, start + len));
            }
            at += entry_len(raw);
        }
        values.sort_unstable();
        if values.is_sorted_by(|a, b| a.1 <= b.0) {
            return Ok(());
        }
        Err(place.corrupt(CorruptKind::Order { what: "attribute values" }))
    }

    /// Checks that the entries with their names fit, and returns where they end, the terminator included.
    fn check_names(&self, place: Place, lead: usize) -> Result<usize, Corrupt> {
        let mut at = self.first;
        loop {
            let truncated = |need: usize| {
                let kind = CorruptKind::Truncated {
                    need: (lead + need) as u64,
                    have: (lead + self.base.len()) as u64,
                };
                place.byte(lead + at).corrupt(kind)
            };
            let Some(rest) = self.base.get(at..).filter(|rest| rest.len() >= TERMINATOR_SIZE) else {
                return Err(truncated(at + TERMINATOR_SIZE));
            };
            if rest[..TERMINATOR_SIZE] == [0; TERMINATOR_SIZE] {
                return Ok(at + TERMINATOR_SIZE);
            }
            let (raw, behind) =
                RawXattrEntry::ref_from_prefix(rest).map_err(|_| truncated(at + ENTRY_SIZE))?;
            let name_len = usize::from(raw.e_name_len);
            let name = behind.get(..name_len).ok_or_else(|| truncated(at + entry_len(raw)))?;
            let index = NameIndex(raw.e_name_index);
            if index.is_whole_name() && name_len > 0 {
                let kind = CorruptKind::Field { field: "e_name_len", value: name_len as u64 };
                return Err(place.byte(lead + at).corrupt(kind));
            }
            if name.contains(&0) {
                let what = "an attribute's name holds a NUL";
                return Err(place.byte(lead + at).corrupt(CorruptKind::Mismatch { what }));
            }
            at += entry_len(raw);
        }
    }
}

/// Checks where an entry's value is: behind `entries_end` and before `space_end`; `None` if it takes no space there.
fn value_range(
    raw: &RawXattrEntry,
    space_end: usize,
    entries_end: usize,
    place: Place,
) -> Result<Option<(usize, usize)>, Corrupt> {
    let field = |field, value| Err(place.corrupt(CorruptKind::Field { field, value: u64::from(value) }));
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

/// The entry at `at`, whose bounds have been checked, and what follows its fixed part; `None` at the terminator.
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
        let (ino, size) = (raw.e_value_inum.get(), raw.e_value_size.get());
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

/// Writes `attrs` into the space of an inode behind its fields, values from the back in the given order.
///
/// # Errors
/// Gives back how many bytes it takes if that is more than there are; `space` is then unchanged.
pub fn encode_in_inode(attrs: &[Attr<'_>], space: &mut [u8]) -> Result<(), usize> {
    let need = IBODY_HEADER_SIZE + space_needed(attrs);
    if need > space.len() {
        return Err(need);
    }
    space.fill(0);
    let (header, base) = space.split_at_mut(IBODY_HEADER_SIZE);
    header.copy_from_slice(RawXattrIbodyHeader { h_magic: MAGIC.into() }.as_bytes());
    encode_entries(attrs, base, 0);
    Ok(())
}

/// Writes an attribute block, values from the back in the given order; the checksum is stored apart, by
/// [`store_checksum`].
///
/// # Errors
/// Gives back how many bytes it takes if that is more than there are; `block` is then unchanged.
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

/// Bytes that entries, terminator and values take.
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

/// Writes entries from `first` and values from the back; the caller has checked that they fit and zeroed the space.
fn encode_entries(attrs: &[Attr<'_>], base: &mut [u8], first: usize) {
    let mut at = first;
    let mut low = base.len();
    for attr in attrs {
        let (ino, size) = match attr.value {
            Value::Here(value) => {
                low -= value.len().next_multiple_of(4);
                base[low..low + value.len()].copy_from_slice(value);
                (0, u32::try_from(value.len()).expect("a value that fits in a block"))
            }
            Value::EaInode { ino, size } => (ino, size),
        };
        let here = ino == 0 && size > 0;
        let raw = RawXattrEntry {
            e_name_len: u8::try_from(attr.name.len()).expect("a name of at most 255 bytes"),
            e_name_index: attr.index.0,
            // OK: a value that takes space starts inside a block, before its 65536th byte.
            e_value_offs: u16::try_from(if here { low } else { 0 }).expect("an offset in a block").into(),
            e_value_inum: ino.into(),
            e_value_size: size.into(),
            e_hash: attr.hash.into(),
        };
        base[at..at + ENTRY_SIZE].copy_from_slice(raw.as_bytes());
        base[at + ENTRY_SIZE..at + ENTRY_SIZE + attr.name.len()].copy_from_slice(attr.name);
        at += entry_len(&raw);
    }
}

fn block_header(block: &[u8], place: Place) -> Result<&RawXattrHeader, Corrupt> {
    let (header, _) = RawXattrHeader::ref_from_prefix(block).map_err(|_| {
        place.corrupt(CorruptKind::Truncated { need: HEADER_SIZE as u64, have: block.len() as u64 })
    })?;
    let found = header.h_magic.get();
    if found != MAGIC {
        return Err(place.corrupt(CorruptKind::Magic { found, expected: MAGIC }));
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
    checksum::verify(stored, compute_checksum(block, number, volume_seed), place.byte(CHECKSUM_OFFSET))
}

/// Computes the checksum of the attribute block `number` and stores it.
///
/// # Panics
/// If the block is shorter than its header.
pub fn store_checksum(block: &mut [u8], number: u64, volume_seed: ChecksumSeed) {
    let checksum = compute_checksum(block, number, volume_seed);
    block[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// The checksum covers the block's number, then the block with its checksum field zero.
fn compute_checksum(block: &[u8], number: u64, volume_seed: ChecksumSeed) -> u32 {
    let (before, rest) = block.split_at(CHECKSUM_OFFSET);
    volume_seed.start().update(&number.to_le_bytes()).update(before).zeros(4).update(&rest[4..]).finish()
}

/// The facts about an EA inode that its fields hold in place of their usual meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EaInode {
    /// How many attributes have this inode as their value: the seconds of `i_ctime` above `i_version`.
    pub refcount: u64,
    /// The checksum of the value under the volume's seed, in the seconds of `i_atime`.
    pub hash: u32,
}

impl EaInode {
    /// The facts in an inode's raw `i_ctime`, low half of `i_version` (`l_i_version`) and `i_atime`.
    pub const fn decode(i_ctime: u32, i_version: u32, i_atime: u32) -> Self {
        Self { refcount: (i_ctime as u64) << 32 | i_version as u64, hash: i_atime }
    }

    /// The fields: `i_ctime`, the low half of `i_version`, and `i_atime`.
    #[expect(clippy::cast_possible_truncation, reason = "splits a number into its halves")]
    pub const fn encode(self) -> (u32, u32, u32) {
        ((self.refcount >> 32) as u32, self.refcount as u32, self.hash)
    }

    /// Checks that `value` is what the inode was made for.
    ///
    /// # Errors
    /// [`CorruptKind::Checksum`].
    pub fn verify_value(self, value: &[u8], volume_seed: ChecksumSeed, place: Place) -> Result<(), Corrupt> {
        checksum::verify(self.hash, volume_seed.checksum(value), place)
    }
}
