//! The attributes of an inode as lists, and the [`Plan`] of a change.
//!
//! An inode has two lists, in its record and in its block. A change reads both ([`Attributes`]),
//! plans where the attribute goes, and then writes the changed lists back whole. Making a plan
//! changes nothing, fails with `ENOSPC` if there is no room, and tells the credits and blocks that
//! carrying it out needs. `xattr::set`, `xattr::acl` and `ops::set_attr` make plans; `xattr::block`
//! writes lists to blocks.
//!
//! Entries of a block are sorted, because Linux's search relies on it. An entry in a record has a
//! hash only if its value is in an EA inode, because Linux changes inline data in place without
//! updating the hash.

use extern4_disk::feature::Incompat;
use extern4_disk::inline;
use extern4_disk::inode::{FileKind, MAP_SIZE, has_xattr_block, stored_xattr_range};
use extern4_disk::xattr::{self, Attr, Attrs, NameIndex, Value, ValueSlot, hash};
use extern4_disk::{Corrupt, Place, Structure};
use extern4_vfs::{Errno, Inode};

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::volume::group::to_usize;

/// An attribute to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    index: NameIndex,
    name: Vec<u8>,
    value: StoredValue,
    hash: u32,
}

/// The value of an attribute, or the inode that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StoredValue {
    Here(Vec<u8>),
    EaInode { ino: u32, size: u32 },
}

/// The number for an EA inode that is not made yet.
const NOT_MADE: u32 = u32::MAX;

impl Attribute {
    fn read(attr: &Attr<'_>) -> Self {
        let value = match attr.value {
            Value::Here(value) => StoredValue::Here(value.to_vec()),
            Value::EaInode { ino, size } => StoredValue::EaInode { ino, size },
        };
        Self {
            index: attr.index,
            name: attr.name.to_vec(),
            value,
            hash: attr.hash,
        }
    }

    /// Returns an attribute for a record, with its value.
    pub(crate) fn in_inode(index: NameIndex, name: &[u8], value: &[u8]) -> Self {
        Self {
            index,
            name: name.to_vec(),
            value: StoredValue::Here(value.to_vec()),
            hash: 0,
        }
    }

    /// Returns an attribute for a block, with its value.
    fn in_block(index: NameIndex, name: &[u8], value: &[u8]) -> Self {
        let hash = hash::entry(name, hash::Contents::Value(value));
        Self {
            hash,
            ..Self::in_inode(index, name, value)
        }
    }

    /// Returns an attribute whose value will be in an EA inode. OK: values have at most 64 KiB.
    fn in_ea_inode(index: NameIndex, name: &[u8], value: &[u8], value_hash: u32) -> Self {
        let hash = hash::entry(name, hash::Contents::EaInode { hash: value_hash });
        let value = StoredValue::EaInode {
            ino: NOT_MADE,
            size: u32::try_from(value.len()).unwrap_or(u32::MAX),
        };
        Self {
            index,
            name: name.to_vec(),
            value,
            hash,
        }
    }

    pub(crate) fn as_attr(&self) -> Attr<'_> {
        let value = match &self.value {
            StoredValue::Here(value) => Value::Here(value),
            StoredValue::EaInode { ino, size } => Value::EaInode {
                ino: *ino,
                size: *size,
            },
        };
        Attr {
            index: self.index,
            name: &self.name,
            value,
            hash: self.hash,
        }
    }

    /// Returns the inode of the value, and its size.
    pub(crate) fn ea_inode(&self) -> Option<(u32, u32)> {
        match self.value {
            StoredValue::EaInode { ino, size } => Some((ino, size)),
            StoredValue::Here(_) => None,
        }
    }

    /// Returns how many bytes of a block its value needs, without its name.
    fn value_in_block(&self) -> usize {
        match &self.value {
            StoredValue::Here(value) => value.len().next_multiple_of(4),
            StoredValue::EaInode { .. } => 0,
        }
    }

    fn is(&self, index: NameIndex, name: &[u8]) -> bool {
        self.index == index && self.name == name
    }

    /// Returns the key by which the entries of a block are sorted.
    fn key(&self) -> (NameIndex, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }
}

/// Returns the list in the form for the encoders.
pub(crate) fn borrowed(list: &[Attribute]) -> Vec<Attr<'_>> {
    list.iter().map(Attribute::as_attr).collect()
}

/// Puts `attribute` into the list of a record, in place of one with its name.
pub(crate) fn put_in_inode(list: &mut Vec<Attribute>, attribute: Attribute) {
    match list
        .iter()
        .position(|old| old.is(attribute.index, &attribute.name))
    {
        Some(at) => list[at] = attribute,
        None => list.push(attribute),
    }
}

/// Puts `attribute`, whose name it does not have, into the sorted list of a block.
fn put_in_block(list: &mut Vec<Attribute>, attribute: Attribute) {
    let at = list.partition_point(|old| old.key() < attribute.key());
    list.insert(at, attribute);
}

/// Removes and returns the attribute of that name.
pub(crate) fn take(list: &mut Vec<Attribute>, index: NameIndex, name: &[u8]) -> Option<Attribute> {
    let at = list.iter().position(|old| old.is(index, name))?;
    Some(list.remove(at))
}

/// Writes a list to a record's area for attributes. `ENOSPC` if it does not fit.
pub(crate) fn write_in_inode(list: &[Attribute], area: &mut [u8]) -> Result<()> {
    if list.is_empty() {
        area.fill(0);
        return Ok(());
    }
    xattr::encode_in_inode(&borrowed(list), area).map_err(|_| Errno::ENOSPC.into())
}

/// All attributes of an inode.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    /// Those in its record.
    pub(crate) own: Vec<Attribute>,
    /// Those in its block.
    pub(crate) block: Vec<Attribute>,
    /// How many bytes of the record are for attributes.
    area: usize,
}

/// A plan for setting an attribute, made before anything changes.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The attributes in the record, if they change.
    pub(crate) own: Option<Vec<Attribute>>,
    /// The attributes in the block, if they change.
    pub(crate) block: Option<Vec<Attribute>>,
    /// The value that needs an EA inode.
    pub(crate) value: Option<Vec<u8>>,
    /// EA inodes and sizes of values that are released, and whether the entry was in the block.
    pub(crate) released: Vec<(u32, u32, bool)>,
}

/// Returns where in the record of an inode `value` can overwrite the attribute's present value,
/// without any other change, and whether the two are equal. `None` if it cannot, or if the inode
/// has an attribute block, in which the attribute could be.
pub(crate) fn value_slot_for(
    fs: &Ext4,
    inode: &Inode,
    name: (NameIndex, &[u8]),
    value: &[u8],
) -> Result<Option<(ValueSlot, bool)>> {
    let cached = inode.private::<CachedInode>();
    let Some(at) = cached.position() else {
        return Ok(None);
    };
    // OK: inode numbers of this file system have 32 bits.
    let place = Place::new(Structure::Xattr)
        .ino(inode.ino() as u32)
        .block(at.block);
    // The record has everything that is needed here, so the inode is not locked.
    let slot = fs
        .cache
        .with_part(at.block, fs.record_range(at), |record| {
            // The next change of a record whose fields will grow moves its attributes.
            if has_xattr_block(record) || stored_xattr_range(record) != cached.xattr_range() {
                return Ok(None);
            }
            let area = &record[cached.xattr_range()];
            Ok::<_, Corrupt>(
                ValueSlot::find(area, place, name)?.map(|slot| (slot, slot.has(area, value))),
            )
        })??;
    Ok(slot.filter(|(slot, _)| slot.fits(value.len())))
}

impl InodeInfo {
    /// Whether an inode has attributes or an attribute block.
    pub(crate) fn has_attributes(&self, fs: &Ext4) -> Result<bool> {
        Ok(self.has_attributes_in_record(fs)? || self.fields().xattr_block().is_some())
    }

    /// Returns the attributes of an inode.
    pub(crate) fn attributes(&self, fs: &Ext4) -> Result<Attributes> {
        let place = self.xattr_area_place();
        let list = |attrs: &Attrs<'_>| attrs.iter().map(|attr| Attribute::read(&attr)).collect();
        let own = self.peek_xattr_area(fs, |area| {
            Ok::<_, Corrupt>(
                Attrs::in_inode(area, place)?
                    .as_ref()
                    .map_or(Vec::new(), list),
            )
        })??;
        let area = self.fields().xattr_range().len();
        let block = self.with_attribute_block(fs, |bytes, place| {
            Ok::<_, Corrupt>(list(&Attrs::in_block(bytes, place)?.1))
        })?;
        Ok(Attributes {
            own,
            block: block.transpose()?.unwrap_or_default(),
            area,
        })
    }

    /// Plans how to set an attribute, or without a value how to remove it. The attribute goes into
    /// the record if it fits there, else into the block. If it fits into neither, its value goes
    /// into an EA inode, if the volume has that feature.
    ///
    /// # Errors
    /// `ENOSPC` if it fits nowhere.
    pub(crate) fn plan(
        &self,
        fs: &Ext4,
        old: &Attributes,
        (index, name): (NameIndex, &[u8]),
        value: Option<&[u8]>,
    ) -> Result<Plan> {
        let Some(value) = value else {
            return Ok(old.with(index, name, None));
        };
        let put = |put| old.with(index, name, Some(put));
        let in_ea_inode = |place: fn(Attribute) -> Destination| {
            let value_hash = hash::ea_value(value, fs.superblock().checksum_seed());
            let plan = put(place(Attribute::in_ea_inode(
                index, name, value, value_hash,
            )));
            Plan {
                value: Some(value.to_vec()),
                ..plan
            }
        };
        let allows_ea_inode = !value.is_empty() && self.can_have_ea_inode(fs);
        let block_size = to_usize(fs.superblock().block_size());
        let for_names = if allows_ea_inode {
            names_reserve(block_size)
        } else {
            0
        };
        let ways: [&dyn Fn() -> Plan; 4] = [
            &|| {
                put(Destination::InInode(Attribute::in_inode(
                    index, name, value,
                )))
            },
            &|| {
                put(Destination::InBlock(Attribute::in_block(
                    index, name, value,
                )))
            },
            &|| in_ea_inode(Destination::InInode),
            &|| in_ea_inode(Destination::InBlock),
        ];
        let fits = |plan: &Plan| match plan.value {
            Some(_) => allows_ea_inode && plan.fits(old.area, block_size),
            None => {
                plan.fits(old.area, block_size) && plan.values_in_block() <= block_size - for_names
            }
        };
        let plan = ways
            .into_iter()
            .map(|way| way())
            .find(fits)
            .ok_or(Errno::ENOSPC)?;
        // Checks that `i_blocks` can count the blocks.
        let blocks = plan.value_blocks(fs.superblock().block_size()) + 1;
        self.clone()
            .add_blocks(blocks.into(), fs.superblock().block_size())?;
        Ok(plan)
    }

    /// Whether values may be in EA inodes. Not for a short symbolic link: EA inodes count among the
    /// owner's blocks, so e2fsck mistakes such a link for a long one. Linux makes such links all
    /// the same.
    fn can_have_ea_inode(&self, fs: &Ext4) -> bool {
        let short_link = self.fields().kind() == FileKind::Symlink && self.size() < MAP_SIZE as u64;
        fs.superblock()
            .features()
            .incompat
            .contains(Incompat::EA_INODE)
            && !short_link
    }
}

/// Returns the bytes of a block that values leave free for names, if values can be in EA inodes: a
/// block full of values has no room for the name of one more attribute. Observed: Linux leaves an
/// eighth of blocks of 1 and of 4 KiB.
fn names_reserve(block_size: usize) -> usize {
    (block_size / 8).min(1024)
}

/// An attribute and the list that it is for.
enum Destination {
    InInode(Attribute),
    InBlock(Attribute),
}

impl Attributes {
    /// Whether there is an attribute of that name.
    pub(crate) fn has(&self, index: NameIndex, name: &[u8]) -> bool {
        self.own
            .iter()
            .chain(&self.block)
            .any(|attribute| attribute.is(index, name))
    }

    /// Whether the attribute of that name has that value, stored with its name. Without a value,
    /// whether there is no such attribute.
    pub(crate) fn has_value(&self, index: NameIndex, name: &[u8], value: Option<&[u8]>) -> bool {
        let found = self
            .own
            .iter()
            .chain(&self.block)
            .find(|attribute| attribute.is(index, name));
        match (found.map(|attribute| &attribute.value), value) {
            (Some(StoredValue::Here(is)), Some(value)) => is == value,
            (found, value) => found.is_none() && value.is_none(),
        }
    }

    /// Returns the name of an attribute whose value is in an EA inode.
    pub(crate) fn first_with_ea_inode(&self) -> Option<(NameIndex, Vec<u8>)> {
        let found = self
            .own
            .iter()
            .chain(&self.block)
            .find(|attribute| attribute.ea_inode().is_some())?;
        Some((found.index, found.name.clone()))
    }

    /// Returns the empty attributes of a new inode. Its record has `area` bytes for attributes.
    pub(crate) fn none(area: usize) -> Self {
        Self {
            own: Vec::new(),
            block: Vec::new(),
            area,
        }
    }

    /// Returns the attributes as they are after `plan`.
    pub(crate) fn after(self, plan: &Plan) -> Self {
        let own = plan.own.clone().unwrap_or(self.own);
        let block = plan.block.clone().unwrap_or(self.block);
        Self { own, block, ..self }
    }

    /// Returns EA inodes, sizes of their values, and whether the entry is in the block; entries of
    /// the block come last.
    pub(crate) fn ea_inodes(&self) -> impl Iterator<Item = (u32, u32, bool)> {
        let of = |list: &[Attribute], block| -> Vec<_> {
            let values = list.iter().filter_map(Attribute::ea_inode);
            values.map(|(ino, size)| (ino, size, block)).collect()
        };
        of(&self.own, false)
            .into_iter()
            .chain(of(&self.block, true))
    }

    /// Plans to move attributes to the block, as few as possible, so that the others fit into
    /// `area` bytes of the record. `None` if that is impossible.
    ///
    /// Inline contents stay, as with Linux, and so do values in EA inodes, whose references the
    /// entries of a block would have to share.
    pub(crate) fn plan_to_move(&self, area: usize, fs: &Ext4) -> Option<Plan> {
        let block_size = to_usize(fs.superblock().block_size());
        let mut own = self.own.clone();
        let mut block = self.block.clone();
        loop {
            let changed = (block != self.block).then(|| block.clone());
            let plan = Plan {
                own: Some(own),
                block: changed,
                value: None,
                released: Vec::new(),
            };
            if plan.fits(area, block_size) {
                return Some(plan);
            }
            own = plan.own?;
            let movable = |attribute: &&Attribute| {
                attribute.ea_inode().is_none() && !attribute.is(inline::XATTR.0, inline::XATTR.1)
            };
            let excess = xattr::size_in_inode(&borrowed(&own)).checked_sub(area)?;
            let size = |attribute: &Attribute| xattr::size_in_inode(&[attribute.as_attr()]);
            // The smallest that suffices, or else the largest.
            let (index, name) = own
                .iter()
                .filter(movable)
                .min_by_key(
                    |attribute| match size(attribute) - xattr::size_in_inode(&[]) {
                        enough if enough >= excess => (false, enough),
                        less => (true, usize::MAX - less),
                    },
                )
                .map(|attribute| (attribute.index, attribute.name.clone()))?;
            let StoredValue::Here(value) = take(&mut own, index, &name)?.value else {
                return None;
            };
            put_in_block(&mut block, Attribute::in_block(index, &name, &value));
        }
    }

    /// Plans to replace the attribute of that name by `put`, or to remove it.
    fn with(&self, index: NameIndex, name: &[u8], put: Option<Destination>) -> Plan {
        let mut own = self.own.clone();
        let mut block = self.block.clone();
        let mut released = Vec::new();
        if !matches!(put, Some(Destination::InInode(_))) {
            released.extend(
                take(&mut own, index, name)
                    .and_then(|old| old.ea_inode())
                    .map(|(i, s)| (i, s, false)),
            );
        } else if let Some(old) = own.iter().find(|old| old.is(index, name)) {
            released.extend(old.ea_inode().map(|(i, s)| (i, s, false)));
        }
        released.extend(
            take(&mut block, index, name)
                .and_then(|old| old.ea_inode())
                .map(|(i, s)| (i, s, true)),
        );
        match put {
            None => {}
            Some(Destination::InInode(new)) => put_in_inode(&mut own, new),
            Some(Destination::InBlock(new)) => put_in_block(&mut block, new),
        }
        Plan {
            own: (own != self.own).then_some(own),
            block: (block != self.block).then_some(block),
            value: None,
            released,
        }
    }
}

impl Plan {
    fn fits(&self, area: usize, block_size: usize) -> bool {
        let own = self.own.as_deref().filter(|list| !list.is_empty());
        own.is_none_or(|list| xattr::size_in_inode(&borrowed(list)) <= area)
            && self
                .block
                .as_deref()
                .is_none_or(|list| xattr::size_in_block(&borrowed(list)) <= block_size)
    }

    /// Returns how many bytes of the changed block values need.
    fn values_in_block(&self) -> usize {
        self.block
            .iter()
            .flatten()
            .map(Attribute::value_in_block)
            .sum()
    }

    /// Sets the number of the EA inode that has been made for the value.
    pub(crate) fn made(&mut self, made: u32) {
        for attribute in self.own.iter_mut().chain(&mut self.block).flatten() {
            if let StoredValue::EaInode { ino, .. } = &mut attribute.value
                && *ino == NOT_MADE
            {
                *ino = made;
            }
        }
    }

    /// Returns how many blocks the new value needs in an EA inode.
    fn value_blocks(&self, block_size: u32) -> u32 {
        let len = self.value.as_ref().map_or(0, Vec::len);
        u32::try_from(len.div_ceil(to_usize(block_size))).unwrap_or(u32::MAX)
    }

    /// Whether the value for an EA inode belongs to an entry of the block.
    pub(crate) fn is_value_of_block(&self) -> bool {
        let is_not_made =
            |attribute: &Attribute| matches!(attribute.ea_inode(), Some((NOT_MADE, _)));
        self.block.iter().flatten().any(is_not_made)
    }

    /// Returns the credits and blocks that the plan needs.
    pub(crate) fn need(&self, fs: &Ext4) -> Need {
        Need {
            credits: self.credits(fs),
            blocks: self.blocks(fs.superblock().block_size()),
        }
    }

    /// Returns the blocks and inodes that the plan adds to the owner's usage, without subtracting
    /// the inodes that it releases.
    pub(crate) fn counts(&self, fs: &Ext4, info: &InodeInfo) -> (u32, i64) {
        let value = self.value_blocks(fs.superblock().block_size());
        let new_block = self.needs_block() && info.fields().xattr_block().is_none();
        (
            u32::from(new_block) + value,
            i64::from(self.value.is_some()),
        )
    }

    /// Whether the plan puts attributes into a block. That may need a new block even if the inode
    /// has one, because other inodes may share it by then.
    fn needs_block(&self) -> bool {
        self.block.as_ref().is_some_and(|list| !list.is_empty())
    }

    fn blocks(&self, block_size: u32) -> u32 {
        let value = match self.value_blocks(block_size) {
            0 => 0,
            // And a block of the map, a leaf of extents or an indirect block, if they are not
            // consecutive.
            blocks => blocks + 1,
        };
        u32::from(self.needs_block()) + value
    }

    fn credits(&self, fs: &Ext4) -> u32 {
        // The record and the superblock; the block, the one that it replaces, and bitmap and
        // descriptor for both.
        let block = if self.block.is_some() { 6 } else { 0 };
        let value = self
            .value
            .as_ref()
            .map_or(0, |value| ea_credits(value.len(), fs));
        let released = self
            .released
            .iter()
            .map(|(_, size, _)| ea_credits(to_usize(*size), fs));
        // A new block adds a reference to each value of the other entries.
        let copied = self
            .block
            .iter()
            .flatten()
            .filter(|attribute| attribute.ea_inode().is_some());
        // OK: a block has room for fewer than 2^12 entries.
        2 + block + value + released.sum::<u32>() + copied.count() as u32
    }
}

/// The most blocks of metadata that an operation changes, and the most blocks that it allocates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) credits: u32,
    pub(crate) blocks: u32,
}

/// Returns the credits for making or freeing an EA inode of `size` bytes: its record, bitmap and
/// descriptor, its contents and their map, and bitmaps and descriptors of all groups that they may
/// be in.
fn ea_credits(size: usize, fs: &Ext4) -> u32 {
    let geometry = fs.superblock().geometry();
    let blocks = u32::try_from(size.div_ceil(to_usize(geometry.block_size()))).unwrap_or(u32::MAX);
    let groups = blocks.saturating_add(1).min(geometry.group_count());
    blocks
        .saturating_add(groups.saturating_mul(2))
        .saturating_add(8)
}
