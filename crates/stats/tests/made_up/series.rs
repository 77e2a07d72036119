//! Made-up series: the figures of revisions, one after the other, whose level changes once or never.

#[path = "noise.rs"]
mod noise;

use noise::noise;
pub(crate) use noise::{NOISE, Noise};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use tollgate_stats::{Division, DivisionTest, e_divisive};

/// The noises of the table, each with its name.
pub(crate) const NOISES: [(&str, Noise); 3] =
    [("normal", Noise::Normal), ("student-3", Noise::Student3), ("lognormal", Noise::Lognormal)];

/// A step of the level.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// The position of the first value of the new level.
    pub(crate) place: usize,
    /// How much higher it lies, on the scale of logarithms.
    pub(crate) height: f64,
}

/// How a series is searched for change points in the table.
pub(crate) const BY_SHUFFLES: Division =
    Division { segment_min: 2, significance: 0.05, test: DivisionTest::Permutations { seed: 1 } };

/// The other way of the table.
pub(crate) const BY_STUDENT: Division = Division { test: DivisionTest::Student, ..BY_SHUFFLES };

/// In how many of `runs` series of `n` values without a step one is found.
pub(crate) fn false_alarms(kind: Noise, n: usize, division: &Division, runs: usize) -> usize {
    let mut random = ChaCha8Rng::seed_from_u64(n as u64);
    (0..runs).filter(|_| !change_points(kind, n, None, division, &mut random).is_empty()).count()
}

/// In how many of `runs` series of `n` values the step is found, at its very place.
pub(crate) fn steps_found(
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
    e_divisive(&series, division)
        .expect("made-up figures are finite")
        .iter()
        .map(|change| change.index)
        .collect()
}
