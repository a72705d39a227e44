//! The report: Markdown with charts, for readers, and JSON, for programs.

mod chart;
pub mod headline;
mod json;
pub mod machine;
mod markdown;

use std::fs;
use std::path::Path;

use crate::Result;
use crate::chapter::Chapter;
use crate::plan::Plan;

use machine::Machine;

/// Writes `report.md`, `report.json` and a chart for each chapter to `folder`.
pub fn write(machine: &Machine, plan: &Plan, chapters: &[Chapter], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let write = |name: &str, text: String| {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
    };
    for chapter in chapters {
        write(&chart::file_name(chapter), chart::svg(chapter)?)?;
    }
    write("report.md", markdown::text(machine, plan, chapters))?;
    write("report.json", json::text(machine, plan, chapters))?;
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
