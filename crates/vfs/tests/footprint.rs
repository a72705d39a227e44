//! A warm path walk allocates nothing, takes no lock, executes no locked instruction, and stores to
//! no line that a walk of another thread uses.
//!
//! `cargo test -p extern4-vfs --features audit --test footprint -- --nocapture` prints the figures.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use extern4_sync::allocations;
use extern4_sync::audit::{
    Footprint, among_sleepers, conflicts, locked_instructions, record, side_by_side,
};
use extern4_sync::percpu::Padded;
use extern4_sync::thread_slots::thread_number;
use extern4_vfs::*;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const CALLS: u64 = 100;
const FILE: &str = "/usr/include/linux/sched/fs.h";
const OTHER: &str = "/usr/include/linux/sched/mm.h";
/// Another name of the file.
const SAME: &str = "/usr/include/linux/sched/same.h";
const ABSENT: &str = "/usr/include/linux/sched/none";
const LINK: &str = "/usr/include/linux/sched/link.h";
const SHARED: &str = "/home/ann/project/plan";

/// The superuser's session on a volume in memory.
fn volume() -> Session {
    let sb = SuperBlock::new(MemFs::new(MemLimits::default()), SuperOptions::default()).unwrap();
    let root = Session::new(&Namespace::new(sb), Cred::root());
    for dir in [
        "/usr",
        "/usr/include",
        "/usr/include/linux",
        "/usr/include/linux/sched",
        "/home",
    ] {
        root.mkdir(dir, 0o755).unwrap();
    }
    for file in [FILE, OTHER] {
        root.mknod(file, NewKind::Regular, 0o644).unwrap();
    }
    root.symlink("fs.h", LINK).unwrap();
    root.link(FILE, LookupFlags::FOLLOW, SAME).unwrap();
    // A directory that some users may not search, for the full check.
    for (dir, mode) in [("/home/ann", 0o750), ("/home/ann/project", 0o750)] {
        root.mkdir(dir, mode).unwrap();
        root.chown(dir, Some(1000), Some(1000), LookupFlags::FOLLOW)
            .unwrap();
    }
    root.mknod(SHARED, NewKind::Regular, 0o640).unwrap();
    root
}

fn user(root: &Session) -> Session {
    root.with_cred(Cred::new(1000, 1000, &[]))
}

type Act<'a> = (&'static str, Box<dyn Fn() + Sync + 'a>);

fn stat<'a>(
    session: &'a Session,
    name: &'static str,
    path: &'static str,
    how: LookupFlags,
) -> Act<'a> {
    (
        name,
        Box::new(move || drop(black_box(session.stat(black_box(path), how)))),
    )
}

fn access<'a>(
    session: &'a Session,
    name: &'static str,
    path: &'static str,
    want: Access,
) -> Act<'a> {
    (
        name,
        Box::new(move || {
            drop(black_box(session.access(
                black_box(path),
                want,
                LookupFlags::FOLLOW,
            )))
        }),
    )
}

/// The calls that ask about a path and change nothing.
fn questions(session: &Session) -> Vec<Act<'_>> {
    thread_local!(static TARGET: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(64)));
    vec![
        stat(session, "stat", FILE, LookupFlags::FOLLOW),
        stat(session, "stat, another file", OTHER, LookupFlags::FOLLOW),
        stat(session, "stat, name not there", ABSENT, LookupFlags::FOLLOW),
        stat(
            session,
            "stat, symbolic link itself",
            LINK,
            LookupFlags::NOFOLLOW,
        ),
        stat(
            session,
            "stat, through symbolic link",
            LINK,
            LookupFlags::FOLLOW,
        ),
        stat(
            session,
            "stat, through ..",
            "/usr/include/linux/../linux/sched/fs.h",
            LookupFlags::FOLLOW,
        ),
        stat(
            session,
            "stat, full search check",
            SHARED,
            LookupFlags::FOLLOW,
        ),
        access(session, "access", FILE, Access::READ),
        access(session, "access, refused", FILE, Access::WRITE),
        access(session, "exists", FILE, Access::empty()),
        access(session, "exists, name not there", ABSENT, Access::empty()),
        (
            "rename to another name that it has",
            Box::new(|| {
                session
                    .rename(FILE, black_box(SAME), RenameFlags::empty())
                    .unwrap()
            }),
        ),
        (
            "read_link_into",
            Box::new(|| {
                TARGET
                    .with_borrow_mut(|to| {
                        session.read_link_into(black_box(LINK), LookupFlags::NOFOLLOW, to)
                    })
                    .unwrap();
            }),
        ),
    ]
}

/// Calls often enough that nothing is left to be remembered: the way to a directory is, the second
/// time.
fn warm(act: &dyn Fn()) {
    (0..3).for_each(|_| act());
}

fn allocations_of(act: &dyn Fn()) -> u64 {
    let before = allocations::of_this_thread();
    (0..CALLS).for_each(|_| act());
    allocations::of_this_thread() - before
}

#[test]
fn a_warm_question_allocates_nothing_and_executes_no_locked_instruction() {
    let root = volume();
    let user = user(&root);
    // The thread's record of its pin, and its slot of the counter of walks: the same two lines,
    // whatever is asked.
    let own = |footprint: &Footprint| footprint.written().collect::<BTreeSet<_>>();
    let mut expected = BTreeSet::new();
    let fallbacks = || root.root().superblock().stats().walk_fallbacks;
    for (name, ask) in questions(&user) {
        warm(&ask);
        let before = fallbacks();
        assert_eq!(allocations_of(&ask), 0, "{name}");
        let (_, footprint) = record(&ask);
        println!("{name:<28} {footprint}");
        assert_eq!(
            (footprint.total().rmws, footprint.full_fences()),
            (0, 0),
            "{name}: {footprint:?}"
        );
        if expected.is_empty() {
            expected = own(&footprint);
        }
        assert_eq!(
            (own(&footprint).len(), own(&footprint)),
            (2, expected.clone()),
            "{name}: {footprint:?}"
        );
        if let Some((_, locked)) = locked_instructions(&ask) {
            assert_eq!(locked, 0, "{name}");
        }
        assert_eq!(fallbacks(), before, "{name}: was not warm");
    }
}

#[test]
fn warm_questions_on_two_threads_share_no_line_that_one_writes() {
    let root = volume();
    let user = user(&root);
    let questions = questions(&user);
    for (one_name, one) in &questions {
        for (other_name, other) in &questions {
            let [one, other] = side_by_side(one, other);
            let found = conflicts(&one, &other);
            assert!(found.is_empty(), "{one_name} and {other_name}: {found:?}");
        }
    }
    println!(
        "{} pairs without a conflict",
        questions.len() * questions.len()
    );
}

fn conflict_count(one: impl Fn(), other: impl Fn() + Send) -> usize {
    let [one, other] = side_by_side(one, other);
    conflicts(&one, &other).len()
}

/// Questions during calls that change other files or take references to this one.
#[test]
fn a_lookup_shares_no_line_with_a_change_elsewhere() {
    // Chance may put two names into one bucket of a table, whose line they then share, but hardly
    // twice.
    let mut fewest = [usize::MAX; 3];
    for _ in 0..3 {
        let root = volume();
        let ask = || drop(black_box(root.stat(FILE, LookupFlags::FOLLOW)));
        let open = || drop(root.open(FILE, OpenFlags::READ).unwrap());
        let chmod = || root.chmod(OTHER, 0o600, LookupFlags::FOLLOW).unwrap();
        let found = [
            conflict_count(ask, open),
            conflict_count(ask, chmod),
            conflict_count(ask, || make_and_remove(&root)),
        ];
        fewest = std::array::from_fn(|index| fewest[index].min(found[index]));
    }
    let names = [
        "open of the same file",
        "chmod of another file",
        "mknod and unlink elsewhere",
    ];
    for (name, lines) in names.iter().zip(fewest) {
        println!("stat next to {name:<25} {lines} lines in conflict");
        assert_eq!(lines, 0, "{name}");
    }
}

/// Two threads that open and close a file each, through one session: each writes its own lines
/// only. The two locked instructions count the reference to the dentry, on a line of that; threads
/// that open one file meet there and nowhere else.
#[test]
fn open_and_close_share_no_line_that_one_writes() {
    let mut fewest = usize::MAX;
    for _ in 0..3 {
        let root = volume();
        let user = root.with_cred(Cred::new(1000, 1000, &[]));
        let open = |path| drop(user.open(black_box(path), OpenFlags::READ).unwrap());
        let one = || open(FILE);
        let other = || open(OTHER);
        warm(&one);
        assert_eq!(allocations_of(&one), 0);
        let footprint = seen("open and close", one);
        assert_eq!(
            (footprint.total().rmws, footprint.full_fences()),
            (2, 0),
            "{footprint:?}"
        );
        // Now and then a close frees memory that threads of other tests retired, which takes a
        // hundred more.
        let mut locked: Vec<_> = (0..5)
            .filter_map(|_| locked_instructions(one))
            .map(|(_, locked)| locked)
            .collect();
        locked.sort_unstable();
        if let Some(median) = locked.get(locked.len() / 2) {
            assert_eq!(
                *median, 2,
                "counts that are shared, which the audit does not see: {locked:?}"
            );
        }
        assert_eq!(conflict_count(one, one), 1, "the count of the dentry");
        let [one, other] = side_by_side(one, other);
        let found = conflicts(&one, &other);
        let locked: u64 = found
            .iter()
            .flat_map(|conflict| conflict.uses)
            .map(|uses| uses.rmws)
            .sum();
        // The bench reads this.
        println!("locked instructions on lines that another thread uses: {locked}");
        fewest = fewest.min(found.len());
        assert_eq!(root.root().superblock().open_files().len(), 0);
    }
    // Chance may put two names into one bucket of a table, but hardly three times.
    assert_eq!(fewest, 0);
}

/// Threads numbered above 128 that sleep: they stat, open and close as cheaply as a thread with a
/// low number, and write only their own lines.
#[test]
fn threads_with_high_numbers_share_no_line_either() {
    let root = volume();
    let lowest = AtomicUsize::new(usize::MAX);
    let act = |path| {
        drop(black_box(root.stat(black_box(path), LookupFlags::FOLLOW)));
        drop(black_box(root.open(black_box(path), OpenFlags::READ)));
    };
    let high = |path| {
        lowest.fetch_min(thread_number(), Ordering::Relaxed);
        act(path);
    };
    (0..CALLS).for_each(|_| act(FILE));
    let expected = seen("stat, open and close", || act(FILE)).total().rmws;
    // Other tests give low numbers back meanwhile.
    for _ in 0..20 {
        lowest.store(usize::MAX, Ordering::Relaxed);
        let beside = || {
            high(FILE);
            let (_, footprint) = record(|| high(FILE));
            assert_eq!(
                (footprint.total().rmws, footprint.full_fences()),
                (expected, 0),
                "{footprint:?}"
            );
            side_by_side(|| high(FILE), || high(OTHER))
        };
        let [one, other] = among_sleepers(128, || act(SHARED), beside);
        if lowest.load(Ordering::Relaxed) > 63 && conflicts(&one, &other).is_empty() {
            return;
        }
    }
    panic!("numbers as low as {lowest:?}, or conflicts each time");
}

/// Two threads that write over blocks of one file, and one that reads a further block. The first
/// write in each tick of the clock has the file to itself, so they get many chances to come within
/// one.
#[test]
fn writes_over_blocks_of_one_file_share_no_line_that_one_writes() {
    let root = volume();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let [one, other, reader] =
        [flags, flags, flags | OpenFlags::NOATIME].map(|how| root.open(FILE, how).unwrap());
    one.write_at(&[0; 5 * 4096], 0).unwrap();
    let write = |file: &OpenFile, bytes, offset| {
        assert_eq!(file.write_at(&[bytes; 4096], offset).unwrap(), 4096)
    };
    // Something else each time: what is there already would not be written.
    let next = [const { Padded(AtomicU8::new(0)) }; 2];
    let next = |writer: usize| {
        let byte = next[writer].0.load(Ordering::Relaxed).wrapping_add(1);
        next[writer].0.store(byte, Ordering::Relaxed);
        byte
    };
    let same = || write(&one, 1, 0);
    let one = || write(&one, next(0), 0);
    let other = || write(&other, next(1), 2 * 4096);
    let read = || assert_eq!(reader.read_at(&mut [0; 4096], 4 * 4096).unwrap(), 4096);
    assert!(conflict_count(one, other) > 0, "it has not been done often");
    for (name, one, beside) in [
        (
            "a write",
            &one as &(dyn Fn() + Sync),
            &other as &(dyn Fn() + Sync),
        ),
        ("a read", &one, &read),
        ("a write of the same", &same, &same),
    ] {
        let mut fewest = usize::MAX;
        for _ in 0..100 {
            // For a moment a thread's own memory is not taken for shared.
            std::thread::sleep(std::time::Duration::from_millis(1));
            for _ in 0..20 {
                one();
                beside();
            }
            fewest = fewest.min(conflict_count(one, beside));
            if fewest == 0 {
                break;
            }
        }
        assert_eq!(fewest, 0, "next to {name}");
    }
    assert_eq!(allocations_of(&one), 0);
    // Over bytes that change they wait for each other.
    assert!(conflict_count(one, one) > 0);
}

fn make_and_remove(root: &Session) {
    root.mknod("/home/new", NewKind::Regular, 0o644).unwrap();
    root.unlink("/home/new").unwrap();
}

fn seen(name: &str, act: impl Fn()) -> Footprint {
    let (_, footprint) = record(act);
    println!("{name:<28} {footprint}");
    footprint
}

/// The counters do count locks and references of other calls, so the zeroes above mean something.
#[test]
fn calls_that_take_locks_and_references_are_seen() {
    let root = volume();
    root.root().superblock().drop_caches();
    let cold = seen("stat, name not in the cache", || {
        drop(root.stat(FILE, LookupFlags::FOLLOW))
    });
    assert!(cold.total().rmws > 10, "{cold:?}");

    let open = || drop(root.open(FILE, OpenFlags::READ).unwrap());
    warm(&open);
    let opened = seen("open and close", open);
    assert!(opened.total().rmws >= 1, "{opened:?}");

    let touch = || make_and_remove(&root);
    warm(&touch);
    assert!(allocations_of(&touch) >= CALLS);
    assert!(seen("mknod and unlink", touch).total().rmws > 10);

    // One locked instruction each way, for the count of the target, which no other test would see.
    let read_link = || drop(root.read_link(LINK, LookupFlags::NOFOLLOW).unwrap());
    warm(&read_link);
    assert_eq!(seen("read_link", read_link).total().rmws, 0);
    if let Some((_, locked)) = locked_instructions(read_link) {
        assert_eq!(locked, 2);
    }

    let ask = || drop(root.stat(FILE, LookupFlags::FOLLOW));
    let chmod = || root.chmod(FILE, 0o600, LookupFlags::FOLLOW).unwrap();
    assert!(seen("chmod", chmod).total().stores > 4);
    assert!(conflict_count(ask, chmod) > 0);
}
