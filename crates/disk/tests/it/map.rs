//! Tests of the block maps of real files against the output of debugfs for the same inodes.

use std::collections::BTreeSet;

use extern4_disk::inode::{FileKind, InodeFlags};
use extern4_testkit::image::Image;
use extern4_testkit::{tools, zoo};

use crate::reader::Volume;

/// Returns every file and directory whose blocks debugfs can list.
fn inodes(volume: &Volume) -> BTreeSet<u32> {
    let has_blocks = |ino: &u32| {
        let inode = volume.inode(*ino).0;
        let kind = matches!(inode.kind(), FileKind::Regular | FileKind::Directory);
        kind && !inode.flags().contains(InodeFlags::INLINE_DATA)
    };
    volume
        .walk()
        .into_values()
        .map(|name| name.ino)
        .filter(has_blocks)
        .collect()
}

/// Returns the output of debugfs's `blocks`: all blocks of each inode, one line an inode, including
/// the blocks of the map.
fn blocks(image: &Image, inodes: &BTreeSet<u32>) -> Vec<BTreeSet<u64>> {
    let script: String = inodes
        .iter()
        .map(|ino| format!("blocks <{ino}>\n"))
        .collect();
    let said = tools::debugfs(&image.path, false, &script);
    let lines = said.lines().filter(|line| !line.starts_with("debugfs:"));
    lines
        .map(|line| {
            line.split_whitespace()
                .map(|word| word.parse().expect("a block"))
                .collect()
        })
        .collect()
}

fn check(name: &str) -> Option<(Image, Volume)> {
    let spec = zoo::spec(name);
    if !spec.can_run() {
        return None;
    }
    let image = spec.build();
    let volume = Volume::open(&image.path);
    let inodes = inodes(&volume);
    let theirs = blocks(&image, &inodes);
    assert_eq!(theirs.len(), inodes.len());
    for (&ino, theirs) in inodes.iter().zip(theirs) {
        let mapped = volume.map(&volume.inode(ino).0);
        let ours: BTreeSet<u64> = mapped
            .data
            .iter()
            .map(|data| data.1)
            .chain(mapped.meta)
            .collect();
        assert_eq!(ours, theirs, "inode {ino}");
    }
    Some((image, volume))
}

#[test]
fn extents() {
    let Some((_, volume)) = check("ext4_1k") else {
        return;
    };
    let depth = |ino: &u32| volume.inode(*ino).0.map()[6];
    assert!(
        inodes(&volume).iter().any(|ino| depth(ino) > 0),
        "no tree of extents has a second level"
    );
}

#[test]
fn indirect_blocks() {
    let Some((image, volume)) = check("ext2_1k") else {
        return;
    };
    // bmap shows which block holds which logical block; `blocks` only lists the blocks.
    let mut script = String::new();
    let mut ours = Vec::new();
    for ino in inodes(&volume) {
        let mapped = volume.map(&volume.inode(ino).0).data;
        for &(logical, physical, _) in mapped.iter().step_by(mapped.len().div_ceil(50).max(1)) {
            script += &format!("bmap <{ino}> {logical}\n");
            ours.push(physical);
        }
    }
    let said = tools::debugfs(&image.path, false, &script);
    let theirs: Vec<u64> = said
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    assert!(ours.len() > 100);
    assert_eq!(ours, theirs);
}

#[test]
fn indirect_blocks_of_ext4() {
    check("ext4_no_extents");
}

#[test]
fn unwritten_extents() {
    let Some((_, volume)) = check("ext4_default") else {
        return;
    };
    let unwritten = |ino: &u32| {
        volume
            .map(&volume.inode(*ino).0)
            .data
            .iter()
            .any(|data| !data.2)
    };
    assert!(
        inodes(&volume).iter().any(unwritten),
        "no file has an unwritten extent"
    );
}
