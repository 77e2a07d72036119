//! Comparison of two independent samples, such as those of two runs: the Hodges-Lehmann shift, with the interval from
//! inversion of the rank-sum test.
//!
//! Source: J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests", Annals of
//! Mathematical Statistics 34 (1963), 598-611 (the shift); H. B. Mann and D. R. Whitney, "On a test of
//! whether one of two random variables is stochastically larger than the other", Annals of
//! Mathematical Statistics 18 (1947), 50-60 (the distribution); M. Hollander, D. A. Wolfe and E.
//! Chicken, "Nonparametric Statistical Methods", 3rd edition (2014), sections 4.1 to 4.3 (the
//! interval, after L. E. Moses).

use crate::distributions::{NORMAL_QUANTILE, normal_tail};
use crate::paired::{BLOCKS_MAX, Estimate, Interval};
use crate::summary::{median_of_sorted, sorted};

/// Ratio of a new sample to an old one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// Ratio new / old; `n` is the size of the smaller sample.
    pub ratio: Estimate,
    /// Two-sided p-value of the rank-sum test that the ratio is 1.
    pub p: f64,
}

/// Estimates the ratio of the values of `new` to those of `old`.
///
/// The estimate is the median of all new / old, taken on logarithms, so that half and double cancel out. The interval is
/// exact if the values are continuous and the two distributions differ by a factor only; ties increase the coverage. Up
/// to a hundred values in total it uses the exact distribution of the rank-sum statistic, beyond that its normal
/// approximation.
///
/// A 95 % interval needs samples whose values can be ordered in at least 40 ways: 4 and 4 values (70 ways), 3 and 5 (56),
/// 2 and 8 (45). With fewer values the interval is the range of all new / old.
///
/// `None` if a sample is empty, or a value is not positive and finite.
///
/// # Panics
///
/// With more than [`BLOCKS_MAX`] values in a sample.
pub fn ratio_of_samples(old: &[f64], new: &[f64]) -> Option<Shift> {
    let (old, new) = (logs(old)?, logs(new)?);
    let differences: Vec<f64> =
        new.iter().flat_map(|new| old.iter().map(move |old| new - old)).collect();
    let differences = sorted(&differences);
    let (&min, &max) = differences.first().zip(differences.last())?;
    let interval = match critical_value(old.len(), new.len()) {
        Some(outside) => Interval::Confidence {
            low: differences[outside].exp(),
            high: differences[differences.len() - 1 - outside].exp(),
        },
        None => Interval::TooFew { min: min.exp(), max: max.exp() },
    };
    let point = median_of_sorted(&differences).exp();
    let ratio = Estimate { point, interval, n: old.len().min(new.len()) };
    Some(Shift { ratio, p: two_sided_p(&differences, old.len(), new.len()) })
}

/// Limit for the values of both samples with an exact distribution. The counts of twice as many would overflow.
const EXACT_MAX: usize = 100;

/// Inverse of the probability of one tail.
const TAIL_INVERSE: u128 = 40;

fn logs(values: &[f64]) -> Option<Vec<f64>> {
    let n = values.len();
    assert!(n <= BLOCKS_MAX, "{n} values are more than {BLOCKS_MAX}");
    let log = |value: &f64| (value.is_finite() && *value > 0.0).then(|| value.ln());
    values.iter().map(log).collect()
}

/// Returns the number of differences outside the interval at each end; `None` if even the whole range covers the shift
/// with less than 95 %.
fn critical_value(old: usize, new: usize) -> Option<usize> {
    if old + new > EXACT_MAX {
        let (mean, deviation) = normal_moments(old, new);
        let first_inside = (mean - NORMAL_QUANTILE * deviation).floor();
        // Ranks count from 1; those before the first inside are outside.
        return (first_inside >= 1.0).then(|| first_inside as usize - 1);
    }
    let ways = ways(old, new);
    let all_ways: u128 = ways.iter().sum();
    let mut ways_so_far = 0;
    let rejected = ways.iter().take_while(|&&ways_to_count| {
        ways_so_far += ways_to_count;
        TAIL_INVERSE * ways_so_far <= all_ways
    });
    rejected.count().checked_sub(1)
}

/// Returns the two-sided p-value of the rank-sum test. A tie counts one half to either side; half a count is rounded to
/// the larger p.
fn two_sided_p(differences: &[f64], old: usize, new: usize) -> f64 {
    let twice_above: usize = differences
        .iter()
        .map(|&difference| usize::from(difference > 0.0) + usize::from(difference >= 0.0))
        .sum();
    let twice_fewer = twice_above.min(2 * differences.len() - twice_above);
    let fewer = twice_fewer.div_ceil(2);
    let tail = if old + new > EXACT_MAX {
        let (mean, deviation) = normal_moments(old, new);
        // With correction for continuity. Ties would only make the deviation smaller.
        normal_tail(((mean - fewer as f64 - 0.5) / deviation).max(0.0))
    } else {
        let ways = ways(old, new);
        let all_ways: u128 = ways.iter().sum();
        let as_extreme: u128 = ways[..=fewer].iter().sum();
        as_extreme as f64 / all_ways as f64
    };
    (2.0 * tail).min(1.0)
}

/// Returns mean and standard deviation of the number of positive differences between samples of one distribution.
fn normal_moments(old: usize, new: usize) -> (f64, f64) {
    let (old, new) = (old as f64, new as f64);
    (old * new / 2.0, (old * new * (old + new + 1.0) / 12.0).sqrt())
}

/// Returns, for each number of pairs with the new value above the old, the number of orders of `old` and `new` values
/// that have it: the distribution of the Mann-Whitney statistic, times the number of orders.
fn ways(old: usize, new: usize) -> Vec<u128> {
    assert!(old + new <= EXACT_MAX, "{old} and {new} values are beyond the exact limit");
    // ways[k][count]: orders of the values so far, in ascending order, with k new ones.
    let mut ways = vec![vec![0_u128; old * new + 1]; new + 1];
    ways[0][0] = 1;
    for so_far in 0..old + new {
        // In descending order, so that each value is placed once.
        for placed in (so_far.saturating_sub(old)..=so_far.min(new)).rev() {
            let below = so_far - placed;
            if placed == new {
                continue;
            }
            let (from, to) = ways.split_at_mut(placed + 1);
            for count in below..=old * new {
                to[0][count] += from[placed][count - below];
            }
        }
    }
    ways.swap_remove(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_two_and_two_by_hand() {
        // o o n n: 4; o n o n: 3; o n n o and n o o n: 2; n o n o: 1; n n o o: 0.
        assert_eq!(ways(2, 2), [1, 1, 2, 1, 1]);
        // The new value above 0, 1, 2 or 3 old ones.
        assert_eq!(ways(3, 1), [1, 1, 1, 1]);
        assert_eq!(ways(1, 3), [1, 1, 1, 1]);
    }

    #[test]
    fn orders_add_up_to_the_binomial_coefficient() {
        // 100 over 50, from the printed tables of binomials.
        let all: u128 = ways(50, 50).iter().sum();
        assert_eq!(all, 100_891_344_545_564_193_334_812_497_256);
    }

    #[test]
    fn critical_values_match_the_printed_table() {
        let table = [
            (4, 4, 0),
            (3, 5, 0),
            (2, 8, 0),
            (5, 5, 2),
            (5, 6, 3),
            (6, 6, 5),
            (6, 8, 8),
            (7, 7, 8),
            (8, 8, 13),
            (8, 10, 17),
            (10, 10, 23),
            (20, 20, 127),
        ];
        for (old, new, value) in table {
            assert_eq!(critical_value(old, new), Some(value), "{old} and {new}");
            assert_eq!(critical_value(new, old), Some(value), "{new} and {old}");
        }
    }

    #[test]
    fn too_few_values_have_no_critical_value() {
        for (old, new) in [(1, 1), (3, 4), (2, 7), (1, 38)] {
            assert_eq!(critical_value(old, new), None, "{old} and {new}");
        }
        assert_eq!(critical_value(1, 39), Some(0));
    }

    #[test]
    fn approximation_continues_the_exact_critical_values() {
        // By hand for 51 and 51: mean 1300.5, deviation sqrt(2601 * 103 / 12) = 149.416;
        // 1300.5 - 1.95996 * 149.416 = 1007.65, so 1006 lie outside.
        assert_eq!(critical_value(51, 51), Some(1_006));
        // Exact, for 50 and 50: 1250 - 1.95996 * sqrt(2500 * 101 / 12) = 965.7, so 964 or 965.
        assert!((964..=965).contains(&critical_value(50, 50).unwrap()));
    }
}
