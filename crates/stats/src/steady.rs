//! When a warm-up is over.

use crate::summary::summarize;

/// How many slices in a row have to agree.
pub const STEADY_SLICES: usize = 5;

/// How far they may stray: the standard deviation as a share of the mean.
const VARIATION_MAX: f64 = 0.05;

/// Whether a figure that was taken once a slice stands still: the coefficient of variation of its
/// last five values is below 5 %. With fewer values, or around a mean that is not
/// positive, it does not.
///
/// Source: Georges, Buytaert and Eeckhout, "Statistically rigorous Java performance evaluation",
/// OOPSLA 2007, doi 10.1145/1297027.1297033, section 4.1, which ends the warm-up this way.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_slices_that_agree_end_a_warm_up() {
        assert!(!is_steady(&[100.0; 4]));
        assert!(is_steady(&[100.0; 5]));
        assert!(is_steady(&[1.0, 9000.0, 100.0, 100.0, 100.0, 100.0, 100.0]));
        assert!(!is_steady(&[100.0, 100.0, 100.0, 100.0, 150.0]));
        assert!(!is_steady(&[]));
    }

    #[test]
    fn the_variation_has_to_be_below_five_percent() {
        // Mean 100, and the squares of the distances add up to 2 d^2 + 2 d^2 = 4 d^2, so that the
        // sample's standard deviation is sqrt(4 d^2 / 4) = d.
        let spread = |d: f64| [100.0 - d, 100.0 + d, 100.0, 100.0 - d, 100.0 + d];
        assert!(is_steady(&spread(4.99)));
        assert!(!is_steady(&spread(5.0)));
        assert!(!is_steady(&spread(5.01)));
    }

    #[test]
    fn nothing_is_not_steady() {
        assert!(!is_steady(&[0.0; 5]));
        assert!(!is_steady(&[f64::NAN; 5]));
    }
}
