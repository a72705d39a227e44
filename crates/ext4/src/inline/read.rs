//! Reads contents inside their inode: contents of small files and directories, and of symbolic
//! links.
//!
//! The first 60 bytes are in place of the block map, the rest in the attribute `system.data` of the
//! inode's record. This module reads both, and `extern4_disk::inline` joins and checks them.
//! Contents that contradict the inode's size are an error. Readers of files, directories and links
//! call it under the lock `contents` of the inode.

use extern4_disk::dirent::Layout;
use extern4_disk::inline::{self, Data, Dir};
use extern4_disk::xattr::Attrs;
use extern4_disk::{Place, Structure};

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::{InodeInfo, dir_layout};

impl InodeInfo {
    /// Calls `look` with the inline contents of a file.
    pub(crate) fn with_inline_data<R>(
        &self,
        fs: &Ext4,
        look: impl FnOnce(Data<'_>) -> Result<R>,
    ) -> Result<R> {
        let place = Place::new(Structure::InlineData).ino(self.ino());
        self.with_attribute(fs, |attribute| {
            look(Data::decode(self.i_block(), attribute, self.size(), place)?)
        })
    }

    /// Calls `look` with an inline directory, the layout of its entries and its place for errors.
    pub(crate) fn with_inline_dir<R>(
        &self,
        fs: &Ext4,
        look: impl FnOnce(Dir<'_>, &Layout, Place) -> Result<R>,
    ) -> Result<R> {
        let place = Place::new(Structure::InlineData).ino(self.ino());
        let layout = dir_layout(fs, self);
        self.with_attribute(fs, |attribute| {
            look(
                Dir::decode(self.i_block(), attribute, &layout, place)?,
                &layout,
                place,
            )
        })
    }

    fn with_attribute<R>(&self, fs: &Ext4, look: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        let place = self.xattr_area_place();
        self.with_xattr_area(fs, |area| {
            let attrs = Attrs::in_inode(area, place)?;
            look(inline::attribute(attrs.as_ref(), place)?)
        })
    }
}
