//! The external journal that a new volume uses.
//!
//! `mkfs` opens it before it plans the volume, and records the new user when the volume is written.
//! A journal of another block size, or without room for a user, is refused.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use extern4::Volume;
use extern4::block::FileDevice;
use extern4_mkfs::{ExternalJournal, Options, Plan};

use super::uuid_text;
use crate::app::host_reason;
use crate::new_volume::NewVolumeError;

/// An external journal that is open, and locked against other programs.
pub(super) struct Journal {
    device: FileDevice,
    found: ExternalJournal,
}

impl Journal {
    /// Opens the journal that `-J device=` names: by a path, or as `UUID=` or `LABEL=`. One that a
    /// volume uses needs `force`.
    pub(super) fn open(name: &str, force: bool) -> Result<Self, NewVolumeError> {
        let path = find(name)?;
        let of_journal = |reason: String| {
            NewVolumeError::target(format!("its journal {}: {reason}", path.display()))
        };
        let about = fs::metadata(&path).map_err(|error| of_journal(host_reason(&error)))?;
        let number = if about.file_type().is_block_device() {
            device_number(about.rdev())
        } else {
            0
        };
        let (device, _) = Volume::options().write(true).device(&path)?;
        let found = ExternalJournal::read(&device, number)
            .map_err(|error| of_journal(error.to_string()))?;
        let found =
            found.ok_or_else(|| of_journal("there is no external journal on it".to_owned()))?;
        match found.users.first() {
            Some(user) if !force => {
                let user = uuid_text(*user);
                Err(of_journal(format!(
                    "the volume {user} uses it; --force takes it from that"
                )))
            }
            _ => Ok(Self { device, found }),
        }
    }

    /// Adds the journal to the options of the volume that is to use it.
    pub(super) fn add_to(&self, options: &mut Options) {
        options.external_journal = Some(self.found.clone());
    }

    /// Records in the journal that the planned volume uses it.
    pub(super) fn set_user(&self, plan: &Plan) -> Result<(), NewVolumeError> {
        Ok(self
            .found
            .set_user(&self.device, plan.superblock().uuid())?)
    }
}

/// The number of a block device as Linux writes it to superblocks.
fn device_number(device: u64) -> u32 {
    let major = rustix::fs::major(device);
    let minor = rustix::fs::minor(device);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// The path of a journal; the block devices of this system are asked for a UUID or a label.
fn find(name: &str) -> Result<PathBuf, NewVolumeError> {
    let is_it = |found: &ExternalJournal| match name.split_once('=') {
        Some(("UUID", uuid)) => uuid_text(found.uuid).eq_ignore_ascii_case(uuid),
        Some(("LABEL", label)) => found.label == label.as_bytes(),
        _ => false,
    };
    if !name.starts_with("UUID=") && !name.starts_with("LABEL=") {
        return Ok(name.into());
    }
    let devices = fs::read_dir("/sys/class/block")
        .into_iter()
        .flatten()
        .flatten();
    devices
        .map(|device| Path::new("/dev").join(device.file_name()))
        .find(|path| {
            let device = FileDevice::open(path).ok();
            let found = device.and_then(|device| ExternalJournal::read(&device, 0).ok().flatten());
            found.as_ref().is_some_and(is_it)
        })
        .ok_or_else(|| {
            NewVolumeError::target(format!("no device has an external journal with {name}"))
        })
}
