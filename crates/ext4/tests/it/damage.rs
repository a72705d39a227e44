//! Damage that a change meets: a half-done change is lost, and the volume's settings say whether
//! further changes are allowed. `set_aside` has the table of damaged groups.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use extern4_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use extern4_disk::{Place, Structure};
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::tools;
use extern4_vfs::*;

use crate::model::{Op, open_for_writing, run, session, try_open_for_writing};
use crate::walk;

/// Which bitmap of the first group is damaged.
enum Bitmap {
    Blocks,
    Inodes,
}

/// A volume of four groups, with a damaged bitmap of the first, and the bitmap's block.
fn damaged(journal: bool, policy: &str, which: &Bitmap) -> Option<(Image, u64)> {
    let plain: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
    let spec = ImageSpec::new(
        "damaged",
        32 << 20,
        if journal {
            &["-t", "ext4", "-b", "1024"]
        } else {
            plain
        },
    )
    .then(&[Step::Debugfs("write /dev/null old\n")]);
    if !spec.can_run() {
        return None;
    }
    let image = spec.build();
    tools::run(
        "tune2fs",
        ["-e".as_ref(), policy.as_ref(), image.path.as_os_str()],
    );
    let fs = walk::open(&image.path);
    let group = fs.group(0).expect("a descriptor");
    let bitmap = match which {
        Bitmap::Blocks => group.block_bitmap(),
        Bitmap::Inodes => group.inode_bitmap(),
    };
    let file = std::fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("the image opens");
    file.write_all_at(&[0xa5; 64], bitmap * 1024)
        .expect("it is written");
    Some((image, bitmap))
}

/// The damage noted in the superblock on the device: how often, and which block was the last.
fn noted(image: &Image) -> (u32, Option<u64>) {
    let fs = walk::open(&image.path);
    let sb = fs.superblock();
    assert!(sb.state().contains(State::ERROR));
    (sb.error_count(), sb.last_error().map(|error| error.block))
}

/// Mends a volume as `e2fsck` does, which finds nothing after that.
fn mend(image: &Image) {
    let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
    tools::e2fsck(&image.path).expect("nothing is wrong any more");
}

#[test]
fn damage_is_the_end_of_changes_where_the_volume_says_so() {
    for policy in ["remount-ro", "panic"] {
        for which in [Bitmap::Inodes, Bitmap::Blocks] {
            let Some((image, bitmap)) = damaged(true, policy, &which) else {
                return;
            };
            let fs = open_for_writing(&image.path);
            let root = session(Arc::clone(&fs) as _);
            root.symlink("long".repeat(200), "/d")
                .expect("the other groups have room");
            // Nothing can be changed any more, and what is there can be read.
            let refused = [
                root.chmod("/lost+found", 0o711, LookupFlags::FOLLOW),
                root.mkdir("/e", 0o755).map(drop),
                root.unlink("/d"),
            ];
            assert!(
                refused
                    .iter()
                    .all(|it| it.as_ref().is_err_and(|e| *e == Errno::EROFS)),
                "{refused:?}"
            );
            assert!(root.stat("/lost+found", LookupFlags::FOLLOW).is_ok());
            drop(root);
            fs.close().expect("what has been changed before is durable");
            drop(fs);
            assert_eq!(noted(&image), (1, Some(bitmap)), "{policy}");
            let fs = walk::open(&image.path);
            walk::resolve(&fs, "/d").expect("it was made durable");
            assert!(walk::resolve(&fs, "/e").is_err());
            drop(fs);
            mend(&image);
        }
    }
}

/// A file that was removed while it is open, and closed after the end of changes.
#[test]
fn a_removed_file_stays_an_orphan_where_damage_has_ended_changes() {
    let Some((image, _)) = damaged(true, "remount-ro", &Bitmap::Blocks) else {
        return;
    };
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    let open = crate::model::open(&root, "/old", OpenFlags::WRITE, 0).expect("it opens");
    root.unlink("/old").expect("nothing is damaged there");
    root.symlink("long".repeat(200), "/l")
        .expect("the other groups have room");
    drop((open, root));
    fs.close().expect("it is freed later");
    drop(fs);
    mend(&image);
}

/// A directory whose inode counts the maximum of blocks, and that needs one more: the change has
/// its block when it finds that.
fn overcounted(policy: &'static str) -> Option<Image> {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^metadata_csum,^huge_file",
    ];
    let spec = ImageSpec::new("overcounted", 32 << 20, mke2fs)
        .then(&[Step::Debugfs("mkdir d\nsif d blocks 0xfffffff8\n")]);
    if !spec.can_run() {
        return None;
    }
    let image = spec.build();
    tools::run(
        "tune2fs",
        ["-e".as_ref(), policy.as_ref(), image.path.as_os_str()],
    );
    Some(image)
}

/// Adds names to the directory until it needs another block.
fn overfill(root: &Session) -> Error {
    let name = |at| format!("/d/{at}-{}", "n".repeat(200));
    let added = (0..10).map(|at| root.mknod(name(at), NewKind::Fifo, 0o644).map(drop));
    added
        .collect::<Result<Vec<()>>>()
        .expect_err("it cannot be counted")
}

/// The log may hold a superblock without the error flag, and recovery overwrites the one that has
/// it.
#[test]
fn the_record_of_damage_outlives_recovery() {
    let Some(image) = overcounted("remount-ro") else {
        return;
    };
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    fs.set_label(b"before").expect("nothing is damaged there");
    fs.sync().expect("durable, and in the log");
    overfill(&root);
    drop((root, fs));
    // Written with a warning, a volume keeps the note.
    let assert_warned = || {
        let copy = image.copy();
        let fs = try_open_for_writing(&copy.path).expect("the volume opens");
        assert!(
            fs.warnings()
                .iter()
                .any(|text| text.starts_with("errors are noted")),
            "{:?}",
            fs.warnings()
        );
        fs.close().expect("close");
        drop(fs);
        assert!(
            walk::open(&copy.path)
                .superblock()
                .state()
                .contains(State::ERROR)
        );
    };
    assert_warned();
    // As if recovery had already written the log's superblock.
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&image.path)
        .expect("the image opens");
    let mut bytes = [0; SUPERBLOCK_SIZE];
    file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET)
        .expect("it is read");
    let mut sb =
        Superblock::decode(&bytes, Place::new(Structure::Superblock)).expect("it is right");
    assert!(sb.state().contains(State::ERROR));
    sb.raw_mut().s_state.set(State::VALID.bits());
    file.write_all_at(&sb.encode(), SUPERBLOCK_OFFSET)
        .expect("it is written");
    // The journal has the note, too.
    assert_warned();
    // e2fsck replays the log, and believes the journal.
    let _ = tools::try_run(
        "e2fsck",
        [
            "-y",
            "-E",
            "journal_only",
            image.path.to_str().expect("UTF-8"),
        ],
    );
    let facts = tools::run("dumpe2fs", ["-h".as_ref(), image.path.as_os_str()]);
    let facts = String::from_utf8_lossy(&facts);
    let has = |what: &str, value: &str| {
        facts.lines().any(|line| {
            line.split_once(':')
                .is_some_and(|it| it.0 == what && it.1.trim() == value)
        })
    };
    assert!(has("Filesystem volume name", "before"), "{facts}");
    assert!(has("Filesystem state", "clean with errors"), "{facts}");
}

#[test]
fn changes_pass_over_the_damage_where_the_volume_says_so() {
    for journal in [true, false] {
        let Some((image, bitmap)) = damaged(journal, "continue", &Bitmap::Inodes) else {
            return;
        };
        let fs = open_for_writing(&image.path);
        let root = session(Arc::clone(&fs) as _);
        for name in ["/f", "/g"] {
            root.mknod(name, NewKind::Regular, 0o644)
                .map(drop)
                .expect("the other groups have room");
        }
        root.chmod("/lost+found", 0o711, LookupFlags::FOLLOW)
            .expect("an undamaged inode can be changed");
        drop(root);
        fs.close().expect("close");
        let warnings = fs.warnings();
        assert!(
            matches!(&warnings[..], [one] if one.contains("inode bitmap, group 0")),
            "{warnings:?}"
        );
        drop(fs);
        // The damage was met once.
        assert_eq!(noted(&image), (1, Some(bitmap)));
        let fs = walk::open(&image.path);
        let found = walk::resolve(&fs, "/lost+found").expect("it is there");
        assert_eq!(found.attr().mode & 0o7777, 0o711, "it was made durable");
        walk::resolve(&fs, "/f").expect("it was made durable");
        drop(fs);
        mend(&image);
    }
}

#[test]
fn a_change_that_meets_damage_half_way_is_never_half_kept() {
    let Some(image) = overcounted("continue") else {
        return;
    };
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    fs.sync().expect("durable");
    // It has its inode and its block when it finds the damage.
    let error = overfill(&root);
    assert_eq!(error.errno(), Errno::EUCLEAN, "{error}");
    let refused = root
        .mknod("/f", NewKind::Regular, 0o644)
        .map(drop)
        .expect_err("it was given up");
    assert_eq!(refused, Errno::EROFS);
    drop(root);
    assert!(fs.close().is_err());
    drop(fs);
    assert_eq!(noted(&image).0, 1);
    assert!(walk::resolve(&walk::open(&image.path), "/f").is_err());
}

/// A group whose descriptor counts free blocks, and whose bitmap has none: nothing is promised.
#[test]
fn free_blocks_that_are_not_there_are_not_promised() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "^metadata_csum,^uninit_bg",
        "-e",
        "continue",
    ];
    let spec = ImageSpec::new("overpromised", 32 << 20, mke2fs);
    if !spec.can_run() {
        return;
    }
    for change in ["mkdir", "write", "symlink", "set_xattr"] {
        let image = spec.build();
        let bitmap = walk::open(&image.path)
            .group(0)
            .expect("a descriptor")
            .block_bitmap();
        let file = std::fs::File::options()
            .write(true)
            .open(&image.path)
            .expect("the image opens");
        file.write_all_at(&[0xff; 4096], bitmap * 4096)
            .expect("it is written");

        let fs = open_for_writing(&image.path);
        let root = session(Arc::clone(&fs) as _);
        root.mknod("/file", NewKind::Regular, 0o644)
            .expect("it takes no block");
        let long = "long".repeat(200);
        let done = match change {
            "mkdir" => root.mkdir("/d", 0o755).map(drop),
            "write" => run(&root, &Op::Write("/file".to_owned(), 0, 10)),
            "symlink" => root.symlink(&long, "/link").map(drop),
            _ => root.set_xattr(
                "/file",
                "user.a",
                long.as_bytes(),
                XattrFlags::empty(),
                LookupFlags::FOLLOW,
            ),
        };
        let error = done.expect_err("no block is free");
        assert_eq!(error.errno(), Errno::ENOSPC, "{change}");
        assert_eq!(fs.statfs().expect("statfs").blocks_free, 0);
        let warnings = fs.warnings();
        assert!(
            matches!(&warnings[..], [one] if one.contains("block bitmap, group 0")),
            "{warnings:?}"
        );
        root.chmod("/file", 0o600, LookupFlags::FOLLOW)
            .expect("it takes no block");
        drop(root);
        fs.close().expect("nothing was left half done");
        drop(fs);
        assert_eq!(noted(&image), (1, Some(bitmap)));
        mend(&image);
    }
}
