//! An executable specification of the calls of a file system: the result of each call, and the
//! state after it, one call after the other.
//!
//! `conflicts` takes the commuting pairs from here, and compares the results of calls with the
//! model's.
//!
//! It says which calls commute, and implementations are judged by that. Two calls commute if their
//! results, and those of all later calls, are the same in either order. Such calls can be
//! implemented so that neither writes a cache line that the other uses. Source: Clements, Kaashoek,
//! Zeldovich, Morris and Kohler, *The Scalable Commutativity Rule*, SOSP 2013. For a pair of calls
//! that is the whole of their SIM commutativity. The [`State`] stands for the history before the
//! two, and a part of a pair is one call, which has one order.
//!
//! The model is small: two directories, two names in each, files of two blocks, two threads with a
//! descriptor each. The specification leaves open what POSIX leaves open:
//!
//! * which number a new file has: two states that differ only in that are the same;
//! * which descriptor `open` returns, for each thread keeps its own;
//! * when access times change: the specification has none;
//! * which time a changed file has, but not that it has changed: `stat` tells whether a call has
//!   *marked* the file.
//!
//! The caller is the owner of everything, so permission bits refuse nothing.

mod call;
mod commute;
mod state;

pub use call::{Call, Kind, NameSlot, Outcome};
pub use commute::{Nearness, Pair, commute, pairs};
pub use state::{BLOCKS, FileState, PLACES, Start, State, starts};
