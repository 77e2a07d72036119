//! Wilcoxon's signed-rank test that the centre of values, one per block, is 0.
//!
//! Assumes a distribution that is symmetric about its centre; the random order within a block makes the difference of
//! two equal subjects symmetric.
//!
//! Equal distances from 0 share the mean of their ranks. A value of 0 is ranked with the others and its rank is then
//! dropped (Pratt), not dropped before ranking (Wilcoxon): otherwise raising all values could make a significant
//! result insignificant.
//!
//! Source: F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1 (1945),
//! 80-83; J. W. Pratt, "Remarks on zeros and ties in the Wilcoxon signed rank procedures", Journal
//! of the American Statistical Association 54 (1959), 655-667; M. Hollander, D. A. Wolfe and
//! E. Chicken, "Nonparametric Statistical Methods", 3rd edition (2014), section 3.1.

use crate::distributions::normal_tail;

/// Significance level of intervals and verdicts.
pub(crate) const SIGNIFICANCE: f64 = 0.05;

/// Limit for the number of values whose distribution is computed exactly.
const EXACT_MAX: usize = 100;

/// Returns the two-sided p-value of finite values.
///
/// Exact up to [`EXACT_MAX`] values other than 0, with or without ties; beyond that by the normal approximation with
/// the variance of the actual ranks and without correction for continuity.
pub(crate) fn p_value(values: &[f64]) -> f64 {
    let ranks = doubled_ranks(values);
    let all: usize = ranks.iter().map(|rank| rank.doubled).sum();
    let positive: usize = ranks.iter().filter(|rank| rank.positive).map(|rank| rank.doubled).sum();
    let smaller = positive.min(all - positive);
    let one_side = if ranks.len() <= EXACT_MAX {
        rank_sum_probabilities(ranks.iter().map(|rank| rank.doubled))[..=smaller].iter().sum()
    } else {
        let variance = ranks.iter().map(|rank| (rank.doubled as f64).powi(2)).sum::<f64>() / 4.0;
        normal_tail((all as f64 / 2.0 - smaller as f64) / variance.sqrt())
    };
    (2.0 * one_side).min(1.0)
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

/// Rank of a value other than 0.
struct Rank {
    /// Twice the rank, which is an integer even if shared.
    doubled: usize,
    positive: bool,
}

/// Ranks the values by their distance from 0, and drops the ranks of zeros.
fn doubled_ranks(values: &[f64]) -> Vec<Rank> {
    let mut by_distance = values.to_vec();
    by_distance.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    let mut ranks = Vec::new();
    let mut before = 0;
    for equal in by_distance.chunk_by(|a, b| a.abs() == b.abs()) {
        // The values share the ranks from before + 1 to before + equal.len().
        let doubled = 2 * before + equal.len() + 1;
        let sided = equal.iter().filter(|&&value| value != 0.0);
        ranks.extend(sided.map(|&value| Rank { doubled, positive: value > 0.0 }));
        before += equal.len();
    }
    ranks
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

    #[test]
    fn p_of_values_on_one_side_by_hand() {
        // Two of 2^n combinations of signs.
        assert_eq!(p_value(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 2.0 / 64.0);
        assert_eq!(p_value(&[-1.0, -2.0, -3.0, -4.0, -5.0]), 2.0 / 32.0);
        assert_eq!(p_value(&[7.0]), 1.0);
    }

    #[test]
    fn p_of_one_value_on_the_other_side_by_hand() {
        // The negative ranks are {1}: sums of at most 1 are {} and {1}, two of 64, on both sides.
        assert_eq!(p_value(&[-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 4.0 / 64.0);
        // {2}: {} {1} {2}.
        assert_eq!(p_value(&[1.0, -2.0, 3.0, 4.0, 5.0, 6.0]), 6.0 / 64.0);
        // {3}: {} {1} {2} {3} {1,2}.
        assert_eq!(p_value(&[1.0, 2.0, -3.0, 4.0, 5.0, 6.0]), 10.0 / 64.0);
    }

    #[test]
    fn ties_share_their_ranks() {
        // Ranks 1.5 1.5 3 4, the second negative. Sums of at most 1.5: {}, and either of the two:
        // three of sixteen on each side.
        assert_eq!(p_value(&[1.0, -1.0, 2.0, 3.0]), 6.0 / 16.0);
    }

    #[test]
    fn zeros_are_ranked_and_dropped() {
        // Ranks 1.5 1.5 for the zeros, then 3 4 5, the first of them negative. Of the eight ways
        // {} and {3} have sums of at most 3.
        assert_eq!(p_value(&[0.0, 0.0, -1.0, 2.0, 3.0]), 4.0 / 8.0);
        // Ranks 3 4 5 6, the last negative: {} {3} {4} {5} {6}. Dropping the zeros first would give the
        // ranks 1 2 3 4, and {1,2} and {1,3} besides.
        assert_eq!(p_value(&[0.0, 0.0, 1.0, 2.0, 3.0, -4.0]), 10.0 / 16.0);
        assert_eq!(p_value(&[1.0, 2.0, 3.0, -4.0]), 14.0 / 16.0);
        assert_eq!(p_value(&[0.0, -0.0, 0.0]), 1.0);
        assert_eq!(p_value(&[]), 1.0);
    }

    #[test]
    fn exact_and_approximate_p_agree() {
        // The limit of the exact test, and one more; every third value is negative.
        let values = |n: i32| -> Vec<f64> {
            (1..=n).map(|i| f64::from(if i % 3 == 0 { -i } else { i })).collect()
        };
        let (exact, approximated) = (p_value(&values(100)), p_value(&values(101)));
        assert!((exact - approximated).abs() < 0.002, "{exact} {approximated}");
        // Sum 5151, negative 3 * (1 + ... + 33) = 1683; mean 2575.5, variance
        // 101 * 102 * 203 / 24 = 87138.2; z = 892.5 / 295.192 = 3.0235, with a tail of 0.00125.
        assert!((approximated - 2.0 * 0.001_250).abs() < 0.000_01, "{approximated}");
    }

    #[test]
    fn p_of_a_thousand_positive_values_is_tiny() {
        assert!(p_value(&vec![1.0; 1_000]) < 1e-9);
    }
}
