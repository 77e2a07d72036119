//! Verdicts on prices, corrected for the number of verdicts in a table.
//!
//! A subject is the *same* if the whole interval lies within a margin that was chosen before; finding no difference
//! proves nothing. It *differs* if two methods agree: the interval, which is based on ranks and robust against outliers,
//! excludes "no price", and Student's t test on logarithms is significant after Holm's correction, which keeps the
//! probability of any false difference in a table at 5 %, whatever its subjects have in common. The t test uses the size
//! of a difference: a rank test of six blocks has no p-value below 3 %, so no correction can leave it significant. Where
//! noise has heavy tails, the t test finds less, not more, as long as the noise is symmetric, which random orders ensure.
//!
//! Source: D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the power approach for assessing the
//! equivalence of average bioavailability", Journal of Pharmacokinetics and Biopharmaceutics 15 (1987), 657-680, which
//! uses the 90 % interval; the 95 % interval is stricter, in place of a correction. "Student" (W. S. Gosset), "The
//! probable error of a mean", Biometrika 6 (1908), 1-25; Y. Benjamini, "Is the t test really conservative when the parent
//! distribution is long-tailed?", Journal of the American Statistical Association 78 (1983), 645-654 (it is). S. Holm, "A
//! simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979), 65-70; as
//! adjusted p-values, S. P. Wright, "Adjusted p-values for simultaneous inference", Biometrics 48 (1992), 1005-1013.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::SIGNIFICANCE;
use crate::paired::{Estimate, Interval};

/// Verdict on a subject compared with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Higher cost.
    CostsMore,
    /// Lower cost.
    CostsLess,
    /// Equal cost, within the margin.
    Same,
    /// More blocks needed.
    Inconclusive,
}

impl Verdict {
    /// Returns the verdict on a metric of which more is better, such as throughput.
    pub fn reversed(self) -> Self {
        match self {
            Self::CostsMore => Self::CostsLess,
            Self::CostsLess => Self::CostsMore,
            Self::Same | Self::Inconclusive => self,
        }
    }
}

/// Returns the verdict on a ratio, with its p-value adjusted by [`holm`].
///
/// `margin` is the relative difference up to which two subjects are the same: 0.02 is from 1 / 1.02 to 1.02. A ratio that
/// differs significantly but lies within the margin is the same.
pub fn verdict(ratio: &Estimate, adjusted_p: f64, margin: f64) -> Verdict {
    let limit = 1.0 + margin;
    match ratio.interval {
        Interval::Confidence { low, high } if 1.0 / limit < low && high < limit => Verdict::Same,
        _ => direction(ratio, 1.0, adjusted_p),
    }
}

/// Returns the verdict on a difference, for metrics without a ratio because a value is 0. Never [`Verdict::Same`], since
/// a margin would need a unit.
pub fn verdict_of_difference(difference: &Estimate, adjusted_p: f64) -> Verdict {
    direction(difference, 0.0, adjusted_p)
}

fn direction(price: &Estimate, no_price: f64, adjusted_p: f64) -> Verdict {
    match price.interval {
        Interval::Confidence { low, .. } if low > no_price && adjusted_p <= SIGNIFICANCE => {
            Verdict::CostsMore
        }
        Interval::Confidence { high, .. } if high < no_price && adjusted_p <= SIGNIFICANCE => {
            Verdict::CostsLess
        }
        Interval::Confidence { .. } | Interval::TooFew { .. } => Verdict::Inconclusive,
    }
}

/// Adjusts the p-values of a table by Holm's method. Keeps their order.
///
/// # Panics
///
/// If one is not within 0 and 1.
pub fn holm(p: &[f64]) -> Vec<f64> {
    for value in p {
        assert!((0.0..=1.0).contains(value), "{value} is not a p-value");
    }
    let mut ascending: Vec<usize> = (0..p.len()).collect();
    ascending.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut previous: f64 = 0.0;
    for (rank, &index) in ascending.iter().enumerate() {
        previous = previous.max((p.len() - rank) as f64 * p[index]).min(1.0);
        adjusted[index] = previous;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(low: f64, high: f64) -> Estimate {
        let interval = Interval::Confidence { low, high };
        Estimate { point: f64::midpoint(low, high), interval, n: 8 }
    }

    #[test]
    fn interval_beside_one_differs_if_the_test_agrees() {
        assert_eq!(verdict(&price(1.01, 1.30), 0.05, 0.02), Verdict::CostsMore);
        assert_eq!(verdict(&price(0.70, 0.99), 0.05, 0.02), Verdict::CostsLess);
        assert_eq!(verdict(&price(1.01, 1.30), 0.051, 0.02), Verdict::Inconclusive);
        assert_eq!(verdict(&price(0.70, 0.99), 0.051, 0.02), Verdict::Inconclusive);
    }

    #[test]
    fn interval_around_one_is_inconclusive_whatever_the_test_says() {
        assert_eq!(verdict(&price(0.99, 1.30), 0.001, 0.02), Verdict::Inconclusive);
        assert_eq!(verdict(&price(1.0, 1.30), 0.001, 0.02), Verdict::Inconclusive);
        assert_eq!(verdict(&price(0.70, 1.0), 0.001, 0.02), Verdict::Inconclusive);
    }

    #[test]
    fn interval_within_the_margin_is_the_same_even_beside_one() {
        assert_eq!(verdict(&price(0.99, 1.01), 1.0, 0.02), Verdict::Same);
        assert_eq!(verdict(&price(1.005, 1.015), 0.001, 0.02), Verdict::Same);
        assert_eq!(verdict(&price(1.0, 1.0), 1.0, 0.02), Verdict::Same);
    }

    #[test]
    fn margin_is_a_factor_in_both_directions() {
        // The lower end is 1 / 1.25 = 0.8, not 0.75.
        assert_eq!(verdict(&price(0.81, 1.24), 1.0, 0.25), Verdict::Same);
        assert_eq!(verdict(&price(0.79, 1.24), 1.0, 0.25), Verdict::Inconclusive);
        assert_eq!(verdict(&price(0.81, 1.25), 1.0, 0.25), Verdict::Inconclusive);
    }

    #[test]
    fn without_a_margin_nothing_is_the_same() {
        assert_eq!(verdict(&price(1.0, 1.0), 1.0, 0.0), Verdict::Inconclusive);
        assert_eq!(verdict(&price(1.001, 1.002), 0.01, 0.0), Verdict::CostsMore);
    }

    #[test]
    fn too_few_blocks_are_inconclusive() {
        let interval = Interval::TooFew { min: 1.9, max: 2.1 };
        let few = Estimate { point: 2.0, interval, n: 5 };
        assert_eq!(verdict(&few, 0.001, 0.02), Verdict::Inconclusive);
        assert_eq!(verdict_of_difference(&few, 0.001), Verdict::Inconclusive);
        let interval = Interval::TooFew { min: 1.0, max: 1.0 };
        let alike = Estimate { point: 1.0, interval, n: 5 };
        assert_eq!(verdict(&alike, 1.0, 0.02), Verdict::Inconclusive);
    }

    #[test]
    fn difference_is_compared_with_zero() {
        assert_eq!(verdict_of_difference(&price(0.5, 0.9), 0.01), Verdict::CostsMore);
        assert_eq!(verdict_of_difference(&price(-11.4, -11.0), 0.01), Verdict::CostsLess);
        assert_eq!(verdict_of_difference(&price(-0.1, 0.2), 0.01), Verdict::Inconclusive);
        assert_eq!(verdict_of_difference(&price(0.0, 0.0), 0.01), Verdict::Inconclusive);
        assert_eq!(verdict_of_difference(&price(0.5, 0.9), 0.06), Verdict::Inconclusive);
    }

    #[test]
    fn nan_p_value_is_inconclusive() {
        assert_eq!(verdict(&price(2.0, 3.0), f64::NAN, 0.02), Verdict::Inconclusive);
    }

    #[test]
    fn less_throughput_costs_more() {
        assert_eq!(Verdict::CostsMore.reversed(), Verdict::CostsLess);
        assert_eq!(Verdict::CostsLess.reversed(), Verdict::CostsMore);
        assert_eq!(Verdict::Same.reversed(), Verdict::Same);
        assert_eq!(Verdict::Inconclusive.reversed(), Verdict::Inconclusive);
    }

    #[test]
    fn holm_of_three_p_values_by_hand() {
        // From the smallest: 0.125 * 3, 0.25 * 2, 0.5 * 1.
        assert_eq!(holm(&[0.25, 0.125, 0.5]), [0.5, 0.375, 0.5]);
    }

    #[test]
    fn holm_keeps_the_order() {
        // 0.25 * 3 = 0.75, and 0.3125 * 2 = 0.625 is raised to it, as is 0.375.
        assert_eq!(holm(&[0.375, 0.3125, 0.25]), [0.75; 3]);
    }

    #[test]
    fn holm_is_at_most_one() {
        assert_eq!(holm(&[0.5, 0.75, 1.0]), [1.0; 3]);
    }

    #[test]
    fn holm_of_one_p_value_is_unchanged() {
        assert_eq!(holm(&[0.03125]), [0.03125]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }

    #[test]
    #[should_panic(expected = "NaN is not a p-value")]
    fn holm_rejects_nan() {
        holm(&[0.5, f64::NAN]);
    }
}
