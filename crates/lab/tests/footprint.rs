//! What the mechanisms in production do to shared memory: nothing, where threads have things of their own.

use extern4_lab::counted::Counted;
use extern4_lab::plan::Side;
use extern4_lab::{buffer_cache, open_files};

#[test]
fn new_executes_no_locked_instruction_and_is_in_nobodys_way() {
    let mut counted = Counted::default();
    open_files::count(&mut counted);
    buffer_cache::count(&mut counted);
    for operation in ["open and close", "close what another thread opened", "hit"] {
        let get = |side| counted.get(operation, side).unwrap();
        let new = get(Side::New);
        assert_eq!((new.locked, new.conflicts), (0.0, 0.0), "{new:?}");
        assert!(get(Side::Before).locked >= 2.0 && get(Side::Before).conflicts > 0.0);
        assert!(get(Side::Seed).locked >= 2.0);
    }
    // Lists of two CPUs do not meet.
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        assert_eq!(counted.get("open and close", Side::Seed).unwrap().conflicts, 0.0);
    }
}
