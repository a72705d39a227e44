//! May the caller search this directory: what each component of a path asks.
//!
//! Before and Seed are inodes of a [`Model`], after what Linux did up to 6.18 and what was posted then; New is `extern4-vfs` as calls of a
//! session use it.

mod before;
mod build;
mod calls;
mod seed;

use extern4_vfs::How;

pub use before::General;
pub use seed::Flagged;

use crate::Result;
use crate::chapter::Chapter;
use crate::coherence::curves;
use crate::counted::Counted;
use crate::plan::{Plan, Side};
use crate::row::Row;
use crate::verdict::Verdict;
use crate::volume::{File, Model, Node, PATH, Production, Volume, headers, user};

/// The general check each time.
pub type Before = Model<General>;
/// A flag that says that everybody may.
pub type Seed = Model<Flagged>;
/// The permission word.
pub type New = Production;

/// A volume that answers search checks in a short way, where it can.
pub trait Mechanism: Volume {
    /// Switches the short way on or off, while others walk.
    fn set_fast(&self, on: bool);

    /// Search checks that the user's calls of `stat` make by these paths: those answered the short way, and others.
    fn searches(&self, paths: &[String]) -> [u64; 2];
}

/// An inode that may know a short way.
pub trait MayKnow: Node {
    /// It answers the short way now.
    fn knows(&self) -> bool;
}

impl<N: MayKnow> Mechanism for Model<N> {
    fn set_fast(&self, on: bool) {
        self.set_fast(on);
    }

    fn searches(&self, paths: &[String]) -> [u64; 2] {
        let (mut searches, user) = ([0, 0], user());
        for path in paths {
            let search = |node: &N| {
                searches[usize::from(!(self.is_fast() && node.knows()))] += 1;
                node.may_search(&user, self.is_fast())
            };
            // It may be a name that is not there.
            let _ = self.stat_by(path, search);
        }
        searches
    }
}

impl Mechanism for Production {
    fn set_fast(&self, on: bool) {
        self.superblock().set_fast_search(on);
    }

    fn searches(&self, paths: &[String]) -> [u64; 2] {
        let before = self.superblock().stats();
        paths.iter().for_each(|path| drop(self.user.stat(path, How::FOLLOW)));
        let after = self.superblock().stats();
        [after.fast_searches - before.fast_searches, after.full_searches - before.full_searches]
    }
}

const STAT: &str = "stat";
const CHECKS: &str = "four search checks";
const BUILD: &str = "stat, by the paths of a build";
const OFF: &str = "stat, the short way switched off";
const WORKLOADS: [&str; 4] = [STAT, CHECKS, BUILD, OFF];

/// Measures search checks.
pub fn chapter(plan: &Plan, counted: &Counted, say: &mut dyn FnMut(&str)) -> Chapter {
    let mut rows = Vec::new();
    for workload in WORKLOADS.into_iter().filter(|workload| plan.wants(workload)) {
        let files = if workload == BUILD { build::files() } else { headers() };
        let (before, seed, new) = (Before::new(&files), Seed::new(&files), New::new(&files));
        for &threads in plan.threads_of(workload) {
            say(&format!("{workload}, {threads} threads"));
            rows.push(Row::measure(plan, workload, threads, |side| match side {
                Side::Before => calls::take(&before, plan, workload, threads),
                Side::Seed => calls::take(&seed, plan, workload, threads),
                Side::New => calls::take(&new, plan, workload, threads),
            }));
        }
    }
    let verdicts = verdicts(&rows, counted);
    let of = |operation| Side::ALL.map(|side| counted.instructions(operation, side).cloned());
    let lengths = REPEATED.into_iter().flat_map(of).flatten().collect();
    let simulated = curves(&REPLAYED, &rows, counted);
    let counted = counted.of(&[CHECKS]);
    Chapter {
        title: "Search checks",
        name: "may-exec",
        idea: IDEA,
        sides: SIDES,
        notes: NOTES,
        published: PUBLISHED,
        rows,
        simulated,
        counted,
        lengths,
        verdicts,
        ..Chapter::default()
    }
}

fn verdicts(rows: &[Row], counted: &Counted) -> Vec<Verdict> {
    let length = |operation, side| Some(counted.instructions(operation, side)?.instructions);
    let share = |of: &dyn Fn(Side) -> Option<f64>| Some(of(Side::New)? / of(Side::Before)?);
    let check = |side| length(CHECK, side);
    // What more components cost.
    let component = |side| Some(length(LONG, side)? - length(SHORT, side)?);
    let stat = rows.iter().find(|row| row.workload == STAT && row.threads == 1);
    vec![
        Verdict::at_most("instructions of a search check: New by Before", 0.6, share(&check)),
        Verdict::at_most(
            "instructions of stat for a component more, of a path that New remembers: New by Before",
            0.6,
            share(&component),
        ),
        Verdict::faster("stat, one thread", 1.08, stat),
        // The others compare walks among names that may change with walks among names that cannot.
        Verdict::nowhere_slower(rows.iter().filter(|row| [STAT, CHECKS].contains(&row.workload))),
    ]
}

const IDEA: &str = "Whoever looks a name up has to be allowed to search its directory, and nearly every directory lets everybody. So that \
    everybody may stands as one bit in the word that also has what it follows from, the mode and the rights that an ACL refuses to nobody: the word has \
    one function that changes it, which computes the bit anew, and so they cannot disagree. A walk loads the word and tests the bit, and \
    asks nobody else; and where it has been before, it remembers the way with all its checks, as long as no rights change.";

const SIDES: [&str; 3] = [
    "the general check in every directory: what the file system forbids, what everybody may, owner, ACL, groups, devices, and who else has \
     a say. That there is no ACL is known without a lock.",
    "a flag in the inode says that everybody may search it. It is computed by whoever changes mode or ACL, where the file system has \
     asked for it; without the flag, as Before. Linux dropped it, for somebody who changes them may forget to.",
    "calls of a `Session` of `extern4-vfs` in production, on a file system in memory, with all that it remembers of paths.",
];

const NOTES: &[(&str, &str)] = &[
    (
        STAT,
        "All threads ask for the attributes of `/usr/include/linux/fs.h` as a user who owns nothing on the way. Before and Seed walk in a \
         model of a volume that does little else than to find names and to check.",
    ),
    (
        CHECKS,
        "The checks alone: on `/`, `/usr`, `/usr/include` and `/usr/include/linux`, as in one walk, in one read section. All three are \
         handed the inodes, and know the volume.",
    ),
    (
        BUILD,
        "Who compiles 60 sources in a home directory that is closed to others looks for 25 headers each, in three places, and for what it \
         made before. The paths are made up, as such a build would ask for them; 9 in 10 headers are the system's. Whoever remembers where \
         a path leads makes no check for it, so those of New are the ones that it still has to make, or has remembered with the way to \
         a directory. New looks names up that may change at any moment, which the model's cannot: what the short way is worth, Seed \
         beside Before says.",
    ),
    (
        OFF,
        "The first, with the short way switched off while the volume is in use, as one may at any time to see what it brings. New then \
         remembers no paths either, and walks by names that others may change at any time, which the model's are not.",
    ),
];

/// What [`instructions`](crate::instructions) are counted of.
pub const REPEATED: [&str; 3] = [CHECK, SHORT, LONG];
const CHECK: &str = "a search check";
const SHORT: &str = "stat by 4 components";
const LONG: &str = "stat by 12 components";

/// Does one of [`REPEATED`] so many times.
pub fn repeat(operation: &str, side: Side, times: u64) -> Result<()> {
    match side {
        Side::Before => repeat_on::<Before>(operation, times),
        Side::Seed => repeat_on::<Seed>(operation, times),
        Side::New => repeat_on::<New>(operation, times),
    }
}

fn repeat_on<V: Volume>(operation: &str, times: u64) -> Result<()> {
    let mut files = headers();
    let dir = |depth| (0..depth).map(|n| format!("/d{n}")).collect::<String>();
    files.extend((1..12).map(|depth| File::directory(dir(depth))));
    let deep = dir(11) + "/f";
    files.push(File::regular(&deep));
    let volume = V::new(&files);
    let directories = ["/usr"; 16].map(|path| volume.directory(path));
    let act: &dyn Fn() = match operation {
        // Sixteen, so that the rest hardly counts.
        CHECK => &|| calls::check(&volume, &directories),
        SHORT => &|| calls::stat(&volume, PATH),
        LONG => &|| calls::stat(&volume, &deep),
        _ => return Err(format!("nobody repeats {operation}").into()),
    };
    let times = if operation == CHECK { times.div_ceil(16) } else { times };
    (0..times).for_each(|_| act());
    Ok(())
}

/// Operations that are noted in order, each for the workload that does them.
const REPLAYED: [(&str, &str); 1] = [(CHECKS, CHECKS)];

const PUBLISHED: &str = "Compiling a kernel, 60,579,018 of 66,676,145 checks took the short way: 90.9 %. stat of `/usr/include/linux/fs.h` in a loop, on ext4, on a \
    Sapphire Rapids:\n\n\
    | | operations a second |\n|---|---:|\n| before | 3,640,352 |\n| after | 3,797,258 (+4 %) |\n\n\
    What was merged later, in another form, has 5 % for access(2).";

/// Counts what the sides do to shared memory.
#[cfg(feature = "audit")]
pub fn count(counted: &mut Counted) {
    count_side::<Before>(counted, Side::Before);
    count_side::<Seed>(counted, Side::Seed);
    count_side::<New>(counted, Side::New);
}

#[cfg(feature = "audit")]
fn count_side<V: Volume>(counted: &mut Counted, side: Side) {
    let volume = V::new(&headers());
    let directories = crate::volume::DIRECTORIES.map(|path| volume.directory(path));
    let check = || calls::check(&volume, &directories);
    counted.count(CHECKS, side, check, check);
    let [ours, theirs] = [0, 1].map(|thread| crate::volume::operations(&volume, &directories, thread));
    crate::meetings::count(counted, "MAY_EXEC", side, &ours, &theirs);
}

#[cfg(test)]
mod tests;
