//! A simulation of cache coherence, for more CPUs than this machine has. It replays the accesses
//! that the audit recorded.
//!
//! The report asks it for curves, from the recordings in `access_counts`. Its figures are
//! predictions.
//!
//! For each mechanism the audit records, in order, which cache lines an operation uses and how. Two
//! threads do the operation, each on an object of its own. Any number of simulated CPUs repeats the
//! recordings. Even CPUs replay the first thread, odd ones the second. All CPUs share a line that
//! both threads used. Of any other line, each CPU has its own.
//!
//! * While every line is in the CPU's own cache, an operation takes the time that was measured with
//!   one thread. That time is spread evenly between the accesses.
//! * A line is either in a single cache, whose CPU may write it, or in any number of caches, whose
//!   CPUs may read it. This is MESI, where E and M cost the same. A transfer from another cache
//!   takes [`Latencies`]. The request is under way for the first half of that time, and the
//!   previous holder may still use the line until it arrives. Further requests wait, and are served
//!   in the order in which they were made.
//! * A lock is a line that has to be written. A CPU that finds the lock taken waits for it. When
//!   the lock is released, the CPU that has waited longest tries again. It has to fetch the line
//!   first, so a CPU that is nearer may overtake it, as with the library's mutex.
//!
//! The simulation leaves out:
//!
//! * caches that overflow, memory, bus widths, and how lines are spread over buses;
//! * accesses that a CPU makes at the same time, store buffers, prefetching, hyperthreads;
//! * threads that sleep while they wait for a lock, and their wakeups;
//! * lines that the audit does not record: names, counts of `Arc`, the allocator's.
//!
//! If figures of one and of two threads were measured, the report shows the prediction next to
//! them.

mod caches;
mod curve;
mod latencies;
mod locks;
mod replay;
mod run;

pub use curve::{CPUS, Curve, curves};
pub use latencies::Latencies;
pub use replay::{Line, Replay, Step, Use};
pub use run::nanos;
