//! How many values there are, and how many files.

use crate::plan::Plan;

/// A cell of the table, but for the number of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// As it is told.
    pub(super) name: &'static str,
    /// Values that attributes have.
    pub(super) values: u32,
    /// Files of each thread.
    pub(super) files: usize,
}

const fn cell(name: &'static str, values: u32, files: usize) -> Cell {
    Cell { name, values, files }
}

/// All of them, as the patch has them.
pub(super) const CELLS: [Cell; 15] = [
    cell("V=10, F=10", 10, 10),
    cell("V=10, F=100", 10, 100),
    cell("V=10, F=1000", 10, 1000),
    cell("V=100, F=10", 100, 10),
    cell("V=100, F=100", 100, 100),
    cell("V=100, F=1000", 100, 1000),
    cell("V=1000, F=10", 1000, 10),
    cell("V=1000, F=100", 1000, 100),
    cell("V=1000, F=1000", 1000, 1000),
    cell("V=10000, F=10", 10_000, 10),
    cell("V=10000, F=100", 10_000, 100),
    cell("V=10000, F=1000", 10_000, 1000),
    cell("V=100000, F=10", 100_000, 10),
    cell("V=100000, F=100", 100_000, 100),
    cell("V=100000, F=1000", 100_000, 1000),
];

/// Those that are measured: all, or in a hurry the first, one in the middle and the last.
pub(super) fn cells(plan: &Plan) -> impl Iterator<Item = Cell> {
    let step = if plan.every_cell { 1 } else { CELLS.len() / 2 };
    CELLS.into_iter().step_by(step)
}
