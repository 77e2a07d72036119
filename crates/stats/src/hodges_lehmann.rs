//! The Hodges-Lehmann estimate of a centre: the median of all pairwise means.
//!
//! It is nearly as precise as the mean where the values are normal, and a wild value among them
//! hardly moves it.
//!
//! Source: J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests", Annals of
//! Mathematical Statistics 34 (1963), 598-611; M. Hollander, D. A. Wolfe and E. Chicken,
//! "Nonparametric Statistical Methods", 3rd edition (2014), section 3.2.

/// The mean of two values of a sample, or of one with itself.
pub(crate) struct WalshAverage {
    /// The mean, in the unit of the values.
    pub(crate) value: f64,
    /// The positions in the sample of the two; `first <= second`.
    pub(crate) first: usize,
    pub(crate) second: usize,
}

/// All n (n + 1) / 2 Walsh averages of `values`, which must be finite, from the smallest up.
pub(crate) fn walsh_averages(values: &[f64]) -> Vec<WalshAverage> {
    let mut averages: Vec<WalshAverage> = (0..values.len())
        .flat_map(|first| (first..values.len()).map(move |second| (first, second)))
        .map(|(first, second)| WalshAverage {
            value: f64::midpoint(values[first], values[second]),
            first,
            second,
        })
        .collect();
    averages.sort_unstable_by(|a, b| a.value.total_cmp(&b.value));
    averages
}

/// The Hodges-Lehmann estimate from the sorted Walsh averages of a sample that is not empty.
pub(crate) fn hodges_lehmann(averages: &[WalshAverage]) -> f64 {
    let (lower, upper) = middle_ranks(averages.len());
    f64::midpoint(averages[lower - 1].value, averages[upper - 1].value)
}

/// The ranks, counted from 1, of the two values in the middle of `count` sorted ones; the same
/// rank twice where `count` is odd.
pub(crate) fn middle_ranks(count: usize) -> (usize, usize) {
    (count.div_ceil(2), count / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(averages: &[WalshAverage]) -> Vec<f64> {
        averages.iter().map(|average| average.value).collect()
    }

    #[test]
    fn three_values_by_hand() {
        // 1, 3, 8 and the means of 1 and 3, of 1 and 8, of 3 and 8.
        let averages = walsh_averages(&[1.0, 8.0, 3.0]);
        assert_eq!(values(&averages), [1.0, 2.0, 3.0, 4.5, 5.5, 8.0]);
        assert_eq!(hodges_lehmann(&averages), 3.75);
    }

    #[test]
    fn an_odd_number_of_averages_has_one_in_the_middle() {
        let averages = walsh_averages(&[1.0, 7.0]);
        assert_eq!(values(&averages), [1.0, 4.0, 7.0]);
        assert_eq!(hodges_lehmann(&averages), 4.0);
    }

    #[test]
    fn an_average_knows_the_two_it_is_made_of() {
        let averages = walsh_averages(&[1.0, 7.0]);
        let made_of: Vec<(usize, usize)> =
            averages.iter().map(|average| (average.first, average.second)).collect();
        assert_eq!(made_of, [(0, 0), (0, 1), (1, 1)]);
    }

    #[test]
    fn a_wild_value_hardly_moves_it() {
        // Sorted: 1 1.5 2 2 2.5 2.5 3 3 3.5 4, then five that hold the wild one. The eighth of
        // fifteen is 3; the mean of the five values is 202.
        assert_eq!(hodges_lehmann(&walsh_averages(&[1.0, 2.0, 3.0, 4.0, 1000.0])), 3.0);
    }
}
