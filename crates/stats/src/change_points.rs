//! Where a series of figures, such as the prices of one revision after the other, changes its level:
//! e-divisive, which divides the series again and again where the energy statistic is largest, as
//! long as a test says that the division is no accident.
//!
//! Source: D. S. Matteson and N. A. James, "A Nonparametric Approach for Multiple Change Point Analysis
//! of Multivariate Data", Journal of the American Statistical Association 109 (2014), 334-345,
//! doi 10.1080/01621459.2013.849605 (sections 2 and 3; the exponent is 1).

mod energy;
mod significance;

use std::ops::Range;

use energy::{Candidate, best_division};
pub use significance::DivisionTest;

/// The most values of a series. The work of the permutation test grows with their square, and stays
/// within seconds up to here.
pub const SERIES_MAX: usize = 500;

/// How a series is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Division {
    /// The fewest values on either side of a change point, at least 1. With 1, a single odd value at an
    /// end may pass for a new level; with 2, a change at the last value cannot be found.
    pub segment_min: usize,
    /// The largest p at which a division still counts.
    pub significance: f64,
    /// What tells a change from an accident.
    pub test: DivisionTest,
}

/// Where the level of a series changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// The position of the first value of the new level, counted from 0.
    pub index: usize,
    /// The energy statistic of the division, in the unit of the series.
    pub q: f64,
    /// The chance that a series without another change would be divided at least as clearly.
    pub p: f64,
}

/// The change points of `series`, in its order.
///
/// The clearest is found first; what is left on either side is then searched alike, until the
/// clearest division of what is left is not significant. As with any such search at a significance
/// of 5 %, one series in twenty without a change is divided.
///
/// Figures that are ratios belong in here as logarithms, so that twice as much and half as much weigh
/// the same.
///
/// `None` when a value is not finite.
///
/// # Panics
///
/// With more than [`SERIES_MAX`] values, and when segments may have no value.
pub fn e_divisive(series: &[f64], division: &Division) -> Option<Vec<ChangePoint>> {
    let n = series.len();
    assert!(n <= SERIES_MAX, "{n} values are more than {SERIES_MAX}");
    assert!(division.segment_min >= 1, "a segment has one value at the least");
    if !series.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut segments = vec![Segment::of(series, 0..n, division)];
    let mut found = Vec::new();
    for stage in 0.. {
        let Some((position, candidate)) = clearest(&segments) else { break };
        let ranges: Vec<Range<usize>> = segments.iter().map(|s| s.range.clone()).collect();
        let tested = significance::Tested { series, ranges: &ranges, position, candidate, stage };
        let Some(p) = tested.p(division) else { break };
        found.push(ChangePoint { index: candidate.index, q: candidate.q, p });
        let range = &ranges[position];
        let halves = [range.start..candidate.index, candidate.index..range.end]
            .map(|half| Segment::of(series, half, division));
        segments.splice(position..=position, halves);
    }
    found.sort_unstable_by_key(|change| change.index);
    Some(found)
}

/// A stretch of the series without a change point in it that was found so far.
struct Segment {
    range: Range<usize>,
    candidate: Option<Candidate>,
}

impl Segment {
    fn of(series: &[f64], range: Range<usize>, division: &Division) -> Self {
        let candidate = best_division(&series[range.clone()], division.segment_min).map(
            |Candidate { index, end, q }| Candidate {
                index: range.start + index,
                end: range.start + end,
                q,
            },
        );
        Self { range, candidate }
    }
}

/// The segment with the clearest division, by its position, and that division.
fn clearest(segments: &[Segment]) -> Option<(usize, Candidate)> {
    segments
        .iter()
        .enumerate()
        .filter_map(|(position, segment)| Some((position, segment.candidate?)))
        .max_by(|(_, a), (_, b)| a.q.total_cmp(&b.q))
}
