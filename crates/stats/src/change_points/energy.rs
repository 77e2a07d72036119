//! How far apart the values before and after a point are: the energy statistic.
//!
//! Source: Matteson and James (2014), equations (5) to (7), with the exponent 1.

/// A division of a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    /// The position of the first value after it.
    pub(super) index: usize,
    /// The position behind the last value that is held against those before.
    pub(super) end: usize,
    /// The energy statistic.
    pub(super) q: f64,
}

/// The division of `values` whose energy statistic is the largest, with `segment_min` values on
/// either side at the least.
///
/// The values after it need not reach to the end: where the level changes and comes back, all that
/// follows is not of one kind, and the first part of it tells the change more clearly.
///
/// `None` where there are too few values, and where none differs from another.
pub(super) fn best_division(values: &[f64], segment_min: usize) -> Option<Candidate> {
    let n = values.len();
    if n < 2 * segment_min {
        return None;
    }
    let sums = Distances::between(values);
    let mut best: Option<Candidate> = None;
    for index in segment_min..=n - segment_min {
        for end in index + segment_min..=n {
            let q = sums.q(index, end);
            if q > best.map_or(0.0, |best| best.q) {
                best = Some(Candidate { index, end, q });
            }
        }
    }
    best
}

/// In how many places `best_division` looks among so many values.
pub(super) fn places(values: usize, segment_min: usize) -> usize {
    // As many with the whole right part as there are values between the two shortest parts and one;
    // one fewer where the last value is left out, and so on.
    let most = (values + 1).saturating_sub(2 * segment_min);
    most * (most + 1) / 2
}

/// The distances between values, added up, so that the sum over any two stretches takes four look-ups.
struct Distances {
    width: usize,
    /// At row i and column j the sum over all pairs of the first i with the first j values.
    sums: Vec<f64>,
}

impl Distances {
    fn between(values: &[f64]) -> Self {
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

    /// The sum over all pairs of the first `rows` with the first `columns` values.
    fn sum(&self, rows: usize, columns: usize) -> f64 {
        self.sums[rows * self.width + columns]
    }

    /// The energy statistic of the values before `index` against those from there to before `end`:
    /// twice the mean distance between the two, less the mean distances within each, times
    /// n m / (n + m).
    fn q(&self, index: usize, end: usize) -> f64 {
        let (n, m) = (index as f64, (end - index) as f64);
        let within_left = self.sum(index, index);
        let between = self.sum(index, end) - within_left;
        // Each pair within a part is in the sum of the square twice, as it is in the mean over
        // ordered pairs of different values.
        let within_right = self.sum(end, end) - 2.0 * between - within_left;
        let mean_within = |sum: f64, size: f64| {
            if size < 2.0 { 0.0 } else { sum / (size * (size - 1.0)) }
        };
        let energy =
            2.0 * between / (n * m) - mean_within(within_left, n) - mean_within(within_right, m);
        energy * n * m / (n + m)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistic_of_four_values_by_hand() {
        let sums = Distances::between(&[1.0, 2.0, 5.0, 9.0]);
        // 1 2 | 5 9: between 4 8 3 7, mean 5.5; within 1 and 4; (11 - 1 - 4) * 4 / 4.
        assert_eq!(sums.q(2, 4), 6.0);
        // 1 | 2 5 9: between 1 4 8, mean 13/3; within the right 3 7 4, mean 14/3; (26/3 - 14/3) * 3 / 4.
        assert!((sums.q(1, 4) - 3.0).abs() < 1e-12);
        // 1 | 2 5, without the last: between 1 4, mean 2.5; within 3; (5 - 3) * 2 / 3.
        assert!((sums.q(1, 3) - 4.0 / 3.0).abs() < 1e-12);
        // One beside one: twice the distance, halved.
        assert_eq!(sums.q(1, 2), 1.0);
    }

    #[test]
    fn the_best_division_of_four_values() {
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
    fn a_level_that_comes_back_is_told_by_its_first_part() {
        // 0 0 | 4 4 | 0 0. To the end: between 4 4 0 0 each, mean 2; within the right 8 of 12
        // ordered pairs, 8/3; (4 - 8/3) * 8 / 6 = 16/9. Up to the fourth value: between 4, (8 - 0) * 1 = 8.
        let sums = Distances::between(&[0.0, 0.0, 4.0, 4.0, 0.0, 0.0]);
        assert!((sums.q(2, 6) - 16.0 / 9.0).abs() < 1e-12);
        assert_eq!(sums.q(2, 4), 8.0);
        let best = best_division(&[0.0, 0.0, 4.0, 4.0, 0.0, 0.0], 2);
        assert_eq!(best, Some(Candidate { index: 2, end: 4, q: 8.0 }));
    }

    #[test]
    fn places_by_hand() {
        // 1 | 2, and 1 | 2 3, 1 2 | 3 in addition.
        assert_eq!([places(1, 1), places(2, 1), places(3, 1)], [0, 1, 3]);
        // Two and two of five: 12 | 34, 12 | 345, 123 | 45.
        assert_eq!([places(3, 2), places(4, 2), places(5, 2)], [0, 1, 3]);
    }

    #[test]
    fn equal_values_and_too_few_have_no_division() {
        assert_eq!(best_division(&[3.0; 9], 2), None);
        assert_eq!(best_division(&[1.0, 2.0, 3.0], 2), None);
        assert_eq!(best_division(&[], 1), None);
    }
}
