//! Statistics of runs: latency histograms, summaries, prices with intervals, verdicts, change points; failures of a load;
//! and the number and text formats of reports.
//!
//! Pure functions. Randomness is seeded, so that the same records give the same report.

mod change_points;
mod delivery;
mod distributions;
mod interval;
mod latency;
pub mod number;
mod paired;
mod proportion;
mod summary;
pub mod text;
mod two_samples;
mod verdict;

pub use change_points::{ChangePoint, Division, DivisionTest, SERIES_MAX, e_divisive};
pub use delivery::{Failures, LATENESS_MAX, UNSENT_SHARE_MAX};
pub use latency::{DecodeError, EncodeError, LatencyHistogram, PercentileStep};
pub use paired::{
    BLOCKS_MAX, BLOCKS_MIN, Estimate, Interval, Pair, difference, difference_p, half_width, ratio,
    ratio_p, smallest_visible_difference,
};
pub use proportion::{Proportion, mcnemar_p, mean_of_two, proportion};
pub use summary::{OUTLIER_Z, STEADY_SLICES, Summary, is_steady, modified_z_scores, summarize};
pub use two_samples::{Shift, ratio_of_samples};
pub use verdict::{Verdict, holm, verdict, verdict_of_difference};
