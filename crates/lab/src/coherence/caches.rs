//! The state of each cache line in the simulation: which CPUs have it, and since when.
//!
//! `run` reads and writes lines through it, and gets the time at which the access is complete. A
//! line is writable in one cache at most. Transfers of one line never overlap.

use std::collections::HashMap;

use super::latencies::{Latencies, Picos};

/// A set of CPUs, one bit each.
#[derive(Clone, Debug, Default)]
struct Cpus([u64; 4]);

impl Cpus {
    fn has(&self, cpu: usize) -> bool {
        self.0[cpu / 64] >> (cpu % 64) & 1 != 0
    }

    fn add(&mut self, cpu: usize) {
        self.0[cpu / 64] |= 1 << (cpu % 64);
    }

    fn others(&self, cpu: usize) -> impl Iterator<Item = usize> {
        (0..256).filter(move |&other| other != cpu && self.has(other))
    }
}

/// The state of a line.
#[derive(Clone, Debug, Default)]
struct LineState {
    /// The CPUs that have a copy, or are about to get one.
    holders: Cpus,
    /// There is a single copy, and its CPU may write it.
    exclusive: bool,
    /// The time at which the transfer under way ends.
    busy_until: Picos,
    /// CPUs that are about to lose the line. Each may use it until the request arrives, half a
    /// transfer time before the transfer ends. An entry is the CPU, the time of arrival, and
    /// whether the CPU may write until then.
    leaving: Vec<(usize, Picos, bool)>,
}

impl LineState {
    fn is_still_at(&self, cpu: usize, now: Picos, to_write: bool) -> bool {
        self.leaving.iter().any(|&(who, until, may)| who == cpu && now < until && (may || !to_write))
    }

    /// Takes the copies of other CPUs away at `until`, or if `copies_stay`, only the right to
    /// write.
    fn leave(&mut self, cpu: usize, now: Picos, until: Picos, copies_stay: bool) {
        self.leaving.retain(|&(_, until, _)| now < until);
        if copies_stay && !self.exclusive {
            return;
        }
        let exclusive = self.exclusive;
        self.leaving.extend(self.holders.others(cpu).map(|other| (other, until, exclusive)));
    }
}

/// The states of all lines.
#[derive(Debug)]
pub(super) struct Caches {
    latencies: Latencies,
    lines: HashMap<u64, LineState>,
}

impl Caches {
    pub(super) fn new(latencies: Latencies) -> Self {
        Self { latencies, lines: HashMap::new() }
    }

    /// Reads a line as a CPU, from `now` on. Returns when the CPU has it.
    pub(super) fn read(&mut self, cpu: usize, line: u64, now: Picos) -> Picos {
        let state = self.lines.entry(line).or_default();
        if state.holders.has(cpu) || state.is_still_at(cpu, now, false) {
            return now;
        }
        let nearest = state.holders.others(cpu).map(|other| self.latencies.between(cpu, other)).min();
        let latency = nearest.unwrap_or_default();
        // Readers queue only for a single copy. With several copies, each reader gets one at once.
        let done = now.max(state.busy_until) + latency;
        state.leave(cpu, now, done - latency / 2, true);
        if state.exclusive {
            state.busy_until = done;
        }
        state.exclusive = nearest.is_none();
        state.holders.add(cpu);
        done
    }

    /// Writes a line as a CPU, from `now` on. Returns when the CPU has done so.
    pub(super) fn write(&mut self, cpu: usize, line: u64, now: Picos) -> Picos {
        let state = self.lines.entry(line).or_default();
        if state.exclusive && state.holders.has(cpu) || state.is_still_at(cpu, now, true) {
            return now;
        }
        // All other CPUs have to give up their copies.
        let farthest = state.holders.others(cpu).map(|other| self.latencies.between(cpu, other)).max();
        let latency = farthest.unwrap_or_default();
        let done = now.max(state.busy_until) + latency;
        state.leave(cpu, now, done - latency / 2, false);
        (state.holders, state.exclusive, state.busy_until) = (Cpus::default(), true, done);
        state.holders.add(cpu);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Latencies = Latencies { same_socket: 10, other_socket: 100, cpus_of_socket: 2 };

    #[test]
    fn a_line_comes_from_where_it_is() {
        let mut caches = Caches::new(MACHINE);
        assert_eq!(caches.write(0, 7, 5), 5, "no CPU has it");
        assert_eq!(caches.write(0, 7, 6), 6, "its own");
        assert_eq!(caches.read(1, 7, 20), 30, "from the same socket");
        assert_eq!(caches.read(1, 7, 31), 31, "it has a copy");
        assert_eq!(caches.read(2, 7, 40), 140, "from the other");
        assert_eq!(caches.read(3, 7, 150), 160, "from the nearest");
        assert_eq!(caches.write(0, 7, 200), 300, "when the farthest has given it up");
        assert_eq!(caches.read(0, 8, 0), 0, "another line");
    }

    #[test]
    fn writers_of_a_line_wait_in_turn_and_readers_of_copies_do_not() {
        let mut caches = Caches::new(MACHINE);
        caches.write(0, 7, 0);
        assert_eq!(caches.write(1, 7, 5), 15);
        assert_eq!(caches.write(0, 7, 12), 25, "after that");
        assert_eq!(caches.read(1, 7, 50), 60);
        assert_eq!([caches.read(2, 7, 200), caches.read(3, 7, 200)], [300, 210]);
    }

    #[test]
    fn a_line_is_still_there_until_the_request_comes() {
        let mut caches = Caches::new(MACHINE);
        caches.write(0, 7, 0);
        assert_eq!(caches.write(1, 7, 5), 15);
        assert_eq!((caches.write(0, 7, 9), caches.read(0, 7, 9)), (9, 9), "half of the way");
        assert_eq!(caches.read(0, 7, 10), 25, "it has gone");
        // The previous writer may still read it, but not write it.
        assert_eq!((caches.write(1, 7, 19), caches.read(1, 7, 21)), (19, 21));
        assert_eq!(caches.write(1, 7, 30), 40);
    }
}
