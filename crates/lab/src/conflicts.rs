//! Checks whether calls that commute conflict on a cache line.
//!
//! [`spec`](crate::spec) says which calls commute. Two threads make each such pair of calls on a
//! volume, one call after the other. The audit, in a separate build, records which cache lines they
//! touch. A pair is free of conflicts if there is no line that one call writes and the other uses.
//! Such calls scale on any number of CPUs. The authors of sv6 made 13,664 such tests of 18 calls.
//! In Linux 68 % of them were free of conflicts, in sv6 99 % (SOSP 2013).
//!
//! Two calls may conflict by chance. Two names may fall into one stripe of a table, a commit may
//! run, or one thread may have to create a structure. So a pair with a conflict is made again in
//! other directories. The report has two figures: the pairs free of conflicts at the first try, and
//! those free at one of [`TRIES`].
//!
//! `main` runs it in the audit's build, and the report prints the matrices from its file.

#[cfg(feature = "audit")]
mod field;
mod file;
#[cfg(feature = "audit")]
mod run;
#[cfg(feature = "audit")]
mod setup;
#[cfg(feature = "audit")]
mod worker;

use std::collections::{BTreeMap, BTreeSet};

use crate::spec::{Kind, Nearness};
use extern4_measure::verdict::{Goal, Outcome, Verdict};

#[cfg(feature = "audit")]
pub use self::{run::run, setup::Setup};

/// The most tries of a pair, while its calls conflict.
pub const TRIES: usize = 4;
/// Calls of each kind that are single-stepped for the report.
#[cfg(feature = "audit")]
const STEPPED: usize = 2;
/// The most pairs of the same two kinds of calls in the sample. A kind with many arguments has many
/// more pairs than others have.
pub const PAIRS_OF_A_CELL: usize = 40;

/// Tests all pairs on both volumes.
#[cfg(feature = "audit")]
pub fn count(
    counted: &mut crate::access_counts::AccessCounts,
    say: &mut dyn FnMut(&str),
) -> crate::Result<()> {
    use extern4_vfs::SuperOptions;
    let pairs = crate::spec::pairs(usize::MAX);
    for on in On::ALL {
        say(&format!("{} pairs of calls on {}", pairs.len(), on.name()));
        let setup = match on {
            On::Memory => Some(Setup::memory(SuperOptions::default())?),
            On::Ext4 => Setup::ext4()?,
        };
        match setup {
            Some(setup) => counted.matrices.push(run(&setup, &pairs, STEPPED)?),
            None => say("no such volume can be made here"),
        }
    }
    Ok(())
}

/// A kind of volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The VFS over its file system in memory, which exists for tests.
    Memory,
    /// The VFS over ext4.
    Ext4,
}

impl On {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Ext4, Self::Memory];

    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memfs",
            Self::Ext4 => "ext4",
        }
    }

    /// Returns the kind with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|on| on.name() == name)
    }
}

/// The result for a pair of calls that commute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// The calls.
    pub kinds: [Kind; 2],
    /// The objects that the calls share.
    pub nearness: Nearness,
    /// There was no conflict at the first try.
    pub at_first: bool,
    /// The names of the fields in conflict at each try, or if there are none, at the last try.
    /// Empty if one of the tries had no conflict.
    pub fields: BTreeSet<String>,
}

impl Test {
    /// Returns whether one of the tries was free of conflicts.
    pub fn is_free(&self) -> bool {
        self.fields.is_empty()
    }

    fn reads_only(&self) -> bool {
        self.kinds.iter().all(|kind| kind.reads_only())
    }

    fn is_of(&self, one: Kind, other: Kind) -> bool {
        self.kinds == [one, other] || self.kinds == [other, one]
    }

    /// Returns its kinds, sorted.
    fn cell_of(&self) -> [Kind; 2] {
        let mut kinds = self.kinds;
        kinds.sort();
        kinds
    }
}

/// The numbers of tests, and of those free of conflicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The number of tests.
    pub tests: usize,
    /// The tests free of conflicts at the first try.
    pub at_first: usize,
    /// The tests free of conflicts at one of the tries.
    pub free: usize,
}

impl Share {
    fn of<'t>(tests: impl Iterator<Item = &'t Test>) -> Self {
        tests.fold(Self::default(), |sum, test| Self {
            tests: sum.tests + 1,
            at_first: sum.at_first + usize::from(test.at_first),
            free: sum.free + usize::from(test.is_free()),
        })
    }

    /// Returns the percentage free of conflicts at one of the tries; NaN without a test.
    pub fn percent(self) -> f64 {
        100.0 * self.free as f64 / self.tests as f64
    }

    /// Returns the percentage free of conflicts at the first try.
    pub fn percent_at_first(self) -> f64 {
        100.0 * self.at_first as f64 / self.tests as f64
    }
}

/// Fields on a line in conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offender<'m> {
    /// The names of the fields.
    pub field: &'m str,
    /// The number of pairs with a conflict there.
    pub pairs: usize,
    /// How many of these pairs share nothing but the file system.
    pub apart: usize,
}

/// The results of all tests on a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// The volume.
    pub on: On,
    /// The tests, in a pseudo-random order.
    pub tests: Vec<Test>,
    /// The mean number of locked instructions of a call that the audit does not record: counts of
    /// `Arc`, the allocator's. Two calls may conflict on their targets, unseen.
    pub unseen: Vec<(Kind, f64)>,
}

impl Matrix {
    /// Returns the share of all pairs, most of which are of the few kinds with many arguments.
    pub fn whole(&self) -> Share {
        Share::of(self.tests.iter())
    }

    /// Returns the sample: the first [`PAIRS_OF_A_CELL`] tests of each two kinds of calls.
    fn sample(&self) -> impl Iterator<Item = &Test> {
        let mut taken = BTreeMap::<_, usize>::new();
        self.tests.iter().filter(move |test| {
            let taken = taken.entry(test.cell_of()).or_default();
            *taken += 1;
            *taken <= PAIRS_OF_A_CELL
        })
    }

    /// Returns the share of the sample.
    pub fn all(&self) -> Share {
        Share::of(self.sample())
    }

    /// Returns the share of the sample whose calls only read.
    pub fn reading(&self) -> Share {
        Share::of(self.sample().filter(|test| test.reads_only()))
    }

    /// Returns the share of the sample with these two kinds of calls.
    pub fn cell(&self, one: Kind, other: Kind) -> Share {
        Share::of(self.sample().filter(|test| test.is_of(one, other)))
    }

    /// Returns the share of the sample whose calls share this much.
    pub fn near(&self, nearness: Nearness) -> Share {
        Share::of(self.sample().filter(|test| test.nearness == nearness))
    }

    /// Returns the fields that calls of the sample conflict on, those of most pairs first.
    pub fn offenders(&self) -> Vec<Offender<'_>> {
        let mut offenders = BTreeMap::<&str, Offender<'_>>::new();
        for test in self.sample() {
            for field in &test.fields {
                let offender = offenders.entry(field).or_insert(Offender { field, pairs: 0, apart: 0 });
                offender.pairs += 1;
                offender.apart += usize::from(test.nearness == Nearness::Apart);
            }
        }
        let mut offenders: Vec<_> = offenders.into_values().collect();
        offenders.sort_by_key(|offender| std::cmp::Reverse(offender.pairs));
        offenders
    }

    /// Returns the verdicts on the goals. The first try decides.
    pub fn verdicts(&self) -> [Verdict; 3] {
        let at_least = |what: &str, bound: f64, share: Share| {
            let goal = format!("{}, {what}: at least {bound} % free of conflicts", self.on.name());
            let found = format!(
                "{:.1} % at the first try, {:.1} % at the best of {TRIES} ({} and {} of {})",
                share.percent_at_first(),
                share.percent(),
                share.at_first,
                share.free,
                share.tests
            );
            let judged = || Goal::AtLeast(bound).judge_count(share.percent_at_first());
            let outcome = if share.tests > 0 { judged() } else { Outcome::Open };
            Verdict { goal, found, outcome, load: None }
        };
        [
            at_least("pairs of calls that only read, of the sample", 99.0, self.reading()),
            at_least("all pairs of the sample", 95.0, self.all()),
            at_least("every pair of the specification", 95.0, self.whole()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(kinds: [Kind; 2], at_first: bool, fields: &[&str]) -> Test {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        Test { kinds, nearness: Nearness::File, at_first, fields }
    }

    #[test]
    fn a_matrix_counts_cells_shares_and_offenders() {
        let (reads, mixed) = ([Kind::Stat, Kind::Read], [Kind::Write, Kind::Stat]);
        let tests = vec![
            test(reads, true, &[]),
            test(reads, false, &[]),
            test(mixed, false, &["A.b", "C.d"]),
            test(mixed, false, &["C.d"]),
        ];
        let matrix = Matrix { on: On::Ext4, tests, unseen: Vec::new() };
        assert_eq!(matrix.all(), Share { tests: 4, at_first: 1, free: 2 });
        assert_eq!(matrix.reading(), Share { tests: 2, at_first: 1, free: 2 });
        assert_eq!(matrix.cell(Kind::Stat, Kind::Write), Share { tests: 2, at_first: 0, free: 0 });
        assert_eq!(matrix.near(Nearness::Apart).tests, 0);
        let offender = |field, pairs| Offender { field, pairs, apart: 0 };
        assert_eq!(matrix.offenders(), [offender("C.d", 2), offender("A.b", 1)]);
        let [reading, all, whole] = matrix.verdicts();
        assert_eq!([reading.word(), all.word(), whole.word()], ["MISSED"; 3], "the first try decides");
        assert_eq!(all.found, "25.0 % at the first try, 50.0 % at the best of 4 (1 and 2 of 4)");
    }

    #[test]
    fn a_kind_with_many_arguments_weighs_no_more_than_others() {
        let both_ways = [[Kind::Chmod, Kind::Write], [Kind::Write, Kind::Chmod]];
        let mut tests: Vec<_> =
            (0..PAIRS_OF_A_CELL + 10).map(|at| test(both_ways[at % 2], false, &["A.b"])).collect();
        tests.push(test([Kind::Stat, Kind::Read], true, &[]));
        let matrix = Matrix { on: On::Ext4, tests, unseen: Vec::new() };
        let shares = [matrix.all(), matrix.whole()].map(|share| (share.free, share.tests));
        assert_eq!(shares, [(1, PAIRS_OF_A_CELL + 1), (1, PAIRS_OF_A_CELL + 11)]);
    }
}
