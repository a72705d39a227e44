//! A specification of the calls of a file system that can be executed: what each returns, and what
//! it leaves, one call after the other.
//!
//! It says which calls commute, which is what an implementation has to be judged by: where the
//! results of two calls and what comes after them are the same in either order, one can be made so
//! that neither writes a cache line that the other uses (Clements, Kaashoek, Zeldovich, Morris and
//! Kohler, *The Scalable Commutativity Rule*, SOSP 2013). Of a pair of calls that is all there is
//! to their SIM commutativity: what comes before the two is the [`State`], and a part of a pair is
//! one call, which has one order.
//!
//! The world is small: two directories, two names in each, files of two blocks, two threads with a
//! descriptor each. What POSIX leaves open, the specification leaves open:
//!
//! * which number a new file has: two states that differ in that only are the same;
//! * which descriptor `open` returns, for each thread keeps its own;
//! * when access times change, so they are not in it;
//! * which time a changed file has, but not that it has changed: `stat` tells whether a call has
//!   *marked* the file.
//!
//! The caller is the owner of everything, so permission bits refuse nothing.

mod call;
mod commute;
mod state;

pub use call::{Call, Kind, Outcome, Place};
pub use commute::{Nearness, Pair, commute, pairs};
pub use state::{BLOCKS, FileState, PLACES, Start, State, starts};
