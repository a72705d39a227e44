//! Quotas. After every operation on a volume, `e2fsck`, which counts again what each owner has,
//! agrees with the volume's quota files. An operation that would exceed a user's limit fails before
//! anything changes.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use extern4_ext4::quota::{Grace, Kind, Limits};
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::tools;
use extern4_vfs::*;

use crate::model::{
    ALL_QUOTAS, Habits, Op, Random, data, judge, op, open, open_for_writing, open_for_writing_with,
    run, session,
};
use crate::{memory, walk};

/// A directory for all users, and one whose files belong to project 77.
const PLACES: &[Step] = &[
    Step::Debugfs(
        "mkdir open\nset_inode_field open mode 040777\nmkdir project\nset_inode_field project mode 040777\n\
         set_inode_field project projid 77\nset_inode_field project flags 0x20080000\n",
    ),
    Step::E2fsck(&[]),
];

const PLACES_WITHOUT_PROJECT: &[Step] = &[
    Step::Debugfs(
        "mkdir open\nset_inode_field open mode 040777\nmkdir project\nset_inode_field project mode 040777\n",
    ),
    Step::E2fsck(&[]),
];

const SMALL: &[&str] = &[
    "-t",
    "ext4",
    "-b",
    "1024",
    "-O",
    "quota,project",
    "-E",
    ALL_QUOTAS,
];
const LARGE: &[&str] = &[
    "-t",
    "ext4",
    "-b",
    "4096",
    "-O",
    "quota,project,ea_inode",
    "-E",
    ALL_QUOTAS,
];
const INLINE: &[&str] = &[
    "-t",
    "ext4",
    "-b",
    "1024",
    "-O",
    "quota,project,inline_data",
    "-E",
    ALL_QUOTAS,
];
const OLD: &[&str] = &[
    "-t",
    "ext3",
    "-b",
    "1024",
    "-O",
    "quota",
    "-E",
    "quotatype=usrquota:grpquota",
];

fn spec(name: &'static str, mke2fs: &'static [&'static str]) -> ImageSpec {
    ImageSpec::new(name, 32 << 20, mke2fs).then(PLACES)
}

/// The operation in one of the two directories, by its number.
fn moved(op: Op, at: usize) -> Op {
    let to = |path: String| {
        format!(
            "/{}{path}",
            if at.is_multiple_of(3) {
                "project"
            } else {
                "open"
            }
        )
    };
    match op {
        Op::Create(path, mode) => Op::Create(to(path), mode),
        Op::Mkdir(path, mode) => Op::Mkdir(to(path), mode),
        Op::Symlink(target, path) => Op::Symlink(target, to(path)),
        Op::Rename(from, into, flags) => Op::Rename(to(from), to(into), flags),
        Op::Link(from, into) => Op::Link(to(from), to(into)),
        Op::Unlink(path) => Op::Unlink(to(path)),
        Op::Rmdir(path) => Op::Rmdir(to(path)),
        Op::Write(path, offset, len) => Op::Write(to(path), offset, len),
        Op::Append(path, len) => Op::Append(to(path), len),
        Op::Truncate(path, size) => Op::Truncate(to(path), size),
        Op::Fallocate(path, mode, offset, len) => Op::Fallocate(to(path), mode, offset, len),
        Op::Chown(path, uid, gid) => Op::Chown(to(path), uid % 40, gid % 7),
        Op::SetXattr(path, name, len, flags) => Op::SetXattr(to(path), name, len, flags),
        Op::RemoveXattr(path, name) => Op::RemoveXattr(to(path), name),
        Op::SetAcl(path, kind, perm) => Op::SetAcl(to(path), kind, perm),
        Op::WriteUnlinked(path, len) => Op::WriteUnlinked(to(path), len),
        Op::Tmpfile(_, Some(path)) => Op::Tmpfile(to(String::new()), Some(to(path))),
        op => op,
    }
}

/// Several users and the superuser do things at random, some of which are refused: in more
/// sequences where the environment asks for a soak.
fn random_things(spec: &ImageSpec, habits: &Habits) {
    if !spec.can_run() {
        return;
    }
    let seeds = 1..=memory::number("EXTERN4_SEQUENCES", 2);
    let refused: usize = seeds.map(|seed| sequence(spec, habits, seed)).sum();
    assert!(refused > 0, "{}: no owner came to a limit", spec.name);
}

/// Returns how often a user came to a limit.
fn sequence(spec: &ImageSpec, habits: &Habits, seed: u64) -> usize {
    let image = spec.build();
    let mut random = Random::new(seed);
    let mut refused = 0;
    for round in 0..3 {
        let what = format!("{} seed {seed}, round {round}", spec.name);
        let fs = open_for_writing(&image.path);
        if round == 1 {
            for user in 1..4 {
                fs.set_quota(
                    Kind::User,
                    user,
                    &Limits {
                        space: (0, 20 << 10),
                        inodes: (0, 8),
                    },
                )
                .unwrap();
            }
        }
        let root = session(Arc::clone(&fs) as _);
        let users: Vec<_> = (0..5).map(|uid| user(&root, uid)).collect();
        for at in 0..400 {
            let op = moved(op(&mut random, habits), at);
            let got = run(&users[random.below(5) as usize], &op);
            if let Err(error) = got {
                assert!(
                    error.cause().is_none(),
                    "{what}, operation {at}: {op:?}: {:?}",
                    error.cause()
                );
                refused += usize::from(error.errno() == Errno::EDQUOT);
            }
        }
        drop((root, users));
        fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
        drop(fs);
        judge(&what, &image);
    }
    refused
}

/// More records share a block than wait for their checksums there. Few kernels mount such a volume.
#[test]
fn e2fsck_counts_the_same_with_very_large_blocks() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "65536",
        "-O",
        "quota,project",
        "-E",
        ALL_QUOTAS,
    ];
    let spec = ImageSpec::new("huge", 256 << 20, mke2fs).then(PLACES);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let user = Session::new(
        session(Arc::clone(&fs) as _).namespace(),
        Cred::new(USER, USER, &[]),
    );
    for number in 0..150 {
        user.mkdir(format!("/open/d{number}"), 0o755).unwrap();
        let path = format!("/project/f{number}");
        open(&user, &path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap();
        if number % 3 == 0 {
            user.rmdir(format!("/open/d{number}")).unwrap();
        }
    }
    drop(user);
    fs.close().unwrap();
    assert_eq!(
        fs.quota(Kind::User, USER).unwrap().map(|it| it.inodes.used),
        Some(250)
    );
    drop(fs);
    tools::e2fsck(&image.path).unwrap();
}

fn user(root: &Session, uid: u32) -> Session {
    Session::new(root.namespace(), Cred::new(uid, uid % 3, &[]))
}

const HABITS: Habits = Habits {
    file_size: 1 << 18,
    value_size: 700,
    block_size: 1024,
    fallocate: true,
    few_values: 3,
};

#[test]
fn e2fsck_counts_the_same_with_small_blocks() {
    random_things(&spec("small", SMALL), &HABITS);
}

#[test]
fn e2fsck_counts_the_same_with_values_in_inodes() {
    let habits = Habits {
        value_size: 20_000,
        block_size: 4096,
        ..HABITS
    };
    random_things(&spec("large", LARGE), &habits);
}

#[test]
fn e2fsck_counts_the_same_with_inline_data() {
    random_things(&spec("inline", INLINE), &HABITS);
}

#[test]
fn e2fsck_counts_the_same_without_extents() {
    random_things(
        &ImageSpec::new("old", 32 << 20, OLD).then(PLACES_WITHOUT_PROJECT),
        &Habits {
            fallocate: false,
            ..HABITS
        },
    );
}

/// A volume, with a session that may do anything on it and one that may not.
struct Volume {
    image: Image,
    fs: Arc<Ext4>,
    root: Session,
    user: Session,
}

const USER: u32 = 1000;

impl Volume {
    fn new(mke2fs: &'static [&'static str]) -> Option<Self> {
        let spec = spec("limits", mke2fs);
        if !spec.can_run() {
            return None;
        }
        Some(Self::open(spec.build(), &OpenOptions::default()))
    }

    fn open(image: Image, options: &OpenOptions) -> Self {
        let fs = Arc::new(open_for_writing_with(&image.path, options).unwrap());
        let root = session(Arc::clone(&fs) as _);
        let user = Session::new(root.namespace(), Cred::new(USER, USER, &[]));
        Self {
            image,
            fs,
            root,
            user,
        }
    }

    fn limit(&self, kind: Kind, id: u32, space: u64, inodes: u64) {
        self.fs
            .set_quota(
                kind,
                id,
                &Limits {
                    space: (0, space),
                    inodes: (0, inodes),
                },
            )
            .unwrap();
    }

    fn used(&self, kind: Kind, id: u32) -> (u64, u64) {
        let entry = self.fs.quota(kind, id).unwrap().unwrap_or_default();
        (entry.space.used, entry.inodes.used)
    }

    /// How many of `len` bytes a user gets into a new file.
    fn write(by: &Session, path: &str, len: usize) -> Result<usize> {
        let file = open(by, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644)?;
        let bytes = data(0, len);
        let mut done = 0;
        while done < len {
            match file.write_at(&bytes[done..], done as u64) {
                Ok(more) => done += more,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn close(self) -> Image {
        drop((self.root, self.user));
        self.fs.close().unwrap();
        drop(self.fs);
        judge("limits", &self.image);
        self.image
    }
}

fn errno<T: std::fmt::Debug>(result: Result<T>) -> Errno {
    result.expect_err("an error").errno()
}

#[test]
fn no_owner_exceeds_a_space_limit() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    for (kind, id) in [(Kind::User, USER), (Kind::Group, USER), (Kind::Project, 77)] {
        // The directory belongs to its project.
        let (own, _) = volume.used(kind, id);
        volume.limit(kind, id, own + (37 << 10), 0);
        let path = format!("/project/{id}-{kind:?}");
        assert_eq!(
            Volume::write(&volume.user, &path, 100_000).unwrap(),
            37 << 10,
            "{kind:?}"
        );
        let more = format!("{path}-more");
        assert_eq!(
            errno(Volume::write(&volume.user, &more, 1)),
            Errno::EDQUOT,
            "{kind:?}"
        );
        assert_eq!(volume.used(kind, id).0, own + (37 << 10));
        // Existing blocks can be written over, and blocks given back can be taken again.
        let file = open(&volume.user, &path, OpenFlags::WRITE, 0).unwrap();
        assert_eq!(file.write_at(&[7; 5000], 20_000).unwrap(), 5000);
        assert_eq!(
            errno(file.fallocate(FallocateMode::empty(), 100_000, 10)),
            Errno::EDQUOT
        );
        file.set_len(36 << 10).unwrap();
        assert_eq!(file.write_at(&[7; 5000], 36 << 10).unwrap(), 1024);
        drop(file);
        volume.root.truncate(&path, 0, LookupFlags::FOLLOW).unwrap();
        volume.limit(kind, id, 0, 0);
    }
    volume.close();
}

#[test]
fn no_owner_exceeds_an_inode_limit() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    volume.limit(Kind::User, USER, 0, 5);
    for number in 0..5 {
        let path = format!("/open/f{number}");
        open(
            &volume.user,
            &path,
            OpenFlags::WRITE | OpenFlags::CREATE,
            0o644,
        )
        .unwrap();
    }
    assert_eq!(errno(volume.user.mkdir("/open/d", 0o755)), Errno::EDQUOT);
    assert_eq!(errno(volume.user.symlink("x", "/open/s")), Errno::EDQUOT);
    volume
        .user
        .link("/open/f0", LookupFlags::NOFOLLOW, "/open/link")
        .unwrap();
    volume.user.unlink("/open/link").unwrap();
    volume.user.unlink("/open/f0").unwrap();
    volume.user.mkdir("/open/d", 0o755).unwrap();
    assert_eq!(volume.used(Kind::User, USER), (1024, 5));
    volume.close();
}

#[test]
fn a_refused_allocation_leaves_no_trace() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    let path = "/open/f";
    open(
        &volume.user,
        path,
        OpenFlags::WRITE | OpenFlags::CREATE,
        0o644,
    )
    .unwrap();
    volume.limit(Kind::User, USER, 1024, 0);
    assert_eq!(Volume::write(&volume.user, path, 10).unwrap(), 10);
    let set = |len| {
        volume.user.set_xattr(
            path,
            "user.x",
            &data(1, len),
            XattrFlags::empty(),
            LookupFlags::FOLLOW,
        )
    };
    assert_eq!(errno(set(600)), Errno::EDQUOT);
    set(20).unwrap();
    assert_eq!(errno(volume.user.mkdir("/open/d", 0o755)), Errno::EDQUOT);
    assert_eq!(
        errno(volume.user.symlink(vec![b't'; 200], "/open/s")),
        Errno::EDQUOT
    );
    volume.user.symlink("t", "/open/s").unwrap();
    volume.user.unlink(path).unwrap();
    volume.user.mkdir("/open/d", 0o755).unwrap();
    // The directory is full at some time, and would need a block more.
    let file = |number| format!("/open/d/{}{number:03}", "n".repeat(200));
    let refused = (0..20).find_map(|number| {
        open(
            &volume.user,
            &file(number),
            OpenFlags::WRITE | OpenFlags::CREATE,
            0o644,
        )
        .err()
    });
    assert_eq!(
        refused.expect("a directory that is full").errno(),
        Errno::EDQUOT
    );
    assert_eq!(volume.used(Kind::User, USER).0, 1024);
    volume.close();
}

#[test]
fn chown_needs_room_in_the_new_owners_quota() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    let group_two = Session::new(volume.root.namespace(), Cred::new(USER, USER, &[2]));
    Volume::write(&volume.user, "/open/f", 10_000).unwrap();
    volume.limit(Kind::Group, 2, 9 << 10, 0);
    let give = |by: &Session| by.chown("/open/f", None, Some(2), LookupFlags::FOLLOW);
    assert_eq!(errno(give(&group_two)), Errno::EDQUOT);
    assert_eq!(
        (
            volume.used(Kind::Group, 2),
            volume.used(Kind::Group, USER).1
        ),
        ((0, 0), 1)
    );
    volume.limit(Kind::Group, 2, 10 << 10, 1);
    give(&group_two).unwrap();
    drop(group_two);
    assert_eq!(volume.used(Kind::Group, 2), (10 << 10, 1));
    assert_eq!(volume.used(Kind::Group, USER), (0, 0));
    // The superuser has the capability to exceed limits.
    volume
        .root
        .chown(
            "/open/f",
            Some(USER + 1),
            Some(USER + 1),
            LookupFlags::FOLLOW,
        )
        .unwrap();
    volume.limit(Kind::User, USER, 1024, 1);
    volume
        .root
        .chown("/open/f", Some(USER), None, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(
        Volume::write(&volume.root, "/open/f", 20_000).unwrap(),
        20_000
    );
    assert!(volume.used(Kind::User, USER).0 > 19 << 10);
    volume.close();
}

#[test]
fn many_ids_find_room_in_the_files() {
    for mke2fs in [SMALL, LARGE] {
        let Some(volume) = Volume::new(mke2fs) else {
            return;
        };
        open(
            &volume.root,
            "/open/f",
            OpenFlags::WRITE | OpenFlags::CREATE,
            0o644,
        )
        .unwrap();
        let mut random = Random::new(9);
        for number in 0..300u32 {
            // Some share their way through the tree, and some do not.
            let uid = if number % 2 == 0 {
                number
            } else {
                random.below(1 << 32) as u32 & !1
            };
            let path = format!("/open/{number}");
            volume.root.mkdir(&path, 0o755).unwrap();
            volume
                .root
                .chown(&path, Some(uid), Some(uid / 2), LookupFlags::FOLLOW)
                .unwrap();
        }
        let image = volume.close();
        let listed = tools::debugfs(&image.path, false, "list_quota user\n");
        let is_entry = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        assert!(listed.lines().filter(is_entry).count() >= 299, "{listed}");
    }
}

/// Returns the ids with an entry, as `Q_GETNEXTQUOTA` finds them one after the other.
fn listed(fs: &Ext4, kind: Kind) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut from = Some(0);
    while let Some(entry) = from.and_then(|from| fs.next_quota(kind, from).unwrap()) {
        assert_eq!(fs.quota(kind, entry.id).unwrap(), Some(entry));
        ids.push(entry.id);
        from = entry.id.checked_add(1);
    }
    ids
}

#[test]
fn entries_are_found_in_order() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    let ids = [
        0,
        1,
        255,
        256,
        70_000,
        (1 << 24) - 1,
        1 << 24,
        u32::MAX - 1,
        u32::MAX,
    ];
    for id in ids {
        volume.limit(Kind::User, id, 1 << 20, 0);
    }
    assert_eq!(listed(&volume.fs, Kind::User), ids);
    let grace = Grace {
        space: 5,
        inodes: 1 << 31,
    };
    volume.fs.set_quota_grace(Kind::Group, grace).unwrap();
    assert_eq!(volume.fs.quota_grace(Kind::Group).unwrap(), Some(grace));
    let beyond = Limits {
        space: (0, 1 << 63),
        inodes: (0, 0),
    };
    assert_eq!(
        volume
            .fs
            .set_quota(Kind::User, 1, &beyond)
            .unwrap_err()
            .errno(),
        Errno::ERANGE
    );
    let image = volume.close();
    let fs = walk::open(&image.path);
    assert_eq!(listed(&fs, Kind::User), ids);
    assert_eq!(fs.quota_grace(Kind::Group).unwrap(), Some(grace));
    assert_ne!(fs.quota_grace(Kind::User).unwrap(), Some(grace));
}

/// A tree that leads back to a block above it is an error, and no search without an end.
#[test]
fn a_loop_in_the_tree_is_found() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    volume.limit(Kind::User, 1 << 24, 1 << 20, 0);
    let image = volume.close();
    let blocks = tools::debugfs(&image.path, false, "blocks <3>\n");
    let below_root: u64 = blocks
        .lines()
        .last()
        .unwrap()
        .split_whitespace()
        .nth(2)
        .unwrap()
        .parse()
        .unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&image.path)
        .unwrap();
    // Block 2 of the file leads to itself for ids from 65,536 on.
    file.write_all_at(&2_u32.to_le_bytes(), below_root * 1024 + 4)
        .unwrap();
    let fs = walk::open(&image.path);
    let error = fs.next_quota(Kind::User, 1).unwrap_err();
    assert!(matches!(error, extern4_ext4::Error::Corrupt(_)), "{error}");
}

/// Files of forty users, whose ids have little in common, counted by `tune2fs`.
fn many_owners(root: &std::path::Path) -> std::io::Result<()> {
    for number in 0..40 {
        let path = root.join(format!("f{number}"));
        std::fs::write(&path, vec![1; 1000 * number as usize])?;
        std::os::unix::fs::chown(&path, Some(number * 70_000), Some(number % 5))?;
    }
    Ok(())
}

#[test]
fn quota_files_of_other_tools_are_read_and_updated() {
    let spec = ImageSpec::new("others", 32 << 20, &["-t", "ext4", "-b", "1024"])
        .mounted(&[many_owners])
        .then(&[Step::Tune2fs(&["-O", "quota", "-Q", "usrquota,grpquota"])]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    for number in 1..40 {
        let entry = fs
            .quota(Kind::User, number * 70_000)
            .unwrap()
            .expect("an entry");
        let blocks = (1000 * u64::from(number)).div_ceil(1024);
        assert_eq!(
            (entry.space.used, entry.inodes.used),
            (blocks << 10, 1),
            "{number}"
        );
    }
    assert_eq!(fs.quota(Kind::User, 1).unwrap(), None);
    assert_eq!(fs.quota(Kind::Project, 0).unwrap(), None);
    let root = session(Arc::clone(&fs) as _);
    for number in 0..40 {
        root.chown(
            format!("/f{number}"),
            Some(number * 70_001),
            None,
            LookupFlags::FOLLOW,
        )
        .unwrap();
    }
    // Nothing belongs to the superuser any more, and it still has an account.
    root.chown("/", Some(1), None, LookupFlags::FOLLOW).unwrap();
    root.chown("/lost+found", Some(1), None, LookupFlags::FOLLOW)
        .unwrap();
    root.chown("/f0", Some(1), None, LookupFlags::FOLLOW)
        .unwrap();
    root.chown("/f1", Some(2), None, LookupFlags::FOLLOW)
        .unwrap();
    let entry = fs.quota(Kind::User, 0).unwrap().expect("an entry");
    assert_eq!((entry.space.used, entry.inodes.used), (0, 0));
    drop(root);
    fs.close().unwrap();
    drop(fs);
    judge("others", &image);
}

#[test]
fn limits_agree_with_debugfs() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    let limits = Limits {
        space: (5 << 10, 7 << 10),
        inodes: (11, 13),
    };
    volume.fs.set_quota(Kind::Project, 77, &limits).unwrap();
    let image = volume.close();
    let said = tools::debugfs(&image.path, false, "get_quota project 77\n");
    let numbers: Vec<_> = said.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(numbers, ["77", "1024", "5", "7", "1", "11", "13"], "{said}");
}

#[test]
fn usage_without_limits_is_counted() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    volume.limit(Kind::User, USER, 10 << 10, 0);
    volume.limit(Kind::Project, 77, 10 << 10, 0);
    let options = OpenOptions {
        ignore_limits: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(volume.close(), &options);
    assert_eq!(
        Volume::write(&volume.user, "/project/f", 100_000).unwrap(),
        100_000
    );
    assert!(
        volume
            .root
            .statfs("/project", LookupFlags::FOLLOW)
            .unwrap()
            .blocks
            > 1000
    );
    assert!(volume.used(Kind::User, USER).0 >= 100_000);
    volume.close();
}

#[test]
fn a_directory_with_a_project_has_as_much_room_as_that() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    let stat = |path: &str| volume.root.statfs(path, LookupFlags::FOLLOW).unwrap();
    let whole = stat("/open");
    assert_eq!(stat("/project"), whole, "no limits");
    volume.limit(Kind::Project, 77, 100 << 10, 20);
    let (own, inodes) = volume.used(Kind::Project, 77);
    let limited = stat("/project");
    let left = 100 - own / 1024;
    assert_eq!(
        (
            limited.blocks,
            limited.blocks_free,
            limited.blocks_available
        ),
        (100, left, left)
    );
    assert_eq!((limited.files, limited.files_free), (20, 20 - inodes));
    Volume::write(&volume.user, "/project/f", 60_000).unwrap();
    assert_eq!(stat("/project").blocks_free, left - 59);
    // A caller that asks by a file does not ask for a directory.
    assert_eq!(
        (stat("/open").blocks, stat("/project/f").blocks),
        (whole.blocks, whole.blocks)
    );
    // The nearer limit counts, and none that is farther than the end of the volume.
    volume
        .fs
        .set_quota(
            Kind::Project,
            77,
            &Limits {
                space: (70 << 10, 1 << 40),
                inodes: (0, 1 << 40),
            },
        )
        .unwrap();
    let limited = stat("/project");
    assert_eq!((limited.blocks, limited.files), (70, whole.files));
    // It was exceeded before it was there.
    volume
        .fs
        .set_quota(
            Kind::Project,
            77,
            &Limits {
                space: (0, 20 << 10),
                inodes: (0, 0),
            },
        )
        .unwrap();
    assert_eq!(stat("/project").blocks_free, 0);
    volume.close();
}

#[test]
fn values_in_inodes_count_for_their_owner() {
    let Some(volume) = Volume::new(LARGE) else {
        return;
    };
    open(
        &volume.user,
        "/open/f",
        OpenFlags::WRITE | OpenFlags::CREATE,
        0o644,
    )
    .unwrap();
    let set = |by: &Session, name: &str, len| {
        by.set_xattr(
            "/open/f",
            name,
            &data(3, len),
            XattrFlags::empty(),
            LookupFlags::FOLLOW,
        )
    };
    set(&volume.user, "user.a", 20_000).unwrap();
    set(&volume.root, "user.b", 9_000).unwrap();
    let (space, inodes) = volume.used(Kind::User, USER);
    assert_eq!(inodes, 3);
    assert!(space >= 32 << 10, "{space}");
    volume.limit(Kind::User, USER, 0, 3);
    assert_eq!(errno(set(&volume.user, "user.c", 9_000)), Errno::EDQUOT);
    volume.limit(Kind::User, USER, space + (8 << 10), 0);
    assert_eq!(errno(set(&volume.user, "user.c", 9_000)), Errno::EDQUOT);
    volume
        .root
        .chown("/open/f", Some(USER + 1), None, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(
        (
            volume.used(Kind::User, USER),
            volume.used(Kind::User, USER + 1)
        ),
        ((0, 0), (space, 3))
    );
    volume
        .root
        .remove_xattr("/open/f", "user.b", LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(volume.used(Kind::User, USER + 1).1, 2);
    open(
        &volume.user,
        "/open/gone",
        OpenFlags::WRITE | OpenFlags::CREATE,
        0o644,
    )
    .unwrap();
    volume
        .root
        .rename("/open/f", "/open/gone", RenameFlags::empty())
        .unwrap();
    let image = volume.close();
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    root.unlink("/open/gone").unwrap();
    root.namespace().root().superblock().drop_caches();
    drop(root);
    assert_eq!(
        fs.quota(Kind::User, USER + 1)
            .unwrap()
            .map(|it| (it.space.used, it.inodes.used)),
        Some((0, 0))
    );
}

#[test]
fn moving_a_file_to_a_project_counts_it_there() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    Volume::write(&volume.user, "/open/f", 50 << 10).unwrap();
    let (space, _) = volume.used(Kind::User, USER);
    let other = Session::new(volume.root.namespace(), Cred::new(USER + 1, 5, &[]));
    let set = |by: &Session, project| {
        by.set_flags_and_project(
            "/open/f",
            FileFlags::NODUMP,
            Some(project),
            LookupFlags::FOLLOW,
        )
    };
    assert_eq!(set(&other, 9).unwrap_err(), Errno::EPERM);
    volume.limit(Kind::Project, 8, 10 << 10, 0);
    assert_eq!(set(&volume.user, 8).unwrap_err(), Errno::EDQUOT);
    set(&volume.user, 9).unwrap();
    let attr = volume.user.stat("/open/f", LookupFlags::FOLLOW).unwrap();
    assert!(
        attr.project == 9 && attr.flags.contains(FileFlags::NODUMP),
        "{attr:?}"
    );
    assert_eq!(volume.used(Kind::Project, 9), (space, 1));
    assert_eq!(volume.used(Kind::User, USER), (space, 1));
    set(&volume.user, 10).unwrap();
    assert_eq!(
        (
            volume.used(Kind::Project, 9),
            volume.used(Kind::Project, 10)
        ),
        ((0, 0), (space, 1))
    );
    drop(other);
    volume.close();
}

#[test]
fn a_volume_without_projects_has_one() {
    let spec = ImageSpec::new("projectless", 32 << 20, OLD);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let root = session(Arc::clone(&fs) as _);
    let set = |project| {
        root.set_flags_and_project("/", FileFlags::empty(), Some(project), LookupFlags::FOLLOW)
    };
    assert_eq!(set(1).unwrap_err(), Errno::EOPNOTSUPP);
    set(0).unwrap();
    drop(root);
    fs.close().unwrap();
}

#[test]
fn a_directory_that_grows_counts_for_its_owner() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    volume.user.mkdir("/open/d", 0o777).unwrap();
    volume.limit(Kind::User, USER, 1024, 0);
    let other = Session::new(volume.root.namespace(), Cred::new(USER + 1, 5, &[]));
    let name = |number: usize| format!("{}{number:03}", "n".repeat(200));
    for number in 0..20 {
        let path = format!("/open/{}", name(number));
        open(&other, &path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap();
    }
    volume
        .root
        .chmod("/open/d", 0o777, LookupFlags::FOLLOW)
        .unwrap();
    let moves = |number| {
        let from = format!("/open/{}", name(number));
        let to = format!("/open/d/{}", name(number));
        if number % 2 == 0 {
            other.rename(from, to, RenameFlags::empty())
        } else {
            other.link(from, LookupFlags::NOFOLLOW, to)
        }
    };
    let refused =
        (0..20).find_map(|number| moves(number).err().map(|error| (number, error.errno())));
    // Whether by a new name or by another one.
    let (first, errno) = refused.expect("a directory that is full");
    assert_eq!(
        (errno, moves(first + 1).map_err(|error| error.errno())),
        (Errno::EDQUOT, Err(Errno::EDQUOT))
    );
    assert_eq!(volume.used(Kind::User, USER), (1024, 1));
    drop(other);
    volume.close();
}

#[test]
fn threads_that_have_room_are_not_refused() {
    const THREADS: u64 = 4;
    const BYTES: usize = 64 << 10;
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    volume.limit(Kind::User, USER, THREADS * BYTES as u64, THREADS);
    for _ in 0..50 {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let user = volume.user.clone();
                scope.spawn(move || {
                    let written = Volume::write(&user, &format!("/open/{thread}"), BYTES);
                    assert_eq!(written.unwrap(), BYTES);
                });
            }
        });
        assert_eq!(
            volume.used(Kind::User, USER),
            (THREADS * BYTES as u64, THREADS)
        );
        for thread in 0..THREADS {
            volume.user.unlink(format!("/open/{thread}")).unwrap();
        }
    }
    volume.close();
}

#[test]
fn threads_share_a_limit() {
    let Some(volume) = Volume::new(SMALL) else {
        return;
    };
    volume.limit(Kind::User, USER, 200 << 10, 0);
    let written: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let user = volume.user.clone();
                scope.spawn(move || {
                    let files = 0..40;
                    let write =
                        |number| Volume::write(&user, &format!("/open/{thread}-{number}"), 3 << 10);
                    files
                        .map(|number| write(number).unwrap_or(0))
                        .sum::<usize>()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(
        (written, volume.used(Kind::User, USER).0),
        (200 << 10, 200 << 10)
    );
    volume.close();
}
