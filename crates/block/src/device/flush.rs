//! Flushes of a medium that reports an error only once.
//!
//! If the operating system could not write some bytes, it reports that to one of the callers that
//! flush. It then counts the bytes as written (`fsync(2)`). So a caller whose flush has succeeded
//! first waits for the flushes that were under way at the same time. One of them may have got the
//! error for this caller's bytes. Once a flush has failed, no later flush succeeds.
//!
//! `FileDevice` and `FaultDevice` flush through it.

use extern4_sync::primitive::{Condvar, Mutex, MutexGuard};

use crate::{Error, Result};

/// The flushes of one device.
#[derive(Debug, Default)]
pub struct Flushes {
    state: Mutex<FlushState>,
    /// Notified when a flush has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct FlushState {
    /// The number of flushes that have begun.
    begun: u64,
    /// The numbers of the flushes under way, of which there are few.
    under_way: Vec<u64>,
    /// The error of the first flush that failed.
    failed: Option<Error>,
}

impl Flushes {
    fn state(&self) -> MutexGuard<'_, FlushState> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Flushes by calling `flush`, which makes durable the bytes written before the call, unless it
    /// or a concurrent flush reports an error. Locks: none is held while `flush` runs.
    ///
    /// # Errors
    /// The first error of a flush of this device, even of one that began earlier and ends later.
    pub fn flush(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let number = self.begin()?;
        let result = flush();
        let mut state = self.state();
        state.under_way.retain(|other| *other != number);
        if let Err(error) = result {
            state.failed.get_or_insert(error);
        }
        self.ended.notify_all();
        // Flushes that begin from now on cannot get the error for the bytes of this one.
        let last = state.begun;
        while state.under_way.iter().any(|other| *other <= last) {
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        match state.failed.clone() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn begin(&self) -> Result<u64> {
        let mut state = self.state();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        state.begun += 1;
        let number = state.begun;
        state.under_way.push(number);
        Ok(number)
    }

    /// Forgets the failure, so that flushes can succeed again.
    pub(crate) fn heal(&self) {
        self.state().failed = None;
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{Scope, ScopedJoinHandle, scope, yield_now};

    use super::*;
    use crate::Op;

    impl Flushes {
        /// Begins a flush that returns `result` after a message on the returned channel.
        fn begin_one<'scope>(
            &'scope self,
            scope: &'scope Scope<'scope, '_>,
            result: Result<()>,
        ) -> (Sender<()>, ScopedJoinHandle<'scope, Result<()>>) {
            let (go, gate) = channel();
            let count = self.state().begun + 1;
            let flush = scope.spawn(move || {
                self.flush(|| {
                    gate.recv().unwrap();
                    result
                })
            });
            while self.state().begun < count {
                yield_now();
            }
            (go, flush)
        }

        /// Waits until `count` flushes are under way.
        fn are_under_way(&self, count: usize) {
            while self.state().under_way.len() != count {
                yield_now();
            }
        }
    }

    fn failure() -> Result<()> {
        Err(Error::io(Op::Flush, 0, 0, rustix::io::Errno::IO.into()))
    }

    /// One flush gets the error from the device, the other one succeeds there.
    #[test]
    fn a_failed_flush_is_an_error_for_concurrent_callers() {
        for fails_last in [false, true] {
            let flushes = Flushes::default();
            scope(|scope| {
                let (fail, failing) = flushes.begin_one(scope, failure());
                let (succeed, beside) = flushes.begin_one(scope, Ok(()));
                let order = if fails_last {
                    [succeed, fail]
                } else {
                    [fail, succeed]
                };
                for (ended, go) in order.iter().enumerate() {
                    go.send(()).unwrap();
                    flushes.are_under_way(1 - ended);
                }
                assert!(failing.join().unwrap().is_err());
                assert!(beside.join().unwrap().is_err(), "fails last: {fails_last}");
            });
            let unasked = || -> Result<()> { panic!("the device is asked again") };
            assert!(flushes.flush(unasked).is_err());
            flushes.heal();
            flushes.flush(|| Ok(())).unwrap();
        }
    }

    #[test]
    fn a_finished_flush_waits_for_no_later_one() {
        let flushes = Flushes::default();
        scope(|scope| {
            let (go_first, first) = flushes.begin_one(scope, Ok(()));
            let (go_second, second) = flushes.begin_one(scope, Ok(()));
            go_second.send(()).unwrap();
            flushes.are_under_way(1);
            let (go_third, third) = flushes.begin_one(scope, failure());
            assert!(!second.is_finished(), "the first may be told of its bytes");
            go_first.send(()).unwrap();
            second.join().unwrap().unwrap();
            go_third.send(()).unwrap();
            assert!(third.join().unwrap().is_err());
            assert!(
                first.join().unwrap().is_err(),
                "the third was under way when it was through"
            );
        });
    }
}
