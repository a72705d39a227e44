//! Operations by the number of CPUs.

use super::latencies::Latencies;
use super::run::nanos;
use crate::counted::Counted;
use crate::plan::Side;
use crate::row::Row;

/// Numbers of CPUs: on one socket up to 128, and two.
pub const CPUS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A prediction may be off by so much of what is measured.
const MOST_OFF: f64 = 0.25;

/// A workload of a side, simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What is done.
    pub workload: &'static str,
    /// By whom.
    pub side: Side,
    /// Nanoseconds for an operation of any CPU, for each of [`CPUS`].
    pub nanos: [f64; CPUS.len()],
    /// Nanoseconds for an operation of any of two threads, as measured.
    pub measured_with_two: Option<f64>,
}

impl Curve {
    /// The prediction for two CPUs is near what two threads were measured to take: only then is the
    /// rest worth a look.
    pub fn is_sound(&self) -> bool {
        self.of_two_by_measured().is_some_and(|share| (share - 1.0).abs() <= MOST_OFF)
    }

    /// What is predicted for two CPUs by what was measured with two threads, if it was.
    pub fn of_two_by_measured(&self) -> Option<f64> {
        self.measured_with_two.map(|measured| self.nanos[1] / measured)
    }
}

/// The curves of workloads, each with the operation that was noted for it, where both are at hand.
pub fn curves(operations: &[(&str, &'static str)], rows: &[Row], counted: &Counted) -> Vec<Curve> {
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
