//! Conflicts of the mechanisms' operations on cache lines, on each side.
//!
//! The Markdown report contains it; without counts it is empty.

use std::fmt::Write as _;

use crate::line_conflicts::{LineConflict, Pair, free, pairs};
use crate::plan::Side;

const HEAD: &str = "## Operations of the mechanisms that commute\n\n\
    What each mechanism is asked for, two at a time, on two threads and CPUs; all of these commute. A pair is free of conflicts if there is no \
    line that one thread writes and the other uses; one that meets is made again, as above.\n\n\
    | mechanism | pairs | free, baseline | free, patch | free, extern4 |\n|---|---:|---:|---:|---:|\n";

/// Writes a table of the mechanisms, and one of all pairs; nothing if none were counted.
pub(super) fn markdown(text: &mut String, line_conflicts: &[LineConflict]) {
    if line_conflicts.is_empty() {
        return;
    }
    let pairs = pairs(line_conflicts);
    text.push_str(HEAD);
    let mut sum = (0, [0; 3]);
    for (mechanism, all, free) in free(&pairs) {
        row(text, mechanism, all, free);
        sum = (sum.0 + all, [0, 1, 2].map(|side| sum.1[side] + free[side]));
    }
    row(text, "all", sum.0, sum.1);
    text.push_str("\nLines that they meet on:\n\n| mechanism | one | the other | baseline | patch | extern4 |\n|---|---|---|---:|---:|---:|\n");
    for Pair { mechanism, operations: [one, other], lines } in &pairs {
        let lines =
            Side::ALL.map(|side| lines[side as usize].map_or("-".to_owned(), |lines| lines.to_string()));
        // OK: writing to a string never fails.
        let _ = writeln!(text, "| {mechanism} | {one} | {other} | {} |", lines.join(" | "));
    }
    text.push('\n');
}

fn row(text: &mut String, mechanism: &str, all: usize, free: [usize; 3]) {
    let percent = free.map(|free| format!("{:.0} %", 100.0 * free as f64 / all as f64));
    let _ = writeln!(text, "| {mechanism} | {all} | {} |", percent.join(" | "));
}
