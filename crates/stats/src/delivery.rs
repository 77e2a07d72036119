//! Delivery of a load: requests without a complete response, and the limits within which a generator is on schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Limit of the 99th percentile of the lateness of a generator that is on schedule. Well above the time
/// to wake a thread (some tens of microseconds).
pub const LATENESS_MAX: Duration = Duration::from_millis(1);

/// Limit of the share of requests that are due, but not sent, in a load that is delivered.
pub const UNSENT_SHARE_MAX: f64 = 0.01;

/// Requests without a complete response, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failures {
    /// Nothing listens at the target. The request failed, and the connection waited for 10 ms.
    pub refused: u64,
    /// The connection or the stream was reset.
    pub reset: u64,
    /// The connect took longer than its timeout.
    pub connect_timeout: u64,
    /// The response took longer than its timeout.
    pub response_timeout: u64,
    /// The connection was closed after the request was sent, before any byte of the response.
    pub closed_early: u64,
    /// The response broke the protocol, or was incomplete, or longer than its framing says.
    pub malformed: u64,
    /// No local port was left: closed connections keep theirs for a while.
    #[serde(default)]
    pub no_port: u64,
    /// Any other error.
    pub other: u64,
    /// Description of the first malformed response.
    pub malformed_example: Option<String>,
    /// The first error of another kind.
    pub other_example: Option<String>,
}

impl Failures {
    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.by_kind().iter().map(|(_, count)| count).sum()
    }

    /// Both kinds of timeouts.
    pub fn timeouts(&self) -> u64 {
        self.connect_timeout + self.response_timeout
    }

    /// The count of each kind, with its name.
    pub fn by_kind(&self) -> [(&'static str, u64); 8] {
        [
            ("refused", self.refused),
            ("reset", self.reset),
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
            ("closed_early", self.closed_early),
            ("malformed", self.malformed),
            ("no_port", self.no_port),
            ("other", self.other),
        ]
    }

    /// Lists the kinds that occurred, with counts and examples: `reset: 1, malformed: 2, REASON`.
    pub fn describe(&self) -> String {
        let kinds = self.by_kind().into_iter().filter(|(_, count)| *count > 0);
        let mut parts: Vec<String> =
            kinds.map(|(kind, count)| format!("{kind}: {count}")).collect();
        let examples = [&self.malformed_example, &self.other_example];
        parts.extend(examples.into_iter().flatten().cloned());
        parts.join(", ")
    }

    /// Returns the counts, without examples.
    pub fn counts(&self) -> Self {
        Self { malformed_example: None, other_example: None, ..*self }
    }

    /// Returns the counts since an earlier state.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            refused: self.refused - before.refused,
            reset: self.reset - before.reset,
            connect_timeout: self.connect_timeout - before.connect_timeout,
            response_timeout: self.response_timeout - before.response_timeout,
            closed_early: self.closed_early - before.closed_early,
            malformed: self.malformed - before.malformed,
            no_port: self.no_port - before.no_port,
            other: self.other - before.other,
            malformed_example: None,
            other_example: None,
        }
    }

    /// Adds the failures of another thread or generator, and keeps the first example of each kind.
    pub fn merge(&mut self, other: Self) {
        self.refused += other.refused;
        self.reset += other.reset;
        self.connect_timeout += other.connect_timeout;
        self.response_timeout += other.response_timeout;
        self.closed_early += other.closed_early;
        self.malformed += other.malformed;
        self.no_port += other.no_port;
        self.other += other.other;
        self.malformed_example = self.malformed_example.take().or(other.malformed_example);
        self.other_example = self.other_example.take().or(other.other_example);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_described_by_kind_with_the_first_example() {
        assert_eq!((Failures::default().total(), Failures::default().describe().as_str()), (0, ""));
        let malformed = |example: &str| Failures {
            malformed: 1,
            malformed_example: Some(example.to_owned()),
            ..Failures::default()
        };
        let mut failures = Failures { reset: 1, ..Failures::default() };
        failures.merge(malformed("no status"));
        failures.merge(malformed("no length"));
        assert_eq!(failures.total(), 3);
        assert_eq!(failures.describe(), "reset: 1, malformed: 2, no status");
    }
}
