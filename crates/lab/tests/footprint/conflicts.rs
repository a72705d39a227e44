//! Calls that commute, in short: what has nothing to do with each other shares no line, and what is
//! made to share one is named.

use std::sync::Arc;

use extern4_lab::conflicts::{Matrix, Setup, Test, run};
use extern4_lab::spec::{Kind, Nearness, Outcome, Pair, pairs};
use extern4_sync::primitive::{AtomicU64, Ordering};
use extern4_vfs::{Access, Cred, Inode, Result, SecurityHook, SuperOptions};

const PAIRS_OF_A_CELL: usize = 6;

/// On every volume.
fn check(matrix: &Matrix) {
    println!("{:?}: {:?}, reading {:?}", matrix.on, matrix.all(), matrix.reading());
    matrix.offenders().iter().take(10).for_each(|offender| println!("{offender:?}"));
    // Of names, whether they are there or not, anybody may ask at any time.
    for other in [Kind::Stat, Kind::Miss, Kind::Open, Kind::Close, Kind::Chmod, Kind::SetXattr, Kind::Write] {
        for one in [Kind::Stat, Kind::Miss] {
            let share = matrix.cell(one, other);
            assert!(share.tests > 0 && share.free == share.tests, "{one:?} and {other:?}: {share:?}");
        }
    }
    // What takes no notes is not hidden there.
    let unseen = |kind| matrix.unseen.iter().find(|(known, _)| *known == kind).map(|(_, unseen)| *unseen);
    if cfg!(target_arch = "x86_64") {
        assert_eq!([Kind::Stat, Kind::Miss].map(unseen), [Some(0.0); 2], "{:?}", matrix.unseen);
        assert!(unseen(Kind::Create).is_some_and(|unseen| unseen < 100.0), "{:?}", matrix.unseen);
    }
    // And what writes what others use is seen.
    let same = matrix.near(Nearness::File);
    assert!(same.free < same.tests && !matrix.offenders().is_empty());
}

#[test]
fn questions_of_names_meet_nobody_in_memory() {
    let setup = Setup::memory(SuperOptions::default()).unwrap();
    let matrix = run(&setup, &pairs(PAIRS_OF_A_CELL), 1).unwrap();
    check(&matrix);
    let apart = matrix.near(Nearness::Apart);
    assert!(apart.percent() > 97.0, "{apart:?}");
}

#[test]
fn questions_of_names_meet_nobody_on_ext4() {
    if let Some(setup) = Setup::ext4().unwrap() {
        check(&run(&setup, &pairs(PAIRS_OF_A_CELL), 1).unwrap());
    }
}

/// Counts who is checked, as nobody should.
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

/// What changes of a file besides its contents, and where it moves, leaves alone what who writes to
/// it looks at.
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
        // Where the inode lies in memory, two fields of ext4 may stand on one line; locks and
        // attributes are the VFS's.
        let meets = |test: &Test| test.fields.iter().any(|field| field.contains("(vfs/"));
        assert_eq!(always_meet(&setup, pairs, meets), []);
    }
}

/// Those pairs that meet each time they are made. Some meet by chance, on a busy machine, each time
/// in one run: when the tick is over in which the file was written, the next write says a time.
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

/// To say that a name is there, or is not, takes no lock and no count.
#[test]
fn calls_that_fail_for_a_name_meet_nobody() {
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
