//! Workloads that run before the crash: each leaves one kind of content in the journal.
//!
//! [`SPECS`](super::SPECS) names them. A workload decides itself what is committed, by `fsync`, so
//! the journal has the same kinds of records in each run. Files that it returns stay open until
//! after the crash.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{FallocateFlags, XattrFlags, fallocate, lsetxattr};

use crate::acl::{Ace, encode};
use crate::plan::{self, pattern};

/// Commits the journal and leaves the blocks themselves where they are, in the log and in
/// memory.
fn commit(root: &Path) -> io::Result<()> {
    // syncfs(2) would also write every block to its place. An attribute is nothing a fast commit
    // could carry.
    let marker = root.join("marker");
    let file = OpenOptions::new().create(true).append(true).open(&marker)?;
    lsetxattr(&marker, "user.committed", b"", XattrFlags::empty())?;
    (&file).write_all(b"committed\n")?;
    file.sync_all()
}

fn write(path: &Path, len: usize) -> io::Result<()> {
    plan::file(path, len)
}

/// Makes every kind of change to names and inodes, in several transactions.
pub(super) fn churn(root: &Path) -> io::Result<Vec<File>> {
    let dir = root.join("churn");
    std::fs::create_dir(&dir)?;
    for at in 0..200 {
        write(&dir.join(format!("file-{at}")), at * 37)?;
    }
    commit(root)?;
    for at in 0..200 {
        let path = dir.join(format!("file-{at}"));
        match at % 5 {
            0 => std::fs::remove_file(&path)?,
            1 => std::fs::rename(&path, dir.join(format!("renamed-{at}")))?,
            2 => std::fs::hard_link(&path, dir.join(format!("linked-{at}")))?,
            3 => OpenOptions::new()
                .write(true)
                .open(&path)?
                .set_len(at * 11)?,
            _ => std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600 + at as u32 % 8))?,
        }
    }
    commit(root)?;
    for at in 0..30 {
        let inner = dir.join(format!("dir-{at}"));
        std::fs::create_dir(&inner)?;
        write(&inner.join("inside"), 5000 + at)?;
        symlink("x".repeat(at * 9 + 1), inner.join("link"))?;
        lsetxattr(
            &inner,
            "user.number",
            &pattern(at as u64, 0, 10 + at * 9),
            XattrFlags::empty(),
        )?;
    }
    let list = [
        Ace::Owner(7),
        Ace::User(1000, 5),
        Ace::OwningGroup(5),
        Ace::Mask(5),
        Ace::Other(0),
    ];
    lsetxattr(
        dir.join("dir-0"),
        "system.posix_acl_access",
        &encode(&list),
        XattrFlags::empty(),
    )?;
    commit(root)?;
    for at in (0..30).step_by(3) {
        std::fs::rename(
            dir.join(format!("dir-{at}")),
            root.join(format!("moved-{at}")),
        )?;
    }
    std::fs::remove_dir_all(dir.join("dir-1"))?;
    write(&root.join("last"), 300_000)?;
    File::open(root.join("last"))?.sync_all()?;
    write(&root.join("after-the-last-commit"), 100)?;
    Ok(Vec::new())
}

/// Makes file data in the journal that starts with the journal's own magic number, and must be
/// escaped there.
pub(super) fn escapes(root: &Path) -> io::Result<Vec<File>> {
    const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
    for at in 0..10_u64 {
        let file = File::create(root.join(format!("escaped-{at}")))?;
        for block in 0..20 {
            let offset = block * 1024;
            file.write_all_at(&pattern(at, offset, 1024), offset)?;
            if block % 3 == at % 3 {
                file.write_all_at(&MAGIC, offset)?;
            }
        }
        file.sync_all()?;
    }
    Ok(Vec::new())
}

/// Makes metadata blocks in the journal that were freed and hold file data when the crash comes.
pub(super) fn revokes(root: &Path) -> io::Result<Vec<File>> {
    for round in 0..4 {
        let dir = root.join(format!("round-{round}"));
        std::fs::create_dir(&dir)?;
        for at in 0..400 {
            File::create(dir.join(format!("a-rather-long-name-to-fill-blocks-{at}")))?;
        }
        symlink("s".repeat(900), dir.join("long-link"))?;
        commit(root)?;
        std::fs::remove_dir_all(&dir)?;
        commit(root)?;
        for at in 0..30 {
            write(&root.join(format!("data-{round}-{at}")), 4096 + at * 1000)?;
        }
        commit(root)?;
    }
    Ok(Vec::new())
}

/// Makes more transactions than the journal has room for.
pub(super) fn wrap(root: &Path) -> io::Result<Vec<File>> {
    for at in 0..400 {
        let path = root.join(format!("file-{at}"));
        write(&path, at * 5)?;
        File::open(&path)?.sync_all()?;
        if at % 3 == 0 {
            std::fs::remove_file(&path)?;
        }
    }
    commit(root)?;
    Ok(Vec::new())
}

/// Makes files that were unlinked or cut while open.
pub(super) fn orphans(root: &Path) -> io::Result<Vec<File>> {
    let dir = root.join("orphans");
    std::fs::create_dir(&dir)?;
    let mut open = Vec::new();
    for at in 0..60 {
        let path = dir.join(format!("{at}"));
        write(&path, 10_000 + at * 100)?;
        open.push(File::open(&path)?);
    }
    commit(root)?;
    for at in (0..60).step_by(2) {
        std::fs::remove_file(dir.join(format!("{at}")))?;
    }
    std::fs::create_dir(dir.join("gone"))?;
    open.push(File::open(dir.join("gone"))?);
    std::fs::remove_dir(dir.join("gone"))?;
    OpenOptions::new()
        .write(true)
        .open(dir.join("1"))?
        .set_len(77)?;
    commit(root)?;
    Ok(open)
}

/// Makes one small change an fsync, each of a kind that a fast commit can carry.
pub(super) fn fast_commits(root: &Path) -> io::Result<Vec<File>> {
    let dir = root.join("fast");
    std::fs::create_dir(&dir)?;
    for at in 0..22 {
        write(&dir.join(format!("old-{at}")), 9000)?;
    }
    write(&dir.join("anchor"), 10)?;
    symlink("anchor", dir.join("link"))?;
    rustix::fs::syncfs(File::open(root)?)?;
    let sync = |name: &str| File::open(dir.join(name))?.sync_all();
    let open = |name: &str| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(dir.join(name))
    };
    for at in 0..10 {
        write(&dir.join(format!("new-{at}")), at * 500)?;
        sync(&format!("new-{at}"))?;
    }
    std::fs::rename(dir.join("old-0"), dir.join("renamed"))?;
    sync("renamed")?;
    std::fs::rename(dir.join("old-1"), dir.join("old-2"))?;
    sync("old-2")?;
    std::fs::remove_file(dir.join("old-3"))?;
    open("anchor")?.write_all_at(b"once", 0)?;
    sync("anchor")?;
    std::fs::hard_link(dir.join("old-4"), dir.join("linked"))?;
    sync("linked")?;
    std::fs::remove_file(dir.join("old-4"))?;
    sync("linked")?;
    open("old-5")?.set_len(4097)?;
    sync("old-5")?;
    open("old-6")?.set_len(0)?;
    sync("old-6")?;
    open("old-7")?.set_len(50_000)?;
    sync("old-7")?;
    open("old-8")?.write_all_at(&pattern(8, 0, 20_000), 30_000)?;
    sync("old-8")?;
    allocate(&open("old-9")?, FallocateFlags::empty(), 10_000, 100_000)?;
    sync("old-9")?;
    allocate(
        &open("old-10")?,
        FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
        4096,
        4096,
    )?;
    sync("old-10")?;
    allocate(&open("old-11")?, FallocateFlags::KEEP_SIZE, 100_000, 65_536)?;
    open("old-11")?.write_all_at(b"in unwritten space", 120_000)?;
    sync("old-11")?;
    std::fs::set_permissions(dir.join("old-12"), PermissionsExt::from_mode(0o4711))?;
    sync("old-12")?;
    std::os::unix::fs::chown(dir.join("old-13"), Some(70_000), Some(80_000))?;
    sync("old-13")?;
    std::fs::create_dir(dir.join("inner"))?;
    write(&dir.join("inner/file"), 100)?;
    // Its inode may be that of a file deleted above. No block of that file may show up in this
    // hole.
    open("inner/file")?.set_len(9000)?;
    sync("inner/file")?;
    // The inodes of these files may also be inodes of deleted files, and no fast commit has their
    // holes.
    for at in 14..17 {
        std::fs::remove_file(dir.join(format!("old-{at}")))?;
    }
    for at in 0..4 {
        write(&dir.join(format!("reborn-{at}")), 0)?;
        open(&format!("reborn-{at}"))?.write_all_at(b"behind a hole", 9000)?;
        sync(&format!("reborn-{at}"))?;
    }
    // This is the same file, although its generation changes. Where inodes have checksums, chattr
    // cannot change it.
    let _ = crate::tools::try_run(
        "chattr",
        ["-v".as_ref(), "77".as_ref(), dir.join("old-17").as_os_str()],
    );
    open("old-17")?.write_all_at(&pattern(17, 0, 20_000), 30_000)?;
    std::fs::hard_link(dir.join("old-17"), dir.join("linked-17"))?;
    sync("old-17")?;
    let _ = crate::tools::try_run(
        "chattr",
        ["-v".as_ref(), "78".as_ref(), dir.join("old-17").as_os_str()],
    );
    std::fs::rename(dir.join("old-17"), dir.join("renamed-17"))?;
    sync("renamed-17")?;
    // This, too, is the same file: it loses a name and gets another, as a new file without a name
    // does.
    std::fs::remove_file(dir.join("linked-17"))?;
    sync("renamed-17")?;
    let _ = crate::tools::try_run(
        "chattr",
        [
            "-v".as_ref(),
            "79".as_ref(),
            dir.join("renamed-17").as_os_str(),
        ],
    );
    std::fs::hard_link(dir.join("renamed-17"), dir.join("linked-again-17"))?;
    sync("renamed-17")?;
    // A fast commit for a file is void when the next one puts another file in its place.
    for at in 18..22 {
        open(&format!("old-{at}"))?.write_all_at(&pattern(at, 0, 20_000), 30_000)?;
        sync(&format!("old-{at}"))?;
        std::fs::remove_file(dir.join(format!("old-{at}")))?;
        write(&dir.join(format!("after-{at}")), 0)?;
        open(&format!("after-{at}"))?.write_all_at(b"behind a hole", 60_000)?;
        sync(&format!("after-{at}"))?;
    }
    // A symbolic link, or syncing a directory, would make this a full commit, and leave no fast one
    // to replay.
    open("anchor")?.write_all_at(b"twice", 0)?;
    sync("anchor")?;
    write(&dir.join("not-synced"), 100)?;
    Ok(Vec::new())
}

/// Calls fallocate(2), where the format of the file can do it.
fn allocate(file: &File, how: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
    match fallocate(file, how, offset, len) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
