//! Search permission: the check of each component of a path, whether the caller may search the
//! directory.
//!
//! All sides are `extern4-vfs`, called through sessions. The others have another check in the walk:
//! that of Linux up to 6.18, that of the posted patch, and that of 6.19.
//!
//! `lib` calls `chapter` to measure, and `main` calls `count` in the audit's build.

mod calls;

use extern4_measure::figures::Figures;
use extern4_measure::table::{Table, figure};
use extern4_measure::verdict::{Goal, Verdict};
use extern4_vfs::lab::Check;

use crate::access_counts::AccessCounts;
use crate::chapter::{self, Chapter};
use crate::plan::{self, Plan, Side};
use crate::row::{self, Row};
use crate::traces::Trace;
use crate::volume::{File, PATH, Production, check_of, headers};

/// Returns the check of a side without its short way.
fn full_check_of(side: Side) -> Check {
    if side == Side::Extern4 {
        Check::Full
    } else {
        Check::General
    }
}

const STAT: &str = "stat";
const CHECKS: &str = "four search checks";
const BUILD: &str = "stat, by the paths of a build";
/// A recorded trace of names in directories that are open to all users.
const BUILD_TRACE: &str = "c-build";
/// A recorded trace of which most names lie in a home that is closed to others.
const SHARE_TRACE: &str = "cargo-check";
const FULL: &str = "stat, without the short way";
const SOME: &str = "stat, of 1,000 paths";
const MANY: &str = "stat, of 100,000 paths";
const WORKLOADS: [&str; 6] = [STAT, CHECKS, BUILD, FULL, SOME, MANY];

/// Returns the files of a workload, and the paths that it asks for.
fn files(workload: &str, plan: &Plan) -> (Vec<File>, Vec<String>) {
    match workload {
        BUILD => build(plan),
        SOME | MANY => working_set(workload, plan),
        _ => (headers(), vec![PATH.to_owned()]),
    }
}

/// Returns the files and paths of the recorded build of a C project. A quick plan has its first
/// calls.
fn build(plan: &Plan) -> (Vec<File>, Vec<String>) {
    let trace = Trace::named(BUILD_TRACE).expect("a trace of the repository");
    let calls = if plan.every_cell { usize::MAX } else { 5_000 };
    (
        trace.files(),
        trace.paths().take(calls).map(str::to_owned).collect(),
    )
}

/// Returns the files of a working set, a hundred in each directory, and their paths. A quick plan
/// has fewer.
fn working_set(workload: &str, plan: &Plan) -> (Vec<File>, Vec<String>) {
    let number = if workload == SOME || !plan.every_cell {
        1_000
    } else {
        100_000
    };
    let mut files = vec![File::directory("/set")];
    files.extend((0..number / 100).map(|dir| File::directory(format!("/set/{dir}"))));
    let paths: Vec<_> = (0..number)
        .map(|file| format!("/set/{}/{file}", file / 100))
        .collect();
    files.extend(paths.iter().map(File::regular));
    (files, paths)
}

/// Measures search checks.
pub fn chapter(plan: &Plan, counted: &AccessCounts, say: &mut dyn FnMut(&str)) -> Chapter {
    let mut rows = Vec::new();
    for workload in WORKLOADS
        .into_iter()
        .filter(|workload| plan.wants(workload))
    {
        let (files, paths) = files(workload, plan);
        let check = if workload == FULL {
            full_check_of
        } else {
            check_of
        };
        let volumes = Side::EVERY.map(|side| (side, Production::new(check(side), &files)));
        for &threads in plan.threads_of(workload) {
            say(&format!("{workload}, {threads} threads"));
            rows.push(row::measure(
                plan,
                workload,
                threads,
                &Side::EVERY,
                |side| {
                    let (_, volume) = volumes
                        .iter()
                        .find(|(of, _)| *of == side)
                        .expect("each side has one");
                    calls::take(volume, &paths, plan, workload, threads)
                },
            ));
        }
    }
    let verdicts = verdicts(&rows, counted);
    let table = table(
        &rows,
        (plan.repeated.is_none() && plan.wants(STAT)).then(shares),
    );
    let of = |operation| Side::EVERY.map(|side| counted.instructions(operation, side).cloned());
    let lengths = REPEATED.into_iter().flat_map(of).flatten().collect();
    let counted = counted.of(&[CHECKS]);
    Chapter {
        title: "Search checks",
        name: "may-exec",
        idea: IDEA,
        sides: SIDES,
        notes: NOTES,
        published: PUBLISHED,
        theirs: THEIRS,
        table: Some(table),
        drawn: &[STAT, BUILD],
        rows,
        counted,
        lengths,
        verdicts,
        ..Chapter::default()
    }
}

fn verdicts(rows: &[Row], counted: &AccessCounts) -> Vec<Verdict> {
    let length = |operation, side| {
        counted
            .instructions(operation, side)
            .map(|length| &length.instructions)
    };
    let share = |of: &dyn Fn(Side) -> Option<Figures>| {
        of(Side::Extern4)
            .zip(of(Side::Baseline))
            .map(|(ours, theirs)| ours.ratios(&theirs))
            .unwrap_or_default()
    };
    let check = |side| length(CHECK, side).cloned();
    // The cost of more components.
    let component = |side| {
        let long = length(LONG, side)?;
        let short = length(SHORT, side)?;
        Some(
            long.0
                .iter()
                .zip(&short.0)
                .map(|(long, short)| long - short)
                .collect(),
        )
    };
    let stat = rows
        .iter()
        .find(|row| row.workload == STAT && row.threads == 1);
    let a_check = "a search check alone, instructions of extern4 by those of the baseline";
    let a_component = "a component more in stat, instructions of extern4 by those of the baseline";
    let mut verdicts = vec![
        Verdict::of_figures(a_check, Goal::AtMost(0.6), &share(&check)),
        Verdict::of_figures(a_component, Goal::AtMost(0.6), &share(&component)),
        Verdict::faster(
            Side::Extern4,
            Side::Baseline,
            "stat, one thread",
            1.08,
            stat,
        ),
    ];
    verdicts.extend(row::nowhere_slower("stat and checks", rows, |_| true));
    verdicts
}

/// Returns the percentage of the search checks of a build that each side answers the short way.
fn shares() -> [f64; 3] {
    let trace = Trace::named(SHARE_TRACE).expect("a trace of the repository");
    let files = trace.files();
    let paths = trace.paths().map(str::to_owned).collect::<Vec<_>>();
    Side::ALL.map(|side| Production::new(check_of(side), &files).share(&paths))
}

/// Returns the patch's own figures next to the lab's.
fn table(rows: &[Row], shares: Option<[f64; 3]>) -> Table {
    let of = |workload, threads| {
        rows.iter()
            .find(|row| row.workload == workload && row.threads == threads)
    };
    let mut table = Table::new(1, chapter::titles("", "ns"));
    let theirs = (
        "stat of one path (patch: operations a second)",
        "3,640,352",
        "3,797,258",
        3_797_258.0 / 3_640_352.0,
    );
    table.line(chapter::line(theirs, of(STAT, 1)));
    let none = String::new;
    if let Some(shares) = shares {
        let name =
            "checks that took the short way, % (patch: a kernel is built; here: `cargo check`)";
        let [baseline, patch, extern4] = shares.map(figure);
        let line = [name, "", "90.9", ""].map(str::to_owned).into_iter();
        table.line(line.chain([baseline, patch, extern4, none(), none()]));
    }
    table
}

/// A counter: the share of checks that took the short way.
const SHORT_WAY: &str = "answered the short way, %";

const THEIRS: &str = "The patch: stat of `/usr/include/linux/fs.h` in a loop on ext4, on a Sapphire Rapids, and a build of the kernel. \
    Ours is `cargo check` of a crate, recorded by a user whose home has mode 700, which holds the compiler and the sources of other crates; \
    all other directories are open to all users. A check takes the long way in the home alone, and names are counted from the root, also where the \
    program began at its working directory. The form that Linux 6.19 merged has 5 % for access(2).";

const IDEA: &str = "Whoever looks a name up has to be allowed to search its directory, and nearly every directory lets everybody. So that \
    everybody may stands as one bit in the word that also has what it follows from, the mode and the rights that an ACL refuses to nobody: the word has \
    one function that changes it, which computes the bit anew, and so they cannot disagree. A walk loads the word and tests the bit, and \
    asks nothing else.";

const SIDES: &[&str] = &[
    "the general check in every directory: what the file system forbids, what everybody may, owner, ACL, groups, devices, and further hooks. That \
     there is no ACL is known without a lock.",
    "a bit says that everybody may search the directory; without it, as in the baseline. On Linux the bit was one of its own, and was dropped, since a change of \
     mode or ACL may forget it; here it is the word's, so the patch and extern4 do the same in a walk.",
    "keeps no result: mode and ACL are looked at each time, before all else; where they do not let all users in, as in the baseline.",
    "calls of a `Session` of `extern4-vfs` in production, on a file system in memory. The others are the same but for the check.",
];

const NOTES: &[(&str, &str)] = &[
    (
        STAT,
        "All threads ask for the attributes of `/usr/include/linux/fs.h` as a user who owns nothing on the way. All sides walk as production \
         does; only the check in each directory differs.",
    ),
    (
        CHECKS,
        "The checks alone: on `/`, `/usr`, `/usr/include` and `/usr/include/linux`, as in one walk, in one read section. All sides are \
         handed the inodes, and know the volume.",
    ),
    (
        BUILD,
        "The recorded trace `c-build`: all paths that `./configure && make` of zlib names, in order, as questions for attributes. Many \
         are not there. All of its directories are open to all users, so every check takes the short way.",
    ),
    (
        FULL,
        "The first without the short way: the baseline, the patch and 6.19 make the general check in every directory, and extern4 makes production's full check.",
    ),
];

/// The operations whose [`instructions`](crate::instructions) are counted.
pub const REPEATED: [&str; 3] = [CHECK, SHORT, LONG];
const CHECK: &str = "a search check";
const SHORT: &str = "stat by 4 components";
const LONG: &str = "stat by 12 components";

/// Does batches of one of [`REPEATED`], and returns how many operations these were. Returns `None`
/// for any other operation.
pub fn repeat(operation: &str, side: Side, batches: u64) -> Option<u64> {
    let mut files = headers();
    let dir = |depth| (0..depth).map(|n| format!("/d{n}")).collect::<String>();
    files.extend((1..12).map(|depth| File::directory(dir(depth))));
    let deep = dir(11) + "/f";
    files.push(File::regular(&deep));
    let volume = Production::new(check_of(side), &files);
    let directories = ["/usr"; 16].map(|path| volume.directory(path));
    // A call checks sixteen directories, so that the rest hardly counts.
    let act: (u64, &(dyn Fn() + Sync)) = match operation {
        CHECK => (16, &|| calls::check(&volume, &directories)),
        SHORT => (1, &|| calls::stat(&volume, PATH)),
        LONG => (1, &|| calls::stat(&volume, &deep)),
        _ => return None,
    };
    let (operations, act) = act;
    let batch = || {
        (0..calls::BATCH).for_each(|_| act());
        calls::BATCH * operations
    };
    Some(
        plan::load(1)
            .repeat_times(batches, |_| (), |()| batch())
            .ops,
    )
}

const PUBLISHED: &str = "Compiling a kernel, 60,579,018 of 66,676,145 checks took the short way: 90.9 %. stat of `/usr/include/linux/fs.h` in a loop, on ext4, on a \
    Sapphire Rapids:\n\n\
    | | operations a second |\n|---|---:|\n| before | 3,640,352 |\n| after | 3,797,258 (+4 %) |\n\n\
    What was merged later, in another form, has 5 % for access(2).";

/// Counts the accesses of the sides to shared memory.
#[cfg(feature = "audit")]
pub fn count(counted: &mut AccessCounts) {
    Side::ALL
        .into_iter()
        .for_each(|side| count_side(counted, side));
}

#[cfg(feature = "audit")]
fn count_side(counted: &mut AccessCounts, side: Side) {
    let volume = Production::new(check_of(side), &headers());
    let directories = crate::volume::DIRECTORIES.map(|path| volume.directory(path));
    let check = || calls::check(&volume, &directories);
    counted.count(CHECKS, side, check, check);
}

#[cfg(test)]
mod tests;
