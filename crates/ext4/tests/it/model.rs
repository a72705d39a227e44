//! Random operations on a real volume and on a file system in memory, in parallel. Each has to give
//! the same answer, and both have to show the same tree. Then `e2fsck` and the kernel judge the
//! volume.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use extern4_block::{FileDevice, FileOptions};
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::tools;
use extern4_testkit::tree::{self, Tree, assert_same};
use extern4_vfs::memfs::{MemFs, MemLimits};
use extern4_vfs::*;

use crate::sharing::assert_counts;
use crate::walk;

/// The option that makes `mke2fs` keep quotas of every kind.
pub(crate) const ALL_QUOTAS: &str = "quotatype=usrquota:grpquota:prjquota";

/// The steps that make a volume log the contents of all files.
pub(crate) const LOG_CONTENTS: &[Step] = &[Step::Tune2fs(&["-o", "journal_data"])];

/// A generator of numbers, the same from the same seed on.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create(String, u16),
    Mkdir(String, u16),
    Symlink(String, String),
    Mknod(String, NewKind<'static>),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameFlags),
    Chmod(String, u16),
    Chown(String, u32, u32),
    Utimens(String, i64),
    Write(String, u64, usize),
    Append(String, usize),
    Truncate(String, u64),
    Fallocate(String, FallocateMode, u64, u64),
    SetXattr(String, String, usize, XattrFlags),
    RemoveXattr(String, String),
    SetAcl(String, AclKind, u8),
    RemoveAcl(String, AclKind),
    /// Opens, unlinks, writes, closes.
    WriteUnlinked(String, usize),
    /// A file without a name, which is linked then.
    Tmpfile(String, Option<String>),
}

impl Op {
    /// The paths that it is about.
    pub(crate) fn paths(&mut self) -> Vec<&mut String> {
        match self {
            Self::Create(path, _)
            | Self::Mkdir(path, _)
            | Self::Symlink(_, path)
            | Self::Mknod(path, _)
            | Self::Unlink(path)
            | Self::Rmdir(path)
            | Self::Chmod(path, _)
            | Self::Chown(path, ..)
            | Self::Utimens(path, _)
            | Self::Write(path, ..)
            | Self::Append(path, _)
            | Self::Truncate(path, _)
            | Self::Fallocate(path, ..)
            | Self::SetXattr(path, ..)
            | Self::RemoveXattr(path, _)
            | Self::SetAcl(path, ..)
            | Self::RemoveAcl(path, _)
            | Self::WriteUnlinked(path, _) => vec![path],
            Self::Link(from, to) | Self::Rename(from, to, _) => vec![from, to],
            Self::Tmpfile(_, name) => name.iter_mut().collect(),
        }
    }
}

/// The range of random operations.
#[derive(Clone, Copy)]
pub(crate) struct Habits {
    /// Most bytes of a file.
    pub(crate) file_size: u64,
    /// Most bytes of the value of an attribute.
    pub(crate) value_size: u64,
    /// COLLAPSE and INSERT work in units of this.
    pub(crate) block_size: u64,
    /// There are ways to change what is allocated.
    pub(crate) fallocate: bool,
    /// Every other operation sets one of this many attributes and ACLs, or concerns the inodes that
    /// share them; 0 for no such operations.
    pub(crate) few_values: u64,
}

fn name(random: &mut Random) -> String {
    match random.below(20) {
        0 => "n".repeat(255),
        1 => "a name with spaces".to_owned(),
        2..=9 => format!("f{}", random.below(6)),
        10..=13 => format!("d{}", random.below(4)),
        _ => format!("some-longer-name-{}", random.below(40)),
    }
}

pub(crate) fn path(random: &mut Random) -> String {
    let mut path = String::new();
    for _ in 0..random.below(3) {
        path.push_str(&format!("/d{}", random.below(4)));
    }
    path.push('/');
    path.push_str(&name(random));
    path
}

/// An operation about attributes of which there are few, so that inodes share them.
fn sharing(random: &mut Random, habits: &Habits) -> Op {
    let path = format!("/f{}", random.below(8));
    match random.below(20) {
        0..=10 => {
            let name = *random.pick(&["user.shared", "user.shared", "trusted.shared"]);
            // More than has room in an inode; the contents depend on the size alone.
            let len = habits.value_size / 2 + random.below(habits.few_values) * 4;
            Op::SetXattr(path, name.to_owned(), len as usize, XattrFlags::empty())
        }
        11 => Op::RemoveXattr(path, "user.shared".to_owned()),
        12 => Op::SetAcl(path, AclKind::Access, random.below(2) as u8),
        13 => Op::Chmod(path, *random.pick(&[0o644, 0o750])),
        14 => Op::Unlink(path),
        15 => Op::Chown(path, random.below(3) as u32, random.below(3) as u32),
        _ => Op::Create(path, 0o644),
    }
}

pub(crate) fn op(random: &mut Random, habits: &Habits) -> Op {
    if habits.few_values > 0 && random.one_in(2) {
        return sharing(random, habits);
    }
    let mode = |random: &mut Random| *random.pick(&[0o644, 0o600, 0o755, 0o4755, 0o2711, 0o777, 0]);
    let xattr = |random: &mut Random| {
        let space = random.pick(&["user", "trusted", "security"]);
        format!(
            "{space}.{}",
            random.pick(&["a", "name", "another-name", "x"])
        )
    };
    let size = |random: &mut Random| match random.below(4) {
        0 => random.below(64),
        1 => random.below(habits.file_size / 16 + 1),
        2 => random.below(habits.file_size / 64 + 1) * habits.block_size / 4,
        _ => random.below(habits.file_size / 4 + 1),
    };
    match random.below(100) {
        0..=13 => Op::Create(path(random), mode(random)),
        14..=23 => Op::Mkdir(path(random), mode(random)),
        24..=27 => {
            let len = *random.pick(&[1, 30, 59, 60, 200, 900]);
            Op::Symlink("t".repeat(len), path(random))
        }
        28..=29 => {
            let rdev = Rdev {
                major: random.below(300) as u32,
                minor: random.below(70_000) as u32,
            };
            let kind = *random.pick(&[
                NewKind::Fifo,
                NewKind::Socket,
                NewKind::CharDevice(rdev),
                NewKind::BlockDevice(rdev),
            ]);
            Op::Mknod(path(random), kind)
        }
        30..=34 => Op::Link(path(random), path(random)),
        35..=42 => Op::Unlink(path(random)),
        43..=47 => Op::Rmdir(path(random)),
        48..=57 => {
            let flags = [
                RenameFlags::empty(),
                RenameFlags::empty(),
                RenameFlags::NOREPLACE,
                RenameFlags::EXCHANGE,
                RenameFlags::WHITEOUT,
            ];
            Op::Rename(path(random), path(random), *random.pick(&flags))
        }
        58..=60 => Op::Chmod(path(random), mode(random)),
        61..=62 => Op::Chown(
            path(random),
            random.below(70_000) as u32,
            random.below(70_000) as u32,
        ),
        63..=64 => Op::Utimens(path(random), random.below(1 << 33) as i64 - (1 << 30)),
        65..=76 => Op::Write(path(random), size(random), size(random) as usize),
        77..=80 => Op::Append(path(random), random.below(5000) as usize),
        81..=84 => Op::Truncate(path(random), size(random)),
        85..=88 if habits.fallocate => {
            let modes = [
                FallocateMode::empty(),
                FallocateMode::KEEP_SIZE,
                FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
                FallocateMode::ZERO_RANGE,
                FallocateMode::ZERO_RANGE | FallocateMode::KEEP_SIZE,
                FallocateMode::COLLAPSE_RANGE,
                FallocateMode::INSERT_RANGE,
            ];
            let mode = *random.pick(&modes);
            let shifts =
                mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE);
            let unit = if shifts && !random.one_in(8) {
                habits.block_size
            } else {
                1
            };
            let offset = size(random);
            let len = size(random) + 1;
            Op::Fallocate(
                path(random),
                mode,
                offset / unit * unit,
                len.div_ceil(unit) * unit,
            )
        }
        85..=90 => {
            let flags = [
                XattrFlags::empty(),
                XattrFlags::empty(),
                XattrFlags::CREATE,
                XattrFlags::REPLACE,
            ];
            let len = if random.one_in(4) {
                habits.value_size
            } else {
                100
            };
            Op::SetXattr(
                path(random),
                xattr(random),
                random.below(len) as usize,
                *random.pick(&flags),
            )
        }
        91..=92 => Op::RemoveXattr(path(random), xattr(random)),
        93..=94 => {
            let kind = *random.pick(&[AclKind::Access, AclKind::Default]);
            Op::SetAcl(path(random), kind, random.below(8) as u8)
        }
        95 => Op::RemoveAcl(
            path(random),
            *random.pick(&[AclKind::Access, AclKind::Default]),
        ),
        96..=97 => Op::WriteUnlinked(path(random), size(random) as usize),
        _ => Op::Tmpfile("/".to_owned(), (!random.one_in(3)).then(|| path(random))),
    }
}

/// Returns bytes that depend on their offset in the file.
pub(crate) fn data(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8)
        .collect()
}

pub(crate) fn acl(perm: u8) -> Acl {
    let entry = |tag, perm| AclEntry { tag, perm };
    Acl::new(vec![
        entry(AclTag::UserObj, 7),
        entry(AclTag::User(1000), perm),
        entry(AclTag::GroupObj, 5),
        entry(AclTag::Mask, 7),
        entry(AclTag::Other, perm & 5),
    ])
    .expect("a good ACL")
}

pub(crate) fn open(session: &Session, path: &str, flags: OpenFlags, mode: u16) -> Result<OpenFile> {
    session.open(
        path,
        OpenHow {
            flags,
            mode,
            resolve: LookupFlags::empty(),
        },
    )
}

pub(crate) fn run(session: &Session, op: &Op) -> Result<()> {
    let write = OpenFlags::WRITE;
    let all = |file: &OpenFile, offset: u64, len: usize| {
        let bytes = data(offset, len);
        let mut done = 0;
        while done < len {
            done += file.write_at(&bytes[done..], offset + done as u64)?;
        }
        Ok(())
    };
    match op {
        Op::Create(path, mode) => open(session, path, write | OpenFlags::CREATE, *mode).map(drop),
        Op::Mkdir(path, mode) => session.mkdir(path, *mode).map(drop),
        Op::Symlink(target, path) => session.symlink(target, path).map(drop),
        Op::Mknod(path, kind) => session.mknod(path, *kind, 0o640).map(drop),
        Op::Link(from, to) => session.link(from, LookupFlags::NOFOLLOW, to),
        Op::Unlink(path) => session.unlink(path),
        Op::Rmdir(path) => session.rmdir(path),
        Op::Rename(from, to, flags) => session.rename(from, to, *flags),
        Op::Chmod(path, mode) => session.chmod(path, *mode, LookupFlags::NOFOLLOW),
        Op::Chown(path, uid, gid) => {
            session.chown(path, Some(*uid), Some(*gid), LookupFlags::NOFOLLOW)
        }
        Op::Utimens(path, sec) => {
            let time = SetTime::At(Timespec {
                sec: *sec,
                nsec: 123_456_789,
            });
            session.utimens(path, time, time, LookupFlags::NOFOLLOW)
        }
        Op::Write(path, offset, len) => all(&open(session, path, write, 0)?, *offset, *len),
        Op::Append(path, len) => {
            let file = open(session, path, write | OpenFlags::APPEND, 0)?;
            file.write_at(&data(file.size(), *len), 0).map(drop)
        }
        Op::Truncate(path, size) => session.truncate(path, *size, LookupFlags::FOLLOW),
        Op::Fallocate(path, mode, offset, len) => {
            open(session, path, write, 0)?.fallocate(*mode, *offset, *len)
        }
        Op::SetXattr(path, name, len, flags) => {
            session.set_xattr(path, name, &data(7, *len), *flags, LookupFlags::NOFOLLOW)
        }
        Op::RemoveXattr(path, name) => session.remove_xattr(path, name, LookupFlags::NOFOLLOW),
        Op::SetAcl(path, kind, perm) => {
            session.set_acl(path, *kind, Some(acl(*perm)), LookupFlags::NOFOLLOW)
        }
        Op::RemoveAcl(path, kind) => session.set_acl(path, *kind, None, LookupFlags::NOFOLLOW),
        Op::WriteUnlinked(path, len) => {
            let file = open(session, path, write, 0)?;
            session.unlink(path)?;
            all(&file, 0, *len)
        }
        Op::Tmpfile(dir, name) => {
            let file = open(session, dir, write | OpenFlags::TMPFILE, 0o600)?;
            all(&file, 100, 3000)?;
            match name {
                // Through a session whose current directory is the file, like a path in
                // /proc/self/fd.
                Some(name) => {
                    let at = session.at(file.location());
                    let how = LookupFlags::EMPTY_PATH;
                    at.link("", how, name)
                }
                None => Ok(()),
            }
        }
    }
}

/// Whether an attribute has found no room. The model does not have those limits.
pub(crate) fn no_room(op: &Op, got: &Result<()>) -> bool {
    let sets = matches!(op, Op::SetXattr(..) | Op::SetAcl(..));
    sets && got
        .as_ref()
        .is_err_and(|error| error.errno() == Errno::ENOSPC)
}

/// Runs an operation on the model. The model cannot move contents within a file, so they are
/// written again there.
pub(crate) fn run_model(model: &Session, op: &Op, got: &Result<()>, block_size: u64) -> Result<()> {
    let moves = FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE;
    let Op::Fallocate(path, mode, offset, len) = op else {
        return run(model, op);
    };
    if !mode.intersects(moves) {
        return run(model, op);
    }
    let file = open(model, path, OpenFlags::READ | OpenFlags::WRITE, 0)?;
    let size = file.size();
    if file.stat().kind != FileType::Regular {
        return file.fallocate(*mode, *offset, *len);
    }
    let collapses = mode.contains(FallocateMode::COLLAPSE_RANGE);
    if offset % block_size != 0
        || len % block_size != 0
        || *offset >= size
        || collapses && offset + len >= size
    {
        return Err(Errno::EINVAL.into());
    }
    // How far a file can grow is not for the model to say.
    if let Err(error) = got {
        return Err(error.errno().into());
    }
    let mut contents = vec![0; size as usize];
    assert_eq!(file.read_at(&mut contents, 0)?, contents.len());
    let at = *offset as usize;
    let len = *len as usize;
    if collapses {
        contents.drain(at..at + len);
    } else {
        contents.splice(at..at, std::iter::repeat_n(0, len));
    }
    file.set_len(0)?;
    file.set_len(contents.len() as u64)?;
    file.write_at(&contents, 0).map(drop)
}

pub(crate) fn session(fs: Arc<dyn FileSystem>) -> Session {
    let sb = SuperBlock::new(fs, SuperOptions::default()).expect("the root can be read");
    Session::new(&Namespace::new(sb), Cred::root())
}

pub(crate) fn open_for_writing(path: &Path) -> Arc<Ext4> {
    Arc::new(try_open_for_writing(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

pub(crate) fn try_open_for_writing(path: &Path) -> extern4_ext4::Result<Ext4> {
    open_for_writing_with(path, &OpenOptions::default())
}

pub(crate) fn open_for_writing_with(
    path: &Path,
    options: &OpenOptions,
) -> extern4_ext4::Result<Ext4> {
    Ext4::open_for_writing(Arc::new(device(path)), options)
}

/// An image that can be written to.
pub(crate) fn device(path: &Path) -> FileDevice {
    let options = FileOptions {
        write: true,
        ..FileOptions::default()
    };
    FileDevice::open_with(path, &options).expect("the image opens")
}

/// The parts of a tree on which two file systems of different kinds can agree.
pub(crate) fn comparable(mut tree: Tree) -> Tree {
    tree.entries.remove(&b"/lost+found"[..]);
    for (path, entry) in &mut tree.entries {
        entry.ino = 0;
        entry.blocks = None;
        entry.atime = None;
        entry.mtime = None;
        entry.ctime = None;
        entry.btime = None;
        if entry.kind == tree::Kind::Directory {
            entry.size = 0;
            if path == b"/" {
                entry.nlink = None;
                entry.mode = 0;
            }
        }
        if let Some(content) = &mut entry.content {
            content.data = None;
        }
    }
    tree
}

/// Asks the judges about a volume that has been closed: `e2fsck`, and the kernel's mount against
/// what we read.
pub(crate) fn judge(what: &str, image: &Image) -> Tree {
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{what}: {e}"));
    let fs = walk::open(&image.path);
    assert_counts(what, &fs);
    let ours = walk::tree(&fs);
    let theirs = tree::from_mount(&image.mount("ro,noatime").path);
    assert_same(what, &ours, &theirs);
    ours
}

/// Runs `count` random operations. Failures are reported with `seed`.
fn sequence(spec: &ImageSpec, habits: &Habits, seed: u64, count: usize) {
    let what = format!("{} seed {seed}", spec_name(spec));
    let run_all = || {
        let image = spec.build();
        let fs = open_for_writing(&image.path);
        let model_fs = MemFs::new(MemLimits::default());
        let ours = session(Arc::clone(&fs) as _);
        let model = session(Arc::clone(&model_fs) as _);
        let mut random = Random::new(seed);
        for at in 0..count {
            let op = op(&mut random, habits);
            let got = run(&ours, &op);
            if no_room(&op, &got) {
                continue;
            }
            let want = run_model(&model, &op, &got, habits.block_size);
            let errno = |result: &Result<()>| result.as_ref().err().map(Error::errno);
            assert_eq!(
                errno(&got),
                errno(&want),
                "{what}, operation {at}: {op:?}: {got:?}"
            );
            if at % 64 == 63 {
                ours.namespace().root().superblock().sync().expect("sync");
            }
            if at % 100 == 99 {
                ours.namespace().root().superblock().drop_caches();
            }
        }
        drop(ours);
        if habits.few_values > 0 {
            let shared = fs.sharing_stats().expect("it is written");
            assert!(shared.blocks_shared > 0, "{what}: {shared:?}");
        }
        fs.close().expect("close");
        let model_tree = comparable(walk::tree(&*model_fs));
        drop((fs, model));
        let ours = comparable(judge(&what, &image));
        assert_same(&format!("{what}, against the model"), &ours, &model_tree);
    };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run_all)) {
        eprintln!("the sequence that failed: {what}");
        std::panic::resume_unwind(panic);
    }
}

fn spec_name(spec: &ImageSpec) -> &'static str {
    spec.name
}

/// Of each kind of volume.
const SEQUENCES: u64 = 9;
const OPERATIONS: usize = 400;

/// How many sequences: more where the environment asks for a soak.
fn sequences() -> u64 {
    std::env::var("EXTERN4_SEQUENCES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(SEQUENCES)
}

fn check(spec: ImageSpec, habits: Habits) {
    if spec.can_run() {
        (0..sequences()).for_each(|seed| sequence(&spec, &habits, seed + 1, OPERATIONS));
    }
}

const HABITS: Habits = Habits {
    file_size: 1 << 20,
    value_size: 700,
    block_size: 4096,
    fallocate: true,
    few_values: 0,
};
const SMALL: Habits = Habits {
    block_size: 1024,
    file_size: 1 << 18,
    ..HABITS
};

#[test]
fn ext2_agrees_with_the_model() {
    let spec = ImageSpec::new("ext2", 64 << 20, &["-t", "ext2", "-b", "1024"]);
    check(
        spec,
        Habits {
            fallocate: false,
            ..SMALL
        },
    );
}

#[test]
fn ext3_agrees_with_the_model() {
    let spec = ImageSpec::new("ext3", 64 << 20, &["-t", "ext3", "-b", "4096"]);
    check(
        spec,
        Habits {
            fallocate: false,
            ..HABITS
        },
    );
}

#[test]
fn ext4_agrees_with_the_model() {
    check(
        ImageSpec::new("ext4", 64 << 20, &["-t", "ext4", "-b", "4096"]),
        HABITS,
    );
}

#[test]
fn ext4_with_small_blocks_agrees_with_the_model() {
    check(
        ImageSpec::new("ext4-1k", 64 << 20, &["-t", "ext4", "-b", "1024"]),
        SMALL,
    );
}

#[test]
fn ext4_with_small_inodes_and_no_checksums_agrees_with_the_model() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "2048",
        "-I",
        "128",
        "-O",
        "^metadata_csum,^64bit,^flex_bg",
    ];
    check(
        ImageSpec::new("ext4-old", 64 << 20, mke2fs),
        Habits {
            block_size: 2048,
            ..SMALL
        },
    );
}

#[test]
fn ext4_with_large_values_agrees_with_the_model() {
    let mke2fs = &["-t", "ext4", "-b", "4096", "-O", "ea_inode"];
    check(
        ImageSpec::new("ext4-ea", 64 << 20, mke2fs),
        Habits {
            value_size: 20_000,
            ..HABITS
        },
    );
}

#[test]
fn ext4_with_quotas_agrees_with_the_model() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "quota,project",
        "-E",
        ALL_QUOTAS,
    ];
    check(ImageSpec::new("ext4-quota", 64 << 20, mke2fs), SMALL);
}

#[test]
fn ext4_without_a_journal_agrees_with_the_model() {
    check(
        ImageSpec::new(
            "ext4-nojournal",
            64 << 20,
            &["-t", "ext4", "-O", "^has_journal"],
        ),
        HABITS,
    );
}

#[test]
fn ext4_with_contents_in_the_journal_agrees_with_the_model() {
    let spec =
        ImageSpec::new("ext4-data", 64 << 20, &["-t", "ext4", "-b", "4096"]).then(LOG_CONTENTS);
    check(spec, HABITS);
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "inline_data,ea_inode",
    ];
    let spec = ImageSpec::new("ext4-data-inline", 64 << 20, mke2fs).then(LOG_CONTENTS);
    check(
        spec,
        Habits {
            value_size: 3000,
            ..SMALL
        },
    );
}

#[test]
fn ext4_with_few_attributes_agrees_with_the_model() {
    check(
        ImageSpec::new("ext4-few", 64 << 20, &["-t", "ext4", "-b", "1024"]),
        Habits {
            few_values: 3,
            ..SMALL
        },
    );
}

#[test]
fn ext4_with_few_large_values_agrees_with_the_model() {
    let mke2fs = &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "ea_inode"];
    let habits = Habits {
        few_values: 3,
        value_size: 6000,
        ..SMALL
    };
    check(ImageSpec::new("ext4-few-ea", 64 << 20, mke2fs), habits);
}
