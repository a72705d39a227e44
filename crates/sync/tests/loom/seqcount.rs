//! Sequence counts.

use extern4_sync::model::race;
use extern4_sync::primitive::{AtomicU64, Ordering};
use extern4_sync::seqcount::SeqCount;

#[test]
fn seqlock_reader_writer() {
    type Shared = (SeqCount, AtomicU64, AtomicU64);
    let copy = |(_, a, b): &Shared| (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed));
    race(
        || (SeqCount::new(), AtomicU64::new(0), AtomicU64::new(0)),
        move |shared| {
            let Some(seq) = shared.0.begin() else { return };
            let seen = copy(shared);
            if shared.0.validate(seq) {
                assert_eq!(seen.0, seen.1, "torn copy");
            }
        },
        |(count, a, b)| {
            for value in 1..3 {
                let _section = count.write();
                a.store(value, Ordering::Relaxed);
                b.store(value, Ordering::Relaxed);
            }
        },
        move |shared| assert_eq!(shared.0.read(|| copy(shared)), Some((2, 2))),
    );
}
