//! Wilcoxon's signed-rank test that values, one a block, have their centre at 0.
//!
//! The values are ranked by their distance from 0; where the centre is 0, each rank belongs to a
//! positive value with a chance of one half, and the sum of those ranks tells whether it does. The
//! test assumes that values are as likely on either side of their centre; the order of a block,
//! which is drawn, gives that to two subjects that are alike.
//!
//! Equal distances share the mean of their ranks. A value of 0 has no side: it is ranked with the
//! others and its rank is then left out (Pratt), rather than left out before ranking (Wilcoxon), as
//! values that all become greater could then turn a clear answer into an unclear one.
//!
//! Source: F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1 (1945),
//! 80-83; J. W. Pratt, "Remarks on zeros and ties in the Wilcoxon signed rank procedures", Journal
//! of the American Statistical Association 54 (1959), 655-667; M. Hollander, D. A. Wolfe and
//! E. Chicken, "Nonparametric Statistical Methods", 3rd edition (2014), section 3.1.

use crate::distributions::normal_tail;

/// The chance of being wrong that an interval misses the centre, or a verdict is for nothing.
pub(crate) const SIGNIFICANCE: f64 = 0.05;

/// The most values whose distribution is counted out; with more the normal one stands in.
const EXACT_MAX: usize = 100;

/// The chance that values whose centre is 0 lie to one side at least as clearly as these; both
/// sides together. They must be finite.
///
/// Exact up to `EXACT_MAX` values that are not 0, ties or not; beyond, the normal approximation
/// with the variance of the very ranks, and without a correction for continuity.
pub(crate) fn p_value(values: &[f64]) -> f64 {
    let ranks = doubled_ranks(values);
    let all: usize = ranks.iter().map(|rank| rank.doubled).sum();
    let positive: usize = ranks.iter().filter(|rank| rank.positive).map(|rank| rank.doubled).sum();
    let smaller = positive.min(all - positive);
    let one_side = if ranks.len() <= EXACT_MAX {
        rank_sum_chances(ranks.iter().map(|rank| rank.doubled))[..=smaller].iter().sum()
    } else {
        let variance = ranks.iter().map(|rank| (rank.doubled as f64).powi(2)).sum::<f64>() / 4.0;
        normal_tail((all as f64 / 2.0 - smaller as f64) / variance.sqrt())
    };
    (2.0 * one_side).min(1.0)
}

/// The largest rank sum that the two-sided test of `n` values without ties rejects; `None` when
/// it can reject none, as below six values.
pub(crate) fn critical_value(n: usize) -> Option<usize> {
    let mut so_far = 0.0;
    let chances = rank_sum_chances(1..=n);
    let rejected = chances
        .iter()
        .take_while(|&&chance| {
            so_far += chance;
            2.0 * so_far <= SIGNIFICANCE
        })
        .count();
    rejected.checked_sub(1)
}

/// The rank of a value that is not 0.
struct Rank {
    /// Twice the rank, which is whole even where it is shared.
    doubled: usize,
    /// Whether the value is on the positive side.
    positive: bool,
}

/// The ranks of the values by their distance from 0, without those of the values that are 0.
fn doubled_ranks(values: &[f64]) -> Vec<Rank> {
    let mut by_distance = values.to_vec();
    by_distance.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    let mut ranks = Vec::new();
    let mut before = 0;
    for equal in by_distance.chunk_by(|a, b| a.abs() == b.abs()) {
        // They share the ranks from before + 1 to before + equal.len().
        let doubled = 2 * before + equal.len() + 1;
        let sided = equal.iter().filter(|&&value| value != 0.0);
        ranks.extend(sided.map(|&value| Rank { doubled, positive: value > 0.0 }));
        before += equal.len();
    }
    ranks
}

/// The chance of each sum, from 0 up, of those ranks whose coin shows heads.
fn rank_sum_chances(ranks: impl Iterator<Item = usize> + Clone) -> Vec<f64> {
    let mut chances = vec![0.0; ranks.clone().sum::<usize>() + 1];
    chances[0] = 1.0;
    for rank in ranks {
        // From the top down, so that each rank is taken at most once.
        for sum in (0..chances.len()).rev() {
            let with_it = sum.checked_sub(rank).map_or(0.0, |rest| chances[rest]);
            chances[sum] = f64::midpoint(chances[sum], with_it);
        }
    }
    chances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_of_three_ranks_by_hand() {
        // {} {1} {2} {3} {1,2} {1,3} {2,3} {1,2,3}
        let eighths = rank_sum_chances(1..=3).iter().map(|chance| chance * 8.0).collect::<Vec<_>>();
        assert_eq!(eighths, [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn critical_values_are_those_of_the_printed_table() {
        let table = [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (20, 52), (25, 89)];
        for (n, value) in table {
            assert_eq!(critical_value(n), Some(value), "n = {n}");
        }
    }

    #[test]
    fn below_six_nothing_can_be_rejected() {
        for n in 0..6 {
            assert_eq!(critical_value(n), None, "n = {n}");
        }
    }

    #[test]
    fn all_on_one_side_is_one_of_two_ways() {
        // All heads or all tails, of 2^n.
        assert_eq!(p_value(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 2.0 / 64.0);
        assert_eq!(p_value(&[-1.0, -2.0, -3.0, -4.0, -5.0]), 2.0 / 32.0);
        assert_eq!(p_value(&[7.0]), 1.0);
    }

    #[test]
    fn a_small_value_on_the_other_side_by_hand() {
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
    fn zeros_are_ranked_and_take_no_side() {
        // Ranks 1.5 1.5 for the zeros, then 3 4 5, the first of them negative. Of the eight ways
        // {} and {3} have sums of at most 3.
        assert_eq!(p_value(&[0.0, 0.0, -1.0, 2.0, 3.0]), 4.0 / 8.0);
        // Ranks 3 4 5 6, the last negative: {} {3} {4} {5} {6}. Had the zeros been left out first,
        // the ranks 1 2 3 4 would have given {1,2} and {1,3} besides.
        assert_eq!(p_value(&[0.0, 0.0, 1.0, 2.0, 3.0, -4.0]), 10.0 / 16.0);
        assert_eq!(p_value(&[1.0, 2.0, 3.0, -4.0]), 14.0 / 16.0);
        // -0 is no side either.
        assert_eq!(p_value(&[0.0, -0.0, 0.0]), 1.0);
        assert_eq!(p_value(&[]), 1.0);
    }

    #[test]
    fn what_is_counted_and_what_is_approximated_meet() {
        // As many values as are counted, and one more: every third negative.
        let values = |n: i32| -> Vec<f64> {
            (1..=n).map(|i| f64::from(if i % 3 == 0 { -i } else { i })).collect()
        };
        let (counted, approximated) = (p_value(&values(100)), p_value(&values(101)));
        assert!((counted - approximated).abs() < 0.002, "{counted} {approximated}");
        // Sum 5151, negative 3 * (1 + ... + 33) = 1683; mean 2575.5, variance
        // 101 * 102 * 203 / 24 = 87138.2; z = 892.5 / 295.192 = 3.0235, which leaves 0.00125.
        assert!((approximated - 2.0 * 0.001_250).abs() < 0.000_01, "{approximated}");
    }

    #[test]
    fn a_thousand_values_to_one_side_leave_no_doubt() {
        assert!(p_value(&vec![1.0; 1_000]) < 1e-9);
    }
}
