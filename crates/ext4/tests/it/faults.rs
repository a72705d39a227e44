//! A device that fails: the n-th read, write or flush of a sequence of operations, once or from
//! then on.
//!
//! The caller gets an error, and nothing panics or hangs. When the device works again, the volume
//! opens, `e2fsck` finds no fault, and everything that was synced is there.

use std::sync::Arc;
use std::time::Duration;

use extern4_block::device::fault::{Effect, Fault};
use extern4_block::{FaultDevice, MemoryDevice, Op as Request, RecordDevice};
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tree::{Kind, Tree, diff};
use extern4_vfs::memfs::{MemFs, MemLimits};
use extern4_vfs::{Errno, LookupFlags, OpenFlags, OpenHow, Result, Session};

use crate::memory;
use crate::model::{
    ALL_QUOTAS, Habits, LOG_CONTENTS, Op, Random, comparable, no_room, op, run, run_model, session,
};
use crate::walk;

const OPERATIONS: usize = 40;
const SYNC_EVERY: usize = 10;
const EIO: i32 = 5;
/// No sequence takes a hundredth of it.
const LIMIT: Duration = Duration::from_secs(60);

/// An operation that is a single change, or fails whole: so that there is no state between.
fn simple(random: &mut Random, habits: &Habits) -> Op {
    loop {
        let op = op(random, habits);
        if !matches!(op, Op::WriteUnlinked(..) | Op::Tmpfile(..)) {
            return op;
        }
    }
}

/// Whether a write or the like, which may have been done in part.
fn changes_contents(op: &Op) -> bool {
    matches!(
        op,
        Op::Write(..) | Op::Append(..) | Op::Truncate(..) | Op::Fallocate(..)
    )
}

/// Whether it failed because the device did, now or before.
fn is_fault(result: &Result<()>) -> bool {
    result
        .as_ref()
        .is_err_and(|e| e.cause().is_some() || [Errno::EIO, Errno::EROFS].contains(&e.errno()))
}

fn shape(fs: &impl extern4_vfs::FileSystem) -> Tree {
    let mut tree = comparable(walk::tree(fs));
    for entry in tree.entries.values_mut() {
        entry.content = None;
    }
    tree
}

/// Returns the tree without the fields that a failed write may have changed.
fn without_sizes(mut tree: Tree) -> Tree {
    for entry in tree
        .entries
        .values_mut()
        .filter(|entry| entry.kind == Kind::File)
    {
        entry.size = 0;
        entry.mode &= 0o777;
    }
    tree
}

/// The operations done before the device failed.
struct Done {
    /// The tree after each operation, the first before any, the last as if what failed had been
    /// done.
    trees: Vec<Tree>,
    synced: usize,
    /// The operation that failed changes contents.
    loose: bool,
    /// Something failed.
    failed: bool,
}

/// Runs the sequence until something fails; if it `goes_on`, also does whatever may be done after
/// that.
fn work(fs: &Arc<Ext4>, habits: &Habits, seed: u64, goes_on: bool) -> Done {
    let model_fs = MemFs::new(MemLimits::default());
    let ours = session(Arc::clone(fs) as _);
    let model = session(Arc::clone(&model_fs) as _);
    let mut random = Random::new(seed);
    let mut done = Done {
        trees: vec![shape(&*model_fs)],
        synced: 0,
        loose: false,
        failed: false,
    };
    for at in 0..OPERATIONS {
        let op = simple(&mut random, habits);
        let got = run(&ours, &op);
        if done.failed || no_room(&op, &got) {
            continue;
        }
        if is_fault(&got) {
            // The model would believe in what has been refused.
            let wanted = Ok(());
            let _ = run_model(&model, &op, &wanted, habits.block_size);
            (done.failed, done.loose) = (true, changes_contents(&op));
        } else {
            let want = run_model(&model, &op, &got, habits.block_size);
            assert_eq!(
                got.is_ok(),
                want.is_ok(),
                "operation {at}: {op:?}: {got:?} {want:?}"
            );
        }
        done.trees.push(shape(&*model_fs));
        if !done.failed && at % SYNC_EVERY == SYNC_EVERY - 1 {
            match sync(&ours) {
                Ok(()) => done.synced = done.trees.len() - 1,
                Err(_) => done.failed = true,
            }
        }
        if done.failed && !goes_on {
            break;
        }
    }
    if goes_on {
        let _ = sync(&ours);
    }
    done
}

fn sync(session: &Session) -> Result<()> {
    session.namespace().root().superblock().sync()
}

/// How the device fails.
#[derive(Clone, Copy, Debug)]
struct InjectedFault {
    op: Request,
    n: u64,
    times: u64,
    effect: Effect,
}

fn attempt(
    what: &str,
    bytes: Vec<u8>,
    habits: &Habits,
    seed: u64,
    failure: InjectedFault,
    goes_on: bool,
    judged: bool,
) {
    let device = Arc::new(MemoryDevice::new(bytes));
    let faulty = Arc::new(FaultDevice::new(Arc::clone(&device) as _));
    let InjectedFault {
        op,
        n,
        times,
        effect,
    } = failure;
    faulty.inject(Fault {
        times,
        ..Fault::nth(op, n, effect)
    });
    let fs = Ext4::open_for_writing(Arc::clone(&faulty) as _, &OpenOptions::default());
    let mut done = None;
    if let Ok(fs) = fs {
        let fs = Arc::new(fs);
        done = Some(work(&fs, habits, seed, goes_on));
        let closed = fs.close();
        let it = done.as_mut().expect("it was done");
        if closed.is_ok() && !it.failed {
            it.synced = it.trees.len() - 1;
        }
    }
    faulty.heal();
    let fs = memory::open(what, &device);
    let found = shape(&*fs);
    fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(fs);
    if judged {
        memory::fsck(what, &device);
    }
    let Some(Done {
        trees,
        synced,
        loose,
        failed,
    }) = done
    else {
        return;
    };
    if failed && goes_on {
        return;
    }
    let allowed: Vec<_> = trees[synced..].to_vec();
    let like = |tree: &Tree| {
        if loose {
            without_sizes(tree.clone())
        } else {
            tree.clone()
        }
    };
    if !allowed.iter().any(|tree| like(tree) == like(&found)) {
        let text: Vec<_> = allowed
            .iter()
            .enumerate()
            .filter_map(|(at, tree)| {
                diff(&like(&found), &like(tree), 5).map(|d| format!("{}: {d}", synced + at))
            })
            .collect();
        panic!(
            "{what}: no operation since {synced} left this:\n{}",
            text.join("\n")
        );
    }
}

/// How many reads, writes and flushes the sequence takes if nothing fails.
fn requests(bytes: Vec<u8>, habits: &Habits, seed: u64) -> [u64; 3] {
    let device = Arc::new(RecordDevice::new(Arc::new(MemoryDevice::new(bytes))));
    let fs = Arc::new(
        Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default())
            .expect("it opens"),
    );
    assert!(!work(&fs, habits, seed, false).failed);
    fs.close().expect("close");
    let counts = device.counts();
    [counts.reads, counts.writes, counts.flushes]
}

fn explore(spec: ImageSpec, habits: Habits, seed: u64) {
    if !spec.can_run() {
        return;
    }
    let bytes = memory::bytes_of(&spec);
    let [reads, writes, flushes] = requests(bytes.clone(), &habits, seed);
    // The most faults of each kind, spread over the sequence; all of them in a soak.
    let most = memory::number("EXTERN4_FAULTS", 16);
    let kinds = [
        (Request::Read, reads, 1, Effect::Error(EIO)),
        (Request::Write, writes, 1, Effect::Error(EIO)),
        // Not less: the superblock is written as one, or the format has no way to change it (see
        // power.rs).
        (Request::Write, writes, 1, Effect::Short(1024)),
        (Request::Write, writes, u64::MAX, Effect::Error(EIO)),
        (Request::Flush, flushes, 1, Effect::Error(EIO)),
        (Request::Flush, flushes, u64::MAX, Effect::Error(EIO)),
    ];
    let mut failed = Vec::new();
    for (op, count, times, effect) in kinds {
        let step = count.div_ceil(most).max(1);
        for (at, n) in (seed % step..count).step_by(step as usize).enumerate() {
            let failure = InjectedFault {
                op,
                n,
                times,
                effect,
            };
            let goes_on = at % 2 == 1;
            let what = format!("{} seed {seed}, goes on {goes_on}, {failure:?}", spec.name);
            let bytes = bytes.clone();
            let shown = what.clone();
            let judged = most > 16 || at % 2 == 0;
            let run = move || attempt(&shown, bytes, &habits, seed, failure, goes_on, judged);
            let run = || memory::in_time(&what, LIMIT, run);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                failed.push(what);
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

const HABITS: Habits = Habits {
    file_size: 1 << 16,
    value_size: 500,
    block_size: 1024,
    fallocate: true,
    few_values: 0,
};

fn seeds() -> impl Iterator<Item = u64> {
    1..=memory::number("EXTERN4_FAULT_SEEDS", 1)
}

#[test]
fn ext4_with_quotas_on_a_device_that_fails() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "quota,project",
        "-E",
        ALL_QUOTAS,
    ];
    seeds().for_each(|seed| {
        explore(
            ImageSpec::new("faults-quota", 8 << 20, mke2fs),
            HABITS,
            seed + 40,
        )
    });
}

/// `data_err=abort`: a write of contents that fails halts the volume. Otherwise only the writer
/// gets an error.
#[test]
fn contents_that_cannot_be_written_end_all_changes_where_that_is_asked_for() {
    let spec = ImageSpec::new("faults-abort", 8 << 20, &["-t", "ext4", "-b", "1024"]);
    if !spec.can_run() {
        return;
    }
    let bytes = memory::bytes_of(&spec);
    for abort_on_data_error in [false, true] {
        let device = Arc::new(MemoryDevice::new(bytes.clone()));
        let faulty = Arc::new(FaultDevice::new(Arc::clone(&device) as _));
        let options = OpenOptions {
            abort_on_data_error,
            ..OpenOptions::default()
        };
        let fs =
            Arc::new(Ext4::open_for_writing(Arc::clone(&faulty) as _, &options).expect("it opens"));
        let session = session(Arc::clone(&fs) as _);
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let how = OpenHow {
            flags,
            mode: 0o644,
            resolve: LookupFlags::empty(),
        };
        let write = |name: &str| session.open(name, how)?.write_at(&[7; 5000], 0);
        write("before").expect("a file");
        faulty.inject(Fault::nth(Request::Write, 0, Effect::Error(EIO)));
        assert!(write("struck").is_err());
        assert_eq!(session.mkdir("after", 0o755).is_err(), abort_on_data_error);
        assert_eq!(fs.close().is_err(), abort_on_data_error);
        drop((session, fs));
        let fs = memory::open("data_err", &device);
        fs.close().expect("close");
        drop(fs);
        memory::fsck("data_err", &device);
    }
}

#[test]
fn ext4_survives_a_device_that_fails() {
    let mke2fs = &["-t", "ext4", "-b", "1024", "-J", "size=1"];
    seeds().for_each(|seed| explore(ImageSpec::new("faults-ext4", 8 << 20, mke2fs), HABITS, seed));
}

#[test]
fn ext4_with_contents_in_the_journal_survives_a_device_that_fails() {
    let spec = ImageSpec::new(
        "faults-data",
        8 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    );
    seeds().for_each(|seed| explore(spec.then(LOG_CONTENTS), HABITS, seed + 60));
}

#[test]
fn ext3_survives_a_device_that_fails() {
    let habits = Habits {
        fallocate: false,
        ..HABITS
    };
    let mke2fs = &["-t", "ext3", "-b", "1024", "-J", "size=1"];
    seeds().for_each(|seed| {
        explore(
            ImageSpec::new("faults-ext3", 8 << 20, mke2fs),
            habits,
            seed + 20,
        )
    });
}
