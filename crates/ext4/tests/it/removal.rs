//! Removing a file frees all of it, also in a form that Linux does not write any more. `e2fsck`
//! finds nothing before and after.

use std::os::unix::fs::FileExt as _;

use extern4_check::{Options, check};
use extern4_ext4::OpenOptions;
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::tools::{self, Need};
use extern4_vfs::*;

use crate::model::{open, open_for_writing, session};
use crate::walk;

const BLOCK: u64 = 1024;
const PUNCH: FallocateMode = FallocateMode::PUNCH_HOLE.union(FallocateMode::KEEP_SIZE);

/// A change of a volume, with its name.
type NamedChange<'a> = (&'a str, &'a dyn Fn(&Session));

/// Runs `change` on the volume of an image, and returns the result of closing it.
fn change(image: &Image, change: impl FnOnce(&Session)) -> Result<(), extern4_ext4::Error> {
    let fs = open_for_writing(&image.path);
    let session = session(fs.clone() as _);
    change(&session);
    drop(session);
    fs.close()
}

fn change_soundly(what: &str, image: &Image, with: impl FnOnce(&Session)) {
    change(image, with).unwrap_or_else(|e| panic!("{what}: {e}"));
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{what}: {e}"));
}

/// The faults that `check` finds in an image.
fn faults(image: &Image) -> Vec<String> {
    let fs = walk::open_with(&image.path, &OpenOptions::default()).expect("it can be read");
    let mut faults = Vec::new();
    check(&fs, &Options::default(), &mut |fault| {
        faults.push(fault.to_string())
    })
    .expect("it is checked");
    faults
}

/// Blocks of zeroes in places of the map where blocks of numbers belong, in the words of `debugfs`;
/// the file has one more block.
const EMPTY_INDIRECT: [(&str, &str); 5] = [
    ("indirect", "block[IND] 9000"),
    ("double", "block[DIND] 9000"),
    ("triple", "block[TIND] 9000"),
    ("double and triple", "block[DIND] 9000;block[TIND] 9001"),
    // The first block of the triple is that of a double one, which is empty.
    ("triple with an empty double", "block[TIND] 8999"),
];

fn with_empty_indirect(fields: &str) -> Option<Image> {
    let mke2fs = &["-t", "ext4", "-b", "1024", "-O", "^extents,^64bit"];
    let spec = ImageSpec::new("empty-indirect", 16 << 20, mke2fs).mounted(&[|root| {
        std::fs::write(root.join("f"), "f").and_then(|()| std::fs::create_dir(root.join("d")))
    }]);
    if !spec.can_run() {
        return None;
    }
    let image = spec.build();
    let file = std::fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("the image opens");
    file.write_all_at(&9000_u32.to_le_bytes(), 8999 * BLOCK + 40)
        .expect("it is written");
    let mut script = String::new();
    for (at, path) in ["f", "d"].iter().enumerate() {
        let mut blocks = 1;
        for field in fields.split(';') {
            let (name, number) = field.split_once(' ').expect("a name and a number");
            let number = number.parse::<u64>().expect("a number") + 10 * at as u64;
            script += &format!("sif {path} {name} {number}\nsetb {number}\n");
            blocks += 1;
            if number % 10 == 9 {
                script += &format!("setb {}\n", number + 1);
                blocks += 1;
            }
        }
        script += &format!("sif {path} blocks {}\n", 2 * blocks);
        file.write_all_at(
            &(9000 + 10 * at as u32).to_le_bytes(),
            (8999 + 10 * at as u64) * BLOCK + 40,
        )
        .expect("it is written");
    }
    image.debugfs(&script);
    // Free blocks are counted again; that is all.
    let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
    tools::e2fsck(&image.path).expect("e2fsck has nothing to say of it");
    assert!(
        image.debugfs("stat f").contains(&format!("{}", 9000)),
        "{fields}: it is still there"
    );
    Some(image)
}

#[test]
fn empty_indirect_blocks_are_freed() {
    let write = |session: &Session| open(session, "/f", OpenFlags::WRITE, 0).expect("it is there");
    let changes: [NamedChange<'_>; 6] = [
        ("unlink", &|session| {
            session.unlink("/f").expect("it is there")
        }),
        ("rmdir", &|session| {
            session.rmdir("/d").expect("it is empty")
        }),
        ("rename over", &|session| {
            drop(open(session, "/g", OpenFlags::WRITE | OpenFlags::CREATE, 0o644).expect("a file"));
            session
                .rename("/g", "/f", RenameFlags::empty())
                .expect("it goes");
        }),
        ("truncate", &|session| {
            session
                .truncate("/f", 0, LookupFlags::FOLLOW)
                .expect("it can be cut")
        }),
        ("truncate to a block", &|session| {
            session
                .truncate("/f", BLOCK, LookupFlags::FOLLOW)
                .expect("it can be cut")
        }),
        ("punch", &|session| {
            session
                .truncate("/f", 1 << 31, LookupFlags::FOLLOW)
                .expect("it can be longer");
            write(session).fallocate(PUNCH, 0, 1 << 31).expect("a hole");
        }),
    ];
    for (name, fields) in EMPTY_INDIRECT {
        for (way, with) in &changes {
            let Some(image) = with_empty_indirect(fields) else {
                return;
            };
            let what = format!("{name}, {way}");
            change_soundly(&what, &image, with);
            if *way == "truncate" || *way == "punch" {
                let fs = walk::open(&image.path);
                let file = session(std::sync::Arc::new(fs) as _);
                assert_eq!(
                    file.stat("/f", LookupFlags::FOLLOW)
                        .expect("it is there")
                        .blocks,
                    0,
                    "{what}"
                );
            }
        }
    }
}

/// Makes the inode of the one large value of `/f` one as Lustre stored it.
fn as_lustre(image: &Image) {
    let stat = tools::debugfs(&image.path, false, "stat f");
    let after = |word: &str| -> u64 {
        let (_, rest) = stat.split_once(word).expect(word);
        rest.split_whitespace()
            .next()
            .expect("a number")
            .parse()
            .expect("a number")
    };
    let owner = after("Inode: ");
    let generation = after("Generation: ");
    let blocks = after("Blockcount: ");
    let value = owner + 1;
    // Its 5,000 bytes take ten sectors, which its owner does not count.
    image.debugfs(&format!(
        "sif <{value}> mtime @{owner}\nsif <{value}> generation {generation}\nsif <{value}> ctime @1400000000\n\
         sif <{value}> atime @1400000000\nsif <{value}> version 77\nsif f blocks {}\n",
        blocks - 10
    ));
    tools::e2fsck(&image.path).expect("e2fsck has nothing to say of it");
}

#[test]
fn values_in_inodes_as_lustre_stored_them_are_freed() {
    let fill = |root: &std::path::Path| {
        std::fs::write(root.join("f"), "f")?;
        let f = root.join("f");
        let run = |name: &str, value: &str| {
            tools::run(
                "setfattr",
                [
                    "-n".as_ref(),
                    name.as_ref(),
                    "-v".as_ref(),
                    value.as_ref(),
                    f.as_os_str(),
                ],
            );
        };
        run("user.large", &"7".repeat(5000));
        run("user.small", "8");
        Ok(())
    };
    let plans: &'static [extern4_testkit::image::Plan] =
        Box::leak(Box::new([fill as extern4_testkit::image::Plan]));
    let large: &[u8] = &[b'7'; 5000];
    let get = |session: &Session| session.get_xattr("/f", "user.large", LookupFlags::FOLLOW);
    let set = |session: &Session, value: &[u8]| {
        session
            .set_xattr(
                "/f",
                "user.large",
                value,
                XattrFlags::empty(),
                LookupFlags::FOLLOW,
            )
            .expect("there is room");
    };
    let changes: [NamedChange<'_>; 7] = [
        ("read", &|session| {
            assert_eq!(get(session).expect("it is read"), large)
        }),
        ("unlink", &|session| {
            session.unlink("/f").expect("it is there")
        }),
        ("remove", &|session| {
            session
                .remove_xattr("/f", "user.large", LookupFlags::FOLLOW)
                .expect("it is there")
        }),
        ("set", &|session| set(session, b"small")),
        ("set to as much", &|session| {
            set(session, &[b'9'; 5000]);
            assert_eq!(get(session).expect("it is read"), [b'9'; 5000]);
        }),
        ("set others", &|session| {
            let put = |name: &str, len: usize| {
                session.set_xattr(
                    "/f",
                    name,
                    &vec![1; len],
                    XattrFlags::empty(),
                    LookupFlags::FOLLOW,
                )
            };
            put("user.small", 3).expect("there is room");
            put("user.other", 300).expect("there is room");
            put("user.large-too", 4000).expect("there is room");
            assert_eq!(get(session).expect("it is read"), large);
            session
                .remove_xattr("/f", "user.large-too", LookupFlags::FOLLOW)
                .expect("it is there");
        }),
        ("the same value elsewhere", &|session| {
            assert_eq!(get(session).expect("it is read"), large);
            drop(open(session, "/g", OpenFlags::WRITE | OpenFlags::CREATE, 0o644).expect("a file"));
            session
                .set_xattr(
                    "/g",
                    "user.large",
                    large,
                    XattrFlags::empty(),
                    LookupFlags::FOLLOW,
                )
                .expect("room");
            session.unlink("/f").expect("it is there");
            let value = session.get_xattr("/g", "user.large", LookupFlags::FOLLOW);
            assert_eq!(value.expect("it is read"), large);
        }),
    ];
    // In the inode, and in a block.
    for mke2fs in [
        &["-t", "ext4", "-b", "1024", "-O", "ea_inode"][..],
        &["-t", "ext4", "-b", "1024", "-O", "ea_inode", "-I", "128"],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "ea_inode,^metadata_csum,^64bit",
        ],
    ] {
        let steps: &[Step] = &[Step::Run(as_lustre)];
        let spec = ImageSpec::new("lustre", 16 << 20, mke2fs)
            .mounted(plans)
            .then(steps)
            .needing(&[Need::Tool("setfattr")]);
        for (way, with) in &changes {
            if !spec.can_run() {
                return;
            }
            let image = spec.build();
            let what = format!("{mke2fs:?}, {way}");
            assert_eq!(faults(&image), [""; 0], "{what}");
            change_soundly(&what, &image, with);
            assert_eq!(faults(&image), [""; 0], "{what}");
        }
    }
}

/// Returns the offset of an inode's block map in the image.
fn map_of(image: &Image, path: &str) -> u64 {
    let found = tools::debugfs(&image.path, false, &format!("imap {path}"));
    let number = |word: &str| {
        let (_, rest) = found.split_once(word).expect(word);
        rest.split([',', '\n', ' '])
            .next()
            .expect("a number")
            .trim_start_matches("0x")
            .to_owned()
    };
    let block: u64 = number("at block ").parse().expect("a number");
    let offset = u64::from_str_radix(&number("offset "), 16).expect("a number");
    block * BLOCK + offset + 40
}

/// Puts nodes between the root of the tree of `/f`, which has one extent, and that extent, until
/// the root is `depth` above it.
fn deepen(image: &Image, depth: u16) {
    const FIRST_NODE: u64 = 5000;
    let map = map_of(image, "f");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&image.path)
        .expect("the image opens");
    let mut root = [0; 60];
    file.read_exact_at(&mut root, map).expect("it is read");
    let node = |depth: u16, max: u16, entry: &[u8]| {
        let mut bytes = Vec::new();
        [0xf30a, 1, max, depth, 0, 0]
            .iter()
            .for_each(|field: &u16| bytes.extend(field.to_le_bytes()));
        bytes.extend(entry);
        bytes
    };
    let mut entry = root[12..24].to_vec();
    let mut script = String::new();
    for level in 0..depth {
        let block = FIRST_NODE + u64::from(level);
        let mut bytes = node(level, 84, &entry);
        bytes.resize(BLOCK as usize, 0);
        file.write_all_at(&bytes, block * BLOCK)
            .expect("it is written");
        script += &format!("setb {block}\n");
        entry = [[0; 4], (block as u32).to_le_bytes(), [0; 4]].concat();
    }
    let mut root = node(depth, 4, &entry);
    root.resize(60, 0);
    file.write_all_at(&root, map).expect("it is written");
    image.debugfs(&format!("{script}sif f blocks {}\n", 2 * (1 + depth)));
    // Free blocks are counted again; nothing else is mended without a question.
    let _ = tools::try_run("e2fsck", ["-fp".as_ref(), image.path.as_os_str()]);
}

fn with_deep_tree(depth: u16) -> Option<Image> {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^metadata_csum,^uninit_bg",
    ];
    let spec = ImageSpec::new("deep", 16 << 20, mke2fs).mounted(&[|root| {
        ["f", "g"].iter().try_for_each(|name| {
            std::fs::write(root.join(name), &name[..usize::from(*name == "f")])
        })
    }]);
    spec.can_run().then(|| {
        let image = spec.build();
        deepen(&image, depth);
        image
    })
}

#[test]
fn a_tree_that_is_deeper_than_is_read_is_freed() {
    let changes: [NamedChange<'_>; 3] = [
        ("unlink", &|session| {
            session.unlink("/f").expect("it is there")
        }),
        ("truncate", &|session| {
            session
                .truncate("/f", 0, LookupFlags::FOLLOW)
                .expect("it can be cut")
        }),
        ("rename over", &|session| {
            session
                .rename("/g", "/f", RenameFlags::empty())
                .expect("it goes");
        }),
    ];
    for depth in [1, 5, 6, 7, 20] {
        for (way, with) in &changes {
            let Some(image) = with_deep_tree(depth) else {
                return;
            };
            let what = format!("{depth} deep, {way}");
            assert_eq!(faults(&image), [""; 0], "{what}");
            let fs = std::sync::Arc::new(walk::open(&image.path));
            let file = open(&session(fs as _), "/f", OpenFlags::READ, 0).expect("it opens");
            assert_eq!(file.read_at(&mut [0; 1], 0).is_ok(), depth <= 5, "{what}");
            drop(file);
            change_soundly(&what, &image, with);
        }
    }
}

#[test]
fn a_leaf_without_extents_is_freed() {
    for depth in [1, 2, 3] {
        let Some(image) = with_deep_tree(depth) else {
            return;
        };
        // The one extent becomes that of another file.
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&image.path)
            .expect("the image opens");
        let mut leaf = [0; 24];
        file.read_exact_at(&mut leaf, 5000 * BLOCK)
            .expect("it is read");
        leaf[4] = 4;
        let map = map_of(&image, "g");
        file.write_all_at(&leaf, map).expect("it is written");
        file.write_all_at(&[0; 2], 5000 * BLOCK + 2)
            .expect("it is written");
        image.debugfs(&format!(
            "sif g size 1\nsif g blocks 2\nsif f size 0\nsif f blocks {}\n",
            2 * depth
        ));
        change_soundly(&format!("{depth} deep"), &image, |session| {
            session.unlink("/f").expect("it is there")
        });
    }
}
