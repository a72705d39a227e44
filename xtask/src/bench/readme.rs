//! The rows that README shows, as the lines of its table: `xtask bench --readme` measures them and
//! prints both.

use super::row::{Row, Unit};

/// Rows of README: the name, the work, and the rival.
const ROWS: &[(&str, &str, &str)] = &[
    (
        "tree-stat-shuffled-vs-kernel",
        "`stat` of each path of `/usr/include` and `/usr/share`, at random, in process, warm",
        "the kernel's mount",
    ),
    (
        "tree-stat-cold-vs-kernel",
        "the same, sorted, of a volume that was just opened",
        "the kernel's mount",
    ),
    (
        "tree-absent-vs-kernel",
        "names that are not there, each another one, as a build looks for headers",
        "the kernel's mount",
    ),
    (
        "tree-find-cold-vs-kernel",
        "`find` of that tree, cold",
        "GNU find on the kernel's mount",
    ),
    (
        "tree-create-remove-vs-kernel",
        "a path of that tree made and removed again, in process",
        "the kernel's mount",
    ),
    (
        "mount-of-100000-files-stat-vs-kernel",
        "in a mount: `stat` of each of 100,000 files, again, by a user who does not own its root",
        "the kernel's mount",
    ),
    (
        "mount-device-asked-stat-vs-fuse2fs",
        "in a mount: a `stat` that reaches the daemon",
        "fuse2fs",
    ),
    (
        "build-share-vs-tar",
        "`build` of a volume from `/usr/share`",
        "`tar -c` of it into a file",
    ),
    (
        "check-vs-e2fsck",
        "`check` of a volume with `/usr/share`",
        "`e2fsck -fn`",
    ),
    (
        "walk-vs-kernel",
        "one path in a loop: `stat` of `/usr/include/linux/fs.h`",
        "the kernel's mount",
    ),
];

/// Whether README shows the row.
pub(super) fn has(name: &str) -> bool {
    ROWS.iter().any(|(row, ..)| *row == name)
}

/// The table of README with the rows that were measured.
pub(super) fn table(measured: &[Row]) -> String {
    let line = |&(name, work, rival): &(&str, &str, &str)| {
        let row = measured.iter().find(|row| row.name() == name)?;
        let (ours, theirs, unit) = row.medians();
        let [ours, theirs] = [ours, theirs].map(|figure| amount(figure, unit));
        Some(format!(
            "| {work} | {ours} | {theirs}, {rival} | {}x |\n",
            digits(row.ratio())
        ))
    };
    let lines: String = ROWS.iter().filter_map(line).collect();
    format!("| | extern4 | rival | ratio |\n|---|---|---|---|\n{lines}")
}

/// A time as a reader wants it.
fn amount(figure: f64, unit: Unit) -> String {
    let nanos = match unit {
        Unit::Milliseconds => figure * 1e6,
        Unit::Nanoseconds => figure,
        _ => return format!("{} {unit}", digits(figure)),
    };
    let (scale, name) = match nanos {
        ..1e3 => (1.0, "ns"),
        ..1e6 => (1e3, "µs"),
        ..1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {name}", digits(nanos / scale))
}

/// Two digits, or all of those before the point.
fn digits(figure: f64) -> String {
    if figure < 10.0 {
        format!("{figure:.1}")
    } else {
        format!("{figure:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_rows_become_lines() {
        let mut row = Row::faster("walk-vs-kernel", Unit::Nanoseconds, 1.0);
        row.add(44.2, 1864.0);
        let table = table(&[row]);
        let work = "one path in a loop: `stat` of `/usr/include/linux/fs.h`";
        let rival = "the kernel's mount";
        assert_eq!(
            table.lines().last(),
            Some(&*format!("| {work} | 44 ns | 1.9 µs, {rival} | 42x |"))
        );
        assert_eq!(amount(1250.0, Unit::Milliseconds), "1.2 s");
    }
}
