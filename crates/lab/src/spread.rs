//! What repetitions of a figure say together.

/// The median and the quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// A quarter of the figures are below.
    pub lower: f64,
    /// Half of them are.
    pub median: f64,
    /// Three quarters are.
    pub upper: f64,
}

impl Spread {
    /// That of these figures, of which there is one at least: otherwise nothing is a number.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let at = |share| quantile(&figures, share);
        Self { lower: at(0.25), median: at(0.5), upper: at(0.75) }
    }

    /// More than another beyond what noise explains: the quartiles do not overlap.
    pub fn exceeds(&self, other: &Self) -> bool {
        self.lower > other.upper
    }
}

/// Between two figures, in proportion.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_figures() {
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0]), Spread { lower: 1.75, median: 2.5, upper: 3.25 });
        assert_eq!(Spread::of([7.0]), Spread { lower: 7.0, median: 7.0, upper: 7.0 });
        assert!(Spread::of([]).median.is_nan());
    }

    #[test]
    fn what_overlaps_is_not_more() {
        let (low, high) = (Spread::of([1.0, 2.0, 3.0]), Spread::of([2.0, 3.0, 4.0]));
        assert!(!high.exceeds(&low) && Spread::of([9.0]).exceeds(&high));
    }
}
