//! What of a trial is measured, as a file says it.

use crate::duration::Span;
use std::time::Duration;

/// What ends the measured part of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Its time.
    For(Duration),
    /// The answer to the last of so many requests.
    Requests {
        /// How many.
        requests: u32,
        /// How long they may take, or the trial does not count.
        within: Duration,
    },
}

impl Window {
    /// How long it is at the least, as far as that is known.
    pub fn shortest(self) -> Duration {
        match self {
            Self::For(time) => time,
            Self::Requests { .. } => Duration::ZERO,
        }
    }

    /// How long it is at the most.
    pub fn longest(self) -> Duration {
        match self {
            Self::For(time) | Self::Requests { within: time, .. } => time,
        }
    }

    /// How many requests end it, where it is not a time.
    pub fn requests(self) -> Option<u32> {
        match self {
            Self::For(_) => None,
            Self::Requests { requests, .. } => Some(requests),
        }
    }
}

/// How long a number of requests may take, where nobody says.
pub(super) const REQUESTS_LONGEST: Span = Span(Duration::from_secs(60));

/// The most requests of a trial: an hour of them at what one core answers.
pub(super) const REQUESTS_MAX: usize = 1_000_000_000;
