//! The results of the suite: the figures, the volume that they belong to, and notes.
//!
//! `run` fills a [`Report`], which prints itself as JSON; `table` prints it for people. A cell
//! without figures has the reason. Ratios are between sides within a round.

use extern4_measure::figures::Figures;
use extern4_measure::machine::Machine;

use super::measure::{Measure, Unit};
use super::side::Side;
use crate::json::{self, Object};
use crate::text::counted;

/// Figures that are farther apart than this share of their median say little.
const NOISE: f64 = 0.1;
/// The most noisy figures that a note names.
const MOST_NAMED: usize = 5;
/// How many decimals of a figure mean something.
const DECIMALS: i32 = 3;

/// The figures, the volume they belong to, and notes about them.
pub(super) struct Report {
    pub(super) image: String,
    pub(super) volume: Facts,
    pub(super) machine: Machine,
    pub(super) rounds: u32,
    /// Seconds for each measurement.
    pub(super) seconds: f64,
    pub(super) threads: Vec<u32>,
    /// Where the copy was, and how many bytes it took.
    pub(super) copy: Option<(String, u64)>,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    /// Notes in addition to the figures.
    pub(super) notes: Vec<String>,
    /// How many faults the copy has in the end.
    pub(super) faults: Option<u64>,
}

/// A volume.
pub(super) struct Facts {
    pub(super) kind: &'static str,
    pub(super) bytes: u64,
    pub(super) block_size: u32,
    pub(super) features: Vec<String>,
    /// The paths that were measured: a file, a directory, a large file.
    pub(super) paths: [(&'static str, Vec<u8>); 3],
}

/// A side that was measured.
pub(super) struct Column {
    pub(super) side: Side,
    /// The reason why it was not measured, or not to the end.
    pub(super) lacks: Option<String>,
}

/// A measure and its figures.
pub(super) struct Row {
    pub(super) measure: Measure,
    /// The name for people.
    pub(super) label: String,
    pub(super) threads: u32,
    /// The reason why it was not measured.
    pub(super) lacks: Option<&'static str>,
    /// The cells, in the order of the columns.
    pub(super) cells: Vec<Cell>,
}

/// The figures of one measure on one side.
#[derive(Clone, Default)]
pub(super) struct Cell {
    pub(super) figures: Figures,
    /// The reason why no more of it was measured.
    pub(super) failure: Option<String>,
}

impl Report {
    /// Returns the index of the kernel's column.
    pub(super) fn kernel(&self) -> Option<usize> {
        self.columns
            .iter()
            .position(|column| column.side == Side::Kernel)
    }

    /// Returns how many times as fast as the kernel a row is in one of its columns.
    pub(super) fn ratio(&self, row: &Row, column: usize) -> Option<f64> {
        let kernel = self.kernel().filter(|kernel| *kernel != column)?;
        row.cells[column].figures.ratio(&row.cells[kernel].figures)
    }

    /// Adds the notes that follow from the figures.
    pub(super) fn note_figures(&mut self) {
        let mut noisy = Vec::new();
        for row in &self.rows {
            for (column, cell) in self.columns.iter().zip(&row.cells) {
                if let Some(spread) = cell.figures.spread().filter(|spread| *spread > NOISE) {
                    noisy.push((
                        spread,
                        format!(
                            "{}, {}, {} (±{:.0} %)",
                            column.side.title(),
                            row.label,
                            threads(row.threads),
                            spread * 100.0
                        ),
                    ));
                }
            }
        }
        if noisy.is_empty() {
            return;
        }
        noisy.sort_by(|one, other| other.0.total_cmp(&one.0));
        let all = noisy.len();
        let named: Vec<_> = noisy
            .into_iter()
            .take(MOST_NAMED)
            .map(|(_, text)| text)
            .collect();
        let more = if all > named.len() {
            format!(" and {} more", all - named.len())
        } else {
            String::new()
        };
        self.notes.push(format!(
            "these figures are far apart, and say little: {}{more}; an idle machine or more --rounds or --seconds bring \
             them together",
            named.join("; ")
        ));
    }

    /// Returns the report for scripts.
    pub(super) fn json(&self) -> String {
        json::line(|object| {
            object.text("image", &self.image);
            object.object("volume", |item| self.volume.write(item));
            object.object("machine", |item| self.machine.write(item));
            object.text("version", env!("CARGO_PKG_VERSION"));
            object.raw("optimised", !cfg!(debug_assertions));
            object.raw("rounds", self.rounds);
            object.raw("seconds", self.seconds);
            object.numbers("threads", &self.threads);
            object.text_or_null("copy_in", self.copy.as_ref().map(|(place, _)| &**place));
            object.maybe("copy_bytes", self.copy.as_ref().map(|(_, bytes)| bytes));
            object.objects("sides", &self.columns, |column, item| {
                item.text("side", column.side.name());
                item.text_or_null("lacks", column.lacks.as_deref());
            });
            object.objects("rows", &self.rows, |row, item| self.write_row(row, item));
            object.texts("notes", &self.notes);
            object.maybe("faults", self.faults);
        })
    }

    fn write_row(&self, row: &Row, item: &mut Object<'_>) {
        item.text("measure", row.measure.name());
        item.raw("threads", row.threads);
        item.text("unit", row.measure.unit().name());
        item.text_or_null("lacks", row.lacks);
        item.objects(
            "sides",
            self.columns.iter().enumerate(),
            |(at, column), side| {
                let Cell { figures, failure } = &row.cells[at];
                let (low, high) = figures.quartiles().unzip();
                side.text("side", column.side.name());
                side.rounded("median", figures.median(), DECIMALS);
                side.rounded("low_quartile", low, DECIMALS);
                side.rounded("high_quartile", high, DECIMALS);
                side.rounded("ratio_to_kernel", self.ratio(row, at), DECIMALS);
                side.numbers(
                    "samples",
                    figures
                        .0
                        .iter()
                        .map(|figure| json::rounded(*figure, DECIMALS)),
                );
                side.text_or_null("failure", failure.as_deref());
            },
        );
    }
}

impl Facts {
    fn write(&self, object: &mut Object<'_>) {
        object.text("type", self.kind);
        object.raw("bytes", self.bytes);
        object.raw("block_size", self.block_size);
        object.texts("features", &self.features);
        for (key, path) in &self.paths {
            object.bytes(key, path);
        }
    }
}

/// Returns a number of threads, for people.
pub(super) fn threads(count: u32) -> String {
    counted(count, "thread", "threads")
}

/// Returns a figure of this unit, for people.
pub(super) fn rate(figure: f64, unit: Unit) -> String {
    match unit {
        Unit::Mebibytes => format!("{} MiB/s", three_digits(figure)),
        _ if figure >= 1e6 => format!("{} M/s", three_digits(figure / 1e6)),
        _ if figure >= 1e3 => format!("{} k/s", three_digits(figure / 1e3)),
        _ => format!("{} /s", three_digits(figure)),
    }
}

/// Returns a figure with as many decimals as make three digits.
fn three_digits(figure: f64) -> String {
    match figure {
        100.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let check = |figure, unit, shown: &str| assert_eq!(rate(figure, unit), shown);
        check(34_512_000.0, Unit::Operations, "34.5 M/s");
        check(812_345.0, Unit::Names, "812 k/s");
        check(1_234.0, Unit::Operations, "1.23 k/s");
        check(7.0, Unit::Operations, "7.00 /s");
        check(2140.4, Unit::Mebibytes, "2140 MiB/s");
    }
}
