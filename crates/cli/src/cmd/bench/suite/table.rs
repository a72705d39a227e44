//! The report for people: the volume, a table, a chart, and the notes about them.
//!
//! `report` calls it. Names from the volume are escaped.

use std::fmt::Write as _;

use extern4_measure::table::Table;

use super::report::{Report, Row, rate, threads};
use super::side::Side;
use crate::text::{counted, human};

/// Characters of the longest bar.
const BAR: usize = 48;

impl Report {
    /// Returns the report for people.
    pub(super) fn text(&self, colored: bool) -> String {
        let mut text = self.head();
        text += "\n";
        self.table(&mut text);
        text += "\n";
        self.chart(colored, &mut text);
        for note in self.all_notes() {
            writeln!(text, "* {note}").expect("a string takes everything");
        }
        text
    }

    fn head(&self) -> String {
        let volume = &self.volume;
        let machine = &self.machine;
        let copy = match &self.copy {
            Some((place, bytes)) => format!("; measured in a copy in {place}, {}", human(*bytes)),
            None => "; measured in the image itself, opened for reading".to_owned(),
        };
        format!(
            "{}: {}, {}, blocks of {} bytes{copy}\n{}\n{}, {} s for each figure; a figure is \
             the median of the rounds, with how far half of them are from it\n",
            self.image,
            volume.kind,
            human(volume.bytes),
            volume.block_size,
            machine.line(),
            counted(self.rounds, "round", "rounds"),
            self.seconds,
        )
    }

    /// Adds a line for each row, with its ratio to the kernel's mount at the end.
    fn table(&self, text: &mut String) {
        let is_compared = |at: &usize| self.rows.iter().any(|row| self.ratio(row, *at).is_some());
        let compared: Vec<_> = (0..self.columns.len()).filter(is_compared).collect();
        let titles = self
            .columns
            .iter()
            .map(|column| column.side.title().to_owned());
        let ratios = compared
            .iter()
            .map(|at| format!("{} / kernel", self.columns[*at].side.title()));
        let mut table = Table::new(
            1,
            ["".to_owned(), "threads".to_owned()]
                .into_iter()
                .chain(titles)
                .chain(ratios),
        );
        for row in self.rows.iter().filter(|row| row.lacks.is_none()) {
            let label = [row.label.clone(), row.threads.to_string()];
            let cells = (0..self.columns.len()).map(|at| cell(row, at));
            let ratio = |at: &usize| {
                self.ratio(row, *at)
                    .map_or("-".to_owned(), |ratio| format!("{ratio:.2}x"))
            };
            table.line(
                label
                    .into_iter()
                    .chain(cells)
                    .chain(compared.iter().map(ratio)),
            );
        }
        *text += &table.text();
    }

    /// Adds a bar for each figure of the fewest threads.
    fn chart(&self, colored: bool, text: &mut String) {
        let Some(fewest) = self.threads.iter().min() else {
            return;
        };
        let rows = self
            .rows
            .iter()
            .filter(|row| row.threads == *fewest && row.lacks.is_none());
        let rows: Vec<_> = rows
            .filter(|row| row.cells.iter().any(|cell| cell.figures.median().is_some()))
            .collect();
        let labels = rows
            .iter()
            .map(|row| row.label.chars().count())
            .max()
            .unwrap_or(0);
        let titles = self
            .columns
            .iter()
            .map(|column| column.side.title().len())
            .max()
            .unwrap_or(0);
        writeln!(
            text,
            "{}; the longer, the faster; the fastest of each group has the full length\n",
            threads(*fewest)
        )
        .expect("a string takes everything");
        for row in rows {
            let medians = row.cells.iter().map(|cell| cell.figures.median());
            let most = medians.clone().flatten().fold(0.0, f64::max);
            let mut label = &*row.label;
            for (at, median) in medians.enumerate() {
                let Some(median) = median else { continue };
                let bar = "#".repeat(((median / most * BAR as f64).round() as usize).max(1));
                let space = " ".repeat(BAR - bar.len());
                let bar = if colored {
                    format!("\x1b[{}m{bar}\x1b[0m", color(self.columns[at].side))
                } else {
                    bar
                };
                let title = self.columns[at].side.title();
                let shown = rate(median, row.measure.unit());
                writeln!(
                    text,
                    "{label:<labels$}  {title:<titles$}  {bar}{space}  {shown}"
                )
                .expect("a string takes everything");
                label = "";
            }
            text.push('\n');
        }
    }

    /// Returns all notes; those about missing figures come first.
    fn all_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (at, column) in self.columns.iter().enumerate() {
            if let Some(why) = &column.lacks {
                let begun = self
                    .rows
                    .iter()
                    .any(|row| row.cells[at].figures.median().is_some());
                let what = if begun {
                    "not measured to the end"
                } else {
                    "not measured"
                };
                notes.push(format!("{}: {what}: {why}", column.side.title()));
            }
        }
        let mut left_out: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in &self.rows {
            let Some(why) = row.lacks else { continue };
            match left_out.iter_mut().find(|(known, _)| *known == why) {
                Some((_, labels)) if !labels.contains(&&*row.label) => labels.push(&row.label),
                Some(_) => {}
                None => left_out.push((why, vec![&row.label])),
            }
        }
        notes.extend(
            left_out
                .iter()
                .map(|(why, labels)| format!("{}: not measured: {why}", labels.join(", "))),
        );
        notes.extend(self.notes.iter().cloned());
        notes
    }
}

/// Returns a figure, and how far half of the rounds are from it.
fn cell(row: &Row, column: usize) -> String {
    let cell = &row.cells[column];
    match (cell.figures.median(), cell.figures.spread()) {
        (Some(median), Some(spread)) => {
            format!(
                "{} ±{:>2.0} %",
                rate(median, row.measure.unit()),
                spread * 100.0
            )
        }
        (Some(median), None) => rate(median, row.measure.unit()),
        _ if cell.failure.is_some() => "failed".to_owned(),
        _ => "-".to_owned(),
    }
}

/// Returns the colour of a side's bars as a terminal code: green, cyan, yellow.
fn color(side: Side) -> &'static str {
    match side {
        Side::Library => "32",
        Side::Mount => "36",
        Side::Kernel => "33",
    }
}
