//! The CPUs that hold each lock in the simulation, and those that wait for it.
//!
//! `run` takes and releases locks here. A lock has one exclusive holder, or any number of shared
//! ones. The CPU that has waited longest is the first to try again.

use std::collections::{HashMap, VecDeque};

/// The state of a lock.
#[derive(Debug, Default)]
struct LockState {
    exclusive: bool,
    holders: Vec<usize>,
    waiting: VecDeque<(usize, bool)>,
}

/// The states of all locks.
#[derive(Debug, Default)]
pub(super) struct Locks(HashMap<u64, LockState>);

impl Locks {
    /// Takes a lock as a CPU, exclusively or shared. Returns false if the CPU has to wait. A later
    /// [`release`](Self::release) then names it.
    pub(super) fn take(&mut self, cpu: usize, lock: u64, exclusive: bool) -> bool {
        let state = self.0.entry(lock).or_default();
        let writer_waits = state.waiting.iter().any(|(_, exclusive)| *exclusive);
        if state.holders.is_empty() || !exclusive && !state.exclusive && !writer_waits {
            state.exclusive = exclusive;
            state.holders.push(cpu);
            return true;
        }
        state.waiting.push_back((cpu, exclusive));
        false
    }

    /// Releases a lock, if the CPU has it. Returns the CPUs that may try again: the one that has
    /// waited longest, and if it is a reader, also the readers directly behind it. Another CPU may
    /// take the lock before them.
    pub(super) fn release(&mut self, cpu: usize, lock: u64) -> Vec<usize> {
        let Some(state) = self.0.get_mut(&lock) else { return Vec::new() };
        let Some(place) = state.holders.iter().position(|holder| *holder == cpu) else { return Vec::new() };
        state.holders.swap_remove(place);
        let mut next = Vec::new();
        while state.holders.is_empty()
            && let Some((cpu, exclusive)) = state.waiting.pop_front()
        {
            next.push(cpu);
            if exclusive || state.waiting.front().is_none_or(|(_, exclusive)| *exclusive) {
                break;
            }
        }
        next
    }

    /// Returns the locks that a CPU holds, sorted.
    pub(super) fn of(&self, cpu: usize) -> Vec<u64> {
        let has = |state: &LockState| state.holders.contains(&cpu);
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
    fn the_longest_waiter_is_called_first() {
        let mut locks = Locks::default();
        assert!(locks.take(0, 7, true) && locks.take(0, 8, true));
        assert!(!locks.take(1, 7, false) && !locks.take(2, 7, false) && !locks.take(3, 7, true));
        assert_eq!(locks.of(0), [7, 8]);
        assert!(locks.release(1, 7).is_empty(), "it waits");
        assert_eq!(locks.release(0, 7), [1, 2], "both together");
        // The writer is still waiting, so only the first reader of a free lock gets in.
        assert!(locks.take(1, 7, false) && !locks.take(2, 7, false));
        assert_eq!(locks.release(1, 7), [3]);
        // CPU 4 takes the lock before CPU 3.
        assert!(locks.take(4, 7, true) && !locks.take(3, 7, true));
        assert_eq!(locks.release(4, 7), [2]);
    }
}
