//! Descriptor blocks: the file system blocks that the copies after them belong to.
//!
//! `jbd2` encodes them when it commits and decodes them at recovery. Decoding never reads past the
//! block. A copy that begins with the journal's magic number is escaped, so that no copy can be
//! taken for a block of the log.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{BlockHeader, BlockKind, MAGIC, Tid};
use super::format::{ChecksumVersion, Format, put_header, truncated};
use crate::corrupt::{Corrupt, CorruptKind, Place};

/// `journal_block_tag_t` without checksums of version 3, as it is on the disk. The upper half of
/// the block number follows if the journal has 64-bit numbers, then two unused bytes if it has
/// checksums of version 2.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawTag {
    pub t_blocknr: U32,
    pub t_checksum: U16,
    pub t_flags: U16,
}

const _: () = assert!(size_of::<RawTag>() == 8);

/// `journal_block_tag3_t` as it is on the disk: the tag with checksums of version 3.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawTag3 {
    pub t_blocknr: U32,
    pub t_flags: U32,
    pub t_blocknr_high: U32,
    pub t_checksum: U32,
}

const _: () = assert!(size_of::<RawTag3>() == 16);

bitflags::bitflags! {
    /// The flags of a [`Tag`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct TagFlags: u32 {
        /// The copy began with the journal's magic number; the log has zeroes in its place.
        const ESCAPED = 0x1;
        /// The tag has the UUID of the tag before it and stores none.
        const SAME_UUID = 0x2;
        /// The transaction freed the block. No known writer sets it.
        const DELETED = 0x4;
        /// The descriptor ends with this tag.
        const LAST = 0x8;
        const _ = !0;
    }
}

/// The tag of one copy that follows a descriptor: the block that the copy replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The block of the file system that the copy belongs to.
    pub block: u64,
    /// The flags of the copy.
    pub flags: TagFlags,
    /// The copy's checksum (see [`Format::copy_checksum`]); zero if tags store none.
    pub checksum: u32,
    /// The UUID stored after the tag. `None` with [`TagFlags::SAME_UUID`], and if the block ends
    /// before the UUID, as in a descriptor that reached the disk only in part.
    pub uuid: Option<[u8; 16]>,
}

const UUID: usize = 16;

impl Tag {
    /// Decodes the tag at the start of `bytes` and returns the number of bytes it takes.
    fn decode(bytes: &[u8], format: &Format, at: Place) -> Result<(Self, usize), Corrupt> {
        let mut size = format.tag_size();
        let fixed = bytes
            .get(..size)
            .ok_or_else(|| truncated(size, bytes.len(), at))?;
        let (low, high, flags, checksum) = if format.checksum == ChecksumVersion::V3 {
            let raw = RawTag3::ref_from_bytes(fixed).expect("the size of a version 3 tag");
            (
                raw.t_blocknr.get(),
                raw.t_blocknr_high.get(),
                raw.t_flags.get(),
                raw.t_checksum.get(),
            )
        } else {
            let (raw, rest) = RawTag::ref_from_prefix(fixed).expect("no tag is smaller");
            let high = U32::ref_from_prefix(rest).map_or(0, |(high, _)| high.get());
            (
                raw.t_blocknr.get(),
                high,
                raw.t_flags.get().into(),
                raw.t_checksum.get().into(),
            )
        };
        let flags = TagFlags::from_bits_retain(flags);
        let uuid = if flags.contains(TagFlags::SAME_UUID) {
            None
        } else {
            let stored = bytes[size..].first_chunk().copied();
            size += UUID;
            stored
        };
        let high = if format.wide {
            u64::from(high) << 32
        } else {
            0
        };
        // Only versions 2 and 3 define the field; without them it may hold anything.
        let checksum = if format.checksums_blocks() {
            checksum
        } else {
            0
        };
        Ok((
            Self {
                block: high | u64::from(low),
                flags,
                checksum,
                uuid,
            },
            size,
        ))
    }

    fn encode(&self, format: &Format, out: &mut Vec<u8>) -> Option<()> {
        let high = u32::try_from(self.block >> 32).ok()?;
        let low = u32::try_from(self.block & 0xFFFF_FFFF).ok()?;
        if high != 0 && !format.wide
            || self.flags.contains(TagFlags::SAME_UUID) != self.uuid.is_none()
        {
            return None;
        }
        if format.checksum == ChecksumVersion::V3 {
            let raw = RawTag3 {
                t_blocknr: low.into(),
                t_flags: self.flags.bits().into(),
                t_blocknr_high: high.into(),
                t_checksum: self.checksum.into(),
            };
            out.extend_from_slice(raw.as_bytes());
        } else {
            let raw = RawTag {
                t_blocknr: low.into(),
                t_checksum: u16::try_from(self.checksum).ok()?.into(),
                t_flags: u16::try_from(self.flags.bits()).ok()?.into(),
            };
            out.extend_from_slice(raw.as_bytes());
            if format.wide {
                out.extend_from_slice(&high.to_be_bytes());
            }
            if format.checksum == ChecksumVersion::V2 {
                out.extend_from_slice(&[0; 2]);
            }
        }
        out.extend_from_slice(self.uuid.as_ref().map_or(&[], |uuid| &uuid[..]));
        Some(())
    }
}

/// A descriptor block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The transaction to which the copies belong.
    pub tid: Tid,
    /// One tag for each of the blocks that follow, in their order.
    pub tags: Vec<Tag>,
}

impl Descriptor {
    /// Decodes one whole block of the journal. [`Format::verify_tail`] verifies the checksum.
    ///
    /// The tags end with the one flagged [`LAST`](TagFlags::LAST), or where no further tag fits.
    ///
    /// # Errors
    /// If the block is no such block, or one of its numbers is impossible.
    pub fn decode(block: &[u8], format: &Format, at: Place) -> Result<Self, Corrupt> {
        let usable = block
            .get(..format.usable())
            .ok_or_else(|| truncated(format.usable(), block.len(), at))?;
        let tid = match BlockHeader::recognise(block) {
            Some(BlockHeader {
                kind: BlockKind::Descriptor,
                tid,
            }) => tid,
            _ => {
                return Err(at.corrupt(CorruptKind::Mismatch {
                    what: "not a descriptor block",
                }));
            }
        };
        let mut tags = Vec::new();
        let mut offset = BlockHeader::SIZE;
        while offset + format.tag_size() <= usable.len() {
            let here = at.offset(u32::try_from(offset).unwrap_or(u32::MAX));
            let (tag, size) = Tag::decode(&usable[offset..], format, here)?;
            tags.push(tag);
            offset += size;
            if tag.flags.contains(TagFlags::LAST) {
                break;
            }
        }
        Ok(Self { tid, tags })
    }

    /// Returns the descriptor as a whole block of the journal, checksum included. `None` if the
    /// tags do not fit into a block, or a tag holds a value that this journal's format cannot
    /// store.
    pub fn encode(&self, format: &Format) -> Option<Vec<u8>> {
        let mut block = vec![0; BlockHeader::SIZE];
        put_header(
            BlockHeader {
                kind: BlockKind::Descriptor,
                tid: self.tid,
            },
            &mut block,
        );
        for tag in &self.tags {
            tag.encode(format, &mut block)?;
        }
        if block.len() > format.usable() {
            return None;
        }
        block.resize(format.block_size, 0);
        format.seal_tail(&mut block);
        Some(block)
    }
}

/// Escapes a block for the journal. If it begins with the magic number, this puts zeroes there and
/// returns true; the tag then needs [`TagFlags::ESCAPED`].
pub fn escape(copy: &mut [u8]) -> bool {
    match copy.first_chunk_mut() {
        Some(first) if *first == MAGIC.to_be_bytes() => {
            *first = [0; 4];
            true
        }
        _ => false,
    }
}

/// Restores the magic number of an escaped copy.
pub fn unescape(copy: &mut [u8]) {
    if let Some(first) = copy.first_chunk_mut() {
        *first = MAGIC.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corrupt::Structure;

    const AT: Place = Place::new(Structure::JournalBlock);

    fn formats() -> impl Iterator<Item = Format> {
        use ChecksumVersion::{None, V1, V2, V3};
        [None, V1, V2, V3].into_iter().flat_map(|checksum| {
            [false, true].map(|wide| Format {
                block_size: 1024,
                checksum,
                wide,
                seed: 0x1234_5678,
            })
        })
    }

    fn tag(block: u64, flags: TagFlags) -> Tag {
        let uuid = if flags.contains(TagFlags::SAME_UUID) {
            None
        } else {
            Some([7; 16])
        };
        Tag {
            block,
            flags,
            checksum: 0,
            uuid,
        }
    }

    #[test]
    fn tag_sizes_are_those_of_real_journals() {
        let sizes: Vec<_> = formats().map(|format| format.tag_size()).collect();
        assert_eq!(sizes, [8, 12, 8, 12, 10, 14, 16, 16]);
    }

    #[test]
    fn every_form_round_trips() {
        for format in formats() {
            let high = if format.wide { 5 << 32 } else { 0 };
            let mut tags = vec![tag(high | 9, TagFlags::empty())];
            tags.push(tag(1, TagFlags::SAME_UUID | TagFlags::ESCAPED));
            tags.push(tag(
                u64::from(u32::MAX),
                TagFlags::SAME_UUID | TagFlags::DELETED | TagFlags::LAST,
            ));
            if format.checksums_blocks() {
                tags[1].checksum = 0xABCD;
            }
            let descriptor = Descriptor { tid: Tid(3), tags };
            let block = descriptor.encode(&format).expect("it fits");
            assert_eq!(Descriptor::decode(&block, &format, AT), Ok(descriptor));
            assert_eq!(format.verify_tail(&block, AT), Ok(()));
        }
    }

    #[test]
    fn a_full_block_needs_no_last_tag() {
        for format in formats() {
            let room = format.usable() - BlockHeader::SIZE;
            let tags = vec![tag(1, TagFlags::SAME_UUID); room / format.tag_size()];
            let descriptor = Descriptor { tid: Tid(0), tags };
            let block = descriptor.encode(&format).expect("it fits");
            assert_eq!(
                Descriptor::decode(&block, &format, AT).expect("sound"),
                descriptor
            );
            let mut more = descriptor;
            more.tags.push(tag(1, TagFlags::SAME_UUID));
            assert_eq!(more.encode(&format), None);
        }
    }

    #[test]
    fn a_uuid_beyond_the_block_is_none() {
        // Tags of 26 bytes leave room for one without its UUID.
        let format = Format {
            block_size: 1024,
            checksum: ChecksumVersion::V2,
            wide: false,
            seed: 0,
        };
        let mut block = vec![0; 1024];
        put_header(
            BlockHeader {
                kind: BlockKind::Descriptor,
                tid: Tid(1),
            },
            &mut block,
        );
        let tags = Descriptor::decode(&block, &format, AT).expect("sound").tags;
        assert_eq!(tags.len(), 39);
        assert!(tags.iter().take(38).all(|tag| tag.uuid.is_some()));
        assert_eq!(tags[38].uuid, None);
    }

    #[test]
    fn a_flipped_bit_breaks_the_tail() {
        let format = Format {
            block_size: 1024,
            checksum: ChecksumVersion::V3,
            wide: true,
            seed: 1,
        };
        let descriptor = Descriptor {
            tid: Tid(1),
            tags: vec![tag(1, TagFlags::LAST)],
        };
        let mut block = descriptor.encode(&format).expect("it fits");
        block[900] ^= 1;
        assert!(format.verify_tail(&block, AT).is_err());
    }

    #[test]
    fn escaping_is_undone() {
        let mut copy = [MAGIC.to_be_bytes(), [1, 2, 3, 4]].concat();
        assert!(escape(&mut copy));
        assert_eq!(copy, [0, 0, 0, 0, 1, 2, 3, 4]);
        unescape(&mut copy);
        assert_eq!(copy[..4], MAGIC.to_be_bytes());
        assert!(!escape(&mut [0; 8]));
    }
}
