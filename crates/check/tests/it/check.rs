//! Whole volumes checked, and judged by `e2fsck -fn`: what it has nothing to say of is clean, and
//! what it complains of is reported.

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use extern4_check::{Fault, Options, Owner, Pass, Progress, Summary, Wrong, check};
use extern4_disk::Structure;
use extern4_disk::inode::RESIZE_INO;
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{self, e2fsck_complaints, find};
use extern4_testkit::{crash, plan, zoo};
use extern4_vfs::{Cred, LookupFlags, Namespace, Session, SuperBlock, SuperOptions, XattrFlags};

use crate::{open, open_for_writing};

/// The faults of the volume at `path`, or the reason why it cannot be opened.
pub(crate) fn faults(path: &Path, threads: usize) -> Result<(Vec<Fault>, Summary), String> {
    let fs = open(path).map_err(|e| e.to_string())?;
    let mut faults = Vec::new();
    let summary = check(
        &fs,
        &Options {
            threads,
            ..Options::default()
        },
        &mut |fault| faults.push(fault),
    )
    .map_err(|e| e.to_string())?;
    assert_eq!(summary.faults, faults.len() as u64);
    Ok((faults, summary))
}

#[track_caller]
fn assert_clean(name: &str, path: &Path) {
    let (faults, summary) = faults(path, 0).unwrap_or_else(|e| panic!("{name}: {e}"));
    let shown: Vec<String> = faults.iter().take(20).map(ToString::to_string).collect();
    assert!(shown.is_empty(), "{name}: {shown:#?}");
    assert!(
        summary.inodes_used > 0 && summary.directories > 0,
        "{name}: {summary:?}"
    );
}

/// Checks a volume, and ends the check at its `at`th progress. Returns all progress, and whether
/// the check came to its end.
fn watched(path: &Path, at: u64) -> (Vec<Progress>, bool) {
    let fs = open(path).expect("a volume");
    let calls = AtomicU64::new(0);
    let seen = Mutex::new(Vec::new());
    let watch = |progress: Progress| {
        seen.lock().expect("a list").push(progress);
        if calls.fetch_add(1, Ordering::Relaxed) == at {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let options = Options {
        threads: 1,
        watch: Some(&watch),
    };
    let mut faults = 0;
    let checked = check(&fs, &options, &mut |_| faults += 1);
    assert_eq!(faults, 0, "an interrupted check of a sound volume at {at}");
    (seen.into_inner().expect("a list"), checked.is_ok())
}

#[test]
fn a_check_tells_how_far_it_is_and_ends_on_demand() {
    let spec = zoo::spec("ext4_1k");
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let (all, is_whole) = watched(&image.path, u64::MAX);
    assert!(is_whole);
    for pass in [Pass::Inodes, Pass::Directories, Pass::Bitmaps] {
        let of_pass: Vec<_> = all
            .iter()
            .filter(|progress| progress.pass == pass)
            .collect();
        let done: Vec<_> = of_pass.iter().map(|progress| progress.done).collect();
        assert_eq!(
            done,
            (1..=of_pass.len() as u64).collect::<Vec<_>>(),
            "{pass:?}"
        );
        assert!(
            of_pass
                .iter()
                .all(|progress| progress.total == done.len() as u64)
                && !done.is_empty()
        );
    }
    for at in 0..all.len() as u64 {
        let (seen, is_whole) = watched(&image.path, at);
        assert!(!is_whole && seen.len() as u64 == at + 1, "{at}: {seen:?}");
    }
}

/// Every kind of map, directory, attribute and group, in images that are made quickly.
const NAMES: [&str; 16] = [
    "ext2_revision_0",
    "ext2_1k",
    "ext3_default",
    "ext4_default",
    "ext4_1k",
    "ext4_64k_hashed",
    "ext4_inode_128",
    "ext4_uninit_groups",
    "ext4_meta_bg",
    "ext4_sparse_super2",
    "ext4_bigalloc",
    "ext4_inline_data_1k",
    "ext4_ea_inode",
    "ext4_orphan_file",
    "ext4_casefold",
    "ext4_mmp",
];

#[test]
fn clean_images_have_no_faults() {
    for spec in NAMES
        .map(zoo::spec)
        .into_iter()
        .filter(|spec| spec.can_run())
    {
        assert_clean(spec.name, &spec.build().path);
    }
}

/// Images on which e2fsck reports faults and we do not. It calls every orphan of a volume without a
/// journal a fault, and cannot work without the external journal.
const OTHERWISE: [&str; 2] = ["ext4_orphans", "ext4_external_journal"];

#[test]
#[ignore = "builds every image of the zoo"]
fn every_image_is_judged_as_e2fsck_judges_it() {
    let mut failed = Vec::new();
    for spec in zoo::SPECS.iter().filter(|spec| spec.can_run()) {
        let image = spec.build();
        let ours = faults(&image.path, 0)
            .unwrap_or_else(|e| panic!("{}: {e}", spec.name))
            .0;
        let theirs = if OTHERWISE.contains(&spec.name) {
            Vec::new()
        } else {
            e2fsck_complaints(&image.path)
        };
        if ours.is_empty() != theirs.is_empty() {
            let shown: Vec<String> = ours.iter().take(8).map(ToString::to_string).collect();
            failed.push(format!(
                "{}: {shown:#?} but e2fsck says {theirs:#?}",
                spec.name
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn crashed_images_are_clean_through_their_journal() {
    for name in ["ordered", "revokes", "fast_commit"] {
        let spec = crash::spec(name);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let before = std::fs::read(&image.path).expect("the image is read");
        assert_clean(name, &image.path);
        assert!(
            faults(&image.path, 0)
                .expect("a volume")
                .1
                .replayed
                .is_some(),
            "{name}"
        );
        assert!(
            before == std::fs::read(&image.path).expect("the image is read"),
            "{name} was written"
        );
    }
}

/// A crash leaves inodes on the list of orphans: of a truncation, with blocks behind the size, and
/// of a directory that was removed while it was open. The next mount frees what is to go.
#[test]
fn orphans_of_a_crash_are_no_faults() {
    const SPEC: ImageSpec = ImageSpec::new("left_orphans", 16 << 20, &["-t", "ext4", "-b", "1024"]);
    if !SPEC.can_build() {
        return;
    }
    let image = SPEC.build();
    let host = image.scratch().join("contents");
    std::fs::write(&host, vec![b'x'; 200_000]).expect("a file");
    image.debugfs(&format!("write {} f\nmkdir d\n", host.display()));
    let state = |script: &str| {
        let crashed = image.copy();
        crashed.debugfs(script);
        let mended = crashed.copy();
        let preen = Command::new(find("e2fsck").expect("e2fsck"))
            .arg("-fp")
            .arg(&mended.path)
            .output();
        assert!(
            preen
                .expect("e2fsck runs")
                .status
                .code()
                .is_some_and(|code| code <= 1),
            "{script}"
        );
        assert!(e2fsck_complaints(&mended.path).is_empty(), "{script}");
        crashed
    };
    let truncated = "sif <12> size 5000\nsif <12> dtime 0\nssv last_orphan 12\n";
    let removed = "unlink d\nsif <13> links_count 0\nsif <13> size 0\nsif <13> dtime 0\nsif <2> links_count 3\n";
    assert_clean("a truncation under way", &state(truncated).path);
    assert_clean(
        "a directory removed while open",
        &state(&format!("{removed}ssv last_orphan 13\n")).path,
    );
    let both = format!("{removed}{truncated}sif <12> dtime 13\n");
    assert_clean("both", &state(&both).path);
    // Without the list, these are faults.
    for script in ["sif <12> size 5000\n", removed] {
        let broken = image.copy();
        broken.debugfs(script);
        assert!(
            !faults(&broken.path, 1).expect("a volume").0.is_empty(),
            "{script}"
        );
    }
}

/// The totals of a volume without a journal are hints, too, until it is unmounted.
#[test]
fn totals_of_a_volume_in_use_may_be_wrong() {
    const SPEC: ImageSpec = ImageSpec::new("ext2", 16 << 20, &["-t", "ext2"]);
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    image.debugfs("set_super_value free_blocks_count 7\nset_super_value free_inodes_count 7\n");
    assert_eq!(
        faults(&image.path, 1).expect("a volume").0.len(),
        2,
        "it was unmounted"
    );
    image.debugfs("set_super_value state 0\n");
    assert_clean("not unmounted", &image.path);
}

/// There are ten reserved inodes, and eight inodes a group.
#[test]
fn reserved_inodes_may_be_in_several_groups() {
    const SPEC: ImageSpec = ImageSpec::new(
        "few_inodes",
        48 << 20,
        &["-t", "ext4", "-b", "1024", "-N", "16"],
    )
    .mounted(&[plan::small_files]);
    if !SPEC.can_run() {
        return;
    }
    assert_clean(SPEC.name, &SPEC.build().path);
}

/// The quota files of a volume that we have written to are right for every owner, and the check
/// finds each kind of damage to them.
#[test]
fn quota_files_are_checked() {
    const SPEC: ImageSpec = ImageSpec::new(
        "quota",
        32 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "quota,project,ea_inode",
            "-E",
            "quotatype=usrquota:grpquota:prjquota",
        ],
    );
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let fs = Arc::new(open_for_writing(&image.path).expect("a volume"));
    let superblock =
        SuperBlock::new(Arc::clone(&fs) as _, SuperOptions::default()).expect("a root");
    let root = Session::new(&Namespace::new(superblock), Cred::root());
    for uid in [0_u32, 7, 1000, 70_000] {
        for number in 0..3 {
            let path = format!("/{uid}.{number}");
            root.mkdir(&path, 0o755).expect("a directory");
            root.chown(&path, Some(uid), Some(uid / 2), LookupFlags::FOLLOW)
                .expect("an owner");
            let value = vec![b'v'; 500 + 10_000 * number];
            root.set_xattr(
                &path,
                b"user.v",
                &value,
                XattrFlags::empty(),
                LookupFlags::FOLLOW,
            )
            .expect("an attribute");
        }
    }
    drop(root);
    fs.close().expect("closed");
    drop(fs);
    assert_clean("quota", &image.path);
    // The users' file, block by block, found by what it begins with.
    let sound = std::fs::read(&image.path).expect("the image");
    let magic = 0xd9c0_1f11_u32.to_le_bytes();
    let head = sound
        .chunks(1024)
        .position(|block| block.starts_with(&magic))
        .expect("a quota file")
        * 1024;
    // mke2fs has put its first blocks one behind the other: the superuser's entry is the first of
    // the first leaf.
    let reference = |at: usize| usize::from(sound[at]) * 1024 + head;
    let leaf = (0..4).fold(head + 1024, |at, _| reference(at));
    let damages: [(&str, usize, &[u8], &str); 6] = [
        ("magic", head, &[0], "bad magic number"),
        (
            "root",
            head + 1024,
            &[0; 1024],
            "user 1000 has files, but no entry",
        ),
        ("space", leaf + 16 + 48, &[1, 2], "user 0 has"),
        (
            "inodes",
            leaf + 16 + 24,
            &[99],
            "inodes, but 99 are counted",
        ),
        ("reference", head + 1024, &[0xff; 4], "tree reference"),
        (
            "loop",
            head + 1024 + 4,
            &sound[head + 1024..head + 1028],
            "loop",
        ),
    ];
    for (what, at, bytes, says) in damages {
        let mut hurt = sound.clone();
        hurt[at..at + bytes.len()].copy_from_slice(bytes);
        let copy = image.copy();
        std::fs::write(&copy.path, hurt).expect("the image is written");
        let found = faults(&copy.path, 2).expect("a volume").0;
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(
            shown.iter().any(|fault| fault.contains(says)),
            "{what}: {shown:#?}"
        );
        assert!(
            found
                .iter()
                .all(|fault| fault.place.structure == Structure::Quota),
            "{what}: {shown:#?}"
        );
    }
}

/// Small files, an indexed directory, links of both kinds, devices, attributes and ACLs.
const FULL: &[extern4_testkit::image::Plan] = &[
    plan::small_files,
    plan::small_crowd,
    plan::symlinks,
    plan::devices,
    plan::many_links,
    plan::xattrs,
    plan::access_lists,
    plan::fragmented,
];

const BASES: [ImageSpec; 5] = [
    ImageSpec::new("damage_ext4", 32 << 20, &["-t", "ext4", "-b", "1024"]).mounted(FULL),
    ImageSpec::new("damage_ext2", 32 << 20, &["-t", "ext2", "-b", "1024"]).mounted(FULL),
    ImageSpec::new(
        "damage_uninit_bg",
        32 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "uninit_bg,^metadata_csum"],
    )
    .mounted(FULL),
    ImageSpec::new(
        "damage_bigalloc",
        64 << 20,
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
    )
    .mounted(FULL),
    ImageSpec::new(
        "damage_inline",
        32 << 20,
        &["-t", "ext4", "-b", "4096", "-O", "inline_data"],
    )
    .mounted(FULL),
];

/// Scripts of debugfs, each of which breaks something.
const DAMAGES: &[&str] = &[
    "sif /files/100-bytes links_count 5",
    "sif /files/1000-bytes blocks 77",
    "sif /files/1000-bytes size 0x7000000000000000",
    "sif /files/100-bytes mode 0140644",
    "sif /files/100-bytes dtime 5",
    "sif /files/100-bytes flags 0x40000000",
    "sif /files/1000-bytes block[0] 3",
    "sif /files/1000-bytes file_acl 777777",
    "sif /files/1000-bytes file_acl 3",
    "sif /files size 5000",
    "sif /files size 0x100000400",
    "sif /files size 0x100001000",
    "sif /files file_acl 0x100000000",
    "sif /files links_count 1",
    "sif /files generation 99",
    "clri /files/100-bytes",
    "clri /files",
    "unlink /files/100-bytes",
    "ln /files/100-bytes /second",
    "ln /files /second",
    "ln /files /files/loop",
    "freei /files/100-bytes",
    "seti <500>",
    "freeb 1 3",
    "setb 7000 2",
    "set_bg 0 free_blocks_count 3\nset_bg 0 checksum calc",
    "set_bg 0 free_inodes_count 3\nset_bg 0 checksum calc",
    "set_bg 0 used_dirs_count 9\nset_bg 0 checksum calc",
    "set_bg 0 block_bitmap 5\nset_bg 0 checksum calc",
    "set_bg 0 inode_table 9\nset_bg 0 checksum calc",
    "ssv free_blocks_count 7",
    "ssv free_inodes_count 7",
    "ssv last_orphan 3",
    "ssv journal_inum 0",
    "ssv inodes_count 7",
];

#[test]
fn faults_that_e2fsck_reports_are_reported() {
    let mut failed = Vec::new();
    for base in BASES.iter().filter(|base| base.can_run()) {
        let image = base.build();
        assert_clean(base.name, &image.path);
        for damage in DAMAGES {
            let broken = image.copy();
            // Not every image has everything that is to be broken.
            if std::panic::catch_unwind(|| drop(broken.debugfs(&format!("{damage}\n")))).is_ok() {
                judge(&format!("{}: {damage}", base.name), &broken, &mut failed);
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn judge(name: &str, broken: &Image, failed: &mut Vec<String>) {
    let theirs = e2fsck_complaints(&broken.path);
    let ours = faults(&broken.path, 2);
    if !theirs.is_empty() && matches!(&ours, Ok((faults, _)) if faults.is_empty()) {
        failed.push(format!("{name}: nothing, but e2fsck says {theirs:#?}"));
    }
}

/// Bytes of metadata blocks changed one by one: all of them are noticed, because all are under
/// checksums.
#[test]
fn no_byte_under_a_checksum_can_change() {
    let base = &BASES[0];
    if !base.can_run() {
        return;
    }
    let image = base.build();
    let fs = open(&image.path).expect("a volume");
    let group = fs.group(0).expect("a group");
    let block_size = u64::from(fs.superblock().block_size());
    // Both bitmaps, and the inodes of the root directory and of the journal.
    let table = group.inode_table() * block_size;
    let size = u64::from(fs.superblock().inode_size());
    let starts = [
        group.block_bitmap() * block_size,
        group.inode_bitmap() * block_size,
        table + size,
        table + 7 * size,
    ];
    for start in starts {
        for at in [0u64, 1, 28, 100, 127] {
            let broken = image.copy();
            let mut bytes = std::fs::read(&broken.path).expect("the image is read");
            bytes[usize::try_from(start + at).expect("a small image")] ^= 0x10;
            std::fs::write(&broken.path, bytes).expect("the image is written");
            let found = faults(&broken.path, 2);
            assert!(
                !matches!(found, Ok((faults, _)) if faults.is_empty()),
                "byte {at} behind {start}"
            );
        }
    }
}

#[test]
fn a_block_with_two_owners_is_reported_with_both() {
    let base = &BASES[1];
    if !base.can_run() {
        return;
    }
    let image = base.build();
    let ino = |path: &str| -> u32 {
        let text = image.debugfs(&format!("stat {path}\n"));
        let number = text
            .split("Inode: ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .expect("a number")
    };
    let first = ino("/files/12287-bytes");
    let second = ino("/files/12288-bytes");
    let block = image.debugfs("bmap /files/12287-bytes 1\n");
    let block: u64 = block
        .trim()
        .lines()
        .last()
        .and_then(|line| line.trim().parse().ok())
        .expect("a block");
    // A file, and the inode that keeps room for the descriptors to grow: most of what that has is
    // claimed already.
    for (other, index) in [(second, "1"), (RESIZE_INO, "0")] {
        let broken = image.copy();
        broken.debugfs(&format!("sif <{other}> block[{index}] {block}\n"));
        let (faults, _) = faults(&broken.path, 2).expect("a volume");
        let shared = faults.iter().find_map(|fault| match &fault.wrong {
            Wrong::Claimed {
                start,
                len,
                first,
                second,
            } => Some((*start, *len, *first, *second)),
            _ => None,
        });
        let shared = shared.map(|(start, len, first, second)| (start, len, [first, second]));
        assert!(
            [[first, other], [other, first]]
                .iter()
                .any(|owners| shared == Some((block, 1, owners.map(Owner::Inode)))),
            "{faults:?}"
        );
    }
}

/// Switches `shared_blocks` on or off, on a volume without checksums.
fn toggle_shared_blocks(image: &Image) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&image.path)
        .expect("the image");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1024 + 0x65).expect("read");
    file.write_all_at(&[byte[0] ^ 0x40], 1024 + 0x65)
        .expect("written");
}

/// Android's images store equal blocks once (`shared_blocks`): files' contents, their maps and
/// attribute blocks.
#[test]
fn blocks_that_files_may_share_are_no_fault() {
    const SPEC: ImageSpec = ImageSpec::new(
        "shared_blocks",
        16 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "^has_journal,^resize_inode,^metadata_csum,^uninit_bg,^extent,^64bit",
        ],
    );
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let host = image.scratch().join("contents");
    let contents: Vec<u8> = (0..20 * 4096_u32).map(|at| (at / 4096 + 1) as u8).collect();
    std::fs::write(&host, &contents).expect("a file");
    let write = |name: &str| format!("write {} {name}\n", host.display());
    let value = "v".repeat(2000);
    image.debugfs(
        &(write("one") + &write("two") + "mkdir dir\n" + &format!("ea_set one user.v {value}\n")),
    );
    let number = |script: &str| -> u64 {
        let text = image.debugfs(script);
        text.trim()
            .lines()
            .last()
            .and_then(|line| line.trim().parse().ok())
            .expect("a number")
    };
    let data = number("bmap one 0\n");
    let of = |name: &str| -> String { image.debugfs(&format!("stat {name}\n")) };
    let field = |text: &str, name: &str| -> u64 {
        let rest = text.split(name).nth(1).expect("the field").trim_start();
        rest.split(|c: char| !c.is_ascii_digit())
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number")
    };
    let attributes = field(&of("one"), "File ACL:");
    let map = field(&of("one"), "(IND):");
    let directory = number("bmap dir 0\n");
    let fs = open(&image.path).expect("a volume");
    let table = fs.group(0).expect("a group").inode_table();
    drop(fs);
    // The blocks that `two` shares, and whether that is sound. Linux refuses to read a file that
    // has fixed metadata.
    for (what, script, is_sound) in [
        ("data", format!("sif two block[0] {data}\n"), true),
        (
            "data with itself",
            format!("sif two block[1] {data}\nsif two block[2] {data}\n"),
            true,
        ),
        (
            "an attribute block",
            format!("sif two block[3] {attributes}\n"),
            true,
        ),
        (
            "a directory",
            format!("sif two block[3] {directory}\n"),
            true,
        ),
        ("a map", format!("sif two block[IND] {map}\n"), true),
        (
            "fixed metadata",
            format!("sif two block[3] {table}\n"),
            false,
        ),
    ] {
        let shared = image.copy();
        shared.debugfs(&script);
        toggle_shared_blocks(&shared);
        // The blocks that `two` had are free now.
        let free = Command::new(find("e2fsck").expect("e2fsck"))
            .arg("-fy")
            .arg(&shared.path)
            .output();
        assert!(free.is_ok());
        assert!(e2fsck_complaints(&shared.path).is_empty(), "{what}");
        let found = faults(&shared.path, 2).expect("a volume").0;
        assert_eq!(found.is_empty(), is_sound, "{what}: {found:?}");
        let refused = open_for_writing(&shared.path)
            .map(drop)
            .expect_err("files share blocks");
        assert!(
            refused.to_string().contains("shared_blocks"),
            "{what}: {refused}"
        );
        // Without the feature, blocks of two files are a fault.
        toggle_shared_blocks(&shared);
        assert!(
            !faults(&shared.path, 2).expect("a volume").0.is_empty(),
            "{what}"
        );
    }
}

#[test]
fn an_error_that_the_journal_notes_is_reported_as_such() {
    let spec = ImageSpec::new("noted", 16 << 20, &["-t", "ext3", "-b", "1024"]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let block = image.debugfs("bmap <8> 0\n");
    let block: u64 = block
        .trim()
        .lines()
        .last()
        .and_then(|line| line.trim().parse().ok())
        .expect("a block");
    // `s_errno` stands 0x20 bytes into the journal's superblock.
    let file = std::fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("the image");
    file.write_all_at(&(-5_i32).to_be_bytes(), block * 1024 + 0x20)
        .expect("an I/O error that is noted");
    let (faults, summary) = faults(&image.path, 1).expect("a volume");
    assert!(
        faults.is_empty(),
        "e2fsck -fn has nothing to say, either: {faults:?}"
    );
    assert_eq!(
        summary.noted,
        Some("something could not be read or written")
    );
}

/// Without the feature `resize_inode`, `e2fsck` frees the reserved blocks, and leaves their number
/// in the backups.
#[test]
fn sound_backups_that_are_older_are_counted() {
    let spec = ImageSpec::new("old_backups", 40 << 20, &["-t", "ext4", "-b", "1024"]);
    if !spec.can_build() {
        return;
    }
    let image = spec.build();
    assert_eq!(faults(&image.path, 1).expect("a volume").1.old_copies, 0);
    tools::run(
        "tune2fs",
        [
            "-O".as_ref(),
            "^resize_inode".as_ref(),
            image.path.as_os_str(),
        ],
    );
    // Its status says that it has corrected something.
    let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
    assert!(e2fsck_complaints(&image.path).is_empty());
    let (faults, summary) = faults(&image.path, 1).expect("a volume");
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!(summary.old_copies, 2);
}

#[test]
fn errors_that_the_superblock_notes_are_no_faults() {
    let spec = ImageSpec::new("noted_errors", 16 << 20, &["-t", "ext4", "-b", "1024"]);
    if !spec.can_build() {
        return;
    }
    let image = spec.build();
    assert_eq!(faults(&image.path, 1).expect("a volume").1.errors, None);
    image.debugfs(
        "ssv state 3\nssv error_count 2\nssv last_error_time 20210102030405\nssv last_error_ino 12\n",
    );
    assert!(e2fsck_complaints(&image.path).is_empty());
    let (faults, summary) = faults(&image.path, 1).expect("a volume");
    assert!(faults.is_empty(), "{faults:?}");
    let errors = summary.errors.expect("errors are noted");
    assert_eq!((errors.count, errors.first), (2, None));
    assert_eq!(
        errors.last.map(|error| (error.time, error.ino)),
        Some((1_609_556_645, 12))
    );
}

/// Superblocks, descriptors and inode tables cannot move: e2fsck leaves bad blocks in them, and
/// only wants to move bitmaps.
#[test]
fn bad_blocks_may_be_in_fixed_metadata() {
    let spec = ImageSpec::new("bad_blocks", 20 << 20, &["-t", "ext4", "-b", "1024"]);
    if !spec.can_build() {
        return;
    }
    let image = spec.build();
    let fs = open(&image.path).expect("a volume");
    let group = *fs.group(0).expect("a group");
    drop(fs);
    let table = group.inode_table();
    for (what, block, is_sound) in [
        ("a free block", 5000, true),
        ("the inode table", table + 100, true),
        ("the start of the inode table", table + 3, true),
        ("a backup of the superblock", 8193, true),
        ("a backup of the descriptors", 8194, true),
        ("the block bitmap", group.block_bitmap(), false),
        ("the inode bitmap", group.inode_bitmap(), false),
    ] {
        let listed = image.copy();
        listed.debugfs(&format!(
            "sif <1> block[0] {block}\nsif <1> size 1024\nsif <1> blocks 2\n"
        ));
        if what == "a free block" {
            listed.debugfs(&format!("setb {block}\n"));
            let _ = tools::try_run("e2fsck", ["-fy".as_ref(), listed.path.as_os_str()]);
        }
        let complaints = e2fsck_complaints(&listed.path);
        let found = faults(&listed.path, 1).expect("a volume").0;
        assert_eq!(complaints.is_empty(), is_sound, "{what}: {complaints:?}");
        assert_eq!(found.is_empty(), is_sound, "{what}: {found:?}");
    }
}

/// Linux refuses such volumes, and the writer does without the file.
#[test]
fn an_orphan_file_of_impossible_size_or_with_a_hole_is_a_fault() {
    let spec = ImageSpec::new(
        "orphan_file",
        16 << 20,
        &["-t", "ext4", "-b", "4096", "-O", "orphan_file"],
    );
    if !spec.can_build() {
        return;
    }
    let image = spec.build();
    let fs = open(&image.path).expect("a volume");
    let ino = fs.superblock().orphan_file_inode().expect("an orphan file");
    drop(fs);
    for (what, script) in [
        (
            "a size beyond the volume",
            format!("sif <{ino}> size 0x10000000000\n"),
        ),
        ("a hole at the end", format!("sif <{ino}> size 0x100000\n")),
        ("a hole at the start", format!("punch <{ino}> 0 1\n")),
    ] {
        let broken = image.copy();
        broken.debugfs(&script);
        let found = faults(&broken.path, 1).expect("a volume").0;
        assert!(
            found
                .iter()
                .any(|fault| fault.place.structure == Structure::Orphan),
            "{what}: {found:?}"
        );
        let fs = open_for_writing(&broken.path).expect("the volume opens");
        assert!(
            !fs.warnings().is_empty(),
            "{what}: the writer does without the file"
        );
    }
}

#[test]
fn backups_that_were_never_written_are_no_faults() {
    let spec = ImageSpec::new("no_backups", 32 << 20, &["-t", "ext4", "-b", "1024"]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    // The superblock and the first block of descriptors; genext2fs leaves them so.
    let file = std::fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("the image");
    file.write_all_at(&[0; 2048], 8193 * 1024).expect("written");
    assert_clean("backups of zeroes", &image.path);
    assert!(e2fsck_complaints(&image.path).is_empty());
    file.write_all_at(&[7; 2048], 8193 * 1024).expect("written");
    assert!(!faults(&image.path, 1).expect("a volume").0.is_empty());
}

#[test]
fn directory_entries_may_lack_a_type() {
    let spec = ImageSpec::new(
        "no_types",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
    );
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    image.debugfs("mkdir typed\n");
    let mut bytes = std::fs::read(&image.path).expect("the image is read");
    let entry = bytes
        .windows(7)
        .position(|at| at == b"\x05\x02typed")
        .expect("the entry");
    for (kind, is_clean) in [(0, true), (1, false)] {
        bytes[entry + 1] = kind;
        std::fs::write(&image.path, &bytes).expect("the image is written");
        assert_eq!(
            faults(&image.path, 1).expect("a volume").0.is_empty(),
            is_clean,
            "type {kind}"
        );
        let complaints = e2fsck_complaints(&image.path);
        assert_eq!(
            complaints.is_empty(),
            is_clean,
            "type {kind}: {complaints:?}"
        );
    }
}

#[test]
fn the_journal_inode_is_empty_without_a_journal() {
    let spec = ImageSpec::new("left_journal", 16 << 20, &["-t", "ext3", "-b", "1024"]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    image.debugfs("feature ^has_journal\nssv journal_inum 0\n");
    let said: Vec<String> = faults(&image.path, 1)
        .expect("a volume")
        .0
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        said,
        ["inode, inode 8: the inode of the journal has contents, but the volume has no journal"]
    );
    assert!(
        e2fsck_complaints(&image.path)[0]
            .contains("Journal inode is not in use, but contains data.")
    );
}

#[test]
fn faults_come_with_their_place_and_in_one_order() {
    let base = &BASES[0];
    if !base.can_run() {
        return;
    }
    let image = base.build();
    image.debugfs("sif /files/100-bytes links_count 5\nclri /files/1-bytes\nsetb 7000 2\n");
    let show = |threads| -> Vec<String> {
        faults(&image.path, threads)
            .expect("a volume")
            .0
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let one = show(1);
    assert_eq!(one, show(4));
    let (faults, _) = faults(&image.path, 1).expect("a volume");
    let has = |structure| {
        faults
            .iter()
            .any(|fault| fault.place.structure == structure)
    };
    assert!(
        has(Structure::Inode) && has(Structure::DirectoryBlock) && has(Structure::BlockBitmap),
        "{one:#?}"
    );
}
