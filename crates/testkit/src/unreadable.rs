//! A volume with inodes of every kind that Linux does not read without a key, or at all.
//!
//! Tests of listings, copies and exports use it: each such file must be reported, and none may end
//! the command or leak a cipher's bytes.

use std::io;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;

use crate::image::{Image, ImageSpec, Step};
use crate::plan;
use crate::tools::Need;

/// The text in contents that are marked as encrypted but are not: no output may hold it.
pub const MARK: &[u8] = b"bytes of a cipher";

/// Regular files, none of which can be read.
pub const FILES: &[&str] = &[
    "key",
    "key-empty",
    "key-hole",
    "bad-policy",
    "no-policy",
    "no-policy-empty",
    "no-policy-hole",
    "no-policy-inline",
    "no-map",
    "deep-map",
];

/// Symbolic links whose targets cannot be read.
pub const LINKS: &[&str] = &["no-policy-link", "no-policy-long-link", "bad-policy-link"];

/// An encrypted directory. Its one file that is not empty is not encrypted, and so cannot be
/// opened.
pub const CLEAR_DIRECTORY: &str = "clear-dir";

/// Directories that cannot be listed.
pub const DIRECTORIES: &[&str] = &["no-policy-dir", "no-policy-inline-dir"];

/// `EXT4_ENCRYPT_FL` of `i_flags`.
const ENCRYPT: u32 = 0x800;

/// The volume. Without checksums of metadata, so that a context can be damaged where it stands.
pub const UNREADABLE: ImageSpec = ImageSpec::new(
    "disk",
    64 << 20,
    &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "encrypt,inline_data,^metadata_csum",
    ],
)
.mounted(&[plan::encrypted, fill])
.then(&[Step::Run(mark)])
.needing(&[Need::KernelFeature("encryption")]);

fn fill(root: &Path) -> io::Result<()> {
    let secret = root.join("secret");
    std::fs::File::create(secret.join("hole"))?.set_len(1 << 20)?;
    for (from, to) in [
        ("5000", "key"),
        ("0", "key-empty"),
        ("hole", "key-hole"),
        ("10", "bad-policy"),
        ("link-20", "key-link"),
    ] {
        std::fs::hard_link(secret.join(from), root.join(to))?;
    }
    std::fs::hard_link(secret.join("link-50"), root.join("bad-policy-link"))?;
    std::fs::rename(secret.join("inner"), root.join("key-dir"))?;
    let long = MARK.repeat(400);
    for name in ["no-policy", "no-map", "deep-map"] {
        std::fs::write(root.join(name), &long)?;
    }
    std::fs::write(root.join("no-policy-empty"), b"")?;
    std::fs::write(root.join("no-policy-inline"), MARK)?;
    std::fs::File::create(root.join("no-policy-hole"))?.set_len(1 << 20)?;
    symlink("bytes of a cipher", root.join("no-policy-link"))?;
    // A length that fits, and then text that would show as a name.
    symlink(
        "bytes of a cipher".repeat(40),
        root.join("no-policy-long-link"),
    )?;
    for (dir, files) in [
        ("no-policy-dir", 300),
        ("no-policy-inline-dir", 1),
        (CLEAR_DIRECTORY, 20),
    ] {
        let dir = root.join(dir);
        std::fs::create_dir(&dir)?;
        (0..files)
            .try_for_each(|at| std::fs::write(dir.join(format!("bytes of a cipher {at}")), b""))?;
    }
    std::fs::write(
        root.join(CLEAR_DIRECTORY)
            .join("a name as long as a cipher's"),
        &long,
    )
}

/// Sets flags that no system call sets, and damages what no system call damages.
fn mark(image: &Image) {
    for name in FILES
        .iter()
        .chain(LINKS)
        .chain(DIRECTORIES)
        .filter(|name| name.starts_with("no-policy"))
    {
        add_flag(image, name, ENCRYPT);
    }
    give_policy_to_clear_dir(image);
    for name in ["bad-policy", "bad-policy-link"] {
        write_context(image, name, |context| context[0] = 9);
    }
    // One map without its magic number, and one deeper than Linux accepts.
    image.debugfs(
        "set_inode_field /no-map block[0] 0\nset_inode_field /deep-map block[1] 0x60004\n",
    );
}

/// Makes `clear-dir` an encrypted directory, whose contents are not encrypted.
fn give_policy_to_clear_dir(image: &Image) {
    let from = record(image, "key-dir");
    let to = record(image, CLEAR_DIRECTORY);
    let file = open(image);
    let mut bytes = [0; RECORD_BYTES - OLD_RECORD_BYTES];
    let rest = OLD_RECORD_BYTES as u64;
    file.read_exact_at(&mut bytes, from + rest)
        .expect("its attributes");
    file.write_all_at(&bytes, to + rest)
        .expect("they are copied");
    add_flag(image, CLEAR_DIRECTORY, ENCRYPT);
}

const RECORD_BYTES: usize = 256;
const OLD_RECORD_BYTES: usize = 128;

fn open(image: &Image) -> std::fs::File {
    std::fs::File::options()
        .read(true)
        .write(true)
        .open(&image.path)
        .expect("the image")
}

/// Changes the encryption context of a file: version, modes, flags, the identifier of the key, the
/// nonce.
fn write_context(image: &Image, name: &str, change: impl Fn(&mut [u8])) {
    let at = record(image, name);
    let file = open(image);
    let mut bytes = [0; RECORD_BYTES];
    file.read_exact_at(&mut bytes, at).expect("its record");
    let start = bytes
        .windows(4)
        .position(|four| four == [2, 1, 4, 3])
        .expect("a context");
    change(&mut bytes[start..]);
    file.write_all_at(&bytes, at).expect("it is changed");
}

/// Returns the place in the image of a file's inode record.
fn record(image: &Image, name: &str) -> u64 {
    let said = image.debugfs(&format!("imap /{name}\n"));
    let (_, place) = said
        .split_once("located at block ")
        .expect("debugfs tells it");
    let (block, offset) = place
        .trim()
        .split_once(", offset 0x")
        .expect("block and offset");
    let block: u64 = block.parse().expect("a block");
    block * 4096 + u64::from_str_radix(offset, 16).expect("an offset")
}

fn add_flag(image: &Image, name: &str, flag: u32) {
    let said = image.debugfs(&format!("stat /{name}\n"));
    let flags = said
        .split("Flags: 0x")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let flags = u32::from_str_radix(flags.expect("flags"), 16).expect("a number");
    image.debugfs(&format!(
        "set_inode_field /{name} flags {:#x}\n",
        flags | flag
    ));
}
