//! Accesses of the mechanisms in production to shared memory. If each thread has its own objects,
//! there are no conflicts and hardly any locked instructions.

use extern4_lab::access_counts::AccessCounts;
use extern4_lab::plan::Side;
use extern4_lab::{acl, buffer_cache, may_exec, mbcache, open_files};

#[test]
fn new_executes_no_locked_instruction_and_is_in_nobodys_way() {
    let mut counted = AccessCounts::default();
    acl::count(&mut counted);
    may_exec::count(&mut counted);
    open_files::count(&mut counted);
    mbcache::count(&mut counted);
    buffer_cache::count(&mut counted);
    for operation in ["open and close", "close what another thread opened", "hit"] {
        let get = |side| counted.get(operation, side).unwrap();
        let new = get(Side::Extern4);
        assert_eq!((new.locked, new.conflicts), (0.0, 0.0), "{new:?}");
        assert!(get(Side::Baseline).locked >= 2.0 && get(Side::Baseline).conflicts > 0.0);
        assert!(get(Side::Patch).locked >= 2.0);
    }
    for operation in [
        "stat, no ACL",
        "four search checks, no ACL",
        "four search checks, ACLs everywhere",
    ] {
        let get = |side| counted.get(operation, side).unwrap();
        let extern4 = get(Side::Extern4);
        assert_eq!(
            (extern4.locked, extern4.conflicts),
            (0.0, 0.0),
            "{extern4:?}"
        );
        // The check takes a lock in each of four directories, and where there is an ACL, its count.
        let least = if operation.ends_with("everywhere") {
            12.0
        } else {
            8.0
        };
        assert!(get(Side::Baseline).locked >= least && get(Side::Baseline).conflicts >= 4.0);
        let patch = get(Side::Patch);
        assert_eq!(
            (patch.locked >= least, patch.conflicts >= 4.0),
            (least > 8.0, least > 8.0),
            "{patch:?}"
        );
    }
    // Nor does a search check of `may_exec`, on any side: each knows by then, without a lock, that
    // there is no ACL.
    for side in Side::ALL {
        let checks = counted.get("four search checks", side).unwrap();
        assert_eq!((checks.locked, checks.conflicts), (0.0, 0.0), "{checks:?}");
    }
    // To join a block and to leave one takes one atomic exchange each, whatever else a cache does.
    let set = |side| {
        counted
            .get("set an attribute to what another file has", side)
            .unwrap()
    };
    assert_eq!(
        (set(Side::Extern4).locked, set(Side::Extern4).conflicts),
        (2.0, 0.0),
        "{:?}",
        set(Side::Extern4)
    );
    assert!(set(Side::Baseline).locked > set(Side::Patch).locked && set(Side::Patch).locked > 4.0);
    assert!(set(Side::Baseline).conflicts > 0.0, "one list");
    // Lists of two CPUs do not conflict. Two files that the heap happens to put on one line do.
    // Then the test opens other files.
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        let conflicts = |counted: &AccessCounts| {
            counted
                .get("open and close", Side::Patch)
                .map(|seed| seed.conflicts)
        };
        let again = || {
            let mut counted = AccessCounts::default();
            open_files::count(&mut counted);
            conflicts(&counted) == Some(0.0)
        };
        assert!(conflicts(&counted) == Some(0.0) || (0..5).any(|_| again()));
    }
}
