//! Volumes that pairs of calls are made on. Times of access are not kept there: they are not in the
//! specification, and with them a read would not commute with what changes its file, for it has to
//! find out whether there was such a change.

use std::sync::Arc;
use std::time::Duration;

use extern4::Volume;
use extern4_block::MemoryDevice;
use extern4_testkit::image::ImageSpec;
use extern4_vfs::{Atime, Cred, MemFs, MemLimits, Namespace, Session, SuperBlock, SuperOptions};

use super::On;
use crate::Result;

/// A volume with nothing on it.
pub struct Setup {
    on: On,
    namespace: Arc<Namespace>,
    /// Keeps the volume open.
    _volume: Option<Volume>,
}

impl Setup {
    /// The VFS over its file system in memory.
    pub fn memory(options: SuperOptions) -> Result<Self> {
        let options = SuperOptions { atime: Atime::Never, ..options };
        let namespace = Namespace::new(SuperBlock::new(MemFs::new(MemLimits::default()), options)?);
        Ok(Self { on: On::Memory, namespace, _volume: None })
    }

    /// ext4 on a device in memory, with room for a journal that is not soon full: a commit is in
    /// everybody's way. `None` where there is no mke2fs to make it.
    pub fn ext4() -> Result<Option<Self>> {
        let spec = ImageSpec::new("matrix", 256 << 20, &["-t", "ext4", "-b", "4096", "-J", "size=64"]);
        if !spec.can_run() {
            return Ok(None);
        }
        let bytes = std::fs::read(&spec.build().path)?;
        let mut options = Volume::options();
        options.write(true).atime(Atime::Never).commit_interval(Duration::from_secs(3600));
        let volume = options.open_device(Arc::new(MemoryDevice::new(bytes)))?;
        let namespace = Arc::clone(volume.namespace());
        Ok(Some(Self { on: On::Ext4, namespace, _volume: Some(volume) }))
    }

    /// What it is.
    pub(super) fn on(&self) -> On {
        self.on
    }

    /// The superuser's session, another each time.
    pub(super) fn session(&self) -> Session {
        Session::new(&self.namespace, Cred::root())
    }
}
