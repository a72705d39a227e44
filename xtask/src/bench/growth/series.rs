//! A figure that is measured for growing sizes, and the steps between them.

use extern4_measure::json::Object;

/// The factor by which a figure may be worse than that of the next smaller size.
const STEP: f64 = 1.3;
/// The size from which on steps are judged. Smaller ones fit into caches of the processor.
const JUDGED_FROM: u64 = 100_000;

/// A figure for growing sizes.
pub(super) struct Series {
    /// The work, such as a warm `stat`.
    pub(super) work: &'static str,
    /// The side that does it.
    pub(super) side: &'static str,
    pub(super) unit: &'static str,
    pub(super) points: Vec<Point>,
}

/// A figure for one size.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) size: u64,
    pub(super) figure: f64,
    /// The caches did not have room for all.
    pub(super) exceeds_memory: bool,
}

/// A figure next to that of the next smaller size.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    pub(super) size: u64,
    pub(super) times: f64,
    /// Whether the step is small enough; `None` if it is not judged.
    pub(super) met: Option<bool>,
}

impl Series {
    pub(super) fn at(&self, size: u64) -> Option<f64> {
        self.points
            .iter()
            .find(|point| point.size == size)
            .map(|point| point.figure)
    }

    /// The steps between the sizes. A step of the kernel is not judged, and neither is the first
    /// step to a size that exceeds the memory of the caches.
    pub(super) fn steps(&self) -> Vec<Step> {
        let step = |pair: &[Point]| {
            let small = pair[0];
            let large = pair[1];
            let times = large.figure / small.figure;
            let judged = self.side != "kernel"
                && small.size >= JUDGED_FROM
                && (small.exceeds_memory || !large.exceeds_memory);
            Step {
                size: large.size,
                times,
                met: judged.then_some(times <= STEP),
            }
        };
        self.points.windows(2).map(step).collect()
    }

    pub(super) fn write(&self, item: &mut Object<'_>) {
        item.text("work", self.work);
        item.text("side", self.side);
        item.text("unit", self.unit);
        item.numbers("sizes", self.points.iter().map(|point| point.size));
        item.numbers("figures", self.points.iter().map(|point| point.figure));
        item.numbers(
            "exceeds_memory",
            self.points.iter().map(|point| point.exceeds_memory),
        );
        item.numbers("met", self.steps().iter().map(|step| step.met));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(side: &'static str, points: &[(u64, f64, bool)]) -> Series {
        let point = |&(size, figure, exceeds_memory)| Point {
            size,
            figure,
            exceeds_memory,
        };
        Series {
            work: "stat",
            side,
            unit: "ns",
            points: points.iter().map(point).collect(),
        }
    }

    fn met(side: &'static str, points: &[(u64, f64, bool)]) -> Vec<Option<bool>> {
        series(side, points)
            .steps()
            .iter()
            .map(|step| step.met)
            .collect()
    }

    #[test]
    fn steps_of_large_sizes_are_judged() {
        let points = [
            (10_000, 1.0, false),
            (100_000, 2.0, false),
            (1_000_000, 2.5, false),
            (4_000_000, 5.0, false),
        ];
        assert_eq!(met("library", &points), [None, Some(true), Some(false)]);
        assert_eq!(met("kernel", &points), [None; 3]);
    }

    #[test]
    fn the_first_size_beyond_memory_may_be_worse() {
        let points = [
            (100_000, 1.0, false),
            (1_000_000, 9.0, true),
            (4_000_000, 10.0, true),
        ];
        assert_eq!(met("library", &points), [None, Some(true)]);
        assert_eq!(series("library", &points).at(1_000_000), Some(9.0));
    }
}
