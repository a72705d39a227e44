//! Volumes in memory, which tests copy and change quickly, and write to a file for e2fsck and the
//! kernel.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use extern4_block::{BlockDevice, MemoryDevice};
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools;
use extern4_testkit::tree::Tree;
use extern4_vfs::{FileSystem, Session};

use crate::model::{judge, session};
use crate::walk;

/// The bytes of a new image.
pub(crate) fn bytes_of(spec: &ImageSpec) -> Vec<u8> {
    std::fs::read(&spec.build().path).expect("the image is read")
}

/// Opens the volume on a device for writing. The superuser can fill it to the last block.
pub(crate) fn open(what: &str, device: &Arc<MemoryDevice>) -> Arc<Ext4> {
    let options = OpenOptions {
        reserved_clusters: Some(0),
        ..OpenOptions::default()
    };
    let fs = Ext4::open_for_writing(Arc::clone(device) as _, &options);
    Arc::new(fs.unwrap_or_else(|e| panic!("{what}: {e}")))
}

/// All bytes of a device.
pub(crate) fn contents(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(&mut bytes, 0).expect("memory");
    bytes
}

/// The tree on a device that no thread writes to.
pub(crate) fn tree(what: &str, device: &Arc<MemoryDevice>) -> Tree {
    let fs = Ext4::open(Arc::clone(device) as _, &OpenOptions::default());
    walk::tree(&fs.unwrap_or_else(|e| panic!("{what}: {e}")))
}

/// Asks `e2fsck` about the volume on a device.
pub(crate) fn fsck(what: &str, device: &MemoryDevice) {
    let folder = tools::temporary("extern4-fsck-");
    let file = folder.path().join("volume.img");
    std::fs::write(&file, contents(device)).expect("the image is written");
    tools::e2fsck(&file).unwrap_or_else(|e| panic!("{what}: {e}"));
}

/// Asks `e2fsck` and the kernel about the volume on a device; `image` is where they find it.
pub(crate) fn judge_in(what: &str, device: &MemoryDevice, image: &Image) -> Tree {
    std::fs::write(&image.path, contents(device)).expect("the image is written");
    judge(what, image)
}

/// A volume that a test fills.
pub(crate) struct Volume {
    pub(crate) what: &'static str,
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) fs: Arc<Ext4>,
    pub(crate) session: Session,
}

impl Volume {
    /// `None` where images cannot be made.
    pub(crate) fn new(spec: &ImageSpec) -> Option<Self> {
        if !spec.can_run() {
            return None;
        }
        let device = Arc::new(MemoryDevice::new(bytes_of(spec)));
        let fs = open(spec.name, &device);
        let session = session(Arc::clone(&fs) as _);
        Some(Self {
            what: spec.name,
            device,
            fs,
            session,
        })
    }

    pub(crate) fn sync(&self) {
        self.fs.sync().expect("sync");
    }

    /// Blocks that are free.
    pub(crate) fn free(&self) -> u64 {
        self.fs.statfs().expect("statistics").blocks_free
    }

    /// Closes the volume; `e2fsck` finds no fault.
    pub(crate) fn close(self) {
        drop(self.session);
        self.fs.close().expect("close");
        fsck(self.what, &self.device);
    }
}

/// A number from the environment, which asks for longer runs with it.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(default)
}

/// Runs `work` in its own thread, and fails if it has not ended in time: then it hangs.
pub(crate) fn in_time<R: Send + 'static>(
    what: &str,
    limit: Duration,
    work: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = work();
        let _ = done.send(());
        result
    });
    if wait.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("{what}: hangs, for it has not ended after {limit:?}");
    }
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
