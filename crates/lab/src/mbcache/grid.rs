//! The cells of the patch's table: numbers of values and of files.
//!
//! The workloads of the chapter are measured for each cell, so that the report can print the lab's
//! figures next to the patch's own. A quick run takes three of them.

use crate::plan::Plan;

/// A cell of the table, except for the number of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// The name of the workload without a file system.
    pub(super) name: &'static str,
    /// The name of the workload through `setxattr`.
    pub(super) through: &'static str,
    /// The number of values that attributes have.
    pub(super) values: u32,
    /// The number of files of each thread.
    pub(super) files: usize,
}

macro_rules! cell {
    ($values:literal, $files:literal) => {
        Cell {
            name: concat!("V=", $values, ", F=", $files),
            through: concat!("through setxattr, V=", $values, ", F=", $files),
            values: $values,
            files: $files,
        }
    };
}

/// All cells, as in the patch's table.
pub(super) const CELLS: [Cell; 15] = [
    cell!(10, 10),
    cell!(10, 100),
    cell!(10, 1000),
    cell!(100, 10),
    cell!(100, 100),
    cell!(100, 1000),
    cell!(1000, 10),
    cell!(1000, 100),
    cell!(1000, 1000),
    cell!(10000, 10),
    cell!(10000, 100),
    cell!(10000, 1000),
    cell!(100000, 10),
    cell!(100000, 100),
    cell!(100000, 1000),
];

/// The most files of a thread.
pub(super) const MOST_FILES: usize = 1000;

/// Returns the cells to measure: all, or in a quick run the first, the middle and the last.
pub(super) fn cells(plan: &Plan) -> impl Iterator<Item = Cell> {
    let step = if plan.every_cell { 1 } else { CELLS.len() / 2 };
    CELLS.into_iter().step_by(step)
}
