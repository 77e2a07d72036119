//! A handful of values in short.

use schemars::JsonSchema;
use serde::Serialize;

/// What a column of a table says about its values; all in their unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Summary {
    /// How many values there are; at least 1.
    pub n: usize,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The standard deviation of the sample, with n - 1 below the sum of squares; `None` for a
    /// single value, which says nothing about spread.
    pub standard_deviation: Option<f64>,
}

/// Sums up `values`; `None` when there are none or when one is not finite.
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

/// The values from the smallest to the largest.
pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The median of values that are sorted and not empty.
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
    fn eight_values_by_hand() {
        // Sum 40, mean 5; squared distances 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32.
        let summary = summarize(&[9.0, 2.0, 5.0, 4.0, 4.0, 7.0, 5.0, 4.0]).unwrap();
        assert_eq!(summary.n, 8);
        assert_eq!((summary.min, summary.max), (2.0, 9.0));
        assert_eq!(summary.median, 4.5);
        assert_eq!(summary.mean, 5.0);
        let deviation = summary.standard_deviation.unwrap();
        assert!((deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-15);
    }

    #[test]
    fn the_middle_of_an_odd_number_is_one_of_them() {
        assert_eq!(summarize(&[3.0, 10.0, 1.0]).unwrap().median, 3.0);
    }

    #[test]
    fn a_single_value_has_no_spread() {
        let expected =
            Summary { n: 1, min: 7.0, max: 7.0, median: 7.0, mean: 7.0, standard_deviation: None };
        assert_eq!(summarize(&[7.0]), Some(expected));
    }

    #[test]
    fn nothing_and_the_unmeasurable_have_no_summary() {
        assert_eq!(summarize(&[]), None);
        assert_eq!(summarize(&[1.0, f64::NAN]), None);
        assert_eq!(summarize(&[1.0, f64::INFINITY]), None);
    }
}
