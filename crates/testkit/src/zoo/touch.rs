//! Changes to images by hand, which make states that no mount of this kernel would leave behind.
//!
//! Rows of [`SPECS`](super::SPECS) name them as steps after filling. They use `debugfs -w` and
//! write to the image while it is not mounted.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use crate::image::Image;
use crate::plan;
use crate::tools::{LoopDevice, run};

/// Hashes of names take bytes as unsigned (`EXT2_FLAGS_UNSIGNED_HASH`).
pub(super) const UNSIGNED: &str = "ssv flags 2\n";

/// Project ids, as no mount without quota support would set them.
pub(super) const PROJECTS: &str = "sif /files/1-bytes projid 4242\nsif /files projid 4294967294\n";

/// Times with all epoch bits in every field, flags that are shown and flags that are not, and a
/// generation.
pub(super) const TIMES_AND_FLAGS: &str = "\
    sif /files/0-bytes ctime 0x80000000\n\
    sif /files/0-bytes ctime_extra 0x3\n\
    sif /files/1-bytes ctime 0x7fffffff\n\
    sif /files/1-bytes ctime_extra 0xee6b27ff\n\
    sif /files/7-bytes crtime 0xffffffff\n\
    sif /files/7-bytes crtime_extra 0x1\n\
    sif /files/8-bytes mtime 0\n\
    sif /files/8-bytes mtime_extra 0x2\n\
    sif /files/59-bytes flags 0x84000\n\
    sif /files/60-bytes flags 0x80fdb\n\
    sif /files/63-bytes flags 0xad8c2000\n\
    sif /files flags 0x20080000\n\
    sif /files/61-bytes generation 0xfedcba98\n\
    sif /files atime 0xfffffffe\n\
    sif /files atime_extra 0xee6b27fc\n";

/// Makes a directory that folds case, with enough names for an index, and one inside.
pub(super) fn folded_names(root: &Path) -> io::Result<()> {
    let dir = root.join("folded");
    std::fs::create_dir_all(dir.join("Inner"))?;
    std::fs::create_dir(root.join("exact"))?;
    for at in 0..400 {
        plan::file(&dir.join(format!("Name-Number-{at}")), at)?;
    }
    for name in ["ÄÖÜ.Txt", "Straße", "ΣΊΣΥΦΟΣ", "İstanbul", "e\u{301}", "ﬁn"] {
        plan::file(&dir.join(name), 10)?;
        plan::file(&dir.join("Inner").join(name), 10)?;
        plan::file(&root.join("exact").join(name), 10)?;
    }
    Ok(())
}

/// Sets the casefold flag on those directories; `e2fsck -D` then sorts them by folded names.
pub(super) const FOLD: &str = "sif /folded flags 0x40080000\nsif /folded/Inner flags 0x40080000\n";

/// Makes files to be marked as fs-verity's.
pub(super) fn sealed(root: &Path) -> io::Result<()> {
    plan::file(&root.join("sealed"), 100_000)?;
    plan::file(&root.join("open"), 100)
}

/// Sets the verity flag, and cuts the size. The bytes after the contents represent a Merkle tree,
/// and are not part of the file.
pub(super) const SEAL: &str = "sif /sealed flags 0x180000\nsif /sealed size 30000\n";

/// Makes a file whose space is counted in file system blocks, as it is for those beyond 2 TiB.
pub(super) fn huge_file(image: &Image) {
    let text = image.debugfs("stat /files/4096-bytes\n");
    assert!(
        text.contains("Blockcount: 8"),
        "a file of one block takes 8 sectors: {text}"
    );
    image.debugfs("sif /files/4096-bytes flags 0xc0000\nsif /files/4096-bytes blocks 1\n");
}

/// Makes a volume that was cut off while unlinked files were open and has no journal: an orphan
/// list of two.
pub(super) fn orphans(image: &Image) {
    let ino = |path: &str| -> u64 {
        let text = image.debugfs(&format!("stat {path}\n"));
        let number = text
            .split("Inode: ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .expect("debugfs tells the inode number")
    };
    let first = ino("/files/100-bytes");
    let second = ino("/files/200-bytes");
    // The list is linked through the deletion time of its inodes.
    image.debugfs(&format!(
        "sif <{first}> links_count 0\nsif <{first}> dtime {second}\nsif <{second}> links_count 0\n\
         unlink /files/100-bytes\nunlink /files/200-bytes\nssv last_orphan {first}\n"
    ));
}

/// Makes a journal on a separate device.
pub(super) fn external_journal(image: &Image) {
    let journal = image.scratch().join("journal.img");
    let file = std::fs::File::create_new(&journal).expect("a journal file");
    file.set_len(16 << 20).expect("a sparse journal file");
    let args = ["-q", "-F", "-b", "4096", "-O", "journal_dev"].map(OsStr::new);
    run("mke2fs", args.iter().copied().chain([journal.as_os_str()]));
    let device = LoopDevice::attach(&journal);
    let option = OsString::from(format!("device={}", device.path.display()));
    run(
        "tune2fs",
        [OsString::from("-J"), option, image.path.clone().into()],
    );
}
