//! Counters for each CPU.

use extern4_sync::model::explore;
use extern4_sync::percpu::Counter;
use extern4_sync::primitive::thread;
use loom::sync::Arc;

#[test]
fn counter_loses_nothing() {
    explore(|| {
        let counter = Arc::new(Counter::new());
        let other = thread::spawn({
            let counter = counter.clone();
            move || counter.add(1)
        });
        counter.add(2);
        assert!(counter.sum() >= 2);
        other.join().unwrap();
        assert_eq!(counter.sum(), 3);
    });
}
