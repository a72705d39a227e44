//! ACLs: the cost of finding out that an inode has none.
//!
//! All sides are `extern4-vfs`, called through sessions. The baseline and the patch have another
//! check in the walk. The baseline has that of ext3 before 2009, the patch that of ext3 since then.
//!
//! `lib` calls `chapter` to measure, and `main` calls `count` in the audit's build.

mod calls;
mod first;
mod null;

use extern4_measure::table::Table;
use extern4_measure::verdict::Verdict;
use extern4_vfs::lab::Check;

use crate::access_counts::AccessCounts;
use crate::chapter::{self, Chapter, Published};
use crate::plan::{Plan, Side};
use crate::row::{self, Row};
use crate::volume::{DIRECTORIES, PATH, Production, headers};

/// Returns the check of a side.
fn check_of(side: Side) -> Check {
    match side {
        Side::Baseline => Check::AclLocked,
        Side::Patch => Check::AclSpeculative,
        _ => Check::Word,
    }
}

/// An ACL that lets the user pass, by name, and others not, so that the check has to read it.
const NAMED: &str = "u::rwx,u:1000:r-x,g::r-x,m::r-x,o::---";

const STAT: &str = "stat, no ACL";
const CHECKS: &str = "four search checks, no ACL";
const STAT_ACLS: &str = "stat, ACLs everywhere";
const CHECKS_ACLS: &str = "four search checks, ACLs everywhere";
const OPEN: &str = "open and close, no ACL";
const FIRST: &str = "the first question, ACL not read yet";
const NULL_CALL: &str = "null call";
const NULL_IO: &str = "null I/O";
const WORKLOADS: [&str; 8] = [
    NULL_CALL,
    NULL_IO,
    STAT,
    OPEN,
    CHECKS,
    STAT_ACLS,
    CHECKS_ACLS,
    FIRST,
];

/// Creates a volume with or without ACLs.
fn volume(side: Side, with_acls: bool) -> Production {
    let volume = Production::new(check_of(side), &headers());
    let acl = NAMED.parse().expect("an ACL");
    let paths = DIRECTORIES.iter().chain([&PATH]);
    paths
        .filter(|_| with_acls)
        .for_each(|path| volume.set_acl(path, &acl));
    volume
}

/// Measures ACLs.
pub fn chapter(plan: &Plan, counted: &AccessCounts, say: &mut dyn FnMut(&str)) -> Chapter {
    let mut rows = Vec::new();
    for workload in WORKLOADS
        .into_iter()
        .filter(|workload| plan.wants(workload))
    {
        let with_acls = [STAT_ACLS, CHECKS_ACLS, FIRST].contains(&workload);
        let volumes = Side::ALL.map(|side| volume(side, with_acls));
        for &threads in plan.threads_of(workload) {
            say(&format!("{workload}, {threads} threads"));
            rows.push(row::measure(plan, workload, threads, &Side::ALL, |side| {
                let volume = &volumes[side as usize];
                match workload {
                    FIRST => first::take(volume, plan, threads),
                    NULL_CALL | NULL_IO => null::take(volume, plan, workload, threads),
                    _ => calls::take(volume, plan, workload, threads),
                }
            }));
        }
    }
    let verdicts = verdicts(&rows);
    let table = table(&rows);
    let counted = counted.of(&COUNTED);
    Chapter {
        title: "ACLs",
        name: "acl",
        idea: IDEA,
        sides: SIDES,
        notes: NOTES,
        published: PUBLISHED,
        theirs: THEIRS,
        table: Some(table),
        drawn: &[STAT, CHECKS],
        rows,
        counted,
        verdicts,
        ..Chapter::default()
    }
}

fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let of = |workload, threads| {
        rows.iter()
            .find(|row| row.workload == workload && row.threads == threads)
    };
    let two = "stat, no ACL, 2 threads, one file";
    let mut verdicts = vec![
        Verdict::faster(
            Side::Extern4,
            Side::Baseline,
            "stat, no ACL, one thread",
            1.1,
            of(STAT, 1),
        ),
        Verdict::faster(Side::Extern4, Side::Baseline, two, 3.0, of(STAT, 2)),
    ];
    verdicts.extend(row::nowhere_slower("calls and checks", rows, |_| true));
    verdicts
}

/// Returns the patch's own table next to the lab's figures, with one thread, as in the patch.
fn table(rows: &[Row]) -> Table {
    const THEIRS: [(Published, &str); 4] = [
        ((NULL_CALL, "0.04", "0.04", 1.0), NULL_CALL),
        ((NULL_IO, "0.09-0.10", "0.09", 0.095 / 0.09), NULL_IO),
        (("stat", "0.95", "0.92", 0.95 / 0.92), STAT),
        (("open/close", "1.42-1.48", "1.39-1.44", 1.45 / 1.415), OPEN),
    ];
    let mut table = Table::new(1, chapter::titles("lmbench, \u{b5}s", "ns"));
    for (theirs, workload) in THEIRS {
        let row = rows
            .iter()
            .find(|row| row.workload == workload && row.threads == 1);
        table.line(chapter::line(theirs, row));
    }
    table
}

const THEIRS: &str = "The patch: lmbench on a Nehalem of 3.2 GHz, files not owned by the caller. Its rows of fork, exec and sh are left out: \
    a library starts no processes.";

const IDEA: &str = "Hardly any file has an ACL, but who does not own one has to know that before it is looked at the permission bits. So \
    whether there is an ACL stands beside those bits, in one word: who checks them has loaded it already, and there is no lock, no count \
    and no pointer to follow. An ACL that is there is behind a pointer that readers follow in a read section of RCU; only to change one, or \
    to read it for the first time, is something for who comes with a lock.";

const SIDES: &[&str] = &[
    "a lock in the inode. Each check takes it to find out whether there is an ACL, and counts its user if so.",
    "looks without the lock first. If that says that there is no ACL, it is the answer; if it says anything else, as in the baseline.",
    "calls of a `Session` of `extern4-vfs` in production, on a file system in memory. The baseline and the patch differ from it in the check alone.",
];

const NOTES: &[(&str, &str)] = &[
    (
        NULL_CALL,
        "A call that asks a session for its user. This and the next are the same code on all sides, and nothing to do with ACLs, as in the \
         table that came with the patch: they show what noise there is.",
    ),
    (NULL_IO, "A byte read from a file in memory that is open."),
    (
        STAT,
        "All threads ask for the attributes of `/usr/include/linux/fs.h`, which is root's, as a user. All sides walk as production does; only \
         the check in each directory differs.",
    ),
    (
        CHECKS,
        "The user is checked on `/`, `/usr`, `/usr/include` and `/usr/include/linux`, as in one walk, in one read section.",
    ),
    (
        STAT_ACLS,
        "As the first; each directory and the file have an ACL that names the user and refuses strangers. (One that refuses to no user \
         costs extern4 as much as none does: the word says so.)",
    ),
    (CHECKS_ACLS, "The same with the ACLs."),
    (
        OPEN,
        "As the first, to open the file for reading and to close it.",
    ),
    (
        FIRST,
        "Each thread reads the inode of the file from the file system, which is the same for all, and asks whether the user may read it; \
         so its ACL has to be read, too.",
    ),
];

const COUNTED: [&str; 3] = [STAT, CHECKS, CHECKS_ACLS];

const PUBLISHED: &str = "lmbench on a Nehalem of 3.2 GHz, microseconds, files not owned by the caller:\n\n\
    | | null call | null I/O | stat | open/close | fork | exec | sh |\n|---|---:|---:|---:|---:|---:|---:|---:|\n\
    | before | 0.04 | 0.09-0.10 | 0.95 | 1.42-1.48 | 68.6-69.9 | 253-284 | 1140 |\n\
    | after | 0.04 | 0.09 | 0.92 | 1.39-1.44 | 67.0-68.3 | 282-308 | 1094-1148 |\n\n\
    So the lock alone was about 3 % of stat and of open/close there. The same idea on btrfs, whose ACLs were not kept at all, was worth 15 times. The rows of fork, exec and sh have none of \
    ours next to them: a library starts no processes.";

/// Counts the accesses of the sides to shared memory.
#[cfg(feature = "audit")]
pub fn count(counted: &mut AccessCounts) {
    Side::ALL
        .into_iter()
        .for_each(|side| count_side(counted, side));
}

#[cfg(feature = "audit")]
fn count_side(counted: &mut AccessCounts, side: Side) {
    for workload in COUNTED {
        let volume = volume(side, workload == CHECKS_ACLS);
        let directories = DIRECTORIES.map(|path| volume.directory(path));
        let act = || match workload {
            STAT => calls::stat(&volume),
            _ => calls::check(&volume, &directories),
        };
        // Fill all caches.
        (0..4).for_each(|_| act());
        counted.count(workload, side, act, act);
    }
}

#[cfg(test)]
mod tests;
