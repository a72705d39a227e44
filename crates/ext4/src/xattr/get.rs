//! Reads extended attributes.
//!
//! An inode's own attributes are searched before its block's. A block's checksum is verified
//! once a load. A value in an EA inode is read whole and compared with the hash in that inode,
//! because no checksum covers it. Attributes of other namespaces than users may see are
//! `EOPNOTSUPP`; ACLs, inline data and encryption contexts have separate functions.
//!
//! `ops` calls `xattr_value` and `list_xattrs` with the inode's lock `attributes` held; the file
//! system reads single attributes by [`InodeInfo::attribute`].

use extern4_block::Buffer;
use extern4_disk::xattr::{self, Attr, Attrs, NameIndex, Value};
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};
use extern4_vfs::Errno;

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::volume::buffer::Verified;
use crate::volume::group::to_usize;
use crate::xattr::ea_inode::ea_inode;

/// The namespaces whose attributes users may see.
const LISTED: [NameIndex; 4] = [
    NameIndex::USER,
    NameIndex::TRUSTED,
    NameIndex::SECURITY,
    NameIndex::HURD,
];

/// Whether users may see attributes of that namespace.
pub(crate) fn lists(fs: &Ext4, index: NameIndex) -> bool {
    LISTED.contains(&index) && (index != NameIndex::USER || fs.has_user_attributes)
}

fn attribute_block_of(inode: &InodeInfo) -> Option<(u64, Place)> {
    let block = inode.fields().xattr_block()?;
    Some((
        block,
        Place::new(Structure::Xattr).ino(inode.ino()).block(block),
    ))
}

/// Returns attribute block `block` with its checksum verified.
pub(crate) fn attribute_block_at(fs: &Ext4, block: u64, place: Place) -> Result<Buffer> {
    let verify = |bytes: &[u8]| verify_attribute_block(fs, bytes, block, place);
    fs.verified(block, Verified::XattrBlock, verify)
}

fn verify_attribute_block(
    fs: &Ext4,
    bytes: &[u8],
    block: u64,
    place: Place,
) -> Result<(), Corrupt> {
    match fs.superblock().metadata_seed() {
        Some(seed) => xattr::verify_checksum(bytes, block, seed, place),
        None => Ok(()),
    }
}

/// Returns the value of an attribute, also from an EA inode.
fn value(fs: &Ext4, attr: &Attr<'_>, owner: &InodeInfo, place: Place) -> Result<Vec<u8>> {
    match attr.value {
        Value::Here(value) => Ok(value.to_vec()),
        Value::EaInode { ino, size } => value_in_inode(fs, attr, (ino, size), owner, place),
    }
}

fn value_in_inode(
    fs: &Ext4,
    attr: &Attr<'_>,
    (ino, size): (u32, u32),
    owner: &InodeInfo,
    place: Place,
) -> Result<Vec<u8>> {
    let info = ea_inode(fs, ino, place)?;
    let at = Place::new(Structure::Xattr).ino(ino);
    if info.size() != u64::from(size) || size > xattr::VALUE_SIZE_MAX {
        let kind = CorruptKind::Field {
            field: "e_value_size",
            value: u64::from(size),
        };
        return Err(at.corrupt(kind).into());
    }
    let mut value = vec![0; to_usize(size)];
    info.read_ea_value(fs, &mut value)?;
    if info.fields().may_be_old_value_of(owner.fields()) && !info.is_ea_hash_right(fs, &value) {
        return Ok(value);
    }
    let computed = fs.superblock().checksum_seed().checksum(&value);
    extern4_disk::checksum::verify(info.fields().ea_hash(), computed, at)?;
    xattr::hash::verify_entry(attr, Some(computed), place)?;
    if let Some(writer) = fs.writer.get() {
        writer.sharing.values.insert(computed, ino.into());
    }
    Ok(value)
}

impl InodeInfo {
    /// Returns the value of the attribute with the full name `name`.
    pub(crate) fn xattr_value(&self, fs: &Ext4, name: &[u8]) -> Result<Vec<u8>> {
        match NameIndex::split(name) {
            Some((index, rest)) if lists(fs, index) => self
                .attribute(fs, index, rest)?
                .ok_or_else(|| Errno::ENODATA.into()),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    /// Calls `each` with the full name of every attribute that users may see.
    pub(crate) fn list_xattrs(&self, fs: &Ext4, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.with_attributes(fs, |attrs, _| {
            for attr in attrs.iter().filter(|attr| lists(fs, attr.index)) {
                if let Some(name) = attr.full_name() {
                    each(&name);
                }
            }
            Ok(None::<()>)
        })
        .map(drop)
    }

    /// Returns the value of the attribute of that namespace and name; `None` if there is none.
    pub(crate) fn attribute(
        &self,
        fs: &Ext4,
        index: NameIndex,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        self.with_attributes(fs, |attrs, place| match attrs.get(index, name) {
            None => Ok(None),
            Some(attr) => value(fs, &attr, self, place).map(Some),
        })
    }

    /// Calls `look` with the attributes in the inode's record, and then with those in its block,
    /// until it returns a result.
    pub(crate) fn with_attributes<R>(
        &self,
        fs: &Ext4,
        mut look: impl FnMut(&Attrs<'_>, Place) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let place = self.xattr_area_place();
        let found = self.with_xattr_area(fs, |area| match Attrs::in_inode(area, place)? {
            Some(attrs) => look(&attrs, place),
            None => Ok(None),
        })?;
        if found.is_some() {
            return Ok(found);
        }
        let Some((buffer, place)) = self.attribute_block(fs)? else {
            return Ok(None);
        };
        look(&Attrs::in_block(&buffer, place)?.1, place)
    }

    /// Returns the attribute block of an inode with its checksum verified.
    pub(crate) fn attribute_block(&self, fs: &Ext4) -> Result<Option<(Buffer, Place)>> {
        let Some((block, place)) = attribute_block_of(self) else {
            return Ok(None);
        };
        Ok(Some((attribute_block_at(fs, block, place)?, place)))
    }

    /// Calls `look` with the verified attribute block of an inode; `None` if it has none. `look`
    /// must not block.
    pub(crate) fn with_attribute_block<R>(
        &self,
        fs: &Ext4,
        look: impl FnOnce(&[u8], Place) -> R,
    ) -> Result<Option<R>> {
        let Some((block, place)) = attribute_block_of(self) else {
            return Ok(None);
        };
        let verify = |bytes: &[u8]| verify_attribute_block(fs, bytes, block, place);
        fs.with_verified(block, Verified::XattrBlock, verify, |bytes| {
            look(bytes, place)
        })
        .map(Some)
    }
}
