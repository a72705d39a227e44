//! Concurrency primitives of the metadata hot paths.
//!
//! Readers without locks:
//! - [`rcu`]: pointers that readers follow without a lock or a shared store. Values are freed when
//!   no reader can see them.
//! - [`rcu_arc`]: reference counts for values that RCU readers also see.
//! - [`rcu_snapshot`]: a copy of data under a lock, for readers that do not take the lock.
//! - [`rcu_hash_map`]: a hash map whose lookups take no lock.
//! - [`seqcount`]: consistent copies of several words without a lock.
//!
//! Locks and counts:
//! - [`biased_rwlock`]: a reader-writer lock whose readers write no shared line while no thread
//!   writes.
//! - [`closable_refcount`]: a reference count that its last user closes.
//! - [`thread_refcount`]: counts of users, kept by each thread for itself.
//! - [`thread_arc`]: counted references, kept by each thread for itself.
//! - [`thread_counter`]: statistics counters and ids, kept by each thread for itself.
//! - [`lock_order`]: the ranks of locks, which debug builds check.
//! - [`membarrier`]: two barriers that pair, a light one and a heavy one.
//!
//! Memory and placement:
//! - `rcu_arc::arena`: the memory of the values of a hash map.
//! - [`slab`]: a cache of freed memory.
//! - [`thread_slots`]: a slot for each thread, and a small number for each.
//! - [`per_thread`]: a value for each thread that no other thread sees.
//! - [`process_ids`]: numbers that distinguish the objects of a process.
//! - [`percpu`]: values with one cache line a CPU.
//!
//! For tests and tools:
//! - [`primitive`]: the switch between the standard atomics, loom's and shuttle's, and recording
//!   ones.
//! - `model`, with the feature `loom`: the runner of loom and shuttle tests.
//! - `audit`, with the feature of that name: the crate that records accesses to shared memory.
//! - [`allocations`]: allocators that count.
//! - `fork`: locks of the process that are free in a child of `fork(2)`.
//! - [`opener`]: the process that opened something, which a forked child is not.
//!
//! Most `unsafe` code of the workspace is here, each block with its reason. Each module documents
//! its protocol with the orderings that pair, and `tests/loom` has its tests. The tests of the
//! epochs under [`rcu`] are in `src/epoch/tests.rs`. Further tests of [`closable_refcount`], with
//! the cache that leads to shared blocks, are in `crates/ext4/tests/loom.rs`.

pub mod allocations;
pub mod biased_rwlock;
pub mod cache_budget;
pub mod closable_refcount;
mod entry_age;
#[cfg(any(test, not(feature = "loom")))]
mod epoch;
#[cfg(not(feature = "loom"))]
mod fork;
pub mod lock_order;
#[cfg(feature = "loom")]
pub mod model;
pub mod opener;
pub mod per_thread;
pub mod percpu;
pub mod primitive;
pub mod process_ids;
pub mod rcu;
pub mod rcu_arc;
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
pub use primitive::membarrier;
