//! Finds the pairs of calls that commute, by making both orders of each pair on the model.
//!
//! `conflicts` tests these pairs. A pair counts only if results and final state agree in both
//! orders. The order of the list is pseudo-random and the same in each run.

use super::call::{Call, Kind, Outcome};
use super::state::{Start, starts};
use crate::random::Random;

/// Two calls that commute, each by a thread of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The initial state.
    pub start: Start,
    /// The calls.
    pub calls: [Call; 2],
    /// The results, which are the same in either order.
    pub outcomes: [Outcome; 2],
}

/// The objects that two calls share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearness {
    /// Nothing but the file system.
    Apart,
    /// A directory, and no file.
    Directory,
    /// A file.
    File,
}

impl Nearness {
    /// All values, the least first.
    pub const ALL: [Self; 3] = [Self::Apart, Self::Directory, Self::File];

    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apart => "other files in other directories",
            Self::Directory => "other files in one directory",
            Self::File => "the same file",
        }
    }

    /// Returns the value with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|nearness| nearness.name() == name)
    }
}

impl Pair {
    /// Returns how close the objects of the calls are.
    pub fn nearness(&self) -> Nearness {
        let files = [0, 1].map(|who| {
            let named = self.calls[who].places().into_iter().filter_map(|at| self.start.names[at.index()]);
            let open = self.calls[who].uses_descriptor().then_some(self.start.open[who]);
            named.chain(open).collect::<Vec<_>>()
        });
        let dirs = self.calls.map(Call::directories);
        if files[0].iter().any(|file| files[1].contains(file)) {
            Nearness::File
        } else if dirs[0].iter().any(|dir| dirs[1].contains(dir)) {
            Nearness::Directory
        } else {
            Nearness::Apart
        }
    }

    /// Returns the kinds of the calls.
    pub fn kinds(&self) -> [Kind; 2] {
        [0, 1].map(|who| self.calls[who].kind(self.outcomes[who]))
    }
}

/// Returns the results of two calls, if these and the state after them are the same in either
/// order.
pub fn commute(start: &Start, calls: [Call; 2]) -> Option<[Outcome; 2]> {
    let run = |first: usize| {
        let (mut state, second) = (start.state(), 1 - first);
        let mut outcomes = [Outcome::Done; 2];
        for who in [first, second] {
            outcomes[who] = state.apply(who, calls[who]);
        }
        (outcomes, state.canonical())
    };
    let (one, other) = (run(0), run(1));
    (one == other).then_some(one.0)
}

/// Returns the pairs that commute, in a pseudo-random order: at most `most_of_a_cell` with the same
/// two [`Kind`]s.
pub fn pairs(most_of_a_cell: usize) -> Vec<Pair> {
    let mut all = Vec::new();
    let calls = Call::all();
    for start in starts() {
        for (index, &one) in calls.iter().enumerate() {
            for &other in &calls[index..] {
                // Open descriptors make no difference to calls by path.
                if start.open == [0, 0] && ![one, other].iter().any(|call| call.uses_descriptor()) {
                    continue;
                }
                let commuting = commute(&start, [one, other]);
                all.extend(commuting.map(|outcomes| Pair { start, calls: [one, other], outcomes }));
            }
        }
    }
    shuffle(&mut all);
    let mut taken = std::collections::BTreeMap::<_, usize>::new();
    all.retain(|pair| {
        let mut kinds = pair.kinds();
        kinds.sort();
        let taken = taken.entry(kinds).or_default();
        *taken += 1;
        *taken <= most_of_a_cell
    });
    all
}

fn shuffle(pairs: &mut [Pair]) {
    let mut random = Random::new(0);
    for last in (1..pairs.len()).rev() {
        pairs.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::super::NameSlot;
    use super::*;

    const A: NameSlot = NameSlot { dir: 0, name: 0 };
    const B: NameSlot = NameSlot { dir: 0, name: 1 };
    const C: NameSlot = NameSlot { dir: 1, name: 0 };
    const D: NameSlot = NameSlot { dir: 1, name: 1 };

    #[test]
    fn known_pairs_commute_or_not() {
        let half = Start { names: [Some(0), None, Some(1), None], open: [0, 1] };
        let same = Start { open: [0, 0], ..half };
        let linked = Start { names: [Some(0), None, Some(0), Some(1)], open: [0, 1] };
        let commuting = [
            // The example of the paper: files of different names in one directory.
            (half, Call::Create(B), Call::Create(D)),
            (Start { names: [None; 4], open: [0, 0] }, Call::Stat(A), Call::Create(B)),
            (half, Call::Stat(A), Call::Stat(A)),
            (half, Call::Open(A), Call::Open(A)),
            (half, Call::Unlink(A), Call::Unlink(C)),
            // A call that fails changes nothing.
            (half, Call::Create(A), Call::Create(A)),
            // Both set the same value.
            (half, Call::Chmod(A, 0o600), Call::Chmod(A, 0o600)),
            (same, Call::Write(0, 1), Call::Write(1, 1)),
            (same, Call::Write(0, 1), Call::Read(1)),
            (half, Call::Write(0, 1), Call::Write(0, 2)),
            (half, Call::Rename(A, B), Call::Rename(C, D)),
            (linked, Call::Rename(A, C), Call::Stat(A)),
            (half, Call::Close, Call::Unlink(A)),
            (half, Call::ReadDir(0), Call::Create(D)),
        ];
        for (start, one, other) in commuting {
            assert!(commute(&start, [one, other]).is_some(), "{one} and {other} commute");
        }
        let not = [
            // The second call finds the name.
            (half, Call::Create(B), Call::Create(B)),
            (half, Call::Stat(B), Call::Create(B)),
            (half, Call::Unlink(A), Call::Unlink(A)),
            (half, Call::Open(A), Call::Unlink(A)),
            (half, Call::Chmod(A, 0o600), Call::Chmod(A, 0o640)),
            // The change time differs.
            (half, Call::Stat(A), Call::SetXattr(A, 1)),
            (same, Call::Write(0, 1), Call::Write(0, 2)),
            (same, Call::Write(0, 1), Call::Read(0)),
            (half, Call::ReadDir(0), Call::Create(B)),
            (half, Call::Rename(A, B), Call::Rename(C, B)),
            // The number of names differs, under any name.
            (linked, Call::Unlink(A), Call::Stat(C)),
        ];
        for (start, one, other) in not {
            assert_eq!(commute(&start, [one, other]), None, "{one} and {other} do not commute");
        }
    }

    #[test]
    fn shared_objects_of_calls_are_found_under_any_name() {
        let start = Start { names: [Some(0), None, Some(0), Some(1)], open: [1, 1] };
        let check = |one, other, expected| {
            let pair = Pair { start, calls: [one, other], outcomes: [Outcome::Done; 2] };
            assert_eq!(pair.nearness(), expected, "{one} and {other}");
        };
        check(Call::Stat(A), Call::Chmod(C, 0o600), Nearness::File);
        check(Call::Read(0), Call::Stat(D), Nearness::File);
        check(Call::Close, Call::Stat(A), Nearness::Apart);
        check(Call::Stat(A), Call::Create(B), Nearness::Directory);
        check(Call::ReadDir(1), Call::Rename(A, C), Nearness::Directory);
        check(Call::ReadDir(1), Call::Create(B), Nearness::Apart);
    }

    #[test]
    fn pairs_are_the_same_each_time_and_fill_every_cell() {
        let few = pairs(5);
        assert_eq!(few, pairs(5));
        for (index, one) in Kind::ALL.into_iter().enumerate() {
            for other in &Kind::ALL[index..] {
                let of_cell = few.iter().filter(|pair| {
                    let kinds = pair.kinds();
                    kinds == [one, *other] || kinds == [*other, one]
                });
                let found = of_cell.count();
                assert!((1..=5).contains(&found), "{} and {}: {found}", one.name(), other.name());
            }
        }
    }
}
