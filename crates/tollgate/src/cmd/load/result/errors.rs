//! What went wrong.

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_load::{Failures, Outcome};

/// What went wrong, by kind. All but `unexpected` got no complete answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Errors {
    /// Nobody listens at the target.
    pub(crate) refused: u64,
    /// The connection was reset.
    pub(crate) reset: u64,
    /// Connecting took too long.
    pub(crate) connect_timeout: u64,
    /// The answer took too long.
    pub(crate) answer_timeout: u64,
    /// The connection was closed before any byte of the answer.
    pub(crate) closed_early: u64,
    /// What came was not an HTTP/1 answer.
    pub(crate) malformed: u64,
    /// No local port was left.
    pub(crate) no_port: u64,
    /// Anything else.
    pub(crate) other: u64,
    /// A complete answer other than the expected one.
    pub(crate) unexpected: u64,
}

/// The first error of a kind in words; null where there was none.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Examples {
    /// What was wrong with a malformed answer.
    pub(crate) malformed: Option<String>,
    /// What a failure of another kind was.
    pub(crate) other: Option<String>,
    /// What an unexpected answer was.
    pub(crate) unexpected: Option<String>,
}

impl Errors {
    pub(super) fn of(failures: &Failures, unexpected: u64) -> Self {
        Self {
            refused: failures.refused,
            reset: failures.reset,
            connect_timeout: failures.connect_timeout,
            answer_timeout: failures.answer_timeout,
            closed_early: failures.closed_early,
            malformed: failures.malformed,
            no_port: failures.no_port,
            other: failures.other,
            unexpected,
        }
    }

    /// Requests that were given up when their time was over.
    pub(crate) fn timeouts(&self) -> u64 {
        self.connect_timeout + self.answer_timeout
    }
}

impl Examples {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let mut unexpected = outcome.templates.iter().filter_map(|t| t.unexpected_example.clone());
        Self {
            malformed: outcome.failures.malformed_example.clone(),
            other: outcome.failures.other_example.clone(),
            unexpected: unexpected.next(),
        }
    }
}
