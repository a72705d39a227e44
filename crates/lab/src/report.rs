//! The report: Markdown with charts, for readers, and JSON, for programs.
//!
//! `lib` calls `write` once at the end. It replaces the files of an earlier report in the same
//! folder.

mod chart;
pub mod headline;
mod json;
pub mod machine;
mod markdown;
mod page;

use std::fs;
use std::path::Path;

use extern4_measure::table::figure;

use crate::Result;
use crate::chapter::Chapter;
use crate::plan::{Plan, Side};
use crate::row::Row;

use machine::Machine;

/// The contents of the report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The machine of the measurement.
    pub machine: &'a Machine,
    /// The extent of the measurement.
    pub plan: &'a Plan,
    /// The chapters, one for each mechanism.
    pub chapters: &'a [Chapter],
}

/// The folder of the page that is committed.
const PAGE: &str = "page";

/// Writes `report.md`, `report.json`, charts for each chapter and the page to
/// `folder`.
pub fn write(report: &Report<'_>, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let write = |name: &str, text: String| {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
    };
    for chapter in report.chapters {
        write(
            &chart::file_name(chapter),
            chart::svg(chapter, &chapter.workloads())?,
        )?;
    }
    write("report.md", markdown::text(report))?;
    // Files of an earlier run may have other names.
    let _ = fs::remove_dir_all(folder.join(PAGE));
    fs::create_dir_all(folder.join(PAGE)).map_err(|e| format!("{}: {e}", folder.display()))?;
    for chapter in report.chapters {
        write(
            &format!("{PAGE}/{}", chart::file_name(chapter)),
            chart::svg(chapter, chapter.drawn)?,
        )?;
    }
    write(&format!("{PAGE}/README.md"), page::text(report))?;
    write("report.json", json::text(report))?;
    Ok(())
}

/// Returns the names of some sides.
fn side_titles(sides: &[Side]) -> impl Iterator<Item = String> + '_ {
    sides.iter().map(|side| side.name().to_owned())
}

/// Returns the titles of the columns that compare extern4 with the others.
fn ratio_titles(sides: &[Side]) -> impl Iterator<Item = String> + '_ {
    rivals(sides).map(|side| format!("x {}", side.name()))
}

/// Returns the speed of extern4 as a multiple of each other side's, in a row.
fn ratios<'r>(row: &'r Row, sides: &'r [Side]) -> impl Iterator<Item = String> + 'r {
    rivals(sides).map(|side| figure(row.ratio(Side::Extern4, side)))
}

fn rivals(sides: &[Side]) -> impl Iterator<Item = Side> + '_ {
    sides.iter().copied().filter(|side| *side != Side::Extern4)
}
