//! Tests of manifests: both formats, amendments of entries, and the errors for wrong lines.
//!
//! A manifest that `bsdtar` writes must give a tree its metadata back.

use std::fs;

use extern4_testkit::tools::{Need, can_run};

use super::{AmendedKind, Manifest};
use crate::testing::{Collected, is_root, plain, read, run};
use crate::{Contents, Data, DirectorySource, Entry, Kind, Result, Source, Time};

fn parse(text: &str) -> Result<Manifest> {
    Manifest::read(text.as_bytes(), "list")
}

#[test]
fn a_list_of_the_kernels_program_is_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("init"), "#!/bin/sh\n").unwrap();
    let host = dir.path().display();
    let manifest = parse(&format!(
        "# comment\n\ndir /dev 755 0 0\nnod /dev/console 600 0 5 c 5 1\nnod /dev/sda 0660 0 6 b 8 0\n\
         slink /bin/sh busybox 777 0 0\npipe /p 0640 1 2\nsock /s 0600 3 4\n\
         file /init {host}/init 4755 7 4000000000 /sbin/init /linuxrc\nfile  /again\t{host}/${{EMPTY_OF_TREE}}init 644 0 0\n"
    ));
    assert!(
        manifest
            .unwrap_err()
            .to_string()
            .contains("line 10: the variable 'EMPTY_OF_TREE'")
    );
    let manifest = parse(&format!(
        "# comment\n\ndir /dev 755 0 0\nnod /dev/console 600 0 5 c 5 1\nnod /dev/sda 0660 0 6 b 8 0\n\
         slink /bin/sh busybox 777 0 0\npipe /p 0640 1 2\nsock /s 0600 3 4\n\
         file /init {host}/init 4755 7 4000000000 /sbin/init /linuxrc\n"
    ))
    .unwrap();
    let found = Collected::of(&manifest);
    assert_eq!(
        found.paths(),
        [
            "dev",
            "dev/console",
            "dev/sda",
            "bin/sh",
            "p",
            "s",
            "init",
            "sbin/init",
            "linuxrc"
        ]
    );
    assert_eq!(found.get("dev").kind, Kind::Directory);
    assert_eq!(
        found.get("dev/console").kind,
        Kind::CharDevice { major: 5, minor: 1 }
    );
    assert_eq!(
        found.get("dev/sda").kind,
        Kind::BlockDevice { major: 8, minor: 0 }
    );
    assert_eq!(
        (found.get("dev/sda").mode, found.get("dev/sda").gid),
        (0o660, 6)
    );
    assert_eq!(found.get("bin/sh").kind, Kind::Symlink(b"busybox".to_vec()));
    assert_eq!(
        (&found.get("p").kind, &found.get("s").kind),
        (&Kind::Fifo, &Kind::Socket)
    );
    let init = found.get("init");
    assert_eq!((init.mode, init.uid, init.gid), (0o4755, 7, 4_000_000_000));
    assert_eq!(read(&manifest, init), b"#!/bin/sh\n");
    assert_eq!(found.get("linuxrc").kind, Kind::HardLink(b"init".to_vec()));
    fs::write(dir.path().join("init"), "changed").unwrap();
    let Kind::File(contents) = &init.kind else {
        panic!("{init:?}")
    };
    let error = manifest.open(b"init", contents).unwrap_err().to_string();
    assert!(
        error.contains("init") && error.contains("changed"),
        "{error}"
    );
}

#[test]
fn mtree_in_both_forms_is_read() {
    let manifest = parse(
        "#mtree\n/set type=file uid=0 gid=0 mode=0644\n.  type=dir mode=0711\n  etc type=dir \\\n  mode=0755\n\
         passwd size=12 time=1234567890.5 uid=5\n sub type=dir\n  deep type=link link=a\\040b\n ..\n..\n\
         top optional\n/unset mode\n./dev/null type=char device=native,1,3 mode=666 # a comment\n\
         ./dev/sda type=block device=0x801\n./run/x type=fifo\n./run/y type=socket uname=www\n",
    )
    .unwrap();
    let at = |path: &str| {
        let found = manifest
            .amendments()
            .iter()
            .find(|amendment| amendment.path == path.as_bytes());
        found.unwrap_or_else(|| panic!("no '{path}' in {manifest:#?}"))
    };
    assert_eq!(
        (at("").mode, &at("").kind),
        (Some(0o711), &AmendedKind::Made(Kind::Directory))
    );
    assert_eq!((at("etc").mode, at("etc").line), (Some(0o755), 4));
    let passwd = at("etc/passwd");
    assert_eq!(
        (&passwd.kind, passwd.uid, passwd.gid),
        (&AmendedKind::File, Some(5), Some(0))
    );
    assert_eq!(
        passwd.mtime,
        Some(Time {
            secs: 1_234_567_890,
            nanos: 5
        })
    );
    assert_eq!(
        at("etc/sub/deep").kind,
        AmendedKind::Made(Kind::Symlink(b"a b".to_vec()))
    );
    assert!(at("top").optional && !passwd.optional);
    assert_eq!(
        at("dev/null").kind,
        AmendedKind::Made(Kind::CharDevice { major: 1, minor: 3 })
    );
    assert_eq!(at("dev/null").mode, Some(0o666));
    assert_eq!(
        at("dev/sda").kind,
        AmendedKind::Made(Kind::BlockDevice { major: 8, minor: 1 })
    );
    assert_eq!(
        (&at("run/x").kind, at("run/x").mode),
        (&AmendedKind::Made(Kind::Fifo), None)
    );
    assert_eq!(manifest.warnings(), [""; 0]);
    let manifest = parse("./run/y type=socket uname=www").unwrap();
    assert!(
        manifest.warnings()[0].contains("uname"),
        "{:?}",
        manifest.warnings()
    );
}

fn entry(kind: Kind) -> Entry {
    let mtime = Time { secs: 9, nanos: 9 };
    let xattrs = vec![(b"user.x".to_vec(), b"y".to_vec())];
    Entry {
        path: b"x".to_vec(),
        kind,
        mode: 0o600,
        uid: 1,
        gid: 2,
        mtime,
        xattrs,
        flags: None,
        project: None,
    }
}

#[test]
fn amendments_change_or_make_entries() {
    let apply = |text: &str, given: Option<Entry>| {
        let manifest = parse(text).unwrap();
        manifest.apply(&manifest.amendments()[0], given)
    };
    let file = entry(Kind::File(Contents {
        size: 0,
        data: Data::Stored { position: 0 },
    }));
    // Metadata that are not given stay.
    let expected = Entry {
        uid: 7,
        mode: 0o4711,
        ..file.clone()
    };
    assert_eq!(
        apply("x uid=7 mode=4711", Some(file.clone())).unwrap(),
        Some(expected.clone())
    );
    assert_eq!(
        apply("x type=file uid=7 mode=4711", Some(file.clone())).unwrap(),
        Some(expected)
    );
    let directory = entry(Kind::Directory);
    let expected = Entry {
        gid: 8,
        ..directory.clone()
    };
    assert_eq!(
        apply("x type=dir gid=8", Some(directory)).unwrap(),
        Some(expected)
    );
    // An entry of another kind is replaced.
    let made = apply("x type=fifo uid=3", Some(file)).unwrap().unwrap();
    assert_eq!(
        (made.kind, made.uid, made.gid, made.xattrs),
        (Kind::Fifo, 3, 0, Vec::new())
    );
    assert_eq!(apply("x type=dir", None).unwrap().unwrap().mode, 0o755);
    assert_eq!(
        apply("x type=link link=y mode=644", None)
            .unwrap()
            .unwrap()
            .mode,
        0o777
    );
    // An entry that the tree lacks is an error, unless it is optional.
    for text in ["x uid=7", "x type=file"] {
        let error = apply(text, None).unwrap_err().to_string();
        assert!(
            error.starts_with("list, line 1: the tree has no"),
            "{error}"
        );
        assert_eq!(apply(&format!("{text} optional"), None).unwrap(), None);
    }
}

#[test]
fn wrong_lines_are_named() {
    for (text, line, reason) in [
        ("dir /a 755 0 0\ndir /b 755 0\n", 2, "group is missing"),
        ("dir /a 7z5 0 0", 1, "mode"),
        ("dir /a 755 -1 0", 1, "owner"),
        ("dir /../a 755 0 0", 1, "'..'"),
        ("nod /a 755 0 0 x 1 2", 1, "'b' nor 'c'"),
        ("nod /a 755 0 0 c 1", 1, "not understood"),
        ("dir /a 755 0 0 more", 1, "not understood"),
        ("dir /a 755 0 0\nnonsense /b 1 2 3", 2, "not understood"),
        ("file /a /nonexistent/file 644 0 0", 1, "/nonexistent/file"),
        ("file /a /dev 644 0 0", 1, "no regular file"),
        ("#mtree\na type=widget", 2, "widget"),
        ("#mtree\na type=link", 2, "'link'"),
        ("#mtree\na type=char", 2, "'device'"),
        ("#mtree\na type=char device=x", 2, "'device'"),
        ("#mtree\na mode=9", 2, "'mode'"),
        ("#mtree\na time=1.9999999999", 2, "'time'"),
        ("#mtree\n. type=fifo", 2, "root"),
        ("#mtree\n./a/../b type=dir", 2, "'..'"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("list, line {line}: ")),
            "{text}: {error}"
        );
        assert!(error.contains(reason), "{text}: {error}");
    }
    let error = parse(&"x".repeat(100_000)).unwrap_err().to_string();
    assert!(error.contains("too long"), "{error}");
    assert_eq!(parse("").unwrap().amendments(), []);
}

#[test]
fn a_manifest_of_bsdtar_gives_a_tree_back() {
    if !is_root() || !can_run(&[Need::Tool("bsdtar")]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("tree");
    fs::create_dir(&dir).unwrap();
    run(
        &dir,
        "sh",
        &[
            "-ec",
            "mkdir 'a b'; mkfifo 'a b/p'; mknod c c 1 3; ln -s 'to x' l; chown -h 5:6 l c; chmod 700 'a b'",
        ],
    );
    run(
        scratch.path(),
        "bsdtar",
        &["--format=mtree", "-C", "tree", "-cf", "list", "."],
    );
    let manifest = Manifest::open(scratch.path().join("list")).unwrap();
    assert_eq!(
        plain(&manifest),
        plain(&DirectorySource::new(&dir).unwrap())
    );
}
