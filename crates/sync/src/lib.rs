//! Concurrency primitives: what the metadata hot paths share.
//!
//! - [`rcu`]: readers that take no lock and write nothing shared, values freed once no reader can see them.
//! - [`seqcount`]: readers that copy several words and learn whether a writer came between.
//! - [`rcu_arc`]: counted references whose values RCU readers may look at.
//! - [`rcu_hash_map`]: a hash table whose lookups take no lock; entries are replaced and reclaimed under it.
//! - [`rcu_arc_map`]: that hash table with counted values, found by number.
//! - [`closable_refcount`]: who shares something, and may join or be the last to leave.
//! - [`thread_counter`]: counters that each thread adds to alone, and numbers that are each returned once.
//! - [`membarrier`]: two barriers, one for what is frequent and nearly free, one for what is rare.
//! - [`thread_refcount`]: how many are inside, where coming and going costs a store, and counting what it may.
//! - [`thread_arc`]: counted references that threads take and give up without writing what others use.
//! - [`biased_rwlock`]: a lock for readers and writers that readers take without writing what other readers use.
//! - [`rcu_snapshot`]: what is changed under a lock, shown without it to who looks again and again.
//! - [`lock_order`]: the ranks of locks, which debug builds check.
//! - [`thread_slots`]: a slot for each thread, however many there are, and a small number for each.
//! - [`per_thread`]: a value for each thread that no other sees.
//! - [`percpu`]: values with one cache line a CPU.
//! - `model`, with the feature `loom`: how models are run.
//! - [`allocations`]: an allocator that counts, for benches.
//! - [`opener`]: the process that opened something, which a forked child is not.
//! - [`primitive`]: the one switch between real atomics, loom's, and those that note what they do.
//! - `audit`, with the feature of that name: the crate that records what an operation does to shared memory, for tests.
//!
//! Most `unsafe` of the workspace lives here, each with its reason. Every protocol is written down in its module,
//! with the orderings that pair, and has a loom model in `tests/loom`; the epochs under [`rcu`] have theirs in
//! `src/epoch/tests.rs`, and [`closable_refcount`] has more in `crates/ext4/tests/models.rs`, with the cache that leads to
//! shared blocks.

pub mod allocations;
pub mod biased_rwlock;
pub mod closable_refcount;
#[cfg(any(test, not(feature = "loom")))]
mod epoch;
pub mod lock_order;
pub mod membarrier;
#[cfg(feature = "loom")]
pub mod model;
pub mod opener;
pub mod per_thread;
pub mod percpu;
pub mod primitive;
pub mod rcu;
pub mod rcu_arc;
pub mod rcu_arc_map;
pub mod rcu_hash_map;
pub mod rcu_snapshot;
pub mod seqcount;
pub mod slab;
pub mod thread_arc;
pub mod thread_counter;
mod thread_number;
pub mod thread_refcount;
pub mod thread_slots;

#[cfg(feature = "audit")]
pub use extern4_audit as audit;
