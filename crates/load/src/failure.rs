//! Requests that got no answer, by kind.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

/// How many requests got no complete answer, by what happened to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    Other(String),
}

impl Failures {
    /// All kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let timeouts = self.connect_timeout + self.answer_timeout;
        self.refused + self.reset + timeouts + self.closed_early + self.malformed + self.other
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
