//! Tests against other implementations, by hand, and by properties.

#[path = "../simulation/mod.rs"]
mod simulation;

// Change points.
mod change_points;
// Latency histograms and their V2 format.
mod latency;
// Ratios and differences of pairs.
mod prices;
// Coverage of intervals, and false verdicts, in simulated runs and series.
mod simulations;
// Ratios of independent samples.
mod two_samples;
// P-values, corrections, scores and verdicts.
mod verdicts;

use tollgate_stats::{Estimate, Interval};

fn ends(estimate: &Estimate) -> (f64, f64) {
    match estimate.interval {
        Interval::Confidence { low, high } => (low, high),
        Interval::TooFew { min, max } => (min, max),
    }
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn assert_close(one: &Estimate, other: &Estimate) {
    let ((low, high), (other_low, other_high)) = (ends(one), ends(other));
    let close =
        is_close(one.point, other.point) && is_close(low, other_low) && is_close(high, other_high);
    assert!(close, "{one:?}\n{other:?}");
}
