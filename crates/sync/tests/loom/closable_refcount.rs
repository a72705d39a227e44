//! The last user of a closable refcount sees all that the others did. Models with a cache that
//! leads to the word are in `crates/ext4/tests/loom.rs`.

use extern4_sync::closable_refcount::{ClosableRefcount, Put, TryGet};
use extern4_sync::model::race_for;
use extern4_sync::primitive::{AtomicU64, Ordering};

/// One thread puts its reference. Another gets one, writes, and puts it, before or after.
#[test]
fn the_last_put_sees_all() {
    race_for(
        || {
            let refcount = ClosableRefcount::new();
            refcount.set(refcount.snapshot(), 1);
            (refcount, AtomicU64::new(0))
        },
        |(refcount, contents)| {
            let joined = refcount.try_get(1024) == TryGet::Got;
            joined.then(|| {
                contents.store(1, Ordering::Relaxed);
                refcount.put()
            })
        },
        |(refcount, contents)| (refcount.put(), contents.load(Ordering::Relaxed)),
        |_, came, (left, seen)| match came {
            Some(Put::Last) => assert_ne!(left, Put::Last, "both were the last"),
            Some(_) => assert_eq!((left, seen), (Put::Last, 1)),
            None => assert_eq!(left, Put::Last),
        },
    );
}
