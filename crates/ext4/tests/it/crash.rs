//! Crashed images, read through their journal, compared with the kernel's replay of them.

use extern4_testkit::crash::spec;
use extern4_testkit::tree::{Kind, Tree, assert_same};

use extern4_ext4::OpenOptions;
use extern4_vfs::Errno;

use crate::walk;

/// Plain replay, revoked blocks, contents of files, escaped ones among them, fast commits of every
/// kind of map.
const NAMES: [&str; 7] = [
    "ordered",
    "revokes",
    "data_journal",
    "data_journal_escapes_1k",
    "fast_commit",
    "fast_commit_1k",
    "fast_commit_inline",
];

#[test]
fn crashed_images_agree_with_the_kernels_recovery() {
    for spec in NAMES.map(spec).into_iter().filter(|spec| spec.can_run()) {
        let image = spec.build();
        let before = std::fs::read(&image.path).expect("the image is read");
        let theirs = spec.oracle_tree(&image);
        let fs = walk::open(&image.path);
        let replayed = fs
            .replayed()
            .unwrap_or_else(|| panic!("{}: nothing was replayed", spec.name));
        let mut ours = walk::tree(&fs);
        if replayed.fast_commits > 0 {
            forget_changes_of_replay(&mut ours, &theirs);
        }
        assert_same(spec.name, &ours, &theirs);
        assert!(
            before == std::fs::read(&image.path).expect("the image is read"),
            "{} was written",
            spec.name
        );
    }
}

/// When the kernel replays a fast commit it enters names again, which sets the times of their
/// directories to the link counts of the replay. It leaves a directory that it makes again with a
/// link count of 1 and no count of blocks.
fn forget_changes_of_replay(ours: &mut Tree, theirs: &Tree) {
    for (path, entry) in ours
        .entries
        .iter_mut()
        .filter(|(_, entry)| entry.kind == Kind::Directory)
    {
        (entry.mtime, entry.ctime, entry.blocks) = (None, None, None);
        entry.nlink = theirs
            .entries
            .get(path)
            .map_or(entry.nlink, |their| their.nlink);
    }
}

#[test]
fn fast_commits_are_replayed_unless_the_journal_is_ignored() {
    let spec = spec("fast_commit");
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = walk::open(&image.path);
    let replayed = fs.replayed().expect("a journal to replay");
    assert!(replayed.fast_commits > 0, "{replayed:?}");
    assert!(walk::resolve(&fs, "/fast/renamed").is_ok());

    let options = OpenOptions {
        ignore_journal: true,
        ..OpenOptions::default()
    };
    let stale = walk::open_with(&image.path, &options).expect("the volume opens");
    assert!(stale.replayed().is_none());
    assert_eq!(
        walk::resolve(&stale, "/fast/renamed")
            .map(|inode| inode.ino())
            .unwrap_err()
            .errno(),
        Errno::ENOENT
    );
}
