//! The checker on real images: sound ones, damaged ones and hostile ones, judged by `e2fsck -fn`.

mod check;
mod crashes;
mod superblock_fields;

use std::path::Path;
use std::sync::Arc;

use extern4_block::{FileDevice, FileOptions};
use extern4_ext4::{Ext4, OpenOptions, Result};

/// Opens the volume in the image at `path` for reading.
fn open(path: &Path) -> Result<Ext4> {
    let device = FileDevice::open(path).expect("the image opens as a device");
    Ext4::open(Arc::new(device), &OpenOptions::default())
}

/// Opens the volume in the image at `path` for writing.
fn open_for_writing(path: &Path) -> Result<Ext4> {
    let options = FileOptions {
        write: true,
        ..FileOptions::default()
    };
    let device = FileDevice::open_with(path, &options).expect("the image opens as a device");
    Ext4::open_for_writing(Arc::new(device), &OpenOptions::default())
}
