//! The attribute block of an inode, which others may have too.
//!
//! Inodes with the same attributes in their blocks share one, as Linux has it: up to 1024, counted in its header. A block that is
//! shared is never changed; who wants other attributes leaves it to the others.
//!
//! # Who comes and who goes
//! How many have the block is also in a word of its buffer, [`Buffer::shares`]. It is noted from the header when somebody first
//! needs it, and is the one that decides:
//!
//! - To join, an inode raises it from what it was when the contents were compared. Only then does it ask the journal for the block:
//!   that would take back a revocation, which of a block that is no more must stay.
//! - The last who leaves closes it, then takes the block out of the cache of hints, and frees it. So nobody joins a block that is
//!   being freed, and nobody who has joined finds it freed.
//! - Who leaves it to others lowers the word inside his change of the header, so that whoever is the last comes after that.
//! - Who has it alone and wants to change it closes it meanwhile.
//!
//! A word is as old as its buffer, so whoever finds a block through the cache looks once more whether it is there when he holds the
//! buffer: if it is, the block had not been given up, and the word is about this life of it.
//!
//! The header gets what the word says at that moment. All who changed the word have a handle on the same transaction, and the last
//! of them to change the header writes what all have made of it.

use extern4_block::Buffer;
use extern4_disk::xattr::{self, Attrs, Header, REFCOUNT_MAX, hash};
use extern4_disk::{Place, Structure};
use extern4_sync::shares::{Joined, Left};
use extern4_vfs::Errno;

use crate::attrs::{Attribute, borrowed};
use crate::buffer::Verified;
use crate::change::Change;
use crate::error::Result;
use crate::inode::InodeInfo;
use crate::mount::Ext4;
use crate::seal;
use crate::sharing::Count;

impl Ext4 {
    /// Notes where the attribute block of `info` is, so that other inodes may share it. Locks: `info` is current, and stays so, for
    /// who calls has the inode's `attributes`.
    pub(crate) fn note_block(&self, info: &InodeInfo) {
        let (Some(writer), Some(block)) = (&self.writer, info.fields().xattr_block()) else { return };
        let Ok(hash) = self.cache.with(block, xattr::stored_hash) else { return };
        if hash != 0 {
            writer.sharing.blocks.insert(hash, block);
        }
    }

    /// The first block of the group of inode `ino`.
    fn home_of(&self, ino: u32) -> u64 {
        let geometry = self.superblock().geometry();
        geometry.inode_slot(ino).and_then(|slot| geometry.group_start(slot.group)).unwrap_or(0)
    }
}

impl Change<'_> {
    /// Makes `list` the attributes in the inode's block: in one that has them already, or in the one that the inode has if
    /// nobody else does, or in a new one. `made` is the EA inode of an entry that is counted there already.
    pub(crate) fn change_block(
        &self,
        info: &mut InodeInfo,
        list: &[Attribute],
        made: Option<u32>,
    ) -> Result<()> {
        if list.is_empty() {
            return self.leave_block(info);
        }
        let old = self.fs.attribute_block(info)?;
        // It is being deleted, and closed for good.
        let deleted = old.as_ref().is_some_and(|(buffer, _)| buffer.shares().look().is_closed());
        let hash = hash::entries(list.iter().map(|attribute| attribute.as_attr().hash));
        if !deleted && let Some(block) = self.join_block(list, hash) {
            // Who looks at a block that is changed has it copied.
            drop(old);
            self.leave_block(info)?;
            self.put_block(info, block)?;
            // The block has what it refers to counted.
            return made.map_or(Ok(()), |ino| self.release_ea_inode(ino, place_of(info)));
        }
        let mut values: Vec<_> = list.iter().filter_map(Attribute::ea_inode).map(|(ino, _)| ino).collect();
        remove_one(&mut values, made);
        if let Some((buffer, place)) = old
            && self.close(&buffer, place)?
        {
            return self.change_in_place(info, buffer, &Contents { list, hash, values }, deleted);
        }
        // Before the old block is left, which may be all that keeps them.
        for ino in values {
            self.share_ea_inode(ino, place_of(info))?;
        }
        let mut buffer = self.new_attr_block(info)?;
        self.write_block(&mut buffer, list, hash)?;
        self.writer.sharing.note(Count::BlocksMade);
        self.open(&buffer);
        self.leave_block(info)?;
        self.put_block(info, buffer.number())
    }

    /// A new block near the one that the inode has, or near its home. One that has been given up can be taken again when the
    /// transaction is durable, and there may be many of those: so the search goes on where the last one in this transaction came
    /// to its end.
    fn new_attr_block(&self, info: &InodeInfo) -> Result<Buffer> {
        let geometry = self.fs.superblock().geometry();
        let near = info.fields().xattr_block().unwrap_or_else(|| self.fs.home_of(info.ino()));
        let group = geometry.group_of_block(near);
        let behind = self.writer.sharing.behind(group, self.tid());
        let goal = behind.filter(|block| geometry.group_of_block(*block) == group).unwrap_or(near);
        let block = self.allocate(goal, 1)?.start;
        self.writer.sharing.set_behind(group, self.tid(), block + 1);
        self.fresh(block)
    }

    /// Changes the block of one inode, which has been closed.
    fn change_in_place(
        &self,
        info: &InodeInfo,
        mut buffer: Buffer,
        new: &Contents<'_>,
        deleted: bool,
    ) -> Result<()> {
        let mut given_up = values_of(&Attrs::in_block(&buffer, place_of(info))?.1);
        for ino in &new.values {
            remove_one(&mut given_up, Some(*ino));
        }
        self.writer.sharing.blocks.remove(xattr::stored_hash(&buffer), buffer.number());
        self.write_block(&mut buffer, new.list, new.hash)?;
        if !deleted {
            self.open(&buffer);
        }
        given_up.into_iter().try_for_each(|ino| self.release_ea_inode(ino, place_of(info)))
    }

    /// The inode does without its attribute block, which is freed if it was nobody else's, and what it refers to given up.
    pub(crate) fn leave_block(&self, info: &mut InodeInfo) -> Result<()> {
        let Some((mut buffer, place)) = self.fs.attribute_block(info)? else { return Ok(()) };
        if self.is_last(&mut buffer, place)? {
            let values = values_of(&Attrs::in_block(&buffer, place)?.1);
            self.free(buffer.number()..buffer.number() + 1, true)?;
            values.into_iter().try_for_each(|ino| self.release_ea_inode(ino, place))?;
        }
        info.fields_mut().set_xattr_block(None);
        self.charge(info, -1)
    }

    /// Sees to it that an inode that is deleted has its attribute block alone, and that it stays so as long as the buffer is held:
    /// leaves it, if others have it.
    pub(crate) fn have_block_alone(&self, info: &mut InodeInfo) -> Result<Option<Buffer>> {
        let Some((mut buffer, place)) = self.fs.attribute_block(info)? else { return Ok(None) };
        if self.is_last(&mut buffer, place)? {
            return Ok(Some(buffer));
        }
        let old = self.fs.attributes(info)?;
        for (_, size, _) in old.ea_inodes().filter(|(_, _, in_block)| *in_block) {
            self.charge_value(info, -i64::from(size))?;
        }
        info.fields_mut().set_xattr_block(None);
        self.charge(info, -1)?;
        self.store(info)?;
        Ok(None)
    }

    /// Whether the inode, which gives its block up, was the last who had it: then nobody finds it any more. If not, it has left.
    fn is_last(&self, buffer: &mut Buffer, place: Place) -> Result<bool> {
        let (block, hash) = (buffer.number(), xattr::stored_hash(buffer));
        let leave = || Ok(if self.close(buffer, place)? { Left::Last } else { self.leave(buffer) });
        Ok(self.writer.sharing.blocks.leave(hash, block, leave)? == Left::Last)
    }

    /// Takes a block that the inode has out of sharing; false if others have it.
    fn close(&self, buffer: &Buffer, place: Place) -> Result<bool> {
        let (shares, seen) = (buffer.shares(), buffer.shares().look());
        if !seen.is_known() {
            shares.note(seen, Attrs::in_block(buffer, place)?.0.refcount);
        }
        Ok(shares.close())
    }

    /// Leaves a block that others have to them. If they have left it meanwhile, nothing is changed.
    fn leave(&self, buffer: &mut Buffer) -> Left {
        let pin = buffer.pin();
        self.edit_block(buffer, |bytes| {
            let left = pin.shares().leave();
            store_count(&pin, bytes);
            left
        })
    }

    /// Lets others share a block that the inode has alone.
    fn open(&self, buffer: &Buffer) {
        buffer.shares().open();
        let hash = xattr::stored_hash(buffer);
        if hash != 0 {
            self.writer.sharing.blocks.insert(hash, buffer.number());
        }
    }

    /// Finds a block that holds `list`, whose hash that is, and joins those who have it.
    fn join_block(&self, list: &[Attribute], hash: u32) -> Option<u64> {
        if hash == 0 {
            return None;
        }
        let join =
            |block, is_there: &dyn Fn() -> bool| self.join(block, is_there, hash, list).unwrap_or(false);
        self.writer.sharing.blocks.find(hash, join)
    }

    /// Joins those who have attribute block `block`, if it holds `list` and can be found still. An error is that of a block that is of
    /// no use.
    fn join(&self, block: u64, is_there: &dyn Fn() -> bool, hash: u32, list: &[Attribute]) -> Result<bool> {
        let sharing = &self.writer.sharing;
        let pin = self.fs.cache.read(block)?.pin();
        let seen = pin.shares().look();
        // Held now, so that the word is that of the block's life, if it has not been given up.
        if seen.is_closed() || !is_there() {
            return Ok(false);
        }
        let place = Place::new(Structure::Xattr).block(block);
        let mut buffer = self.fs.attribute_block_at(block, place)?;
        let (header, attrs) = Attrs::in_block(&buffer, place)?;
        if header.hash != hash || !attrs.iter().eq(list.iter().map(Attribute::as_attr)) {
            sharing.note(Count::Differing);
            return Ok(false);
        }
        pin.shares().note(seen, header.refcount);
        match pin.shares().join(seen, REFCOUNT_MAX) {
            Joined::Gone => return Ok(false),
            Joined::Full => {
                sharing.blocks.set_full(hash, block, true);
                // One may have left before that was said.
                let is_full = pin.shares().count().is_none_or(|count| count >= REFCOUNT_MAX);
                sharing.blocks.set_full(hash, block, is_full);
                return Ok(false);
            }
            Joined::Yes => {}
        }
        sharing.note(Count::BlocksShared);
        self.edit_block(&mut buffer, |bytes| store_count(&pin, bytes));
        Ok(true)
    }

    /// The inode has `block` now, and had none.
    fn put_block(&self, info: &mut InodeInfo, block: u64) -> Result<()> {
        info.fields_mut().set_xattr_block(Some(block));
        self.charge(info, 1)
    }

    /// Writes the attributes of one inode to its block.
    fn write_block(&self, buffer: &mut Buffer, list: &[Attribute], hash: u32) -> Result<()> {
        let header = Header { refcount: 1, hash };
        let encode = |bytes: &mut [u8]| xattr::encode_in_block(&header, &borrowed(list), bytes);
        self.edit_block(buffer, encode).map_err(|_| Errno::ENOSPC)?;
        self.fs.note_verified(buffer, Verified::XattrBlock);
        Ok(())
    }

    /// Changes an attribute block, and puts off its checksum.
    fn edit_block<R>(&self, buffer: &mut Buffer, edit: impl FnOnce(&mut [u8]) -> R) -> R {
        let number = buffer.number();
        let has_checksum = self.fs.superblock().metadata_seed().is_some();
        self.edit_unsealed(buffer, |bytes, unsealed| {
            if has_checksum {
                seal::put_off_attributes(unsealed, number);
            }
            edit(bytes)
        })
    }
}

/// What is to be in a block: attributes, their hash, and the values that they had counted before.
struct Contents<'l> {
    list: &'l [Attribute],
    hash: u32,
    values: Vec<u32>,
}

/// Says in the header how many have the block. It stays as it is if nobody has it, or one is about to change it.
fn store_count(pin: &extern4_block::Pin, bytes: &mut [u8]) {
    if let Some(count) = pin.shares().count() {
        xattr::store_refcount(bytes, count);
    }
}

fn place_of(info: &InodeInfo) -> Place {
    Place::new(Structure::Xattr).ino(info.ino())
}

/// The EA inodes that a block refers to, once for each entry that does.
fn values_of(attrs: &Attrs<'_>) -> Vec<u32> {
    let ino = |value| match value {
        xattr::Value::EaInode { ino, .. } => Some(ino),
        xattr::Value::Here(_) => None,
    };
    attrs.iter().filter_map(|attr| ino(attr.value)).collect()
}

fn remove_one(from: &mut Vec<u32>, ino: Option<u32>) {
    if let Some(at) = from.iter().position(|other| Some(*other) == ino) {
        from.swap_remove(at);
    }
}
