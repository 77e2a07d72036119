//! What the figures of a run mean: latency histograms, summaries, prices with their intervals,
//! verdicts, and where a series of figures changes its level.
//!
//! Pure: numbers in, values out. Randomness is seeded, so that the same records give the same
//! report.

mod bootstrap;
mod change_points;
mod distributions;
mod hgrm;
mod hodges_lehmann;
mod holm;
mod inversion;
mod latency;
mod outliers;
mod paired;
mod percentiles;
mod precision;
mod signed_rank;
mod steady;
mod summary;
mod two_samples;
mod verdict;
mod visible;

pub use change_points::{ChangePoint, Division, DivisionTest, SERIES_MAX, e_divisive};
pub use holm::{blocks_to_settle, holm};
pub use latency::{DecodeError, EncodeError, LatencyHistogram};
pub use outliers::{OUTLIER_Z, modified_z_scores};
pub use paired::{BLOCKS_MAX, Estimate, Interval, Pair, difference, difference_p, ratio, ratio_p};
pub use percentiles::PercentileStep;
pub use precision::half_width;
pub use steady::{STEADY_SLICES, is_steady};
pub use summary::{Summary, summarize};
pub use two_samples::{Shift, ratio_of_samples};
pub use verdict::{Verdict, verdict, verdict_of_difference};
pub use visible::smallest_visible_difference;
