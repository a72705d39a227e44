//! The external journal of a volume: a device that holds nothing but its journal.
//!
//! `extern4 mkfs` calls [`ExternalJournal::read`] before it plans a volume that uses the journal.
//! Just before it writes the volume, it calls [`ExternalJournal::set_user`], which returns when the
//! new user is durable. Damage is an error. For a device with other contents, `read` returns
//! `None`.

use extern4_block::BlockDevice;
use extern4_disk::journal::JournalSuperblock;
use extern4_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extern4_disk::{CorruptKind, Place, Structure};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};

/// The external journal of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalJournal {
    /// The UUID of its device.
    pub uuid: [u8; 16],
    /// The label of its device.
    pub label: Vec<u8>,
    /// The block size in bytes, which the volume must have, too.
    pub block_size: u32,
    /// The number of its device as Linux writes it to superblocks; 0 for a file.
    pub device_number: u32,
    /// The UUIDs of the volumes that use it.
    pub users: Vec<[u8; 16]>,
}

impl ExternalJournal {
    /// Reads the external journal on `device`; `None` if the device has none.
    ///
    /// # Errors
    /// [`Error::Device`], and [`Error::Damaged`] for one with wrong contents.
    pub fn read(device: &dyn BlockDevice, device_number: u32) -> Result<Option<Self>> {
        if device.size_bytes() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
            return Ok(None);
        }
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(&mut bytes, SUPERBLOCK_OFFSET)?;
        let sb = match Superblock::decode(&bytes, Place::new(Structure::Superblock)) {
            Err(error) if matches!(error.kind, CorruptKind::Magic { .. }) => return Ok(None),
            Err(error) => return Err(Error::Damaged(error)),
            Ok(sb) if !sb.is_journal_device() => return Ok(None),
            Ok(sb) => sb,
        };
        let users = journal(device, sb.block_size())?.users;
        let label = sb
            .raw()
            .s_volume_name
            .iter()
            .copied()
            .take_while(|byte| *byte != 0)
            .collect();
        Ok(Some(Self {
            uuid: sb.uuid(),
            label,
            block_size: sb.block_size(),
            device_number,
            users,
        }))
    }

    /// Records durably on `device` that the volume with the UUID `user` uses the journal. It
    /// replaces other users, because neither Linux nor e2fsck supports a journal of several
    /// volumes.
    ///
    /// # Errors
    /// [`Error::Device`], and [`Error::Damaged`] for one with wrong contents.
    pub fn set_user(&self, device: &dyn BlockDevice, user: [u8; 16]) -> Result<()> {
        let mut journal = journal(device, self.block_size)?;
        journal.users = vec![user];
        device.write_at(journal.encode().as_bytes(), offset(self.block_size))?;
        device.flush()?;
        Ok(())
    }
}

/// Returns the block of the device that holds the journal's superblock: the first one after the
/// block with the device's superblock.
pub(crate) const fn superblock_block(block_size: u32) -> u32 {
    if block_size == 1024 { 2 } else { 1 }
}

fn offset(block_size: u32) -> u64 {
    u64::from(superblock_block(block_size)) * u64::from(block_size)
}

fn journal(device: &dyn BlockDevice, block_size: u32) -> Result<JournalSuperblock> {
    let mut bytes = [0; JournalSuperblock::SIZE];
    device.read_at(&mut bytes, offset(block_size))?;
    JournalSuperblock::decode(&bytes, Place::new(Structure::JournalSuperblock))
        .map_err(Error::Damaged)
}
