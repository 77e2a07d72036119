//! Errors of a load, and classes of failed requests.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use tollgate_stats::Failures;

/// Error that prevents or ends a load. Failures of single requests are counted in
/// [`Failures`](crate::Failures) instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Workload(String),
    #[error("{0}")]
    Plan(String),
    /// Threads cannot be pinned to the CPUs of the plan.
    #[error("cannot pin threads to CPUs {cpus:?}: choose others, or none")]
    Cpus { cpus: Vec<usize>, source: io::Error },
    #[error("cannot read the limit of open files")]
    Files(#[source] io::Error),
    /// A thread cannot start or continue.
    #[error("load thread {thread} cannot {action}")]
    Thread { thread: usize, action: &'static str, source: io::Error },
}

#[derive(Clone, Debug)]
pub(crate) enum RequestFailure {
    Refused,
    Reset,
    ConnectTimeout,
    ResponseTimeout,
    ClosedEarly,
    Malformed(String),
    NoPort,
    Other(String),
}

impl RequestFailure {
    pub(crate) fn count(self, failures: &mut Failures) {
        match self {
            Self::Refused => failures.refused += 1,
            Self::Reset => failures.reset += 1,
            Self::ConnectTimeout => failures.connect_timeout += 1,
            Self::ResponseTimeout => failures.response_timeout += 1,
            Self::ClosedEarly => failures.closed_early += 1,
            Self::Malformed(reason) => {
                failures.malformed += 1;
                failures.malformed_example.get_or_insert(reason);
            }
            Self::NoPort => failures.no_port += 1,
            Self::Other(reason) => {
                failures.other += 1;
                failures.other_example.get_or_insert(reason);
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_are_classified() {
        let kind = |errno| {
            let mut failures = Failures::default();
            RequestFailure::io("connect", &io::Error::from_raw_os_error(errno))
                .count(&mut failures);
            let found = failures.by_kind().into_iter().find(|(_, count)| *count == 1);
            found.map(|(kind, _)| kind)
        };
        // EADDRNOTAVAIL, ECONNREFUSED, ECONNRESET, EPIPE, EHOSTUNREACH on Linux.
        let kinds = [99, 111, 104, 32, 113].map(kind);
        assert_eq!(kinds, ["no_port", "refused", "reset", "reset", "other"].map(Some));
    }
}
