//! Requests without a complete response, and why.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Refused,
    Reset,
    ConnectTimeout,
    ResponseTimeout,
    ClosedEarly,
    Malformed(String),
    NoPort,
    Other(String),
}

impl Failures {
    pub fn total(&self) -> u64 {
        self.by_kind().iter().map(|(_, count)| count).sum()
    }

    pub fn timeouts(&self) -> u64 {
        self.connect_timeout + self.response_timeout
    }

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

    pub(crate) fn count(&mut self, failure: Failure) {
        match failure {
            Failure::Refused => self.refused += 1,
            Failure::Reset => self.reset += 1,
            Failure::ConnectTimeout => self.connect_timeout += 1,
            Failure::ResponseTimeout => self.response_timeout += 1,
            Failure::ClosedEarly => self.closed_early += 1,
            Failure::Malformed(reason) => {
                self.malformed += 1;
                self.malformed_example.get_or_insert(reason);
            }
            Failure::NoPort => self.no_port += 1,
            Failure::Other(reason) => {
                self.other += 1;
                self.other_example.get_or_insert(reason);
            }
        }
    }

    /// The counts, without examples.
    pub(crate) fn counts(&self) -> Self {
        Self { malformed_example: None, other_example: None, ..*self }
    }

    /// The counts since an earlier state.
    pub(crate) fn since(&self, before: &Self) -> Self {
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

    pub(crate) fn merge(&mut self, other: Self) {
        self.refused += other.refused;
        self.reset += other.reset;
        self.connect_timeout += other.connect_timeout;
        self.response_timeout += other.response_timeout;
        self.closed_early += other.closed_early;
        self.malformed += other.malformed;
        self.no_port += other.no_port;
        self.other += other.other;
        keep_first(&mut self.malformed_example, other.malformed_example);
        keep_first(&mut self.other_example, other.other_example);
    }
}

impl Failure {
    /// True if the latency of the request is known to be at least its age.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::ResponseTimeout)
    }

    /// Classifies a system error. `action` is the failed call: `connect`, `send` or `receive`.
    pub(crate) fn io(action: &str, error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Self::Reset,
            ErrorKind::AddrNotAvailable => Self::NoPort,
            _ => Self::Other(format!("cannot {action}: {error}")),
        }
    }

    /// A malformed response. The reason includes its sources.
    pub(crate) fn malformed(reason: &(dyn StdError + 'static)) -> Self {
        let sources = std::iter::successors(Some(reason), |&error| error.source());
        let chain: Vec<String> = sources.map(ToString::to_string).collect();
        Self::Malformed(chain.join(": "))
    }
}

pub(crate) fn keep_first(first: &mut Option<String>, other: Option<String>) {
    if first.is_none() {
        *first = other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_are_classified() {
        let kind = |errno| {
            let mut failures = Failures::default();
            failures.count(Failure::io("connect", &io::Error::from_raw_os_error(errno)));
            let found = failures.by_kind().into_iter().find(|(_, count)| *count == 1);
            found.map(|(kind, _)| kind)
        };
        // EADDRNOTAVAIL, ECONNREFUSED, ECONNRESET, EPIPE, EHOSTUNREACH on Linux.
        let kinds = [99, 111, 104, 32, 113].map(kind);
        assert_eq!(kinds, ["no_port", "refused", "reset", "reset", "other"].map(Some));
    }

    #[test]
    fn failures_are_described_by_kind_with_the_first_example() {
        let mut failures = Failures::default();
        assert_eq!((failures.total(), failures.describe().as_str()), (0, ""));
        failures.count(Failure::Reset);
        failures.count(Failure::Malformed("no status".to_owned()));
        failures.count(Failure::Malformed("no length".to_owned()));
        assert_eq!(failures.total(), 3);
        assert_eq!(failures.describe(), "reset: 1, malformed: 2, no status");
    }
}
