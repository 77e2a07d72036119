//! How precise a price is: what a run that stops on precision looks at.
//!
//! A run may stop as soon as its interval is narrow, never as soon as its verdict is clear: looking
//! again after every block until a verdict comes finds one sooner or later, true or not.
//!
//! Source: J. K. Kruschke, "Doing Bayesian Data Analysis", 2nd edition (2015), section 13.3, on
//! precision as the goal in place of significance.

use crate::paired::{Estimate, Interval};

/// Half the width of the interval of a ratio, as a share: 0.02 where the interval goes from the
/// middle divided by 1.02 to the middle times 1.02.
///
/// The middle is that of the logarithms, as on them the interval was made. `None` with too few
/// blocks for an interval.
pub fn half_width(ratio: &Estimate) -> Option<f64> {
    match ratio.interval {
        Interval::Confidence { low, high } => Some(((high.ln() - low.ln()) / 2.0).exp_m1()),
        Interval::TooFew { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half_width_of(low: f64, high: f64) -> f64 {
        let interval = Interval::Confidence { low, high };
        half_width(&Estimate { point: low, interval, n: 6 }).unwrap()
    }

    #[test]
    fn it_is_the_factor_from_the_middle_to_either_end() {
        // The middle of 2 and 8 is 4, half and double.
        assert!((half_width_of(2.0, 8.0) - 1.0).abs() < 1e-12);
        assert!((half_width_of(1.0 / 1.02, 1.02) - 0.02).abs() < 1e-12);
        assert!((half_width_of(106.0 / 1.005, 106.0 * 1.005) - 0.005).abs() < 1e-12);
        assert_eq!(half_width_of(3.0, 3.0), 0.0);
    }

    #[test]
    fn too_few_blocks_have_no_width() {
        let interval = Interval::TooFew { min: 1.0, max: 1.0 };
        assert_eq!(half_width(&Estimate { point: 1.0, interval, n: 5 }), None);
    }
}
