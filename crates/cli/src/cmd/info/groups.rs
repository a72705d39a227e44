//! The block groups of a volume, as `info --groups` shows them.
//!
//! `info` calls it. The numbers are the numbers that the descriptors store, which may be wrong
//! after a crash.

use std::io::{self, Write as _};

use extern4::Volume;
use extern4::info::groups;

use crate::app::reason;
use crate::json::Object;
use crate::output::Out;

/// Writes a table of the groups.
pub(super) fn people(volume: &Volume, out: &mut Out) -> io::Result<()> {
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
    for group in groups(volume) {
        let number = group.number;
        let start = group.first_block;
        let end = start + u64::from(group.blocks);
        let descriptor = match &group.descriptor {
            Ok(descriptor) => descriptor,
            Err(error) => {
                writeln!(out, "{number:>7} {}", reason(error))?;
                continue;
            }
        };
        writeln!(
            out,
            "{number:>7} {:>21} {:>12} {:>12} {:>12} {:>8} {:>8} {:>7} {:>8}  {}",
            format!("{start}-{}", end.saturating_sub(1)),
            descriptor.block_bitmap,
            descriptor.inode_bitmap,
            descriptor.inode_table,
            descriptor.free_clusters,
            descriptor.free_inodes,
            descriptor.directories,
            descriptor.unused_inodes,
            descriptor.flags.join(" "),
        )?;
    }
    Ok(())
}

/// Adds an array of the groups.
pub(super) fn json(volume: &Volume, object: &mut Object<'_>) {
    object.objects("group_list", groups(volume), |group, item| {
        item.raw("group", group.number);
        item.raw("first_block", group.first_block);
        item.raw("blocks", group.blocks);
        match group.descriptor {
            Ok(descriptor) => {
                item.raw("block_bitmap", descriptor.block_bitmap);
                item.raw("inode_bitmap", descriptor.inode_bitmap);
                item.raw("inode_table", descriptor.inode_table);
                item.raw("free_clusters", descriptor.free_clusters);
                item.raw("free_inodes", descriptor.free_inodes);
                item.raw("directories", descriptor.directories);
                item.raw("unused_inodes", descriptor.unused_inodes);
                item.texts("flags", descriptor.flags);
            }
            Err(error) => item.text("error", &reason(&error)),
        }
    });
}
