//! What more CPUs would do than there are here: a simulation of caches that run what the audit has
//! noted.
//!
//! For each mechanism the audit notes, in order, which cache lines an operation uses and how, on
//! two threads with a thing of their own each. Any number of CPUs repeats that: the even ones what
//! the first thread did, the odd ones what the second did. A line that both threads used is the
//! same for all CPUs, any other is a CPU's own.
//!
//! * An operation takes as long as one thread was measured to take for it, when every line is in
//!   the CPU's own cache; that time is spread evenly between the accesses.
//! * A line is in one cache alone, and may be written there, or in any number, and may be read
//!   (MESI, where E and M cost the same). A line that has to come from another cache takes
//!   [`Latencies`], of which who has it keeps it for the first half: so long the request is under
//!   way. Who wants it meanwhile waits for his turn, in the order in which they ask.
//! * A lock is a line that has to be written. If the lock is taken by then, it is waited for; who
//!   has waited longest tries again when it is released, which means that he fetches the line, and
//!   somebody who is nearer may be faster, as with the library's mutex.
//!
//! What is not in it: more lines than a cache holds, memory, sizes of buses and how lines are
//! spread over them, accesses that a CPU makes at the same time, stores that wait in a buffer,
//! prefetching, hyperthreads, sleeping and waking of who waits for a lock, and lines that take no
//! notes: names, counts of `Arc`, the allocator's. Where figures of one and of two threads were
//! measured, the report has the prediction beside them.

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
