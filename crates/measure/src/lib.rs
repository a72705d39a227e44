//! Measuring and reporting for all benchmarks: the lab, `xtask bench` and the command's `bench`.
//!
//! * [`load`] runs threads that do the same thing at the same time, and measures their time.
//! * [`rounds`] has the sides of a comparison measured in turn.
//! * [`figures`] are the results of rounds: median, quartiles, ratios.
//! * [`row`] compares sides in one workload. [`verdict`] judges figures by goals.
//! * [`callgrind`] counts instructions, where neither clock tells.
//! * [`machine`] says where it was measured, and how busy that machine was.
//! * [`table`] and [`json`] write it down.
//!
//! It does no I/O except to learn about the machine and to start callgrind.
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod figures;
pub mod json;
pub mod load;
pub mod machine;
pub mod rounds;
pub mod row;
pub mod table;
pub mod verdict;
