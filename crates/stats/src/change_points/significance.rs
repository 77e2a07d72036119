//! Whether a division of a series is more than an accident.

use std::ops::Range;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;

use super::Division;
use super::energy::{Candidate, best_division, places};
use crate::distributions::student_two_sided;

/// How often the values are shuffled. One short of a round number, so that the p-values are shares of
/// one.
const PERMUTATIONS: usize = 9_999;

/// By how much of itself a statistic may fall short of another and still count as equal: the same
/// values in another order are added up in another order, too.
const ROUNDING: f64 = 1e-9;

/// What tells a change of the level from an accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DivisionTest {
    /// The values of each segment are shuffled again and again: how often does another order show a
    /// division at least as clear? It takes nothing for granted but that the order is an accident where
    /// nothing changes, and it cannot be clearer than there are orders: at 5 % no series of fewer than
    /// six values is divided, none in its middle by a clean step of fewer than eight, and none behind
    /// its first two of fewer than ten.
    ///
    /// Source: Matteson and James (2014), section 3; counting the order that was seen as one of those
    /// that were drawn, B. Phipson and G. K. Smyth, "Permutation P-values should never be zero",
    /// Statistical Applications in Genetics and Molecular Biology 9 (2010), article 39.
    Permutations {
        /// What the orders are drawn from.
        seed: u64,
    },
    /// Student's test of the values before against those after, whose p is taken as often as there were
    /// places to choose from (Bonferroni). It takes the noise for normal; then even four values can be
    /// told apart, if they lie far enough apart.
    ///
    /// Source: M. Fleming, P. Kołaczkowski and others, "Hunter: Using Change Point Detection to Hunt
    /// for Performance Regressions", ICPE 2023, doi 10.1145/3578244.3583719, which asks for a p below
    /// 0.001 instead, however many places there are.
    Student,
}

/// A division that is to be tested, and all that it was chosen from.
pub(super) struct Tested<'a> {
    pub(super) series: &'a [f64],
    /// The segments of the series before this division.
    pub(super) ranges: &'a [Range<usize>],
    /// Which of them would be divided, as a position in `ranges`.
    pub(super) position: usize,
    pub(super) candidate: Candidate,
    /// How many divisions came before this one.
    pub(super) stage: u64,
}

impl Tested<'_> {
    /// The p of the division; `None` when it is not significant.
    pub(super) fn p(&self, division: &Division) -> Option<f64> {
        let p = match division.test {
            DivisionTest::Permutations { seed } => self.p_by_permutations(seed, division)?,
            DivisionTest::Student => self.p_of_student(division.segment_min),
        };
        (p <= division.significance).then_some(p)
    }

    /// `None` as soon as it can only be above what was asked for, so that a series without another change
    /// takes a part of the shuffles only.
    fn p_by_permutations(&self, seed: u64, division: &Division) -> Option<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(self.stage);
        let as_clear = self.candidate.q * (1.0 - ROUNDING);
        let mut shuffled = self.series.to_vec();
        // The order that was seen is one of them.
        let mut as_clear_count = 1_usize;
        let share = |count: usize| count as f64 / (PERMUTATIONS + 1) as f64;
        for _ in 0..PERMUTATIONS {
            for range in self.ranges {
                shuffled[range.clone()].shuffle(&mut random);
            }
            let is_as_clear = self.ranges.iter().any(|range| {
                best_division(&shuffled[range.clone()], division.segment_min)
                    .is_some_and(|best| best.q >= as_clear)
            });
            as_clear_count += usize::from(is_as_clear);
            if share(as_clear_count) > division.significance {
                return None;
            }
        }
        Some(share(as_clear_count))
    }

    fn p_of_student(&self, segment_min: usize) -> f64 {
        let range = &self.ranges[self.position];
        let before = &self.series[range.start..self.candidate.index];
        let after = &self.series[self.candidate.index..self.candidate.end];
        let places: usize = self.ranges.iter().map(|range| places(range.len(), segment_min)).sum();
        (p_of_two_means(before, after) * places as f64).min(1.0)
    }
}

/// The two-sided p of Student's test of two samples, with one variance for both; 1 where two values
/// are all.
fn p_of_two_means(first: &[f64], second: &[f64]) -> f64 {
    let [(n, mean, squares), (m, other_mean, other_squares)] = [first, second].map(|sample| {
        let n = sample.len() as f64;
        let mean = sample.iter().sum::<f64>() / n;
        (n, mean, sample.iter().map(|value| (value - mean).powi(2)).sum::<f64>())
    });
    let degrees_of_freedom = first.len() + second.len() - 2;
    if degrees_of_freedom == 0 {
        return 1.0;
    }
    let variance = (squares + other_squares) / degrees_of_freedom as f64;
    let t = (mean - other_mean).abs() / (variance * (1.0 / n + 1.0 / m)).sqrt();
    student_two_sided(t, degrees_of_freedom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_by_hand() {
        // Means 1.5 and 7, squares 0.5 and 8, variance 8.5 / 2; t = 5.5 / sqrt(4.25) = 2.6679. With two
        // degrees of freedom p = 1 - t / sqrt(t^2 + 2) = 0.116459.
        assert!((p_of_two_means(&[1.0, 2.0], &[5.0, 9.0]) - 0.116_459).abs() < 1e-6);
        // A single value beside two: mean 1.5, squares 0.5, variance 0.5, t = 7.5 / sqrt(0.75) = 8.6603.
        // With one degree of freedom p = 1 - 2 / pi * arctan(t) = 0.073186.
        assert!((p_of_two_means(&[1.0, 2.0], &[9.0]) - 0.073_186).abs() < 1e-6);
    }

    #[test]
    fn two_values_say_nothing_and_two_sharp_levels_all() {
        assert_eq!(p_of_two_means(&[1.0], &[9.0]), 1.0);
        assert_eq!(p_of_two_means(&[1.0, 1.0], &[9.0, 9.0]), 0.0);
    }

    #[test]
    fn the_clearest_order_of_eight_is_two_of_seventy() {
        let series = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
        let candidate = best_division(&series, 2).unwrap();
        let tested = Tested { series: &series, ranges: &[0..8], position: 0, candidate, stage: 0 };
        let division = Division {
            segment_min: 2,
            significance: 0.05,
            test: DivisionTest::Permutations { seed: 7 },
        };
        // All four of a kind first: 2 of the 70 ways to place four; four standard errors of the draw.
        let (p, exact) = (tested.p(&division).unwrap(), 2.0_f64 / 70.0);
        let slack = 4.0 * (exact * (1.0 - exact) / PERMUTATIONS as f64).sqrt();
        assert!((p - exact).abs() < slack, "{p}");
        assert_eq!(tested.p(&Division { significance: 0.01, ..division }), None);
    }
}
