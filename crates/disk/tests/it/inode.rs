//! Tests of inodes against `debugfs`.

use extern4_disk::bitmap::Bitmap;
use extern4_disk::group::GroupFlags;
use extern4_disk::inode::{FileKind, Inode, InodeFlags};
use extern4_disk::superblock::Superblock;
use extern4_disk::time::Timestamp;
use extern4_disk::{CorruptKind, Place, Structure};

use crate::image::Image;
use crate::volumes::VOLUMES;

#[test]
fn every_inode_in_use_decodes_as_debugfs_sees_it() {
    for (options, size) in VOLUMES {
        let image = Image::make(options, size);
        let sb = image.superblock();
        let used = inodes_in_use(&image, &sb);
        assert!(used.len() >= 9, "{options}");
        for (ino, text) in used.iter().copied().zip(image.stat(&used)) {
            let inode = image
                .inode(ino, &sb)
                .unwrap_or_else(|error| panic!("{options}: {error}"));
            // Hurd's translator stands on the same line as the attribute block.
            let text = text.replace(" Translator: 0\n", "\n");
            check_stat(&text, &inode, &format!("inode {ino} of {options}"));
            let record = image.record(ino, &sb);
            let mut encoded = record.clone();
            encoded[..128].fill(0);
            inode.encode(&mut encoded, &sb);
            assert_eq!(encoded, record, "inode {ino} of {options}");
        }
    }
}

fn inodes_in_use(image: &Image, sb: &Superblock) -> Vec<u32> {
    let geometry = sb.geometry();
    let mut used = Vec::new();
    for group in 0..geometry.group_count() {
        let descriptor = image.descriptor(group, sb);
        if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            continue;
        }
        let bytes = image.read_block(descriptor.inode_bitmap(), sb);
        let place = Place::new(Structure::InodeBitmap);
        let bitmap = Bitmap::decode_inodes(&bytes, group, &descriptor, sb, place).unwrap();
        used.extend(
            bitmap
                .set_bits()
                .map(|bit| group * geometry.inodes_per_group() + bit + 1),
        );
    }
    // Reserved inodes that the volume does not use are zeros, without a checksum.
    used.retain(|ino| {
        *ino >= sb.first_ino() || !extern4_disk::inode::is_blank(&image.record(*ino, sb))
    });
    used
}

fn check_stat(text: &str, inode: &Inode, what: &str) {
    let kind = match inode.kind() {
        FileKind::None => "bad type",
        FileKind::Fifo => "FIFO",
        FileKind::CharDevice => "character special",
        FileKind::Directory => "directory",
        FileKind::BlockDevice => "block special",
        FileKind::Regular => "regular",
        FileKind::Symlink => "symlink",
        FileKind::Socket => "socket",
    };
    let has = |part: String| assert!(text.contains(&part), "{what}: {part} is not in {text}");
    has(format!("Type: {kind} "));
    has(format!("Mode:  0{:03o} ", inode.permissions()));
    has(format!("Flags: {:#x}\n", inode.flags().bits()));
    has(format!("Generation: {} ", inode.generation()));
    has(format!(
        "User: {:>5}   Group: {:>5} ",
        inode.uid().cast_signed(),
        inode.gid().cast_signed()
    ));
    has(format!("Size: {}\n", inode.size()));
    has(format!("File ACL: {}\n", inode.xattr_block().unwrap_or(0)));
    has(format!("Links: {} ", inode.links()));
    if !inode.flags().contains(InodeFlags::HUGE_FILE) {
        has(format!("Blockcount: {}\n", inode.sectors()));
    }
    let wide = inode.extra_isize() >= 32;
    if wide {
        has(format!("Project: {:>5} ", inode.project().cast_signed()));
        has(format!(
            "Version: {:#010x}:{:08x}\n",
            inode.version() >> 32,
            inode.version() & 0xffff_ffff
        ));
        has(format!("crtime: {}", stamp(inode.crtime().unwrap())));
    }
    for (name, time) in [
        ("ctime", inode.ctime()),
        ("atime", inode.atime()),
        ("mtime", inode.mtime()),
    ] {
        let (field, extra) = time.encode();
        has(if wide {
            format!("{name}: {field:#010x}:{extra:08x}")
        } else {
            format!("{name}: {field:#010x} ")
        });
    }
    if let Some(device) = inode.device() {
        has(format!(
            "Device major/minor number: {:02}:{:02}",
            device.major, device.minor
        ));
    }
}

fn stamp(time: Timestamp) -> String {
    let (field, extra) = time.encode();
    format!("{field:#010x}:{extra:08x}")
}

#[test]
fn extreme_values() {
    let image = Image::make(
        "-t ext4 -I 256 -O project,large_dir,64bit,metadata_csum,huge_file",
        "64M",
    );
    image.debugfs_write(
        "sif /large uid 0x12345678\nsif /large gid 0xfedcba98\nsif /large size 0x7ffffffffffffffe\n\
         sif /large atime 0xffffffff\nsif /large atime_extra 0xee6b27ff\nsif /large mtime 0x80000000\n\
         sif /large mtime_extra 0\nsif /large ctime 0x7fffffff\nsif /large ctime_extra 3\n\
         sif /large projid 4294967294\nsif /large generation 0xdeadbeef\nsif /large links_count 65000\n\
         sif /large version 0x1122334455667788\nsif /large mode 0107777\n\
         sif /large flags 0xc0000\nsif /large blocks 0x123456789abc\nsif /large file_acl 0x1000\n",
    );
    let sb = image.superblock();
    let ino = find(&image, "/large");
    let inode = image.inode(ino, &sb).unwrap();
    check_stat(
        &image
            .debugfs("stat /large")
            .replace(":00000003 ", ":00000003"),
        &inode,
        "/large",
    );
    assert_eq!(
        (inode.uid(), inode.gid(), inode.project()),
        (0x1234_5678, 0xfedc_ba98, 0xffff_fffe)
    );
    assert_eq!(inode.size(), 0x7fff_ffff_ffff_fffe);
    assert_eq!(
        inode.atime(),
        Timestamp {
            seconds: 0x2_ffff_ffff,
            nanos: 999_999_999
        }
    );
    assert_eq!(inode.mtime(), Timestamp::MIN);
    assert_eq!(
        inode.ctime(),
        Timestamp {
            seconds: 0x3_7fff_ffff,
            nanos: 0
        }
    );
    assert_eq!(inode.permissions(), 0o7777);
    assert_eq!(
        inode.sectors(),
        0x1234_5678_9abc * u64::from(sb.block_size() / 512)
    );
    assert_eq!(inode.version(), 0x1122_3344_5566_7788);
    assert_eq!(inode.flags(), InodeFlags::EXTENTS | InodeFlags::HUGE_FILE);
    assert_eq!(inode.xattr_block(), Some(0x1000));
}

#[test]
fn sizes_without_large_dir() {
    let image = Image::make("-t ext2 -b 1024", "8M");
    image.debugfs_write("sif /directory size_hi 7\nsif /large size_hi 7\nsif /large blocks_hi 1\n");
    let sb = image.superblock();
    let directory = image.inode(find(&image, "/directory"), &sb).unwrap();
    assert_eq!(
        directory.size(),
        1024,
        "the upper half was the directory's ACL"
    );
    let large = image.inode(find(&image, "/large"), &sb).unwrap();
    assert_eq!(large.size(), (7 << 32) + 200_000);
    assert!(
        large.sectors() < 1 << 32,
        "without huge_file there is no upper half"
    );
}

#[test]
fn devices_old_and_new() {
    let image = Image::make("-t ext4", "64M");
    // debugfs makes only small numbers, so the new form is written by hand.
    image.debugfs_write(
        "mknod old b 8 1\n\
         mknod new c 1 1\nsif new block[0] 0\nsif new block[1] 0x11112c70\n\
         mknod wide c 1 1\nsif wide block[0] 0\nsif wide block[1] 0xffffffff\n",
    );
    let sb = image.superblock();
    for (name, major, minor) in [
        ("/old", 8, 1),
        ("/new", 300, 70000),
        ("/wide", 4095, 1_048_575),
    ] {
        let inode = image.inode(find(&image, name), &sb).unwrap();
        let device = inode.device().unwrap();
        assert_eq!((device.major, device.minor), (major, minor), "{name}");
        check_stat(&image.debugfs(&format!("stat {name}")), &inode, name);
    }
    assert_eq!(
        image.inode(find(&image, "/pipe"), &sb).unwrap().device(),
        None
    );
}

#[test]
fn deleted_and_blank_inodes() {
    let image = Image::make("-t ext4 -O metadata_csum", "64M");
    let ino = find(&image, "/directory/small");
    image.debugfs_write("rm /directory/small\n");
    let sb = image.superblock();
    let inode = image.inode(ino, &sb).unwrap();
    assert_eq!((inode.links(), inode.dtime()), (0, 1_700_000_000));
    let blank = image.record(sb.inodes_count(), &sb);
    assert!(extern4_disk::inode::is_blank(&blank));
}

#[test]
fn extended_attributes_are_the_rest_of_the_record() {
    let image = Image::make("-t ext4 -I 512", "64M");
    image.debugfs_write("ea_set /large user.colour blue\n");
    let sb = image.superblock();
    let ino = find(&image, "/large");
    let record = image.record(ino, &sb);
    let area = image.inode(ino, &sb).unwrap().xattr_area(&record);
    assert_eq!(area.len(), 512 - 160);
    assert_eq!(area[..4], 0xea02_0000u32.to_le_bytes());
    let small = Image::make("-t ext4 -I 128", "64M");
    let sb = small.superblock();
    let record = small.record(2, &sb);
    assert!(small.inode(2, &sb).unwrap().xattr_area(&record).is_empty());
}

#[test]
fn records_with_less_room_have_a_short_checksum() {
    // Without room for `i_checksum_hi`, its bytes count as contents and the checksum has 16 bits.
    for extra_isize in [0, 4, 16, 28] {
        let image = Image::make("-t ext4 -I 256 -O metadata_csum", "64M");
        image.debugfs_write(&format!("sif /large extra_isize {extra_isize}\n"));
        let sb = image.superblock();
        let inode = image.inode(find(&image, "/large"), &sb).unwrap();
        assert_eq!(inode.extra_isize(), extra_isize);
        assert_eq!(inode.crtime().is_some(), extra_isize >= 20);
        assert_eq!(inode.project(), 0);
    }
}

#[test]
fn impossible_fields_are_named() {
    let cases = [
        (
            "mode 0150644",
            CorruptKind::Field {
                field: "i_mode",
                value: 0o150_644,
            },
        ),
        (
            "mode 0644",
            CorruptKind::Field {
                field: "i_mode",
                value: 0o644,
            },
        ),
        (
            "extra_isize 132",
            CorruptKind::Field {
                field: "i_extra_isize",
                value: 132,
            },
        ),
        (
            "extra_isize 30",
            CorruptKind::Field {
                field: "i_extra_isize",
                value: 30,
            },
        ),
        (
            "size 0x8000000000000000",
            CorruptKind::Field {
                field: "i_size",
                value: 1 << 63,
            },
        ),
        (
            "file_acl 0x100000",
            CorruptKind::BlockOutOfRange {
                field: "i_file_acl",
                block: 0x10_0000,
            },
        ),
    ];
    for (change, kind) in cases {
        let image = Image::make("-t ext4 -I 256 -O ^metadata_csum", "64M");
        let ino = find(&image, "/large");
        image.debugfs_write(&format!("sif /large {change}\n"));
        let error = image.inode(ino, &image.superblock()).unwrap_err();
        assert_eq!(error.kind, kind, "{change}");
        assert_eq!(error.place.ino, Some(ino));
    }
}

/// Returns the inode of a path, from `debugfs`.
pub(crate) fn find(image: &Image, path: &str) -> u32 {
    let text = image.debugfs(&format!("stat {path}"));
    let number = text
        .split_once("Inode: ")
        .unwrap()
        .1
        .split_whitespace()
        .next()
        .unwrap();
    number.parse().unwrap()
}
