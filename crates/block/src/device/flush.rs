//! Flushes of a medium that tells of an error once.
//!
//! Where the operating system could not write what it was given, it says so to one of those who flush, and then counts the bytes as
//! written (`fsync(2)`). So who is told that his flush has succeeded must not believe it before those that were under way meanwhile are
//! through, for one of them may have been told of his bytes; and once one has failed, none succeeds any more.

use extern4_sync::primitive::{Condvar, Mutex, MutexGuard};

use crate::{Error, Result};

/// The flushes of one device.
#[derive(Debug, Default)]
pub struct Flushes {
    state: Mutex<State>,
    /// One is through.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many have begun.
    begun: u64,
    /// The numbers of those that are under way, of which there are few.
    under_way: Vec<u64>,
    /// Why the first failed that did.
    failed: Option<Error>,
}

impl Flushes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Flushes by `flush`, which makes durable what was written before it is called, unless it or another says that it could not.
    /// Locks: none is held while `flush` runs.
    ///
    /// # Errors
    /// The first that a flush of this device had, be it one that began earlier and ends later.
    pub fn flush(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let number = self.begin()?;
        let result = flush();
        let mut state = self.state();
        state.under_way.retain(|other| *other != number);
        if let Err(error) = result {
            state.failed.get_or_insert(error);
        }
        self.ended.notify_all();
        // Those that begin from now on have nothing to be told of what this one was for.
        let last = state.begun;
        while state.under_way.iter().any(|other| *other <= last) {
            state = self.ended.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.failed.clone().map_or(Ok(()), Err)
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

    /// What failed is forgotten.
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
        /// Begins a flush that has this result when it is told to go on.
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

        /// Waits until there are so many whose device has not answered.
        fn are_under_way(&self, count: usize) {
            while self.state().under_way.len() != count {
                yield_now();
            }
        }
    }

    fn failure() -> Result<()> {
        Err(Error::io(Op::Flush, 0, 0, rustix::io::Errno::IO.into()))
    }

    /// One is told of the error, the other is told of none.
    #[test]
    fn who_flushes_beside_one_that_fails_hears_of_it() {
        for fails_last in [false, true] {
            let flushes = Flushes::default();
            scope(|scope| {
                let (fail, failing) = flushes.begin_one(scope, failure());
                let (succeed, beside) = flushes.begin_one(scope, Ok(()));
                let order = if fails_last { [succeed, fail] } else { [fail, succeed] };
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
    fn who_is_through_waits_for_none_that_begins_later() {
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
            assert!(first.join().unwrap().is_err(), "the third was under way when it was through");
        });
    }
}
