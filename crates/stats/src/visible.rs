//! How small a difference a run could see on this machine, from how much two equal subjects
//! differed on it.
//!
//! Made-up runs are drawn from the A/A blocks, and the intervals that they end with are looked at:
//! a price is seen as soon as it lifts the lower end above "no price". So the smallest visible one
//! is what lifts it in 80 % of the runs. Since neither of two equal subjects is the dearer one, each
//! A/A block is drawn with either sign.
//!
//! Source: B. J. Collings and M. A. Hamilton, "Estimating the power of the two-sample Wilcoxon test
//! for location shift", Biometrics 44 (1988), 847-860, which draws from a sample in place of a
//! distribution in the same way. A formula for normal values, such as that of a paired t-test,
//! promises too much below ten blocks, where the ranks have few values to take.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::paired::{Pair, log_ratio};
use crate::signed_rank::critical_value;

/// In how many of the runs the difference has to be seen.
const POWER: f64 = 0.8;

/// How many runs are made up.
const RUNS: usize = 4_000;

/// The most blocks that a run is made up of. Of longer ones it is known that their intervals
/// shrink with the square root of the blocks.
const RUN_BLOCKS_MAX: usize = 40;

/// The fewest A/A blocks that say something of the noise.
const AA_BLOCKS_MIN: usize = 6;

/// The seed of the made-up runs: the same A/A blocks give the same answer.
const SEED: u64 = 1;

/// The smallest relative difference that a run of `blocks` blocks sees with a power of 80 %: 0.01
/// for a subject that takes one percent more, told as different by the 95 % interval.
///
/// `aa` holds a metric of two equal subjects in each block of an A/A run. `None` for fewer than six
/// blocks on either side, or where a ratio is not positive and finite.
pub fn smallest_visible_difference(aa: &[Pair], blocks: usize) -> Option<f64> {
    let noise: Vec<f64> = aa.iter().map(log_ratio).collect::<Option<_>>()?;
    if noise.len() < AA_BLOCKS_MIN || !noise.iter().all(|value| value.is_finite()) {
        return None;
    }
    let made_up = blocks.min(RUN_BLOCKS_MAX);
    let outside = critical_value(made_up)?;

    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut shortfalls: Vec<f64> = (0..RUNS)
        .map(|_| {
            let mut one = || {
                let value = noise[random.random_range(0..noise.len())];
                if random.random() { value } else { -value }
            };
            let run: Vec<f64> = (0..made_up).map(|_| one()).collect();
            -lower_end(&run, outside)
        })
        .collect();
    shortfalls.sort_unstable_by(f64::total_cmp);

    let seen = (POWER * RUNS as f64).ceil() as usize;
    let shrunk = (made_up as f64 / blocks as f64).sqrt();
    Some((shortfalls[seen - 1] * shrunk).exp_m1())
}

/// The lower end of the 95 % interval of the centre of `values`: that one of their pairwise means
/// which `outside` others are below.
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

    fn pair_of_log(log: f64) -> Pair {
        Pair { subject: log.exp(), baseline: 1.0 }
    }

    /// Noise that lies evenly between -0.01 and 0.01.
    fn even_noise() -> Vec<Pair> {
        (0..1_000).map(|i| pair_of_log((f64::from(i) - 499.5) / 50_000.0)).collect()
    }

    #[test]
    fn six_blocks_of_even_noise_by_hand() {
        // The interval is the whole range, so six values have to be positive. Of values even in
        // -0.01 to 0.01, raised by d, one is with (0.01 + d) / 0.02, and six with 80 % where
        // d = 0.01 * (2 * 0.8^(1/6) - 1) = 0.009271; as a ratio, 0.009314.
        let visible = smallest_visible_difference(&even_noise(), 6).unwrap();
        assert!((visible - 0.009_314).abs() < 0.000_05, "{visible}");
    }

    #[test]
    fn noise_of_one_size_is_what_can_be_seen() {
        // Every A/A block is off by 3 %, up or down. A run of six in which one block is down has
        // its lower end 3 % down, and 63 of 64 runs have such a block.
        let noise = [1.03, 1.03, 1.0 / 1.03, 1.03, 1.0 / 1.03, 1.03]
            .map(|subject| Pair { subject, baseline: 1.0 });
        let visible = smallest_visible_difference(&noise, 6).unwrap();
        assert!((visible - 0.03).abs() < 1e-12, "{visible}");
    }

    #[test]
    fn twice_the_noise_hides_twice_as_much() {
        let visible = |scale: f64| {
            let noise: Vec<Pair> =
                [-0.7, -0.4, 0.1, 0.2, 0.5, 0.8, 1.1].map(|log| pair_of_log(log * scale)).into();
            smallest_visible_difference(&noise, 10).unwrap().ln_1p()
        };
        assert!((visible(0.02) - 2.0 * visible(0.01)).abs() < 1e-12);
    }

    #[test]
    fn more_blocks_see_more() {
        let visible = |blocks| smallest_visible_difference(&even_noise(), blocks).unwrap();
        let few_to_many = [6, 8, 10, 20, 40, 41, 160].map(visible);
        assert!(few_to_many.is_sorted_by(|few, more| few > more), "{few_to_many:?}");
        // Four times the blocks, half the width.
        let (forty, four_times) = (few_to_many[4].ln_1p(), few_to_many[6].ln_1p());
        assert!((forty - 2.0 * four_times).abs() < 1e-12);
    }

    #[test]
    fn without_noise_everything_can_be_seen() {
        assert_eq!(smallest_visible_difference(&[pair_of_log(0.0); 6], 10), Some(0.0));
    }

    #[test]
    fn too_few_blocks_see_nothing() {
        assert_eq!(smallest_visible_difference(&even_noise(), 5), None);
        assert_eq!(smallest_visible_difference(&even_noise()[..5], 10), None);
        assert_eq!(smallest_visible_difference(&[], 10), None);
    }

    #[test]
    fn what_has_no_ratio_is_no_noise() {
        let mut noise = even_noise();
        noise[3].baseline = 0.0;
        assert_eq!(smallest_visible_difference(&noise, 10), None);
    }
}
