//! The extended attributes that carry ACLs, and the byte form of their values.
//!
//! ```text
//! version 4 | tag 2, perm 2, id 4 | tag 2, perm 2, id 4 | ...        little-endian
//! ```
//!
//! Format: `linux/posix_acl_xattr.h`.
//!
//! The VFS converts the values that callers get and set, and archives and directories of the host
//! carry this form. A value that breaks the format or is no valid ACL is an error, as on Linux.

use crate::{Acl, AclEntry, AclError, AclTag};

/// The version word.
const VERSION: u32 = 2;
/// The id in an entry that names no user or group.
pub(crate) const NO_ID: u32 = u32::MAX;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

/// One of the two ACLs that an inode may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AclKind {
    /// Controls access to the inode.
    Access,
    /// Given to the new children of a directory.
    Default,
}

impl AclKind {
    /// Returns the name of the extended attribute that holds the ACL.
    pub const fn xattr_name(self) -> &'static str {
        match self {
            Self::Access => "system.posix_acl_access",
            Self::Default => "system.posix_acl_default",
        }
    }

    /// Returns the kind of ACL that the extended attribute `name` holds; `None` if it holds none.
    pub fn from_xattr_name(name: &[u8]) -> Option<Self> {
        [Self::Access, Self::Default]
            .into_iter()
            .find(|kind| kind.xattr_name().as_bytes() == name)
    }
}

impl Acl {
    /// Returns the value of the attribute.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.entries().len() * ENTRY_BYTES);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        for entry in self.entries() {
            let (tag, id) = entry.tag.to_raw();
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&u16::from(entry.perm).to_le_bytes());
            bytes.extend_from_slice(&id.unwrap_or(NO_ID).to_le_bytes());
        }
        bytes
    }

    /// Reads the value of the attribute. A value without entries is `None`: setting it removes the
    /// ACL.
    ///
    /// # Errors
    /// Bytes that do not have the form, and entries that are no valid list.
    pub fn from_xattr(bytes: &[u8]) -> Result<Option<Self>, AclError> {
        let (version, rest) = bytes.split_first_chunk().ok_or(AclError::Encoding)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(AclError::Version);
        }
        if !rest.len().is_multiple_of(ENTRY_BYTES) {
            return Err(AclError::Encoding);
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let entries: Result<Vec<_>, _> = rest.chunks_exact(ENTRY_BYTES).map(decode_entry).collect();
        Self::new(entries?).map(Some)
    }
}

fn decode_entry(bytes: &[u8]) -> Result<AclEntry, AclError> {
    let [t0, t1, p0, p1, id @ ..] = bytes else {
        return Err(AclError::Encoding);
    };
    let id = u32::from_le_bytes(id.try_into().map_err(|_| AclError::Encoding)?);
    let tag = AclTag::from_raw(u16::from_le_bytes([*t0, *t1]), id).ok_or(AclError::Encoding)?;
    if id == NO_ID && tag.is_named() {
        return Err(AclError::Encoding);
    }
    let perm = u8::try_from(u16::from_le_bytes([*p0, *p1])).map_err(|_| AclError::Perm)?;
    Ok(AclEntry { tag, perm })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(text: &str) -> Acl {
        text.parse().unwrap()
    }

    #[test]
    fn xattr_form_round_trips() {
        let full = acl("u::rwx,u:0:---,u:1000:rw-,g::r-x,g:7:-wx,m::rwx,o::r-x");
        assert_eq!(Acl::from_xattr(&full.to_xattr()), Ok(Some(full.clone())));
        assert_eq!(Acl::from_xattr(&2u32.to_le_bytes()), Ok(None));
        assert_eq!(Acl::from_xattr(&1u32.to_le_bytes()), Err(AclError::Version));
        assert_eq!(
            Acl::from_xattr(&full.to_xattr()[..11]),
            Err(AclError::Encoding)
        );
        assert_eq!(Acl::from_xattr(b""), Err(AclError::Encoding));
    }

    #[test]
    fn xattr_form_byte_by_byte() {
        #[rustfmt::skip]
        let bytes = [
            2, 0, 0, 0,
            1, 0, 6, 0, 255, 255, 255, 255,
            2, 0, 4, 0, 0xE8, 3, 0, 0,
            4, 0, 5, 0, 255, 255, 255, 255,
            0x10, 0, 7, 0, 255, 255, 255, 255,
            0x20, 0, 0, 0, 255, 255, 255, 255,
        ];
        assert_eq!(
            acl("u::rw-,u:1000:r--,g::r-x,m::rwx,o::---").to_xattr(),
            bytes
        );
    }
}
