//! The Hodges-Lehmann estimate of a centre, the median of all pairwise means, with its 95 % interval: exact up to 11
//! values, a bootstrap beyond.
//!
//! The estimate is nearly as precise as the mean where the values are normal, and robust against outliers.
//!
//! Source: J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests", Annals of Mathematical Statistics
//! 34 (1963), 598-611; M. Hollander, D. A. Wolfe and E. Chicken, "Nonparametric Statistical Methods", 3rd edition
//! (2014), sections 3.1 (critical values of Wilcoxon's signed-rank
//! statistic), 3.2 (estimate) and 3.3 (exact interval, after J. W. Tukey, 1949); B. Efron and R. J. Tibshirani, "An
//! Introduction to the Bootstrap" (1993), chapter 13 (percentile interval); T. C. Hesterberg, "What Teachers Should Know
//! About the Bootstrap", The American Statistician 69 (2015), 371-386 (its correction for small samples).

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::distributions::{normal_tail, student_quantile};

pub(crate) const SIGNIFICANCE: f64 = 0.05;

/// Limit for the number of values with an exact interval.
pub(crate) const EXACT_MAX: usize = 11;

/// Number of resamples. One short of a round number, so that shares of the estimates fall on ranks.
const RESAMPLES: usize = 9_999;

/// Mean of two values of a sample, or of one with itself.
pub(crate) struct WalshAverage {
    pub(crate) value: f64,
    /// Indices of the two values; `first <= second`.
    pub(crate) first: usize,
    pub(crate) second: usize,
}

/// Returns all n (n + 1) / 2 Walsh averages of finite values in ascending order.
pub(crate) fn walsh_averages(values: &[f64]) -> Vec<WalshAverage> {
    let mut averages: Vec<WalshAverage> = (0..values.len())
        .flat_map(|first| (first..values.len()).map(move |second| (first, second)))
        .map(|(first, second)| WalshAverage {
            value: f64::midpoint(values[first], values[second]),
            first,
            second,
        })
        .collect();
    averages.sort_unstable_by(|a, b| a.value.total_cmp(&b.value));
    averages
}

/// Returns the Hodges-Lehmann estimate from sorted Walsh averages, of which there must be at least one.
pub(crate) fn hodges_lehmann(averages: &[WalshAverage]) -> f64 {
    let (lower, upper) = middle_ranks(averages.len());
    f64::midpoint(averages[lower - 1].value, averages[upper - 1].value)
}

/// Returns the ranks, counted from 1, of the two middle ones of `count` sorted values; the same twice if `count` is
/// odd.
fn middle_ranks(count: usize) -> (usize, usize) {
    (count.div_ceil(2), count / 2 + 1)
}

/// Returns the exact 95 % interval of the centre of `n` values, by inversion of Wilcoxon's signed-rank test: it contains
/// all centres that the test does not reject. `None` below six values, where even the whole range covers the centre with
/// less than 95 %.
///
/// Exact if the values are continuous and symmetric about their centre. Ties increase the coverage.
pub(crate) fn exact_interval(n: usize, averages: &[WalshAverage]) -> Option<(f64, f64)> {
    let outside = critical_value(n)?;
    let low = averages[outside].value;
    let high = averages[averages.len() - 1 - outside].value;
    Some((low, high))
}

/// Returns the 95 % bootstrap interval of the centre of `n` values. The values behind the averages must be in a fixed
/// order, or the same seed draws other resamples.
///
/// It is the *expanded percentile* interval. The plain percentile interval is too narrow for small samples: with 12
/// values it covers the centre in 91 to 93 % of cases, and Efron's `BCa` is no better
/// (`tests/fixtures/coverage.txt`). The expanded one covers it in 95 to 96 %.
///
/// Takes [`RESAMPLES`] passes over at most n (n + 1) / 2 averages.
pub(crate) fn bootstrap_interval(n: usize, averages: &[WalshAverage], seed: u64) -> (f64, f64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut copies = vec![0; n];
    let mut estimates: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            copies.fill(0);
            for _ in 0..n {
                copies[random.random_range(0..n)] += 1;
            }
            estimate_of_resample(averages, &copies)
        })
        .collect();
    estimates.sort_unstable_by(f64::total_cmp);

    // The share is at least 0.01, so the rank is at least 100.
    let rank = (tail_share(n) * (RESAMPLES + 1) as f64).round() as usize;
    (estimates[rank - 1], estimates[RESAMPLES - rank])
}

/// Returns the Hodges-Lehmann estimate of the resample that contains each value `copies` times.
///
/// Its Walsh averages are those of the sample, each as often as its two values can be paired, so no sorting is needed.
fn estimate_of_resample(averages: &[WalshAverage], copies: &[usize]) -> f64 {
    let (lower_rank, upper_rank) = middle_ranks(averages.len());
    let mut ranked = averages.iter().scan(0, |rank, average| {
        let first = copies[average.first];
        *rank += if average.first == average.second {
            first * (first + 1) / 2
        } else {
            first * copies[average.second]
        };
        Some((*rank, average.value))
    });
    let mut value_at = |wanted: usize| {
        ranked
            .find(|&(rank, _)| rank >= wanted)
            .expect("a resample has as many Walsh averages as the sample")
    };
    let (rank, lower) = value_at(lower_rank);
    if rank >= upper_rank {
        return lower;
    }
    let (_, upper) = value_at(upper_rank);
    f64::midpoint(lower, upper)
}

/// Returns the share of the estimates outside the interval at each end: the normal tail beyond sqrt(n / (n - 1)) times
/// the 97.5 % quantile of Student's t with n - 1 degrees of freedom (Hesterberg 2015). It approaches 0.025 with n.
fn tail_share(n: usize) -> f64 {
    let n = n as f64;
    normal_tail((n / (n - 1.0)).sqrt() * student_quantile(n - 1.0))
}

/// Returns the largest rank sum that the two-sided test of `n` values without ties rejects; `None` below six values,
/// where it can reject none.
pub(crate) fn critical_value(n: usize) -> Option<usize> {
    let mut so_far = 0.0;
    let probabilities = rank_sum_probabilities(1..=n);
    let rejected = probabilities
        .iter()
        .take_while(|&&probability| {
            so_far += probability;
            2.0 * so_far <= SIGNIFICANCE
        })
        .count();
    rejected.checked_sub(1)
}

/// Returns the probability of each sum, from 0 up, of ranks that are each included with probability 1/2.
fn rank_sum_probabilities(ranks: impl Iterator<Item = usize> + Clone) -> Vec<f64> {
    let mut probabilities = vec![0.0; ranks.clone().sum::<usize>() + 1];
    probabilities[0] = 1.0;
    for rank in ranks {
        // In descending order, so that each rank is included at most once.
        for sum in (0..probabilities.len()).rev() {
            let included = sum.checked_sub(rank).map_or(0.0, |rest| probabilities[rest]);
            probabilities[sum] = f64::midpoint(probabilities[sum], included);
        }
    }
    probabilities
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_three_ranks_by_hand() {
        // {} {1} {2} {3} {1,2} {1,3} {2,3} {1,2,3}
        let eighths = rank_sum_probabilities(1..=3).iter().map(|p| p * 8.0).collect::<Vec<_>>();
        assert_eq!(eighths, [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn critical_values_match_the_printed_table() {
        let table = [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (20, 52), (25, 89)];
        for (n, value) in table {
            assert_eq!(critical_value(n), Some(value), "n = {n}");
        }
    }

    #[test]
    fn nothing_is_rejected_below_six_values() {
        for n in 0..6 {
            assert_eq!(critical_value(n), None, "n = {n}");
        }
    }

    fn values(averages: &[WalshAverage]) -> Vec<f64> {
        averages.iter().map(|average| average.value).collect()
    }

    #[test]
    fn estimate_of_three_values_by_hand() {
        // 1, 3, 8 and the means of 1 and 3, of 1 and 8, of 3 and 8.
        let averages = walsh_averages(&[1.0, 8.0, 3.0]);
        assert_eq!(values(&averages), [1.0, 2.0, 3.0, 4.5, 5.5, 8.0]);
        assert_eq!(hodges_lehmann(&averages), 3.75);
    }

    #[test]
    fn odd_number_of_averages_has_a_middle() {
        let averages = walsh_averages(&[1.0, 7.0]);
        assert_eq!(values(&averages), [1.0, 4.0, 7.0]);
        assert_eq!(hodges_lehmann(&averages), 4.0);
    }

    #[test]
    fn averages_have_the_indices_of_their_values() {
        let averages = walsh_averages(&[1.0, 7.0]);
        let indices: Vec<(usize, usize)> =
            averages.iter().map(|average| (average.first, average.second)).collect();
        assert_eq!(indices, [(0, 0), (0, 1), (1, 1)]);
    }

    #[test]
    fn outlier_hardly_moves_the_estimate() {
        // Sorted: 1 1.5 2 2 2.5 2.5 3 3 3.5 4, then five with the outlier. The eighth of
        // fifteen is 3; the mean of the five values is 202.
        assert_eq!(hodges_lehmann(&walsh_averages(&[1.0, 2.0, 3.0, 4.0, 1000.0])), 3.0);
    }

    #[test]
    fn exact_interval_of_six_values_is_their_range() {
        let averages = walsh_averages(&[2.0, 3.0, 5.0, 7.0, 11.0, 13.0]);
        assert_eq!(exact_interval(6, &averages), Some((2.0, 13.0)));
    }

    #[test]
    fn exact_interval_of_seven_values_omits_two_averages_at_each_end() {
        // Ascending 1, 2, 3; descending 64, (64 + 32) / 2 = 48, (64 + 16) / 2 = 40.
        let averages = walsh_averages(&[1.0, 3.0, 7.0, 9.0, 16.0, 32.0, 64.0]);
        assert_eq!(exact_interval(7, &averages), Some((3.0, 40.0)));
    }

    #[test]
    fn resample_is_estimated_like_a_sample() {
        // Drawn from 1, 4, 9, 20: once 1, never 4, three times 9. Its ten Walsh averages:
        // 1; 5 5 5; 9 9 9 9 9 9. The fifth and the sixth are 9.
        let averages = walsh_averages(&[1.0, 4.0, 9.0, 20.0]);
        assert_eq!(estimate_of_resample(&averages, &[1, 0, 3, 0]), 9.0);
        // Twice 1, twice 20: 1 1 1; 10.5 four times; 20 20 20.
        assert_eq!(estimate_of_resample(&averages, &[2, 0, 0, 2]), 10.5);
        // Each once: 1 2.5 4 5 6.5 9 10.5 12 14.5 20, and 7.75 between the fifth and the sixth.
        assert_eq!(estimate_of_resample(&averages, &[1, 1, 1, 1]), 7.75);
    }

    #[test]
    fn small_samples_have_smaller_tails() {
        // By the tables: sqrt(12/11) * 2.201 = 2.2989, with a normal tail of 0.01076.
        assert!((tail_share(12) - 0.010_76).abs() < 0.000_02);
        assert!(tail_share(1_000) < 0.025);
        assert!(tail_share(1_000) > 0.024_8);
    }

    #[test]
    fn interval_of_equal_values_has_no_width() {
        assert_eq!(bootstrap_interval(12, &walsh_averages(&[3.0; 12]), 1), (3.0, 3.0));
    }

    #[test]
    fn seed_determines_the_resamples() {
        let values: Vec<f64> = (0..12).map(|i| f64::from(i * i * i)).collect();
        let averages = walsh_averages(&values);
        assert_eq!(bootstrap_interval(12, &averages, 1), bootstrap_interval(12, &averages, 1));
        assert_ne!(bootstrap_interval(12, &averages, 1), bootstrap_interval(12, &averages, 2));
    }

    #[test]
    fn width_is_proportional_to_the_spread() {
        let width = |scale: f64| {
            let values: Vec<f64> = (0..20).map(|i| f64::from(i * i) * scale).collect();
            let averages = walsh_averages(&values);
            let (low, high) = bootstrap_interval(20, &averages, 7);
            assert!(low < hodges_lehmann(&averages) && hodges_lehmann(&averages) < high);
            high - low
        };
        assert_eq!(width(2.0), 2.0 * width(1.0));
    }
}
