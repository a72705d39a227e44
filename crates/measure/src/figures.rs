//! Figures of several rounds: their median, their spread, and their ratio to others.
//!
//! Rows and reports compute with them. Without figures each result is `None` and never zero.

/// The figures of one measured place, one a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(pub Vec<f64>);

impl Figures {
    /// Returns the median, or `None` without a figure.
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// Returns the lower and the upper quartile.
    pub fn quartiles(&self) -> Option<(f64, f64)> {
        self.quantile(0.25).zip(self.quantile(0.75))
    }

    /// Returns the least and the greatest figure.
    pub fn range(&self) -> Option<(f64, f64)> {
        self.quantile(0.0).zip(self.quantile(1.0))
    }

    /// Returns the distance of the quartiles. `None` with fewer than two figures.
    pub fn quartile_distance(&self) -> Option<f64> {
        let (low, high) = self.quartiles().filter(|_| self.0.len() > 1)?;
        // Equal figures are not subtracted: infinite figures have no difference.
        Some(if low == high { 0.0 } else { high - low })
    }

    /// Returns half the distance of the quartiles, as a share of the median. `None` with fewer than
    /// two figures.
    pub fn spread(&self) -> Option<f64> {
        Some(self.quartile_distance()? / 2.0 / self.median()?)
    }

    /// Returns the arithmetic mean, as some patches report it.
    pub fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    /// Returns the ratio to `other`: the median over the rounds.
    pub fn ratio(&self, other: &Self) -> Option<f64> {
        self.ratios(other).median()
    }

    /// Returns the ratio to `other` in each round, since a disturbance of one round meets both.
    pub fn ratios(&self, other: &Self) -> Self {
        self.0
            .iter()
            .zip(&other.0)
            .map(|(ours, theirs)| ours / theirs)
            .collect()
    }

    /// Returns the figure that this share of all is below, interpolated between two.
    fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = share * sorted.len().checked_sub(1)? as f64;
        let below = sorted[place.floor() as usize];
        let above = sorted[place.ceil() as usize];
        // Equal figures are not interpolated: infinite figures have no difference.
        Some(if below == above {
            below
        } else {
            below + (above - below) * place.fract()
        })
    }
}

impl FromIterator<f64> for Figures {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Self {
        Self(figures.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Figures;

    fn of(figures: &[f64]) -> Figures {
        Figures(figures.to_vec())
    }

    #[test]
    fn figures_have_a_middle_and_a_spread() {
        let figures = of(&[5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!(
            (figures.median(), figures.quartiles()),
            (Some(3.0), Some((2.0, 4.0)))
        );
        assert_eq!(
            (figures.range(), figures.mean()),
            (Some((1.0, 5.0)), Some(3.0))
        );
        assert_eq!(
            (figures.quartile_distance(), figures.spread()),
            (Some(2.0), Some(1.0 / 3.0))
        );
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0]).quartiles(), Some((1.75, 3.25)));
        assert_eq!(
            (of(&[7.0]).median(), of(&[7.0]).spread()),
            (Some(7.0), None)
        );
        assert_eq!(
            (Figures::default().median(), Figures::default().spread()),
            (None, None)
        );
        let infinite = of(&[f64::INFINITY; 3]);
        assert_eq!(
            (infinite.median(), infinite.quartile_distance()),
            (Some(f64::INFINITY), Some(0.0))
        );
    }

    #[test]
    fn rounds_are_compared_one_by_one() {
        // The machine was slow in the second round.
        let ours = of(&[8.0, 2.0, 12.0]);
        let theirs = of(&[4.0, 1.0, 4.0]);
        assert_eq!(ours.ratio(&theirs), Some(2.0));
        assert_eq!(ours.ratio(&Figures::default()), None);
    }
}
