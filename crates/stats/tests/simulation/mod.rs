//! Simulated measurements with known truth.

pub(crate) mod noise;
pub(crate) mod runs;
pub(crate) mod series;
