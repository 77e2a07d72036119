//! The noise of made-up trials.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

/// How large it is, on the scale of logarithms: 1 %.
pub(crate) const NOISE: f64 = 0.01;

/// What the noise of a trial looks like.
#[derive(Clone, Copy)]
pub(crate) enum Noise {
    /// The normal distribution.
    Normal,
    /// Student's, with three degrees of freedom: now and then a value is far off.
    Student3,
    /// The lognormal distribution: it only ever slows, now and then by ten times as much.
    Lognormal,
}

/// What the noise adds to the logarithm of one trial.
pub(crate) fn noise(kind: Noise, random: &mut ChaCha8Rng) -> f64 {
    NOISE
        * match kind {
            Noise::Normal => normal(random),
            Noise::Student3 => {
                let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
                normal(random) / (squares / 3.0).sqrt()
            }
            Noise::Lognormal => normal(random).exp(),
        }
}

/// A draw from the standard normal distribution, by the method of Box and Muller (1958).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    // From (0, 1], so that the logarithm exists.
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}
