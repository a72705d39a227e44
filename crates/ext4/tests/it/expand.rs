//! Inodes from before the volume's present `i_extra_isize` grow when they are changed, as with the
//! kernel: times get nanoseconds, and attributes keep their values.

use std::os::unix::fs::FileExt;
use std::path::Path;

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools;
use extern4_vfs::{FileFlags, LookupFlags, OpenFlags, Session, SetTime, Timespec, XattrFlags};

use crate::model::{judge, open, open_for_writing, session};

/// Files, the size of their fields, and the lengths of their attributes in the record.
const FILES: [(&str, u16, &[usize]); 8] = [
    ("plain", 4, &[]),
    ("empty", 0, &[]),
    ("little", 28, &[]),
    ("some", 4, &[8, 20]),
    ("enough", 28, &[60]),
    // One of its attributes moves to a block, or its only one.
    ("full", 4, &[20, 40]),
    ("one", 4, &[90]),
    ("unchanged", 4, &[8]),
];
const TIME: Timespec = Timespec {
    sec: 4_000_000_000,
    nsec: 123_456_789,
};
const FOLLOW: LookupFlags = LookupFlags::FOLLOW;

fn value(len: usize) -> String {
    "v".repeat(len)
}

fn name(at: usize) -> String {
    format!("user.{at}")
}

/// An image with these files, and a directory `old`.
fn image(spec: &ImageSpec) -> Image {
    let image = spec.build();
    let contents = image.scratch().join("contents");
    std::fs::write(&contents, "contents").expect("a file");
    let contents = contents.display();
    let mut script = "mkdir old\nset_inode_field old extra_isize 4\n".to_owned();
    for (file, fields, attributes) in FILES {
        script +=
            &format!("write {contents} {file}\nset_inode_field {file} extra_isize {fields}\n");
        for (at, &len) in attributes.iter().enumerate() {
            script += &format!("ea_set {file} {} {}\n", name(at), value(len));
        }
    }
    image.debugfs(&script);
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
    image
}

/// An image whose files have their contents inside the inode, and fields of four bytes.
fn inline_image() -> Option<Image> {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-I",
        "256",
        "-O",
        "inline_data,^metadata_csum",
    ];
    let spec = ImageSpec::new("inline", 16 << 20, mke2fs);
    if !spec.can_run() {
        return None;
    }
    let image = spec.build();
    let contents = image.scratch().join("contents");
    std::fs::write(&contents, vec![b'c'; 70]).expect("a file");
    let mut script = String::new();
    for (file, _, attributes) in FILES {
        script += &format!("write {} {file}\n", contents.display());
        for (at, &len) in attributes.iter().enumerate() {
            script += &format!("ea_set {file} {} {}\n", name(at), value(len));
        }
    }
    image.debugfs(&script);
    for (file, ..) in FILES {
        let said = tools::debugfs(&image.path, false, &format!("imap {file}"));
        let (_, place) = said.split_once("located at block ").expect("a place");
        let (block, offset) = place.trim().split_once(", offset 0x").expect("an offset");
        let offset = u64::from_str_radix(offset, 16).expect("a number");
        let at = block.parse::<u64>().expect("a number") * 1024 + offset + 128;
        let disk = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&image.path)
            .expect("the image");
        // Offsets of values are relative to the first entry, so all can move together.
        let mut fields = [0; 128];
        disk.read_exact_at(&mut fields, at).expect("a record");
        fields[0] = 4;
        fields.copy_within(32.., 4);
        fields[100..].fill(0);
        disk.write_all_at(&fields, at).expect("a record");
    }
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("inline: {e}"));
    Some(image)
}

/// Returns the size of a file's fields as debugfs shows it, and whether it has an attribute block.
fn fields(image: &Path, path: &str) -> (String, bool) {
    let stat = tools::debugfs(image, false, &format!("stat {path}"));
    let line = stat
        .lines()
        .find(|line| line.contains("extra inode fields"))
        .unwrap_or("none");
    (line.trim().to_owned(), !stat.contains("File ACL: 0"))
}

fn assert_attributes(what: &str, session: &Session) {
    for (file, _, attributes) in FILES {
        for (at, &len) in attributes.iter().enumerate() {
            let found = session
                .get_xattr(format!("/{file}"), name(at), FOLLOW)
                .expect(file);
            assert_eq!(
                found,
                value(len).into_bytes(),
                "{what}, {file}, {}",
                name(at)
            );
        }
    }
}

#[test]
fn a_change_gives_an_old_inode_all_fields() {
    for mke2fs in [
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "metadata_csum",
        ][..],
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-I",
            "256",
            "-O",
            "^metadata_csum,^extra_isize",
        ],
        &["-t", "ext4", "-b", "4096", "-I", "512"],
    ] {
        let spec = ImageSpec::new("expand", 16 << 20, mke2fs);
        if !spec.can_run() {
            return;
        }
        let what = format!("{mke2fs:?}");
        let image = image(&spec);
        let theirs = image.copy();
        {
            let mount = theirs.mount("noatime");
            let at = std::time::UNIX_EPOCH + std::time::Duration::new(4_000_000_000, 123_456_789);
            let times = std::fs::FileTimes::new().set_accessed(at).set_modified(at);
            for (file, ..) in FILES.iter().filter(|file| file.0 != "unchanged") {
                let file = std::fs::File::open(mount.path.join(file)).expect(file);
                file.set_times(times).expect("times");
            }
            std::fs::write(mount.path.join("old/new"), "").expect("a file");
            mount.unmount();
        }

        let fs = open_for_writing(&image.path);
        let ours = session(fs.clone() as _);
        assert_attributes(&what, &ours);
        for (file, ..) in FILES.iter().filter(|file| file.0 != "unchanged") {
            ours.utimens(
                format!("/{file}"),
                SetTime::At(TIME),
                SetTime::At(TIME),
                FOLLOW,
            )
            .expect(file);
        }
        drop(
            open(
                &ours,
                "/old/new",
                OpenFlags::WRITE | OpenFlags::CREATE,
                0o644,
            )
            .expect("a file"),
        );
        assert_attributes(&what, &ours);
        drop(ours);
        fs.close().expect("close");
        drop(fs);

        let tree = judge(&what, &image);
        let again = session(open_for_writing(&image.path) as _);
        assert_attributes(&what, &again);
        for (file, ..) in FILES {
            let attr = again.stat(format!("/{file}"), FOLLOW).expect(file);
            assert_eq!(
                (attr.mtime == TIME, attr.atime == TIME),
                (file != "unchanged", file != "unchanged")
            );
        }
        for path in FILES.iter().map(|file| file.0).chain(["old", "old/new"]) {
            assert_eq!(
                fields(&image.path, path),
                fields(&theirs.path, path),
                "{what}, {path}"
            );
        }
        assert!(!tree.is_empty());
    }
}

/// Each kind of change, first of all changes of an inode.
#[test]
fn each_change_keeps_attributes() {
    type Change = fn(&Session, &str);
    let changes: [(&str, Change); 8] = [
        ("chmod", |ours, path| {
            ours.chmod(path, 0o600, FOLLOW).expect("chmod")
        }),
        ("chown", |ours, path| {
            ours.chown(path, Some(7), None, FOLLOW).expect("chown")
        }),
        ("flags", |ours, path| {
            ours.set_flags(path, FileFlags::NODUMP, FOLLOW)
                .expect("flags")
        }),
        ("write", |ours, path| {
            let file = open(ours, path, OpenFlags::WRITE, 0).expect("open");
            file.write_at(b"other", 0).expect("write");
        }),
        ("truncate", |ours, path| {
            ours.truncate(path, 3, FOLLOW).expect("truncate")
        }),
        ("link", |ours, path| {
            ours.link(path, LookupFlags::empty(), format!("{path}.link"))
                .expect("link")
        }),
        // Of the same length, over the old one.
        ("overwrite", |ours, path| {
            match ours.get_xattr(path, name(0), FOLLOW) {
                Err(_) => ours.chmod(path, 0o600, FOLLOW).expect("chmod"),
                Ok(value) => {
                    for value in [vec![b'w'; value.len()], value] {
                        ours.set_xattr(path, name(0), &value, XattrFlags::REPLACE, FOLLOW)
                            .expect("set");
                    }
                }
            }
        }),
        ("another", |ours, path| {
            ours.set_xattr(
                path,
                "user.new",
                b"another value",
                XattrFlags::CREATE,
                FOLLOW,
            )
            .expect("set");
            ours.remove_xattr(path, "user.new", FOLLOW).expect("remove");
        }),
    ];
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-I",
        "256",
        "-O",
        "metadata_csum",
    ];
    let spec = ImageSpec::new("expand", 16 << 20, mke2fs);
    let Some(inline) = inline_image() else { return };
    for (kind, image) in [("blocks", image(&spec)), ("inline", inline)] {
        for (change, run) in changes {
            let image = image.copy();
            let what = format!("{kind}, {change}");
            let fs = open_for_writing(&image.path);
            let ours = session(fs.clone() as _);
            for (file, ..) in FILES {
                run(&ours, &format!("/{file}"));
            }
            assert_attributes(&what, &ours);
            drop(ours);
            fs.close().expect("close");
            drop(fs);
            judge(&what, &image);
            // Others move no attribute to a block.
            let moves = !["write", "truncate", "link"].contains(&change);
            for (file, ..) in FILES
                .iter()
                .filter(|file| moves || !["full", "one"].contains(&file.0))
            {
                let (size, _) = fields(&image.path, file);
                assert!(size.ends_with(": 32"), "{what}, {file}: {size}");
            }
            assert_attributes(&what, &session(open_for_writing(&image.path) as _));
        }
    }
}

/// A project can be set, unless there is no room for it anywhere.
#[test]
fn a_project_can_be_set_for_an_old_inode() {
    let spec = ImageSpec::new(
        "expand",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "project"],
    );
    if !spec.can_build() {
        return;
    }
    let image = image(&spec);
    let fs = open_for_writing(&image.path);
    let ours = session(fs.clone() as _);
    // The block of this one is full, too.
    ours.set_xattr(
        "/unchanged",
        "user.block",
        &[b'b'; 960],
        XattrFlags::CREATE,
        FOLLOW,
    )
    .expect("set");
    for (file, ..) in FILES {
        let path = format!("/{file}");
        ours.set_flags_and_project(&path, FileFlags::empty(), Some(77), FOLLOW)
            .expect(file);
        assert_eq!(ours.stat(&path, FOLLOW).expect(file).project, 77, "{file}");
    }
    assert_attributes("project", &ours);
    drop(ours);
    fs.close().expect("close");
    drop(fs);
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{e}"));
}
