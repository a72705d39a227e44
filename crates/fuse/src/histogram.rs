//! The distribution of durations: counts in buckets whose width grows with the duration.
//!
//! Each doubling is cut into [`STEPS`] buckets of the same width, so a bucket's bounds are a
//! quarter apart at most. [`BUCKETS`] numbers reach from nanoseconds to minutes. Histograms are
//! added and subtracted bucket by bucket. So the counts of several threads form one histogram, and
//! so does the difference of two readings.
//!
//! `meter` counts each request's duration in one; the command's reports and metrics read quantiles
//! from it. A quantile is the upper bound of its bucket, so it is never too low and at most a
//! quarter too high.

use std::time::Duration;

/// Buckets a doubling: a power of two.
const STEPS: u64 = 4;
const STEPS_LOG: u32 = STEPS.trailing_zeros();

/// The number of buckets. The highest bucket holds everything from 2^37 ns, which are two minutes.
pub const BUCKETS: usize = ((37 - STEPS_LOG + 1) as usize) * STEPS as usize + 1;

/// Returns the bucket of a duration in nanoseconds.
pub(crate) fn bucket(nanoseconds: u64) -> usize {
    if nanoseconds < STEPS {
        return nanoseconds as usize;
    }
    // The highest bit selects the doubling, and the bits below it the bucket in that doubling.
    let shift = nanoseconds.ilog2() - STEPS_LOG;
    let index = (u64::from(shift) + 1) * STEPS + ((nanoseconds >> shift) - STEPS);
    (index as usize).min(BUCKETS - 1)
}

/// Returns the least duration, in nanoseconds, that falls into a bucket.
fn lower_bound(bucket: usize) -> u64 {
    let doubling = bucket as u64 / STEPS;
    let part = bucket as u64 % STEPS;
    if doubling == 0 {
        part
    } else {
        (STEPS + part) << (doubling - 1)
    }
}

/// Returns the longest duration that falls into a bucket; the last one has no end.
fn upper_bound(bucket: usize) -> u64 {
    if bucket + 1 >= BUCKETS {
        u64::MAX
    } else {
        lower_bound(bucket + 1) - 1
    }
}

/// Counts of durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    total: u64,
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            total: 0,
            longest: 0,
        }
    }
}

impl Histogram {
    /// Builds a histogram from counts by bucket; buckets that do not exist count as the last.
    /// `total` and `longest` are in nanoseconds.
    pub fn from_counts(
        counts: impl IntoIterator<Item = (usize, u64)>,
        total: u64,
        longest: u64,
    ) -> Self {
        let mut histogram = Self {
            total,
            longest,
            ..Self::default()
        };
        for (bucket, count) in counts {
            let sum = &mut histogram.buckets[bucket.min(BUCKETS - 1)];
            *sum = sum.saturating_add(count);
        }
        histogram
    }

    /// Returns the buckets that are not empty, in order, with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        self.buckets
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, count)| *count > 0)
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the sum of all durations, in nanoseconds.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the longest duration, in nanoseconds.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns the number of durations of `limit` at most; exact where `limit` is one nanosecond
    /// less than a power of two.
    pub fn count_within(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let within = self
            .counts()
            .filter(|(bucket, _)| upper_bound(*bucket) <= limit);
        within.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Returns a duration, in nanoseconds, that `share` of all do not exceed. It is the upper bound
    /// of that duration's bucket, and never longer than the longest. `None` if the histogram is
    /// empty.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        // Of ten durations, nine tenths do not exceed the ninth.
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut before = 0_u64;
        let at = self.counts().find(|(_, count)| {
            before = before.saturating_add(*count);
            before >= rank
        });
        at.map(|(bucket, _)| upper_bound(bucket).min(self.longest))
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*count);
        }
        self.total = self.total.saturating_add(other.total);
        self.longest = self.longest.max(other.longest);
    }

    /// Returns the counts added since the histogram was `earlier`. The longest of these is known
    /// only to the precision of its bucket.
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self
            .buckets
            .iter()
            .zip(&earlier.buckets)
            .map(|(now, then)| now.saturating_sub(*then));
        let buckets: Vec<_> = counts.collect();
        let last = buckets.iter().rposition(|count| *count > 0);
        let longest = last.map_or(0, |bucket| upper_bound(bucket).min(self.longest));
        Self {
            buckets,
            total: self.total.saturating_sub(earlier.total),
            longest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: impl IntoIterator<Item = u64> + Clone) -> Histogram {
        let total = durations.clone().into_iter().sum();
        let longest = durations.clone().into_iter().max().unwrap_or(0);
        Histogram::from_counts(
            durations.into_iter().map(|each| (bucket(each), 1)),
            total,
            longest,
        )
    }

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        for index in 0..BUCKETS - 1 {
            let low = lower_bound(index);
            let high = upper_bound(index);
            assert!(low <= high && lower_bound(index + 1) == high + 1, "{index}");
            assert_eq!((bucket(low), bucket(high)), (index, index));
            assert!(
                high - low <= low / STEPS,
                "{index}: no wider than a quarter"
            );
        }
        assert_eq!(
            (bucket(1 << 37), bucket(u64::MAX)),
            (BUCKETS - 1, BUCKETS - 1)
        );
    }

    #[test]
    fn quantiles_are_right_to_the_width_of_a_bucket() {
        let all = of(1..=100_000);
        assert_eq!(all.count(), 100_000);
        assert_eq!(all.total(), 100_000 * 100_001 / 2);
        for (share, exact) in [(0.5, 50_000), (0.9, 90_000), (0.99, 99_000), (1.0, 100_000)] {
            let found = all.quantile(share).expect("there are some");
            assert!(
                found >= exact && found - exact <= exact / STEPS,
                "{share}: {found}"
            );
        }
        assert_eq!(all.quantile(1.0), Some(100_000));
        assert_eq!(of([]).quantile(0.5), None);
        assert_eq!(of([7]).quantile(0.01), Some(7));
    }

    #[test]
    fn a_difference_has_the_counts_in_between() {
        let before = of([100, 5_000_000]);
        let between = of([200, 300, 90_000]);
        let mut after = before.clone();
        after.add(&between);
        assert_eq!((after.count(), after.longest()), (5, 5_000_000));
        let since = after.since(&before);
        assert_eq!(
            since.counts().collect::<Vec<_>>(),
            between.counts().collect::<Vec<_>>()
        );
        assert_eq!(since.total(), between.total());
        assert!(
            (90_000..=112_500).contains(&since.longest()),
            "{}",
            since.longest()
        );
        assert_eq!(before.since(&before), of([]));
    }

    #[test]
    fn counts_up_to_a_limit_add_up() {
        let all = of([10, 1023, 1024, 1 << 40]);
        let within = |nanoseconds| all.count_within(Duration::from_nanos(nanoseconds));
        assert_eq!(
            (within(1), within(1023), within(2047), within(u64::MAX)),
            (0, 2, 3, 4)
        );
    }
}
