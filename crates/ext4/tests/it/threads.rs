//! Many threads with different credentials change one volume, in their own directories and in
//! shared ones.
//!
//! They also read files that others change, sync, and drop caches. Then `e2fsck` and the kernel
//! judge the volume.

use std::sync::Arc;

use extern4_block::MemoryDevice;
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tree::assert_same;
use extern4_vfs::*;

use crate::memory;
use crate::model::{ALL_QUOTAS, Habits, Random, op, open, path, run, session};
use crate::walk;
use crate::watchdog::{Progress, watch};

/// Operations of each thread.
const OPERATIONS: u64 = 250;

/// A member of the crowd.
struct Member {
    number: u64,
    /// The whole volume, as the member and as the superuser, and the member's own directory.
    sessions: [Session; 3],
    random: Random,
    habits: Habits,
    progress: Arc<Progress>,
}

impl Member {
    fn new(everything: &Session, number: u64, seed: u64, habits: Habits) -> Self {
        let uid = [0, 1000, 1001, 2000][number as usize % 4];
        let cred = Cred::new(uid, uid, &[100]);
        let own = format!("/own-{number}");
        everything
            .mkdir(&own, 0o755)
            .expect("a directory of its own");
        everything
            .chown(&own, Some(uid), Some(uid), LookupFlags::NOFOLLOW)
            .expect("its owner");
        let mut inside = everything.clone();
        inside.chroot(&own).expect("its root");
        let sessions = [
            everything.with_cred(cred.clone()),
            everything.clone(),
            inside.with_cred(cred),
        ];
        Self {
            number,
            sessions,
            random: Random::new(seed),
            habits,
            progress: Arc::default(),
        }
    }

    fn work(mut self) {
        for at in 0..OPERATIONS {
            let session = &self.sessions[[0, 0, 1, 2, 2][self.random.below(5) as usize]];
            let (what, result) = if self.random.one_in(4) {
                let path = path(&mut self.random);
                self.progress.begin(format!("{at}: read {path}"));
                (path.clone(), read(session, &path))
            } else {
                let op = op(&mut self.random, &self.habits);
                let shown = format!("{at}: {op:.200?}");
                self.progress.begin(shown.clone());
                (shown, run(session, &op))
            };
            check(&what, result);
            let root = session.namespace().root();
            if self.number == 0 && at % 32 == 31 {
                self.progress.begin(format!("{at}: sync"));
                root.superblock().sync().expect("sync");
            }
            if self.number == 1 && at % 100 == 99 {
                self.progress.begin(format!("{at}: drop caches"));
                root.superblock().drop_caches();
            }
            self.progress.end();
        }
        self.progress.end_all();
    }
}

/// Reads whatever is at `path`.
fn read(session: &Session, path: &str) -> Result<()> {
    let attr = session.stat(path, LookupFlags::NOFOLLOW)?;
    match attr.kind {
        FileType::Directory => {
            let file = open(session, path, OpenFlags::READ, 0)?;
            let mut batch = DirBatch::new();
            file.read_dir_plus(0, 1000, &mut batch)
        }
        FileType::Regular => {
            let file = open(session, path, OpenFlags::READ, 0)?;
            let mut bytes = vec![0; 1 << 16];
            file.read_at(&mut bytes, 0).map(drop)
        }
        FileType::Symlink => session.read_link(path, LookupFlags::NOFOLLOW).map(drop),
        _ => session.list_xattr(path, LookupFlags::NOFOLLOW).map(drop),
    }
}

/// Asserts that a result is not one that a sound volume never gives.
pub(crate) fn check(what: &str, result: Result<()>) {
    let Err(error) = result else { return };
    let bad = [
        Errno::EIO,
        Errno::EUCLEAN,
        Errno::EROFS,
        Errno::ESTALE,
        Errno::EBADF,
        Errno::ENOKEY,
    ];
    assert!(
        !bad.contains(&error.errno()) && error.cause().is_none(),
        "{what}: {error:?} {:?}",
        error.cause()
    );
}

fn crowd(spec: &ImageSpec, habits: Habits, threads: u64, seed: u64) {
    let what = format!("{} {threads} threads, seed {seed}", spec.name);
    let image = spec.build();
    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    let fs = memory::open(&what, &device);
    let everything = session(Arc::clone(&fs) as _);
    everything
        .chmod("/", 0o777, LookupFlags::NOFOLLOW)
        .expect("a root for all");
    for at in 0..4 {
        everything
            .mkdir(format!("/d{at}"), 0o777)
            .expect("a directory for all");
        everything
            .chmod(format!("/d{at}"), 0o777, LookupFlags::NOFOLLOW)
            .expect("its mode");
    }
    let crowd =
        (0..threads).map(|number| Member::new(&everything, number, seed * 100 + number, habits));
    let crowd: Vec<_> = crowd.collect();
    let crowd = crowd.into_iter().map(|member| {
        (
            Arc::clone(&member.progress),
            std::thread::spawn(move || member.work()),
        )
    });
    watch(&what, crowd.collect());
    drop(everything);
    if habits.few_values > 0 {
        let shared = fs.sharing_stats().expect("it is written");
        assert!(shared.blocks_shared > 0, "{what}: {shared:?}");
    }
    let live = walk::tree(&*fs);
    fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(fs);
    let left = memory::judge_in(&what, &device, &image);
    assert_same(&format!("{what}, while it was open"), &live, &left);
}

fn crowds(spec: ImageSpec, habits: Habits) {
    if !spec.can_run() {
        return;
    }
    for seed in 0..memory::number("EXTERN4_CROWDS", 4) {
        crowd(
            &spec,
            habits,
            [8, 2, 4, 3, 1, 5, 6, 7][seed as usize % 8],
            seed + 1,
        );
    }
}

const HABITS: Habits = Habits {
    file_size: 1 << 18,
    value_size: 700,
    block_size: 1024,
    fallocate: true,
    few_values: 0,
};

#[test]
fn many_threads_change_ext4() {
    crowds(
        ImageSpec::new(
            "ext4",
            48 << 20,
            &["-t", "ext4", "-b", "1024", "-J", "size=4"],
        ),
        HABITS,
    );
}

#[test]
fn many_threads_change_ext4_with_quotas() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=4",
        "-O",
        "quota,project",
        "-E",
        ALL_QUOTAS,
    ];
    crowds(ImageSpec::new("ext4-quota", 48 << 20, mke2fs), HABITS);
}

#[test]
fn many_threads_change_ext2() {
    let habits = Habits {
        fallocate: false,
        ..HABITS
    };
    crowds(
        ImageSpec::new("ext2", 32 << 20, &["-t", "ext2", "-b", "1024"]),
        habits,
    );
}

#[test]
fn many_threads_change_ext4_with_contents_in_inodes() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "inline_data,ea_inode",
        "-J",
        "size=4",
    ];
    let habits = Habits {
        block_size: 4096,
        value_size: 9000,
        ..HABITS
    };
    crowds(ImageSpec::new("ext4-inline", 64 << 20, mke2fs), habits);
}

#[test]
fn many_threads_share_few_attributes() {
    let habits = Habits {
        few_values: 3,
        ..HABITS
    };
    crowds(
        ImageSpec::new(
            "ext4-few",
            48 << 20,
            &["-t", "ext4", "-b", "1024", "-J", "size=4"],
        ),
        habits,
    );
    let mke2fs = &[
        "-t", "ext4", "-b", "1024", "-I", "128", "-J", "size=4", "-O", "ea_inode",
    ];
    let habits = Habits {
        few_values: 3,
        value_size: 6000,
        ..HABITS
    };
    crowds(ImageSpec::new("ext4-few-ea", 48 << 20, mke2fs), habits);
}

/// While one looks how much room a directory has, others make it larger.
#[test]
fn many_threads_fill_a_directory() {
    let spec = ImageSpec::new(
        "ext4-dir",
        64 << 20,
        &["-t", "ext4", "-b", "1024", "-N", "40000"],
    );
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    let fs = memory::open(spec.name, &device);
    let everything = session(Arc::clone(&fs) as _);
    let directories = 20;
    let threads = 8;
    let names = 120;
    for dir in 0..directories {
        everything
            .mkdir(format!("/{dir}"), 0o755)
            .expect("a directory");
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let everything = &everything;
                scope.spawn(move || {
                    for number in 0..names {
                        let path = format!("/{dir}/a-name-that-fills-it-sooner-{thread}-{number}");
                        let made = everything.mknod(&path, NewKind::Regular, 0o644);
                        made.unwrap_or_else(|e| panic!("{path}: {e}"));
                    }
                });
            }
        });
    }
    drop(everything);
    fs.close().expect("close");
    drop(fs);
    let left = memory::judge_in(spec.name, &device, &image);
    let made = left
        .entries
        .keys()
        .filter(|path| path.iter().filter(|byte| **byte == b'/').count() == 2);
    assert_eq!(made.count(), directories * threads * names);
}
