//! POSIX ACLs, as the volume stores them and as the `system.posix_acl_*` attributes carry them.
//!
//! Both forms are a version and a list of entries. On the volume (version 1) an entry without a user or group id is
//! four bytes long; in the attribute that system calls exchange (version 2) every entry has eight.
//!
//! ```text
//! volume:     | version 4 | tag 2, perm 2 | tag 2, perm 2, id 4 | ...
//! attribute:  | version 4 | tag 2, perm 2, id 4 | ...
//! ```
//!
//! An [`Acl`] obeys POSIX.1e: entries stand in the order owner, named users, owning group, named groups, mask, other;
//! owner, owning group and other are there exactly once; and there is a mask if anyone is named. Format: acl(5), and the
//! kernel's ext4 documentation, "POSIX ACLs".

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Corrupt, CorruptKind, Place};

/// The version of the form that volumes store.
pub const DISK_VERSION: u32 = 1;
/// The version of the form that the `system.posix_acl_*` attributes carry.
pub const XATTR_VERSION: u32 = 2;
/// What stands for an id in an attribute's entry that has none.
const NO_ID: u32 = u32::MAX;

/// `ext4_acl_header`, and the header of the attribute form: only the version.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[expect(missing_docs, reason = "the fields carry the names of the format's documentation")]
pub struct RawAclHeader {
    pub a_version: U32,
}

/// `ext4_acl_entry_short`: an entry of the volume without an id.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[expect(missing_docs, reason = "the fields carry the names of the format's documentation")]
pub struct RawAclEntryShort {
    pub e_tag: U16,
    pub e_perm: U16,
}

/// `ext4_acl_entry`: an entry of the volume with an id, and every entry of the attribute form.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[expect(missing_docs, reason = "the fields carry the names of the format's documentation")]
pub struct RawAclEntry {
    pub e_tag: U16,
    pub e_perm: U16,
    pub e_id: U32,
}

const HEADER_SIZE: usize = size_of::<RawAclHeader>();
const _: () = assert!(HEADER_SIZE == 4);
const _: () = assert!(size_of::<RawAclEntryShort>() == 4);
const _: () = assert!(size_of::<RawAclEntry>() == 8);

/// Whom an entry is for. The order is that of the entries in an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// The file's owner.
    UserObj,
    /// The user with this id.
    User(u32),
    /// The file's group.
    GroupObj,
    /// The group with this id.
    Group(u32),
    /// The most that named users, the file's group and named groups get.
    Mask,
    /// Everybody else.
    Other,
}

impl Tag {
    fn from_raw(tag: u16, id: u32) -> Option<Self> {
        Some(match tag {
            0x01 => Self::UserObj,
            0x02 => Self::User(id),
            0x04 => Self::GroupObj,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }

    fn to_raw(self) -> (u16, Option<u32>) {
        match self {
            Self::UserObj => (0x01, None),
            Self::User(id) => (0x02, Some(id)),
            Self::GroupObj => (0x04, None),
            Self::Group(id) => (0x08, Some(id)),
            Self::Mask => (0x10, None),
            Self::Other => (0x20, None),
        }
    }

    /// Where entries of this kind stand among the others.
    fn rank(self) -> u8 {
        match self {
            Self::UserObj => 0,
            Self::User(_) => 1,
            Self::GroupObj => 2,
            Self::Group(_) => 3,
            Self::Mask => 4,
            Self::Other => 5,
        }
    }

    fn is_named(self) -> bool {
        matches!(self, Self::User(_) | Self::Group(_))
    }
}

/// What one entry of an ACL grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// To whom.
    pub tag: Tag,
    /// Read 4, write 2, execute 1.
    pub perm: u8,
}

/// A valid POSIX ACL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

/// Why entries or bytes are not an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The version is not the form's.
    #[error("ACL version {0} is not known")]
    Version(u32),
    /// The bytes end inside an entry or before the header does.
    #[error("an ACL cannot be {0} bytes long")]
    Length(usize),
    /// A tag that no kind of entry has.
    #[error("ACL tag {0:#x} is not known")]
    Tag(u16),
    /// Permission bits beyond read, write and execute.
    #[error("ACL permissions {0:#x} are more than rwx")]
    Perm(u16),
    /// Entries out of order, or one of which there may be only one twice.
    #[error("ACL entries are out of order")]
    Order,
    /// No entry for the owner, the owning group or others, or a named entry but no mask.
    #[error("an ACL entry that must be there is missing")]
    Missing,
}

impl Invalid {
    fn corrupt(self, place: Place) -> Corrupt {
        place.corrupt(match self {
            Self::Version(value) => CorruptKind::Field { field: "a_version", value: u64::from(value) },
            Self::Length(value) => CorruptKind::Field { field: "e_value_size", value: value as u64 },
            Self::Tag(value) => CorruptKind::Field { field: "e_tag", value: u64::from(value) },
            Self::Perm(value) => CorruptKind::Field { field: "e_perm", value: u64::from(value) },
            Self::Order => CorruptKind::Order { what: "ACL entries" },
            Self::Missing => CorruptKind::Mismatch { what: "an ACL lacks an entry that must be there" },
        })
    }
}

impl Acl {
    /// The ACL of these entries.
    ///
    /// # Errors
    /// Entries that break a rule of POSIX.1e, as the module says them.
    pub fn new(entries: Vec<AclEntry>) -> Result<Self, Invalid> {
        if let Some(entry) = entries.iter().find(|entry| entry.perm > 7) {
            return Err(Invalid::Perm(u16::from(entry.perm)));
        }
        let ordered = entries.is_sorted_by(|a, b| {
            a.tag.rank() < b.tag.rank() || (a.tag.rank() == b.tag.rank() && a.tag.is_named())
        });
        if !ordered {
            return Err(Invalid::Order);
        }
        let has = |tag| entries.iter().any(|entry| entry.tag == tag);
        let mask_missing = entries.iter().any(|entry| entry.tag.is_named()) && !has(Tag::Mask);
        if !(has(Tag::UserObj) && has(Tag::GroupObj) && has(Tag::Other)) || mask_missing {
            return Err(Invalid::Missing);
        }
        Ok(Self { entries })
    }

    /// The entries in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Whether the ACL says no more than a file's mode does: three entries, nobody named and no mask.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Reads the form that the volume stores.
    ///
    /// # Errors
    /// Bytes that are no valid ACL.
    pub fn decode(bytes: &[u8], place: Place) -> Result<Self, Corrupt> {
        let mut at = 0;
        decode_disk(bytes, &mut at).map_err(|invalid| invalid.corrupt(place.byte(at)))
    }

    /// The form that the volume stores.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = header(DISK_VERSION);
        for entry in &self.entries {
            let (tag, id) = entry.tag.to_raw();
            let short = RawAclEntryShort { e_tag: tag.into(), e_perm: u16::from(entry.perm).into() };
            bytes.extend_from_slice(short.as_bytes());
            bytes.extend_from_slice(id.map(u32::to_le_bytes).as_ref().map_or(&[], |id| id.as_slice()));
        }
        bytes
    }

    /// Reads the value of a `system.posix_acl_access` or `system.posix_acl_default` attribute; `None` if it has no
    /// entries, which asks to remove the ACL.
    ///
    /// # Errors
    /// Bytes that are no valid ACL.
    pub fn decode_xattr(bytes: &[u8]) -> Result<Option<Self>, Invalid> {
        let rest = check_header(bytes, XATTR_VERSION)?;
        let raw = <[RawAclEntry]>::ref_from_bytes(rest).map_err(|_| Invalid::Length(bytes.len()))?;
        if raw.is_empty() {
            return Ok(None);
        }
        let entries = raw.iter().map(|raw| entry(raw.e_tag.get(), raw.e_perm.get(), raw.e_id.get()));
        Self::new(entries.collect::<Result<_, _>>()?).map(Some)
    }

    /// The value of a `system.posix_acl_access` or `system.posix_acl_default` attribute.
    pub fn encode_xattr(&self) -> Vec<u8> {
        let mut bytes = header(XATTR_VERSION);
        for entry in &self.entries {
            let (tag, id) = entry.tag.to_raw();
            let raw = RawAclEntry {
                e_tag: tag.into(),
                e_perm: u16::from(entry.perm).into(),
                e_id: id.unwrap_or(NO_ID).into(),
            };
            bytes.extend_from_slice(raw.as_bytes());
        }
        bytes
    }
}

fn header(version: u32) -> Vec<u8> {
    RawAclHeader { a_version: version.into() }.as_bytes().to_vec()
}

fn check_header(bytes: &[u8], version: u32) -> Result<&[u8], Invalid> {
    let (header, rest) = RawAclHeader::ref_from_prefix(bytes).map_err(|_| Invalid::Length(bytes.len()))?;
    match header.a_version.get() {
        found if found == version => Ok(rest),
        found => Err(Invalid::Version(found)),
    }
}

fn entry(tag: u16, perm: u16, id: u32) -> Result<AclEntry, Invalid> {
    let tag = Tag::from_raw(tag, id).ok_or(Invalid::Tag(tag))?;
    let perm = u8::try_from(perm).ok().filter(|&perm| perm <= 7).ok_or(Invalid::Perm(perm))?;
    Ok(AclEntry { tag, perm })
}

/// Reads the volume's form; `at` says how far it came.
fn decode_disk(bytes: &[u8], at: &mut usize) -> Result<Acl, Invalid> {
    let truncated = || Invalid::Length(bytes.len());
    let mut rest = check_header(bytes, DISK_VERSION)?;
    let mut entries = Vec::with_capacity(rest.len() / size_of::<RawAclEntryShort>());
    while !rest.is_empty() {
        *at = bytes.len() - rest.len();
        let (short, behind) = RawAclEntryShort::ref_from_prefix(rest).map_err(|_| truncated())?;
        let (tag, perm) = (short.e_tag.get(), short.e_perm.get());
        let named = Tag::from_raw(tag, 0).ok_or(Invalid::Tag(tag))?.is_named();
        let (id, behind) = match behind.split_first_chunk() {
            Some((id, behind)) if named => (u32::from_le_bytes(*id), behind),
            None if named => return Err(truncated()),
            _ => (NO_ID, behind),
        };
        entries.push(entry(tag, perm, id)?);
        rest = behind;
    }
    *at = 0;
    Acl::new(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Structure;
    use proptest::prelude::*;

    const PLACE: Place = Place::new(Structure::Acl);

    fn entry_of(tag: Tag, perm: u8) -> AclEntry {
        AclEntry { tag, perm }
    }

    #[test]
    fn rules_of_posix() {
        use Tag::{Group, GroupObj, Mask, Other, User, UserObj};
        let cases: &[(&[Tag], Result<(), Invalid>)] = &[
            (&[UserObj, GroupObj, Other], Ok(())),
            (&[UserObj, GroupObj, Mask, Other], Ok(())),
            (&[UserObj, User(7), User(3), GroupObj, Group(9), Mask, Other], Ok(())),
            (&[], Err(Invalid::Missing)),
            (&[UserObj, GroupObj], Err(Invalid::Missing)),
            (&[UserObj, User(1), GroupObj, Other], Err(Invalid::Missing)),
            (&[UserObj, GroupObj, Group(1), Other], Err(Invalid::Missing)),
            (&[UserObj, UserObj, GroupObj, Other], Err(Invalid::Order)),
            (&[UserObj, Other, GroupObj], Err(Invalid::Order)),
            (&[UserObj, GroupObj, User(1), Mask, Other], Err(Invalid::Order)),
            (&[UserObj, GroupObj, Mask, Mask, Other], Err(Invalid::Order)),
        ];
        for (tags, want) in cases {
            let made = Acl::new(tags.iter().map(|&tag| entry_of(tag, 7)).collect());
            assert_eq!(made.map(|_| ()), *want, "{tags:?}");
        }
        assert_eq!(Acl::new(vec![entry_of(UserObj, 8)]), Err(Invalid::Perm(8)));
    }

    #[test]
    fn the_two_forms_byte_by_byte() {
        let acl = Acl::new(vec![
            entry_of(Tag::UserObj, 6),
            entry_of(Tag::User(1000), 4),
            entry_of(Tag::GroupObj, 5),
            entry_of(Tag::Mask, 7),
            entry_of(Tag::Other, 0),
        ])
        .unwrap();
        #[rustfmt::skip]
        let disk = [
            1, 0, 0, 0,
            1, 0, 6, 0,
            2, 0, 4, 0, 0xE8, 3, 0, 0,
            4, 0, 5, 0,
            0x10, 0, 7, 0,
            0x20, 0, 0, 0,
        ];
        #[rustfmt::skip]
        let xattr = [
            2, 0, 0, 0,
            1, 0, 6, 0, 255, 255, 255, 255,
            2, 0, 4, 0, 0xE8, 3, 0, 0,
            4, 0, 5, 0, 255, 255, 255, 255,
            0x10, 0, 7, 0, 255, 255, 255, 255,
            0x20, 0, 0, 0, 255, 255, 255, 255,
        ];
        assert_eq!(acl.encode(), disk);
        assert_eq!(acl.encode_xattr(), xattr);
        assert_eq!(Acl::decode(&disk, PLACE), Ok(acl.clone()));
        assert_eq!(Acl::decode_xattr(&xattr), Ok(Some(acl)));
        assert_eq!(Acl::decode_xattr(&xattr[..4]), Ok(None));
        assert_eq!(Acl::decode_xattr(&xattr[..9]), Err(Invalid::Length(9)));
        let kind = CorruptKind::Field { field: "a_version", value: 2 };
        assert_eq!(Acl::decode(&xattr, PLACE), Err(PLACE.offset(0).corrupt(kind)));
        let kind = CorruptKind::Field { field: "e_value_size", value: 14 };
        assert_eq!(Acl::decode(&disk[..14], PLACE), Err(PLACE.offset(8).corrupt(kind)));
        let mut bad = disk;
        bad[8] = 3;
        let kind = CorruptKind::Field { field: "e_tag", value: 3 };
        assert_eq!(Acl::decode(&bad, PLACE), Err(PLACE.offset(8).corrupt(kind)));
    }

    prop_compose! {
        fn acls()(
            users in proptest::collection::vec((any::<u32>(), 0u8..8), 0..5),
            groups in proptest::collection::vec((any::<u32>(), 0u8..8), 0..5),
            masked: bool,
            perms in proptest::array::uniform4(0u8..8),
        ) -> Acl {
            let mut entries = vec![entry_of(Tag::UserObj, perms[0])];
            entries.extend(users.iter().map(|&(id, perm)| entry_of(Tag::User(id), perm)));
            entries.push(entry_of(Tag::GroupObj, perms[1]));
            entries.extend(groups.iter().map(|&(id, perm)| entry_of(Tag::Group(id), perm)));
            if masked || users.len() + groups.len() > 0 {
                entries.push(entry_of(Tag::Mask, perms[2]));
            }
            entries.push(entry_of(Tag::Other, perms[3]));
            Acl::new(entries).unwrap()
        }
    }

    proptest! {
        #[test]
        fn both_forms_come_back(acl in acls()) {
            prop_assert_eq!(Acl::decode(&acl.encode(), PLACE), Ok(acl.clone()));
            prop_assert_eq!(Acl::decode_xattr(&acl.encode_xattr()), Ok(Some(acl)));
        }

        #[test]
        fn damaged_bytes_are_refused_or_come_back(acl in acls(), at: prop::sample::Index, byte: u8) {
            let mut disk = acl.encode();
            let at = at.index(disk.len());
            disk[at] = byte;
            if let Ok(acl) = Acl::decode(&disk, PLACE) {
                prop_assert_eq!(acl.encode(), disk);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(acl) = Acl::decode(&bytes, PLACE) {
                prop_assert_eq!(acl.encode(), bytes.clone());
            }
            let _ = Acl::decode_xattr(&bytes);
        }
    }
}
