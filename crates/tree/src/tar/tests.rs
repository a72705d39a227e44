//! Tests of reading tar archives: the archives that GNU tar, bsdtar and other programs make from
//! trees with every kind of entry. Each must be read back as the tree that it was made from.
//!
//! The helpers that make such trees also serve the tests of writing archives, in `write/tests.rs`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use extern4_disk::inode::InodeFlags;
use extern4_testkit::tools::{Need, can_run};
use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};

use super::{TarSource, TarWriter};
use crate::testing::{Collected, Raw, archive, is_root, plain, read, run};
use crate::{DirectorySource, Entry, Kind, Result, Source, Time};

/// Makes a tree with every kind of entry that the form of an archive can have.
pub(super) fn make_tree(dir: &Path, long: bool) {
    let path = |name: &str| dir.join(name);
    fs::create_dir_all(path("dir/sub/empty")).unwrap();
    for size in [0, 1, 511, 512, 513, 70_000] {
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
        fs::write(path(&format!("dir/size{size}")), bytes).unwrap();
    }
    fs::set_permissions(path("dir/size1"), fs::Permissions::from_mode(0o6751)).unwrap();
    fs::hard_link(path("dir/size513"), path("dir/sub/link")).unwrap();
    fs::hard_link(path("dir/size513"), path("another")).unwrap();
    symlink("../dir/./size1", path("dir/symlink")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    if is_root() {
        let device = rustix::fs::makedev(8, 17);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("b"),
            FileType::BlockDevice,
            Mode::RUSR,
            device,
        )
        .unwrap();
        let device = rustix::fs::makedev(1, 3);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("c"),
            FileType::CharacterDevice,
            Mode::RUSR,
            device,
        )
        .unwrap();
        std::os::unix::fs::lchown(path("dir/size0"), Some(1234), Some(5678)).unwrap();
    }
    if long {
        let name = "n".repeat(120);
        fs::create_dir_all(path(&format!("{name}/{name}"))).unwrap();
        fs::write(path(&format!("{name}/{name}/{name}")), "long").unwrap();
        symlink("t".repeat(300), path("longlink")).unwrap();
        fs::write(
            dir.join(std::ffi::OsStr::from_bytes(b"not\xffutf8 \n")),
            "x",
        )
        .unwrap();
        set_mtime(&path("dir/size1"), -77);
    }
}

fn set_mtime(path: &Path, secs: i64) {
    let last_modification = Timespec {
        tv_sec: secs,
        tv_nsec: 123_456_789,
    };
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        last_modification,
    };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty()).unwrap();
}

pub(super) fn make_sparse(dir: &Path) {
    let file = File::create(dir.join("sparse")).unwrap();
    for at in 0..60 {
        file.write_all_at(&[at as u8 + 1; 5000], at * 100_000 + 4096)
            .unwrap();
    }
    file.set_len(7_000_000).unwrap();
    File::create(dir.join("hole"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
}

pub(super) fn make_xattrs(dir: &Path) {
    let file = dir.join("dir/size1");
    rustix::fs::setxattr(&file, "user.bytes", b"\0\n=\xff", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&file, "user.text", b"text", XattrFlags::empty()).unwrap();
    run(dir, "setfacl", &["-m", "u:1234:r,g:77:rwx", "dir/size1"]);
    run(dir, "setfacl", &["-d", "-m", "u:4321:rx", "dir"]);
    if is_root() {
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        rustix::fs::setxattr(
            &file,
            "security.capability",
            &capability,
            XattrFlags::empty(),
        )
        .unwrap();
    }
}

/// Compares an archive that a program made of a tree with the tree itself.
#[track_caller]
fn compare(
    program: &str,
    options: &[&str],
    (long, seconds, xattrs, sparse): (bool, bool, bool, bool),
) {
    if !can_run(&[
        Need::Tool("tar"),
        Need::Tool("bsdtar"),
        Need::Tool("setfacl"),
    ]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("tree");
    fs::create_dir(&dir).unwrap();
    make_tree(&dir, long);
    // Libarchive takes the bits of a file with an ACL from the ACL, even where it leaves that out.
    if xattrs {
        make_xattrs(&dir);
    }
    if program == "bsdtar" {
        // Libarchive writes -76.88 s as "-77.12".
        set_mtime(&dir.join("dir/size1"), 77);
    }
    if sparse {
        make_sparse(&dir);
    }
    let mut arguments = options.to_vec();
    arguments.extend(["-C", "tree", "-cf", "archive.tar", "."]);
    run(scratch.path(), program, &arguments);
    let tar = TarSource::open(scratch.path().join("archive.tar"), scratch.path()).unwrap();
    assert!(!tar.is_spooled());
    let mut expected = plain(&DirectorySource::new(&dir).unwrap());
    for plain in expected.values_mut() {
        if seconds {
            plain.mtime.nanos = 0;
        }
        if !xattrs {
            plain.xattrs.clear();
        }
    }
    let found = plain(&tar);
    for (path, expected) in &expected {
        assert_eq!(
            found.get(path),
            Some(expected),
            "{program} {options:?}: {path}"
        );
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn gnu_tars_pax_archives_are_read() {
    let all = [
        "--format=pax",
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "--sparse",
    ];
    compare("tar", &all, (true, false, true, true));
    for version in [
        "--sparse-version=0.0",
        "--sparse-version=0.1",
        "--sparse-version=1.0",
    ] {
        let mut options = all.to_vec();
        options.push(version);
        compare("tar", &options, (true, false, true, true));
    }
}

#[test]
fn gnu_tars_older_forms_are_read() {
    compare(
        "tar",
        &["--format=gnu", "--sparse"],
        (true, true, false, true),
    );
    compare("tar", &["--format=gnu"], (true, true, false, true));
    compare(
        "tar",
        &["--format=oldgnu", "--sparse"],
        (true, true, false, true),
    );
    compare(
        "tar",
        &["--format=ustar", "--blocking-factor=1"],
        (false, true, false, false),
    );
}

#[test]
fn libarchives_forms_are_read() {
    compare(
        "bsdtar",
        &["--format=pax", "--xattrs", "--acls"],
        (true, false, true, true),
    );
    compare(
        "bsdtar",
        &["--format=gnutar", "--no-read-sparse"],
        (true, true, false, true),
    );
    compare("bsdtar", &["--format=ustar"], (false, true, false, false));
}

#[test]
fn old_archives_are_read() {
    if !can_run(&[Need::Tool("tar")]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::create_dir_all(scratch.path().join("tree/dir")).unwrap();
    fs::write(scratch.path().join("tree/dir/file"), "contents").unwrap();
    fs::hard_link(
        scratch.path().join("tree/dir/file"),
        scratch.path().join("tree/hard"),
    )
    .unwrap();
    run(
        scratch.path(),
        "tar",
        &["--format=v7", "-C", "tree", "-cf", "old.tar", "."],
    );
    let tar = TarSource::open(scratch.path().join("old.tar"), scratch.path()).unwrap();
    let mut expected = plain(&DirectorySource::new(scratch.path().join("tree")).unwrap());
    expected
        .values_mut()
        .for_each(|plain| plain.mtime.nanos = 0);
    assert_eq!(plain(&tar), expected);
}

#[test]
fn compressed_archives_and_pipes_are_read() {
    let tools = ["tar", "gzip", "zstd", "xz", "bzip2"];
    if !tools.iter().all(|tool| can_run(&[Need::Tool(tool)])) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    fs::create_dir(path("tree")).unwrap();
    make_tree(&path("tree"), true);
    make_sparse(&path("tree"));
    run(
        scratch.path(),
        "tar",
        &[
            "--format=pax",
            "--sparse",
            "-C",
            "tree",
            "-cf",
            "a.tar",
            ".",
        ],
    );
    let expected = plain(&TarSource::open(path("a.tar"), scratch.path()).unwrap());
    let whole = fs::read(path("a.tar")).unwrap();
    for tool in ["gzip", "zstd", "xz", "bzip2"] {
        run(
            scratch.path(),
            "sh",
            &["-c", &format!("{tool} -c a.tar > a.packed")],
        );
        let tar = TarSource::open(path("a.packed"), scratch.path()).unwrap();
        assert!(tar.is_spooled());
        assert_eq!(plain(&tar), expected, "{tool}");
        // Two parts, compressed one by one.
        fs::write(path("head"), &whole[..10_000]).unwrap();
        fs::write(path("tail"), &whole[10_000..]).unwrap();
        run(
            scratch.path(),
            "sh",
            &[
                "-c",
                &format!("({tool} -c head; {tool} -c tail) > a.packed"),
            ],
        );
        let pipe = File::open(path("a.packed")).unwrap();
        let tar = TarSource::from_stream(pipe, "standard input", scratch.path());
        assert_eq!(plain(&tar), expected, "{tool}, in parts");
        let again = tar.scan(&mut Collected::default()).unwrap_err().to_string();
        assert!(
            again.contains("standard input") && again.contains("only once"),
            "{again}"
        );
        // Cut off.
        let packed = fs::read(path("a.packed")).unwrap();
        fs::write(path("a.packed"), &packed[..packed.len() - 9]).unwrap();
        let tar = TarSource::open(path("a.packed"), scratch.path()).unwrap();
        let error = tar.scan(&mut Collected::default()).unwrap_err().to_string();
        assert!(error.contains("a.packed"), "{tool}: {error}");
    }
    let tar = TarSource::from_stream(&*whole.leak(), "standard input", scratch.path());
    assert_eq!(plain(&tar), expected);
}

fn scan(bytes: &[u8]) -> (TarSource, Result<Collected>) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let tar = TarSource::from_file(file, "a.tar", std::env::temp_dir()).unwrap();
    let mut found = Collected::default();
    let result = tar.scan(&mut found).map(|()| found);
    (tar, result)
}

#[test]
fn records_override_headers() {
    let (tar, found) = scan(&archive(&[
        Raw::pax(
            b'g',
            &[
                ("uid", b"7"),
                ("mtime", b"5.5"),
                ("SCHILY.xattr.user.all", b"g"),
                ("comment", b"x"),
            ],
        ),
        Raw::new(b'0', "one", b"1"),
        Raw::pax(
            b'x',
            &[
                ("path", b"dir/\xff\n"),
                ("size", b"3"),
                ("uid", b"4000000000"),
                ("gid", b"70000"),
                ("mtime", b"-0.25"),
                ("SCHILY.xattr.user.all", b"own"),
                ("RHT.security.selinux", b"u:o:t:s0"),
            ],
        ),
        // The size in the header is what old programs can read.
        Raw::new(b'0', "shortened", b"123").field(124, b"00000000000"),
        Raw::new(b'0', "two", b"2")
            .field(108, b"\x80\0\0\0\0\x01\x11\x70")
            .field(136, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe"),
        Raw::new(
            b'L',
            "././@LongLink",
            &[&b"l".repeat(200)[..], b"/", &b"m".repeat(200), b"\0"].concat(),
        ),
        Raw::new(
            b'K',
            "././@LongLink",
            &[&b"t".repeat(300)[..], b"\0"].concat(),
        ),
        Raw::new(b'2', "short", b""),
        Raw::new(b'0', "name", b"").field(345, b"pre/fix"),
    ]));
    let found = found.unwrap();
    let one = found.get("one");
    assert_eq!(
        (one.uid, one.gid, one.mtime),
        (
            7,
            0,
            Time {
                secs: 5,
                nanos: 500_000_000
            }
        )
    );
    assert_eq!(one.xattrs, [(b"user.all".to_vec(), b"g".to_vec())]);
    let other = &found.entries[1];
    assert_eq!(other.path, b"dir/\xff\n");
    assert_eq!((other.uid, other.gid), (4_000_000_000, 70_000));
    assert_eq!(
        other.mtime,
        Time {
            secs: -1,
            nanos: 750_000_000
        }
    );
    let xattrs = [("security.selinux", "u:o:t:s0\0"), ("user.all", "own")];
    assert_eq!(
        other.xattrs,
        xattrs.map(|(name, value)| (name.into(), value.into()))
    );
    assert_eq!(read(&tar, other), b"123");
    assert_eq!((found.get("two").uid, found.get("two").mtime.secs), (7, 5));
    let long = &found.entries[3];
    assert_eq!(
        long.path,
        [&b"l".repeat(200)[..], &b"m".repeat(200)].join(&b'/')
    );
    assert_eq!(long.kind, Kind::Symlink(b"t".repeat(300)));
    assert_eq!(found.entries[4].path, b"pre/fix/name");
}

#[test]
fn names_of_the_root_and_slashes_are_understood() {
    let (_, found) = scan(&archive(&[
        Raw::new(b'5', "./", b"").field(100, b"0000711"),
        Raw::new(b'5', "/abs//dir/", b""),
        Raw::new(b'0', "/abs/./file", b""),
        Raw::new(b'0', "old/", b""),
        Raw::new(b'1', "hard", b"").link("/abs/file"),
        Raw::new(b'1', "hard", b"").link("./hard"),
        Raw::new(b'Z', "odd", b"odd contents"),
    ]));
    let found = found.unwrap();
    assert_eq!(
        found.paths(),
        [".", "abs/dir", "abs/file", "old", "hard", "odd"]
    );
    assert_eq!(found.get("").mode, 0o711);
    assert_eq!(found.get("old").kind, Kind::Directory);
    assert_eq!(found.get("hard").kind, Kind::HardLink(b"abs/file".to_vec()));
    let warned = |text: &str| {
        found
            .warnings
            .iter()
            .filter(|warning| warning.contains(text))
            .count()
    };
    for warning in ["of names", "targets", "'odd'", "'hard'"] {
        assert_eq!(warned(warning), 1, "{:?}", found.warnings);
    }
}

#[test]
fn hard_links_may_have_contents() {
    let own = Raw::new(b'0', "a", b"contents");
    let full = Raw::new(b'1', "b", b"contents").link("a");
    // Programs before POSIX gave the size and no contents.
    let bare = Raw {
        data: Vec::new(),
        ..full.clone()
    };
    for link in [full, bare] {
        let (_, found) = scan(&archive(&[own.clone(), link, Raw::new(b'0', "c", b"")]));
        let found = found.unwrap();
        assert_eq!(found.paths(), ["a", "b", "c"]);
        assert_eq!(found.get("b").kind, Kind::HardLink(b"a".to_vec()));
    }
}

#[test]
fn an_acl_with_a_name_alone_is_an_error() {
    let acl = b"user::rw-,user:lisa:rw-,group::r--,mask::rw-,other::---";
    let (_, found) = scan(&archive(&[
        Raw::pax(b'x', &[("SCHILY.acl.access", acl)]),
        Raw::new(b'0', "f", b""),
    ]));
    let error = found.unwrap_err().to_string();
    assert!(error.contains("'f'") && error.contains("'lisa'"), "{error}");
}

#[test]
fn flags_and_projects_survive_writing_and_reading() {
    let (_, found) = scan(&archive(&[Raw::new(b'0', "f", b"")]));
    let mut entry = found.unwrap().entries.remove(0);
    entry.flags = Some(InodeFlags::IMMUTABLE | InodeFlags::CASEFOLD);
    entry.project = Some(5);
    let mut writer = TarWriter::new(Vec::new());
    writer.append(&entry, &mut |_, _| Ok(())).unwrap();
    let bytes = writer.finish().unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        text.contains(" SCHILY.fflags=schg,casefold\n") && text.contains(" EXTERN4.project=5\n"),
        "{text}"
    );
    let (_, found) = scan(&bytes);
    let again = &found.unwrap().entries[0];
    assert_eq!((again.flags, again.project), (entry.flags, entry.project));
}

#[test]
fn bad_members_are_named_with_their_place() {
    let first = Raw::new(b'0', "first", b"contents");
    let sparse = |map: &[u8]| {
        Raw::pax(
            b'x',
            &[
                ("GNU.sparse.size", b"100"),
                ("GNU.sparse.name", b"bad"),
                ("GNU.sparse.map", map),
            ],
        )
    };
    let huge = Raw::new(b'0', "bad", b"").field(124, b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff");
    for (members, reason) in [
        (vec![Raw::new(b'0', "a/../bad", b"")], "'..'"),
        (vec![Raw::new(b'0', "../bad", b"")], "'..'"),
        (vec![Raw::new(b'1', "bad", b"").link("../first")], "'..'"),
        (
            vec![Raw::new(b'1', "bad", b"").link("./")],
            "hard link to the root",
        ),
        (vec![Raw::new(b'2', "bad", b"")], "without a target"),
        (
            vec![Raw::new(b'0', "bad", b"").field(124, b"zzz")],
            "size is no number",
        ),
        (
            vec![Raw::new(b'0', "bad", b"").field(108, b"\x80\0\0\x01")],
            "owner",
        ),
        (vec![Raw::new(b'3', "bad", b"").field(329, b"9")], "device"),
        (
            vec![Raw::new(b'4', "bad", b"").field(337, b"4000000")],
            "device",
        ),
        (
            vec![
                Raw::pax(b'x', &[("linkpath", b"a\0b")]),
                Raw::new(b'2', "bad", b""),
            ],
            "NUL",
        ),
        (
            vec![Raw::pax(b'x', &[("SCHILY.xattr.", b"x")])],
            "SCHILY.xattr.",
        ),
        (
            vec![Raw::pax(b'x', &[("SCHILY.xattr.user.big", &[b'x'; 65537])])],
            "user.big",
        ),
        (
            vec![
                Raw::pax(b'x', &[("path", b"bad"), ("size", b"-1")]),
                Raw::new(b'0', "x", b""),
            ],
            "'size'",
        ),
        (
            vec![
                Raw::new(b'x', "pax", b"99 path=bad\n"),
                Raw::new(b'0', "x", b""),
            ],
            "damaged",
        ),
        (
            vec![Raw::pax(b'x', &[("LIBARCHIVE.xattr.user.x", b"!")])],
            "LIBARCHIVE.xattr.user.x",
        ),
        (
            vec![Raw::new(b'0', "bad", b"").field(124, b"00000002000")],
            "ends in the middle",
        ),
        (vec![huge], "bad"),
        (
            vec![sparse(b"0,10"), Raw::new(b'0', "x", b"short")],
            "map of holes",
        ),
        (
            vec![sparse(b"0,3,2,2"), Raw::new(b'0', "x", b"12345")],
            "map of holes",
        ),
        (
            vec![sparse(b"99,2"), Raw::new(b'0', "x", b"12")],
            "map of holes",
        ),
        (
            vec![
                sparse(b"18446744073709551615,2"),
                Raw::new(b'0', "x", b"12"),
            ],
            "map of holes",
        ),
        (
            vec![sparse(b"0"), Raw::new(b'0', "x", b"12")],
            "map of holes",
        ),
        (vec![Raw::new(b'M', "bad", b"")], "several volumes"),
        (vec![Raw::pax(b'x', &[("path", b"bad")])], "extended header"),
        (vec![Raw::new(b'6', ".", b"")], "name of a directory"),
        (vec![Raw::new(b'0', ".", b"bad")], "name of a directory"),
        (
            vec![Raw::new(b'0', "./dir/.", b"bad")],
            "name of a directory",
        ),
        (
            vec![Raw::new(b'2', "dir/.", b"").link("bad")],
            "name of a directory",
        ),
    ] {
        let members: Vec<Raw> = [first.clone()].into_iter().chain(members).collect();
        let mut bytes = archive(&members);
        if reason.contains("middle") {
            bytes.truncate(bytes.len() - 1024);
        }
        let (_, result) = scan(&bytes);
        let error = result.unwrap_err().to_string();
        assert!(
            error.starts_with("a.tar: ") && error.contains("at byte 1024"),
            "{reason}: {error}"
        );
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

#[test]
fn links_have_the_mode_of_links() {
    let link = Raw::new(b'2', "l", b"").link("x").field(100, b"0000644");
    let found = scan(&archive(&[link])).1.unwrap();
    assert_eq!(found.get("l").mode, 0o777);
}

/// Compresses with a program of the host.
fn compressed(program: &str, bytes: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("plain"), bytes).unwrap();
    run(
        dir.path(),
        "sh",
        &["-c", &format!("{program} <plain >packed")],
    );
    fs::read(dir.path().join("packed")).unwrap()
}

#[test]
fn bytes_behind_a_compressed_archive_are_ignored() {
    let programs = [
        ("gzip", "gzip -c"),
        ("zstd", "zstd -qc"),
        ("xz", "xz -c"),
        ("bzip2", "bzip2 -c"),
    ];
    for (name, program) in programs
        .into_iter()
        .filter(|(name, _)| can_run(&[Need::Tool(name)]))
    {
        let whole = archive(&[
            Raw::new(b'0', "first", b"1"),
            Raw::new(b'0', "last", &[7; 3000]),
        ]);
        let packed = compressed(program, &whole);
        let check = |bytes: &[u8], warnings: usize| {
            let (tar, found) = scan(bytes);
            let found = found.unwrap();
            assert_eq!(found.paths(), ["first", "last"], "{name}");
            assert_eq!(read(&tar, found.get("last")), [7; 3000], "{name}");
            assert_eq!(
                found.warnings.len(),
                warnings,
                "{name}: {:?}",
                found.warnings
            );
        };
        check(&packed, 0);
        check(&[&packed[..], &[0; 100_000]].concat(), 0);
        check(&[&packed[..], b"x"].concat(), 1);
        check(&[&packed[..], &[0; 3], b"xyz"].concat(), 1);
        // A signature that begins as another archive would.
        check(&[&packed[..], &[7; 300_000]].concat(), 1);
        // Streams that together are one archive, with padding between them.
        let parts = [
            compressed(program, &whole[..700]),
            compressed(program, &whole[700..]),
        ];
        check(&parts.concat(), 0);
        check(&[&parts[0][..], &[0; 8], &parts[1][..]].concat(), 0);
        // A stream that ends too early is damage, and so are bytes that differ.
        assert!(scan(&packed[..packed.len() - 5]).1.is_err(), "{name}");
        let mut wrong = packed.clone();
        let last = if name == "zstd" {
            packed.len() - 1
        } else {
            packed.len() - 9
        };
        wrong[last] ^= 1;
        assert!(scan(&wrong).1.is_err(), "{name}");
    }
}

#[test]
fn the_longest_window_of_zstd_is_read() {
    if !can_run(&[Need::Tool("zstd")]) {
        return;
    }
    let whole = archive(&[Raw::new(b'0', "f", &[1; 5000])]);
    // The size of a stream from a pipe is not known, so the window is as large as it says.
    let packed = compressed("cat | zstd -qc --long=31", &whole);
    let (tar, found) = scan(&packed);
    assert_eq!(read(&tar, found.unwrap().get("f")), [1; 5000]);
}

#[test]
fn errors_of_the_sink_get_the_place() {
    struct Refuses;
    impl crate::Sink for Refuses {
        fn entry(&mut self, entry: Entry) -> Result<()> {
            let Kind::HardLink(target) = entry.kind else {
                return Ok(());
            };
            let path = crate::error::shown(&entry.path);
            let target = crate::error::shown(&target);
            Err(crate::Error::NoTarget { path, target })
        }
        fn remove(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn clear(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn warn(&mut self, _: String) {}
    }
    let bytes = archive(&[
        Raw::new(b'0', "a", b"x"),
        Raw::new(b'1', "bad", b"").link("none"),
    ]);
    let tar = scan(&bytes).0;
    let error = tar.scan(&mut Refuses).unwrap_err().to_string();
    assert_eq!(
        error,
        "a.tar: member 'bad' at byte 1024: the target 'none' of the hard link does not exist"
    );
}

#[test]
fn what_is_no_archive_is_said() {
    for (bytes, reason) in [
        (&b""[..], "empty"),
        (&[7; 1024], "neither a tar"),
        (b"short", "ends in the middle"),
        (b"\x1f\x8b nonsense and more of it", "a.tar"),
        (b"\x28\xb5\x2f\xfd nonsense and more of it", "a.tar"),
        (b"BZh9 nonsense and more of it", "a.tar"),
        (b"\xfd7zXZ\0 nonsense and more of it", "a.tar"),
    ] {
        let error = scan(bytes).1.unwrap_err().to_string();
        assert!(error.contains(reason), "{reason}: {error}");
    }
    let (_, found) = scan(&archive(&[]));
    assert!(found.unwrap().entries.is_empty());
    // An archive without the mark of its end is whole, for some programs.
    let bytes = archive(&[Raw::new(b'0', "a", b"x")]);
    let found = scan(&bytes[..1024]).1.unwrap();
    assert_eq!(found.paths(), ["a"]);
    assert_eq!(found.warnings.len(), 1);
}

/// An archive with every form of header.
fn everything() -> Vec<u8> {
    let map = b"2\n0\n3\n1000\n2\n";
    let data = [&map[..], &vec![0; 512 - map.len()], b"abcde"].concat();
    archive(&[
        Raw::pax(b'g', &[("mtime", b"1.5")]),
        Raw::new(b'5', "dir/", b""),
        Raw::new(b'0', "dir/file", b"contents"),
        Raw::pax(
            b'x',
            &[
                ("SCHILY.acl.access", b"user::rw-,group::r--,other::---"),
                ("path", b"p"),
            ],
        ),
        Raw::new(b'0', "x", b"y"),
        Raw::pax(
            b'x',
            &[
                ("GNU.sparse.major", b"1"),
                ("GNU.sparse.minor", b"0"),
                ("GNU.sparse.name", b"sparse"),
                ("GNU.sparse.realsize", b"2000"),
            ],
        ),
        Raw::new(b'0', "GNUSparseFile.0/sparse", &data),
        Raw::new(b'L', "././@LongLink", &b"l".repeat(600)[..255]),
        Raw::new(b'S', "old", b"abc")
            .field(386, b"00000000100\0")
            .field(398, b"00000000003\0")
            .field(483, b"00000002000\0")
            .field(257, b"ustar  \0"),
        Raw::new(b'1', "hard", b"").link("dir/file"),
        Raw::new(b'2', "sym", b"").link("target"),
        Raw::new(b'3', "dev", b"")
            .field(329, b"0000001\0")
            .field(337, b"0000003\0"),
    ])
}

#[test]
fn pieces_of_sparse_files_are_found() {
    let (tar, found) = scan(&everything());
    let found = found.unwrap();
    let mut expected = vec![0; 2000];
    expected[..3].copy_from_slice(b"abc");
    expected[1000..1002].copy_from_slice(b"de");
    assert_eq!(read(&tar, found.get("sparse")), expected);
    let mut expected = vec![0; 1024];
    expected[64..67].copy_from_slice(b"abc");
    assert_eq!(read(&tar, found.get(&"l".repeat(255))), expected);
}

#[test]
fn damaged_archives_never_panic() {
    let whole = everything();
    let baseline = scan(&whole).1.unwrap().entries.len();
    for length in (0..whole.len()).step_by(97) {
        if let Ok(found) = scan(&whole[..length]).1 {
            assert!(found.entries.len() <= baseline);
        }
    }
    let mut state = 12345_u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random(4) {
            let at = random(bytes.len());
            bytes[at] = random(256) as u8;
        }
        // The checksums are made right again, so that the damage gets past them.
        let mut at = 0;
        while at + 512 <= bytes.len() {
            if bytes[at + 257..at + 262] == *b"ustar" {
                bytes[at + 148..at + 156].fill(b' ');
                let sum: u32 = bytes[at..at + 512]
                    .iter()
                    .map(|byte| u32::from(*byte))
                    .sum();
                bytes[at + 148..at + 155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            }
            at += 512;
        }
        let (tar, result) = scan(&bytes);
        let Ok(found) = result else { continue };
        for entry in &found.entries {
            if let Kind::File(contents) = &entry.kind
                && contents.size < 1 << 20
            {
                read(&tar, entry);
            }
        }
    }
}

#[test]
fn archives_are_known_by_their_first_header() {
    let dir = tempfile::tempdir().unwrap();
    let is_archive = |bytes: &[u8]| {
        fs::write(dir.path().join("f"), bytes).unwrap();
        TarSource::is_archive(&File::open(dir.path().join("f")).unwrap()).unwrap()
    };
    let gzip = |bytes: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    };
    let whole = archive(&[Raw::new(b'0', "name", b"text")]);
    assert!(is_archive(&whole) && is_archive(&gzip(&whole)));
    assert!(!is_archive(&whole[..511]) && !is_archive(&gzip(&whole[..511])));
    assert!(!is_archive(b"") && !is_archive(&[b'x'; 4096]) && !is_archive(&gzip(b"text")));
}
