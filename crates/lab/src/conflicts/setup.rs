//! The volumes that pairs of calls are made on: the VFS over memory, and ext4 on a device in
//! memory.
//!
//! `conflicts` makes one of each kind. They keep no access times, which are not in the
//! specification. With them, a read would not commute with a change of its file, since the read has
//! to find out whether the file has changed.

use std::sync::Arc;
use std::time::Duration;

use extern4::Volume;
use extern4_block::MemoryDevice;
use extern4_testkit::image::ImageSpec;
use extern4_vfs::{Atime, Cred, MemFs, MemLimits, Namespace, Session, SuperBlock, SuperOptions};

use super::On;
use crate::Result;

/// An empty volume.
pub struct Setup {
    on: On,
    namespace: Arc<Namespace>,
    /// Keeps the volume open.
    _volume: Option<Volume>,
}

impl Setup {
    /// Creates a volume of the VFS over its file system in memory.
    pub fn memory(options: SuperOptions) -> Result<Self> {
        let options = SuperOptions { atime: Atime::Never, ..options };
        let namespace = Namespace::new(SuperBlock::new(MemFs::new(MemLimits::default()), options)?);
        Ok(Self { on: On::Memory, namespace, _volume: None })
    }

    /// Creates an ext4 volume on a device in memory. Its journal is large, since a commit is in the
    /// way of all calls. Returns `None` if there is no mke2fs to make the volume.
    pub fn ext4() -> Result<Option<Self>> {
        let spec = ImageSpec::new("matrix", 256 << 20, &["-t", "ext4", "-b", "4096", "-J", "size=64"]);
        if !spec.can_build() {
            return Ok(None);
        }
        let bytes = std::fs::read(&spec.build().path)?;
        let mut options = Volume::options();
        options.write(true).atime(Atime::Never).commit_interval(Duration::from_secs(3600));
        let volume = options.open_device(Arc::new(MemoryDevice::new(bytes)))?;
        let namespace = Arc::clone(volume.namespace());
        Ok(Some(Self { on: On::Ext4, namespace, _volume: Some(volume) }))
    }

    /// Returns the kind of the volume.
    pub(super) fn on(&self) -> On {
        self.on
    }

    /// Returns a new session of the superuser.
    pub(super) fn session(&self) -> Session {
        Session::new(&self.namespace, Cred::root())
    }
}
