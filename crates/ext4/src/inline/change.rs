//! Changes contents inside their inode.
//!
//! The record holds the contents, their length and the other attributes, and is changed as a whole
//! in one step. As in Linux, the attribute `system.data` exists even if `i_block` has room for all
//! of the contents. `file::inline`, `dir::inline` and `ops::create` call these functions in a
//! handle. [`set_inline_data`] returns false, without a change, if the inode has no room.

use extern4_disk::inline::{HEAD_SIZE, XATTR};
use extern4_disk::inode::InodeFlags;
use extern4_disk::xattr;

use crate::error::Result;
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::map::map_blocks::empty_map;
use crate::xattr::list::{self, Attribute, borrowed, put_in_inode, take};

impl InodeInfo {
    /// Returns how many bytes of contents fit into the inode next to its other attributes; `None`
    /// if not even the empty attribute fits. The result does not depend on whether the contents are
    /// inside the inode now.
    pub(crate) fn inline_room(&self, fs: &Ext4) -> Result<Option<usize>> {
        let mut list = self.attributes(fs)?.own;
        put_in_inode(&mut list, data_attribute(&[]));
        let used = xattr::size_in_inode(&borrowed(&list));
        let area = self.fields().xattr_range().len();
        Ok(area.checked_sub(used).map(|free| HEAD_SIZE + free / 4 * 4))
    }
}

/// Makes `data` the inline contents of a file or directory, sets its size, and stores it. Returns
/// false, without a change, if they do not fit. It overwrites `i_block`, so no blocks may be
/// mapped.
///
/// The contents of a directory are the bytes of `i_block` followed by the attribute's.
pub(crate) fn set_inline_data(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    data: &[u8],
) -> Result<bool> {
    if info
        .inline_room(handle.fs)?
        .is_none_or(|room| data.len() > room)
    {
        return Ok(false);
    }
    let (head, tail) = data.split_at(data.len().min(HEAD_SIZE));
    let mut map = [0; HEAD_SIZE];
    map[..head.len()].copy_from_slice(head);
    let flags = (info.fields().flags() - InodeFlags::EXTENTS) | InodeFlags::INLINE_DATA;
    let fields = info.fields_mut();
    fields.set_map(&map);
    fields.set_size(data.len() as u64);
    fields.set_flags(flags);
    let mut list = info.attributes(handle.fs)?.own;
    put_in_inode(&mut list, data_attribute(tail));
    handle.store_with(info, |area| list::write_in_inode(&list, area))??;
    Ok(true)
}

/// Converts an inode to one whose contents are in blocks, with an empty map, and stores it. The
/// size does not change.
pub(crate) fn clear_inline_data(handle: &Handle<'_>, info: &mut InodeInfo) -> Result<()> {
    let mut list = info.attributes(handle.fs)?.own;
    take(&mut list, XATTR.0, XATTR.1);
    let flags = info.fields().flags() - InodeFlags::INLINE_DATA;
    info.fields_mut().set_flags(flags);
    empty_map(handle, info);
    handle.store_with(info, |area| list::write_in_inode(&list, area))?
}

fn data_attribute(value: &[u8]) -> Attribute {
    Attribute::in_inode(XATTR.0, XATTR.1, value)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extern4_block::{FileDevice, FileOptions};
    use extern4_testkit::image::{Image, ImageSpec};
    use extern4_testkit::tools;

    use super::*;
    use crate::dir::namei::lookup_name;
    use crate::fs::options::OpenOptions;
    use crate::inode::name_map::DirNames;

    const SPEC: ImageSpec = ImageSpec::new(
        "inline",
        16 << 20,
        &[
            "-t",
            "ext4",
            "-I",
            "256",
            "-b",
            "1024",
            "-O",
            "^has_journal,inline_data,metadata_csum",
        ],
    );

    fn open(image: &Image) -> Ext4 {
        let options = FileOptions {
            write: true,
            ..FileOptions::default()
        };
        let opened = (0..100).find_map(|_| {
            // A loop device lets go of the image a moment after it has been unmounted.
            std::thread::sleep(std::time::Duration::from_millis(20));
            FileDevice::open_with(&image.path, &options).ok()
        });
        Ext4::open_for_writing(Arc::new(opened.unwrap()), &OpenOptions::default()).unwrap()
    }

    #[test]
    fn contents_go_into_the_inode_and_out_again() {
        fn files(root: &std::path::Path) -> std::io::Result<()> {
            for (number, len) in [0, 10, 60, 61, 100, 100].into_iter().enumerate() {
                let path = root.join(format!("f{number}"));
                std::fs::write(&path, vec![b'o'; len])?;
                rustix::fs::setxattr(&path, "user.x", b"value", rustix::fs::XattrFlags::empty())?;
            }
            Ok(())
        }
        if !SPEC.can_run() {
            return;
        }
        let spec = SPEC.mounted(&[files]);
        let image = spec.build();
        let fs = open(&image);
        let root = fs.load_inode(2).unwrap();
        let load = |number: usize| {
            let ino = lookup_name(
                &fs,
                &root,
                &DirNames::default(),
                format!("f{number}").as_bytes(),
            )
            .unwrap()
            .unwrap();
            fs.load_inode(ino).unwrap()
        };
        let room = load(0).inline_room(&fs).unwrap().unwrap();
        let lens = [room, 0, 59, 60, room - 3];
        for (number, len) in lens.into_iter().enumerate() {
            let mut info = load(number);
            let set = |info: &mut InodeInfo, len| {
                fs.with_handle(1, 0, |handle| {
                    set_inline_data(handle, info, &vec![b'n'; len])
                })
                .unwrap()
            };
            assert!(!set(&mut info, room + 1));
            assert_eq!(
                info.read_contents(&fs, &mut [0; 200], 0).unwrap() as u64,
                load(number).size()
            );
            assert!(set(&mut info, len), "{len} of {room}");
        }
        let mut info = load(5);
        fs.with_handle(1, 0, |handle| {
            clear_inline_data(handle, &mut info)?;
            info.fields_mut().set_size(0);
            handle.store(&info)
        })
        .unwrap();
        fs.close().unwrap();
        drop(fs);
        tools::run("e2fsck", ["-fn".as_ref(), image.path.as_os_str()]);
        let mount = image.mount("ro");
        for (number, len) in lens.into_iter().chain([0]).enumerate() {
            let path = mount.path.join(format!("f{number}"));
            assert_eq!(std::fs::read(&path).unwrap(), vec![b'n'; len]);
            let mut value = [0; 8];
            assert_eq!(
                rustix::fs::getxattr(&path, "user.x", &mut value[..]).unwrap(),
                5
            );
        }
        mount.unmount();
    }
}
