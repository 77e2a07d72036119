//! Which values of a sample stand apart. They are marked, and nothing else happens to them.
//!
//! Source: B. Iglewicz and D. C. Hoaglin, "How to Detect and Handle Outliers", ASQC Basic
//! References in Quality Control 16 (1993). Where more than half of the values are equal their
//! measure of spread is 0; the mean distance then takes its place, as in IBM Cognos Analytics
//! ("Modified z score" in its documentation).

use crate::summary::{median_of_sorted, sorted};

/// A value whose modified z-score is farther from 0 than this is an outlier (Iglewicz and Hoaglin).
pub const OUTLIER_Z: f64 = 3.5;

/// The 75 % quantile of the standard normal distribution: the median distance of a normal sample
/// from its centre, in standard deviations.
const MEDIAN_DISTANCE: f64 = 0.674_489_750_196_082;

/// sqrt(2 / pi): the mean distance of a normal sample from its centre, in standard deviations.
const MEAN_DISTANCE: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;

/// How far each value is from the median, in standard deviations of a normal sample that has as
/// large a median distance; in the order of the values.
///
/// Where more than half of the values are the median itself, it is as large a mean distance; where
/// all are, every score is 0. Ratios should be given as their logarithms, so that half and double
/// are as far.
///
/// # Panics
///
/// When a value is not finite.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_scores(values: &[f64], expected: &[f64]) {
        let scores = modified_z_scores(values);
        assert_eq!(scores.len(), expected.len());
        for (score, expected) in scores.iter().zip(expected) {
            assert!((score - expected).abs() < 1e-4, "{scores:?}");
        }
    }

    #[test]
    fn five_values_by_hand() {
        // Median 3; distances 2 1 0 1 97, of which the median is 1. 0.6745 * 97 = 65.4255.
        assert_scores(&[1.0, 2.0, 3.0, 4.0, 100.0], &[-1.34898, -0.67449, 0.0, 0.67449, 65.42551]);
    }

    #[test]
    fn the_score_of_an_outlier_is_above_the_mark() {
        let scores = modified_z_scores(&[9.9, 10.0, 10.1, 10.0, 10.2, 9.8, 11.0]);
        // Median 10; distances 0.1 0 0.1 0 0.2 0.2 1, the fourth is 0.1: 6.745 for the last.
        let marked: Vec<bool> = scores.iter().map(|score| score.abs() > OUTLIER_Z).collect();
        assert_eq!(marked, [false, false, false, false, false, false, true]);
    }

    #[test]
    fn where_most_are_equal_the_mean_distance_counts() {
        // Distances 0 0 0 0 0 0 0 90: mean 11.25, and 90 / (1.253314 * 11.25) = 6.38307.
        let values = [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 100.0];
        assert_scores(&values, &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 6.383_07]);
    }

    #[test]
    fn equal_values_are_no_outliers() {
        assert_eq!(modified_z_scores(&[3.0; 6]), [0.0; 6]);
        assert_eq!(modified_z_scores(&[3.0]), [0.0]);
        assert_eq!(modified_z_scores(&[]), [0.0; 0]);
    }

    #[test]
    #[should_panic(expected = "only finite values have scores")]
    fn what_is_not_finite_has_no_score() {
        modified_z_scores(&[1.0, f64::INFINITY]);
    }
}
