//! A short test of calls that commute: unrelated calls share no line, and the fields of a shared
//! line are named.

use std::sync::Arc;

use extern4_lab::conflicts::{Matrix, Setup, Test, run};
use extern4_lab::spec::{Kind, Nearness, Outcome, Pair, pairs};
use extern4_sync::primitive::{AtomicU64, Ordering};
use extern4_vfs::{Access, Cred, Inode, Result, SecurityHook, SuperOptions};

const PAIRS_OF_A_CELL: usize = 6;

/// Checks the matrix of any volume.
fn check(matrix: &Matrix) {
    println!("{:?}: {:?}, reading {:?}", matrix.on, matrix.all(), matrix.reading());
    matrix.offenders().iter().take(10).for_each(|offender| println!("{offender:?}"));
    // Lookups of names, existing or not, never conflict with these calls.
    for other in [Kind::Stat, Kind::Miss, Kind::Open, Kind::Close, Kind::Chmod, Kind::SetXattr, Kind::Write] {
        for one in [Kind::Stat, Kind::Miss] {
            let share = matrix.cell(one, other);
            assert!(share.tests > 0 && share.free == share.tests, "{one:?} and {other:?}: {share:?}");
        }
    }
    // The audit records nearly all locked instructions of these calls.
    let unseen = |kind| matrix.unseen.iter().find(|(known, _)| *known == kind).map(|(_, unseen)| *unseen);
    if cfg!(target_arch = "x86_64") {
        assert_eq!([Kind::Stat, Kind::Miss].map(unseen), [Some(0.0); 2], "{:?}", matrix.unseen);
        assert!(unseen(Kind::Create).is_some_and(|unseen| unseen < 100.0), "{:?}", matrix.unseen);
    }
    // Writes to data that other calls use are seen.
    let same = matrix.near(Nearness::File);
    assert!(same.free < same.tests && !matrix.offenders().is_empty());
}

#[test]
fn lookups_conflict_with_no_call_in_memory() {
    let setup = Setup::memory(SuperOptions::default()).unwrap();
    let matrix = run(&setup, &pairs(PAIRS_OF_A_CELL), 1).unwrap();
    check(&matrix);
    let apart = matrix.near(Nearness::Apart);
    assert!(apart.percent() > 97.0, "{apart:?}");
}

#[test]
fn lookups_conflict_with_no_call_on_ext4() {
    if let Some(setup) = Setup::ext4().unwrap() {
        check(&run(&setup, &pairs(PAIRS_OF_A_CELL), 1).unwrap());
    }
}

/// A hook that counts all checks in one place, which no hook should do.
#[derive(Default)]
struct Busybody {
    asked: AtomicU64,
}

impl SecurityHook for Busybody {
    fn permission(&self, _: &Cred, _: &Inode, _: Access) -> Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_count_that_all_share_is_found_and_named() {
    let hook = Arc::new(Busybody::default());
    let options = SuperOptions { security: Some(Arc::clone(&hook) as _), ..SuperOptions::default() };
    let setup = Setup::memory(options).unwrap();
    let mut pairs = pairs(PAIRS_OF_A_CELL);
    pairs.retain(|pair| pair.kinds() == [Kind::Stat, Kind::Stat] && pair.nearness() == Nearness::Apart);
    let matrix = run(&setup, &pairs, 0).unwrap();
    assert!(hook.asked.load(Ordering::Relaxed) > 0);
    assert!(!pairs.is_empty() && matrix.all().free == 0, "{:?}", matrix.all());
    let named = matrix.offenders()[0];
    assert_eq!(
        (named.field, named.pairs),
        ("Busybody.asked (lab/tests/footprint/conflicts.rs)", pairs.len())
    );
}

/// A change of a file's attributes or names leaves alone the data that a write to the file uses.
#[test]
fn a_file_is_written_while_all_else_of_it_changes() {
    let changes_what_is_written = |pair: &Pair, who: usize| {
        let changes = [Kind::Chmod, Kind::SetXattr, Kind::Link, Kind::Unlink, Kind::Rename]
            .contains(&pair.kinds()[who]);
        changes && pair.kinds()[1 - who] == Kind::Write && pair.nearness() == Nearness::File
    };
    let mut pairs = pairs(100);
    pairs.retain(|pair| [0, 1].iter().any(|who| changes_what_is_written(pair, *who)));
    assert!(pairs.len() > 100, "{}", pairs.len());
    let memory = Setup::memory(SuperOptions::default()).unwrap();
    assert_eq!(always_meet(&memory, pairs.clone(), |test| !test.is_free()), []);
    if let Some(setup) = Setup::ext4().unwrap() {
        // Two fields of ext4 may share a line, by the place of the inode in memory. Locks and
        // attributes are the VFS's.
        let meets = |test: &Test| test.fields.iter().any(|field| field.contains("(vfs/"));
        assert_eq!(always_meet(&setup, pairs, meets), []);
    }
}

/// Returns the pairs that conflict at each try. On a busy machine, some conflict by chance at each
/// try of one run. When the tick in which the file was written is over, the next write changes a
/// time.
fn always_meet(setup: &Setup, mut pairs: Vec<Pair>, meets: impl Fn(&Test) -> bool) -> Vec<Pair> {
    for _ in 0..10 {
        let matrix = run(setup, &pairs, 0).unwrap();
        let made = pairs.into_iter().zip(&matrix.tests);
        pairs = made.filter(|(_, test)| meets(test)).map(|(pair, _)| pair).collect();
        if pairs.is_empty() {
            break;
        }
        println!("{:?}", matrix.offenders());
    }
    pairs
}

/// A call that fails because a name exists, or does not, takes no lock and no count.
#[test]
fn calls_that_fail_for_a_name_conflict_with_no_call() {
    let fails = |pair: &Pair, who: usize| {
        let names = [Kind::Create, Kind::Link, Kind::Unlink, Kind::Rename].contains(&pair.kinds()[who]);
        names && matches!(pair.outcomes[who], Outcome::Exists | Outcome::Absent)
    };
    let changes_names =
        |kind| [Kind::Create, Kind::Link, Kind::Unlink, Kind::Rename, Kind::ReadDir].contains(&kind);
    let mut pairs = pairs(40);
    pairs.retain(|pair| {
        let other = |who: usize| fails(pair, 1 - who) || !changes_names(pair.kinds()[1 - who]);
        [0, 1].iter().any(|who| fails(pair, *who) && other(*who))
    });
    assert!(pairs.len() > 200, "{}", pairs.len());
    let matrix = run(&Setup::memory(SuperOptions::default()).unwrap(), &pairs, 0).unwrap();
    assert_eq!(matrix.all().free, pairs.len(), "{:?}", matrix.offenders());
}
