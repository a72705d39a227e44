//! The registry of open files of a file system.
//!
//! The baseline and the patch are registries of the lab. The records are the records of production,
//! filled and emptied in the same way as by `OpenFiles::enter` and `leave`.
//!
//! `lib` calls `chapter` to measure, and `main` calls `count` in the audit's build.

mod churn;
mod hand_over;
mod lglock;
mod listing;
mod lists;
mod pairs;
mod remounts;
mod traces;

use extern4_sync::percpu;
use extern4_sync::thread_counter::ThreadCounter;
use extern4_vfs::lab::{Opened, Registry, SlabRegistry};
use extern4_vfs::{OpenFileInfo, OpenFlags};

use crate::access_counts::AccessCounts;
use crate::chapter::{Chapter, Fact, times};
use crate::plan::{Plan, Side};
use crate::row::{self, Counter, Row, Sample};
use extern4_measure::load::Done;
use extern4_measure::table::{Table, maybe};
use extern4_measure::verdict::Verdict;

use lists::{CpuLists, OneList};
use remounts::WriterCheck;
use traces::{Trace, VolumeRegistry};

/// One list, one lock.
pub type Baseline = OneList<Opened>;
/// A list for each CPU, under an lglock. A file remembers its list.
pub type Patch = CpuLists<Opened>;
/// One slab for each thread.
pub type Extern4 = SlabRegistry<Opened>;

const PAIRS: &str = "open and close";
const HAND_OVER: &str = "one opens, others close";
const LISTING: &str = "open and close, all listed now and then";
const REMOUNTS: &str = "open for writing and close, remounts now and then";
const BOOT: &str = "a machine boots";
const BUILD: &str = "a project is built";
const DBENCH: &str = "clients of a file server";
const WORKLOADS: [&str; 7] = [PAIRS, HAND_OVER, LISTING, REMOUNTS, BOOT, BUILD, DBENCH];

/// The workload whose [`instructions`](crate::instructions) are counted.
pub const REPEATED: [&str; 1] = [PAIRS];

/// The path of the opened file.
const PATH: &[u8] = b"/usr/include/linux/fs.h";

/// A registry that counts the locks it takes.
pub trait Locks: Registry<Opened> {
    /// Returns the number of locks taken so far.
    fn locks(&self) -> u64 {
        0
    }
}

impl Locks for Extern4 {}

/// Adds an open file to the registry.
fn open<R: Registry<Opened>>(registry: &R, ino: u64) -> R::Ticket {
    let mut info = OpenFileInfo::default();
    (info.session, info.uid, info.ino, info.flags) = (1, 1000, ino, OpenFlags::empty());
    registry
        .add(|opened| opened.fill(&info, PATH))
        .expect("there is room")
}

/// Removes an open file from the registry.
fn close<R: Registry<Opened>>(registry: &R, ticket: &R::Ticket) {
    assert!(
        registry.remove(ticket, Opened::empty),
        "it has been closed before"
    );
}

/// Counts of closed files: all, those closed on the CPU that opened them, and those closed on its
/// node.
struct Moves(ThreadCounter<3>);

impl Moves {
    fn new() -> Self {
        Self(ThreadCounter::new())
    }

    /// Counts a file that was opened on CPU `opened` and is closed on this one.
    fn note(&self, opened: usize) {
        let here = percpu::cpu();
        let same_node = percpu::node_of(here) == percpu::node_of(opened);
        self.0
            .add([1, u64::from(here == opened), u64::from(same_node)]);
    }

    /// Returns the counts as counters, in percent.
    fn counters(&self) -> [Counter; 2] {
        let [all, on_cpu, on_node] = self.0.sum();
        let percent = |part: u64| 100.0 * part as f64 / all as f64;
        [(ON_CPU, percent(on_cpu)), (ON_NODE, percent(on_node))]
    }
}

/// Returns a repetition with the counters of all workloads.
fn sample(done: &Done, moves: &Moves, locks: u64) -> Sample {
    let mut sample = Sample::of(done);
    // The count includes an unmeasured batch of each thread.
    sample.counters.push((LOCKS, locks as f64));
    sample.counters.extend(moves.counters());
    sample
}

/// Measures open files.
pub fn chapter(plan: &Plan, counted: &AccessCounts, say: &mut dyn FnMut(&str)) -> Chapter {
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        for &threads in plan.threads_of(workload) {
            say(&format!("{workload}, {threads} threads"));
            rows.push(row::measure(
                plan,
                workload,
                threads,
                &Side::ALL,
                |side| match side {
                    Side::Baseline => take::<Baseline>(plan, workload, threads),
                    Side::Patch => take::<Patch>(plan, workload, threads),
                    _ => take::<Extern4>(plan, workload, threads),
                },
            ));
        }
    }
    let of = |workload| {
        rows.iter()
            .filter(move |row: &&Row| row.workload == workload)
    };
    let two = of(PAIRS).find(|row| row.threads == 2);
    let mut verdicts = vec![
        Verdict::faster(
            Side::Extern4,
            Side::Baseline,
            "the registry alone, open and close, 2 threads",
            3.0,
            two,
        ),
        Verdict::faster_in_all(
            Side::Extern4,
            Side::Baseline,
            "the registry alone, one opens, others close",
            1.0,
            of(HAND_OVER),
        ),
    ];
    let through = [BOOT, BUILD, DBENCH];
    verdicts.extend(row::nowhere_slower("the registry alone", &rows, |row| {
        !through.contains(&row.workload)
    }));
    verdicts.extend(row::nowhere_slower("through open", &rows, |row| {
        through.contains(&row.workload)
    }));
    let table = table(&rows);
    let mut facts = if plan.repeated.is_some() {
        Vec::new()
    } else {
        churn::facts(plan)
    };
    let lengths: Vec<_> = Side::ALL
        .into_iter()
        .filter_map(|side| counted.instructions(PAIRS, side).cloned())
        .collect();
    let instructions = lengths
        .iter()
        .filter_map(|length| length.instructions.median());
    if let Ok(figures) = instructions.collect::<Vec<_>>().try_into() {
        facts.push(Fact {
            name: format!("instructions, the registry alone: {PAIRS}"),
            figures,
        });
    }
    let counted = counted.of(&[PAIRS, CLOSE]);
    Chapter {
        title: "Open files",
        name: "open-files",
        idea: IDEA,
        sides: SIDES,
        notes: NOTES,
        published: PUBLISHED,
        theirs: THEIRS,
        table: Some(table),
        drawn: &[PAIRS, HAND_OVER],
        rows,
        counted,
        facts,
        lengths,
        verdicts,
    }
}

fn take<R: WriterCheck<Ticket: Send> + VolumeRegistry>(
    plan: &Plan,
    workload: &str,
    threads: usize,
) -> Sample {
    match workload {
        PAIRS => pairs::take::<R>(plan, threads),
        HAND_OVER => hand_over::take::<R>(plan, threads),
        LISTING => listing::take::<R>(plan, threads),
        BOOT => traces::take::<R>(plan, &Trace::boot(), threads),
        BUILD => traces::take::<R>(plan, &Trace::build(), threads),
        DBENCH => traces::take::<R>(plan, &Trace::dbench(), threads),
        _ => remounts::take::<R>(plan, threads),
    }
}

const CLOSE: &str = "close what another thread opened";

/// Returns the patch's own table next to the lab's figures, with the most threads that were
/// measured.
fn table(rows: &[Row]) -> Table {
    const THEIRS: [(&str, [&str; 3], &str); 3] = [
        ("booting", ["25,049", "92.5", "95.6"], BOOT),
        ("kbuild -j16", ["2,281,913", "96.8", "98.7"], BUILD),
        ("dbench 64", ["4,306,582", "99.6", "99.8"], DBENCH),
    ];
    let titles = [
        "",
        "patch: locks to remove",
        "on the CPU that added, %",
        "on its node, %",
        "here, with most threads: locks= of baseline",
    ];
    let ours = [
        "patch",
        "extern4",
        "on the CPU that added, %",
        "on its node, %",
        "gain of the patch",
        "gain of extern4",
    ];
    let mut table = Table::new(1, titles.into_iter().chain(ours));
    for (name, theirs, workload) in THEIRS {
        let row = rows
            .iter()
            .filter(|row| row.workload == workload)
            .max_by_key(|row| row.threads);
        let counter = |side, name| maybe(row.and_then(|row| row.counter(side, name)));
        let mut line = vec![name.to_owned()];
        line.extend(theirs.map(str::to_owned));
        line.extend(Side::ALL.map(|side| counter(side, LOCKS)));
        line.extend([ON_CPU, ON_NODE].map(|name| counter(Side::Extern4, name)));
        let gain = |side| times(row.map_or(f64::NAN, |row| row.ratio(side, Side::Baseline)));
        line.extend([Side::Patch, Side::Extern4].map(gain));
        table.line(line);
    }
    table
}

/// Names of counters. The first counts the locks taken in a run, to add and to remove files.
const LOCKS: &str = "locks=";
const ON_CPU: &str = "closed on the CPU that opened, %";
const ON_NODE: &str = "closed on its node, %";

const THEIRS: &str = "The patch: an Opteron of two sockets and eight cores. A build of the kernel with 64 threads went from 24.5 to 24.9, system time from \
    28.25 % to 18.5 %. Ours are the same kinds of work played back; a gain is that of the whole open and close. **In the registry alone, opening and closing with two threads was to be three times as fast as \
    in the baseline.** Each side fills the same record; the last line has the instructions of a pair.";

const IDEA: &str = "A file system has to be able to say what is open on it, but it is rarely asked, while files are opened and closed all \
    the time. So each thread enters its files in places of its own by plain stores, and who wants the list walks through all places and \
    finds out by sequence counts whether what it copied was one file, and still open. A file that another thread closes is marked in its \
    place, and the owner looks for such places when it runs out of others: no list is shared by two threads.";

const SIDES: &[&str] = &[
    "one list for the file system under one lock. A record is made and filled before the lock is taken, and freed after it, as in the kernel.",
    "a list for each CPU, under an lglock; a file remembers the list that it is on, and to list all takes all locks. Filled as in the baseline.",
    "the registry of `extern4-vfs` in production.",
];

const NOTES: &[(&str, &str)] = &[
    (PAIRS, "Each thread opens a file and closes it again."),
    (
        HAND_OVER,
        "One thread opens and hands over 64 files at a time; the threads of the table close them. This is the worst case of lists \
         for each CPU.",
    ),
    (
        LISTING,
        "As the first, while 1,000 more files are open and one thread more lists all files three times, with 100 ms before each (1 ms in a \
         quick run).",
    ),
    (
        REMOUNTS,
        "As that, but files are opened for writing, and one thread more tries to make the file system read-only. The baseline and the patch look \
         through their lists for who writes, and whoever wants to open a file waits. extern4 counts writers by stores to lines of their \
         threads, and who wants the number makes every thread execute a barrier and adds them up: that is `ThreadRefcount` of `extern4-sync` as \
         `extern4-vfs` uses it.",
    ),
    (
        BOOT,
        "VolumeRegistry back: 40 scripts start three commands each; every process loads libraries and reads some files, and two commands of a \
         script have a file from it that it opened. Whoever has time runs the next process. All sides open and close \
         through the VFS of production, in memory; they differ in the registry that it enters files in. The baseline and the patch are called through a table of functions.",
    ),
    (
        BUILD,
        "The same for 60 compilers: 4 libraries, a source, 25 headers, and what an assembler takes over.",
    ),
    (
        DBENCH,
        "The same for 16 clients, each with one to three files open at a time, which no other thread closes.",
    ),
];

const PUBLISHED: &str = "On an Opteron of two sockets and eight cores:\n\n\
    | workload | locks taken to remove a file | on the CPU that added it | on the same node |\n|---|---:|---:|---:|\n\
    | booting | 25,049 | 92.5 % | 95.6 % |\n\
    | kbuild -j16 | 2,281,913 | 96.8 % | 98.7 % |\n\
    | dbench 64 | 4,306,582 | 99.6 % | 99.8 % |\n\n\
    Compiling a kernel with 64 threads, throughput went from 24.5 to 24.9, system time from 28.25 % to 18.5 %, idle time from 17.25 % to 19 %; one \
    thread was within noise. The worst case that the author names is one CPU that opens what others close, which was to be no worse \
    than one lock.";

/// Counts the accesses of the sides to shared memory.
#[cfg(feature = "audit")]
pub fn count(counted: &mut AccessCounts) {
    count_side::<Baseline>(counted, Side::Baseline);
    count_side::<Patch>(counted, Side::Patch);
    count_side::<Extern4>(counted, Side::Extern4);
}

#[cfg(feature = "audit")]
fn count_side<R: Registry<Opened, Ticket: Send>>(counted: &mut AccessCounts, side: Side) {
    let registry = &R::default();
    let pair = |ino| close(registry, &open(registry, ino));
    counted.count(PAIRS, side, || pair(1), || pair(2));
    // Another thread, which lives until the end, opens files that others close: enough for all
    // calls of `count`.
    let some =
        || std::cell::RefCell::new((0..200).map(|ino| open(registry, ino)).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let (sender, opened) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            sender.send([some(), some()]).expect("a receiver");
            // An error means that the other side is done.
            let _ = ended.recv();
        });
        let [ours, theirs] = opened.recv().expect("it sends");
        let close_one = |files: &std::cell::RefCell<Vec<R::Ticket>>| {
            close(
                registry,
                &files.borrow_mut().pop().expect("there are enough"),
            );
        };
        counted.count(CLOSE, side, || close_one(&ours), move || close_one(&theirs));
        drop(end);
    });
}

#[cfg(test)]
mod tests {
    use extern4_sync::primitive::{AtomicU64, Ordering};

    use super::remounts::Volume;
    use super::*;

    fn lists_open_files<R: Registry<Opened, Ticket: Send>>() {
        let registry = &R::default();
        let mut stay: Vec<_> = (0..100).map(|ino| open(registry, ino)).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| (100..5000).for_each(|ino| close(registry, &open(registry, ino))));
            for _ in 0..50 {
                let list = registry.list(Opened::info);
                assert!(
                    list.iter()
                        .all(|info| info.path == PATH && info.uid == 1000)
                );
                assert!(
                    (0..100).all(|ino| list.iter().filter(|info| info.ino == ino).count() == 1)
                );
            }
            let half = stay.split_off(50);
            scope.spawn(move || half.iter().for_each(|ticket| close(registry, ticket)));
        });
        let mut left: Vec<u64> = registry
            .list(Opened::info)
            .iter()
            .map(|info| info.ino)
            .collect();
        left.sort_unstable();
        assert_eq!(left, (0..50).collect::<Vec<_>>());
        assert!(
            !stay.is_empty()
                && registry.remove(&stay[0], Opened::empty)
                && !registry.remove(&stay[0], Opened::empty)
        );
    }

    /// No thread writes while the file system is read-only, and it can become so once no thread
    /// writes.
    fn turns_read_only_without_writers<R: WriterCheck<Ticket: Send>>() {
        const OPENED: u64 = 500;
        let volume = &Volume::<R>::new();
        let writing = &AtomicU64::new(0);
        let reading = (0..20)
            .map(|ino| open(volume.registry(), ino))
            .collect::<Vec<_>>();
        let nobody_writes = || assert_eq!(writing.load(Ordering::SeqCst), 0);
        assert!(volume.remount(nobody_writes), "readers are not in the way");
        let ticket = volume.open(7);
        assert!(!volume.remount(|| panic!("a thread writes")));
        volume.close(&ticket);
        std::thread::scope(|scope| {
            let opening = || {
                let ticket = volume.open(8);
                writing.store(1, Ordering::SeqCst);
                volume.close(&ticket);
            };
            let is_closed = volume.remount(|| {
                scope.spawn(opening);
                std::thread::sleep(std::time::Duration::from_millis(20));
                nobody_writes();
            });
            assert!(is_closed);
        });
        assert_eq!(
            writing.swap(0, Ordering::SeqCst),
            1,
            "the waiting thread has opened it"
        );
        std::thread::scope(|scope| {
            let write = || {
                for ino in 0..OPENED {
                    let ticket = volume.open(ino);
                    writing.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    writing.fetch_sub(1, Ordering::SeqCst);
                    volume.close(&ticket);
                }
            };
            let writers = [scope.spawn(write), scope.spawn(write)];
            while !writers.iter().all(|writer| writer.is_finished()) {
                volume.remount(|| (0..100).for_each(|_| nobody_writes()));
                std::thread::yield_now();
            }
        });
        assert!(volume.remount(nobody_writes));
        reading
            .iter()
            .for_each(|ticket| close(volume.registry(), ticket));
    }

    #[test]
    fn baseline() {
        lists_open_files::<Baseline>();
        turns_read_only_without_writers::<Baseline>();
    }

    #[test]
    fn patch() {
        lists_open_files::<Patch>();
        turns_read_only_without_writers::<Patch>();
    }

    #[test]
    fn production() {
        lists_open_files::<Extern4>();
        turns_read_only_without_writers::<Extern4>();
    }
}
