//! ACLs: what it takes to learn that an inode has none.
//!
//! Before and Seed are inodes of a [`Model`], after what ext3 did before 2009 and then; New is `extern4-vfs` as calls of a session use
//! it.

mod before;
mod calls;
mod first;
mod guarded;
mod null;
mod seed;

use std::sync::Arc;

use extern4_vfs::{Acl, Inode};

pub use before::Locked;
pub use guarded::Guarded;
pub use seed::Speculative;

use crate::chapter::Chapter;
use crate::coherence::curves;
use crate::counted::Counted;
use crate::plan::{Plan, Side};
use crate::row::Row;
use crate::verdict::Verdict;
#[cfg(feature = "audit")]
use crate::volume::operations;
use crate::volume::{DIRECTORIES, Model, PATH, Production, Volume, headers};

/// What is known of an inode's ACL. `None` if nobody has asked yet.
pub type Known = Option<Option<Arc<Acl>>>;

/// Where an inode keeps what is known of its ACL.
pub trait Slot: Default + Send + Sync {
    /// The ACL; from `ask`, if it is not known yet.
    fn get(&self, ask: impl FnOnce() -> Option<Arc<Acl>>) -> Option<Arc<Acl>>;

    /// Sets another, which no answer to an earlier question takes the place of. One call at a time.
    fn set(&self, acl: Option<Arc<Acl>>);
}

/// An implementation.
pub trait Mechanism {
    /// A volume with it.
    type Volume: Volume;

    /// May the user read an inode that has just been read, and that nobody knows more of?
    fn first(production: &Production, inode: &Inode) -> bool;
}

/// Every question takes a lock.
pub struct Before;
/// No lock, where a look without it tells that there is no ACL.
pub struct Seed;
/// The permission word.
pub struct New;

impl Mechanism for Before {
    type Volume = Model<Guarded<Locked>>;

    fn first(production: &Production, inode: &Inode) -> bool {
        first::by_slot::<Locked>(production, inode)
    }
}

impl Mechanism for Seed {
    type Volume = Model<Guarded<Speculative>>;

    fn first(production: &Production, inode: &Inode) -> bool {
        first::by_slot::<Speculative>(production, inode)
    }
}

impl Mechanism for New {
    type Volume = Production;

    fn first(production: &Production, inode: &Inode) -> bool {
        first::by_word(production, inode)
    }
}

/// Lets the user pass, by name, and strangers not, so that it has to be asked.
const NAMED: &str = "u::rwx,u:1000:r-x,g::r-x,m::r-x,o::---";

const STAT: &str = "stat, no ACL";
const CHECKS: &str = "four search checks, no ACL";
const STAT_ACLS: &str = "stat, ACLs everywhere";
const CHECKS_ACLS: &str = "four search checks, ACLs everywhere";
const OPEN: &str = "open and close, no ACL";
const FIRST: &str = "the first question, ACL not read yet";
const NULL_CALL: &str = "null call";
const NULL_IO: &str = "null I/O";
const WORKLOADS: [&str; 8] = [NULL_CALL, NULL_IO, STAT, OPEN, CHECKS, STAT_ACLS, CHECKS_ACLS, FIRST];

/// A volume with and without ACLs.
fn volume<V: Volume>(with_acls: bool) -> V {
    let volume = V::new(&headers());
    let acl = NAMED.parse().expect("an ACL");
    let paths = DIRECTORIES.iter().chain([&PATH]);
    paths.filter(|_| with_acls).for_each(|path| volume.set_acl(path, &acl));
    volume
}

/// Measures ACLs.
pub fn chapter(plan: &Plan, counted: &Counted, say: &mut dyn FnMut(&str)) -> Chapter {
    let mut rows = Vec::new();
    for workload in WORKLOADS.into_iter().filter(|workload| plan.wants(workload)) {
        let with_acls = [STAT_ACLS, CHECKS_ACLS, FIRST].contains(&workload);
        let (before, seed, new) = (volume(with_acls), volume(with_acls), volume(with_acls));
        for &threads in plan.threads_of(workload) {
            say(&format!("{workload}, {threads} threads"));
            rows.push(Row::measure(plan, workload, threads, |side| match side {
                _ if workload == FIRST => first::take(side, &new, plan, threads),
                _ if [NULL_CALL, NULL_IO].contains(&workload) => null::take(&new, plan, workload, threads),
                Side::Before => {
                    calls::take::<<Before as Mechanism>::Volume>(&before, plan, workload, threads)
                }
                Side::Seed => calls::take::<<Seed as Mechanism>::Volume>(&seed, plan, workload, threads),
                Side::New => calls::take::<Production>(&new, plan, workload, threads),
            }));
        }
    }
    let verdicts = verdicts(&rows);
    let simulated = curves(&REPLAYED, &rows, counted);
    let counted = counted.of(&COUNTED);
    Chapter {
        title: "ACLs",
        name: "acl",
        idea: IDEA,
        sides: SIDES,
        notes: NOTES,
        published: PUBLISHED,
        rows,
        simulated,
        counted,
        verdicts,
        ..Chapter::default()
    }
}

fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let of = |workload, threads| rows.iter().find(|row| row.workload == workload && row.threads == threads);
    let share = of(STAT, 1).map(|row| row.ratio(Side::Before).recip());
    vec![
        Verdict::at_most("stat, no ACL, one thread: time of New by that of Before", 0.9, share),
        Verdict::faster("stat, no ACL, 2 threads, one file", 3.0, of(STAT, 2)),
        Verdict::nowhere_slower(rows.iter()),
    ]
}

const IDEA: &str = "Hardly any file has an ACL, but who does not own one has to know that before it is looked at the permission bits. So \
    whether there is an ACL stands beside those bits, in one word: who checks them has loaded it already, and there is no lock, no count \
    and no pointer to follow. An ACL that is there is behind a pointer that readers follow in a read section of RCU; only to change one, or \
    to read it for the first time, is something for who comes with a lock.";

const SIDES: [&str; 3] = [
    "a lock in the inode. Each check takes it to find out whether there is an ACL, and counts itself among who uses it if so.",
    "looks without the lock first. If that says that there is no ACL, it is the answer; if it says anything else, as Before.",
    "calls of a `Session` of `extern4-vfs` in production, on a file system in memory, with all that it remembers of paths.",
];

const NOTES: &[(&str, &str)] = &[
    (
        NULL_CALL,
        "A call that asks a session who its user is. This and the next are the same code on all sides, and nothing to do with ACLs, as in the \
         table that came with the patch: they show what noise there is.",
    ),
    (NULL_IO, "A byte read from a file in memory that is open."),
    (
        STAT,
        "All threads ask for the attributes of `/usr/include/linux/fs.h`, which is root's, as a user. Before and Seed walk in a model of a \
         volume that does little else than to find names and to check; New remembers where the path led, and checks nothing while no right \
         changes.",
    ),
    (
        CHECKS,
        "The user is checked on `/`, `/usr`, `/usr/include` and `/usr/include/linux`, as in one walk, in one read section.",
    ),
    (
        STAT_ACLS,
        "As the first; each directory and the file have an ACL that names the user and refuses strangers. (One that refuses nobody what is \
         asked costs New what none does: the word says so.)",
    ),
    (CHECKS_ACLS, "The same with the ACLs."),
    (
        OPEN,
        "As the first, to open the file for reading and to close it. Before and Seed enter it in the registry of production, and count it \
         in its inode; New also takes the mount into use, and looks whether reading is to change the time of the last access.",
    ),
    (
        FIRST,
        "Each thread reads the inode of the file from the file system, which is the same for all, and asks whether the user may read it; \
         so its ACL has to be read, too. New makes equal ACLs one in memory, which is what it takes longer for.",
    ),
];

const COUNTED: [&str; 3] = [STAT, CHECKS, CHECKS_ACLS];

/// Operations that are noted in order, each for the workload that does them.
const REPLAYED: [(&str, &str); 3] = [(STAT, STAT), (CHECKS, CHECKS), (CHECKS_ACLS, CHECKS_ACLS)];

const PUBLISHED: &str = "lmbench on a Nehalem of 3.2 GHz, microseconds, files not owned by the caller:\n\n\
    | | null call | null I/O | stat | open/close | fork | exec | sh |\n|---|---:|---:|---:|---:|---:|---:|---:|\n\
    | before | 0.04 | 0.09-0.10 | 0.95 | 1.42-1.48 | 68.6-69.9 | 253-284 | 1140 |\n\
    | after | 0.04 | 0.09 | 0.92 | 1.39-1.44 | 67.0-68.3 | 282-308 | 1094-1148 |\n\n\
    So the lock alone was about 3 % of stat and of open/close there. The same idea on btrfs, whose ACLs were not kept at all, was worth 15 times.";

/// Counts what the sides do to shared memory.
#[cfg(feature = "audit")]
pub fn count(counted: &mut Counted) {
    count_side::<Before>(counted, Side::Before);
    count_side::<Seed>(counted, Side::Seed);
    count_side::<New>(counted, Side::New);
}

#[cfg(feature = "audit")]
fn count_side<M: Mechanism>(counted: &mut Counted, side: Side) {
    for workload in COUNTED {
        let volume: M::Volume = volume(workload == CHECKS_ACLS);
        let directories = DIRECTORIES.map(|path| volume.directory(path));
        let act = || match workload {
            STAT => calls::stat(&volume),
            _ => calls::check(&volume, &directories),
        };
        // Until all that can be remembered is.
        (0..4).for_each(|_| act());
        counted.count(workload, side, act, act);
    }
    for (mechanism, with_acls) in [("ACLs, none there", false), ("ACLs, everywhere", true)] {
        let volume: M::Volume = volume(with_acls);
        let directories = DIRECTORIES.map(|path| volume.directory(path));
        let [ours, theirs] = [0, 1].map(|thread| operations(&volume, &directories, thread));
        crate::meetings::count(counted, mechanism, side, &ours, &theirs);
    }
}

#[cfg(test)]
mod tests;
