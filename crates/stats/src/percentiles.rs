//! The percentile distribution that HdrHistogram's own tools print and plot.

use crate::latency::LatencyHistogram;

/// How many buckets the reference implementation gives to the range of a latency histogram: each
/// doubles the reach of the one before, and 32 of them reach an hour of nanoseconds.
pub(crate) const BUCKETS: u32 = 32;

/// How many parts each of those buckets has: the power of two that keeps three digits.
pub(crate) const SUB_BUCKETS: u32 = 2048;

/// One line of a percentile distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PercentileStep {
    /// The quantile of this step, within 0 and 1.
    pub quantile: f64,
    /// The latency in nanoseconds that this share did not exceed, rounded up to the precision.
    pub value_ns: u64,
    /// How many latencies there are up to that value.
    pub count: u64,
}

impl LatencyHistogram {
    /// Walks the quantiles from 0 to 1 as `PercentileIterator` of the reference implementation does
    /// (github.com/HdrHistogram/HdrHistogram): `ticks_per_half` steps to one half, as many more to
    /// three quarters, and so on, each time half of what is left. It steps on at recorded values
    /// only, and ends with a step at 1; an empty histogram has none.
    ///
    /// # Panics
    ///
    /// When `ticks_per_half` is 0.
    pub fn percentiles(&self, ticks_per_half: u32) -> impl Iterator<Item = PercentileStep> + '_ {
        let steps = self.counts.iter_quantiles(ticks_per_half);
        let steps = steps.take_while(|_| self.count() > 0);
        steps.scan(0, |count, step| {
            *count += step.count_since_last_iteration();
            Some(PercentileStep {
                quantile: step.quantile_iterated_to(),
                value_ns: step.value_iterated_to(),
                count: *count,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_and_their_parts_are_the_counters_of_our_range() {
        // The first bucket has all its parts, each further one only its upper half.
        let counters = u64::from(BUCKETS + 1) * u64::from(SUB_BUCKETS / 2);
        assert_eq!(counters, LatencyHistogram::new().counts.distinct_values() as u64);
        // 2048 doubled 31 times is the first power that an hour of nanoseconds does not reach.
        let hour_ns = 3_600_000_000_000;
        assert!(u64::from(SUB_BUCKETS) << (BUCKETS - 2) <= hour_ns);
        assert!(u64::from(SUB_BUCKETS) << (BUCKETS - 1) > hour_ns);
    }
}
