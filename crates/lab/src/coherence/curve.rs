//! Curves: the simulated time of an operation by the number of CPUs.
//!
//! A chapter keeps the curves of its workloads, and the report draws them. A workload whose
//! accesses were not recorded, or whose time with one thread was not measured, has no curve.

use super::latencies::Latencies;
use super::run::nanos;
use crate::access_counts::AccessCounts;
use crate::plan::Side;
use crate::row::Row;

/// Numbers of simulated CPUs: up to 128 on one socket, and 256 on two.
pub const CPUS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The largest deviation of a sound prediction, as a share of the measured time.
const MOST_OFF: f64 = 0.25;

/// A simulated workload of a side.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The name of the workload.
    pub workload: &'static str,
    /// The side that executes it.
    pub side: Side,
    /// Nanoseconds for each operation of all CPUs together, for each of [`CPUS`].
    pub nanos: [f64; CPUS.len()],
    /// Nanoseconds for each operation of two threads together, as measured.
    pub measured_with_two: Option<f64>,
}

impl Curve {
    /// Returns whether the prediction for two CPUs is near the time measured with two threads. Only
    /// then is the rest worth a look.
    pub fn is_sound(&self) -> bool {
        self.of_two_by_measured().is_some_and(|share| (share - 1.0).abs() <= MOST_OFF)
    }

    /// Returns the prediction for two CPUs divided by the time measured with two threads, if any.
    pub fn of_two_by_measured(&self) -> Option<f64> {
        self.measured_with_two.map(|measured| self.nanos[1] / measured)
    }
}

/// Returns the curves of workloads, each with the operation recorded for it. Pairs without a
/// recording or a measurement with one thread are left out.
pub fn curves(operations: &[(&str, &'static str)], rows: &[Row], counted: &AccessCounts) -> Vec<Curve> {
    let mut curves = Vec::new();
    for &(operation, workload) in operations {
        let row = |threads| rows.iter().find(|row| row.workload == workload && row.threads == threads);
        let Some(alone) = row(1) else { continue };
        for side in Side::ALL {
            let Some(replay) = counted.replay(operation, side) else { continue };
            let median = |row: &Row| row.nanos(side).median().unwrap_or(f64::NAN);
            let simulate = |cpus| nanos(replay, median(alone), cpus, Latencies::PUBLISHED);
            let measured_with_two = row(2).map(median);
            curves.push(Curve { workload, side, nanos: CPUS.map(simulate), measured_with_two });
        }
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_that_is_far_off_is_not_sound() {
        let curve = |predicted, measured_with_two| {
            let mut nanos = [1.0; CPUS.len()];
            nanos[1] = predicted;
            Curve { workload: "x", side: Side::Extern4, nanos, measured_with_two }
        };
        let sound =
            [(7.5, Some(10.0)), (12.5, Some(10.0)), (7.4, Some(10.0)), (12.6, Some(10.0)), (10.0, None)]
                .map(|(predicted, measured)| curve(predicted, measured).is_sound());
        assert_eq!(sound, [true, true, false, false, false]);
    }
}
