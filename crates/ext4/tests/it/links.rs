//! The largest number of links: a directory full of them, and the names of a moved directory.

use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools;
use extern4_vfs::{DirBatch, Errno, LookupFlags, OpenFlags, RenameFlags, Session};

use crate::model::{open, open_for_writing, session};

fn put(session: &Session, path: &str) {
    drop(open(session, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644).expect("a file"));
}

/// A directory with 65,000 links gains no subdirectory, whichever way one would come to it.
#[test]
fn a_directory_full_of_links_gains_no_subdirectory() {
    let spec = ImageSpec::new(
        "ext4-links",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^dir_nlink"],
    );
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let root = session(fs.clone());
    for dir in ["/full", "/full/dir", "/other", "/other/dir"] {
        root.mkdir(dir, 0o755).expect("a directory");
    }
    put(&root, "/full/file");
    put(&root, "/other/file");
    drop(root);
    fs.close().expect("close");
    drop(fs);
    tools::debugfs(&image.path, true, "sif /full links_count 65000\n");

    let fs = open_for_writing(&image.path);
    let root = session(fs.clone());
    let rename = |from, to, flags| {
        root.rename(from, to, flags)
            .map_err(|e| e.errno())
            .map(|()| links(&root, "/full"))
    };
    assert_eq!(
        root.mkdir("/full/new", 0o755)
            .map(drop)
            .map_err(|e| e.errno()),
        Err(Errno::EMLINK)
    );
    assert_eq!(
        rename("/other/dir", "/full/new", RenameFlags::empty()),
        Err(Errno::EMLINK)
    );
    assert_eq!(
        rename("/other/dir", "/full/file", RenameFlags::EXCHANGE),
        Err(Errno::EMLINK)
    );
    assert_eq!(
        rename("/full/file", "/other/dir", RenameFlags::EXCHANGE),
        Err(Errno::EMLINK)
    );
    // Operations that do not add links can be done, and operations that remove links give room.
    assert_eq!(
        rename("/full/dir", "/other/dir", RenameFlags::EXCHANGE),
        Ok(65_000)
    );
    assert_eq!(
        rename("/full/dir", "/full/file", RenameFlags::EXCHANGE),
        Ok(65_000)
    );
    assert_eq!(
        rename("/full/file", "/other/file", RenameFlags::EXCHANGE),
        Ok(64_999)
    );
    assert_eq!(
        rename("/full/file", "/other/file", RenameFlags::EXCHANGE),
        Ok(65_000)
    );
    drop(root);
    fs.close().expect("close");
    drop(fs);
    tools::debugfs(&image.path, true, "sif /full links_count 3\n");
    tools::e2fsck(&image.path).expect("no fault");
}

fn links(session: &Session, path: &str) -> u32 {
    session
        .stat(path, LookupFlags::NOFOLLOW)
        .expect("a directory")
        .nlink
}

/// The inode of a directory with inline names also holds its parent. After many reads, the inode is
/// read on the path for inodes that no thread changes.
#[test]
fn a_directory_that_has_moved_is_listed_with_its_new_parent() {
    let spec = ImageSpec::new(
        "ext4-dotdot",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "inline_data"],
    );
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let root = session(fs.clone());
    for dir in ["/from", "/to", "/from/dir", "/to/other"] {
        root.mkdir(dir, 0o755).expect("a directory");
    }
    let ino = |path: &str| {
        root.stat(path, LookupFlags::NOFOLLOW)
            .expect("it is there")
            .ino
    };
    let parent = |path: &str| {
        let dir = root
            .open(path, OpenFlags::READ | OpenFlags::DIRECTORY)
            .expect("a directory");
        let mut batch = DirBatch::new();
        (0..40).for_each(|_| dir.read_dir(0, 10, &mut batch).expect("a listing"));
        batch
            .iter()
            .find(|entry| entry.name == b"..")
            .expect("it has one")
            .ino
    };
    assert_eq!(
        (parent("/from/dir"), parent("/to/other")),
        (ino("/from"), ino("/to"))
    );
    root.rename("/from/dir", "/to/dir", RenameFlags::empty())
        .expect("a rename");
    assert_eq!(parent("/to/dir"), ino("/to"));
    root.rename("/to/dir", "/from/dir", RenameFlags::empty())
        .expect("a rename");
    assert_eq!(parent("/from/dir"), ino("/from"));
    root.rename("/from/dir", "/to/other", RenameFlags::EXCHANGE)
        .expect("a rename");
    assert_eq!(
        (parent("/from/dir"), parent("/to/other")),
        (ino("/from"), ino("/to"))
    );
    drop(root);
    fs.close().expect("close");
    drop(fs);
    tools::e2fsck(&image.path).expect("no fault");
}
