//! Names and symbolic links, of every length and with odd bytes.
//!
//! Nearly all images use these plans. They need no right but to write.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{block_size, directory};

/// Makes files with names of every length and of bytes that are no text.
pub fn odd_names(root: &Path) -> io::Result<()> {
    let dir = directory(root, "names")?;
    let create = |name: &[u8]| std::fs::write(dir.join(OsStr::from_bytes(name)), name);
    for len in (1..=17).chain([100, 254, 255]) {
        create(&vec![b'n'; len])?;
    }
    let odd: [&[u8]; 14] = [
        b" ",
        b"...",
        b".hidden",
        b"-r",
        b"a b",
        b"new\nline",
        b"tab\t",
        b"\x01\x7f",
        b"\xff\xfe\x80",
        b"\xc3\x28",
        "Müll".as_bytes(),
        "日本語".as_bytes(),
        "e\u{301}".as_bytes(),
        b"quote\"'\\",
    ];
    odd.into_iter().try_for_each(create)?;
    let long: Vec<u8> = (0..255)
        .map(|i| {
            if i % 2 == 0 {
                0x80 | i as u8
            } else {
                b'a' + i as u8 % 26
            }
        })
        .collect();
    create(&long)
}

/// Makes symbolic links of lengths around the room in the inode, up to the longest that a block can
/// hold.
pub fn symlinks(root: &Path) -> io::Result<()> {
    let dir = directory(root, "links")?;
    let longest = (block_size(root)? - 1).min(4095) as usize;
    for len in [
        1, 2, 11, 58, 59, 60, 61, 64, 127, 150, 156, 200, 255, 256, 700, 1022, 1023, 2047, 4000,
        4095,
    ] {
        if len <= longest {
            let target: String = (0..len)
                .map(|i| if i % 50 == 49 { '/' } else { 't' })
                .collect();
            std::os::unix::fs::symlink(target, dir.join(format!("{len}-long")))?;
        }
    }
    std::os::unix::fs::symlink("59-long", dir.join("to-a-link"))?;
    std::os::unix::fs::symlink("loop-b", dir.join("loop-a"))?;
    std::os::unix::fs::symlink("loop-a", dir.join("loop-b"))?;
    std::os::unix::fs::symlink("..", dir.join("up"))?;
    std::os::unix::fs::symlink(OsStr::from_bytes(b"\xff\x80 no text"), dir.join("no-text"))
}
