//! The exact interval of a centre, by turning Wilcoxon's signed-rank test round: it holds every
//! centre that the test would not reject.
//!
//! Exact where the values are continuous and symmetric about their centre. Ties only make it
//! cover more.
//!
//! Source: M. Hollander, D. A. Wolfe and E. Chicken, "Nonparametric Statistical Methods", 3rd
//! edition (2014), section 3.3, after J. W. Tukey (1949).

use crate::hodges_lehmann::WalshAverage;

/// The largest sample whose interval is taken from here. The null distribution of one more value
/// would be no trouble, but the method moves on to the bootstrap there.
pub(crate) const SAMPLES_MAX: usize = 11;

/// The chance that the interval misses the centre, both sides together.
const MISS: f64 = 0.05;

/// The 95 % interval of the centre of `n` values, from their sorted Walsh averages.
///
/// `None` below six values: even the whole range of what was seen then covers the centre with
/// less than 95 %.
pub(crate) fn interval(n: usize, averages: &[WalshAverage]) -> Option<(f64, f64)> {
    let outside = critical_value(n)?;
    let low = averages[outside].value;
    let high = averages[averages.len() - 1 - outside].value;
    Some((low, high))
}

/// The largest rank sum that the two-sided test of `n` values rejects; `None` when it can reject
/// none. As many Walsh averages lie outside the interval at either end.
fn critical_value(n: usize) -> Option<usize> {
    let ways = rank_sums(n);
    let all_ways: u32 = ways.iter().sum();
    let mut ways_so_far = 0;
    let rejected = ways
        .iter()
        .take_while(|&&ways_to_sum| {
            ways_so_far += ways_to_sum;
            2.0 * f64::from(ways_so_far) <= MISS * f64::from(all_ways)
        })
        .count();
    rejected.checked_sub(1)
}

/// In how many ways a subset of the ranks 1 to `n` adds up to each sum: the distribution of the
/// signed-rank statistic, times 2^n, when every sign is a coin toss.
fn rank_sums(n: usize) -> Vec<u32> {
    assert!(n <= SAMPLES_MAX, "{n} values are too many for the exact interval");
    let mut ways = vec![0; n * (n + 1) / 2 + 1];
    ways[0] = 1;
    for rank in 1..=n {
        // From the top down, so that each rank is taken at most once.
        for sum in (rank..ways.len()).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hodges_lehmann::walsh_averages;

    #[test]
    fn rank_sums_of_three_by_hand() {
        // {} {1} {2} {3} {1,2} {1,3} {2,3} {1,2,3}
        assert_eq!(rank_sums(3), [1, 1, 1, 2, 1, 1, 1]);
    }

    #[test]
    fn critical_values_are_those_of_the_printed_table() {
        let table = [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10)];
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
    fn six_values_give_the_whole_range() {
        let averages = walsh_averages(&[2.0, 3.0, 5.0, 7.0, 11.0, 13.0]);
        assert_eq!(interval(6, &averages), Some((2.0, 13.0)));
    }

    #[test]
    fn seven_values_leave_two_averages_out_at_either_end() {
        // From below 1, 2, 3; from above 64, (64 + 32) / 2 = 48, (64 + 16) / 2 = 40.
        let averages = walsh_averages(&[1.0, 3.0, 7.0, 9.0, 16.0, 32.0, 64.0]);
        assert_eq!(interval(7, &averages), Some((3.0, 40.0)));
    }
}
