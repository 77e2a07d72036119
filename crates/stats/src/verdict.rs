//! What a price says: dearer, cheaper, the same, or nothing yet.
//!
//! A subject is *the same* when the whole interval lies within a margin that was named before:
//! that no difference was found proves nothing. It *differs* when the interval leaves out "no
//! price", and the test still says so after Holm's correction for the other verdicts of the table.
//!
//! Source: D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the power
//! approach for assessing the equivalence of average bioavailability", Journal of Pharmacokinetics
//! and Biopharmaceutics 15 (1987), 657-680. His interval would be that of 90 %; the one of 95 %
//! takes the place of a correction where there are two verdicts, and asks for more where there is one.

use serde::{Deserialize, Serialize};

use crate::paired::{Estimate, Interval};
use crate::signed_rank::SIGNIFICANCE;

/// What a price says of a subject, beside the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It takes more.
    CostsMore,
    /// It takes less.
    CostsLess,
    /// It takes the same, give or take the margin.
    Same,
    /// The blocks do not settle which.
    NotSettled,
}

impl Verdict {
    /// The verdict on a figure of which less is worse, such as throughput: a subject that has
    /// more of it costs less.
    pub fn reversed(self) -> Self {
        match self {
            Self::CostsMore => Self::CostsLess,
            Self::CostsLess => Self::CostsMore,
            Self::Same | Self::NotSettled => self,
        }
    }
}

/// What a ratio says, with the p-value of its test as [`holm`](crate::holm) adjusted it.
///
/// `margin` is the share by which two subjects may differ and still be the same: 0.02 for two
/// percent, which is from 1 / 1.02 to 1.02. A ratio that is surely different and surely within the
/// margin is the same.
pub fn verdict(ratio: &Estimate, adjusted_p: f64, margin: f64) -> Verdict {
    let widest = 1.0 + margin;
    match ratio.interval {
        Interval::Confidence { low, high } if 1.0 / widest < low && high < widest => Verdict::Same,
        _ => side(ratio, 1.0, adjusted_p),
    }
}

/// What a difference says, where there is no ratio because one of the two takes nothing.
///
/// No margin can be named without a unit, so this never says that two are the same.
pub fn verdict_of_difference(difference: &Estimate, adjusted_p: f64) -> Verdict {
    side(difference, 0.0, adjusted_p)
}

/// On which side of `nothing` the price is.
fn side(price: &Estimate, nothing: f64, adjusted_p: f64) -> Verdict {
    match price.interval {
        Interval::Confidence { low, .. } if low > nothing && adjusted_p <= SIGNIFICANCE => {
            Verdict::CostsMore
        }
        Interval::Confidence { high, .. } if high < nothing && adjusted_p <= SIGNIFICANCE => {
            Verdict::CostsLess
        }
        Interval::Confidence { .. } | Interval::TooFew { .. } => Verdict::NotSettled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(low: f64, high: f64) -> Estimate {
        let interval = Interval::Confidence { low, high };
        Estimate { point: f64::midpoint(low, high), interval, n: 8 }
    }

    #[test]
    fn an_interval_beside_one_differs_where_the_test_agrees() {
        assert_eq!(verdict(&price(1.01, 1.30), 0.05, 0.02), Verdict::CostsMore);
        assert_eq!(verdict(&price(0.70, 0.99), 0.05, 0.02), Verdict::CostsLess);
        assert_eq!(verdict(&price(1.01, 1.30), 0.051, 0.02), Verdict::NotSettled);
        assert_eq!(verdict(&price(0.70, 0.99), 0.051, 0.02), Verdict::NotSettled);
    }

    #[test]
    fn an_interval_that_holds_one_differs_from_nothing_whatever_the_test_says() {
        assert_eq!(verdict(&price(0.99, 1.30), 0.001, 0.02), Verdict::NotSettled);
        assert_eq!(verdict(&price(1.0, 1.30), 0.001, 0.02), Verdict::NotSettled);
        assert_eq!(verdict(&price(0.70, 1.0), 0.001, 0.02), Verdict::NotSettled);
    }

    #[test]
    fn an_interval_within_the_margin_is_the_same_even_if_it_leaves_one_out() {
        assert_eq!(verdict(&price(0.99, 1.01), 1.0, 0.02), Verdict::Same);
        assert_eq!(verdict(&price(1.005, 1.015), 0.001, 0.02), Verdict::Same);
        assert_eq!(verdict(&price(1.0, 1.0), 1.0, 0.02), Verdict::Same);
    }

    #[test]
    fn the_margin_is_a_factor_in_both_directions() {
        // Below, it ends at 1 / 1.25 = 0.8, not at 0.75.
        assert_eq!(verdict(&price(0.81, 1.24), 1.0, 0.25), Verdict::Same);
        assert_eq!(verdict(&price(0.79, 1.24), 1.0, 0.25), Verdict::NotSettled);
        assert_eq!(verdict(&price(0.81, 1.25), 1.0, 0.25), Verdict::NotSettled);
    }

    #[test]
    fn without_a_margin_nothing_is_the_same() {
        assert_eq!(verdict(&price(1.0, 1.0), 1.0, 0.0), Verdict::NotSettled);
        assert_eq!(verdict(&price(1.001, 1.002), 0.01, 0.0), Verdict::CostsMore);
    }

    #[test]
    fn too_few_blocks_settle_nothing() {
        let interval = Interval::TooFew { min: 1.9, max: 2.1 };
        let few = Estimate { point: 2.0, interval, n: 5 };
        assert_eq!(verdict(&few, 0.001, 0.02), Verdict::NotSettled);
        assert_eq!(verdict_of_difference(&few, 0.001), Verdict::NotSettled);
        let interval = Interval::TooFew { min: 1.0, max: 1.0 };
        let alike = Estimate { point: 1.0, interval, n: 5 };
        assert_eq!(verdict(&alike, 1.0, 0.02), Verdict::NotSettled);
    }

    #[test]
    fn a_difference_is_held_against_zero() {
        assert_eq!(verdict_of_difference(&price(0.5, 0.9), 0.01), Verdict::CostsMore);
        assert_eq!(verdict_of_difference(&price(-11.4, -11.0), 0.01), Verdict::CostsLess);
        assert_eq!(verdict_of_difference(&price(-0.1, 0.2), 0.01), Verdict::NotSettled);
        assert_eq!(verdict_of_difference(&price(0.0, 0.0), 0.01), Verdict::NotSettled);
        assert_eq!(verdict_of_difference(&price(0.5, 0.9), 0.06), Verdict::NotSettled);
    }

    #[test]
    fn a_p_value_that_is_no_number_settles_nothing() {
        assert_eq!(verdict(&price(2.0, 3.0), f64::NAN, 0.02), Verdict::NotSettled);
    }

    #[test]
    fn less_throughput_costs_more() {
        assert_eq!(Verdict::CostsMore.reversed(), Verdict::CostsLess);
        assert_eq!(Verdict::CostsLess.reversed(), Verdict::CostsMore);
        assert_eq!(Verdict::Same.reversed(), Verdict::Same);
        assert_eq!(Verdict::NotSettled.reversed(), Verdict::NotSettled);
    }
}
