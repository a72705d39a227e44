//! Groups with a wrong bitmap or descriptor: changes pass over them, and the volume's policy says
//! whether further ones are allowed. `e2fsck` mends the volume afterwards.

use std::sync::Arc;

use extern4_disk::bitmap::compute_checksum;
use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_disk::superblock::{ErrorPolicy, State, Superblock};
use extern4_ext4::{Ext4, Listener, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::tools::{self, Need};
use extern4_vfs::*;

use crate::model::{Op, open_for_writing_with, run, session};
use crate::walk;

const BLOCK: u64 = 1024;
const MKE2FS: &[&str] = &["-t", "ext4", "-b", "1024"];

/// The damage of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// The checksum of a bitmap does not match.
    BlockBitmap,
    InodeBitmap,
    /// The group's copy of the superblock is free, and everything else agrees.
    OwnBlockFree,
    /// A block of `/home/old` is free, or its inode, and everything else agrees.
    FileBlockFree,
    FileInodeFree,
    /// The descriptor has one free block, or inode, more than the bitmap.
    FreeBlocks,
    FreeInodes,
    /// The group has more free blocks than blocks.
    ImpossibleCount,
    DescriptorChecksum,
    BlockBitmapOutside,
    TableOutside,
    /// The inode table is where that of another group is.
    TwiceInOnePlace,
}

const IN_BITMAPS: [Damage; 5] = [
    Damage::BlockBitmap,
    Damage::InodeBitmap,
    Damage::OwnBlockFree,
    Damage::FreeBlocks,
    Damage::FreeInodes,
];
const IN_DESCRIPTORS: [Damage; 5] = [
    Damage::ImpossibleCount,
    Damage::DescriptorChecksum,
    Damage::BlockBitmapOutside,
    Damage::TableOutside,
    Damage::TwiceInOnePlace,
];

/// A volume of eight groups, with a directory `/home` that has a file `old`: the inode of the file,
/// and the group of both.
struct Sample {
    image: Image,
    group: u32,
    old: u32,
}

impl Sample {
    fn new() -> Option<Self> {
        let spec =
            ImageSpec::new("set-aside", 64 << 20, MKE2FS).then(&[Step::Debugfs("mkdir 0\n")]);
        if !spec.can_run() {
            return None;
        }
        let image = spec.build();
        let fs = open(&image, None);
        let root = session(Arc::clone(&fs) as _);
        // Directories of the root are spread over the groups.
        let group = (1..9).find_map(|at| {
            let path = format!("/{at}");
            root.mkdir(&path, 0o755).expect("mkdir");
            let ino = root.stat(&path, LookupFlags::FOLLOW).expect("stat").ino;
            let group = group_of(&fs, ino);
            if group > 1 && group % 2 == 1 {
                root.rename(&path, "/home", RenameFlags::empty())
                    .expect("rename");
            }
            Some(group).filter(|_| root.stat("/home", LookupFlags::FOLLOW).is_ok())
        });
        run(&root, &Op::Create("/home/old".to_owned(), 0o644)).expect("create");
        run(&root, &Op::Write("/home/old".to_owned(), 0, 300_000)).expect("write");
        let group = group.expect("a directory in a group");
        let old = root
            .stat("/home/old", LookupFlags::FOLLOW)
            .expect("stat")
            .ino;
        assert_eq!(group_of(&fs, old), group);
        drop(root);
        fs.close().expect("close");
        drop(fs);
        tools::e2fsck(&image.path).expect("it is sound");
        Some(Self {
            image,
            group,
            old: old as u32,
        })
    }

    /// Damages a copy of the volume. Every other checksum is right.
    fn damaged(&self, damage: Damage) -> Image {
        let image = self.image.copy();
        let mut bytes = std::fs::read(&image.path).expect("it is read");
        let fs = walk::open(&image.path);
        let sb = fs.superblock();
        let group = self.group;
        let at = sb
            .geometry()
            .descriptor_position(group)
            .expect("a descriptor");
        let at = (at.block * BLOCK) as usize + at.offset as usize;
        let mut descriptor = *fs.group(group).expect("it is sound");
        assert!(
            !descriptor.flags().contains(GroupFlags::BLOCK_UNINIT),
            "a file has blocks there"
        );
        let other = fs.group(group - 1).expect("it is sound");
        let new = |block_bitmap, table| {
            let mut new = GroupDescriptor::new(block_bitmap, descriptor.inode_bitmap(), table, sb);
            new.set_free_clusters(descriptor.free_clusters());
            new.set_free_inodes(descriptor.free_inodes());
            new.set_used_dirs(descriptor.used_dirs());
            new
        };
        let blocks = descriptor.block_bitmap() * BLOCK;
        let inodes = descriptor.inode_bitmap() * BLOCK;
        match damage {
            Damage::BlockBitmap => bytes[blocks as usize + 900] ^= 1,
            Damage::InodeBitmap => bytes[inodes as usize + 100] ^= 1,
            Damage::FreeBlocks => descriptor.set_free_clusters(descriptor.free_clusters() + 1),
            Damage::FreeInodes => descriptor.set_free_inodes(descriptor.free_inodes() + 1),
            Damage::ImpossibleCount => descriptor.set_free_clusters(9000),
            Damage::BlockBitmapOutside => descriptor = new(1 << 20, descriptor.inode_table()),
            Damage::TableOutside => descriptor = new(descriptor.block_bitmap(), 65_500),
            Damage::TwiceInOnePlace => {
                descriptor = new(descriptor.block_bitmap(), other.inode_table() + 3)
            }
            Damage::DescriptorChecksum => {}
            Damage::OwnBlockFree | Damage::FileBlockFree => {
                let block = match damage {
                    // The copies of the superblock and the descriptors are in odd groups.
                    Damage::OwnBlockFree => sb.geometry().superblock_in(group).expect("a copy"),
                    _ => fs
                        .raw_inode(self.old)
                        .map(|inode| first_block(inode.map()))
                        .expect("a map"),
                };
                let bit = sb.geometry().cluster_in_group(block).expect("a bit");
                let sum = free_bit(
                    &mut bytes[blocks as usize..],
                    bit,
                    sb.geometry().clusters_per_group(),
                    sb,
                );
                descriptor.set_free_clusters(descriptor.free_clusters() + 1);
                descriptor.set_block_bitmap_checksum(sum);
            }
            Damage::FileInodeFree => {
                let bit = sb.geometry().inode_slot(self.old).expect("an inode").index;
                let sum = free_bit(
                    &mut bytes[inodes as usize..],
                    bit,
                    sb.geometry().inodes_per_group(),
                    sb,
                );
                descriptor.set_free_inodes(descriptor.free_inodes() + 1);
                descriptor.set_inode_bitmap_checksum(sum);
            }
        }
        descriptor.encode(&mut bytes[at..], group, sb);
        if damage == Damage::DescriptorChecksum {
            bytes[at + 0x1e] ^= 1;
        }
        std::fs::write(&image.path, bytes).expect("it is written");
        image
    }
}

/// Returns the first block of a file with one extent.
fn first_block(map: &[u8; 60]) -> u64 {
    u32::from_le_bytes([map[20], map[21], map[22], map[23]]).into()
}

/// Clears a bit of the bitmap at the start of `bytes`, and returns the new checksum.
fn free_bit(bytes: &mut [u8], bit: u32, len: u32, sb: &Superblock) -> u32 {
    assert!(
        bytes[bit as usize / 8] & 1 << (bit % 8) != 0,
        "it is in use"
    );
    bytes[bit as usize / 8] &= !(1 << (bit % 8));
    compute_checksum(bytes, len, sb.metadata_seed().expect("checksums")).expect("a whole bitmap")
}

fn group_of(fs: &Ext4, ino: u64) -> u32 {
    let ino = u32::try_from(ino).expect("an inode number");
    fs.superblock()
        .geometry()
        .inode_slot(ino)
        .expect("an inode of the volume")
        .group
}

fn open(image: &Image, errors: Option<ErrorPolicy>) -> Arc<Ext4> {
    let options = OpenOptions {
        errors,
        ..OpenOptions::default()
    };
    Arc::new(open_for_writing_with(&image.path, &options).expect("it opens for writing"))
}

/// Has `e2fsck` mend the volume; then it is sound.
fn mend(what: &str, image: &Image) {
    assert!(
        walk::open(&image.path)
            .superblock()
            .state()
            .contains(State::ERROR),
        "{what}"
    );
    let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
    tools::e2fsck(&image.path).unwrap_or_else(|error| panic!("{what}: {error}"));
}

/// Fills most of the volume, removes what is in the damaged group, and makes a file there.
fn change(root: &Session, in_home: bool) -> Result<()> {
    root.mkdir("/n", 0o755)?;
    if in_home {
        run(root, &Op::Create("/home/new".to_owned(), 0o644))?;
        run(root, &Op::Write("/home/new".to_owned(), 0, 100_000))?;
        run(root, &Op::Unlink("/home/old".to_owned()))?;
    }
    run(root, &Op::Create("/big".to_owned(), 0o644))?;
    (0..25).try_for_each(|at| run(root, &Op::Write("/big".to_owned(), at << 20, 1 << 20)))?;
    run(root, &Op::Unlink("/big".to_owned()))
}

#[test]
fn other_groups_take_what_a_damaged_group_cannot() {
    let Some(sample) = Sample::new() else { return };
    for (damages, in_home) in [(IN_BITMAPS, true), (IN_DESCRIPTORS, false)] {
        for damage in damages {
            let what = format!("{damage:?}");
            let image = sample.damaged(damage);
            let told: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
            let listener = Arc::clone(&told);
            let on_warning =
                Listener::new(move |text| listener.lock().expect("no panic").push(text.to_owned()));
            let options = OpenOptions {
                on_warning: Some(on_warning),
                ..OpenOptions::default()
            };
            let fs = open_for_writing_with(&image.path, &options)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            let fs = Arc::new(fs);
            let root = session(Arc::clone(&fs) as _);
            change(&root, in_home).unwrap_or_else(|error| panic!("{what}: {error}"));
            // The volume gives all that it promises: it fills without damage or half-done changes.
            run(&root, &Op::Create("/all".to_owned(), 0o644)).expect("create");
            let full = (0..80)
                .try_for_each(|at| run(&root, &Op::Write("/all".to_owned(), at << 20, 1 << 20)));
            assert_eq!(
                full.expect_err("it is full").errno(),
                Errno::ENOSPC,
                "{what}"
            );
            let free = fs.statfs().expect("statfs");
            assert!(free.blocks_available < 20, "{what}: {free:?}");
            run(&root, &Op::Unlink("/all".to_owned()))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(root);
            fs.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            let warnings = fs.warnings();
            let expected = if damage == Damage::TwiceInOnePlace {
                2
            } else {
                1
            };
            assert_eq!(warnings.len(), expected, "{what}: {warnings:?}");
            let group = format!("group {}", sample.group);
            assert!(
                warnings.iter().any(|it| it.contains(&group)),
                "{what}: {warnings:?}"
            );
            assert_eq!(*told.lock().expect("no panic"), warnings, "{what}");
            drop(fs);
            assert_eq!(
                walk::open(&image.path).superblock().error_count(),
                expected as u32,
                "{what}"
            );
            mend(&what, &image);
        }
    }
}

#[test]
fn damage_of_a_group_ends_changes_where_that_is_asked_for() {
    let Some(sample) = Sample::new() else { return };
    for policy in [ErrorPolicy::RemountReadOnly, ErrorPolicy::Panic] {
        for damage in [Damage::BlockBitmap, Damage::InodeBitmap, Damage::FreeBlocks] {
            let what = format!("{damage:?}, {policy:?}");
            let image = sample.damaged(damage);
            let fs = open(&image, Some(policy));
            let root = session(Arc::clone(&fs) as _);
            let sound = root.chmod("/0", 0o711, LookupFlags::FOLLOW);
            sound.unwrap_or_else(|error| panic!("{what}: {error}"));
            let error = change(&root, true).expect_err("damage ends changes");
            assert_eq!(error.errno(), Errno::EROFS, "{what}: {error}");
            assert_eq!(
                run(&root, &Op::Write("/home/old".to_owned(), 0, 10)).map_err(|e| e.errno()),
                Err(Errno::EROFS)
            );
            walk::resolve(&fs, "/home/old").unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(root);
            fs.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(fs);
            let fs = walk::open(&image.path);
            walk::resolve(&fs, "/home/new").unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(fs);
            mend(&what, &image);
        }
        for damage in IN_DESCRIPTORS {
            let what = format!("{damage:?}, {policy:?}");
            let image = sample.damaged(damage);
            let fs = open(&image, Some(policy));
            let root = session(Arc::clone(&fs) as _);
            let error = root
                .mkdir("/n", 0o755)
                .expect_err("damage has ended changes");
            assert_eq!(error.errno(), Errno::EROFS, "{what}: {error}");
            drop(root);
            fs.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(fs);
            mend(&what, &image);
        }
    }
}

/// A block, or an inode, that is in use is free in its bitmap: its group is set aside when it is
/// freed, and the removal goes on.
#[test]
fn what_is_freed_twice_sets_its_group_aside() {
    let Some(sample) = Sample::new() else { return };
    for damage in [Damage::FileBlockFree, Damage::FileInodeFree] {
        let what = format!("{damage:?}");
        let image = sample.damaged(damage);
        let fs = open(&image, None);
        let root = session(Arc::clone(&fs) as _);
        run(&root, &Op::Unlink("/home/old".to_owned()))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        change(&root, false).unwrap_or_else(|error| panic!("{what}: {error}"));
        drop(root);
        fs.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(fs.warnings().len(), 1, "{what}: {:?}", fs.warnings());
        drop(fs);
        mend(&what, &image);
    }
}

/// Linux writes such a volume as well, and leaves the bitmap alone.
#[test]
fn linux_passes_over_a_damaged_bitmap_too() {
    if !tools::can_run(&[Need::Mount]) {
        return;
    }
    let Some(sample) = Sample::new() else { return };
    for damage in [Damage::BlockBitmap, Damage::InodeBitmap, Damage::FreeBlocks] {
        let image = sample.damaged(damage);
        let before = std::fs::read(&image.path).expect("it is read");
        let mount = image.mount("errors=continue");
        let home = mount.path.join("home");
        std::fs::create_dir(mount.path.join("n")).expect("mkdir");
        std::fs::write(home.join("new"), [1; 100_000]).expect("the other groups have room");
        std::fs::remove_file(home.join("old")).expect("the blocks stay allocated");
        mount.unmount();
        let after = std::fs::read(&image.path).expect("it is read");
        let fs = walk::open(&image.path);
        let bitmap = match damage {
            Damage::InodeBitmap => fs.group(sample.group).expect("it is sound").inode_bitmap(),
            _ => fs.group(sample.group).expect("it is sound").block_bitmap(),
        };
        let bitmap = (bitmap * BLOCK) as usize..((bitmap + 1) * BLOCK) as usize;
        assert!(before[bitmap.clone()] == after[bitmap], "{damage:?}");
        drop(fs);
        mend(&format!("{damage:?}"), &image);
    }
}
