//! How many values there are, and how many files.

use crate::plan::Plan;

/// A cell of the table, but for the number of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// As it is told.
    pub(super) name: &'static str,
    /// The same where attributes are set through `setxattr`.
    pub(super) through: &'static str,
    /// Values that attributes have.
    pub(super) values: u32,
    /// Files of each thread.
    pub(super) files: usize,
}

macro_rules! cell {
    ($values:literal, $files:literal) => {
        Cell {
            name: concat!("V=", $values, ", F=", $files),
            through: concat!("setxattr, V=", $values, ", F=", $files),
            values: $values,
            files: $files,
        }
    };
}

/// All of them, as the patch has them.
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

/// Files of a thread, at most.
pub(super) const MOST_FILES: usize = 1000;

/// Those that are measured: all, or in a hurry the first, one in the middle and the last.
pub(super) fn cells(plan: &Plan) -> impl Iterator<Item = Cell> {
    let step = if plan.every_cell { 1 } else { CELLS.len() / 2 };
    CELLS.into_iter().step_by(step)
}
