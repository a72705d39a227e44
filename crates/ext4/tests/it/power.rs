//! The state of a volume after the power went, at any moment of a sequence of operations.
//!
//! The operations run on a device that remembers every write and flush. At moments all over that
//! history, the tests take states that a crash may leave: everything flushed, and any of the rest,
//! sector by sector. We recover each of them, and `e2fsck -p` and the kernel recover some as well.
//! Each has to be free of faults then. It has to be what the volume was after some operation, not
//! before the last that was synced. Where several threads are at work, each on its own names,
//! that holds for the names of each.

use std::path::Path;
use std::sync::Arc;

use extern4_block::{BlockDevice, CrashDevice, MemoryDevice};
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools;
use extern4_testkit::tree::{self, Tree, assert_same};
use extern4_vfs::memfs::{MemFs, MemLimits};
use extern4_vfs::{FallocateMode, OpenFlags, Session};

use crate::model::{
    ALL_QUOTAS, Habits, LOG_CONTENTS, Op, Random, comparable, no_room, op, open, run, run_model,
    session,
};
use crate::sharing::assert_counts;
use crate::side_by_side::{is_of, make_shared, own};
use crate::walk;

/// Of this number of operations, one makes everything durable.
const SYNC_EVERY: usize = 12;
/// Of this number of changes of a file, one is followed by a sync of that file.
const FSYNC_ONE_IN: u64 = 4;

/// The operations of threads on a volume.
struct History {
    device: Arc<CrashDevice>,
    /// From this moment on it can be looked at.
    start: usize,
    threads: Vec<Sequence>,
}

/// The operations of one thread.
struct Sequence {
    /// Its number among the threads that work at the same time; `None` if it is alone, so that all
    /// names are its own.
    thread: Option<u64>,
    /// The tree of its names after each operation, the first before any.
    trees: Vec<Tree>,
    /// For each sync: the moment when it returned, and the operations before it.
    synced: Vec<(usize, usize)>,
    /// For each operation, the moment when it was begun.
    begun: Vec<usize>,
}

/// Operations that change metadata, and contents only where nothing was. Otherwise the contents of
/// a file may be newer than the metadata that a crash leaves.
fn tame(random: &mut Random, habits: &Habits) -> Op {
    loop {
        let op = op(random, habits);
        let overwrites = matches!(
            op,
            Op::Write(..)
                | Op::Truncate(..)
                | Op::Fallocate(..)
                | Op::Append(..)
                | Op::WriteUnlinked(..)
        );
        if !overwrites || random.below(3) == 0 {
            return op;
        }
    }
}

/// Records the operations of `threads` threads, `count` of each.
fn record(spec: &ImageSpec, habits: &Habits, seed: u64, threads: u64, count: usize) -> History {
    let image = spec.build();
    let device = Arc::new(CrashDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    // With discards, blocks may be discarded only after their removal is durable.
    let options = OpenOptions {
        discard: Some(seed % 2 == 1),
        ..OpenOptions::default()
    };
    let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &options).expect("the volume opens");
    let fs = Arc::new(fs);
    let ours = session(Arc::clone(&fs) as _);
    let number = |thread| (threads > 1).then_some(thread);
    let mut start = 0;
    if threads > 1 {
        make_shared(&ours);
        ours.namespace().root().superblock().sync().expect("sync");
        start = device.moment();
    }
    let record = |thread| {
        let mut sequence = Sequence::new(number(thread));
        sequence.record(&device, &ours, habits, seed + 1000 * thread, count);
        sequence
    };
    let mut threads: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || record(thread)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it has recorded"))
            .collect()
    });
    drop(ours);
    fs.close().expect("close");
    for sequence in &mut threads {
        sequence.synced.push((device.moment(), count));
    }
    History {
        device,
        threads,
        start,
    }
}

impl Sequence {
    fn new(thread: Option<u64>) -> Self {
        Self {
            thread,
            trees: Vec::new(),
            synced: Vec::new(),
            begun: Vec::new(),
        }
    }

    /// Runs random operations on the volume and on a model.
    fn record(
        &mut self,
        device: &CrashDevice,
        ours: &Session,
        habits: &Habits,
        seed: u64,
        count: usize,
    ) {
        let model_fs = MemFs::new(MemLimits::default());
        let model = session(Arc::clone(&model_fs) as _);
        if self.thread.is_some() {
            make_shared(&model);
        }
        let mut random = Random::new(seed);
        self.trees.push(self.part(walk::tree(&*model_fs)));
        for at in 0..count {
            self.begun.push(device.moment());
            let op = tame(&mut random, habits);
            let op = self.thread.map_or(op.clone(), |thread| own(op, thread));
            let got = run(ours, &op);
            if !no_room(&op, &got) {
                let want = run_model(&model, &op, &got, habits.block_size);
                assert_eq!(
                    got.is_ok(),
                    want.is_ok(),
                    "operation {at}: {op:?}: {got:?} {want:?}"
                );
            }
            self.trees.push(self.part(walk::tree(&*model_fs)));
            if at % SYNC_EVERY == SYNC_EVERY - 1 {
                ours.namespace().root().superblock().sync().expect("sync");
                self.synced.push((device.moment(), at + 1));
            } else if got.is_ok()
                && random.one_in(FSYNC_ONE_IN)
                && sync_file(ours, &op, self.trees[at] != self.trees[at + 1], &mut random)
            {
                self.synced.push((device.moment(), at + 1));
            }
        }
    }

    /// This thread's part of a tree, contents left out.
    fn part(&self, tree: Tree) -> Tree {
        let mut tree = without_contents(tree);
        if let Some(thread) = self.thread {
            tree.entries.retain(|path, _| is_of(thread, path));
        }
        tree
    }

    /// Which trees may be found after a crash at `moment`.
    fn allowed(&self, moment: usize) -> std::ops::RangeInclusive<usize> {
        let least = self
            .synced
            .iter()
            .filter(|(at, _)| *at <= moment)
            .map(|(_, ops)| *ops)
            .max()
            .unwrap_or(0);
        let most = self.begun.iter().filter(|at| **at <= moment).count();
        least..=most.max(least)
    }

    /// Fails unless the tree that was found is what these operations may have left.
    fn assert_allowed(&self, what: &str, moment: usize, found: &Tree) {
        let found = self.part(found.clone());
        let allowed = self.allowed(moment);
        if !self.trees[allowed.clone()].contains(&found) {
            let text: Vec<_> = allowed
                .clone()
                .filter_map(|at| {
                    tree::diff(&found, &self.trees[at], 5).map(|d| format!("{at}: {d}"))
                })
                .collect();
            let thread = self.thread.unwrap_or_default();
            panic!(
                "{what}: no operation of thread {thread} in {allowed:?} left this:\n{}",
                text.join("\n")
            );
        }
    }
}

/// Makes what an operation has done to a file durable, and so everything before it, as `fsync(2)`
/// or `fdatasync(2)` do. False for other operations, for what cannot be opened for reading, and
/// where nothing but contents may have been made durable.
fn sync_file(session: &Session, op: &Op, changes_tree: bool, random: &mut Random) -> bool {
    let (Op::Write(path, ..) | Op::Append(path, ..) | Op::SetXattr(path, ..) | Op::Chmod(path, ..)) =
        op
    else {
        return false;
    };
    let Ok(file) = open(session, path, OpenFlags::READ, 0) else {
        return false;
    };
    let data_only = random.one_in(2);
    file.sync(data_only).expect("a sync of a file");
    // Contents that have been written over become durable by themselves, and what was done before
    // to other files does not.
    !data_only || changes_tree || !matches!(op, Op::Write(..))
}

fn without_contents(tree: Tree) -> Tree {
    let mut tree = comparable(tree);
    for entry in tree.entries.values_mut() {
        entry.content = None;
    }
    tree
}

impl History {
    /// Checks `states` states, at moments by chance.
    fn explore(&self, what: &str, seed: u64, states: usize, thorough_every: usize) {
        let mut random = Random::new(seed + 7);
        let moments = (self.device.moment() - self.start) as u64 + 1;
        // In order, which the device likes better.
        let mut moments: Vec<_> = (0..states)
            .map(|_| self.start + random.below(moments) as usize)
            .collect();
        moments.sort_unstable();
        for (at, moment) in moments.into_iter().enumerate() {
            self.check(
                what,
                moment,
                &mut random,
                thorough_every > 0 && at % thorough_every == 0,
            );
        }
    }

    fn check(&self, what: &str, moment: usize, random: &mut Random, thorough: bool) {
        let (kind, bytes) = crash(&self.device, moment, random);
        let what = format!(
            "{what}, moment {moment} of {}, {kind}",
            self.device.moment()
        );
        let folder = tools::temporary("extern4-power-");
        let recovered = ours(&what, bytes.clone());
        let file = folder.path().join("ours.img");
        std::fs::write(&file, &recovered).expect("the image is written");
        fsck(&what, &file, "-fn");
        let left = walk::open(&file);
        assert_counts(&what, &left);
        let found = without_contents(walk::tree(&left));
        for sequence in &self.threads {
            sequence.assert_allowed(&what, moment, &found);
        }
        if thorough {
            let file = folder.path().join("theirs.img");
            std::fs::write(&file, &bytes).expect("the image is written");
            let _ = tools::try_run("e2fsck", ["-p".as_ref(), file.as_os_str()]);
            fsck(&format!("{what}, by e2fsck"), &file, "-fn");
            let theirs = without_contents(walk::tree(&walk::open(&file)));
            assert_same(&format!("{what}, by e2fsck"), &theirs, &found);
            std::fs::write(&file, &bytes).expect("the image is written");
            kernel(&what, &file);
            let theirs = without_contents(walk::tree(&walk::open(&file)));
            assert_same(&format!("{what}, by the kernel"), &theirs, &found);
        }
    }
}

/// A state that a crash at `moment` may leave: with all, none, or any of the pending sectors; and
/// which of these.
pub(crate) fn crash(device: &CrashDevice, moment: usize, random: &mut Random) -> (u64, Vec<u8>) {
    let kind = random.below(4);
    let mut coin = Random::new(random.below(u64::MAX));
    let mut superblock = (0, false);
    let state = device.crash(moment, |pending| {
        let keep = match kind {
            0 => true,
            1 => false,
            2 => coin.below(2) == 0,
            _ => coin.below(8) != 0,
        };
        // The superblock fills two sectors, and its checksum is in the second. Every change has to
        // write both, so every implementation relies on the disk to write them atomically.
        match pending.sector {
            2 => superblock = (pending.event, keep),
            3 if superblock.0 == pending.event => return superblock.1,
            _ => {}
        }
        keep
    });
    (kind, state.into_bytes())
}

/// The volume after we have recovered and closed it.
pub(crate) fn ours(what: &str, bytes: Vec<u8>) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default())
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(fs);
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(&mut bytes, 0).expect("memory");
    bytes
}

pub(crate) fn fsck(what: &str, file: &Path, how: &str) {
    tools::try_run("e2fsck", [how.as_ref(), file.as_os_str()])
        .unwrap_or_else(|e| panic!("{what}: e2fsck finds fault: {e}"));
}

/// Lets the kernel replay the journal and free the orphans.
pub(crate) fn kernel(what: &str, file: &Path) {
    let point = tools::temporary("extern4-mnt-");
    let paths = [file.as_os_str(), point.path().as_os_str()];
    tools::try_run(
        "mount",
        ["-t", "ext4", "-o", "loop"]
            .map(std::ffi::OsStr::new)
            .into_iter()
            .chain(paths),
    )
    .unwrap_or_else(|e| panic!("{what}: {e}"));
    tools::try_unmount(point.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
    fsck(&format!("{what}, by the kernel"), file, "-fn");
}

/// How many states of each volume: more where the environment asks for a soak.
fn states() -> usize {
    std::env::var("EXTERN4_CRASHES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(334)
}

fn explore(spec: ImageSpec, habits: Habits, thorough_every: usize) {
    if !spec.can_run() {
        return;
    }
    let states = states();
    let per_history = 167;
    for seed in 0..states.div_ceil(per_history) as u64 {
        let history = record(&spec, &habits, seed + 100, 1, 60);
        let what = format!("{}, history {}", spec.name, seed + 100);
        history.explore(&what, seed, per_history.min(states), thorough_every);
    }
}

/// Explores histories of several threads at once.
fn explore_crowds(spec: ImageSpec, habits: Habits, thorough_every: usize) {
    if !spec.can_run() {
        return;
    }
    let per_history = 28;
    for seed in 0..(states() / 3).div_ceil(per_history) as u64 {
        let threads = [8, 2, 4, 3, 5, 6, 7][seed as usize % 7];
        let history = record(&spec, &habits, seed + 100, threads, 30);
        let what = format!("{}, {threads} threads, history {}", spec.name, seed + 100);
        history.explore(&what, seed, per_history, thorough_every);
    }
}

const HABITS: Habits = Habits {
    file_size: 1 << 16,
    value_size: 500,
    block_size: 1024,
    fallocate: true,
    few_values: 0,
};

#[test]
fn ext4_survives_power_loss() {
    explore(
        ImageSpec::new(
            "ext4",
            16 << 20,
            &["-t", "ext4", "-b", "1024", "-J", "size=4"],
        ),
        HABITS,
        10,
    );
}

#[test]
fn ext4_with_a_small_journal_survives_power_loss() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-J",
        "size=4",
        "-N",
        "2048",
        "-O",
        "^metadata_csum",
    ];
    explore(
        ImageSpec::new("ext4-4k", 24 << 20, mke2fs),
        Habits {
            block_size: 4096,
            ..HABITS
        },
        10,
    );
}

#[test]
fn ext4_with_quotas_survives_power_loss() {
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
    // Few kernels are built to write quota files, so only we recover it.
    explore(ImageSpec::new("ext4-quota", 16 << 20, mke2fs), HABITS, 0);
}

#[test]
fn ext4_with_contents_in_the_journal_survives_power_loss() {
    let ext4 = ImageSpec::new(
        "ext4-data",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    );
    explore(ext4.then(LOG_CONTENTS), HABITS, 10);
}

#[test]
fn ext3_survives_power_loss() {
    let mke2fs = &["-t", "ext3", "-b", "1024", "-J", "size=4"];
    explore(
        ImageSpec::new("ext3", 16 << 20, mke2fs),
        Habits {
            fallocate: false,
            ..HABITS
        },
        10,
    );
}

#[test]
fn shared_blocks_survive_power_loss() {
    let habits = Habits {
        few_values: 3,
        ..HABITS
    };
    explore(
        ImageSpec::new(
            "ext4-few",
            16 << 20,
            &["-t", "ext4", "-b", "1024", "-J", "size=4"],
        ),
        habits,
        10,
    );
    let mke2fs = &[
        "-t", "ext4", "-b", "1024", "-I", "128", "-J", "size=4", "-O", "ea_inode",
    ];
    let habits = Habits {
        few_values: 3,
        value_size: 6000,
        ..HABITS
    };
    explore(ImageSpec::new("ext4-few-ea", 16 << 20, mke2fs), habits, 10);
}

#[test]
fn changes_of_many_threads_survive_power_loss() {
    let ext4 = ImageSpec::new(
        "ext4",
        24 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    );
    explore_crowds(ext4, HABITS, 10);
    let habits = Habits {
        few_values: 3,
        ..HABITS
    };
    let few = ImageSpec::new(
        "ext4-few",
        24 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    );
    explore_crowds(few, habits, 10);
    let data = ImageSpec::new(
        "ext4-data",
        24 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    );
    explore_crowds(data.then(LOG_CONTENTS), HABITS, 10);
}

/// Bytes that were written after the end of a file, before a crash that kept the old size, are not
/// visible when the file grows.
#[test]
fn bytes_beyond_the_end_of_a_file_stay_unseen_after_a_crash() {
    let spec = ImageSpec::new(
        "ext4",
        16 << 20,
        &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    );
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let device = Arc::new(CrashDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default())
        .expect("it opens");
    let writing = session(Arc::new(fs));
    let file = || "/file".to_owned();
    run(&writing, &Op::Create(file(), 0o644)).expect("a file");
    run(&writing, &Op::Write(file(), 0, 1000)).expect("contents");
    writing
        .namespace()
        .root()
        .superblock()
        .sync()
        .expect("sync");
    run(&writing, &Op::Append(file(), 1000)).expect("more");
    let left = device.crash(device.moment(), |_| true).into_bytes();
    let none = FallocateMode::empty();
    let grow = [
        Op::Truncate(file(), 3000),
        Op::Write(file(), 3000, 10),
        Op::Fallocate(file(), none, 0, 3000),
        Op::Fallocate(file(), none, 2500, 500),
        Op::Fallocate(file(), FallocateMode::ZERO_RANGE, 2500, 500),
        Op::Fallocate(file(), FallocateMode::ZERO_RANGE, 2500, 5000),
    ];
    for op in grow {
        let device = Arc::new(MemoryDevice::new(left.clone()));
        let again = session(crate::memory::open("again", &device));
        assert_eq!(
            open(&again, "/file", OpenFlags::READ, 0)
                .expect("it opens")
                .size(),
            1000
        );
        run(&again, &op).expect("it grows");
        let mut bytes = [0xee; 2000];
        let file = open(&again, "/file", OpenFlags::READ, 0).expect("it opens");
        assert_eq!(
            file.read_at(&mut bytes, 1000).expect("a read"),
            2000,
            "{op:?}"
        );
        assert_eq!(bytes.iter().position(|&byte| byte != 0), None, "{op:?}");
    }
}
