//! The lab: measures mechanisms on the hot paths of extern4 next to the code that they replace.
//!
//! `make lab` runs it as a program, and its tests run every workload for a moment. All sides of a
//! row are measured in one process; figures of different runs are never compared.
//!
//! Every mechanism has three implementations, which pass the same tests:
//!
//! | side | meaning |
//! | --- | --- |
//! | baseline | the code that a patch to Linux replaced |
//! | patch | the idea of that patch, with its structures and its locking |
//! | extern4 | the code of extern4 in production, called as production calls it |
//! | 6.19 | the code that Linux merged instead, if that is not the patch |
//!
//! * [`acl`], [`may_exec`], [`open_files`], [`mbcache`] and [`buffer_cache`] are the mechanisms.
//!   The first two run on a [`volume`].
//! * [`plan`] and [`row`] are the rules of measurement: one binary, the sides in turn, medians and
//!   quartiles (`extern4-measure`).
//! * [`access_counts`] holds figures that cannot be counted during a measurement. They come from a
//!   build with the feature `audit`. [`instructions`] come from callgrind, which runs [`repeat`].
//! * [`traces`] are recorded lookups of programs by path, for [`may_exec`].
//! * [`report`] writes the report.
#![forbid(unsafe_code)]

pub mod access_counts;
pub mod acl;
pub mod buffer_cache;
pub mod chapter;
pub mod instructions;
pub mod may_exec;
pub mod mbcache;
pub mod open_files;
pub mod plan;
pub mod random;
pub mod repeat;
pub mod report;
pub mod row;
pub mod traces;
pub mod volume;

use std::path::Path;

use access_counts::AccessCounts;
use chapter::Chapter;
use plan::Plan;
use report::Report;
use report::machine::Machine;

use extern4_measure::machine::{CpuTimes, all_cpus};

/// Counts allocations, for the rows that report them.
#[global_allocator]
static ALLOCATOR: extern4_sync::allocations::Counting = extern4_sync::allocations::Counting;

/// A result whose error is only reported, not handled.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measures everything by `plan`, writes the report to `folder`, and returns the chapters.
///
/// `say` is called with each step that begins.
pub fn run(
    plan: &Plan,
    counted: &AccessCounts,
    folder: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Chapter>> {
    let mut machine = Machine::look();
    let chapters = chapters(plan, counted, say);
    machine.about.look_again();
    report::write(
        &Report {
            machine: &machine,
            plan,
            chapters: &chapters,
        },
        folder,
    )?;
    Ok(chapters)
}

/// Measures a mechanism.
type Measure = fn(&Plan, &AccessCounts, &mut dyn FnMut(&str)) -> Chapter;

/// Measures the chapters. Each verdict gets the load of other programs meanwhile.
fn chapters(plan: &Plan, counted: &AccessCounts, say: &mut dyn FnMut(&str)) -> Vec<Chapter> {
    let measured = |chapter: Measure| {
        let before = CpuTimes::now();
        let mut chapter = chapter(plan, counted, say);
        let load = CpuTimes::now()
            .zip(before)
            .and_then(|(now, before)| now.others_since(&before, all_cpus()));
        chapter
            .verdicts
            .iter_mut()
            .for_each(|verdict| verdict.load = load);
        chapter
    };
    [
        acl::chapter,
        may_exec::chapter,
        open_files::chapter,
        mbcache::chapter,
        buffer_cache::chapter,
    ]
    .map(measured)
    .into()
}
