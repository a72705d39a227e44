//! A table, for a terminal or in Markdown.
//!
//! Reports print with it. A figure that is missing shows as a dash.

use std::fmt::Write as _;

/// Lines of cells below a line of titles.
#[derive(Clone, Debug)]
pub struct Table {
    lines: Vec<Vec<String>>,
    /// The number of columns with text, which come first and are aligned to the left.
    texts: usize,
}

impl Table {
    /// Returns a table with these titles. The first `texts` are of columns with text; the others
    /// have figures.
    pub fn new(texts: usize, titles: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            lines: vec![titles.into_iter().map(Into::into).collect()],
            texts,
        }
    }

    /// Adds a line.
    pub fn line(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.lines.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns whether there is nothing below the titles.
    pub fn is_empty(&self) -> bool {
        self.lines.len() == 1
    }

    /// Returns the table for a terminal: columns as wide as their longest cell, two spaces between
    /// them.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            self.lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|c| c.chars().count())
                .max()
        };
        let widths: Vec<_> = (0..self.lines[0].len())
            .map(|column| width(column).unwrap_or(0))
            .collect();
        let mut text = String::new();
        for line in &self.lines {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                let space = if column == 0 { "" } else { "  " };
                // OK: a string takes everything, here and below.
                let _ = if column < self.texts {
                    write!(text, "{space}{cell:<width$}")
                } else {
                    write!(text, "{space}{cell:>width$}")
                };
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }

    /// Returns the table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (number, line) in self.lines.iter().enumerate() {
            let _ = writeln!(text, "| {} |", line.join(" | "));
            if number == 0 {
                let rule = |column| if column < self.texts { "---|" } else { "---:|" };
                let _ = writeln!(text, "|{}", (0..line.len()).map(rule).collect::<String>());
            }
        }
        text
    }
}

/// Returns a figure with as many digits as a reader wants.
pub fn figure(n: f64) -> String {
    match n.abs() {
        _ if !n.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        size if size < 0.1 => format!("{n:.4}"),
        size if size < 10.0 => format!("{n:.2}"),
        size if size < 100.0 => format!("{n:.1}"),
        _ => format!("{n:.0}"),
    }
}

/// Returns a figure that may be missing.
pub fn maybe(n: Option<f64>) -> String {
    figure(n.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_left_and_figures_are_right() {
        let mut table = Table::new(1, ["name", "n"]);
        assert!(table.is_empty());
        table.line(["a", "100"]);
        table.line(["longer", "7"]);
        assert_eq!(table.text(), "name      n\na       100\nlonger    7\n");
        assert_eq!(
            table.markdown(),
            "| name | n |\n|---|---:|\n| a | 100 |\n| longer | 7 |\n"
        );
    }

    #[test]
    fn figures_have_the_digits_that_matter() {
        let texts = [0.0, 0.003, 4.567, 45.67, 456.7, f64::NAN].map(figure);
        assert_eq!(texts, ["0", "0.0030", "4.57", "45.7", "457", "-"]);
    }
}
