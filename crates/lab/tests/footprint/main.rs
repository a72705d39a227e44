//! What the mechanisms in production do to shared memory: nothing, where threads have things of their own.

mod conflicts;

use extern4_lab::counted::Counted;
use extern4_lab::meetings::{Pair, free, pairs};
use extern4_lab::plan::Side;
use extern4_lab::{acl, buffer_cache, may_exec, mbcache, open_files};

#[test]
fn new_executes_no_locked_instruction_and_is_in_nobodys_way() {
    let mut counted = Counted::default();
    acl::count(&mut counted);
    may_exec::count(&mut counted);
    open_files::count(&mut counted);
    mbcache::count(&mut counted);
    buffer_cache::count(&mut counted);
    for operation in ["open and close", "close what another thread opened", "hit"] {
        let get = |side| counted.get(operation, side).unwrap();
        let new = get(Side::New);
        assert_eq!((new.locked, new.conflicts), (0.0, 0.0), "{new:?}");
        assert!(get(Side::Before).locked >= 2.0 && get(Side::Before).conflicts > 0.0);
        assert!(get(Side::Seed).locked >= 2.0);
    }
    for operation in ["stat, no ACL", "four search checks, no ACL", "four search checks, ACLs everywhere"] {
        let get = |side| counted.get(operation, side).unwrap();
        let new = get(Side::New);
        assert_eq!((new.locked, new.conflicts), (0.0, 0.0), "{new:?}");
        // A lock in each of four directories, and where there is an ACL, its count.
        let least = if operation.ends_with("everywhere") { 12.0 } else { 8.0 };
        assert!(get(Side::Before).locked >= least && get(Side::Before).conflicts >= 4.0);
        let seed = get(Side::Seed);
        assert_eq!((seed.locked >= least, seed.conflicts >= 4.0), (least > 8.0, least > 8.0), "{seed:?}");
    }
    // Nor does a search check of anybody else's: that there is no ACL is known without a lock by then.
    for side in Side::ALL {
        let checks = counted.get("four search checks", side).unwrap();
        assert_eq!((checks.locked, checks.conflicts), (0.0, 0.0), "{checks:?}");
    }
    // To join a block and to leave one takes an exchange each, whatever else a cache does.
    let set = |side| counted.get("set an attribute to what another file has", side).unwrap();
    assert_eq!((set(Side::New).locked, set(Side::New).conflicts), (2.0, 0.0), "{:?}", set(Side::New));
    assert!(set(Side::Before).locked > set(Side::Seed).locked && set(Side::Seed).locked > 4.0);
    assert!(set(Side::Before).conflicts > 0.0, "one list");
    // Two operations that commute meet seldom where they are New's.
    let pairs = pairs(&counted.meetings);
    assert!(pairs.iter().all(|pair| pair.lines.iter().all(Option::is_some)));
    for (mechanism, all, [before, seed, new]) in free(&pairs) {
        println!("{mechanism}: of {all} pairs, {before}, {seed} and {new} meet nowhere");
        assert!(all >= 3 && new >= seed.max(before), "{mechanism}: {pairs:?}");
    }
    let is =
        |pair: &&Pair<'_>| pair.operations.iter().all(|operation| operation == "hit of one block by both");
    assert_eq!(pairs.iter().find(is).map(|pair| pair.lines[Side::New as usize]), Some(Some(0)));
    // Lists of two CPUs do not meet. Two files that the heap happens to put on one line do: then they are made again.
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        let conflicts =
            |counted: &Counted| counted.get("open and close", Side::Seed).map(|seed| seed.conflicts);
        let again = || {
            let mut counted = Counted::default();
            open_files::count(&mut counted);
            conflicts(&counted) == Some(0.0)
        };
        assert!(conflicts(&counted) == Some(0.0) || (0..5).any(|_| again()));
    }
}
