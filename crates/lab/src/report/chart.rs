//! A chart for each chapter: operations per microsecond by the number of threads, a panel for each
//! workload.
//!
//! `report` writes it for each chapter. A workload with one
//! number of threads has no panel.

use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, ChartBuilder, DrawingArea, IntoDrawingArea, IntoLogRange, LineSeries, PathElement,
    RGBColor, SVGBackend, SeriesLabelPosition, WHITE,
};

use extern4_measure::figures::Figures;
use extern4_measure::table::figure;

use crate::Result;
use crate::chapter::Chapter;
use crate::plan::Side;
use crate::row::Row;

const PANEL: (u32, u32) = (420, 340);
/// The number of panels in a row, if there are more than a handful.
const COLUMNS: usize = 3;

pub(super) fn file_name(chapter: &Chapter) -> String {
    format!("{}.svg", chapter.name)
}

/// Draws a panel for each of these workloads that was measured with several numbers of threads.
pub(super) fn svg(chapter: &Chapter, workloads: &[&'static str]) -> Result<String> {
    // A single number of threads makes no curve.
    let several = |workload: &&&'static str| chapter.rows_of(workload).count() > 1;
    let workloads: Vec<_> = workloads.iter().filter(several).copied().collect();
    let mut text = String::new();
    {
        let columns = if workloads.len() > 5 {
            COLUMNS
        } else {
            workloads.len().max(1)
        };
        let rows = workloads.len().div_ceil(columns).max(1);
        let size = (
            PANEL.0 * u32::try_from(columns)?,
            PANEL.1 * u32::try_from(rows)?,
        );
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE)?;
        for (panel, workload) in area
            .split_evenly((rows, columns))
            .iter()
            .zip(workloads.iter().copied())
        {
            let rows: Vec<_> = chapter.rows_of(workload).collect();
            draw(panel, workload, &lines(&rows))?;
        }
        area.present()?;
    }
    Ok(text)
}

fn color(side: Side) -> RGBColor {
    match side {
        Side::Baseline => RGBColor(150, 150, 150),
        Side::Patch => RGBColor(31, 119, 180),
        Side::Extern4 => RGBColor(214, 39, 40),
        Side::Merged => RGBColor(44, 160, 44),
    }
}

/// A curve.
struct Line {
    side: Side,
    points: Vec<Point>,
}

/// A point on a curve.
struct Point {
    threads: f64,
    /// Operations per microsecond: the median, and the fewest and the most of the middle half.
    median: f64,
    range: (f64, f64),
}

/// Returns the curves of the measured rows.
fn lines(rows: &[&Row]) -> Vec<Line> {
    let line = |side| {
        let point = |row: &&Row| {
            let per_microsecond: Figures = row
                .nanos(side)
                .0
                .iter()
                .map(|nanos| 1000.0 / nanos)
                .collect();
            let median = per_microsecond.median();
            let range = per_microsecond.quartiles();
            Point {
                threads: row.threads as f64,
                median: median.unwrap_or(f64::NAN),
                range: range.unwrap_or((f64::NAN, f64::NAN)),
            }
        };
        Line {
            side,
            points: rows.iter().map(point).collect(),
        }
    };
    rows.first()
        .map(|row| row.sides().map(line).collect())
        .unwrap_or_default()
}

/// Draws curves with a title and labels.
fn draw(panel: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, lines: &[Line]) -> Result<()> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().map(|point| point.threads).fold(2.0, f64::max);
    // Leaves room for the legend above the curves.
    let top = points().map(|point| point.range.1).fold(0.0, f64::max) * 4.0;
    let bottom = points().map(|point| point.range.0).fold(top, f64::min) / 1.3;
    let mut chart = ChartBuilder::on(panel)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d((1.0..most).log_scale().base(2.0), (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .x_desc("threads")
        .y_desc("operations in a microsecond")
        .x_label_formatter(&|n| format!("{n:.0}"))
        .y_label_formatter(&|n| {
            if *n < 1.0 {
                figure(*n)
            } else {
                format!("{n:.0}")
            }
        })
        .draw()?;
    for Line { side, points } in lines {
        let color = color(*side);
        let curve = points.iter().map(|point| (point.threads, point.median));
        chart
            .draw_series(LineSeries::new(curve, color))?
            .label(side.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color));
        let range = |point: &Point| [point.range.0, point.range.1].map(|at| (point.threads, at));
        chart.draw_series(
            points
                .iter()
                .map(|point| PathElement::new(range(point), color)),
        )?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    Ok(())
}
