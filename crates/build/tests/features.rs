//! The features that a volume can be made with. `dumpe2fs` and `debugfs` see that the builder uses
//! each, and e2fsck finds nothing to say.

use std::fs;
use std::sync::Arc;

use extern4_build::{BuildOptions, Builder, Error};
use extern4_disk::feature::Feature;
use extern4_disk::inode::InodeFlags;
use extern4_mkfs::{Error as MakeError, Options};
use extern4_testkit::image::Image;
use extern4_testkit::tools::{self, Need};
use extern4_tree::{Contents, Data, Entries, Entry, Kind, ReadAt, Time};

/// The use that the builder makes of a feature.
enum Use {
    /// `dumpe2fs` prints this text.
    Dumped(&'static str),
    /// The output of a request of `debugfs` has this text.
    Seen(&'static str, &'static str),
    /// Nothing about the files of such a tree depends on it, for this reason.
    Nothing(&'static str),
}
use Use::{Dumped, Nothing, Seen};

/// Each feature that mkfs takes, with further options that it needs.
const TABLE: [(&str, &str, Use); 31] = [
    (
        "dir_prealloc",
        "",
        Nothing("it is a hint for directories that grow"),
    ),
    ("has_journal", "", Dumped("Journal inode:            8")),
    ("ext_attr", "", Seen("ea_list /attributes", "user.small")),
    ("resize_inode", "", Seen("stat <7>", "Size: 4299210752")),
    ("dir_index", "", Seen("stat /many", "Flags: 0x81000")),
    (
        "sparse_super2",
        "^resize_inode",
        Nothing("it says where copies of the superblock are"),
    ),
    ("fast_commit", "has_journal", Dumped("Fast commit length:")),
    (
        "stable_inodes",
        "",
        Nothing("it forbids a later change of inode numbers"),
    ),
    ("orphan_file", "has_journal", Dumped("Orphan file inode:")),
    ("filetype", "", Seen("ls -l /many", "(1)")),
    (
        "meta_bg",
        "^resize_inode",
        Nothing("it says where the descriptors of groups are"),
    ),
    ("extent", "", Seen("stat /file", "Flags: 0x80000")),
    ("64bit", "", Dumped("Group descriptor size:    64")),
    ("mmp", "", Dumped("MMP block number:")),
    ("flex_bg", "", Dumped("Flex block group size:")),
    ("ea_inode", "", Seen("ea_list /large", "user.large (60000)")),
    (
        "metadata_csum_seed",
        "metadata_csum",
        Dumped("Checksum seed:"),
    ),
    (
        "large_dir",
        "",
        Nothing("only directories of millions of names have one more level"),
    ),
    ("inline_data", "", Seen("stat /small", "Flags: 0x10000000")),
    ("casefold", "", Seen("stat /folded", "Flags: 0x40080000")),
    (
        "sparse_super",
        "",
        Nothing("it says where copies of the superblock are"),
    ),
    ("large_file", "", Seen("stat /holes", "Size: 3221225472")),
    (
        "huge_file",
        "",
        Nothing("only files of more than 2 TiB count whole blocks"),
    ),
    (
        "uninit_bg",
        "^metadata_csum,^metadata_csum_seed",
        Dumped(") csum 0x"),
    ),
    (
        "dir_nlink",
        "",
        Nothing("only directories with more than 65000 others in them do not count these"),
    ),
    ("extra_isize", "", Dumped("Required extra isize:     32")),
    ("quota", "", Dumped("User quota inode:         3")),
    (
        "metadata_csum",
        "",
        Dumped("Checksum type:            crc32c"),
    ),
    ("read-only", "^has_journal", Nothing("it forbids changes")),
    ("project", "", Seen("stat /folded", "Project:     5")),
    (
        "verity",
        "",
        Nothing("a pattern chooses the files that fs-verity protects"),
    ),
];

/// A tree with something for each feature that is about files. It has files that only some features
/// allow if `features` have them.
fn tree(features: &str) -> Entries {
    let has = |feature| features.split(',').any(|has| has == feature);
    let entry = |path: &str, kind| Entry {
        path: path.into(),
        kind,
        mode: 0o755,
        uid: 1,
        gid: 2,
        mtime: Time {
            secs: 1_700_000_000,
            nanos: 0,
        },
        xattrs: Vec::new(),
        flags: None,
        project: None,
    };
    let file = |path: &str, bytes: Vec<u8>| {
        let kind = Kind::File(Contents {
            size: bytes.len() as u64,
            data: Data::Stored { position: 0 },
        });
        (entry(path, kind), Some(Arc::new(bytes) as Arc<dyn ReadAt>))
    };
    let mut all = vec![
        file("small", b"text".to_vec()),
        file("file", vec![7; 10_000]),
        (entry("folded", Kind::Directory), None),
        (entry("many", Kind::Directory), None),
        (entry("attributes", Kind::Fifo), None),
    ];
    all[4].0.xattrs = vec![(b"user.small".to_vec(), b"value".to_vec())];
    if has("casefold") {
        all[2].0.flags = Some(InodeFlags::CASEFOLD);
    }
    if has("project") {
        all[2].0.project = Some(5);
    }
    if has("ea_inode") {
        let mut large = file("large", b"text".to_vec());
        large.0.xattrs = vec![(b"user.large".to_vec(), vec![b'v'; 60_000])];
        all.push(large);
    }
    if has("large_file") {
        let holes = Contents {
            size: 3 << 30,
            data: Data::Pieces(Box::new([])),
        };
        let nothing: Arc<dyn ReadAt> = Arc::new(Vec::new());
        all.push((entry("holes", Kind::File(holes)), Some(nothing)));
    }
    all.extend((0..400).map(|number| file(&format!("many/a name of a file {number}"), Vec::new())));
    all.into_iter().collect()
}

fn build(source: Entries, features: &str) -> Result<Image, Error> {
    let features = features
        .split(',')
        .filter(|feature| !feature.is_empty())
        .map(str::to_owned)
        .collect();
    let volume = Options {
        features,
        ..Options::default()
    };
    let mut builder = Builder::new(BuildOptions {
        volume,
        ..BuildOptions::default()
    });
    builder.add(Box::new(source), b"")?;
    let planned = builder.plan()?;
    let image = Image::in_directory(tools::temporary("extern4-build-"), "out.img");
    planned.write_file(&image.path, false, 2)?;
    Ok(image)
}

fn dumped(image: &Image) -> String {
    let output = tools::run("dumpe2fs", [image.path.as_os_str()]);
    String::from_utf8_lossy(&output).into_owned()
}

#[test]
fn each_feature_is_used_or_says_why_not() {
    let needs = [
        Need::Tool("dumpe2fs"),
        Need::Tool("debugfs"),
        Need::Tool("e2fsck"),
    ];
    if !tools::can_run(&needs) {
        return;
    }
    for (feature, more, used) in &TABLE {
        let features = format!("{feature},{more}");
        let image =
            build(tree(&features), &features).unwrap_or_else(|error| panic!("{feature}: {error}"));
        tools::e2fsck(&image.path).unwrap_or_else(|said| panic!("{feature}: {said}"));
        let dumped = dumped(&image);
        let list = dumped
            .lines()
            .find_map(|line| line.strip_prefix("Filesystem features:"));
        let list: Vec<&str> = list.expect("features").split_whitespace().collect();
        assert!(list.contains(feature), "{feature}: {list:?}");
        match used {
            Dumped(text) => assert!(dumped.contains(text), "{feature}: {dumped}"),
            Seen(request, text) => {
                let said = tools::debugfs(&image.path, false, request);
                assert!(said.contains(text), "{feature}: {said}");
            }
            Nothing(reason) => assert!(!reason.is_empty()),
        }
    }
}

#[test]
fn the_table_has_each_feature_that_can_be_made() {
    for number in 0..32 {
        for set in ["C", "I", "R"] {
            let feature = Feature::from_name(&format!("FEATURE_{set}{number}")).expect("a bit");
            let name = feature.to_string();
            let is_refused = matches!(
                build(tree(""), &name),
                Err(Error::Make(MakeError::Feature(_) | MakeError::Options(_)))
            );
            let has_row = TABLE.iter().any(|(known, ..)| *known == name);
            // With these, mkfs makes no volume for files.
            let is_own = ["journal_dev"].contains(&&*name);
            assert!(has_row || is_refused || is_own, "{name}");
        }
    }
}

#[test]
fn small_contents_are_in_inodes() {
    let needs = [Need::Tool("debugfs"), Need::Tool("e2fsck")];
    if !tools::can_run(&needs) {
        return;
    }
    let entry = |path: String, kind| Entry {
        path: path.into_bytes(),
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime: Time::default(),
        xattrs: Vec::new(),
        flags: None,
        project: None,
    };
    // An inode of 256 bytes has room for 128 bytes of contents: seen with `mke2fs -d`.
    const ROOM: usize = 128;
    let sizes = [0, 1, 59, 60, 61, 100, ROOM - 1, ROOM, ROOM + 1, 4096, 5000];
    let bytes = |size: usize| {
        (0..size)
            .map(|at| b'a' + (at % 26) as u8)
            .collect::<Vec<u8>>()
    };
    let mut all: Vec<(Entry, Option<Arc<dyn ReadAt>>)> = Vec::new();
    for size in sizes {
        let kind = Kind::File(Contents {
            size: size as u64,
            data: Data::Stored { position: 0 },
        });
        let contents: Arc<dyn ReadAt> = Arc::new(bytes(size));
        all.push((
            entry(format!("plain{size}"), kind.clone()),
            Some(Arc::clone(&contents)),
        ));
        let mut attributes = entry(format!("attributes{size}"), kind);
        attributes.xattrs = vec![
            (b"user.a".to_vec(), b"value".to_vec()),
            (b"user.b".to_vec(), vec![b'b'; 60]),
        ];
        all.push((attributes, Some(contents)));
    }
    for size in [59, 60, 100, ROOM, ROOM + 1] {
        let target = String::from_utf8(bytes(size)).expect("text");
        all.push((
            entry(format!("link{size}"), Kind::Symlink(target.into_bytes())),
            None,
        ));
    }
    // A name of one letter takes 12 bytes, of which the inode has room for 56 and 68.
    for names in [0, 4, 5, 9, 10] {
        all.push((entry(format!("directory{names}"), Kind::Directory), None));
        all.extend(
            (0..names).map(|name| (entry(format!("directory{names}/{name}"), Kind::Fifo), None)),
        );
    }
    let image = build(all.into_iter().collect(), "inline_data").expect("a volume");
    tools::e2fsck(&image.path).unwrap_or_else(|said| panic!("e2fsck: {said}"));
    let is_inline = |path: &str| {
        let said = tools::debugfs(&image.path, false, &format!("stat {path}"));
        assert!(said.contains("Flags: "), "{path}: {said}");
        said.contains("Flags: 0x10000000")
    };
    for size in sizes {
        for kind in ["plain", "attributes"] {
            let path = format!("/{kind}{size}");
            assert_eq!(is_inline(&path), size <= ROOM, "{path}");
            let out = image.scratch().join("out");
            tools::debugfs(
                &image.path,
                false,
                &format!("dump {path} {}", out.display()),
            );
            let mut dumped = fs::read(&out).expect("the contents");
            // debugfs fills `i_block` with zeroes after short contents, on volumes of mke2fs, too.
            assert!(dumped.drain(size..).all(|byte| byte == 0), "{path}");
            assert_eq!(dumped, bytes(size), "{path}");
            fs::remove_file(&out).expect("it was there");
        }
        let listed = tools::debugfs(&image.path, false, &format!("ea_list /attributes{size}"));
        assert!(
            listed.contains("user.a") && listed.contains("user.b (60)"),
            "{size}: {listed}"
        );
    }
    for (size, expected) in [
        (59, false),
        (60, true),
        (100, true),
        (ROOM, true),
        (ROOM + 1, false),
    ] {
        assert_eq!(is_inline(&format!("/link{size}")), expected, "{size}");
    }
    for (names, expected) in [(0, true), (4, true), (5, true), (9, true), (10, false)] {
        assert_eq!(
            is_inline(&format!("/directory{names}")),
            expected,
            "{names}"
        );
        let listed = tools::debugfs(&image.path, false, &format!("ls -p /directory{names}"));
        let is_used = |line: &&str| line.starts_with('/') && !line.starts_with("/0/");
        assert_eq!(
            listed.lines().filter(is_used).count(),
            names + 2,
            "{listed}"
        );
    }
    assert!(!is_inline("/") && !is_inline("/lost+found"));
}

#[test]
fn equal_large_values_share_an_inode() {
    if !tools::can_run(&[Need::Tool("debugfs"), Need::Tool("e2fsck")]) {
        return;
    }
    // More files than one block of attributes can have.
    let entries = (0..1500).map(|number| {
        let mut xattrs = vec![(b"user.large".to_vec(), vec![b'v'; 60_000])];
        if number < 3 {
            xattrs.push((b"user.other".to_vec(), vec![b'0' + number as u8; 5000]));
        }
        let entry = Entry {
            path: format!("file{number}").into_bytes(),
            kind: Kind::Fifo,
            mode: 0o600,
            uid: number % 2,
            gid: 0,
            mtime: Time { secs: 5, nanos: 0 },
            xattrs,
            flags: None,
            project: None,
        };
        (entry, None)
    });
    let all: Vec<(Entry, Option<Arc<dyn ReadAt>>)> = entries.collect();
    for features in [
        "ea_inode",
        "ea_inode,quota",
        "ea_inode,inline_data,quota",
        "ea_inode,^metadata_csum,^metadata_csum_seed",
    ] {
        let image = build(all.iter().cloned().collect(), features).expect("a volume");
        tools::e2fsck(&image.path).unwrap_or_else(|said| panic!("{features}: {said}"));
        let dumped = dumped(&image);
        let number = |what: &str| -> u32 {
            let line = dumped
                .lines()
                .find_map(|line| line.strip_prefix(what))
                .expect("a number");
            line.trim().parse().expect("a number")
        };
        let used = number("Inode count:") - number("Free inodes:");
        // Four values, next to the files and the inodes of the volume.
        assert_eq!(used, 1500 + 4 + 11, "{features}");
        let listed = tools::debugfs(&image.path, false, "ea_list /file2");
        assert!(
            listed.contains("user.large (60000)") && listed.contains("user.other (5000)"),
            "{listed}"
        );
    }
    let refused = build(all.into_iter().collect(), "")
        .expect_err("no block has that room")
        .to_string();
    assert!(
        refused.contains("'/file0': its extended attributes need a block of "),
        "{refused}"
    );
    assert!(refused.contains("ea_inode"), "{refused}");
}
