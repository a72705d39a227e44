//! Contents that live inside their inode: small files and directories, and symbolic links.
//!
//! The first 60 bytes stand in place of the block map, the rest in the attribute `system.data` of the inode's own
//! extended attributes. `extern4_disk::inline` knows how the two make one; this module brings them together.

use extern4_disk::dirent::Layout;
use extern4_disk::inline::{self, Data, Dir};
use extern4_disk::xattr::Attrs;
use extern4_disk::{Place, Structure};

use crate::error::Result;
use crate::inode::InodeInfo;
use crate::mount::Ext4;

impl Ext4 {
    /// Hands the contents of a file that lives inside its inode to `look`.
    pub(crate) fn with_inline_data<R>(
        &self,
        inode: &InodeInfo,
        look: impl FnOnce(Data<'_>) -> Result<R>,
    ) -> Result<R> {
        let place = Place::new(Structure::InlineData).ino(inode.ino());
        self.with_attribute(inode, |attribute| {
            look(Data::decode(inode.i_block(), attribute, inode.size(), place)?)
        })
    }

    /// Hands a directory that lives inside its inode to `look`, with the layout of its entries and its place.
    pub(crate) fn with_inline_dir<R>(
        &self,
        dir: &InodeInfo,
        look: impl FnOnce(Dir<'_>, &Layout, Place) -> Result<R>,
    ) -> Result<R> {
        let place = Place::new(Structure::InlineData).ino(dir.ino());
        let layout = self.dir_layout(dir);
        self.with_attribute(dir, |attribute| {
            look(Dir::decode(dir.i_block(), attribute, &layout, place)?, &layout, place)
        })
    }

    fn with_attribute<R>(&self, inode: &InodeInfo, look: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        let place = Self::xattr_area_place(inode);
        self.with_xattr_area(inode, |area| {
            let attrs = Attrs::in_inode(area, place)?;
            look(inline::attribute(attrs.as_ref(), place)?)
        })
    }
}
