//! Noise of simulated trials.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

/// Scale of the noise, on logarithms: 1 %.
pub(crate) const NOISE: f64 = 0.01;

/// Distribution of the noise.
#[derive(Clone, Copy)]
pub(crate) enum Noise {
    Normal,
    /// Student's t with three degrees of freedom: occasional outliers.
    Student3,
    /// Lognormal: only slows, occasionally by ten times as much.
    Lognormal,
}

/// All distributions with their names in the table of series.
pub(crate) const NOISES: [(&str, Noise); 3] =
    [("normal", Noise::Normal), ("student-3", Noise::Student3), ("lognormal", Noise::Lognormal)];

/// Draws the noise of one trial, on the scale of logarithms.
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

/// Draws from the standard normal distribution by the method of Box and Muller (1958).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    // Uniform in (0, 1], where the logarithm is finite.
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}
