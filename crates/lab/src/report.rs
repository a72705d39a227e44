//! The report: Markdown with charts, for readers, and JSON, for programs.

mod chart;
mod conflicts;
mod curves;
pub mod headline;
mod json;
pub mod machine;
mod markdown;
mod meetings;

use std::fs;
use std::path::Path;

use crate::Result;
use crate::chapter::Chapter;
use crate::counted::Counted;
use crate::plan::Plan;

use machine::Machine;

/// All that is told.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Where it was measured.
    pub machine: &'a Machine,
    /// How.
    pub plan: &'a Plan,
    /// The mechanisms.
    pub chapters: &'a [Chapter],
    /// What was counted: calls and operations that commute.
    pub counted: &'a Counted,
}

/// Writes `report.md`, `report.json`, charts for each chapter and a picture of each matrix to `folder`.
pub fn write(report: &Report<'_>, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let write = |name: &str, text: String| {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
    };
    for chapter in report.chapters {
        write(&chart::file_name(chapter), chart::svg(chapter)?)?;
        if let Some(svg) = curves::svg(chapter)? {
            write(&curves::file_name(chapter), svg)?;
        }
    }
    for matrix in &report.counted.matrices {
        write(&conflicts::file_name(matrix), conflicts::svg(matrix)?)?;
    }
    write("report.md", markdown::text(report))?;
    write("report.json", json::text(report))?;
    Ok(())
}

/// A figure with as many digits as one wants to read.
fn figure(n: f64) -> String {
    match n.abs() {
        _ if !n.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        size if size < 0.1 => format!("{n:.4}"),
        size if size < 10.0 => format!("{n:.2}"),
        size if size < 100.0 => format!("{n:.1}"),
        _ => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_matter() {
        let texts = [0.0, 0.003, 4.567, 45.67, 456.7, f64::NAN].map(figure);
        assert_eq!(texts, ["0", "0.0030", "4.57", "45.7", "457", "-"]);
    }
}
