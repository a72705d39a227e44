//! Trees of all kinds that are compared, by their attributes and by their names.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use extern4::build::TarSource;
use extern4::diff::{
    Both, Change, Comparison, Error, FileDifference, FileError, FileOptions, Finding, NameFinding,
    NameOptions, OpenFile, Options, TextOptions, Tree, compare, compare_files, compare_names,
    same_contents,
};
use extern4::{Cred, FileType, Glob, Session, Volume};
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

/// Compares two trees by their names. Returns a line about each finding.
fn by_names(old: &Tree, new: &Tree, options: &NameOptions) -> Vec<String> {
    let old = old.view().expect("a view");
    let new = new.view().expect("a view");
    let views = Both {
        old: &old,
        new: &new,
    };
    let mut lines = Vec::new();
    let done: Result<(), &str> = compare_names(views, options, |path, finding| {
        let what = match finding {
            NameFinding::OnlyInOld => "only in old".to_owned(),
            NameFinding::OnlyInNew => "only in new".to_owned(),
            NameFinding::Types(nodes) => format!("{:?}", nodes.map(|node| node.file_type)),
            NameFinding::Same => "same".to_owned(),
            NameFinding::Links => "links".to_owned(),
            NameFinding::Directories => "directories".to_owned(),
            NameFinding::Files { nodes, files } => {
                let is_same = same_contents(files).expect("a result");
                let is_there = nodes.map(|node| node.is_some());
                format!("files {} {} {is_same}", is_there.old, is_there.new)
            }
            NameFinding::Unreadable(error) => format!("unreadable {}", error.is_new),
            NameFinding::Dangling { is_new } => format!("dangling {is_new}"),
            NameFinding::Loop { is_new } => format!("loop {is_new}"),
        };
        lines.push(format!("{}: {what}", String::from_utf8_lossy(path)));
        Ok(())
    });
    assert_eq!(done, Ok(()));
    lines
}

#[test]
fn trees_are_compared_by_their_names() {
    let dir = temporary("extern4-diff-");
    let top = |name: &str| dir.path().join(name);
    for path in ["old/both/below", "new/both/below", "new/more"] {
        fs::create_dir_all(top(path)).expect("directories");
    }
    fs::write(top("old/both/a"), "a").expect("a file");
    fs::write(top("new/both/a"), "b").expect("a file");
    fs::write(top("old/gone"), "").expect("a file");
    fs::write(top("new/more/new"), "").expect("a file");
    symlink("nowhere", top("old/link")).expect("a link");
    symlink("somewhere", top("new/link")).expect("a link");
    symlink("..", top("new/both/below/up")).expect("a link");
    symlink("..", top("old/both/below/up")).expect("a link");
    fs::write(top("old/type"), "").expect("a file");
    fs::create_dir(top("new/type")).expect("a directory");
    let old = Tree::directory(top("old")).expect("a tree");
    let new = Tree::directory(top("new")).expect("a tree");
    let types = "type: Both { old: Regular, new: Directory }";
    let check = |options: NameOptions, expected: &[&str]| {
        assert_eq!(by_names(&old, &new, &options), expected, "{options:?}");
    };
    check(
        NameOptions::default(),
        &[
            "both: directories",
            "gone: only in old",
            "link: dangling false",
            "link: dangling true",
            "more: only in new",
            types,
        ],
    );
    let recursive = NameOptions {
        recursive: true,
        ..NameOptions::default()
    };
    let links = NameOptions {
        no_dereference: true,
        unidirectional_new_file: true,
        ..recursive.clone()
    };
    check(
        links,
        &[
            "both/a: files true true false",
            "both/below/up: same",
            "gone: only in old",
            "link: links",
            "more/new: files false true true",
            types,
        ],
    );
    let all = NameOptions {
        new_file: true,
        exclude: vec![Glob::new(b"typ?", false)],
        starting_file: Some(b"both".to_vec()),
        ..recursive.clone()
    };
    check(
        all,
        &[
            "both/a: files true true false",
            "both/below/up: loop false",
            "gone: files true false true",
            "link: dangling false",
            "link: dangling true",
            "more/new: files false true true",
        ],
    );
    let late = NameOptions {
        starting_file: Some(b"more".to_vec()),
        ..recursive
    };
    check(late, &["more: only in new", types]);
    let mut findings = 0;
    let views = old.view().expect("a view");
    let views = Both {
        old: &views,
        new: &views,
    };
    let ended = compare_names(views, &NameOptions::default(), |_, _| {
        findings += 1;
        Err(findings)
    });
    assert_eq!(ended, Err(1));
}

#[test]
fn deep_trees_take_no_stack() {
    let dir = temporary("extern4-diff-");
    let volume = Volume::create_new(dir.path().join("disk.img"), 64 << 20).expect("a volume");
    let top = volume.superuser();
    let mut session = top.clone();
    for _ in 0..1500 {
        session.create_dir("d").expect("a directory");
        session = session.at("d").expect("a directory");
    }
    session.write("file", "text").expect("a file");
    let options = NameOptions {
        recursive: true,
        ..NameOptions::default()
    };
    let compare = move || {
        let tree = Tree::volume(&volume, top);
        by_names(&tree, &tree, &options)
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    let lines = thread.spawn(compare).expect("a thread").join();
    let lines = lines.expect("lines");
    assert_eq!(lines.len(), 1);
    assert!(lines[0].ends_with("d/file: files true true true"));
}

#[test]
fn files_are_compared_as_the_options_say() {
    let check = |old: &str, new: &str, options: &FileOptions<'_>, expected: &str| {
        let old = OpenFile::of_bytes(old.into());
        let new = OpenFile::of_bytes(new.into());
        let files = Both {
            old: &old,
            new: &new,
        };
        let found = match compare_files(files, options) {
            Ok(FileDifference::None) => "none".to_owned(),
            Ok(FileDifference::Some) => "some".to_owned(),
            Ok(FileDifference::Binary) => "binary".to_owned(),
            Ok(FileDifference::Lines(diff)) => diff.hunks(0).map(|hunk| hunk.header()).collect(),
            Err(FileError::TooLarge { is_new }) => format!("too large {is_new}"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(found, expected);
    };
    let all = FileOptions::default();
    let brief = FileOptions { brief: true, ..all };
    check("a\nb\n", "a\nc\n", &all, "@@ -2 +2 @@");
    check("a\nb\n", "a\nc\n", &brief, "some");
    check("a\0", "b\0", &all, "binary");
    check("a\0", "b\0", &brief, "some");
    check("a\0", "a\0", &all, "none");
    check(
        "a\0",
        "b\0",
        &FileOptions { text: true, ..all },
        "@@ -1 +1 @@",
    );
    let carriage = FileOptions {
        strip_trailing_cr: true,
        ..all
    };
    check("a\r\nb\n", "a\nb\n", &carriage, "none");
    check("a\rb\n", "ab\n", &carriage, "@@ -1 +1 @@");
    let blank = FileOptions {
        ignore_blank_lines: true,
        brief: true,
        ..all
    };
    check("a\n\nb\n", "a\nb\n", &blank, "none");
    check("a\n \nb\n", "a\nb\n", &blank, "some");
    let space = FileOptions {
        lines: TextOptions {
            ignore_space_change: true,
            ..TextOptions::default()
        },
        ..blank
    };
    check("a\n \nb\n", "a\nb\n", &space, "none");
    let comments = |line: &[u8]| line.starts_with(b"#");
    let comments = FileOptions {
        ignore_lines: Some(&comments),
        ..all
    };
    check("#a\nb", "#c\nb", &comments, "none");
    check("#a\nb", "c\nb", &comments, "@@ -1 +1 @@");
    let small = FileOptions {
        max_text_bytes: 3,
        ..all
    };
    check("abcd", "abce", &small, "too large false");
    check("abc", "abcd", &small, "too large true");
    check("abcd", "abcd", &small, "none");
    check("abc", "abd", &small, "@@ -1 +1 @@");
}
