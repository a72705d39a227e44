//! An open volume.

use std::path::Path;
use std::sync::Arc;

use extern4_vfs::StatFs;

use crate::Cred;
use crate::error::Result;
use crate::session::Session;

/// An open ext2, ext3 or ext4 volume. Cheap to clone; every clone is the same volume.
#[derive(Clone)]
pub struct Volume {
    inner: Arc<Inner>,
}

struct Inner {}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(crate) partition: Option<u32>,
    pub(crate) offset_bytes: u64,
    pub(crate) cache_bytes: usize,
    pub(crate) superblock: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { partition: None, offset_bytes: 0, cache_bytes: 64 << 20, superblock: None }
    }
}

impl OpenOptions {
    /// Opens partition `number` of the image's MBR or GPT partition table, counted as Linux counts them from 1.
    pub fn partition(&mut self, number: u32) -> &mut Self {
        self.partition = Some(number);
        self
    }

    /// The volume starts `bytes` into the image.
    pub fn offset(&mut self, bytes: u64) -> &mut Self {
        self.offset_bytes = bytes;
        self
    }

    /// How many bytes of metadata blocks are cached at most; 64 MiB by default.
    pub fn cache_size(&mut self, bytes: usize) -> &mut Self {
        self.cache_bytes = bytes;
        self
    }

    /// Uses the backup superblock in block `block` of the volume, as `e2fsck -b` does.
    pub fn superblock(&mut self, block: u64) -> &mut Self {
        self.superblock = Some(block);
        self
    }

    /// Opens the image or block special file at `path`, for reading. Nothing is ever written to it: a journal that
    /// still has to be replayed is replayed in memory.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let _ = path;
        todo!()
    }
}

impl Volume {
    /// Opens the image or block special file at `path` with the default options.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::default().open(path)
    }

    /// Options other than the defaults.
    pub fn options() -> OpenOptions {
        OpenOptions::default()
    }

    /// A view of the volume with the rights of `cred`.
    pub fn session(&self, cred: Cred) -> Session {
        let _ = (&self.inner, cred);
        todo!()
    }

    /// A view of the volume as its superuser, who may do anything.
    pub fn superuser(&self) -> Session {
        self.session(Cred::root())
    }

    /// Totals and free space.
    pub fn stat_fs(&self) -> Result<StatFs> {
        todo!()
    }

    /// The ext4 file system underneath, for experts: superblock, groups, raw inodes, block maps, journal.
    pub fn ext4(&self) -> &extern4_ext4::Ext4 {
        todo!()
    }
}
