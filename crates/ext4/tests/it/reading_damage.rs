//! Damage that Linux mounts read-only: it is read, with a warning that names it.
//!
//! Source: mounts by Linux 6.18, of volumes with each of about 70 kinds of damage.

use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::sync::{Arc, Mutex};

use extern4_disk::superblock::{
    RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};
use extern4_disk::{Place, Structure};
use extern4_ext4::{Ext4, Listener, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{self, Need, can_run, e2fsck_complaints};
use extern4_vfs::{Errno, FileSystem, LookupFlags};

use crate::model::{self, session, try_open_for_writing};
use crate::walk;

const EXT4: ImageSpec = ImageSpec::new("ext4", 40 << 20, &["-t", "ext4", "-b", "1024"]);
const UNINIT: ImageSpec = ImageSpec::new(
    "uninit",
    40 << 20,
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
);
const MMP: ImageSpec = ImageSpec::new("mmp", 20 << 20, &["-t", "ext4", "-b", "1024", "-O", "mmp"]);
const QUOTA: ImageSpec = ImageSpec::new(
    "quota",
    20 << 20,
    &["-t", "ext4", "-b", "1024", "-O", "quota"],
);

/// Writes bytes at a place of the image.
fn poke(image: &Image, at: u64, bytes: &[u8]) {
    let file = std::fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("the image opens");
    file.write_all_at(bytes, at).expect("written");
}

/// Changes the superblock, whose checksum stays right.
fn superblock(image: &Image, change: impl FnOnce(&mut RawSuperblock)) {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let file = std::fs::File::open(&image.path).expect("the image opens");
    file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET)
        .expect("it is read");
    let mut sb =
        Superblock::decode(&bytes, Place::new(Structure::Superblock)).expect("it is right");
    change(sb.raw_mut());
    poke(image, SUPERBLOCK_OFFSET, &sb.encode());
}

/// The start of the descriptors: block 2.
const DESCRIPTORS: u64 = 2048;
const DESCRIPTOR: u64 = 64;

fn mmp_block(image: &Image) -> u64 {
    walk::open(&image.path)
        .superblock()
        .mmp_block()
        .expect("it is protected")
        * 1024
}

struct Case {
    name: &'static str,
    spec: ImageSpec,
    damage: fn(&Image),
    /// A part of the warning.
    warning: &'static str,
    /// Whether Linux reads it, too.
    linux: bool,
}

const CASES: [Case; 14] = [
    Case {
        name: "the checksum of the first descriptor",
        spec: EXT4,
        damage: |image| poke(image, DESCRIPTORS + 30, &[0xff, 0xff]),
        warning: "it is read as it stands, since a copy has the same places",
        linux: true,
    },
    Case {
        name: "the checksum of a later descriptor",
        spec: EXT4,
        damage: |image| poke(image, DESCRIPTORS + 2 * DESCRIPTOR + 30, &[0xff, 0xff]),
        warning: "group descriptor, group 2",
        linux: true,
    },
    Case {
        name: "a checksum of uninit_bg",
        spec: UNINIT,
        damage: |image| poke(image, DESCRIPTORS + 30, &[0xff, 0xff]),
        warning: "it is read as it stands",
        linux: true,
    },
    Case {
        name: "a descriptor that leads out of the volume",
        spec: EXT4,
        damage: |image| {
            drop(image.debugfs("set_bg 0 inode_table 99999999\nset_bg 0 checksum calc\n"))
        },
        warning: "its copy in block 8194 is read instead; --superblock 8193 reads",
        linux: false,
    },
    Case {
        name: "descriptors of zeroes",
        spec: EXT4,
        damage: |image| poke(image, DESCRIPTORS, &[0; 1024]),
        warning: "its copy in block 8194 is read instead",
        linux: false,
    },
    Case {
        name: "the checksum of the MMP block",
        spec: MMP,
        damage: |image| poke(image, mmp_block(image) + 1020, &[1, 2, 3, 4]),
        warning: "another host may be writing to the volume",
        linux: true,
    },
    Case {
        name: "an MMP block of zeroes",
        spec: MMP,
        damage: |image| poke(image, mmp_block(image), &[0; 1024]),
        warning: "bad magic number 0x0",
        linux: true,
    },
    Case {
        name: "an MMP block outside of the volume",
        spec: MMP,
        damage: |image| superblock(image, |raw| raw.s_mmp_block.set(1 << 40)),
        warning: "s_mmp_block has the impossible value",
        linux: true,
    },
    Case {
        name: "a quota inode beyond the volume's",
        spec: QUOTA,
        damage: |image| superblock(image, |raw| raw.s_usr_quota_inum.set(9_999_999)),
        warning: "s_usr_quota_inum has the impossible value 9999999",
        linux: true,
    },
    Case {
        name: "a quota inode that is reserved",
        spec: QUOTA,
        damage: |image| superblock(image, |raw| raw.s_grp_quota_inum.set(1)),
        warning: "s_grp_quota_inum has the impossible value 1; --superblock 8193 reads",
        linux: true,
    },
    Case {
        name: "more reserved blocks than blocks",
        spec: EXT4,
        damage: |image| superblock(image, |raw| raw.s_r_blocks_count_lo.set(99_999_999)),
        warning: "s_r_blocks_count has the impossible value",
        linux: true,
    },
    Case {
        name: "a revision of the future",
        spec: EXT4,
        damage: |image| superblock(image, |raw| raw.s_rev_level.set(2)),
        warning: "s_rev_level has the impossible value 2",
        linux: true,
    },
    Case {
        name: "reserved descriptor blocks without the feature",
        spec: EXT4,
        damage: |image| drop(image.debugfs("feature ^resize_inode\n")),
        warning: "s_reserved_gdt_blocks has the impossible value",
        linux: true,
    },
    Case {
        name: "an image that is a block short",
        spec: EXT4,
        damage: |image| {
            let file = std::fs::File::options()
                .write(true)
                .open(&image.path)
                .expect("the image opens");
            file.set_len((40 << 20) - 1024).expect("it is cut off");
        },
        warning: "the volume is cut off: it has 41943040 bytes",
        linux: false,
    },
];

#[test]
fn what_linux_reads_is_read_with_a_warning() {
    if !can_run(&[Need::Tool("mke2fs"), Need::Tool("debugfs")]) {
        return;
    }
    for Case {
        name,
        spec,
        damage,
        warning,
        linux,
    } in CASES
    {
        let image = spec.build();
        let host = image.scratch().join("contents");
        std::fs::write(&host, b"hello").expect("a file");
        image.debugfs(&format!("write {} f\nmkdir d\n", host.display()));
        damage(&image);
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = {
            let told = Arc::clone(&told);
            Listener::new(move |text| {
                told.lock()
                    .expect("no thread has failed")
                    .push(text.to_owned())
            })
        };
        let options = OpenOptions {
            on_warning: Some(listener),
            ..OpenOptions::default()
        };
        let fs = walk::open_with(&image.path, &options)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let fs = Arc::new(fs);
        let root = session(Arc::clone(&fs) as _);
        let file = root
            .stat("/f", LookupFlags::FOLLOW)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(file.size, 5, "{name}");
        fs.statfs()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let warnings = fs.warnings();
        assert!(
            warnings.iter().any(|text| text.contains(warning)),
            "{name}: {warnings:?}"
        );
        assert_eq!(
            *told.lock().expect("no thread has failed"),
            warnings,
            "{name}"
        );
        if can_run(&[Need::Mount]) {
            assert_eq!(image.try_mount("ro").is_ok(), linux, "{name}");
        }
    }
}

/// A volume that notes errors is written, and the note stays until a check has found nothing.
#[test]
fn a_volume_with_errors_is_written_with_a_warning() {
    if !EXT4.can_build() {
        return;
    }
    let image = EXT4.build();
    image.debugfs(
        "ssv state 3\nssv error_count 2\nssv first_error_time 20200102030405\nssv first_error_func f\n",
    );
    let fs = model::open_for_writing(&image.path);
    assert_eq!(
        fs.warnings(),
        ["errors are noted on this volume; fsck.extern4 or e2fsck checks it"]
    );
    fs.set_label(b"written").expect("a label");
    fs.close().expect("close");
    drop(fs);
    let fs = walk::open(&image.path);
    assert!(
        fs.superblock()
            .state()
            .contains(State::ERROR | State::VALID)
    );
    assert_eq!(
        (fs.superblock().error_count(), fs.superblock().label()),
        (2, &b"written"[..])
    );
    drop(fs);
    // A clean check clears the same bytes as e2fsck.
    let theirs = image.copy();
    let _ = tools::try_run("e2fsck", ["-fp".as_ref(), theirs.path.as_os_str()]);
    let fs = model::open_for_writing(&image.path);
    fs.note_sound().expect("noted");
    fs.close().expect("close");
    drop(fs);
    let raw = |image: &Image| {
        let mut raw = *walk::open(&image.path).superblock().raw();
        // Opening counts as a mount, after the check.
        for time in [&mut raw.s_mtime, &mut raw.s_wtime, &mut raw.s_lastcheck] {
            time.set(0);
        }
        raw.s_kbytes_written.set(0);
        raw.s_checksum.set(0);
        raw
    };
    assert_eq!(raw(&image), raw(&theirs));
    assert!(e2fsck_complaints(&image.path).is_empty());
}

/// Linux and e2fsck treat volumes of other systems as Linux's own, but for checksums of inodes and
/// the translators of Hurd.
#[test]
fn volumes_of_other_systems_are_written() {
    const SPEC: ImageSpec = ImageSpec::new("systems", 16 << 20, &["-t", "ext3", "-b", "1024"]);
    if !SPEC.can_build() {
        return;
    }
    // Masix, FreeBSD, Lites, and a number without a meaning.
    for system in [2, 3, 4, 9] {
        let image = SPEC.build();
        let host = image.scratch().join("contents");
        std::fs::write(&host, b"hello").expect("a file");
        image.debugfs(&format!(
            "ssv creator_os {system}\nwrite {} f\n",
            host.display()
        ));
        let fs = model::open_for_writing(&image.path);
        let root = session(Arc::clone(&fs) as _);
        root.chown("/f", Some(70_000), Some(80_000), LookupFlags::FOLLOW)
            .expect("an owner");
        root.mkdir("/made", 0o755).expect("a directory");
        drop(root);
        fs.close().expect("close");
        drop(fs);
        assert!(e2fsck_complaints(&image.path).is_empty(), "system {system}");
        let said = image.debugfs("stat f\n");
        assert!(
            said.contains("User: 70000   Group: 80000"),
            "system {system}: {said}"
        );
        if can_run(&[Need::Mount]) {
            let mount = image.mount("ro");
            let found = std::fs::metadata(mount.path.join("f")).expect("the file");
            assert_eq!(
                (found.uid(), found.gid()),
                (70_000, 80_000),
                "system {system}"
            );
        }
    }
    for (spec, system, why) in [(SPEC, 1, "GNU Hurd"), (EXT4, 3, "was not made for Linux")] {
        let image = spec.build();
        image.debugfs(&format!("ssv creator_os {system}\n"));
        let error = try_open_for_writing(&image.path)
            .map(drop)
            .expect_err("it is only read");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(error.errno(), Errno::EOPNOTSUPP);
        assert!(
            Ext4::open(
                Arc::new(model::device(&image.path)),
                &OpenOptions::default()
            )
            .is_ok()
        );
    }
}
