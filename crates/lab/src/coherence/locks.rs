//! Who has which lock, and who waits.

use std::collections::{HashMap, VecDeque};

/// A lock.
#[derive(Debug, Default)]
struct State {
    exclusive: bool,
    holders: Vec<usize>,
    waiting: VecDeque<(usize, bool)>,
}

/// All locks.
#[derive(Debug, Default)]
pub(super) struct Locks(HashMap<u64, State>);

impl Locks {
    /// A CPU takes a lock, for itself or with others. False if it has to wait; then a later [`release`](Self::release) names it.
    pub(super) fn take(&mut self, cpu: usize, lock: u64, exclusive: bool) -> bool {
        let state = self.0.entry(lock).or_default();
        if state.holders.is_empty() || !(exclusive || state.exclusive) && state.waiting.is_empty() {
            state.exclusive = exclusive;
            state.holders.push(cpu);
            return true;
        }
        state.waiting.push_back((cpu, exclusive));
        false
    }

    /// A CPU releases a lock, if it has it. Who has it now: they were first to ask.
    pub(super) fn release(&mut self, cpu: usize, lock: u64) -> Vec<usize> {
        let Some(state) = self.0.get_mut(&lock) else { return Vec::new() };
        let Some(place) = state.holders.iter().position(|holder| *holder == cpu) else { return Vec::new() };
        state.holders.swap_remove(place);
        let mut next = Vec::new();
        while let Some(&(cpu, exclusive)) = state.waiting.front() {
            if !state.holders.is_empty() && (exclusive || state.exclusive) {
                break;
            }
            state.waiting.pop_front();
            state.exclusive = exclusive;
            state.holders.push(cpu);
            next.push(cpu);
        }
        next
    }

    /// The locks that a CPU has.
    pub(super) fn of(&self, cpu: usize) -> Vec<u64> {
        let has = |state: &State| state.holders.contains(&cpu);
        let mut locks: Vec<_> =
            self.0.iter().filter(|(_, state)| has(state)).map(|(lock, _)| *lock).collect();
        locks.sort_unstable();
        locks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_handed_on_in_order() {
        let mut locks = Locks::default();
        assert!(locks.take(0, 7, true) && locks.take(0, 8, true));
        assert!(!locks.take(1, 7, false) && !locks.take(2, 7, false) && !locks.take(3, 7, true));
        assert_eq!(locks.of(0), [7, 8]);
        assert_eq!(locks.release(1, 7), [], "it waits");
        assert_eq!(locks.release(0, 7), [1, 2], "both together");
        assert!(!locks.take(4, 7, false), "not past who waits");
        assert_eq!((locks.release(1, 7), locks.release(2, 7)), (vec![], vec![3]));
        assert_eq!((locks.release(3, 7), locks.release(4, 7)), (vec![4], vec![]));
    }
}
