//! POSIX ACLs as an ext4 volume stores them.
//!
//! The form is a version and a list of entries. An entry without a user or group id has only four
//! bytes.
//!
//! ```text
//! | version 4 | tag 2, perm 2 | tag 2, perm 2, id 4 | ...
//! ```
//!
//! Format: the kernel's ext4 documentation, "POSIX ACLs". The list itself is [`extern4_acl::Acl`].
//!
//! `ext4`, the builder and the checker decode and encode here. Bytes that break the format, or
//! entries that are no valid ACL, are a [`Corrupt`].

use extern4_acl::{Acl, AclEntry, AclError, AclTag};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Corrupt, CorruptKind, Place};

/// The version of the form.
pub const VERSION: u32 = 1;

/// `ext4_acl_header`: only the version.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawAclHeader {
    pub a_version: U32,
}

/// `ext4_acl_entry_short`: an entry without an id, and the start of an entry with one.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[expect(
    missing_docs,
    reason = "the fields carry the names of the format's documentation"
)]
pub struct RawAclEntryShort {
    pub e_tag: U16,
    pub e_perm: U16,
}

const _: () = assert!(size_of::<RawAclHeader>() == 4);
const _: () = assert!(size_of::<RawAclEntryShort>() == 4);

/// Decodes the form that the volume stores.
///
/// # Errors
/// Bytes that are no valid ACL.
pub fn decode(bytes: &[u8], place: Place) -> Result<Acl, Corrupt> {
    let field =
        |field, value: u64, at: usize| place.byte(at).corrupt(CorruptKind::Field { field, value });
    let truncated = |at| field("e_value_size", bytes.len() as u64, at);
    let (header, mut rest) = RawAclHeader::ref_from_prefix(bytes).map_err(|_| truncated(0))?;
    if header.a_version.get() != VERSION {
        return Err(field("a_version", header.a_version.get().into(), 0));
    }
    let mut entries = Vec::with_capacity(rest.len() / size_of::<RawAclEntryShort>());
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let (short, behind) = RawAclEntryShort::ref_from_prefix(rest).map_err(|_| truncated(at))?;
        let raw = short.e_tag.get();
        let perm = short.e_perm.get();
        let tag = AclTag::from_raw(raw, 0).ok_or_else(|| field("e_tag", raw.into(), at))?;
        let (id, behind) = match behind.split_first_chunk() {
            Some((id, behind)) if tag.is_named() => (u32::from_le_bytes(*id), behind),
            None if tag.is_named() => return Err(truncated(at)),
            _ => (0, behind),
        };
        let bad_perm = || field("e_perm", perm.into(), at);
        let perm = u8::try_from(perm)
            .ok()
            .filter(|&perm| perm <= 7)
            .ok_or_else(bad_perm)?;
        entries.extend(AclTag::from_raw(raw, id).map(|tag| AclEntry { tag, perm }));
        rest = behind;
    }
    Acl::new(entries).map_err(|error| {
        place.byte(0).corrupt(match error {
            AclError::Order => CorruptKind::Order {
                what: "ACL entries",
            },
            _ => CorruptKind::Mismatch {
                what: "an ACL lacks an entry that must be there",
            },
        })
    })
}

/// Returns the form that the volume stores.
pub fn encode(acl: &Acl) -> Vec<u8> {
    let mut bytes = RawAclHeader {
        a_version: VERSION.into(),
    }
    .as_bytes()
    .to_vec();
    for entry in acl.entries() {
        let (tag, id) = entry.tag.to_raw();
        let short = RawAclEntryShort {
            e_tag: tag.into(),
            e_perm: u16::from(entry.perm).into(),
        };
        bytes.extend_from_slice(short.as_bytes());
        bytes.extend_from_slice(
            id.map(u32::to_le_bytes)
                .as_ref()
                .map_or(&[], |id| id.as_slice()),
        );
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Structure;
    use proptest::prelude::*;

    const PLACE: Place = Place::new(Structure::Acl);

    fn entry_of(tag: AclTag, perm: u8) -> AclEntry {
        AclEntry { tag, perm }
    }

    #[test]
    fn the_form_byte_by_byte() {
        let acl: Acl = "u::rw-,u:1000:r--,g::r-x,m::rwx,o::---".parse().unwrap();
        #[rustfmt::skip]
        let disk = [
            1, 0, 0, 0,
            1, 0, 6, 0,
            2, 0, 4, 0, 0xE8, 3, 0, 0,
            4, 0, 5, 0,
            0x10, 0, 7, 0,
            0x20, 0, 0, 0,
        ];
        assert_eq!(encode(&acl), disk);
        assert_eq!(decode(&disk, PLACE), Ok(acl));
        let mut bad = disk;
        bad[0] = 2;
        let kind = CorruptKind::Field {
            field: "a_version",
            value: 2,
        };
        assert_eq!(decode(&bad, PLACE), Err(PLACE.offset(0).corrupt(kind)));
        let kind = CorruptKind::Field {
            field: "e_value_size",
            value: 14,
        };
        assert_eq!(
            decode(&disk[..14], PLACE),
            Err(PLACE.offset(8).corrupt(kind))
        );
        for (field, at, value) in [("e_tag", 8, 3), ("e_perm", 10, 9)] {
            let mut bad = disk;
            bad[at] = value;
            let kind = CorruptKind::Field {
                field,
                value: value.into(),
            };
            assert_eq!(decode(&bad, PLACE), Err(PLACE.offset(8).corrupt(kind)));
        }
        let kind = CorruptKind::Mismatch {
            what: "an ACL lacks an entry that must be there",
        };
        assert_eq!(
            decode(&disk[..20], PLACE),
            Err(PLACE.offset(0).corrupt(kind))
        );
        let kind = CorruptKind::Order {
            what: "ACL entries",
        };
        let twice = [&disk[..8], &disk[4..]].concat();
        assert_eq!(decode(&twice, PLACE), Err(PLACE.offset(0).corrupt(kind)));
    }

    prop_compose! {
        fn acls()(
            users in proptest::collection::vec((any::<u32>(), 0u8..8), 0..5),
            groups in proptest::collection::vec((any::<u32>(), 0u8..8), 0..5),
            masked: bool,
            perms in proptest::array::uniform4(0u8..8),
        ) -> Acl {
            let mut entries = vec![entry_of(AclTag::UserObj, perms[0])];
            entries.extend(users.iter().map(|&(id, perm)| entry_of(AclTag::User(id), perm)));
            entries.push(entry_of(AclTag::GroupObj, perms[1]));
            entries.extend(groups.iter().map(|&(id, perm)| entry_of(AclTag::Group(id), perm)));
            if masked || users.len() + groups.len() > 0 {
                entries.push(entry_of(AclTag::Mask, perms[2]));
            }
            entries.push(entry_of(AclTag::Other, perms[3]));
            Acl::new(entries).unwrap()
        }
    }

    proptest! {
        #[test]
        fn both_forms_come_back(acl in acls()) {
            prop_assert_eq!(decode(&encode(&acl), PLACE), Ok(acl.clone()));
            prop_assert_eq!(Acl::from_xattr(&acl.to_xattr()), Ok(Some(acl)));
        }

        #[test]
        fn damaged_bytes_are_refused_or_come_back(acl in acls(), at: prop::sample::Index, byte: u8) {
            let mut disk = encode(&acl);
            let at = at.index(disk.len());
            disk[at] = byte;
            if let Ok(acl) = decode(&disk, PLACE) {
                prop_assert_eq!(encode(&acl), disk);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(acl) = decode(&bytes, PLACE) {
                prop_assert_eq!(encode(&acl), bytes.clone());
            }
            let _ = Acl::from_xattr(&bytes);
        }
    }
}
