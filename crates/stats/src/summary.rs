//! Summary of a sample, outliers, and the end of a warm-up.

use schemars::JsonSchema;
use serde::Serialize;

/// Values in a row that [`is_steady`] compares.
pub const STEADY_SLICES: usize = 5;

/// Limit for their coefficient of variation.
const VARIATION_MAX: f64 = 0.05;

/// A value whose modified z-score is farther from 0 is an outlier (Iglewicz and Hoaglin).
pub const OUTLIER_Z: f64 = 3.5;

/// The 75 % quantile of the standard normal distribution: the median distance of a normal sample from its centre, in
/// standard deviations.
const MEDIAN_DISTANCE: f64 = 0.674_489_750_196_082;

/// sqrt(2 / pi): the mean distance of a normal sample from its centre, in standard deviations.
const MEAN_DISTANCE: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;

/// Summary of a sample, in the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Summary {
    /// Number of values; at least 1.
    pub n: usize,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Median; the mean of the middle two if `n` is even.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample, with n - 1 as divisor; `None` for a single value.
    pub standard_deviation: Option<f64>,
}

/// Summarizes `values`. Returns `None` if there are none or one is not finite.
pub fn summarize(values: &[f64]) -> Option<Summary> {
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let sorted = sorted(values);
    let n = sorted.len();
    let mean = sorted.iter().sum::<f64>() / n as f64;
    let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
    Some(Summary {
        n,
        min: sorted[0],
        max: sorted[n - 1],
        median: median_of_sorted(&sorted),
        mean,
        standard_deviation: (n > 1).then(|| (squares / (n - 1) as f64).sqrt()),
    })
}

/// Returns true if a figure taken once per slice has become steady: the coefficient of variation of its last five
/// values is below 5 %. False with fewer values, and around a mean that is not positive.
///
/// Source: Georges, Buytaert and Eeckhout, "Statistically rigorous Java performance evaluation", OOPSLA 2007, doi
/// 10.1145/1297027.1297033, section 4.1, which ends the warm-up this way.
pub fn is_steady(values: &[f64]) -> bool {
    let Some((_, last)) = values.split_last_chunk::<STEADY_SLICES>() else {
        return false;
    };
    let summary = summarize(last);
    let Some((mean, deviation)) = summary.and_then(|s| Some((s.mean, s.standard_deviation?)))
    else {
        return false;
    };
    mean > 0.0 && deviation / mean < VARIATION_MAX
}

/// Returns the modified z-score of each value: its distance from the median, in standard deviations of a normal sample
/// with the same median distance. Pass ratios as logarithms, so that half and double are equally far.
///
/// If more than half of the values equal the median, the mean distance is used; if all do, every score is 0.
///
/// Source: B. Iglewicz and D. C. Hoaglin, "How to Detect and Handle Outliers", ASQC Basic References in Quality Control
/// 16 (1993); the mean distance as in IBM Cognos Analytics ("Modified z score" in its documentation).
///
/// # Panics
///
/// If a value is not finite.
pub fn modified_z_scores(values: &[f64]) -> Vec<f64> {
    assert!(values.iter().all(|value| value.is_finite()), "only finite values have scores");
    if values.is_empty() {
        return Vec::new();
    }
    let median = median_of_sorted(&sorted(values));
    let distances: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    let median_distance = median_of_sorted(&sorted(&distances));
    let mean_distance = distances.iter().sum::<f64>() / distances.len() as f64;
    let deviation = if median_distance > 0.0 {
        median_distance / MEDIAN_DISTANCE
    } else {
        mean_distance / MEAN_DISTANCE
    };
    let score = |value: &f64| if deviation > 0.0 { (value - median) / deviation } else { 0.0 };
    values.iter().map(score).collect()
}

pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// Returns the median of sorted values, of which there must be at least one.
pub(crate) fn median_of_sorted(sorted: &[f64]) -> f64 {
    let upper = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[upper]
    } else {
        f64::midpoint(sorted[upper - 1], sorted[upper])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_eight_values_by_hand() {
        // Sum 40, mean 5; squared distances 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32.
        let summary = summarize(&[9.0, 2.0, 5.0, 4.0, 4.0, 7.0, 5.0, 4.0]).unwrap();
        assert_eq!(summary.n, 8);
        assert_eq!((summary.min, summary.max), (2.0, 9.0));
        assert_eq!(summary.median, 4.5);
        assert_eq!(summary.mean, 5.0);
        let deviation = summary.standard_deviation.unwrap();
        assert!((deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-15);
        assert_eq!(summarize(&[3.0, 10.0, 1.0]).unwrap().median, 3.0);
    }

    #[test]
    fn single_value_has_no_deviation() {
        let expected =
            Summary { n: 1, min: 7.0, max: 7.0, median: 7.0, mean: 7.0, standard_deviation: None };
        assert_eq!(summarize(&[7.0]), Some(expected));
    }

    #[test]
    fn empty_and_infinite_samples_have_no_summary() {
        assert_eq!(summarize(&[]), None);
        assert_eq!(summarize(&[1.0, f64::NAN]), None);
        assert_eq!(summarize(&[1.0, f64::INFINITY]), None);
    }

    #[test]
    fn steady_after_five_similar_values() {
        assert!(!is_steady(&[100.0; 4]));
        assert!(is_steady(&[100.0; 5]));
        assert!(is_steady(&[1.0, 9000.0, 100.0, 100.0, 100.0, 100.0, 100.0]));
        assert!(!is_steady(&[100.0, 100.0, 100.0, 100.0, 150.0]));
        for values in [&[][..], &[0.0; 5], &[f64::NAN; 5]] {
            assert!(!is_steady(values), "{values:?}");
        }
    }

    #[test]
    fn steady_below_five_percent_of_variation() {
        // Mean 100; the squared distances add up to 4 d^2, so the standard deviation is sqrt(4 d^2 / 4) = d.
        let spread = |d: f64| [100.0 - d, 100.0 + d, 100.0, 100.0 - d, 100.0 + d];
        assert!(is_steady(&spread(4.99)));
        assert!(!is_steady(&spread(5.0)));
        assert!(!is_steady(&spread(5.01)));
    }

    fn assert_scores(values: &[f64], expected: &[f64]) {
        let scores = modified_z_scores(values);
        assert_eq!(scores.len(), expected.len());
        for (score, expected) in scores.iter().zip(expected) {
            assert!((score - expected).abs() < 1e-4, "{scores:?}");
        }
    }

    #[test]
    fn scores_by_hand() {
        // Median 3; distances 2 1 0 1 97, of which the median is 1. 0.6745 * 97 = 65.4255.
        assert_scores(&[1.0, 2.0, 3.0, 4.0, 100.0], &[-1.34898, -0.67449, 0.0, 0.67449, 65.42551]);
        // Distances 0 0 0 0 0 0 0 90: mean 11.25, and 90 / (1.253314 * 11.25) = 6.38307.
        let mostly_equal = [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 100.0];
        assert_scores(&mostly_equal, &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 6.383_07]);
    }

    #[test]
    fn outlier_scores_above_the_limit() {
        let scores = modified_z_scores(&[9.9, 10.0, 10.1, 10.0, 10.2, 9.8, 11.0]);
        // Median 10; distances 0.1 0 0.1 0 0.2 0.2 1, the fourth is 0.1: 6.745 for the last.
        let outliers: Vec<bool> = scores.iter().map(|score| score.abs() > OUTLIER_Z).collect();
        assert_eq!(outliers, [false, false, false, false, false, false, true]);
    }

    #[test]
    fn equal_values_score_zero() {
        assert_eq!(modified_z_scores(&[3.0; 6]), [0.0; 6]);
        assert_eq!(modified_z_scores(&[3.0]), [0.0]);
        assert_eq!(modified_z_scores(&[]), [0.0; 0]);
    }

    #[test]
    #[should_panic(expected = "only finite values have scores")]
    fn infinite_value_has_no_score() {
        modified_z_scores(&[1.0, f64::INFINITY]);
    }
}
