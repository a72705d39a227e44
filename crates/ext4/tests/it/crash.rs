//! Every crashed image, seen through its journal, compared with what the kernel's replay makes of it.

use extern4_testkit::crash::SPECS;
use extern4_testkit::tree::{Kind, Tree, assert_same};

use crate::walk;

#[test]
fn every_crashed_image_is_what_the_kernel_recovers() {
    for spec in SPECS.iter().filter(|spec| spec.can_run()) {
        let image = spec.build();
        let before = std::fs::read(&image.path).expect("the image is read");
        let theirs = spec.oracle_tree(&image);
        let fs = walk::open(&image.path);
        let replayed = fs.replayed().unwrap_or_else(|| panic!("{}: nothing was replayed", spec.name));
        let mut ours = walk::tree(&fs);
        if replayed.fast_commits > 0 {
            forget_what_replay_changes(&mut ours, &theirs);
        }
        assert_same(spec.name, &ours, &theirs);
        assert!(
            before == std::fs::read(&image.path).expect("the image is read"),
            "{} was written",
            spec.name
        );
    }
}

/// When the kernel replays a fast commit it enters names anew, which sets the times of their directories to those of
/// the replay; and a directory that it makes anew is left with a link count of 1 and no count of blocks.
fn forget_what_replay_changes(ours: &mut Tree, theirs: &Tree) {
    for (path, entry) in ours.entries.iter_mut().filter(|(_, entry)| entry.kind == Kind::Directory) {
        (entry.mtime, entry.ctime, entry.blocks) = (None, None, None);
        entry.nlink = theirs.entries.get(path).map_or(entry.nlink, |their| their.nlink);
    }
}

#[test]
fn fast_commits_are_replayed() {
    let spec = extern4_testkit::crash::spec("fast_commit");
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let replayed = walk::open(&image.path).replayed().expect("a journal to replay");
    assert!(replayed.fast_commits > 0, "{replayed:?}");
}
