//! Concurrency primitives: what the metadata hot paths share.
//!
//! - [`rcu`]: readers that take no lock and write nothing shared, values freed once no reader can see them.
//! - [`seqcount`]: readers that copy several words and learn whether a writer came between.
//! - [`table`]: a hash table of shared values whose lookups take no lock.
//! - [`percpu`]: values and counters with one cache line a CPU.
//! - [`allocations`]: an allocator that counts, for benches.
//! - [`primitive`]: the one switch between real atomics and loom's.
//!
//! Most `unsafe` of the workspace lives here, each with its reason. Every protocol is written down in its module,
//! with the orderings that pair, and has a loom model in `tests/loom.rs`.

pub mod allocations;
pub mod percpu;
pub mod primitive;
pub mod rcu;
pub mod seqcount;
pub mod table;
