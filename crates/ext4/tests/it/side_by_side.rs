//! Threads side by side, each with its own model.
//!
//! They work in the same directories, but each on its own names. So each thread alone determines
//! the answers of its operations: the answers of its model. They also fight for a few names; of
//! these, as many must be there as were made and not taken away. In the end the models together are
//! the volume, and `e2fsck` and the kernel judge it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use extern4_block::MemoryDevice;
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tree::{Entry, Tree, assert_same};
use extern4_vfs::memfs::{MemFs, MemLimits};
use extern4_vfs::*;

use crate::model::{
    Habits, LOG_CONTENTS, Op, Random, comparable, no_room, op, run, run_model, session,
};
use crate::threads::check;
use crate::watchdog::{Progress, watch};
use crate::{memory, walk};

/// The directories that all work in.
const SHARED: [&str; 3] = ["/s0", "/s1", "/s2"];
/// Those with the names that all fight for, and how many names.
const FOUGHT: [&str; 2] = ["/c0", "/c1"];
const NAMES: usize = 4;
/// Makes the shared directories.
pub(crate) fn make_shared(session: &Session) {
    for dir in SHARED {
        session.mkdir(dir, 0o755).expect("a directory for all");
    }
}

/// The prefix of a thread's names.
pub(crate) fn mark(thread: u64) -> String {
    format!("t{thread}-")
}

/// Whether a path is one of a thread's.
pub(crate) fn is_of(thread: u64, path: &[u8]) -> bool {
    path.splitn(3, |byte| *byte == b'/')
        .nth(2)
        .is_some_and(|name| name.starts_with(mark(thread).as_bytes()))
}

/// Turns an operation into one on names of that thread, in the shared directories.
pub(crate) fn own(mut op: Op, thread: u64) -> Op {
    let mark = mark(thread);
    for path in op.paths() {
        let name = path.trim_start_matches('/');
        let first: u64 = name
            .bytes()
            .take_while(|byte| *byte != b'/')
            .map(u64::from)
            .sum();
        *path = format!("{}/{mark}{name}", SHARED[first as usize % SHARED.len()]);
    }
    // A file made through a link is the thread's own, too.
    if let Op::Symlink(target, _) = &mut op {
        *target = mark + target.get(3..).unwrap_or_default();
    }
    op
}

/// A name that all fight for.
fn fought(random: &mut Random) -> String {
    format!("{}/x{}", random.pick(&FOUGHT), random.below(NAMES as u64))
}

/// An operation that makes a name, takes one away or moves one, and never replaces.
fn fight(random: &mut Random) -> Op {
    match random.below(7) {
        0 => Op::Mknod(fought(random), NewKind::Regular),
        1 => Op::Mkdir(fought(random), 0o755),
        2 => Op::Unlink(fought(random)),
        3 => Op::Rmdir(fought(random)),
        4 => Op::Link(fought(random), fought(random)),
        5 => Op::Rename(fought(random), fought(random), RenameFlags::NOREPLACE),
        _ => Op::Rename(fought(random), fought(random), RenameFlags::EXCHANGE),
    }
}

/// How often each of the names was made, less how often it was taken away.
#[derive(Default)]
struct Balance([[AtomicI64; NAMES]; FOUGHT.len()]);

impl Balance {
    fn of(&self, path: &str) -> &AtomicI64 {
        let digit = |at: usize| path.as_bytes()[at] - b'0';
        &self.0[usize::from(digit(2))][usize::from(digit(5))]
    }

    fn add(&self, path: &str, names: i64) {
        self.of(path).fetch_add(names, Ordering::Relaxed);
    }

    /// Counts what `op` has done.
    fn count(&self, op: &Op) {
        match op {
            Op::Mknod(path, _) | Op::Mkdir(path, _) | Op::Link(_, path) => self.add(path, 1),
            Op::Unlink(path) | Op::Rmdir(path) => self.add(path, -1),
            Op::Rename(from, to, RenameFlags::NOREPLACE) => {
                self.add(from, -1);
                self.add(to, 1);
            }
            _ => {}
        }
    }

    fn assert(&self, what: &str, tree: &Tree) {
        for path in FOUGHT
            .iter()
            .flat_map(|dir| (0..NAMES).map(move |name| format!("{dir}/x{name}")))
        {
            let there = i64::from(tree.entries.contains_key(path.as_bytes()));
            assert_eq!(
                self.of(&path).load(Ordering::Relaxed),
                there,
                "{what}: {path}"
            );
        }
    }
}

/// One thread and its model.
struct Side {
    number: u64,
    ours: Session,
    model: Session,
    random: Random,
    work: Work,
    progress: Arc<Progress>,
    balance: Arc<Balance>,
}

/// The options for threads that have their own names.
#[derive(Clone, Copy)]
struct Work {
    habits: Habits,
    op: fn(&mut Random, &Habits) -> Op,
    operations: u64,
}

impl Side {
    fn work(mut self) {
        for at in 0..self.work.operations {
            let fights = self.random.one_in(3);
            let op = if fights {
                fight(&mut self.random)
            } else {
                (self.work.op)(&mut self.random, &self.work.habits)
            };
            let op = if fights { op } else { own(op, self.number) };
            let shown = format!("thread {}, operation {at}: {op:.200?}", self.number);
            self.progress.begin(shown.clone());
            let got = run(&self.ours, &op);
            if fights {
                if got.is_ok() {
                    self.balance.count(&op);
                }
                check(&shown, got);
            } else if !no_room(&op, &got) {
                let want = run_model(&self.model, &op, &got, self.work.habits.block_size);
                let errno = |result: &Result<()>| result.as_ref().err().map(Error::errno);
                assert_eq!(errno(&got), errno(&want), "{shown}: {got:?}");
            }
            let volume = self.ours.root().superblock();
            if self.random.one_in(100) {
                volume.sync().expect("sync");
            }
            if self.random.one_in(100) {
                volume.drop_caches();
            }
            self.progress.end();
        }
        self.progress.end_all();
    }
}

/// The models' trees as one: the names of each thread, and the shared directories with the links of
/// all.
fn together(models: &[Arc<MemFs>]) -> Tree {
    let mut all = Tree::default();
    for (thread, model) in models.iter().enumerate() {
        for (path, entry) in comparable(walk::tree(&**model)).entries {
            if is_of(thread as u64, &path) {
                all.entries.insert(path, entry);
            } else if SHARED.iter().any(|dir| dir.as_bytes() == path) {
                let links = entry.nlink.unwrap_or(2) - 2;
                let shared = all.entries.entry(path).or_insert(Entry {
                    nlink: Some(2),
                    ..entry
                });
                shared.nlink = shared.nlink.map(|sum| sum + links);
            }
        }
    }
    all
}

/// The shared directories' part of the volume's tree.
fn part(tree: Tree) -> Tree {
    let mut tree = comparable(tree);
    tree.entries
        .retain(|path, _| SHARED.iter().any(|dir| path.starts_with(dir.as_bytes())));
    tree
}

fn threads_against_models(spec: &ImageSpec, work: Work, threads: u64, seed: u64) {
    let what = format!("{} {threads} threads, seed {seed}", spec.name);
    let image = spec.build();
    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    let fs = memory::open(&what, &device);
    let ours = session(Arc::clone(&fs) as _);
    make_shared(&ours);
    for dir in FOUGHT {
        ours.mkdir(dir, 0o755).expect("a directory to fight in");
    }
    let models: Vec<_> = (0..threads)
        .map(|_| MemFs::new(MemLimits::default()))
        .collect();
    let balance = Arc::<Balance>::default();
    let crowd = models.iter().zip(0..).map(|(model, number)| {
        let model = session(Arc::clone(model) as _);
        make_shared(&model);
        let random = Random::new(seed * 100 + number);
        let progress = Arc::<Progress>::default();
        let side = Side {
            number,
            ours: ours.clone(),
            model,
            random,
            work,
            progress: Arc::clone(&progress),
            balance: Arc::clone(&balance),
        };
        (progress, std::thread::spawn(move || side.work()))
    });
    watch(&what, crowd.collect());
    drop(ours);
    let live = walk::tree(&*fs);
    fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(fs);
    let left = memory::judge_in(&what, &device, &image);
    assert_same(&format!("{what}, while it was open"), &live, &left);
    balance.assert(&what, &left);
    assert_same(
        &format!("{what}, against the models"),
        &part(left),
        &together(&models),
    );
}

fn side_by_side(spec: ImageSpec, habits: Habits) {
    all_against_models(
        spec,
        Work {
            habits,
            op,
            operations: 150,
        },
    );
}

fn all_against_models(spec: ImageSpec, work: Work) {
    if !spec.can_run() {
        return;
    }
    for seed in 0..memory::number("EXTERN4_CROWDS", 3) {
        threads_against_models(
            &spec,
            work,
            [8, 2, 4, 3, 1, 5, 6, 7][seed as usize % 8],
            seed + 1,
        );
    }
}

const HABITS: Habits = Habits {
    file_size: 1 << 17,
    value_size: 700,
    block_size: 1024,
    fallocate: true,
    few_values: 0,
};

#[test]
fn threads_on_ext4_agree_with_their_models() {
    side_by_side(
        ImageSpec::new(
            "ext4",
            96 << 20,
            &["-t", "ext4", "-b", "1024", "-J", "size=4"],
        ),
        HABITS,
    );
}

#[test]
fn threads_on_ext3_agree_with_their_models() {
    let habits = Habits {
        fallocate: false,
        ..HABITS
    };
    side_by_side(
        ImageSpec::new(
            "ext3",
            96 << 20,
            &["-t", "ext3", "-b", "1024", "-J", "size=4"],
        ),
        habits,
    );
}

#[test]
fn threads_that_share_attributes_agree_with_their_models() {
    let mke2fs = &[
        "-t", "ext4", "-b", "1024", "-I", "128", "-J", "size=4", "-O", "ea_inode",
    ];
    let habits = Habits {
        few_values: 3,
        value_size: 6000,
        ..HABITS
    };
    side_by_side(ImageSpec::new("ext4-few-ea", 96 << 20, mke2fs), habits);
}

#[test]
fn threads_with_contents_in_inodes_agree_with_their_models() {
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
    side_by_side(ImageSpec::new("ext4-inline", 96 << 20, mke2fs), habits);
}

#[test]
fn threads_with_contents_in_the_journal_agree_with_their_models() {
    let spec = ImageSpec::new(
        "ext4-data",
        96 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    );
    side_by_side(spec.then(LOG_CONTENTS), HABITS);
}

/// An operation on one of many names, which make directories large.
fn on_many_names(random: &mut Random, _: &Habits) -> Op {
    let mut path = || {
        format!(
            "/a-name-that-fills-a-directory-sooner-{}",
            random.below(500)
        )
    };
    let (path, other) = (path(), path());
    match random.below(20) {
        0..=8 => Op::Mknod(path, NewKind::Regular),
        9 => Op::Mkdir(path, 0o755),
        10..=12 => Op::Unlink(path),
        13 => Op::Rmdir(path),
        14..=15 => Op::Link(path, other),
        16..=17 => Op::Rename(path, other, RenameFlags::empty()),
        18 => Op::Rename(path, other, RenameFlags::EXCHANGE),
        _ => Op::Create(path, 0o644),
    }
}

#[test]
fn threads_in_large_directories_agree_with_their_models() {
    let work = Work {
        habits: HABITS,
        op: on_many_names,
        operations: 1000,
    };
    let mke2fs = &["-t", "ext4", "-b", "1024", "-N", "20000", "-J", "size=4"];
    all_against_models(ImageSpec::new("ext4-large", 64 << 20, mke2fs), work);
    let mke2fs = &[
        "-t",
        "ext2",
        "-b",
        "1024",
        "-N",
        "20000",
        "-O",
        "^dir_index",
    ];
    all_against_models(ImageSpec::new("ext2-large", 64 << 20, mke2fs), work);
}
