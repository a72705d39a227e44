//! A chart for each chapter: how much is done in a microsecond, by threads, a panel for each workload.

use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, ChartBuilder, DrawingArea, IntoDrawingArea, IntoLogRange, LineSeries, PathElement, RGBColor,
    SVGBackend, SeriesLabelPosition, WHITE,
};

use crate::Result;
use crate::chapter::Chapter;
use crate::plan::Side;
use crate::row::Row;

pub(super) const PANEL: (u32, u32) = (420, 340);
/// Panels beside each other, where there are more than a handful.
const COLUMNS: usize = 3;

pub(super) fn file_name(chapter: &Chapter) -> String {
    format!("{}.svg", chapter.name)
}

pub(super) fn svg(chapter: &Chapter) -> Result<String> {
    // One number of threads makes no curve.
    let mut workloads = chapter.workloads();
    workloads.retain(|workload| chapter.rows_of(workload).count() > 1);
    let mut text = String::new();
    {
        let columns = if workloads.len() > 5 { COLUMNS } else { workloads.len().max(1) };
        let rows = workloads.len().div_ceil(columns).max(1);
        let size = (PANEL.0 * u32::try_from(columns)?, PANEL.1 * u32::try_from(rows)?);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE)?;
        for (panel, workload) in area.split_evenly((rows, columns)).iter().zip(workloads) {
            let rows: Vec<_> = chapter.rows_of(workload).collect();
            draw(panel, workload, &rows)?;
        }
        area.present()?;
    }
    Ok(text)
}

/// Operations in a microsecond.
pub(super) fn throughput(nanos: f64) -> f64 {
    1000.0 / nanos
}

pub(super) fn color(side: Side) -> RGBColor {
    match side {
        Side::Before => RGBColor(150, 150, 150),
        Side::Seed => RGBColor(31, 119, 180),
        Side::New => RGBColor(214, 39, 40),
    }
}

fn draw(panel: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, rows: &[&Row]) -> Result<()> {
    let threads = |row: &Row| row.threads as f64;
    let most = rows.iter().map(|row| threads(row)).fold(2.0, f64::max);
    let spreads = || rows.iter().flat_map(|row| Side::ALL.map(|side| row.nanos(side)));
    // Room for the legend above the curves.
    let top = spreads().map(|spread| throughput(spread.lower)).fold(0.0, f64::max) * 4.0;
    let bottom = spreads().map(|spread| throughput(spread.upper)).fold(top, f64::min) / 1.3;
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
        .y_label_formatter(&|n| if *n < 1.0 { super::figure(*n) } else { format!("{n:.0}") })
        .draw()?;
    for side in Side::ALL {
        let color = color(side);
        let line = rows.iter().map(|row| (threads(row), throughput(row.nanos(side).median)));
        let line = LineSeries::new(line, color);
        chart
            .draw_series(line)?
            .label(side.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color));
        let quartiles = rows.iter().map(|row| {
            let (x, spread) = (threads(row), row.nanos(side));
            PathElement::new([(x, throughput(spread.upper)), (x, throughput(spread.lower))], color)
        });
        chart.draw_series(quartiles)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    Ok(())
}
