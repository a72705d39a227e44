//! The block groups of a volume, as `info --groups` shows them.
//!
//! `info` calls it. The numbers are those that the descriptors store, which may be wrong after a
//! crash.

use std::io::{self, Write as _};

use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_ext4::Ext4;

use crate::json::Object;
use crate::output::Out;

/// Writes a table of the groups.
pub(super) fn people(ext4: &Ext4, out: &mut Out) -> io::Result<()> {
    writeln!(
        out,
        "\n{:>7} {:>21} {:>12} {:>12} {:>12} {:>8} {:>8} {:>7} {:>8}  flags",
        "group",
        "blocks",
        "block bitmap",
        "inode bitmap",
        "inode table",
        "free blk",
        "free ino",
        "dirs",
        "unused",
    )?;
    let geometry = ext4.superblock().geometry();
    for group in 0..geometry.group_count() {
        let start = geometry.group_start(group).unwrap_or(0);
        let end = start + u64::from(geometry.group_blocks(group).unwrap_or(0));
        let descriptor = match ext4.group(group) {
            Ok(descriptor) => descriptor,
            Err(error) => {
                writeln!(out, "{group:>7} {error}")?;
                continue;
            }
        };
        writeln!(
            out,
            "{group:>7} {:>21} {:>12} {:>12} {:>12} {:>8} {:>8} {:>7} {:>8}  {}",
            format!("{start}-{}", end.saturating_sub(1)),
            descriptor.block_bitmap(),
            descriptor.inode_bitmap(),
            descriptor.inode_table(),
            descriptor.free_clusters(),
            descriptor.free_inodes(),
            descriptor.used_dirs(),
            descriptor.unused_inodes(),
            flags(descriptor).join(" "),
        )?;
    }
    Ok(())
}

/// Adds an array of the groups.
pub(super) fn json(ext4: &Ext4, object: &mut Object<'_>) {
    let geometry = ext4.superblock().geometry();
    object.objects("group_list", 0..geometry.group_count(), |group, item| {
        item.raw("group", group);
        item.raw("first_block", geometry.group_start(group).unwrap_or(0));
        item.raw("blocks", geometry.group_blocks(group).unwrap_or(0));
        match ext4.group(group) {
            Ok(descriptor) => {
                item.raw("block_bitmap", descriptor.block_bitmap());
                item.raw("inode_bitmap", descriptor.inode_bitmap());
                item.raw("inode_table", descriptor.inode_table());
                item.raw("free_clusters", descriptor.free_clusters());
                item.raw("free_inodes", descriptor.free_inodes());
                item.raw("directories", descriptor.used_dirs());
                item.raw("unused_inodes", descriptor.unused_inodes());
                item.texts("flags", flags(descriptor));
            }
            Err(error) => item.text("error", &error.to_string()),
        }
    });
}

fn flags(descriptor: &GroupDescriptor) -> Vec<&'static str> {
    let flags = descriptor.flags();
    [
        (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
        (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
        (GroupFlags::INODE_ZEROED, "ITABLE_ZEROED"),
    ]
    .into_iter()
    .filter_map(|(flag, name)| flags.contains(flag).then_some(name))
    .collect()
}
