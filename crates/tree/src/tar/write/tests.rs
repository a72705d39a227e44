//! Tests of writing tar archives, which this crate's reader, GNU tar and `bsdtar` read back.
//!
//! Each must read the tree that was written. The helpers that make trees are in `tar/tests.rs`.

use std::fs::{self, File};
use std::path::Path;

use extern4_testkit::tools::{Need, can_run};

use super::{TarWriter, time};
use crate::tar::TarSource;
use crate::tar::tests::{make_sparse, make_tree, make_xattrs};
use crate::testing::{Collected, Raw, archive, is_root, plain, run};
use crate::{Contents, Data, DirectorySource, Entry, Kind, Piece, Source, Time};

/// Writes all of a source.
fn write(source: &dyn Source, mut writer: TarWriter<Vec<u8>>) -> Vec<u8> {
    for entry in Collected::of(source).entries {
        let mut opened = None;
        let mut read = |offset: u64, buf: &mut [u8]| {
            let Kind::File(contents) = &entry.kind else {
                panic!("{entry:?} is no file")
            };
            let opened = opened.get_or_insert_with(|| source.open(&entry.path, contents).unwrap());
            let position = match &contents.data {
                Data::HostFile { .. } => offset,
                Data::Stored { position } => position + offset,
                Data::Pieces(pieces) => {
                    let inside =
                        |piece: &&Piece| (piece.offset..piece.offset + piece.len).contains(&offset);
                    let piece = pieces.iter().find(inside).unwrap();
                    piece.position + (offset - piece.offset)
                }
            };
            opened.read_exact_at(buf, position)
        };
        let written = writer.append(&entry, &mut read).unwrap();
        assert_eq!(written, entry.kind != Kind::Socket);
    }
    writer.finish().unwrap()
}

fn reopen(dir: &Path, bytes: &[u8]) -> TarSource {
    fs::write(dir.join("ours.tar"), bytes).unwrap();
    TarSource::open(dir.join("ours.tar"), dir).unwrap()
}

/// A tree with all that an archive can hold.
fn tree(dir: &Path) {
    make_tree(dir, true);
    make_sparse(dir);
    make_xattrs(dir);
    for name in ["user.a=b%3D%", "user.nul"] {
        rustix::fs::setxattr(
            dir.join("dir"),
            name,
            b"v\0\n=",
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
    }
    if is_root() {
        std::os::unix::fs::lchown(dir.join("dir/size0"), Some(4_000_000_000), Some(3_000_000))
            .unwrap();
    }
}

#[test]
fn a_tree_survives_writing_and_reading() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("tree");
    fs::create_dir(&dir).unwrap();
    tree(&dir);
    let source = DirectorySource::new(&dir).unwrap();
    let bytes = write(&source, TarWriter::new(Vec::new()));
    let ours = reopen(scratch.path(), &bytes);
    assert_eq!(plain(&ours), plain(&source));
    // An archive of ours is written again as the same bytes.
    assert_eq!(write(&ours, TarWriter::new(Vec::new())), bytes);
    // Compressed, it is smaller and has the same contents.
    let packed = write(&source, TarWriter::zstd(Vec::new(), 0).unwrap());
    assert!(packed.len() < bytes.len() / 2);
    assert_eq!(plain(&reopen(scratch.path(), &packed)), plain(&source));
    assert_eq!(
        write(&source, TarWriter::zstd(Vec::new(), 0).unwrap()),
        packed
    );
}

#[test]
fn holes_are_written_as_gnu_tar_does() {
    if !can_run(&[Need::Tool("tar")]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("tree");
    fs::create_dir(&dir).unwrap();
    make_sparse(&dir);
    run(
        scratch.path(),
        "tar",
        &[
            "--format=pax",
            "--sparse",
            "-C",
            "tree",
            "-cf",
            "theirs.tar",
            ".",
        ],
    );
    let theirs = TarSource::open(scratch.path().join("theirs.tar"), scratch.path()).unwrap();
    let bytes = write(&theirs, TarWriter::new(Vec::new()));
    assert!(bytes.len() < 1_000_000, "{} bytes", bytes.len());
    assert_eq!(plain(&reopen(scratch.path(), &bytes)), plain(&theirs));
    fs::create_dir(scratch.path().join("out")).unwrap();
    run(scratch.path(), "tar", &["-C", "out", "-xf", "ours.tar"]);
    for name in ["sparse", "hole"] {
        let same = fs::read(dir.join(name)).unwrap()
            == fs::read(scratch.path().join("out").join(name)).unwrap();
        assert!(same, "{name}");
    }
}

#[test]
fn other_programs_unpack_what_was_written() {
    if !is_root()
        || !can_run(&[
            Need::Tool("tar"),
            Need::Tool("bsdtar"),
            Need::Tool("setfacl"),
        ])
    {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("tree");
    fs::create_dir(&dir).unwrap();
    tree(&dir);
    let source = DirectorySource::new(&dir).unwrap();
    let bytes = write(&source, TarWriter::new(Vec::new()));
    fs::write(scratch.path().join("ours.tar"), bytes).unwrap();
    let gnu = [
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "-p",
        "--numeric-owner",
    ];
    let libarchive = ["--xattrs", "--acls", "-p", "--numeric-owner"];
    for (program, options) in [("tar", &gnu[..]), ("bsdtar", &libarchive)] {
        let out = scratch.path().join(program);
        fs::create_dir(&out).unwrap();
        let mut arguments = options.to_vec();
        arguments.extend(["-C", program, "-xf", "ours.tar"]);
        run(scratch.path(), program, &arguments);
        let mut theirs = plain(&DirectorySource::new(&out).unwrap());
        let mut expected = plain(&source);
        if program == "bsdtar" {
            // It does not read a name with `=`, reads times before 1970 otherwise, and leaves that
            // of the directory that it unpacks into.
            for tree in [&mut theirs, &mut expected] {
                tree.get_mut("dir")
                    .unwrap()
                    .xattrs
                    .retain(|(name, _)| !name.starts_with(b"user.a"));
                for path in [".", "dir/size1"] {
                    tree.get_mut(path).unwrap().mtime = Time::default();
                }
            }
        }
        for (path, expected) in &expected {
            assert_eq!(theirs.get(path), Some(expected), "{program}: {path}");
        }
        assert_eq!(theirs.len(), expected.len());
    }
}

#[test]
fn large_numbers_become_records() {
    let entry = Entry {
        path: b"big".to_vec(),
        kind: Kind::File(Contents {
            size: 1 << 40,
            data: Data::Pieces(Box::new([])),
        }),
        mode: 0o600,
        uid: u32::MAX - 1,
        gid: 1 << 21,
        mtime: Time {
            secs: 1 << 34,
            nanos: 0,
        },
        xattrs: Vec::new(),
        flags: None,
        project: None,
    };
    let mut writer = TarWriter::new(Vec::new());
    writer
        .append(&entry, &mut |_, _| panic!("holes are not read"))
        .unwrap();
    let bytes = writer.finish().unwrap();
    assert!(bytes.len() < 5000);
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Collected::of(&reopen(dir.path(), &bytes)).entries, [entry]);
}

#[test]
fn sockets_are_left_out() {
    let socket = Entry {
        path: b"s".to_vec(),
        kind: Kind::Socket,
        mode: 0,
        uid: 0,
        gid: 0,
        mtime: Time::default(),
        xattrs: Vec::new(),
        flags: None,
        project: None,
    };
    let mut writer = TarWriter::new(Vec::new());
    assert!(!writer.append(&socket, &mut |_, _| Ok(())).unwrap());
    assert_eq!(writer.finish().unwrap(), [0; 1024]);
}

#[test]
fn errors_of_reading_and_writing_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let source = reopen(dir.path(), &archive(&[Raw::new(b'0', "file", b"contents")]));
    let entry = &Collected::of(&source).entries[0];
    let error = TarWriter::new(Vec::new())
        .append(entry, &mut |_, _| Err(std::io::ErrorKind::NotFound.into()));
    assert!(error.unwrap_err().to_string().contains("'file'"));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let error = TarWriter::new(full)
        .append(entry, &mut |_, _| Ok(()))
        .unwrap_err();
    assert!(error.to_string().contains("No space"), "{error}");
}

#[test]
fn times_are_written_exactly() {
    for (secs, nanos, text) in [
        (0, 0, "0"),
        (5, 500_000_000, "5.5"),
        (-1, 750_000_000, "-0.25"),
        (-2, 0, "-2"),
        (-2, 999_999_999, "-1.000000001"),
        (i64::MIN, 1, "-9223372036854775807.999999999"),
    ] {
        assert_eq!(time(Time { secs, nanos }), text);
    }
}
