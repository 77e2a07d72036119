//! The exact interval of a centre, by turning Wilcoxon's signed-rank test round: it holds every
//! centre that the test would not reject.
//!
//! Exact where the values are continuous and symmetric about their centre. Ties only make it
//! cover more.
//!
//! Source: M. Hollander, D. A. Wolfe and E. Chicken, "Nonparametric Statistical Methods", 3rd
//! edition (2014), section 3.3, after J. W. Tukey (1949).

use crate::hodges_lehmann::WalshAverage;
use crate::signed_rank::critical_value;

/// The largest sample whose interval is taken from here. The null distribution of one more value
/// would be no trouble, but the method moves on to the bootstrap there.
pub(crate) const SAMPLES_MAX: usize = 11;

/// The 95 % interval of the centre of `n` values, from their sorted Walsh averages.
///
/// As many of them lie outside the interval at either end as the largest rejected rank sum.
/// `None` below six values: even the whole range of what was seen then covers the centre with
/// less than 95 %.
pub(crate) fn interval(n: usize, averages: &[WalshAverage]) -> Option<(f64, f64)> {
    let outside = critical_value(n)?;
    let low = averages[outside].value;
    let high = averages[averages.len() - 1 - outside].value;
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hodges_lehmann::walsh_averages;

    #[test]
    fn six_values_give_the_whole_range() {
        let averages = walsh_averages(&[2.0, 3.0, 5.0, 7.0, 11.0, 13.0]);
        assert_eq!(interval(6, &averages), Some((2.0, 13.0)));
    }

    #[test]
    fn seven_values_leave_two_averages_out_at_either_end() {
        // From below 1, 2, 3; from above 64, (64 + 32) / 2 = 48, (64 + 16) / 2 = 40.
        let averages = walsh_averages(&[1.0, 3.0, 7.0, 9.0, 16.0, 32.0, 64.0]);
        assert_eq!(interval(7, &averages), Some((3.0, 40.0)));
    }
}
