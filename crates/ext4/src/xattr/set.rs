//! Setting and removing attributes.
//!
//! What is to be done is found out first ([`Plan`]), so that an attribute that has no room is refused before anything
//! changes. What is in a block is the concern of `attr_block`, for inodes share blocks; values too large for either, that
//! of `ea_inode`.

use extern4_disk::feature::Compat;
use extern4_disk::xattr::{NameIndex, Spot};
use extern4_vfs::{Errno, Inode, SpaceRights, Timespec, XattrFlags};

use crate::alloc::balloc::Demand;
use crate::error::Result;
use crate::inode::InodeInfo;
use crate::inode::inode_info::Node;
use crate::mount::Ext4;
use crate::ops::create::timestamp;
use crate::quota::Owners;
use crate::volume::handle::Change;
use crate::xattr::list::{self, Plan};

impl Ext4 {
    /// Sets the attribute with the full name `name`, or without a value removes it.
    pub(crate) fn change_xattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        now: Timespec,
        rights: SpaceRights,
    ) -> Result<()> {
        let split = NameIndex::split(name).filter(|(index, _)| self.lists(*index));
        let (index, rest) = split.ok_or(Errno::EOPNOTSUPP)?;
        if let Some(value) = value
            && let Some((spot, is_same)) = self.spot_for(inode, (index, rest), value)?
        {
            if flags.contains(XattrFlags::CREATE) {
                return Err(Errno::EEXIST.into());
            }
            return if is_same { Ok(()) } else { self.overwrite_value(inode, spot, value, now) };
        }
        let node = inode.private::<Node>();
        let mut info = node.info();
        let _map = info.is_inline().then(|| node.change_map());
        let _attributes = node.change_attributes();
        let old = self.attributes(&info)?;
        match old.has(index, rest) {
            true if flags.contains(XattrFlags::CREATE) => return Err(Errno::EEXIST.into()),
            false if flags.contains(XattrFlags::REPLACE) || value.is_none() => {
                return Err(Errno::ENODATA.into());
            }
            // As in Linux, not even the time changes; a value in an inode of its own is not looked at.
            _ if old.says(index, rest, value) => return Ok(()),
            _ => {}
        }
        let plan = self.plan(&info, &old, (index, rest), value)?;
        let need = plan.need(self);
        let tid = self.changing(need.credits, Demand::new(need.blocks, rights), |change| {
            change.admit_plan(&info, rights, &plan)?;
            info.fields_mut().set_ctime(timestamp(now));
            change.apply(&mut info, plan)?;
            Ok(change.tid())
        })?;
        self.publish_attributes(inode, &info, tid)
    }

    /// Writes a value over the one that an attribute in the record has. Whoever reads attributes sees one of the two, for it changes in one
    /// step and nothing moves, so attributes need not be locked.
    fn overwrite_value(&self, inode: &Inode, spot: Spot, value: &[u8], now: Timespec) -> Result<()> {
        // The record and the superblock.
        self.changing(2, 0, |change| {
            change.note_attributes()?;
            change.touch(inode, |fields, area| {
                fields.set_ctime(timestamp(now));
                spot.overwrite(area, value);
            })
        })
    }

    /// Gives up what attributes of a deleted inode have in EA inodes, each in a change of its own. What then is left
    /// for [`Change::free_attributes`] takes few credits.
    pub(crate) fn free_values(&self, info: &mut InodeInfo) -> Result<()> {
        if self.attributes(info)?.first_elsewhere().is_none() {
            return Ok(());
        }
        // Nobody is to come to share what is taken apart.
        let _alone = self.changing(2, 0, |change| change.have_block_alone(info))?;
        while let Some((index, name)) = self.attributes(info)?.first_elsewhere() {
            let plan = self.plan(info, &self.attributes(info)?, (index, &name), None)?;
            let need = plan.need(self);
            // In the block that there is.
            self.changing(need.credits, 0, |change| change.apply(info, plan))?;
        }
        Ok(())
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
        let mut made_for_block = None;
        // First, for there may be no inode.
        if let Some(value) = plan.value.take() {
            let ino = self.take_ea_inode(info, &value)?;
            made_for_block = plan.is_value_of_block().then_some(ino);
            plan.made(ino);
            // OK: at most 64 KiB.
            self.charge_value(info, value.len() as i64)?;
        }
        self.note_attributes()?;
        for &(ino, size, _) in &plan.given_up {
            self.give_value_up(info, ino, size)?;
        }
        if let Some(list) = &plan.block {
            self.change_block(info, list, made_for_block)?;
        }
        match &plan.own {
            Some(list) => self.store_with(info, |area| list::write_in_inode(list, area))??,
            None => self.store(info)?,
        }
        // What a block refers to belongs to the block.
        for &(ino, ..) in plan.given_up.iter().filter(|(_, _, in_block)| !in_block) {
            self.release_ea_inode(ino, Some(info))?;
        }
        Ok(())
    }

    /// Gives up all attributes of an inode that is deleted. The caller stores it. After [`Ext4::free_values`] it changes
    /// four blocks of metadata: the attribute block, its bitmap and descriptor, and the record.
    pub(crate) fn free_attributes(&self, info: &mut InodeInfo) -> Result<()> {
        let old = self.fs.attributes(info)?;
        for (ino, size, in_block) in old.ea_inodes() {
            self.give_value_up(info, ino, size)?;
            if !in_block {
                self.release_ea_inode(ino, Some(info))?;
            }
        }
        self.leave_block(info)?;
        if old.own.iter().any(|attribute| attribute.ea_inode().is_some()) {
            self.store_with(info, |area| area.fill(0))?;
        }
        Ok(())
    }

    /// Counts `blocks` more for an inode, and for its owner: each who shares a block has it counted.
    pub(crate) fn charge(&self, info: &mut InodeInfo, blocks: i64) -> Result<()> {
        info.add_blocks(blocks, self.fs.superblock().block_size())
    }

    /// Counts what a value of `size` bytes in EA inode `ino` takes no longer: an attribute of the
    /// inode with that value goes.
    pub(crate) fn give_value_up(&self, info: &mut InodeInfo, ino: u32, size: u32) -> Result<()> {
        if self.fs.is_old_ea_inode(ino, info) { Ok(()) } else { self.charge_value(info, -i64::from(size)) }
    }

    /// Counts what a value of `size` bytes in an EA inode takes, which each attribute with that value has counted; given up, if it
    /// is below 0.
    fn charge_value(&self, info: &mut InodeInfo, size: i64) -> Result<()> {
        let block_size = u64::from(self.fs.superblock().block_size());
        // OK: at most 16 MiB.
        self.charge(info, size.unsigned_abs().div_ceil(block_size) as i64 * size.signum())?;
        self.count_for(Owners::of(info.fields()), self.amount(0, size.signum()))
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
}
