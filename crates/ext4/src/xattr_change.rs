//! Setting and removing attributes.
//!
//! What is to be done is found out first ([`Plan`]), so that an attribute that has no room is refused before anything
//! changes. Several inodes may have the same attribute block: Linux lets those share one that have the same
//! attributes. Such a block is never changed, who wants other attributes leaves it to the others. This crate makes no
//! block shared.

use std::sync::PoisonError;

use extern4_block::Buffer;
use extern4_disk::feature::Compat;
use extern4_disk::xattr::{self, Attrs, Header, NameIndex, hash};
use extern4_disk::{Place, Structure};
use extern4_vfs::{Caps, Errno, Inode, Timespec, XattrFlags};

use crate::attrs::{self, Attribute, Plan, borrowed};
use crate::buffer::Verified;
use crate::change::Change;
use crate::create::timestamp;
use crate::error::Result;
use crate::inode::InodeInfo;
use crate::mount::Ext4;
use crate::node::Node;
use crate::quota::Owners;
use crate::xattr::LISTED;

impl Ext4 {
    /// Sets the attribute with the full name `name`, or without a value removes it.
    pub(crate) fn change_xattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        now: Timespec,
        caps: Caps,
    ) -> Result<()> {
        let split = NameIndex::split(name).filter(|(index, _)| LISTED.contains(index));
        let (index, rest) = split.ok_or(Errno::EOPNOTSUPP)?;
        let node = inode.private::<Node>();
        let _map = node.change_map();
        let mut info = node.copy();
        let old = self.attributes(&info)?;
        match old.has(index, rest) {
            true if flags.contains(XattrFlags::CREATE) => return Err(Errno::EEXIST.into()),
            false if flags.contains(XattrFlags::REPLACE) || value.is_none() => {
                return Err(Errno::ENODATA.into());
            }
            _ => {}
        }
        let plan = self.plan(&info, &old, (index, rest), value)?;
        let need = plan.need(self);
        let tid = self.changing(need.credits, need.blocks, |change| {
            change.admit_plan(&info, caps, &plan)?;
            info.fields_mut().set_ctime(timestamp(now));
            change.apply(&mut info, plan)?;
            Ok(change.tid())
        })?;
        self.publish(inode, info, tid)
    }

    /// Gives up what attributes of a deleted inode have in EA inodes, each in a change of its own. What then is left
    /// for [`Change::free_attributes`] takes few credits.
    pub(crate) fn free_values(&self, info: &mut InodeInfo) -> Result<()> {
        loop {
            let old = self.attributes(info)?;
            let Some((index, name)) = old.first_elsewhere() else { return Ok(()) };
            let plan = self.plan(info, &old, (index, &name), None)?;
            let need = plan.need(self);
            self.changing(need.credits, need.blocks, |change| change.apply(info, plan))?;
        }
    }

    /// The first block of the group of inode `ino`.
    fn home_of(&self, ino: u32) -> u64 {
        let geometry = self.superblock().geometry();
        geometry.inode_slot(ino).and_then(|slot| geometry.group_start(slot.group)).unwrap_or(0)
    }

    /// Bytes that stand for the value of an attribute in the count of its owner's blocks, as blocks.
    fn counted(&self, size: u32) -> i64 {
        i64::from(size.div_ceil(self.superblock().block_size()))
    }
}

impl Change<'_> {
    /// Sets one attribute of an inode, or without a value removes it, and stores the inode. Nothing happens if there
    /// is none to remove.
    ///
    /// # Errors
    /// `ENOSPC`, and nothing is changed, if it has no room.
    pub(crate) fn set_attribute(
        &self,
        info: &mut InodeInfo,
        index: NameIndex,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let plan = self.fs.plan(info, &self.fs.attributes(info)?, (index, name), value)?;
        self.apply(info, plan)
    }

    /// Does what has been planned, and stores the inode.
    pub(crate) fn apply(&self, info: &mut InodeInfo, mut plan: Plan) -> Result<()> {
        let lock = || self.writer.shared_attributes.lock().unwrap_or_else(PoisonError::into_inner);
        let _shared = plan.meets_others().then(lock);
        let mut made = None;
        // First, for there may be no inode.
        if let Some(value) = plan.value.take() {
            let ino = self.make_ea_inode(info, &value)?;
            made = Some(ino);
            plan.made(ino);
            // OK: at most 64 KiB.
            self.count_value(info, value.len() as u32, 1)?;
        }
        self.note_attributes()?;
        let place = Place::new(Structure::Xattr).ino(info.ino());
        let leaves_block = self.is_block_shared(info)?;
        if let Some(list) = &plan.block {
            self.change_block(info, list, leaves_block)?;
            // A copy of the block refers to the values of the rest, too.
            let values = list.iter().filter_map(Attribute::ea_inode).map(|(ino, _)| ino);
            for ino in values.filter(|ino| leaves_block && made != Some(*ino)) {
                self.share_ea_inode(ino, place)?;
            }
        }
        for &(_, size, _) in &plan.given_up {
            self.count_value(info, size, -1)?;
        }
        match &plan.own {
            Some(list) => self.store_with(info, |area| attrs::write_in_inode(list, area))??,
            None => self.store(info)?,
        }
        for &(ino, _, in_block) in &plan.given_up {
            // What a shared block refers to is the others'.
            if !(in_block && leaves_block) {
                self.release_ea_inode(ino, place)?;
            }
        }
        Ok(())
    }

    /// Gives up all attributes of an inode that is deleted. The caller stores it. After [`Ext4::free_values`] it changes
    /// four blocks of metadata: the attribute block, its bitmap and descriptor, and the record.
    pub(crate) fn free_attributes(&self, info: &mut InodeInfo) -> Result<()> {
        let old = self.fs.attributes(info)?;
        let place = Place::new(Structure::Xattr).ino(info.ino());
        let _shared = self.writer.shared_attributes.lock().unwrap_or_else(PoisonError::into_inner);
        let leaves_block = self.is_block_shared(info)?;
        for (ino, size, in_block) in old.ea_inodes() {
            self.count_value(info, size, -1)?;
            if !(in_block && leaves_block) {
                self.release_ea_inode(ino, place)?;
            }
        }
        self.leave_block(info)?;
        if old.own.iter().any(|attribute| attribute.ea_inode().is_some()) {
            self.store_with(info, |area| area.fill(0))?;
        }
        Ok(())
    }

    /// Counts blocks of an inode.
    fn count(&self, info: &mut InodeInfo, blocks: i64) -> Result<()> {
        info.add_blocks(blocks, self.fs.superblock().block_size())
    }

    /// Counts a value in an inode of its own, or counts it not any more.
    fn count_value(&self, info: &mut InodeInfo, size: u32, by: i64) -> Result<()> {
        self.count(info, by * self.fs.counted(size))?;
        self.count_for(Owners::of(info.fields()), self.amount(0, by))
    }

    /// Says in the superblock that there are attributes.
    fn note_attributes(&self) -> Result<()> {
        // As it was when the volume was opened: it is only set here, and setting it again does no harm.
        if self.fs.superblock().features().compat.contains(Compat::EXT_ATTR) {
            return Ok(());
        }
        self.edit_superblock(|raw| {
            raw.s_feature_compat.set((raw.features().compat | Compat::EXT_ATTR).bits())
        })
    }

    fn is_block_shared(&self, info: &InodeInfo) -> Result<bool> {
        match self.fs.attribute_block(info)? {
            Some((buffer, place)) => Ok(Attrs::in_block(&buffer, place)?.0.refcount > 1),
            None => Ok(false),
        }
    }

    /// Makes `list` the attributes in the inode's block: in the one that there is, unless that is to be left to
    /// others, else in a new one.
    fn change_block(&self, info: &mut InodeInfo, list: &[Attribute], leave: bool) -> Result<()> {
        if !list.is_empty()
            && !leave
            && let Some((mut buffer, _)) = self.fs.attribute_block(info)?
        {
            return self.write_block(&mut buffer, list, info);
        }
        let near = info.fields().xattr_block();
        self.leave_block(info)?;
        if list.is_empty() {
            return Ok(());
        }
        let block = self.allocate(near.unwrap_or_else(|| self.fs.home_of(info.ino())), 1)?.start;
        let mut buffer = self.fresh(block)?;
        self.write_block(&mut buffer, list, info)?;
        info.fields_mut().set_xattr_block(Some(block));
        self.count(info, 1)
    }

    /// The inode does without its attribute block, which is freed if it was nobody else's.
    fn leave_block(&self, info: &mut InodeInfo) -> Result<()> {
        let Some((mut buffer, place)) = self.fs.attribute_block(info)? else { return Ok(()) };
        let refcount = Attrs::in_block(&buffer, place)?.0.refcount;
        if refcount > 1 {
            self.edit_block(&mut buffer, |bytes| xattr::store_refcount(bytes, refcount - 1));
        } else {
            let block = buffer.number();
            self.free(block..block + 1, true)?;
        }
        info.fields_mut().set_xattr_block(None);
        self.count(info, -1)
    }

    fn write_block(&self, buffer: &mut Buffer, list: &[Attribute], info: &InodeInfo) -> Result<()> {
        let place = Place::new(Structure::Xattr).ino(info.ino()).block(buffer.number());
        let bytes = encode_block(list, buffer.len(), place)?;
        self.edit_block(buffer, |old| old.copy_from_slice(&bytes));
        self.fs.note_verified(buffer, Verified::XattrBlock);
        Ok(())
    }

    /// Changes an attribute block, and its checksum with it.
    fn edit_block(&self, buffer: &mut Buffer, edit: impl FnOnce(&mut [u8])) {
        let number = buffer.number();
        self.edit(buffer, |bytes| {
            edit(bytes);
            if let Some(seed) = self.fs.superblock().metadata_seed() {
                xattr::store_checksum(bytes, number, seed);
            }
        });
    }
}

/// An attribute block of one inode.
fn encode_block(list: &[Attribute], len: usize, place: Place) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let encode = |hash, bytes: &mut [u8]| {
        xattr::encode_in_block(&Header { refcount: 1, hash }, &borrowed(list), bytes)
            .map_err(|_| Errno::ENOSPC)
    };
    encode(0, &mut bytes)?;
    let hash = hash::block(&Attrs::in_block(&bytes, place)?.1);
    encode(hash, &mut bytes)?;
    Ok(bytes)
}
