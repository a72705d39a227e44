//! Volumes that pairs of calls are made on.

use std::sync::Arc;

use extern4::Volume;
use extern4_block::MemoryDevice;
use extern4_testkit::image::ImageSpec;
use extern4_vfs::{Cred, MemFs, MemLimits, Namespace, Session, SuperBlock, SuperOptions};

use super::On;
use crate::Result;

/// A volume with nothing on it.
pub(super) struct Empty {
    session: Session,
    /// Keeps the volume open.
    _volume: Option<Volume>,
}

impl Empty {
    /// One of this kind; `None` where there is no mke2fs to make it.
    pub(super) fn new(on: On) -> Result<Option<Self>> {
        match on {
            On::Memory => {
                let sb = SuperBlock::new(MemFs::new(MemLimits::default()), SuperOptions::default())?;
                let session = Session::new(&Namespace::new(sb), Cred::root());
                Ok(Some(Self { session, _volume: None }))
            }
            On::Ext4 => ext4(),
        }
    }

    /// A session of its own for a thread.
    pub(super) fn session(&self) -> Session {
        Session::new(self.session.namespace(), Cred::root())
    }
}

/// On a device in memory, with room for a journal that is not soon full: a commit is in everybody's way.
fn ext4() -> Result<Option<Empty>> {
    let spec = ImageSpec::new("matrix", 256 << 20, &["-t", "ext4", "-b", "4096", "-J", "size=64"]);
    if !spec.can_run() {
        return Ok(None);
    }
    let bytes = std::fs::read(&spec.build().path)?;
    let mut options = Volume::options();
    options.write(true).commit_interval(std::time::Duration::from_secs(3600));
    let volume = options.open_device(Arc::new(MemoryDevice::new(bytes)))?;
    let session = Session::new(volume.namespace(), Cred::root());
    Ok(Some(Empty { session, _volume: Some(volume) }))
}
