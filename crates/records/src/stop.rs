//! End of a run.
//!
//! A run ends on precision or on cost, never on its results: ending as soon as figures differ "enough" would find
//! differences that do not exist, while the width of an interval says nothing about its position.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thiserror::Error;

/// Conditions that end a run. The first one met ends it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    pub blocks: u32,
    /// Largest relative half-width of a price in the metric of `judged_by`.
    pub width: Option<f64>,
    /// Time of all trials, in seconds. No block starts that would exceed it.
    pub budget_s: Option<f64>,
    /// Limit for the blocks after `blocks` that replace invalid trials.
    #[serde(default)]
    pub extra_blocks: u32,
}

/// Reason for the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// All blocks were run.
    #[error("all blocks were run")]
    Blocks,
    /// The intervals were narrow enough.
    #[error("the intervals reached the requested width")]
    Width,
    /// The time limit was reached.
    #[error("the time limit was reached")]
    Budget,
    /// All subjects were given up.
    #[error("every subject was given up")]
    Exhausted,
    /// The run was interrupted.
    #[error("the run was interrupted")]
    Interrupted,
}

/// State of a run after a complete block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoFar {
    pub blocks: u32,
    /// Duration of all trials, including start and stop.
    pub took: Duration,
    /// Largest relative half-width of an interval; `None` if a price has no interval.
    pub half_width: Option<f64>,
}

impl Stop {
    /// A fixed number of blocks, and half as many extra ones.
    pub fn after(blocks: u32) -> Self {
        Self { blocks, width: None, budget_s: None, extra_blocks: blocks.div_ceil(2) }
    }

    /// Returns what ends the run after a complete block, or `None` if it continues.
    pub fn reached(&self, so_far: &SoFar) -> Option<EndedBy> {
        let is_narrow = |width: f64| so_far.half_width.is_some_and(|widest| widest <= width);
        if self.width.is_some_and(is_narrow) {
            return Some(EndedBy::Width);
        }
        if so_far.blocks >= self.blocks {
            return Some(EndedBy::Blocks);
        }
        let block_s = so_far.took.as_secs_f64() / f64::from(so_far.blocks.max(1));
        let is_spent = |budget_s: f64| so_far.took.as_secs_f64() + block_s > budget_s;
        self.budget_s.is_some_and(is_spent).then_some(EndedBy::Budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: Stop =
        Stop { blocks: 100, width: Some(0.02), budget_s: Some(60.0), extra_blocks: 0 };

    fn so_far(blocks: u32, duration_s: u64, half_width: Option<f64>) -> SoFar {
        SoFar { blocks, took: Duration::from_secs(duration_s), half_width }
    }

    #[test]
    fn precision_ends_a_run() {
        assert_eq!(STOP.reached(&so_far(6, 10, Some(0.02))), Some(EndedBy::Width));
        assert_eq!(STOP.reached(&so_far(6, 10, Some(0.021))), None);
        assert_eq!(STOP.reached(&so_far(6, 10, None)), None);
        assert_eq!(Stop { width: None, ..STOP }.reached(&so_far(6, 10, Some(0.0))), None);
    }

    #[test]
    fn block_that_would_exceed_the_budget_is_not_started() {
        // Ten blocks in 50 s are 5 s each: an eleventh ends at 55 s, and after eleven a twelfth at 60.
        assert_eq!(STOP.reached(&so_far(10, 50, None)), None);
        assert_eq!(STOP.reached(&so_far(11, 55, None)), None);
        assert_eq!(STOP.reached(&so_far(12, 60, None)), Some(EndedBy::Budget));
        assert_eq!(STOP.reached(&so_far(1, 31, None)), Some(EndedBy::Budget));
    }

    #[test]
    fn fixed_number_of_blocks_ignores_time_and_precision() {
        assert_eq!(Stop::after(3).reached(&so_far(2, 9_999, Some(0.0))), None);
        assert_eq!(Stop::after(3).reached(&so_far(3, 0, None)), Some(EndedBy::Blocks));
    }
}
