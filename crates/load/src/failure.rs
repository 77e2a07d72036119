//! Requests that got no answer, by kind.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use serde::{Deserialize, Serialize};

/// How many requests got no complete answer, by what happened to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// Nobody listens at the target. The request failed, and the connection paused for 10 ms.
    pub refused: u64,
    /// The connection was reset.
    pub reset: u64,
    /// Connecting took longer than the plan allows.
    pub connect_timeout: u64,
    /// The answer took longer than the plan allows.
    pub answer_timeout: u64,
    /// The connection was closed after the request was sent, before any byte of the answer.
    pub closed_early: u64,
    /// What came was not an HTTP/1 answer, stopped short, or went on after its end.
    pub malformed: u64,
    /// No local port was left towards the target: closed connections keep theirs for a while.
    #[serde(default)]
    pub no_port: u64,
    /// Anything else.
    pub other: u64,
    /// What was wrong with the first malformed answer.
    pub malformed_example: Option<String>,
    /// What the first failure of another kind was.
    pub other_example: Option<String>,
}

/// What happened to one request.
#[derive(Debug)]
pub(crate) enum Failure {
    Refused,
    Reset,
    ConnectTimeout,
    AnswerTimeout,
    ClosedEarly,
    Malformed(String),
    NoPort,
    Other(String),
}

impl Failures {
    /// All kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_kind().iter().map(|(_, count)| count).sum()
    }

    /// Each kind by its name, with its count.
    #[must_use]
    pub fn by_kind(&self) -> [(&'static str, u64); 8] {
        [
            ("refused", self.refused),
            ("reset", self.reset),
            ("connect_timeout", self.connect_timeout),
            ("answer_timeout", self.answer_timeout),
            ("closed_early", self.closed_early),
            ("malformed", self.malformed),
            ("no_port", self.no_port),
            ("other", self.other),
        ]
    }

    /// The kinds that there are, with their counts and the examples; empty when there is none.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        for (kind, count) in self.by_kind().into_iter().filter(|(_, count)| *count > 0) {
            words.push(format!("{kind}: {count}"));
        }
        let examples = [&self.malformed_example, &self.other_example];
        words.extend(examples.into_iter().flatten().cloned());
        words.join(", ")
    }

    pub(crate) fn count(&mut self, failure: Failure) {
        match failure {
            Failure::Refused => self.refused += 1,
            Failure::Reset => self.reset += 1,
            Failure::ConnectTimeout => self.connect_timeout += 1,
            Failure::AnswerTimeout => self.answer_timeout += 1,
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

    pub(crate) fn merge(&mut self, other: Self) {
        self.refused += other.refused;
        self.reset += other.reset;
        self.connect_timeout += other.connect_timeout;
        self.answer_timeout += other.answer_timeout;
        self.closed_early += other.closed_early;
        self.malformed += other.malformed;
        self.no_port += other.no_port;
        self.other += other.other;
        self.malformed_example = self.malformed_example.take().or(other.malformed_example);
        self.other_example = self.other_example.take().or(other.other_example);
    }
}

impl Failure {
    /// Whether the request was given up when its time was over, so that its latency is known to be
    /// at least its age.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::AnswerTimeout)
    }

    pub(crate) fn io(doing: &str, error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Self::Reset,
            ErrorKind::AddrNotAvailable => Self::NoPort,
            _ => Self::Other(format!("{doing}: {error}")),
        }
    }

    /// An answer that is faulty for a reason, told with its causes.
    pub(crate) fn malformed(reason: &dyn StdError) -> Self {
        let mut text = reason.to_string();
        let mut cause = reason.source();
        while let Some(source) = cause {
            text = format!("{text}: {source}");
            cause = source.source();
        }
        Self::Malformed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_told_apart() {
        let kind = |errno| {
            let mut failures = Failures::default();
            failures.count(Failure::io("connecting", &io::Error::from_raw_os_error(errno)));
            let found = failures.by_kind().into_iter().find(|(_, count)| *count == 1);
            found.map(|(kind, _)| kind)
        };
        // EADDRNOTAVAIL, ECONNREFUSED, ECONNRESET, EPIPE, EHOSTUNREACH on Linux.
        let kinds = [99, 111, 104, 32, 113].map(kind);
        let expected = ["no_port", "refused", "reset", "reset", "other"];
        assert_eq!(kinds, expected.map(Some));
    }

    #[test]
    fn failures_are_told_by_kind_with_their_examples() {
        let mut failures = Failures::default();
        assert_eq!((failures.total(), failures.in_words().as_str()), (0, ""));
        failures.count(Failure::Reset);
        failures.count(Failure::Malformed("no status".to_owned()));
        failures.count(Failure::Malformed("no length".to_owned()));
        assert_eq!(failures.total(), 3);
        assert_eq!(failures.in_words(), "reset: 1, malformed: 2, no status");
    }
}
