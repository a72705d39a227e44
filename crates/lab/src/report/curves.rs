//! The results of the simulation of more CPUs: a chart and a table for a chapter.
//!
//! `report` and its Markdown call it. A chapter without a simulated workload has neither.

use std::fmt::Write as _;

use plotters::prelude::{IntoDrawingArea, SVGBackend, WHITE};

use super::chart::{Line, PANEL, Point, draw};
use extern4_measure::table::{Table, figure, maybe};

use crate::Result;
use crate::chapter::Chapter;
use crate::coherence::{CPUS, Curve, Latencies};

pub(super) fn file_name(chapter: &Chapter) -> String {
    format!("{}-simulated.svg", chapter.name)
}

fn workloads(chapter: &Chapter) -> Vec<&'static str> {
    let mut names: Vec<_> = sound(chapter).map(|curve| curve.workload).collect();
    names.dedup();
    names
}

/// Draws a panel for each workload; returns `None` if none was simulated.
pub(super) fn svg(chapter: &Chapter) -> Result<Option<String>> {
    let workloads = workloads(chapter);
    if workloads.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    {
        let size = (PANEL.0 * u32::try_from(workloads.len())?, PANEL.1);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE)?;
        for (panel, workload) in area.split_evenly((1, workloads.len())).iter().zip(workloads) {
            let of_workload = sound(chapter).filter(|curve| curve.workload == workload);
            let lines: Vec<_> = of_workload.map(line).collect();
            draw(panel, &format!("{workload}, simulated"), "CPUs", &lines)?;
        }
        area.present()?;
    }
    Ok(Some(text))
}

fn line(curve: &Curve) -> Line {
    let point = |(cpus, nanos): (&usize, f64)| Point { x: *cpus as f64, nanos, quartiles: None };
    Line { side: curve.side, points: CPUS.iter().zip(curve.nanos).map(point).collect() }
}

/// Returns the curves whose prediction for two CPUs is near the measured figure.
fn sound(chapter: &Chapter) -> impl Iterator<Item = &Curve> {
    chapter.simulated.iter().filter(|curve| curve.is_sound())
}

/// Writes the chart and the figures.
pub(super) fn markdown(text: &mut String, chapter: &Chapter) {
    if chapter.simulated.is_empty() {
        return;
    }
    let title = chapter.title;
    // OK: writing to a string never fails, here and below.
    let _ = writeln!(text, "\n### {title}: more CPUs, simulated\n");
    let left_out = chapter.simulated.iter().filter(|curve| !curve.is_sound());
    let left_out: Vec<_> =
        left_out.map(|curve| format!("{} ({})", curve.workload, curve.side.name())).collect();
    if !left_out.is_empty() {
        let names = left_out.join(", ");
        let _ = writeln!(
            text,
            "Left out, since the prediction for two CPUs is off by more than 25 %: {names}.\n"
        );
    }
    let titles =
        ["workload".to_owned(), "side".to_owned()].into_iter().chain(CPUS.map(|cpus| cpus.to_string()));
    let mut table =
        Table::new(2, titles.chain(["measured with 2".to_owned(), "predicted by measured".to_owned()]));
    for curve in sound(chapter) {
        let measured = [curve.measured_with_two, curve.of_two_by_measured()].map(maybe);
        let names = [curve.workload, curve.side.name()].map(str::to_owned);
        table.line(names.into_iter().chain(curve.nanos.map(figure)).chain(measured));
    }
    if !table.is_empty() {
        let _ = writeln!(
            text,
            "![{title}, simulated]({})\n\nNanoseconds for an operation of any of so many CPUs, next to what two threads took. The end of \
             the report says how it is made, and what is not in it.\n\n{}",
            file_name(chapter),
            table.markdown()
        );
    }
}

/// Describes the simulation, for the end of the report.
pub(super) fn how(text: &mut String) {
    let Latencies { cpus_of_socket, .. } = Latencies::PUBLISHED;
    let _ = writeln!(
        text,
        "## How more CPUs were simulated\n\n\
         The audit notes in order which cache lines an operation uses, on two threads; any number of CPUs repeats that. A line that both \
         threads used is the same for all, any other is each CPU's own. One CPU takes the time that was measured with one thread, spread \
         evenly between the accesses. A line that another cache has takes a time that others have measured ({}), of which \
         that cache keeps it for the first half; who wants it meanwhile waits for his turn, and who wants a lock waits for its holder. There are two sockets of {cpus_of_socket} CPUs, of which the \
         first fills up first.\n\n\
         Not in it: lines that a cache has no room for, memory, the width of buses and how lines are spread over them, accesses that a CPU makes \
         at the same time, stores that wait in a buffer, prefetching, hyperthreads, sleeping and waking of who waits for a lock, and what takes \
         no notes: names, counts of `Arc`, the allocator. So it says which lines keep threads from going faster together, and about how \
         much, and is no measurement. The curve of one CPU is the measurement itself; with two, the tables have both.\n",
        Latencies::SOURCE
    );
}
