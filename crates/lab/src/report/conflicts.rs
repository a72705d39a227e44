//! Conflicts of calls that commute: a picture and a table for each volume.
//!
//! `report` and its Markdown call it. Without counts it says how to get them.

use std::fmt::Write as _;

use plotters::prelude::{BLACK, IntoDrawingArea, RGBColor, Rectangle, SVGBackend, Text, WHITE};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, TextStyle};

use extern4_measure::table::figure;

use crate::Result;
use crate::conflicts::{Matrix, PAIRS_OF_A_CELL, Share, TRIES};
use crate::spec::{Kind, Nearness};

/// Sizes in the picture.
const CELL: i32 = 46;
const LABELS: i32 = 100;
/// The number of fields that the report names.
const OFFENDERS: usize = 20;

pub(super) fn file_name(matrix: &Matrix) -> String {
    format!("conflicts-{}.svg", matrix.on.name())
}

/// Draws a square for each two kinds of calls: green if all pairs are free of conflicts, yellow if
/// half are, red if none is.
pub(super) fn svg(matrix: &Matrix) -> Result<String> {
    let side = LABELS + CELL * i32::try_from(Kind::ALL.len())? + 10;
    let mut text = String::new();
    {
        let size = u32::try_from(side)?;
        let area = SVGBackend::with_string(&mut text, (size, size)).into_drawing_area();
        area.fill(&WHITE)?;
        let style = |anchor| TextStyle::from(("sans-serif", 13).into_font()).pos(anchor).color(&BLACK);
        let centered = style(Pos::new(HPos::Center, VPos::Center));
        for (row, one) in Kind::ALL.into_iter().enumerate() {
            let y = LABELS + CELL * i32::try_from(row)?;
            let right = style(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(one.name(), (LABELS - 6, y + CELL / 2), right))?;
            // Every other label is higher, so that neighbours have room.
            let above = LABELS - if row % 2 == 0 { 12 } else { 30 };
            area.draw(&Text::new(one.name(), (y + CELL / 2, above), centered.clone()))?;
            for (column, other) in Kind::ALL.into_iter().enumerate() {
                let (x, share) = (LABELS + CELL * i32::try_from(column)?, matrix.cell(one, other));
                if share.tests == 0 {
                    continue;
                }
                let corners = [(x + 1, y + 1), (x + CELL - 1, y + CELL - 1)];
                area.draw(&Rectangle::new(corners, color(share).filled()))?;
                let percent = format!("{:.0}", share.percent());
                area.draw(&Text::new(percent, (x + CELL / 2, y + CELL / 2), centered.clone()))?;
            }
        }
        area.present()?;
    }
    Ok(text)
}

fn color(share: Share) -> RGBColor {
    const RED: [f64; 3] = [226.0, 102.0, 90.0];
    const YELLOW: [f64; 3] = [250.0, 224.0, 130.0];
    const GREEN: [f64; 3] = [104.0, 186.0, 116.0];
    let half = share.percent() / 50.0;
    let (from, to, part) = if half < 1.0 { (RED, YELLOW, half) } else { (YELLOW, GREEN, half - 1.0) };
    let [red, green, blue] = [0, 1, 2].map(|at| (from[at] + (to[at] - from[at]) * part) as u8);
    RGBColor(red, green, blue)
}

/// Writes all matrices, or how to get them if there are none.
pub(super) fn markdown(text: &mut String, matrices: &[Matrix]) {
    // OK: writing to a string never fails, here and below.
    let _ = writeln!(text, "## Calls that commute\n");
    if matrices.is_empty() {
        text.push_str("Not counted: that takes a build of its own (`make lab`).\n\n");
        return;
    }
    let _ = writeln!(
        text,
        "Two calls commute if what they return, and what they leave, is the same in either order; then they can be made so that neither \
         writes a cache line that the other uses, and so scale. Which do, is decided by a specification that can be executed (`spec` in \
         the lab): two directories, four names, files and descriptors that are the same or not. Each pair is \
         made on two threads that are warm, one call after the other, while the audit notes which lines they use. Pairs that meet are made again \
         in other directories, {TRIES} times at most, since names may meet in a table by chance; both figures are told. What the calls return is \
         compared with the specification. A call that only reads, or writes over contents, has been made some times before, and within \
         one tick of the clock, as it would be where that is done again and again (a write for the first time in a tick changes times, \
         too); times of access, which the specification leaves open, are not \
         kept: with them, who reads a file has \
         to find out whether it has been changed. The authors of sv6, from whom the method is, had 68 % of 13,664 tests of 18 calls free of \
         conflicts on Linux and 99 % on sv6 (SOSP 2013): other calls and another mix than here, and they saw plain loads and stores, too. \
         Not noted here are counts of `Arc` and what the allocator does. The baseline and the patch are mechanisms, not file systems: what theirs \
         meet on is told below, beside production's. Kinds of calls with many arguments have many more pairs than others, and most of those \
         are of one file: so {PAIRS_OF_A_CELL} of each two kinds, drawn by lot, are the sample that all figures are of but the one for every pair that the specification \
         has.\n"
    );
    matrices.iter().for_each(|matrix| one(text, matrix));
}

fn one(text: &mut String, matrix: &Matrix) {
    let on = matrix.on.name();
    let _ = writeln!(
        text,
        "### Calls that commute, on {on}\n\n![Calls that commute, on {on}]({})\n",
        file_name(matrix)
    );
    let _ = writeln!(
        text,
        "| pairs | | free of conflicts at first | in one of {TRIES} tries |\n|---|---:|---:|---:|"
    );
    let nearness = Nearness::ALL.map(|near| (near.name(), matrix.near(near)));
    let totals = [("all", matrix.all()), ("both calls only read", matrix.reading())];
    let whole = ("every pair of the specification", matrix.whole());
    for (name, share) in totals.into_iter().chain(nearness).chain([whole]) {
        let (first, best) = (share.percent_at_first(), share.percent());
        let _ = writeln!(text, "| {name} | {} | {first:.1} % | {best:.1} % |", share.tests);
    }
    let names = Kind::ALL.map(Kind::name).join(" | ");
    let _ = writeln!(
        text,
        "\nPercent, in one of {TRIES} tries:\n\n| | {names} |\n|---|{}",
        "---:|".repeat(Kind::ALL.len())
    );
    for one in Kind::ALL {
        let percent = |other| match matrix.cell(one, other) {
            Share { tests: 0, .. } => "-".to_owned(),
            share => format!("{:.0}", share.percent()),
        };
        let _ = writeln!(text, "| {} | {} |", one.name(), Kind::ALL.map(percent).join(" | "));
    }
    let _ = writeln!(
        text,
        "\nWhere they meet, by the fields of a line that are written, and those beside them that the other call uses:\n\n\
         | pairs | of these the files and directories differ | fields |\n|---:|---:|---|"
    );
    for offender in matrix.offenders().iter().take(OFFENDERS) {
        let _ = writeln!(text, "| {} | {} | {} |", offender.pairs, offender.apart, offender.field);
    }
    text.push('\n');
    unseen(text, matrix);
    super::markdown::goals(text, &matrix.verdicts());
}

/// Writes how much the audit did not record, so that readers know how far to trust the rest.
fn unseen(text: &mut String, matrix: &Matrix) {
    if matrix.unseen.is_empty() {
        return;
    }
    let unseen = |(kind, count): &(Kind, f64)| format!("{} {}", kind.name(), figure(*count));
    let _ = writeln!(
        text,
        "Locked instructions of a call that took no notes, on the average of some, as the CPU counts them when it goes step by step: {}. They \
         are counts of `Arc` and the allocator's; what they are done to may be a line that two calls meet on, unseen.\n",
        matrix.unseen.iter().map(unseen).collect::<Vec<_>>().join("; ")
    );
}
