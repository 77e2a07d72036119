//! When a run has enough blocks: on precision or on what it may cost, never on what it found.
//!
//! A run that stopped as soon as its figures differ "enough" would find differences that are not
//! there; one that stops when its intervals are narrow enough does not look at where they lie.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use tollgate_stats::min_blocks;

/// What ends a run, whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// So many blocks have been run.
    pub blocks: u32,
    /// The half-width of every price in CPU per request (in throughput, where the baseline has no CPU of
    /// its own) is at most this share, after as many blocks as it takes to settle so many prices.
    pub width: Option<f64>,
    /// The trials have taken so long, in seconds, that another block would go beyond it.
    pub budget_s: Option<f64>,
}

/// What ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// It had as many blocks as were asked for.
    Blocks,
    /// Its intervals were narrow enough.
    Width,
    /// Its time was spent.
    Budget,
    /// Every subject was given up.
    Exhausted,
    /// It was cut off before any of these.
    Interrupted,
}

/// What a run has come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoFar {
    /// Blocks that are complete.
    pub blocks: u32,
    /// How many subjects are priced.
    pub prices: usize,
    /// How long their trials took, starting and stopping included.
    pub took: Duration,
    /// How precise the prices in CPU per request are: the widest half-width as a share, and the fewest
    /// blocks that count behind one; none while one has no interval.
    pub precision: Option<(f64, usize)>,
}

/// The precision that is asked for where only a budget is given.
pub const WIDTH: f64 = 0.02;

/// The time that is given where only a precision is asked for.
pub const BUDGET: Duration = Duration::from_secs(600);

impl Stop {
    /// A run of so many blocks.
    pub fn after(blocks: u32) -> Self {
        Self { blocks, width: None, budget_s: None }
    }

    /// What ends the run after a complete block, if anything does.
    pub fn reached(&self, so_far: &SoFar) -> Option<EndedBy> {
        // With fewer blocks, no price could have a verdict, however narrow its interval is.
        let needed = min_blocks(so_far.prices.max(1));
        let is_narrow = |width: f64| {
            so_far.precision.is_some_and(|(half_width, n)| half_width <= width && n >= needed)
        };
        if self.width.is_some_and(is_narrow) {
            return Some(EndedBy::Width);
        }
        if so_far.blocks >= self.blocks {
            return Some(EndedBy::Blocks);
        }
        let a_block_s = so_far.took.as_secs_f64() / f64::from(so_far.blocks.max(1));
        let is_spent = |budget_s: f64| so_far.took.as_secs_f64() + a_block_s > budget_s;
        self.budget_s.is_some_and(is_spent).then_some(EndedBy::Budget)
    }
}

impl fmt::Display for EndedBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Blocks => "all blocks were run",
            Self::Width => "the intervals are as narrow as was asked for",
            Self::Budget => "the time was spent",
            Self::Exhausted => "every subject was given up",
            Self::Interrupted => "it was cut off",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: Stop = Stop { blocks: 100, width: Some(0.02), budget_s: Some(60.0) };

    fn so_far(blocks: u32, duration_s: u64, half_width: Option<f64>) -> SoFar {
        let precision = half_width.map(|half| (half, blocks as usize));
        SoFar { blocks, prices: 1, took: Duration::from_secs(duration_s), precision }
    }

    #[test]
    fn precision_ends_a_run_from_six_blocks_on() {
        assert_eq!(STOP.reached(&so_far(5, 10, Some(0.001))), None);
        assert_eq!(STOP.reached(&so_far(6, 10, Some(0.02))), Some(EndedBy::Width));
        assert_eq!(STOP.reached(&so_far(6, 10, Some(0.021))), None);
        assert_eq!(STOP.reached(&so_far(6, 10, None)), None);
        assert_eq!(Stop { width: None, ..STOP }.reached(&so_far(6, 10, Some(0.0))), None);
    }

    #[test]
    fn the_more_prices_the_more_blocks_it_takes_to_settle_them() {
        let three = |blocks| STOP.reached(&SoFar { prices: 3, ..so_far(blocks, 10, Some(0.0)) });
        assert_eq!((three(6), three(7)), (None, Some(EndedBy::Width)));
    }

    #[test]
    fn a_block_that_would_not_fit_is_not_begun() {
        // Ten blocks in 50 s are 5 s each: an eleventh ends at 55 s, and after eleven a twelfth at 60.
        assert_eq!(STOP.reached(&so_far(10, 50, None)), None);
        assert_eq!(STOP.reached(&so_far(11, 55, None)), None);
        assert_eq!(STOP.reached(&so_far(12, 60, None)), Some(EndedBy::Budget));
        assert_eq!(STOP.reached(&so_far(1, 31, None)), Some(EndedBy::Budget));
    }

    #[test]
    fn a_fixed_number_of_blocks_looks_at_nothing_else() {
        assert_eq!(Stop::after(3).reached(&so_far(2, 9_999, Some(0.0))), None);
        assert_eq!(Stop::after(3).reached(&so_far(3, 0, None)), Some(EndedBy::Blocks));
    }
}
