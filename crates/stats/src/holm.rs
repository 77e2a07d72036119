//! Several verdicts in one table: Holm's correction.
//!
//! With twenty subjects that all take the same, one would be expected to "differ" at 5 % each.
//! Holm's step-down method keeps the chance of any such verdict in the table at 5 %, whatever
//! the subjects have in common, the baseline included.
//!
//! Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal
//! of Statistics 6 (1979), 65-70; in the form of adjusted p-values, S. P. Wright, "Adjusted p-values
//! for simultaneous inference", Biometrics 48 (1992), 1005-1013.

use crate::signed_rank::SIGNIFICANCE;

/// The p-values, in the same order, each as large as its table makes it.
///
/// The smallest of m is taken m times, the next m - 1 times, and so on, none less than the one
/// before it and none above 1.
///
/// # Panics
///
/// When one is not a chance, from 0 to 1.
pub fn holm(p: &[f64]) -> Vec<f64> {
    for value in p {
        assert!((0.0..=1.0).contains(value), "{value} is not a p-value");
    }
    let mut from_smallest: Vec<usize> = (0..p.len()).collect();
    from_smallest.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least: f64 = 0.0;
    for (before, &position) in from_smallest.iter().enumerate() {
        least = least.max((p.len() - before) as f64 * p[position]).min(1.0);
        adjusted[position] = least;
    }
    adjusted
}

/// The fewest blocks with which each of `verdicts` subjects in a table can be found to differ.
///
/// With n blocks the signed-rank test has no p-value below 2 / 2^n, and the clearest of m verdicts
/// has to hold m times that: six blocks are enough for one subject besides the baseline, seven for
/// up to three, eight for six. With fewer, no run is ever settled, however large the prices.
pub fn blocks_to_settle(verdicts: usize) -> usize {
    let mut blocks = 1;
    let mut smallest_p = 1.0;
    while smallest_p * verdicts.max(1) as f64 > SIGNIFICANCE {
        blocks += 1;
        smallest_p /= 2.0;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_p_values_by_hand() {
        // From the smallest: 0.125 * 3, 0.25 * 2, 0.5 * 1.
        assert_eq!(holm(&[0.25, 0.125, 0.5]), [0.5, 0.375, 0.5]);
    }

    #[test]
    fn none_is_less_than_a_smaller_one() {
        // 0.25 * 3 = 0.75, and 0.3125 * 2 = 0.625 is raised to it, as is 0.375.
        assert_eq!(holm(&[0.375, 0.3125, 0.25]), [0.75; 3]);
    }

    #[test]
    fn none_is_above_one() {
        assert_eq!(holm(&[0.5, 0.75, 1.0]), [1.0; 3]);
    }

    #[test]
    fn one_alone_stays_as_it_is() {
        assert_eq!(holm(&[0.03125]), [0.03125]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }

    #[test]
    #[should_panic(expected = "NaN is not a p-value")]
    fn what_is_not_a_chance_is_refused() {
        holm(&[0.5, f64::NAN]);
    }

    #[test]
    fn more_verdicts_need_more_blocks() {
        // 2 / 2^6 = 0.03125; 3 * 2 / 2^7 = 0.0469; 6 * 2 / 2^8 = 0.0469; 12 * 2 / 2^9 = 0.0469.
        for (verdicts, blocks) in [(0, 6), (1, 6), (2, 7), (3, 7), (4, 8), (6, 8), (7, 9), (12, 9)]
        {
            assert_eq!(blocks_to_settle(verdicts), blocks, "{verdicts} verdicts");
        }
    }
}
