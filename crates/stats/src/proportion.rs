//! Proportions: intervals, a score of two of them, and the comparison of two judges on the same cases.

use crate::distributions::NORMAL_QUANTILE;

/// A proportion with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proportion {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

/// Returns the proportion of `count` in `all` with Wilson's score interval. `None` without cases.
///
/// Source: E. B. Wilson, JASA 22 (1927), 209-212; recommended for few cases by L. D. Brown, T. T. Cai and A. DasGupta,
/// Statistical Science 16 (2001), 101-133.
pub fn proportion(count: u64, all: u64) -> Option<Proportion> {
    if all == 0 {
        return None;
    }
    let (n, z) = (all as f64, NORMAL_QUANTILE);
    let estimate = count.min(all) as f64 / n;
    let scale = 1.0 + z * z / n;
    let center = (estimate + z * z / (2.0 * n)) / scale;
    let half = z / scale * (estimate * (1.0 - estimate) / n + z * z / (4.0 * n * n)).sqrt();
    // At 0 and at 1 the interval ends there, but for the rounding.
    let low = if count == 0 { 0.0 } else { center - half };
    let high = if count >= all { 1.0 } else { center + half };
    Some(Proportion { estimate, low, high })
}

/// Returns the mean of two independent proportions, with an interval from those of both.
///
/// Source: R. G. Newcombe, Statistics in Medicine 17 (1998), 873-890, method 10, for the mean instead of the difference.
pub fn mean_of_two(a: Proportion, b: Proportion) -> Proportion {
    let estimate = f64::midpoint(a.estimate, b.estimate);
    let below = (a.estimate - a.low).hypot(b.estimate - b.low) / 2.0;
    let above = (a.high - a.estimate).hypot(b.high - b.estimate) / 2.0;
    Proportion { estimate, low: estimate - below, high: estimate + above }
}

/// Returns the two-sided p-value of McNemar's exact test: the probability that two equally good judges differ at least
/// this much on the cases of which one alone is right.
pub fn mcnemar_p(first_only: u64, second_only: u64) -> f64 {
    let all = first_only + second_only;
    let fewer = first_only.min(second_only);
    // The binomial distribution of one half, in logarithms: its terms underflow above a thousand cases.
    let mut log_term = -(all as f64) * std::f64::consts::LN_2;
    let mut tail = log_term.exp();
    for k in 1..=fewer {
        log_term += ((all - k + 1) as f64 / k as f64).ln();
        tail += log_term.exp();
    }
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_close(found: Proportion, expected: [f64; 3]) {
        let found = [found.estimate, found.low, found.high];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 5e-5, "{found} instead of {expected}");
        }
    }

    #[test]
    fn wilson_intervals_match_published_ones() {
        // Newcombe, Statistics in Medicine 17 (1998), 857-872, table I, method 3.
        is_close(proportion(81, 263).unwrap(), [0.307_98, 0.2553, 0.3662]);
        is_close(proportion(15, 148).unwrap(), [0.101_35, 0.0624, 0.1605]);
        is_close(proportion(0, 20).unwrap(), [0.0, 0.0, 0.1611]);
        is_close(proportion(1, 29).unwrap(), [0.034_48, 0.0061, 0.1718]);
        is_close(proportion(20, 20).unwrap(), [1.0, 0.8389, 1.0]);
        assert_eq!(proportion(0, 0), None);
    }

    #[test]
    fn mean_lies_between_and_is_as_wide_as_its_parts_allow() {
        let part = |estimate, low, high| Proportion { estimate, low, high };
        let mean = mean_of_two(part(0.9, 0.87, 0.92), part(0.5, 0.46, 0.56));
        // Half of 0.05 (3, 4, 5) below, and half of sqrt(0.02^2 + 0.06^2) above.
        is_close(mean, [0.7, 0.675, 0.7 + 0.031_623]);
    }

    #[test]
    fn mcnemar_matches_hand_derived_tails() {
        let is_close = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-12, "{found} instead of {expected}");
        };
        is_close(mcnemar_p(0, 0), 1.0);
        is_close(mcnemar_p(3, 3), 1.0);
        // 2 / 2^5, and 2 (1 + 10) / 2^10.
        is_close(mcnemar_p(5, 0), 0.0625);
        is_close(mcnemar_p(1, 9), 22.0 / 1024.0);
        is_close(mcnemar_p(9, 1), mcnemar_p(1, 9));
        assert!(mcnemar_p(2_000, 0) < 1e-300 && mcnemar_p(2_000, 1_990) > 0.8);
    }
}
