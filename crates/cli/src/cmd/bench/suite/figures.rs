//! Figures of several rounds: their middle, how far they are apart, and how they compare with others'.

/// What was measured in one place, a figure a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures(pub(super) Vec<f64>);

impl Figures {
    /// The middle one; the mean of both where there are two.
    pub(super) fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// What a quarter is below, and what a quarter is above.
    pub(super) fn quartiles(&self) -> Option<(f64, f64)> {
        self.quantile(0.25).zip(self.quantile(0.75))
    }

    /// How far half of them are from the median at most, as a share of it. One alone does not say.
    pub(super) fn spread(&self) -> Option<f64> {
        let (low, high) = self.quartiles().filter(|_| self.0.len() > 1)?;
        Some((high - low) / 2.0 / self.median()?)
    }

    /// How many times as much as `other` this is: the median of the rounds, for what disturbs one round disturbs both.
    pub(super) fn ratio(&self, other: &Self) -> Option<f64> {
        Self(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours / theirs).collect()).median()
    }

    /// The figure that this share of all is below, in proportion where that is between two.
    fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let place = share * last as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        Some(below + (above - below) * place.fract())
    }
}

#[cfg(test)]
mod tests {
    use super::Figures;

    #[test]
    fn figures_have_a_middle_and_a_spread() {
        let figures = Figures(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((figures.median(), figures.quartiles()), (Some(3.0), Some((2.0, 4.0))));
        assert_eq!(figures.spread(), Some(1.0 / 3.0));
        assert_eq!(Figures(vec![1.0, 2.0]).median(), Some(1.5));
        assert_eq!((Figures(vec![7.0]).median(), Figures(vec![7.0]).spread()), (Some(7.0), None));
        assert_eq!((Figures::default().median(), Figures::default().spread()), (None, None));
    }

    #[test]
    fn rounds_are_compared_one_by_one() {
        // The machine was slow in the second round.
        let (ours, theirs) = (Figures(vec![8.0, 2.0, 12.0]), Figures(vec![4.0, 1.0, 4.0]));
        assert_eq!(ours.ratio(&theirs), Some(2.0));
        assert_eq!(ours.ratio(&Figures::default()), None);
    }
}
