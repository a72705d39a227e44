//! What an image is that holds a volume in a form that has to be undone first.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Where a form has its magic number, the number, what the form is called, and what makes a plain one of it.
const FORMS: &[(u64, &[u8], &str, &str)] = &[
    (0, b"QFI\xfb", "a qcow2 image", "qemu-img convert -O raw"),
    (0, b"KDMV", "a VMDK image", "qemu-img convert -O raw"),
    (0, b"vhdxfile", "a VHDX image", "qemu-img convert -O raw"),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image", "qemu-img convert -O raw"),
    (0, b"\x3a\xff\x26\xed", "a sparse image of Android", "simg2img"),
    (0, b"\x1f\x8b", "a compressed image", "gzip -d"),
    (0, b"\xfd7zXZ\0", "a compressed image", "xz -d"),
    (0, b"\x28\xb5\x2f\xfd", "a compressed image", "zstd -d"),
    (0, b"BZh", "a compressed image", "bzip2 -d"),
];

/// What the image is, and what to do about it, if that is known.
pub(crate) fn of(image: &Path) -> Option<String> {
    let file = File::open(image).ok()?;
    let is = |offset: u64, magic: &[u8]| {
        let mut found = [0; 8];
        let found = &mut found[..magic.len()];
        file.read_exact_at(found, offset).is_ok() && found == magic
    };
    let (.., what, tool) = FORMS.iter().find(|(offset, magic, ..)| is(*offset, magic))?;
    Some(format!("this is {what}; make a plain one of it with {tool}"))
}
