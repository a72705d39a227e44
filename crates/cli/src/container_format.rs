//! Formats of containers and of other file systems, recognized by their first bytes.
//!
//! `app` asks for advice when an image has no ext volume, and adds it to the message. It reads the
//! first bytes only, and gives no advice on a form that it does not know.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use extern4::Volume;
use rustix::fs::OFlags;

use crate::image_path::{Image, Part};

/// The advice for a form of image.
#[derive(Clone, Copy)]
enum Advice {
    /// This tool makes a plain image of it.
    Convert(&'static str),
    /// This tool unpacks its contents.
    Unpack(&'static str),
    /// This tool makes a device of it, and the volume may be in that.
    Open(&'static str),
    /// The image holds another file system: there is no advice.
    Other,
}

use Advice::{Convert, Open, Other, Unpack};

const QEMU: Advice = Convert("qemu-img convert -O raw");

/// The forms: the offset of the magic number, the number, the name of the form, and the advice.
/// Where an image matches two forms, the outer one comes first.
const FORMS: &[(u64, &[u8], &str, Advice)] = &[
    (0, b"QFI\xfb", "a qcow2 image", QEMU),
    (0, b"QED\0", "a QED image", QEMU),
    (0, b"KDMV", "a VMDK image", QEMU),
    (0, b"COWD", "a VMDK image", QEMU),
    (
        0,
        b"# Disk DescriptorFile",
        "the description of a VMDK image",
        QEMU,
    ),
    (0, b"vhdxfile", "a VHDX image", QEMU),
    (0, b"conectix", "a VHD image", QEMU),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image", QEMU),
    (0, b"WithoutFreeSpace", "a Parallels image", QEMU),
    (0, b"WithouFreSpacExt", "a Parallels image", QEMU),
    (
        0,
        b"\x3a\xff\x26\xed",
        "a sparse image of Android",
        Convert("simg2img"),
    ),
    (0, b"\x1f\x8b", "a compressed image", Convert("gzip -d")),
    (0, b"\xfd7zXZ\0", "a compressed image", Convert("xz -d")),
    (
        0,
        b"\x28\xb5\x2f\xfd",
        "a compressed image",
        Convert("zstd -d"),
    ),
    (0, b"BZh", "a compressed image", Convert("bzip2 -d")),
    (
        0,
        b"\x04\x22\x4d\x18",
        "a compressed image",
        Convert("lz4 -d"),
    ),
    (0, b"\x89LZO\0", "a compressed image", Convert("lzop -d")),
    (0, b"PK\x03\x04", "a zip archive", Unpack("unzip")),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", Unpack("7z x")),
    (0, b"Rar!\x1a\x07", "a RAR archive", Unpack("unrar x")),
    (257, b"ustar", "a tar archive", Unpack("tar -xf")),
    (
        0,
        b"LUKS\xba\xbe",
        "a LUKS container, which is encrypted",
        Open("cryptsetup open"),
    ),
    (
        3,
        b"-FVE-FS-",
        "a BitLocker container, which is encrypted",
        Open("cryptsetup open --type bitlk"),
    ),
    (
        0,
        b"verity\0\0",
        "the hashes of dm-verity, without the data",
        Open("veritysetup open"),
    ),
    (
        0,
        b"integrt\0",
        "a container of dm-integrity",
        Open("integritysetup open"),
    ),
    (
        512,
        b"LABELONE",
        "a physical volume of LVM",
        Open("vgchange -ay"),
    ),
    (
        0,
        b"LABELONE",
        "a physical volume of LVM",
        Open("vgchange -ay"),
    ),
    (
        1024,
        b"LABELONE",
        "a physical volume of LVM",
        Open("vgchange -ay"),
    ),
    (
        1536,
        b"LABELONE",
        "a physical volume of LVM",
        Open("vgchange -ay"),
    ),
    (
        4096,
        b"\xfc\x4e\x2b\xa9",
        "a member of a Linux RAID",
        Open("mdadm --assemble"),
    ),
    (
        0,
        b"\xfc\x4e\x2b\xa9",
        "a member of a Linux RAID",
        Open("mdadm --assemble"),
    ),
    (0, b"XFSB", "an xfs file system", Other),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system", Other),
    (0, b"hsqs", "a squashfs file system", Unpack("unsquashfs")),
    (
        1024,
        b"\xe2\xe1\xf5\xe0",
        "an EROFS file system",
        Unpack("fsck.erofs --extract"),
    ),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system", Other),
    (
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca",
        "a bcachefs file system",
        Other,
    ),
    (
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9",
        "a bcache device",
        Open("bcache-super-show"),
    ),
    (3, b"NTFS    ", "an NTFS file system", Other),
    (3, b"EXFAT   ", "an exFAT file system", Other),
    (82, b"FAT32   ", "a FAT file system", Other),
    (54, b"FAT16   ", "a FAT file system", Other),
    (54, b"FAT12   ", "a FAT file system", Other),
    (54, b"FAT     ", "a FAT file system", Other),
    (0x8001, b"CD001", "an ISO 9660 image", Unpack("bsdtar -xf")),
    (0x8001, b"BEA01", "a UDF file system", Other),
    (0x8001, b"NSR0", "a UDF file system", Other),
    (4096 - 10, b"SWAPSPACE2", "swap space", Other),
    (0x1_0000 - 10, b"SWAPSPACE2", "swap space", Other),
    (0x4000 - 10, b"SWAPSPACE2", "swap space", Other),
    (0x1_0034, b"ReIsEr", "a ReiserFS file system", Other),
    (0x8000, b"JFS1", "a JFS file system", Other),
    (32, b"NXSB", "an APFS container", Other),
    (1024, b"H+\0\x04", "an HFS+ file system", Other),
    (1024, b"HX\0\x05", "an HFS+ file system", Other),
    (0, b"\x45\x3d\xcd\x28", "a cramfs file system", Other),
    (0, b"-rom1fs-", "a romfs file system", Other),
    (0, b"UBI#", "an image of UBI", Other),
    (0x1_0000, b"\x01\x16\x19\x70", "a GFS2 file system", Other),
    (0x2000, b"OCFSV2", "an OCFS2 file system", Other),
    (0x10_0000, b"\x0d\xd0\x01\xc0", "a VMFS volume", Other),
    (0, b"\x7fELF", "a program", Other),
];

/// The magic numbers in the last sector of other forms.
const LAST: &[(&[u8], &str, Advice)] = &[
    (b"conectix", "a VHD image", QEMU),
    (b"koly", "a disk image of macOS", Convert("dmg2img")),
];

/// The uberblocks of ZFS: the offset of the first, their distance and their number; and their magic
/// number in both byte orders.
const UBERBLOCKS: (u64, u64, u64) = (0x2_0000, 1024, 128);
const UBERBLOCK_MAGIC: [&[u8]; 2] = [b"\x0c\xb1\xba\0\0\0\0\0", b"\0\0\0\0\0\xba\xb1\x0c"];

/// Returns the form of the image and the advice for it, if it is known.
pub(crate) fn advice(image: &Image) -> Option<String> {
    // A FIFO may have replaced the file since: opening it does not block.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(&image.file)
        .ok()?;
    let bytes = file.seek(SeekFrom::End(0)).ok()?;
    let start = start(image)?;
    if bytes == start {
        return Some("this is empty".to_owned());
    }
    let is = |offset: u64, magic: &[u8]| is_at(&file, start + offset, magic);
    let first = FORMS.iter().find(|(offset, magic, ..)| is(*offset, magic));
    let first = first.map(|(.., what, advice)| (*what, *advice));
    let is_last = |magic: &[u8]| {
        image.part == Part::Whole && bytes >= 512 && is_at(&file, bytes - 512, magic)
    };
    let last = || {
        LAST.iter()
            .find(|(magic, ..)| is_last(magic))
            .map(|(_, what, advice)| (*what, *advice))
    };
    let (uberblocks, step, count) = UBERBLOCKS;
    let zfs = || {
        let mut places = (0..count).map(|at| uberblocks + at * step);
        places
            .any(|at| UBERBLOCK_MAGIC.iter().any(|magic| is(at, magic)))
            .then_some(("a member of a ZFS pool", Other))
    };
    let (what, advice) = first.or_else(last).or_else(zfs)?;
    Some(match advice {
        Convert(tool) => format!("this is {what}; make a plain one of it with {tool}"),
        Unpack(tool) => format!("this is {what}; {tool} unpacks it"),
        Open(tool) => {
            format!("this is {what}; {tool} makes a device of it, which can be named instead")
        }
        Other => format!("this is {what}, and not ext2, ext3 or ext4"),
    })
}

fn is_at(file: &File, offset: u64, magic: &[u8]) -> bool {
    let mut found = [0; 32];
    let found = &mut found[..magic.len()];
    file.read_exact_at(found, offset).is_ok() && found == magic
}

/// Returns the byte of the file at which the part starts.
fn start(image: &Image) -> Option<u64> {
    match image.part {
        Part::Whole => Some(0),
        Part::Offset(bytes) => Some(bytes),
        Part::Partition(number) => Some(
            Volume::partitions(&image.file)
                .ok()??
                .partition(number)?
                .start_bytes,
        ),
    }
}
