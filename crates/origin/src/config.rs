//! What an origin is started with.

use std::time::Duration;

use tollgate_ledger::LogTarget;

use crate::listen::Listen;

/// Where an origin listens, what it runs on, and how patient it is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: Listen,
    /// How many threads serve, from 1 to 256.
    pub threads: usize,
    /// The CPUs to run on, numbered from 0: each thread is pinned to one of them, in turn. None: the
    /// threads are not pinned.
    pub cpus: Vec<usize>,
    /// How long clients are waited for.
    pub timeouts: Timeouts,
    /// Where a line a request goes. None: nothing is written.
    pub access_log: Option<LogTarget>,
}

impl Config {
    /// One thread that listens there and is not pinned, with the usual timeouts and no access log.
    #[must_use]
    pub fn new(listen: Listen) -> Self {
        Self {
            listen,
            threads: 1,
            cpus: Vec::new(),
            timeouts: Timeouts::default(),
            access_log: None,
        }
    }
}

/// How long clients are waited for; those that take longer are cut off. All are looked at a few times
/// in the shortest of them, so that a client may have a quarter of that, and at most a second, more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// From one byte of a request's body to the next; and what a body has to be below its least rate.
    pub body: Duration,
    /// The least rate of a request's body, in bytes a second.
    pub body_bytes_per_second: u64,
    /// For which a client that does not read is left to block its answer.
    pub answer: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// For which a client that goes on sending after the last answer is listened to.
    pub linger: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            body_bytes_per_second: 1024,
            answer: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            linger: Duration::from_secs(1),
        }
    }
}

impl Timeouts {
    /// How often connections are looked through for those whose time is over.
    pub(crate) fn sweep_period(&self) -> Duration {
        let shortest = [self.head, self.body, self.answer, self.idle, self.linger]
            .into_iter()
            .min()
            .unwrap_or(SWEEP_MAX);
        (shortest / 4).clamp(SWEEP_MIN, SWEEP_MAX)
    }
}

const SWEEP_MIN: Duration = Duration::from_millis(10);
const SWEEP_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_looked_through_as_often_as_the_shortest_timeout_needs() {
        let usual = Timeouts::default();
        assert_eq!(usual.sweep_period(), Duration::from_millis(250));
        let short = Timeouts { body: Duration::from_millis(100), ..usual };
        assert_eq!(short.sweep_period(), Duration::from_millis(25));
        let none = Timeouts { idle: Duration::ZERO, ..usual };
        assert_eq!(none.sweep_period(), Duration::from_millis(10));
    }
}
