//! The last user sees all that the others did. The models with a cache that leads to the word stand in `crates/ext4/tests/models.rs`.

use extern4_sync::model::race_for;
use extern4_sync::primitive::{AtomicU64, Ordering};
use extern4_sync::shares::{Joined, Left, Shares};

/// One thread leaves. Another joins, writes, and leaves, before or after it.
#[test]
fn the_last_to_leave_sees_all() {
    race_for(
        || {
            let shares = Shares::new();
            shares.note(shares.look(), 1);
            (shares, AtomicU64::new(0))
        },
        |(shares, contents)| {
            let joined = shares.join(1024) == Joined::Yes;
            joined.then(|| {
                contents.store(1, Ordering::Relaxed);
                shares.leave()
            })
        },
        |(shares, contents)| (shares.leave(), contents.load(Ordering::Relaxed)),
        |_, came, (left, seen)| match came {
            Some(Left::Last) => assert_ne!(left, Left::Last, "both were the last"),
            Some(_) => assert_eq!((left, seen), (Left::Last, 1)),
            None => assert_eq!(left, Left::Last),
        },
    );
}
