//! Prices: the cost of a subject over the baseline of the same block, its precision, and the smallest difference that a
//! run can detect.
//!
//! The block is the sample; requests inside a trial are not independent samples of a price.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::distributions::student_two_sided;
use crate::interval::{
    EXACT_MAX, bootstrap_interval, critical_value, exact_interval, hodges_lehmann, walsh_averages,
};
use crate::summary::sorted;

/// Limit for the number of blocks of a price. The work of the bootstrap grows with the square of the blocks, and takes
/// seconds at this limit.
pub const BLOCKS_MAX: usize = 1_000;

/// Fewest blocks with a 95 % interval, and with that a verdict.
pub const BLOCKS_MIN: usize = 6;

/// One metric of a subject and of its baseline in one block, in the same unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    pub subject: f64,
    pub baseline: f64,
}

/// A price over several blocks: a ratio without unit, or a difference in the unit of the metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Hodges-Lehmann estimate.
    pub point: f64,
    pub interval: Interval,
    pub n: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// The 95 % confidence interval.
    Confidence { low: f64, high: f64 },
    /// The range of the blocks' prices. With fewer than six blocks, no 95 % interval exists.
    TooFew { min: f64, max: f64 },
}

impl Interval {
    /// Applies an increasing function to both ends.
    fn map(self, increasing: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Confidence { low, high } => {
                Self::Confidence { low: increasing(low), high: increasing(high) }
            }
            Self::TooFew { min, max } => {
                Self::TooFew { min: increasing(min), max: increasing(max) }
            }
        }
    }
}

/// Estimates the ratio subject / baseline. Uses logarithms, so that half and double cancel out. From 12 blocks up, the
/// interval is a bootstrap seeded by `seed`.
///
/// `None` without blocks, or if a value or a ratio is not positive and finite.
///
/// # Panics
///
/// With more than [`BLOCKS_MAX`] pairs.
pub fn ratio(pairs: &[Pair], seed: u64) -> Option<Estimate> {
    let Estimate { point, interval, n } = estimate(&log_ratios(pairs)?, seed)?;
    Some(Estimate { point: point.exp(), interval: interval.map(f64::exp), n })
}

/// Estimates the difference subject - baseline, in the unit of the pairs. From 12 blocks up, the interval is a bootstrap
/// seeded by `seed`.
///
/// `None` without blocks, or if a difference is not finite.
///
/// # Panics
///
/// With more than [`BLOCKS_MAX`] pairs.
pub fn difference(pairs: &[Pair], seed: u64) -> Option<Estimate> {
    estimate(&differences(pairs), seed)
}

/// Returns the p-value of Student's two-sided t test that the ratio is 1, on logarithms. For [`holm`](crate::holm) and
/// [`verdict`](crate::verdict). `None` where [`ratio`] is `None`.
pub fn ratio_p(pairs: &[Pair]) -> Option<f64> {
    p_of_finite(&log_ratios(pairs)?)
}

/// Returns the p-value of Student's two-sided t test that the difference is 0. `None` where [`difference`] is
/// `None`.
pub fn difference_p(pairs: &[Pair]) -> Option<f64> {
    p_of_finite(&differences(pairs))
}

/// Returns half the width of the interval of a ratio as a share: 0.02 if the interval goes from its middle divided by
/// 1.02 to its middle times 1.02, where the middle is that of the logarithms. `None` with too few blocks for an interval.
///
/// A run may stop once its interval is narrow, but not once its verdict is clear: testing for significance after
/// every block finds it sooner or later, true or not (J. K. Kruschke, "Doing Bayesian Data Analysis", 2nd edition
/// (2015), section 13.3).
pub fn half_width(ratio: &Estimate) -> Option<f64> {
    match ratio.interval {
        Interval::Confidence { low, high } => Some(((high.ln() - low.ln()) / 2.0).exp_m1()),
        Interval::TooFew { .. } => None,
    }
}

/// Returns the logarithms of subject / baseline; `None` unless all values are positive.
fn log_ratios(pairs: &[Pair]) -> Option<Vec<f64>> {
    let log_ratio = |pair: &Pair| {
        (pair.subject > 0.0 && pair.baseline > 0.0).then(|| (pair.subject / pair.baseline).ln())
    };
    pairs.iter().map(log_ratio).collect()
}

fn differences(pairs: &[Pair]) -> Vec<f64> {
    pairs.iter().map(|pair| pair.subject - pair.baseline).collect()
}

/// `None` without values or if one is not finite. One value, and values that are all 0, have the p-value 1.
fn p_of_finite(values: &[f64]) -> Option<f64> {
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    // Sorted, so that rounding does not depend on the order of the blocks.
    let values = sorted(values);
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if values.len() == 1 || mean == 0.0 {
        return Some(1.0);
    }
    // Without any variation this is infinite.
    let t = mean.abs() / (squares / (n - 1.0) / n).sqrt();
    Some(student_two_sided(t, values.len() - 1))
}

/// Estimates the centre of `values`, one per block; `None` without values or if one is not finite.
fn estimate(values: &[f64], seed: u64) -> Option<Estimate> {
    let n = values.len();
    assert!(n <= BLOCKS_MAX, "{n} blocks are more than {BLOCKS_MAX}");
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    // Sorted, so that the bootstrap does not depend on the order of the blocks.
    let values = sorted(values);
    let (&min, &max) = values.first().zip(values.last())?;
    let averages = walsh_averages(&values);
    let confidence = if n <= EXACT_MAX {
        exact_interval(n, &averages)
    } else {
        Some(bootstrap_interval(n, &averages, seed))
    };
    let interval = match confidence {
        Some((low, high)) => Interval::Confidence { low, high },
        None => Interval::TooFew { min, max },
    };
    Some(Estimate { point: hodges_lehmann(&averages), interval, n })
}

/// Share of the runs in which a visible difference is detected.
const POWER: f64 = 0.8;

const RUNS: usize = 4_000;

/// Limit for the blocks of a simulated run. The intervals of longer runs shrink with the square root of the blocks.
const RUN_BLOCKS_MAX: usize = 40;

/// Seed of the simulated runs, fixed so that the same A/A blocks give the same result.
const SEED: u64 = 1;

/// Returns the smallest relative difference that the 95 % interval of a run of `blocks` blocks detects with a power of
/// 80 %; 0.01 for a subject that costs one percent more. `None` for fewer than six blocks on either side, or if a ratio is
/// not positive and finite.
///
/// `aa` contains a metric of two equal subjects in each block of an A/A run. Runs are simulated by drawing from these
/// blocks, each with a random sign, since neither subject is more expensive. The result is the price that raises the
/// lower end of 80 % of the intervals above no difference.
///
/// Source: B. J. Collings and M. A. Hamilton, "Estimating the power of the two-sample Wilcoxon test for location shift",
/// Biometrics 44 (1988), 847-860, which samples in the same way. Formulas for normal values promise too much below ten
/// blocks, where the rank sums have few values.
pub fn smallest_visible_difference(aa: &[Pair], blocks: usize) -> Option<f64> {
    let noise = log_ratios(aa)?;
    if noise.len() < BLOCKS_MIN || !noise.iter().all(|value| value.is_finite()) {
        return None;
    }
    let simulated_blocks = blocks.min(RUN_BLOCKS_MAX);
    let outside = critical_value(simulated_blocks)?;

    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut shortfalls: Vec<f64> = (0..RUNS)
        .map(|_| {
            let mut draw = || {
                let value = noise[random.random_range(0..noise.len())];
                if random.random() { value } else { -value }
            };
            let run: Vec<f64> = (0..simulated_blocks).map(|_| draw()).collect();
            -lower_end(&run, outside)
        })
        .collect();
    shortfalls.sort_unstable_by(f64::total_cmp);

    let detected = (POWER * RUNS as f64).ceil() as usize;
    let shrinkage = (simulated_blocks as f64 / blocks as f64).sqrt();
    Some((shortfalls[detected - 1] * shrinkage).exp_m1())
}

/// Returns the lower end of the 95 % interval of the centre of `values`: the pairwise mean with `outside` others below
/// it.
fn lower_end(values: &[f64], outside: usize) -> f64 {
    let mut means: Vec<f64> = values
        .iter()
        .enumerate()
        .flat_map(|(first, &a)| values[first..].iter().map(move |&b| f64::midpoint(a, b)))
        .collect();
    *means.select_nth_unstable_by(outside, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half_width_of(low: f64, high: f64) -> f64 {
        let interval = Interval::Confidence { low, high };
        half_width(&Estimate { point: low, interval, n: 6 }).unwrap()
    }

    #[test]
    fn half_width_is_the_factor_from_the_middle_to_either_end() {
        // The middle of 2 and 8 is 4, half and double.
        assert!((half_width_of(2.0, 8.0) - 1.0).abs() < 1e-12);
        assert!((half_width_of(1.0 / 1.02, 1.02) - 0.02).abs() < 1e-12);
        assert!((half_width_of(106.0 / 1.005, 106.0 * 1.005) - 0.005).abs() < 1e-12);
        assert_eq!(half_width_of(3.0, 3.0), 0.0);
    }

    #[test]
    fn too_few_blocks_have_no_half_width() {
        let interval = Interval::TooFew { min: 1.0, max: 1.0 };
        assert_eq!(half_width(&Estimate { point: 1.0, interval, n: 5 }), None);
    }

    fn pair_of_log(log: f64) -> Pair {
        Pair { subject: log.exp(), baseline: 1.0 }
    }

    /// Returns noise that is uniform between -0.01 and 0.01.
    fn uniform_noise() -> Vec<Pair> {
        (0..1_000).map(|i| pair_of_log((f64::from(i) - 499.5) / 50_000.0)).collect()
    }

    #[test]
    fn visible_difference_in_six_blocks_by_hand() {
        // The interval is the whole range, so six values have to be positive. A value uniform in
        // -0.01 to 0.01, raised by d, is positive with probability (0.01 + d) / 0.02, and six are with 80 % for
        // d = 0.01 * (2 * 0.8^(1/6) - 1) = 0.009271; as a ratio, 0.009314.
        let visible = smallest_visible_difference(&uniform_noise(), 6).unwrap();
        assert!((visible - 0.009_314).abs() < 0.000_05, "{visible}");
    }

    #[test]
    fn noise_of_one_size_is_the_visible_difference() {
        // Every A/A block is off by 3 %, up or down. A run of six in which one block is down has
        // its lower end 3 % down, and 63 of 64 runs have such a block.
        let noise = [1.03, 1.03, 1.0 / 1.03, 1.03, 1.0 / 1.03, 1.03]
            .map(|subject| Pair { subject, baseline: 1.0 });
        let visible = smallest_visible_difference(&noise, 6).unwrap();
        assert!((visible - 0.03).abs() < 1e-12, "{visible}");
    }

    #[test]
    fn visible_difference_is_proportional_to_the_noise() {
        let visible = |scale: f64| {
            let noise: Vec<Pair> =
                [-0.7, -0.4, 0.1, 0.2, 0.5, 0.8, 1.1].map(|log| pair_of_log(log * scale)).into();
            smallest_visible_difference(&noise, 10).unwrap().ln_1p()
        };
        assert!((visible(0.02) - 2.0 * visible(0.01)).abs() < 1e-12);
    }

    #[test]
    fn more_blocks_make_smaller_differences_visible() {
        let visible = |blocks| smallest_visible_difference(&uniform_noise(), blocks).unwrap();
        let few_to_many = [6, 8, 10, 20, 40, 41, 160].map(visible);
        assert!(few_to_many.is_sorted_by(|few, more| few > more), "{few_to_many:?}");
        // Four times the blocks, half the width.
        let (forty, four_times) = (few_to_many[4].ln_1p(), few_to_many[6].ln_1p());
        assert!((forty - 2.0 * four_times).abs() < 1e-12);
    }

    #[test]
    fn without_noise_any_difference_is_visible() {
        assert_eq!(smallest_visible_difference(&[pair_of_log(0.0); 6], 10), Some(0.0));
    }

    #[test]
    fn too_few_blocks_have_no_visible_difference() {
        assert_eq!(smallest_visible_difference(&uniform_noise(), 5), None);
        assert_eq!(smallest_visible_difference(&uniform_noise()[..5], 10), None);
        assert_eq!(smallest_visible_difference(&[], 10), None);
    }

    #[test]
    fn undefined_ratio_has_no_visible_difference() {
        let mut noise = uniform_noise();
        noise[3].baseline = 0.0;
        assert_eq!(smallest_visible_difference(&noise, 10), None);
    }
}
