//! Plan of a load: target, connections, schedule and limits.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tollgate_tls::TlsClient;

use crate::rate::Rate;
use crate::replay::Replay;
use crate::workload::Workload;

/// Limit of [`Plan::connections_max`] per generator. One client address has about 28,000 ports towards one target
/// (`net.ipv4.ip_local_port_range`).
pub const MAX_CONNECTIONS: usize = 20_000;

pub const MAX_THREADS: usize = 256;

pub const MAX_PIPELINE: usize = 1_000;

/// Limit of [`Shard::count`].
pub const MAX_SHARDS: usize = 1_000;

/// Bytes of bodies that the streams of a connection can send at first (RFC 9113, section 6.9.2).
const INITIAL_WINDOW: usize = 65_535;

/// Limit of [`Protocol::Http2::streams`](Protocol::Http2).
pub const MAX_STREAMS: usize = 1_000;

/// Limit of the rate of an open loop, in requests per second.
pub const MAX_RATE: f64 = 10_000_000.0;

/// Limit of both timeouts. A latency histogram does not reach further.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// Lower limit of the intervals of a series.
pub const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Limit of the stages of a rate.
pub const MAX_STAGES: usize = 1_000;

/// One load: requests, target, timing and connections.
#[derive(Clone, Debug)]
pub struct Plan {
    pub target: Target,
    /// `None` without TLS.
    pub tls: Option<TlsClient>,
    pub workload: Arc<Workload>,
    pub protocol: Protocol,
    pub arrivals: Arrivals,
    /// Sessions of recorded clients, whose requests are sent at the times of the open loop, in the recorded order. Each
    /// session has connections of its own, at most `connections_max` over all; none is opened at the start. Needs
    /// constant gaps, keep-alive, and as many `requests` as it has. `None`: connections carry any request.
    pub replay: Option<Arc<Replay>>,
    /// Connections opened at the start, over all threads; 1 to [`MAX_CONNECTIONS`].
    pub connections: usize,
    /// Connections that an open loop may grow to when a request is due and none is free, over all
    /// threads; `connections` to [`MAX_CONNECTIONS`]. A closed loop does not grow.
    pub connections_max: usize,
    /// Threads that send; 1 to [`MAX_THREADS`], at most one per connection.
    pub threads: usize,
    /// True if a connection carries one request after another. Otherwise each request opens a
    /// connection, its latency includes the connect, and its text should say `Connection: close`.
    pub keep_alive: bool,
    /// True to make only TLS handshakes: each request connects, is complete with the handshake and sends nothing more.
    /// Needs TLS, HTTP/1.1 and no keep-alive.
    pub handshakes: bool,
    /// Limit of the time to connect; up to [`MAX_TIMEOUT`], checked every millisecond.
    pub connect_timeout: Duration,
    /// Limit of the time from send to complete response; as `connect_timeout`.
    pub response_timeout: Duration,
    /// Number of requests after which the load ends, over all threads.
    pub requests: Option<u64>,
    /// True if the load starts with a warm-up, so that the caller opens the window. Otherwise the
    /// window opens with the first request.
    pub warm_up: bool,
    /// Length of the intervals of a [`Series`](crate::Series); at least [`MIN_INTERVAL`]. `None`: no series, which saves
    /// a few nanoseconds per response.
    pub series: Option<Duration>,
    /// True to record the time to first byte, which costs some CPU per response.
    pub first_byte: bool,
    /// True if threads poll for events instead of sleeping. This saves the server the cost of waking
    /// them and makes no request late, but each thread uses a whole CPU.
    pub busy_poll: bool,
    /// CPUs to run on, one per thread, round robin. Empty: threads are not pinned.
    pub cpus: Vec<usize>,
    /// Part of the plan that this generator sends. Rate, requests and connections of the plan are those of all parts.
    pub shard: Shard,
}

/// One of several generators that send one plan together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// From 0.
    pub index: usize,
    /// Number of generators; 1 to [`MAX_SHARDS`].
    pub count: usize,
}

impl Shard {
    /// The only generator of a plan.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Number of a thread among those of all generators, and their number. The generators take turns, so that each has
    /// every `count`-th request of a schedule.
    pub(crate) fn thread(self, thread: usize, threads: usize) -> (usize, usize) {
        (thread * self.count + self.index, threads * self.count)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Protocol, and the limit of requests in flight on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Http1 {
        /// 1 to [`MAX_PIPELINE`]; 1 without keep-alive.
        pipeline: usize,
    },
    /// By ALPN over TLS; otherwise with prior knowledge (RFC 9113, section 3.3).
    Http2 {
        /// 1 to [`MAX_STREAMS`]. The server may allow fewer.
        streams: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Closed loop: each connection sends when its last response is complete. Finds the capacity of
    /// a server.
    Closed,
    /// Open loop: requests leave on a schedule, independent of responses. Finds the latency at a
    /// known load.
    Open { rate: Rate, spacing: Spacing },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    Constant,
    Poisson {
        /// Seed of the gaps.
        seed: u64,
    },
}

/// Error that prevents or ends a load. Failures of single requests are counted in
/// [`Failures`](crate::Failures) instead.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{0}")]
    Workload(String),
    #[error("{0}")]
    Plan(String),
    /// Threads cannot be pinned to the CPUs of the plan.
    #[error("cannot pin threads to CPUs {cpus:?}: choose others, or none")]
    Cpus { cpus: Vec<usize>, source: io::Error },
    /// A thread cannot start or continue.
    #[error("load thread {thread} cannot {action}")]
    Thread { thread: usize, action: &'static str, source: io::Error },
}

impl Plan {
    /// Rate of an open loop.
    pub fn rate(&self) -> Option<&Rate> {
        match &self.arrivals {
            Arrivals::Closed => None,
            Arrivals::Open { rate, .. } => Some(rate),
        }
    }

    /// Checks all limits. [`Generator::start`](crate::Generator::start) does, too.
    pub fn validate(&self) -> Result<(), Error> {
        let &Self { connections, connections_max, threads, .. } = self;
        check((1..=MAX_THREADS).contains(&threads), || {
            format!("cannot use {threads} threads: choose 1 to {MAX_THREADS}")
        })?;
        let Shard { index, count } = self.shard;
        check((1..=MAX_SHARDS).contains(&count) && index < count, || {
            format!("cannot send part {index} of {count}: choose 1 to {MAX_SHARDS} generators")
        })?;
        // Each generator has ports of its own.
        let (all_threads, limit) = (threads * count, MAX_CONNECTIONS * count);
        check((all_threads..=limit).contains(&connections), || {
            format!(
                "cannot use {connections} connections for {all_threads} threads: choose {all_threads} to {limit}"
            )
        })?;
        check((connections..=limit).contains(&connections_max), || {
            format!(
                "cannot grow {connections} connections to {connections_max}: choose {connections} to {limit}"
            )
        })?;
        self.validate_protocol()?;
        if let Some(rate) = self.rate() {
            rate.validate().map_err(Error::Plan)?;
        }
        self.validate_replay()?;
        check(!(self.handshakes && self.keep_alive), || {
            "cannot make handshakes alone with keep-alive: open a connection for each".to_owned()
        })?;
        check(self.series.is_none_or(|length| length >= MIN_INTERVAL), || {
            let min = MIN_INTERVAL.as_millis();
            format!("cannot divide the load into shorter intervals than {min} ms")
        })?;
        check(self.requests != Some(0), || "cannot send 0 requests: choose at least 1".to_owned())?;
        for (name, timeout) in
            [("connect", self.connect_timeout), ("response", self.response_timeout)]
        {
            check(!timeout.is_zero() && timeout <= MAX_TIMEOUT, || {
                let seconds = timeout.as_secs_f64();
                let max = MAX_TIMEOUT.as_secs();
                format!(
                    "cannot use a {name} timeout of {seconds} s: choose more than 0 and at most {max} s"
                )
            })?;
        }
        Ok(())
    }

    fn validate_protocol(&self) -> Result<(), Error> {
        match self.protocol {
            Protocol::Http1 { pipeline } => {
                check((1..=MAX_PIPELINE).contains(&pipeline), || {
                    format!("cannot pipeline {pipeline} requests: choose 1 to {MAX_PIPELINE}")
                })?;
                check(pipeline == 1 || self.keep_alive, || {
                    format!("cannot pipeline {pipeline} requests without keep-alive: choose 1")
                })?;
                let mut requests = self.workload.requests().iter();
                check(pipeline == 1 || !requests.any(|request| request.message.closes()), || {
                    format!(
                        "cannot pipeline {pipeline} requests with `Connection: close`: choose 1"
                    )
                })
            }
            Protocol::Http2 { streams } => {
                check((1..=MAX_STREAMS).contains(&streams), || {
                    format!("cannot use {streams} streams: choose 1 to {MAX_STREAMS}")
                })?;
                check(self.keep_alive, || {
                    "cannot open a connection for each request over HTTP/2: use HTTP/1.1".to_owned()
                })
            }
        }
    }

    fn validate_replay(&self) -> Result<(), Error> {
        let Some(replay) = &self.replay else {
            let is_recorded = matches!(self.rate(), Some(Rate::Recorded(_)));
            return check(!is_recorded, || "cannot use recorded times without a replay".to_owned());
        };
        let is_constant =
            matches!(self.arrivals, Arrivals::Open { spacing: Spacing::Constant, .. });
        let has_all_times = match self.rate() {
            Some(Rate::Recorded(times)) => times.len() == replay.len(),
            Some(Rate::Constant(_) | Rate::Stages(_)) | None => true,
        };
        let conflicts = [
            (!is_constant, "without a rate of constant gaps"),
            (!has_all_times, "with another number of recorded times"),
            (!self.keep_alive, "without keep-alive: sessions keep their connections"),
            (self.warm_up, "with a warm-up: all requests are measured"),
            (self.shard != Shard::WHOLE, "with several generators: a session has one"),
            (
                matches!(self.protocol, Protocol::Http1 { pipeline } if pipeline > 1),
                "with several requests on a connection: a session opens another one",
            ),
            (self.requests != Some(replay.len() as u64), "with another number of requests"),
        ];
        match conflicts.into_iter().find(|(is_used, _)| *is_used) {
            Some((_, reason)) => Err(Error::Plan(format!("cannot replay a recording {reason}"))),
            None => Ok(()),
        }
    }

    /// Limit of requests in flight on one connection.
    pub(crate) fn concurrency(&self) -> usize {
        match self.protocol {
            Protocol::Http1 { pipeline: requests } | Protocol::Http2 { streams: requests } => {
                requests
            }
        }
    }

    /// True if threads let responses arrive before they read them: in a closed loop over several streams, unless they
    /// poll. Bodies that wait for room in a window would wait for a pause with each of its updates.
    pub(crate) fn coalesces(&self) -> bool {
        let Protocol::Http2 { streams } = self.protocol else { return false };
        let requests = self.workload.requests().iter();
        let body_max = requests.map(|request| request.message.body().len()).max().unwrap_or(0);
        let is_closed = matches!(self.arrivals, Arrivals::Closed);
        is_closed && !self.busy_poll && streams > 1 && streams * body_max <= INITIAL_WINDOW
    }
}

/// Share of one thread in `total`. The first threads get the remainder.
pub(crate) fn share(total: u64, thread: usize, threads: usize) -> u64 {
    let (thread, threads) = (thread as u64, threads as u64);
    total / threads + u64::from(thread < total % threads)
}

fn check(is_valid: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
    if is_valid { Ok(()) } else { Err(Error::Plan(message())) }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_threads_add_up() {
        let shares = |total| [0, 1, 2].map(|thread| share(total, thread, 3));
        assert_eq!(shares(7), [3, 2, 2]);
        assert_eq!(shares(2), [1, 1, 0]);
        assert_eq!(shares(9), [3, 3, 3]);
    }

    #[test]
    fn threads_of_generators_take_turns() {
        let numbers = |index| {
            let shard = Shard { index, count: 3 };
            [0, 1].map(|thread| shard.thread(thread, 2))
        };
        assert_eq!(numbers(0), [(0, 6), (3, 6)]);
        assert_eq!(numbers(2), [(2, 6), (5, 6)]);
        assert_eq!(Shard::WHOLE.thread(1, 2), (1, 2));
    }
}
