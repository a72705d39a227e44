//! Trees of all kinds that are compared, by their attributes and by their names.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use extern4::build::TarSource;
use extern4::diff::{
    Both, Change, Comparison, Error, Finding, OpenFile, Options, Tree, compare, same_contents,
};
use extern4::{Cred, FileType, Session, Volume};
use extern4_testkit::tools::{Need, can_run, run, temporary};

/// Makes one tree in a directory of the host, a volume and an archive.
fn trees(at: &Path) -> (Session, [Tree; 3]) {
    let top = at.join("top");
    fs::create_dir_all(top.join("dir")).expect("directories");
    fs::write(top.join("dir/file"), "text\n").expect("a file");
    symlink("dir/../dir/file", top.join("link")).expect("a link");
    symlink("/dir", top.join("absolute")).expect("a link");
    symlink("loop", top.join("loop")).expect("a link");
    let volume = Volume::create_new(at.join("disk.img"), 16 << 20).expect("a volume");
    let session = volume.superuser();
    session.remove_dir("/lost+found").expect("a directory less");
    session.create_dir("/dir").expect("a directory");
    session.write("/dir/file", "text\n").expect("a file");
    session.symlink("dir/../dir/file", "/link").expect("a link");
    session.symlink("/dir", "/absolute").expect("a link");
    session.symlink("loop", "/loop").expect("a link");
    run(
        "tar",
        [
            "-cf",
            at.join("top.tar").to_str().expect("UTF-8"),
            "-C",
            top.to_str().expect("UTF-8"),
            ".",
        ],
    );
    let archive = TarSource::open(at.join("top.tar"), at).expect("an archive");
    let trees = [
        Tree::directory(top).expect("a directory"),
        Tree::volume(&volume, session.clone()),
        Tree::source(archive).whole_seconds(true),
    ];
    (session, trees)
}

fn contents_only(old: &Tree, new: &Tree) -> Comparison {
    let options = Options {
        owners: false,
        times: false,
        xattrs: false,
        ..Options::default()
    };
    let found = compare(Both { old, new }, &options);
    assert!(
        found.faults.old.is_empty() && found.faults.new.is_empty(),
        "{:?}",
        found.faults
    );
    found
}

#[test]
fn differences_have_their_paths_and_values() {
    if !can_run(&[Need::Tool("tar")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let (session, [directory, volume, archive]) = trees(dir.path());
    for (old, new) in [
        (&directory, &volume),
        (&archive, &volume),
        (&directory, &archive),
    ] {
        let found = contents_only(old, new);
        let modes = |change: &Change| matches!(change, Change::Mode(_));
        let is_mode =
            |finding: &Finding| matches!(finding, Finding::Changed(all) if all.iter().all(modes));
        // The umask of the host is any.
        assert!(
            found
                .differences
                .iter()
                .all(|difference| is_mode(&difference.finding)),
            "{found:?}"
        );
    }
    session.write("/dir/file", "TEXT\n").expect("a file");
    session.write("/new", "").expect("a file");
    let found = contents_only(&archive, &volume);
    let at = |path: &[u8]| {
        found
            .differences
            .iter()
            .find(|difference| difference.path == path)
    };
    let finding = |path| at(path).map(|difference| &difference.finding);
    assert!(
        matches!(finding(b"new"), Some(Finding::OnlyInNew(entry)) if entry.path == b"new"),
        "{found:?}"
    );
    let changed = matches!(finding(b"dir/file"), Some(Finding::Changed(all)) if all.contains(&Change::Contents));
    assert!(changed, "{found:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_fault() {
    let dir = temporary("extern4-diff-");
    let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20).expect("a volume");
    volume.superuser().write("/secret", "text").expect("a file");
    volume
        .superuser()
        .set_permissions("/secret", 0o600)
        .expect("a mode");
    let mine = Tree::volume(&volume, volume.session(Cred::new(1000, 1000, &[])));
    let found = compare(
        Both {
            old: &mine,
            new: &mine,
        },
        &Options::default(),
    );
    assert!(found.differences.is_empty());
    let is_fault = |path: &[u8]| found.faults.old.iter().any(|fault| fault.path == path);
    assert!(is_fault(b"secret"), "{found:?}");
    assert!(
        found
            .faults
            .old
            .iter()
            .all(|fault| matches!(fault.error, Error::Volume(_)))
    );
}

#[test]
fn links_lead_on_in_the_tree() {
    if !can_run(&[Need::Tool("tar")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let (_, trees) = trees(dir.path());
    for (tree, is_host) in trees.iter().zip([true, false, false]) {
        let view = tree.view().expect("a view");
        let names: Vec<_> = view.names(b"").expect("names").into_iter().collect();
        assert_eq!(names, [&b"absolute"[..], b"dir", b"link", b"loop"]);
        assert_eq!(view.names(b"dir").expect("names").len(), 1);
        let node = |path: &[u8], follow| {
            view.node(path, follow)
                .expect("a node")
                .map(|node| node.file_type)
        };
        assert_eq!(node(b"link", true), Some(FileType::Regular));
        assert_eq!(node(b"link", false), Some(FileType::Symlink));
        assert_eq!(node(b"dir/gone", true), None);
        assert_eq!(
            view.link_target(b"link").expect("a target"),
            b"dir/../dir/file"
        );
        let file = view.open(b"link").expect("a file");
        assert_eq!(
            (file.size(), file.read(100).expect("contents")),
            (5, b"text\n".to_vec())
        );
        assert!(
            same_contents(Both {
                old: &file,
                new: &OpenFile::of_bytes(b"text\n".to_vec())
            })
            .expect("a result")
        );
        assert!(
            !same_contents(Both {
                old: &file,
                new: &OpenFile::of_bytes(b"Text\n".to_vec())
            })
            .expect("a result")
        );
        assert!(view.node(b"loop", true).is_err());
        assert!(view.open(b"dir").is_err());
        if !is_host {
            assert_eq!(node(b"absolute", true), Some(FileType::Directory));
            assert_eq!(node(b"absolute/file", true), Some(FileType::Regular));
        }
    }
}
