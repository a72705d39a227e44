//! Orphans: files without names that are still open. Their inodes form a list on the volume, linked
//! through the inodes themselves, so a thread that adds or removes one also changes its neighbours.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use extern4_block::MemoryDevice;
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools;
use extern4_vfs::*;

use crate::memory;
use crate::model::{open, open_for_writing, session};

const THREADS: u64 = 4;

/// A neighbour goes while one is being made: its record is written by two threads, of which the
/// maker is the first.
#[test]
fn files_without_names_are_made_and_freed_concurrently() {
    let spec = ImageSpec::new(
        "ext4",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    );
    if !spec.can_run() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(memory::bytes_of(&spec)));
    let fs = memory::open("files without names", &device);
    let session = session(Arc::clone(&fs) as _);
    let rounds = memory::number("EXTERN4_UNNAMED", 2000);
    std::thread::scope(|scope| {
        for kept in 0..THREADS {
            let session = &session;
            scope.spawn(move || {
                let mut files = VecDeque::new();
                for _ in 0..rounds {
                    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::TMPFILE;
                    files.push_back(
                        open(session, "/", flags, 0o600).expect("a file without a name"),
                    );
                    if files.len() as u64 > kept {
                        files.pop_front();
                    }
                }
            });
        }
    });
    drop(session);
    fs.close().expect("closed");
    memory::fsck("files without names", &device);
}

/// The last user of a removed file has its blocks freed, which must not happen to a volume that has
/// turned read-only.
#[test]
fn a_volume_with_a_removed_file_in_use_stays_writable() {
    let spec = ImageSpec::new(
        "ext4",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    );
    if !spec.can_run() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(memory::bytes_of(&spec)));
    let fs = memory::open("a removed file", &device);
    let session = session(Arc::clone(&fs) as _);
    let sb = Arc::clone(session.root().superblock());
    let free = || sb.statfs().expect("counts").files_free;
    let at_first = free();
    for large in [false, true] {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let file = open(&session, "/f", flags, 0o600).expect("a file");
        if large {
            file.write_at(&[7; 1 << 20], 0).expect("room");
        }
        drop(file);
        let file = open(&session, "/f", OpenFlags::READ, 0).expect("it is there");
        session.unlink("/f").expect("it is there");
        assert_eq!(
            sb.remount(true).map_err(|error| error.errno()),
            Err(Errno::EBUSY)
        );
        drop(file);
        assert_eq!(free(), at_first);
        sb.remount(true).expect("it is not in use");
        sb.remount(false).expect("it could be written");
        // One without users goes at once.
        drop(open(&session, "/f", flags, 0o600).expect("a file"));
        session.unlink("/f").expect("it is there");
        sb.remount(true).expect("it is not in use");
        sb.remount(false).expect("it could be written");
    }
    drop((session, sb));
    fs.close().expect("closed");
    memory::fsck("a removed file", &device);
}

const KINDS: [&[&str]; 2] = [
    &["-t", "ext4", "-J", "size=4"],
    &["-t", "ext4", "-O", "^has_journal"],
];

/// Lists of orphans that name an inode that cannot be one: a word of the warning, and commands for
/// `debugfs`.
const IMPOSSIBLE: [(&str, &str); 9] = [
    ("not in use", "ssv last_orphan 4000"),
    ("not in use", "ssv last_orphan 20"),
    ("not in use", "freei <13>;ssv last_orphan 13"),
    ("99999", "ssv last_orphan 99999"),
    ("inode 2", "ssv last_orphan 2"),
    ("inode 8", "ssv last_orphan 8"),
    (
        "99999",
        "unlink f;sif <12> links_count 0;sif <12> dtime 99999;ssv last_orphan 12",
    ),
    (
        "loop",
        "unlink f;unlink g;sif <12> links_count 0;sif <12> dtime 13;sif <13> links_count 0;sif <13> dtime 12;\
         ssv last_orphan 12",
    ),
    (
        "loop",
        "sif <12> dtime 13;sif <13> dtime 12;ssv last_orphan 12",
    ),
];

/// As Linux opens it. Orphans before the one that is impossible are freed.
#[test]
fn a_list_of_orphans_that_names_an_impossible_inode_ends_there() {
    for options in KINDS {
        for (wrong, script) in IMPOSSIBLE {
            let spec = ImageSpec::new("impossible orphans", 16 << 20, options);
            if !spec.can_run() {
                return;
            }
            let image = spec.build();
            let script = script.replace(';', "\n");
            image.debugfs(&format!(
                "write /etc/passwd f\nwrite /etc/passwd g\n{script}\n"
            ));
            let fs = open_for_writing(&image.path);
            let warnings = fs.warnings().join("\n");
            assert!(
                warnings.to_lowercase().contains(wrong),
                "{script}: {warnings}"
            );
            let session = session(fs.clone() as _);
            session.mkdir("/d", 0o755).expect("it can be changed");
            drop(session);
            fs.close().expect("it can be closed");
            drop(fs);
            if script.contains("freei") {
                // The bitmap has another number of free inodes than the descriptor, which is
                // damage.
                continue;
            }
            tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{script}: {e}"));
            let again = open_for_writing(&image.path);
            assert!(
                again.warnings().is_empty(),
                "{script}: {:?}",
                again.warnings()
            );
            again.close().expect("it can be closed");
        }
    }
}

/// Commands for `debugfs` that damage the file 12, which is then an orphan without or with a name.
const UNFREEABLE: [(&str, &str); 4] = [
    // The block holds no attributes.
    ("attributes", "sif f file_acl 1500"),
    ("map", "sif f block[1] 0x90004"),
    ("block beyond the volume", "sif f block[5] 0x7fffffff"),
    ("block of the volume's own", "sif f block[5] 40"),
];

/// It is taken off the list, so that the next opening does not meet it.
#[test]
fn an_orphan_that_cannot_be_freed_is_set_aside() {
    for options in KINDS {
        for (what, damage) in UNFREEABLE {
            for has_name in [false, true] {
                let spec = ImageSpec::new("set aside", 16 << 20, options);
                if !spec.can_build() {
                    return;
                }
                let image = spec.build();
                let remove = |name: &str, ino: u32| {
                    if has_name {
                        String::new()
                    } else {
                        format!("unlink {name}\nsif <{ino}> links_count 0\n")
                    }
                };
                // A file of 1 KiB blocks or larger ones, which is cut to nothing.
                image.debugfs(&format!(
                    "write /etc/passwd f\nwrite /etc/passwd g\n{damage}\nsif f size 0\nsif g size 0\n\
                     sif f dtime 13\nssv last_orphan 12\n{}{}",
                    remove("f", 12),
                    remove("g", 13),
                ));
                let what = format!("{options:?}, {what}, with a name: {has_name}");
                let fs = open_for_writing(&image.path);
                let warnings = fs.warnings();
                let is_cut = has_name && damage.contains("file_acl");
                assert_eq!(warnings.len(), usize::from(!is_cut), "{what}: {warnings:?}");
                assert!(
                    is_cut || warnings[0].starts_with("inode 12 "),
                    "{what}: {warnings:?}"
                );
                let root = session(Arc::clone(&fs) as _);
                root.mkdir("/d", 0o755)
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                if has_name {
                    // The other one has been cut.
                    assert_eq!(
                        root.stat("/g", LookupFlags::empty())
                            .expect("it is there")
                            .blocks,
                        0,
                        "{what}"
                    );
                }
                drop(root);
                fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
                drop(fs);
                let again = open_for_writing(&image.path);
                assert!(
                    !again.warnings().iter().any(|it| it.contains("inode 12")),
                    "{what}: {:?}",
                    again.warnings()
                );
                again.close().unwrap_or_else(|e| panic!("{what}: {e}"));
                drop(again);
                let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
                tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }
}

/// As Linux does, with a file of orphans: impossible orphans are passed over.
#[test]
fn a_file_of_orphans_that_names_impossible_inodes_is_emptied() {
    let spec = ImageSpec::new(
        "orphan file",
        16 << 20,
        &["-t", "ext4", "-O", "orphan_file,^metadata_csum"],
    );
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    image.debugfs("write /etc/passwd f\nwrite /etc/passwd g\nunlink f\nsif <13> links_count 0\n");
    tools::debugfs(&image.path, true, "feature orphan_present");
    let found = tools::debugfs(&image.path, false, "bmap <12> 0");
    let block: u64 = found
        .lines()
        .last()
        .and_then(|line| line.trim().parse().ok())
        .expect("a block");
    let file = std::fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("the image opens");
    let named: Vec<u8> = [99_999_u32, 13, 8, 20]
        .iter()
        .flat_map(|ino| ino.to_le_bytes())
        .collect();
    let block_size = u64::from(crate::walk::open(&image.path).superblock().block_size());
    file.write_all_at(&named, block * block_size)
        .expect("it is written");
    let fs = open_for_writing(&image.path);
    assert_eq!(fs.warnings().len(), 3, "{:?}", fs.warnings());
    fs.close().expect("it can be closed");
    drop(fs);
    tools::e2fsck(&image.path).expect("e2fsck has nothing to say of it");
}

/// Commands for `debugfs` that damage the orphan file, inode 12, and a word of the warning.
const DAMAGED_FILES: [(&str, &str); 6] = [
    ("i_mode", "sif <12> mode 0"),
    ("in use", "sif <12> links_count 0"),
    ("i_size", "sif <12> size 0x7fffffffffff"),
    ("hole", "sif <12> size 0x100000"),
    ("eh_depth", "sif <12> block[1] 0x90004"),
    ("outside", "sif <12> block[5] 0x7fffffff"),
];

/// Orphans that the file names in its sound blocks are freed all the same, and the file is written
/// nowhere else.
#[test]
fn a_damaged_orphan_file_is_passed_over() {
    for is_present in [false, true] {
        for (word, damage) in DAMAGED_FILES {
            let mke2fs = &["-t", "ext4", "-O", "orphan_file,^metadata_csum"];
            let spec = ImageSpec::new("damaged orphan file", 16 << 20, mke2fs);
            if !spec.can_build() {
                return;
            }
            let image = spec.build();
            image.debugfs(&format!("write /etc/passwd f\n{damage}\n"));
            if is_present {
                tools::debugfs(&image.path, true, "feature orphan_present");
            }
            let what = format!("{damage}, orphans present: {is_present}");
            for name in ["/d", "/e"] {
                let fs = open_for_writing(&image.path);
                let warnings = fs.warnings();
                let warning = warnings.iter().find(|it| it.contains("orphan file"));
                let warning = warning.unwrap_or_else(|| panic!("{what}: {warnings:?}"));
                assert!(warning.contains(word), "{what}: {warning}");
                let session = session(Arc::clone(&fs) as _);
                session
                    .mkdir(name, 0o755)
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                session
                    .unlink("/f")
                    .or_else(|_| session.stat("/d", LookupFlags::empty()).map(drop))
                    .expect("one is there");
                drop(session);
                fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
            tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }
}

/// A block of the orphan file whose checksum is wrong, behind one that names an orphan.
#[test]
fn the_sound_blocks_of_an_orphan_file_are_used() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "orphan_file,metadata_csum",
    ];
    let spec = ImageSpec::new("orphan file's block", 16 << 20, mke2fs);
    if !spec.can_build() {
        return;
    }
    let image = spec.build();
    // The kernel has no part in this: an orphan of the list is one of the file as well as possible.
    image.debugfs("write /etc/passwd f\n");
    tools::debugfs(&image.path, true, "feature orphan_present");
    let found = tools::debugfs(&image.path, false, "bmap <12> 1");
    let block: u64 = found
        .lines()
        .last()
        .and_then(|line| line.trim().parse().ok())
        .expect("a block");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&image.path)
        .expect("the image opens");
    file.write_all_at(&[1, 2, 3], block * 1024 + 1020)
        .expect("it is written");
    let before = std::fs::read(&image.path).expect("the image is read");
    let fs = open_for_writing(&image.path);
    assert_eq!(fs.warnings().len(), 1, "{:?}", fs.warnings());
    assert!(
        fs.warnings()[0].contains("orphan file") && fs.warnings()[0].contains("checksum"),
        "{:?}",
        fs.warnings()
    );
    fs.close().expect("it can be closed");
    drop(fs);
    let after = std::fs::read(&image.path).expect("the image is read");
    let at = block as usize * 1024;
    assert!(
        before[at..at + 1024] == after[at..at + 1024],
        "the block is as it was"
    );
    let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
    tools::e2fsck(&image.path).expect("e2fsck mends it");
}
