//! Change points of a series, such as the prices of successive revisions: e-divisive, which divides the series repeatedly
//! where the energy statistic is largest, while a test finds the division significant.
//!
//! Source: D. S. Matteson and N. A. James, "A Nonparametric Approach for Multiple Change Point Analysis of Multivariate
//! Data", Journal of the American Statistical Association 109 (2014), 334-345, doi 10.1080/01621459.2013.849605 (sections
//! 2 and 3; equations (5) to (7) with the exponent 1).

use std::ops::Range;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;

use crate::distributions::student_two_sided;

/// Limit for the values of a series. The work of the permutation test grows with their square, and takes seconds at
/// this limit.
pub const SERIES_MAX: usize = 500;

/// Number of permutations. One short of a round number, so that p-values are shares of one.
const PERMUTATIONS: usize = 9_999;

/// Relative difference up to which two statistics count as equal: the order of a sum changes its rounding.
const ROUNDING: f64 = 1e-9;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Division {
    /// Minimum of values on either side of a change point, at least 1. With 1, an outlier at an end may pass for a new
    /// level; with 2, a change at the last value cannot be found.
    pub segment_min: usize,
    /// Largest p-value of a significant division.
    pub significance: f64,
    pub test: DivisionTest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DivisionTest {
    /// Permutes the values of each segment, and counts the permutations with a division at least as clear. Assumes only
    /// that the order of values is random where nothing changes. The number of orders limits the p-value: at 5 % no
    /// series of fewer than six values is divided, none in its middle by a clean step of fewer than eight, and none
    /// after its first two of fewer than ten.
    ///
    /// Source: Matteson and James (2014), section 3; counting the observed order as one permutation, B. Phipson and G. K.
    /// Smyth, "Permutation P-values should never be zero", Statistical Applications in Genetics and Molecular Biology 9
    /// (2010), article 39.
    Permutations { seed: u64 },
    /// Student's test of the values before and after, with the p-value multiplied by the number of possible divisions
    /// (Bonferroni). Assumes normal noise; can then divide even four values, if they lie far enough apart.
    ///
    /// Source: M. Fleming, P. Kołaczkowski and others, "Hunter: Using Change Point Detection to Hunt for Performance
    /// Regressions", ICPE 2023, doi 10.1145/3578244.3583719, which requires a p-value below 0.001 instead of the
    /// correction.
    Student,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// Index of the first value of the new level.
    pub index: usize,
    /// Energy statistic of the division, in the unit of the series.
    pub q: f64,
    pub p: f64,
}

/// Finds the change points of `series`, in ascending order. `None` if a value is not finite.
///
/// Divides at the clearest point, then searches both parts alike, until the clearest division left is not significant.
/// At a significance of 5 %, one series in twenty without a change is divided. Pass ratios as logarithms, so that half
/// and double weigh the same.
///
/// # Panics
///
/// With more than [`SERIES_MAX`] values, or a `segment_min` of 0.
pub fn e_divisive(series: &[f64], division: &Division) -> Option<Vec<ChangePoint>> {
    let n = series.len();
    assert!(n <= SERIES_MAX, "{n} values are more than {SERIES_MAX}");
    assert!(division.segment_min >= 1, "a segment has at least one value");
    if !series.iter().all(|value| value.is_finite()) {
        return None;
    }
    let candidate_in = |range: &Range<usize>| {
        let best = best_division(&series[range.clone()], division.segment_min)?;
        let (index, end) = (range.start + best.index, range.start + best.end);
        Some(Candidate { index, end, q: best.q })
    };
    let whole = 0..n;
    let mut candidates = vec![candidate_in(&whole)];
    let mut segments = vec![whole];
    let mut found = Vec::new();
    for stage in 0.. {
        let clearest = candidates.iter().enumerate().filter_map(|(at, one)| Some((at, (*one)?)));
        let clearest = clearest.max_by(|(_, a), (_, b)| a.q.total_cmp(&b.q));
        let Some((segment, candidate)) = clearest else { break };
        let test = Test { series, segments: &segments, segment, candidate, stage };
        let Some(p) = test.p(division) else { break };
        found.push(ChangePoint { index: candidate.index, q: candidate.q, p });
        let Range { start, end } = segments[segment];
        let halves = [start..candidate.index, candidate.index..end];
        candidates.splice(segment..=segment, halves.each_ref().map(candidate_in));
        segments.splice(segment..=segment, halves);
    }
    found.sort_unstable_by_key(|change| change.index);
    Some(found)
}

/// Possible division of a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    /// Index of the first value after the division.
    index: usize,
    /// Index after the last value that is compared with the values before the division.
    end: usize,
    q: f64,
}

/// Returns the division of `values` with the largest energy statistic; `None` with too few values, or if all are equal.
///
/// The values after the division need not extend to the end: if the level changes and returns, the first part after the
/// change shows it more clearly than the whole rest.
fn best_division(values: &[f64], segment_min: usize) -> Option<Candidate> {
    let n = values.len();
    if n < 2 * segment_min {
        return None;
    }
    let sums = DistanceSums::new(values);
    let mut best: Option<Candidate> = None;
    for index in segment_min..=n - segment_min {
        for end in index + segment_min..=n {
            let q = sums.energy(index, end);
            if q > best.map_or(0.0, |best| best.q) {
                best = Some(Candidate { index, end, q });
            }
        }
    }
    best
}

/// Returns the number of divisions that [`best_division`] compares.
fn division_count(values: usize, segment_min: usize) -> usize {
    // This many with the whole right part, one fewer without the last value, and so on.
    let most = (values + 1).saturating_sub(2 * segment_min);
    most * (most + 1) / 2
}

/// Cumulative sums of the distances between values, so that the sum over any two stretches takes four look-ups.
struct DistanceSums {
    width: usize,
    /// At row i and column j, the sum over all pairs of the first i with the first j values.
    sums: Vec<f64>,
}

impl DistanceSums {
    fn new(values: &[f64]) -> Self {
        let width = values.len() + 1;
        let mut sums = vec![0.0; width * width];
        for (i, first) in values.iter().enumerate() {
            let mut row = 0.0;
            for (j, second) in values.iter().enumerate() {
                row += (first - second).abs();
                sums[(i + 1) * width + j + 1] = sums[i * width + j + 1] + row;
            }
        }
        Self { width, sums }
    }

    /// Returns the sum over all pairs of the first `rows` with the first `columns` values.
    fn sum(&self, rows: usize, columns: usize) -> f64 {
        self.sums[rows * self.width + columns]
    }

    /// Returns the energy statistic of the values before `index` and those from `index` to before `end`: twice the mean
    /// distance between them, minus the mean distances within each, times n m / (n + m).
    fn energy(&self, index: usize, end: usize) -> f64 {
        let (n, m) = (index as f64, (end - index) as f64);
        let within_left = self.sum(index, index);
        let between = self.sum(index, end) - within_left;
        // The sums within a part count each pair twice, as does the mean over ordered pairs.
        let within_right = self.sum(end, end) - 2.0 * between - within_left;
        let mean_within = |sum: f64, size: f64| {
            if size < 2.0 { 0.0 } else { sum / (size * (size - 1.0)) }
        };
        let energy =
            2.0 * between / (n * m) - mean_within(within_left, n) - mean_within(within_right, m);
        energy * n * m / (n + m)
    }
}

struct Test<'a> {
    series: &'a [f64],
    /// Segments of the series before this division.
    segments: &'a [Range<usize>],
    /// Index of the segment to divide.
    segment: usize,
    candidate: Candidate,
    /// Number of divisions before this one.
    stage: u64,
}

impl Test<'_> {
    /// Returns the p-value of the division; `None` if it is not significant.
    fn p(&self, division: &Division) -> Option<f64> {
        let p = match division.test {
            DivisionTest::Permutations { seed } => self.permutation_p(seed, division)?,
            DivisionTest::Student => self.corrected_student_p(division.segment_min),
        };
        (p <= division.significance).then_some(p)
    }

    /// Returns `None` as soon as the p-value must exceed the significance, which saves most permutations of a series
    /// without another change.
    fn permutation_p(&self, seed: u64, division: &Division) -> Option<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(self.stage);
        let as_clear = self.candidate.q * (1.0 - ROUNDING);
        let mut shuffled = self.series.to_vec();
        // The observed order counts as one.
        let mut as_clear_count = 1_usize;
        let share = |count: usize| count as f64 / (PERMUTATIONS + 1) as f64;
        for _ in 0..PERMUTATIONS {
            for range in self.segments {
                shuffled[range.clone()].shuffle(&mut random);
            }
            let is_as_clear = self.segments.iter().any(|range| {
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

    fn corrected_student_p(&self, segment_min: usize) -> f64 {
        let range = &self.segments[self.segment];
        let before = &self.series[range.start..self.candidate.index];
        let after = &self.series[self.candidate.index..self.candidate.end];
        let count = |range: &Range<usize>| division_count(range.len(), segment_min);
        let divisions: usize = self.segments.iter().map(count).sum();
        (student_p(before, after) * divisions as f64).min(1.0)
    }
}

/// Returns the two-sided p-value of Student's test of two samples with a common variance; 1 for two values.
fn student_p(first: &[f64], second: &[f64]) -> f64 {
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
    fn energy_of_four_values_by_hand() {
        let sums = DistanceSums::new(&[1.0, 2.0, 5.0, 9.0]);
        // 1 2 | 5 9: between 4 8 3 7, mean 5.5; within 1 and 4; (11 - 1 - 4) * 4 / 4.
        assert_eq!(sums.energy(2, 4), 6.0);
        // 1 | 2 5 9: between 1 4 8, mean 13/3; within the right 3 7 4, mean 14/3; (26/3 - 14/3) * 3 / 4.
        assert!((sums.energy(1, 4) - 3.0).abs() < 1e-12);
        // 1 | 2 5, without the last: between 1 4, mean 2.5; within 3; (5 - 3) * 2 / 3.
        assert!((sums.energy(1, 3) - 4.0 / 3.0).abs() < 1e-12);
        // One value each: twice the distance, halved.
        assert_eq!(sums.energy(1, 2), 1.0);
    }

    #[test]
    fn best_division_of_four_values_by_hand() {
        assert_eq!(
            best_division(&[1.0, 2.0, 5.0, 9.0], 2),
            Some(Candidate { index: 2, end: 4, q: 6.0 })
        );
        // 1 2 5 | 9: between 8 7 4, mean 19/3; within the left 1 4 3, mean 8/3; (38/3 - 8/3) * 3 / 4 = 7.5.
        let best = best_division(&[1.0, 2.0, 5.0, 9.0], 1).unwrap();
        assert_eq!(best.index, 3);
        assert!((best.q - 7.5).abs() < 1e-12);
    }

    #[test]
    fn return_to_the_first_level_is_found_by_its_first_part() {
        // 0 0 | 4 4 | 0 0. To the end: between 4 4 0 0 each, mean 2; within the right 8 of 12
        // ordered pairs, 8/3; (4 - 8/3) * 8 / 6 = 16/9. Up to the fourth value: between 4, (8 - 0) * 1 = 8.
        let sums = DistanceSums::new(&[0.0, 0.0, 4.0, 4.0, 0.0, 0.0]);
        assert!((sums.energy(2, 6) - 16.0 / 9.0).abs() < 1e-12);
        assert_eq!(sums.energy(2, 4), 8.0);
        let best = best_division(&[0.0, 0.0, 4.0, 4.0, 0.0, 0.0], 2);
        assert_eq!(best, Some(Candidate { index: 2, end: 4, q: 8.0 }));
    }

    #[test]
    fn number_of_divisions_by_hand() {
        // 1 | 2; also 1 | 2 3 and 1 2 | 3.
        assert_eq!([division_count(1, 1), division_count(2, 1), division_count(3, 1)], [0, 1, 3]);
        // Two and two of five: 12 | 34, 12 | 345, 123 | 45.
        assert_eq!([division_count(3, 2), division_count(4, 2), division_count(5, 2)], [0, 1, 3]);
    }

    #[test]
    fn equal_and_too_few_values_have_no_division() {
        assert_eq!(best_division(&[3.0; 9], 2), None);
        assert_eq!(best_division(&[1.0, 2.0, 3.0], 2), None);
        assert_eq!(best_division(&[], 1), None);
    }

    #[test]
    fn student_p_by_hand() {
        // Means 1.5 and 7, squares 0.5 and 8, variance 8.5 / 2; t = 5.5 / sqrt(4.25) = 2.6679. With two
        // degrees of freedom p = 1 - t / sqrt(t^2 + 2) = 0.116459.
        assert!((student_p(&[1.0, 2.0], &[5.0, 9.0]) - 0.116_459).abs() < 1e-6);
        // One value and two: mean 1.5, squares 0.5, variance 0.5, t = 7.5 / sqrt(0.75) = 8.6603.
        // With one degree of freedom p = 1 - 2 / pi * arctan(t) = 0.073186.
        assert!((student_p(&[1.0, 2.0], &[9.0]) - 0.073_186).abs() < 1e-6);
    }

    #[test]
    fn student_p_without_variance_is_one_or_zero() {
        assert_eq!(student_p(&[1.0], &[9.0]), 1.0);
        assert_eq!(student_p(&[1.0, 1.0], &[9.0, 9.0]), 0.0);
    }

    #[test]
    fn permutation_p_of_a_clean_step_of_eight_values() {
        let series = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
        let candidate = best_division(&series, 2).unwrap();
        let test = Test {
            series: &series,
            segments: std::slice::from_ref(&(0..8)),
            segment: 0,
            candidate,
            stage: 0,
        };
        let division = Division {
            segment_min: 2,
            significance: 0.05,
            test: DivisionTest::Permutations { seed: 7 },
        };
        // 2 of the 70 ways to place four equal values; four standard errors of the sampling.
        let (p, exact) = (test.p(&division).unwrap(), 2.0_f64 / 70.0);
        let slack = 4.0 * (exact * (1.0 - exact) / PERMUTATIONS as f64).sqrt();
        assert!((p - exact).abs() < slack, "{p}");
        assert_eq!(test.p(&Division { significance: 0.01, ..division }), None);
    }
}
