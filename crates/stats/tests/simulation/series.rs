//! Simulated series of revisions, whose level changes once or never.

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use tollgate_stats::{Division, DivisionTest, e_divisive};

use super::noise::{Noise, noise};

/// Step of the level.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// Index of the first value of the new level.
    pub(crate) place: usize,
    /// Height on the scale of logarithms.
    pub(crate) height: f64,
}

pub(crate) const BY_PERMUTATIONS: Division =
    Division { segment_min: 2, significance: 0.05, test: DivisionTest::Permutations { seed: 1 } };

pub(crate) const BY_STUDENT: Division = Division { test: DivisionTest::Student, ..BY_PERMUTATIONS };

/// Counts the series of `n` values without a step in which a change point is found.
pub(crate) fn count_false_alarms(kind: Noise, n: usize, division: &Division, runs: usize) -> usize {
    let mut random = ChaCha8Rng::seed_from_u64(n as u64);
    (0..runs).filter(|_| !change_points(kind, n, None, division, &mut random).is_empty()).count()
}

/// Counts the series of `n` values in which the step is found at its exact place.
pub(crate) fn count_found_steps(
    kind: Noise,
    n: usize,
    step: Step,
    division: &Division,
    runs: usize,
) -> usize {
    let mut random = ChaCha8Rng::seed_from_u64(n as u64);
    (0..runs)
        .filter(|_| change_points(kind, n, Some(step), division, &mut random).contains(&step.place))
        .count()
}

fn change_points(
    kind: Noise,
    n: usize,
    step: Option<Step>,
    division: &Division,
    random: &mut ChaCha8Rng,
) -> Vec<usize> {
    let level = |i: usize| step.map_or(0.0, |step| if i < step.place { 0.0 } else { step.height });
    let series: Vec<f64> = (0..n).map(|i| level(i) + noise(kind, random)).collect();
    let changes = e_divisive(&series, division).expect("simulated values are finite");
    changes.iter().map(|change| change.index).collect()
}
