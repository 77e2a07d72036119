//! What the figures of a run mean: latency histograms, summaries, and prices with their intervals.
//!
//! Pure: numbers in, values out. Randomness is seeded, so that the same records give the same
//! report.

mod bootstrap;
mod hodges_lehmann;
mod latency;
mod paired;
mod percentiles;
mod signed_rank;
mod steady;
mod summary;
mod two_samples;

pub use latency::{DecodeError, EncodeError, LatencyHistogram};
pub use paired::{BLOCKS_MAX, Estimate, Interval, Pair, difference, ratio};
pub use percentiles::{BUCKETS, PercentileStep, SUB_BUCKETS};
pub use steady::is_steady;
pub use summary::{Summary, summarize};
pub use two_samples::{Shift, ratio_of_samples};
